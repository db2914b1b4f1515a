"""Scopes of tokens with a real broker: over each protocol they allow what they say, and refuse the rest."""

import time

import httpx
import jwt
import pika
import pytest
import yaml

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, MqttRefused

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scopes")
    (directory / "secret").write_text(SECRET)
    tokens = {
        "secret_file": str(directory / "secret"),
        "algorithms": ["HS256"],
        "resource_server_id": "mq",
        "scope_aliases": {"operator": "mq.tag:administrator"},
        "leeway": 0,
    }
    config = {"access": {"anonymous": "never", "jwt": tokens}, "vhosts": [{"name": "team-a"}]}
    process = BrokerProcess(directory, config, timed=True).start()
    yield process
    process.kill9()
    for secret in (SECRET, "eyJ"):
        assert secret not in process.log


@pytest.fixture
def token(guarded):
    def make(*scopes, seconds=60, user="device", **more):
        claims = {"sub": user, "aud": "mq", "exp": time.time() + guarded.ahead_s + seconds, **more}
        return jwt.encode({**claims, "scope": " ".join(scopes)}, SECRET, "HS256")

    return make


def test_scopes_hold_over_amqp_and_topic_exchanges_need_one_with_a_key(guarded, token, name):
    scopes = (f"mq.configure:*/{name}*", f"mq.write:*/{name}*", f"mq.read:*/{name}*")
    everything = amqp.connect(guarded.amqp_port, user="", password=token("mq.configure:*/*"))
    everything.channel().exchange_declare(f"{name}-topic", "topic")
    everything.channel().exchange_declare(f"{name}-direct", "direct")
    connection = amqp.connect(guarded.amqp_port, user="", password=token(*scopes, f"mq.write:*/{name}*/a.*"))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, f"{name}-direct", "k")
    channel.basic_publish(f"{name}-direct", "k", b"1")
    channel.basic_publish(f"{name}-topic", "a.b", b"2")
    assert channel.basic_get(name, auto_ack=True)[2] == b"1"
    with pytest.raises(amqp.ChannelClosedByBroker, match="ACCESS_REFUSED.*topic 'b.a'"):
        channel.basic_publish(f"{name}-topic", "b.a", b"3")
    with pytest.raises(amqp.ChannelClosedByBroker, match="ACCESS_REFUSED.*topic 'a.b' in exchange"):
        connection.channel().queue_bind(name, f"{name}-topic", "a.b")  # no scope reads its keys
    with pytest.raises(amqp.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        connection.channel().queue_declare("other", exclusive=True)
    connection.close()
    everything.close()


def test_a_publisher_to_a_direct_exchange_is_refused_once_it_is_a_topic_exchange(guarded, token, name):
    root = amqp.connect(guarded.amqp_port, user="", password=token("mq.configure:*/*")).channel()
    root.exchange_declare(name, "direct")
    channel = amqp.connect(guarded.amqp_port, user="", password=token(f"mq.write:*/{name}")).channel()
    channel.confirm_delivery()
    channel.basic_publish(name, "k", b"")
    root.exchange_delete(name)
    root.exchange_declare(name, "topic")
    with pytest.raises(amqp.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.basic_publish(name, "k", b"")


def test_scopes_are_of_virtual_hosts(guarded, token):
    password = token("mq.configure:team-*/*")
    amqp.connect(guarded.amqp_port, user="", password=password, vhost="team-a").close()
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="refused for user 'device'"):
        amqp.connect(guarded.amqp_port, user="", password=password, vhost="/")


def test_scopes_hold_over_mqtt(guarded, token):
    password = token("mq.write:*/amq.topic/{sub}.*", "mq.read:*/amq.topic/{sub}.cmd")
    client = MqttClient(guarded.mqtt_port, username="x", password=password).connect()
    assert client.publish("device/x") in (0, 0x10)
    assert client.publish("other/x") == 0x87
    client.end()
    for wrong in (token("mq.write:*/*", aud="else"), token("mq.write:*/*", aud=None), token()):
        with pytest.raises(MqttRefused):
            MqttClient(guarded.mqtt_port, username="x", password=wrong).connect()


def test_tags_of_scopes_hold_over_http_and_wrong_tokens_are_logged(guarded, token, name):
    def overview(text):
        headers = {"authorization": f"Bearer {text}"}
        return httpx.get(f"{guarded.http_url}/api/v1/overview", headers=headers, trust_env=False).status_code

    assert overview(token("mq.tag:monitoring", "mq.read:*/*")) == 200
    assert overview(token("operator", "mq.read:*/*")) == 200
    assert overview(token("mq.read:*/*")) == 403
    assert overview(token("mq.tag:administrator", "mq.read:*/*", aud="else")) == 401
    assert "not for mq, by its aud" in guarded.log


def test_aliases_change_while_the_broker_runs(guarded, token, name):
    shown = token("writer", "mq.configure:*/*")
    channel = amqp.connect(guarded.amqp_port, user="", password=shown).channel()
    channel.queue_declare(name, exclusive=True)
    aliases = guarded.config["access"]["jwt"]["scope_aliases"]
    aliases["writer"] = f"mq.write:*/{name} mq.read:*/{name}"
    guarded.config_file.write_text(yaml.safe_dump(guarded.config), "utf-8")
    answer = httpx.post(
        f"{guarded.http_url}/api/v1/configuration/reload",
        headers={"authorization": f"Bearer {token('operator', 'mq.read:*/*')}"},
        trust_env=False,
    )
    assert answer.is_success, answer.text
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")
    assert channel.basic_get(name)[2] == b"x"


def listen(connection, seconds):
    """Hear what the broker says for so long; raises how the connection ends."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        connection.process_data_events(left)


def test_a_new_secret_brings_its_scopes_and_may_take_none_that_was_used(guarded, token, name):
    own = f"mq.configure:*/{name}"
    connection = amqp.connect(guarded.amqp_port, user="", password=token(own, seconds=9))
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    connection.update_secret(token(own, f"mq.read:*/{name}"), "refreshed")
    assert channel.basic_get(name) == (None, None, None)
    guarded.pass_time(9.5)
    assert channel.basic_get(name) == (None, None, None)

    def renew(shown):
        connection.update_secret(shown, "refreshed")
        listen(connection, 10)

    with pytest.raises(amqp.ConnectionClosedByBroker, match="New secret allows less"):
        renew(token(own))


@pytest.mark.parametrize("more", [{"aud": "else"}, {"exp": "4102444800"}, {"exp": None}, {"sub": None}])
def test_tokens_that_prove_nothing_are_refused_over_each_protocol(guarded, token, more):
    shown = token("mq.read:*/*", "mq.write:*/*", "mq.tag:administrator", **more)
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp.connect(guarded.amqp_port, user="", password=shown)
    with pytest.raises(MqttRefused):
        MqttClient(guarded.mqtt_port, username="x", password=shown).connect()
    for kind in ({"Authorization": f"Bearer {shown}"}, {"Authorization": f"Bearer {shown}{'x' * 20_000}"}):
        for _ in range(4):
            guarded.pass_time(9)  # after failures a login waits
        answer = httpx.get(f"{guarded.http_url}/api/v1/overview", headers=kind, trust_env=False, timeout=60)
        assert answer.status_code == 401
