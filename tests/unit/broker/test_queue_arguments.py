"""broker.amqp.topology.queue_arguments: every argument is honoured or refused by name."""

from dataclasses import replace
from decimal import Decimal

import pytest

from broker.amqp.consuming import consume_arguments
from broker.amqp.topology import queue_arguments
from broker.amqp.topology.bad_arguments import BadArgument
from broker.amqp.topology.declarations import queue_declaration
from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.policy import DROP_HEAD, REJECT, REJECT_DLX, QueuePolicy

DEFAULT = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=1, expires_ms=5, attempts_max=9)
STREAM = {"x-queue-type": "stream"}


def policy(table, durable=True):
    return queue_arguments.queue_policy(table, DEFAULT, durable=durable)


def test_no_arguments_are_the_default_but_for_large_messages():
    assert policy({}) == replace(DEFAULT, message_bytes_max=limits.MESSAGE_BYTES_MAX)


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
    ("table", "why"),
    [
        ({"x-queue-type": "streams"}, ": \"unsupported queue type 'streams'\""),
        ({"x-queue-type": 5}, ": {unacceptable_type,signedint}"),
        ({"x-max-length": -1}, ": {value_negative,-1}"),
        ({"x-max-length-bytes": "1k"}, ': "expected integer, got longstr"'),
        ({"x-max-length": True}, ': "expected integer, got bool"'),
        ({"x-overflow": "drop-tail"}, ": invalid_overflow"),
        ({"x-overflow": 5}, ": {unacceptable_type,signedint}"),
        ({"x-message-ttl": 315_360_000_001}, ": {value_too_large,315360000001}"),
        ({"x-expires": 0}, ": {value_zero,0}"),
        ({"x-expires": 1 << 40}, ": {value_too_large,1099511627776}"),
        ({"x-max-priority": 256}, ": {max_value_exceeded,256}"),
        ({"x-single-active-consumer": "yes"}, ": {unacceptable_type,longstr}"),
        ({"x-dead-letter-routing-key": "a"}, ": routing_key_but_no_dlx_defined"),
        ({"x-dead-letter-routing-key": 5, "x-dead-letter-exchange": ""}, ": {unacceptable_type,signedint}"),
        ({"x-dead-letter-strategy": "perhaps"}, ": invalid_dlx_strategy"),
        ({"x-queue-mode": "eager"}, ": \"unsupported queue mode 'eager'\""),
        ({"x-queue-version": 3}, ": \"unsupported queue version '3'\""),
        ({"x-quorum-initial-group-size": 0}, ": {value_zero,0}"),
        ({"x-queue-leader-locator": "here"}, ": invalid_queue_locator_arg"),
        ({"x-filter-field-names": 5}, ": {unacceptable_type,signedint}"),
        ({"x-delivery-limit": True}, ': "expected integer, got bool"'),
        ({"x-message-groups": {"a": 1}}, ": 'off', 'sticky' or 'rebalance', not {'a': 1}"),
        ({"x-max-age": "1h"}, " of queue type rabbit_classic_queue"),
        ({"x-something": 1}, ": not supported"),
        (STREAM | {"x-expires": 5}, " of queue type rabbit_stream_queue"),
        (STREAM | {"x-dead-letter-exchange": ""}, " of queue type rabbit_stream_queue"),
        (STREAM | {"x-delivery-limit": 3}, " of queue type rabbit_stream_queue"),
        (STREAM | {"x-retry-jitter": 3}, " of queue type rabbit_stream_queue"),
        (STREAM | {"x-max-age": "7X"}, ": invalid_max_age"),
        (STREAM | {"x-max-age": "0s"}, ": invalid_max_age"),
        (STREAM | {"x-max-age": 1.5}, ": {unacceptable_type,double}"),
        (STREAM | {"x-stream-max-segment-size-bytes": 0}, ": {value_zero,0}"),
    ],
)
def test_refused_by_name_and_with_the_reason(table, why):
    with pytest.raises(BadArgument) as refused:
        policy(table)
    name = next(name for name in table if name != "x-queue-type" or len(table) == 1)
    assert refused.value.told("q", "/") == f"invalid arg '{name}' for queue 'q' in vhost '/'{why}"


def test_an_exchange_for_dead_letters_is_a_text():
    with pytest.raises(BadArgument) as refused:
        policy({"x-dead-letter-exchange": 5})
    told = "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    assert refused.value.told("q", "/") == told


