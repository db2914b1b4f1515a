"""What expires, and what of a queue's bytes is counted, as the store has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from queue_manager.log.queue_log import QueueLog
from queue_manager.rules.expiry.log_rules import LogRules
from queue_manager.shard.record_types import RestoredType, Row, RuleRecords
from storage import layout
from storage.records import expiry, queue_account


class Level(Protocol):
    """A log of a queue, with the rules it has."""

    @property
    def log(self) -> QueueLog: ...

    @property
    def has_rules(self) -> bool: ...

    def use_rules(self) -> LogRules:
        """Its rules, made if need be."""

    def restore_expired(self, number: int, ranges: list[tuple[int, int]]) -> None:
        """Take in offsets that had expired before the start."""

    def restore_future(self) -> None:
        """Know what groups to come will not get."""

    def watch_returned(self) -> None:
        """Have what came back before the start watched for its expiry."""


class Expiring(Protocol):
    """A queue whose messages may expire."""

    @property
    def parts(self) -> Iterable[Level]: ...


def restore_expiry(queue: Expiring, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    """Have watched what expires; know what was let go of out of order."""
    expiring, accounts = rows
    parts = {part.log.name: part for part in queue.parts}
    counts: dict[str, dict[tuple[str, int], queue_account.Bytes]] = {name: {} for name in parts}
    for key, value in accounts:
        queue_id, kind, number = queue_account.parse_key(key)
        name, _ = layout.split_group_queue_id(queue_id)
        part = parts.get(name)
        if part is None:
            continue
        if kind == queue_account.EXPIRED:
            part.restore_expired(number, queue_account.decode_ranges(value))
        elif part.log.policy.counts_bytes():
            counts[name][queue_id, kind] = queue_account.decode_bytes(value)
        else:
            part.log.context.commit.delete(key)  # the bound is gone
    for key, _ in expiring:
        expires_in = parts.get(expiry.parse_key(key).queue_id)
        if expires_in is not None:
            expires_in.use_rules().restore_own()
    for name, part in parts.items():
        part.restore_future()
        part.watch_returned()
        if part.has_rules:
            taken = {
                queue_id: count
                for (queue_id, kind), count in counts[name].items()
                if kind == queue_account.TAKEN
            }
            part.use_rules().restore_bytes(counts[name].get((name, queue_account.APPENDED)), taken)


EXPIRY_RECORDS: RuleRecords[Expiring] = RuleRecords(
    (
        RestoredType(
            prefix=expiry.prefix,
            everything=expiry.PREFIX,
            owner_of=lambda key: expiry.parse_key(key).queue_id,
            run_of=lambda key: expiry.prefix(expiry.parse_key(key).queue_id),
        ),
    ),
    (
        RestoredType(
            prefix=queue_account.prefix,
            everything=queue_account.PREFIX,
            owner_of=lambda key: queue_account.parse_key(key)[0],
        ),
    ),
    restore_expiry,
)
