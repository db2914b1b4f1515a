"""Virtual hosts: the same names in several of them are different things."""

from itertools import islice

import pytest
from pika.exceptions import ProbableAccessDeniedError

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, MqttRefused, payloads, user_property
from tests.e2e.test_amqp_exchanges import refusal, take_all

pytestmark = pytest.mark.extension

QUEUES = [
    {"name": "orders", "groups": ["kitchen"], "retry": {"max_retries": 1}, "dlq": "$queue/orders-dead"},
    {"name": "captures", "topics": ["sensors/#"], "capture": True},
]
CONFIG = {
    "vhosts": [
        {"name": "acme", "queues": QUEUES},
        {"name": "small", "max_connections": 1, "max_queues": 2},
        {"name": "devices"},
    ],
    "listeners": {"mqtt": {"vhost": "devices"}},
}


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    process = BrokerProcess(tmp_path_factory.mktemp("vhosts"), CONFIG).start()
    yield process
    process.kill9()


@pytest.fixture
def enter(process):
    """Channels in virtual hosts: `enter("acme")`."""
    connections = []

    def channel(vhost):
        connections.append(amqp.connect(process.amqp_port, vhost=vhost))
        return connections[-1].channel()

    yield channel
    for connection in connections:
        amqp.close_quietly(connection)


def test_queues_and_exchanges_are_apart(enter, name):
    channels = {vhost: enter(vhost) for vhost in ("/", "acme", "devices")}
    for vhost, channel in channels.items():
        assert channel.queue_declare(name, durable=True).method.queue == name
        channel.exchange_declare(f"{name}-x", "topic", durable=True)
        channel.queue_bind(name, f"{name}-x", "a.#")
        channel.queue_bind(name, "amq.fanout")
        channel.confirm_delivery()
        channel.basic_publish("", name, f"{vhost} by name", mandatory=True)
        channel.basic_publish("", f"$queue/{name}/k", f"{vhost} by address", mandatory=True)
        channel.basic_publish(f"{name}-x", "a.b", f"{vhost} by binding", mandatory=True)
        channel.basic_publish("amq.fanout", "", f"{vhost} by fanout", mandatory=True)
    for vhost, channel in channels.items():
        ways = ("by name", "by address", "by binding", "by fanout")
        assert take_all(channel, name) == [f"{vhost} {way}" for way in ways]
        channel.queue_delete(name)
        channel.exchange_delete(f"{name}-x")


def test_configured_queues_are_in_their_virtual_host_only(enter):
    channel = enter("acme")
    channel.basic_publish("amq.topic", "sensors.a", b"21")
    assert take_all(channel, "captures") == ["21"]
    channel.basic_publish("", "orders", b"soup")
    for method, _, _ in islice(channel.consume("orders", arguments={"x-consumer-group": "kitchen"}), 2):
        channel.basic_nack(method.delivery_tag)
    channel.cancel()
    assert take_all(channel, "orders-dead") == ["soup"]
    for name in ("orders", "captures", "orders-dead"):
        assert refusal(enter("/").queue_declare, name, passive=True)[0] == 404


