import asyncio

import pytest

from broker.clock import Clock
from broker.engine.store_retry import StoreRetry
from config import limits
from storage.errors import StorageError, StoreFull, StoreUnavailable


class Slow(Clock):
    """Each look at it is ten seconds later."""

    def __init__(self) -> None:
        self._at = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        self._at += 10
        return self._at


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreFull])
async def test_giving_up_tells_how_long_it_was_tried(monkeypatch, kind):
    monkeypatch.setattr(limits, "STORE_RETRY_DELAY_MS_MIN", 1)
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise kind("no answer in 20 s")

    with pytest.raises(kind) as failure:
        await StoreRetry(Slow()).take(fail)
    assert failure.value.reason == "no answer in 20 s, tried for 60 s"
    assert tries == 6


async def test_trouble_that_is_final_is_not_tried_again():
    async def fail() -> None:
        raise StorageError("broken")

    with pytest.raises(StorageError, match="^broken$"):
        await asyncio.wait_for(StoreRetry(Clock()).take(fail), 1)
