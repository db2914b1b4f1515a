"""AMQP 1.0 loads: one producer and one consumer, as those of AMQP 0.9.1; by the codec of the broker."""

import select
import socket
import time
from collections import deque
from typing import Any

from benchmarks.load.amqp import SPIN_S, STALL_S, STAMP, AmqpLoad, LatencyLoad, consume_all
from benchmarks.load.counters import make_bodies
from benchmarks.load.crew import RECEIVED, SENT, SENT_FINAL, Board, Stopwatch
from benchmarks.load.target import RECEIVE_BYTES, REST_S, Target, set_wait
from broker.commands.bench_clients import ClientError
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import HEAD, FrameReader, encode_frame, encode_sasl_frame

WAIT_S = 10.0
WINDOW = 1 << 30
CREDIT_MAX = 1 << 30  # of consumers that acknowledge nothing
DATA, APPLICATION_PROPERTIES = t.ULong(0x75), t.ULong(0x74)
ID_MARK, NAME_MARK = b"\xfa\xce\x0f\xf1", "#" * 36  # filled in for each message


class Client:
    """A connection with one session and its links, whose answers are read whole."""

    def __init__(self, target: Target, *links: p.Attach) -> None:
        self.sock = target.connect(target.amqp_port, WAIT_S)
        self._reader = FrameReader()
        self._frames: list[Any] = []
        login = f"\0{target.user or 'guest'}\0{target.password or 'guest'}".encode()
        self.sock.sendall(c.SASL_HEADER + encode_sasl_frame(p.SaslInit("PLAIN", login)))
        if self.expect(p.SaslOutcome).code != c.SASL_OK:
            raise ClientError("the broker refused the login")
        self.sock.sendall(c.AMQP_HEADER + encode_frame(0, p.Open(f"bench-{time.monotonic_ns()}")))
        self.sock.sendall(encode_frame(0, p.Begin(None, 0, WINDOW, WINDOW)))
        self.begin = self.expect(p.Begin)
        for attach in links:
            self.sock.sendall(encode_frame(0, attach))
            self.expect(p.Attach)

    def read(self) -> list[Any]:
        """The performatives that came; waits for some."""
        frames, self._frames = self._frames, []
        if not frames:
            try:
                data = self.sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                raise TimeoutError(f"no answer within {WAIT_S:.0f} s") from None
            frames = self.feed(data)
        return frames

    def feed(self, data: bytes) -> list[Any]:
        """The performatives in what was read."""
        if not data:
            raise ClientError("the broker closed the connection")
        frames = [frame.body for frame in self._reader.feed(data)]
        for frame in frames:
            if isinstance(frame, p.Close | p.End | p.Detach):
                raise ClientError(f"the broker refused: {frame.error}")
        return frames

    def expect(self, kind: type[Any]) -> Any:
        """The next performative of a kind; what comes behind it is kept."""
        while True:
            frames = self.read()
            for index, frame in enumerate(frames):
                if isinstance(frame, kind):
                    self._frames = frames[index + 1 :]
                    return frame


def _sender(queue: str, handle: int = 0) -> p.Attach:
    name = f"bench-{handle}"
    return p.Attach(
        name, handle, c.SENDER, 2, 0, p.Source(), p.Target(f"/queues/{queue}"), initial_delivery_count=0
    )


