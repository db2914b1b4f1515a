"""The walk of a request through our functions, told by the profile hook of the thread that runs the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
FLOORS = tuple(f"{ROOT / floor}/" for floor in ("broker", "protocols", "queue_manager", "storage", "config"))


class Step(NamedTuple):
    """A function that was entered: how deep below the first, and where it is written."""

    depth: int
    name: str
    file: str
    line: int


class Walk:
    """The functions of the broker entered from one of them on, each where it was entered first."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._open: list[FrameType] = []
        self._steps: dict[CodeType, Step] = {}
        self._left = asyncio.Event()

    @property
    def steps(self) -> list[Step]:
        return list(self._steps.values())

    @property
    def files(self) -> set[str]:
        return {step.file for step in self._steps.values()}

    def __str__(self) -> str:
        lines = [f"{'  ' * step.depth}{step.name}  {step.file}:{step.line}" for step in self.steps]
        return "\n".join([f"{len(self.steps)} functions in {len(self.files)} files", *lines])

    async def end(self) -> None:
        """Wait until the first function was left."""
        await asyncio.wait_for(self._left.wait(), PATIENCE_S)

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call or return; see `sys.setprofile`. Comprehensions belong to the function around them."""
        code = frame.f_code
        if event == "return" and self._open and frame is self._open[-1]:
            self._open.pop()
            if not self._open:
                self._left.set()
            return
        is_ours = code.co_filename.startswith(FLOORS) and not code.co_name.startswith("<")
        if event == "call" and is_ours and (self._open or code.co_qualname == self._entry):
            file = Path(code.co_filename).relative_to(ROOT).as_posix()
            step = Step(len(self._open), code.co_qualname, file, code.co_firstlineno)
            self._steps.setdefault(code, step)
            self._open.append(frame)


@contextmanager
def walk_from(entry: str) -> Iterator[Walk]:
    """Follow this thread from each entry into the function with that qualified name until it is left."""
    walk = Walk(entry)
    before = sys.getprofile()
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(before)
