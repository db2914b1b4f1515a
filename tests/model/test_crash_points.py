"""A scripted life that ends at each of its writes in turn: what was confirmed must be there afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from queue_manager.policy import QueuePolicy
from storage.batch import WriteOps
from tests.memory_store import MemoryStore
from tests.model.drain import drain
from tests.model.harness import Harness
from tests.model.oracle import OracleGroup
from tests.model.tight_limits import tight_limits


class Killed(Exception):
    """The process ends here."""


class KillingStore(MemoryStore):
    """A store whose write number `kills_at` is not done any more; -1: all are."""

    def __init__(self, kills_at: int, rows: Mapping[bytes, bytes] | None = None) -> None:
        super().__init__(rows=rows)
        self.kills_at = kills_at

    async def write(self, ops: WriteOps) -> None:
        if self.kills_at == 0:
            self.kills_at = -1
            raise Killed
        if self.kills_at > 0:
            self.kills_at -= 1
        await super().write(ops)

    def crash(self) -> KillingStore:
        return KillingStore(self.kills_at, super().crash()._rows)


def policy(done_retention_ms: int, bucket_size: int, attempts_max: int = 0) -> QueuePolicy:
    return QueuePolicy(
        visibility_timeout_ms=30_000,
        message_bytes_max=1 << 20,
        done_retention_ms=done_retention_ms,
        bucket_size=bucket_size,
        attempts_max=attempts_max,
    )


def settle_some(h: Harness, kind: str, count: int, *, last: bool = False) -> None:
    held = h.held_items()
    h.settle(kind, held[-count:] if last else held[:count])


def group_of(h: Harness, name: str, group_id: str = "") -> OracleGroup:
    return h.oracle.queues[name].groups[group_id]


def work_and_settle(h: Harness) -> None:
    """Publish to two queues at once, consume in groups, settle in every way."""
    h.declare("orders", policy(0, 1), ("$queue/orders/#", "shop/#"))
    h.declare("audit", policy(60_000, 1, attempts_max=2), ("$queue/audit/#", "shop/#"))
    h.publish("shop/eu/new", 25)
    h.publish("$queue/orders/us", 7)
    h.commit(everything=False)
    orders, audit = h.oracle.queues["orders"], h.oracle.queues["audit"]
    h.subscribe(orders, credit_max=9)
    h.subscribe(orders, "billing", "shop/+/new", credit_max=4)
    h.subscribe(audit, no_ack=False, credit_max=12)
    h.quiesce()
    settle_some(h, "ack", 5)
    h.commit(everything=True)
    settle_some(h, "requeue", 3)
    settle_some(h, "reject", 2, last=True)
    h.quiesce()
    h.commit(everything=True)
    h.publish("shop/us/new", 12)
    settle_some(h, "ack", 20)
    h.quiesce()
    h.commit(everything=True)
    h.advance(31_000)
    h.quiesce()
    settle_some(h, "ack", 50)
    h.commit(everything=True)
    h.advance(61_000)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)
    h.subscribe(orders, "late", no_ack=True)
    h.quiesce()
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)


def purge_and_delete(h: Harness) -> None:
    """Drop messages before and after there are groups; delete and declare again."""
    h.declare("orders", policy(60_000, 0), ("$queue/orders/#", "shop/#"))
    h.declare("audit", policy(0, 2), ("$queue/audit/#", "shop/#"))
    h.publish("shop/eu/new", 11)
    h.publish("$queue/orders/eu", 6)
    h.commit(everything=True)
    h.purge(h.oracle.queues["audit"])
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)
    h.subscribe(h.oracle.queues["orders"], credit_max=5)
    h.quiesce()
    settle_some(h, "ack", 2)
    settle_some(h, "reject", 1)
    h.quiesce()
    h.commit(everything=True)
    h.purge(h.oracle.queues["orders"])
    h.publish("shop/us/new", 8)
    h.quiesce()
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)
    settle_some(h, "ack", 3)
    h.commit(everything=True)
    h.delete(h.oracle.queues["orders"])
    h.commit(everything=True)
    h.sweep()
    h.commit(everything=True)
    h.declare("orders", policy(0, 1), ("$queue/orders/#",))
    h.publish("$queue/orders/eu", 9)
    h.commit(everything=True)
    h.advance(61_000)
    for _ in range(3):
        h.sweep()
        h.commit(everything=True)


def backlog_of_large_messages(h: Harness) -> None:
    """Messages that leave memory before they are consumed, and a restart in between."""
    h.declare("jobs", policy(0, 1))
    for size in (0, 1_300, 10, 2_900):
        h.publish("$queue/jobs/eu", 9, size)
        h.commit(everything=True)
    h.subscribe(h.oracle.queues["jobs"], credit_max=3)
    for _ in range(4):
        h.quiesce()
        settle_some(h, "ack", 3)
    h.commit(everything=True)
    h.crash(bucket_size=2)
    h.subscribe(h.oracle.queues["jobs"], credit_max=7)
    for _ in range(4):
        h.quiesce()
        settle_some(h, "ack", 5)
        h.commit(everything=True)
        h.sweep()
    h.commit(everything=True)


LIVES = [work_and_settle, purge_and_delete, backlog_of_large_messages]


def live(life: Callable[[Harness], None], kills_at: int) -> tuple[Harness, bool]:
    """Run a life until it is over or killed; whether it was killed."""
    h = Harness(store=KillingStore(kills_at))
    try:
        life(h)
    except Killed:
        return h, True
    assert isinstance(h.store, KillingStore)
    h.store.kills_at = -1
    return h, False


@pytest.mark.parametrize("tight", [False, True], ids=["default limits", "tight limits"])
@pytest.mark.parametrize("life", LIVES)
def test_a_crash_before_any_write_loses_nothing_confirmed_and_leaks_nothing(
    life: Callable[[Harness], None], tight: bool
) -> None:
    kills_at = 0
    while True:
        with tight_limits(tight):
            h, killed = live(life, kills_at)
            h.crash()
            h.check_counts()
            drain(h)
        if not killed:
            break
        kills_at += 1
    assert kills_at > 5


@pytest.mark.parametrize("life", LIVES)
def test_a_second_crash_soon_after_the_first_does_no_harm(life: Callable[[Harness], None]) -> None:
    for kills_at in range(2, 30, 3):
        for again_at in range(3):
            with tight_limits():
                h, killed = live(life, kills_at)
                h.crash()
                assert isinstance(h.store, KillingStore)
                h.store.kills_at = again_at
                try:
                    h.advance(61_000)
                    h.sweep()
                    h.commit(everything=True)
                    h.sweep()
                    h.commit(everything=True)
                except Killed:
                    h.crash()
                assert isinstance(h.store, KillingStore)
                h.store.kills_at = -1
                drain(h)
            if not killed:
                return
