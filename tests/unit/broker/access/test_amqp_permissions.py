"""broker.amqp.connection.permissions: no method is done without its permission."""

import pytest
from pamqp import commands

from broker.access.login import Login, NotPermitted
from broker.access.rights import Grant
from broker.amqp.connection import permissions
from broker.amqp.consuming import consume
from broker.amqp.publishing import transaction
from broker.amqp.topology import exchanges, queues

FREE = {
    commands.Basic.Cancel,
    commands.Basic.Qos,
    commands.Basic.Recover,
    commands.Basic.RecoverAsync,
    commands.Channel.Flow,
    commands.Channel.FlowOk,
    commands.Confirm.Select,
    commands.Tx.Commit,
    commands.Tx.Rollback,
    commands.Tx.Select,
}
"""Methods that name nothing but the channel's own."""


def test_taking_direct_replies_needs_no_permission():
    nobody = Login("a", {"/": Grant()}, source="test").enter("/")
    permissions.check(nobody, commands.Basic.Consume(queue="amq.rabbitmq.reply-to"), "")
    permissions.check(nobody, commands.Queue.Declare(queue="amq.rabbitmq.reply-to.x", passive=True), "")
    for method in (
        commands.Basic.Consume(queue="amq.rabbitmq.reply-to-other"),
        commands.Basic.Get(queue="amq.rabbitmq.reply-to"),
        commands.Queue.Delete(queue="amq.rabbitmq.reply-to"),
    ):
        with pytest.raises(NotPermitted):
            permissions.check(nobody, method, "")


def test_every_method_has_a_rule_or_names_nothing():
    done = {*consume.METHODS, *exchanges.METHODS, *queues.METHODS, *transaction.METHODS}
    done |= {commands.Confirm.Select, commands.Channel.Flow, commands.Channel.FlowOk}
    assert done == set(permissions.RULES) | FREE
