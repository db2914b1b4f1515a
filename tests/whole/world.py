"""One broker, the clients of a sequence, and the oracle beside them: runs operations and compares.

An operation is `(name, client, arguments)`, plain data, so that a sequence is a list that can be written down
and cut. An operation that makes no sense where it stands (its client is not there) does nothing: any part of
a sequence is a sequence. After each the world is settled: everything owed has come, and a question to each
client's connection has been answered, so that what should not come had its chance.
"""

from __future__ import annotations

import json
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import Any

from tests.e2e.broker_process import BrokerProcess
from tests.whole.amqp10_client import Amqp10
from tests.whole.clients import Amqp, Client, Event, Gone, Http, Mqtt, Silent, pump
from tests.whole.policies import Policies
from tests.whole.queues import DONE, EARLY_S, HELD, Consumer, Deaths, Item, Message, Mismatch, Queue, Queues
from tests.whole.replies import Replies, WrongReply
from tests.whole.routes import Routes
from tests.whole.sessions import Session, Sessions
from tests.whole.settings import Settings

Operation = tuple[str, str, dict[str, Any]]
OWED_TIMEOUT_S = 4.0
TRACE_LINES = 500
UNTOLD = {"message", "group", "holder", "copies", "ways"}


class Skip(Exception):
    """The operation makes no sense here."""


def deaths_told(headers: dict[str, Any]) -> Deaths:
    """Queue and reason of each death that a delivery tells of, the newest first."""
    told = headers.get("x-death", [])
    listed = json.loads(told) if isinstance(told, str) else told  # user properties of MQTT are texts
    return tuple((one["queue"], one["reason"]) for one in listed)


