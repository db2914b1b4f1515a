import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.framing import FrameReader, encode_frame
from protocols.amqp10.hot import (
    ACCEPTED,
    DeliveryEncoder,
    DispositionReader,
    TransferPattern,
    TransferReader,
    encode_disposition,
    ranges_of,
    take_dispositions,
)

UINTS = st.none() | st.integers(0, 300) | st.integers(0, 2**32 - 1)
STATES = st.sampled_from([None, p.Accepted(), p.TransactionalState(b"t", p.Released()), p.Received(1, 2)])
TRANSFERS = st.builds(
    p.Transfer,
    st.integers(0, 300),
    UINTS,
    st.none() | st.binary(max_size=40),
    UINTS,
    st.none() | st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 1),
    STATES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
DISPOSITIONS = st.builds(
    p.Disposition, st.booleans(), st.integers(0, 2**32 - 1), UINTS, st.booleans(), STATES, st.booleans()
)


@given(st.lists(TRANSFERS, max_size=5), st.binary(max_size=20))
def test_transfers_are_read_as_the_table_says(transfers, payload):
    reader = TransferReader()
    for transfer in transfers * 2:
        data = b"before" + p.encode(transfer) + payload
        read = reader.read(data, 6, len(data))
        tail = read.tail
        assert (read.handle, read.delivery_id, read.delivery_tag) == transfer[:3]
        told = (tail.message_format, tail.settled, tail.more, tail.rcv_settle_mode, tail.state)
        assert (*told, tail.resume, tail.aborted) == transfer[3:10]
        assert data[read.payload_at :] == payload
        if read.id_at:
            assert int.from_bytes(data[read.id_at : read.id_at + 4], "big") == transfer.delivery_id


@given(st.lists(DISPOSITIONS, max_size=5))
def test_dispositions_are_read_as_the_table_says(dispositions):
    reader = DispositionReader()
    for said in dispositions * 2:
        data = b"before" + p.encode(said)
        first, last, read = reader.read(data, 6, len(data))
        assert (first, last) == (said.first, said.first if said.last is None else said.last)
        assert (read.role, read.settled, read.state) == (said.role, said.settled, said.state)


# what was read once by its octets must not make a cut or padded one pass
@given(TRANSFERS, st.data())
def test_a_transfer_cut_short_is_an_error_also_after_a_whole_one(transfer, data):
    reader = TransferReader()
    whole = p.encode(transfer)
    reader.read(whole, 0, len(whole))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(AmqpError):
        reader.read(cut, 0, len(cut))


def test_a_count_that_lies_is_an_error_also_after_a_true_one():
    transfers, dispositions = TransferReader(), DispositionReader()
    transfer = bytearray(p.encode(p.Transfer(0, 1, b"t", 0, True)))
    disposition = bytearray(p.encode(p.Disposition(True, 1, 2, True, p.Accepted())))
    transfers.read(bytes(transfer), 0, len(transfer))
    dispositions.read(bytes(disposition), 0, len(disposition))
    for wrong in (2, 4, 6):
        transfer[5] = disposition[5] = wrong
        with pytest.raises(AmqpError):
            transfers.read(bytes(transfer), 0, len(transfer))
        with pytest.raises(AmqpError):
            dispositions.read(bytes(disposition), 0, len(disposition))


def test_what_is_kept_of_tails_is_bounded():
    transfers, dispositions = TransferReader(), DispositionReader()
    for number in range(3 * limits.AMQP10_TAILS_PER_CONNECTION_MAX):
        data = p.encode(p.Transfer(0, 1, b"t", 1000 + number))
        transfers.read(data, 0, len(data))
        data = p.encode(p.Disposition(True, 1, state=p.Received(1000 + number, 0)))
        dispositions.read(data, 0, len(data))
    assert len(transfers._tails) <= limits.AMQP10_TAILS_PER_CONNECTION_MAX
    assert len(dispositions._tails) <= limits.AMQP10_TAILS_PER_CONNECTION_MAX


def _transfer(number: int, **fields) -> bytes:
    values = {"delivery_id": number, "delivery_tag": b"%08d" % number, "message_format": 0, **fields}
    return encode_frame(0, p.Transfer(0, **values), b"payload")


