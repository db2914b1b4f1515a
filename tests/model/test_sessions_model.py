"""Lasting sessions against an oracle: connects, take-overs, publishes, acknowledgements, cuts, crashes, time.

The oracle knows which messages each session has to get. A crash loses what is in no commit: publishes that
nobody confirmed, and answers that nobody was told.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.engine.shard import Shard
from protocols.mqtt.topic_filters import matches
from queue_manager.sessions.common import REJECT, Bounds
from queue_manager.sessions.session import Delivery, Session
from queue_manager.sessions.session_subscription import SubscriptionOptions
from storage.envelope import EnvelopeTemplate
from storage.records import NEVER_S
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run

CLIENTS = ("c0", "c1", "c2")
FILTERS = ("a", "b", "+", "#", "c/#")
TOPICS = ("a", "b", "c/d")
EXPIRY_S = 60
WINDOW = 4
QUEUED_MAX = 4


@dataclass(eq=False)
class Message:
    """A publish; `due_ms`: it expires then."""

    text: bytes
    topic: str
    qos: int
    number: int
    due_ms: int | None
    publisher: str | None
    is_confirmed: bool = False


@dataclass(eq=False)
class Client:
    """A client that loses nothing it knows: what it got, and its open exchanges."""

    name: str
    filters: dict[str, tuple[int, int, bool]] = field(default_factory=dict)  # QoS, from number, no local
    got: dict[bytes, int] = field(default_factory=dict)  # the QoS it came with first
    order: list[int] = field(default_factory=list)
    optional: set[bytes] = field(default_factory=set)
    held: list[Delivery] = field(default_factory=list)  # QoS 1, not acknowledged
    owed: set[bytes] = field(default_factory=set)  # QoS 1, not acknowledged over earlier connections
    receiving: dict[int, bytes] = field(default_factory=dict)  # QoS 2: PUBREC not said, or not released
    said: set[int] = field(default_factory=set)  # QoS 2: PUBREC said in this connection
    releases: list[int] = field(default_factory=list)
    exists: bool = False
    over_at_ms: int | None = None
    expiry_s: int = NEVER_S
    is_end_stored: bool = True
    connection: Link | None = None


class Link:
    """A connection; what comes over one that was cut is lost."""

    def __init__(self, machine: SessionsModel, client: Client, session: Session) -> None:
        self.machine = machine
        self.client = client
        self.session = session
        self.used: set[int] = set(session.unfinished.packet_ids())
        self.unsent = set(session.unfinished.unreceived())
        self.received_count = len(self.used) - len(self.unsent)  # PUBREC said: PUBREL is sent in any case
        self.window = machine.random.randint(1, WINDOW)
        self.next_id = 0
        self.is_open = True

    def room(self) -> int:
        return self.window - len(self.used) + len(self.unsent)

    def take_packet_id(self) -> int:
        while True:
            self.next_id = self.next_id % 50 + 1
            if self.next_id not in self.used:
                self.used.add(self.next_id)
                return self.next_id

    def deliver(self, deliveries: list[Delivery]) -> None:
        if self.is_open:
            for delivery in deliveries:
                self.unsent.discard(delivery.packet_id)
                open_count = len(self.used) - len(self.unsent)
                assert open_count <= max(self.window, self.received_count), "beyond the Receive Maximum"
                self.machine.delivered(self.client, delivery)

    def release(self, packet_ids: list[int]) -> None:
        if self.is_open:
            self.client.releases += packet_ids

    def forget(self, packet_ids: list[int]) -> None:
        self.used.difference_update(packet_ids)
        self.unsent.difference_update(packet_ids)


class SessionsModel:
    """Drives a shard step by step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.shard: Shard = open_shard(self.store, self.clock)
        self.clients = {name: Client(name) for name in CLIENTS}
        self.messages: list[Message] = []
        self.messages_max = QUEUED_MAX if seed % 3 == 0 else 0
        self.has_crashed = False
        self.sessions.limit(Bounds(self.messages_max, 0, REJECT))

    # what clients get

    def delivered(self, client: Client, delivery: Delivery) -> None:
        text = delivery.merged.message.body
        message = self.messages[int(text)]
        assert delivery.qos in (1, 2)
        assert any(matches(f, message.topic) for f in client.filters) or text in client.optional | set(
            client.got
        )
        client.owed.discard(text)
        if delivery.qos == 1:
            assert client.got.get(text) != 2, "a message of QoS 2 came again with QoS 1"
            client.held.append(delivery)
        elif delivery.packet_id in client.receiving:
            assert client.receiving[delivery.packet_id] == text, "an identifier was used for two messages"
            return
        else:
            assert client.got.get(text) != 2, "a message of QoS 2 came twice"
            client.receiving[delivery.packet_id] = text
            if text in client.got:  # with QoS 1 before it was subscribed anew
                client.got[text] = 2
        if text not in client.got:
            assert not client.order or client.order[-1] < message.number, "out of order"
            client.got[text] = delivery.qos
            client.order.append(message.number)

    # the shard

    def settle(self) -> None:
        """As the driver of a shard: dispatch and load until nothing is left to do."""
        for _ in range(1000):
            self.shard.manager.dispatch(self.clock.ms)
            if not load(self.shard):
                return
        raise AssertionError("it never comes to rest")

    def commit_all(self, *, everything: bool = False) -> None:
        while run(self.shard.commit_once(everything=everything)):
            self.settle()
        for message in self.messages:
            message.is_confirmed = True
        for client in self.clients.values():
            client.is_end_stored = True
        assert all(log.readers for log in self.sessions.logs)

    @property
    def sessions(self) -> Any:
        return self.shard.manager.sessions.of("/")

    # rules

    def connect(self, name: str, is_clean: bool, expiry: int) -> None:
        client = self.clients[name]
        if client.connection is not None:
            self.cut(name)  # taken over
        found = self.sessions.find(name, self.clock.ms)
        is_over = client.over_at_ms is not None and self.clock.ms >= client.over_at_ms
        assert (found is not None) == (client.exists and not is_over)
        if found is not None and is_clean:
            self.sessions.end(found, self.clock.ms)
            found = None
        if found is None:
            self.forget(client)
            found = self.sessions.begin(name, "", expiry)
        found.expect(expiry)
        client.expiry_s = expiry
        client.exists = True
        client.over_at_ms = None
        client.owed |= {delivery.merged.message.body for delivery in client.held}
        client.held.clear()
        client.said.clear()
        client.releases.clear()
        client.connection = Link(self, client, found)
        found.attach(client.connection)
        self.commit_all()  # or a crash would undo it
        self.settle()

    def forget(self, client: Client) -> None:
        """Its session is over; what it got stays, as a new one starts with new messages."""
        client.filters.clear()
        client.held.clear()
        client.owed.clear()
        client.receiving.clear()
        client.optional.clear()
        client.got.clear()
        client.order.clear()
        client.exists = False
        client.over_at_ms = None

    def cut(self, name: str) -> None:
        client = self.clients[name]
        if client.connection is not None:
            client.connection.is_open = False
            self.sessions.leave(client.connection.session, self.clock.ms)
            self.gone(client)

    def gone(self, client: Client) -> None:
        client.connection = None
        client.is_end_stored = False
        client.over_at_ms = None if client.expiry_s == NEVER_S else self.clock.ms + client.expiry_s * 1000

    def subscribe(self, name: str, topic_filter: str, qos: int, no_local: bool) -> None:
        client = self.clients[name]
        if client.connection is None:
            return
        options = SubscriptionOptions(qos, no_local, False, 0, 0, b"")
        is_new = self.sessions.subscribe(client.connection.session, topic_filter, options, is_logged=True)
        assert is_new == (topic_filter not in client.filters)
        number = len(self.messages) if is_new else client.filters[topic_filter][1]
        if not is_new and client.filters[topic_filter][2] != no_local:
            client.optional |= {m.text for m in self.messages if m.publisher == name}
        client.filters[topic_filter] = (qos, number, no_local)
        self.commit_all()  # SUBACK

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        client = self.clients[name]
        if client.connection is None or topic_filter not in client.filters:
            return
        session = client.connection.session
        client.optional |= {m.text for m in self.messages if matches(topic_filter, m.topic)}
        del client.filters[topic_filter]
        session.remove(session.subscriptions[topic_filter])
        self.commit_all()  # UNSUBACK

    def publish(self, topic: str, qos: int, ttl_s: int, publisher: str | None, count: int) -> None:
        owner = None if publisher is None else self.clients[publisher].connection
        due_ms = self.clock.ms + ttl_s * 1000 if ttl_s else None
        first = len(self.messages)
        bodies = [str(number).encode() for number in range(first, first + count)]
        logs = [log for log in self.sessions.logs if matches(log.filter, topic)]
        if not self.sessions.logs.has_room(logs, len(bodies), sum(map(len, bodies))):
            copies = {c: sum(matches(f, topic) for f in c.filters) for c in self.clients.values()}
            assert any(
                n and self.waiting_max(c) + n * count > self.messages_max for c, n in copies.items()
            ), "there is room"
            return  # and nobody is given it
        for number in range(first, first + count):
            text = str(number).encode()
            name = publisher if owner else None
            self.messages.append(Message(text, topic, qos, number, due_ms, name))
        if logs:
            template = EnvelopeTemplate(topic, persistent=True, expires_at_ms=ttl_s * 1000)
            session = None if owner is None else owner.session
            self.sessions.logs.publish(logs, template, qos, False, session, bodies, self.clock.ms)
        self.settle()

    def waiting_max(self, client: Client) -> int:
        """At most so many messages wait for a client, each once for every filter it matched."""
        return sum(
            number <= message.number and matches(topic_filter, message.topic)
            for topic_filter, (_, number, _) in client.filters.items()
            for message in self.messages
            if self.has_crashed or message.text not in client.got  # what it got may not be written
        )

    def acknowledge(self, name: str, choice: int, count: int) -> None:
        """PUBACK for some, in any order."""
        client = self.clients[name]
        if client.connection is not None and client.held:
            for _ in range(min(count, len(client.held))):
                delivery = client.held.pop(choice % len(client.held))
                self.finish(client, delivery.packet_id)
            self.settle()

    def finish(self, client: Client, packet_id: int) -> None:
        assert client.connection is not None
        client.connection.forget([packet_id])
        client.connection.session.acknowledge([packet_id], self.clock.ms)

    def receive(self, name: str) -> None:
        """PUBREC for everything received."""
        client = self.clients[name]
        if client.connection is None:
            return
        ids = [i for i in client.receiving if i not in client.said]
        if ids:
            client.said.update(ids)
            known = client.connection.session.receive(ids, self.clock.ms)
            for packet_id in set(ids) - set(known):  # PUBREL with 0x92: the session has forgotten it
                del client.receiving[packet_id]
                client.said.discard(packet_id)

    def complete(self, name: str) -> None:
        """PUBCOMP for everything released."""
        client = self.clients[name]
        if client.connection is None:
            return
        for packet_id in client.releases:
            client.receiving.pop(packet_id, None)
            client.said.discard(packet_id)
            self.finish(client, packet_id)
        client.releases.clear()
        self.settle()

    def commit(self) -> None:
        self.commit_all()

    def tick(self, elapsed_s: int) -> None:
        self.clock.ms += elapsed_s * 1000
        self.shard.manager.fire_timers(self.clock.ms)
        self.settle()

    def crash(self) -> None:
        """What no commit has is lost; sessions that were connected count from the start of the broker."""
        for message in self.messages:
            if not message.is_confirmed:
                for client in self.clients.values():
                    client.optional.add(message.text)
        self.store = self.store.crash()
        for client in self.clients.values():
            if client.connection is not None:
                client.connection.is_open = False
        self.shard = open_shard(self.store, self.clock)
        self.has_crashed = True
        self.sessions.limit(Bounds(self.messages_max, 0, REJECT))
        for client in self.clients.values():
            if client.connection is not None or (client.exists and not client.is_end_stored):
                self.gone(client)
        self.settle()

    def finish_all(self) -> None:
        """Everybody comes back and gets everything; then nothing is left."""
        self.commit_all()
        for client in self.clients.values():
            if client.connection is None and self.sessions.find(client.name, self.clock.ms) is None:
                self.forget(client)
                continue
            self.connect(client.name, False, NEVER_S)
            self.drain(client)
            for message in self.messages:
                if self.is_due(client, message):
                    assert message.text in client.got, f"{client.name} never got {message.text!r}"
                has_expired = message.due_ms is not None and message.due_ms <= self.clock.ms
                if not (self.has_crashed and (has_expired or message.text in client.optional)):
                    assert message.text not in client.owed, f"{client.name} is owed {message.text!r} again"
        self.commit_all(everything=True)
        assert not self.rows(0x2D), "entries that every session is done with are still there"
        for client in self.clients.values():
            session = self.sessions.find(client.name, self.clock.ms)
            if session is not None:
                self.sessions.end(session, self.clock.ms)
        self.commit_all()
        self.commit_all()
        assert not [key for key in self.store._rows if 0x28 <= key[1] <= 0x2D and key[0] == 1]

    def drain(self, client: Client) -> None:
        for _ in range(200):
            before = (len(client.got), len(client.held), len(client.receiving), len(client.releases))
            self.acknowledge(client.name, 0, 4)
            self.receive(client.name)
            self.commit_all()
            self.complete(client.name)
            self.commit_all()
            if before == (len(client.got), 0, 0, 0):
                return
        raise AssertionError("it is never empty")

    def is_due(self, client: Client, message: Message) -> bool:
        if message.text in client.optional or (
            message.due_ms is not None and message.due_ms <= self.clock.ms
        ):
            return False
        return any(
            matches(topic_filter, message.topic)
            and number <= message.number
            and not (no_local and message.publisher == client.name)
            for topic_filter, (_, number, no_local) in client.filters.items()
        )

    def rows(self, kind: int) -> list[bytes]:
        return [key for key in self.store._rows if key[:2] == bytes((1, kind))]


