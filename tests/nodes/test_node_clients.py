"""What clients have at a node that is killed is there at the others, and clients of the others are told.

Each scenario sets something up, before the node `b` is killed; has a turn while nobody has its shard, if it
wants one; and looks from another node afterwards. All share one cluster and one kill.
"""

import struct
import time
from collections.abc import Callable, Iterator

import pika
import pytest
from pamqp import commands

import protocols.amqp10.performatives as p
from config import limits
from tests.e2e import amqp
from tests.e2e.mqtt import MqttClient, user_property
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_amqp10 import RawAmqp10, message
from tests.e2e.raw_mqtt import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    V5,
    RawMqtt,
    acknowledgement,
    connect,
    publish,
    subscribe,
)
from tests.e2e.several_workers import connected
from tests.e2e.test_workers_mqtt import LASTING, payload_of, subscribed
from tests.nodes.node_cluster import NodeCluster, node_cluster
from tests.waiting import pass_time, until

pytestmark = pytest.mark.timeout(300)

WHILE_DOWN = True
"""What a scenario yields that wants a turn between the kill and the take-over."""
TAKEN_OVER = False
"""What it yields to go on behind that."""

Turns = Iterator[bool]
Scenario = Callable[["Nodes"], Turns]
LEASE_S = 6  # a busy machine does not get on for seconds
TAKEN_OVER_S = limits.NODE_WAIT_MS / 1000 + 30
HEARTBEAT_S = 1
SERVER_UNAVAILABLE = 0x88


