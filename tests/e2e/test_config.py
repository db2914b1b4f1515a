"""The configuration file as a user meets it: refused with file and line, checked, overridden."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import PROJECT

pytestmark = pytest.mark.extension


def sluicemq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=PROJECT,
        env={**os.environ, "COLUMNS": "500", **environment},
    )


def said(ended: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def config_file(tmp_path):
    return tmp_path / "my-broker.yaml"


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("storage:\n  url: memory:\nstorrage: {}\n", 3, "storrage"),
        ("queue_manager:\n  auto_create: true\n  auto_craete: false\n", 3, "auto_craete"),
        ("queues:\n  - name: a\n    visibility: 3s\n", 3, "visibility"),
        ("queues:\n  - name: a\n    limits:\n      max_dept: 3\n", 4, "max_dept"),
    ],
)
def test_unknown_key_is_refused_with_file_and_line(config_file, text, line, key):
    config_file.write_text(text)
    for command in (("serve", "--config"), ("config", "check")):
        ended = sluicemq(*command, str(config_file))
        assert ended.returncode != 0
        assert f"my-broker.yaml:{line}" in said(ended)
        assert key in said(ended)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("listeners:\n  amqp:\n    port: seventy\n", 3),
        ("queue_manager:\n  visibility_timeout: soon\n", 2),
        ("queues:\n  - name: a/b\n", 2),
        ("queues:\n  - name: a\n  - name: a\n", 3),
        ("storage:\n  sync: sometimes\n", 2),
        ("queues:\n  - {name: a\n", 2),
    ],
)
def test_bad_value_is_refused_with_file_and_line(config_file, text, line):
    config_file.write_text(text)
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode != 0
    assert f"my-broker.yaml:{line}" in said(ended) or f"my-broker.yaml:{line + 1}" in said(ended)


def test_all_problems_are_told_at_once(config_file):
    config_file.write_text("unknown: 1\nstorage:\n  sync: maybe\nqueues:\n  - naem: x\n")
    told = said(sluicemq("config", "check", str(config_file)))
    assert all(f"my-broker.yaml:{line}" in told for line in (1, 3, 5))


def test_check_of_a_good_file(config_file):
    config_file.write_text("queues:\n  - name: orders\n    visibility_timeout: 10s\n")
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode == 0, said(ended)


def test_check_of_the_default_file():
    ended = sluicemq("config", "check", str(PROJECT / "config" / "default.yaml"))
    assert ended.returncode == 0, said(ended)


def test_check_of_an_empty_and_of_a_missing_file(config_file):
    config_file.write_text("")
    assert sluicemq("config", "check", str(config_file)).returncode == 0
    config_file.unlink()
    ended = sluicemq("config", "check", str(config_file))
    assert ended.returncode != 0
    assert "my-broker.yaml" in said(ended)


def test_unknown_environment_variable_is_refused(config_file):
    config_file.write_text("")
    ended = sluicemq("serve", "--config", str(config_file), SLUICEMQ_QUEUE_MANAGER__AUTO_CRATE="1")
    assert ended.returncode != 0
    assert "SLUICEMQ_QUEUE_MANAGER__AUTO_CRATE" in said(ended)


def test_environment_wins_over_the_file(own_broker, amqp_connect, name):
    process = own_broker(
        {"queue_manager": {"auto_create": True}},
        environment={"SLUICEMQ_QUEUE_MANAGER__AUTO_CREATE": "false"},
    )
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp.Collector(amqp_connect(process).channel(), name)
    assert closed.value.reply_code == 404


def test_only_the_listeners_of_the_file_open(tmp_path):
    """Both flags not given: a listener that is absent does not open."""
    config = tmp_path / "c.yaml"
    config.write_text("listeners:\n  amqp: {port: 0}\nstorage: {url: 'memory:'}\n")
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "broker", "serve", "--config", str(config), "--ready-file", str(ready)]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(200):
            if ready.exists() and ready.read_text():
                break
            time.sleep(0.05)
        assert list(json.loads(ready.read_text())["ports"]) == ["amqp"]
    finally:
        process.kill()
        process.wait()


def test_version():
    ended = sluicemq("--version")
    assert ended.returncode == 0
    assert any(character.isdigit() for character in ended.stdout)
