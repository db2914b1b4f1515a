"""The channel state table and content assembly."""

from pamqp import commands

from protocols.amqp091 import channel as ch
from protocols.amqp091 import constants as c
from protocols.amqp091.channel import Channel
from protocols.amqp091.events import PublishAddress, PublishShape


def test_state_table_has_a_verdict_for_each_state_and_input():
    assert len(ch.LEGAL) == 5
    assert all(len(row) == 6 for row in ch.LEGAL)
    assert {verdict for row in ch.LEGAL for verdict in row} <= {ch.ACCEPT, ch.DISCARD, 503, 504, 505}


def test_each_method_of_the_specification_has_one_place():
    named = {c.BASIC_PUBLISH, *ch.INPUT_OF_METHOD, *ch.SETTLE_KINDS, *ch.PASSED_METHODS, *ch.IGNORED_METHODS}
    assert named <= set(commands.INDEX_MAPPING)
    assert len(named) == 1 + 3 + 3 + len(ch.PASSED_METHODS) + len(ch.IGNORED_METHODS)
    # what is left is the server's to send: all names end in "Ok" or are these
    left = {cls.name for index, cls in commands.INDEX_MAPPING.items() if index not in named}  # type: ignore[attr-defined]
    left = {name for name in left if not name.startswith("Connection.") and not name.endswith("Ok")}
    assert left == {"Basic.Return", "Basic.Deliver", "Basic.GetEmpty"}


def shape() -> PublishShape:
    return PublishShape(PublishAddress("", "q", False), b"\0\0")


def test_body_in_one_frame_is_taken_whole():
    channel = Channel(1)
    channel.begin_body(shape(), 3)
    assert channel.take_body(b"xabcx", 1, 4) == b"abc"
    assert channel.body is None


def test_body_in_many_frames_is_joined():
    channel = Channel(1)
    channel.begin_body(shape(), 6)
    assert channel.take_body(b"ab", 0, 2) is None
    assert channel.missing_bytes() == 4
    assert channel.take_body(b"", 0, 0) is None
    assert channel.take_body(b"cdef", 0, 4) == b"abcdef"
    channel.end_content(ch.OPEN)
    assert (channel.state, channel.shape, channel.body_bytes) == (ch.OPEN, None, 0)