class Nodes:
    """The cluster, with what scenarios ask of it. `shards` are those of the nodes, before the kill."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster
        self.shards = {str(name): shard for shard, name in enumerate(cluster.owners("a"))}
        self.killed_at = 0.0

    def kill(self) -> None:
        """Kill the node, and wait until the others know: what is asked of it just then may have been done, so
        it is refused.
        """
        nodes = self.cluster.nodes
        before = {name: nodes[name].log.count("worker.lost") for name in "ac"}
        nodes["b"].kill9()
        self.killed_at = time.monotonic()
        until(lambda: all(nodes[name].log.count("worker.lost") > count for name, count in before.items()))

    def channel(self, node: str) -> amqp.BlockingChannel:
        """A channel that confirms."""
        channel = amqp.connect(self.cluster.nodes[node].amqp_port).channel()
        channel.confirm_delivery()
        return channel

    def mqtt_port(self, node: str) -> int:
        return self.cluster.nodes[node].mqtt_port

    def client_of(self, node: str, name: str) -> str:
        """The identifier of a client whose session is in the shard of a node."""
        return self.cluster.client_of(self.shards[node], name)

    def declare(self, queue: str, **arguments: object) -> amqp.BlockingChannel:
        """Declare a durable queue at the node that is to be killed; gives the channel, there."""
        channel = self.channel("b")
        channel.queue_declare(queue, durable=True, arguments=dict(arguments))
        return channel

    def until_settled(self, channel: amqp.BlockingChannel) -> None:
        """Return once what was settled before is on the store: see `tests.e2e.amqp.until_settled`."""
        channel.queue_declare("filler", durable=True)
        amqp.publish(channel, "filler", "first")
        pass_time(amqp.SETTLED_S)
        amqp.publish(channel, "filler", "second")

    def publish(self, node: str, topic: str, *bodies: bytes, qos: int = 1, **options: object) -> None:
        client = MqttClient(self.mqtt_port(node)).connect()
        for body in bodies:
            assert client.publish(topic, body, qos, **options) in (0, 0x10)  # type: ignore[arg-type]
        client.disconnect()

    def lasting(self, node: str, client_id: str) -> RawMqtt:
        """A connection of a client whose session lasts for an hour; tried until its shard is served."""

        def client_in() -> RawMqtt | None:
            client = RawMqtt(self.mqtt_port(node), version=None)
            client.send_bytes(connect(V5, client_id, flags=0, props=LASTING))
            client.connack = client.expect(CONNACK)
            return None if client.connack.body[1] == SERVER_UNAVAILABLE else client

        client = until(client_in, TAKEN_OVER_S)
        assert client is not None
        assert client.connack.body[1] == 0
        return client

    def got(self, queue: str, count: int) -> list[amqp.Delivery]:
        """What a queue gives at a surviving node."""
        return amqp.Collector(self.channel("c"), queue, ack=True).wait(count, TAKEN_OVER_S)


SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def packet_id(received) -> int:
    at = 2 + struct.unpack_from(">H", received.body)[0] if received.kind == PUBLISH else 0
    return int(struct.unpack_from(">H", received.body, at)[0])


@scenario
def lasting_session_has_its_messages_of_both_qualities(nodes: Nodes) -> Turns:
    client_id = nodes.client_of("b", "lasting")
    client = nodes.lasting("a", client_id)
    subscribed(client, "kept/+", 2)
    client.drop()
    nodes.publish("c", "kept/a", b"one", qos=1)
    nodes.publish("c", "kept/a", b"two", qos=2)
    yield TAKEN_OVER
    client = nodes.lasting("c", client_id)
    assert client.connack.body[0] == 1, "no session"
    received = [client.expect(PUBLISH) for _ in range(2)]
    assert [(one.flags >> 1 & 3, payload_of(one)) for one in received] == [(1, b"one"), (2, b"two")]
    nodes.publish("a", "kept/b", b"three")
    assert payload_of(client.expect(PUBLISH)) == b"three", "its subscription is there"


@scenario
def message_that_a_session_has_received_is_released_again_and_comes_once(
    nodes: Nodes,
) -> Turns:
    client_id = nodes.client_of("b", "receiver")
    client = nodes.lasting("b", client_id)
    subscribed(client, "released/+", 2)
    nodes.publish("b", "released/a", b"once", qos=2)
    number = packet_id(client.expect(PUBLISH))
    client.send_bytes(acknowledgement(PUBREC, number))
    assert packet_id(client.expect(PUBREL)) == number
    yield TAKEN_OVER
    client = nodes.lasting("c", client_id)
    assert client.connack.body[0] == 1, "no session"
    assert packet_id(client.expect(PUBREL)) == number
    client.send_bytes(acknowledgement(PUBCOMP, number))
    client.quiet()


@scenario
def message_that_is_not_released_yet_is_taken_once(nodes: Nodes) -> Turns:
    nodes.declare("once")
    client_id = nodes.client_of("b", "sender")
    client = nodes.lasting("a", client_id)
    client.send_bytes(publish("$queue/once", b"m", qos=2, packet_id=7))
    assert packet_id(client.expect(PUBREC)) == 7
    yield TAKEN_OVER
    client = nodes.lasting("c", client_id)
    assert client.connack.body[0] == 1, "no session"
    client.send_bytes(publish("$queue/once", b"m", qos=2, packet_id=7, dup=True))
    assert packet_id(client.expect(PUBREC)) == 7
    client.send_bytes(acknowledgement(PUBREL, 7))
    assert packet_id(client.expect(PUBCOMP)) == 7
    assert [each.body for each in nodes.got("once", 1)] == [b"m"]
    assert amqp.count(nodes.channel("a"), "once") == 0


def will_of(nodes: Nodes, node: str, name: str, delay_s: int, client_id: str) -> None:
    """Connect a client of the node, which stays there, with a will that waits."""
    dying = RawMqtt(nodes.mqtt_port(node), version=None)
    props = b"\x18" + struct.pack(">I", delay_s)
    will = bytes([len(props)]) + props + struct.pack(">H", len(name)) + name.encode() + b"\x00\x04gone"
    dying.send_bytes(connect(V5, client_id, flags=0x04 | 0x08, props=LASTING, after=will))
    assert dying.expect(CONNACK).body[1] == 0
    KEPT_OPEN.append(dying)


KEPT_OPEN: list[RawMqtt] = []


@scenario
def will_is_published_after_its_delay(nodes: Nodes) -> Turns:
    heard = nodes.lasting("a", nodes.client_of("a", "mourner"))
    subscribed(heard, "wills/b", 1)
    will_of(nodes, "b", "wills/b", 2, nodes.client_of("b", "dying"))
    yield TAKEN_OVER
    assert payload_of(heard.expect(PUBLISH, TAKEN_OVER_S)) == b"gone"
    assert time.monotonic() - nodes.killed_at > LEASE_S * 0.7


@scenario
def will_of_a_client_that_is_back_is_not_published(nodes: Nodes) -> Turns:
    heard = nodes.lasting("a", nodes.client_of("a", "listener"))
    subscribed(heard, "wills/back", 1)
    back = nodes.client_of("b", "back")
    will_of(nodes, "b", "wills/back", 60, back)
    yield TAKEN_OVER
    nodes.lasting("c", back)
    heard.quiet()


@scenario
def retained_messages_come_to_who_subscribed_meanwhile_once_they_are_there(nodes: Nodes) -> Turns:
    for number in range(20):
        nodes.publish("b", f"retained/{number}", b"%d" % number, retain=True)
    yield WHILE_DOWN
    client = connected(nodes.mqtt_port("c"), nodes.client_of("c", "curious"))
    client.send_bytes(subscribe("retained/+", 0))
    client.expect(SUBACK)
    yield TAKEN_OVER
    found = [payload_of(client.expect(PUBLISH, TAKEN_OVER_S)) for _ in range(20)]
    assert sorted(map(int, found)) == list(range(20))
    client.quiet()


@scenario
def lasting_members_of_a_share_group_have_each_message_once(nodes: Nodes) -> Turns:
    members = [nodes.client_of(name, "member") for name in "ab"]
    for member in members:
        client = nodes.lasting("c", member)
        subscribed(client, "$share/kept/parts/#", 1)
        client.drop()
    nodes.publish("c", "parts/a", *[b"%d" % number for number in range(10)])
    yield TAKEN_OVER
    clients = [nodes.lasting("c", member) for member in members]
    assert [client.connack.body[0] for client in clients] == [1, 1]
    nodes.publish("a", "parts/a", *[b"%d" % number for number in range(10, 20)])
    found: list[int] = []

    def taken() -> bool:
        for client in clients:
            try:
                received = client.expect(PUBLISH, 0.05)
            except TimeoutError:
                continue
            client.send_bytes(acknowledgement(PUBACK, packet_id(received)))
            found.append(int(payload_of(received)))
        return len(found) >= 20

    until(taken, told=lambda: sorted(found))
    assert sorted(found) == list(range(20))


@scenario
def claims_of_a_consumer_group_come_again_with_one_attempt_more(nodes: Nodes) -> Turns:
    channel = nodes.declare("claims")
    amqp.publish(channel, "claims", *map(str, range(4)))
    holder = amqp.connect(nodes.cluster.nodes["b"].amqp_port).channel()
    holder.basic_qos(prefetch_count=2)
    amqp.Collector(holder, "claims", arguments={"x-consumer-group": "g"}).wait(2)
    far = nodes.channel("a")
    far.basic_qos(prefetch_count=1)
    amqp.Collector(far, "claims", arguments={"x-consumer-group": "g"}).wait(1)
    yield TAKEN_OVER
    client = MqttClient(nodes.mqtt_port("c")).connect()
    assert client.subscribe("$share/g/$queue/claims") == 1
    received = client.take(4)
    attempts = {one.payload.decode(): user_property(one, "attempts") for one in received}
    assert attempts == {"0": "2", "1": "2", "2": "2", "3": "1"}
    client.disconnect()


@scenario
def group_goes_on_in_a_stream_behind_its_offset(nodes: Nodes) -> Turns:
    channel = nodes.declare("log", **{"x-queue-type": "stream"})
    amqp.publish(channel, "log", *map(str, range(10)))
    reader = nodes.channel("b")
    reader.basic_qos(prefetch_count=10)
    amqp.Collector(reader, "log", arguments={"x-consumer-group": "half", "x-auto-commit": False}).wait(10)
    headers = {"x-group-id": "half", "x-offset": 4}
    channel.basic_publish("", "$queue/log/$commit", b"", pika.BasicProperties(headers=headers))
    yield TAKEN_OVER
    survivor = nodes.channel("c")
    survivor.basic_qos(prefetch_count=10)
    got = amqp.Collector(survivor, "log", arguments={"x-consumer-group": "half"}).wait(5, TAKEN_OVER_S)
    assert [(each.body, each.headers["x-stream-offset"]) for each in got] == [
        (b"%d" % number, number) for number in range(5, 10)
    ]


@scenario
def exchanges_lead_to_the_queues_that_were_bound(nodes: Nodes) -> Turns:
    channel = nodes.declare("bound")
    channel.exchange_declare("events", "topic", durable=True)
    channel.exchange_declare("outer", "fanout", durable=True)
    channel.queue_bind("bound", "events", "orders.*")
    channel.exchange_bind("events", "outer")
    yield TAKEN_OVER
    survivor = nodes.channel("a")
    survivor.basic_publish("outer", "orders.eu", b"m", mandatory=True)
    assert [each.body for each in nodes.got("bound", 1)] == [b"m"]


@scenario
def delayed_messages_come_when_they_are_due(nodes: Nodes) -> Turns:
    channel = nodes.declare("delayed")
    due_ms = int(time.time() * 1000) + 12_000
    amqp.publish(channel, "delayed", "later", headers={"deliver-at": due_ms})
    amqp.publish(channel, "delayed", "sooner", headers={"x-delay": 100})
    yield TAKEN_OVER
    assert [each.body for each in nodes.got("delayed", 2)] == [b"sooner", b"later"]
    assert time.time() * 1000 >= due_ms


@scenario
def quorum_queue_counts_on(nodes: Nodes) -> Turns:
    channel = nodes.declare("counted", **{"x-queue-type": "quorum"})
    amqp.publish(channel, "counted", "x")
    for _ in range(2):
        found = amqp.get(channel, "counted", auto_ack=False)
        assert found is not None
        channel.basic_reject(found.tag)
    nodes.until_settled(channel)
    yield TAKEN_OVER
    found = nodes.got("counted", 1)[0]
    assert found.method.redelivered
    assert found.headers == {"x-acquired-count": 2, "x-delivery-count": 2}


@scenario
def amqp_1_receiver_elsewhere_is_detached_with_a_reason(nodes: Nodes) -> Turns:
    nodes.declare("of-receiver")
    client = RawAmqp10(nodes.cluster.nodes["a"].amqp_port)
    client.begin()
    client.attach_receiver("/queues/of-receiver", credit=10)
    yield TAKEN_OVER
    detach = client.expect(p.Detach, TAKEN_OVER_S)
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:detach-forced"
    assert "shard" in detach.error.description
    client.attach_receiver("/queues/of-receiver", 2, credit=10)
    client.attach_sender("/queues/of-receiver")
    client.transfer(message(b"m"))
    frames = [client.read(TAKEN_OVER_S) for _ in range(2)]
    assert {type(frame.body) for frame in frames if frame} == {p.Transfer, p.Disposition}


@scenario
def consumer_elsewhere_is_cancelled_and_consumes_again(nodes: Nodes) -> Turns:
    nodes.declare("of-consumer")
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port)
    client.open_channel()
    client.call(1, commands.Basic.Consume(0, "of-consumer", "mine"), commands.Basic.ConsumeOk)
    yield TAKEN_OVER
    assert client.expect(commands.Basic.Cancel, TAKEN_OVER_S).consumer_tag == "mine"
    lines = [line for line in nodes.cluster.nodes["a"].log.splitlines() if "worker.consumers_ended" in line]
    assert any("of-consumer" in line and f"shard {nodes.shards['b']}" in line for line in lines), lines
    client.call(1, commands.Basic.Consume(0, "of-consumer", "mine"), commands.Basic.ConsumeOk)
    client.publish(1, "of-consumer", b"m")
    assert client.read_content(commands.Basic.Deliver).body == b"m"


@scenario
def consumer_that_asks_for_the_queue_meanwhile_waits_for_it(nodes: Nodes) -> Turns:
    nodes.declare("asked-for")
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port)
    client.open_channel()
    yield WHILE_DOWN
    client.send(1, commands.Basic.Consume(0, "asked-for", "mine"))
    yield TAKEN_OVER
    assert isinstance(client.expect(commands.Basic.ConsumeOk, TAKEN_OVER_S), commands.Basic.ConsumeOk)
    nodes.publish("c", "$queue/asked-for", b"m")
    assert client.read_content(commands.Basic.Deliver).body == b"m"


@scenario
def clients_that_wait_for_a_queue_are_heard_meanwhile(nodes: Nodes) -> Turns:
    nodes.declare("waited-for")
    device = connected(nodes.mqtt_port("a"), nodes.client_of("a", "patient"))
    yield WHILE_DOWN
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port, heartbeat=HEARTBEAT_S)
    client.open_channel(1)
    client.open_channel(2)
    client.send(1, commands.Basic.Consume(0, "waited-for", "mine"))
    device.send_bytes(subscribe("$share/waiting/$queue/waited-for", 1))
    device.quiet()
    client.call(2, commands.Queue.Declare(0, "", exclusive=True), commands.Queue.DeclareOk)
    client.send(1, commands.Queue.Declare(0, "waited-for", passive=True))  # nothing is read behind that
    for _ in range(3):
        with pytest.raises(TimeoutError):
            client.read(HEARTBEAT_S)
    assert client.heartbeats
    yield TAKEN_OVER
    client.expect(commands.Basic.ConsumeOk, TAKEN_OVER_S)
    client.expect(commands.Queue.DeclareOk)
    device.expect(SUBACK, TAKEN_OVER_S)


@scenario
def consumer_whose_client_goes_while_it_waits_is_not_there_afterwards(nodes: Nodes) -> Turns:
    nodes.declare("given-up")
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port)
    client.open_channel()
    yield WHILE_DOWN
    client.send(1, commands.Basic.Consume(0, "given-up", "mine"))
    client.drop()
    yield TAKEN_OVER
    nodes.publish("c", "$queue/given-up", b"m")
    assert [each.body for each in nodes.got("given-up", 1)] == [b"m"]
    channel = nodes.channel("a")
    until(lambda: channel.queue_declare("given-up", passive=True).method.consumer_count == 0)


@scenario
def mqtt_consumer_elsewhere_is_told_why_and_its_session_consumes_again(nodes: Nodes) -> Turns:
    nodes.declare("of-device")
    client_id = nodes.client_of("a", "device")
    client = nodes.lasting("a", client_id)
    subscribed(client, "$share/devices/$queue/of-device", 1)
    yield TAKEN_OVER
    farewell = client.expect(DISCONNECT, TAKEN_OVER_S)
    assert f"the way to shard {nodes.shards['b']}, which has 'of-device', is gone".encode() in farewell.body
    client = nodes.lasting("c", client_id)
    assert client.connack.body[0] == 1
    nodes.publish("c", "$queue/of-device", b"m")
    assert payload_of(client.expect(PUBLISH)) == b"m"


@scenario
def session_that_comes_back_meanwhile_keeps_its_subscription_to_the_queue(
    nodes: Nodes,
) -> Turns:
    nodes.declare("kept-subscription")
    client_id = nodes.client_of("a", "hasty")
    client = nodes.lasting("a", client_id)
    subscribed(client, "$share/hasty/$queue/kept-subscription", 1)
    client.drop()
    yield WHILE_DOWN
    client = nodes.lasting("c", client_id)
    yield TAKEN_OVER
    assert client.connack.body[0] == 1
    nodes.publish("c", "$queue/kept-subscription", b"m")
    assert payload_of(client.expect(PUBLISH, TAKEN_OVER_S)) == b"m"


@scenario
def publisher_elsewhere_is_refused_or_waits_and_then_confirmed(nodes: Nodes) -> Turns:
    nodes.declare("of-publisher")
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port)
    client.open_channel(confirm=True)
    client.publish(1, "of-publisher", b"before")
    client.read_confirms(1)
    yield WHILE_DOWN
    client.publish(1, "of-publisher", b"meanwhile")
    yield TAKEN_OVER
    answer = client.read(TAKEN_OVER_S)
    assert answer is not None
    is_taken = isinstance(answer.method, commands.Basic.Ack)
    assert is_taken or isinstance(answer.method, commands.Basic.Nack)
    client.publish(1, "of-publisher", b"after")
    assert client.expect(commands.Basic.Ack).delivery_tag == 3
    wanted = [b"before", b"meanwhile", b"after"] if is_taken else [b"before", b"after"]
    assert [each.body for each in nodes.got("of-publisher", len(wanted))] == wanted


@scenario
def transaction_that_is_open_does_all_or_nothing(nodes: Nodes) -> Turns:
    nodes.declare("of-transaction")
    nodes.channel("a").queue_declare("near", durable=True)
    client = RawAmqp(nodes.cluster.nodes["a"].amqp_port)
    client.open_channel()
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(1, "of-transaction", b"first")
    client.publish(1, "near", b"first")
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    client.publish(1, "of-transaction", b"second")
    client.publish(1, "near", b"second")
    yield WHILE_DOWN
    client.send(1, commands.Tx.Commit())
    yield TAKEN_OVER
    answer = client.read(TAKEN_OVER_S)
    assert answer is not None
    is_done = isinstance(answer.method, commands.Tx.CommitOk)
    bodies = [b"first", b"second"] if is_done else [b"first"]
    for queue in ("of-transaction", "near"):
        assert [each.body for each in nodes.got(queue, len(bodies))] == bodies
        assert amqp.count(nodes.channel("a"), queue) == 0


@scenario
def queues_in_memory_and_exclusive_ones_are_gone(nodes: Nodes) -> Turns:
    channel = nodes.channel("b")
    channel.queue_declare("in-memory")
    channel.queue_declare("exclusive", exclusive=True)
    other = nodes.channel("a")
    amqp.publish(other, "in-memory", "m")
    other.queue_bind("in-memory", "amq.topic", "lost.#")
    yield TAKEN_OVER
    survivor = amqp.connect(nodes.cluster.nodes["a"].amqp_port)
    assert amqp.is_missing(survivor, "in-memory")
    assert amqp.is_missing(survivor, "exclusive")
    with pytest.raises(pika.exceptions.UnroutableError):
        nodes.channel("c").basic_publish("amq.topic", "lost.x", b"m", mandatory=True)
    survivor.channel().queue_declare("in-memory", durable=True)
    survivor.channel().queue_declare("exclusive", exclusive=True)
    assert amqp.count(nodes.channel("c"), "in-memory") == 0


@scenario
def client_that_was_passed_to_the_node_is_ended_and_served_again(nodes: Nodes) -> Turns:
    client_id = nodes.client_of("b", "passed")
    client = connected(nodes.mqtt_port("a"), client_id)
    yield TAKEN_OVER
    client.farewell(TAKEN_OVER_S)
    client = connected(nodes.mqtt_port("a"), client_id)
    client.quiet()


class Run:
    """The scenarios as far as they have come, and what has failed."""

    def __init__(self, nodes: Nodes) -> None:
        self.failed: dict[str, BaseException] = {}
        self.running = {name: each(nodes) for name, each in SCENARIOS.items()}

    def go_on(self, name: str) -> bool:
        try:
            return next(self.running[name], TAKEN_OVER)
        except Exception as error:  # its own test tells
            self.failed[name] = error
            return TAKEN_OVER


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with node_cluster(tmp_path_factory.mktemp("clients"), shards=3, lease_s=LEASE_S) as cluster:
        cluster.start("a", "b", "c")
        cluster.until_owned("a", a=1, b=1, c=1)
        nodes = Nodes(cluster)
        found = Run(nodes)
        wanted = [name for name in SCENARIOS if found.go_on(name) == WHILE_DOWN]
        nodes.kill()
        for name in wanted:
            found.go_on(name)
        cluster.until_owned("c", TAKEN_OVER_S, b=0)
        yield found


@pytest.mark.parametrize("name", SCENARIOS)
def test_when_a_node_is_killed_the(name: str, run: Run) -> None:
    if name not in run.failed:
        run.go_on(name)
    if name in run.failed:
        raise run.failed[name]
