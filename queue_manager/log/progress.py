"""The progress of one consumer group in one log: a ledger of offsets for each state they can be in."""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.log.claimed import ClaimedBitmap
from queue_manager.log.range_set import RangeSet


class Progress:
    """Where a group is, and what it need not be given.

    `position` is the first offset not looked at yet. `claimed` is there while messages are claimed out of
    order: it has those claimed or passed beyond the position, which then follows it. `gaps` are offsets
    beyond the position that were let go of before the group began there. `released` are those the group has
    let go of; `failed` those whose payload it keeps though the log does not stand for it any more: failed
    messages, and redriven ones below the head.
    """

    __slots__ = ("claimed", "failed", "gaps", "position", "released")

    def __init__(self, position: int) -> None:
        self.position = position
        self.claimed: ClaimedBitmap | None = None
        self.gaps: RangeSet | None = None
        self.released = RangeSet()
        self.failed = RangeSet()

    # moving

    def go_on_at(self, position: int) -> None:
        """Look next at `position`: what lies before it was looked at, or is not to be."""
        if self.claimed is not None:
            self.claimed.move(position)
        self.position = position

    def has_taken(self, offset: int) -> bool:
        """Return whether the message at `offset` was claimed or passed."""
        return offset < self.position or (self.claimed is not None and self.claimed.contains(offset))

    def taken(self) -> RangeSet:
        """Return the offsets that were claimed or passed."""
        taken = RangeSet() if self.claimed is None else self.claimed.ranges()
        taken.add(0, self.position)
        return taken

    def begin_account(self, released: RangeSet) -> None:
        """Keep account of what the group lets go of: until now that is what all let go of."""
        self.released = released.copy()

    # out of order

    def begin_bitmap(self) -> ClaimedBitmap:
        """Claim out of order from now on."""
        if self.claimed is None:
            self.claimed = ClaimedBitmap(self.position)
            if self.gaps is not None:
                self._claim_ranges(self.gaps)
                self.gaps = None
        return self.claimed

    def end_bitmap(self) -> None:
        """Claim in order from now on."""
        self.claimed = None

    def claim(self, offsets: Iterable[int]) -> None:
        """Note offsets that were claimed or passed out of order."""
        assert self.claimed is not None
        self.claimed.add(offsets)
        self.position = self.claimed.position

    def claim_range(self, start: int, end: int) -> None:
        """Claim as `claim`, `[start, end)`."""
        assert self.claimed is not None
        self.claimed.add_range(start, end)
        self.position = self.claimed.position

    def restore_claimed(self, chunk: int, bitmap: bytes) -> None:
        """Take over a part of the bitmap that was written, after a start."""
        claimed = self.begin_bitmap()
        claimed.restore(chunk, bitmap)
        self.position = claimed.position

    # what there is no more

    def pass_ranges(self, gone: RangeSet) -> bool:
        """Pass these offsets, which are not kept, though memory or log may still have them.

        Gives whether the position may have moved.
        """
        if not gone.ends or gone.ends[-1] <= self.position:
            return False
        if self.claimed is not None:
            self._claim_ranges(gone)
            return True
        gaps = gone.copy()
        gaps.drop_before(self.position)
        self.gaps = gaps
        return False

    def _claim_ranges(self, ranges: RangeSet) -> None:
        for start, end in ranges.pairs():
            self.claim_range(start, end)

    def take_gaps(self) -> RangeSet | None:
        """Give the gaps, and forget them."""
        gaps, self.gaps = self.gaps, None
        return gaps

    def put_gaps(self, gaps: RangeSet) -> None:
        """Keep gaps for later, if some of them lie beyond the position."""
        if self.position < gaps.ends[-1]:
            self.gaps = gaps

    # what it let go of, what it keeps

    def keep_failed(self, offset: int) -> None:
        """Note that the group keeps the payload at `offset` by itself."""
        self.failed.add(offset, offset + 1)

    def drop_failed(self, offset: int) -> None:
        """Note that the group does not keep the payload at `offset` by itself any more."""
        self.failed.discard(offset, offset + 1)
