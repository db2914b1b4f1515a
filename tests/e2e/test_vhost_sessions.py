"""MQTT sessions that outlive their connection, in virtual hosts: each sees its own, over restarts."""

import httpx
import pika
import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, MqttClient, MqttRefused, payloads
from tests.e2e.test_mqtt5_features import will_of

CONFIG = {"vhosts": [{"name": "acme"}]}
VHOSTS = ("/", "acme", "made")
PERSISTENT = pika.BasicProperties(delivery_mode=2)
FOR_AN_HOUR = {"SessionExpiryInterval": 3600}


@pytest.fixture
def broker(own_broker):
    broker = own_broker(CONFIG)
    assert api(broker).put("/vhosts/made", json={}).status_code == 200
    return broker


def api(broker):
    return httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20)


def client(broker, vhost, client_id="dev", *, version=V5, clean=False, **options):
    """A client of a virtual host; with a lasting session unless it is `clean`."""
    if version == V5 and not clean:
        options |= FOR_AN_HOUR
    made = MqttClient(
        broker.mqtt_port,
        client_id=client_id,
        clean=clean,
        version=version,
        username=f"{vhost}:guest",
        password="guest",
        **options,
    )
    return made.connect()


def listed(broker):
    """The client identifiers of the sessions in each virtual host."""
    with api(broker) as calls:
        pages = {vhost: calls.get(f"/vhosts/{vhost.replace('/', '%2F')}/sessions").json() for vhost in VHOSTS}
    return {vhost: [each["client_id"] for each in page["items"]] for vhost, page in pages.items()}


@pytest.mark.parametrize("version", [V311, V5])
def test_one_client_identifier_has_a_session_in_each_virtual_host_over_a_crash(broker, version):
    for vhost in VHOSTS:
        device = client(broker, vhost, version=version)
        assert not device.session_present, vhost
        device.subscribe("orders/#", 1)
        device.end()
    for vhost in VHOSTS:
        sender = client(broker, vhost, "sender", clean=True)
        sender.publish("orders/1", f"{vhost} before")
        sender.end()
    broker.restart(kill=True)
    for vhost in VHOSTS:  # no MQTT client was here since the start: sessions get it all the same
        channel = amqp.connect(broker.amqp_port, vhost=vhost).channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "orders.2", f"{vhost} after", PERSISTENT)
    for vhost in VHOSTS:
        device = client(broker, vhost, version=version)
        assert device.session_present, vhost
        assert payloads(device.take(2)) == [f"{vhost} before", f"{vhost} after"]
        assert device.quiet(), vhost
        device.unsubscribe("orders/#")
        device.end()
    assert listed(broker) == dict.fromkeys(VHOSTS, ["dev"])


def test_share_groups_and_queues_of_lasting_sessions_are_apart_over_a_restart(broker):
    for vhost in VHOSTS:
        channel = amqp.connect(broker.amqp_port, vhost=vhost).channel()
        channel.queue_declare("parcels", durable=True)
        member = client(broker, vhost, "member")
        member.subscribe("$share/team/jobs/#", 1)
        member.subscribe("$queue/parcels/#", 1)
        member.end()
    assert listed(broker) == dict.fromkeys(VHOSTS, ["$share/team/jobs/#", "member"])
    for vhost in VHOSTS[1:]:
        sender = client(broker, vhost, "sender", clean=True)
        sender.publish("jobs/1", f"{vhost} job")
        sender.publish("$queue/parcels/k", f"{vhost} parcel")
        sender.end()
    broker.restart(kill=False)
    for vhost in VHOSTS:
        member = client(broker, vhost, "member")
        wanted = [] if vhost == "/" else [f"{vhost} job", f"{vhost} parcel"]
        assert sorted(payloads(member.take(len(wanted)))) == wanted
        assert member.quiet(), vhost
        member.end()


def test_wills_that_wait_are_published_in_their_virtual_host_after_a_crash(broker):
    for vhost in VHOSTS[1:]:
        watcher = client(broker, vhost, "watcher")
        watcher.subscribe("gone", 1)
        watcher.end()
        client(broker, vhost, "dying", will=will_of("gone", 1)).drop()
        client(broker, vhost, "last").publish("stored until here", "x", retain=True)
    broker.restart(kill=True)
    for vhost in VHOSTS[1:]:
        watcher = client(broker, vhost, "watcher")
        assert watcher.take_one().topic == "gone"
        assert watcher.quiet()
        watcher.end()


def test_sessions_wills_and_retained_messages_go_with_their_virtual_host(broker):
    for vhost in ("/", "made"):
        device = client(broker, vhost)
        device.subscribe("t/#", 1)
        device.subscribe("$share/team/t", 1)
        device.publish("t/last", f"{vhost} retained", retain=True)
        device.take(1)
        device.end()
        client(broker, vhost, "dying", will=will_of("t/gone", 3600)).drop()
    here = client(broker, "made", "here", will=will_of("t/gone", 0))
    with api(broker) as calls:
        assert calls.delete("/vhosts/made").status_code == 204
        assert here.disconnected.wait(5)
        with pytest.raises(MqttRefused):
            client(broker, "made")
        assert calls.put("/vhosts/made", json={}).status_code == 200
    for start_again in (lambda: None, lambda: broker.restart(kill=True)):
        start_again()
        with api(broker) as calls:
            assert calls.get("/vhosts/made/sessions").json()["total"] == 0
            assert calls.get("/vhosts/made/retained").json()["total"] == 0
            assert calls.get("/retained").json()["total"] == 1
        assert listed(broker)["/"] == ["$share/team/t", "dev", "dying"]
        device = client(broker, "made", clean=True)
        device.subscribe("t/#", 0)
        assert device.quiet()
        device.end()
    assert client(broker, "/").session_present


@pytest.mark.parametrize("client_id", ["acme\x1ddev", "\x1d"])
def test_a_client_identifier_names_no_session_of_another_virtual_host(broker, client_id):
    client(broker, "acme").end()
    with pytest.raises(MqttRefused, match="Client identifier not valid"):
        client(broker, "/", client_id)
