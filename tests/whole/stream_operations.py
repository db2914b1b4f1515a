"""The operations of readers of streams; publishing, binding and settling are as with other queues."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from pamqp import commands

from tests.whole.clients import Amqp, pump
from tests.whole.queues import Mismatch, Queue
from tests.whole.streams import Reader, Stream, StreamGroup
from tests.whole.world import OWED_TIMEOUT_S, Skip, World

LEARNER = "A7"


class StreamOperations(World):
    """`do_...` of streams; the client is an `A...`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.readers: dict[tuple[str, str], Reader] = {}

    def streams(self) -> list[Stream]:
        return [queue for queue in self.queues if isinstance(queue, Stream)]

    def do_read(
        self,
        name: str,
        q: str,
        at: str | int = "",
        group: str = "",
        prefetch: int = 0,
        no_ack: bool = False,
    ) -> None:
        """Consume from a stream; `at`: `first`, `last`, `next` or an offset."""
        self.need_amqp(name)
        stream = self.need_queue(q)
        if not isinstance(stream, Stream):
            raise Skip
        self.learn_end(stream, at)
        self._read(name, stream, at, group, prefetch, no_ack)

    def _read(
        self, name: str, stream: Stream, at: str | int, group: str, prefetch: int, no_ack: bool
    ) -> Reader:
        client: Amqp = self.amqp[name]
        shared = stream.members.get(group) or StreamGroup(group)

        def credit() -> float:
            if not prefetch or no_ack:
                return float("inf")
            return prefetch - sum(holder is reader for holder in shared.held.values())

        tag = f"s{self.next_number()}"
        reader = Reader(name, tag, stream, shared, credit, no_ack)
        stream.join(reader, at)
        self.readers[name, tag] = reader
        client.call(commands.Basic.Qos(0, prefetch, False), commands.Basic.QosOk)
        arguments: dict[str, Any] = {"x-consumer-group": group} if group else {}
        if at != "":
            arguments["x-stream-offset"] = at
        method = commands.Basic.Consume(0, stream.name, tag, False, no_ack, False, False, arguments)
        client.call(method, commands.Basic.ConsumeOk)
        return reader

    def do_unread(self, name: str, i: int = 0) -> None:
        """Cancel a reader."""
        client = self.need_amqp(name)
        mine = [key for key in sorted(self.readers) if key[0] == name]
        if not mine:
            raise Skip
        key = mine[i % len(mine)]
        client.call(commands.Basic.Cancel(key[1]), commands.Basic.CancelOk)
        reader = self.readers.pop(key)
        reader.stream.leave(reader, closed=False)

    def learn_end(self, stream: Stream, at: str | int) -> None:
        """Have the oracle know the end of a stream before somebody reads from `at`, which may be there."""
        if at not in ("", "first") and stream.is_due_soon():
            raise Skip  # what is scheduled may come just before, or just after
        if stream.pending:
            if stream.no_deliver:
                raise Skip
            self.learn(stream, len(stream.log))

    def learn(self, stream: Stream, start: int) -> None:
        """Read on from an offset, so that what is there has its place."""
        self.amqp[LEARNER] = Amqp(LEARNER, self.broker.amqp_port, "plain", self.vhost)
        self.held[LEARNER] = {}
        told = self.expect(200, "GET", f"/api/v1/queues/{stream.name}")
        reader = self._read(LEARNER, stream, start, "", 0, True)
        self.settle()
        if told and told["first_offset"] < told["next_offset"] and not stream.no_deliver:
            self._read_up_to(reader, told["next_offset"])
        self.amqp.pop(LEARNER).close()
        self.forget_channel(LEARNER, connection=True)
        self.wait_gone(LEARNER)

    def _read_up_to(self, reader: Reader, end: int) -> None:
        """Wait for what need not be there and is: the broker says how far the stream goes."""
        deadline = time.monotonic() + OWED_TIMEOUT_S
        while reader.group.high < end:
            if time.monotonic() > deadline:
                raise Mismatch(f"{reader.stream.name} ends at {end}, a reader got to {reader.group.high}")
            pump(self.clients(), 0.05)
            self.settle()

    def read_all(self) -> None:
        """Read every stream from its beginning."""
        for stream in self.streams():
            self.learn(stream, 0)

    # ---- what the world tells

    def is_read(self, name: str, fields: dict[str, Any]) -> bool:
        reader = self.readers.get((name, fields["consumer"]))
        if reader is None:
            return False
        headers = fields["headers"]
        for told in ("x-stream-offset", "x-stream-timestamp"):
            if told not in headers:
                raise Mismatch(f"{fields['body']!r} of {reader.stream.name} does not tell {told}")
        offset = headers["x-stream-offset"]
        self.expect_early(is_expected=reader.stream.expects(offset, fields["body"]))
        if self.queues.ends_in_turn:
            reader.group.take_back(offset, reader)
        read = reader.stream.delivered(reader, offset, fields["body"], headers.get("x-stream-gap", 0))
        if read is not None:
            self.held[name][fields["tag"]] = read
        return True

    def owed(self) -> str | None:
        found = super().owed()
        for stream in self.streams():
            found = found or stream.owed()
        return found

    def end_step(self) -> None:
        super().end_step()
        for stream in self.streams():
            stream.end_step()

    def forget_channel(self, name: str, *, connection: bool = False) -> None:
        super().forget_channel(name, connection=connection)
        for key in [key for key in self.readers if key[0] == name]:
            reader = self.readers.pop(key)
            reader.stream.leave(reader, closed=True)

    def forget_queue(self, name: str) -> None:
        queue: Queue = self.queues.queues[name]
        super().forget_queue(name)
        for key in [key for key, reader in self.readers.items() if reader.stream is queue]:
            del self.readers[key]
            self.may_cancel.add(key)

    @abstractmethod
    def wait_gone(self, name: str) -> None:
        """See `Whole`."""
