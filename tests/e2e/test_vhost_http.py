"""Virtual hosts over HTTP: MQ-Core's endpoints and RabbitMQ's API see what is in the one that is named."""

import argon2
import httpx
import pytest
import yaml

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.test_amqp_exchanges import take_all

VHOSTS = ("/", "acme", "other")
RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vhosts")
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    users = [
        {"name": "boss", "tags": ["administrator"], "permissions": [{"vhost": "*", **RIGHTS}]},
        {"name": "tenant", "tags": ["management"], "permissions": [{"vhost": "acme", **RIGHTS}]},
        {"name": "reader", "tags": ["management"], "permissions": [{"vhost": "acme", "read": "^mine$"}]},
    ]
    path = directory / "users.yaml"
    path.write_text(yaml.safe_dump({"users": [user | {"password": hashed} for user in users]}))
    config = {
        "access": {"users_file": str(path), "anonymous": "never"},
        "vhosts": [{"name": name} for name in VHOSTS[1:]],
        "listeners": {"mqcore": {"port": 0}},
    }
    process = BrokerProcess(directory / "broker", config).start()
    yield process
    process.kill9()


@pytest.fixture
def mq(process):
    url = f"http://127.0.0.1:{process.ports['mqcore']}"
    with httpx.Client(base_url=url, auth=("boss", "secret"), trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def api(process):
    with httpx.Client(
        base_url=f"{process.http_url}/api", auth=("boss", "secret"), trust_env=False, timeout=20
    ) as client:
        yield client


def segment(vhost):
    return vhost.replace("/", "%2F")


@pytest.fixture
def enter(process):
    """Channels in virtual hosts: `enter("acme")`."""
    connections = []

    def channel(vhost):
        connections.append(amqp.connect(process.amqp_port, vhost=vhost, user="boss", password="secret"))
        return connections[-1].channel()

    yield channel
    for connection in connections:
        amqp.close_quietly(connection)


def test_mqcore_knows_the_queues_of_the_virtual_host_that_is_named(mq, enter, name):
    path = f"/{name}/messages"
    for vhost in VHOSTS:
        where = {} if vhost == "/" else {"vhost": vhost}
        assert mq.get(f"/{name}", params=where).status_code == 404
        assert mq.put(f"/{name}", params=where).status_code == 201
        for number in range(3):
            assert mq.post(path, content=f"{vhost} {number}", params=where).status_code == 201
    for vhost in VHOSTS:
        where = {"vhost": vhost}
        assert mq.get(f"/{name}", params=where).json() == {"name": name, "ready": 3, "consumers": 0}
        first = mq.get(path, params={"wait": "1s", **where})
        assert (first.text, first.headers["x-message-id"]) == (f"{vhost} 0", "0")
        assert mq.delete(f"{path}/0", params=where).status_code == 204
        assert mq.delete(f"{path}/1", params=where).status_code == 204
        assert mq.get(path, params={"group": "audit", **where}).text.split()[0] == vhost
        assert take_all(enter(vhost), name) == [f"{vhost} 2"]
        assert mq.delete(f"/{name}", params=where).status_code == 204


@pytest.mark.parametrize(
    ("user", "query", "status", "reason"),
    [
        ("boss", "vhost=nope", 404, "vhost nope not found"),
        ("boss", "vhost=", 404, "vhost  not found"),
        ("boss", "vhost=acme&vhost=other", 400, "vhost: given twice"),
        ("boss", "vhost=acme", 404, "no queue 'nobody'"),
        ("tenant", "", 403, "access to vhost '/' refused for user 'tenant'"),
        ("tenant", "vhost=other", 403, "access to vhost 'other' refused for user 'tenant'"),
        ("tenant", "vhost=acme", 404, "no queue 'nobody'"),
    ],
)
def test_mqcore_tells_what_is_wrong_with_a_virtual_host(mq, user, query, status, reason):
    for path in ("/nobody", "/nobody/messages"):
        refused = mq.get(f"{path}?{query}", auth=(user, "secret"))
        assert (refused.status_code, refused.json()["reason"]) == (status, reason)


def test_a_queue_of_a_virtual_host_that_was_made_again_is_a_new_one(mq, api, name):
    for _ in range(2):
        assert api.put(f"/vhosts/{name}").status_code == 201
        assert mq.get(f"/jobs?vhost={name}").status_code == 404
        mq.put(f"/jobs?vhost={name}")
        assert mq.post(f"/jobs/messages?vhost={name}", content="x").headers["x-message-id"] == "0"
        assert mq.get(f"/jobs/messages?vhost={name}").text == "x"
        assert api.delete(f"/vhosts/{name}").status_code == 204
    assert mq.get(f"/jobs?vhost={name}").status_code == 404


def test_rabbitmqs_api_declares_publishes_gets_and_deletes_in_each_virtual_host(api, enter, name):
    for vhost in VHOSTS:
        at = segment(vhost)
        assert api.get(f"/queues/{at}/{name}").status_code == 404
        assert api.put(f"/queues/{at}/{name}", json={"durable": True}).status_code == 201
        assert api.put(f"/exchanges/{at}/{name}", json={"type": "topic"}).status_code == 201
        bound = api.post(f"/bindings/{at}/e/{name}/q/{name}", json={"routing_key": "a.#"})
        assert (bound.status_code, bound.headers["location"]) == (201, f"{name}/a.#")
        message = {"routing_key": "a.b", "payload": vhost, "payload_encoding": "string", "properties": {}}
        assert api.post(f"/exchanges/{at}/{name}/publish", json=message).json() == {"routed": True}
    for vhost in VHOSTS:
        at = segment(vhost)
        view = api.get(f"/queues/{at}/{name}").json()
        assert (view["vhost"], view["messages_ready"], view["consumer_details"]) == (vhost, 1, [])
        bindings = api.get(f"/queues/{at}/{name}/bindings").json()
        assert [(each["vhost"], each["routing_key"]) for each in bindings] == [(vhost, name), (vhost, "a.#")]
        assert api.get(f"/bindings/{at}/e/{name}/q/{name}/a.%23").json()["vhost"] == vhost
        assert api.get(f"/exchanges/{at}/{name}").json()["vhost"] == vhost
        get = {"count": 5, "encoding": "auto", "ackmode": "ack_requeue_true"}
        assert [each["payload"] for each in api.post(f"/queues/{at}/{name}/get", json=get).json()] == [vhost]
    listed = [(each["vhost"], each["name"]) for each in api.get("/queues", params={"name": name}).json()]
    assert listed == [(vhost, name) for vhost in VHOSTS]
    for kind in ("queues", "exchanges"):
        at_acme = api.get(f"/{kind}/acme", params={"name": name}).json()
        assert [each["vhost"] for each in at_acme] == ["acme"]
        assert [each["vhost"] for each in api.get(f"/{kind}", params={"name": name}).json()] == list(VHOSTS)
    assert {each["vhost"] for each in api.get("/bindings").json()} == set(VHOSTS)
    assert api.delete("/queues/acme/" + name + "/contents").status_code == 204
    for vhost, left in (("/", ["/"]), ("acme", []), ("other", ["other"])):
        at = segment(vhost)
        assert take_all(enter(vhost), name) == left
        assert api.delete(f"/bindings/{at}/e/{name}/q/{name}/a.%23").status_code == 204
        assert api.delete(f"/exchanges/{at}/{name}").status_code == 204
        assert api.delete(f"/queues/{at}/{name}").status_code == 204


def test_rabbitmqs_api_lists_clients_by_virtual_host(api, enter, name):
    channel = enter("acme")
    channel.queue_declare(name, exclusive=True)
    channel.basic_consume(name, lambda *_: None)
    mine = api.get("/vhosts/acme/connections").json()
    assert {each["vhost"] for each in mine} == {"acme"}
    assert api.get("/vhosts/other/connections").json() == []
    assert [each["vhost"] for each in api.get("/vhosts/acme/channels").json()] == ["acme"]
    [consumer] = api.get("/consumers/acme").json()
    assert consumer["queue"] == {"name": name, "vhost": "acme"}
    assert api.get("/consumers/other").json() == []
    assert len(api.get(f"/queues/acme/{name}").json()["consumer_details"]) == 1
    assert api.get("/aliveness-test/acme").json() == {"status": "ok"}


def test_definitions_of_a_virtual_host_make_another_alike(api, enter, name):
    channel = enter("acme")
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 7})
    channel.exchange_declare(f"{name}-x", "topic", durable=True)
    channel.queue_bind(name, f"{name}-x", "a.#")
    document = api.get("/definitions/acme").json()
    assert name in [each["name"] for each in document["queues"]]
    assert api.post("/definitions/other", json=document).status_code == 204
    assert api.get(f"/queues/other/{name}").json()["arguments"] == {"x-max-length": 7}
    assert api.get(f"/bindings/other/e/{name}-x/q/{name}/a.%23").status_code == 200
    assert api.get(f"/queues/%2F/{name}").status_code == 404
    missing = api.get("/definitions/nope")
    assert (missing.status_code, missing.json()["reason"]) == (400, "vhost_not_found")


