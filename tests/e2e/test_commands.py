"""The commands that talk to a running broker, each with what it does there, its output and exit code."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerProcess, command_line
from tests.e2e.copied_process import PROJECT

Run = Callable[..., Any]


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Runs a command against the broker; gives what it printed, read as JSON where `--json` is asked for."""

    def run(*arguments: str, code: int = 0, url: str = "") -> Any:
        done = CliRunner().invoke(app, [*arguments, "--url", url or broker.http_url])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if "--json" in arguments else done.output

    return run


def test_queue_commands_make_fill_show_move_and_remove(run: Run, name: str) -> None:
    limits = ("--set", "limits.max_depth=100", "--set", "visibility_timeout=7s")
    assert run("queue", "declare", name, *limits) == f"queue {name} made\n"
    assert run("queue", "declare", name, *limits) == f"queue {name} is as it was\n"
    run("queue", "declare", f"{name}-2")
    assert "published" in run("pub", name, "tea", "--header", "a=1", "--content-type", "text/plain")
    run("pub", name, "milk")
    view = run("queue", "show", name, "--json")
    assert (view["ready"], view["policy"]["depth_max"]) == (2, 100)
    shown = dict(
        line.split(maxsplit=1) for line in run("queue", "show", name).splitlines() if " " in line.strip()
    )
    assert (shown["limits.max_depth"], shown["visibility_timeout"]) == ("100", "7s")
    [first, second] = run("queue", "peek", name, "--json")
    assert (first["body"], first["headers"], second["body"]) == ("tea", {"a": "1"}, "milk")
    assert "tea" in run("queue", "peek", name)
    assert run("queue", "move", name, f"{name}-2", "--limit", "1", "--json") == {"count": 1}
    assert run("queue", "rm", name, "--if-empty", code=1).startswith("sluicemq: ")
    assert "1 messages dropped" in run("queue", "purge", name)
    assert run("queue", "rm", name, "--if-empty", "--json") == {"count": 0}
    assert [each["name"] for each in run("queue", "ls", "--name", name, "--json")] == [f"{name}-2"]


def test_a_changed_queue_keeps_what_is_not_named_and_the_difference_is_shown(
    run: Run, channel: amqp.BlockingChannel, name: str
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 60_000}
    channel.queue_declare(name, durable=True, arguments={**arguments, "x-max-length": 5})
    changed = run("queue", "declare", name, "--set", "limits.max_depth=7")
    assert changed == f"queue {name} changed\nlimits.max_depth: 5 -> 7\n"
    shown = run("queue", "show", name, "--json")
    assert shown["arguments"] == {**arguments, "x-max-length": 7}
    run("queue", "rm", name)


def test_of_several_brokers_the_first_that_is_there_is_asked(
    run: Run, broker: BrokerProcess, name: str
) -> None:
    urls = f"http://127.0.0.1:9,{broker.http_url}/, http://127.0.0.1:10"
    run("queue", "declare", name, url=urls)
    run("pub", name, "tea", url=urls)
    assert run("queue", "ls", "--name", name, "--json", url=urls)[0]["ready"] == 1
    assert "http://127.0.0.1:10: " in run("queue", "ls", url="http://127.0.0.1:9,http://127.0.0.1:10", code=3)
    run("queue", "ls", url=f"{broker.http_url},127.0.0.1:9", code=2)


def test_examples_connect_to_the_first_broker_that_is_there(
    run: Run, broker: BrokerProcess, name: str
) -> None:
    run("queue", "declare", name)

    def example(module: str, port: int, *arguments: str) -> subprocess.Popen[str]:
        places = ("--address", "127.0.0.1:9", "--address", f"127.0.0.1:{port}")
        command = [sys.executable, "-m", f"examples.{module}", *places, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT)

    device = example("mqtt_device", broker.mqtt_port, "--topic", f"$queue/{name}", "--count", "1")
    assert device.wait(20) == 0
    worker = example("amqp_worker", broker.amqp_port, "--queue", name)
    try:
        assert worker.stdout is not None
        assert "waiting" in worker.stdout.readline()
        assert '"number": 1' in worker.stdout.readline()
    finally:
        worker.kill()
        worker.wait()


