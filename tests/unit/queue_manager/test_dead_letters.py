"""Messages that are given up, seen by the queue manager: who takes them, what stays, who is told."""

from __future__ import annotations

import pytest

from queue_manager.dead_letters import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, send
from queue_manager.manager import QueueManager
from queue_manager.model import DONE, FAILED
from queue_manager.queue import Queue
from queue_manager.redrive import DeadLetterRedrive, Origin
from storage.envelope import EnvelopeTemplate
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
    manager.reject(sink.entries, NOW_MS)
    journal = manager.seal(NOW_MS + 1)  # although the group's state was just written
    assert journal is not None
    assert any(key.startswith(payload.PREFIX) for key in journal.puts)
    assert any(key.startswith(done.prefix("jobs")) for key in journal.puts)
    assert waiting(dead) == 1
    assert queue.groups[""].failed_count == 0
    assert manager.dead_letters.sent_count == 1


def test_trouble_is_told_once_and_the_message_stays() -> None:
    manager = make_manager()
    told: list[tuple[str, str]] = []
    manager.dead_letters.on_trouble = lambda queue, reason: told.append((queue, reason))
    queue, sink = source(manager, "nowhere")
    publish(manager, 4)
    manager.dispatch(NOW_MS)
    manager.reject(sink.entries[:3], NOW_MS)
    assert queue.groups[""].failed_count == 3
    assert told == [("jobs", "there is no queue 'nowhere'")]
    assert manager.dead_letters.refused_count == 3
    journal = manager.seal(NOW_MS + 100)
    assert journal is not None
    assert any(key.startswith(failed.prefix("jobs")) for key in journal.puts)
    make_queue(manager, "nowhere", depth_max=1)
    manager.reject(sink.entries[3:], NOW_MS)
    assert queue.groups[""].failed_count == 4
    assert told[1:] == [("jobs", "queue 'nowhere' is full")]


@pytest.mark.parametrize("fields", [{"message_bytes_max": 0}, {"depth_max": 1}])
def test_a_queue_that_takes_no_more(fields: dict[str, int]) -> None:
    manager = make_manager()
    queue, sink = source(manager)
    dead = make_queue(manager, "dead", **fields)
    if "depth_max" in fields:
        publish(manager, 1, "$queue/dead")
    before = waiting(dead)
    manager.reject(sink.entries, NOW_MS)
    assert (waiting(dead), queue.groups[""].failed_count) == (before, 1)


@pytest.mark.parametrize(("reason", "let_go"), [(EXPIRED, True), (MAXLEN, True), (DELIVERY_LIMIT, False)])
def test_a_loop(reason: str, let_go: bool) -> None:
    manager = make_manager()
    queue, sink = source(manager)
    make_queue(manager, "dead")
    manager.stamp_death = lambda death: None
    [entry] = sink.entries
    assert send(queue.groups[""], entry.message, 1, reason, NOW_MS) == let_go
    book = manager.dead_letters
    assert (book.dropped_count, book.refused_count, book.sent_count) == (int(let_go), int(not let_go), 0)


@pytest.mark.parametrize(("reason", "comes_round"), [(EXPIRED, False), (REJECTED, True)])
def test_by_its_own_key_into_its_own_queue(reason: str, comes_round: bool) -> None:
    manager = make_manager()
    queue, sink = source(manager, "", dead_letter_by_key=True)
    [entry] = sink.entries
    assert send(queue.groups[""], entry.message, 1, reason, NOW_MS)
    assert queue.tail.next_offset == 1 + comes_round


def test_an_ephemeral_queue_dead_letters_too() -> None:
    manager = make_manager()
    queue = make_queue(manager, "jobs", durable=False, dead_letter="dead", attempts_max=1)  # type: ignore[arg-type]
    dead = make_queue(manager, "dead")
    _, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    manager.requeue(sink.entries, NOW_MS)
    assert waiting(dead) == 1
    assert manager.needs_commit(NOW_MS) == 0


def test_a_redrive_is_one_commit_and_no_attempt() -> None:
    manager = make_manager()
    jobs = make_queue(manager, "jobs")
    dead = make_queue(manager, "dead")
    publish(manager, 5, "$queue/dead/x")
    seen = 0

    def origin_of(template: EnvelopeTemplate) -> Origin | None:
        nonlocal seen
        seen += 1
        return Origin("jobs" if seen != 2 else "gone", "$queue/jobs/eu", "", 0, b"")

    manager.origin_of = origin_of
    manager.seal(NOW_MS)
    redrive = DeadLetterRedrive(manager, dead, None, 10)
    publish(manager, 1, "$queue/dead/new")  # not meant
    dead.groups[""].flushed_at_ms = NOW_MS
    assert redrive.step(3, NOW_MS) == 3
    assert redrive.left == 8
    journal = manager.seal(NOW_MS + 1)
    assert journal is not None
    assert sum(key.startswith(payload.PREFIX) for key in journal.puts) == 3
    assert any(key.startswith(done.prefix("dead")) for key in journal.puts)
    assert redrive.step(10, NOW_MS) == 0
    redrive.end(NOW_MS)
    assert waiting(jobs) == 4
    assert dead.ready_count() == 2
    _, sink = consume(manager, dead)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [1, 5]
    assert [entry.attempts for entry in sink.entries] == [1, 1]


def test_states_of_what_was_given_up() -> None:
    manager = make_manager()
    queue, sink = source(manager, "dead")
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    group = queue.groups[""]
    manager.reject(sink.entries[:1], NOW_MS)
    make_queue(manager, "dead")
    manager.reject(sink.entries[1:], NOW_MS)
    states = [entry.state for entry in group.buckets[0].entries if entry is not None]
    assert states == [FAILED, DONE]
