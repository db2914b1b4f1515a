"""What each AMQP method does: queue.*, basic.* but publish and settle, confirm.*, channel.flow."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pamqp import base, commands

from broker.amqp import arguments, stream_arguments
from broker.amqp.delivery import AmqpConsumer
from broker.amqp.stream_delivery import AmqpStreamConsumer
from broker.engine.answers import Answer
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091.events import MethodReceived
from protocols.amqp091.methods import QueueDeclareOk
from protocols.amqp091.names import is_reserved_name
from queue_manager import address
from queue_manager.api import Dropped, QueueDeclaration, QueueStatus
from queue_manager.consumer import UNLIMITED, CreditPool
from queue_manager.errors import (
    AccessRefused,
    InvalidAddress,
    LimitReached,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import QueuePolicy
from queue_manager.queue import Queue

if TYPE_CHECKING:
    from broker.amqp.channel import AmqpChannel

M = TypeVar("M", bound=base.Frame)
T = TypeVar("T")

_CODES: Final[dict[type[QueueManagerError], int]] = {
    QueueNotFound: c.NOT_FOUND,
    ResourceLocked: c.RESOURCE_LOCKED,
    AccessRefused: c.ACCESS_REFUSED,
    LimitReached: c.RESOURCE_ERROR,
    InvalidAddress: c.PRECONDITION_FAILED,
}


def reply_code(error: QueueManagerError) -> int:
    """The AMQP reply code of a refusal."""
    return _CODES.get(type(error), c.PRECONDITION_FAILED)


def perform(channel: AmqpChannel, method: Any) -> None:
    """Do what a method asks; raises QueueManagerError for what is refused with a channel error."""
    handler = _HANDLERS.get(type(method))
    if handler is None:
        name = method.name
        channel.frontend.fail(
            c.NOT_IMPLEMENTED,
            f"{name} is not supported by this version",
            method.index >> 16,
            method.index & 0xFFFF,
        )
        return
    handler(channel, method)


# queues


def _declare(channel: AmqpChannel, method: commands.Queue.Declare) -> None:
    frontend = channel.frontend
    queues = frontend.hub.client.queues
    name = method.queue
    if method.passive:
        answer = queues.look(name or channel.last_queue, frontend.caller, is_use=True)  # as with RabbitMQ
    else:
        is_reserved = is_reserved_name(name)
        if not name:
            name = f"amq.gen-{secrets.token_urlsafe(16)}"
        durable = method.durable and not method.exclusive and not method.auto_delete
        table = method.arguments or {}
        declaration = QueueDeclaration(
            name=name,
            durable=durable,
            policy=_policy(table, frontend.hub.default_policy, durable=durable),
            arguments={
                **arguments.equivalence(table),
                **({"durable": method.durable} if method.durable != durable else {}),
            },
            auto_delete=method.auto_delete,
            exclusive=method.exclusive,
        )
        answer = queues.declare(declaration, frontend.caller, create=not is_reserved)
    _expect(channel, method, answer, _declared)


def _declared(channel: AmqpChannel, method: commands.Queue.Declare, answer: Answer[QueueStatus]) -> None:
    try:
        queue = answer.result()
    except QueueNotFound:
        if method.passive:
            raise
        reason = f"queue name {method.queue!r} contains the reserved prefix 'amq.'"
        raise AccessRefused(reason) from None
    channel.last_queue = queue.name
    if not method.nowait:
        told = QueueDeclareOk(queue.name, min(queue.ready, 0xFFFFFFFF), queue.consumers)
        _answer(channel, told, durable=queue.durable and queue.is_new)


def _policy(table: dict[str, Any], default: QueuePolicy, *, durable: bool) -> QueuePolicy:
    if stream_arguments.is_stream(table):
        return stream_arguments.stream_policy(table, default, plain=durable)
    return arguments.queue_policy(table, default, durable=durable)


def _purge(channel: AmqpChannel, method: commands.Queue.Purge) -> None:
    frontend = channel.frontend
    name = method.queue or channel.last_queue
    _expect(channel, method, frontend.hub.client.queues.purge(name, frontend.caller), _purged)


def _purged(channel: AmqpChannel, method: commands.Queue.Purge, answer: Answer[Dropped]) -> None:
    dropped = answer.result()
    if not method.nowait:
        told = commands.Queue.PurgeOk(min(dropped.count, 0xFFFFFFFF))
        _answer(channel, told, durable=dropped.durable)


def _delete(channel: AmqpChannel, method: commands.Queue.Delete) -> None:
    frontend = channel.frontend
    deleted = frontend.hub.client.queues.delete(
        method.queue or channel.last_queue,
        frontend.caller,
        if_unused=method.if_unused,
        if_empty=method.if_empty,
    )
    _expect(channel, method, deleted, _deleted)


def _deleted(channel: AmqpChannel, method: commands.Queue.Delete, answer: Answer[Dropped]) -> None:
    try:
        dropped = answer.result()
    except QueueNotFound:  # deleting what is not there is no error, as everywhere since RabbitMQ 3.2
        dropped = Dropped(0, durable=False)
    if not method.nowait:
        told = commands.Queue.DeleteOk(min(dropped.count, 0xFFFFFFFF))
        _answer(channel, told, durable=dropped.durable)


def _expect(
    channel: AmqpChannel,
    method: M,
    answer: Answer[T],
    then: Callable[[AmqpChannel, M, Answer[T]], None],
) -> None:
    channel.expect(answer, partial(then, channel, method), method.index >> 16, method.index & 0xFFFF)


def _answer(channel: AmqpChannel, method: Any, *, durable: bool) -> None:
    """Answer now, or (`durable`) when what was done is durable: an answer is a promise."""
    if durable:
        channel.reply_when_durable(method)
    else:
        channel.frontend.connection.send_method(channel.number, method)


# consuming


def _qos(channel: AmqpChannel, method: commands.Basic.Qos) -> None:
    if method.prefetch_size:
        channel.frontend.fail(c.NOT_IMPLEMENTED, "prefetch_size is not supported", c.CLASS_BASIC, 10)
        return
    if method.global_:
        credit = method.prefetch_count or UNLIMITED
        if channel.pool is None:
            channel.pool = CreditPool(credit)
            for consumer in channel.consumers.values():
                channel.pool.adopt(consumer.consumer)
        else:
            channel.pool.credit_max = credit
        for consumer in channel.consumers.values():
            channel.frontend.hub.client.consuming.wake(consumer.consumer)
    else:
        channel.prefetch = method.prefetch_count
    channel.frontend.connection.send_method(channel.number, commands.Basic.QosOk())


def _source(channel: AmqpChannel, name: str) -> tuple[Queue, str]:
    """The queue and pattern a consume or get names: a queue's name, or a `$queue/...` address."""
    frontend = channel.frontend
    consuming = frontend.hub.client.consuming
    name = name or channel.last_queue
    if not address.is_queue_topic(name):
        return consuming.find(name, frontend.caller), MATCH_ALL
    parsed = address.parse(name)
    if parsed.verb:
        raise InvalidAddress(f"{name!r} is a control topic: there is nothing to consume")
    queue = consuming.find_or_create(parsed.name, frontend.caller, frontend.hub.clock.now_ms())
    return queue, parsed.rest or MATCH_ALL