STEPS = {
    "connect": 3,
    "cut": 2,
    "subscribe": 4,
    "unsubscribe": 1,
    "publish": 14,
    "acknowledge": 12,
    "receive": 6,
    "complete": 6,
    "commit": 10,
    "tick": 1,
    "crash": 2,
}


def step(model: SessionsModel, kind: str) -> None:
    """One random step of a kind."""
    chance = model.random
    name = chance.choice(CLIENTS)
    if kind == "connect":
        model.connect(name, chance.random() < 0.15, chance.choice((0, EXPIRY_S, NEVER_S, NEVER_S)))
    elif kind == "subscribe":
        model.subscribe(name, chance.choice(FILTERS), chance.choice((1, 2)), chance.random() < 0.2)
    elif kind == "unsubscribe":
        model.unsubscribe(name, chance.choice(FILTERS))
    elif kind == "publish":
        publisher = chance.choice((None, *CLIENTS))
        ttl_s = chance.choice((0, 0, 0, 5))
        model.publish(chance.choice(TOPICS), chance.choice((1, 2)), ttl_s, publisher, chance.randint(1, 3))
    elif kind == "acknowledge":
        model.acknowledge(name, chance.randint(0, 3), chance.randint(1, 4))
    elif kind == "tick":
        model.tick(chance.choice((1, 10, EXPIRY_S + 1)))
    elif kind in ("commit", "crash"):
        getattr(model, kind)()
    else:
        getattr(model, kind)(name)


@pytest.mark.parametrize("seed", range(40))
def test_every_session_gets_what_it_is_to_get(seed: int) -> None:
    model = SessionsModel(seed)
    kinds = model.random.choices(list(STEPS), list(STEPS.values()), k=150)
    for kind in kinds:
        step(model, kind)
    model.finish_all()
