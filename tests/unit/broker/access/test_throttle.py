"""broker.access.throttle: failed logins slow the next ones, within bounds."""

import heapq

import pytest

from broker.access.throttle import Throttle
from config import limits


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


def test_a_user_that_is_tried_from_many_addresses_is_slowed_a_little():
    throttle = Throttle()
    for number in range(20):
        throttle.failed(f"10.0.1.{number}", "alice", 0.0)
    throttle.wait_s("10.0.0.2", "alice", 0.0)
    assert throttle.wait_s("10.0.0.2", "alice", 0.0) == limits.LOGIN_DELAY_OF_USER_S_MAX


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
    ("address_count", "user_count", "most"), [(1, 1, 400), (1, 1000, 400), (100, 1, 3_700)]
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
