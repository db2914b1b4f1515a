"""Random sequences of operations: each has a few features only, so that these meet."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.whole.world import Operation

QUEUES = ("q1", "q1", "q1", "q2", "q2", "q3")
EXCHANGES = ("x1", "x2")
TOPICS = ("a", "a/b", "a/c", "b")
FILTERS = ("a", "a/b", "a/+", "a/#", "#", "+", "+/b", "b")
KEYS = ("a", "a.b", "a.c", "b", "q1", "q2")
PATTERNS = ("a", "a.*", "a.#", "#", "*.b", "b")
KINDS = ("direct", "fanout", "topic", "headers")

Make = Callable[[random.Random], tuple[str, str, dict[str, Any]]]


def amqp(r: random.Random) -> str:
    return r.choice(("A1", "A1", "A2"))


def mqtt(r: random.Random) -> str:
    return r.choice(("M1", "M1", "M2", "M3"))


def some(r: random.Random, share: float) -> bool:
    return r.random() < share


def settings(r: random.Random, features: set[str]) -> dict[str, Any]:
    """What a queue is declared with."""
    wanted: dict[str, Any] = {"durable": some(r, 0.7)}
    if "length" in features and some(r, 0.6):
        wanted["max_length"] = r.randint(1, 4)
        wanted["overflow"] = r.choice(("drop-head", "reject-publish"))
    if "dead" in features and some(r, 0.6):
        wanted["dead_exchange"] = r.choice(("", "", "x1", "amq.fanout"))
        if wanted["dead_exchange"] == "" or some(r, 0.3):
            wanted["dead_key"] = r.choice(("d1", "d1", "q2"))
    if "limit" in features and some(r, 0.6):
        wanted["attempts_max"] = r.randint(1, 3)
    if "ttl" in features and some(r, 0.5):
        wanted["ttl_ms"] = r.choice((40, 80, 60_000))
    if "priority" in features and some(r, 0.6):
        wanted["max_priority"] = r.choice((1, 3))
    if "single" in features and some(r, 0.5):
        wanted["single_active"] = True
    return wanted


def exchange(r: random.Random) -> str:
    return r.choice((*EXCHANGES, *EXCHANGES, "amq.direct", "amq.fanout", "amq.topic", "amq.topic"))


def declare(r: random.Random, features: set[str]) -> Operation:
    q = r.choice((*QUEUES, "d1")) if "dead" in features else r.choice(QUEUES)
    wanted = settings(r, features)
    if q == "d1":
        wanted = {"durable": True}
    elif "exclusive" in features and some(r, 0.2):
        wanted["exclusive"] = True
    elif "exclusive" in features and some(r, 0.2):
        wanted["auto_delete"] = True
    if wanted.get("exclusive") or wanted.get("auto_delete"):
        wanted["durable"] = False
    return "declare", amqp(r), {"q": q, **wanted}


def publish(r: random.Random, features: set[str]) -> Operation:
    default = some(r, 0.5) or "exchanges" not in features
    wanted: dict[str, Any] = {"x": "" if default else exchange(r)}
    wanted["key"] = r.choice(QUEUES) if default else r.choice(KEYS)
    wanted["n"] = r.choice((1, 1, 2, 4))
    if some(r, 0.3):
        wanted["mandatory"] = True
    if "copies" in features and some(r, 0.4):
        wanted[r.choice(("cc", "bcc"))] = [r.choice(QUEUES)]
    if "priority" in features and some(r, 0.6):
        wanted["priority"] = r.randint(0, 3)
    if "ttl" in features and some(r, 0.3):
        wanted["ttl_ms"] = r.choice((1, 40, 60_000))
    if "delay" in features and some(r, 0.4):
        wanted["delay_ms"] = r.choice((10, 40, 80))
    if "identity" in features and some(r, 0.4):
        wanted |= {"identifier": r.choice(("i1", "i2")), "n": 1, "again": some(r, 0.6)}
    if "user" in features and some(r, 0.3):
        wanted["user_id"] = r.choice(("guest", "other"))
    if "headers" in features and some(r, 0.5):
        wanted["headers"] = {"h": r.choice((1, 2))}
    return "pub", amqp(r), wanted


def bind(r: random.Random, features: set[str], name: str = "bind") -> Operation:
    x = exchange(r)
    wanted: dict[str, Any] = {"x": x, "key": r.choice(PATTERNS + KEYS)}
    if "e2e" in features and some(r, 0.4):
        wanted["to"] = exchange(r)
    else:
        wanted["q"] = r.choice(QUEUES)
    if "headers" in features and some(r, 0.5):
        wanted["args"] = {"h": r.choice((1, 2)), "x-match": r.choice(("all", "any"))}
    return name, amqp(r), wanted


def xdeclare(r: random.Random, features: set[str]) -> Operation:
    kinds = KINDS if "headers" in features else KINDS[:3]
    wanted: dict[str, Any] = {"x": r.choice(EXCHANGES), "kind": r.choice(kinds), "durable": some(r, 0.7)}
    if "alternate" in features and some(r, 0.6):
        wanted["alternate"] = r.choice((*EXCHANGES, "amq.fanout", "amq.topic"))
    if "e2e" in features and some(r, 0.2):
        wanted["auto_delete"] = True
    return "xdeclare", amqp(r), wanted


def m_open(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"version": r.choice((5, 5, 4)), "clean": some(r, 0.4)}
    if "lasting" in features:
        wanted["lasting"] = some(r, 0.7)
    else:
        wanted |= {"clean": True}
    if "hold" in features and some(r, 0.5):
        wanted["hold"] = True
    if ("hold" in features or "share" in features) and some(r, 0.6):
        wanted["receive_maximum"] = r.choice((1, 2, 2, 3))
    if "will" in features and some(r, 0.5):
        wanted["will"] = {"topic": r.choice(TOPICS), "qos": r.randint(0, 2), "retain": some(r, 0.3)}
    return "m_open", mqtt(r), wanted


def sub(r: random.Random, features: set[str]) -> Operation:
    topic = r.choice(FILTERS)
    wanted: dict[str, Any] = {"qos": r.randint(0, 2)}
    if "share" in features and some(r, 0.4):
        topic = f"$share/{r.choice(('g', 'h'))}/{topic}"
    if "options" in features:
        wanted |= {
            "no_local": some(r, 0.2) and not topic.startswith("$share"),
            "as_published": some(r, 0.3),
            "handling": r.randint(0, 2),
            "identifier": r.choice((0, 0, 1, 2)),
        }
    return "sub", mqtt(r), {"topic": topic, **wanted}


def mpub(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"topic": r.choice(TOPICS), "qos": r.randint(0, 2), "n": r.choice((1, 1, 3))}
    if "retain" in features and some(r, 0.5):
        wanted |= {"retain": True, "empty": some(r, 0.2), "n": 1}
    return "mpub", mqtt(r), wanted


def qsub(r: random.Random, features: set[str]) -> Operation:
    return (
        "qsub",
        mqtt(r),
        {
            "q": r.choice(QUEUES),
            "group": r.choice(("", "g", "g")),
            "explicit": some(r, 0.5),
            "qos": r.randint(0, 2),
            **(
                {"pattern": r.choice(("k", "k/#", "+", "l"))}
                if "patterns" in features and some(r, 0.6)
                else {}
            ),
        },
    )


def consume(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice((*QUEUES, "q1"))}
    if "groups" in features and some(r, 0.5):
        wanted["group"] = r.choice(("g", "h"))
    wanted["no_ack"] = some(r, 0.2)
    wanted["prefetch"] = r.choice((0, 1, 2))
    if some(r, 0.05):
        wanted["exclusive"] = True
    if "patterns" in features and "groups" in features and some(r, 0.4):
        wanted["pattern"] = r.choice(("k", "k/#", "l"))
    return "consume", amqp(r), wanted


# feature: the operations it brings, with weights
Part = Callable[[random.Random, set[str]], Operation]
PARTS: dict[str, list[tuple[int, Part]]] = {
    "queues": [
        (3, declare),
        (1, lambda r, f: ("delete", amqp(r), {"q": r.choice(QUEUES)})),
        (
            1,
            lambda r, f: (
                "delete",
                amqp(r),
                {"q": r.choice(QUEUES), r.choice(("if_unused", "if_empty")): True},
            ),
        ),
        (1, lambda r, f: ("purge", amqp(r), {"q": r.choice(QUEUES)})),
        (1, lambda r, f: ("look", amqp(r), {"q": r.choice(QUEUES)})),
        (1, lambda r, f: ("counts", "H", {"q": r.choice(QUEUES)})),
    ],
    "publish": [(10, publish)],
    "consume": [
        (4, consume),
        (4, lambda r, f: ("get", amqp(r), {"q": r.choice(QUEUES), "no_ack": some(r, 0.3)})),
        (5, lambda r, f: ("ack", amqp(r), {"i": r.randrange(4), "multiple": some(r, 0.3)})),
        (
            4,
            lambda r, f: (
                "nack",
                amqp(r),
                {"i": r.randrange(4), "multiple": some(r, 0.3), "requeue": some(r, 0.6)},
            ),
        ),
        (2, lambda r, f: ("reject", amqp(r), {"i": r.randrange(4), "requeue": some(r, 0.4)})),
        (1, lambda r, f: ("recover", amqp(r), {})),
        (2, lambda r, f: ("cancel", amqp(r), {"i": r.randrange(3)})),
        (1, lambda r, f: ("a_close", amqp(r), {"rude": some(r, 0.5)})),
        (2, lambda r, f: ("a_open", amqp(r), {"mode": mode(r, f)})),
    ],
    "exchanges": [
        (3, xdeclare),
        (4, bind),
        (2, lambda r, f: bind(r, f, "unbind")),
        (1, lambda r, f: ("xdelete", amqp(r), {"x": r.choice(EXCHANGES), "if_unused": some(r, 0.3)})),
    ],
    "tx": [
        (3, lambda r, f: ("commit", amqp(r), {})),
        (1, lambda r, f: ("rollback", amqp(r), {})),
    ],
    "mqtt": [
        (3, m_open),
        (2, lambda r, f: ("m_close", mqtt(r), {"rude": some(r, 0.5), "with_will": some(r, 0.2)})),
        (6, sub),
        (1, lambda r, f: ("unsub", mqtt(r), {"topic": r.choice(FILTERS)})),
        (10, mpub),
    ],
    "mqueue": [
        (4, qsub),
        (1, lambda r, f: ("qunsub", mqtt(r), {"q": r.choice(QUEUES)})),
        (
            5,
            lambda r, f: (
                "qpub",
                mqtt(r),
                {
                    "q": r.choice(QUEUES),
                    "qos": r.randint(0, 2),
                    "n": r.choice((1, 2)),
                    "key": r.choice(("", "k", "l")),
                },
            ),
        ),
        (
            4,
            lambda r, f: (
                "verb",
                mqtt(r),
                {"verb": r.choice(("ack", "nack", "reject")), "i": r.randrange(3)},
            ),
        ),
    ],
    "hold": [(8, lambda r, f: ("mack", mqtt(r), {"i": r.choice((0, 0, 1)), "refuse": some(r, 0.2)}))],
    "http": [
        (
            2,
            lambda r, f: (
                "h_pub",
                "H",
                {"q": r.choice(QUEUES), "delay_ms": r.choice((0, 0, 30)) if "delay" in f else 0},
            ),
        ),
        (2, lambda r, f: ("h_rpub", "H", {"x": exchange(r), "key": r.choice(KEYS), "mode": r.randint(0, 2)})),
        (
            2,
            lambda r, f: (
                "h_get",
                "H",
                {"q": r.choice(QUEUES), "count": r.choice((1, 2)), "requeue": some(r, 0.4)},
            ),
        ),
        (1, lambda r, f: ("h_purge", "H", {"q": r.choice(QUEUES)})),
        (2, lambda r, f: ("redrive", "H", {"q": r.choice(QUEUES), "i": r.randrange(3)})),
        (2, lambda r, f: ("counts", "H", {"q": r.choice(QUEUES)})),
        (2, lambda r, f: ("mq_post", "H", {"q": r.choice(QUEUES)})),
        (2, lambda r, f: ("mq_take", "H", {"q": r.choice(QUEUES), "back": some(r, 0.4)})),
    ],
    "pause": [
        (
            2,
            lambda r, f: (
                "pause",
                "H",
                {"q": r.choice(QUEUES), "publish": some(r, 0.6), "deliver": some(r, 0.6)},
            ),
        ),
        (2, lambda r, f: ("resume", "H", {"q": r.choice(QUEUES)})),
    ],
    "delay": [(3, lambda r, f: ("tick", "", {"ms": r.choice((10, 50, 100))}))],
    "ttl": [(3, lambda r, f: ("tick", "", {"ms": r.choice((10, 50, 100))}))],
}
SWITCHES = (
    "length", "dead", "limit", "priority", "single", "copies", "identity", "user", "headers", "e2e",
    "alternate", "patterns", "lasting", "will", "share", "options", "retain", "groups", "exclusive", "plain",
)  # fmt: skip
RESTARTS = 0.05


def mode(r: random.Random, features: set[str]) -> str:
    modes = ["confirm", "confirm"] + ["tx"] * 2 * ("tx" in features) + ["plain"] * ("plain" in features)
    return r.choice(modes)


def sequence(seed: int, *, only: str = "", restarts: float = RESTARTS) -> list[Operation]:
    """The sequence of a seed. `only`: `amqp` or `mqtt`, what other brokers have, too."""
    r = random.Random(seed)
    share = r.choice((0.25, 0.4, 0.6))
    features = {name for name in (*PARTS, *SWITCHES) if some(r, share)}
    if only:
        features -= {"http", "pause", "mqueue", "delay", "identity", "groups", "limit"}
        features -= {"mqtt", "hold"} if only == "amqp" else set(PARTS) - {"mqtt", "hold"}
    if only == "mqtt" or (not only and some(r, 0.6)):
        features.add("mqtt")
    if only != "mqtt" and ("mqtt" not in features or some(r, 0.8)):
        features |= {"queues", "publish", "consume"}
    for rare in ("delay", "ttl"):
        if not some(r, 0.3):
            features.discard(rare)
    if "mqtt" not in features:
        features -= {"hold", "mqueue"}
    if "queues" not in features:
        features -= {"exchanges", "tx", "http", "pause"}
    operations: list[Operation] = []
    if "queues" in features:
        operations += [
            ("a_open", "A1", {"mode": mode(r, features)}),
            declare(r, features),
            declare(r, features),
        ]
        operations += [consume(r, features), publish(r, features)]
        if "tx" in features or some(r, 0.5):
            operations.append(("a_open", "A2", {"mode": mode(r, features)}))
        if "dead" in features:
            operations.append(("declare", "A1", {"q": "d1", "durable": True}))
    if "mqtt" in features:
        operations += [m_open(r, features), sub(r, features), m_open(r, features)]
    parts = [part for name in sorted(features & set(PARTS)) for part in PARTS[name]]
    weights = [weight for weight, _ in parts]
    for _ in range(r.choice((15, 30, 50))):
        _, part = r.choices(parts, weights)[0]
        operations.append(part(r, features))
    if some(r, restarts):
        for _ in range(r.choice((1, 1, 2))):
            place = r.randrange(len(operations) // 2, len(operations) + 1)
            reopen: list[Operation] = [("a_open", "A1", {}), ("a_open", "A2", {})]
            how: dict[str, Any] = {"kill": some(r, 0.8)}
            if some(r, 0.7):
                who = r.choice(("A1", "A1", "M1", "M2"))
                how["during"] = {
                    "client": who,
                    "n": r.choice((5, 30)),
                    "confirmed": r.randint(0, 5),
                    "q": r.choice(QUEUES),
                    "topic": r.choice(TOPICS),
                }
            operations[place:place] = [("restart", "", how), *reopen]
    return operations