def test_deliveries_tell_names_as_they_are_said_there(enter, name):
    channel = enter("acme")
    arguments = {"x-dead-letter-exchange": f"{name}-x", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare(name, arguments=arguments, exclusive=True)
    channel.queue_declare(f"{name}-dead", exclusive=True)
    channel.exchange_declare(f"{name}-x", "direct", auto_delete=True)
    channel.queue_bind(f"{name}-dead", f"{name}-x", "dead")
    channel.basic_publish("", f"$queue/{name}/eu", b"x")
    method, _, _ = channel.basic_get(name)
    assert (method.exchange, method.routing_key) == ("", f"$queue/{name}/eu")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, _ = channel.basic_get(f"{name}-dead", auto_ack=True)
    assert (method.exchange, method.routing_key) == (f"{name}-x", "dead")
    assert properties.headers["x-death"][0]["queue"] == name


def test_dead_letters_on_the_default_exchange_stay_in_their_virtual_host(enter, name):
    channel = enter("acme")
    channel.queue_declare(f"{name}-dead", exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    channel.queue_declare(name, arguments=arguments, exclusive=True)
    channel.basic_publish("", name, b"x")
    method, _, _ = channel.basic_get(name)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert take_all(channel, f"{name}-dead") == ["x"]


def test_refusals_name_the_virtual_host(enter, name):
    assert refusal(enter("acme").queue_declare, name, passive=True) == (
        404,
        f"no queue '{name}' in vhost 'acme'",
    )
    assert refusal(enter("acme").queue_bind, name, "nope") == (404, "no exchange 'nope' in vhost 'acme'")
    assert refusal(enter("acme").exchange_delete, "amq.topic")[1] == (
        "deletion of system exchange 'amq.topic' in vhost 'acme' not allowed"
    )


@pytest.mark.parametrize("vhost", ["nope", "", "acme."])
def test_an_unknown_one_is_530(process, vhost):
    with pytest.raises(ProbableAccessDeniedError, match=f"530.*vhost {vhost} not found"):
        amqp.connect(process.amqp_port, vhost=vhost)


def test_nobody_reaches_into_another_one(enter, name):
    inside = enter("acme")
    inside.queue_declare(name, exclusive=True)
    code, _ = refusal(enter("/").queue_purge, f"acme\x1d{name}")
    assert code == 403
    outside = enter("/")
    outside.confirm_delivery()
    assert refusal(outside.basic_publish, "", f"acme\x1d{name}", b"x")[0] == 403
    assert take_all(inside, name) == []


def test_limits(process, enter, name):
    channel = enter("small")
    with pytest.raises(ProbableAccessDeniedError, match=r"530.*limit in vhost 'small' \(1\) is reached"):
        amqp.connect(process.amqp_port, vhost="small")
    for number in range(2):
        channel.queue_declare(f"{name}-{number}", exclusive=True)
    assert refusal(channel.queue_declare, f"{name}-2")[0] == 506


def test_mqtt_clients_are_in_the_virtual_host_of_their_listener(process, enter, name):
    channel = enter("devices")
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "amq.topic", f"{name}.#")
    elsewhere = enter("/")
    elsewhere.queue_declare(name, exclusive=True)
    elsewhere.queue_bind(name, "amq.topic", f"{name}.#")
    device = MqttClient(process.mqtt_port).connect()
    device.subscribe(f"{name}/down", qos=1)
    device.publish(f"{name}/last", "0", retain=True)
    device.subscribe(f"{name}/+", qos=0)
    assert [(m.topic, m.payload) for m in device.take(1)] == [(f"{name}/last", b"0")]
    device.unsubscribe(f"{name}/+")
    device.publish(f"{name}/up", "1")
    device.publish(f"$queue/{name}/k", "2")
    channel.basic_publish("amq.topic", f"{name}.down", b"3")
    assert payloads(device.take(1)) == ["3"]
    elsewhere.basic_publish("amq.topic", f"{name}.down", b"4")
    assert take_all(channel, name) == ["0", "1", "2", "3"]
    assert take_all(elsewhere, name) == ["4"]
    assert device.quiet()
    device.subscribe(f"$queue/{name}-own/#", user=[("ack", "explicit")])
    device.publish(f"$queue/{name}-own/k", "5")
    message = device.take_one()
    assert (message.topic, user_property(message, "queue")) == (f"$queue/{name}-own/k", f"{name}-own")
    assert device.settle("ack", message) == 0
    device.end()


def test_an_mqtt_user_name_leads_into_a_virtual_host(process, enter, name):
    """As RabbitMQ's `vhost:user`: what stands before the last colon, if there is such a virtual host."""

    def client(username, client_id, **options):
        return MqttClient(
            process.mqtt_port, username=username, password="guest", client_id=client_id, **options
        ).connect()

    inside, outside = client("acme:guest", name), client("/:guest", name)
    beside = client("guest", name)  # in that of the listener; all three have one client identifier
    channel = enter("acme")
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "amq.topic", f"{name}.#")
    for each in (inside, outside, beside):
        each.subscribe(f"{name}/#", 1)
    for where, each in (("acme", inside), ("/", outside), ("devices", beside)):
        each.publish(f"{name}/t", where, retain=True)
    for where, each in (("acme", inside), ("/", outside), ("devices", beside)):
        assert payloads(each.take(1)) == [where]
        assert each.quiet()
    assert take_all(channel, name) == ["acme"]
    late = client("acme:guest", f"{name}-late")
    late.subscribe(f"{name}/#", 0)
    assert payloads(late.take(1)) == ["acme"]
    for username in ("nope:guest", "acme:somebody", ":guest"):
        with pytest.raises(MqttRefused):
            client(username, f"{name}-refused")
    small = client("small:guest", f"{name}-small")
    with pytest.raises(MqttRefused):
        client("small:guest", f"{name}-full")
    for each in (inside, outside, beside, late, small):
        each.end()


def test_colons_of_user_names_may_mean_nothing(own_broker):
    broker = own_broker({**CONFIG, "mqtt": {"ignore_colons_in_username": True}})
    with pytest.raises(MqttRefused):
        MqttClient(broker.mqtt_port, username="acme:guest", password="guest").connect()
    MqttClient(broker.mqtt_port, username="guest", password="guest").connect().end()


def test_all_of_it_is_there_after_a_crash(own_broker):
    broker = own_broker(CONFIG)
    for vhost in ("/", "acme"):
        channel = amqp.connect(broker.amqp_port, vhost=vhost).channel()
        channel.queue_declare("jobs", durable=True)
        channel.exchange_declare("events", "topic", durable=True)
        channel.queue_bind("jobs", "events", "#")
        channel.queue_bind("jobs", "amq.direct", "k")
        channel.confirm_delivery()
        channel.basic_publish("events", "a", f"{vhost} kept")
    broker.kill9()
    broker.start()
    for vhost in ("/", "acme"):
        channel = amqp.connect(broker.amqp_port, vhost=vhost).channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.direct", "k", f"{vhost} new", mandatory=True)
        channel.basic_publish("events", "a", f"{vhost} routed", mandatory=True)
        assert take_all(channel, "jobs") == [f"{vhost} kept", f"{vhost} new", f"{vhost} routed"]