class World(ABC):
    """State of one sequence: `broker` serves many of them, one after the other."""

    counts_deliveries = True  # in `x-delivery-count`, and by `redelivered` in each queue

    def __init__(self, broker: BrokerProcess, counts: Counter[str] | None = None, vhost: str = "/") -> None:
        self.broker = broker
        self.workers: int = broker.config.get("workers", 1)
        self.vhost = vhost
        self.policies = Policies()
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.amqp: dict[str, Amqp] = {}
        self.amqp10: dict[str, Amqp10] = {}
        self.mqtt: dict[str, Mqtt] = {}
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.http = Http(broker.ports["http"], vhost, self.trace)
        self.mqcore = Http(broker.ports["mqcore"], vhost, self.trace) if "mqcore" in broker.ports else None
        self.routes = Routes()
        self.queues = Queues(self._dead)
        self.sessions = Sessions()
        self.replies = Replies()
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.held: dict[str, dict[int, Item]] = {}
        self.acknowledged: dict[str, list[tuple[float, Item]]] = {}
        self.returned: list[tuple[str, Event]] = []
        self.cancelled: list[tuple[str, str]] = []
        self.may_cancel: set[tuple[str, str]] = set()
        self.may_end: set[str] = set()
        self.retained_topics: set[str] = set()
        self.client_names: set[str] = set()
        self.responses: dict[str, str] = {}
        self.number = 0
        self.dares = True
        self.effective: list[Operation] = []
        self.attempted: Operation | None = None

    # ---- running

    def run(self, sequence: list[Operation]) -> None:
        """All of it, then drain and clean up. Raises Mismatch with the place where it happened."""
        for position, operation in enumerate(sequence):
            self._guarded(
                f"operation {position}, {operation}", lambda operation=operation: self.step(operation)
            )
        self._guarded("at the end", self.finish)

    def _guarded(self, where: str, work: Any) -> None:
        try:
            work()
        except Mismatch as mismatch:
            raise Mismatch(f"{where}: {mismatch}") from mismatch
        except Exception as error:  # an oracle that fails must not end hours of work
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = "" if isinstance(error, Gone | Silent) else f" ({frame.name}, line {frame.lineno})"
            raise Mismatch(f"{where}: {type(error).__name__}: {error}{place}") from error

    def step(self, operation: Operation) -> None:
        """Do an operation. With the argument `dare` false it does nothing where it would be refused, so that
        what channels hold lives long enough to meet something.
        """
        name, client, arguments = operation
        self.dares = arguments.get("dare", True)
        arguments = {key: value for key, value in arguments.items() if key != "dare"}
        self.attempted = operation
        self.trace.append(f"{time.time():.4f} {operation}, from m{self.number + 1} on")
        self.wait_for_clock()
        self.queues.advance(time.time())
        try:
            getattr(self, f"do_{name}")(client, **arguments)
        except Skip:
            self.counts[f"{name} (nothing to do)"] += 1
            return
        self.counts[name] += 1
        self.effective.append(operation)
        self.settle()

    def settle(self) -> None:
        """Wait until everything owed has come, ask each connection something, and check what came."""
        deadline = time.monotonic() + OWED_TIMEOUT_S
        for name in sorted(
            self.may_end
        ):  # sent away: what they leave behind, as wills, is right from here on
            self._ends(name)
        self.queues.advance(time.time())
        self._feed()
        while True:
            self.queues.advance(time.time())
            owed = self.owed()
            if owed is None:
                self._barrier()
                self._feed()
                owed = self.owed()
                if owed is None:
                    break
            if time.monotonic() > deadline:
                raise Mismatch(f"owed and not given: {owed}")
            pump(self.clients(), 0.05)
            self._feed()
        if self.returned:
            raise Mismatch(f"returned for no reason: {self.returned[0]}")
        for client, tag in self.cancelled:
            if (client, tag) not in self.may_cancel:
                raise Mismatch(f"consumer {client}/{tag} was cancelled for no reason")
        self.cancelled.clear()
        self.end_step()

    def end_step(self) -> None:
        """An operation is over, and all that came of it is there. Raises Mismatch."""
        self.queues.end_step()
        self.sessions.settled()
        self.sessions.step += 1

    @abstractmethod
    def wait_for_clock(self) -> None:
        """Sleep until what is about to happen by itself has happened: see the operations of MQTT."""

    def is_read(self, name: str, fields: dict[str, Any]) -> bool:
        """Whether a delivery was of a stream: see the operations of these."""
        return False

    def owed(self) -> str | None:
        """What somebody should have been given by now."""
        for name, mqtt in self.mqtt.items():
            for packet_id in [packet_id for packet_id in self.held[name] if packet_id > 0 and not mqtt.hold]:
                return f"PUBREL {packet_id} of a message of a queue to {name}"
        return self.queues.owed(time.time()) or self.sessions.owed() or self.replies.owed()

    def _ends(self, name: str) -> None:
        """Wait for the end of a client whose subscription was ended by the broker."""
        client = self.mqtt[name]
        try:
            client.wait(lambda: False, "end of the connection")
        except Gone:
            pass
        events = self.take_events(client)
        for event in events:
            self._mqtt_event(name, client, event)
        self.lost_mqtt(name)

    def clients(self) -> list[Client]:
        return [*self.amqp.values(), *self.amqp10.values(), *self.mqtt.values()]

    def connections(self) -> int:
        """How many there should be."""
        return len(self.clients())

    def _barrier(self) -> None:
        self._ask_all()
        if self.workers > 1:  # what clients said is on its way to the other worker, and comes before this
            self.http.ask_workers()
            self._ask_all()

    def _ask_all(self) -> None:
        waiting = [(client, client.barrier()) for client in self.clients()]
        for client, answered in waiting:
            try:
                client.wait(answered, "answer to a barrier")
            except Gone:
                pass

    # ---- what came

    def take_events(self, client: Client) -> list[Event]:
        """Give what a client has read and the oracle does not know yet."""
        events, client.events = client.events, []
        self.trace += [f"{event.at:.4f}   {client.name} {event.kind} {event.fields}" for event in events]
        return events

    def told(self) -> list[str]:
        """Tell what happened last, and what the oracle takes for true."""
        lines = [*self.trace, f"{time.time():.4f} now"]
        for queue in self.queues:
            scheduled = [(due, item.message.body) for due, item in queue.scheduled]
            lines.append(f"queue {queue.name} {queue.settings}, scheduled {scheduled}")
            for group in queue.groups.values():
                lines.append(f"  group {group.name}, consumers {[c.tag for c in group.consumers]}")
                for item in group.items:
                    fields = {key: value for key, value in vars(item).items() if value and key not in UNTOLD}
                    lines.append(f"    {item.message.body} {fields}")
        for session in self.sessions.sessions.values():
            lines.append(f"session {session}")
        return lines

    def _feed(self) -> None:
        self.queues.advance(time.time())  # what is due may have come already
        for name, amqp in self.amqp.items():
            events = self.take_events(amqp)
            for event in events:
                self._amqp_event(name, event)
            if amqp.gone is not None or amqp.closed is not None:
                raise Mismatch(f"{name} was sent away: {amqp.closed or amqp.gone}")
        for name, mqtt in list(self.mqtt.items()):
            events = self.take_events(mqtt)
            for event in events:
                self._mqtt_event(name, mqtt, event)
            if mqtt.gone is not None:
                if name not in self.may_end:
                    raise Mismatch(f"{name} was sent away: {mqtt.gone}")
                self.lost_mqtt(name)

    def _amqp_event(self, name: str, event: Event) -> None:
        fields = event.fields
        if event.kind == "return":
            self.returned.append((name, event))
        elif event.kind == "cancel":
            self.cancelled.append((name, fields["consumer"]))
        elif not self._is_reply(name, fields) and not self.is_read(name, fields):
            consumer = self.consumers.get((name, fields["consumer"]))
            if consumer is None:
                raise Mismatch(f"{fields['body']!r} to {name}/{fields['consumer']}, which is cancelled")
            item = self.queues.delivered(
                consumer,
                fields["body"],
                event.at,
                fields["tag"],
                deaths_told(fields["headers"]),
                is_first=not fields["redelivered"] if self.counts_deliveries else None,
                attempt=self.attempt_told(fields),
            )
            self.check_delivery(item, fields)
            if consumer.takes == "hold":
                self.held[name][fields["tag"]] = item

    def _is_reply(self, name: str, fields: dict[str, Any]) -> bool:
        try:
            return self.replies.delivered(name, fields["consumer"], fields["body"])
        except WrongReply as wrong:
            raise Mismatch(str(wrong)) from None

    def attempt_told(self, fields: dict[str, Any]) -> int | None:
        """Which attempt a delivery over AMQP 0.9.1 says it is."""
        told: int = fields["headers"].get("x-delivery-count", 0)
        return told + 1 if self.counts_deliveries else None

    def check_delivery(self, item: Item, fields: dict[str, Any]) -> None:
        """`redelivered`, `x-delivery-count`, the routing key and the headers that tell of a death."""
        low, high = item.attempts
        if not self.counts_deliveries:
            item.attempts = (1, 2)
        elif fields["redelivered"]:
            if high < 2:
                raise Mismatch(f"{fields['body']!r} says redelivered at its first attempt")
            item.attempts = (max(low, 2), high)
        elif low > 1:
            raise Mismatch(f"{fields['body']!r} does not say redelivered at attempt {low}")
        headers = fields["headers"]
        told = headers.get("x-delivery-count")
        if not self.counts_deliveries:
            pass
        elif told is not None:
            self.queues.check_attempts(item, told + 1)
        elif fields["redelivered"] or low > 1:
            raise Mismatch(f"{fields['body']!r} does not say its x-delivery-count")
        if "BCC" in headers:
            raise Mismatch(f"{fields['body']!r} shows BCC")
        self._check_reply_to(item, fields)
        deaths = headers.get("x-death")
        if item.deaths:
            if not deaths or (deaths[0]["queue"], deaths[0]["reason"]) != item.deaths[-1]:
                raise Mismatch(f"{fields['body']!r} died {item.deaths}, x-death says {deaths}")
        elif deaths:
            raise Mismatch(f"{fields['body']!r} has x-death and never died: {deaths}")

    def _check_reply_to(self, item: Item, fields: dict[str, Any]) -> None:
        """Where it wants its answer: the address of an asker, or the response topic of an MQTT publisher."""
        told, topic = fields["properties"], self.responses.get(fields["body"])
        if topic is not None:
            address = topic if "/" in topic else f"/exchanges/amq.topic/{topic}"  # and not a queue's name
            if (told.reply_to, told.correlation_id) != (address, fields["body"]):
                raise Mismatch(
                    f"{fields['body']!r} says reply_to {told.reply_to}, {told.correlation_id}, not {address}"
                )
            return
        try:
            self.replies.told(item.message.asker, told.reply_to)
        except WrongReply as wrong:
            raise Mismatch(f"{fields['body']!r}: {wrong}") from None

    def _mqtt_event(self, name: str, mqtt: Mqtt, event: Event) -> None:
        session = self.sessions.sessions[name]
        fields = event.fields
        if event.kind == "deliver":  # the identifier is that of another message from now on
            session.maybe_unreleased.pop(fields["packet_id"], None)
        if event.kind == "deliver" and mqtt.version == 5:
            wanted = self.responses.get(fields["body"])
            told = fields.get("response")
            asked_by_amqp = wanted is None and (told or "").startswith("amq.rabbitmq.reply-to.")
            as_sent = told == wanted and fields.get("correlation") == (wanted and fields["body"])
            if not as_sent and not asked_by_amqp:
                raise Mismatch(f"{fields['body']!r} says the response topic {told}, not {wanted}")
        if event.kind == "released":
            self.sessions.released(session, fields["packet_id"], completed=not mqtt.hold_release)
            if not mqtt.hold and fields["packet_id"] in self.held[name]:
                self.completed(name, session, self.held[name].pop(fields["packet_id"]))
            return
        if not fields["topic"].startswith("$queue/"):
            try:
                self.sessions.delivered(session, fields, event.at)
            except Mismatch:  # a dead letter may come a little before its time as it is known here
                self.queues.advance(time.time() + EARLY_S)
                self.sessions.delivered(session, fields, event.at)
            if fields["qos"] and not mqtt.hold:
                self.sessions.acknowledged(session, fields["packet_id"])
            return
        queue = fields["topic"].split("/")[1]
        consumer = self.consumers.get((name, queue))
        if consumer is None:
            raise Mismatch(f"{fields['body']!r} to {name}, which is not subscribed to {queue}")
        user = fields["user"]
        deaths = deaths_told(user) if mqtt.version == 5 else None
        attempt = int(user["attempts"]) if mqtt.version == 5 else None
        item = self.queues.delivered(
            consumer, fields["body"], event.at, fields["packet_id"], deaths, attempt=attempt
        )
        if attempt is not None:
            self.queues.check_attempts(item, attempt)
            if user["group-id"] != consumer.group.name or user["queue"] != queue:
                raise Mismatch(f"{fields['body']!r} says {user}, it is {queue}/{consumer.group.name}")
            event.fields["item"] = item
        if consumer.takes == "hold":
            if fields["qos"] == 2 or (mqtt.hold and fields["qos"]):  # until PUBCOMP, which answers PUBREL
                session.queue_in_flight += 1
                self.held[name][fields["packet_id"]] = item
            elif consumer.explicit:
                self.held[name][-event.fields["packet_id"] - (self.next_number() << 16)] = item
            else:
                self._acknowledged(name, item)
        if consumer.explicit:
            item.tag = (user["message-id"], user["group-id"], user["attempts"])

    def completed(self, name: str, session: Session, item: Item) -> None:
        """PUBCOMP was sent for a message of a queue."""
        session.queue_in_flight -= 1
        consumer = item.holder
        if item.state != HELD or consumer is None or consumer.client != name:
            return  # its lease ended, or its queue is gone
        if consumer.explicit:
            self.held[name][-self.next_number() << 16] = item
        else:
            self._acknowledged(name, item)

    def _acknowledged(self, name: str, item: Item) -> None:
        """PUBACK, or PUBCOMP, was sent for a message of a queue."""
        now = time.time()
        self.queues.done(item, now)
        self.acknowledged.setdefault(name, []).append((now, item))

    def ended_unread(self, name: str, client: Mqtt) -> None:
        """The broker ended the connection, and may not have read which messages of queues were acknowledged a
        moment ago.
        """
        now = time.time()
        for at, item in self.acknowledged.pop(name, []):
            queue = item.group.queue if item.group else None
            is_there = queue is not None and self.queues.queues.get(queue.name) is queue
            if at >= client.read_until and item.state == DONE and is_there:
                self.queues.perhaps_done(item, now)

    def expect_early(self, *, is_expected: bool) -> None:
        """A message may have died into a stream a little before its time as it is known here."""
        if not is_expected:
            self.queues.advance(time.time() + EARLY_S)

    # ---- help for operations

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def need_amqp(self, name: str) -> Amqp:
        if name not in self.amqp:
            raise Skip
        return self.amqp[name]

    def need_mqtt(self, name: str) -> Mqtt:
        if name not in self.mqtt:
            raise Skip
        return self.mqtt[name]

    def need_queue(self, name: str) -> Queue:
        if name not in self.queues.queues:
            raise Skip
        return self.queues.queues[name]

    def queue_or_new(self, name: str) -> Queue:
        """The queue; where there is none, an address of it makes it."""
        queue = self.queues.queues.get(name)
        if queue is None:
            queue = self.queues.queues[name] = self.auto_created(name)
        return queue

    def auto_created(self, name: str) -> Queue:
        """A queue as a publish to it makes it."""
        return Queue(name, Settings(durable=False), self.policies, auto_created=True)

    def _dead(self, queue: Queue, message: Message) -> list[str]:
        settings = queue.settings
        assert settings.dead_exchange is not None
        keys = [settings.dead_key] if settings.dead_key else [message.key, *message.cc]
        if settings.dead_exchange not in self.routes.exchanges:
            return []
        names = set(self.queues.queues)
        route = self.routes.route(settings.dead_exchange, keys, message.headers, names)
        if route.topics:
            topic = keys[0].replace(".", "/")
            self.sessions.publish(topic, message.body, 3, required=False, by_topics=route.topics)
        return sorted(route.queues)

    def forget_queue(self, name: str) -> None:
        """The queue is deleted: its consumers end."""
        self.queues.expire_before(self.queues.queues[name], time.time())
        queue = self.queues.queues.pop(name)
        self.routes.drop_queue(name)
        for group in queue.groups.values():
            for consumer in list(group.consumers):
                self.consumers.pop((consumer.client, consumer.tag), None)
                if consumer.client in self.mqtt:
                    self.may_end.add(consumer.client)
                else:
                    self.may_cancel.add((consumer.client, consumer.tag))
        queue.ended()

    def left_unread(self, name: str) -> None:
        """The connection of an AMQP client ended without a last answer: see `Queues.left_unread`."""
        now = time.time()
        self.queues.advance(now)
        for consumer in [consumer for key, consumer in self.consumers.items() if key[0] == name]:
            self.queues.left_unread(consumer, now)

    def forget_channel(self, name: str, *, connection: bool = False) -> None:
        """The consumers of an AMQP client end, what it holds returns; with `connection` exclusive queues."""
        now = time.time()
        self.replies.end(name)
        gone = [consumer for key, consumer in self.consumers.items() if key[0] == name]
        held = [item for item in self.held[name].values() if item.state == HELD]
        for consumer in gone:
            del self.consumers[consumer.client, consumer.tag]
            consumer.group.consumers.remove(consumer)
        self.queues.all_back(held, now)
        self.held[name].clear()
        for queue in list(self.queues):
            if connection and queue.exclusive == name:
                self.forget_queue(queue.name)
        for consumer in gone:
            self.left(consumer.queue)

    def left(self, queue: Queue) -> None:
        """A consumer has left: an auto-delete queue goes with the last one."""
        used = any(group.consumers for group in queue.groups.values())
        if queue.settings.auto_delete and not used and self.queues.queues.get(queue.name) is queue:
            self.forget_queue(queue.name)

    def lost_mqtt(self, name: str, *, will: bool = True) -> None:
        """The connection of an MQTT client has ended, by either side."""
        client = self.mqtt.pop(name)
        session = self.sessions.sessions.get(name)
        if client.is_sent_away():
            self.ended_unread(name, client)
            if session is not None:
                self.sessions.ended_unread(session, client.read_until)
        self.acknowledged.pop(name, None)
        client.drop()
        self.may_end.discard(name)
        now = time.time()
        for key in [key for key in self.consumers if key[0] == name]:
            consumer = self.consumers.pop(key)
            if self.queues.queues.get(consumer.queue.name) is consumer.queue:
                self.queues.advance(now)
                self.queues.left_unread(consumer, now)
                self.queues.leave(consumer, now)
                self.left(consumer.queue)
        self.held[name].clear()
        if session is not None:
            session.queue_in_flight = 0
        self.sessions.lose(name)
        self._will(name, published=will)

    @abstractmethod
    def _will(self, name: str, *, published: bool) -> None:
        """A client is gone: its will is published, or not."""

    # ---- the end

    @abstractmethod
    def finish(self) -> None:
        """Drain every queue and session, delete everything, and see that nothing is left."""
