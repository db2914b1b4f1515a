from hypothesis import given
from hypothesis import strategies as st

from storage.encoding import prefix_end
from storage.envelope import EnvelopeTemplate, decode_envelope, expires_at_ms
from storage.records import expiry
from tests.unit.storage.envelopes import encode_run
from tests.unit.storage.record_checks import QUEUE, T0, check_key_strict, queue_ids, u32, u64, unhex

KEY = unhex("01 12 6f 72 64 65 72 73 00 00 00 01 9b 76 da ab e8 00 00 00 00 00 00 00 05")
VALUE = unhex(
    "01 10 00 00 00 00 00 00 03 00 00 00 01 02 05 00 00 00 00 00 00 00 00 a8 da 76 9b 01 00 00"
    "e8 03 00 00 00 00 00 00 01 00 61"
)


def test_expiry_matches_the_documented_vector():
    template = EnvelopeTemplate("a", expires_at_ms=1_000)
    [envelope] = encode_run(template, 5, T0, 1)
    assert expiry.key(QUEUE, expires_at_ms(template, T0), 5) == KEY
    assert expiry.encode(4097, 3, envelope) == VALUE
    assert expiry.decode(VALUE) == (4097, 3, envelope)
    _, received_at_ms, stored = decode_envelope(envelope)
    assert expires_at_ms(stored, received_at_ms) == T0 + 1_000


def test_absolute_expiry_is_kept():
    template = EnvelopeTemplate("a", expires_at_ms=T0 + 7)
    [envelope] = encode_run(template, 5, T0, 1)
    _, received_at_ms, stored = decode_envelope(envelope)
    assert expires_at_ms(stored, received_at_ms) == expires_at_ms(template, T0) == T0 + 7
    assert expires_at_ms(EnvelopeTemplate("a"), T0) == 0


@given(queue_ids, u64, u64)
def test_key_round_trips(queue_id, end_ms, offset):
    key = expiry.key(queue_id, end_ms, offset)
    assert expiry.parse_key(key) == (queue_id, end_ms, offset)
    assert expiry.prefix(queue_id) <= key < prefix_end(expiry.prefix(queue_id))
    check_key_strict(expiry.parse_key, key)


@given(st.lists(st.tuples(u64, u64), min_size=2))
def test_keys_sort_by_time_of_expiry(pairs):
    assert sorted(expiry.key(QUEUE, *pair) for pair in pairs) == [
        expiry.key(QUEUE, *p) for p in sorted(pairs)
    ]


@given(u64, u32, st.binary(max_size=30))
def test_value_round_trips(message_id, body_bytes, envelope):
    assert expiry.decode(expiry.encode(message_id, body_bytes, envelope)) == (
        message_id,
        body_bytes,
        envelope,
    )
