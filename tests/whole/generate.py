"""Random sequences of operations: each has a few features only, so that these meet."""

from __future__ import annotations

import random
from typing import Any

from tests.whole.amqp10_parts import AMQP10_SHARE, with_amqp10
from tests.whole.mqtt_parts import MQTT_PARTS, MQTT_SWITCHES, m_open, qpub, qsub, sub
from tests.whole.names import QUEUES, TOPICS, Part, some
from tests.whole.policy_operations import POLICY_SHARE, VALUE_SHARE, with_last_values, with_policies
from tests.whole.world import Operation

EXCHANGES = ("x1", "x2")
KEYS = ("a", "a.b", "a.c", "b", "q1", "q2")
PATTERNS = ("a", "a.*", "a.#", "#", "*.b", "b")
KINDS = ("direct", "fanout", "topic", "headers")


def amqp(r: random.Random) -> str:
    return r.choice(("A1", "A1", "A2"))


def settings(r: random.Random, features: set[str]) -> dict[str, Any]:
    """What a queue is declared with."""
    wanted: dict[str, Any] = {"durable": some(r, 0.7)}
    if "length" in features and some(r, 0.6):
        wanted["max_length"] = r.randint(1, 4)
        wanted["overflow"] = r.choice(("drop-head", "reject-publish", "reject-publish-dlx"))
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


def declare(r: random.Random, features: set[str], q: str = "") -> Operation:
    q = q or (r.choice((*QUEUES, "d1")) if "dead" in features else r.choice(QUEUES))
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
        wanted |= {"n": 1, "again": some(r, 0.6)}
        if some(r, 0.5):
            wanted["identifier"] = r.choice(("i1", "i2"))
        else:
            wanted |= {"producer": r.choice(("p1", "p1", "p2")), "sequence": r.randrange(6)}
    if "replies" in features and some(r, 0.7):
        wanted["ask"] = True
    if "user" in features and some(r, 0.3):
        wanted["user_id"] = r.choice(("guest", "guest", "guest", "other"))
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


def consume(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice((*QUEUES, "q1"))}
    if "groups" in features and some(r, 0.5):
        wanted["group"] = r.choice(("g", "h"))
    wanted["no_ack"] = some(r, 0.2)
    wanted["prefetch"] = r.choice((0, 1, 2))
    if "ranks" in features and some(r, 0.6):
        wanted["priority"] = r.choice((-1, 1, 1, 2))
    if some(r, 0.05):
        wanted["exclusive"] = True
    if "patterns" in features and "groups" in features and some(r, 0.4):
        wanted["pattern"] = r.choice(("k", "k/#", "l"))
    return "consume", amqp(r), wanted


def stream(r: random.Random) -> dict[str, Any]:
    """What a stream is declared with."""
    length = {"max_length": r.choice((3, 20))} if some(r, 0.3) else {}
    return {"q": "s1", "stream": True, **length}


