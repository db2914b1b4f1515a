import gc

import pytest

from queue_manager.claims.claim import Bucket, Claim
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def claims_alive() -> list[object]:
    return [found for found in gc.get_objects() if type(found) in (Claim, Bucket)]


@pytest.fixture
def earlier():
    """The claims that tests before this one still hold; the collector of cycles rests meanwhile."""
    gc.collect()
    gc.disable()
    yield claims_alive()
    gc.enable()


@pytest.mark.parametrize("retention_ms", [0, 60_000, -1])
def test_settled_claims_go_without_the_collector_of_cycles(earlier, retention_ms):
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=retention_ms, bucket_size=1)
    _, sink = consume(manager, queue)
    publish(manager, 100)
    manager.dispatch(NOW_MS)
    assert manager.ack(sink.claims, NOW_MS) == 0
    sink.claims.clear()
    manager.committed(manager.seal(NOW_MS))
    known = {id(claim) for claim in earlier}  # `earlier` keeps them, so no new one has such an id
    assert [type(claim) for claim in claims_alive() if id(claim) not in known] == []
