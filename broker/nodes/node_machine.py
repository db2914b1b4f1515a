"""What a node does about leases and the map of shards: decided here, done by `broker.nodes.node_runner`.

The machine is told what happened and when, by one monotonic clock, and gives what is to be done. Requests to
the store have numbers; an answer to one that is not waited for any more is not heard. A put that was refused,
or that did not answer, may have been done: what is there is read before anything else is concluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from broker.nodes.leases import OwnLease, SeenLease, ended_by, lease_key
from broker.nodes.shard_map import MAP_KEY, Member, ShardMap, decode_map
from config import limits
from storage.errors import StorageError
from storage.object_records import Stored, Tag


@dataclass(frozen=True, slots=True)
class Read:
    """Read an object: answered by `Found` or `Unanswered`."""

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Replace what has the tag `base`, or make what is not there: `Written`, `Refused` or `Unanswered`."""

    number: int
    key: str
    content: bytes
    base: Tag | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object; there is no answer."""

    key: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open a shard, whoever had it: `Opened`; or `Closed` when that failed, as whenever it closes."""

    shard: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Close a shard: `Closed`. `kill`: do not wait for it."""

    shard: int
    kill: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The member is none any more, and has no shard open. `is_wanted`: it was to leave."""

    reason: str
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A `Read` gave this; None: there is no such object."""

    number: int
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class Written:
    """A `Put` was done."""

    number: int
    tag: Tag


@dataclass(frozen=True, slots=True)
class Refused:
    """A `Put` found something else there."""

    number: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing is known of a request; if it was a put it may still be done."""

    number: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A shard is open, and serves."""

    shard: int


@dataclass(frozen=True, slots=True)
class Turned:
    """The commit loop of a shard has turned: what it began to write at `begun_ms` is durable."""

    shard: int
    begun_ms: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A shard is closed here, its process gone."""

    shard: int


class Wish(Enum):
    """What may be wanted of this node."""

    LEAVE = auto()
    BALANCE = auto()
    """Have all nodes hand over what they have too much."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A node, this or another, is to hand over its shards and get none; or to take some again."""

    node: str
    is_wanted: bool


_LEFT: Final = "left"

Event = Found | Written | Refused | Unanswered | Opened | Turned | Closed | Wish | Drain
Action = Read | Put | Delete | Open | Stop | Ended


class _State(Enum):
    OPENING = auto()
    SERVING = auto()
    STOPPING = auto()
    CLOSED = auto()
    """To be handed over, or opened again."""


@dataclass(slots=True)
class _Local:
    """A shard that this node owns."""

    state: _State
    turned_ms: int
    failures: int = 0
    marked_ms: int | None = None


