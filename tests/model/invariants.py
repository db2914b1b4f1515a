"""What always holds inside the core between two calls; looking at all of it costs too much there."""

from __future__ import annotations

from queue_manager.claims.claim import AVAILABLE, DONE, FAILED, IN_FLIGHT, RETURNING
from queue_manager.cursor.cursor import Cursor
from queue_manager.manager import QueueManager

OPEN = (AVAILABLE, IN_FLIGHT, RETURNING)


def check(manager: QueueManager) -> None:
    """Look at every cursor, and at the open commit."""
    commit = manager.context.commit
    assert not commit.puts.keys() & commit.deletes.keys(), "a record is both put and deleted"
    for queue in manager.queues:
        for part in queue.parts:
            for cursor in part.cursors.values():
                _check_cursor(cursor)
        for group in queue.groups:
            for consumer in group.consumers:
                held = consumer.in_flight.values()
                assert all(claim.state == IN_FLIGHT and claim.consumer is consumer for claim in held)
                assert consumer.bytes_in_flight == sum(len(claim.message.body or b"") for claim in held)


def _check_cursor(cursor: Cursor) -> None:
    claims = cursor.claims
    where = cursor.storage_id
    assert all(claim.state == AVAILABLE for claim in claims.delays.claims()), f"{where}: one ended"
    for bucket in claims.buckets.values():
        states = [claim.state for claim in bucket.claims if claim is not None]
        assert bucket.open_count == sum(state in OPEN for state in states), f"{where}: {bucket.bucket_id:x}"
        assert set(states) <= {*OPEN, DONE, FAILED}, f"{where}: a claim that was replaced is in a bucket"
        assert len(bucket.claims) <= bucket.capacity
        for index, claim in enumerate(bucket.claims):
            assert claim is None or claim.claim_number == bucket.first + index
            if claim is not None and claim.state in OPEN:
                assert cursor.progress.has_taken(claim.message.offset), f"{where}: claimed, and not passed"
