"""Which publishes of QoS 2 a session has taken, over the end of the broker."""

from queue_manager.sessions.common import Bounds
from queue_manager.shard.commit import OnceDurable
from tests.unit.queue_manager.sessions.test_bounds import Away


def test_publish_that_was_stored_nowhere_is_known_after_a_restart_once_its_connection_ended():
    away = Away(Bounds())
    session = away.sessions.find("dev", away.clock.ms)
    session.received.note([1, 2])  # only subscribers of QoS 0 were there for them
    away.sessions.leave(session, away.clock.ms)
    away.restart()
    assert set(away.sessions.find("dev", away.clock.ms).received.packet_ids()) == {1, 2}


def test_released_publish_is_not_known_after_a_restart():
    away = Away(Bounds())
    session = away.sessions.find("dev", away.clock.ms)
    session.received.note([1, 2])
    away.sessions.leave(session, away.clock.ms)
    away.commit()
    assert session.received.complete([1], OnceDurable(lambda _: None))
    away.restart()
    assert set(away.sessions.find("dev", away.clock.ms).received.packet_ids()) == {2}
