"""AMQP clients of one worker, and the queues of another."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from broker.app import Broker
from broker.engine.answers import Answer
from protocols.amqp091.client import encode_publish
from protocols.amqp091.content import Properties, encode_properties
from protocols.amqp091.methods import encode_method
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_amqp10 import RawAmqp10
from tests.e2e.raw_mqtt import CONNACK, SUBACK, V5, RawMqtt, connect, subscribe
from tests.e2e.test_amqp10_transactions import Transacting
from tests.waiting import until, until_so
from tests.worker_group import run_client, worker_group

LATE_S = 0.3


@pytest.fixture(params=["workers", "nodes"])
async def workers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[list[Broker]]:
    """Two workers of one node, or of two."""
    async with worker_group(tmp_path, are_nodes=request.param == "nodes") as group:
        yield group


class Clients:
    """A channel at each worker."""

    def __init__(self, workers: list[Broker]) -> None:
        ports = [worker.ports["amqp"] for worker in workers]
        self.connections = [pika.BlockingConnection(pika.ConnectionParameters(port=port)) for port in ports]
        self.here, self.there = [connection.channel() for connection in self.connections]

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *error: object) -> None:
        for connection in self.connections:
            if connection.is_open:
                connection.close()

    def channel(self, worker: int) -> BlockingChannel:
        """Another channel at a worker."""
        return self.connections[worker].channel()


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is in a queue."""
    return list(bodies(channel, queue))


def bodies(channel: BlockingChannel, queue: str) -> Iterator[bytes]:
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        yield got[2]


def consumed(channel: BlockingChannel, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
    """So many deliveries, which are acknowledged."""
    taken: list[tuple[Any, Any, bytes]] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=10):
        assert method is not None, f"only {len(taken)} of {count} came"
        channel.basic_ack(method.delivery_tag)
        taken.append((method, properties, body))
        if len(taken) == count:
            break
    channel.cancel()
    return taken


def owed(worker: Broker, outbox: str) -> int:
    """Messages of an outbox that were not confirmed: they wait, come back later, or are on their way."""
    found = worker.hub.client.shard.manager.queues.get(outbox)
    if found is None:
        return 0
    held = sum(group.in_flight_count() + group.delayed_count() for group in found.groups)
    return found.ready_count() + held


def heard(connection: pika.BlockingConnection) -> bool:
    """Whether it was listened to for a while."""
    connection.process_data_events(0.05)
    return True


def holds(connection: pika.BlockingConnection, tags: list[Any], count: int) -> bool:
    """Whether so many deliveries came over a connection."""
    return heard(connection) and len(tags) >= count


