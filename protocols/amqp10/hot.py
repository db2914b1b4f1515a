"""The per-message paths: transfers and dispositions, in and out.

What stands behind the changing fields of a frame is the same for most frames of a link, so it is decoded once
and told by its octets then; and frames that differ in nothing but delivery ID, tag and payload are taken
apart many at a time by one `struct` call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import malformed
from protocols.amqp10.framing import HEAD

_U32: Final = Struct(">I")
_SIZE_COUNT: Final = Struct(">II")
_MASK: Final = 0xFFFFFFFF

TRANSFER: Final = b"\x00\x53\x14"
_TRANSFER_8: Final = TRANSFER + b"\xc0"
DISPOSITION: Final = b"\x00\x53\x15"
_DISPOSITION_8: Final = DISPOSITION + b"\xc0"
_LIST_8: Final = 0xC0
_NULL: Final = 0x40
_UINT_0: Final = 0x43
_SMALL_UINT: Final = 0x52
_UINT: Final = 0x70
_BINARY_8: Final = 0xA0

ACCEPTED: Final = p.encode(p.Accepted())
RELEASED: Final = p.encode(p.Released())


class TransferTail(NamedTuple):
    """The fields of a transfer behind its tag; `size` is how many fields it has in all."""

    size: int
    message_format: int | None
    settled: bool | None
    more: bool
    rcv_settle_mode: int | None
    state: Any
    resume: bool
    aborted: bool


class TransferHead(NamedTuple):
    """A transfer as it was read; the payload begins at `payload_at`. `id_at` is where the delivery ID stands
    in four octets, else 0.
    """

    handle: int
    delivery_id: int | None
    delivery_tag: bytes | None
    tail: TransferTail
    payload_at: int
    id_at: int


def _uint(data: bytes, pos: int) -> tuple[int | None, int]:
    """Read a uint or null; gives 0 for the position when it is something else."""
    code = data[pos]
    if code == _UINT:
        return _U32.unpack_from(data, pos + 1)[0], pos + 5
    if code == _SMALL_UINT:
        return data[pos + 1], pos + 2
    if code == _UINT_0:
        return 0, pos + 1
    if code == _NULL:
        return None, pos + 1
    return None, 0


class TransferReader:
    """Reads transfers; keeps what it decoded of tails."""

    __slots__ = ("_tails",)

    def __init__(self) -> None:
        self._tails: dict[bytes, TransferTail] = {}

    def read(self, data: bytes, at: int, end: int) -> TransferHead:
        """Read the transfer whose descriptor is at `at` in a frame that ends at `end`.

        Raises AmqpError as `performatives.decode`.
        """
        pos = at + 3
        if data.startswith(_TRANSFER_8, at) and end - pos > 6:
            stop = pos + 2 + data[pos + 1]
            size = data[pos + 2]
            # none of the short reads goes beyond the frame: 12 octets are the most before the tag
            if stop <= end and size > 2 and stop - pos > 4:
                head = self._read_usual(data, pos + 3, stop, size)
                if head is not None:
                    return head
        transfer, pos = p.decode(data, at, end)
        assert type(transfer) is p.Transfer
        tail = TransferTail(
            0,
            transfer.message_format,
            transfer.settled,
            transfer.more,
            transfer.rcv_settle_mode,
            transfer.state,
            transfer.resume,
            transfer.aborted,
        )
        return TransferHead(transfer.handle, transfer.delivery_id, transfer.delivery_tag, tail, pos, 0)

    def _read_usual(self, data: bytes, pos: int, stop: int, size: int) -> TransferHead | None:
        """Read a transfer in a short list with a known tail, or one that becomes known."""
        try:
            handle, pos = _uint(data, pos)
            id_at = pos + 1 if data[pos] == _UINT else 0
            delivery_id, pos = _uint(data, pos)
            if handle is None or not pos:
                return None
            code = data[pos]
            if code == _BINARY_8:
                tail_at = pos + 2 + data[pos + 1]
                tag: bytes | None = data[pos + 2 : tail_at]
            elif code == _NULL:
                tail_at = pos + 1
                tag = None
            else:
                return None
        except IndexError:
            return None
        if tail_at > stop:
            return None
        tail = self._tails.get(data[tail_at:stop])
        if tail is None:
            tail = self._learn(data[tail_at:stop], size)
        if tail.size != size:
            return None
        return TransferHead(handle, delivery_id, tag, tail, stop, id_at)

    def _learn(self, octets: bytes, size: int) -> TransferTail:
        """Decode a tail behind fields that stand for any."""
        items = b"\x43\x43\xa0\x00" + octets
        whole = TRANSFER + b"\xd0" + _SIZE_COUNT.pack(len(items) + 4, size) + items
        transfer, pos = p.decode(whole, 0, len(whole))
        tail = TransferTail(
            size,
            transfer.message_format,
            transfer.settled,
            transfer.more,
            transfer.rcv_settle_mode,
            transfer.state,
            transfer.resume,
            transfer.aborted,
        )
        if len(self._tails) >= limits.AMQP10_TAILS_PER_CONNECTION_MAX:
            self._tails.clear()
        self._tails[octets] = tail
        return tail


class DispositionReader:
    """Reads dispositions; keeps what it decoded of their states."""

    __slots__ = ("_tails",)

    def __init__(self) -> None:
        self._tails: dict[bytes, tuple[int, p.Disposition]] = {}

    def read(self, data: bytes, at: int, end: int) -> tuple[int, int, p.Disposition]:
        """Read the disposition whose descriptor is at `at` in a frame that ends at `end`.

        Gives first and last delivery ID, and a disposition that is like it in all other fields. Raises
        AmqpError as `performatives.decode`.
        """
        pos = at + 3
        if end - pos > 6 and data[pos] == _LIST_8 and pos + 2 + data[pos + 1] == end:
            size = data[pos + 2]
            role = data[pos + 3 : pos + 4]
            try:
                first, pos = _uint(data, pos + 4)
                last = first
                if pos and size > 2:
                    last, pos = _uint(data, pos)
            except IndexError:
                pos = 0
            if pos and first is not None and pos <= end:
                octets = role + data[pos:end]
                found = self._tails.get(octets)
                if found is not None and found[0] == size:
                    return first, first if last is None else last, found[1]
                disposition, _ = p.decode(data, at, end)
                if len(self._tails) >= limits.AMQP10_TAILS_PER_CONNECTION_MAX:
                    self._tails.clear()
                self._tails[octets] = (size, disposition)
                return first, first if last is None else last, disposition
        disposition, pos = p.decode(data, at, end)
        if pos != end:
            raise malformed("octets behind a disposition")
        last = disposition.last
        return disposition.first, disposition.first if last is None else last, disposition


# runs of transfers

_WINDOWS: Final = (64, 8)


@lru_cache(maxsize=64)
def _transfer_windows(
    head_bytes: int, middle_bytes: int, tag_bytes: int, tail_bytes: int, payload_bytes: int
) -> tuple[tuple[int, Struct], ...]:
    one = f"{head_bytes}sI{middle_bytes}s{tag_bytes}s{tail_bytes}s{payload_bytes}s"
    return tuple((count, Struct(">" + one * count)) for count in _WINDOWS)


class TransferPattern:
    """The octets of a transfer but for its size, delivery ID, tag and payload."""

    __slots__ = ("_fixed_bytes", "_head", "_middle", "_middle_at", "_tag_bytes", "_tail", "_tail_at")

    def __init__(self, data: bytes, at: int, read: TransferHead) -> None:
        """Learn from the frame at `at`, as it was read; its delivery ID must stand in four octets."""
        tag_at = read.id_at + 6
        self._tag_bytes = data[tag_at - 1]
        self._head = data[at + 4 : read.id_at]
        self._middle = data[tag_at - 2 : tag_at]
        self._middle_at = read.id_at + 4 - at
        self._tail = data[tag_at + self._tag_bytes : read.payload_at]
        self._tail_at = tag_at + self._tag_bytes - at
        self._fixed_bytes = read.payload_at - at

    def is_of(self, data: bytes, at: int) -> bool:
        """Return whether the frame at `at` is a transfer like it; it may yet be cut off, or too large."""
        return (
            data.startswith(self._head, at + 4)
            and data.startswith(self._middle, at + self._middle_at)
            and data.startswith(self._tail, at + self._tail_at)
        )

    def take(
        self,
        data: bytes,
        pos: int,
        next_id: int,
        room: int,
        payload_max: int,
        tags: list[bytes],
        payloads: list[bytes],
    ) -> int:
        """Take at most `room` transfers like it from `pos`, whose IDs follow on each other from `next_id` on.

        Appends their tags and payloads, of at most `payload_max` octets; gives the position after them.
        """
        fixed = self._fixed_bytes
        size = len(data)
        last_id = min(next_id + room, _MASK)
        id_at = self._middle_at - 4
        tag_at = self._middle_at + 2
        narrow_at = pos  # not before here: a window failed
        while next_id < last_id and pos + fixed <= size and self.is_of(data, pos):
            frame_bytes = _U32.unpack_from(data, pos)[0]
            end = pos + frame_bytes
            if (
                end > size
                or not 0 <= frame_bytes - fixed <= payload_max
                or _U32.unpack_from(data, pos + id_at)[0] != next_id
            ):
                break
            if pos >= narrow_at and data.startswith(data[pos : pos + id_at], pos + 7 * frame_bytes):
                count = self._take_windows(data, pos, frame_bytes, next_id, last_id, tags, payloads)
                next_id += count
                pos += count * frame_bytes
                if count:
                    continue
                narrow_at = pos + 8 * frame_bytes
            tags.append(data[pos + tag_at : pos + self._tail_at])
            payloads.append(data[pos + fixed : end])
            next_id += 1
            pos = end
        return pos

    def _take_windows(
        self,
        data: bytes,
        pos: int,
        frame_bytes: int,
        next_id: int,
        last_id: int,
        tags: list[bytes],
        payloads: list[bytes],
    ) -> int:
        """Take whole windows of transfers of one size; gives how many transfers."""
        head = data[pos : pos + self._middle_at - 4]
        windows = _transfer_windows(
            len(head), len(self._middle), self._tag_bytes, len(self._tail), frame_bytes - self._fixed_bytes
        )
        taken = 0
        left = min((len(data) - pos) // frame_bytes, last_id - next_id)
        for count, window in windows:
            while left >= count and data.startswith(head, pos + (count - 1) * frame_bytes):
                fields = window.unpack_from(data, pos)
                if (
                    fields[0::6].count(head) != count
                    or fields[2::6].count(self._middle) != count
                    or fields[4::6].count(self._tail) != count
                    or fields[1::6] != tuple(range(next_id, next_id + count))
                ):
                    break
                tags += fields[3::6]
                payloads += fields[5::6]
                next_id += count
                pos += count * frame_bytes
                left -= count
                taken += count
        return taken


class LinksPattern:
    """The octets of a transfer but for its size, handle, delivery ID, tag and payload: `head` and `id_code`
    before and behind the handle, which stands in one octet, `middle` before the tag and `tail` behind it.

    `unpack_from` gives all of them with what differs, in order; the payload begins `fixed_bytes` behind the
    beginning.
    """

    __slots__ = ("fixed_bytes", "head", "middle", "tail", "unpack_from")

    id_code: Final = _UINT

    def __init__(self, data: bytes, at: int, read: TransferHead) -> None:
        """Learn from the frame at `at`, as it was read; see `fits`."""
        middle_at = read.id_at + 4
        tail_at = middle_at + 2 + data[middle_at + 1]
        self.head = data[at + 4 : read.id_at - 2]
        self.middle = data[middle_at : middle_at + 2]
        self.tail = data[tail_at : read.payload_at]
        form = _links_form(len(self.head), data[middle_at + 1], len(self.tail))
        self.unpack_from = form.unpack_from
        self.fixed_bytes = form.size

    @staticmethod
    def fits(data: bytes, at: int, read: TransferHead) -> bool:
        """Return whether the handle of the frame at `at` stands in one octet, its delivery ID in four."""
        return read.id_at == at + _ID_AT and data[at + _ID_AT - 3] == _SMALL_UINT

    def is_of(self, data: bytes, at: int, read: TransferHead) -> bool:
        """Return whether the frame at `at`, as it was read, is like it; see `fits`."""
        return (
            read.payload_at - at == self.fixed_bytes
            and data.startswith(self.head, at + 4)
            and data.startswith(self.middle, read.id_at + 4)
            and data.startswith(self.tail, read.payload_at - len(self.tail))
        )


_ID_AT: Final = 17  # where the ID of a delivery stands in its frame behind a handle in one octet


@lru_cache(maxsize=64)
def _links_form(head_bytes: int, tag_bytes: int, tail_bytes: int) -> Struct:
    return Struct(f">I{head_bytes}sBBI2s{tag_bytes}s{tail_bytes}s")


_FIRST_AT: Final = 16  # where the first ID of a disposition stands in its frame, when it does in four octets
_ONE_ID: Final = _FIRST_AT + 4


@lru_cache(maxsize=64)
def _disposition_windows(between_bytes: int, tail_bytes: int) -> tuple[tuple[int, Struct], ...]:
    one = f"{_FIRST_AT}sI{between_bytes}s" + (f"I{tail_bytes}s" if tail_bytes else "")
    return tuple((count, Struct(">" + one * count)) for count in _WINDOWS)


def take_dispositions(data: bytes, at: int, end: int, ranges: list[tuple[int, int]]) -> int:
    """Take the dispositions behind the one in the frame from `at` to `end` that differ in nothing but IDs.

    Appends their ranges; gives the position after them.
    """
    size = end - at
    if (
        len(data) - end < 8 * size
        or size < _ONE_ID
        or not data.startswith(_DISPOSITION_8, at + c.FRAME_HEAD_BYTES)
        or data[at + _FIRST_AT - 1] != _UINT
    ):
        return end
    has_last = data[at + _ONE_ID] == _UINT
    head = data[at : at + _FIRST_AT]
    between = data[at + _ONE_ID : at + _ONE_ID + 1] if has_last else data[at + _ONE_ID : end]
    tail = data[at + _ONE_ID + 5 : end] if has_last else b""
    width = 5 if has_last else 3
    for count, window in _disposition_windows(len(between), len(tail)):
        while len(data) - end >= count * size and data.startswith(head, end + (count - 1) * size):
            fields = window.unpack_from(data, end)
            if (
                fields[0::width].count(head) != count
                or fields[2::width].count(between) != count
                or (has_last and fields[4::width].count(tail) != count)
            ):
                break
            firsts = fields[1::width]
            ranges += zip(firsts, fields[3::width] if has_last else firsts, strict=True)
            end += count * size
    return end


class DeliveryEncoder:
    """Encodes deliveries of one link: in one frame each as long as they fit, in as many as it takes else."""

    __slots__ = ("_channel", "_fixed", "_frame_max", "_handle", "_head", "_pack", "_tail", "payload_max")

    def __init__(self, channel: int, handle: int, settled: bool, frame_max: int) -> None:
        self._channel = channel
        self._handle = t.encode_uint(handle)
        self._frame_max = frame_max
        # delivery ID and tag, which is the ID, in four octets each; message format 0
        self._tail = b"\x43\x41" if settled else b"\x43\x42"
        items = len(self._handle) + 5 + 6 + len(self._tail)
        self._head = (
            HEAD.pack(0, c.DOFF_MIN, c.FRAME_AMQP, channel)[4:]
            + TRANSFER
            + bytes((_LIST_8, items + 1, 5))
            + self._handle
            + b"\x70"
        )
        form = Struct(f">I{len(self._head)}sI2sI{len(self._tail)}s")
        self._pack = form.pack
        self._fixed = form.size
        self.payload_max = frame_max - form.size

    def encode_run(self, output: list[Any], first_id: int, payloads: Sequence[bytes]) -> None:
        """Append deliveries with IDs from `first_id` on, of at most `payload_max` octets each."""
        pack, head, tail, fixed = self._pack, self._head, self._tail, self._fixed
        if len(payloads) == 1:
            payload = payloads[0]
            output.append(pack(fixed + len(payload), head, first_id, b"\xa0\x04", first_id, tail) + payload)
            return
        parts: list[bytes] = [b""] * (2 * len(payloads))
        ids: Iterable[int] = range(first_id, first_id + len(payloads))
        if first_id + len(payloads) > _MASK:
            ids = [number & _MASK for number in ids]
        parts[0::2] = [
            pack(fixed + len(payload), head, number, b"\xa0\x04", number, tail)
            for number, payload in zip(ids, payloads, strict=True)
        ]
        parts[1::2] = payloads
        output.append(b"".join(parts))

    def encode_parts(self, delivery_id: int, payload: bytes) -> list[tuple[bytes, memoryview]]:
        """Encode one delivery as the frames that it takes, each as its head and a part of the payload."""
        tag = _U32.pack(delivery_id)
        items = b"".join((self._handle, b"\x70", tag, b"\xa0\x04", tag, self._tail, b"\x41"))
        body = b"%b\xc0%c\x06%b" % (TRANSFER, len(items) + 1, items)
        part_max = self._frame_max - c.FRAME_HEAD_BYTES - len(body)
        whole = memoryview(payload)
        frames = []
        size = len(payload)
        for start in range(0, max(size, 1), part_max):
            part = whole[start : start + part_max]
            if start + part_max >= size:
                body = body[:-1] + b"\x42"
            head = HEAD.pack(c.FRAME_HEAD_BYTES + len(body) + len(part), 2, c.FRAME_AMQP, self._channel)
            frames.append((head + body, part))
        return frames


_DISPOSITION: Final = Struct(">IBBH3sBBBBBIBIB")


def encode_disposition(
    channel: int, role: bool, first: int, last: int, state: bytes, settled: bool = True
) -> bytes:
    """Encode a disposition as a whole frame; `state` is encoded, see `ACCEPTED`."""
    items = 1 + 5 + 5 + 1 + len(state)
    if items > 250:
        told = t.decode_whole(state)
        body = p.encode(p.Disposition(role, first, last, settled, told))
        return HEAD.pack(c.FRAME_HEAD_BYTES + len(body), 2, c.FRAME_AMQP, channel) + body
    return (
        _DISPOSITION.pack(
            c.FRAME_HEAD_BYTES + 6 + items,
            c.DOFF_MIN,
            c.FRAME_AMQP,
            channel,
            DISPOSITION,
            _LIST_8,
            items + 1,
            5,
            0x41 if role else 0x42,
            _UINT,
            first,
            _UINT,
            last,
            0x41 if settled else 0x42,
        )
        + state
    )


def ranges_of(delivery_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending delivery IDs as ranges, last included."""
    ranges: list[tuple[int, int]] = []
    first = last = -1
    for number in delivery_ids:
        if number != last + 1 or last < 0:
            if last >= 0:
                ranges.append((first, last))
            first = number
        last = number
    if last >= 0:
        ranges.append((first, last))
    return ranges