def test_rabbitmqs_api_tells_permissions_by_virtual_host(api):
    given = {"user": "tenant", "vhost": "acme", "configure": ".*", "write": ".*", "read": ".*"}
    assert api.get("/permissions/acme/tenant").json() == given
    assert api.get("/users/tenant/permissions").json() == [given]
    assert {each["user"] for each in api.get("/vhosts/other/permissions").json()} == {"boss"}
    assert api.get("/permissions/other/tenant").status_code == 404
    told = api.get("/users/tenant").json()
    assert (told["name"], told["tags"], told["limits"]) == ("tenant", ["management"], {})
    assert told["password_hash"] == ""
    assert api.get("/users/tenant", auth=("tenant", "secret")).status_code == 401
    assert api.put("/permissions/acme/tenant", json=given).status_code == 204


@pytest.mark.parametrize(
    ("user", "method", "path", "status", "reason"),
    [
        ("boss", "GET", "/queues/nope", 404, "Not Found"),
        ("boss", "GET", "/queues/acme/nobody", 404, "Not Found"),
        ("boss", "GET", "/exchanges/nope", 404, "Not Found"),
        ("boss", "GET", "/bindings/nope", 404, "Not Found"),
        ("boss", "GET", "/consumers/nope", 404, "Not Found"),
        ("boss", "GET", "/vhosts/nope/connections", 404, "Not Found"),
        ("boss", "GET", "/aliveness-test/nope", 404, "Not Found"),
        ("boss", "GET", "/policies/nope", 404, "Not Found"),
        ("boss", "GET", "/policies/acme", 200, []),
        ("boss", "PUT", "/policies/acme/p", 400, "[{key_missing,pattern},{key_missing,definition}]"),
        ("boss", "DELETE", "/policies/acme/p", 404, "Not Found"),
        ("boss", "POST", "/bindings/acme/e/amq.direct/q/nobody", 404, "no queue 'nobody' in vhost 'acme'"),
        ("boss", "POST", "/queues/acme/nobody/get", 404, "NOT_FOUND - no queue 'nobody' in vhost 'acme'"),
        ("boss", "POST", "/exchanges/acme/x/publish", 400, "404 NOT_FOUND - no exchange 'x' in vhost 'acme'"),
        ("boss", "DELETE", "/exchanges/acme/amq.topic", 401, "deletion of system exchange 'amq.topic'"),
        ("tenant", "GET", "/queues/other", 401, "User not authorised to access virtual host"),
        ("tenant", "GET", "/queues/%2F", 401, "User not authorised to access virtual host"),
        ("tenant", "PUT", "/queues/other/mine", 401, "User not authorised to access virtual host"),
        ("reader", "PUT", "/queues/acme/mine", 401, "access to queue 'mine' in vhost 'acme' refused"),
    ],
)
def test_rabbitmqs_api_tells_what_is_wrong_in_a_virtual_host(api, user, method, path, status, reason):
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    body |= {"routing_key": "k", "payload": "x", "payload_encoding": "string", "properties": {}}
    answer = api.request(method, path, json=None if method == "GET" else body, auth=(user, "secret"))
    assert answer.status_code == status, answer.text
    told = answer.json() if status == 200 else answer.json()["reason"]
    assert told == reason or told.startswith(reason)


