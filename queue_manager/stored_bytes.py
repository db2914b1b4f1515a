"""How many bytes each virtual host and user has stored, where a quota bounds that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from config import limits
from queue_manager.address import vhost_of
from queue_manager.queue.queue import Queue
from queue_manager.quota_accounts import RETAINED_BYTES
from queue_manager.shard.context import Context

_NOBODY: Final[Iterator[Queue]] = iter(())


class StoredBytes:
    """Has the bytes of queues counted, sums them up some times a second, and has queues of who is over a
    quota take nothing more. Many queues are summed up in steps.
    """

    def __init__(self, context: Context, queues: Callable[[], Iterable[Queue]]) -> None:
        self._context = context
        self._quotas = context.quotas
        self._queues = queues
        self._left = _NOBODY
        self._sums: Counter[tuple[bool, str]] = Counter()  # by whether it is a user, and name

    def follow_quotas(self) -> None:
        """Follow quotas that are others now."""
        for queue in self._queues():
            self._count(queue)
        self._context.timers.set(self, 0)

    def adopted(self, queue: Queue) -> None:
        """Count what is in a queue that was made or recovered, if that is bounded."""
        if self._quotas.are_bytes_bounded():
            self._count(queue)
            self._judge(queue)

    def _count(self, queue: Queue) -> None:
        is_counted = self._quotas.bounds_bytes_of(vhost_of(queue.name), queue.user)
        if is_counted != queue.log.is_counted:
            queue.count_bytes(is_counted=is_counted)

    def on_timer(self, now_ms: int) -> None:
        """See `queue_manager.shard.timers.Timed`: sum up more queues; then see who is over a quota."""
        is_bounded = self._quotas.are_bytes_bounded()
        for _ in range(limits.QUOTA_BYTES_QUEUES_PER_LOOK):
            queue = next(self._left, None)
            if queue is None:
                self._take_sums()
                self._left = iter(list(self._queues()))
                break
            if queue.log.is_counted and not queue.deleted:
                stored = queue.stored_bytes()
                self._sums[False, vhost_of(queue.name)] += stored
                if queue.user is not None:
                    self._sums[True, queue.user] += stored
        if is_bounded:
            self._context.timers.set(self, now_ms + limits.QUOTA_BYTES_INTERVAL_MS)

    def _take_sums(self) -> None:
        sums, self._sums = self._sums, Counter()
        for is_user, accounts in ((False, self._quotas.vhosts()), (True, self._quotas.users())):
            for account in accounts:
                account.stored_bytes = sums[is_user, account.name] + account.count(RETAINED_BYTES)
        for queue in self._queues():
            self._judge(queue)

    def _judge(self, queue: Queue) -> None:
        refusal = ""
        if queue.log.is_counted:
            refusal = self._quotas.bytes_refusal(vhost_of(queue.name), queue.user)
        if refusal != queue.quota_refusal:
            queue.follow_quota(refusal)
