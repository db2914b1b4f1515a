"""The views of a group's consumers on its messages: one for each filter."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.filters import MessageFilter
from queue_manager.model import Message
from queue_manager.shard.message_fields import OF_THE_MESSAGE, MessageFields, differs_by_message
from storage.envelope import EnvelopeTemplate

EVERYTHING: Final = ""  # the key of the view of consumers without a filter


@dataclass(eq=False, slots=True)
class View:
    """The messages that match one filter: `condition` None matches all.

    Everything below `cursor` has been looked at; `found` are matches among it, in order, and `returned` the
    claims that came back and match, as a heap of (offset, number, claim). Both may hold what others
    have taken since. `consumers` counts those who share it.
    """

    key: str
    condition: MessageFilter | None
    cursor: int
    consumers: int = field(default=0, init=False)
    found: deque[Message] = field(default_factory=deque, init=False)
    returned: list[tuple[int, int, Claim]] = field(default_factory=list, init=False)
    is_scanning: bool = field(default=False, init=False)
    last_load: int = field(default=0, init=False)
    _numbered: int = field(default=0, init=False)
    _differs: bool = field(init=False)
    _verdicts: dict[EnvelopeTemplate, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._differs = self.condition is not None and differs_by_message(self.condition)

    def wants(self, queue_title: str, message: Message, delivery_count: int, fields: MessageFields) -> bool:
        """Return whether the message matches; asked of the filter once per template where that is enough."""
        condition = self.condition
        if condition is None:
            return True
        if self._differs:
            return condition.matches(fields.of(queue_title, message, delivery_count))
        verdicts = self._verdicts
        verdict = verdicts.get(message.template)
        if verdict is None:
            if len(verdicts) >= limits.FILTER_VERDICTS_KEPT_MAX:
                verdicts.clear()
            verdict = verdicts[message.template] = condition.matches(fields.shared(message.template))
        return verdict

    def move_to(self, offset: int) -> None:
        """Look at `offset` next."""
        self.cursor = offset

    def asked(self, load_number: int) -> None:
        """Note that what it needs is read back, with this of all loads."""
        self.last_load = load_number

    def begin_scan(self) -> None:
        """Note that it is shown messages."""
        self.is_scanning = True

    def end_scan(self, offset: int) -> None:
        """Note that it has been shown everything below `offset`."""
        self.cursor = offset
        self.is_scanning = False

    def join(self) -> None:
        """Count one more consumer that shares it."""
        self.consumers += 1

    def leave(self) -> None:
        """Count one consumer less that shares it."""
        self.consumers -= 1

    def clear(self) -> None:
        """Forget what was found and what came back."""
        self.found.clear()
        self.returned = []

    def next_returned(self) -> Claim | None:
        """Return the claim with the lowest offset among those that came back and are still there."""
        heap = self.returned
        while heap:
            claim = heap[0][2]
            if claim.state == AVAILABLE:
                return claim
            heappop(heap)
        return None

    def add_returned(self, claim: Claim) -> None:
        """Take in an claim that came back and matches."""
        self._numbered += 1
        heappush(self.returned, (claim.message.offset, self._numbered, claim))


class Views:
    """The views of one group; those that need a field to have one text are found by that text."""

    __slots__ = ("_by_key", "_fields", "_index", "_others")

    def __init__(self, fields: MessageFields) -> None:
        self._fields = fields
        self._by_key: dict[str, View] = {}
        self._others: list[View] = []
        self._index: dict[str, dict[str, list[View]]] = {}

    def __iter__(self) -> Iterator[View]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: str) -> View | None:
        """Return the view of that filter."""
        return self._by_key.get(key)

    def add(self, view: View) -> None:
        """Take in a view whose key is new."""
        self._by_key[view.key] = view
        self._siblings(view).append(view)

    def remove(self, view: View) -> None:
        """Forget a view."""
        if self._by_key.pop(view.key, None) is None:
            return
        siblings = self._siblings(view)
        siblings.remove(view)
        equality = None if view.condition is None else view.condition.equality
        if equality is not None and siblings is not self._others and not siblings:
            by_text = self._index[equality[0]]
            del by_text[equality[1]]
            if not by_text:
                del self._index[equality[0]]

    def _siblings(self, view: View) -> list[View]:
        equality = None if view.condition is None else view.condition.equality
        if equality is None or equality[0] in OF_THE_MESSAGE:
            return self._others
        return self._index.setdefault(equality[0], {}).setdefault(equality[1], [])

    def candidates(self, template: EnvelopeTemplate) -> list[View]:
        """Return views that may want messages of the template; no other does."""
        if not self._index:
            return self._others
        found = self._others
        get = self._fields.shared(template).get
        for name, by_text in self._index.items():
            value = get(name)
            if type(value) is str and value in by_text:
                found = found + by_text[value]
        return found
