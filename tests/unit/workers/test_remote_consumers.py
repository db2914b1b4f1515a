"""broker.workers.remote_consumers: consumers of one client that share a limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.workers.remote_consumers import RemoteClaim, RemoteConsumer, SharedCredit, SharedLinkCredit
from queue_manager.model import Message
from storage.envelope import EnvelopeTemplate

TEMPLATE = EnvelopeTemplate("")


class Link:
    """Notes what is given back."""

    def __init__(self) -> None:
        self.returned: list[int] = []

    def tell(self, consumer: int, what: int, value: int = 0) -> None:
        """See `Asked`."""

    def return_waiting(self, consumer: RemoteConsumer) -> None:
        """See `Asked`."""
        self.returned += [claim.message.message_id for claim in consumer.take_back_waiting()]


class Client:
    """The sink of several consumers."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def deliver(self, consumer: Any, messages: Any, claims: Any) -> bool:
        """See `Sink`."""
        self.given += [message.message_id for message in messages]
        return True


def consumer_of(
    queue: str, number: int, link: Link, client: Client, pool: SharedCredit | SharedLinkCredit
) -> RemoteConsumer:
    source: Any = SimpleNamespace(name=queue, policy=SimpleNamespace(stream=False))
    sink: Any = client
    asked: Any = link
    consumer = RemoteConsumer(
        asked, number, source, sink, no_ack=False, exclusive=False, lease_ms=0, credit_max=9, pool=pool
    )
    pool.remote.append(consumer)
    return consumer


def give(consumer: RemoteConsumer, number: int) -> None:
    message = Message(number, number, b"", TEMPLATE, 0)
    consumer.give([message], [RemoteClaim(consumer, number, message)])


@pytest.mark.parametrize(("queue", "goes_back"), [("q", True), ("other", False)])
def test_what_comes_behind_what_another_consumer_of_the_queue_gave_back_goes_back(
    queue: str, goes_back: bool
) -> None:
    link, client, pool = Link(), Client(), SharedCredit(1)
    first = consumer_of(queue, 1, link, client, pool)
    second = consumer_of("q", 2, link, client, pool)
    give(first, 1)
    give(second, 2)
    first.let_go(1)
    give(first, 3)
    assert (client.given, link.returned) == (([1], [2, 3]) if goes_back else ([1, 3], [2]))
    second.echoes_due = 0
    give(first, 4)
    assert client.given[1:] == ([4] if goes_back else [3])


def test_a_receiver_whose_window_is_full_is_not_told_that_it_is_drained_before_what_waits_for_it() -> None:
    told: list[str] = []
    context: Any = SimpleNamespace(dispatchable={})
    pool = SharedLinkCredit(context, lambda: told.append("drained"))
    pool.consumer, pool.remote = None, []
    client = Client()
    consumer = consumer_of("q", 1, Link(), client, pool)
    pool.set(5)
    pool.is_draining = True
    consumer.pause()
    give(consumer, 1)
    consumer.dried(pool)
    assert (client.given, told) == ([], [])
    consumer.resume()
    consumer.give_waiting(pool)
    assert (client.given, told) == ([1], ["drained"])
