"""Administration of a broker of two workers, by way of the first: it shows and changes both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from pika.exceptions import AMQPConnectionError, AMQPError, ProbableAccessDeniedError

from broker.access.passwords import hashed
from broker.app import Broker
from broker.workers.worker_place import WorkerPlace
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.settings import Settings
from config.users_file import load_users, save_users
from tests.e2e import amqp
from tests.e2e.mqtt import MqttClient
from tests.waiting import until

PASSWORD = "a-secret-of-this-test"
EVERYTHING = (PermissionSettings(vhost="*", configure=".*", write=".*", read=".*"),)


class TwoWorkers:
    """Two workers in one event loop, in a thread of their own. They have ports of their own, too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        self._run = directory / "run"
        self._run.mkdir(exist_ok=True)
        kept = hashed(PASSWORD.encode())
        users = (UserSettings(name="boss", password=kept, permissions=EVERYTHING, tags=("administrator",)),)
        self.users_file = directory / "users.yaml"
        save_users(self.users_file, UsersSettings(users=users))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.brokers = [self._make(number) for number in range(2)]
        self.call(self._start(self.brokers))

    def _make(self, number: int) -> Broker:
        return Broker(self.settings(), load=self.settings, place=WorkerPlace(number, 2, self._run))

    def settings(self) -> Settings:
        data: dict[str, Any] = {
            "storage": {"url": str(self._directory / "data")},
            "access": {"users_file": str(self.users_file), "anonymous": "never"},
            "listeners": {
                name: {"bind": "127.0.0.1", "port": 0} for name in ("mqtt", "amqp", "http", "mqcore")
            },
        }
        return Settings.model_validate(data)

    async def _start(self, brokers: list[Broker]) -> None:
        await asyncio.gather(*[broker.start() for broker in brokers])

    def call(self, work: Any) -> Any:
        """Have a coroutine run in the loop of the workers."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def stop_one(self, number: int) -> None:
        self.call(self.brokers[number].stop())

    def start_one(self, number: int) -> None:
        self.brokers[number] = self._make(number)
        self.call(self.brokers[number].start())

    def stop(self) -> None:
        for broker in self.brokers:
            self.call(broker.stop())
        self.brokers = []
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.brokers[0].ports['http']}"

    def amqp(self, number: int, **options: Any) -> pika.BlockingConnection:
        options.setdefault("user", "boss")
        options.setdefault("password", PASSWORD)
        return amqp.connect(self.brokers[number].ports["amqp"], **options)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoWorkers]:
    workers = TwoWorkers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.stop()


@pytest.fixture
def own_workers(tmp_path: Path) -> Iterator[TwoWorkers]:
    workers = TwoWorkers(tmp_path / "own")
    yield workers
    workers.stop()


def client_of(workers: TwoWorkers, base: str) -> httpx.Client:
    return httpx.Client(
        base_url=workers.http_url + base, auth=("boss", PASSWORD), trust_env=False, timeout=20
    )


@pytest.fixture
def api(workers: TwoWorkers) -> Iterator[httpx.Client]:
    with client_of(workers, "/api/v1") as client:
        yield client


@pytest.fixture
def rabbitmq(workers: TwoWorkers) -> Iterator[httpx.Client]:
    with client_of(workers, "/api") as client:
        yield client


@pytest.fixture
def connect(workers: TwoWorkers) -> Iterator[Callable[..., pika.BlockingConnection]]:
    opened: list[pika.BlockingConnection] = []

    def connect(number: int, **options: Any) -> pika.BlockingConnection:
        opened.append(workers.amqp(number, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        amqp.close_quietly(connection)


def ok(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json() if response.content else None


# what all workers have alike


def test_virtual_host_made_over_http_is_entered_at_both_workers(workers, api, connect):
    ok(api.put("/vhosts/made", json={"max_queues": 7}))
    for number in (0, 1):
        connect(number, vhost="made").channel().queue_declare(f"made-{number}", durable=True)
    assert ok(api.get("/vhosts/made"))["queues"] == 2
    names = [item["name"] for item in ok(api.get("/vhosts/made/queues"))["items"]]
    assert names == ["made-0", "made-1"]


def test_deleted_virtual_host_is_emptied_at_both_workers(workers, api, connect):
    ok(api.put("/vhosts/gone", json={}))
    connections = [connect(number, vhost="gone") for number in (0, 1)]
    for number, connection in enumerate(connections):
        channel = connection.channel()
        channel.queue_declare(f"gone-{number}", durable=True)
        channel.exchange_declare("gone-x", "topic", durable=True)
        channel.queue_bind(f"gone-{number}", "gone-x", "#")
    ok(api.delete("/vhosts/gone"))
    for number in (0, 1):
        with pytest.raises((AMQPConnectionError, ProbableAccessDeniedError)):
            workers.amqp(number, vhost="gone")
    ok(api.put("/vhosts/gone", json={}))
    assert ok(api.get("/vhosts/gone/queues"))["total"] == 0
    assert [item["name"] for item in ok(api.get("/vhosts/gone/exchanges")) if item["name"][:3] != "amq"] == []
    for connection in connections:
        with pytest.raises(AMQPError):
            connection.channel()


def test_policy_set_over_http_holds_for_queues_of_both_workers(workers, api, connect):
    for number in (0, 1):
        connect(number).channel().queue_declare(f"ruled-{number}", durable=True)
    definition = {"max-length": 5}
    ok(api.put("/policies/rule", json={"pattern": "^ruled-", "definition": definition, "apply_to": "queues"}))
    for number in (0, 1):
        view = ok(api.get(f"/queues/ruled-{number}"))
        assert (view["policies"]["policy"], view["policy"]["depth_max"]) == ("rule", 5)
    ok(api.delete("/policies/rule"))
    for number in (0, 1):
        assert ok(api.get(f"/queues/ruled-{number}"))["policies"]["policy"] == ""


def test_banned_user_comes_in_at_no_worker(workers, api, connect):
    user(api, "banned")
    open_before = [connect(number, user="banned") for number in (0, 1)]
    ok(api.put("/bans/user/banned", json={"reason": "no"}))
    for number in (0, 1):
        with pytest.raises(AMQPConnectionError):
            workers.amqp(number, user="banned")
    for connection in open_before:
        with pytest.raises(AMQPError):
            connection.channel()
    ok(api.delete("/bans/user/banned"))
    for number in (0, 1):
        connect(number, user="banned")


def user(api: httpx.Client, name: str, **fields: Any) -> None:
    body: dict[str, Any] = {
        "password": PASSWORD,
        "permissions": [{"vhost": "*", "configure": ".*", "write": ".*", "read": ".*"}],
    }
    ok(api.put(f"/users/{name}", json={**body, **fields}))


def test_user_changed_over_http_is_known_at_both_workers_at_once(workers, api, connect):
    user(api, "fresh")
    connections = [connect(number, user="fresh") for number in (0, 1)]
    ok(api.delete("/users/fresh"))
    for number in (0, 1):
        with pytest.raises(AMQPConnectionError):
            workers.amqp(number, user="fresh")
    for connection in connections:
        with pytest.raises(AMQPError):
            connection.channel()


def test_worker_that_comes_reads_users_that_changed_since_its_start(workers, api, connect):
    user(api, "before")
    users = [*load_users(workers.users_file).users]
    users.append(users[-1].model_copy(update={"name": "after"}))
    save_users(workers.users_file, UsersSettings(users=tuple(users)))
    with pytest.raises(AMQPConnectionError):
        workers.amqp(1, user="after")
    home, other = [broker._workers.shared for broker in workers.brokers]

    async def greeted() -> None:
        await other.take_all(*home._all())

    workers.call(greeted())
    connect(1, user="after")


def test_worker_that_was_away_has_what_was_changed_meanwhile(own_workers):
    with client_of(own_workers, "/api/v1") as api:
        ok(api.put("/vhosts/old", json={}))
        connection = own_workers.amqp(1, vhost="old")
        connection.channel().queue_declare("old-1", durable=True)
        amqp.close_quietly(connection)
        connection = own_workers.amqp(1)
        connection.channel().queue_declare("kept-1", durable=True)
        amqp.close_quietly(connection)
        ok(api.put("/policies/dropped", json={"pattern": "^kept", "definition": {"max-length": 1}}))
        own_workers.stop_one(1)
        ok(api.delete("/policies/dropped"))
        ok(api.put("/policies/later", json={"pattern": "^kept", "definition": {"max-length": 2}}))
        ok(api.put("/vhosts/new", json={}))
        ok(api.delete("/vhosts/old"))
        ok(api.put("/bans/user/somebody", json={}))
        own_workers.start_one(1)
        until(lambda: api.get("/queues/kept-1").is_success)
        assert ok(api.get("/queues/kept-1"))["policies"]["policy"] == "later"
        connection = own_workers.amqp(1, vhost="new")
        amqp.close_quietly(connection)
        with pytest.raises((AMQPConnectionError, ProbableAccessDeniedError)):
            own_workers.amqp(1, vhost="old")
        ok(api.put("/vhosts/old", json={}))
        assert ok(api.get("/vhosts/old/queues"))["total"] == 0
        assert [str(ban.value) for ban in own_workers.brokers[1].hub.banning.all()] == ["somebody"]


# what is shown of both


def test_connections_of_both_workers_are_shown_and_ended(workers, api, rabbitmq, connect):
    user(api, "seen")
    connections = [connect(number, user="seen") for number in (0, 1)]
    for number, connection in enumerate(connections):
        channel = connection.channel()
        channel.queue_declare(f"seen-{number}", durable=True)
        channel.basic_consume(f"seen-{1 - number}" if number else "seen-0", lambda *told: None)
    found = ok(api.get("/connections", params={"user": "seen"}))["items"]
    assert len({view["id"] for view in found}) == 2
    assert sorted(view["id"] % 2 for view in found) == [0, 1]
    assert ok(api.get(f"/connections/{found[1]['id']}")) == found[1]
    paged = ok(api.get("/connections", params={"user": "seen", "after": found[0]["id"], "limit": 1}))
    assert [view["id"] for view in paged["items"]] == [found[1]["id"]]
    names = [view["name"] for view in ok(rabbitmq.get("/connections")) if view["user"] == "seen"]
    assert len(names) == 2
    assert len([each for each in ok(rabbitmq.get("/channels")) if each["user"] == "seen"]) == 2
    consumers = [each["queue"]["name"] for each in ok(rabbitmq.get("/consumers"))]
    assert consumers.count("seen-0") == 2
    assert len(ok(rabbitmq.get("/queues/%2F/seen-0"))["consumer_details"]) == 2
    totals = ok(rabbitmq.get("/overview"))["object_totals"]
    assert totals["connections"] == ok(api.get("/overview"))["totals"]["connections"] >= 2
    assert [node["processors"] for node in ok(rabbitmq.get("/nodes"))] == [2]
    assert ok(rabbitmq.get("/health/checks/below-node-connection-limit")) == {"status": "ok"}
    for view in found:
        ok(api.delete(f"/connections/{view['id']}"))
    for connection in connections:
        with pytest.raises(AMQPError):
            connection.channel()
    assert api.delete(f"/connections/{found[1]['id']}").status_code == 404


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, name
            found[name] = float(value)
    return found


def test_one_scrape_has_the_metrics_of_both_workers(workers, api, connect):
    for number in (0, 1):
        channel = connect(number).channel()
        channel.confirm_delivery()
        channel.queue_declare(f"measured-{number}", durable=True)
        channel.basic_publish("", f"measured-{number}", b"x")
    with client_of(workers, "") as root:
        text = root.get("/metrics/detailed").text
    found = samples(text)
    for worker in ("0", "1"):
        assert found[f'sluicemq_connections{{worker="{worker}"}}'] == 1
        assert found[f'sluicemq_commit_seconds_count{{worker="{worker}"}}'] > 0
        assert found[f'sluicemq_messages_published_total{{worker="{worker}"}}'] > 0
        assert found[f'sluicemq_messages_dropped_total{{reason="refused",worker="{worker}"}}'] == 0
        assert found[f'sluicemq_worker_up{{worker="{worker}"}}'] == 1
        assert found[f'sluicemq_queue_ready{{worker="{worker}",queue="measured-{worker}"}}'] == 1
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))


def test_overview_sums_queues_of_both_workers(workers, api, connect):
    before = ok(api.get("/overview"))["totals"]
    for number in (0, 1):
        channel = connect(number).channel()
        channel.confirm_delivery()
        channel.queue_declare(f"summed-{number}", durable=True)
        channel.basic_publish("", f"summed-{number}", b"x")
    after = ok(api.get("/overview"))["totals"]
    assert (after["queues"] - before["queues"], after["ready"] - before["ready"]) == (2, 2)


def test_sessions_and_retained_messages_of_both_workers_are_listed_in_pages(workers, api):
    ok(api.put("/vhosts/listed", json={}))
    names = [f"client-{index}" for index in range(8)]
    for index, name in enumerate(names):
        client = MqttClient(
            workers.brokers[index % 2].ports["mqtt"],
            client_id=name,
            version=4,
            clean=False,
            username="listed:boss",
            password=PASSWORD,
        ).connect()
        client.subscribe(f"t/{index}", qos=1)
        client.publish(f"kept/{index}", b"x", qos=1, retain=True)
        client.end()
    by_worker = [len(b.hub.of_vhost("listed").client.sessions.all()) for b in workers.brokers]
    assert sum(by_worker) == 8
    assert min(by_worker) > 0
    base = "/vhosts/listed"
    for path, key, expected in (
        ("/sessions", "client_id", names),
        ("/retained", "topic", [f"kept/{index}" for index in range(8)]),
    ):
        found, after = [], ""
        while after is not None:
            page = ok(api.get(base + path, params={"limit": 3, "after": after}))
            assert page["total"] == 8
            found += [item[key] for item in page["items"]]
            after = page["next"]
        assert found == expected
    assert ok(api.get(f"{base}/retained", params={"filter": "kept/3"}))["total"] == 1


def test_ready_says_which_worker_is_missing(own_workers):
    with client_of(own_workers, "/api/v1") as api:
        assert ok(api.get("/ready")) == ok(api.get("/health")) == {"status": "ok"}
        own_workers.stop_one(1)
        until(lambda: api.get("/ready").status_code == 503)
        assert "worker 1" in api.get("/ready").json()["reason"]
        assert ok(api.get("/health"))["reason"] == "worker 1 is missing"
        with client_of(own_workers, "/api") as rabbitmq:
            assert rabbitmq.get("/health/checks/alarms").status_code == 503
        own_workers.start_one(1)
        until(lambda: api.get("/ready").is_success)
        assert ok(api.get("/health")) == {"status": "ok"}


# queues of the other worker


@pytest.fixture
def far(connect: Callable[..., pika.BlockingConnection], name: str) -> str:
    """A queue of the second worker, with three messages."""
    channel = connect(1).channel()
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    return name


@pytest.fixture
def near(connect: Callable[..., pika.BlockingConnection], name: str) -> str:
    """A queue of the first worker."""
    connect(0).channel().queue_declare(f"{name}-near", durable=True)
    return f"{name}-near"


def browsed(api: httpx.Client, queue: str, **query: Any) -> list[str]:
    return [item["body"] for item in ok(api.get(f"/queues/{queue}/messages", params=query))["items"]]


def test_queue_of_another_worker_is_listed_changed_and_deleted(workers, api, rabbitmq, far):
    assert workers.brokers[0]._workers.owner_of(far) == 1
    assert [item["name"] for item in ok(api.get("/queues", params={"name": far}))["items"]] == [far]
    assert ok(api.get(f"/queues/{far}"))["ready"] == 3
    changed = ok(api.put(f"/queues/{far}", json={"limits": {"max_depth": 4}}))
    assert changed["settings"]["limits.max_depth"] == 4
    assert not changed["is_new"]
    assert ok(api.post(f"/queues/{far}/pause", json={"publish": True}))["pause"]["publish"]
    refused = api.post(f"/queues/{far}/messages", json={"body": "no"})
    assert (refused.status_code, refused.json()["error"]) == (422, "limit_reached")
    assert "paused" in refused.json()["reason"]
    ok(api.post(f"/queues/{far}/resume", json={"publish": True}))
    assert ok(api.post(f"/queues/{far}/messages", json={"body": "3"}))["queues"] == [far]
    refused = api.post(f"/queues/{far}/messages", json={"body": "too many"})
    assert refused.status_code == 422
    assert "full" in refused.json()["reason"]
    assert browsed(api, far) == ["0", "1", "2", "3"]
    assert browsed(api, far, limit=2) == ["0", "1"]
    item = ok(rabbitmq.get(f"/queues/%2F/{far}"))
    assert (item["name"], item["messages"]) == (far, 4)
    assert far in [each["name"] for each in ok(rabbitmq.get("/queues"))]
    assert ok(api.post(f"/queues/{far}/purge"))["count"] == 4
    assert rabbitmq.put(f"/queues/%2F/{far}", json={"durable": True}).status_code == 204
    assert ok(api.delete(f"/queues/{far}"))["count"] == 0
    assert api.get(f"/queues/{far}").status_code == 404


def test_bindings_to_a_queue_of_another_worker_are_made_shown_and_undone(workers, api, rabbitmq, far):
    ok(api.put(f"/exchanges/x-{far}", json={"type": "topic"}))
    binding = {"source": f"x-{far}", "destination": far, "routing_key": "a.#"}
    ok(api.post("/bindings", json=binding))
    expected = [{**binding, "destination_type": "queue", "arguments": {}}]
    assert ok(api.get("/bindings", params={"queue": far})) == expected
    assert ok(api.get("/bindings", params={"source": f"x-{far}"})) == expected
    keys = [each["properties_key"] for each in ok(rabbitmq.get(f"/queues/%2F/{far}/bindings"))]
    assert "a.#" in keys
    published = {"routing_key": "a.b", "payload": "via", "payload_encoding": "string", "properties": {}}
    assert ok(rabbitmq.post(f"/exchanges/%2F/x-{far}/publish", json=published)) == {"routed": True}
    assert browsed(api, far)[-1] == "via"
    ok(api.post("/bindings/remove", json=binding))
    assert ok(api.get("/bindings", params={"queue": far})) == []
    ok(api.delete(f"/exchanges/x-{far}"))


def test_groups_of_a_queue_of_another_worker_are_made_shown_and_deleted(api, far):
    ok(api.put(f"/queues/{far}/groups/one", json={"start": "earliest"}))
    assert [view["group_id"] for view in ok(api.get(f"/queues/{far}/groups"))] == ["one"]
    assert ok(api.get(f"/queues/{far}/groups/one"))["lag"] == 3
    ok(api.post(f"/queues/{far}/groups/one/reset", json={"to": "latest"}))
    assert ok(api.get(f"/queues/{far}/groups/one"))["lag"] == 0
    ok(api.delete(f"/queues/{far}/groups/one"))
    assert ok(api.get(f"/queues/{far}/groups")) == []
    assert ok(api.get(f"/queues/{far}/epochs")) == {"items": [], "total": 0, "next": None}


def test_messages_are_moved_and_copied_between_queues_of_different_workers(api, far, near):
    assert ok(api.post(f"/queues/{far}/copy", json={"to": near}))["count"] == 3
    until(lambda: browsed(api, near) == ["0", "1", "2"])
    assert ok(api.post(f"/queues/{near}/move", json={"to": far, "limit": 2}))["count"] == 2
    until(lambda: browsed(api, far) == ["0", "1", "2", "0", "1"])
    assert browsed(api, near) == ["2"]
    assert ok(api.post(f"/queues/{near}/redrive-dead-letters", json={"to": far}))["count"] == 1
    until(lambda: browsed(api, far) == ["0", "1", "2", "0", "1", "2"])


def test_call_for_a_queue_of_a_worker_that_is_away_is_told_so(own_workers):
    with client_of(own_workers, "/api/v1") as api:
        connection = own_workers.amqp(1)
        connection.channel().queue_declare("away", durable=True)
        amqp.close_quietly(connection)
        ok(api.get("/queues/away"))
        own_workers.stop_one(1)
        until(lambda: api.get("/ready").status_code == 503)
        for told in (api.get("/queues/away"), api.post("/queues/away/messages", json={"body": "x"})):
            assert (told.status_code, told.json()["error"]) == (503, "unavailable")
            assert "worker" in told.json()["reason"]
        own_workers.start_one(1)
        until(lambda: api.get("/queues/away").is_success)


def test_declaration_behind_an_unconfirmed_publish_to_another_worker_is_answered(connect, name):
    connect(0).channel().queue_declare(name, durable=True)
    channel = connect(1).channel()
    channel.basic_publish("", name, b"x")
    until(lambda: channel.queue_declare(name, passive=True).method.message_count == 1)
    channel.basic_publish("", name, b"y")
    channel.queue_declare(f"{name}-1", durable=True)


# quotas


def used(api: httpx.Client, scope: str, name: str, quota: str) -> tuple[int, int]:
    for view in ok(api.get("/quotas")):
        if (view["scope"], view["name"]) == (scope, name):
            return next(
                ((each["most"], each["used"]) for each in view["quotas"] if each["quota"] == quota), (0, 0)
            )
    return 0, 0


def known_elsewhere(workers: TwoWorkers, is_user: bool, name: str, kind: str) -> list[int]:
    """How much of something each worker knows an account to have at the other one."""
    quotas = [broker._shard.manager.context.quotas for broker in workers.brokers]
    accounts = [each.of_user(name) if is_user else each.of_vhost(name) for each in quotas]
    return [account.elsewhere.get(kind, 0) for account in accounts]


def test_connections_of_a_virtual_host_at_both_workers_count_for_its_quota(workers, api, connect):
    ok(api.put("/vhosts/narrow", json={"max_connections": 2}))
    for number in (0, 1):
        connect(number, vhost="narrow")
    assert used(api, "vhost", "narrow", "connections") == (2, 2)
    assert ok(api.get("/vhosts/narrow"))["connections"] == 2
    until(lambda: known_elsewhere(workers, False, "narrow", "connections") == [1, 1])
    for number in (0, 1):
        with pytest.raises((AMQPConnectionError, ProbableAccessDeniedError)):
            workers.amqp(number, vhost="narrow")


def test_queues_of_a_user_at_both_workers_count_for_the_quota_of_the_user(workers, api, connect):
    user(api, "few", max_queues=2)
    channels = [connect(number, user="few").channel() for number in (0, 1)]
    for number, channel in enumerate(channels):
        channel.queue_declare(f"few-{number}", durable=True)
    until(lambda: known_elsewhere(workers, True, "few", "queues") == [1, 1])
    with pytest.raises(AMQPError):
        channels[1].queue_declare("few-2", durable=True)
    for number in (0, 1):
        ok(api.delete(f"/queues/few-{number}"))
    assert used(api, "user", "few", "queues") == (2, 0)


def test_quota_is_free_again_when_the_worker_that_used_it_is_gone(own_workers):
    with client_of(own_workers, "/api/v1") as api:
        ok(api.put("/vhosts/one", json={"max_connections": 1}))
        held = own_workers.amqp(1, vhost="one")
        until(lambda: known_elsewhere(own_workers, False, "one", "connections")[0] == 1)
        with pytest.raises((AMQPConnectionError, ProbableAccessDeniedError)):
            own_workers.amqp(0, vhost="one")
        own_workers.stop_one(1)
        until(lambda: known_elsewhere(own_workers, False, "one", "connections")[0] == 0)
        amqp.close_quietly(own_workers.amqp(0, vhost="one"))
        amqp.close_quietly(held)
        own_workers.start_one(1)


# events


def test_events_of_both_workers_reach_a_consumer_once(workers, api, connect, name):
    channel = connect(0).channel()
    channel.queue_declare(name, durable=True)
    for key in ("queue.*", "connection.created", "exchange.*", "binding.*", "vhost.*", "user.*", "policy.*"):
        channel.queue_bind(name, "amq.rabbitmq.event", key)
    for number in (0, 1):
        other = connect(number).channel()
        other.queue_declare(f"{name}-{number}", durable=True)
        other.exchange_declare(f"{name}-x{number}", "topic", durable=True)
        other.queue_bind(f"{name}-{number}", f"{name}-x{number}", "#")
    ok(api.put(f"/vhosts/{name}", json={}))
    user(api, name)
    ok(api.put(f"/policies/{name}", json={"pattern": "nothing", "definition": {"max-length": 1}}))
    other.exchange_delete(f"{name}-x1")
    ok(api.delete(f"/users/{name}"))

    def told() -> list[str]:
        found = []
        for item in ok(api.get(f"/queues/{name}/messages", params={"limit": 100}))["items"]:
            headers = item["headers"]
            about = headers.get("name") or headers.get("source_name") or headers.get("source") or ""
            if item["topic"] == "connection.created" or str(about).startswith(name):
                found.append(f"{item['topic']} {'' if item['topic'].startswith('connection') else about}")
        return sorted(found)

    expected = sorted(
        [
            *["connection.created "] * 2,
            *[f"queue.created {name}-{number}" for number in (0, 1)],
            *[f"exchange.created {name}-x{number}" for number in (0, 1)],
            *[f"binding.created {name}-x{number}" for number in (0, 1)],
            f"binding.deleted {name}-x1",
            f"exchange.deleted {name}-x1",
            f"vhost.created {name}",
            f"user.created {name}",
            f"user.deleted {name}",
            f"policy.set {name}",
        ]
    )
    until(lambda: len(told()) >= len(expected), 6, told=lambda: told())
    assert told() == expected


# other interfaces


def test_messages_of_a_queue_of_another_worker_are_taken_over_rabbitmqs_api(rabbitmq, api, far):
    wanted = {"count": 2, "ackmode": "ack_requeue_false", "encoding": "auto"}
    found = ok(rabbitmq.post(f"/queues/%2F/{far}/get", json=wanted))
    assert [(each["payload"], each["message_count"]) for each in found] == [("0", 1), ("1", 1)]
    assert browsed(api, far) == ["2"]


def test_definitions_of_both_workers_are_exported_and_imported(workers, api, rabbitmq, connect, name):
    ok(api.put(f"/vhosts/{name}", json={}))
    for number in (0, 1):
        channel = connect(number, vhost=name).channel()
        channel.exchange_declare("x", "topic", durable=True)
        channel.queue_declare(f"q{number}", durable=True)
        channel.queue_bind(f"q{number}", "x", f"key.{number}")
    document = ok(rabbitmq.get(f"/definitions/{name}"))
    assert sorted(each["name"] for each in document["queues"]) == ["q0", "q1"]
    assert sorted(each["destination"] for each in document["bindings"]) == ["q0", "q1"]
    ok(api.put(f"/vhosts/{name}-2", json={}))
    assert rabbitmq.post(f"/definitions/{name}-2", json=document).is_success
    for number in (0, 1):
        channel = connect(number, vhost=f"{name}-2").channel()
        channel.confirm_delivery()
        channel.basic_publish("x", f"key.{number}", b"x", mandatory=True)
        assert channel.queue_declare(f"q{number}", passive=True).method.message_count == 1


def test_every_page_shows_what_is_at_another_worker(workers, api, connect, far):
    connect(1)
    pages = ["/", "/queues", f"/queues/{far}", "/streams", "/scheduled", "/dead-letters", "/connections"]
    pages += ["/sessions", "/exchanges", "/retained", "/epochs", "/topics", "/vhosts", "/users", "/quotas"]
    pages += ["/bans", "/policies"]
    with client_of(workers, "") as client:
        texts = {page: client.get(page, headers={"accept": "text/html"}) for page in pages}
        assert {page: told.status_code for page, told in texts.items() if told.status_code != 200} == {}
    assert far in texts["/queues"].text
    assert texts["/connections"].text.count('"danger">Close') == 2  # ours, and the one that made the queue


def test_followed_topic_has_what_is_published_at_another_worker(workers, connect):
    with client_of(workers, "/api/v1") as client, client.stream("GET", "/topics/tail?filter=far/%23") as told:
        lines = told.iter_lines()
        assert next(lines) == "{}"
        connect(1).channel().basic_publish("amq.topic", "far.off", b"heard")
        assert '"far/off"' in next(lines)


def test_shovel_moves_from_and_to_queues_of_another_worker(api, far, near):
    for source, target in ((far, near), (near, far)):
        value = {"src-uri": "amqp://", "src-queue": source, "dest-uri": "amqp://", "dest-queue": target}
        ok(api.put("/parameters/shovel/over", json={"value": value}))
        until(lambda: browsed(api, target) == ["0", "1", "2"])  # noqa: B023 - called at once
        ok(api.delete("/parameters/shovel/over"))
        assert browsed(api, source) == []


def test_federated_queue_of_another_worker_fetches_for_its_consumer(workers, api, connect, name):
    ok(api.put(f"/vhosts/{name}", json={}))
    upstream = connect(0).channel()
    upstream.confirm_delivery()
    upstream.queue_declare(name, durable=True)
    upstream.basic_publish("", name, b"fetched")
    channel = connect(1, vhost=name).channel()
    channel.queue_declare(name, durable=True)
    base = f"/vhosts/{name}"
    ok(api.put(f"{base}/parameters/federation-upstream/up", json={"value": {"uri": "amqp:///%2F"}}))
    ok(api.put(f"{base}/policies/up", json={"pattern": ".*", "definition": {"federation-upstream": "up"}}))
    collector = amqp.Collector(channel, name)
    assert collector.wait(1)[0].body == b"fetched"
