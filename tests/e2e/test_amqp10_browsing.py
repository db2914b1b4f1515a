"""AMQP 1.0: links with distribution-mode copy, which look at a queue and leave it as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]
COPY = t.Symbol("copy")
CREDIT = 1_000


def filled(raw_amqp10: Connect, queue: str, count: int) -> RawAmqp10:
    """A client that has published so many messages, `size` of each as its number."""
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    for number in range(count):
        client.transfer(message(b"%d" % number, application={"size": number}))
    client.outcomes(count)
    return client


def shown(client: RawAmqp10, delivery_count: int = 0) -> list[int]:
    """The numbers that a link shows until it is drained; all come settled."""
    client.give_credit(CREDIT, delivery_count=delivery_count, drain=True)
    numbers = []
    while isinstance((frame := client.read()).body, p.Transfer):  # type: ignore[union-attr]
        assert frame is not None
        assert frame.body.settled
        numbers.append(int(frame.payload.rpartition(b"\xa0")[2][1:]))
    assert frame is not None
    assert isinstance(frame.body, p.Flow)
    return numbers


def test_a_browser_sees_all_in_order_and_leaves_all(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    count = 2 * limits.BROWSED_PER_TURN_MAX + 5
    client = filled(raw_amqp10, queue, count)
    answer = client.attach_receiver(f"/queues/{queue}", distribution_mode=COPY)
    assert answer.source.distribution_mode == COPY
    assert answer.snd_settle_mode == c.SENDER_SETTLED
    assert shown(client) == list(range(count))
    assert channel.queue_declare(queue, passive=True).method.message_count == count
    method, properties, body = channel.basic_get(queue)
    assert (method.redelivered, body) == (False, b"0")


def test_a_browser_goes_on_behind_what_it_has_shown(raw_amqp10: Connect, queue: str) -> None:
    client = filled(raw_amqp10, queue, 3)
    client.attach_receiver(f"/queues/{queue}", distribution_mode=COPY)
    client.give_credit(2)
    assert [client.receive().body for _ in range(2)] == [b"0", b"1"]
    assert shown(client, 2) == [2]
    client.transfer(message(b"3"))
    client.outcomes(1)
    assert shown(client, 2 + CREDIT) == [3]
    assert shown(client, 2 + 2 * CREDIT) == []


def test_a_browser_s_filter_holds(raw_amqp10: Connect, queue: str) -> None:
    client = filled(raw_amqp10, queue, 10)
    wanted = t.Described(t.Symbol("apache.org:selector-filter:string"), "size > 6")
    answer = client.attach_receiver(
        f"/queues/{queue}", distribution_mode=COPY, filter={t.Symbol("f"): wanted}
    )
    assert answer.source.filter == {t.Symbol("f"): wanted}
    assert shown(client) == [7, 8, 9]


def test_a_browser_does_not_see_what_others_hold_and_sees_what_came_back_with_its_attempts(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = filled(raw_amqp10, queue, 2)
    method, _, _ = channel.basic_get(queue)
    client.attach_receiver(f"/queues/{queue}", distribution_mode=COPY)
    assert shown(client) == [1]
    channel.basic_reject(method.delivery_tag, requeue=True)
    channel.queue_declare(queue, passive=True)
    client.attach_receiver(f"/queues/{queue}", handle=2, distribution_mode=COPY)
    client.give_credit(1, handle=2)
    again = client.receive()
    assert again.body == b"0"
    assert again.header.delivery_count == 1


def test_a_browser_sees_what_is_ready_for_its_group(raw_amqp10: Connect, queue: str) -> None:
    client = filled(raw_amqp10, queue, 2)
    properties: dict[Any, Any] = {t.Symbol("consumer-group"): "audit"}
    client.attach_receiver(f"/queues/{queue}", handle=2, properties=properties, credit=1)
    client.settle(client.receive().transfer.delivery_id or 0, p.Accepted())
    client.attach_receiver(f"/queues/{queue}", handle=3, properties={t.Symbol("consumer-group"): "billing"})
    client.attach_receiver(f"/queues/{queue}", distribution_mode=COPY, properties=properties)
    assert shown(client) == [1]


def test_a_browser_with_a_pattern_is_refused(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    source = p.Source(f"$queue/{queue}/eu/#", distribution_mode=COPY)
    assert client.attach(p.Attach("r", 1, c.RECEIVER, source=source, target=p.Target())).source is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.INVALID_FIELD
