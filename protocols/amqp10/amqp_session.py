"""One session, server side (AMQP 1.0, 2.5): windows, handles, links, transfers."""

from __future__ import annotations

from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, NamedTuple

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import link as ln
from protocols.amqp10 import performatives as p
from protocols.amqp10.errors import LINK, SESSION, AmqpError
from protocols.amqp10.framing import encode_frame
from protocols.amqp10.hot import LinksPattern, TransferHead, TransferPattern, TransferReader
from protocols.amqp10.link import Link, LinkTotals

_MASK: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31


def ahead(one: int, other: int) -> int:
    """Return how far `one` is ahead of `other` in serial numbers (RFC 1982); below 0 when it is behind."""
    return (one - other + _HALF & _MASK) - _HALF


class _WaitingTransfer(NamedTuple):
    """A transfer that the window has no room for. `delivery_id`: of the first of a delivery, else -1."""

    link: Link
    delivery_id: int
    head: bytes
    part: memoryview


@dataclass(eq=False, repr=False, slots=True)
class Session:
    """A session. Raises AmqpError with the scope of what must end."""

    channel: int
    asked: InitVar[p.Begin]
    _output: list[Any]
    _reader: TransferReader
    _handle_max: int
    frame_max: InitVar[int]
    _totals: LinkTotals
    _payload_max: int = field(init=False)
    links: dict[int, Link] = field(default_factory=dict, init=False)
    is_ending: bool = field(default=False, init=False)
    next_delivery_id: int = field(default=0, init=False)
    _next_incoming_id: int = field(init=False)
    _incoming_window: int = field(default=limits.AMQP10_INCOMING_WINDOW, init=False)
    _next_outgoing_id: int = field(default=0, init=False)
    _remote_window: int = field(init=False)
    _waiting: deque[_WaitingTransfer] = field(default_factory=deque, init=False)
    _drained: dict[Link, None] = field(
        default_factory=dict, init=False
    )  # whose clients are told so behind these
    _events: list[Any] = field(default_factory=list, init=False)
    _run: ev.TransferRun | None = field(default=None, init=False)
    _pattern: TransferPattern | None = field(default=None, init=False)
    _pattern_link: Link | None = field(default=None, init=False)
    _links_pattern: LinksPattern | None = field(default=None, init=False)  # of whatever links there are

    def __post_init__(self, asked: p.Begin, frame_max: int) -> None:
        # of a frame: a little less than frame-max, so that any larger one is judged by the decoder
        self._payload_max = frame_max - limits.AMQP10_TRANSFER_HEAD_BYTES_MAX
        self._next_incoming_id = int(asked.next_outgoing_id)
        self._remote_window = int(asked.incoming_window)
        self._output.append(
            encode_frame(
                self.channel,
                p.Begin(
                    self.channel,
                    0,
                    limits.AMQP10_INCOMING_WINDOW,
                    c.UINT_MAX,
                    min(self._handle_max, asked.handle_max),
                ),
            )
        )

    def begin(self, events: list[Any]) -> None:
        """Put events into `events` from now on."""
        self._events = events
        self._run = None

    # frames

    def on_attach(self, attach: p.Attach, message_bytes_max: int) -> None:
        """Take a link that the client attaches."""
        if attach.handle > self._handle_max:
            told = int(attach.handle)
            raise AmqpError(
                c.FRAMING_ERROR,
                f"link handle value ({told}) exceeds maximum link handle value ({self._handle_max})",
            )
        if attach.handle in self.links:
            raise AmqpError(
                c.HANDLE_IN_USE, f"handle {int(attach.handle)} is already associated with a link", SESSION
            )
        if attach.snd_settle_mode > c.SENDER_MIXED or attach.rcv_settle_mode > c.RECEIVER_SECOND:
            raise AmqpError(c.INVALID_FIELD, "a settle mode of attach is none", SESSION)
        if attach.role is c.SENDER and attach.initial_delivery_count is None:
            raise AmqpError(c.INVALID_FIELD, "attach of a sender needs initial-delivery-count", SESSION)
        if self._totals.link_count >= limits.AMQP10_LINKS_PER_CONNECTION_MAX:
            most = limits.AMQP10_LINKS_PER_CONNECTION_MAX
            raise AmqpError(c.RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {most} links", SESSION)
        link = Link(self.channel, attach, message_bytes_max, self._totals)
        self.links[link.handle] = link
        self._events.append(ev.AttachRequested(link))

    def on_detach(self, detach: p.Detach) -> None:
        """Take a link that the client detaches, or its answer to ours."""
        link = self._link(detach.handle)
        del self.links[link.handle]
        state = link.state
        link.leave()
        self._forget_transfers(link)
        if state != ln.DETACHING:
            if state == ln.ATTACHING:
                # the front-end has not said what it is; the client has to see an attach before the detach
                self._answer_attach(link, p.Attach(link.name, link.handle, not link.attach.role))
            self._send(p.Detach(link.handle, detach.closed))
            self._events.append(ev.LinkDetached(link, detach.closed, detach.error, by_peer=True))

    def on_flow(self, flow: p.Flow) -> None:
        """Take the client's windows, and the state of a link."""
        window_start = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        had_room = self.room
        under_way = ahead(self._next_outgoing_id, window_start)
        self._remote_window = max(int(flow.incoming_window) - under_way, 0)
        if self._waiting:
            self._send_waiting()
        if not had_room and self.room:
            self._events.append(ev.WindowOpened(self.channel))
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            return
        link = self._link(flow.handle)
        if link.state == ln.DETACHING:
            return
        has_answer = link.state == ln.ATTACHED
        if link.client_sends:
            if flow.echo and has_answer:
                self.send_flow(link)
            return
        if flow.link_credit is not None:
            seen = 0 if flow.delivery_count is None else flow.delivery_count
            under_way = ahead(link.delivery_count & _MASK, seen)
            link.credit = min(max(int(flow.link_credit) - under_way, 0), c.UINT_MAX)
        link.drain = flow.drain
        if flow.echo and not flow.drain and has_answer:
            self.send_flow(link)
        self._events.append(ev.CreditChanged(link))

    def on_transfer(self, data: bytes, at: int, body_at: int, end: int) -> int:
        """Take the transfer in the frame at `at`; gives the position after it, or after others like it."""
        head = self._reader.read(data, body_at, end)
        if not self._incoming_window:
            raise AmqpError(c.WINDOW_VIOLATION, "incoming window violation", SESSION)
        self._incoming_window -= 1
        self._next_incoming_id += 1
        link = self._link(head.handle)
        tail = head.tail
        if link.state != ln.ATTACHED or not link.client_sends:
            if link.state != ln.DETACHING:
                raise AmqpError(c.NOT_ALLOWED, "transfer on a link that takes none", SESSION)
        elif (
            link.first_transfer is not None
            or tail.more
            or tail.aborted
            or tail.resume
            or head.delivery_id is None
            or head.delivery_tag is None
        ):
            self._on_part(link, head, data[head.payload_at : end])
        else:
            run = self._deliver(link, head, data[head.payload_at : end])
            if end < len(data) and head.id_at:
                if data.startswith(data[at + 4 : head.id_at], end + 4):
                    end = self._take_alike(link, run, head, data, at, end)
                elif LinksPattern.fits(data, at, head):
                    end = self._take_of_others(link, run, head, data, at, end)
        if self._incoming_window <= limits.AMQP10_INCOMING_WINDOW // 2:
            self.open_window()
        return end

    def _take_alike(
        self, link: Link, run: ev.TransferRun, head: TransferHead, data: bytes, at: int, end: int
    ) -> int:
        """Take the transfers behind the one that was read that are like it, and of the same link."""
        pattern = self._pattern
        if pattern is None or self._pattern_link is not link or not pattern.is_of(data, at):
            self._pattern = pattern = TransferPattern(data, at, head)
            self._pattern_link = link
        room = min(self._incoming_window, link.credit_end - link.delivery_count)
        payload_max = min(link.max_message_size, self._payload_max)
        assert head.delivery_id is not None
        before = len(run.tags)
        end = pattern.take(data, end, head.delivery_id + 1, room, payload_max, run.tags, run.payloads)
        taken = len(run.tags) - before
        if run.links:
            run.links += [link] * taken
        self._incoming_window -= taken
        self._next_incoming_id += taken
        link.delivery_count += taken
        link.credit -= taken
        return end

    def _take_of_others(
        self, link: Link, run: ev.TransferRun, head: TransferHead, data: bytes, at: int, end: int
    ) -> int:
        """Take the transfers behind the one that was read that are like it, each of another link than the one
        before.
        """
        pattern = self._links_pattern
        if pattern is None or not pattern.is_of(data, at, head):
            self._links_pattern = pattern = LinksPattern(data, at, head)
        unpack_from, fixed_bytes = pattern.unpack_from, pattern.fixed_bytes
        expected = (pattern.head, pattern.id_code, pattern.middle, pattern.tail)
        last_link, size = link, len(data)
        links, tags, payloads = run.links or [run.link] * len(run.tags), run.tags, run.payloads
        before = len(tags)
        assert head.delivery_id is not None
        next_id = head.delivery_id + 1
        last_id = next_id + self._incoming_window
        while next_id < last_id and end + fixed_bytes <= size:
            frame_bytes, octets, handle, id_code, delivery_id, middle, tag, tail = unpack_from(data, end)
            of = self.links.get(handle)
            payload_bytes = frame_bytes - fixed_bytes
            if (
                (octets, id_code, middle, tail) != expected
                or delivery_id != next_id
                or of is None
                or of is last_link
                or of.state != ln.ATTACHED
                or not of.client_sends
                or of.first_transfer is not None
                or of.snd_settle_mode != link.snd_settle_mode
                or of.delivery_count >= of.credit_end
                or not 0
                <= payload_bytes
                <= min(of.max_message_size, self._payload_max, size - end - fixed_bytes)
            ):
                break
            of.delivery_count += 1
            of.credit -= 1
            links.append(of)
            tags.append(tag)
            payloads.append(data[end + fixed_bytes : end + frame_bytes])
            next_id += 1
            end += frame_bytes
            last_link = of
        taken = len(tags) - before
        if taken:
            run.links = links
            self._incoming_window -= taken
            self._next_incoming_id += taken
        return end

    def _deliver(self, link: Link, head: TransferHead, payload: bytes) -> ev.TransferRun:
        """Tell of a whole delivery; gives the run that it is in."""
        tail = head.tail
        settled = bool(tail.settled)
        delivery_id, tag = head.delivery_id, head.delivery_tag
        assert delivery_id is not None
        assert tag is not None
        if len(tag) > limits.AMQP10_DELIVERY_TAG_BYTES_MAX:
            raise AmqpError(c.INVALID_FIELD, f"a delivery tag of {len(tag)} octets", LINK)
        if link.snd_settle_mode != c.SENDER_MIXED and settled is not (
            link.snd_settle_mode == c.SENDER_SETTLED
        ):
            mode = "settled" if link.snd_settle_mode else "unsettled"
            raise AmqpError(
                c.INVALID_FIELD, f"sender settle mode is {mode}, transfer settled is {settled}", LINK
            )
        if len(payload) > link.max_message_size:
            raise self._too_large(link, len(payload))
        self._count(link)
        run = self._run
        message_format = tail.message_format or 0
        if (
            run is None
            or self._events[-1] is not run  # something came between
            or run.settled is not settled
            or run.message_format != message_format
            or run.state is not tail.state
            or (run.first_id + len(run.tags) & _MASK) != delivery_id
        ):
            self._run = run = ev.TransferRun(link, delivery_id, settled, message_format, tail.state)
            self._events.append(run)
        elif run.links:
            run.links.append(link)
        elif run.link is not link:
            run.links = [*[run.link] * len(run.tags), link]
        run.tags.append(tag)
        run.payloads.append(payload)
        return run

    def _count(self, link: Link) -> None:
        """Count a delivery against the credit of its link."""
        self._check_credit(link)
        link.delivery_count += 1
        link.credit -= 1

    @staticmethod
    def _check_credit(link: Link) -> None:
        if link.delivery_count >= link.credit_end:
            raise AmqpError(c.TRANSFER_LIMIT_EXCEEDED, "more transfers than link credit", LINK)

    def _too_large(self, link: Link, size: int) -> AmqpError:
        text = f"message size ({size} bytes) > maximum message size ({link.max_message_size} bytes)"
        return AmqpError(c.MESSAGE_SIZE_EXCEEDED, text, LINK)

    def _on_part(self, link: Link, head: TransferHead, payload: bytes) -> None:
        """Take a transfer of a delivery in several."""
        first: TransferHead | None = link.first_transfer
        tail = head.tail
        if first is None:
            if tail.resume:
                raise AmqpError(c.NOT_IMPLEMENTED, "Link recovery not supported", LINK)
            if head.delivery_id is None or head.delivery_tag is None:
                raise AmqpError(
                    c.INVALID_FIELD, "a first transfer needs delivery-id and delivery-tag", SESSION
                )
            self._check_credit(link)
            first = head
        elif head.delivery_id not in (None, first.delivery_id):
            raise AmqpError(c.INVALID_FIELD, "a delivery begins before the last one was whole", SESSION)
        elif tail.settled and not first.tail.settled:
            first = first._replace(tail=first.tail._replace(settled=True))
        if tail.aborted:
            link.forget_parts()
            self._count(link)
            self._events.append(ev.CreditChanged(link))
            return
        link.first_transfer = first
        link.add_part(payload)
        if self._totals.unfinished_bytes > limits.AMQP_ASSEMBLY_BYTES_MAX:
            most = limits.AMQP_ASSEMBLY_BYTES_MAX
            raise AmqpError(
                c.RESOURCE_LIMIT_EXCEEDED, f"deliveries that are not whole take more than {most} bytes"
            )
        if link.part_bytes > link.max_message_size:
            raise self._too_large(link, link.part_bytes)
        if not tail.more:
            whole = b"".join(link.parts)
            link.forget_parts()
            if tail.state is not None:
                first = first._replace(tail=first.tail._replace(state=tail.state))
            self._deliver(link, first, whole)

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise AmqpError(c.UNATTACHED_HANDLE, f"Unknown link handle: {int(handle)}", SESSION)
        return link

    # windows

    @property
    def room(self) -> int:
        """How many transfers may be sent now."""
        return 0 if self._waiting else self._remote_window

    def open_window(self) -> None:
        """Let the client send as many transfers as at the beginning."""
        self._incoming_window = limits.AMQP10_INCOMING_WINDOW
        self.send_flow()

    def send_flow(self, link: Link | None = None, *, properties: p.Fields = None) -> None:
        """Tell the client our state of the session, and of a link."""
        flow = p.Flow(
            self._next_incoming_id & _MASK,
            self._incoming_window,
            self._next_outgoing_id,
            c.UINT_MAX,
            properties=properties,
        )
        if link is not None:
            flow = flow._replace(
                handle=link.handle,
                delivery_count=link.delivery_count & _MASK,
                link_credit=max(link.credit, 0),
                available=None if link.client_sends else 0,
                drain=link.drain,
            )
        self._send(flow)

    def send_run(self, link: Link, payloads: list[bytes], bytes_max: int) -> int:
        """Send deliveries on a link, of which the largest has `bytes_max`; gives the ID of the first."""
        first_id = self.next_delivery_id
        count = len(payloads)
        self.next_delivery_id = first_id + count & _MASK
        link.delivery_count += count
        link.credit -= count
        encoder = link.encoder
        if count <= self.room and bytes_max <= encoder.payload_max:
            encoder.encode_run(self._output, first_id, payloads)
            self._remote_window -= count
            self._next_outgoing_id = self._next_outgoing_id + count & _MASK
        else:
            for number, payload in enumerate(payloads, first_id):
                delivery_id = number & _MASK
                for head, part in encoder.encode_parts(delivery_id, payload):
                    self._waiting.append(_WaitingTransfer(link, delivery_id, head, part))
                    delivery_id = -1
            self._send_waiting()
        return first_id

    def tell_drained(self, link: Link) -> None:
        """Tell the client that nothing is left for what remains of a link's credit, behind what waits."""
        link.delivery_count += link.credit
        link.credit = 0
        if self._waiting:
            self._drained[link] = None
        else:
            self.send_flow(link)

    def _send_waiting(self) -> None:
        """Send as many of the transfers that wait as the window has room for."""
        waiting = self._waiting
        count = min(len(waiting), self._remote_window)
        self._remote_window -= count
        self._next_outgoing_id = self._next_outgoing_id + count & _MASK
        for _ in range(count):
            transfer = waiting.popleft()
            self._output.append(transfer.head)
            if transfer.part:
                self._output.append(transfer.part)
        if not waiting and self._drained:
            self._tell_drained_links()

    def _tell_drained_links(self) -> None:
        drained, self._drained = self._drained, {}
        for link in drained:
            if link.is_attached:
                self.send_flow(link)

    def _forget_transfers(self, link: Link) -> None:
        """Have nothing sent on a link that is detached; deliveries that are not begun were none, so that
        others get their IDs, if they are the last.
        """
        if self._pattern_link is link:
            self._pattern = None
        if not self._waiting:
            return
        dropped = [transfer for transfer in self._waiting if transfer.link is link]
        self._waiting = deque(transfer for transfer in self._waiting if transfer.link is not link)
        begun = [transfer.delivery_id for transfer in dropped if transfer.delivery_id >= 0]
        if begun and not self._waiting:
            self.next_delivery_id = begun[0]
        if not self._waiting:
            self._tell_drained_links()

    # links

    def answer_attach(self, link: Link, attach: p.Attach) -> None:
        """Attach a link that the client has attached."""
        link.state = ln.ATTACHED
        self._answer_attach(link, attach)

    def _answer_attach(self, link: Link, attach: p.Attach) -> None:
        if not link.client_sends:
            attach = attach._replace(initial_delivery_count=0)
        self._send(attach)

    def detach(self, link: Link, error: p.Error) -> None:
        """Detach a link with an error; what the client sends on it is discarded until it answers."""
        link.state = ln.DETACHING
        link.forget_parts()
        self._forget_transfers(link)
        self._send(p.Detach(link.handle, True, error))

    def leave(self) -> None:
        """End, with all links."""
        for link in self.links.values():
            link.leave()
        self.links.clear()
        self._waiting.clear()

    def _send(self, performative: Any) -> None:
        self._output.append(encode_frame(self.channel, performative))