def _lease_ms(channel: AmqpChannel, queue: Queue) -> int:
    return queue.policy.consumer_timeout_ms or channel.frontend.hub.settings.queue_manager.consumer_timeout_ms


def _consume(channel: AmqpChannel, method: commands.Basic.Consume) -> None:
    frontend = channel.frontend
    tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
    if tag in channel.consumers:
        frontend.fail(c.NOT_ALLOWED, f"consumer tag {tag!r} is in use on this channel", c.CLASS_BASIC, 20)
        return
    if method.no_local:
        frontend.fail(c.NOT_IMPLEMENTED, "no-local is not supported", c.CLASS_BASIC, 20)
        return
    if len(channel.consumers) >= limits.AMQP_CONSUMERS_PER_CHANNEL_MAX:
        raise LimitReached(f"a channel has at most {limits.AMQP_CONSUMERS_PER_CHANNEL_MAX} consumers")
    wanted = arguments.consumer_arguments(method.arguments or {})
    queue, pattern = _source(channel, method.queue)
    of_stream: dict[str, Any] = {}
    if queue.policy.stream:
        sink: AmqpConsumer = AmqpStreamConsumer(channel, tag)
        of_stream = {
            "start": stream_arguments.stream_start(wanted.stream_offset, frontend.hub.clock.now_ms()),
            "auto_commit": stream_arguments.auto_commit(wanted.auto_commit),
        }
    else:
        wanted.check_no_stream(queue.name)
        sink = AmqpConsumer(channel, tag)
    sink.consumer = frontend.hub.client.consuming.subscribe(
        queue,
        wanted.group,
        pattern,
        sink,
        consumer_id=f"{frontend.transport.peer}/{channel.number}/{tag}",
        credit_max=channel.prefetch or UNLIMITED,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        lease_ms=wanted.lease_ms or _lease_ms(channel, queue),
        pool=None if method.no_ack else channel.pool,
        priority=wanted.priority,
        **wanted.filters.options(),
        **of_stream,
    )
    sink.consumer.paused = frontend.paused
    channel.consumers[tag] = sink
    if not method.nowait:
        frontend.connection.send_method(channel.number, commands.Basic.ConsumeOk(tag))


