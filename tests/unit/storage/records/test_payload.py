from hypothesis import given
from hypothesis import strategies as st

from storage.records import payload, payload_keys
from tests.unit.storage.record_checks import check_key_strict, u64, unhex


def test_payload_matches_the_documented_vector():
    assert payload.key(4_097) == unhex("01 01 00 00 00 00 00 00 10 01")
    assert payload.encode(b"hello") == unhex("68 65 6c 6c 6f")


@given(u64)
def test_key_round_trips(message_id):
    key = payload.key(message_id)
    assert payload.parse_key(key) == message_id
    assert key.startswith(payload.prefix())
    check_key_strict(payload.parse_key, key)


@given(st.binary(max_size=100))
def test_value_is_the_body(body):
    assert payload.decode(payload.encode(body)) == body


def test_key_run_equals_the_single_keys():
    assert payload_keys(250, 10) == [payload.key(number) for number in range(250, 260)]
    assert payload_keys(250, 0) == []
