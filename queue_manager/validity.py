"""When what is kept is not true any more."""

from __future__ import annotations


class Version:
    """One state of something that others derive decisions from, and keep.

    The rule for every cache of such decisions: keep the version beside what was derived from it, ask
    `is_current` before each use, and derive anew if it is not. The owner of the state expires its version
    with each change, and has a new one from then on. What is derived from several states keeps several
    versions.
    """

    __slots__ = ("is_current",)

    def __init__(self) -> None:
        self.is_current = True

    def expire(self) -> None:
        """Note that the state is another one now."""
        self.is_current = False
