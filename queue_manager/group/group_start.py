"""Where a new group begins: `earliest`, `latest`, an offset, or a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from queue_manager.errors import InvalidArgument
from queue_manager.log.queue_log import QueueLog
from queue_manager.options import TIME_MS_MAX

OFFSET_MAX: Final = (1 << 63) - 1
_TIME: Final = "timestamp="
_OFFSET: Final = "offset="


@dataclass(frozen=True, slots=True)
class GroupStart:
    """An offset (-1: behind the newest message), or the first message published at `time_ms` or later."""

    offset: int = 0
    time_ms: int | None = None

    @property
    def is_place(self) -> bool:
        """Whether it is a certain offset, which a queue with priorities has several of."""
        return self.time_ms is None and self.offset > 0

    def offset_in(self, log: QueueLog) -> int:
        """Return the offset in this log, if it is no time; groups may keep what lies before its head."""
        end = log.next_offset
        return end if self.offset < 0 else min(self.offset, end)


EARLIEST: Final = GroupStart()
LATEST: Final = GroupStart(offset=-1)


def read_start(name: str, value: object) -> GroupStart:
    """Read a start as users write it: `earliest`, `latest`, an offset (also as `offset=N`), `timestamp=<ms>`,
    or a datetime.

    Raises InvalidArgument saying what `name` may be.
    """
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    if isinstance(value, datetime):
        return GroupStart(time_ms=max(0, int(value.timestamp() * 1000)))
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= OFFSET_MAX:
        return GroupStart(offset=value)
    if isinstance(value, str):
        number = value.removeprefix(_TIME).removeprefix(_OFFSET)
        if number.isascii() and number.isdigit() and len(number) <= 19:
            if not value.startswith(_TIME):
                if int(number) <= OFFSET_MAX:
                    return GroupStart(offset=int(number))
            elif int(number) <= TIME_MS_MAX:
                return GroupStart(time_ms=int(number))
    raise InvalidArgument(
        f"{name} is 'earliest', 'latest', an offset or 'timestamp=<ms since 1970>', not {value!r}"
    )