def publisher(board: Board, index: int, target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Publish ready-made frames as link credit and window allow, until the last one is accepted; settled
    ones where the load has no confirms.
    """
    client = Client(target, _sender(queue))
    frames = [_frame(body, load) for body in make_bodies(load.size, load.batch)]
    cells, clock, batch = board.cells, time.monotonic, load.batch
    sent = accepted = refused = credit_end = 0
    window_end = client.begin.incoming_window
    board.wait_start(index)
    watch = Stopwatch()
    deadline = watch.started + load.seconds
    while (is_open := sent < load.messages and clock() < deadline) or accepted + refused < sent:
        if not load.confirms:
            if not is_open:
                break
            if load.flow_window and sent - cells[RECEIVED] > load.flow_window - batch:
                time.sleep(REST_S)
                continue
        count = min(credit_end, window_end, sent + batch - sent % batch) - sent if is_open else 0
        if count > 0:
            at = sent % batch
            numbers = [(n.to_bytes(4, "big"), n) for n in range(sent, sent + count)]
            if load.varied:
                fields = [field for octets, n in numbers for field in (octets, octets, n)]
            else:
                fields = [field for octets, _ in numbers for field in (octets, octets)]
            client.sock.sendall(b"".join(frames[at : at + count]) % tuple(fields))
            sent += count
            cells[SENT] = sent
            if min(credit_end, window_end) > sent:
                continue
        for frame in client.read():
            if isinstance(frame, p.Flow):
                window_end = (frame.next_incoming_id or 0) + frame.incoming_window
                if frame.handle is not None:
                    credit_end = (frame.delivery_count or 0) + (frame.link_credit or 0)
            elif isinstance(frame, p.Disposition):
                told = (frame.first if frame.last is None else frame.last) - frame.first + 1
                if isinstance(frame.state, p.Accepted):
                    accepted += told
                else:
                    refused += told
    watch.finished = clock()
    if not load.confirms:
        accepted = sent
    cells[SENT_FINAL] = accepted
    client.sock.close()
    return watch.report(count=accepted, sent=accepted, refused=refused)


def links_publisher(board: Board, index: int, target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Publish on many links of one session, each with one message in flight: the next goes out on the
    outcome of the one before.
    """
    client = Client(target, *(_sender(queue, handle) for handle in range(load.links)))
    frames = [
        [_frame(body, load, handle) for body in make_bodies(load.size, load.batch)]
        for handle in range(load.links)
    ]
    board.wait_start(index)
    watch = Stopwatch()
    deadline = watch.started + load.seconds
    free = deque(range(load.links))
    handles: dict[int, int] = {}  # of what is in flight, by delivery ID
    sent = refused = 0
    while (is_open := time.monotonic() < deadline) or handles:
        out = []
        while free and is_open:
            handles[sent] = handle = free.popleft()
            octets = sent.to_bytes(4, "big")
            out.append(frames[handle][sent % load.batch] % (octets, octets))
            sent += 1
        client.sock.sendall(b"".join(out))
        board.cells[SENT] = sent
        for frame in client.read() if handles else ():
            if isinstance(frame, p.Disposition):
                for number in range(frame.first, (frame.first if frame.last is None else frame.last) + 1):
                    free.append(handles.pop(number))
                    refused += not isinstance(frame.state, p.Accepted)
    watch.finished = time.monotonic()
    board.cells[SENT_FINAL] = sent - refused
    client.sock.close()
    return watch.report(count=sent - refused, sent=sent - refused, refused=refused)


def _frame(body: bytes, load: AmqpLoad, handle: int = 0) -> bytes:
    """A transfer to be filled in (`%`) with its number twice, as octets, and with the number if varied."""
    sections: list[Any] = [p.Header(durable=load.durable)]
    if load.varied:
        at_ms = t.Timestamp(1_767_225_600_000)
        sections.append(
            p.Properties(message_id=NAME_MARK, content_type="application/json", creation_time=at_ms)
        )
    message = b"".join(map(p.encode, sections))
    if load.varied:
        message += t.encode_value(t.Described(APPLICATION_PROPERTIES, {"source": "benchmark"}))
    message += t.encode_value(t.Described(DATA, body))
    transfer = p.Transfer(handle, t.UInt.from_bytes(ID_MARK, "big"), ID_MARK, 0, not load.confirms)
    frame = encode_frame(0, transfer, message).replace(b"%", b"%%")
    return frame.replace(ID_MARK, b"%b").replace(NAME_MARK.encode(), b"%036d")


class DeliveryCounter:
    """Counts deliveries; the last of each read must be the message whose turn it is."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.count = 0
        self.first_id = 0
        self._bodies = bodies
        self._rest = b""

    def receive(self, sock: socket.socket) -> int:
        """Read once and count; gives how much came."""
        got = sock.recv(RECEIVE_BYTES)
        if not got:
            raise ClientError("the broker closed the connection")
        data = self._rest + got
        at, last_end = 0, 0
        while len(data) - at >= c.FRAME_HEAD_BYTES:
            end = at + HEAD.unpack_from(data, at)[0]
            if end > len(data):
                break
            if data.startswith(b"\x00\x53\x14", at + c.FRAME_HEAD_BYTES):
                if not self.count:
                    self.first_id = p.decode(data, at + c.FRAME_HEAD_BYTES, end)[0].delivery_id
                self.count += 1
                last_end = end
            at = end
        self._rest = data[at:]
        if last_end and not data[:last_end].endswith(self._bodies[(self.count - 1) % len(self._bodies)]):
            raise ClientError(f"delivery {self.count} is not the message whose turn it is")
        return len(got)


def consumer(board: Board, index: int, target: Target, load: AmqpLoad, queue: str) -> dict[str, Any]:
    """Consume until everything sent has come (or nothing comes any more), accepting in ranges."""
    client = Client(target, _receiver(queue, is_settled=load.no_ack))
    counter = DeliveryCounter(make_bodies(load.size, load.batch))
    accepted = 0

    def credit() -> bytes:
        most = CREDIT_MAX if load.no_ack else load.prefetch
        return _credit(client, counter.count, most)

    def accept(count: int) -> bytes:
        nonlocal accepted
        first, last = (counter.first_id + number & c.UINT_MAX for number in (accepted, count - 1))
        accepted = count
        return encode_frame(0, p.Disposition(c.RECEIVER, first, last, True, p.Accepted())) + credit()

    client.sock.sendall(credit())
    set_wait(client.sock, 0.05)
    board.wait_start(index)
    watch = Stopwatch()
    count = consume_all(board, client.sock, counter, load, watch, acknowledge=accept)
    client.sock.close()
    return watch.report(count=count)


def _receiver(queue: str, *, is_settled: bool = False) -> p.Attach:
    return p.Attach("bench", 0, c.RECEIVER, int(is_settled), 0, p.Source(f"/queues/{queue}"), p.Target())


def _credit(client: Client, count: int, most: int) -> bytes:
    """A flow for `most` messages beyond so many that came, one transfer each."""
    next_id = client.begin.next_outgoing_id + count & c.UINT_MAX
    return encode_frame(0, p.Flow(next_id, WINDOW, 0, WINDOW, 0, count, most))


def timed_publisher(
    board: Board, index: int, target: Target, load: LatencyLoad, queue: str
) -> dict[str, Any]:
    """Send each message when it is due, as that of AMQP 0.9.1; outcomes are read while waiting."""
    client = Client(target, _sender(queue))
    sock, clock = client.sock, time.monotonic_ns
    frame = _frame(bytes(load.size), AmqpLoad())
    head, tail = frame[: -load.size], frame[-load.size + STAMP.size :]
    waits: list[int] = []
    worst_delay = 0

    def confirm(data: bytes) -> None:
        now = clock()
        for frame in client.feed(data):
            if isinstance(frame, p.Disposition):
                last = frame.first if frame.last is None else frame.last
                waits.extend(now - begin - number * interval_ns for number in range(frame.first, last + 1))

    board.wait_start(index)
    watch = Stopwatch()
    interval_ns = 1_000_000_000 // load.rate
    begin = clock() + 10_000_000
    for number in range(load.messages):
        due = begin + number * interval_ns
        while (left := (due - clock()) / 1e9) > 0:
            try:
                confirm(sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT))
            except BlockingIOError:
                if left > SPIN_S:
                    select.select((sock,), (), (), left - SPIN_S)
        octets = number.to_bytes(4, "big")
        sock.sendall(head % (octets, octets) + STAMP.pack(due) + tail)
        worst_delay = max(worst_delay, clock() - due)
    while len(waits) < load.messages:
        confirm(sock.recv(RECEIVE_BYTES))
    board.cells[SENT_FINAL] = load.messages
    watch.finished = time.monotonic()
    sock.close()
    waits, late_ms = waits[load.warmup_messages :], round(worst_delay / 1e6, 3)
    return watch.report(waits_ns=waits, send_delay_ms_max=late_ms, sent=load.messages)


def timing_consumer(
    board: Board, index: int, target: Target, load: LatencyLoad, queue: str
) -> dict[str, Any]:
    """Read the due time of each message at its arrival and accept it at once."""
    client = Client(target, _receiver(queue))
    client.sock.sendall(_credit(client, 0, 1_000))
    set_wait(client.sock, 0.2)
    board.wait_start(index)
    watch = Stopwatch()
    waits: list[int] = []
    rest = b""
    while len(waits) < load.messages:
        try:
            data = client.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            if time.monotonic() - watch.finished > STALL_S:
                break
            continue
        if not data:
            raise ClientError("the broker closed the connection")
        now, at, first = time.monotonic_ns(), 0, None
        rest += data
        while len(rest) - at >= c.FRAME_HEAD_BYTES and at + HEAD.unpack_from(rest, at)[0] <= len(rest):
            end = at + HEAD.unpack_from(rest, at)[0]
            if rest.startswith(b"\x00\x53\x14", at + c.FRAME_HEAD_BYTES):
                delivery_id = p.decode(rest, at + c.FRAME_HEAD_BYTES, end)[0].delivery_id
                first = delivery_id if first is None else first
                waits.append(now - STAMP.unpack_from(rest, end - load.size)[0])
            at = end
        rest = rest[at:]
        if first is not None:
            accepted = encode_frame(0, p.Disposition(c.RECEIVER, first, delivery_id, True, p.Accepted()))
            client.sock.sendall(accepted + _credit(client, len(waits), 1_000))
            watch.finished = time.monotonic()
    client.sock.close()
    return watch.report(count=len(waits), waits_ns=waits[load.warmup_messages :])
