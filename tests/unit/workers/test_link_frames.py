"""The frames of links."""

from __future__ import annotations

import asyncio

import pytest

from broker.workers import link_frames as f
from broker.workers.link_values import CODEC
from broker.workers.link_wire import LinkWire


@pytest.mark.parametrize("bodies", [[b"a"], [b""], [b"ab", b"cd"], [b"", b"a", b"xyz"], [b"", b""]])
def test_bodies_come_back_as_they_were_put(bodies: list[bytes]) -> None:
    size, follows = f.sizes_of(bodies)
    output: list[bytes] = []
    f.put_bodies(output, bodies, size)
    data = b"".join(output)
    assert len(data) == follows
    assert f.take_bodies(b"--" + data + b"--", 2, len(bodies), size) == (bodies, 2 + follows)


class Kept(LinkWire):
    """An end that keeps its frames."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self.frames: list[bytes] = []
        self.chunk_count = 0

    def take(self, kind: int, data: bytes, at: int, end: int) -> None:
        self.frames.append(data[at:end])

    def taken(self) -> None:
        self.chunk_count += 1


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6, 7, 11, 1_000])
def test_frames_are_whole_however_they_are_cut(step: int) -> None:
    frames = [CODEC.frame(f.CALL, "x" * size) for size in (0, 1, 50, 3)]
    stream = b"".join(frames)
    wire = Kept()
    for start in range(0, len(stream), step):
        wire.data_received(stream[start : start + step])
    assert wire.frames == frames
    wire._loop.close()


def test_no_two_kinds_of_frames_have_one_number() -> None:
    kinds = [value for name, value in vars(f).items() if name.isupper() and isinstance(value, int)]
    frames = kinds[kinds.index(f.HELLO) : kinds.index(f.UNWELCOME) + 1]
    assert len(frames) == len(set(frames))
