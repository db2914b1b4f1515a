"""Definitions of a RabbitMQ: what of them is taken, and what is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(90)

HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
ALGORITHM = "rabbit_password_hashing_sha256"


def policy(
    name: str, pattern: str, priority: int = 0, apply_to: str = "queues", **definition: Any
) -> dict[str, Any]:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    place = {"vhost": "/", "apply-to": apply_to, "priority": priority}
    return {"name": name, "pattern": pattern, "definition": keys, **place}


def queue(name: str, vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": named}


DOCUMENT: dict[str, Any] = {
    "rabbit_version": "4.3.0",
    "users": [
        {"name": "ann", "password_hash": HASH, "hashing_algorithm": ALGORITHM, "tags": "administrator"},
        {"name": "bob", "password_hash": HASH, "hashing_algorithm": ALGORITHM, "tags": ["monitoring", "own"]},
    ],
    "vhosts": [{"name": "/"}, {"name": "shop"}],
    "permissions": [
        {"user": "bob", "vhost": "/", "configure": "", "write": "^work", "read": ".*"},
        {"user": "bob", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"},
    ],
    "topic_permissions": [{"user": "bob", "vhost": "/", "exchange": "amq.topic", "write": "a", "read": "b"}],
    "parameters": [
        {"component": "vhost-limits", "name": "limits", "vhost": "shop", "value": {"max-queues": 7}},
        {"component": "shovel", "name": "mine", "vhost": "/", "value": {"src-uri": "amqp://me:secret@host"}},
    ],
    "policies": [
        policy(
            "retry", "^work", 1, message_ttl=60_000, dead_letter_exchange="", dead_letter_routing_key="dead"
        ),
        policy("big", "^work", 0, max_length=5),
        policy("mirror", "^other", ha_mode="all", max_length=9),
        policy("broken", "("),
        policy("wrong", "^stream", apply_to="streams", delivery_limit=3),
        policy("beside", ".*", apply_to="exchanges", alternate_exchange="x"),
    ],
    "queues": [
        queue("work-a"),
        queue("work-b", message_ttl=1_000),
        queue("other"),
        queue("stream", queue_type="stream"),
        queue("theirs", "shop"),
    ],
    "exchanges": [{"name": "in", "vhost": "shop", "type": "topic", "durable": True}],
    "bindings": [
        {
            "source": "in",
            "vhost": "shop",
            "destination": "theirs",
            "destination_type": "queue",
            "routing_key": "a.#",
        }
    ],
}


def test_definitions_of_rabbitmq_are_taken_as_far_as_they_can_be_and_the_rest_is_named(
    own_broker: Callable[..., BrokerProcess],
    amqp_connect: Callable[..., pika.BlockingConnection],
    tmp_path: Path,
) -> None:
    broker = own_broker()
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DOCUMENT))
    arguments = ["import", str(file), "--url", broker.http_url, "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["made"] == {
        "vhosts": 2,
        "policies": 5,
        "queues": 5,
        "exchanges": 1,
        "bindings": 1,
        "users": 0,
        "parameters": 0,
        "bans": 0,
    }
    left = "\n".join(told["not_taken"])
    for line in (
        "users: bob: the tag own means nothing here",
        "users: ann, bob: there is no users file",
        "parameters: shovel mine /",
        "policies: mirror: ha-mode",
        "policies: broken: definition: an object",
    ):
        assert line in left
    assert len(told["not_taken"]) == 5
    assert "secret" not in left + broker.log

    policies = {}
    for name in ("work-a", "work-b", "other"):
        shown = CliRunner().invoke(app, ["queue", "show", name, "--url", broker.http_url, "--json"])
        policies[name] = json.loads(shown.stdout)["policy"]
    assert [policies[name]["message_ttl_ms"] for name in policies] == [60_000, 1_000, 0]
    assert [policies[name]["dead_letter"] for name in policies] == ["dead", "dead", ""]
    assert [policies[name]["depth_max"] for name in policies] == [0, 0, 9]
    channel = amqp_connect(broker).channel()
    channel.queue_declare("work-a", durable=True)  # as its client always did
    shop = amqp_connect(broker, vhost="shop").channel()
    shop.basic_publish("in", "a.b", b"x")
    assert shop.basic_get("theirs")[2] == b"x"
    exported = json.loads(CliRunner().invoke(app, ["export", "--url", broker.http_url]).stdout)
    assert {(each["vhost"], each["name"]) for each in exported["queues"]} == {
        (each["vhost"], each["name"]) for each in DOCUMENT["queues"]
    }
    again = CliRunner().invoke(app, arguments)
    assert json.loads(again.stdout) == told


def test_import_without_a_users_file_names_the_users_it_leaves(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"users": DOCUMENT["users"], "queues": [queue("a", "nowhere")]}))
    done = CliRunner().invoke(app, ["import", str(file), "--url", broker.http_url])
    assert "not taken: queues: a nowhere: there is no vhost 'nowhere'" in done.output
    file.write_text(json.dumps({"users": DOCUMENT["users"]}))
    done = CliRunner().invoke(app, ["import", str(file), "--url", broker.http_url])
    assert done.exit_code == 0
    assert "not taken: users: ann, bob: there is no users file" in done.output
    assert HASH not in done.output + broker.log
