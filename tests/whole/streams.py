"""What streams do: one log of messages by offset, and readers that follow it (docs/semantics/streams.md).

Messages whose place is certain have their offset from the publish on. The others wait in `pending` until some
reader is given them; from then on every reader must be given the same there, over all crashes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.whole.queues import EARLY_S, HELD, Item, Message, Mismatch, Queue

CHUNK_PART = 16  # retention deletes whole chunks, each this part of the limit, at least a message


@dataclass(eq=False)
class Pending:
    """A message that was or may have been taken. `loose`: its place is not known; `died`: it is a dead
    letter, which a crash may undo; `purged`: it was there, or on its way, when the stream was purged; `at`:
    when the oracle was told of it.
    """

    message: Message
    required: bool
    loose: bool
    died: bool = False
    purged: bool = False
    at: float = field(default_factory=time.time)

    def comes_behind(self, other: Pending) -> bool:
        """Whether another one surely came before it: not where its own place is not known, since it may have
        come a little before its time as it is known here.
        """
        is_sure = other.required and not other.loose
        return is_sure and not (self.loose and self.at - EARLY_S <= other.at)


@dataclass(eq=False)
class StreamGroup:
    """The readers that share a position. A reader without a group has one for itself, with no `name`.

    `low`, `high`: where the next new message may be. `returned`: offsets that must come again; `optional`:
    those that may.
    """

    name: str
    low: int = 0
    high: int = 0
    readers: list[Reader] = field(default_factory=list)
    returned: set[int] = field(default_factory=set)
    optional: set[int] = field(default_factory=set)
    held: dict[int, Reader] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)

    def move(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.returned.clear()
        self.optional.clear()
        self.held.clear()

    def leave(self, reader: Reader, *, closed: bool) -> None:
        """A reader goes. What it holds stays with its channel, until that goes, too (`closed`)."""
        if reader in self.readers:
            self.readers.remove(reader)
        if closed:
            for offset in [offset for offset, holder in self.held.items() if holder is reader]:
                del self.held[offset]
                self.returned.add(offset)

    def take_back(self, offset: int, reader: Reader) -> None:
        """What a client of a worker that ended before had not settled is given to another one."""
        holder = self.held.get(offset)
        if holder is not None and holder.client != reader.client:
            del self.held[offset]
            self.optional.add(offset)

    def rewind(self, lowest: int) -> None:
        """It goes on at its committed offset: what is settled from there on may come again."""
        self.optional |= set(range(lowest, self.low)) - self.returned - set(self.held)


@dataclass(eq=False)
class Reader:
    """A consumer of a stream. `credit`: how many more it may be given now."""

    client: str
    tag: str
    stream: Stream
    group: StreamGroup
    credit: Callable[[], float]
    no_ack: bool
    last: int = -1


@dataclass(eq=False)
class Read(Item):
    """A delivery that waits for its settlement, beside those of queues."""

    reader: Reader | None = None
    offset: int = 0

    def settled_elsewhere(self, how: str) -> bool:
        """Nothing of it is an affair of queues. `how`: `ack`, `reject`, `requeue`, `recover` or `gone`."""
        assert self.reader is not None
        group = self.reader.group
        self.state = "done"
        if group.held.get(self.offset) is self.reader:
            del group.held[self.offset]
            again = how in ("requeue", "recover", "gone") if group.name else how == "recover"
            if again and (group.name or self.reader in group.readers):
                is_kept = self.offset >= self.reader.stream.first()[1]
                (group.returned if is_kept else group.optional).add(self.offset)
        elif group.name and how in ("requeue", "recover", "gone"):  # of before the group was moved
            group.optional.add(self.offset)
        return True


@dataclass(eq=False)
class Stream(Queue):
    """A stream: `log` has the bodies by offset, `first` is the oldest one that may be there.

    `holes`: offsets before the end of the log whose message was not seen; another reader may have it.
    """

    log: list[str] = field(default_factory=list)
    purged: int = 0
    deleted: int = 0  # everything before this offset was, when the last step ended
    holes: set[int] = field(default_factory=set)
    pending: list[Pending] = field(default_factory=list)
    members: dict[str, StreamGroup] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)

    def __post_init__(self) -> None:
        """It has none of the groups that queues have."""

    # ---- what every queue is asked

    def takes_whole(
        self, message: Message, *, required: bool, loose: bool, died: bool, early: bool = False
    ) -> bool:
        if self.pending or loose or early or not required:
            self.pending.append(Pending(message, required, loose, died))
        else:
            self.log.append(message.body)
        return True

    def verdict(self, now: float, *, burst: bool = False) -> str:
        return "refuse" if self.no_publish else "take"

    def served(self) -> bool:
        return bool(self.readers)

    def consumer_count(self) -> int:
        return len(self.readers)

    def depth(self) -> tuple[int, int]:
        low, high = self.first()
        return len(self.log) - high, len(self.log) - low + len(self.pending)

    # ---- the log

    def first(self) -> tuple[int, int]:
        """Where the oldest message that is kept may be."""
        limit = self.settings.max_length
        if limit is None:
            return self.purged, self.purged
        end = len(self.log)
        chunk = max(limit // CHUNK_PART, 1)
        low = max(self.purged, end - limit - chunk)
        high = max(self.purged, end + len(self.pending) - limit + chunk)
        return low, min(high, end)

    def emptied(self) -> None:
        self.purged = len(self.log)
        for pending in self.pending:
            pending.required, pending.purged = False, True

    def place(self, wanted: str | int) -> tuple[int, int]:
        """Where a reader begins that asks for this; `""`: nothing."""
        low, high = self.first()
        end = len(self.log)
        if wanted == "next":  # a dead letter may have come since the end was looked at
            return end, end + sum(pending.loose and pending.died for pending in self.pending)
        if wanted == "last":
            return (max(end - 1, low), max(end - 1, high)) if end > low else (end, end)
        if isinstance(wanted, int):
            return min(max(wanted, low), end), min(max(wanted, high), end)
        return low, high

    def see(self, offset: int, body: str) -> None:
        """A reader was given this. Raises Mismatch."""
        if offset in self.holes:
            self._found(offset, body)
            return
        if offset < len(self.log):
            if self.log[offset] != body:
                raise Mismatch(f"offset {offset} of {self.name} is {body!r}, it was {self.log[offset]!r}")
            return
        missing = offset - len(self.log)
        purged = [pending for pending in self.pending if pending.purged and pending.message.body != body]
        limited = self.settings.max_length is not None
        is_shared = any(len(group.readers) > 1 for group in self.members.values())
        place = next((n for n, pending in enumerate(self.pending) if pending.message.body == body), 0)
        ahead = sum(pending.required and not pending.purged for pending in self.pending[:place])
        if is_shared and not limited and 0 < missing <= ahead:
            self.holes |= set(range(len(self.log), offset))  # another client is about to be given them
            self.log += [""] * missing
        elif 0 < missing <= len(purged) and not limited:
            self.log += [""] * missing  # which of them these were is not known
            self.purged = offset
            for group in [*self.members.values(), *[reader.group for reader in self.readers]]:
                group.high = max(group.high, offset)
        elif missing and limited and missing <= len(self.pending):
            # deleted before anybody was given them, or another client has read them, or they were purged
            self.holes |= set(range(len(self.log), offset))
            if purged:
                for group in [*self.members.values(), *[reader.group for reader in self.readers]]:
                    group.high = max(group.high, offset)
            self.log += [""] * missing
            for pending in self.pending:
                pending.required = False
        elif 0 < missing <= sum(not p.required and p.message.body != body for p in self.pending):
            self.holes |= set(range(len(self.log), offset))  # late, and before this reader came
            self.log += [""] * missing
            for group in [reader.group for reader in self.readers]:
                group.high = max(group.high, offset)
        elif missing < len(self.pending) and is_shared:
            self.holes |= set(range(len(self.log), offset))  # read by another client, or about to be
            self.log += [""] * missing
        if offset > len(self.log):
            raise Mismatch(f"{body!r} of {self.name} says offset {offset}, the next is {len(self.log)}")
        self.log.append("")
        self._found(offset, body)

    def _found(self, offset: int, body: str) -> None:
        """A message that waited for its place has this one. Raises Mismatch."""
        earlier = sum(hole < offset for hole in self.holes)
        # it may have died twice: what need not come fits later, too
        alike = [pending for pending in self.pending if pending.message.body == body]
        found = min(alike, key=lambda pending: not pending.required, default=None)
        if found is None:
            raise Mismatch(f"{body!r} of {self.name} at offset {offset}, which nobody published")
        for pending in self.pending[: self.pending.index(found)]:
            if found.comes_behind(pending):
                if not earlier:
                    raise Mismatch(f"{body!r} of {self.name} came before {pending.message.body!r}")
                earlier -= 1
        self.pending.remove(found)
        self.holes.discard(offset)
        self.log[offset] = body

    # ---- readers

    def join(self, reader: Reader, wanted: str | int) -> None:
        group = reader.group
        if group.name and group.name not in self.members:
            self.members[group.name] = group
            group.move(*self.place(wanted))
        elif not group.readers and (wanted != "" or not group.name):
            group.move(*self.place(wanted))
        group.readers.append(reader)
        self.readers.append(reader)

    def leave(self, reader: Reader, *, closed: bool) -> None:
        if reader in self.readers:
            self.readers.remove(reader)
        group = reader.group
        group.leave(reader, closed=closed)
        if not group.readers:
            group.rewind(min([*group.returned, *group.held, group.low]))

    def expects(self, offset: int, body: str) -> bool:
        """Whether such a message is there, or on its way."""
        if offset < len(self.log) and self.log[offset] == body:
            return True
        return any(pending.message.body == body for pending in self.pending)

    def delivered(self, reader: Reader, offset: int, body: str, gap: int) -> Read | None:
        """Check a delivery; the claim, where it has to be settled. Raises Mismatch."""
        group = reader.group
        where = f"{body!r}, offset {offset} of {self.name}, to {reader.client}/{reader.tag}"
        if self.no_deliver:
            raise Mismatch(f"{where} although the stream is paused")
        self.see(offset, body)
        if offset < self.deleted and offset not in group.returned | group.optional:
            raise Mismatch(f"{where}, although it is deleted")
        if reader.credit() <= 0:
            raise Mismatch(f"{where} beyond its credit")
        if offset in group.returned:
            group.returned.remove(offset)
        elif offset in group.optional:
            group.optional.remove(offset)
        elif offset < group.low or offset in group.given:
            raise Mismatch(f"{where} again")
        else:
            if offset <= reader.last:
                raise Mismatch(f"{where} after offset {reader.last}")
            reader.last = offset
            group.given[offset] = gap
        if reader.no_ack:
            return None
        group.held[offset] = reader
        return Read(Message(body, ""), (0, 0), time.time(), state=HELD, reader=reader, offset=offset)

    def end_step(self) -> None:
        """What groups were given has no hole but what was deleted, which is told. Raises Mismatch."""
        self.deleted = self.first()[0]
        for group in {id(reader.group): reader.group for reader in self.readers}.values():
            for offset in sorted(group.given):
                gap = group.given[offset]
                if offset > group.high and (offset - group.high > gap or offset > self.first()[1]):
                    raise Mismatch(
                        f"{self.name} gave offset {offset}, {group.low}..{group.high} is next, gap {gap}"
                    )
                group.low = group.high = offset + 1
            group.given.clear()
            for reader in group.readers:
                reader.last = -1
            gone = self.first()[1]  # or may be gone
            group.optional |= {offset for offset in group.returned if offset < gone}
            group.returned -= group.optional

    def owed(self) -> str | None:
        if self.no_deliver:
            return None
        for reader in self.readers:
            group = reader.group
            if reader.credit() <= 0:
                continue
            kept = [offset for offset in group.returned if offset >= self.first()[1]]
            if kept:
                return f"offset {min(kept)} again to {reader.client}/{reader.tag} of {self.name}"
            if max([group.high, self.first()[1], *[offset + 1 for offset in group.given]]) < len(self.log):
                return f"offset {len(self.log) - 1} to {reader.client}/{reader.tag} of {self.name}"
            for pending in self.pending:
                if pending.required:
                    return f"{pending.message.body!r} to {reader.client}/{reader.tag} of {self.name}"
        return None

    def restarted(self, *, killed: bool) -> None:
        """Groups go on where their last commit was. What was neither confirmed nor given may be gone, and a
        death undone.
        """
        for reader in list(self.readers):
            self.leave(reader, closed=True)
        for group in self.members.values():
            group.returned |= set(group.held)
            group.held.clear()
            if killed:
                group.rewind(0)
        if killed:
            now = time.time()
            for pending in self.pending:
                is_stored = not pending.died and now >= pending.message.stored_by
                pending.required = pending.required and is_stored
