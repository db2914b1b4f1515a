"""Bridges to other MQTT brokers: another SluiceMQ, and mosquitto."""

import contextlib
import shutil
import socket
import subprocess
import threading

import httpx
import pytest

from broker.network.tls.making import Authority, write_pair
from tests.e2e.broker_process import ForeignBroker
from tests.e2e.mqtt import V311, payloads, user_properties
from tests.waiting import until

WAIT_S = 60  # the next try of a bridge may be 30 s away, if the other broker was long in starting


def bridge(port, **more):
    return {
        "name": "central",
        "address": f"127.0.0.1:{port}",
        "client_id": "edge-7",
        "out": [{"topic": "sensors/#", "qos": 2, "remote_prefix": "site7/"}],
        "in": [{"topic": "commands/#", "qos": 2, "remote_prefix": "site7/"}],
        **more,
    }


def config(*bridges):
    return {"mqtt": {"bridges": list(bridges)}}


def connected(broker, count=1):
    until(lambda: broker.log.count("bridge.connected") >= count, WAIT_S)


@pytest.fixture
def mosquitto(tmp_path):
    """Starts mosquitto on one port, again and again, with sessions kept over restarts."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {tmp_path}/\nuser root\n"
    )
    running = []

    def start():
        running.append(
            subprocess.Popen([program, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        until(lambda: serves(port))
        return running[-1]

    yield port, start
    for process in running:
        process.kill()
        process.wait()


def serves(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_messages_go_both_ways_under_their_prefixes(own_broker, mqtt):
    central = own_broker()
    edge = own_broker(config(bridge(central.mqtt_port)))
    connected(edge)
    there, here = mqtt(central), mqtt(edge)
    there.subscribe("#", 2)
    here.subscribe("#", 2)
    here.publish("sensors/1", "up", 1, user=[("k", "v")])
    here.publish("other/1", "stays", 1)
    message = there.take(1, WAIT_S)[0]
    assert (message.topic, message.payload) == ("site7/sensors/1", b"up")
    assert ("k", "v") in user_properties(message)
    there.publish("site7/commands/x", "down", 2)
    assert {(m.topic, m.payload) for m in here.take(3, WAIT_S)} == {
        ("sensors/1", b"up"),
        ("other/1", b"stays"),
        ("commands/x", b"down"),
    }
    assert payloads(there.take(1)) == ["down"]
    assert there.quiet()
    assert here.quiet()


def test_a_bridge_over_tls_trusts_only_its_ca(own_broker, mqtt, tmp_path):
    authority = Authority.made()
    write_pair(tmp_path, "ca", authority.key, authority.certificate)
    write_pair(tmp_path, "server", *authority.issue("localhost", ["127.0.0.1"], is_server=True))
    tls = {"cert": str(tmp_path / "server.crt"), "key": str(tmp_path / "server.key")}
    central = own_broker({"listeners": {"mqtts": {"port": 0, "tls": tls}}})
    port = central.ports["mqtts"]
    trusting = bridge(port, tls=True, ca_file=str(tmp_path / "ca.crt"))
    edge = own_broker(config(trusting, bridge(port, name="doubting", client_id="edge-8", tls=True)))
    connected(edge)
    there = mqtt(central)
    there.subscribe("#", 1)
    mqtt(edge).publish("sensors/1", "up", 1)
    assert payloads(there.take(1, WAIT_S)) == ["up"]
    until(lambda: "CERTIFICATE_VERIFY_FAILED" in edge.log)
    assert edge.log.count("bridge.connected") == 1


def test_what_goes_out_waits_for_the_other_broker_over_a_kill_9(own_broker, mqtt):
    central = own_broker()
    port = central.mqtt_port
    edge = own_broker(config(bridge(port)))
    connected(edge)
    reader = mqtt(central, client_id="reader", clean=False, SessionExpiryInterval=600)
    reader.subscribe("site7/#", 2)
    reader.disconnect()
    central.kill9()
    sender = mqtt(edge)
    for number in range(5):
        sender.publish("sensors/1", str(number), 2)
    edge.kill9()
    edge.start()
    central.ports_wanted["mqtt"] = port
    central.start()
    connected(edge, 2)
    reader = mqtt(central, client_id="reader", clean=False, SessionExpiryInterval=600)
    assert payloads(reader.take(5, WAIT_S)) == ["0", "1", "2", "3", "4"]
    assert reader.quiet()


def test_brokers_that_bridge_the_same_topics_to_each_other_do_not_loop(own_broker, mqtt):
    rule = {"topic": "t/#", "qos": 1}
    first = own_broker()
    both = {"out": [rule], "in": [rule]}
    second = own_broker(config(bridge(first.mqtt_port, client_id="second", **both)))
    first.config = config(bridge(second.mqtt_port, client_id="first", **both))
    first.ports_wanted["mqtt"] = first.mqtt_port
    connected(second)
    first.restart()
    connected(first)
    connected(second, 2)
    client = mqtt(first)
    client.subscribe("t/#", 1)
    client.publish("t/1", "once", 1)
    came: list[str] = []
    for number in range(2, 6):  # each goes round behind what goes in circles
        client.publish(f"t/{number}", "later", 1)
        while came[-1:] != [f"t/{number}"]:
            came.append(client.take_one(WAIT_S).topic)
    assert 1 <= came.count("t/1") <= 3, "it goes in circles"


def test_mosquitto_gets_and_sends_what_came_while_it_was_away(own_broker, mosquitto, mqtt):
    port, start = mosquitto
    edge = own_broker(config(bridge(port)))
    sender = mqtt(edge)
    sender.subscribe("commands/#", 1)
    for number in range(3):
        sender.publish("sensors/1", str(number), 1)
    command = ["mosquitto_sub", "-p", str(port), "-q", "1", "-t", "site7/#", "-C", "3", "-W", "20"]
    process = start()
    reader = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert reader.communicate(timeout=30)[0].split() == [b"0", b"1", b"2"]
    subprocess.run(
        ["mosquitto_pub", "-p", str(port), "-q", "1", "-t", "site7/commands/x", "-m", "go"], check=True
    )
    message = sender.take(1, WAIT_S)[0]
    assert (message.topic, message.payload) == ("commands/x", b"go")
    assert process.poll() is None


class Gate:
    """Stands before a broker and refuses protocol levels, as a broker does that does not know them."""

    def __init__(self, port, refused):
        self._port = port
        self._refused = refused
        self.levels = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                connect = client.recv(4096)
                level = connect[connect.index(b"MQTT") + 4]
                self.levels.append(level)
                if level in self._refused:
                    client.sendall(b"\x20\x02\x00\x01")
                    client.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self._port))
                there.sendall(connect)
                for source, sink in ((client, there), (there, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for end in (source, sink):
            end.close()

    def close(self):
        self._listener.close()


@pytest.mark.parametrize(
    ("protocol", "refused", "levels"),
    [
        ("auto", {5}, [5, 0x84]),
        ("auto", {5, 0x84}, [5, 0x84, 4]),
        ("mqttv311", {5, 0x84}, [0x84, 4]),
        ("mqttv311", {5}, [0x84]),
    ],
)
def test_a_broker_that_does_not_know_mqtt_5_is_spoken_to_in_3_1_1(
    own_broker, mosquitto, mqtt, protocol, refused, levels
):
    """What waited goes out, what comes in comes once, and what goes both ways is not sent back."""
    port, start = mosquitto
    start()
    gate = Gate(port, refused)
    rules = {
        "out": [
            {"topic": "sensors/#", "qos": 2, "remote_prefix": "site7/"},
            {"topic": "both/#", "remote_prefix": "x/"},
        ],
        "in": [
            {"topic": "commands/#", "qos": 2, "remote_prefix": "site7/"},
            {"topic": "both/+", "remote_prefix": "x/"},
        ],
    }
    there = mqtt(ForeignBroker(0, port), version=V311)
    there.subscribe("#", 2)
    edge = own_broker(config(bridge(gate.port, protocol=protocol, **rules)))
    connected(edge)
    assert gate.levels == levels
    here = mqtt(edge)
    here.subscribe("#", 2)
    here.publish("sensors/1", "up", 2, user=[("k", "v")])
    here.publish("both/1", "to and fro", 1)
    assert {(m.topic, m.payload) for m in there.take(2, WAIT_S)} == {
        ("site7/sensors/1", b"up"),
        ("x/both/1", b"to and fro"),
    }
    there.publish("site7/commands/x", "down", 2)
    there.publish("x/both/2", "from there", 1)
    is_told = levels[-1] == 0x84
    assert {(m.topic, m.payload) for m in here.take(4 if is_told else 3, WAIT_S)} == {
        ("sensors/1", b"up"),
        ("both/1", b"to and fro"),
        ("commands/x", b"down"),
        *([("both/2", b"from there")] if is_told else []),
    }
    assert here.quiet()
    assert ("bridge.not_fetched" in edge.log) is not is_told
    gate.close()


def test_what_waits_for_a_broker_of_3_1_1_goes_there_over_a_kill_9(own_broker, mosquitto, mqtt):
    port, start = mosquitto
    edge = own_broker(config(bridge(port, protocol="mqttv311")))
    sender = mqtt(edge)
    for number in range(3):
        sender.publish("sensors/1", str(number), 2)
    edge.kill9()
    edge.start()
    start()
    there = mqtt(ForeignBroker(0, port), version=V311)
    there.subscribe("site7/#", 2)
    assert payloads(there.take(3, WAIT_S)) == ["0", "1", "2"]
    assert there.quiet()


def test_a_bridge_belongs_to_one_virtual_host_and_ends_with_it(own_broker, mqtt):
    central = own_broker({"vhosts": [{"name": "acme"}]})
    login = {"username": "acme:guest", "password": "guest"}
    edge = own_broker(
        config(bridge(central.mqtt_port, vhost="acme", username="acme:guest", password="guest"))
        | {"vhosts": [{"name": "acme"}]},
        timed=True,
    )
    connected(edge)
    there, elsewhere = mqtt(central, **login), mqtt(central)
    here, beside = mqtt(edge, **login), mqtt(edge)
    for client in (there, elsewhere, here, beside):
        client.subscribe("#", 1)
    beside.publish("sensors/1", "stays", 1)
    here.publish("sensors/1", "up", 1)
    assert payloads(there.take(1, WAIT_S)) == ["up"]
    there.publish("site7/commands/x", "down", 1)
    assert sorted(payloads(here.take(2, WAIT_S))) == ["down", "up"]
    assert payloads(beside.take(1)) == ["stays"]
    assert elsewhere.quiet()
    edge.config_file.write_text("{}")
    with httpx.Client(base_url=f"{edge.http_url}/api/v1", trust_env=False, timeout=20) as api:
        assert api.post("/configuration/reload").status_code == 200
        deleted = api.delete("/vhosts/acme")
        assert deleted.status_code < 300, deleted.text
    there.publish("site7/commands/x", "nobody is there", 1)
    edge.pass_time(5)
    assert mqtt(edge).quiet()
    assert edge.log.count("bridge.connected") == 1
    assert "internal_error" not in edge.log
