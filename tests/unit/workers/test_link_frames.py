"""The frames of links."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from broker.workers import link_frames as f
from broker.workers.link_wire import LinkWire
from queue_manager.api import QueueDeclaration
from queue_manager.errors import Inequivalent, QueueManagerError
from queue_manager.policy import QueuePolicy


def there_and_back(*fields: Any) -> Any:
    frame = f.pickled(f.CALL, *fields)
    return f.unpickled(frame, 0, len(frame))


def test_values_of_the_core_come_through() -> None:
    policy = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=2)
    declared = QueueDeclaration(name="q", durable=True, policy=policy, arguments={"x-max-length": 3})
    assert there_and_back(1, declared) == (1, declared)


def test_refusals_come_through_with_what_they_keep() -> None:
    error = Inequivalent("queue", "q", "durable", True, False, is_argument=False)
    (back,) = there_and_back(error)
    assert type(back) is Inequivalent
    assert vars(back) == vars(error)
    assert isinstance(back, QueueManagerError)
    assert back.reason == str(back) == error.reason


class Harm:
    """Unpickles by a call."""

    def __reduce__(self) -> Any:
        return print, ("harm",)


def test_nothing_else_is_unpickled() -> None:
    frame = f.HEAD.pack(0, f.CALL) + pickle.dumps((Harm(),))
    with pytest.raises(pickle.UnpicklingError, match="does not come over a link"):
        f.unpickled(frame, 0, len(frame))


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
    frames = [f.pickled(f.CALL, "x" * size) for size in (0, 1, 50, 3)]
    stream = b"".join(frames)
    wire = Kept()
    for start in range(0, len(stream), step):
        wire.data_received(stream[start : start + step])
    assert wire.frames == frames
    wire._loop.close()


def test_no_two_kinds_of_frames_have_one_number() -> None:
    kinds = [value for name, value in vars(f).items() if name.isupper() and isinstance(value, int)]
    frames = kinds[kinds.index(f.HELLO) : kinds.index(f.TOLD) + 1]
    assert len(frames) == len(set(frames))
