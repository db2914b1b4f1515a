"""The configuration file from the command line: problems with file and line, check, overrides."""

import json
import os
import subprocess

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, command_line
from tests.waiting import until

pytestmark = pytest.mark.extension


def sluicemq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=WORKING_DIRECTORY,
        env={**os.environ, "COLUMNS": "500", **environment},
    )


def said(ended: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def config_file(tmp_path):
    return tmp_path / "my-broker.yaml"


UNKNOWN_KEYS = """\
storage:
  url: ./data
storrage: {}
queue_manager:
  auto_craete: false
queues:
  - name: a
    visibility: 3s
  - name: b
    limits:
      max_dept: 3
"""
UNKNOWN_AT = {3: "storrage", 5: "auto_craete", 8: "visibility", 11: "max_dept"}

BAD_VALUES = """\
listeners:
  amqp:
    port: seventy
queue_manager:
  visibility_timeout: soon
storage:
  sync: sometimes
queues:
  - name: $queue/b
  - name: twice
  - name: twice
"""
BAD_AT = (3, 5, 7, 9, 11)


@pytest.mark.parametrize("command", ["serve --config", "config check"])
def test_unknown_keys_are_refused_with_file_and_line(config_file, command):
    config_file.write_text(UNKNOWN_KEYS)
    ended = sluicemq(*command.split(), str(config_file))
    assert ended.returncode != 0
    for line, key in UNKNOWN_AT.items():
        (problem,) = [told for told in said(ended).splitlines() if f"my-broker.yaml:{line}:" in told]
        assert key in problem


def test_bad_values_are_refused_with_file_and_line(config_file):
    """All at once."""
    config_file.write_text(BAD_VALUES)
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode != 0
    assert [line for line in BAD_AT if f"my-broker.yaml:{line}:" not in said(ended)] == []


def test_bad_yaml_is_refused_with_file_and_line(config_file):
    config_file.write_text("queues:\n  - name: a\n  b: [\n")
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode != 0
    assert "my-broker.yaml:3" in said(ended) or "my-broker.yaml:4" in said(ended)


def test_check_of_a_valid_file_succeeds(config_file):
    default = sluicemq("config", "default").stdout
    assert "queues: []" in default
    config_file.write_text(
        default.replace("queues: []", "queues:\n  - name: orders\n    visibility_timeout: 10s")
    )
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode == 0, said(ended)


def test_check_of_a_missing_file_fails_with_its_name(config_file):
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode != 0
    assert "my-broker.yaml" in said(ended)


def test_unknown_environment_variable_is_refused(config_file):
    config_file.write_text("")
    ended = sluicemq("serve", "--config", str(config_file), SLUICEMQ_QUEUE_MANAGER__AUTO_CRATE="1")
    assert ended.returncode != 0
    assert "SLUICEMQ_QUEUE_MANAGER__AUTO_CRATE" in said(ended)


def test_environment_overrides_the_file(own_broker, amqp_connect, name):
    process = own_broker(
        {"queue_manager": {"auto_create": True}},
        environment={"SLUICEMQ_QUEUE_MANAGER__AUTO_CREATE": "false"},
    )
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp.Collector(amqp_connect(process).channel(), name)
    assert closed.value.reply_code == 404


def test_listener_absent_from_the_file_does_not_open(tmp_path):
    """Both flags not given: a listener that is absent does not open."""
    config = tmp_path / "c.yaml"
    config.write_text("listeners:\n  amqp: {port: 0}\nstorage: {url: 'memory:'}\n")
    ready = tmp_path / "ready.json"
    command = command_line("serve", "--config", str(config), "--ready-file", str(ready))
    process = subprocess.Popen(
        command, cwd=WORKING_DIRECTORY, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: ready.exists() and ready.read_text())
        assert list(json.loads(ready.read_text())["ports"]) == ["amqp"]
    finally:
        process.kill()
        process.wait()


def test_version_flag_prints_the_version():
    ended = sluicemq("--version")
    assert ended.returncode == 0
    assert any(character.isdigit() for character in ended.stdout)
