"""AMQP 1.0: publishing and receiving over links, frame by frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import encode_frame
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]


def test_a_message_to_a_queue_is_accepted_and_comes_back(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    flow = client.attach_sender(f"/queues/{queue}")
    assert flow.link_credit
    sent = client.transfer(message(b"hello", message_id="m-1", subject="greeting"))
    assert client.outcomes(1) == {sent: p.Accepted()}
    client.attach_receiver(f"/queues/{queue}", credit=10)
    got = client.receive()
    assert got.body == b"hello"
    assert got.sections[0x73][0] == "m-1"
    assert got.header == p.Header(durable=True, first_acquirer=True)
    assert got.sections[0x72] == {"x-routing-key": queue, "x-exchange": ""}
    client.settle(got.transfer.delivery_id or 0, p.Accepted())


def test_accepted_messages_are_gone_and_released_ones_come_back(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    for number in range(3):
        client.transfer(message(b"%d" % number))
    client.outcomes(3)
    client.attach_receiver(f"/queues/{queue}", credit=3)
    ids = [client.receive().transfer.delivery_id or 0 for _ in range(3)]
    client.settle(ids[0], p.Accepted())
    client.settle(ids[1], p.Released())
    client.settle(ids[2], p.Modified(delivery_failed=True))
    client.give_credit(2, delivery_count=3)
    again = [client.receive() for _ in range(2)]
    assert [(got.body, got.header.delivery_count) for got in again] == [(b"1", 0), (b"2", 1)]
    client.settle(again[0].transfer.delivery_id or 0, p.Accepted(), again[1].transfer.delivery_id)
    client.send(0, p.End())
    client.expect(p.End)
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def _transfers(client: RawAmqp10, payloads: list[tuple[int, bytes]]) -> list[int]:
    """Send deliveries on links, by their handles, in one go; gives their IDs."""
    first = client.next_delivery_id = max(client.next_delivery_id, 1_000)
    client.next_delivery_id += len(payloads)
    client.send_bytes(
        b"".join(
            encode_frame(0, p.Transfer(handle, number, number.to_bytes(4, "big"), 0, False), payload)
            for number, (handle, payload) in enumerate(payloads, first)
        )
    )
    return list(range(first, client.next_delivery_id))


@pytest.mark.parametrize("varied", [False, True])
def test_what_comes_at_once_on_many_links_is_accepted_in_order(
    raw_amqp10: Connect, queue: str, varied: bool
) -> None:
    client = raw_amqp10()
    client.begin()
    for handle in range(1, 21):
        client.attach_sender(f"/queues/{queue}", handle)
    bodies = [b"%d" % number for number in range(100)]
    messages = [message(body, message_id=body.decode()) if varied else message(body) for body in bodies]
    sent = _transfers(client, [(1 + at % 20, one) for at, one in enumerate(messages)])
    assert client.outcomes(100) == dict.fromkeys(sent, p.Accepted())
    client.attach_receiver(f"/queues/{queue}", 30, credit=100)
    got = [client.receive() for _ in range(100)]
    assert [one.body for one in got] == bodies
    if varied:
        assert [one.sections[0x73][0].encode() for one in got] == bodies


def test_links_with_messages_at_once_are_told_each_its_own_outcome(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    full = f"{name}-full"
    channel.queue_declare(full, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    client = raw_amqp10()
    client.begin()
    addresses = (f"/queues/{queue}", f"/queues/{queue}", f"/queues/{full}", f"/queues/{full}")
    for handle, address in enumerate((*addresses, "/exchanges/amq.direct/nowhere"), 1):
        client.attach_sender(address, handle)
    good = message(b"x")
    sent = _transfers(client, [(handle, good) for handle in (1, 2, 1, 2)])
    assert client.outcomes(4) == dict.fromkeys(sent, p.Accepted())
    # more than the queue takes, over both of its links; its room is used up
    sent = _transfers(client, [(handle, good) for handle in (3, 4, 3, 4)])
    told = client.outcomes(4)
    assert [type(told[number]) for number in sent] == [p.Accepted, p.Accepted, p.Rejected, p.Rejected]
    # a queue that is full, one that is not, and none
    sent = _transfers(client, [(handle, good) for handle in (1, 3, 2, 5)])
    told = client.outcomes(4)
    assert [type(told[number]) for number in sent] == [p.Accepted, p.Rejected, p.Accepted, p.Released]
    assert channel.queue_declare(queue, passive=True).method.message_count == 6


def test_a_link_with_what_is_no_message_ends_alone_among_others(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    for handle in range(1, 4):
        client.attach_sender(f"/queues/{queue}", handle)
    good = message(b"x")
    sent = _transfers(client, [(1, good), (2, b"\x00\x53\x75\x00"), (3, good)])
    detach = client.expect(p.Detach)
    assert (detach.handle, detach.closed) == (2, True)
    assert client.outcomes(2) == {sent[0]: p.Accepted(), sent[2]: p.Accepted()}


def test_credit_of_links_that_publish_at_once_is_given_anew(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    for handle in (1, 2):
        client.attach_sender(f"/queues/{queue}", handle)
    told: dict[int, int] = {}
    for _ in range(12):
        _transfers(client, [(1 + at % 2, message(b"x")) for at in range(100)])
        count = 0
        while count < 100:
            frame = client.read()
            assert frame is not None
            if isinstance(frame.body, p.Flow) and frame.body.handle is not None:
                told[frame.body.handle] = (frame.body.delivery_count or 0) + (frame.body.link_credit or 0)
            elif isinstance(frame.body, p.Disposition):
                assert frame.body.state == p.Accepted()
                count += (frame.body.last or frame.body.first) - frame.body.first + 1
    assert told.keys() == {1, 2}
    assert min(told.values()) > 1_000


def test_what_no_queue_takes_is_released(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender("/exchanges/amq.direct/nowhere")
    sent = client.transfer(message(b"lost"))
    assert client.outcomes(1) == {sent: p.Released()}


def test_each_message_of_an_anonymous_terminus_goes_where_it_says(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(None)
    client.transfer(message(b"1", to=f"/queues/{queue}"))
    client.transfer(message(b"2", to="/queues/not-there"))
    client.transfer(message(b"3"))
    client.transfer(message(b"4", to="nonsense"))
    client.transfer(message(b"5", to="/exchanges/not-there/k"))
    told = client.outcomes(5)
    assert told[0] == p.Accepted()
    assert told[1] == p.Released()
    conditions = [told[number].error.condition for number in (2, 3, 4)]
    assert conditions == [c.PRECONDITION_FAILED, c.PRECONDITION_FAILED, c.NOT_FOUND]


def test_a_full_queue_rejects_and_says_which_it_is(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{name}")
    client.transfer(message(b"1"))
    client.transfer(message(b"2"))
    told = client.outcomes(2)
    assert told[0] == p.Accepted()
    assert told[1].error == p.Error(
        c.RESOURCE_LIMIT_EXCEEDED,
        f"queue '{name}' exceeded maximum length",
        {t.Symbol("queue"): name, t.Symbol("reason"): "maxlen"},
    )


def test_credit_bounds_deliveries_and_a_drain_tells_what_is_left(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    for number in range(5):
        client.transfer(message(b"%d" % number))
    client.outcomes(5)
    client.attach_receiver(f"/queues/{queue}", credit=2)
    assert [client.receive().body for _ in range(2)] == [b"0", b"1"]
    assert client.is_silent()
    client.give_credit(10, delivery_count=2, drain=True)
    assert [client.receive().body for _ in range(3)] == [b"2", b"3", b"4"]
    flow = client.expect(p.Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (12, 0, True)


def test_a_drain_of_an_empty_queue_is_answered_with_one_flow(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_receiver(f"/queues/{queue}")
    client.give_credit(7, drain=True)
    flow = client.expect(p.Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (7, 0, True)
    assert client.is_silent()


def test_a_receiver_that_wants_settled_deliveries_settles_nothing(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    for _ in range(3):
        client.transfer(message(b"x"))
    client.outcomes(3)
    client.attach_receiver(f"/queues/{queue}", mode=c.SENDER_SETTLED, credit=2)
    assert client.receive().transfer.settled
    assert client.receive().transfer.settled
    assert client.is_silent()
    client.drop()
    assert channel.queue_declare(queue, passive=True).method.message_count == 1


def test_a_message_in_many_frames_comes_back_in_many(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10(frame_max=512)
    body = bytes(range(256)) * 8
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    payload = message(body)
    client.send(0, p.Transfer(0, 0, b"\0", 0, False, more=True), payload[:1_000])
    client.send(0, p.Transfer(0, more=True), payload[1_000:1_500])
    client.send(0, p.Transfer(0), payload[1_500:])
    assert client.outcomes(1) == {0: p.Accepted()}
    client.attach_receiver(f"/queues/{queue}", credit=1)
    assert client.receive().body == body


def test_an_aborted_delivery_is_nothing(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    client.send(0, p.Transfer(0, 0, b"\0", 0, False, more=True), message(b"half")[:5])
    client.send(0, p.Transfer(0, aborted=True))
    client.send(0, p.Transfer(0, 1, b"\1", 0, False), message(b"whole"))
    assert client.outcomes(1) == {1: p.Accepted()}
    assert channel.queue_declare(queue, passive=True).method.message_count == 1


def test_aborted_deliveries_do_not_use_up_the_credit_of_a_link(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    credit = client.attach_sender(f"/queues/{queue}").link_credit or 0
    for number in range(credit):
        client.send(0, p.Transfer(0, number, b"\0", 0, False, aborted=True))
    flow = client.expect(p.Flow)
    while (flow.delivery_count or 0) + (flow.link_credit or 0) <= credit:
        flow = client.expect(p.Flow)
    client.send(0, p.Transfer(0, credit, b"\0", 0, False), message(b"whole"))
    assert client.outcomes(1) == {credit: p.Accepted()}


def test_deliveries_of_a_lost_link_are_not_resumed(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    address = f"/queues/{queue}"
    client.attach_sender(address)
    client.transfer(message(b"m"))
    client.outcomes(1)
    client.attach_receiver(address, credit=1)
    tag = client.receive().transfer.delivery_tag or b""
    client.drop()
    client = raw_amqp10()
    client.begin()
    source, target = p.Source(address), p.Target(address)
    receiver = p.Attach("receiver-1", 1, c.RECEIVER, source=source, target=p.Target(), unsettled={tag: None})
    sender = p.Attach(
        "sender-0", 2, c.SENDER, target=target, unsettled={b"t": p.Received(0, 0)}, initial_delivery_count=0
    )
    for attach in (receiver, sender):
        answer = client.attach(attach)
        assert (answer.target if attach.role is c.SENDER else answer.source) is None
        told = client.expect(p.Detach)
        assert told.error is not None
        assert (told.closed, told.error.condition) == (True, c.NOT_IMPLEMENTED)
        client.send(0, p.Detach(attach.handle, True))
    client.attach_receiver(address, 3, credit=1, name="receiver-1")  # as a new link it gets the message
    assert client.receive().body == b"m"
    client.attach_sender(address, 4)
    client.send(0, p.Transfer(4, 0, b"t", 0, resume=True), message(b"again"))
    told = client.expect(p.Detach)
    assert told.error is not None
    assert told.error.condition == c.NOT_IMPLEMENTED


def test_what_a_closed_link_held_returns(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    client.transfer(message(b"x"))
    client.outcomes(1)
    client.attach_receiver(f"/queues/{queue}", credit=1)
    assert client.receive().header.delivery_count == 0
    client.send(0, p.Detach(1, closed=True))
    client.expect(p.Detach)
    client.attach_receiver(f"/queues/{queue}", 2, credit=1)
    assert client.receive().header.delivery_count == 0


def test_what_a_lost_client_held_returns_as_a_failed_attempt(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    client.transfer(message(b"x"))
    client.outcomes(1)
    client.attach_receiver(f"/queues/{queue}", credit=1)
    client.receive()
    client.drop()
    other = raw_amqp10()
    other.begin()
    other.attach_receiver(f"/queues/{queue}", credit=1)
    assert other.receive().header.delivery_count == 1


def test_a_link_to_what_is_not_there_is_refused(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    for handle, address, condition in (
        (0, "/queues/not-there", c.NOT_FOUND),
        (1, "/exchanges/not-there/k", c.NOT_FOUND),
        (2, "/queue/v1", c.INVALID_FIELD),
    ):
        target = p.Target(address)
        attach = p.Attach(f"l{handle}", handle, c.SENDER, target=target, initial_delivery_count=0)
        assert client.attach(attach).target is None
        detach = client.expect(p.Detach)
        assert detach.closed
        assert detach.error is not None
        assert detach.error.condition == condition
        client.send(0, p.Detach(handle, closed=True))


def test_a_deleted_queue_ends_its_links(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_receiver(f"/queues/{queue}", credit=1)
    channel.queue_delete(queue)
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.RESOURCE_DELETED


def test_deliveries_of_many_messages_keep_their_order(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    for number in range(900):
        client.transfer(message(b"%d" % number, message_id=t.ULong(number)), settled=True)
    sent = client.transfer(message(b"900"))
    assert client.outcomes(1) == {sent: p.Accepted()}
    client.attach_receiver(f"/queues/{queue}", credit=901)
    bodies = [client.receive().body for _ in range(901)]
    assert bodies == [b"%d" % number for number in range(901)]


def test_a_sender_that_settles_second_is_told_the_outcome_first(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    attach = p.Attach(
        "careful", 0, c.SENDER, 0, c.RECEIVER_SECOND, p.Source(), p.Target(f"/queues/{queue}"),
        initial_delivery_count=0,
    )  # fmt: skip
    assert client.attach(attach).rcv_settle_mode == c.RECEIVER_SECOND
    client.expect(p.Flow)
    sent = client.transfer(message(b"once"))
    told = client.expect(p.Disposition)
    assert (told.role, told.first, told.settled, told.state) == (c.RECEIVER, sent, False, p.Accepted())
    client.send(0, p.Disposition(c.SENDER, sent, None, True, p.Accepted()))
    client.attach_receiver(f"/queues/{queue}", credit=10)
    assert client.receive().body == b"once"


def test_senders_to_a_deleted_queue_or_exchange_are_detached(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    client = raw_amqp10()
    client.begin()
    channel.queue_declare(name)
    channel.exchange_declare(name, "fanout")
    for handle, address in enumerate((f"/queues/{name}", f"/exchanges/{name}/k", f"/queues/{name}", None)):
        client.attach_sender(address, handle)
    client.send(0, p.Detach(2, True))
    client.expect(p.Detach)
    channel.queue_delete(name)
    channel.exchange_delete(name)
    for handle, condition in enumerate((c.RESOURCE_DELETED, c.NOT_FOUND)):
        told = client.expect(p.Detach)
        assert (told.handle, told.closed) == (handle, True)
        assert told.error is not None
        assert told.error.condition == condition
        assert f"'{name}'" in str(told.error.description)
        client.send(0, p.Detach(handle, True))
    channel.queue_declare(name)
    client.attach_sender(f"/queues/{name}", 4)
    sent = client.transfer(message(b"anew"), 4)
    assert client.outcomes(1) == {sent: p.Accepted()}


def test_senders_to_an_address_with_a_queue_in_it_stay_when_that_is_deleted(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"$queue/{queue}/k")
    channel.queue_delete(queue)
    client.transfer(message(b"made anew"))
    assert len(client.outcomes(1)) == 1
