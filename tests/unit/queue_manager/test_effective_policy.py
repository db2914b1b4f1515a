"""What a queue has by its declaration and the policies that match it."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.effective_policy import NONE, Effective, Policies, Policy, joined
from queue_manager.policy import DROP_HEAD, NOTHING, REJECT
from tests.unit.queue_manager.managers import make_manager, make_policy


def policy(settings: dict[str, Any] | None = None, **given: Any) -> Policy:
    wanted = {"vhost": "/", "name": "p", "pattern": "", "apply_to": "all", "priority": 0, "definition": {}}
    return Policy(**{**wanted, "settings": settings or {}, **given})


def test_nothing_matches_nothing():
    assert joined(make_policy(depth_max=3), {}, NONE, durable=True) == make_policy(depth_max=3)


@pytest.mark.parametrize(
    ("declared", "wanted", "operator", "held"),
    [
        (0, 5, 0, 5),
        (3, 5, 0, 3),
        (NOTHING, 5, 4, NOTHING),
        (7, 5, 4, 4),
        (0, 0, 4, 4),
        (0, NOTHING, 4, NOTHING),
    ],
)
def test_of_bounds_the_smallest_holds(declared, wanted, operator, held):
    effective = Effective(policy({"depth_max": wanted}), policy({"depth_max": operator}))
    assert joined(make_policy(depth_max=declared), {}, effective, durable=True).depth_max == held


@pytest.mark.parametrize(
    ("declared", "arguments", "settings", "held"),
    [
        ({}, {}, {"depth_max": 1}, DROP_HEAD),
        ({}, {}, {"depth_max": 1, "overflow": REJECT}, REJECT),
        ({"depth_max": 1, "overflow": REJECT}, None, {"depth_max": 2}, REJECT),  # as it was configured
        (
            {"depth_max": 1, "overflow": DROP_HEAD},
            {"x-overflow": "drop-head"},
            {"overflow": REJECT},
            DROP_HEAD,
        ),
        ({"depth_max": 1, "overflow": DROP_HEAD}, {}, {"overflow": REJECT}, REJECT),
    ],
)
def test_overflow(declared, arguments, settings, held):
    found = joined(make_policy(**declared), arguments, Effective(policy(settings), None), durable=True)
    assert found.overflow == held


@pytest.mark.parametrize(
    ("declared", "held"),
    [
        ({}, ("p", "d", False)),
        (
            {"dead_letter_exchange": "x", "dead_letter_by_key": True},
            ("x", "d", False),
        ),  # as RabbitMQ 4.3 has it
        ({"dead_letter_exchange": "x", "dead_letter": "k"}, ("x", "k", False)),
        ({"dead_letter": "other"}, ("", "other", False)),
    ],
)
def test_routing_key_of_dead_letters_is_a_setting_of_its_own(declared, held):
    settings = {"dead_letter_exchange": "p", "dead_letter": "d", "dead_letter_by_key": False}
    found = joined(make_policy(**declared), {}, Effective(policy(settings), None), durable=True)
    assert (found.dead_letter_exchange, found.dead_letter, found.dead_letter_by_key) == held


def test_a_lifetime_is_that_of_durable_or_other_queues():
    effective = Effective(policy({"unused_ms": 5}), None)
    assert joined(make_policy(), {}, effective, durable=True).unused_max_ms == 5
    assert joined(make_policy(), {}, effective, durable=False).expires_ms == 5


def test_a_stream_is_bounded_by_bytes_and_age_alone():
    effective = Effective(
        policy({"bytes_max": 9, "retention_age_ms": 8, "depth_max": 1, "dead_letter": "x"}), None
    )
    held = joined(make_policy(stream=True), {}, effective, durable=True)
    assert held == make_policy(stream=True, retention_bytes=9, retention_age_ms=8)


def test_the_first_by_name_of_the_highest_priority_holds():
    policies = Policies(make_manager().context)
    for name, priority, pattern in (("b", 2, "a"), ("a", 2, "a"), ("c", 9, "^nothing"), ("d", 1, "a")):
        policies.keep(policy(name=name, priority=priority, pattern=pattern))
    policies.keep(policy(name="e", priority=9, pattern="a", vhost="other"))
    policies.keep(policy(name="f", priority=9, pattern="a", apply_to="streams"))
    assert policies.of("xax", "classic").policy.name == "a"
    assert policies.of("x", "classic") == NONE
    policies.forget(policies.find("/", "a", is_operator=False))
    assert policies.of("xax", "classic").policy.name == "b"


def test_a_pattern_takes_no_time_that_grows_with_its_choices():
    # Python's own engine needs 2 ** 200 steps to see that this one does not match
    assert not policy(pattern="^(a+)+$").matches("a" * 200 + "b", "classic")


def test_a_pattern_may_look_ahead():
    assert policy(pattern=r"^(?!amq\.)").matches("work", "classic")
    assert not policy(pattern=r"^(?!amq\.)").matches("amq.x", "classic")
