"""Who had which shard when, and until when its lease lasted at most: by what the nodes wrote to the store."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from broker.nodes.leases import lease_key
from broker.nodes.shard_map import MAP_KEY, decode_map
from tests.crash.queue_clients import Confirm, Reading
from tests.storage_faults.store_way import Write


class Tenure(NamedTuple):
    """A member has a shard, by the map, until one that says something else was asked for."""

    member: str
    from_s: float
    until_s: float


class Story:
    """What the writes tell. A member's lease lasts, at most, from when the write that renewed it was asked
    for: its own clock counts from before that.
    """

    def __init__(self, writes: Iterable[Write], lease_s: float) -> None:
        self._lease_s = lease_s
        self._renewed_s: dict[str, list[float]] = {}
        self._tenures: dict[int, list[Tenure]] = {}
        maps, possible = {}, []
        for write in sorted(writes, key=lambda write: write.begun_s):
            if write.may_be_done and write.path.endswith(f"/{MAP_KEY}"):
                found = decode_map(write.content)
                if write.is_done:
                    maps[found.version] = (found, write.begun_s)
                else:
                    possible.append((found, write.begun_s))
            elif write.may_be_done and b'"beat"' in write.content:
                member = write.path.rpartition(lease_key(""))[2]
                self._renewed_s.setdefault(member, []).append(write.begun_s)
        for found, begun_s in [*maps.values(), *(each for each in possible if each[0].version not in maps)]:
            later = [version for version in maps if version > found.version]
            ended_s = maps[min(later)][1] if later else math.inf
            for number, shard in enumerate(found.shards):
                self._tenures.setdefault(number, []).append(Tenure(shard.owner, begun_s, ended_s))
        self._tenures = {number: _joined(tenures) for number, tenures in self._tenures.items()}

    def tenures(self, shard: int, from_s: float, until_s: float) -> list[Tenure]:
        """Those of a shard at any time between these."""
        return [
            tenure
            for tenure in self._tenures.get(shard, ())
            if tenure.from_s <= until_s and tenure.until_s >= from_s
        ]

    def ended_s(self, tenure: Tenure, at_s: float) -> float:
        """Until when the owner may have acted, as far as had been written then."""
        renewed = self._renewed_s.get(tenure.member, [])
        count = bisect_right(renewed, at_s)
        return min(tenure.until_s, renewed[count - 1] + self._lease_s if count else 0.0)

    def late_s(self, shard: int, reading: Reading) -> tuple[float, float]:
        """How late the latest delivery of a consumer was behind the end of its owner's lease; and when."""
        owners = self.tenures(shard, reading.asked_s, reading.made_s)
        late = [
            (min([at_s - self.ended_s(owner, at_s) for owner in owners], default=math.inf), at_s)
            for at_s in reading.came_s
        ]
        return max(late, default=(-math.inf, 0.0))

    def late_confirm_s(self, shard: int, confirm: Confirm) -> float:
        """How long nobody had confirmed may have when this came, at the least."""
        owners = self.tenures(shard, confirm.asked_s, confirm.came_s)
        return confirm.asked_s - max(
            [self.ended_s(owner, confirm.came_s) for owner in owners], default=-math.inf
        )


def _joined(tenures: Iterable[Tenure]) -> list[Tenure]:
    """Join those of each member that follow each other: several versions of the map said the same."""
    joined: list[Tenure] = []
    for tenure in sorted(tenures):
        before = joined[-1] if joined else None
        if before is not None and before.member == tenure.member and tenure.from_s <= before.until_s:
            joined[-1] = before._replace(until_s=max(before.until_s, tenure.until_s))
        else:
            joined.append(tenure)
    return joined
