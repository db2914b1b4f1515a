import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord, FormatTooNew
from storage.records import QueueSpec, queue_spec
from tests.unit.storage.record_checks import QUEUE, check_key_strict, check_strict, queue_ids, u16, u32, unhex

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
specs = st.builds(
    QueueSpec,
    topic_filters=st.lists(texts, max_size=3).map(tuple),
    selector=texts,
    max_attempts=u16,
    done_retention_s=u32,
    bucket_exponent=st.integers(0, 4),
    description=texts,
    extensions=st.dictionaries(texts, st.binary(max_size=10), max_size=3),
)


def test_specification_without_filters_matches_the_documented_vector():
    assert queue_spec.key(QUEUE) == unhex("01 06 6f 72 64 65 72 73")
    spec = QueueSpec(max_attempts=5, done_retention_s=86_400, bucket_exponent=1, description="Order intake")
    value = unhex("00 00 00 00 05 00 80 51 01 00 01 0c 00 4f 72 64 65 72 20 69 6e 74 61 6b 65")
    assert queue_spec.encode(spec) == value
    assert queue_spec.decode(value) == spec


def test_specification_with_filters_matches_the_documented_vector():
    spec = QueueSpec(("$queue/orders/eu/#",), "type = 'order'", 5, 86_400, 1)
    value = unhex(
        "27 00 00 00 01 01 00 12 00 24 71 75 65 75 65 2f 6f 72 64 65 72 73 2f 65 75 2f 23 0e 00 74 79 70"
        "65 20 3d 20 27 6f 72 64 65 72 27 05 00 80 51 01 00 01 00 00"
    )
    assert queue_spec.encode(spec) == value
    assert queue_spec.decode(value) == spec


def test_extensions_are_written_in_order_of_names():
    spec = QueueSpec(extensions={"log": b"q7", "done": b"\x00"})
    value = queue_spec.encode(spec)
    assert value == queue_spec.encode(QueueSpec()) + unhex(
        "02 00  04 00 64 6f 6e 65 01 00 00 00 00  03 00 6c 6f 67 02 00 00 00 71 37"
    )
    assert queue_spec.decode(value) == spec


@given(specs)
def test_specification_round_trips(spec):
    value = queue_spec.encode(spec)
    assert queue_spec.decode(value) == spec
    # a value without its extension array is whole: that is how it may grow
    plain = len(queue_spec.encode(QueueSpec(*[getattr(spec, name) for name in QueueSpec.__slots__[:-1]])))
    if spec.extensions:
        check_strict(queue_spec.decode, value, whole_prefixes=[plain])
    else:
        for length in range(len(value)):
            with pytest.raises(CorruptRecord):
                queue_spec.decode(value[:length])


@given(queue_ids)
def test_key_round_trips(queue_id):
    key = queue_spec.key(queue_id)
    assert queue_spec.parse_key(key) == queue_id
    assert key.startswith(queue_spec.prefix())
    check_key_strict(queue_spec.parse_key, key, free_tail=len(key) - 3)


def test_key_of_an_invalid_queue_is_refused():
    for queue_id in ("", "a\x00b", "x" * 1_100):
        with pytest.raises(ValueError):
            queue_spec.key(queue_id)
        with pytest.raises(CorruptRecord):
            queue_spec.parse_key(queue_spec.prefix() + queue_id.encode())


def test_filters_of_an_unknown_format_are_refused():
    value = bytearray(queue_spec.encode(QueueSpec(("a",))))
    value[4] = 2
    with pytest.raises(FormatTooNew, match="filter format 2"):
        queue_spec.decode(bytes(value))
    value[4] = 0
    with pytest.raises(CorruptRecord, match="filter format"):
        queue_spec.decode(bytes(value))


def test_bytes_after_the_filters_are_corrupt():
    with pytest.raises(CorruptRecord):
        queue_spec.decode(unhex("06 00 00 00 01 00 00 00 00 ff") + queue_spec.encode(QueueSpec())[4:])


def test_bucket_size_out_of_range_is_refused():
    with pytest.raises(ValueError, match="0 to 4"):
        queue_spec.encode(QueueSpec(bucket_exponent=5))
    value = bytearray(queue_spec.encode(QueueSpec()))
    value[10] = 5
    with pytest.raises(CorruptRecord, match="bucket_exponent"):
        queue_spec.decode(bytes(value))


def test_extension_named_twice_is_corrupt():
    twice = unhex("02 00  01 00 61 00 00 00 00  01 00 61 00 00 00 00")
    with pytest.raises(CorruptRecord, match="twice"):
        queue_spec.decode(queue_spec.encode(QueueSpec()) + twice)
