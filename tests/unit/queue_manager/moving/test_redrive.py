"""Dead letters that go back to where they came from."""

from __future__ import annotations

from queue_manager.moving.redrive import Drain, to_origin
from queue_manager.rules.dead_letters import Origin, keep_properties, no_copies
from storage.envelope import EnvelopeTemplate
from storage.records import done, payload
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


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

    manager.queues.dead_letters.install(keep_properties, origin_of, no_copies, lambda queue, reason: None)  # type: ignore[misc]
    redrive = Drain(manager, dead, to_origin(manager, dead, None), 10)
    manager.seal(NOW_MS)
    publish(manager, 1, "$queue/dead/new")  # not meant
    assert redrive.step(3, NOW_MS) == 3
    assert redrive.left == 8
    commit = manager.seal(NOW_MS + 1)  # although the group's state was just written
    assert commit is not None
    assert sum(key.startswith(payload.prefix()) for key in commit.puts) == 3
    assert any(key.startswith(done.prefix("dead")) for key in commit.puts)
    assert redrive.step(10, NOW_MS) == 0
    redrive.end(NOW_MS)
    assert jobs.depth() == 4
    assert dead.ready_count() == 2
    _, sink = consume(manager, dead)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [1, 5]
    assert [claim.attempts for claim in sink.claims] == [1, 1]
