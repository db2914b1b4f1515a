"""The part of a large journal that a start needs while that is still being handed over to the database.

Nearly all of it are payloads, which nobody reads before there are consumers. The other rows lie in memory
meanwhile, and are seen by reads as if the database had them.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Final

from storage.journal.frames import decode_early, opened_body
from storage.journal.journal_survey import Survey
from storage.journal.waiting_commits import ABSENT, Rows
from storage.records import payload
from storage.seal import Seal

_NOTHING: Final = (b"", b"")

Scan = Callable[[bytes, bytes | None, int], Awaitable[list[tuple[bytes, bytes]]]]


class Early:
    """All rows of a replay as its last commit leaves them, but for payloads.

    `payloads`: the lowest and the highest key of these, both empty if there are none.
    """

    def __init__(self, rows: Rows, payloads: tuple[bytes, bytes]) -> None:
        self._rows = rows
        self._keys = sorted(rows)
        self._payloads = payloads

    def covers(self, start: bytes, end: bytes | None) -> bool:
        """Return whether no payload between these keys is on its way to the database."""
        lowest, highest = self._payloads
        return not highest or start > highest or (end is not None and end <= lowest)

    def find(self, key: bytes) -> object:
        """Return the value of a key, None if it is deleted; ABSENT if that is up to the database."""
        return self._rows.get(key, ABSENT)

    async def scan(
        self, scan: Scan, start: bytes, end: bytes | None, limit: int, *, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows of a range that is covered; `scan` reads the database in that
        direction.
        """
        rows = self._rows
        begin = bisect_left(self._keys, start)
        stop = len(self._keys) if end is None else bisect_left(self._keys, end)
        keys: list[bytes] = []
        put_count = 0
        for index in range(stop - 1, begin - 1, -1) if reverse else range(begin, stop):
            if put_count == limit:
                break  # what is beyond is not in the answer, whatever the database has
            keys.append(self._keys[index])
            put_count += rows[keys[-1]] is not None
        if keys and put_count == limit and reverse:
            start = keys[-1]
        elif keys and put_count == limit:
            end = keys[-1] + b"\0"
        found = dict(await scan(start, end, limit + len(keys) - put_count))
        for key in keys:
            value = rows[key]
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return sorted(found.items(), reverse=reverse)[:limit]


def read_early(survey: Survey, seal: Seal | None = None) -> Early:
    """Read what is to be replayed. Raises OSError, and CorruptRecord for what `seal` does not open."""
    rows: Rows = {}
    lowest, highest = _NOTHING
    for path, found in survey.to_replay:
        data = path.read_bytes()
        for frame in found:
            body = opened_body(data, frame, seal)
            others, keys = decode_early(body, frame.puts, frame.deletes, payload.prefix())
            rows.update(others)
            if keys:
                lowest = min(keys[0], lowest or keys[0])
                highest = max(keys[1], highest)
    return Early(rows, (lowest, highest))