def read(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": "s1", "prefetch": r.choice((0, 1, 2, 3))}
    if some(r, 0.8):
        wanted["at"] = r.choice(("first", "last", "next", 0, r.randrange(12)))
    if some(r, 0.5):
        wanted["group"] = r.choice(("g", "h"))
    if some(r, 0.15):
        wanted["no_ack"] = True
    return "read", amqp(r), wanted


PLACES = ("earliest", "latest")


def start(r: random.Random) -> dict[str, Any]:
    return {"start": r.choice(PLACES)} if some(r, 0.5) else {}


def move(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice(QUEUES), "to": r.choice(QUEUES), "i": r.randrange(3)}
    if some(r, 0.4):
        wanted["limit"] = r.randint(1, 2)
    if some(r, 0.4):
        wanted["copy"] = True
    return "move", "H", wanted


def wait(r: random.Random, features: set[str]) -> Operation:
    """A request that waits for a message, and what happens meanwhile."""
    q = r.choice(QUEUES)
    op, client, args = r.choice(
        (
            ("pub", "A1", {"x": "", "key": q, "dare": False}),
            ("pub", "A1", {"x": "", "key": q, "n": 2, "dare": False}),
            ("h_pub", "H", {"q": q}),
            ("mq_post", "H", {"q": q}),
            ("delete", "A1", {"q": q, "dare": False}),
            ("tick", "", {"ms": 1}),
        )
    )
    return "mq_wait", "H", {"q": q, "op": op, "client": client, "args": args}


OF_STREAMS = ("delete", "purge", "look", "bind", "unbind", "h_pub", "h_purge", "pause", "resume", "get")


def at_stream(r: random.Random, operation: Operation) -> None:
    """Have some of the operations on queues be on a stream."""
    name, _, arguments = operation
    if name == "pub" and some(r, 0.4):
        if arguments["x"] == "":
            arguments["key"] = "s1"
        else:
            arguments["cc"] = ["s1"]
    elif name in OF_STREAMS and arguments.get("q") and some(r, 0.2):
        arguments["q"] = "s1"
    elif name == "declare" and arguments.get("dead_key") == "d1" and some(r, 0.3):
        arguments["dead_key"] = "s1"


# feature: the operations it brings, with weights
PARTS: dict[str, list[tuple[int, Part]]] = {
    **MQTT_PARTS,
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
    "publish": [(20, publish)],
    "consume": [
        (10, consume),
        (6, lambda r, f: ("get", amqp(r), {"q": r.choice(QUEUES), "no_ack": some(r, 0.2)})),
        (12, lambda r, f: ("ack", amqp(r), {"i": r.randrange(4), "multiple": some(r, 0.3)})),
        (
            8,
            lambda r, f: (
                "nack",
                amqp(r),
                {"i": r.randrange(4), "multiple": some(r, 0.3), "requeue": some(r, 0.6)},
            ),
        ),
        (3, lambda r, f: ("reject", amqp(r), {"i": r.randrange(4), "requeue": some(r, 0.4)})),
        (1, lambda r, f: ("recover", amqp(r), {})),
        (2, lambda r, f: ("cancel", amqp(r), {"i": r.randrange(3)})),
        (1, lambda r, f: ("a_close", amqp(r), {"rude": some(r, 0.5)})),
        (3, lambda r, f: ("a_open", amqp(r), {"mode": mode(r, f)})),
    ],
    "exchanges": [
        (3, xdeclare),
        (4, bind),
        (2, lambda r, f: bind(r, f, "unbind")),
        (1, lambda r, f: ("xdelete", amqp(r), {"x": r.choice(EXCHANGES), "if_unused": some(r, 0.3)})),
    ],
    "replies": [
        (3, lambda r, f: ("ask_on", amqp(r), {"ack": some(r, 0.1)})),
        (1, lambda r, f: ("ask_off", amqp(r), {})),
        (
            4,
            lambda r, f: (
                "answer",
                amqp(r),
                {"i": r.choice((0, 0, 1)), "n": r.choice((1, 2)), "mandatory": some(r, 0.5)},
            ),
        ),
    ],
    "streams": [
        (2, lambda r, f: ("declare", amqp(r), stream(r))),
        (6, read),
        (2, lambda r, f: ("unread", amqp(r), {"i": r.randrange(3)})),
        (6, lambda r, f: ("ack", amqp(r), {"i": r.randrange(4), "multiple": some(r, 0.3)})),
    ],
    "tx": [
        (8, lambda r, f: ("commit", "A2", {})),
        (1, lambda r, f: ("rollback", "A2", {})),
    ],
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
        (2, lambda r, f: ("mq_take", "H", {"q": r.choice(QUEUES)})),
    ],
    "admin": [
        (
            3,
            lambda r, f: (
                "g_make",
                "H",
                {"q": r.choice(QUEUES), "group": r.choice(("g", "h", "")), **start(r)},
            ),
        ),
        (4, lambda r, f: ("g_delete", "H", {"q": r.choice(QUEUES), "i": r.randrange(3)})),
        (
            4,
            lambda r, f: (
                "g_reset",
                "H",
                {"q": r.choice(QUEUES), "i": r.randrange(3), "to": r.choice(PLACES)},
            ),
        ),
        (6, move),
        (2, lambda r, f: ("h_limit", "H", {"q": r.choice(QUEUES), "n": r.randint(2, 5)})),
        (3, wait),
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
    "alternate", "patterns", "ranks", "vhosts", "groups", "exclusive", "plain", *MQTT_SWITCHES,
)  # fmt: skip
RESTARTS = 0.025
FIRST_OPERATIONS = 7  # which every sequence with queues begins with


def mode(r: random.Random, features: set[str]) -> str:
    modes = ["confirm", "confirm"] + ["tx"] * 2 * ("tx" in features) + ["plain"] * ("plain" in features)
    return r.choice(modes)


def beside(r: random.Random, operations: list[Operation]) -> list[Operation]:
    """Some of the operations in another virtual host, which is deleted now and then."""
    moved: list[Operation] = []
    for position, operation in enumerate(operations):
        name, client, arguments = operation
        if not client or client[0] == "M":
            moved.append(operation)
            continue
        if position < FIRST_OPERATIONS or some(r, 0.5):
            moved.append(operation)
        if position < FIRST_OPERATIONS or moved[-1] is not operation:
            moved.append(("beside", client, {"op": name, "args": arguments}))
        if some(r, 0.02):
            moved.append(("vhost_delete", "H", {}))
    return moved


def sequence(seed: int, *, only: str = "", restarts: float = RESTARTS) -> list[Operation]:
    """The sequence of a seed. `only`: `amqp` or `mqtt`, what other brokers have, too; `amqp10`,
    `policies` and `values`: all, and these in every sequence.
    """
    with_all = only in ("", "amqp10", "policies", "values")
    operations = _sequence(r := random.Random(seed), "" if with_all else only, restarts)
    if with_all and (some(r, AMQP10_SHARE) or only == "amqp10"):
        operations = with_amqp10(r, operations)
    if only == "policies" or (not only and some(r, POLICY_SHARE)):
        operations = with_policies(r, operations)
    if only == "values" or (not only and some(r, VALUE_SHARE)):
        operations = with_last_values(r, operations)
    return operations


def _sequence(r: random.Random, only: str, restarts: float) -> list[Operation]:
    share = r.choice((0.25, 0.4, 0.6))
    features = {name for name in (*PARTS, *SWITCHES) if some(r, share)}
    if only:
        features -= {
            "http",
            "pause",
            "mqueue",
            "delay",
            "identity",
            "groups",
            "limit",
            "vhosts",
            "admin",
            "streams",
        }
        features -= {"mqtt", "hold"} if only == "amqp" else set(PARTS) - set(MQTT_PARTS)
    if only == "mqtt" or (not only and some(r, 0.6)):
        features.add("mqtt")
    if only != "mqtt" and ("mqtt" not in features or some(r, 0.8)):
        features |= {"queues", "publish", "consume"}
    for rare in ("delay", "ttl", "clock", "vhosts"):
        if not some(r, 0.2 if rare == "clock" else 0.3):  # what waits takes long
            features.discard(rare)
    if "mqtt" not in features:
        features -= {"hold", "mqueue", "clock"}
    if "sizes" in features:  # queues have their own way with what is too large
        features.discard("mqueue")
    if "queues" not in features:
        features -= {"exchanges", "tx", "http", "pause", "admin", "replies", "streams"}
    if only or not some(r, 0.15):
        features.discard("bounds")
    if "bounds" in features:
        features = features - {"retain", "share", "tx", "clock", "sizes"} | {"mqtt", "lasting"}
    if only:
        features.discard("cuts")
    if "cuts" in features:  # what is taken up again has a session that lasts
        features.add("lasting")
    kills = some(r, max(restarts, 2 * restarts * ("cuts" in features)))
    if kills:
        features.add("kills")
    operations: list[Operation] = []
    if "bounds" in features:
        operations.append(("bounds", "", {"n": 3, "drop": r.choice(("reject", "reject", "oldest"))}))
    if "queues" in features:
        operations += [
            ("a_open", "A1", {"mode": "plain" if "plain" in features and some(r, 0.3) else "confirm"}),
            ("a_open", "A2", {"mode": mode(r, features)}),
            declare(r, features, "q1"),
            declare(r, features, "q2"),
            publish(r, features),
            consume(r, features),
            consume(r, features),
        ]
        if some(r, 0.6):
            operations.append(declare(r, features, "q3"))
        if "dead" in features:
            operations.append(("declare", "A1", {"q": "d1", "durable": True}))
    if "mqtt" in features:
        operations += [m_open(r, features, "M1"), m_open(r, features, "M2"), sub(r, features, client="M1")]
        if "mqueue" in features:
            operations += [qsub(r, features), qpub(r, features)]
    parts = [part for name in sorted(features & set(PARTS)) for part in PARTS[name]]
    weights = [weight for weight, _ in parts]
    for _ in range(r.choice((20, 40, 60))):
        _, part = r.choices(parts, weights)[0]
        operations.append(part(r, features))
    if "replies" in features:
        operations.insert(2, ("ask_on", "A1", {}))
    if "streams" in features:
        operations.insert(2, ("declare", "A1", stream(r)))
        for operation in operations:
            at_stream(r, operation)
    for _, client, arguments in operations:
        if client.startswith("A") and some(r, 0.85):
            arguments["dare"] = False
    if "vhosts" in features and "queues" in features:
        operations = beside(r, operations)
    if kills:
        for _ in range(r.choice((1, 1, 2))):
            place = r.randrange(len(operations) // 2, len(operations) + 1)
            reopen: list[Operation] = [("a_open", "A1", {}), ("a_open", "A2", {})]
            if "mqtt" in features:
                reopen += [m_open(r, features, "M1"), m_open(r, features, "M2")]
            how: dict[str, Any] = {"kill": some(r, 0.8), "verify": some(r, 0.3)}
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