async def test_a_queue_is_published_to_and_consumed_from_at_the_other_worker(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.there.confirm_delivery()
            wanted = [b"%d" % number for number in range(100)]
            for body in wanted:
                clients.there.basic_publish("", "q", body, mandatory=True)
            assert [body for _, _, body in consumed(clients.there, "q", 100)] == wanted
            assert clients.here.queue_declare("q", passive=True).method.message_count == 0

    await run_client(client)


def tell_late(worker: Broker) -> None:
    """Have a worker tell the others late of what changes by itself."""
    own = worker._workers
    assert own is not None

    def tell() -> None:
        own._loop.call_later(LATE_S, own.directory.tell)

    own.directory.on_change = tell


async def test_queue_that_went_as_its_address_is_consumed_again_is_made_anew(workers: list[Broker]) -> None:
    tell_late(workers[0])

    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", auto_delete=True)
            there = clients.there
            there.confirm_delivery()
            got: list[bytes] = []
            for _ in range(2):
                tag = there.basic_consume("$queue/q", lambda *came: got.append(came[3]), auto_ack=True)
                there.basic_publish("", "q", b"came", mandatory=True)
                until(lambda: holds(clients.connections[1], got, 1))
                there.basic_cancel(tag)
                got.clear()
            with pytest.raises(ChannelClosedByBroker, match="no queue 'other'"):
                there.basic_consume("other", lambda *came: None)

    await run_client(client)


async def test_queue_that_went_as_a_link_is_attached_again_is_made_anew(workers: list[Broker]) -> None:
    tell_late(workers[0])

    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", auto_delete=True)
            far = RawAmqp10(workers[1].ports["amqp"])
            far.begin()
            for _ in range(2):
                far.attach_receiver("$queue/q", mode=c.SENDER_SETTLED, credit=1)
                clients.there.basic_publish("", "q", b"came")
                assert far.receive().body == b"came"
                far.send(0, p.Detach(1, closed=True))
                far.expect(p.Detach)
            far.drop()

    await run_client(client)


@pytest.mark.parametrize("is_detached", [False, True])
async def test_transaction_that_settles_what_went_with_a_queue_elsewhere_is_rolled_back(
    workers: list[Broker], is_detached: bool
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q")
            clients.here.queue_declare("other")
            clients.here.basic_publish("", "q", b"settled")
            far = RawAmqp10(workers[1].ports["amqp"])
            transacting = Transacting(far, "other")
            number = transacting.receive_one("q")
            txn_id = transacting.declare()
            transacting.settle(txn_id, number)
            if is_detached:
                far.send(0, p.Detach(1, closed=True))
                far.expect(p.Detach)
            clients.here.queue_delete("q")
            if not is_detached:
                assert isinstance(far.expect(p.Detach).error, p.Error)
            outcome = transacting.command(p.Discharge(txn_id))
            assert isinstance(outcome, p.Rejected)
            far.drop()

    await run_client(client)


async def test_deleted_queue_in_memory_takes_nothing_that_clients_elsewhere_hold_of_another(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            for name in ("q", "other"):
                clients.here.queue_declare(name)
            clients.here.basic_publish("", "q", b"held")
            tags: list[int] = []
            consumer = clients.there.basic_consume("q", lambda c, m, p, body: tags.append(m.delivery_tag))
            until(lambda: holds(clients.connections[1], tags, 1))
            clients.there.basic_cancel(consumer)
            clients.here.queue_delete("other")
            assert clients.there.queue_declare("q", passive=True).method.message_count == 0
            clients.there.basic_ack(tags[0])
            clients.there.close()
            assert drained(clients.here, "q") == []

    await run_client(client)


async def test_messages_keep_their_properties_and_sizes_over_a_link(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            sent = [
                (pika.BasicProperties(message_id=str(size), headers={"size": size}), b"x" * size)
                for size in (0, 1, 1, 70_000, 3_000_000, 5)
            ]
            for properties, body in sent:
                clients.there.basic_publish("", "q", body, properties)
            got = consumed(clients.there, "q", len(sent))
            assert [(p.message_id, p.headers, body) for _, p, body in got] == [
                (p.message_id, p.headers, body) for p, body in sent
            ]

    await run_client(client)


async def test_what_is_returned_comes_again_with_its_count(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.there.basic_publish("", "q", b"m")
            first, _, _ = clients.there.basic_get("q")
            assert first is not None
            assert not first.redelivered
            clients.there.basic_nack(first.delivery_tag, requeue=True)
            again, properties, body = consumed(clients.there, "q", 1)[0]
            assert (again.redelivered, properties.headers["x-delivery-count"], body) == (True, 1, b"m")

    await run_client(client)


async def test_a_consumer_without_acknowledgements_is_told_what_was_delivered_before(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.there.basic_publish("", "q", b"m")
            first, _, _ = clients.there.basic_get("q")
            assert first is not None
            clients.there.basic_nack(first.delivery_tag, requeue=True)
            again, properties, _ = clients.there.basic_get("q", auto_ack=True)
            assert again is not None
            assert (again.redelivered, properties.headers) == (True, {"x-delivery-count": 1})

    await run_client(client)


async def test_a_name_is_free_for_every_worker_once_its_queue_is_deleted(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            for first, second in ((clients.here, clients.there), (clients.there, clients.here)):
                for name in ("a", "b", "c", "d"):
                    first.queue_declare(name, durable=True)
                    first.queue_delete(name)
                    second.queue_declare(name, exclusive=True)
                    assert drained(second, name) == []  # it is this connection's own
                    second.queue_delete(name)

    await run_client(client)


async def test_unacknowledged_messages_return_when_their_connection_ends(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            for number in range(5):
                clients.here.basic_publish("", "q", b"%d" % number)
            other = clients.channel(1)
            other.basic_qos(prefetch_count=3)
            taken = [next(other.consume("q"))[2] for _ in range(2)]
            assert taken == [b"0", b"1"]
            other.close()
            assert sorted(body for _, _, body in consumed(clients.here, "q", 5)) == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]

    await run_client(client)


async def test_exchanges_and_bindings_are_the_same_at_all_workers(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.there.exchange_declare("x", "topic", durable=True)
            clients.here.exchange_declare("x", "topic", durable=True)
            clients.here.queue_declare("here")
            clients.there.queue_declare("there")
            clients.there.queue_bind("here", "x", "a.#")
            clients.here.queue_bind("there", "x", "a.*")
            for channel in (clients.here, clients.there):
                channel.confirm_delivery()
                channel.basic_publish("x", "a.b", b"m", mandatory=True)
                assert drained(clients.here, "here") == drained(clients.here, "there") == [b"m"]
            clients.here.queue_unbind("there", "x", "a.*")
            clients.there.basic_publish("x", "a.b", b"n", mandatory=True)
            assert (drained(clients.there, "here"), drained(clients.there, "there")) == ([b"n"], [])
            clients.here.queue_delete("here")
            with pytest.raises(UnroutableError):
                clients.there.basic_publish("x", "a.b", b"o", mandatory=True)
            clients.here.exchange_delete("x")
            with pytest.raises(ChannelClosedByBroker, match="404"):
                clients.there.exchange_declare("x", "topic", passive=True)

    await run_client(client)


async def test_a_declaration_and_a_binding_are_answered_when_the_other_worker_knows_them(
    workers: list[Broker],
) -> None:
    group = workers[0]._workers
    assert group is not None
    link = group.link(1)
    call, loop = link.call, asyncio.get_running_loop()

    def late(part: str, method: str, *arguments: Any, **named: Any) -> Answer[Any]:
        if (part, method) != ("directory", "note"):
            return call(part, method, *arguments, **named)
        told: Answer[Any] = Answer()
        tell = partial(call, part, method, *arguments, **named)
        loop.call_later(LATE_S, lambda: tell().then(lambda answer: told.resolve(answer.result())))
        return told

    link.call = late  # type: ignore[method-assign]

    def client() -> None:
        with Clients(workers) as clients:
            clients.there.confirm_delivery()
            clients.here.queue_declare("q", durable=True)
            clients.there.basic_publish("", "q", b"by name", mandatory=True)
            clients.here.queue_bind("q", "amq.topic", "a.#")
            clients.there.basic_publish("amq.topic", "a.b", b"by key", mandatory=True)
            assert drained(clients.here, "q") == [b"by name", b"by key"]

    await run_client(client)


async def test_publishes_in_one_go_to_queues_of_both_workers_are_confirmed(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("here", durable=True)
            clients.there.queue_declare("there", durable=True)
        raw = RawAmqp(workers[1].ports["amqp"])
        raw.open_channel(confirm=True)
        copies = encode_properties(Properties(delivery_mode=2), [("BCC", ["there"])])
        raw.send_bytes(b"".join(encode_publish("here", b"%d" % n, copies, channel=1) for n in range(5)))
        assert raw.read_confirms(5) == [1, 2, 3, 4, 5]
        raw.drop()

    await run_client(client)


async def test_redeclaring_another_worker_s_queue_otherwise_is_refused(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True, arguments={"x-max-length": 3})
            again = clients.there.queue_declare("q", durable=True, arguments={"x-max-length": 3})
            assert again.method.queue == "q"
            with pytest.raises(ChannelClosedByBroker, match="PRECONDITION_FAILED"):
                clients.there.queue_declare("q", durable=True, arguments={"x-max-length": 4})

    await run_client(client)


async def test_a_full_queue_of_another_worker_refuses_by_nack_in_order(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
            clients.here.queue_declare("q", durable=True, arguments=arguments)
            clients.there.confirm_delivery()
            outcomes = []
            for number in range(4):
                try:
                    clients.there.basic_publish("", "q", b"%d" % number)
                    outcomes.append("ack")
                except NackError:
                    outcomes.append("nack")
            assert outcomes == ["ack", "ack", "nack", "nack"]
            assert drained(clients.there, "q") == [b"0", b"1"]

    await run_client(client)


async def test_what_the_own_worker_s_queue_refuses_the_other_worker_s_queue_takes(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
            clients.here.queue_declare("full", durable=True, arguments=arguments)
            clients.there.queue_declare("there", durable=True)
            clients.here.basic_publish("", "full", b"before")
            clients.here.confirm_delivery()
            with pytest.raises(NackError):
                clients.here.basic_publish("", "full", b"m", pika.BasicProperties(headers={"CC": ["there"]}))
            assert drained(clients.there, "there") == [b"m"]
            assert drained(clients.there, "full") == [b"before"]

    await run_client(client)


async def test_an_exclusive_queue_takes_messages_of_all_workers_and_serves_its_connection_alone(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            name = clients.here.queue_declare("", exclusive=True).method.queue
            clients.there.confirm_delivery()
            clients.there.basic_publish("", name, b"answer", mandatory=True)
            assert drained(clients.here, name) == [b"answer"]
            with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
                clients.there.basic_consume(name, print)
            with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
                clients.channel(1).queue_delete(name)
            with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
                clients.channel(1).queue_bind(name, "amq.topic", "key")
            with pytest.raises(ChannelClosedByBroker, match=r"NOT_FOUND - no exchange"):
                clients.channel(1).queue_bind(name, "nowhere", "key")
            clients.channel(1).queue_unbind(name, "amq.topic", "key")  # nothing to undo
            clients.here.queue_bind(name, "amq.topic", "key")
            with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
                clients.channel(1).queue_unbind(name, "amq.topic", "key")
            clients.here.close()
            clients.connections[0].close()
            with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
                clients.channel(1).queue_declare(name, passive=True)

    await run_client(client)


async def test_consumers_of_both_workers_share_a_queue_and_keep_to_their_prefetch(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            taken: list[list[bytes]] = [[], []]
            for number, channel in enumerate((clients.here, clients.there)):
                channel.basic_qos(prefetch_count=5)
                channel.basic_consume("q", lambda c, m, p, body, n=number: taken[n].append(body))
            for number in range(20):
                clients.there.basic_publish("", "q", b"%d" % number)
            for _ in range(20):
                for connection in clients.connections:
                    connection.process_data_events(0.02)
            assert [len(each) for each in taken] == [5, 5]
            assert clients.here.queue_declare("q", passive=True).method.message_count == 10

    await run_client(client)


async def test_a_global_prefetch_holds_for_consumers_of_queues_of_both_workers(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("here")
            clients.there.queue_declare("there")
            for number in range(10):
                clients.here.basic_publish("", "here" if number % 2 else "there", b"%d" % number)
            clients.there.basic_qos(prefetch_count=3, global_qos=True)
            tags: list[int] = []
            for queue in ("here", "there"):
                clients.there.basic_consume(queue, lambda c, m, p, body: tags.append(m.delivery_tag))
            for expected in (3, 6, 9, 10):
                until(partial(holds, clients.connections[1], tags, expected))
                heard(clients.connections[1])
                assert len(tags) == expected
                clients.there.basic_ack(tags[-1], multiple=True)

    await run_client(client)


@pytest.mark.parametrize("purger", [0, 1], ids=["of_its_worker", "of_the_consumer"])
async def test_a_purge_takes_what_waits_for_a_shared_limit_at_another_worker(
    workers: list[Broker], purger: int
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.there.basic_qos(prefetch_count=1, global_qos=True)
            got: list[tuple[int, bytes]] = []
            clients.there.basic_consume("q", lambda c, m, p, body: got.append((m.delivery_tag, body)))
            for number in range(5):
                clients.here.basic_publish("", "q", b"%d" % number)
            clients.here.queue_declare("q", passive=True)
            until(lambda: holds(clients.connections[1], got, 1))
            assert clients.channel(purger).queue_purge("q").method.message_count == 4
            clients.there.basic_ack(got[0][0])
            clients.here.basic_publish("", "q", b"new")
            until(lambda: heard(clients.connections[1]) and len(got) > 1)
            assert [body for _, body in got] == [b"0", b"new"]

    await run_client(client)


async def test_what_waits_for_a_shared_limit_at_another_worker_goes_with_its_queue(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            for queue in ("q", "other"):
                clients.here.queue_declare(queue)
            clients.there.basic_qos(prefetch_count=1, global_qos=True)
            got: list[tuple[int, bytes]] = []
            for queue in ("q", "other"):
                clients.there.basic_consume(queue, lambda c, m, p, body: got.append((m.delivery_tag, body)))
            for number in range(3):
                clients.here.basic_publish("", "q", b"%d" % number)
            clients.here.queue_declare("q", passive=True)
            until(lambda: holds(clients.connections[1], got, 1))
            clients.here.queue_delete("q")
            clients.here.basic_publish("", "other", b"new")
            clients.there.basic_ack(got[0][0])
            until(lambda: heard(clients.connections[1]) and len(got) > 1)
            assert [body for _, body in got] == [b"0", b"new"]

    await run_client(client)


@pytest.mark.parametrize("owner", [0, 1], ids=["of_another_worker", "of_its_worker"])
async def test_what_a_cancelled_consumer_was_given_counts_for_a_shared_limit_until_it_is_settled(
    workers: list[Broker], owner: int
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            declaring = clients.channel(owner)
            for queue in ("q", "other"):
                declaring.queue_declare(queue)
                for number in range(9):
                    declaring.basic_publish("", queue, b"%d" % number)
            clients.there.basic_qos(prefetch_count=2, global_qos=True)
            tags: list[int] = []
            tag = clients.there.basic_consume("q", lambda c, m, p, body: tags.append(m.delivery_tag))
            until(lambda: holds(clients.connections[1], tags, 2))
            clients.there.basic_cancel(tag)
            clients.there.basic_consume("other", lambda c, m, p, body: tags.append(m.delivery_tag))
            assert heard(clients.connections[1])
            assert len(tags) == 2
            clients.there.basic_ack(1)
            until(lambda: holds(clients.connections[1], tags, 3))
            clients.there.basic_ack(3, multiple=True)
            until(lambda: holds(clients.connections[1], tags, 5))
            assert heard(clients.connections[1])
            assert len(tags) == 5

    await run_client(client)


async def test_what_a_shared_limit_has_no_room_for_is_given_to_other_consumers(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            for queue in ("q", "other"):
                clients.here.queue_declare(queue)
            clients.there.basic_qos(prefetch_count=1, global_qos=True)
            full: list[tuple[int, bytes]] = []
            for queue in ("other", "q"):
                clients.there.basic_consume(queue, lambda c, m, p, body: full.append((m.delivery_tag, body)))
            clients.here.basic_publish("", "other", b"first")
            until(lambda: heard(clients.connections[1]) and len(full) == 1)
            got: list[bytes] = []
            clients.here.basic_consume("q", lambda c, m, p, body: got.append(body))
            for number in range(10):
                clients.here.basic_publish("", "q", b"%d" % number)
            until(lambda: heard(clients.connections[1]) and heard(clients.connections[0]) and len(got) == 10)
            assert sorted(got) == [b"%d" % number for number in range(10)]
            clients.here.basic_cancel(clients.here.consumer_tags[0])
            clients.there.basic_ack(full[0][0])
            for number in range(5):
                clients.here.basic_publish("", "q", b"later %d" % number)
                until(lambda: heard(clients.connections[1]) and len(full) > 1 + number)  # noqa: B023
                clients.there.basic_ack(full[-1][0])
            assert [body for _, body in full[1:]] == [b"later %d" % number for number in range(5)]

    await run_client(client)


async def test_dead_letters_reach_a_queue_of_another_worker(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            clients.here.queue_declare("q", durable=True, arguments=arguments)
            clients.there.queue_declare("dead", durable=True)
            for number in range(3):
                clients.here.basic_publish("", "q", b"%d" % number)
                method, _, _ = clients.here.basic_get("q")
                assert method is not None
                clients.here.basic_reject(method.delivery_tag, requeue=False)
            got = consumed(clients.there, "dead", 3)
            assert [body for _, _, body in got] == [b"0", b"1", b"2"]
            assert got[0][1].headers["x-death"][0]["queue"] == "q"
            clients.there.queue_delete("dead")
            with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
                clients.channel(0).queue_declare("amq.outbox.0.dead", passive=True)

    await run_client(client)


async def test_a_dead_letter_comes_once_though_its_confirmation_was_lost_with_the_link(
    workers: list[Broker],
) -> None:
    group = workers[0]._workers
    assert group is not None
    link = group.link(1)

    def declare() -> None:
        with Clients(workers) as clients:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            clients.here.queue_declare("q", durable=True, arguments=arguments)
            clients.there.queue_declare("dead", durable=True)
            clients.here.basic_publish("", "q", b"m")

    def reject() -> None:
        with Clients(workers) as clients:
            method, _, _ = clients.here.basic_get("q")
            assert method is not None
            clients.here.basic_reject(method.delivery_tag, requeue=False)

    def look() -> list[bytes]:
        with Clients(workers) as clients:
            return drained(clients.there, "dead")

    await run_client(declare)

    def lose(last: int) -> None:
        assert link.transport is not None
        link.transport.abort()

    link._acked = lose  # type: ignore[method-assign]
    await run_client(reject)
    await until_so(lambda: group.link(1) is not link)  # it was lost, and is there again
    await until_so(lambda: owed(workers[0], "amq.outbox.0.dead") == 0)
    assert await run_client(look) == [b"m"]


async def test_what_is_on_its_way_to_a_consumer_that_is_cancelled_returns_to_its_queue(
    workers: list[Broker],
) -> None:
    group = workers[1]._workers
    assert group is not None
    transport = group.link(0).transport
    assert transport is not None
    loop = asyncio.get_running_loop()

    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.there.basic_qos(prefetch_count=5)
            tag = clients.there.basic_consume("q", lambda *delivery: None)
            loop.call_soon_threadsafe(transport.pause_reading)
            clients.here.confirm_delivery()
            for body in (b"1", b"2"):
                clients.here.basic_publish("", "q", body)
            until(lambda: clients.here.queue_declare("q", passive=True).method.message_count == 0)
            clients.there.basic_cancel(tag)
            loop.call_soon_threadsafe(transport.resume_reading)
            until(lambda: clients.here.queue_declare("q", passive=True).method.message_count == 2)
            method, _, body = clients.here.basic_get("q", auto_ack=True)
            assert method is not None
            assert (body, method.redelivered) == (b"1", False)

    await run_client(client)


async def test_what_is_on_its_way_when_its_channel_ends_was_not_delivered(workers: list[Broker]) -> None:
    group = workers[1]._workers
    assert group is not None
    transport = group.link(0).transport
    assert transport is not None
    loop = asyncio.get_running_loop()

    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            clients.here.confirm_delivery()
            clients.here.basic_publish("", "q", b"1")
            leaving = RawAmqp(workers[1].ports["amqp"])
            leaving.open_channel()
            leaving.call(1, commands.Basic.Consume(0, "q", "mine"), commands.Basic.ConsumeOk)
            assert leaving.read_content(commands.Basic.Deliver).body == b"1"
            loop.call_soon_threadsafe(transport.pause_reading)
            for body in (b"2", b"3"):
                clients.here.basic_publish("", "q", body)
            until(lambda: clients.here.queue_declare("q", passive=True).method.message_count == 0)
            leaving.call(1, commands.Channel.Close(0, "", 0, 0), commands.Channel.CloseOk)
            until(lambda: clients.here.queue_declare("q", passive=True).method.message_count == 3)
            loop.call_soon_threadsafe(transport.resume_reading)
            got = [clients.here.basic_get("q", auto_ack=True) for _ in range(3)]
            redelivered = [(body, method and method.redelivered) for method, _, body in got]
            assert redelivered == [(b"1", True), (b"2", False), (b"3", False)]
            leaving.drop()

    await run_client(client)


async def test_a_transaction_publishes_to_queues_of_all_workers_and_settles_there(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("here", durable=True)
            clients.there.queue_declare("there", durable=True)
            clients.here.basic_publish("", "here", b"settled")
            clients.there.tx_select()
            method, _, _ = clients.there.basic_get("here")
            assert method is not None
            for number in range(3):
                properties = pika.BasicProperties(message_id=str(number))
                clients.there.basic_publish("", "here", b"%d" % number, properties)
                clients.there.basic_publish("", "there", b"%d" % number)
            clients.there.basic_ack(method.delivery_tag)
            other = clients.channel(0)
            assert drained(other, "here") == drained(other, "there") == []
            clients.there.tx_commit()
            assert drained(other, "here") == drained(other, "there") == [b"0", b"1", b"2"]

    await run_client(client)


async def test_a_transaction_that_another_worker_s_queue_has_no_room_for_does_nothing(
    workers: list[Broker],
) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
            clients.here.queue_declare("small", durable=True, arguments=arguments)
            clients.there.queue_declare("there", durable=True)
            clients.there.tx_select()
            for queue in ("there", "small", "small"):
                clients.there.basic_publish("", queue, b"m")
            with pytest.raises(ChannelClosedByBroker, match="has no room for what the transaction publishes"):
                clients.there.tx_commit()
            assert drained(clients.here, "small") == drained(clients.here, "there") == []

    await run_client(client)


async def test_a_reply_goes_straight_to_a_requester_of_another_worker(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("rpc")
            answers: list[bytes] = []
            reply_to = "amq.rabbitmq.reply-to"
            clients.here.basic_consume(reply_to, lambda c, m, p, body: answers.append(body), auto_ack=True)
            clients.here.basic_publish("", "rpc", b"ask", pika.BasicProperties(reply_to=reply_to))
            _, properties, _ = consumed(clients.there, "rpc", 1)[0]
            for body in (b"answer", b""):
                clients.there.basic_publish("", properties.reply_to, body)
            until(lambda: heard(clients.connections[0]) and len(answers) == 2)
            assert answers == [b"answer", b""]

    await run_client(client)


async def test_a_filter_of_a_consumer_holds_at_another_worker(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            for region in ("eu", "us", "eu"):
                properties = pika.BasicProperties(headers={"region": region})
                clients.there.basic_publish("", "q", region.encode(), properties)
            taken: list[bytes] = []
            clients.there.basic_consume(
                "q",
                lambda c, m, p, body: taken.append(body),
                auto_ack=True,
                arguments={"x-jms-selector": "region = 'us'"},
            )
            until(lambda: heard(clients.connections[1]) and taken)
            heard(clients.connections[1])
            assert taken == [b"us"]

    await run_client(client)


async def test_deleting_a_queue_ends_the_consumers_of_other_workers(workers: list[Broker]) -> None:
    def client() -> None:
        with Clients(workers) as clients:
            clients.here.queue_declare("q", durable=True)
            cancelled: list[Any] = []
            clients.there.add_on_cancel_callback(cancelled.append)
            clients.there.basic_consume("q", print)
            clients.here.queue_delete("q")
            until(lambda: heard(clients.connections[1]) and cancelled)

    await run_client(client)


async def test_a_transaction_is_refused_where_a_lasting_session_of_another_worker_may_have_missed_it(
    workers: list[Broker],
) -> None:
    group = workers[0]._workers
    assert group is not None
    link = group.link(1)
    client_id = next(name for name in map(str, range(100)) if group.topics.home_of("/", name) == 1)
    props = b"\x11" + struct.pack(">I", 3600)  # a session that lasts an hour

    def subscribe_once() -> None:
        client = RawMqtt(workers[1].ports["mqtt"], version=None)
        client.send_bytes(connect(V5, client_id, flags=0, props=props))
        client.expect(CONNACK)
        client.send_bytes(subscribe("t/#", 1))
        client.expect(SUBACK)
        client.drop()

    def commit() -> None:
        with Clients(workers) as clients:
            clients.here.tx_select()
            for key in ("t.a", "t.b", "nobody"):
                clients.here.basic_publish("amq.topic", key, b"m", pika.BasicProperties(delivery_mode=2))
            with pytest.raises(ChannelClosedByBroker, match="ended before it confirmed the message"):
                clients.here.tx_commit()

    await run_client(subscribe_once)
    await until_so(lambda: bool(group.topics._known.get(1)))

    def lose(last: int) -> None:
        assert link.transport is not None
        link.transport.abort()

    link._acked = lose  # type: ignore[method-assign]
    await run_client(commit)


async def test_what_is_published_behind_a_declaration_is_kept_though_the_channel_ends_in_the_same_write(
    workers: list[Broker],
) -> None:
    names = [f"q{number}" for number in range(4)]  # either worker decides about some of these names

    def client() -> None:
        for name in names:
            raw = RawAmqp(workers[0].ports["amqp"])
            raw.open_channel()
            declare = encode_method(1, commands.Queue.Declare(0, name, durable=True))
            close = encode_method(1, commands.Channel.Close(200, "", 0, 0))
            raw.send_bytes(declare + encode_publish(name, b"m", channel=1) + close)
            raw.expect(commands.Channel.CloseOk)
            raw.drop()

    def left() -> list[list[bytes]]:
        with Clients(workers) as clients:
            return [drained(clients.there, name) for name in names]

    await run_client(client)
    await until_so(lambda: not any(worker.hub.transports for worker in workers))
    assert await run_client(left) == [[b"m"]] * len(names)
