"""broker.amqp.permissions: no method is done without its permission."""

from pamqp import commands

from broker.amqp import consuming, exchanges, permissions, queues, transaction


def test_every_method_has_a_rule_or_names_nothing():
    done = {*consuming.METHODS, *exchanges.METHODS, *queues.METHODS, *transaction.METHODS}
    done |= {commands.Confirm.Select, commands.Channel.Flow, commands.Channel.FlowOk}
    assert done == set(permissions.RULES) | permissions.FREE
