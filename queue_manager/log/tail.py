"""The newest messages of a queue's log, kept in memory so that consumers who keep up never read the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from queue_manager.model import Message
from storage.envelope import EnvelopeTemplate

# what a waiting message costs beside its payload: the object, its envelope, list slots
MESSAGE_OVERHEAD_BYTES: Final = 400
TEMPLATE_BYTES: Final = 300  # what a template of its own costs a message, beside its properties twice
RELEASED: Final = Message(0, 0, None, EnvelopeTemplate(""), 0)  # in the place of messages that are let go of
RELEASED_BYTES: Final = 8  # what the place costs


@dataclass(eq=False, repr=False, slots=True)
class Tail:
    """Messages with consecutive offsets ending at the queue's next offset.

    `next_offset` is what the next message gets. An ephemeral queue's tail is all there is; a durable queue
    drops from its front what is durable, whenever the payloads exceed their share of memory.
    """

    next_offset: int
    first_offset: int = field(init=False)
    memory_bytes: int = field(default=0, init=False)
    _messages: list[Message] = field(default_factory=list, init=False)
    _start: int = field(default=0, init=False)
    """The index of `first_offset` in `_messages`; the dead part is cut off in large steps."""
    _released_count: int = field(default=0, init=False)
    _overhead_bytes: int = field(default=MESSAGE_OVERHEAD_BYTES, init=False)

    def __post_init__(self) -> None:
        self.first_offset = self.next_offset

    def __len__(self) -> int:
        return len(self._messages) - self._start

    def holds(self, offset: int) -> bool:
        """Return whether the message at `offset` is in memory here."""
        return self.first_offset <= offset < self.next_offset

    def append(self, messages: list[Message], body_bytes: int) -> None:
        """Add messages that continue the offsets; their payloads are `body_bytes` in all."""
        count = len(messages)
        self._messages += messages
        self.next_offset += count
        self.memory_bytes += body_bytes + count * self._overhead_bytes

    def append_varied(self, messages: list[Message], body_bytes: int) -> None:
        """Append as `append`; each of the messages has a template of its own."""
        properties_bytes = sum([len(message.template.properties) for message in messages])
        cost_bytes = MESSAGE_OVERHEAD_BYTES + TEMPLATE_BYTES + 2 * properties_bytes // len(messages)
        if cost_bytes > self._overhead_bytes:  # all count as much, until none is left
            kept = len(self) - self._released_count
            self.memory_bytes += kept * (cost_bytes - self._overhead_bytes)
            self._overhead_bytes = cost_bytes
        self.append(messages, body_bytes)

    def slice(self, offset: int, count: int) -> list[Message]:
        """Return up to `count` messages from `offset`, which must not lie before the tail."""
        start = self._start + offset - self.first_offset
        return self._messages[start : start + count]

    def release(self, offset: int) -> None:
        """Forget the message at `offset`, which is not asked for any more: only its place is kept."""
        index = self._start + offset - self.first_offset
        if self.holds(offset) and self._messages[index] is not RELEASED:
            freed_bytes = len(self._messages[index].body or b"") + self._overhead_bytes
            self.memory_bytes -= freed_bytes - RELEASED_BYTES
            self._messages[index] = RELEASED
            self._released_count += 1

    def restore(self, message: Message) -> None:
        """Undo `release`: the message is asked for again."""
        index = self._start + message.offset - self.first_offset
        if self.holds(message.offset) and self._messages[index] is RELEASED:
            self._messages[index] = message
            self.memory_bytes += len(message.body or b"") + self._overhead_bytes - RELEASED_BYTES
            self._released_count -= 1

    def released(self) -> list[int]:
        """Return the offsets of which only the place is kept."""
        if not self._released_count:
            return []
        messages = self._messages[self._start :]
        return [offset for offset, m in enumerate(messages, self.first_offset) if m is RELEASED]

    def begin_at(self, offset: int) -> None:
        """Have the next message get `offset`; the tail must be empty."""
        self.first_offset = self.next_offset = offset

    def blank(self, offset: int) -> None:
        """Let go of the body of the message at `offset`, which is not asked for any more, if it is here."""
        if not self.holds(offset):
            return
        index = self._start + offset - self.first_offset
        message = self._messages[index]
        if message is RELEASED:
            return
        # whoever was given it may use the same object
        self._messages[index] = message.without_body()
        self.memory_bytes -= len(message.body or b"")

    def put_back(self, message: Message) -> None:
        """Undo `blank`; a message whose body is only on the store is read from there, with all before it."""
        if not self.holds(message.offset):
            return
        if message.body is None:
            self.drop_before(message.offset + 1)
            return
        index = self._start + message.offset - self.first_offset
        blank = self._messages[index]
        if blank is not RELEASED and blank.body is None:
            self._messages[index] = message
            self.memory_bytes += len(message.body)

    def drop_before(self, offset: int) -> None:
        """Forget messages below `offset`."""
        count = offset - self.first_offset
        if count <= 0:
            return
        if offset >= self.next_offset:
            self._messages = []
            self._start = 0
            self.first_offset = self.next_offset
            self.memory_bytes = 0
            self._released_count = 0
            self._overhead_bytes = MESSAGE_OVERHEAD_BYTES
            return
        start = self._start
        dropped = self._messages[start : start + count]
        for message in dropped:
            self.memory_bytes -= len(message.body or b"") + self._overhead_bytes
        if self._released_count:
            places = dropped.count(RELEASED)
            self._released_count -= places
            self.memory_bytes += places * (self._overhead_bytes - RELEASED_BYTES)
        self._start = start + count
        self.first_offset += count
        if self._start > 1024 and self._start * 2 > len(self._messages):
            del self._messages[: self._start]
            self._start = 0

    def drop_bytes(self, bytes_max: int, durable_offset: int) -> None:
        """Forget the oldest messages below `durable_offset` until they take at most `bytes_max`."""
        excess = self.memory_bytes - bytes_max
        if excess <= 0:
            return
        start = index = self._start
        end = start + max(0, min(durable_offset, self.next_offset) - self.first_offset)
        messages = self._messages
        while excess > 0 and index < end:
            excess -= len(messages[index].body or b"") + self._overhead_bytes
            index += 1
        self.drop_before(self.first_offset + index - start)
