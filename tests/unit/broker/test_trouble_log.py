from structlog.testing import capture_logs

from broker.logs.trouble_log import TroubleLog
from storage.errors import StoreUnavailable
from tests.memory_store import MemoryStore


class TroubledStore(MemoryStore):
    trouble = None


def test_trouble_is_told_when_it_begins_while_it_lasts_and_when_it_is_over():
    store = TroubledStore()
    told: list[str] = []
    log = TroubleLog(store, told.append)
    with capture_logs() as logged:
        log.look(0)
        store.trouble = StoreUnavailable("no disk")  # type: ignore[assignment]
        for now_ms in (500, 1_000, 10_000, 10_500, 11_000):
            log.look(now_ms)
        store.trouble = None
        log.look(11_500)
        log.look(12_000)
        store.trouble = StoreUnavailable("no disk again")  # type: ignore[assignment]
        log.look(12_500)
    assert [(line["event"], line.get("reason")) for line in logged] == [
        ("storage.trouble", "no disk"),
        ("storage.trouble", "no disk"),
        ("storage.trouble_over", None),
        ("storage.trouble", "no disk again"),
    ]
    assert told == ["no disk", "", "no disk again"]