@pytest.mark.parametrize(
    ("arguments_of", "options", "told"),
    [
        ({}, {"durable": False}, ""),
        ({"x-queue-type": "quorum"}, {}, ""),
        (
            {"x-queue-type": "quorum"},
            {"name": ""},
            "Cannot declare a server-named queue for type rabbit_quorum_queue",
        ),
        (STREAM, {"durable": False}, "invalid property 'non-durable' for queue 'q' in vhost '/'"),
        (STREAM, {"exclusive": True}, "invalid property 'exclusive-owner' for queue 'q' in vhost '/'"),
        (
            STREAM,
            {"auto_delete": True, "durable": False},
            "invalid property 'auto-delete' for queue 'q' in vhost '/'",
        ),
    ],
)
def test_quorum_queues_and_streams_are_durable_and_have_names(arguments_of, options, told):
    asked = {"name": "q", "durable": True, "exclusive": False, "auto_delete": False, **options}
    if told:
        with pytest.raises(InvalidArgument, match=told):
            queue_arguments.check_kind(arguments_of, vhost="/", **asked)
    else:
        queue_arguments.check_kind(arguments_of, vhost="/", **asked)


def test_an_undefined_type_is_the_default_one():
    for default in ("classic", "quorum"):
        asked, without = (
            queue_declaration("q", table, DEFAULT, durable=True, auto_delete=False, default_type=default)
            for table in ({"x-queue-type": "undefined"}, {})
        )
        assert asked == without


def test_dead_letters():
    asked = policy({"x-dead-letter-exchange": "dlx"})
    assert (asked.dead_letter_exchange, asked.dead_letter, asked.dead_letter_by_key) == ("dlx", "", True)
    asked = policy({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    assert (asked.dead_letter_exchange, asked.dead_letter, asked.dead_letter_by_key) == ("", "dead", False)


TAKEN = {
    "x-queue-type": "quorum",
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-quorum-initial-group-size": 3,
    "x-quorum-target-group-size": 3,
    "x-consumer-disconnected-timeout": 1_000,
    "x-initial-cluster-size": 3,
    "x-queue-leader-locator": "balanced",
    "x-queue-master-locator": "min-masters",
    "x-max-in-memory-length": 0,
    "x-max-in-memory-bytes": 5,
    "x-filter-enabled": True,
    "x-filter-field-names": ["a"],
    "x-ha-policy": "all",
}


def test_what_asks_for_nothing_that_is_there_is_taken_and_reported():
    assert policy(TAKEN) == policy({"x-queue-type": "quorum"})
    assert queue_arguments.equivalence(TAKEN) == {}
    assert queue_arguments.reported({**TAKEN, "x-expires": 5}) == TAKEN


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ({}, "stream", True),
        ({}, "expires_ms", 0),
        ({}, "attempts_max", 0),
        ({"x-max-age": "7D"}, "retention_age_ms", 604_800_000),
        ({"x-max-age": "36h"}, "retention_age_ms", 129_600_000),
        ({"x-max-age": 60}, "retention_age_ms", 60_000),
        ({"x-max-length": 10}, "retention_count", 10),
        ({"x-max-length-bytes": 1 << 30}, "retention_bytes", 1 << 30),
        ({"x-single-active-consumer": True}, "single_active", True),
        ({"x-stream-max-segment-size-bytes": 500_000_000}, "retention_bytes", 0),
    ],
)
def test_streams(table, field, value):
    assert getattr(policy(STREAM | table), field) == value


def test_a_delivery_limit_of_minus_one_is_none():
    assert policy({"x-delivery-limit": -1}).attempts_max == 0


def test_back_off_as_the_configuration_has_it():
    asked = policy({"x-retry-initial-backoff": 500})
    assert (asked.retry_initial_ms, asked.retry_max_ms) == (500, 300_000)
    assert (asked.retry_multiplier, asked.retry_jitter) == (2.0, 0.0)
    table = {"x-retry-initial-backoff": 1, "x-retry-max-backoff": 9, "x-retry-multiplier": 3}
    asked = policy({**table, "x-retry-jitter": Decimal("0.5")})
    assert (asked.retry_max_ms, asked.retry_multiplier, asked.retry_jitter) == (9, 3.0, 0.5)
    assert policy({"x-retry-initial-backoff": 0}) == policy({})


def test_a_decimal_is_stored_as_a_number():
    table = {"x-retry-initial-backoff": 1, "x-retry-multiplier": Decimal("1.5")}
    assert queue_arguments.equivalence(table) == {"x-retry-initial-backoff": 1, "x-retry-multiplier": 1.5}


def test_leases():
    asked = policy({"x-visibility-timeout": 700, "x-consumer-timeout": 800})
    assert (asked.visibility_timeout_ms, asked.consumer_timeout_ms) == (700, 800)
    assert consume_arguments.consumer_arguments({"x-consumer-timeout": 900}).lease_ms == 900


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
