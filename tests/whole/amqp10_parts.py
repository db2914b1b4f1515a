"""Operations of AMQP 1.0, put in between those of a sequence."""

from __future__ import annotations

import random
from typing import Any

from tests.whole.names import QUEUES, some
from tests.whole.world import Operation

AMQP10_SHARE = 0.35  # of all sequences
EXCHANGES = ("x1", "x2", "amq.direct", "amq.fanout", "amq.topic")
KEYS = ("a", "a.b", "b", "q1")
_DECLARATIONS = ("declare", "delete", "purge", "look", "xdeclare", "xdelete", "bind", "unbind")


def client(r: random.Random) -> str:
    return r.choice(("L1", "L1", "L2"))


def l_open(r: random.Random, name: str = "") -> Operation:
    wanted: dict[str, Any] = {}
    if some(r, 0.4):
        wanted["window"] = r.choice((1, 2, 5))
    if some(r, 0.3):
        wanted["frame_max"] = 512
    return "l_open", name or client(r), wanted


def l_pub(r: random.Random) -> Operation:
    wanted: dict[str, Any] = {"x": "", "key": r.choice(QUEUES), "n": r.choice((1, 1, 2, 4))}
    if some(r, 0.3):
        wanted |= {"x": r.choice(EXCHANGES), "key": r.choice(KEYS)}
    elif some(r, 0.2):
        wanted |= {"x": r.choice(QUEUES), "key": r.choice(("", "k", "l")), "by": "$queue"}
    if "by" not in wanted and some(r, 0.3):
        wanted["by"] = "anywhere"
    if some(r, 0.25):
        wanted["settled"] = True
    if some(r, 0.15) and "$queue" not in wanted.values():
        wanted["cc"] = [r.choice(QUEUES)]
    if some(r, 0.1):
        wanted["delay_ms"] = r.choice((10, 40))
    if some(r, 0.1):
        wanted["ttl_ms"] = r.choice((1, 40, 60_000))
    if some(r, 0.2):
        wanted["priority"] = r.randint(0, 3)
    if some(r, 0.2):
        wanted["durable"] = False
    if some(r, 0.1):
        wanted["user_id"] = r.choice(("guest", "guest", "other"))
    if some(r, 0.4):
        wanted["headers"] = {"h": r.choice((1, 2))}
    if some(r, 0.1):
        wanted |= {"n": 1, "identifier": r.choice(("i1", "i2"))}
    if some(r, 0.15):
        wanted["large"] = True
    if some(r, 0.2):
        wanted["tx"] = True
    return "l_pub", client(r), wanted


def l_receive(r: random.Random) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice((*QUEUES, "q1"))}
    wanted["credit"] = r.choice((0, 1, 2, 5, 100))
    if some(r, 0.3):
        wanted["group"] = r.choice(("g", "h"))
    if some(r, 0.2):
        wanted["by"] = "$queue"
    if some(r, 0.15) and "group" in wanted:
        wanted["pattern"] = r.choice(("k", "k/#", "l"))
    if some(r, 0.2):
        wanted["settled"] = True
    if some(r, 0.2):
        wanted["priority"] = r.choice((-1, 1, 2))
    if some(r, 0.05):
        wanted["exclusive"] = True
    if some(r, 0.2):
        wanted["drain"] = True
    if some(r, 0.3):
        wanted["filter"] = r.choice(("jms", "sql", "properties"))
    return "l_receive", client(r), wanted


def l_settle(r: random.Random) -> Operation:
    outcome = r.choice(
        (
            "accepted",
            "accepted",
            "accepted",
            "released",
            "modified",
            "failed",
            "failed",
            "undeliverable",
            "rejected",
        )
    )
    wanted = {"i": r.randrange(4), "n": r.choice((1, 1, 2, 4)), "outcome": outcome}
    if some(r, 0.3):
        wanted["first"] = False
    if some(r, 0.2):
        wanted["tx"] = True
    return "l_settle", client(r), wanted


def l_credit(r: random.Random) -> Operation:
    wanted = {"i": r.randrange(3), "credit": r.choice((0, 1, 2, 5, 100)), "drain": some(r, 0.3)}
    return "l_credit", client(r), wanted


def l_read(r: random.Random) -> Operation:
    wanted: dict[str, Any] = {"q": "s1", "credit": r.choice((0, 1, 2, 5, 100))}
    if some(r, 0.8):
        wanted["at"] = r.choice(("first", "last", "next", 0, r.randrange(12)))
    if some(r, 0.5):
        wanted["group"] = r.choice(("g", "h"))
    if some(r, 0.15):
        wanted["settled"] = True
    if some(r, 0.2):
        wanted["drain"] = True
    return "l_read", client(r), wanted


def l_read_on(r: random.Random) -> Operation:
    name, of, wanted = l_credit(r)
    return "l_read_on", of, wanted


_OF_STREAMS = (
    (8, l_read),
    (6, l_read_on),
    (2, lambda r: ("l_unread", client(r), {"i": r.randrange(3), "closed": some(r, 0.8)})),
    (6, lambda r: ("l_pub", client(r), {"x": "", "key": "s1", "n": r.choice((1, 2, 4))})),
)
_PARTS = (
    (2, l_open),
    (1, lambda r: ("l_close", client(r), {"rude": some(r, 0.5)})),
    (1, lambda r: ("l_end", client(r), {})),
    (10, l_pub),
    (1, lambda r: ("l_unsend", client(r), {"i": r.randrange(4)})),
    (8, l_receive),
    (5, l_credit),
    (2, lambda r: ("l_stop", client(r), {"i": r.randrange(3), "closed": some(r, 0.8)})),
    (12, l_settle),
    (1, lambda r: ("l_begin", client(r), {})),
    (3, lambda r: ("l_discharge", client(r), {"fail": some(r, 0.3)})),
)


def with_amqp10(r: random.Random, operations: list[Operation]) -> list[Operation]:
    """The operations, with some of AMQP 1.0 in between, and some declarations made over that."""
    has_stream = any(arguments.get("stream") for _, _, arguments in operations)
    parts = (*_PARTS, *_OF_STREAMS) if has_stream else _PARTS
    weights = [weight for weight, _ in parts]
    has_beside = any(name == "beside" for name, _, _ in operations)
    mixed: list[Operation] = []
    begun = False
    for name, of, arguments in operations:
        if of.startswith("A") and name in _DECLARATIONS and begun and some(r, 0.3):
            of = client(r)
        mixed.append((name, of, arguments))
        if name == "bounds":
            continue
        if not begun or name == "restart":
            begun = True
            mixed += [l_open(r, "L1"), l_open(r, "L2")]
            if not any(one[0] == "declare" for one in operations):
                mixed.append(("declare", "L1", {"q": "q1"}))
        while some(r, 0.5):
            part = r.choices(parts, weights)[0][1](r)
            if some(r, 0.85):
                part[2]["dare"] = False
            if has_beside and some(r, 0.3):
                part = ("beside", part[1], {"op": part[0], "args": part[2]})
            mixed.append(part)
    return mixed
