import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from queue_manager.cursor import backoff
from tests.unit.queue_manager.managers import make_policy


def waits(attempts: range, **fields: float) -> list[int]:
    policy = make_policy(**fields)  # type: ignore[arg-type]
    return [backoff.delay_ms(policy, 7, attempt) for attempt in attempts]


def test_without_a_policy_at_once() -> None:
    assert waits(range(1, 4)) == [0, 0, 0]


def test_exponential_to_the_longest() -> None:
    fields = {"retry_initial_ms": 100, "retry_max_ms": 1_000, "retry_multiplier": 2.0}
    assert waits(range(1, 7), **fields) == [100, 200, 400, 800, 1_000, 1_000]


def test_without_a_multiplier_constant() -> None:
    assert waits(range(1, 4), retry_initial_ms=100) == [100, 100, 100]


@pytest.mark.parametrize("multiplier", [1.5, 1_000.0])
def test_no_attempt_is_too_high(multiplier: float) -> None:
    high = waits(
        range(limits.ATTEMPTS_MAX, limits.ATTEMPTS_MAX + 1), retry_initial_ms=1, retry_multiplier=multiplier
    )
    assert high == [limits.DURATION_MS_MAX]


@given(st.integers(0, 1 << 60), st.integers(1, limits.ATTEMPTS_MAX))
def test_jitter_stays_within_its_fraction_and_is_repeatable(message_id: int, attempt: int) -> None:
    policy = make_policy(retry_initial_ms=1_000, retry_jitter=0.25)  # type: ignore[arg-type]
    wait_ms = backoff.delay_ms(policy, message_id, attempt)
    assert 750 <= wait_ms <= 1_250
    assert backoff.delay_ms(policy, message_id, attempt) == wait_ms


def test_jitter_spreads_messages_that_failed_together() -> None:
    policy = make_policy(retry_initial_ms=1_000, retry_jitter=1.0)  # type: ignore[arg-type]
    waits = sorted(backoff.delay_ms(policy, message_id, 1) for message_id in range(1_000))
    assert 1 <= waits[0] <= waits[-1] <= 2_000
    for tenth in range(10):
        assert abs(waits[tenth * 100] - tenth * 200) < 60
