"""Tokens and SCRAM with a real broker: who comes in, and who is sent away when a token ends."""

import json
import time

import httpx
import jwt
import pika
import pytest

from broker.access.passwords import hashed
from broker.access.scram import make_verifier
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, MqttRefused
from tests.e2e.raw_mqtt import CONNACK, DISCONNECT, RawMqtt, connect, packet, string, variable_int
from tests.unit.broker.access.test_scram import prove

SECRET = "0123456789abcdef0123456789abcdef"
PASSWORD = "a-Secret-of-this-test"
AUTH = 15
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("logins")
    (directory / "secret").write_text(SECRET)
    kept = {"password": hashed(PASSWORD.encode()), "scram": make_verifier(PASSWORD.encode())}
    permissions = (PermissionSettings(**EVERYTHING),)
    users = (
        UserSettings(name="alice", **kept, permissions=permissions),
        UserSettings(name="few", password=kept["password"], permissions=permissions, max_connections=1),
    )
    save_users(directory / "users.yaml", UsersSettings(users=users))
    access = {
        "users_file": str(directory / "users.yaml"),
        "anonymous": "never",
        "jwt": {"secret_file": str(directory / "secret"), "algorithms": ["HS256"], "leeway": 0},
        "order": ["jwt", "users"],
    }
    process = BrokerProcess(directory, {"access": access}, timed=True).start()
    yield process
    process.kill9()
    for secret in (SECRET, PASSWORD, "argon2", "eyJ", *kept.values()):
        assert secret not in process.log


@pytest.fixture
def token(guarded):
    """Makes tokens that last so long from now, as the broker's clock has it."""

    def make(seconds, user="device", tags=(), **granted):
        may = {"permissions": [granted or EVERYTHING], "tags": list(tags)}
        claims = {"sub": user, "exp": time.time() + guarded.ahead_s + seconds, "sluicemq": may}
        return jwt.encode(claims, SECRET, "HS256")

    return make


def test_a_token_lets_in_and_its_permissions_hold(guarded, token, name):
    connection = amqp.connect(guarded.amqp_port, user="", password=token(60, configure="^own", write="^own"))
    channel = connection.channel()
    channel.queue_declare(f"own-{name}", exclusive=True)
    with pytest.raises(amqp.ChannelClosedByBroker, match="refused for user 'device'"):
        channel.queue_declare(name, exclusive=True)
    connection.close()
    client = MqttClient(guarded.mqtt_port, username="x", password=token(60, write="^own")).connect()
    assert client.publish("own/x") in (0, 0x10)
    assert client.publish("other") == 0x87
    client.end()


def test_a_token_that_proves_nothing_lets_nobody_in(guarded, token):
    wrong = jwt.encode({"sub": "alice", "exp": time.time() + 60}, "x" * 32, "HS256")
    for password in (token(-100), wrong):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            amqp.connect(guarded.amqp_port, user="alice", password=password)