def test_payload_of_a_file_is_published_as_it_is(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    run("queue", "declare", name)
    run("pub", name, "--file", str(file))
    assert run("queue", "peek", name, "--json")[0]["body"] == "AP8="
    run("pub", name, code=2)
    run("pub", name, "both", "--file", str(file), code=2)


def test_failed_messages_are_tried_again(run: Run, channel: amqp.BlockingChannel, name: str) -> None:
    run("queue", "declare", name)
    run("pub", name, "bad")
    method, _, _ = channel.basic_get(name)
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.connection.process_data_events(0)
    assert len(run("queue", "peek", name, "--state", "failed", "--json")) == 1
    assert run("queue", "redrive", name, "--json") == {"count": 1}


def test_group_commands_create_list_reset_and_remove(run: Run, name: str) -> None:
    run("queue", "declare", name)
    run("group", "create", name, "audit")
    run("pub", name, "x")
    assert run("group", "ls", name, "--json")[0]["lag"] == 1
    assert "audit" in run("group", "ls", name)
    run("group", "reset", name, "audit", "--to", "latest")
    assert run("group", "ls", name, "--json")[0]["lag"] == 0
    assert run("group", "rm", name, "audit") == f"group audit of {name} deleted\n"
    assert run("group", "ls", name, "--json") == []


def test_default_group_is_named_as_it_is_shown(run: Run, name: str) -> None:
    run("queue", "declare", name)
    run("pub", name, "x")
    run("group", "create", name, "~")
    assert run("group", "ls", name).splitlines()[1].split()[0] == "~"
    assert len(run("queue", "peek", name, "--group", "~", "--json")) == 1
    assert run("queue", "redrive", name, "--group", "~", "--json") == {"count": 0}


@pytest.mark.parametrize(("port", "spoken"), [("amqp", " but AMQP"), ("mqtt", "")])
def test_port_of_another_protocol_is_told(run: Run, broker: BrokerProcess, port: str, spoken: str) -> None:
    told = run("queue", "ls", code=3, url=f"http://127.0.0.1:{broker.ports[port]}")
    assert f"does not speak HTTP{spoken}: --url names the HTTP listener" in told


def test_doctor_looks_at_a_broker_that_runs(run: Run, name: str) -> None:
    run("queue", "declare", name)
    run("pub", name, "x")
    run("queue", "pause", name, "--deliver")
    done = run("doctor", "--json", code=1)
    found = {(each["what"], each["found"]): each for each in done}
    assert found["confirms", "a message is made durable"]["ok"]
    assert found[f"queue {name}", "is paused"]["do"] == f"sluicemq queue resume {name}"
    assert not found[f"queue {name}", "1 messages wait and there is no consumer"]["ok"]
    assert {each["what"] for each in done if each["ok"]} >= {"broker", "login", "clock", "since the start"}


def test_exchange_and_binding_commands_route_messages(
    run: Run, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    run("exchange", "declare", f"x-{name}", "--type", "topic")
    run("binding", "add", f"x-{name}", queue, "--key", "a.*")
    channel.basic_publish(f"x-{name}", "a.b", b"x")
    assert run("queue", "show", queue, "--json")["ready"] == 1
    assert queue in run("binding", "ls", "--source", f"x-{name}")
    run("binding", "rm", f"x-{name}", queue, "--key", "a.*")
    assert run("binding", "ls", "--source", f"x-{name}", "--json") == []
    run("exchange", "rm", f"x-{name}")
    assert f"x-{name}" not in run("exchange", "ls")


def test_connection_is_listed_and_closed(run: Run, broker: BrokerProcess, queue: str) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port))
    connection.channel().basic_consume(queue, lambda *_: None)
    assert queue in run("connection", "ls")
    [mine] = [
        each["id"] for each in run("connection", "ls", "--json") if queue in json.dumps(each["description"])
    ]
    run("connection", "close", str(mine), "--reason", "enough")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        connection.process_data_events(time_limit=10)
    run("connection", "close", "999999", code=1)
    assert run("session", "ls", "--json") == []


def test_definitions_are_exported_and_imported(
    run: Run, own_broker: Callable[..., BrokerProcess], tmp_path: Path, queue: str
) -> None:
    file = tmp_path / "definitions.json"
    run("export", str(file))
    other = own_broker()
    run("import", str(file), url=other.http_url)
    assert queue in [each["name"] for each in run("queue", "ls", "--json", url=other.http_url)]


def test_top_shows_the_longest_queues(run: Run, name: str) -> None:
    run("queue", "declare", name)
    for _ in range(3):
        run("pub", name, "x")
    assert name in run("top", "--count", "1")


