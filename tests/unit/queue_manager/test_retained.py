"""Retained messages: the last of each topic, by filter, within bounds, over restarts, until they expire."""

import random

import pytest

from config import limits
from protocols.mqtt.topic_filters import matches
from storage.envelope import EnvelopeTemplate
from storage.records import retained
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, open_shard, run

TOPICS = [
    *("a", "a/b", "a/b/c", "a//c", "/a", "b", "b/b", "$SYS/a", "$SYS", "a/$x", "a/b/c/d"),
    *(f"m/{number}/{leaf}" for number in range(20) for leaf in ("up", "down")),
]
FILTERS = [
    "#",
    "+",
    "a/#",
    "a/+",
    "+/b",
    "+/+",
    "a/b/#",
    "/+",
    "$SYS/#",
    "m/+/up",
    "m/7/#",
    "+/7/+",
    "a/b",
    "x",
    "a//c",
]


class Kept:
    """A shard whose retained messages are written, and read again."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.shard = open_shard(self.store, self.clock)

    @property
    def retained(self):
        return self.shard.manager.retained

    def keep(self, topic, body=b"x", ttl_ms=0):
        return self.retained.keep(EnvelopeTemplate(topic, expires_at_ms=ttl_ms), 1, body, self.clock.ms)

    def restart(self):
        run(self.shard.commit_once(everything=True))
        self.store = MemoryStore(rows=dict(self.store._rows))
        self.shard = open_shard(self.store, self.clock)

    def topics(self, topic_filter):
        return [m.topic for m in self.retained.matching(topic_filter, self.clock.ms) if m]

    def rows(self):
        return [key for key in self.store._rows if key.startswith(retained.prefix())]


@pytest.mark.parametrize("restarts", [False, True])
def test_filters_find_what_they_match(restarts):
    kept = Kept()
    topics = TOPICS[:]
    random.Random(1).shuffle(topics)
    for topic in topics:
        assert kept.keep(topic)
    for topic in topics[::3]:
        assert kept.keep(topic, b"")
        topics.remove(topic)
    if restarts:
        kept.restart()
    for topic_filter in FILTERS:
        expected = sorted(topic for topic in topics if matches(topic_filter, topic))
        assert sorted(kept.topics(topic_filter)) == expected, topic_filter


def test_last_message_counts_and_an_empty_one_clears_it():
    kept = Kept()
    kept.keep("a/b", b"1")
    kept.keep("a/b", b"22")
    kept.restart()
    (message,) = kept.retained.matching("a/#", kept.clock.ms)
    assert (message.body, message.qos) == (b"22", 1)
    assert kept.keep("a/b", b"")
    kept.restart()
    assert not kept.topics("#")
    assert not kept.rows()
    assert kept.retained.held_bytes == 0
    assert kept.retained._root.children in (None, {})


def test_expired_messages_leave_memory_and_store():
    kept = Kept()
    kept.keep("short", ttl_ms=1_000)
    kept.keep("long", ttl_ms=100_000)
    kept.keep("ever")
    kept.clock.ms += 1_000
    assert sorted(kept.topics("#")) == ["ever", "long"]
    kept.restart()
    kept.shard.manager.fire_timers(kept.clock.ms)
    assert len(kept.retained) == 2
    kept.restart()
    assert len(kept.rows()) == 2


def test_bounds_hold_and_a_message_without_room_leaves_none(monkeypatch):
    kept = Kept()
    monkeypatch.setattr(limits, "RETAINED_MESSAGES_MAX", 2)
    assert kept.keep("a")
    assert kept.keep("b")
    assert not kept.keep("c")
    assert kept.keep("a", b"other")
    monkeypatch.setattr(limits, "RETAINED_BYTES_MAX", 2_000)
    assert not kept.keep("a", bytes(3_000))
    kept.restart()
    assert kept.topics("#") == ["b"]


def test_look_up_visits_only_where_the_filter_may_match(monkeypatch):
    kept = Kept()
    for number in range(2_000):
        kept.keep(f"m/{number}/up")
    looked_at = []
    original = type(next(kept.retained.matching("m/1/up", 0))).has_expired

    def has_expired(message, now_ms):
        looked_at.append(message)
        return original(message, now_ms)

    monkeypatch.setattr("queue_manager.retained_messages.RetainedMessage.has_expired", has_expired)
    assert kept.topics("m/7/#") == ["m/7/up"]
    assert kept.topics("m/8/+") == ["m/8/up"]
    assert len(looked_at) == 2


@pytest.mark.parametrize("topic_filter", ["#", "m/#", "m/+/up", "m/+/nothing"])
def test_a_filter_is_gone_through_in_steps_and_gives_what_was_retained_when_it_began(topic_filter):
    kept = Kept()
    count = 4 * limits.RETAINED_TOPICS_PER_PAUSE
    for number in range(count):
        kept.keep(f"m/{number}/up")
    found = kept.retained.matching(topic_filter, kept.clock.ms)
    seen = []
    pause_count = 0
    for message in found:
        if message is not None:
            seen.append(message.topic)
            continue
        pause_count += 1
        kept.keep("m/0/up", b"later")
        kept.keep(f"m/new{pause_count}/up")
        kept.keep(f"m/{count - 1}/up", b"")
        assert len(seen) <= pause_count * limits.RETAINED_TOPICS_PER_PAUSE
    assert pause_count >= 4
    if topic_filter.endswith("nothing"):
        assert seen == []
        return
    last = {f"m/{number}/up" for number in range(1, count - 1)}
    assert last <= set(seen) <= {*last, "m/0/up", f"m/{count - 1}/up"}
    assert len(seen) == len(set(seen))
