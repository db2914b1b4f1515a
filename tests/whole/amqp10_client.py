"""A client of AMQP 1.0 for random sequences: a session for links and one for management."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import Frame, FrameReader, encode_frame, encode_sasl_frame
from tests.e2e.raw_amqp10 import PAIRED, Answer, section, sections
from tests.whole.clients import Client, Event, Gone

LINKS, MANAGEMENT = 0, 1  # the channels of the two sessions
COORDINATOR = "coordinator"
_FRAME_PAYLOAD_BYTES: Final = 400  # of messages that are sent in parts
_OUTGOING_WINDOW: Final = 2_048


@dataclass(eq=False)
class Link:
    """A link. `count` is its delivery-count as this side has it, `limit` the highest that credit allows.

    `fed`: the delivery-count once the oracle has seen a delivery. `error`: why the broker detached it.
    """

    name: str
    handle: int
    client_sends: bool
    count: int = 0
    limit: int = 0
    fed: int = 0
    is_settled: bool = False
    answer: p.Attach | None = None
    is_detached: bool = False
    error: p.Error | None = None
    first: p.Transfer | None = None  # of a delivery that has come in part
    parts: list[bytes] = field(default_factory=list)
    drained: bool = False


class Amqp10(Client):
    """A connection. `window`: how many transfers it lets the broker send at a time; `frame_max`: the largest
    frame it takes.
    """

    def __init__(
        self, name: str, port: int, vhost: str = "/", *, window: int = 2_048, frame_max: int = c.UINT_MAX
    ) -> None:
        super().__init__(name, port)
        self._reader = FrameReader()
        self._headers = 0
        self._window = window
        self._received = {LINKS: 0, MANAGEMENT: 0}  # transfers since the session began
        self._told_received = {LINKS: 0, MANAGEMENT: 0}
        self._sent = {LINKS: 0, MANAGEMENT: 0}
        self._next_delivery_id = {LINKS: 0, MANAGEMENT: 0}
        self._last_id = {LINKS: -1, MANAGEMENT: -1}  # of deliveries that came
        self._answers: list[Any] = []  # sasl, open, begin, end, close
        self.echoes = 0
        self.was_full = False  # whether the window was, since the last step
        self._gave_room = False  # whether the window was opened again since the last question
        self._is_ending = False  # whether the session of the links is
        self.links: dict[tuple[int, int], Link] = {}  # by channel and handle
        self.outcomes: dict[int, Any] = {}
        self.told: dict[int, Any] = {}  # what the broker settled of what it sent
        self.replies: dict[int, Answer] = {}
        self._request = 0
        self._pair: Link | None = None
        self.send(c.SASL_HEADER)
        self.wait(lambda: self._headers == 1, "protocol header")
        self.send(encode_sasl_frame(p.SaslInit("PLAIN", b"\0guest\0guest")))
        self.expect(p.SaslMechanisms)
        assert self.expect(p.SaslOutcome).code == c.SASL_OK
        hostname = None if vhost == "/" else f"vhost:{vhost}"
        self.send(c.AMQP_HEADER + encode_frame(0, p.Open(name, hostname, frame_max)))
        self.expect(p.Open)
        self.begin(LINKS)

    # ---- sessions

    def begin(self, channel: int) -> None:
        for table in (self._received, self._told_received, self._sent, self._next_delivery_id):
            table[channel] = 0
        self._last_id[channel] = -1
        self._tell(channel, p.Begin(None, 0, self._window, _OUTGOING_WINDOW))
        self.expect(p.Begin)

    def end(self, channel: int) -> None:
        """End a session, and take what was under way."""
        self._tell(channel, p.End())
        self._is_ending = channel == LINKS
        self.expect(p.End)
        self._is_ending = False
        self.told.clear()  # numbers of deliveries begin anew
        for key in [key for key in self.links if key[0] == channel]:
            self.links.pop(key).is_detached = True

    def expect(self, kind: type) -> Any:
        """The next answer, which must be of this kind. Raises Gone."""
        self.wait(lambda: self._answers, kind.__name__)
        answer = self._answers.pop(0)
        if isinstance(answer, p.Close | p.End) and not isinstance(answer, kind):
            raise Gone(str(answer.error))
        assert isinstance(answer, kind), f"{self.name}: {answer} instead of {kind.__name__}"
        return answer

    # ---- links

    def link(self, name: str, *, client_sends: bool) -> Link | None:
        """The link of this name and direction that is attached."""
        for link in self.links.values():
            if link.name == name and link.client_sends is client_sends and not link.is_detached:
                return link
        return None

    def attach(
        self,
        name: str,
        *,
        client_sends: bool,
        source: Any,
        target: Any,
        mode: int = 2,
        properties: dict[Any, Any] | None = None,
        channel: int = LINKS,
    ) -> Link:
        """Attach a link; one that is refused is detached, and has the error."""
        taken = {handle for of, handle in self.links if of == channel}
        handle = next(number for number in range(len(taken) + 1) if number not in taken)
        link = Link(name, handle, client_sends)
        self.links[channel, handle] = link
        count = 0 if client_sends else None
        role = c.SENDER if client_sends else c.RECEIVER
        attach = p.Attach(
            name, handle, role, mode, 0, source, target, initial_delivery_count=count, properties=properties
        )
        self._tell(channel, attach)
        self.wait(lambda: link.answer is not None, f"attach of {name}")
        assert link.answer is not None
        terminus = link.answer.target if client_sends else link.answer.source
        if terminus is None:
            self.wait(lambda: link.is_detached, f"detach of {name}, which was refused")
        elif client_sends:
            self.wait(lambda: link.limit > link.count or link.is_detached, f"credit for {name}")
        return link

    def detach(self, link: Link, *, closed: bool, channel: int = LINKS) -> None:
        if not link.is_detached:
            self._tell(channel, p.Detach(link.handle, closed))
            self.wait(lambda: link.is_detached, f"detach of {link.name}")

    def flow(self, link: Link, credit: int, *, drain: bool = False) -> None:
        """Give the broker so much credit."""
        link.limit = link.count + credit
        link.drained = False
        self._flow(LINKS, link, credit, drain=drain)

    def _flow(
        self,
        channel: int,
        link: Link | None = None,
        credit: int = 0,
        *,
        drain: bool = False,
        echo: bool = False,
    ) -> None:
        self._told_received[channel] = self._received[channel]
        flow = p.Flow(
            self._received[channel],
            self._window,
            self._sent[channel],
            _OUTGOING_WINDOW,
            echo=echo,
            drain=drain,
        )
        if link is not None:
            flow = flow._replace(handle=link.handle, delivery_count=link.count, link_credit=credit)
        self._tell(channel, flow)

    def transfer(
        self, link: Link, payload: bytes, *, settled: bool, state: Any = None, channel: int = LINKS
    ) -> int:
        """Send a delivery, in parts where it is large; gives its ID."""
        number = self._next_delivery_id[channel]
        self._next_delivery_id[channel] += 1
        parts = (
            [payload[at : at + _FRAME_PAYLOAD_BYTES] for at in range(0, len(payload), _FRAME_PAYLOAD_BYTES)]
            if len(payload) <= 100_000
            else [payload[at : at + 100_000] for at in range(0, len(payload), 100_000)]
        )
        data = []
        for index, part in enumerate(parts, 1):
            more = index < len(parts)
            transfer = p.Transfer(link.handle, more=more)
            if index == 1:
                tag = number.to_bytes(4, "big")
                transfer = p.Transfer(link.handle, number, tag, 0, settled, more, state=state)
            data.append(encode_frame(channel, transfer, part))
        self._sent[channel] += len(parts)
        link.count += 1
        self.send(b"".join(data))
        return number

    def settle(self, first: int, last: int, state: Any, *, settled: bool) -> None:
        self._tell(LINKS, p.Disposition(c.RECEIVER, first, last, settled, state))

    def wait_told(self, numbers: list[int]) -> None:
        """Wait until the broker has settled these deliveries."""
        self.wait(lambda: all(number in self.told for number in numbers), f"settlement of {numbers}")

    def outcome_of(self, number: int, link: Link) -> Any:
        """The outcome of a delivery. Raises Gone where its link ended instead."""
        self.wait(lambda: number in self.outcomes or link.is_detached, f"outcome of {number}")
        if number not in self.outcomes:
            raise Gone(f"detached: {link.error}")
        return self.outcomes.pop(number)

    def command(self, command: p.Declare | p.Discharge) -> Any:
        """The outcome of a command to the coordinator."""
        link = self.link(COORDINATOR, client_sends=True)
        if link is None:
            target = p.Coordinator(("amqp:local-transactions",))
            link = self.attach(COORDINATOR, client_sends=True, source=p.Source(), target=target)
            assert not link.is_detached, link.error
        payload = t.encode_value(t.Described(t.ULong(0x77), p.as_described(command)))
        return self.outcome_of(self.transfer(link, payload, settled=False), link)

    # ---- management

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer to a request to `/management`."""
        if self._pair is None or self._pair.is_detached:
            self.begin(MANAGEMENT)
            ends = {"source": p.Source("/management"), "target": p.Target("/management")}
            of = {"mode": 1, "properties": PAIRED, "channel": MANAGEMENT}
            self._pair = self.attach("pair", client_sends=True, **ends, **of)
            replies = self.attach("pair", client_sends=False, **ends, **of)
            self._flow(MANAGEMENT, replies, 1_000)
        self._request += 1
        number = self._request
        properties = p.Properties(message_id=t.ULong(number), to=path, subject=method, reply_to="$me")
        payload = p.encode(properties) + section(0x77, body)
        self.transfer(self._pair, payload, settled=True, channel=MANAGEMENT)
        self.wait(lambda: number in self.replies, f"answer to {method} {path}")
        return self.replies.pop(number)

    # ---- the connection

    def barrier(self) -> Callable[[], bool]:
        """Ask for the state of the session; the function given tells whether it is there. It asks again where
        the broker was given room for more meanwhile.
        """
        wanted = self._ask_state()

        def answered() -> bool:
            nonlocal wanted
            if self.gone is None and self.echoes >= wanted and self._gave_room:
                wanted = self._ask_state()
            return self.echoes >= wanted or self.gone is not None

        return answered

    def _ask_state(self) -> int:
        """Ask; gives how many answers there are then."""
        self._gave_room = False
        if self.gone is None:
            self._flow(LINKS, echo=True)
        return self.echoes + 1

    def close(self) -> None:
        """Close, and wait for the answer."""
        if self.gone is None:
            self._tell(0, p.Close())
            try:
                self.expect(p.Close)
            except Gone:
                pass
        self.socket.close()
        self._end("closed")

    def _tell(self, channel: int, performative: Any) -> None:
        self.send(encode_frame(channel, performative))

    def _parse(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if frame.kind < 0:
                self._headers += 1
            elif frame.body is not None:
                self._frame(frame)

    def _frame(self, frame: Frame) -> None:
        match frame.body:
            case p.Transfer():
                self._on_transfer(frame)
            case p.Flow():
                self._on_flow(frame.channel, frame.body)
            case p.Disposition():
                said = frame.body
                table = self.outcomes if said.role is c.RECEIVER else self.told
                for number in range(said.first, (said.first if said.last is None else said.last) + 1):
                    table[number] = said.state
            case p.Attach():
                link = self.links[frame.channel, frame.body.handle]
                link.answer = frame.body
            case p.Detach():
                self._on_detach(frame.channel, frame.body)
            case p.Close():
                self._answers.append(frame.body)
                if frame.body.error is not None:
                    self._tell(0, p.Close())
                    self._end(f"close {frame.body.error}")
            case _:
                self._answers.append(frame.body)

    def _on_flow(self, channel: int, flow: p.Flow) -> None:
        if flow.handle is None:
            if channel == LINKS:
                self.echoes += 1
            return
        link = self.links[channel, flow.handle]
        assert flow.delivery_count is not None
        assert flow.link_credit is not None
        if link.client_sends:
            link.limit = flow.delivery_count + flow.link_credit
        else:
            link.count = flow.delivery_count
            link.limit = link.count + flow.link_credit
            link.drained = flow.drain

    def _on_detach(self, channel: int, detach: p.Detach) -> None:
        link = self.links.pop((channel, detach.handle))
        if detach.error is not None:
            link.error = detach.error
            self._tell(channel, p.Detach(detach.handle, True))
            if link.answer is not None and link.answer.source is not None and not link.client_sends:
                self.events.append(Event("cancel", time.time(), {"link": link, "error": detach.error}))
        link.is_detached = True

    def _on_transfer(self, frame: Frame) -> None:
        channel, transfer = frame.channel, frame.body
        self._received[channel] += 1
        if self._received[channel] > self._told_received[channel] + self._window:
            self._end(f"{transfer} beyond the window of {self._window}")
            return
        link = self.links.get((channel, transfer.handle))
        if link is None or link.client_sends:
            self._end(f"{transfer} on a link that there is not")
            return
        if link.first is None:
            if transfer.delivery_id != self._last_id[channel] + 1:
                self._end(f"{transfer} does not follow on delivery {self._last_id[channel]}")
                return
            self._last_id[channel] = transfer.delivery_id
            link.first = transfer
        link.parts.append(frame.payload)
        if not transfer.more:
            first, payload = link.first, b"".join(link.parts)
            link.first, link.parts = None, []
            link.count += 1
            self._delivered(channel, link, first, payload)
        if self._received[channel] >= self._told_received[channel] + self._window:
            if channel == LINKS:
                self.was_full = self._gave_room = True
            if channel != LINKS or not self._is_ending:
                self._flow(channel)

    def _delivered(self, channel: int, link: Link, first: p.Transfer, payload: bytes) -> None:
        told = sections(payload)
        if channel == MANAGEMENT:
            properties = p.compose(t.Described(t.ULong(0x73), told[0x73]))
            answer = Answer(int(properties.subject or 0), properties.correlation_id, told[0x77])
            self.replies[int(answer.correlation_id)] = answer
            return
        header = p.compose(t.Described(t.ULong(0x70), told.get(0x70, [])))
        fields = {
            "link": link,
            "tag": first.delivery_id,
            "settled": bool(first.settled),
            "header": header,
            "annotations": told.get(0x72, {}),
            "properties": told.get(0x73, []),
            "application": told.get(0x74, {}),
            "body": told[0x75].decode("latin1") if 0x75 in told else str(told[0x77]),
        }
        self.events.append(Event("deliver", time.time(), fields))
