"""How messages of the log become entries before anybody claims them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.model import AVAILABLE, Entry, Message

if TYPE_CHECKING:
    from queue_manager.group import Group


def enter(group: Group, messages: list[Message], now_ms: int) -> list[Entry]:
    """Entries of messages just taken from the log of `group`: available, never tried, in its buckets."""
    entries = _entries(group, messages, now_ms)
    keeper = group.queue.keeper
    if keeper is not None:
        for entry in entries:
            keeper.watch(group, entry, entry.message.body)
    return entries


def _entries(group: Group, messages: list[Message], now_ms: int) -> list[Entry]:
    claim = group.next_claim
    count = len(messages)
    group.next_claim = claim + count
    if not group.queue.durable:
        return [
            Entry(message, group, number, None, 0, AVAILABLE, None, now_ms)
            for number, message in enumerate(messages, claim)
        ]
    entries: list[Entry] = []
    while len(entries) < count:
        start = len(entries)
        bucket = group._bucket(claim + start)
        stop = start + bucket.capacity - len(bucket.entries)
        part = [
            Entry(message, group, number, bucket, 0, AVAILABLE, None, now_ms)
            for number, message in enumerate(messages[start:stop], claim + start)
        ]
        bucket.entries += part
        bucket.add_run(messages[start:stop])
        bucket.open_count += len(part)
        group.touch(bucket)
        entries += part
    return entries
