"""broker.access.throttle: failed logins slow the next ones, within bounds."""

import asyncio
import heapq
from contextlib import AsyncExitStack

import pytest

from broker.access.credentials import LoginRefused
from broker.access.throttle import Throttle
from config import limits
from tests.waiting import turns


def fail(throttle, count, host="10.0.0.1", user="alice", now=0.0):
    for _ in range(count):
        throttle.failed(host, user, now)


def test_the_first_failures_cost_nothing_and_the_next_ever_more():
    throttle = Throttle()
    fail(throttle, limits.LOGIN_FAILURES_FREE)
    assert throttle.wait_s("10.0.0.1", "alice", 0.0) == 0
    fail(throttle, 1)
    assert throttle.wait_s("10.0.0.1", "alice", 0.0) == 0  # takes the turn that is free
    first = throttle.wait_s("10.0.0.1", "alice", 0.0)
    second = throttle.wait_s("10.0.0.1", "alice", 0.0)
    assert 0 < first < second
    fail(throttle, 20)
    throttle.wait_s("10.0.0.1", "alice", 0.0)
    assert throttle.wait_s("10.0.0.1", "alice", 0.0) is None


def test_an_address_that_tries_many_users_is_slowed():
    throttle = Throttle()
    for number in range(20):
        throttle.failed("10.0.0.1", f"user-{number}", 0.0)
    throttle.wait_s("10.0.0.1", "new", 0.0)
    assert throttle.wait_s("10.0.0.1", "new", 0.0) is None
    assert throttle.wait_s("10.0.0.2", "new", 0.0) == 0


def test_a_user_that_is_tried_from_many_addresses_is_slowed_where_it_was_tried_too_often():
    throttle = Throttle()
    for number in range(20):
        fail(throttle, limits.LOGIN_FAILURES_FREE + 1, host=f"10.0.1.{number}")
    now = 600.0  # no address is slowed by its own failures any more
    fail(throttle, 20, host="10.0.2.1", now=now)
    assert throttle.wait_s("10.0.1.1", "alice", now) == 0  # takes the turn that is free
    assert throttle.wait_s("10.0.1.2", "alice", now) == limits.LOGIN_DELAY_OF_USER_S_MAX


def test_strangers_who_try_a_user_from_many_addresses_do_not_slow_the_user_at_another():
    throttle = Throttle()
    for number in range(50):
        fail(throttle, 20, host=f"10.0.1.{number}")
    for _ in range(50):  # somebody who does not know the password yet has the first few tries, too
        assert throttle.wait_s("10.0.0.2", "alice", 0.0) == 0
    fail(throttle, limits.LOGIN_FAILURES_FREE, host="10.0.0.2")
    assert throttle.wait_s("10.0.0.2", "alice", 0.0) == 0


def test_logins_without_a_user_are_not_slowed_by_those_from_elsewhere():
    """Tokens, which come without a name beside them."""
    throttle = Throttle()
    for number in range(50):
        fail(throttle, 20, host=f"10.0.1.{number}", user="")
    fail(throttle, limits.LOGIN_FAILURES_FREE, host="10.0.0.2", user="")
    throttle.wait_s("10.0.0.2", "", 0.0)
    assert throttle.wait_s("10.0.0.2", "", 0.0) == 0


def test_names_are_kept_no_longer_than_a_user_has_them():
    throttle = Throttle()
    fail(throttle, 1, user="x" * 64_000)
    throttle.succeeded("10.0.0.1", "y" * 64_000)
    kept = [text for key in (*throttle._failures, *throttle._known) for text in key if text is not None]
    assert max(map(len, kept)) == limits.USER_NAME_BYTES_MAX


async def test_so_many_are_looked_at_together_and_the_others_have_their_turn(monkeypatch):
    throttle = Throttle()
    now_in: list[str] = []
    most = {"alice": 0, "": 0}

    async def look(user):
        async with throttle.slot("10.0.0.1", user):
            now_in.append(user)
            most["alice"] = max(most["alice"], now_in.count("alice"))
            most[""] = max(most[""], len(now_in))
            await turns()
            now_in.remove(user)

    users = ["alice"] * 100 + [f"user-{number}" for number in range(100)]
    await asyncio.gather(*map(look, users))
    assert most == {"alice": limits.LOGINS_OF_USER_AT_ONCE_MAX, "": limits.LOGINS_AT_ONCE_MAX}
    assert not throttle._slots


async def test_who_does_not_get_a_turn_in_time_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_WAIT_S_MAX", 0.01)
    throttle = Throttle()
    async with AsyncExitStack() as held:
        for _ in range(limits.LOGINS_OF_USER_AT_ONCE_MAX):
            await held.enter_async_context(throttle.slot("10.0.0.1", "alice"))
        with pytest.raises(LoginRefused, match="too many"):
            async with throttle.slot("10.0.0.1", "alice"):
                pass
        async with throttle.slot("10.0.0.1", "bob"), throttle.slot("10.0.0.2", "alice"):
            pass
    assert not throttle._slots


def test_who_has_come_in_from_there_before_is_not_slowed_by_others():
    throttle = Throttle()
    throttle.succeeded("10.0.0.1", "alice")
    fail(throttle, 50, user="bob")
    for number in range(50):
        throttle.failed(f"10.0.1.{number}", "alice", 0.0)
    assert throttle.wait_s("10.0.0.1", "alice", 0.0) == 0
    assert throttle.wait_s("10.0.0.1", "alice", 0.0) == 0


def test_failures_are_forgotten_in_time():
    throttle = Throttle()
    fail(throttle, 20)
    throttle.wait_s("10.0.0.1", "alice", 0.0)
    assert throttle.wait_s("10.0.0.1", "alice", 3600.0) == 0


def test_the_networks_of_ipv6_count_as_one_address():
    throttle = Throttle()
    for number in range(20):
        throttle.failed(f"2001:db8::{number:x}", f"user-{number}", 0.0)
    throttle.wait_s("2001:db8::99", "new", 0.0)
    assert throttle.wait_s("2001:db8::98", "new", 0.0) is None
    assert throttle.wait_s("2001:db8:0:1::1", "new", 0.0) == 0


def test_the_table_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_KEPT_MAX", 10)
    throttle = Throttle()
    for number in range(100):
        throttle.failed(f"10.0.0.{number}", f"user-{number}", 0.0)
    assert len(throttle) <= 10


@pytest.mark.parametrize(
    ("address_count", "user_count", "most"), [(1, 1, 400), (1, 1000, 400), (100, 1, 4_200)]
)
def test_an_hour_of_guessing_comes_to_as_few_attempts_as_the_documentation_says(
    address_count, user_count, most
):
    """Each address guesses again as soon as it is let."""
    throttle = Throttle()
    turns = [(0.0, f"10.0.0.{number}") for number in range(address_count)]
    guessed = 0
    while turns[0][0] < 3600:
        now, host = heapq.heappop(turns)
        user = f"user-{guessed % user_count}"
        wait_s = throttle.wait_s(host, user, now)
        if wait_s is None:
            heapq.heappush(turns, (now + 1, host))
            continue
        guessed += 1
        throttle.failed(host, user, now + wait_s)
        heapq.heappush(turns, (now + wait_s + 0.02, host))  # for the hash
    assert most / 2 < guessed <= most
