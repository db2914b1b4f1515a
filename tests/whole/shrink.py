"""Make a sequence with a mismatch as short as it gets: leave operations out, then make them plainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.whole.queues import Mismatch
from tests.whole.world import Operation

SHRINK_S = 60.0


def kind_of(mismatch: Mismatch) -> str:
    """What stays of a mismatch's text without the names and numbers in it."""
    text = str(mismatch)
    last = text.split("}): ")[-1]
    return "".join(c for c in last if c.isalpha() or c == " ")[:18]


def shrink(
    operations: list[Operation], mismatch: Mismatch, make_host: Callable[[], Any]
) -> tuple[list[Operation], Mismatch]:
    """The shortest sequence found that still has a mismatch, and that mismatch."""
    best, last = list(operations), mismatch
    wanted = kind_of(mismatch)
    deadline = time.monotonic() + SHRINK_S
    host = make_host()

    def fails(candidate: list[Operation]) -> bool:
        nonlocal best, last
        found = host.run(candidate)
        if found is None or kind_of(found) != wanted:
            return False
        best, last = list(candidate), found
        return True

    try:
        if not fails(best) and not fails(best):
            return best, Mismatch(f"(not again in a fresh broker) {mismatch}")
        fails(list(host.effective))
        size = max(len(best) // 2, 1)
        while time.monotonic() < deadline:
            position = cut = 0
            while position < len(best) and time.monotonic() < deadline:
                if fails(best[:position] + best[position + size :]):
                    cut += 1
                else:
                    position += size
            if size == 1 and not cut:
                break
            if not cut or size > 1:
                size = max(size // 2, 1)
        _plainer(best, fails, deadline)
    finally:
        host.end()
    return best, last


def _plainer(operations: list[Operation], fails: Callable[[list[Operation]], bool], deadline: float) -> None:
    """Leave out arguments one by one."""
    current = list(operations)
    for position, (name, client, arguments) in enumerate(list(current)):
        for key in list(arguments):
            if time.monotonic() > deadline:
                return
            fewer = {other: value for other, value in arguments.items() if other != key}
            candidate = [*current[:position], (name, client, fewer), *current[position + 1 :]]
            try:
                if fails(candidate):
                    current, arguments = candidate, fewer
            except (KeyError, TypeError):  # the operation needs it
                continue
