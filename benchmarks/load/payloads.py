"""Message bodies: all different and not compressible, so that no broker can profit from sameness."""

import random


def make_bodies(size: int, count: int) -> list[bytes]:
    """`count` bodies of `size` bytes, the same ones each time."""
    generator = random.Random(size)
    return [generator.randbytes(size) for _ in range(count)]