def listen(connection, seconds):
    """Hear what the broker says for so long; raises how the connection ends."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        connection.process_data_events(left)


def test_a_connection_ends_with_its_token(guarded, token):
    client = MqttClient(guarded.mqtt_port, username="x", password=token(9)).connect()
    connection = amqp.connect(guarded.amqp_port, user="x", password=token(9))
    guarded.pass_time(5)
    assert client.quiet()
    guarded.pass_time(5)
    assert client.disconnected.wait(15)
    assert client.disconnect_reason.value == 0x87
    with pytest.raises(amqp.ConnectionClosedByBroker, match="expired"):
        listen(connection, 15)
    client.end()


def test_a_topic_is_followed_no_longer_than_its_token_lasts(guarded, token):
    headers = {"authorization": f"Bearer {token(9, tags=['monitoring'])}"}
    url = f"{guarded.http_url}/api/v1/topics/tail"
    with httpx.stream("GET", url, headers=headers, timeout=30, trust_env=False) as answer:
        guarded.pass_time(9.5)
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert lines == [{}, {"error": "refused", "reason": "the login has expired"}]


def renew_and_wait(connection, secret):
    connection.update_secret(secret, "refreshed")
    listen(connection, 10)


def test_a_new_secret_has_a_connection_last_longer(guarded, token):
    connection = amqp.connect(guarded.amqp_port, user="device", password=token(9))
    connection.update_secret(token(60), "refreshed")
    guarded.pass_time(9.5)
    connection.channel().close()
    assert connection.is_open
    with pytest.raises(amqp.ConnectionClosedByBroker, match="New secret was refused"):
        renew_and_wait(connection, token(60, user="other"))


def test_a_user_has_no_more_connections_than_it_may(guarded):
    connection = amqp.connect(guarded.amqp_port, user="few", password=PASSWORD)
    with pytest.raises(
        pika.exceptions.ProbableAccessDeniedError, match=r"connection limit of user 'few' \(1\) is reached"
    ):
        amqp.connect(guarded.amqp_port, user="few", password=PASSWORD)
    with pytest.raises(MqttRefused) as refused:
        MqttClient(guarded.mqtt_port, username="few", password=PASSWORD).connect()
    assert refused.value.code.value == 0x97
    connection.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            amqp.connect(guarded.amqp_port, user="few", password=PASSWORD).close()
            break
        except amqp.AMQPError:
            assert time.monotonic() < deadline


def said(data):
    return b"\x15" + string("SCRAM-SHA-256") + b"\x16" + string(data)


def auth(code, data):
    block = said(data)
    return packet(AUTH, 0, bytes([code]) + variable_int(len(block)) + block)


def scram(client, begin, password, user="alice"):
    """The last packet of a login by SCRAM-SHA-256 that `begin` makes the first one of."""
    bare = f"n={user},r=clientnonce"
    client.send_bytes(begin(f"n,,{bare}".encode()))
    answer = client.read()
    if answer.kind != AUTH:
        return answer
    assert answer.body[0] == 0x18  # continue authentication
    challenge = answer.body[answer.body.index(b"r=clientnonce") :]
    client.send_bytes(auth(0x18, prove(challenge, bare, password.encode())))
    return client.read()


def enter(data):
    return connect(5, "scram-client", props=said(data))


def enter_again(data):
    return auth(0x19, data)


@pytest.fixture
def client(guarded):
    client = RawMqtt(guarded.mqtt_port, version=None)
    yield client
    client.drop()


def test_scram_proves_a_password_without_sending_it(client):
    answer = scram(client, enter, PASSWORD)
    assert (answer.kind, answer.body[1]) == (CONNACK, 0)
    assert b"v=" in answer.body  # the broker proves that it knows the password, too


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("few", PASSWORD)])
def test_scram_with_a_wrong_password_lets_nobody_in(client, user, password):
    answer = scram(client, enter, password, user)
    assert answer.kind in (CONNACK, DISCONNECT)
    assert answer.body[1 if answer.kind == CONNACK else 0] in (0x86, 0x87)


@pytest.mark.parametrize(("password", "kind", "code"), [(PASSWORD, AUTH, 0), ("wrong", DISCONNECT, 0x87)])
def test_a_client_that_is_in_proves_its_password_anew_and_stays_if_it_can(client, password, kind, code):
    """Section 4.12.1."""
    assert scram(client, enter, PASSWORD).kind == CONNACK
    answer = scram(client, enter_again, password)
    assert (answer.kind, answer.body[0] if answer.body else 0) == (kind, code)


def test_a_client_that_begins_anew_before_its_proof_is_looked_at_is_sent_away(client):
    assert scram(client, enter, PASSWORD).kind == CONNACK
    client.send_bytes(enter_again(b"n,,n=alice,r=clientnonce"))
    client.expect(AUTH)
    client.send_bytes(auth(0x18, b"c=biws,r=x,p=AAAA") + enter_again(b"n,,n=alice,r=clientnonce"))
    answer = client.expect(DISCONNECT)
    assert answer.body[0] in (0x82, 0x87)


def lines_of(process: BrokerProcess, event: str) -> list[str]:
    return [line for line in process.log.splitlines() if event in line]


def test_failed_login_over_http_is_logged_with_user_and_address(guarded, name):
    url = f"{guarded.http_url}/api/v1/overview"
    assert httpx.get(url).status_code == 401  # a browser's first request: nobody tried to log in
    assert httpx.get(url, auth=(f"eve-{name}", "guessed")).status_code == 401
    (line,) = lines_of(guarded, f"eve-{name}")
    assert "http.login_refused" in line
    assert "127.0.0.1:" in line
    assert "/api/v1/overview" in line
    assert "guessed" not in line


def test_what_an_administrator_changed_over_http_is_logged_and_messages_are_not(guarded, token, name):
    bearer = {"Authorization": f"Bearer {token(60, user='root', tags=('administrator',))}"}
    queue = f"{guarded.http_url}/api/v1/queues/{name}"
    assert httpx.put(queue, headers=bearer, json={}).status_code == 200
    assert httpx.post(f"{queue}/messages", headers=bearer, json={"body": "x"}).status_code == 200
    assert httpx.get(queue, headers=bearer).status_code == 200
    assert httpx.delete(f"{queue}-not-there", headers=bearer).status_code == 404
    (line,) = lines_of(guarded, name)
    for part in ("http.changed", "user=root", "method=PUT", f"path=/api/v1/queues/{name}", "peer=127.0.0.1:"):
        assert part in line


def test_pages_show_no_virtual_host_that_the_user_may_not_enter(guarded, token, name):
    root = {
        "Authorization": f"Bearer {token(60, user='root', tags=('administrator',), vhost='*', **EVERYTHING)}"
    }
    watcher = {"Authorization": f"Bearer {token(60, user='watcher', tags=('monitoring',))}"}
    vhost = f"{guarded.http_url}/api/v1/vhosts/{name}"
    assert httpx.put(vhost, headers=root, json={}).status_code == 200
    assert httpx.put(f"{vhost}/queues/hidden-{name}", headers=root, json={}).status_code == 200
    picked = {"sluicemq_vhost": name}
    for headers, is_shown in ((root, True), (watcher, False)):
        page = httpx.get(f"{guarded.http_url}/queues", headers=headers, cookies=picked)
        assert (page.status_code, f"hidden-{name}" in page.text) == (200, is_shown)
