"""Who may do what, over each protocol: the table in docs/security.md, tried."""

import re
from pathlib import Path

import httpx
import pika
import pytest

from broker.access.passwords import hashed
from broker.http.application import ENDPOINTS, V1
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import access_matrix as matrix
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import V5, V311, MqttClient, MqttRefused
from tests.e2e.raw_amqp10 import RawAmqp10

PASSWORD = "a-Secret-of-this-test"
_NAMES = r"^(ours-|amq\.dyn-sub-|amq\.dyn-ours-|amq\.sub:raw:ours-)"
OURS = {"configure": _NAMES, "write": _NAMES, "read": _NAMES}
USERS = {
    "admin": {"configure": ".*", "write": ".*", "read": ".*"},
    "narrow": OURS,
    "grouped": {**OURS, "groups": "^own$"},
    "powerless": {},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guarded")
    kept = hashed(PASSWORD.encode())
    users = [
        UserSettings(
            name=name, password=kept, tags=("management",), permissions=(PermissionSettings(**granted),)
        )
        for name, granted in USERS.items()
    ]
    save_users(directory / "users.yaml", UsersSettings(users=tuple(users)))
    access = {"users_file": str(directory / "users.yaml"), "anonymous": "never"}
    process = BrokerProcess(directory, {"access": access}, arguments=["--mqcore", "0"]).start()
    connection = amqp.connect(process.amqp_port, user="admin", password=PASSWORD)
    channel = connection.channel()
    for name in ("ours-q", "theirs-q", matrix.OWN):
        channel.queue_declare(name, durable=True)
        channel.queue_declare(f"{name}-stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", f"{name}-stream", b"x", pika.BasicProperties(delivery_mode=2))
        channel.exchange_declare(f"{name}-x", "fanout")
    channel.exchange_declare("ours-x", "fanout")
    channel.exchange_declare("ours-y", "fanout")
    connection.close()
    yield process
    process.kill9()
    assert PASSWORD not in process.log
    assert "argon2" not in process.log


def amqp_code(process, user, operation, name):
    """What a client is told: a reply code, or 0."""
    connection = amqp.connect(process.amqp_port, user=user, password=PASSWORD)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        operation.run(channel, name)
        channel.basic_qos(0, 0)  # calls are answered later, but a refusal closes the channel before this is
        return 0
    except pika.exceptions.NackError:  # permitted, but there is no such group
        return 0
    except amqp.ChannelClosedByBroker as closed:
        return closed.reply_code
    finally:
        amqp.close_quietly(connection)


def amqp10_condition(process, user, operation, name):
    """The condition that a client is refused with, or ""."""
    client = RawAmqp10(process.amqp_port, user=user, password=PASSWORD)
    try:
        client.begin()
        return operation.run(client, name)
    finally:
        client.drop()


def mqtt_code(process, user, version, operation, name):
    """What a client is told: a reason code, "closed", or 0."""
    client = MqttClient(process.mqtt_port, version=version, username=user, password=PASSWORD).connect()
    try:
        code = operation.run(client, name)
        return 0 if code < 3 or code == 0x10 else f"0x{code:02x}"
    except AssertionError:
        if client.disconnected.is_set():
            return "closed"
        raise
    finally:
        client.end()


def title(operation):
    return operation.title.replace("`", "")


WHO = [("narrow", "ours-q", True), ("narrow", "theirs-q", False), ("powerless", "ours-q", False)]


@pytest.mark.parametrize("operation", matrix.AMQP, ids=title)
def test_amqp_operation_takes_its_permission(guarded, operation):
    for user, name, is_allowed in WHO:
        code = amqp_code(guarded, user, operation, name)
        assert code == (0 if is_allowed else int(operation.code)), (user, name)


@pytest.mark.parametrize("operation", matrix.AMQP10, ids=title)
def test_amqp_1_0_operation_takes_its_permission(guarded, operation):
    for user, name, is_allowed in WHO:
        condition = amqp10_condition(guarded, user, operation, name)
        assert condition == ("" if is_allowed else operation.code), (user, name)


@pytest.mark.parametrize("operation", matrix.MQTT, ids=title)
def test_mqtt_operation_takes_its_permission(guarded, operation):
    for user, name, is_allowed in WHO:
        code = mqtt_code(guarded, user, V5, operation, name)
        if is_allowed:
            assert code in (0, "0x90"), (user, name)  # 0x90: permitted, but nothing is there to settle
        else:
            assert code == operation.code, (user, name)
            assert mqtt_code(guarded, user, V311, operation, name) == operation.code_311, (user, name)


@pytest.mark.parametrize(("user", "name", "is_allowed"), WHO)
def test_a_will_takes_the_permission_to_publish_it(guarded, user, name, is_allowed):
    for version in (V5, V311):  # paho tells the return code of 3.1.1 as the reason code
        will = {"topic": f"{name}/will", "payload": b"x"}
        client = MqttClient(guarded.mqtt_port, version=version, username=user, password=PASSWORD, will=will)
        if is_allowed:
            client.connect()
        else:
            with pytest.raises(MqttRefused) as refused:
                client.connect()
            assert f"0x{refused.value.code.value:02x}" == matrix.WILL.code
        client.end()


@pytest.mark.parametrize("operation", [op for op in matrix.AMQP if "its group" in op.takes], ids=title)
def test_amqp_groups_take_their_permission(guarded, operation):
    assert amqp_code(guarded, "grouped", operation, "ours-q") == 403


@pytest.mark.parametrize("operation", [op for op in matrix.AMQP10 if "its group" in op.takes], ids=title)
def test_amqp_1_0_groups_take_their_permission(guarded, operation):
    assert amqp10_condition(guarded, "grouped", operation, "ours-q") == matrix.NOT_AUTHORIZED


@pytest.mark.parametrize("operation", [op for op in matrix.MQTT if "its group" in op.takes], ids=title)
def test_mqtt_groups_take_their_permission(guarded, operation):
    assert mqtt_code(guarded, "grouped", V5, operation, "ours-q") == "0x87"


HTTP = [(listener, request) for listener, requests in matrix.HTTP.items() for request in requests]


@pytest.mark.parametrize(("listener", "request_"), HTTP, ids=lambda each: getattr(each, "title", each))
def test_http_request_takes_its_permission(guarded, listener, request_):
    url = f"http://127.0.0.1:{guarded.ports[listener]}"
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        who = (
            [("admin", "ours-q", True), ("narrow", "ours-q", False), *WHO[1:]]
            if request_.takes == matrix.ON_TOPICS
            else WHO
        )
        for user, name, is_allowed in who:
            answer = request_.send(client, name, (user, PASSWORD))
            told = (user, name, answer.status_code, answer.text)
            if is_allowed:  # there may be nothing to do it to
                assert answer.status_code not in (401, 403), told
                assert answer.status_code < 500, told
            else:
                assert answer.status_code == request_.refused, told
        assert request_.send(client, "ours-q", None).status_code == 401


@pytest.mark.parametrize("listener", matrix.HTTP)
def test_http_logins_are_refused(guarded, listener):
    request_ = matrix.HTTP[listener][0]
    with httpx.Client(base_url=f"http://127.0.0.1:{guarded.ports[listener]}", trust_env=False) as client:
        for auth in (("narrow", "wrong"), ("unknown", PASSWORD)):
            answer = request_.send(client, "ours-q", auth)
            assert answer.status_code == 401
            assert answer.json()["reason"] == "wrong user name or password"


GROUPED = [(listener, request) for listener, request in HTTP if "its group" in request.takes]


@pytest.mark.parametrize(("listener", "request_"), GROUPED, ids=lambda each: getattr(each, "title", each))
def test_http_groups_take_their_permission(guarded, listener, request_):
    with httpx.Client(base_url=f"http://127.0.0.1:{guarded.ports[listener]}", trust_env=False) as client:
        assert request_.send(client, "ours-q", ("grouped", PASSWORD)).status_code == 403


def test_the_table_has_each_call_of_administration_that_takes_a_permission():
    listed = {(request.method, request.path.partition("?")[0]) for request in matrix.V1}
    for endpoint in ENDPOINTS:
        if endpoint.needs is not None:
            path = re.sub(r"{queue}(-gone)?", "{}", V1 + endpoint.path)
            path = path.replace("{group}", "made").replace("{message}", "9")
            assert {(endpoint.method, path), (endpoint.method, f"{path}-gone")} & listed, endpoint.path


@pytest.mark.parametrize(("version", "wrong", "nobody"), [(V5, 0x86, 0x87), (V311, 0x86, 0x87)])
def test_mqtt_logins_are_refused(guarded, version, wrong, nobody):
    for user, password, code in (
        ("narrow", "wrong", wrong),
        ("unknown", PASSWORD, wrong),
        ("guest", "guest", wrong),
        (None, None, nobody),
    ):
        client = MqttClient(guarded.mqtt_port, version=version, username=user, password=password)
        with pytest.raises(MqttRefused) as refused:
            client.connect()
        assert refused.value.code.value == code
        client.end()


@pytest.mark.parametrize(("user", "password"), [("narrow", "x"), ("unknown", PASSWORD), ("guest", "guest")])
def test_amqp_logins_are_refused(guarded, user, password):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match=r"\(403\)"):
        amqp.connect(guarded.amqp_port, user=user, password=password)


def test_a_refusal_is_one_log_line(guarded):
    before = guarded.log.count("theirs-logged")
    operation = matrix.Operation("", "", lambda c, n: c.basic_publish("", n, b"x"))
    assert amqp_code(guarded, "narrow", operation, "theirs-logged") == 403
    lines = [line for line in guarded.log.splitlines() if "theirs-logged" in line]
    assert before == 0
    assert len(lines) == 1
    assert "refused for user 'narrow'" in lines[0]


def test_the_documentation_shows_the_table():
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    assert matrix.rendered() in page
    assert matrix.rendered_http() in page
