"""One AMQP channel: what the client asks on it, handed to the part that does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog
from pamqp import commands

from broker.amqp.connection import permissions
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.amqp_client import AmqpClient
from broker.amqp.connection.errors import channel_error, connection_error, refusal
from broker.amqp.connection.held_events import HeldEvents, Resumption
from broker.amqp.consuming import consume
from broker.amqp.consuming.consume import Consuming
from broker.amqp.publishing import transaction
from broker.amqp.publishing.direct_replies import DirectReplies
from broker.amqp.publishing.publish import Publisher
from broker.amqp.publishing.transaction import Transaction
from broker.amqp.settling.confirms import Confirms
from broker.amqp.settling.unacked import Unacked
from broker.amqp.topology import exchanges, queues
from broker.amqp.topology.exchanges import Exchanges
from broker.amqp.topology.queues import Queues
from broker.clients.client_consumers import Consumers
from broker.connections.connection_views import ChannelView
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.errors import ProtocolError
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.amqp")

_TRANSACTED: Final = (ev.PublishRun, ev.SettleRun, ev.VariedPublishRun)

FailConnection = Callable[[int, str, int, int], None]
"""Closes the connection with a reply code, a text, and the class and method at fault."""


class ChannelFrontend:
    """Answers a client on one channel."""

    __slots__ = (
        "_channel",
        "_confirms",
        "_consuming",
        "_exchanges",
        "_fail_connection",
        "_held",
        "_publisher",
        "_queues",
        "_replies",
        "_transaction",
        "unacked",
    )

    def __init__(self, client: AmqpClient, number: int, fail_connection: FailConnection) -> None:
        self._channel = AmqpChannel(client, number)
        self._fail_connection = fail_connection
        self._held = HeldEvents(self._channel, self.handle)
        self.unacked = Unacked(self._channel)
        self._confirms = Confirms(self._channel)
        self._replies = DirectReplies(self._channel, self.unacked)
        consumers = Consumers(self._channel.hub, self._channel.transport)
        self._publisher = Publisher(
            self._channel, self._held, self._confirms, self.unacked, self._replies, consumers
        )
        self._transaction = Transaction(
            self._channel, self._held, self._confirms, self._publisher, self.unacked
        )
        self._queues = Queues(self._channel, self._held)
        self._exchanges = Exchanges(self._channel, self._held)
        self._consuming = Consuming(self._channel, self._held, self.unacked, self._replies, consumers)

    def handle(self, event: Any) -> None:
        """Act on one event of this channel."""
        if self._channel.closed:
            return
        if self._held.is_holding:
            self._held.add(event)
            return
        if self._held.has_promised and not self._may_go_on(event):
            self._held.hold_behind_replies(event)
            return
        self._act(event)

    def _may_go_on(self, event: Any) -> bool:
        """Return whether an event may be acted on although answers are promised: its own comes behind
        them.
        """
        kind = type(event)
        if kind is Resumption:
            return True
        return (
            kind is ev.MethodReceived and type(event.method) in _ANSWERED_IN_ORDER and self._held.has_room()
        )

    def _act(self, event: Any) -> None:
        kind = type(event)
        try:
            if self._transaction.is_on and kind in _TRANSACTED:
                self._transact(event)
            elif kind is ev.PublishRun:
                self._publisher.publish(event)
            elif kind is ev.SettleRun:
                self.unacked.settle(event)
            elif kind is ev.VariedPublishRun:
                if not self._publisher.publish_varied(event):
                    for single in event.singles():
                        self.handle(single)
            elif kind is Resumption:
                event.act()
            else:
                self._perform(event.method)
        except QueueManagerError as error:
            self._fail(refusal(error, self._channel.client.vhost), event)
        except ProtocolError as error:
            self._fail(error, event)
        except StorageError:
            self._held.hold()  # for ever: the broker ends, and says so to every client

    def describe(self) -> ChannelView:
        """Return what there is to tell of the channel."""
        return self._consuming.view(
            len(self.unacked), confirms=self._confirms.is_on, transactional=self._transaction.is_on
        )

    def end(self) -> None:
        """End for the client: what it sent before is done, though it waits for no answers any more."""
        self._held.let_off()
        waiting = self._held.end()
        while waiting and not self._channel.closed:
            self.handle(waiting.popleft())
            self._held.end()
        self.close()

    def close(self) -> None:
        """End the channel: consumers end, unsettled messages return."""
        if not self._channel.closed:
            self._channel.close()
            self._held.end()
            self._transaction.end()
            self._replies.end()
            self._consuming.close()

    def set_paused(self, paused: bool) -> None:
        """Note that the client reads too slowly, or caught up."""
        if paused:
            self._consuming.pause()
        else:
            self._consuming.resume()
            self._held.caught_up()

    def _transact(self, event: Any) -> None:
        """Keep what is published or settled for tx.commit."""
        if type(event) is ev.SettleRun:
            self._transaction.settle(event)
        elif type(event) is ev.PublishRun:
            self._transaction.publish(event)
        elif not self._transaction.publish_varied(event):
            for single in event.singles():
                self.handle(single)

    def _perform(self, method: Any) -> None:
        """Do what a method asks but publish and settle."""
        kind = type(method)
        permissions.check(self._channel.client.identity, method, self._channel.last_queue)
        if (found := _METHODS.get(kind)) is not None:
            part, act = found
            act(getattr(self, part), method)
        elif kind is commands.Confirm.Select:
            self._select_confirms(method)
        elif kind is commands.Channel.Flow:
            if not method.active:
                raise connection_error(c.NOT_IMPLEMENTED, "active=false")
            self._channel.send(commands.Channel.FlowOk(True))
        elif kind is commands.Channel.FlowOk:
            pass  # an answer to what is never asked
        else:
            raise connection_error(c.NOT_IMPLEMENTED, f"{method.name} is not supported by this version")

    def _select_confirms(self, method: commands.Confirm.Select) -> None:
        if self._transaction.is_on:
            raise channel_error(c.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self._confirms.select()
        if not method.nowait:
            self._channel.send(commands.Confirm.SelectOk())

    def _fail(self, error: ProtocolError, event: Any) -> None:
        """Close the channel, or the connection, once what is promised was told; one log line says who and
        why.
        """
        if self._held.has_promised:
            self._held.hold_behind_replies(event)  # what was refused is refused again then
            return
        class_id, method_id = _method_ids(event)
        if error.is_connection_error:
            self._fail_connection(error.code, error.reason, class_id, method_id)
            return
        channel = self._channel
        channel.connection.fail_channel(channel.number, error.code, error.reason, class_id, method_id)
        channel.transport.want_flush()
        self.failed(error.code, error.reason)

    def failed(self, code: int, reason: str) -> None:
        """Close, since the channel was closed to the client over an error of its own."""
        channel = self._channel
        _log.warning(
            "amqp.channel_error",
            peer=channel.transport.peer,
            channel=channel.number,
            code=code,
            reason=reason,
        )
        self.close()


_ANSWERED_IN_ORDER: Final = frozenset((*queues.METHODS, *exchanges.METHODS))
"""Methods that may be acted on while others before them are not durable yet: they share a commit."""

_METHODS: Final[dict[type, tuple[str, Callable[[Any, Any], None]]]] = {
    kind: (part, act)
    for part, acts in (
        ("_queues", queues.METHODS),
        ("_exchanges", exchanges.METHODS),
        ("_consuming", consume.METHODS),
        ("_transaction", transaction.METHODS),
    )
    for kind, act in acts.items()
}
"""The part of the channel that acts on a method, and the call of that part."""

_SETTLE_METHODS: Final = (80, 120, 90)  # basic.ack, nack, reject


def _method_ids(event: Any) -> tuple[int, int]:
    if type(event) is ev.SettleRun:
        return c.CLASS_BASIC, _SETTLE_METHODS[event.kind]
    if type(event) in (ev.PublishRun, ev.VariedPublishRun):
        return c.CLASS_BASIC, 40
    index = event.index if type(event) is Resumption else event.method.index
    return index >> 16, index & 0xFFFF