def test_topics_are_followed(broker: BrokerProcess, channel: amqp.BlockingChannel, name: str) -> None:
    command = command_line("sub", f"{name}/+", "--count", "2", "--json", "--url", broker.http_url)
    with subprocess.Popen(
        command, cwd=WORKING_DIRECTORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stderr is not None
        assert "following" in follower.stderr.readline()
        for number in range(40):  # the first ones may come before it is bound
            channel.basic_publish("amq.topic", f"{name}.{number}", b"%d" % number)
            channel.connection.process_data_events(0.1)
            if follower.poll() is not None:
                break
        out, _ = follower.communicate(timeout=20)
    messages = [json.loads(line) for line in out.splitlines()]
    assert [message["topic"] for message in messages] == [f"{name}/{message['body']}" for message in messages]
    assert (follower.returncode, len(messages)) == (0, 2)


def test_settings_in_force_are_shown(run: Run) -> None:
    assert json.loads(run("config", "show"))["queue_manager"]["auto_create"] is True


def test_who_is_refused_and_where_no_broker_is_exit_codes_say(run: Run, name: str) -> None:
    assert "no queue" in run("queue", "show", name, code=1)
    assert "is the broker running?" in run("queue", "ls", url="http://127.0.0.1:1", code=3)
    run("queue", "ls", url="nonsense", code=2)


def test_doctor_says_what_is_wrong_and_what_to_do(tmp_path: Path, broker: BrokerProcess) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(f"storage: {{url: {tmp_path}}}\nlisteners: {{mqtt: {{port: {broker.mqtt_port}}}}}\n")
    done = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    findings = {each["what"]: each for each in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert findings["port mqtt"]["ok"] is False
    assert "listeners.mqtt.port" in findings["port mqtt"]["do"]
    assert findings["configuration"]["ok"] is True
    config.write_text("log: {level: loud}\n")
    done = CliRunner().invoke(app, ["doctor", "--config", str(config)])
    assert done.exit_code == 1
    assert "log.level" in done.stdout


def findings_of(config: Path, text: str) -> dict[str, dict[str, Any]]:
    """What `doctor` says of a configuration, by what it looked at."""
    config.write_text(text)
    done = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    findings = {each["what"]: each for each in json.loads(done.stdout)}
    assert done.exit_code == (0 if all(each["ok"] for each in findings.values()) else 1)
    assert all(each["ok"] == (not each["do"]) for each in findings.values())
    return findings


def test_doctor_knows_the_ports_of_the_broker_that_has_the_storage(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    found = findings_of(
        tmp_path / "broker.yaml",
        f"storage: {{url: {broker.storage}}}\nlisteners: {{mqtt: {{port: {broker.mqtt_port}}}}}\n",
    )
    assert (found["port mqtt"]["ok"], str(broker.pid) in found["port mqtt"]["found"]) == (True, True)
    assert "in use by" in found["storage"]["found"]
    assert found["storage time"]["ok"]
    assert found["disk sync"]["found"].endswith("ms)")
    assert found["file system"]["found"] != ""


def test_doctor_looks_at_users_and_certificates(tmp_path: Path) -> None:
    config = tmp_path / "broker.yaml"
    found = findings_of(config, "storage: {url: 'memory:'}\nlisteners: {amqp: {bind: 0.0.0.0, port: 0}}\n")
    assert "amqp lets in nobody" in found["users"]["do"]
    users = tmp_path / "users.yaml"
    CliRunner().invoke(app, ["user", "add", "ann", "--file", str(users), "--password-stdin"], input="pw\n")
    CliRunner().invoke(app, ["tls", "init", "--dir", str(tmp_path / "tls")])
    tls = f"{{cert: {tmp_path}/tls/server.crt, key: {tmp_path}/tls/server.key}}"
    text = (
        f"storage: {{url: 'memory:'}}\naccess: {{users_file: {users}}}\n"
        f"listeners: {{amqps: {{port: 0, tls: {tls}}}}}\n"
    )
    found = findings_of(config, text)
    assert (found["users"]["ok"], found["users"]["found"].endswith("1 users")) == (True, True)
    assert found["certificate amqps"]["found"].startswith("until ")
    (tmp_path / "tls" / "server.key").chmod(0o644)
    assert "chmod 600" in findings_of(config, text)["key amqps"]["do"]
    users.chmod(0o644)
    assert "chmod 600" in findings_of(config, text)["users"]["do"]
    Path(tmp_path, "tls", "server.crt").write_text("none")
    assert not findings_of(config, text)["certificates"]["ok"]


def test_doctor_looks_at_the_keys_of_the_storage(tmp_path: Path) -> None:
    key = tmp_path / "storage.key"
    key.write_text("ab" * 32)
    keys = f"[{{id: a, file: {key}}}, {{id: b, file: /not/there}}, {{id: c, command: [wrap]}}]"
    text = f"storage: {{url: 'memory:', encryption: {{keys: {keys}}}}}\nlisteners: {{amqp: {{port: 0}}}}\n"
    key.chmod(0o644)
    found = findings_of(tmp_path / "broker.yaml", text)
    assert "chmod 600" in found["storage key a"]["do"]
    assert "No such file" in found["storage key b"]["found"]
    assert found["storage key c"]["found"] == "wrapped by wrap"
    key.chmod(0o600)
    assert findings_of(tmp_path / "broker.yaml", text)["storage key a"]["ok"]


def test_doctor_says_that_an_object_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr("config.limits.STORE_OPEN_TIMEOUT_S", 0.5)
    found = findings_of(tmp_path / "broker.yaml", "storage: {url: 's3://none/here'}\n")
    assert "network" in found["storage"]["do"]


def test_top_shows_what_each_queue_does(run: Run, name: str) -> None:
    name = f"0-{name}"  # among the first 25, whatever queues other tests left
    run("queue", "declare", name)
    run("queue", "pause", name, "--deliver")
    for order in ("waiting", "busy", "failed", "name"):
        told = run("top", "--count", "2", "--interval", "0.2", "--sort", order)
        assert "processor" in told
        assert "in/s" in told
    assert name in told
    assert "paused" in told
