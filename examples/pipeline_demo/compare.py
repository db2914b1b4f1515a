"""Whether the alerts are those they must be, each once."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.pipeline_demo.books import Delivered

Alert = dict[str, Any]


@dataclass
class Verdict:
    """What is wrong, each as a list of alert IDs. `undecided`, windows with too late readings, is not."""

    count: int = 0
    doubled: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.doubled or self.missing or self.unexpected or self.different)


def read_rows(directory: Path) -> list[Alert]:
    """JSON lines as Spark writes them."""
    files = sorted(directory.glob("part-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def expected_of(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Alert], set[str]]:
    """The alerts there must be by ID, and the IDs that are undecided, of a recomputation."""
    alerts, undecided = {}, set()
    for row in rows:
        fields = {name: value for name, value in row.items() if name not in ("alert_id", "late")}
        if row.get("late"):
            undecided.add(row["alert_id"])
        else:
            alerts[row["alert_id"]] = fields
    return alerts, undecided


def compare(deliveries: Iterable[Delivered], rows: Iterable[Mapping[str, Any]]) -> Verdict:
    """The queue's alerts beside recomputed ones.

    Deliveries that are marked as such are repeated ones of the same message and do not count.
    """
    expected, undecided = expected_of(rows)
    first = [delivery for delivery in deliveries if not delivery.redelivered]
    counts = Counter(delivery.alert_id for delivery in first)
    found = {delivery.alert_id: json.loads(delivery.body) for delivery in first}
    both = found.keys() & expected.keys()
    return Verdict(
        len(found),
        sorted(name for name, count in counts.items() if count > 1),
        sorted(expected.keys() - found.keys()),
        sorted(found.keys() - expected.keys() - undecided),
        sorted(name for name in both if found[name] != expected[name]),
        sorted(undecided),
    )
