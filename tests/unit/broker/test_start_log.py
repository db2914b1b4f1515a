import pytest
from structlog.testing import capture_logs

from broker.app import Broker
from broker.logs.start_log import StartLog
from config import limits
from tests.memory_store import MemoryStore
from tests.waiting import LoopClock, until_so


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(limits, "START_LOG_DELAY_MS", 50)
    monkeypatch.setattr(limits, "START_LOG_INTERVAL_MS", 100)


async def test_step_is_told_after_a_while_and_again_until_the_end():
    clock = LoopClock()
    with capture_logs() as logged:
        with StartLog() as starting:
            starting.step("opening")
            await clock.advance(0.01)
            assert logged == []
            starting.step("reading")
            await clock.advance(0.19)
        await clock.advance(0.15)
    *telling, took = logged
    assert [(line["event"], line["doing"]) for line in telling] == [("broker.starting", "reading")] * 2
    assert took["event"] == "broker.start_took"
    assert list(took["steps"]) == ["opening", "reading"]
    assert sum(took["steps"].values()) == pytest.approx(took["seconds"], abs=0.02)
    assert logged[0]["elapsed_s"] < 1


async def test_start_over_a_slow_store_says_what_it_does():
    class SlowStore(MemoryStore):
        async def scan(self, *arguments, **options):
            await until_so(lambda: "reading the queues" in [line.get("doing") for line in logged])
            return await super().scan(*arguments, **options)

    with capture_logs() as logged:
        broker = Broker()
        await broker.start(SlowStore())
        await broker.stop()


async def test_start_in_good_time_says_nothing(monkeypatch):
    monkeypatch.setattr(limits, "START_LOG_DELAY_MS", 10_000)
    with capture_logs() as logged:
        async with Broker():
            pass
    assert "broker.starting" not in [line["event"] for line in logged]