def _cancel(channel: AmqpChannel, method: commands.Basic.Cancel) -> None:
    frontend = channel.frontend
    sink = channel.consumers.pop(method.consumer_tag or "", None)
    if sink is not None:
        frontend.hub.client.consuming.unsubscribe(
            sink.consumer, frontend.hub.clock.now_ms(), keep_claims=True
        )
    if not method.nowait:
        frontend.connection.send_method(channel.number, commands.Basic.CancelOk(method.consumer_tag))


def _get(channel: AmqpChannel, method: commands.Basic.Get) -> None:
    if channel.frontend.paused:
        channel.hold_until_read(MethodReceived(channel.number, method))
        return
    queue, pattern = _source(channel, method.queue)
    if pattern != MATCH_ALL:
        raise InvalidAddress("basic.get takes a whole queue, not a pattern")
    sink = channel.puller.get(queue.name)
    consuming = channel.frontend.hub.client.consuming
    if sink is None or sink.consumer.group.queue is not queue:
        for name in [name for name, old in channel.puller.items() if old.consumer.group.queue.deleted]:
            del channel.puller[name]
        sink = AmqpConsumer(channel, "")
        sink.consumer = consuming.puller(
            queue,
            sink,
            f"{channel.frontend.transport.peer}/{channel.number}/get",
            lease_ms=_lease_ms(channel, queue),
        )
        channel.puller[queue.name] = sink
    if not _pull(channel, sink, method.no_ack):
        channel.hold()
        _pull_later(channel, sink, method.no_ack)


def _pull(channel: AmqpChannel, sink: AmqpConsumer, no_ack: bool) -> bool:
    """Answer a basic.get; False: the message must be read back from the store first."""
    frontend = channel.frontend
    delivered = frontend.hub.client.consuming.pull(sink.consumer, no_ack, frontend.hub.clock.now_ms())
    if delivered is None:
        return False
    if not delivered:
        frontend.connection.send_method(channel.number, commands.Basic.GetEmpty())
        frontend.transport.want_flush()
    return True


def _pull_later(channel: AmqpChannel, sink: AmqpConsumer, no_ack: bool) -> None:
    def again(now_ms: int) -> None:
        channel.frontend.transport.guard(once_more)

    def once_more() -> None:
        if channel.closed:
            return
        queue = sink.consumer.group.queue
        if queue.deleted:
            channel.fail(c.NOT_FOUND, f"no queue {queue.name!r}", c.CLASS_BASIC, 70)
        elif _pull(channel, sink, no_ack):
            channel.release()
        else:
            _pull_later(channel, sink, no_ack)

    channel.frontend.hub.client.consuming.when_loaded(sink.consumer, again)


def _recover(channel: AmqpChannel, method: commands.Basic.Recover) -> None:
    if not method.requeue:
        channel.frontend.fail(
            c.NOT_IMPLEMENTED, "basic.recover without requeue is not supported", c.CLASS_BASIC, 110
        )
        return
    _requeue_all(channel)
    channel.frontend.connection.send_method(channel.number, commands.Basic.RecoverOk())


def _recover_async(channel: AmqpChannel, method: commands.Basic.RecoverAsync) -> None:
    if not method.requeue:
        channel.frontend.fail(
            c.NOT_IMPLEMENTED, "basic.recover without requeue is not supported", c.CLASS_BASIC, 100
        )
        return
    _requeue_all(channel)


def _requeue_all(channel: AmqpChannel) -> None:
    entries = list(channel.unacked.values())
    channel.unacked.clear()
    frontend = channel.frontend
    frontend.hub.client.consuming.requeue(entries, frontend.hub.clock.now_ms(), delay_ms=0)


# the rest


def _confirm_select(channel: AmqpChannel, method: commands.Confirm.Select) -> None:
    channel.publisher.confirming = True
    if not method.nowait:
        channel.frontend.connection.send_method(channel.number, commands.Confirm.SelectOk())


def _flow(channel: AmqpChannel, method: commands.Channel.Flow) -> None:
    if not method.active:
        channel.frontend.fail(
            c.NOT_IMPLEMENTED, "channel.flow active=false is not supported; use prefetch", 20, 20
        )
        return
    channel.frontend.connection.send_method(channel.number, commands.Channel.FlowOk(True))


_HANDLERS: Final[dict[type, Callable[[AmqpChannel, Any], None]]] = {
    commands.Queue.Declare: _declare,
    commands.Queue.Purge: _purge,
    commands.Queue.Delete: _delete,
    commands.Basic.Qos: _qos,
    commands.Basic.Consume: _consume,
    commands.Basic.Cancel: _cancel,
    commands.Basic.Get: _get,
    commands.Basic.Recover: _recover,
    commands.Basic.RecoverAsync: _recover_async,
    commands.Confirm.Select: _confirm_select,
    commands.Channel.Flow: _flow,
}
