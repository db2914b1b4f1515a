"""Virtual hosts made, bounded and deleted while the broker runs."""

import json
import subprocess
import sys

import argon2
import httpx
import pytest
import yaml
from pika.exceptions import AMQPConnectionError, ProbableAccessDeniedError
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient
from tests.e2e.test_amqp_exchanges import refusal, take_all

CONFIG = {"vhosts": [{"name": "fixed", "max_queues": 3}]}


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    process = BrokerProcess(tmp_path_factory.mktemp("vhosts"), CONFIG).start()
    yield process
    process.kill9()


@pytest.fixture
def api(process):
    with httpx.Client(base_url=f"{process.http_url}/api/v1", trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def rabbitmq(process):
    with httpx.Client(
        base_url=f"{process.http_url}/api", auth=("guest", "guest"), trust_env=False, timeout=20
    ) as client:
        yield client


def enter(process, vhost):
    connection = amqp.connect(process.amqp_port, vhost=vhost)
    return connection, connection.channel()


def fill(channel, name):
    """One of everything that a virtual host may hold."""
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.queue_declare(f"{name}-stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare(f"{name}-x", "topic", durable=True)
    channel.queue_bind(name, f"{name}-x", "#")
    channel.queue_bind(name, "amq.topic", "#")
    channel.exchange_bind("amq.fanout", "amq.topic", "#")
    channel.queue_declare(f"{name}-fanned", durable=True)
    channel.queue_bind(f"{name}-fanned", "amq.fanout")
    for key in ("a", "b"):
        channel.basic_publish("amq.topic", key, b"x", mandatory=True)


def test_made_over_http_it_is_there_at_once_and_gone_when_deleted(process, api, name):
    made = api.put(f"/vhosts/{name}", json={"max_queues": 9})
    assert made.status_code == 200, made.text
    told = made.json()
    assert {key: value for key, value in told.items() if value} == {
        "name": name,
        "max_queues": 9,
        "default_queue_type": "classic",
    }
    assert (told["configured"], told["max_connections"]) == (False, 0)
    connection, channel = enter(process, name)
    fill(channel, name)
    told = api.get(f"/vhosts/{name}").json()
    assert (told["connections"], told["queues"]) == (1, 3)
    assert name in [each["name"] for each in api.get("/vhosts").json()]

    assert api.delete(f"/vhosts/{name}").status_code == 204
    with pytest.raises(AMQPConnectionError, match=f"vhost '{name}' is deleted"):
        connection.process_data_events(5)
    assert api.get(f"/vhosts/{name}").status_code == 404
    assert api.delete(f"/vhosts/{name}").status_code == 404
    with pytest.raises(ProbableAccessDeniedError, match=f"vhost {name} not found"):
        enter(process, name)

    assert api.put(f"/vhosts/{name}", json={}).status_code == 200
    connection, channel = enter(process, name)
    assert refusal(channel.queue_declare, name, passive=True)[0] == 404
    channel = connection.channel()
    assert refusal(channel.exchange_declare, f"{name}-x", passive=True)[0] == 404
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "amq.fanout")
    channel.basic_publish("amq.topic", "a", b"x")
    assert take_all(channel, name) == [], "amq.topic leads to amq.fanout no more"
    connection.close()
    api.delete(f"/vhosts/{name}")


def test_a_protected_one_is_not_deleted_before_that_is_taken_back(process, api, name):
    assert api.put(f"/vhosts/{name}", json={"protected_from_deletion": True}).status_code == 200
    told = f"Refusing to delete virtual host '{name}' because it is protected from deletion"
    refused = api.delete(f"/vhosts/{name}")
    assert (refused.status_code, refused.json()["reason"]) == (409, told)
    rabbitmq = httpx.Client(base_url=f"{process.http_url}/api", auth=("guest", "guest"), trust_env=False)
    with rabbitmq:
        refused = rabbitmq.delete(f"/vhosts/{name}")
        assert (refused.status_code, refused.json()["reason"]) == (412, told)
        exported = {vhost["name"]: vhost for vhost in rabbitmq.get("/definitions").json()["vhosts"]}
        assert exported[name]["metadata"]["protected_from_deletion"] is True
        assert rabbitmq.get(f"/vhosts/{name}").json()["protected_from_deletion"] is True
        assert rabbitmq.delete(f"/vhosts/{name}/deletion/protection").status_code == 204
        assert rabbitmq.post(f"/vhosts/{name}/deletion/protection").status_code == 204
        assert rabbitmq.post("/vhosts/nowhere/deletion/protection").status_code == 404
    assert api.put(f"/vhosts/{name}", json={"max_queues": 3}).json()["protected_from_deletion"] is True
    assert api.put(f"/vhosts/{name}", json={"protected_from_deletion": False}).status_code == 200
    assert api.delete(f"/vhosts/{name}").status_code == 204


def test_limits_are_changed_while_it_is_in_use(process, api, name):
    api.put(f"/vhosts/{name}", json={"max_connections": 1, "max_queues": 1})
    connection, channel = enter(process, name)
    channel.queue_declare(f"{name}-1", durable=True)
    assert refusal(channel.queue_declare, f"{name}-2", durable=True)[0] == 506
    with pytest.raises(ProbableAccessDeniedError, match=r"connection limit in vhost '.*' \(1\) is reached"):
        enter(process, name)
    assert api.put(f"/vhosts/{name}", json={"max_queues": 2}).json()["max_connections"] == 1
    connection.channel().queue_declare(f"{name}-2", durable=True)
    api.put(f"/vhosts/{name}", json={"max_connections": 0})
    other, _ = enter(process, name)
    other.close()
    connection.close()
    api.delete(f"/vhosts/{name}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/vhosts/fixed", {"max_queues": 4}, 409),
        ("PUT", "/vhosts/fixed", {}, 200),
        ("DELETE", "/vhosts/fixed", None, 409),
        ("DELETE", "/vhosts/%2F", None, 409),
        ("PUT", "/vhosts/%2F", {"max_queues": 0}, 200),
        ("PUT", "/vhosts/a%2Fb", {}, 400),
        ("PUT", "/vhosts/x", {"max_queues": -1}, 400),
        ("PUT", f"/vhosts/{'x' * 129}", {}, 400),
    ],
)
def test_what_cannot_be_is_told(api, method, path, body, status):
    assert api.request(method, path, json=body).status_code == status


