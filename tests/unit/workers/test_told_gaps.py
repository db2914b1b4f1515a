"""What the worker of a stream tells another of gaps, and what that shows of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.workers import link_frames as f
from broker.workers.asking_link import Link
from broker.workers.serving_link import LinkSink
from queue_manager.model import Message
from storage.envelope import EnvelopeTemplate

TEMPLATE = EnvelopeTemplate("")


class Reading:
    """A reader of a stream with a gap before it, by whose worker another is served; notes what is told."""

    def __init__(self) -> None:
        self.gap = 0
        self.told: list[dict[str, int]] = []
        self.output: list[bytes] = []
        self.is_up = True
        self.client: Any = SimpleNamespace(consuming=self)
        served: Any = self
        self.sink = LinkSink(served, 1)
        self.sink.is_stream = True
        self.consumer: Any = SimpleNamespace(no_ack=False)

    def give(self, offset: int, attempts: int = 1) -> None:
        claim: Any = SimpleNamespace(attempts=attempts)
        self.sink.deliver(self.consumer, [Message(offset, offset, b"", TEMPLATE, 0)], [claim])

    def take_gap(self, consumer: Any) -> int:
        gap, self.gap = self.gap, 0
        return gap

    def primary_committed(self, consumer: Any) -> int:
        return 0

    def failed_attempts(self, consumer: Any, claim: Any) -> int | None:
        return None

    def hold(self, claims: Any) -> int:
        return 1

    def want_flush(self) -> None:
        pass

    def send(self, frame: bytes) -> None:
        pass


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    reading = Reading()

    def frame(kind: int, number: int, news: dict[str, int]) -> bytes:
        assert kind == f.TOLD
        reading.told.append(news)
        return b""

    monkeypatch.setattr("broker.workers.serving_link.CODEC", SimpleNamespace(frame=frame))
    return reading


def test_a_gap_is_left_for_the_next_first_delivery_where_a_message_comes_back(reading: Reading) -> None:
    reading.gap = 4
    reading.give(7, attempts=2)
    assert (reading.gap, sum(news.get("gap", 0) for news in reading.told)) == (4, 0)
    reading.give(13)
    assert (reading.gap, sum(news.get("gap", 0) for news in reading.told)) == (0, 4)


def test_a_gap_as_large_as_the_one_before_is_told_too(reading: Reading) -> None:
    for offset in (5, 10):
        reading.gap = 4
        reading.give(offset)
    assert [news["gap"] for news in reading.told if "gap" in news] == [4, 4]


async def test_a_gap_that_is_told_before_an_earlier_one_is_shown_adds_to_it() -> None:
    link = Link(asyncio.get_running_loop(), 1)
    link.version = 0
    consumer: Any = SimpleNamespace(gap=0, committed=0, ready=0, echoes_due=0, on_activity=None, pool=None)
    link.consumers[1] = consumer
    for news in ({"gap": 4}, {"committed": 9}, {"gap": 3}):
        link._take_rare(f.TOLD, (1, news))
    assert (consumer.gap, consumer.committed) == (7, 9)