@pytest.mark.parametrize("room", [1000, 100, 7])
@pytest.mark.parametrize("other", [b"", _transfer(700), _transfer(600, settled=True), _transfer(600)[:-1]])
def test_a_pattern_takes_what_is_like_it_and_nothing_else(room, other):
    first = _transfer(500)
    read = TransferReader().read(first, 8, len(first))
    pattern = TransferPattern(first, 0, read)
    data = b"".join(_transfer(number) for number in range(501, 600)) + other
    tags: list[bytes] = []
    payloads: list[bytes] = []
    assert pattern.take(data, 0, 501, room, 100, tags, payloads) == min(room, 99) * len(first)
    taken = len(tags)
    assert taken == len(payloads) == min(room, 99)
    assert tags == [b"%08d" % number for number in range(501, 501 + taken)]
    assert set(payloads) <= {b"payload"}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("handle", [0, 1, 300])
def test_deliveries_encode_as_the_table_says(settled, handle):
    encoder = DeliveryEncoder(5, handle, settled, 512)
    output: list[bytes] = []
    encoder.encode_run(output, 2**32 - 2, [b"a", b"bb", b"x" * encoder.payload_max])
    seen = FrameReader(512).feed(b"".join(output))
    assert [frame.body for frame in seen] == [
        p.Transfer(handle, number, number.to_bytes(4, "big"), 0, settled)
        for number in (2**32 - 2, 2**32 - 1, 0)
    ]
    assert [frame.channel for frame in seen] == [5, 5, 5]
    assert [frame.payload for frame in seen] == [b"a", b"bb", b"x" * encoder.payload_max]


@pytest.mark.parametrize("state", [p.Accepted(), p.Rejected(p.Error("x:y", "z" * 300)), p.Released()])
def test_a_disposition_encodes_as_the_table_says(state):
    data = encode_disposition(7, c.SENDER, 3, 500, p.encode(state), settled=False)
    (frame,) = FrameReader().feed(data)
    assert (frame.channel, frame.body) == (7, p.Disposition(False, 3, 500, False, state))
    assert t.decode_whole(ACCEPTED) == t.Described(t.ULong(0x24), [])


def test_ranges_hold_what_follows_on_each_other():
    assert ranges_of([]) == []
    assert ranges_of([5]) == [(5, 5)]
    assert ranges_of([1, 2, 3, 7, 8, 10]) == [(1, 3), (7, 8), (10, 10)]
    assert ranges_of([0, 1]) == [(0, 1)]


def test_a_pattern_takes_payloads_of_any_size_up_to_the_largest():
    first = _transfer(500)
    pattern = TransferPattern(first, 0, TransferReader().read(first, 8, len(first)))
    sizes = [5, 5, 5, 0, *[9] * 20, 7, 30, 31, 3]
    frames = [
        encode_frame(0, p.Transfer(0, 501 + at, b"%08d" % at, 0), b"x" * size)
        for at, size in enumerate(sizes)
    ]
    payloads: list[bytes] = []
    end = pattern.take(b"".join(frames), 0, 501, 1000, 30, [], payloads)
    assert [len(payload) for payload in payloads] == sizes[:-2]
    assert end == len(b"".join(frames[:-2]))


@pytest.mark.parametrize("lasts", [None, 0, 3])
@pytest.mark.parametrize("other", [b"", encode_frame(0, p.Disposition(True, 700, 700, True, p.Released()))])
def test_dispositions_that_differ_in_ids_are_taken_together(lasts, other):
    ids = range(1000, 1100)
    frames = [
        encode_frame(0, p.Disposition(True, at, None if lasts is None else at + lasts, True, p.Accepted()))
        for at in ids
    ]
    ranges: list[tuple[int, int]] = []
    data = b"".join(frames) + other
    end = take_dispositions(data, 0, len(frames[0]), ranges)
    assert end == len(frames[0]) * (1 + len(ranges))
    assert len(ranges) > 90
    assert ranges == [(at, at + (lasts or 0)) for at in ids[1 : 1 + len(ranges)]]