def test_rabbitmqs_api_makes_bounds_and_deletes(process, rabbitmq, name):
    assert rabbitmq.put(f"/vhosts/{name}").status_code == 201
    assert rabbitmq.put(f"/vhosts/{name}").status_code == 204
    assert rabbitmq.put(f"/vhost-limits/{name}/max-queues", json={"value": 1}).status_code == 204
    assert rabbitmq.get(f"/vhost-limits/{name}").json() == [{"vhost": name, "value": {"max-queues": 1}}]
    connection, channel = enter(process, name)
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b"x")
    assert rabbitmq.get(f"/vhosts/{name}").json()["messages_ready"] == 1
    assert {each["name"] for each in rabbitmq.get("/vhosts").json()} >= {"/", "fixed", name}
    assert rabbitmq.delete(f"/vhost-limits/{name}/max-queues").status_code == 204
    assert rabbitmq.get(f"/vhost-limits/{name}").json() == []
    channel.queue_declare(f"{name}-2", durable=True)
    connection.close()
    assert rabbitmq.put(f"/vhost-limits/{name}/max-cats", json={"value": 1}).status_code == 400
    assert rabbitmq.delete(f"/vhosts/{name}").status_code == 204
    assert rabbitmq.get(f"/vhosts/{name}").status_code == 404


def test_what_is_in_it_is_administered_over_http(process, api, name):
    api.put(f"/vhosts/{name}", json={})
    inside = f"/vhosts/{name}"
    assert api.put(f"{inside}/queues/{name}", json={"groups": ["kitchen"]}).json()["name"] == name
    assert api.put(f"{inside}/exchanges/{name}-x", json={"type": "topic"}).status_code == 204
    binding = {"source": f"{name}-x", "destination": name, "routing_key": "#"}
    assert api.post(f"{inside}/bindings", json=binding).status_code == 204
    assert api.post(f"{inside}/queues/{name}/messages", json={"body": "x"}).json() == {"queues": [name]}
    connection, channel = enter(process, name)
    channel.confirm_delivery()
    channel.basic_publish(f"{name}-x", "k", b"y", mandatory=True)
    page = api.get(f"{inside}/queues/{name}/messages", params={"group": "kitchen"}).json()
    assert [each["body"] for each in page["items"]] == ["x", "y"]
    assert [each["name"] for each in api.get(f"{inside}/queues").json()["items"]] == [name]
    [group] = api.get(f"{inside}/queues/{name}/groups").json()
    assert (group["queue"], group["group_id"], group["ready"]) == (name, "kitchen", 2)
    for path in (f"/queues/{name}", f"/vhosts/fixed/queues/{name}", "/vhosts/nope/queues"):
        assert api.get(path).status_code == 404, path
    assert api.get("/bindings", params={"queue": name}).status_code == 404
    connection.close()
    api.delete(inside)


