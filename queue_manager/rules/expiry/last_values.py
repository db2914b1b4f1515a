"""The newest message of each value of a header: older ones that wait go when a newer one comes."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import REPLACED
from queue_manager.filters.field_access import APPLICATION_PREFIX
from queue_manager.model import Message, MessageBatch
from queue_manager.rules.expiry.level import Level
from queue_manager.rules.expiry.own_expiry import OwnExpiry
from queue_manager.rules.expiry.own_ttls import Expiring
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.records import LastValue, last_value

_KEPT_RETURNED_MIN: Final = 1_000


class LastValues:
    """The newest message of each value, of a log whose policy names the header (`header`).

    A message that no consumer holds goes with the commit that brings a newer one; one that is held when it
    comes back. The values that were not renewed for the longest go with their messages, beyond
    `limits.LAST_VALUES_MAX`.
    """

    __slots__ = (
        "_context",
        "_newest",
        "_own",
        "_replaced",
        "_returned",
        "_returned_max",
        "_rules",
        "_waiting",
        "header",
    )

    def __init__(self, rules: Level, own: OwnExpiry, header: str) -> None:
        self._rules = rules
        self._own = own
        self._context = rules.log.context
        self.header = header
        self._newest: dict[str, Expiring] = {}
        self._replaced: list[Expiring] = []  # by what was appended just now
        self._returned: dict[tuple[Cursor, int], Claim] = {}  # what waits once more, by cursor and offset
        self._returned_max = _KEPT_RETURNED_MIN
        self._waiting: dict[Cursor, list[Claim]] = {}  # claims that came back, and are replaced

    def __len__(self) -> int:
        return len(self._newest)

    def key_of(self, template: EnvelopeTemplate) -> str | None:
        """Return the value of the header; None: there is none, or it is no text, number or truth."""
        value = self._context.fields.shared(template).get(APPLICATION_PREFIX + self.header)
        if isinstance(value, bytes):
            text = value.decode(errors="backslashreplace")
        elif isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, str | int | float):
            text = str(value)
        else:
            return None
        encoded = text.encode(errors="surrogatepass")
        if len(encoded) > limits.LAST_VALUE_BYTES_MAX or b"\0" in encoded:
            return sha256(encoded).hexdigest()
        return text

    def is_replaced(self, message: Message) -> bool:
        """Return whether a newer message with its value came."""
        key = self.key_of(message.template)
        newest = None if key is None else self._newest.get(key)
        return newest is not None and newest.message.offset > message.offset

    # what comes

    def note(self, batch: MessageBatch, first_offset: int) -> None:
        """Note appended messages; `replace` follows once the groups have looked at them."""
        log = self._rules.log
        for message in batch.messages(first_offset):
            key = self.key_of(message.template)
            if key is None:
                continue
            size = len(message.body or b"")
            message.read(None)
            older = self._newest.pop(key, None)
            if older is not None:
                self._replaced.append(older)
            elif len(self._newest) >= limits.LAST_VALUES_MAX:
                self._forget_longest()
            self._newest[key] = Expiring(message, size)
            if log.durable:
                value = last_value.encode(message.message_id, size, message.envelope())
                self._context.commit.put(last_value.key(log.name, self.header, key), value)

    def _forget_longest(self) -> None:
        """Let go of the value that was not renewed for the longest, with its message."""
        key = next(iter(self._newest))
        self._replaced.append(self._newest.pop(key))
        log = self._rules.log
        if log.durable:
            self._context.commit.delete(last_value.key(log.name, self.header, key))

    def replace(self, now_ms: int) -> None:
        """Have all groups let go of what was replaced, as far as no consumer holds it."""
        if not self._replaced:
            return
        replaced, self._replaced = self._replaced, []
        for row in replaced:
            self._own.replace(row, now_ms)
        self._own.pass_over()
        if self._returned:
            for row in replaced:
                for cursor in self._rules.retention.members.values():
                    claim = self._returned.pop((cursor, row.message.offset), None)
                    if claim is not None:
                        self._waiting.setdefault(cursor, []).append(claim)
            self.end_waiting(now_ms)

    # what comes back

    def returned(self, cursor: Cursor, claim: Claim) -> None:
        """Note a claim that waits once more, or has to go."""
        if self.is_replaced(claim.message):
            self._waiting.setdefault(cursor, []).append(claim)
            self._rules.call_at(0)
            return
        self._returned[cursor, claim.message.offset] = claim
        if len(self._returned) > self._returned_max:
            self._returned = {key: each for key, each in self._returned.items() if each.state == AVAILABLE}
            self._returned_max = 2 * len(self._returned) + _KEPT_RETURNED_MIN

    def claims_again(self, cursor: Cursor, claim: Claim) -> bool:
        """Return whether a claim that came back may be given to a consumer."""
        self._returned.pop((cursor, claim.message.offset), None)
        return not self.is_replaced(claim.message)

    def end_waiting(self, now_ms: int) -> None:
        """Give up claims that came back and are replaced."""
        waiting, self._waiting = self._waiting, {}
        for cursor, claims in waiting.items():
            left = [claim for claim in claims if claim.state == AVAILABLE]
            if left and not self._rules.discard_waiting(cursor, left, REPLACED, now_ms):
                self._waiting[cursor] = [claim for claim in left if claim.state == AVAILABLE]
                self._rules.call_at(now_ms)

    # after a start

    def restore(self, rows: Iterable[tuple[str, LastValue]]) -> None:
        """Know the newest messages again."""
        templates = TemplateCache()
        found: list[tuple[str, Expiring]] = []
        for key, stored in rows:
            _, offset, received_at_ms = read_head(stored.envelope)
            template = templates.find(stored.envelope)
            message = Message(stored.message_id, offset, None, template, received_at_ms)
            found.append((key, Expiring(message, stored.body_bytes)))
        found.sort(key=lambda item: item[1].message.offset)
        self._newest = dict(found)
