import gc

import pytest

from queue_manager.claims.claim import Bucket, Claim
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("retention_ms", [0, 60_000, -1])
def test_settled_claims_go_without_the_collector_of_cycles(no_collector, retention_ms):
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=retention_ms, bucket_size=1)
    _, sink = consume(manager, queue)
    publish(manager, 100)
    manager.dispatch(NOW_MS)
    assert manager.ack(sink.claims, NOW_MS) == 0
    sink.claims.clear()
    manager.committed(manager.seal(NOW_MS))
    alive = [type(found) for found in gc.get_objects() if type(found) in (Claim, Bucket)]
    assert alive == []