def test_who_may_enter_one_virtual_host_sees_that_one_alone(api, name):
    for vhost in VHOSTS:
        api.put(f"/queues/{segment(vhost)}/{name}", json={"durable": True})
    api.put("/queues/acme/mine", json={"durable": True})
    auth = ("tenant", "secret")
    assert {each["vhost"] for each in api.get("/queues", auth=auth).json()} == {"acme"}
    assert {each["vhost"] for each in api.get("/exchanges", auth=auth).json()} == {"acme"}
    assert [each["name"] for each in api.get("/vhosts", auth=auth).json()] == ["acme"]
    totals = api.get("/overview", auth=auth).json()["object_totals"]
    assert totals["queues"] == len(api.get("/queues/acme", auth=auth).json())
    assert [each["name"] for each in api.get("/queues", auth=("reader", "secret")).json()] == ["mine"]


def test_reasons_name_queues_as_they_are_called_in_their_virtual_host(api):
    for path in ("/v1/vhosts/acme/queues/nobody", "/v1/vhosts/acme/queues/nobody/groups"):
        told = api.get(path)
        assert (told.status_code, told.json()["reason"]) == (404, "no queue 'nobody'")


def test_documents_have_what_is_in_virtual_hosts(api, mq):
    paths = api.get("/v1/openapi.json").json()["paths"]
    for path in ("queues", "queues/{queue}", "exchanges", "bindings", "sessions", "retained"):
        operation = paths[f"/api/v1/vhosts/{{vhost}}/{path}"]["get"]
        assert "vhost" in [each["name"] for each in operation["parameters"]]
    names = [each["operationId"] for methods in paths.values() for each in methods.values()]
    assert len(names) == len(set(names))
    for methods in mq.get("/").json()["paths"].values():
        for operation in methods.values():
            assert "vhost" in [each["name"] for each in operation["parameters"]]


def test_bindings_name_no_queue_that_the_user_may_not_see(api, enter, name):
    channel = enter("acme")
    channel.exchange_declare(name, "topic")
    for queue in ("mine", name):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, name, "key")
    reader = ("reader", "secret")
    paths = ["/bindings", "/bindings/acme", f"/exchanges/acme/{name}/bindings/source"]
    paths.append("/exchanges/acme/amq.default/bindings/source")
    for path in paths:
        everything = api.get(path).json()
        assert {"mine", name} <= {each["destination"] for each in everything}
        seen = api.get(path, auth=reader).json()
        assert {each["destination"] for each in seen} == {"mine"}
    hidden = [f"/queues/acme/{name}/bindings", f"/bindings/acme/e/{name}/q/{name}"]
    hidden.append(f"/bindings/acme/e/{name}/q/{name}/key")
    for path in hidden:
        assert api.get(path).status_code == 200
        assert api.get(path, auth=reader).status_code == 404
    assert api.get("/queues/acme/mine/bindings", auth=reader).status_code == 200
    assert api.get(f"/bindings/acme/e/{name}/q/mine/key", auth=reader).status_code == 200
    channel.queue_delete(name)
    channel.exchange_delete(name)
