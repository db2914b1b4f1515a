"""broker.network.output: a bounded part in each turn, and nothing while the transport is full."""

import asyncio
from collections.abc import Iterable

import pytest

from broker.network.output import Output
from config import limits
from tests.waiting import turns

PART = 64 * limits.KIB


class Transport:
    """Takes everything; `is_full` as one whose peer reads nothing."""

    def __init__(self, sslcontext: object = None) -> None:
        self._sslcontext = sslcontext
        self.written: list[bytes] = []
        self.is_full = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        assert self._sslcontext is None, "each part would be a record"
        self.written += parts

    def get_extra_info(self, name: str) -> object:
        return {"sslcontext": self._sslcontext}[name]

    def get_write_buffer_size(self) -> int:
        return limits.WRITE_BUFFER_BYTES_HIGH + 1 if self.is_full else 0

    def total(self) -> int:
        return sum(map(len, self.written))


@pytest.fixture(params=[None, "a context"], ids=["plain", "TLS"])
async def written_to(request):
    transport = Transport(request.param)
    told = []
    output = Output(asyncio.get_running_loop(), transport, lambda: told.append(transport.total()))
    return output, transport, told


async def test_small_output_is_written_at_once(written_to):
    output, transport, told = written_to
    output.write_in_steps([b"a", memoryview(b"bc")])
    assert (b"".join(transport.written), output.pending_bytes, told) == (b"abc", 0, [])


async def test_large_output_is_written_turn_by_turn_in_order(written_to):
    output, transport, told = written_to
    parts = [bytes([number]) * PART for number in range(40)]
    output.write_in_steps(parts)
    assert transport.total() == limits.WRITE_TURN_BYTES_MAX
    output.write_in_steps([b"behind"])
    assert output.pending_bytes == 24 * PART + 6
    while output.pending_bytes:
        before = transport.total()
        await turns()
        assert transport.total() - before <= limits.WRITE_TURN_BYTES_MAX
    assert b"".join(transport.written) == b"".join([*parts, b"behind"])
    assert told == [40 * PART + 6]


async def test_nothing_is_written_while_the_transport_is_full(written_to):
    output, transport, told = written_to
    transport.is_full = True
    output.write_in_steps([bytes(PART)])
    await turns()
    assert (transport.written, output.pending_bytes) == ([], PART)
    transport.is_full = False
    output.go_on()
    assert (transport.total(), output.pending_bytes, told) == (PART, 0, [PART])


async def test_output_whose_transport_is_gone_is_not_written(written_to):
    output, transport, told = written_to
    output.write_in_steps([bytes(PART)] * 40)
    output.dissolve()
    await turns()
    assert (transport.total(), output.pending_bytes, told) == (limits.WRITE_TURN_BYTES_MAX, 0, [])
