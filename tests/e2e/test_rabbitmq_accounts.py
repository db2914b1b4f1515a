"""Users, permissions and topic permissions over RabbitMQ's API, and the passwords a RabbitMQ hashed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

import httpx
import pika
import pytest

from broker.access.passwords import hashed
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import load_users, save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(120)

BOSS = ("boss", "a-secret-of-this-test")
RIGHTS = {"configure": ".*", "write": "", "read": "^q"}


def of_rabbitmq(password: str, algorithm: str = "sha256") -> str:
    """Hash as RabbitMQ's documentation says: base64(salt + digest(salt + password))."""
    salt = b"\x90\x8d\xc6\x0a"
    return base64.b64encode(salt + hashlib.new(algorithm, salt + password.encode()).digest()).decode()


@pytest.fixture
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("accounts")
    boss = UserSettings(
        name=BOSS[0],
        password=hashed(BOSS[1].encode()),
        permissions=(PermissionSettings(configure=".*", write=".*", read=".*"),),
        tags=("administrator",),
    )
    save_users(directory / "users.yaml", UsersSettings(users=(boss,)))
    access = {"users_file": str(directory / "users.yaml"), "anonymous": "never"}
    process = BrokerProcess(directory, {"access": access}).start()
    yield process
    process.kill9()


@pytest.fixture
def api(process: BrokerProcess) -> Iterator[httpx.Client]:
    url = f"{process.http_url}/api"
    with httpx.Client(base_url=url, auth=BOSS, trust_env=False, timeout=20) as client:
        yield client


