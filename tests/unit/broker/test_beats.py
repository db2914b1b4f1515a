"""What an idle broker does from time to time."""

from types import SimpleNamespace

import pytest

from broker import clock
from queue_manager.spec_records import QueueDefinition
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_policy


def test_who_looks_from_time_to_time_looks_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    for now_s, to_half_s, to_second_s in ((10.3, 0.2, 0.7), (10.5, 0.5, 0.5), (11.0, 0.5, 1.0)):
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda now_s=now_s: now_s))
        assert clock.until_beat_s(500) == pytest.approx(to_half_s)
        assert clock.until_beat_s(1000) == pytest.approx(to_second_s)


def test_manager_has_to_commit_only_while_something_is_to_be_written() -> None:
    manager = make_manager()
    assert not manager.has_to_commit()
    manager.queues.declare(QueueDefinition("jobs", durable=True, policy=make_policy()), NOW_MS)
    assert manager.has_to_commit()
    commit = manager.seal(NOW_MS)
    assert commit is not None
    manager.committed(commit)
    assert not manager.has_to_commit()
