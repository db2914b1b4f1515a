"""Records of MQTT sessions and of the logs they read: the vectors of the page, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.address import qualified_name
from storage.envelope import EnvelopeTemplate, TemplateCache
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import (
    CONNECTED,
    NEVER_S,
    RetainedValue,
    SessionValue,
    SubscriptionValue,
    WillValue,
    filter_log,
    filter_log_entry,
    retained,
    session,
    session_progress,
    session_received,
    session_subscription,
    session_will,
)
from storage.records.filter_log_entries import NO_PUBLISHER, Kept, decode_entry, decode_entry_head
from storage.records.special_codecs import SENT_QOS_2, Sent, pack_sent
from tests.unit.storage.record_checks import T0, check_key_strict, check_strict, u64, unhex

ENTRY = unhex(
    "01000000 01000000 00000000 0000000000000000 0000000000000000"
    "00000000 02 ffffffffffffffff 15000000"
    "0108 0000000000000000 00a8da769b010000 0100 61 01000000 78"
)


def test_session_vector():
    key, value = session.key("dev"), session.encode(5, NEVER_S, CONNECTED, "")
    assert key == unhex("0128 646576")
    assert value == unhex("0500000000000000 ffffffff ffffffffffffffff 0000")
    assert session.parse_key(key) == "dev"
    assert session.key(qualified_name("acme", "dev")) == unhex("0128 61636d65 1d 646576")
    assert session.decode(value) == SessionValue(5, NEVER_S, CONNECTED, "")
    check_strict(session.decode, value)
    check_key_strict(session.parse_key, key, free_tail=3)


def test_subscription_vector():
    key = session_subscription.key(5, "a/#")
    wanted = SubscriptionValue(6, 1, 0, 7, 0, 0, b"")
    value = session_subscription.encode(*wanted)
    assert key == unhex("0129 0000000000000005 612f23")
    assert value == unhex(
        "0600000000000000 01 00000000 0700000000000000 0000000000000000 0000000000000000 00000000"
    )
    assert session_subscription.parse_key(key) == (5, "a/#")
    assert session_subscription.decode(value) == wanted
    check_strict(session_subscription.decode, value)
    with pytest.raises(FormatTooNew, match="options 0x40"):
        session_subscription.decode(session_subscription.encode(*wanted._replace(options=0x40)))
    check_key_strict(session_subscription.parse_key, key, free_tail=3)


def test_progress_vector():
    key, value = session_progress.key(5), session_progress.encode(9, [pack_sent(Sent(8, 1, SENT_QOS_2))])
    assert key == unhex("012a 0000000000000005")
    assert value == unhex("0900000000000000 0100 0800000000000000 0100 02")
    assert session_progress.parse_key(key) == 5
    assert session_progress.decode(value) == (9, [Sent(8, 1, SENT_QOS_2)])
    check_strict(session_progress.decode, value)
    check_key_strict(session_progress.parse_key, key)


def test_received_vector():
    key, value = session_received.key(5, 258), session_received.encode(T0)
    assert key == unhex("012b 0000000000000005 0102")
    assert value == unhex("00a8da769b010000")
    assert session_received.parse_key(key) == (5, 258)
    assert session_received.decode(value) == T0
    check_strict(session_received.decode, value)
    check_key_strict(session_received.parse_key, key)


def test_filter_log_vector():
    key, value = filter_log.key(6), filter_log.encode("a/#")
    assert key == unhex("012c 0000000000000006")
    assert value == unhex("0300 612f23")
    assert filter_log.parse_key(key) == 6
    assert filter_log.decode(value) == "a/#"
    check_strict(filter_log.decode, value)
    check_key_strict(filter_log.parse_key, key)


def test_entry_vector():
    template = EnvelopeTemplate("a", persistent=True)
    key = filter_log_entry.key(6, 8)
    assert key == unhex("012d 0000000000000006 0000000000000008")
    assert filter_log_entry.parse_key(key) == (6, 8)
    assert filter_log_entry.encode(0, 0, [Kept(8, 2, NO_PUBLISHER, template, T0, b"x")]) == ENTRY
    check_key_strict(filter_log_entry.parse_key, key)
    (read,) = decode_entry(8, ENTRY, TemplateCache())
    assert read[:3] == (8, 2, NO_PUBLISHER)
    assert read.template.topic == "a"
    assert (read.received_at_ms, read.body) == (T0, b"x")


def test_entry_with_unknown_flags_is_of_a_newer_release():
    (read,) = decode_entry(8, ENTRY, TemplateCache())
    later = filter_log_entry.encode(0, 0, [read._replace(flags=8 | 2)])
    with pytest.raises(FormatTooNew, match="flags 0x0a"):
        decode_entry(8, later, TemplateCache())


def test_entry_that_is_too_short_or_too_long_is_corrupt():
    check_strict(lambda value: decode_entry(8, value, TemplateCache()), ENTRY)
    with pytest.raises(CorruptRecord):
        decode_entry_head(ENTRY[:20])


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 7), u64, st.binary(max_size=20)), min_size=1))
def test_entries_come_back_as_they_were(rows):
    template = EnvelopeTemplate("a/b", persistent=True, expires_at_ms=5)
    message_id = 100
    messages = []
    for delta, flags, publisher, body in rows:
        message_id += delta + 1
        messages.append(Kept(message_id, flags, publisher, template, T0, body))
    value = filter_log_entry.encode(3, 4, messages)
    head = decode_entry_head(value)
    assert head == (len(rows), sum(len(row[3]) for row in rows), message_id - messages[0].message_id, 3, 4)
    read = decode_entry(messages[0].message_id, value, TemplateCache())
    assert [each._replace(template=template) for each in read] == messages


def test_retained_vector():
    envelope = unhex("0108 0000000000000000 00a8da769b010000 0100 61")
    key, value = retained.key("a"), retained.encode(1, envelope, b"x")
    assert key == unhex("012e 61")
    assert value == unhex("01 15000000") + envelope + unhex("01000000 78")
    assert retained.parse_key(key) == "a"
    assert retained.decode(value) == RetainedValue(1, envelope, b"x")
    check_strict(retained.decode, value)
    check_key_strict(retained.parse_key, key, free_tail=1)


def test_will_vector():
    wanted = WillValue(T0, 30, 0x33, "dev", "", "a", b"\x01\x01", b"gone", "anonymous")
    key, value = session_will.key(5), session_will.encode(*wanted)
    assert key == unhex("012f 0000000000000005")
    assert value == unhex(
        "00a8da769b010000 1e000000 33 0300 646576 0000 0100 61 02000000 0101 04000000 676f6e65"
        "0900 616e6f6e796d6f7573"
    )
    assert session_will.parse_key(key) == 5
    assert session_will.decode(value) == wanted
    before_source = len(value) - len("anonymous") - 2
    assert session_will.decode(value[:before_source]) == wanted._replace(source="")
    check_strict(session_will.decode, value, {before_source})
    check_key_strict(session_will.parse_key, key)
