"""protocols.large_bodies: a buffer for a body, in large pages where the system has them."""

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
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    buffer.write(body)
    assert buffer.tell() == size
    whole = buffer.getvalue()
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
    ((begin, length, _),) = advised
    address = id(buffer.getvalue()) + large_bodies._BYTES_OFFSET
    assert begin % large_bodies.PAGESIZE == length % large_bodies.PAGESIZE == 0
    assert address <= begin < address + large_bodies.PAGESIZE
    assert address + size - large_bodies.PAGESIZE < begin + length <= address + size