def test_who_may_enter_is_let_in_there_and_nowhere_else(own_broker, tmp_path):
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    tenant = {"vhost": "acme", "configure": "", "write": "", "read": "^jobs$"}
    path = tmp_path / "users.yaml"
    users = [
        {"name": "tenant", "password": hashed, "permissions": [tenant]},
        {"name": "boss", "password": hashed, "tags": ["administrator"], "permissions": [{"vhost": "/"}]},
    ]
    path.write_text(yaml.safe_dump({"users": users}))
    broker = own_broker(
        {
            "access": {"users_file": str(path), "anonymous": "never"},
            "vhosts": [{"name": "acme"}, {"name": "other"}],
            "queues": [{"name": "jobs"}],
        }
    )
    with httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20) as client:
        for user, path, status in (
            ("tenant", "/vhosts/acme/queues/jobs/messages", 404),
            ("tenant", "/vhosts/acme/queues/mine/messages", 403),
            ("tenant", "/vhosts/other/queues/jobs/messages", 403),
            ("tenant", "/queues/jobs/messages", 403),
            ("tenant", "/vhosts", 403),
            ("boss", "/vhosts/acme/queues", 403),
            ("boss", "/queues/jobs/messages", 200),
        ):
            assert client.get(path, auth=(user, "secret")).status_code == status, (user, path)


def test_command_adds_lists_and_removes(process, name):
    def run(*arguments):
        command = [sys.executable, "-m", "broker", "vhost", *arguments, "--url", process.http_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert run("add", name, "--max-queues", "5").returncode == 0
    listed = run("ls").stdout
    assert name in listed
    assert "MAX QUEUES" in listed
    assert run("rm", name).returncode == 0
    assert run("rm", name).returncode == 1


def test_commands_are_about_the_virtual_host_that_an_option_names(process, api, tmp_path, name):
    def run(*arguments, fails=False):
        done = CliRunner().invoke(app, [*arguments, "--url", process.http_url])
        assert done.exit_code == int(fails), done.output
        return done.stdout

    api.put(f"/vhosts/{name}", json={})
    inside = ("--vhost", name)
    run("queue", "declare", name, *inside)
    run("exchange", "declare", f"{name}-x", "--type", "topic", *inside)
    run("binding", "add", f"{name}-x", name, "--key", "a.*", *inside)
    run("pub", name, "tea", *inside)
    assert "tea" in run("queue", "peek", name, *inside)
    run("group", "create", name, "readers", *inside)
    for listing in (("queue", "ls"), ("exchange", "ls"), ("binding", "ls")):
        assert name in run(*listing, *inside), listing
        assert name not in run(*listing), listing
    assert "readers" in run("group", "ls", name, *inside)
    run("queue", "show", name, fails=True)
    run("queue", "show", name, "--vhost", "nope", fails=True)
    connection, _ = enter(process, name)
    assert name in run("connection", "ls", *inside)
    assert json.loads(run("connection", "ls", "--vhost", "fixed", "--json")) == []
    device = MqttClient(process.mqtt_port, username=f"{name}:guest", password="guest").connect()
    assert device.client_id in run("session", "ls", *inside)
    assert device.client_id not in run("session", "ls", "--vhost", "fixed")
    device.end()
    connection.close()
    file = tmp_path / "definitions.json"
    run("export", str(file), *inside)
    assert [each["name"] for each in json.loads(file.read_text())["queues"]] == [name]
    api.put(f"/vhosts/{name}-copy", json={})
    run("import", str(file), "--vhost", f"{name}-copy")
    assert name in run("queue", "ls", "--vhost", f"{name}-copy")
    run("queue", "rm", name, *inside)
    assert name not in run("queue", "ls", *inside)


def test_topics_of_a_virtual_host_are_followed_until_it_is_deleted(process, api, name):
    api.put(f"/vhosts/{name}", json={})
    with api.stream("GET", f"/vhosts/{name}/topics/tail", params={"filter": "a/#"}) as followed:
        lines = followed.iter_lines()
        assert json.loads(next(lines)) == {}
        for vhost in ("/", name):
            connection, channel = enter(process, vhost)
            channel.basic_publish("amq.topic", "a.b", vhost)
            connection.close()
        assert json.loads(next(lines)) == {"topic": "a/b", "body": name, "encoding": "text"}
        assert api.delete(f"/vhosts/{name}").status_code == 204
        assert "was deleted" in json.loads(next(lines))["reason"]


def test_all_of_it_is_there_after_a_crash(own_broker):
    broker = own_broker({})
    url = f"{broker.http_url}/api/v1"
    for name in ("kept", "gone"):
        httpx.put(
            f"{url}/vhosts/{name}", json={"max_queues": 5}, trust_env=False, timeout=20
        ).raise_for_status()
        _, channel = enter(broker, name)
        fill(channel, name)
    httpx.delete(f"{url}/vhosts/gone", trust_env=False, timeout=20).raise_for_status()
    broker.kill9()
    broker.start()
    told = httpx.get(f"{broker.http_url}/api/v1/vhosts/kept", trust_env=False, timeout=20).json()
    assert (told["max_queues"], told["queues"], told["configured"]) == (5, 3, False)
    _, channel = enter(broker, "kept")
    assert take_all(channel, "kept") == ["x", "x"]
    with pytest.raises(ProbableAccessDeniedError, match="vhost gone not found"):
        enter(broker, "gone")
