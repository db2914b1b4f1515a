"""RabbitMQ's management API: by its fields, and by its own tool, rabbitmqadmin, where that is installed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess

VHOST = "%2F"


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, auth=("guest", "guest"), trust_env=False) as client:
        yield client


def test_who_says_nothing_is_asked_and_who_is_wrong_is_told(broker: BrokerProcess, api: httpx.Client) -> None:
    asked = httpx.get(f"{broker.http_url}/api/overview", trust_env=False, timeout=20)
    assert (asked.status_code, asked.content) == (401, b"")
    assert asked.headers["www-authenticate"].startswith("Basic")
    wrong = httpx.get(f"{broker.http_url}/api/overview", auth=("guest", "wrong"), trust_env=False, timeout=20)
    assert wrong.status_code == 401
    assert api.get("/api/whoami").json() == {"name": "guest", "tags": ["administrator"]}


@pytest.mark.parametrize(
    "path",
    [
        "/api/version",
        "/api/health/checks/ready-to-serve-clients",
        "/api/health/checks/is-in-service",
        "/api/health/checks/below-node-connection-limit",
    ],
)
def test_probes_without_a_password_are_answered(broker: BrokerProcess, path: str) -> None:
    asked = httpx.get(broker.http_url + path, trust_env=False, timeout=20)
    assert asked.status_code == 200
    assert asked.json() in ("4.3.0", {"status": "ok"})  # and strangers learn no more


def test_overview_has_what_exporters_read(
    api: httpx.Client, broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x")
    overview = api.get("/api/overview").json()
    assert overview["rabbitmq_version"] == "4.3.0"
    assert overview["object_totals"]["queues"] >= 1
    assert overview["object_totals"]["connections"] >= 1
    assert overview["queue_totals"]["messages_ready"] >= 1
    assert overview["message_stats"]["publish_details"]["rate"] >= 0
    assert {"protocol": "amqp", "port": broker.amqp_port}.items() <= overview["listeners"][1].items()


def test_queue_is_declared_listed_filled_read_and_deleted(api: httpx.Client, name: str) -> None:
    path = f"/api/queues/{VHOST}/{name}"
    arguments = {"x-max-length": 10}
    assert api.put(path, json={"durable": True, "arguments": arguments}).status_code == 201
    assert api.put(path, json={"durable": True, "arguments": arguments}).status_code == 204
    refused = api.put(path, json={"durable": True, "arguments": {"x-max-length": 11}})
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    publish = {"properties": {"content_type": "a/b"}, "routing_key": name, "payload": "tea"}
    answer = api.post(
        f"/api/exchanges/{VHOST}/amq.default/publish", json={**publish, "payload_encoding": "string"}
    )
    assert answer.json() == {"routed": True}
    view = api.get(path).json()
    assert (view["messages"], view["messages_ready"], view["messages_unacknowledged"]) == (1, 1, 0)
    assert (view["name"], view["vhost"], view["durable"]) == (name, "/", True)
    assert view["arguments"] == arguments
    assert view["message_stats"]["publish"] == 1
    get = {"count": 5, "encoding": "auto", "ackmode": "ack_requeue_true"}
    [message] = api.post(f"{path}/get", json=get).json()
    assert message["payload"] == "tea"
    assert message["properties"] == {"content_type": "a/b"}
    assert message["routing_key"] == name
    [again] = api.post(f"{path}/get", json={**get, "ackmode": "ack_requeue_false"}).json()
    assert again["redelivered"] is True
    assert api.post(f"{path}/get", json=get).json() == []
    assert api.get(path).json()["messages"] == 0
    assert api.delete(path).status_code == 204
    gone = api.get(path)
    assert (gone.status_code, gone.json()["error"]) == (404, "Object Not Found")


def test_listing_gives_columns_order_and_pages(
    api: httpx.Client, channel: amqp.BlockingChannel, name: str
) -> None:
    for number in range(5):
        channel.queue_declare(f"{name}-{number}")
    query = {"name": f"^{name}-", "use_regex": "true", "page": "2", "page_size": "2", "columns": "name"}
    page = api.get("/api/queues", params={**query, "sort": "name", "sort_reverse": "true"}).json()
    assert page["items"] == [{"name": f"{name}-2"}, {"name": f"{name}-1"}]
    assert (page["page"], page["page_count"], page["filtered_count"]) == (2, 3, 5)
    beyond = api.get("/api/queues", params={**query, "page": "9"})
    assert (beyond.status_code, beyond.json()["error"]) == (400, "page_out_of_range")


def test_pattern_takes_no_time_that_grows_with_its_choices(api: httpx.Client, name: str) -> None:
    """As `(a+)+$`, which a matcher that goes back tries in more ways than it could ever end with."""
    many = "a" * 60
    for queue in (f"{name}-{many}b", f"{name}-{many}"):
        assert api.put(f"/api/queues/{VHOST}/{queue}", json={}).status_code == 201

    def found(pattern: str) -> list[str]:
        asked = api.get("/api/queues", params={"name": pattern, "use_regex": "true"}, timeout=10)
        assert asked.status_code == 200, asked.text
        return [each["name"] for each in asked.json()]

    assert found(f"^{name}-(a+)+$") == [f"{name}-{many}"]
    assert found(f"^{name}-(a|aa)+b$") == [f"{name}-{many}b"]
    assert found(f"^{name}" + ".*" * 60 + "=") == []
    for wrong in ("(?!x)a", "[", "a{1000}{1000}", "(" * 2_000, "a" * 100_000):
        asked = api.get("/api/queues", params={"name": wrong[:60_000], "use_regex": "true"})
        assert (asked.status_code, asked.json()["error"]) == (400, "bad_request")


def test_exchange_and_bindings_are_made_listed_and_deleted(
    api: httpx.Client, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    exchange = f"/api/exchanges/{VHOST}/x-{name}"
    assert api.put(exchange, json={"type": "topic"}).status_code == 201
    assert api.get(exchange).json()["type"] == "topic"
    between = f"/api/bindings/{VHOST}/e/x-{name}/q/{queue}"
    made = api.post(between, json={"routing_key": "a.#", "arguments": {}})
    assert made.status_code == 201
    assert made.headers["location"] == f"{queue}/a.#"
    keys = [each["routing_key"] for each in api.get(f"/api/queues/{VHOST}/{queue}/bindings").json()]
    assert sorted(keys) == sorted([queue, "a.#"])
    channel.basic_publish(f"x-{name}", "a.b", b"routed")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"routed"
    assert api.delete(f"{between}/{quote('a.#', safe='')}").status_code == 204
    assert api.delete(f"{between}/{quote('a.#', safe='')}").status_code == 404
    assert api.delete(exchange).status_code == 204
    assert api.get(exchange).status_code == 404


def test_connection_with_its_channel_and_consumer_is_listed_and_closed(
    api: httpx.Client, broker: BrokerProcess, name: str
) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.amqp_port, client_properties={"connection_name": name}
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume(name, lambda *_: None, consumer_tag="mine")
    [found] = [
        each
        for each in api.get("/api/connections").json()
        if each["client_properties"].get("connection_name") == name
    ]
    assert (found["protocol"], found["user"], found["channels"]) == ("AMQP 0-9-1", "guest", 1)
    [mine] = [
        each
        for each in api.get("/api/channels").json()
        if each["connection_details"]["name"] == found["name"]
    ]
    assert (mine["consumer_count"], mine["prefetch_count"]) == (1, 7)
    [consumer] = api.get(f"/api/queues/{VHOST}/{name}").json()["consumer_details"]
    assert (consumer["consumer_tag"], consumer["ack_required"]) == ("mine", True)
    assert api.delete(f"/api/connections/{quote(found['name'], safe='')}").status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(time_limit=10)


def test_definitions_of_one_broker_make_another_alike(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Callable[..., pika.BlockingConnection]
) -> None:
    first, second = own_broker(), own_broker()
    channel = amqp_connect(first).channel()
    channel.queue_declare("work", durable=True, arguments={"x-max-priority": 5})
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("passing")
    channel.exchange_declare("in", "headers", durable=True)
    channel.queue_bind("work", "in", "", {"x-match": "any", "a": 1})
    guest = ("guest", "guest")
    exported = httpx.get(f"{first.http_url}/api/definitions", auth=guest, trust_env=False, timeout=20).json()
    exported["policies"] = [{"name": "p", "pattern": "none", "definition": {"ha-mode": "all"}}]
    loaded = httpx.post(
        f"{second.http_url}/api/definitions", auth=guest, json=exported, trust_env=False, timeout=20
    )
    assert loaded.status_code == 204, loaded.text
    assert loaded.headers["x-not-taken"] == "policies (1)"
    again = httpx.get(f"{second.http_url}/api/definitions", auth=guest, trust_env=False, timeout=20).json()
    exported["policies"] = []  # nothing of it means anything here
    assert again == exported
    assert [each["name"] for each in again["queues"]] == ["events", "work"]
    amqp_connect(second).channel().queue_declare("work", durable=True, arguments={"x-max-priority": 5})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/nothing", None, 404),
        ("GET", "/api/queues/other", None, 404),
        ("GET", "/api/aliveness-test/other", None, 404),
        ("GET", "/api/aliveness-test/%2F", None, 200),
        ("GET", "/api/vhosts", None, 200),
        ("GET", "/api/nodes", None, 200),
        ("GET", "/api/consumers", None, 200),
        ("GET", "/api/users", None, 200),
        ("PUT", "/api/queues/%2F/q-wrong", "[", 400),
        ("PUT", "/api/exchanges/%2F/x-wrong", {"type": "bad"}, 400),
        ("POST", "/api/exchanges/%2F/amq.default/publish", {"routing_key": "x"}, 400),
        ("POST", "/api/queues/%2F/nobody/get", {"count": 1, "encoding": "auto"}, 400),
        ("DELETE", "/api/exchanges/%2F/amq.topic", None, 401),
        ("GET", "/api/health/checks/port-listener/1", None, 503),
        ("GET", "/api/health/checks/protocol-listener/amqp", None, 200),
        ("GET", "/api/health/checks/protocol-listener/amqp10", None, 200),
        ("GET", "/api/health/checks/protocol-listener/stomp", None, 503),
        ("GET", "/api/health/checks/ready-to-serve-clients", None, 200),
        ("GET", "/api/health/checks/is-in-service", None, 200),
        ("GET", "/api/health/checks/below-node-connection-limit", None, 200),
        ("GET", "/api/health/checks/metadata-store/initialized", None, 200),
        ("GET", "/api/health/checks/metadata-store/initialized/with-data", None, 200),
        ("GET", "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/", None, 200),
        ("GET", "/api/health/checks/quorum-queues-without-elected-leaders/vhost/%2F/", None, 200),
        ("GET", "/api/health/checks/quorum-queues-without-elected-leaders/vhost/none/", None, 404),
        ("GET", "/api/version", None, 200),
        ("GET", "/api/deprecated-features", None, 200),
        ("GET", "/api/deprecated-features/used", None, 200),
    ],
)
def test_answers_have_the_statuses_of_rabbitmq(
    api: httpx.Client, method: str, path: str, body: object, status: int
) -> None:
    content = body if isinstance(body, str) else None if body is None else json.dumps(body)
    answer = api.request(method, path, content=content)
    assert answer.status_code == status, answer.text


def test_queues_and_nodes_have_what_rabbitmqadmin_2_reads(
    api: httpx.Client, channel: amqp.BlockingChannel, name: str
) -> None:
    """It takes no null for a number, no object with half of its keys, and misses none of these."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    queue = next(each for each in api.get("/api/queues/detailed").json() if each["name"] == name)
    assert (queue["consumer_utilisation"], queue["consumer_capacity"]) == (0, 0)
    assert "garbage_collection" not in queue
    assert queue["members"] == queue["online"] == [queue["leader"]]
    channel.queue_delete(name)
    [node] = api.get("/api/nodes").json()
    numbers = ("fd_total", "proc_total", "mem_limit", "disk_free_limit", "run_queue", "processors", "uptime")
    assert all(isinstance(node[number], int) for number in numbers)
    assert node["enabled_plugins"] == []
    assert api.get(f"/api/nodes/{node['name']}/memory").json() == {"memory": "not_available"}
    assert api.get(f"/api/auth/attempts/{node['name']}").json() == []
    assert api.get("/api/auth/attempts/other").status_code == 404
    assert api.post("/api/rebalance/queues").status_code == 204


