"""Messages that are given up, seen by the queue manager: who takes them, what stays, who is told."""

from __future__ import annotations

import pytest

from queue_manager.claims.claim import DONE, FAILED
from queue_manager.cursor.failures import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from queue_manager.manager import QueueManager
from queue_manager.policy import DROP_HEAD
from queue_manager.queue.queue import Queue
from queue_manager.rules.dead_letters import Stamped, keep_properties, no_copies, no_origin
from storage.records import done, failed, payload
from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue, publish


def source(manager: QueueManager, dead_letter: str = "dead", **fields: int) -> tuple[Queue, Sink]:
    """A queue with one message in flight."""
    queue = make_queue(manager, "jobs", dead_letter=dead_letter, **fields)  # type: ignore[arg-type]
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    return queue, sink


def waiting(queue: Queue) -> int:
    return queue.depth()


def test_copy_and_end_are_one_commit() -> None:
    manager = make_manager()
    queue, sink = source(manager)
    dead = make_queue(manager, "dead")
    manager.seal(NOW_MS)
    manager.reject(sink.claims, NOW_MS)
    commit = manager.seal(NOW_MS + 1)  # although the group's state was just written
    assert commit is not None
    assert any(key.startswith(payload.prefix()) for key in commit.puts)
    assert any(key.startswith(done.prefix("jobs")) for key in commit.puts)
    assert waiting(dead) == 1
    assert queue.groups.find("").failed_count() == 0


def test_trouble_is_told_once_and_the_message_stays() -> None:
    manager = make_manager()
    told: list[tuple[str, str]] = []
    manager.queues.dead_letters.install(
        keep_properties, no_origin, no_copies, lambda queue, reason, is_kept: told.append((queue, reason))
    )
    queue, sink = source(manager, "nowhere")
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    manager.reject(sink.claims[:3], NOW_MS)
    assert queue.groups.find("").failed_count() == 3
    assert told == [("jobs", "there is no queue 'nowhere'")]
    commit = manager.seal(NOW_MS + 100)
    assert commit is not None
    assert any(key.startswith(failed.prefix("jobs")) for key in commit.puts)
    make_queue(manager, "nowhere", depth_max=1)
    manager.reject(sink.claims[3:], NOW_MS)
    assert queue.groups.find("").failed_count() == 4
    assert told[1:] == [("jobs", "queue 'nowhere' is full")]


@pytest.mark.parametrize("has_group", [False, True])
def test_what_is_too_much_is_dropped_where_no_queue_takes_it(has_group: bool) -> None:
    manager = make_manager()
    told: list[tuple[str, str, bool]] = []
    manager.queues.dead_letters.install(
        keep_properties,
        no_origin,
        no_copies,
        lambda queue, reason, is_kept: told.append((queue, reason, is_kept)),
    )
    queue = make_queue(manager, "jobs", dead_letter="nowhere", depth_max=2, overflow=DROP_HEAD)
    if has_group:
        consume(manager, queue, credit_max=0)
    for _ in range(10):
        publish(manager, 1)
        manager.dispatch(NOW_MS)
    assert waiting(queue) == 2
    assert not has_group or queue.groups.find("").failed_count() == 0
    assert manager.queues.dead_letters.dropped_count == 8
    assert told == [("jobs", "there is no queue 'nowhere'", False)]


@pytest.mark.parametrize("fields", [{"message_bytes_max": 0}, {"depth_max": 1}])
def test_a_queue_that_takes_no_more(fields: dict[str, int]) -> None:
    manager = make_manager()
    queue, sink = source(manager)
    dead = make_queue(manager, "dead", **fields)
    if "depth_max" in fields:
        publish(manager, 1, "$queue/dead")
    before = waiting(dead)
    manager.reject(sink.claims, NOW_MS)
    assert (waiting(dead), queue.groups.find("").failed_count()) == (before, 1)


@pytest.mark.parametrize(("reason", "let_go"), [(EXPIRED, True), (MAXLEN, True), (DELIVERY_LIMIT, False)])
def test_a_loop(reason: str, let_go: bool) -> None:
    manager = make_manager()
    queue, sink = source(manager)
    make_queue(manager, "dead")
    manager.queues.dead_letters.install(
        lambda death: Stamped(0, b"", death.targets),
        no_origin,
        no_copies,
        lambda queue, reason, is_kept: None,
    )
    [claim] = sink.claims
    assert queue.dead_letters.send("", claim.message, 1, reason, NOW_MS) == let_go
    assert manager.queues.dead_letters.dropped_count == int(let_go)


@pytest.mark.parametrize(("reason", "comes_round"), [(EXPIRED, False), (REJECTED, True)])
def test_by_its_own_key_into_its_own_queue(reason: str, comes_round: bool) -> None:
    manager = make_manager()
    queue, sink = source(manager, "", dead_letter_by_key=True)
    [claim] = sink.claims
    assert queue.dead_letters.send("", claim.message, 1, reason, NOW_MS)
    assert queue.log.tail.next_offset == 1 + comes_round


def test_an_ephemeral_queue_dead_letters_too() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", durable=False, dead_letter="dead", attempts_max=1)  # type: ignore[arg-type]
    dead = make_queue(manager, "dead")
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.requeue(sink.claims, NOW_MS)
    assert waiting(dead) == 1
    assert manager.commit_due_ms(NOW_MS) == 0


def test_states_of_what_was_given_up() -> None:
    manager = make_manager()
    queue, sink = source(manager, "dead")
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.reject(sink.claims[:1], NOW_MS)
    make_queue(manager, "dead")
    manager.reject(sink.claims[1:], NOW_MS)
    bucket = queue.groups.find("").cursors[0].claims.buckets[0]
    states = [claim.state for claim in bucket.claims if claim is not None]
    assert states == [FAILED, DONE]
