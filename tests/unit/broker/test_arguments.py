"""broker.amqp.consuming.consume_arguments: every argument of a consumer is honoured or refused by name."""

import pytest

from broker.amqp.consuming import consume_arguments
from config import limits
from queue_manager.errors import InvalidArgument


def test_consumer_arguments():
    assert consume_arguments.consumer_arguments({}) == consume_arguments.ConsumerArguments()
    wanted = consume_arguments.consumer_arguments({"x-consumer-group": "g", "x-priority": -5})
    assert (wanted.group, wanted.priority) == ("g", -5)
    beyond = consume_arguments.consumer_arguments({"x-priority": 1 << 40}).priority
    assert beyond == limits.CONSUMER_PRIORITY_MAX


@pytest.mark.parametrize(
    "table",
    [{"x-consumer-group": 1}, {"x-priority": "high"}, {"x-priority": True}, {"x-no-such-thing": 2}],
)
def test_refused_consumer_arguments_are_named(table):
    with pytest.raises(InvalidArgument) as refusal:
        consume_arguments.consumer_arguments(table)
    assert next(iter(table)) in refusal.value.reason
