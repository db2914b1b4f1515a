from pamqp import commands

from broker.links.relay import ORIGINAL_USER, Relay, encode_acks
from protocols.amqp091 import content
from protocols.amqp091.client import Frame, content_header
from protocols.amqp091.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from protocols.amqp091.methods import encode_method


def delivered(relay, tag, *parts, properties=b"\x00\x00"):
    deliver = commands.Basic.Deliver("c", tag, False, "e", "k")
    header = content_header(sum(map(len, parts)), properties)
    relay.take(Frame(FRAME_METHOD, 1, b"", deliver))
    relay.take(Frame(FRAME_HEADER, 1, header, None))
    for part in parts:
        relay.take(Frame(FRAME_BODY, 1, part, None))


def made(**more):
    return Relay(lambda parcel: parcel.body, **more)


def test_a_message_is_ready_once_it_is_whole():
    relay = made()
    delivered(relay, 1, b"a", b"b")
    delivered(relay, 2)
    assert [(each.tag, each.body) for each in relay.take_ready()] == [(1, b"ab"), (2, b"")]
    assert relay.take_ready() == []


def test_what_is_confirmed_out_of_order_is_acknowledged_in_order():
    relay = made()
    for tag in (1, 2, 3):
        delivered(relay, tag, b"x")
    assert relay.publish(relay.take_ready()) == b"xxx"
    assert relay.settle(commands.Basic.Ack(2, False)) == []
    assert relay.take_done() == []
    assert relay.settle(commands.Basic.Ack(1, False)) == []
    assert [each.tag for each in relay.take_done()] == [1, 2]
    assert relay.settle(commands.Basic.Ack(3, True)) == []
    assert [each.tag for each in relay.take_done()] == [3]
    assert not relay.order
    assert not relay.unconfirmed


def test_what_the_target_refuses_is_given_back_and_not_acknowledged():
    relay = made()
    for tag in (1, 2):
        delivered(relay, tag, b"x")
    relay.publish(relay.take_ready())
    assert [each.tag for each in relay.settle(commands.Basic.Nack(2, True))] == [1, 2]
    assert relay.take_done() == []


def test_headers_of_the_delivery_go_and_the_user_is_a_header():
    relay = made(is_stream=True)
    properties = commands.Basic.Properties(user_id="me", message_id="m")
    headers = [("k", 1), ("x-stream-offset", 7), ("x-delivery-count", 2)]
    delivered(relay, 1, b"x", properties=content.encode_properties(properties, headers))
    [parcel] = relay.take_ready()
    assert parcel.offset == 7
    assert content.decode_headers(parcel.properties) == [("k", 1), (ORIGINAL_USER, "me")]
    found = content.decode_properties(parcel.properties)
    assert (found.user_id, found.message_id) == (None, "m")


def test_acknowledgements_are_one_or_each():
    relay = made()
    for tag in (1, 2):
        delivered(relay, tag, b"x")
    parcels = relay.take_ready()
    assert encode_acks(parcels, multiple=True) == encode_method(1, commands.Basic.Ack(2, True))
    assert encode_acks(parcels, multiple=False) == b"".join(
        [encode_method(1, commands.Basic.Ack(tag, False)) for tag in (1, 2)]
    )