def test_a_user_is_made_may_do_what_is_granted_and_goes(process: BrokerProcess, api: httpx.Client) -> None:
    assert api.put("/vhosts/shop").status_code == 201
    assert api.get("/vhosts/shop/permissions").json()[0]["user"] == "boss"  # who made it may enter
    assert api.put("/users/ann", json={"password": "one", "tags": "monitoring"}).status_code == 201
    assert [user["name"] for user in api.get("/users/without-permissions").json()] == ["ann"]
    assert api.put("/permissions/shop/ann", json=RIGHTS).status_code == 201
    assert api.put("/permissions/shop/ann", json=RIGHTS).status_code == 204
    assert api.get("/permissions/shop/ann").json() == {"user": "ann", "vhost": "shop", **RIGHTS}
    topics = {"exchange": "amq.topic", "write": "^a", "read": "b"}
    assert api.put("/topic-permissions/shop/ann", json=topics).status_code in (201, 204)
    entry = {"user": "ann", "vhost": "shop", **topics}
    for path in ("/topic-permissions", "/topic-permissions/shop/ann", "/users/ann/topic-permissions"):
        assert api.get(path).json() == [entry]
    assert api.get("/permissions/shop/ann").json()["read"] == "^q"

    connection = amqp.connect(process.amqp_port, user="ann", password="one", vhost="shop")
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("amq.topic", "a", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="403"):
        channel.queue_declare("q")
    connection.close()

    assert api.delete("/topic-permissions/shop/ann").status_code == 204
    assert api.delete("/topic-permissions/shop/ann").status_code == 404
    assert api.delete("/permissions/shop/ann").status_code == 204
    assert api.delete("/permissions/shop/ann").status_code == 404
    assert api.get("/users/ann/permissions").json() == []
    assert api.put("/users/bob", json={"password_hash": "", "tags": []}).status_code == 201
    assert api.post("/users/bulk-delete", json={"users": ["ann", "nobody"]}).status_code == 204
    assert api.delete("/users/bob").status_code == 204
    assert api.delete("/users/bob").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/users/ann", {"password": "one"}, "tags_not_present"),
        ("/users/ann", {"password": "one", "tags": "own"}, "tags are"),
        ("/users/ann", {"password": "one", "tags": 5}, "tags: a list"),
        ("/users/ann", {"password": "", "tags": ""}, "a password has"),
        ("/users/ann", {"password_hash": "abc", "tags": ""}, "no argon2id hash"),
        ("/users/ann", {"password_hash": "a" * 48, "hashing_algorithm": "md5", "tags": ""}, "hash"),
        ("/permissions/nowhere/boss", RIGHTS, "vhost_or_user_not_found"),
        ("/permissions/%2F/nobody", RIGHTS, "vhost_or_user_not_found"),
        ("/permissions/%2F/boss", {"configure": "", "write": ""}, "{key_missing,read}"),
        ("/permissions/%2F/boss", {**RIGHTS, "read": "("}, "no regular expression"),
        ("/permissions/%2F/boss", {**RIGHTS, "read": 5}, "must be text"),
        ("/topic-permissions/%2F/boss", {"exchange": 5, "write": "", "read": ""}, "must be text"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    api: httpx.Client, path: str, body: dict[str, object], reason: str
) -> None:
    refused = api.put(path, json=body)
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert reason in refused.json()["reason"]
    assert [user["name"] for user in api.get("/users").json()] == ["boss"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_password_that_a_rabbitmq_hashed_lets_in_and_no_other(
    process: BrokerProcess, api: httpx.Client, algorithm: str
) -> None:
    user = {
        "password_hash": of_rabbitmq("tea for two", algorithm),
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
        "tags": "management",
    }
    assert api.put("/users/ann", json=user).status_code == 201
    api.put("/permissions/%2F/ann", json={"configure": ".*", "write": ".*", "read": ".*"})
    amqp.connect(process.amqp_port, user="ann", password="tea for two").close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp.connect(process.amqp_port, user="ann", password="tea for one")
    whoami = f"{process.http_url}/api/whoami"
    assert httpx.get(whoami, auth=("ann", "tea for two"), trust_env=False).json()["name"] == "ann"
    assert user["password_hash"] not in process.log + api.get("/users/ann").text


def test_what_hash_password_returns_is_taken(process: BrokerProcess, api: httpx.Client) -> None:
    kept = api.get("/auth/hash_password/tea").json()["ok"]
    api.put("/users/ann", json={"password_hash": kept, "tags": "management"})
    whoami = f"{process.http_url}/api/whoami"
    assert httpx.get(whoami, auth=("ann", "tea"), trust_env=False).status_code == 200


def test_users_come_with_definitions_and_go_out_with_them(process: BrokerProcess, api: httpx.Client) -> None:
    ann = {
        "name": "ann",
        "password_hash": of_rabbitmq("tea"),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": ["monitoring"],
        "limits": {"max-connections": 3},
    }
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    document = {
        "users": [ann, {**ann, "name": "bob", "tags": ["own"]}, {**ann, "name": "boss"}],
        "vhosts": [{"name": "shop", "limits": {"max-queues": 7}}],
        "permissions": [
            {"user": "ann", "vhost": "shop", **rights},
            {"user": "ann", "vhost": "nowhere", **rights},
            {"user": "nobody", "vhost": "/", **rights},
        ],
        "topic_permissions": [
            {"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "a", "read": "b"}
        ],
    }
    told = api.post("/definitions?verbose=true", json=document).json()
    assert told["made"]["users"] == 2
    assert told["not_taken"] == [
        "users: bob: the tag own means nothing here",
        "permissions: ann in nowhere: there is no such virtual host",
        "permissions: nobody in /: the user was not taken",
        "users: boss: is there in another way",
    ]
    amqp.connect(process.amqp_port, user="ann", password="tea", vhost="shop").close()
    exported = api.get("/definitions").json()
    users = {user["name"]: user for user in exported["users"]}
    assert (users["ann"], users["bob"]["tags"]) == (ann, [])
    boss = users["boss"]
    assert (boss["password_hash"], boss["argon2id_hash"][:10]) == ("", "$argon2id$")
    of_ann = [each for each in exported["permissions"] if each["user"] == "ann"]
    assert of_ann == [{"user": "ann", "vhost": "shop", **rights}]
    assert exported["topic_permissions"] == document["topic_permissions"]

    file = process.directory / "users.yaml"
    before = load_users(file)
    again = api.post("/definitions?verbose=true", json=exported).json()
    assert (again["not_taken"], load_users(file)) == ([], before)
    api.delete("/users/ann")
    api.delete("/users/bob")
    api.post("/definitions", json=exported)
    assert {user.name: user for user in load_users(file).users} == {user.name: user for user in before.users}
    assert of_rabbitmq("tea") not in process.log


def test_an_import_goes_on_past_what_it_cannot_make_and_tells_each(api: httpx.Client) -> None:
    def queue(name: object, **more: object) -> dict[str, object]:
        return {"name": name, "vhost": "/", "durable": True, "arguments": {}, **more}

    api.put("/queues/%2F/there", json={"durable": True, "arguments": {"x-max-length": 5}})
    document = {
        "queues": [
            queue("there"),
            queue("bad", arguments={"x-queue-type": "odd"}),
            queue("away", vhost="nowhere"),
            queue(5),
            queue("good"),
        ],
        "exchanges": [{"name": "odd", "vhost": "/", "type": "x-odd", "durable": True}],
        "bindings": [
            {"source": "odd", "vhost": "/", "destination": "good", "destination_type": "queue"},
            {
                "source": "amq.fanout",
                "vhost": "/",
                "destination": "good",
                "destination_type": "queue",
                "routing_key": "",
            },
        ],
    }
    refused = api.post("/definitions", json=document)
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    told = api.post("/definitions?verbose=true", json=document).json()
    assert told["made"] == {
        "vhosts": 0,
        "policies": 0,
        "parameters": 0,
        "queues": 1,
        "exchanges": 0,
        "bindings": 1,
        "users": 0,
        "bans": 0,
    }
    lines = told["not_taken"]
    assert [line.partition(": ")[2].split(":")[0] for line in lines] == [
        "there /",
        "bad /",
        "away nowhere",
        "5 /",
        "odd /",
        "odd good /",
    ]
    assert json.dumps(refused.json()["reason"]) == json.dumps("not taken: " + "; ".join(lines))
    bound = api.get("/queues/%2F/good/bindings").json()
    assert {each["source"] for each in bound} == {"", "amq.fanout"}