@dataclass(slots=True)
class NodeMachine:
    """A member of a cluster: `name` is its own, and no other's, ever; `node` that of the node, which may be
    many members one after the other. It takes links at `address`, and makes `shards` shards if there are none
    yet. `wall_ms`: what to add to its clock to get the time.
    """

    name: str
    node: str
    address: str
    shards: int
    lease_ms: int
    wall_ms: int = 0
    was_draining: bool = False
    """Whether the member before it, of this node, was given no shards."""
    client_address: str = ""
    dead: str = ""
    """A member of this node before it, all of whose processes are known to have ended: nobody waits until its
    lease is over.
    """
    renewable_leases: int = limits.LEASES_WITHIN_GARBAGE_AGE
    """A shard that was silent for so many leases is not believed any more: the fence of who has opened its
    database since may have been collected as garbage, so that writes succeed that nobody will see.
    """
    lease: OwnLease = field(init=False)
    map: ShardMap | None = None
    """What is known of the map; None: nothing yet."""
    reason: str = ""
    """Why it is no member any more."""
    is_ended: bool = False
    _map_tag: Tag | None = None
    _is_map_known: bool = False
    _map_look_ms: int = 0
    _map_next: ShardMap | None = None
    _was_member: bool = False
    _is_lease_known: bool = True
    _lease_look_ms: int = 0
    _seen: dict[str, SeenLease] = field(default_factory=dict)
    _seen_at: dict[str, SeenLease] = field(default_factory=dict)
    """By their keys."""
    _local: dict[int, _Local] = field(default_factory=dict)
    _asked: dict[str, Read | Put] = field(default_factory=dict)
    _last_number: int = 0
    _answered_ms: int | None = None
    _answering_since_ms: int = 0
    _is_leaving: bool = False
    _may_have_left: bool = False
    """Whether a map without this member was put: with that, shards may be open at another node, until another
    map is seen, which that put cannot replace any more.
    """
    _wants_balance: bool = False
    _wishes: dict[str, bool] = field(default_factory=dict)
    """Of nodes, whether they are to hand over their shards; until the map says so."""
    _left_records: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lease = OwnLease(self.lease_ms)

    def is_valid(self, now_ms: int) -> bool:
        """Return whether the node may deliver and confirm."""
        return now_ms < self.lease.end_ms

    def serving(self) -> list[int]:
        """Return the shards that are open here."""
        return [number for number, local in self._local.items() if local.state is _State.SERVING]

    @property
    def is_draining(self) -> bool:
        """Whether it is given no shards, and hands over those it has."""
        own = None if self.map is None else self.map.members.get(self.name)
        return self._is_leaving or (self.was_draining if own is None else own.is_draining)

    def trouble(self, now_ms: int) -> str:
        """Return why the node may not deliver and confirm now; "" if it may."""
        if self.reason:
            return self.reason
        if self.is_valid(now_ms):
            return ""
        if not self.lease.end_ms:
            return "the node has not joined the cluster yet: the store does not answer"
        silent_s = (now_ms - self.lease.end_ms) / 1000
        stuck = [number for number, local in self._local.items() if not self._has_turned(local, now_ms)]
        is_answering = self._answered_ms is not None and now_ms - self._answered_ms <= self.lease_ms // 2
        why = f"shards {stuck} do not get on" if stuck and is_answering else "the store does not answer"
        return f"the lease of the node was not renewed and ended {silent_s:.1f} s ago: {why}"

    def step(self, now_ms: int, event: Event | None = None) -> list[Action]:
        """Take what happened, None for nothing but time, and return what is to be done."""
        if event is not None:
            self._take(now_ms, event)
        if self.is_ended or isinstance(event, Turned):
            return []  # what a turn allows is done when it is due
        return list(self._decided(now_ms))

    def due_ms(self, now_ms: int) -> int:
        """Return when `step` is to be called though nothing happens."""
        soon_ms = now_ms + self.lease_ms // limits.NODE_PAUSES_PER_LEASE
        times = [self._map_look_ms, self.lease.due_ms()]
        if not self._is_lease_known:
            times.append(self._lease_look_ms)
        for seen in self._seen.values():
            if not seen.is_ended:
                times += (seen.look_ms, seen.over_ms())
        if any(local.marked_ms is not None for local in self._local.values()):
            times.append(soon_ms)
        return max(soon_ms, min(times))

    # what happened

    def _take(self, now_ms: int, event: Event) -> None:
        match event:
            case Found() | Written() | Refused() | Unanswered():
                request = next(
                    (asked for asked in self._asked.values() if asked.number == event.number), None
                )
                if request is not None:
                    del self._asked[request.key]
                    self._take_answer(now_ms, request, event)
            case Opened(shard):
                if (local := self._local.get(shard)) and local.state is _State.OPENING:
                    local.state, local.turned_ms, local.failures = _State.SERVING, now_ms, 0
            case Turned(shard, begun_ms):
                if (local := self._local.get(shard)) and not self._is_beyond_belief(local, now_ms):
                    local.turned_ms = max(local.turned_ms, begun_ms)
            case Closed(shard):
                if local := self._local.get(shard):
                    local.failures += local.state is _State.OPENING
                    local.state = _State.CLOSED
            case Wish():
                self._is_leaving |= event is Wish.LEAVE
                self._wants_balance |= event is Wish.BALANCE
            case Drain(node, is_wanted):
                self._wishes[node] = is_wanted

    def _take_answer(
        self, now_ms: int, request: Read | Put, event: Found | Written | Refused | Unanswered
    ) -> None:
        if not isinstance(event, Unanswered):
            if self._answered_ms is None or now_ms - self._answered_ms > self.lease_ms // 2:
                self._answering_since_ms = now_ms
            self._answered_ms = now_ms
        again_ms = now_ms
        if isinstance(event, Unanswered):
            again_ms += self.lease_ms // limits.NODE_PAUSES_PER_LEASE
        if request.key == MAP_KEY:
            self._take_map(now_ms, event, again_ms)
        elif request.key == lease_key(self.name):
            self._take_lease(event, again_ms)
        elif (seen := self._seen_at.get(request.key)) is not None:
            if isinstance(event, Found):
                seen.found(event.stored, now_ms)
            elif isinstance(event, Written):
                seen.is_ended = True
            else:
                seen.look_ms = again_ms

    def _take_map(self, now_ms: int, event: Found | Written | Refused | Unanswered, again_ms: int) -> None:
        if isinstance(event, Written):
            assert self._map_next is not None
            gone = [name for name in self._seen if name not in self._map_next.members]
            self._adopt(now_ms, self._map_next, event.tag)
            self._left_records += gone
        elif isinstance(event, Found) and event.stored is not None:
            if event.stored.tag == self._map_tag:
                self._is_map_known = True
                return
            try:
                self._adopt(now_ms, decode_map(event.stored.content), event.stored.tag)
            except StorageError as error:
                self._lose(error.reason)
        elif isinstance(event, Found):
            self._is_map_known = True
            if self._was_member:
                self._lose("the map of the cluster is gone")
        else:
            self._is_map_known, self._map_look_ms = False, again_ms

    def _take_lease(self, event: Found | Written | Refused | Unanswered, again_ms: int) -> None:
        if isinstance(event, Written):
            self.lease.written(event.tag)
        elif isinstance(event, Found):
            self.lease.found(event.stored)
            self._is_lease_known = True
            if self.lease.is_lost:
                self._lose("another node ended the lease of this one")
        else:
            self._is_lease_known, self._lease_look_ms = False, again_ms

    def _adopt(self, now_ms: int, found: ShardMap, tag: Tag) -> None:
        """Go by a newer map."""
        if self.map is not None and found.version <= self.map.version:
            self._lose(f"the map of the cluster is version {found.version}, and was {self.map.version}")
            return
        self.map, self._map_tag, self._is_map_known, self._may_have_left = found, tag, True, False
        self._seen = {
            name: self._seen.get(name) or SeenLease(self.lease_ms)
            for name in found.members
            if name != self.name
        }
        self._seen_at = {lease_key(name): seen for name, seen in self._seen.items()}
        if self.name in found.members:
            self._was_member = True
        elif self._was_member:
            self._lose(
                _LEFT if self._is_leaving and self._is_all_closed() else "another node ended this member"
            )
        self._wishes = {
            member.node: self._wishes[member.node]
            for member in found.members.values()
            if self._wishes.get(member.node, member.is_draining) != member.is_draining
        }
        for number, local in list(self._local.items()):
            shard = found.shards[number]
            if shard.owner != self.name and local.state is _State.CLOSED:
                del self._local[number]
            elif not shard.to:
                local.marked_ms = None
            elif local.marked_ms is None:
                local.marked_ms = now_ms
        self._map_look_ms = min(self._map_look_ms, now_ms + self._look_interval_ms(now_ms))

    def _lose(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.lease.end_ms = 0

    # what to do

    def _decided(self, now_ms: int) -> Iterator[Action]:
        if self._is_leaving and not self._was_member:
            self._lose(_LEFT)
        if self.reason:
            yield from self._ending()
            return
        yield from self._renewing(now_ms)
        yield from self._looking(now_ms)
        yield from self._killing_stuck(now_ms)
        if not self.is_valid(now_ms):
            return  # who is cut off changes nothing
        yield from self._ending_others(now_ms)
        yield from self._changing_map(now_ms)
        yield from self._moving_shards(now_ms)

    def _ending(self) -> Iterator[Action]:
        for number, local in list(self._local.items()):
            if local.state is _State.CLOSED:
                del self._local[number]
            elif local.state is not _State.STOPPING:
                local.state = _State.STOPPING
                yield Stop(number, kill=True)
        if not self._local:
            self.is_ended = True
            if self.map is None or self.name not in self.map.members:
                yield Delete(lease_key(self.name))
            yield Ended(self.reason, self._is_leaving)

    def _renewing(self, now_ms: int) -> Iterator[Action]:
        key = lease_key(self.name)
        if key in self._asked:
            return
        if not self._is_lease_known:
            if now_ms >= self._lease_look_ms:
                yield self._read(key)
        elif now_ms >= self.lease.due_ms() and self._does_work(now_ms):
            yield self._put(key, *self.lease.next_write(now_ms))

    def _looking(self, now_ms: int) -> Iterator[Action]:
        if MAP_KEY not in self._asked and now_ms >= self._map_look_ms:
            self._map_look_ms = now_ms + self._look_interval_ms(now_ms)
            yield self._read(MAP_KEY)
        for key, seen in self._seen_at.items():
            if key not in self._asked and not seen.is_ended and now_ms >= seen.look_ms:
                seen.look_ms = now_ms + seen.look_interval_ms(now_ms)
                yield self._read(key)

    def _ending_others(self, now_ms: int) -> Iterator[Action]:
        """End the leases that are over, and that of who is known to be dead."""
        for key, seen in self._seen_at.items():
            is_over = seen.is_over(now_ms) or (key == lease_key(self.dead) and seen.is_seen)
            if key not in self._asked and not seen.is_ended and is_over:
                yield self._put(key, ended_by(self.name), seen.tag)

    def _changing_map(self, now_ms: int) -> Iterator[Action]:
        while self._left_records:
            yield Delete(lease_key(self._left_records.pop()))
        if MAP_KEY in self._asked or not self._is_map_known:
            return
        before = self.map or ShardMap()
        after = self._planned(before, now_ms)
        if after != before:
            self._map_next = replace(after, version=before.version + 1)
            self._may_have_left |= self.name not in after.members
            yield self._put(MAP_KEY, self._map_next.encode(), self._map_tag)

    def _killing_stuck(self, now_ms: int) -> Iterator[Action]:
        for number, local in self._local.items():
            if local.state is not _State.SERVING:
                continue
            if not self._gets_on(local) or self._is_beyond_belief(local, now_ms):
                local.state = _State.STOPPING
                yield Stop(number, kill=True)

    def _moving_shards(self, now_ms: int) -> Iterator[Action]:
        if self.map is None:
            return
        for number in self.map.owned_by(self.name):
            local = self._local.get(number)
            is_given = bool(self.map.shards[number].to) or self._may_have_left
            is_kept = not is_given and not self._is_alone_leaving(now_ms)
            if local is None:
                local = self._local[number] = _Local(_State.CLOSED, now_ms)
            if local.state is _State.CLOSED and is_kept:
                local.state = _State.OPENING
                yield Open(number)
        closing = self._next_to_close(now_ms)
        if closing is not None:
            self._local[closing].state = _State.STOPPING
            yield Stop(closing, kill=False)

    def _next_to_close(self, now_ms: int) -> int | None:
        """Return which shard is to be closed, so that it can be handed over: one after the other."""
        leaving = [
            (number, local)
            for number, local in sorted(self._local.items())
            if local.marked_ms is not None or self._is_alone_leaving(now_ms)
        ]
        if any(local.state is _State.STOPPING for _, local in leaving):
            return None
        for number, local in leaving:
            if local.marked_ms is not None and local.state is _State.CLOSED:
                return None  # it is to be handed over first
            # whoever will have it should have seen that
            is_seen = (
                local.marked_ms is None or now_ms >= local.marked_ms + self.lease_ms // limits.LEASE_LOOKS
            )
            if local.state is not _State.CLOSED and is_seen:
                return number
        return None

    # the next map

    def _planned(self, found: ShardMap, now_ms: int) -> ShardMap:
        """Return the map as it should be, by what is known here."""
        wall_ms = now_ms + self.wall_ms
        for name, seen in self._seen.items():
            if seen.is_ended:
                found = found.without(name)
        if self.name not in found.members:
            member = Member(self.node, self.address, wall_ms, self.was_draining, self.client_address)
            found = found.joined(self.name, member)
        found = self._with_wishes(found, now_ms)
        takers = self._takers(found, now_ms)
        for number, local in self._local.items():
            to = found.shards[number].to
            if local.state is _State.CLOSED and local.marked_ms is not None and to:
                found = found.given(number, to, wall_ms, "handed over")
        for number in found.orphans():
            if takers:
                found = found.given(number, found.fewest(takers), wall_ms, "its owner is gone")
        if not found.shards:
            found = found.created(self.shards, self.name, wall_ms)
        is_handed_over = not found.owned_by(self.name) or self._is_alone_leaving(now_ms)
        if self._is_leaving and self._is_all_closed() and is_handed_over:
            found = found.without(self.name)
        return found

    def _with_wishes(self, found: ShardMap, now_ms: int) -> ShardMap:
        """Return the map with what is to be handed over marked."""
        for name, member in found.members.items():
            is_wanted = self._wishes.get(member.node, member.is_draining)
            if name == self.name and self._is_leaving:
                is_wanted = True
            if member.is_draining != is_wanted:
                found = found.joined(name, replace(member, is_draining=is_wanted))
        is_draining = found.members[self.name].is_draining
        has_its_part = is_draining or found.load(self.name) or self.dead in found.members
        if self._wants_balance or not has_its_part:  # who joins gets one, or that of its dead member
            self._wants_balance = False
            found = replace(found, is_balancing=True)
        takers = self._takers(found, now_ms)
        others = [name for name in takers if name != self.name and not found.members[name].is_draining]
        for number in found.owned_by(self.name):
            local, to = self._local.get(number), found.shards[number].to
            is_failing = local is not None and local.failures >= limits.NODE_OPEN_FAILURES_MAX
            is_wanted = is_draining or is_failing or (bool(to) and found.is_balancing)
            if (to in others and is_wanted) or not (to or is_wanted):
                continue
            found = found.marked(number, "")
            if is_draining or is_failing:
                found = found.marked(number, found.fewest(others))
        if found.is_balancing:
            heaviest = found.heaviest(takers)
            is_moving = any(shard.to for shard in found.shards)
            if not heaviest and not is_moving:
                found = replace(found, is_balancing=False)
            elif heaviest == self.name and not is_moving:
                found = found.marked(max(found.owned_by(self.name)), found.fewest(others))
        return found

    def _takers(self, found: ShardMap, now_ms: int) -> list[str]:
        """Return the members alive that shards may be given to: those that keep theirs, else any."""
        alive = [name for name in found.members if self._is_alive(name, now_ms)]
        return [name for name in alive if not found.members[name].is_draining] or alive

    def _is_alive(self, name: str, now_ms: int) -> bool:
        seen = self._seen.get(name)
        return seen is None or not (seen.is_ended or seen.is_suspect(now_ms))

    def _is_alone_leaving(self, now_ms: int) -> bool:
        """Return whether the node leaves, and there is no other that its shards could be handed to."""
        if not self._is_leaving or self.map is None:
            return False
        return not any(
            name != self.name and not member.is_draining and self._is_alive(name, now_ms)
            for name, member in self.map.members.items()
        )

    def _is_all_closed(self) -> bool:
        return all(local.state is _State.CLOSED for local in self._local.values())

    # work

    def _does_work(self, now_ms: int) -> bool:
        """Return whether all shards that serve get on: the lease says so."""
        return all(self._has_turned(local, now_ms) for local in self._local.values())

    def _has_turned(self, local: _Local, now_ms: int) -> bool:
        return local.state is not _State.SERVING or now_ms - local.turned_ms <= self.lease_ms // 2

    def _gets_on(self, local: _Local) -> bool:
        """Return whether a shard may still turn: the store has not answered for long without that."""
        since_ms = max(local.turned_ms, self._answering_since_ms)
        return self._answered_ms is None or self._answered_ms - since_ms <= self.lease_ms * 3 // 4

    def _is_beyond_belief(self, local: _Local, now_ms: int) -> bool:
        return now_ms - local.turned_ms >= self.renewable_leases * self.lease_ms

    # requests

    def _look_interval_ms(self, now_ms: int) -> int:
        """Return how soon the map is looked at again: in haste while another is expected to change it."""
        if self.map is not None and any(shard.to == self.name for shard in self.map.shards):
            return self.lease_ms // limits.NODE_HANDOVER_LOOKS  # nobody has the shard in between
        is_hasty = self.map is None or self.name not in self.map.members or bool(self.map.orphans())
        is_hasty |= any(seen.is_ended or seen.is_suspect(now_ms) for seen in self._seen.values())
        return self.lease_ms // (limits.NODE_HASTY_LOOKS if is_hasty else limits.LEASE_LOOKS)

    def _read(self, key: str) -> Read:
        self._last_number += 1
        request = self._asked[key] = Read(self._last_number, key)
        return request

    def _put(self, key: str, content: bytes, base: Tag | None) -> Put:
        self._last_number += 1
        request = self._asked[key] = Put(self._last_number, key, content, base)
        return request
