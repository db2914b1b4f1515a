"""MQ-Core over HTTP: the six endpoints as they are specified, and what goes beyond them."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import argon2
import httpx
import pika
import pytest
import yaml

from tests.e2e import staging
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess
from tests.waiting import until


@pytest.fixture(scope="module")
def mqcore_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for this file, with a lease of two seconds."""
    config = {"queue_manager": {"visibility_timeout": "2s"}, "queues": [{"name": "small"}]}
    config["queues"] = [
        {"name": "small", "limits": {"max_message_size": "1KiB", "max_depth": 2}},
        {"name": "events", "type": "stream"},
    ]
    process = BrokerProcess(
        tmp_path_factory.mktemp("mqcore"), config, arguments=["--mqcore", "0"], timed=True
    )
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def mq(mqcore_broker: BrokerProcess) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{mqcore_broker.ports['mqcore']}"
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client
    assert mqcore_broker.alive, mqcore_broker.log[-4000:]


@pytest.fixture
def path(mq: httpx.Client, name: str) -> str:
    """A new queue."""
    assert mq.put(f"/{name}").status_code == 201
    return f"/{name}"


def test_queue_is_there_from_its_creation_to_its_deletion(mq: httpx.Client, name: str) -> None:
    assert mq.get(f"/{name}").status_code == 404
    assert mq.put(f"/{name}", content=b"discarded").status_code == 201
    assert mq.put(f"/{name}").status_code == 200
    assert mq.get(f"/{name}").status_code == 200
    assert mq.delete(f"/{name}").status_code == 204
    assert mq.get(f"/{name}").status_code == 404
    assert mq.delete(f"/{name}").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "referer": "https://evil.example/"},
        {"referer": "http://evil.example/"},
        {"origin": "http://evil.example"},
        {"origin": "http://["},
    ],
    ids=str,
)
def test_a_page_of_another_site_takes_no_message_away(
    mq: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    mq.post(f"{path}/messages", content=b"kept")
    for method in ("GET", "DELETE"):
        assert mq.request(method, f"{path}/messages?id=1", headers=headers).status_code == 403
    assert mq.get(f"{path}/messages", headers=headers).status_code == 403
    mine = mq.get(f"{path}/messages", headers={"sec-fetch-site": "same-origin", "referer": str(mq.base_url)})
    assert (mine.status_code, mine.headers["x-message-attempts"], mine.content) == (200, "1", b"kept")


@pytest.mark.parametrize("address", ["/messages", ""])
def test_what_somebody_published_is_no_page_for_a_browser(mq: httpx.Client, path: str, address: str) -> None:
    mq.post(f"{path}/messages", content=b"<script>", headers={"content-type": "text/html"})
    answer = mq.get(path + address)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


def test_message_comes_back_with_its_id_and_content_until_it_is_deleted(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    added = mq.post(f"{path}/messages", content=b"\x00tea\xff", headers={"content-type": "image/x-tea"})
    assert added.status_code == 201
    fetched = mq.get(f"{path}/messages")
    assert (fetched.status_code, fetched.content) == (200, b"\x00tea\xff")
    assert fetched.headers["x-message-id"] == added.headers["x-message-id"]
    assert fetched.headers["content-type"] == "image/x-tea"
    assert mq.get(f"{path}/messages").status_code == 204  # nobody else gets it meanwhile
    assert mq.delete(f"{path}/messages/{fetched.headers['x-message-id']}").status_code == 204
    assert mq.delete(f"{path}/messages/{fetched.headers['x-message-id']}").status_code == 404
    mqcore_broker.pass_time(2.1)  # longer than the lease
    assert mq.get(f"{path}/messages").status_code == 204


def test_message_comes_with_the_headers_it_was_given(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    given = {
        "content-type": "text/plain",
        "x-message-correlation-id": "c-1",
        "x-message-reply-to": "answers",
        "x-message-type": "order",
        "x-message-priority": "3",
        "x-message-expiration": "60000ms",
        "x-message-header-tenant": "acme",
        "x-message-header-x-note": "a b",
    }
    for _ in range(2):
        mq.post(f"{path}/messages", content=b"tea", headers=given)
    fetched = mq.get(f"{path}/messages")
    assert {name: fetched.headers.get(name) for name in given} == given
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", mqcore_broker.ports["amqp"]))
    _, properties, _ = connection.channel().basic_get(path[1:], auto_ack=True)
    connection.close()
    assert (properties.correlation_id, properties.headers["tenant"]) == ("c-1", "acme")


def test_staged_row_has_no_staging_headers(mqcore_broker: BrokerProcess, mq: httpx.Client, path: str) -> None:
    tag = {"x-stage-producer": "job", "x-stage-epoch": "0", "x-stage-part": "0", "x-stage-attempt": "a"}
    told = {f"X-Message-Header-{name}": value for name, value in {**tag, "mine": "1"}.items()}
    assert mq.post(f"{path}/messages", content=b"row", headers=told).is_success
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", mqcore_broker.ports["amqp"]))
    channel = connection.channel()
    assert staging.commit(channel, path[1:], (0, "a", 1))["status"] == "committed"
    [row] = Collector(channel, path[1:], ack=True).wait(1)
    connection.close()
    assert (row.body, row.properties.headers) == (b"row", {"mine": "1"})


def test_headers_of_other_publishers_are_told_as_far_as_a_header_can(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    headers = {
        "n": 1,
        "ok": True,
        "list": [1],
        "bad name": "x",
        "line": "a\r\nb",
        "\u00e9": "x",
        "accent": "\u00e9",
    }
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", mqcore_broker.ports["amqp"]))
    channel = connection.channel()
    channel.basic_publish("", path[1:], b"x", pika.BasicProperties(headers=headers))
    connection.close()
    told = mq.get(f"{path}/messages", params={"wait": "5s"}).headers
    found = {name: value for name, value in told.items() if name.startswith("x-message-header")}
    assert found == {"x-message-header-n": "1", "x-message-header-ok": "true"}


def test_message_that_is_due_later_or_was_taken_before_has_no_id_yet(mq: httpx.Client, path: str) -> None:
    once = {"x-message-deduplication-id": "d"}
    assert mq.post(f"{path}/messages", content=b"a", headers=once).headers["x-message-id"] == "0"
    again = mq.post(f"{path}/messages", content=b"a", headers=once)
    assert (again.status_code, again.headers.get("x-message-id")) == (201, None)
    assert mq.post(f"{path}/messages", content=b"b", headers=once).status_code == 409
    later = mq.post(f"{path}/messages", content=b"later", headers={"x-message-delay": "500ms"})
    assert (later.status_code, later.headers.get("x-message-id")) == (201, None)
    assert mq.get(f"{path}/messages").content == b"a"
    assert mq.get(f"{path}/messages").status_code == 204
    assert mq.get(f"{path}/messages", params={"wait": "10s"}).content == b"later"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-message-priority": "high"},
        {"x-message-expiration": "soon"},
        {"x-message-delay": "-1"},
        {"x-message-user-id": "somebody"},
        {"x-message-header-": "x"},
        {"x-message-correlation-id": "x" * 300},
    ],
)
def test_header_that_means_nothing_is_refused(mq: httpx.Client, path: str, headers: dict[str, str]) -> None:
    answer = mq.post(f"{path}/messages", content=b"x", headers=headers)
    assert answer.status_code == 400, answer.text
    assert mq.get(f"{path}/messages").status_code == 204


def test_empty_message_is_a_message(mq: httpx.Client, path: str) -> None:
    assert mq.post(f"{path}/messages").status_code == 201
    fetched = mq.get(f"{path}/messages")
    assert (fetched.status_code, fetched.content) == (200, b"")


def test_fetched_message_that_is_not_deleted_comes_again(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    mq.post(f"{path}/messages", content=b"again")
    first = mq.get(f"{path}/messages")
    mqcore_broker.pass_time(2.1)
    second = mq.get(f"{path}/messages", params={"wait": "10s"})
    assert second.content == b"again"
    assert second.headers["x-message-id"] == first.headers["x-message-id"]
    assert second.headers["x-message-attempts"] == "2"


def test_message_that_was_never_fetched_can_be_deleted_wherever_it_waits(mq: httpx.Client, path: str) -> None:
    ids = [mq.post(f"{path}/messages", content=b"%d" % n).headers["x-message-id"] for n in range(5)]
    assert mq.delete(f"{path}/messages/{ids[3]}").status_code == 204
    assert mq.delete(f"{path}/messages/{ids[0]}").status_code == 204
    left = [mq.get(f"{path}/messages") for _ in range(3)]
    assert [answer.content for answer in left] == [b"1", b"2", b"4"]
    assert {answer.headers["x-message-attempts"] for answer in left} == {"1"}
    assert mq.get(f"{path}/messages").status_code == 204
    assert mq.delete(f"{path}/messages/{ids[3]}").status_code == 404


def shown(broker: BrokerProcess, path: str) -> dict[str, Any]:
    """What the HTTP API shows of a queue."""
    answer = httpx.get(f"{broker.http_url}/api/v1/queues{path}", trust_env=False, timeout=20)
    return answer.json()  # type: ignore[no-any-return]


def test_message_that_came_back_can_be_deleted(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    message = mq.post(f"{path}/messages", content=b"x").headers["x-message-id"]
    assert mq.get(f"{path}/messages", params={"visibility": "100ms"}).status_code == 200
    until(lambda: shown(mqcore_broker, path)["ready"] == 1)
    assert mq.delete(f"{path}/messages/{message}").status_code == 204
    assert mq.get(f"{path}/messages").status_code == 204


def waiting_requests(broker: BrokerProcess, path: str) -> int:
    """How many consumers a queue has: long polls of one group are one together."""
    return int(shown(broker, path)["consumers"])


def test_long_poll_ends_when_a_message_comes(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    def publish() -> None:
        until(lambda: waiting_requests(mqcore_broker, path) == 1)
        mq.post(f"{path}/messages", content=b"late")

    started = time.monotonic()
    thread = threading.Thread(target=publish)
    thread.start()
    answer = mq.get(f"{path}/messages", params={"wait": "15"})
    thread.join()
    assert (answer.status_code, answer.content) == (200, b"late")
    assert time.monotonic() - started < 12


def test_long_poll_in_vain_ends_in_time(mq: httpx.Client, path: str) -> None:
    assert mq.get(f"{path}/messages", params={"wait": "300ms"}).status_code == 204


def test_each_of_many_long_polls_gets_one_message(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(mq.get, f"{path}/messages", params={"wait": "15s"}) for _ in range(8)]
        until(lambda: waiting_requests(mqcore_broker, path))
        for number in range(8):
            mq.post(f"{path}/messages", content=b"%d" % number)
        assert sorted(each.result().content for each in waiting) == [b"%d" % n for n in range(8)]


def test_client_that_goes_while_it_waits_is_given_nothing(
    mqcore_broker: BrokerProcess, mq: httpx.Client, path: str
) -> None:
    with socket.create_connection(("127.0.0.1", mqcore_broker.ports["mqcore"])) as client:
        client.sendall(f"GET {path}/messages?wait=30s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: waiting_requests(mqcore_broker, path))
    until(lambda: waiting_requests(mqcore_broker, path) == 0)
    mq.post(f"{path}/messages", content=b"kept")
    assert mq.get(f"{path}/messages", params={"wait": "5s"}).headers["x-message-attempts"] == "1"


@pytest.mark.parametrize("arguments", [{"x-single-active-consumer": True}, {}])
def test_request_that_waited_is_no_consumer_any_more(
    mqcore_broker: BrokerProcess, mq: httpx.Client, name: str, arguments: dict[str, bool]
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", mqcore_broker.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=arguments)
        assert mq.get(f"/{name}/messages", params={"wait": "50ms"}).status_code == 204
        consumer = Collector(channel, name, ack=True, exclusive=not arguments)
        mq.post(f"/{name}/messages", content=b"x")
        assert consumer.wait(1)[0].body == b"x"
        channel.queue_delete(name)


def test_auto_delete_queue_does_not_go_with_a_request_that_waited(
    mqcore_broker: BrokerProcess, mq: httpx.Client, name: str
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", mqcore_broker.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(name, auto_delete=True)
        assert mq.get(f"/{name}/messages", params={"wait": "50ms"}).status_code == 204
        mq.post(f"/{name}/messages", content=b"x")
        consumer = Collector(channel, name, ack=True)
        assert consumer.wait(1)[0].body == b"x"
        channel.basic_cancel(consumer.tag)
        assert mq.get(f"/{name}").status_code == 404


def test_visibility_is_what_was_asked_for(mqcore_broker: BrokerProcess, mq: httpx.Client, path: str) -> None:
    mq.post(f"{path}/messages", content=b"x")
    assert mq.get(f"{path}/messages", params={"visibility": "6s"}).status_code == 200
    mqcore_broker.pass_time(4)
    assert mq.get(f"{path}/messages").status_code == 204
    mqcore_broker.pass_time(2.1)
    assert mq.get(f"{path}/messages", params={"wait": "10s"}).content == b"x"


def test_each_group_gets_every_message(mq: httpx.Client, path: str) -> None:
    for group in ("", "audit"):
        mq.get(f"{path}/messages", params={"group": group})
    message = mq.post(f"{path}/messages", content=b"both").headers["x-message-id"]
    for group in ("", "audit"):
        assert mq.get(f"{path}/messages", params={"group": group}).content == b"both"
        assert mq.delete(f"{path}/messages/{message}", params={"group": group}).status_code == 204


def test_message_reaches_an_amqp_consumer_and_back(
    mq: httpx.Client,
    path: str,
    mqcore_broker: BrokerProcess,
    amqp_connect: Callable[..., pika.BlockingConnection],
) -> None:
    channel = amqp_connect(mqcore_broker).channel()
    mq.post(f"{path}/messages", content=b"{}", headers={"content-type": "application/json"})
    method, properties, body = channel.basic_get(path[1:], auto_ack=True)
    assert (body, properties.content_type) == (b"{}", "application/json")
    channel.basic_publish("", path[1:], b"from amqp")
    assert mq.get(f"{path}/messages", params={"wait": "5s"}).content == b"from amqp"


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/nobody/messages", 404),
        ("POST", "/nobody/messages", 404),
        ("DELETE", "/nobody/messages/1", 404),
        ("PUT", "/%ff", 400),
        ("POST", "/small", 405),
        ("GET", "/small/messages/1", 405),
        ("GET", "/small/other", 404),
        ("GET", "/small/messages?wait=2m", 400),
        ("GET", "/small/messages?visibility=0", 400),
        ("GET", "/small/messages?unknown=1", 400),
        ("GET", "/events/messages", 400),
        ("DELETE", "/small/messages/none", 404),
        ("DELETE", "/small/messages", 405),
        ("PATCH", "/small/messages/1", 405),
        ("POST", "/small/messages?batch=true", 400),
        ("GET", "/small/messages?count=2", 400),
    ],
)
def test_request_that_cannot_be_done_is_told_why(
    mq: httpx.Client, method: str, target: str, status: int
) -> None:
    answer = mq.request(method, target)
    assert answer.status_code == status, answer.text
    assert answer.json()["reason"]


def test_full_queue_tells_when_to_try_again(mq: httpx.Client) -> None:
    assert mq.post("/small/messages", content=b"x" * 2000).status_code == 413
    while mq.post("/small/messages", content=b"x").status_code == 201:
        pass
    refused = mq.post("/small/messages", content=b"x")
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1


def test_body_that_ends_early_adds_nothing(mq: httpx.Client, path: str) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        mq.post(f"{path}/messages", content=half(), headers={"content-length": "8"})
    assert mq.get(f"{path}/messages").status_code == 204


def test_answered_message_survives_a_crash_and_a_deleted_one_does_not(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker({}, arguments=["--mqcore", "0"])

    def client() -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{broker.ports['mqcore']}", trust_env=False, timeout=20
        )

    with client() as before:
        before.put("/q").raise_for_status()
        added = [before.post("/q/messages", content=b"%d" % number) for number in range(3)]
        before.delete(f"/q/messages/{added[1].headers['x-message-id']}").raise_for_status()
    broker.restart(kill=True)
    with client() as after:
        left = [after.get("/q/messages") for _ in range(3)]
    assert [(answer.status_code, answer.content) for answer in left] == [(200, b"0"), (200, b"2"), (204, b"")]


def test_document_names_every_path(mq: httpx.Client) -> None:
    document = json.loads(mq.get("/").content)
    assert {path: set(calls) for path, calls in document["paths"].items()} == {
        "/{queue}": {"get", "put", "delete"},
        "/{queue}/messages": {"get", "post"},
        "/{queue}/messages/{id}": {"delete"},
    }


def test_who_may_not_is_refused_and_who_is_unknown_is_asked(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    users = tmp_path / "users.yaml"
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    grant = {"vhost": "/", "write": "^in$", "read": "", "configure": ""}
    users.write_text(
        yaml.safe_dump({"users": [{"name": "writer", "password": hashed, "permissions": [grant]}]})
    )
    config = {
        "access": {"users_file": str(users), "anonymous": "never"},
        "queues": [{"name": "in"}, {"name": "out"}],
    }
    broker = own_broker(config, arguments=["--mqcore", "0"])
    url = f"http://127.0.0.1:{broker.ports['mqcore']}"
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.post("/in/messages").status_code == 401
        assert "Basic" in client.post("/in/messages").headers["www-authenticate"]
        assert client.post("/in/messages", auth=("writer", "wrong")).status_code == 401
        writer = ("writer", "secret")
        assert client.post("/in/messages", content=b"x", auth=writer).status_code == 201
        assert client.post("/out/messages", auth=writer).status_code == 403
        assert client.get("/in/messages", auth=writer).status_code == 403
        assert client.delete("/in/messages/0", auth=writer).status_code == 403
        assert client.delete("/in", auth=writer).status_code == 403
        assert client.put("/new", auth=writer).status_code == 403
