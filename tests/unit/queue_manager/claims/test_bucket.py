from queue_manager.claims.claim import DONE, FAILED, Bucket, Claim
from queue_manager.claims.ledger import Claims
from queue_manager.manager import QueueManager
from storage.envelope import read_head
from storage.records import active, done
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def claimed(count: int, **policy: int) -> tuple[QueueManager, Claims, list[Claim]]:
    """Give the claims of a group that has made `count` of them, and these."""
    manager = make_manager()
    queue = make_queue(manager, **policy)
    _, sink = consume(manager, queue)
    publish(manager, count)
    manager.dispatch(NOW_MS)
    return manager, queue.groups.find("").cursors[0].claims, sink.claims


def buckets(ledger: Claims) -> list[Bucket]:
    return [ledger.buckets[first] for first in sorted(ledger.buckets)]


def test_a_claim_s_number_names_its_bucket() -> None:
    _, ledger, claims = claimed(25, bucket_size=1)
    assert [claim.claim_number for claim in claims] == list(range(25))
    assert [bucket.first for bucket in buckets(ledger)] == [0, 10, 20]
    assert [bucket.bucket_id for bucket in buckets(ledger)] == [1 << 60, 1 << 60 | 10, 1 << 60 | 20]
    assert [bucket.open_count for bucket in buckets(ledger)] == [10, 10, 5]


def test_the_records_hold_every_message_in_its_state_and_in_order() -> None:
    manager, ledger, claims = claimed(10, bucket_size=1)
    manager.ack([claims[4], claims[1]], NOW_MS + 7)
    manager.reject([claims[2]], NOW_MS)
    manager.requeue([claims[9], claims[3]], NOW_MS)
    manager.consumption.extend(claims[5], 1_000, NOW_MS)
    (bucket,) = buckets(ledger)
    value = bucket.encode_active()
    assert value is not None
    available, in_flight = active.decode(value)
    assert [row[1] & 0xFF for row in available] == [3, 9]
    assert [row[1] & 0xFF for row in in_flight] == [0, 5, 6, 7, 8]
    assert [row[3] - NOW_MS for row in in_flight] == [30_000, 1_000, 30_000, 30_000, 30_000]
    value = bucket.encode_settled(DONE)
    assert value is not None
    settled = done.decode(value)
    assert [(row.claim_id & 0xFF, row.settled_at_ms, row.attempts) for row in settled] == [
        (1, NOW_MS + 7, 1),
        (4, NOW_MS + 7, 1),
    ]
    assert [read_head(row.metadata)[1] for row in settled] == [1, 4]
    value = bucket.encode_settled(FAILED)
    assert value is not None
    assert [row.claim_id & 0xFF for row in done.decode(value)] == [2]
    assert bucket.open_count == 7


def test_a_bucket_with_nothing_open_has_no_active_record() -> None:
    manager, ledger, claims = claimed(3, bucket_size=1)
    (bucket,) = buckets(ledger)
    manager.ack(claims, NOW_MS)
    assert bucket.encode_active() is None
    assert not ledger.buckets.is_closed(bucket)  # numbers 3 to 9 will still be given out
    assert bucket.encode_settled(FAILED) is None


def test_a_settled_message_lets_go_of_its_payload_once_it_is_written() -> None:
    manager, ledger, claims = claimed(1, bucket_size=0)
    (bucket,) = buckets(ledger)
    manager.ack(claims, NOW_MS)
    first = bucket.encode_settled(DONE)
    assert claims[0].message.body is None
    assert bucket.encode_settled(DONE) == first
    assert ledger.buckets.is_closed(bucket)


def test_full_and_settled_buckets_do_not_stay_in_memory() -> None:
    manager, ledger, claims = claimed(25, bucket_size=1, done_retention_ms=0)
    manager.ack(claims, NOW_MS)
    manager.seal(NOW_MS + 1_000)
    assert [bucket.first for bucket in buckets(ledger)] == [20]
