"""Random operations of MQTT clients."""

from __future__ import annotations

import random
from typing import Any

from tests.whole.names import FILTERS, QUEUES, TOPICS, Part, some
from tests.whole.world import Operation


def mqtt(r: random.Random) -> str:
    return r.choice(("M1", "M1", "M1", "M2", "M2", "M3"))


def qos(r: random.Random, features: set[str]) -> int:
    """Often 2 where acknowledgements are held, so that there is something to complete."""
    return r.choice((0, 1, 2, 2, 2)) if "hold" in features else r.randint(0, 2)


def m_open(r: random.Random, features: set[str], name: str = "") -> Operation:
    versions = (5, 5, 5, 5, 4) if "mqueue" in features else (5, 5, 4)
    wanted: dict[str, Any] = {"version": r.choice(versions), "clean": some(r, 0.4)}
    if "lasting" in features:
        wanted["lasting"] = some(r, 0.9 if "cuts" in features else 0.7)
        if "clock" in features and some(r, 0.4):
            wanted["expiry_s"] = 1
    else:
        wanted |= {"clean": True}
    if "hold" in features and (name == "M1" or some(r, 0.5)):
        wanted["hold"] = True
        if some(r, 0.7):
            wanted["hold_release"] = True
    if ("hold" in features or "share" in features) and some(r, 0.6):
        wanted["receive_maximum"] = r.choice((1, 2, 2, 3))
    if "aliases" in features and some(r, 0.6):
        wanted["alias_maximum"] = r.choice((1, 2, 10))
    if "sizes" in features and some(r, 0.5):
        wanted["packet_maximum"] = 150
    if "will" in features and some(r, 0.3 if "cuts" in features else 0.6):
        wanted["will"] = will(r, features)
    return "m_open", name or mqtt(r), wanted


def will(r: random.Random, features: set[str]) -> dict[str, Any]:
    wanted = {"topic": r.choice(TOPICS), "qos": r.randint(0, 2), "retain": some(r, 0.3)}
    if "mqueue" in features and some(r, 0.4):
        wanted["topic"] = f"$queue/{r.choice(QUEUES)}{r.choice(('', '/k'))}"
    if "bounds" in features:
        wanted["retain"] = False
    if "clock" in features and some(r, 0.6):
        wanted["delay_s"] = r.choice((1, 1, 600))
    return wanted


def m_close(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"rude": some(r, 0.5), "with_will": some(r, 0.2)}
    if "clock" in features and some(r, 0.3):
        wanted["expiry_s"] = r.choice((0, 1))
    return "m_close", mqtt(r), wanted


def sub(r: random.Random, features: set[str], name: str = "sub", client: str = "") -> Operation:
    topic = r.choice(FILTERS)
    wanted: dict[str, Any] = {"qos": qos(r, features)}
    if "share" in features and some(r, 0.4):
        topic = f"$share/{r.choice(('g', 'h'))}/{topic}"
    if "options" in features:
        wanted |= {
            "no_local": some(r, 0.2) and not topic.startswith("$share") and "bounds" not in features,
            "as_published": some(r, 0.3),
            "handling": r.randint(0, 2),
            "identifier": r.choice((0, 0, 1, 2)),
        }
    return name, client or mqtt(r), {"topic": topic, **wanted}


def mpub(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"topic": r.choice(TOPICS), "qos": qos(r, features), "n": r.choice((1, 1, 3))}
    if "retain" in features and some(r, 0.5):
        wanted |= {"retain": True, "empty": some(r, 0.2), "n": 1}
    if "bounds" in features and some(r, 0.8):
        wanted["n"] = 1
    if "aliases" in features and some(r, 0.7):
        wanted["alias"] = r.randint(1, 2)
    if "sizes" in features and some(r, 0.4):
        wanted["large"] = True
    if "respond" in features and some(r, 0.4):
        wanted["response"] = r.choice(TOPICS)
    if "clock" in features and some(r, 0.3):
        wanted["expiry_s"] = r.choice((1, 1, 600))
    return "mpub", mqtt(r), wanted


def qpub(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice(QUEUES), "qos": r.randint(0, 2), "n": r.choice((1, 2))}
    wanted["key"] = r.choice(("", "k", "l"))
    if "clock" in features and some(r, 0.3):
        wanted["expiry_s"] = r.choice((1, 600))
    return "qpub", mqtt(r), wanted


def qsub(r: random.Random, features: set[str]) -> Operation:
    wanted: dict[str, Any] = {"q": r.choice(QUEUES), "group": r.choice(("", "g", "g", "g", "g"))}
    wanted |= {"explicit": some(r, 0.8), "qos": r.choice((0, 1, 1, 1, 2))}
    if "patterns" in features and some(r, 0.6):
        wanted["pattern"] = r.choice(("k", "k/#", "+", "l"))
    return "qsub", mqtt(r), wanted


def verb(r: random.Random, features: set[str]) -> Operation:
    verbs = ("ack", "nack", "reject", "extend") if "clock" in features else ("ack", "nack", "reject")
    wanted: dict[str, Any] = {"verb": r.choice(verbs), "i": r.randrange(3)}
    if some(r, 0.3):
        wanted["by"] = mqtt(r)
    if some(r, 0.2):
        wanted["late"] = True
    elif wanted["verb"] == "nack" and some(r, 0.3):
        wanted["delay_ms"] = r.choice((20, 60))
    return "verb", mqtt(r), wanted


def cut(r: random.Random, features: set[str]) -> dict[str, Any]:
    """How an operation is cut off: a restart takes long."""
    how = r.choice(("stop", "kill", "kill")) if "kills" in features and some(r, 0.3) else "drop"
    return {"how": how, "after_ms": r.choice((0, 0, 1, 3))}


def mpub_cut(r: random.Random, features: set[str]) -> Operation:
    at = r.choice(("sent", "received", "released"))
    return (
        "mpub_cut",
        mqtt(r),
        {"topic": r.choice(TOPICS), "qos": r.choice((1, 2, 2)), "at": at, **cut(r, features)},
    )


def sub_cut(r: random.Random, features: set[str]) -> Operation:
    wanted = {"topic": r.choice(FILTERS), "qos": r.randint(0, 2), "handling": r.choice((0, 2))}
    return "sub_cut", mqtt(r), {**wanted, **cut(r, features)}


def wait(r: random.Random, features: set[str]) -> Operation:
    return "wait", "", {"ms": r.choice((300, 1_300))} if "clock" in features else {"ms": 0}


MQTT_PARTS: dict[str, list[tuple[int, Part]]] = {
    "mqtt": [
        (3, m_open),
        (2, m_close),
        (6, sub),
        (1, lambda r, f: ("unsub", mqtt(r), {"topic": r.choice(FILTERS)})),
        (10, mpub),
    ],
    "mqueue": [
        (6, qsub),
        (1, lambda r, f: ("qunsub", mqtt(r), {"q": r.choice(QUEUES)})),
        (8, qpub),
        (12, verb),
    ],
    "hold": [
        (8, lambda r, f: ("mack", mqtt(r), {"i": r.choice((0, 0, 1)), "refuse": some(r, 0.2)})),
        (4, lambda r, f: ("mcomp", mqtt(r), {"i": r.randrange(2)})),
    ],
    "clock": [(4, wait)],
    "cuts": [(1, mpub_cut), (1, sub_cut)],
}
# what changes the operations above
MQTT_SWITCHES = ("bounds", "lasting", "will", "share", "options", "retain", "aliases", "sizes", "respond")
