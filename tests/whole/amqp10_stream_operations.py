"""The operations of links of AMQP 1.0 that read streams; settling is as with other links."""

from __future__ import annotations

from typing import Any

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.whole.amqp10_client import Link
from tests.whole.amqp10_operations import Amqp10Operations, credit_of
from tests.whole.clients import Event
from tests.whole.queues import Mismatch
from tests.whole.stream_operations import StreamOperations
from tests.whole.streams import Read, Reader, Stream, StreamGroup
from tests.whole.world import Skip

_OFFSET = t.Symbol("rabbitmq:stream-offset-spec")


class Amqp10StreamOperations(Amqp10Operations, StreamOperations):
    """`do_l_read...` of AMQP 1.0; the client is an `L...`."""

    def do_l_read(
        self,
        name: str,
        q: str,
        at: str | int = "",
        group: str = "",
        credit: int = 0,
        settled: bool = False,
        drain: bool = False,
    ) -> None:
        """Attach a link to a stream; `at`: `first`, `last`, `next` or an offset."""
        client = self._need(name)
        stream = self.need_queue(q)
        if not isinstance(stream, Stream):
            raise Skip
        self.learn_end(stream, at)
        tag = f"s{self.next_number()}"
        value = t.ULong(at) if isinstance(at, int) else at
        filters = {t.Symbol("wanted"): t.Described(_OFFSET, value)} if at != "" else None
        link = client.attach(
            tag,
            client_sends=False,
            source=p.Source(f"/queues/{q}", filter=filters),
            target=p.Target(),
            mode=c.SENDER_SETTLED if settled else c.SENDER_UNSETTLED,
            properties={t.Symbol("consumer-group"): group} if group else None,
        )
        if link.is_detached or link.answer is None or link.answer.source.filter != filters:
            raise Mismatch(f"attach to the stream {q}: {link.error}, {link.answer}")
        link.is_settled = settled
        reader = Reader(
            name, tag, stream, stream.members.get(group) or StreamGroup(group), credit_of(link), settled
        )
        stream.join(reader, at)
        self.readers[name, tag] = reader
        if credit:
            self._give(client, link, credit, drain)

    def _pick_reader(self, name: str, i: int) -> tuple[Reader, Link]:
        client = self._need(name)
        mine = [key for key in sorted(self.readers) if key[0] == name]
        if not mine:
            raise Skip
        reader = self.readers[mine[i % len(mine)]]
        link = client.link(reader.tag, client_sends=False)
        if link is None:
            raise Skip  # it is gone with its stream
        return reader, link

    def do_l_read_on(self, name: str, i: int = 0, credit: int = 1, drain: bool = False) -> None:
        """Give a reader credit, or take it back."""
        _, link = self._pick_reader(name, i)
        self._give(self.amqp10[name], link, credit, drain)

    def do_l_unread(self, name: str, i: int = 0, closed: bool = True) -> None:
        """Detach a reader; what it holds returns."""
        reader, link = self._pick_reader(name, i)
        self.amqp10[name].detach(link, closed=closed)
        self._feed_links(name, link)
        del self.readers[name, reader.tag]
        held = self.held[name]
        for tag in [tag for tag, item in held.items() if isinstance(item, Read) and item.reader is reader]:
            del held[tag]
        reader.stream.leave(reader, closed=True)

    def _due_to(self, name: str, link: Link) -> str | None:
        reader = self.readers.get((name, link.name))
        if reader is None:
            return super()._due_to(name, link)
        stream, group = reader.stream, reader.group
        if stream.no_deliver or len(group.readers) > 1:  # others may have it
            return None
        next_offset = max([group.high, stream.first()[1], *[offset + 1 for offset in group.given]])
        return f"offset {next_offset}" if next_offset < len(stream.log) else None

    def _link_event(self, name: str, event: Event) -> None:
        fields = event.fields
        link: Link = fields["link"]
        reader = self.readers.get((name, link.name))
        if event.kind == "cancel" or reader is None:
            super()._link_event(name, event)
            return
        where = f"{fields['body']!r} of {reader.stream.name} to {name}/{link.name}"
        if fields["settled"] is not link.is_settled:
            raise Mismatch(f"{where} is settled: {fields['settled']}")
        told: dict[Any, Any] = fields["annotations"]
        if "x-stream-offset" not in told:
            raise Mismatch(f"{where} does not tell its offset")
        gap = int(told.get("x-stream-gap", 0))
        offset = int(told["x-stream-offset"])
        self.expect_early(is_expected=reader.stream.expects(offset, fields["body"]))
        if self.queues.ends_in_turn:
            reader.group.take_back(offset, reader)
        read = reader.stream.delivered(reader, offset, fields["body"], gap)
        link.fed += 1
        if read is not None:
            self.held[name][fields["tag"]] = read
