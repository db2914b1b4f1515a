"""broker.amqp.arguments: every argument is honoured or refused by name."""

from decimal import Decimal

import pytest

from broker.amqp import arguments
from queue_manager.errors import InvalidArgument
from queue_manager.policy import DROP_HEAD, REJECT, REJECT_DLX, QueuePolicy

DEFAULT = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=1, expires_ms=5)


def policy(table, durable=True):
    return arguments.queue_policy(table, DEFAULT, durable=durable)


def test_no_arguments_are_the_default():
    assert policy({}) == DEFAULT


def test_delivery_limit_counts_redeliveries():
    assert policy({"x-delivery-limit": 3}).attempts_max == 4


def test_length_limit_that_refuses_publishes():
    asked = policy({"x-max-length": 9, "x-overflow": "reject-publish"})
    assert (asked.depth_max, asked.overflow) == (9, REJECT)


def test_length_limits_drop_the_oldest_without_more_ado():
    assert policy({"x-max-length": 9}).overflow == DROP_HEAD
    assert policy({"x-max-length-bytes": 9}).bytes_max == 9
    assert policy({"x-max-length": 9, "x-overflow": "reject-publish-dlx"}).overflow == REJECT_DLX
    assert policy({"x-overflow": "drop-head"}).overflow == REJECT


def test_message_ttl():
    assert policy({"x-message-ttl": 1 << 33}).message_ttl_ms == 1 << 33
    assert policy({"x-message-ttl": 0}).message_ttl_ms == 1


def test_message_groups():
    assert policy({"x-message-groups": "rebalance"}).message_groups == "rebalance"
    assert policy({"x-message-groups": "off"}).message_groups == ""


def test_expiry_of_ephemeral_queues():
    assert policy({"x-expires": 7}, durable=False).expires_ms == 7
    assert policy({}, durable=False).expires_ms == 0
    assert policy({"x-expires": 7}).unused_max_ms == 7
    assert policy({}).unused_max_ms == 0


@pytest.mark.parametrize(
    "table",
    [
        {"x-queue-type": "streams"},
        {"x-max-length": 0},
        {"x-max-length-bytes": "1k"},
        {"x-overflow": "drop-tail"},
        {"x-message-ttl": -1},
        {"x-message-ttl": "60000"},
        {"x-expires": 0},
        {"x-delivery-limit": -1},
        {"x-delivery-limit": True},
        {"x-delivery-limit": "3"},
        {"x-message-groups": "yes"},
        {"x-message-groups": {"a": 1}},
        {"x-something": 1},
    ],
)
def test_refused_with_the_name_of_the_argument(table):
    with pytest.raises(InvalidArgument) as refusal:
        policy(table)
    assert next(iter(table)) in refusal.value.reason


def test_consumer_arguments():
    assert arguments.consumer_arguments({}) == arguments.ConsumerArguments()
    wanted = arguments.consumer_arguments({"x-consumer-group": "g", "x-priority": -5})
    assert (wanted.group, wanted.priority) == ("g", -5)


@pytest.mark.parametrize(
    "table",
    [{"x-consumer-group": 1}, {"x-priority": "high"}, {"x-priority": 1 << 40}, {"x-no-such-thing": 2}],
)
def test_refused_consumer_arguments_are_named(table):
    with pytest.raises(InvalidArgument) as refusal:
        arguments.consumer_arguments(table)
    assert next(iter(table)) in refusal.value.reason


def test_back_off_as_the_configuration_has_it():
    asked = policy({"x-retry-initial-backoff": 500})
    assert (asked.retry_initial_ms, asked.retry_max_ms) == (500, 300_000)
    assert (asked.retry_multiplier, asked.retry_jitter) == (2.0, 0.0)
    table = {"x-retry-initial-backoff": 1, "x-retry-max-backoff": 9, "x-retry-multiplier": 3}
    asked = policy({**table, "x-retry-jitter": Decimal("0.5")})
    assert (asked.retry_max_ms, asked.retry_multiplier, asked.retry_jitter) == (9, 3.0, 0.5)
    assert policy({"x-retry-initial-backoff": 0}) == DEFAULT


def test_a_decimal_is_stored_as_a_number():
    table = {"x-retry-initial-backoff": 1, "x-retry-multiplier": Decimal("1.5")}
    assert arguments.equivalence(table) == {"x-retry-initial-backoff": 1, "x-retry-multiplier": 1.5}


def test_leases():
    asked = policy({"x-visibility-timeout": 700, "x-consumer-timeout": 800})
    assert (asked.visibility_timeout_ms, asked.consumer_timeout_ms) == (700, 800)
    assert arguments.consumer_arguments({"x-consumer-timeout": 900}).lease_ms == 900


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"x-visibility-timeout": 0}, "x-visibility-timeout must be"),
        ({"x-visibility-timeout": "5s"}, "x-visibility-timeout must be"),
        ({"x-consumer-timeout": -1}, "x-consumer-timeout must be"),
        ({"x-retry-initial-backoff": -1}, "x-retry-initial-backoff must be"),
        ({"x-retry-jitter": 0.5}, "x-retry-jitter needs x-retry-initial-backoff"),
        ({"x-retry-initial-backoff": 9, "x-retry-max-backoff": 8}, "is longer than"),
        ({"x-retry-initial-backoff": 9, "x-retry-max-backoff": 0}, "x-retry-max-backoff must be"),
        ({"x-retry-initial-backoff": 9, "x-retry-multiplier": 0.5}, "x-retry-multiplier must be"),
        ({"x-retry-initial-backoff": 9, "x-retry-multiplier": float("nan")}, "x-retry-multiplier must be"),
        ({"x-retry-initial-backoff": 9, "x-retry-jitter": True}, "x-retry-jitter must be"),
    ],
)
def test_wrong_waits_are_refused_by_name(table, reason):
    with pytest.raises(InvalidArgument, match=reason):
        policy(table)
