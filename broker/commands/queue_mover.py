"""Moving what waits in one queue of another broker: consumed there, published here, and acknowledged there
once it is confirmed here. An end in between leaves a message twice, never none.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pamqp import base, commands

from broker.commands.bench_clients import CHANNEL, AmqpClient, ClientError
from broker.links.relay import STREAM_OFFSET, Parcel, Relay, encode_acks
from config import limits
from protocols.amqp091.client import Frame, encode_publish
from protocols.amqp091.methods import encode_method, unchecked

STREAM: Final = "stream"
EXCHANGE: Final = "sluicemq-migrate"
"""A fanout exchange with one queue bound: so messages keep their routing keys, and CC leads nowhere else."""


class MoveStopped(Exception):
    """The queue is left as it is from here on, for this reason."""


@dataclass
class Account:
    """What became of a queue."""

    vhost: str
    queue: str
    kind: str
    moved: int = 0
    left: int | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """How many messages were refused here, by the reason."""
    stopped: str = ""
    """Why no more was moved."""
    offset: int = -1
    """Of a stream: up to which one it is here."""


class QueueMover:
    """Moves one queue from `source` to `target`, connections to the same virtual host of both brokers.

    `progress` is called now and then, once what was moved is acknowledged.
    """

    def __init__(
        self, source: AmqpClient, target: AmqpClient, account: Account, progress: Callable[[Account], None]
    ) -> None:
        self._source = source
        self._target = target
        self._account = account
        self._progress = progress
        self._is_stream = account.kind == STREAM
        self._relay = Relay(_seal, is_stream=self._is_stream)
        self._sent_count = 0
        self._held: list[int] = []  # refused: to be given back in the end
        self._skipped: set[int] = set()  # refused, of a stream

    def move(self) -> None:
        """Move until nothing more comes. Raises ClientError where a broker is lost or refuses, MoveStopped
        where messages cannot be taken here.
        """
        self._open_target()
        self._begin()
        idle_s = 0.0
        has_been_empty = False  # what is delivered and not here yet counts as gone: look twice
        while idle_s < limits.MIGRATE_IDLE_S:
            if self._step():
                idle_s, has_been_empty = 0.0, False
            elif self._relay.unconfirmed:
                self._wait_for_confirms()
            elif self._is_stream or self._waiting():
                idle_s += limits.MIGRATE_LOOK_S
            elif has_been_empty:
                break
            else:
                has_been_empty = True
        else:
            if not self._is_stream:
                self._account.stopped = "the other broker delivers nothing more: another consumer may have it"
        self._end()

    def _wait_for_confirms(self) -> None:
        wait_s = limits.MIGRATE_CONFIRM_S
        if not self._target.has_read and not select.select([self._target.sock], [], [], wait_s)[0]:
            raise ClientError(f"nothing was confirmed for {wait_s} s")

    def _open_target(self) -> None:
        target = self._target
        target.select_confirms()
        target.call(unchecked(commands.Exchange.Delete, exchange=EXCHANGE), commands.Exchange.DeleteOk)
        declare = unchecked(commands.Exchange.Declare, exchange=EXCHANGE, exchange_type="fanout")
        target.call(declare, commands.Exchange.DeclareOk)
        bind = unchecked(commands.Queue.Bind, queue=self._account.queue, exchange=EXCHANGE)
        target.call(bind, commands.Queue.BindOk)

    def _begin(self) -> None:
        source = self._source
        source.call(commands.Basic.Qos(prefetch_count=limits.MIGRATE_WINDOW_MESSAGES), commands.Basic.QosOk)
        offset = self._account.offset
        start: int | str = offset + 1 if offset >= 0 else "first"
        arguments: dict[str, Any] = {STREAM_OFFSET: start} if self._is_stream else {}
        consume = unchecked(commands.Basic.Consume, queue=self._account.queue, arguments=arguments)
        source.call(consume, commands.Basic.ConsumeOk)
        self._take_all(source.whole_frames())

    def _waiting(self) -> int:
        """Return how many messages the source has ready."""
        declare = unchecked(commands.Queue.Declare, queue=self._account.queue, passive=True)
        before: list[Frame] = []
        answer = self._source.call(declare, commands.Queue.DeclareOk, before)
        self._take_all([*before, *self._source.whole_frames()])
        return int(answer.message_count)

    def _step(self) -> bool:
        """Pass on what comes from both; whether anything came."""
        before = self._account.moved, self._sent_count
        both = self._source, self._target
        read = [client for client in both if client.has_read]
        wait_s = 0.0 if read else limits.MIGRATE_LOOK_S
        readable = select.select([client.sock for client in both], [], [], wait_s)[0]
        if self._source in read or self._source.sock in readable:
            self._take_all(self._source.frames())
        if self._target in read or self._target.sock in readable:
            for frame in self._target.frames():
                self._on_answer(frame.method)
        self._acknowledge()
        return before != (self._account.moved, self._sent_count)

    # from the source

    def _take_all(self, frames: list[Frame]) -> None:
        """Take what came, and publish the messages that are whole."""
        for frame in frames:
            self._take(frame)
        self._publish(self._relay.take_ready())

    def _take(self, frame: Frame) -> None:
        if isinstance(frame.method, commands.Basic.Cancel):
            raise ClientError("the other broker ended the consumer")
        if isinstance(frame.method, commands.Connection.Close | commands.Channel.Close):
            raise ClientError(f"the other broker refused: {frame.method.reply_text}")
        self._relay.take(frame)

    # to the target

    def _publish(self, parcels: list[Parcel]) -> None:
        self._sent_count += len(parcels)
        self._target.send(self._relay.publish(parcels))

    def _on_answer(self, method: base.Frame | None) -> None:
        if isinstance(method, commands.Basic.Ack | commands.Basic.Nack):
            for parcel in self._relay.settle(method):
                self._hold(parcel, "the queue here takes no more")
        elif isinstance(method, commands.Basic.Return):
            raise MoveStopped("the queue is not here any more")
        elif isinstance(method, commands.Channel.Close):
            self._single_out(method)
        elif isinstance(method, commands.Connection.Close):
            raise ClientError(f"the broker refused: {method.reply_text}")

    def _single_out(self, why: commands.Channel.Close) -> None:
        """Publish again what is not confirmed, one after the other: one of them was refused."""
        parcels = self._relay.publish_anew()
        self._reopen_target()
        for parcel in parcels:
            self._publish([parcel])
            while self._relay.unconfirmed:
                method = self._target.next_frame().method
                if isinstance(method, commands.Channel.Close):
                    self._relay.publish_anew()
                    self._reopen_target()
                    self._hold(parcel, method.reply_text)
                else:
                    self._on_answer(method)

    def _reopen_target(self) -> None:
        self._target.reopen()
        self._target.select_confirms()

    def _hold(self, parcel: Parcel, why: str) -> None:
        """Keep a message from being acknowledged: it stays where it was."""
        refused = self._account.refused
        refused[why] = refused.get(why, 0) + 1
        if self._is_stream:  # there all stays
            self._relay.finish([parcel])
            self._skipped.add(parcel.tag)
            return
        self._held.append(parcel.tag)
        self._relay.order.remove(parcel)
        if len(self._held) >= limits.MIGRATE_REFUSED_MAX:
            raise MoveStopped(f"{len(self._held)} messages were refused")

    # back to the source

    def _acknowledge(self) -> None:
        """Acknowledge what is confirmed, up to the first that is not."""
        done = self._relay.take_done()
        if not done:
            return
        self._source.send(encode_acks(done, multiple=not self._held))  # those that are held stay
        self._account.moved += sum(parcel.tag not in self._skipped for parcel in done)
        self._account.offset = max(self._account.offset, *[parcel.offset for parcel in done])
        self._progress(self._account)

    def _end(self) -> None:
        """Give back what was refused."""
        for tag in self._held:
            self._source.send(encode_method(CHANNEL, commands.Basic.Nack(tag, False, True)))
        delete = unchecked(commands.Exchange.Delete, exchange=EXCHANGE)
        self._target.call(delete, commands.Exchange.DeleteOk)


def _seal(parcel: Parcel) -> bytes:
    return encode_publish(
        parcel.routing_key, parcel.body, parcel.properties, exchange=EXCHANGE, mandatory=True
    )
