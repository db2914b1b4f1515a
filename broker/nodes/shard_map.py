"""The map of a cluster: its members, and who owns each shard. One object in the store, changed by If-Match.

Only two may change the owner of a shard: the owner itself, once the shard is closed there, or who has ended
the owner's lease for good (`broker.nodes.leases`). So a member whose lease is valid owns what the map that it
knows says, without a look at the newest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from storage.errors import FormatTooNew, StorageError

MAP_KEY: Final = "map"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Member:
    """A node from its start to its end: another start of the same node is another member."""

    node: str
    address: str
    """Where it takes links of other nodes."""
    since_ms: int
    is_draining: bool = False
    """It is given no shards, and hands over those it has."""
    client_address: str = ""
    """Where clients reach it, if they are to be sent there."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Who owns a shard. Without such a member it is an orphan."""

    owner: str
    since_ms: int
    """Wall time, for who looks at it."""
    reason: str
    to: str = ""
    """The member that the owner is about to hand it to."""

    @property
    def user(self) -> str:
        """The member that will own it."""
        return self.to or self.owner


@dataclass(frozen=True, slots=True)
class ShardMap:
    """What the object says. `version` is one more with each change."""

    version: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    is_balancing: bool = False
    """Members with too many shards hand some over."""

    def encode(self) -> bytes:
        """Return the content of the object."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":")).encode()

    def owned_by(self, member: str) -> list[int]:
        """Return the numbers of a member's shards."""
        return [number for number, shard in enumerate(self.shards) if shard.owner == member]

    def orphans(self) -> list[int]:
        """Return the numbers of shards that no member owns."""
        return [number for number, shard in enumerate(self.shards) if shard.owner not in self.members]

    def load(self, member: str) -> int:
        """Return how many shards a member has, or will have."""
        return sum([shard.user == member for shard in self.shards])

    def fewest(self, members: Iterable[str]) -> str:
        """Return which of `members` has the fewest shards; "" if there are none."""
        return min(members, key=lambda name: (self.load(name), name), default="")

    def joined(self, name: str, member: Member) -> ShardMap:
        """Return the map with a member more, or with another entry of it."""
        return replace(self, members={**self.members, name: member})

    def without(self, name: str) -> ShardMap:
        """Return the map without a member. Its shards are orphans, and nothing is handed over to it."""
        shards = [replace(shard, to="") if shard.to == name else shard for shard in self.shards]
        members = {other: member for other, member in self.members.items() if other != name}
        return replace(self, members=members, shards=tuple(shards))

    def given(self, number: int, owner: str, now_ms: int, reason: str) -> ShardMap:
        """Return the map with another owner of a shard."""
        return self._with(number, Shard(owner, now_ms, reason))

    def marked(self, number: int, to: str) -> ShardMap:
        """Return the map that says to whom a shard will be handed over; "" for to nobody."""
        return (
            self if self.shards[number].to == to else self._with(number, replace(self.shards[number], to=to))
        )

    def created(self, count: int, owner: str, now_ms: int) -> ShardMap:
        """Return the map with `count` more shards."""
        new = [Shard(owner, now_ms, "created")] * count
        return replace(self, shards=(*self.shards, *new)) if new else self

    def heaviest(self, members: Collection[str]) -> str:
        """Return which of `members` has so many shards that another should have one of them; "" for none."""
        most = max(members, key=lambda name: (self.load(name), name), default="")
        return most if most and self.load(most) - self.load(self.fewest(members)) > 1 else ""

    def _with(self, number: int, shard: Shard) -> ShardMap:
        return replace(self, shards=(*self.shards[:number], shard, *self.shards[number + 1 :]))


def decode_map(content: bytes) -> ShardMap:
    """Return the map that an object holds. Raises FormatTooNew, or StorageError if it is none."""
    try:
        found: dict[str, Any] = json.loads(content)
        if found.pop("format") > _FORMAT:
            raise FormatTooNew("the map of the cluster")
        found["members"] = {
            name: Member(**_known(Member, member)) for name, member in found["members"].items()
        }
        found["shards"] = tuple([Shard(**_known(Shard, shard)) for shard in found["shards"]])
        return ShardMap(**_known(ShardMap, found))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"the map of the cluster cannot be read: {error!r}") from None


def _known(kind: type[Member | Shard | ShardMap], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this version knows of; of the same format a later one may tell more."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in told.items() if name in names}
