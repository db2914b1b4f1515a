"""protocols.large_bodies: a buffer for a body, in large pages where the system has them, taken ahead."""

from mmap import PAGESIZE

import pytest

from config import limits
from protocols import large_bodies

SIZES = [0, 1, limits.LARGE_PAGES_BYTES_MIN - 1, limits.LARGE_PAGES_BYTES_MIN, 9 * limits.MIB + 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("has_madvise", [True, False])
def test_buffer_holds_a_body_of_its_size_uncopied(monkeypatch, size, has_madvise):
    if not has_madvise:
        monkeypatch.setattr(large_bodies, "_madvise", None)
    buffer = large_bodies.body_buffer(size)
    before = id(buffer.getvalue())
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    for start in range(0, size, 100_000):
        buffer.write(memoryview(body)[start : start + 100_000])
    assert buffer.tell() == size
    whole = buffer.getvalue()
    assert id(whole) == before
    assert whole == body
    assert buffer.getvalue() is whole


@pytest.mark.parametrize("size", SIZES)
def test_only_whole_pages_within_a_large_buffer_are_advised(monkeypatch, size):
    advised = []
    monkeypatch.setattr(large_bodies, "_madvise", lambda *arguments: advised.append(arguments))
    buffer = large_bodies.body_buffer(size)
    if size < limits.LARGE_PAGES_BYTES_MIN:
        assert advised == []
        return
    begin, length, _ = advised[0]
    address = id(buffer.getvalue()) + large_bodies._BYTES_OFFSET
    assert begin % PAGESIZE == length % PAGESIZE == 0
    assert address <= begin < address + PAGESIZE
    assert address + size - PAGESIZE < begin + length <= address + size


def note_taken(monkeypatch, answer: int) -> list[tuple[int, int]]:
    """Addresses from and to which memory is asked for, with what the system answers."""
    taken: list[tuple[int, int]] = []

    def madvise(begin: int, length: int, advice: int) -> int:
        if advice == large_bodies._MADV_POPULATE_WRITE:
            taken.append((begin, begin + length))
        return answer

    monkeypatch.setattr(large_bodies, "_madvise", madvise)
    return taken


def test_a_system_that_does_not_give_memory_ahead_is_asked_once(monkeypatch):
    taken = note_taken(monkeypatch, -1)
    buffer = large_bodies.body_buffer(33 * limits.MIB)
    buffer.take_memory()  # type: ignore[attr-defined]
    for _ in range(33):
        assert not buffer.lacks_memory  # type: ignore[attr-defined]
        buffer.write(bytes(limits.MIB))
    assert len(taken) == 1


def test_memory_is_taken_once_and_a_bounded_part_ahead_of_what_is_written(monkeypatch):
    taken = note_taken(monkeypatch, 0)
    size = 33 * limits.MIB + 5
    buffer = large_bodies.body_buffer(size)
    assert isinstance(buffer, large_bodies.LargeBody)
    address = id(buffer.getvalue()) + large_bodies._BYTES_OFFSET
    end = (address + size) // PAGESIZE * PAGESIZE
    part = bytes(131_064)
    while buffer.tell() < size:
        if buffer.lacks_memory:
            buffer.take_memory()
            ahead = taken[-1][1] - (address + buffer.tell())
            assert ahead <= limits.BODY_MEMORY_STEP_BYTES + large_bodies._LARGE_PAGE_BYTES
            assert not buffer.lacks_memory
        buffer.write(part[: size - buffer.tell()])
    assert address <= taken[0][0] < address + PAGESIZE
    assert taken[-1][1] == end
    assert [later[0] for later in taken[1:]] == [earlier[1] for earlier in taken[:-1]]
    assert len(taken) <= size // limits.BODY_MEMORY_STEP_BYTES + 2
