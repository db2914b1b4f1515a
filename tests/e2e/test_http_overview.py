"""The HTTP listener: what it tells of the broker, whom it lets in, the command that asks it."""

import json
import socket
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerProcess, command_line


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, trust_env=False) as client:
        yield client


def _publish(channel: amqp.BlockingChannel, queue: str, count: int) -> None:
    for _ in range(count):
        channel.basic_publish("", queue, b"x")


def test_health_of_a_running_broker_is_ok(http: httpx.Client) -> None:
    answer = http.get("/api/v1/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "date" in answer.headers


def test_queue_with_messages_is_listed_with_counts(
    http: httpx.Client, channel: amqp.BlockingChannel, queue: str
) -> None:
    _publish(channel, queue, 3)
    [view] = http.get("/api/v1/queues", params={"name": queue}).json()["items"]
    assert (view["name"], view["type"], view["ready"]) == (queue, "classic", 3)
    shown = http.get(f"/api/v1/queues/{queue}").json()
    assert shown.pop("settings")["visibility_timeout"] == "30s"
    assert shown == view


def test_listing_in_pages_gives_every_queue_once(
    http: httpx.Client, channel: amqp.BlockingChannel, name: str
) -> None:
    names = [f"{name}-{number}" for number in range(5)]
    for each in names:
        channel.queue_declare(each)
    seen, after = [], ""
    while True:
        page = http.get("/api/v1/queues", params={"name": name, "limit": 2, "after": after}).json()
        seen += [view["name"] for view in page["items"]]
        assert page["total"] == 5
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == names


def test_overview_sums_up_and_names_the_listeners(
    http: httpx.Client, broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str
) -> None:
    _publish(channel, queue, 2)
    overview = http.get("/api/v1/overview").json()
    assert overview["totals"]["ready"] >= 2
    assert overview["totals"]["connections"] >= 1
    ports = {listener["name"]: listener["port"] for listener in overview["node"]["listeners"]}
    assert ports == broker.ports
    assert overview["node"]["pid"] == broker.pid


def test_metrics_can_be_read_by_prometheus(
    http: httpx.Client, channel: amqp.BlockingChannel, queue: str
) -> None:
    _publish(channel, queue, 4)
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (sample.name, sample.labels.get("queue")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["sluicemq_queue_ready", queue] == 4
    assert samples["sluicemq_queues", None] >= 1
    assert samples["sluicemq_queue_published_total", queue] == 4
    assert samples["sluicemq_commit_seconds_count", None] >= 1


def test_detailed_metrics_have_groups_and_names_of_rabbitmq(
    http: httpx.Client, channel: amqp.BlockingChannel, queue: str
) -> None:
    _publish(channel, queue, 2)
    channel.basic_get(queue)
    text = http.get("/metrics/detailed").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    lags = {sample.labels["queue"]: sample.value for sample in families["sluicemq_group_lag"].samples}
    assert lags[queue] == 2
    unacked = families["rabbitmq_queue_messages_unacked"].samples
    assert {s.labels["queue"]: (s.labels["vhost"], s.value) for s in unacked}[queue] == ("/", 1)


def test_page_lists_queues_and_allows_no_script_of_others(
    http: httpx.Client, channel: amqp.BlockingChannel, queue: str
) -> None:
    answer = http.get("/")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert queue in answer.text


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/v1/queues/nobody-declared-this", 404, "not_found"),
        ("/api/v1/nothing", 404, "not_found"),
        ("/api/v1/queues?limit=0", 400, "invalid_argument"),
        ("/api/v1/queues?limit=1&limit=2", 400, "invalid_argument"),
        ("/api/v1/queues?unknown=1", 400, "invalid_argument"),
    ],
)
def test_request_that_cannot_be_done_is_told_why(
    http: httpx.Client, path: str, status: int, error: str
) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["reason"]


def test_wrong_method_is_told_the_right_one(http: httpx.Client) -> None:
    answer = http.delete("/api/v1/health")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"host": "evil.example"}),
        ("GET", {"host": "evil.example", "authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}),
        ("GET", {"host": "["}),
        ("POST", {"origin": "http://evil.example"}),
        ("POST", {"origin": "http://["}),
        ("POST", {"origin": "null"}),
        ("POST", {"sec-fetch-site": "cross-site"}),
        ("POST", {"referer": "http://evil.example/"}),
    ],
)
def test_page_of_another_site_is_refused(http: httpx.Client, method: str, headers: dict[str, str]) -> None:
    assert http.request(method, "/api/v1/overview", headers=headers).status_code == 403


@pytest.mark.parametrize("is_in_parts", [False, True], ids=["at once", "in parts"])
def test_request_that_offers_http_2_is_answered_in_http_1_with_its_body_read(
    broker: BrokerProcess, queue: str, is_in_parts: bool
) -> None:
    """As Java's HTTP client asks (RFC 9110, section 7.8: a server may ignore the offer)."""
    body = b'{"limits": {"max_depth": 7}}'
    head = (
        f"PUT /api/v1/queues/{queue} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    after = b"GET /api/v1/overview HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", broker.ports["http"]), 10) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (head, body, after) if is_in_parts else (head + body + after,):
            stream.sendall(part)
        answer = b"".join(iter(lambda: stream.recv(65_536), b""))
    assert answer.count(b"HTTP/1.1 2") == answer.count(b"HTTP/1.1 ") == 2, answer


def test_endless_header_ends_the_connection(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["http"]), timeout=10) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n" + b"x-a: " + b"a" * 100_000 + b"\r\n\r\n")
        assert b" 400 " in peer.recv(1000)


def _run(*arguments: str, input_text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments),
        cwd=WORKING_DIRECTORY,
        input=input_text,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def test_queue_ls_prints_json(broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str) -> None:
    _publish(channel, queue, 2)
    done = _run("queue", "ls", "--json", "--url", broker.http_url, "--name", queue)
    assert done.returncode == 0, done.stderr
    [view] = json.loads(done.stdout)
    assert (view["name"], view["ready"]) == (queue, 2)


def test_queue_ls_prints_a_table(broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str) -> None:
    done = _run("queue", "ls", "--url", broker.http_url)
    assert queue in done.stdout
    assert "READY" in done.stdout


def test_command_without_a_broker_says_so() -> None:
    done = _run("queue", "ls", "--url", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "is the broker running?" in done.stderr
