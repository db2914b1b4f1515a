"""How many times a second filters are evaluated: `python -m benchmarks.filters`.

The message matches every filter, so nothing ends at the first condition. The best of several runs counts, as
other programs on the machine can only make a run slower.
"""

import time
from collections.abc import Callable, Mapping

from queue_manager.filters import PropertyFilter, Selector

RUNS = 7
RUN_S = 0.2
BATCH = 2_000
TARGET_PER_S = 200_000  # for the first selector

FIELDS: Mapping[str, object] = {
    "region": "eu",
    "qty": 11,
    "price": 19.5,
    "urgent": True,
    "path": "orders/eu/2024/new",
    "JMSPriority": 7,
    "properties.subject": "orders.eu.new",
    "application-properties.region": "eu",
    "application-properties.qty": 11,
}

SELECTORS = (
    "region = 'eu' AND qty > 10",
    "region = 'eu'",
    "region IN ('us', 'eu', 'asia') AND NOT urgent = FALSE",
    "JMSPriority BETWEEN 5 AND 9 OR urgent",
    "path LIKE 'orders/%'",
    "path LIKE 'orders/%/20__/%new'",
    "qty * price - 1 > 200 AND missing IS NULL",
    "(region <> 'us' OR missing = 'x') AND (qty >= 10 AND qty <= 20 OR JMSPriority = 9) AND urgent",
)


def per_second(matches: Callable[[Mapping[str, object]], bool]) -> float:
    """Evaluations a second of the best run."""
    assert matches(FIELDS)
    best = 0.0
    for _ in range(RUNS):
        count = 0
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < RUN_S:
            for _ in range(BATCH):
                matches(FIELDS)
            count += BATCH
        best = max(best, count / elapsed)
    return best


def main() -> None:
    print(f"{'evaluations/s':>14}  filter")
    for text in SELECTORS:
        rate = per_second(Selector(text, "jms").matches)
        target = f"  (target {TARGET_PER_S:,})" if text == SELECTORS[0] else ""
        print(f"{rate:14,.0f}  {text}{target}")
    for section, entries in (
        ("application-properties", {"region": "eu", "qty": 11}),
        ("properties", {"subject": "&p:orders."}),
    ):
        rate = per_second(PropertyFilter(section, entries).matches)
        print(f"{rate:14,.0f}  {section} {entries}")
    begin = time.perf_counter()
    for index in range(200):
        Selector(f"region = 'eu' AND qty > {index}", "jms")
    print(f"{200 / (time.perf_counter() - begin):14,.0f}  selectors parsed and compiled (/s)")


if __name__ == "__main__":
    main()