def test_the_connections_of_a_user_are_listed_and_closed(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Callable[..., pika.BlockingConnection]
) -> None:
    broker = own_broker()
    connection = amqp_connect(broker)
    url = f"{broker.http_url}/api/connections/username"
    with httpx.Client(auth=("guest", "guest"), trust_env=False, timeout=20) as client:
        [view] = client.get(f"{url}/guest").json()
        assert (view["user"], view["vhost"]) == ("guest", "/")
        assert client.get(f"{url}/nobody").json() == []
        assert client.delete(f"{url}/guest", headers={"x-reason": "enough"}).status_code == 204
    with pytest.raises(amqp.ConnectionClosedByBroker, match="enough"):
        connection.process_data_events(10)


RABBITMQADMIN = shutil.which("rabbitmqadmin")


@pytest.mark.skipif(RABBITMQADMIN is None, reason="rabbitmqadmin is not installed")
def test_rabbitmqadmin_works(broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(RABBITMQADMIN), "-P", str(broker.ports["http"]), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("declare", "queue", f"name={name}", "durable=true", 'arguments={"x-max-length": 5}')
    run("declare", "exchange", f"name=x-{name}", "type=fanout")
    run("declare", "binding", f"source=x-{name}", f"destination={name}")
    assert "Message published" in run(
        "publish", f"exchange=x-{name}", "routing_key=", "payload=hello from rabbitmqadmin"
    )
    listed = json.loads(run("-f", "raw_json", "list", "queues", "name", "messages"))
    assert {"name": name, "messages": 1} in listed
    assert "hello from rabbitmqadmin" in run("get", f"queue={name}", "ackmode=ack_requeue_false")
    run("purge", "queue", f"name={name}")
    for what in ("exchanges", "bindings", "connections", "channels", "consumers", "nodes", "vhosts", "users"):
        run("list", what)
    assert "sluicemq@" in run("show", "overview")
    run("export", str(tmp_path / "definitions.json"))
    assert name in (tmp_path / "definitions.json").read_text()
    run("import", str(tmp_path / "definitions.json"))
    run("delete", "binding", f"source=x-{name}", f"destination={name}", "destination_type=queue")
    run("delete", "exchange", f"name=x-{name}")
    run("delete", "queue", f"name={name}")
