"""One AMQP channel: delivery tags, confirms, prefetch, and whatever the client asks on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from pamqp import base

from broker.amqp import methods
from broker.amqp.delivery import AmqpConsumer
from broker.amqp.publishing import Publisher
from broker.engine.answers import Answer
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from queue_manager.consumer import Consumer, CreditPool
from queue_manager.errors import QueueManagerError
from queue_manager.model import Entry
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.amqp.frontend import AmqpFrontend

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq.amqp")


class AmqpChannel:
    """The broker's side of a channel.

    `unacked` maps delivery tags to claims in order of delivery. While something the client asked for must
    be waited for, the channel is held and what follows waits in `_held`, so that order is kept; nothing more
    is read from the client then. `_is_stalled`: it is held until the client has read what was sent.
    """

    __slots__ = (
        "_held",
        "_hold_count",
        "_is_stalled",
        "closed",
        "consumers",
        "frontend",
        "last_queue",
        "late_tags",
        "next_tag",
        "number",
        "pool",
        "prefetch",
        "publisher",
        "puller",
        "unacked",
    )

    def __init__(self, frontend: AmqpFrontend, number: int) -> None:
        self.frontend = frontend
        self.number = number
        self.closed = False
        self.consumers: dict[str, AmqpConsumer] = {}
        self.unacked: dict[int, Entry] = {}
        self.late_tags: dict[int, Consumer] = {}  # whose leases ended
        self.next_tag = 1
        self.prefetch = 0
        self.pool: CreditPool | None = None
        self.puller: dict[str, AmqpConsumer] = {}
        self.last_queue = ""
        self.publisher = Publisher(self)
        self._held: deque[Any] | None = None
        self._hold_count = 0
        self._is_stalled = False

    def handle(self, event: Any) -> None:
        """Act on one event of this channel."""
        if self.closed:
            return
        if self._held is not None:
            self._held.append(event)
            return
        try:
            if type(event) is ev.PublishRun:
                self.publisher.publish(event)
            elif type(event) is ev.SettleRun:
                self._settle(event)
            elif type(event) is ev.VariedPublishRun:
                if not self.publisher.publish_varied(event):
                    for single in event.singles():
                        self.handle(single)
            else:
                methods.perform(self, event.method)
        except QueueManagerError as error:
            class_id, method_id = _method_ids(event)
            self.fail(methods.reply_code(error), error.reason, class_id, method_id)

    def expect(
        self, answer: Answer[T], then: Callable[[Answer[T]], None], class_id: int, method_id: int
    ) -> None:
        """Go on by `then` once the answer of the core is there; what follows waits for it.

        What `then` raises closes the channel, on account of the method that these are the numbers of.
        """
        if answer.is_done:
            then(answer)
        else:
            self.hold()
            answer.then(partial(self.frontend.transport.guard, self._go_on, then, class_id, method_id))

    def _go_on(
        self, then: Callable[[Answer[T]], None], class_id: int, method_id: int, answer: Answer[T]
    ) -> None:
        if self.closed:
            return
        try:
            then(answer)
        except QueueManagerError as error:
            self.fail(methods.reply_code(error), error.reason, class_id, method_id)
        except StorageError:
            return  # the broker ends, and says so to every client
        else:
            self._release()

    def hold(self) -> None:
        """Handle nothing more before as many calls of `release`."""
        self._hold_count += 1
        if self._held is None:
            self._held = deque()
            self.frontend.transport.hold_reading()

    def reply_when_durable(self, method: base.Frame) -> None:
        """Answer with `method` once all that was done so far is durable; what follows waits for it."""
        self.hold()
        self.frontend.hub.client.commits.wait(_DurableReply(self, method), 0)

    def hold_until_read(self, event: Any) -> None:
        """Handle `event` once the client has read what was sent to it."""
        self._is_stalled = True
        self.hold()
        self.put_back(event)

    def put_back(self, event: Any) -> None:
        """Handle `event` first once the channel goes on; it is held already."""
        assert self._held is not None
        self._held.appendleft(event)

    def release(self) -> None:
        """Go on with what was held back."""
        self.frontend.transport.guard(self._release)

    def _release(self) -> None:
        if self._hold_count > 1:
            self._hold_count -= 1
            return
        waiting = self._end_hold()
        while waiting:
            self.handle(waiting.popleft())
            if self._held is not None:
                self._held.extend(waiting)
                break
        self.frontend.transport.want_flush()
        self.frontend.hub.settle_turn()

    def _end_hold(self) -> deque[Any]:
        waiting = self._held
        self._hold_count = 0
        self._is_stalled = False
        if waiting is None:
            return deque()
        self._held = None
        self.frontend.transport.release_reading()
        return waiting

    def fail(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the channel with a reply code; one log line says who and why."""
        _log.warning(
            "amqp.channel_error",
            peer=self.frontend.transport.peer,
            channel=self.number,
            code=code,
            reason=text,
        )
        self.frontend.connection.fail_channel(self.number, code, text, class_id, method_id)
        self.frontend.transport.want_flush()
        self.close()

    def end(self) -> None:
        """The client ended it: what it sent before is done, though nobody waits for its answer any more."""
        waiting = self._end_hold()
        while waiting and not self.closed:
            self.handle(waiting.popleft())
            self._end_hold()
        self.close()

    def close(self) -> None:
        """The channel is gone: consumers end, unsettled messages return."""
        if self.closed:
            return
        self.closed = True
        self._end_hold()
        consuming = self.frontend.hub.client.consuming
        now_ms = self.frontend.hub.clock.now_ms()
        entries = list(self.unacked.values())
        self.unacked.clear()
        # first nobody of this channel may take anything, then everything returns in order
        for consumer in [*self.consumers.values(), *self.puller.values()]:
            consumer.consumer.paused = True
        consuming.requeue(entries, now_ms, delay_ms=0)  # no fault of theirs
        for consumer in [*self.consumers.values(), *self.puller.values()]:
            consuming.unsubscribe(consumer.consumer, now_ms)
        self.consumers.clear()
        self.puller.clear()

    def set_paused(self, paused: bool) -> None:
        """The client reads too slowly, or caught up."""
        consuming = self.frontend.hub.client.consuming
        for consumer in self.consumers.values():
            consumer.consumer.paused = paused
            if not paused:
                consuming.wake(consumer.consumer)
        if not paused and self._is_stalled:
            self.release()

    def forget(self, consumer: Consumer, entries: list[Entry]) -> None:
        """The leases of these claims ended; settling them late is no error."""
        gone = set(map(id, entries))
        for tag in [tag for tag, entry in self.unacked.items() if id(entry) in gone]:
            del self.unacked[tag]
            self.late_tags[tag] = consumer
        while len(self.late_tags) > limits.AMQP_LATE_TAGS_MAX:
            del self.late_tags[next(iter(self.late_tags))]

    def drop_unsendable(self, tags: range) -> None:
        """Deliveries that do not fit the client's frames: their claims, if any, fail."""
        hub = self.frontend.hub
        hub.counters.drop_too_large(len(tags))
        _log.warning(
            "amqp.properties_too_large",
            peer=self.frontend.transport.peer,
            channel=self.number,
            count=len(tags),
        )
        claims = [self.unacked.pop(t) for t in tags if t in self.unacked]
        hub.client.consuming.reject(claims, hub.clock.now_ms())

    def _settle(self, event: ev.SettleRun) -> None:
        entries, unknown_tag = self._take_multiple(event) if event.multiple else self._take_single(event)
        if entries:
            consuming = self.frontend.hub.client.consuming
            now_ms = self.frontend.hub.clock.now_ms()
            if event.kind == ev.ACK:
                late = consuming.ack(entries, now_ms)
            elif event.requeue:
                late = consuming.requeue(entries, now_ms)
            else:
                late = consuming.reject(entries, now_ms)
            if late:
                self.frontend.hub.counters.settle_late(late)
        if unknown_tag is not None:
            class_id, method_id = _method_ids(event)
            self.fail(c.PRECONDITION_FAILED, f"unknown delivery tag {unknown_tag}", class_id, method_id)

    def _take_single(self, event: ev.SettleRun) -> tuple[list[Entry], int | None]:
        """The claims of the tags, up to the first that means nothing, and that one."""
        pop = self.unacked.pop
        found = [pop(tag, None) for tag in event.delivery_tags]
        if all(found):
            return found, None  # type: ignore[return-value]
        entries: list[Entry] = []
        unknown_tag: int | None = None
        for tag, entry in zip(event.delivery_tags, found, strict=True):
            if entry is None:
                if unknown_tag is None and tag in self.late_tags:
                    self.late_tags.pop(tag).came_late()
                    self.frontend.hub.counters.settle_late(1)
                elif unknown_tag is None:
                    unknown_tag = tag
            elif unknown_tag is None:
                entries.append(entry)
            else:
                self.unacked[tag] = entry  # came behind the unknown one: not settled
        return entries, unknown_tag

    def _take_multiple(self, event: ev.SettleRun) -> tuple[list[Entry], int | None]:
        """The claims of all tags up to the one given, or that one if it means nothing."""
        tag = event.delivery_tags[0]
        unacked = self.unacked
        if tag == 0:
            entries = list(unacked.values())
            unacked.clear()
            return entries, None
        if tag >= self.next_tag or (tag not in unacked and tag not in self.late_tags):
            return [], tag
        if tag in self.late_tags:
            self.late_tags[tag].came_late()
        tags = []
        for candidate in unacked:
            if candidate > tag:
                break
            tags.append(candidate)
        return [unacked.pop(candidate) for candidate in tags], None


_SETTLE_METHODS: Final = (80, 120, 90)  # basic.ack, nack, reject


def _method_ids(event: Any) -> tuple[int, int]:
    if type(event) is ev.SettleRun:
        return c.CLASS_BASIC, _SETTLE_METHODS[event.kind]
    if type(event) in (ev.PublishRun, ev.VariedPublishRun):
        return c.CLASS_BASIC, 40
    index = event.method.index
    return index >> 16, index & 0xFFFF


class _DurableReply:
    """Sends a method when its commit is durable, then lets the channel go on."""

    __slots__ = ("_channel", "_method")

    def __init__(self, channel: AmqpChannel, method: base.Frame) -> None:
        self._channel = channel
        self._method = method

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`."""
        channel = self._channel
        if not channel.closed:
            channel.frontend.connection.send_method(channel.number, self._method)
            channel.release()
