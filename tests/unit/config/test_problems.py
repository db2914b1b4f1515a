"""Every problem of a configuration is reported, with line and key; nothing is ignored."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import limits
from config.queue_settings import QueueLimitsSettings, QueueSettings, RetrySettings
from config.settings import ListenersSettings, QueueManagerSettings
from config.settings_loader import ConfigError, check_file, load_settings

Problems = Callable[..., list[str]]


def test_every_problem_is_reported_in_file_order(problems: Problems) -> None:
    text = """\
    storage: {url: ./data, sync: maybe}
    listeners:
      mqtt: {port: 70000}
      mqtts: {port: 1}
    queues:
      - name: a
        limit: {max_depth: 3}
        type: quorum
      - nam: x
      - name: a
        topics:
          - ok
          - a/#/b
      - 5
    auth: {}
    """
    assert problems(text, {"SLUICEMQ_STORAG__URL": "x", "SLUICEMQ_LOG__LEVEL": "loud"}) == [
        "broker.yaml:1: storage.sync: must be always or os",
        "broker.yaml:3: listeners.mqtt.port: must be at most 65535",
        "broker.yaml:4: listeners.mqtts.tls: required key is missing",
        'broker.yaml:7: queues[0].limit: unknown key (did you mean "limits"?)',
        "broker.yaml:8: queues[0].type: must be classic, ephemeral or stream",
        'broker.yaml:9: queues[1].nam: unknown key (did you mean "name"?)',
        "broker.yaml:9: queues[1].name: required key is missing",
        "broker.yaml:10: queues[2].name: 'a' is already the name of the queue at broker.yaml:6",
        "broker.yaml:13: queues[2].topics[1]: in 'a/#/b', # must be the whole last level",
        "broker.yaml:14: queues[3]: must be a mapping of keys to values",
        "broker.yaml:15: auth: unknown key",
        "SLUICEMQ_LOG__LEVEL: log.level: must be debug, info, warning or error",
        'SLUICEMQ_STORAG__URL: unknown variable (did you mean "SLUICEMQ_STORAGE__URL"?)',
    ]


def _refused() -> list[tuple[str, str]]:
    entries = [("queue_manager", key) for key in QueueManagerSettings.unsupported_keys]
    entries += [("queues[0]", key) for key in QueueSettings.unsupported_keys]
    entries += [("queues[0].retry", key) for key in RetrySettings.unsupported_keys]
    return entries + [("queues[0].limits", key) for key in QueueLimitsSettings.unsupported_keys]


def test_unsupported_keys_are_exactly_the_known_ones() -> None:
    assert {key for _, key in _refused()} == {"overflow", "replication"}
    assert not ListenersSettings.unsupported_keys


@pytest.mark.parametrize(("section", "key"), _refused())
def test_unsupported_key_is_refused_with_reason(problems: Problems, section: str, key: str) -> None:
    text = {
        "queue_manager": f"queue_manager:\n  {key}: 1",
        "queues[0]": f"queues:\n  - name: q\n    {key}: 1",
        "queues[0].retry": f"queues:\n  - name: q\n    retry:\n      {key}: 1",
        "queues[0].limits": f"queues:\n  - name: q\n    limits:\n      {key}: 1",
    }[section]
    [problem] = problems(text)
    assert problem.startswith(f"broker.yaml:{len(text.splitlines())}: {section}.{key}: ")
    assert "unknown key" not in problem
    assert "not supported by this version" in problem or key == "overflow"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("queues: [{name: q, type: quorum}]", "queues[0].type: must be classic, ephemeral or stream"),
        (
            "queues: [{name: q, overflow: drop-tail}]",
            "overflow: must be reject-publish, reject-publish-dlx or drop-head",
        ),
        ("queues: [{name: q, visibility_timeout: 30}]", "30 has no unit: write 30s"),
        ("queues: [{name: q, visibility_timeout: 0}]", "must be longer than 0"),
        ("queues: [{name: q, visibility_timeout: 1.5}]", "must be a duration, such as 30s"),
        ("queues: [{name: q, visibility_timeout: [1]}]", "must be a duration, such as 30s"),
        (
            "queues: [{name: q, visibility_timeout_ms: 30}]",
            'unknown key (did you mean "visibility_timeout"?)',
        ),
        ("queues: [{name: q, done_retention: never}]", "'never' is not a duration"),
        ("queues: [{name: q, done_retention: }]", "has no value; leave the key out for its default"),
        ("queues: [{name: q, limits: {max_message_size: big}}]", "'big' is not a size"),
        ("queues: [{name: q, limits: {max_message_size: 129MiB}}]", "must be between 1B and 128MiB"),
        ("queues: [{name: q, limits: {max_message_size: yes}}]", "must be a size, such as 10MiB"),
        ("queues: [{name: q, limits: {max_depth: -1}}]", "max_depth: must be at least 0"),
        ("queues: [{name: q, retry: {max_retries: 65535}}]", "must be less than 65535"),
        ("queues: [{name: q, bucket_size: 5}]", "bucket_size: must be at most 4"),
        ("queues: [{name: q, bucket_size: true}]", "must be a whole number"),
        ("queues: [{name: q, bucket_size: 1.5}]", "must be a whole number"),
        ("queues: [{name: q, topics: []}]", "must name a topic; leave it out to bind $queue/<name>/#"),
        ("queues: [{name: q, topics: a}]", "queues[0].topics: must be a list"),
        ("queues: [{name: q, topics: [$queue/a, $queue/a]}]", "names '$queue/a' twice"),
        ("queues: [{name: q, topics: [a/#]}]", "outside $queue/"),
        ("queues: [{name: $queue/b}]", "a queue name must not be an address"),
        ("queues: [{name: 12}]", "queues[0].name: must be text; put it in quotes"),
        ("queues: [{name: }]", "queues[0].name: has no value"),
        ("queues: [null]", "queues[0]: must be a mapping of keys to values"),
        ("queues: {name: q}", "queues: must be a list"),
        ("queue_manager: {auto_create: perhaps}", "must be true or false"),
        ("queue_manager: 5", "queue_manager: must be a mapping of keys to values"),
        ("storage: {url: }", "storage.url: has no value"),
        ("storage: {url: 'ftp://x'}", "ftp:// is not a known storage"),
        ("storage: {journal: local}", "journal: local is for object stores"),
        ("listeners: {mqtt: 1883}", "listeners.mqtt: must be a mapping of keys to values"),
        ("listeners: {mqtt: {bind: a b}}", "neither an IP address nor a host name"),
        ("listeners: {mqtt: {port: 7}, amqp: {port: 7}}", "listeners: mqtt and amqp both take port 7"),
        ("listeners: {}", "listeners: no listener is set, so nothing could connect"),
        ("listeners:", "listeners: no listener is set, so nothing could connect"),
        ("listeners: {mqtt: null, amqp: null}", "listeners: no listener is set"),
        ("log: {level: INFO}", "log.level: must be debug, info, warning or error"),
        ("[1, 2]", "broker.yaml:1: must be a mapping of keys to values"),
        ("just words", "broker.yaml:1: must be a mapping of keys to values"),
        ("? [a]\n: 1", "a key must be a word"),
        ("log: !colour {level: info}", "log: YAML tag !... is not supported; quotes make it text"),
        ("log: {level: !shout info}", "log.level: YAML tag !... is not supported"),
        ("storage: {url: !!binary aGk=}", "YAML tag tag:yaml.org,2002:binary is not supported"),
        ("log: {<<: {level: info}}", "log: merge keys (<<) are not supported"),
        ("queues: [{name: q, bucket_size: !!int x}]", "must be a whole number"),
        ('"a\\nb": 1', "broker.yaml:1: 'a\\nb': unknown key"),
        (f"{'k' * 200}: 1", f"{'k' * 57}...: unknown key"),
    ],
)
def test_wrong_value_is_reported_with_key_and_reason(problems: Problems, text: str, problem: str) -> None:
    [found] = problems(text)
    assert problem in found


def test_queues_of_virtual_hosts_are_checked_as_the_others(problems: Problems) -> None:
    text = """vhosts:
- name: acme
  queues:
  - {name: a}
  - {name: a, limits: {max_depht: 5}}
"""
    found = "\n".join(problems(text))
    assert (
        "broker.yaml:5: vhosts[0].queues[1].name: 'a' is already the name of the queue at broker.yaml:4"
        in found
    )
    assert "vhosts[0].queues[1].limits.max_depht" in found


def test_duplicate_key_is_reported_with_both_lines(problems: Problems) -> None:
    text = """\
    log: {level: info}
    queues:
      - name: a
        name: b
    log: {level: debug}
    """
    assert problems(text) == [
        "broker.yaml:4: queues[0].name: duplicate key, first on line 3",
        "broker.yaml:5: log: duplicate key, first on line 1",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("log: {level: info", 1),
        ("log:\n  level: [\n", 3),
        ("log: info\n level: x\n", 2),
        ("log:\n\tlevel: info\n", 2),
        ("a: *nothing\n", 1),
        ("---\nlog: {}\n---\nlog: {}\n", 3),
        ("log:\n  level: 'x\x07'\n", 2),
    ],
)
def test_yaml_syntax_error_is_reported_with_its_line(problems: Problems, text: str, line: int) -> None:
    [problem] = problems(text)
    assert problem.startswith(f"broker.yaml:{line}: not YAML: ")


def test_recursive_and_exploding_yaml_is_refused(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nested more than" in problems("log: &a {level: *a}")[0]
    assert "nested" in problems("[" * 5_000)[0]
    monkeypatch.setattr(limits, "CONFIG_VALUES_MAX", 1_000)
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for inner, outer in zip("abcd", "bcde", strict=True):
        bomb += f"{outer}: &{outer} [{', '.join([f'*{inner}'] * 10)}]\n"
    assert "more than 1000 values" in problems(bomb)[0]
    monkeypatch.setattr(limits, "CONFIG_ALIASED_VALUES_MAX", 100)
    assert problems(bomb) == ["broker.yaml:1: more than 100 values by aliases"]


def test_values_by_aliases_are_counted_and_others_are_not(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONFIG_ALIASED_VALUES_MAX", 6)
    queues = "queues:\n" + "".join(f"  - {{name: q{number}, limits: LIMITS}}\n" for number in range(3))
    first = queues.replace("LIMITS", "&few {max_depth: 5, max_bytes: 1MiB}", 1)
    assert problems(first.replace("LIMITS", "*few")) == []  # a mapping with two values, twice
    monkeypatch.setattr(limits, "CONFIG_ALIASED_VALUES_MAX", 5)
    assert "more than 5 values by aliases" in problems(first.replace("LIMITS", "*few"))[0]


def test_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing.yaml"
    assert check_file(missing, {}) == [f"{missing}: cannot be read: No such file or directory"]
    assert "cannot be read" in check_file(tmp_path, {})[0]
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"log:\n  level: \xe9\n")
    assert check_file(latin, {}) == [f"{latin}:2: not UTF-8"]
    monkeypatch.setattr(limits, "CONFIG_FILE_BYTES_MAX", 8)
    assert check_file(latin, {}) == [f"{latin}: larger than 8 bytes"]


def test_more_queues_than_the_limit_are_refused(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    assert problems("queues: [{name: a}, {name: b}]") == ["broker.yaml:1: queues: at most 1 queues, not 2"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SLUICEMQ_ULR", "x", "SLUICEMQ_ULR: unknown variable"),
        ("SLUICEMQ_", "x", "SLUICEMQ_: unknown variable"),
        ("SLUICEMQ_storage__url", "x", "SLUICEMQ_storage__url: unknown variable"),
        ("SLUICEMQ_STORAGE__URL__X", "x", "SLUICEMQ_STORAGE__URL__X: unknown variable"),
        ("SLUICEMQ_STORAGE_URL", "x", '(did you mean "SLUICEMQ_STORAGE__URL"?)'),
        ("SLUICEMQ_QUEUES__0__NAME", "x", "SLUICEMQ_QUEUES__0__NAME: unknown variable"),
        ("SLUICEMQ_QUEUE_MANAGER__VISIBILITY_TIMEOUT_MS", "1", "unknown variable"),
        ("SLUICEMQ_QUEUE_MANAGER__AUTO_COMMIT_INTERVAL", "1", "1 has no unit"),
        (
            "SLUICEMQ_LISTENERS__MQTT__PORT",
            "",
            "SLUICEMQ_LISTENERS__MQTT__PORT: listeners.mqtt.port: must be a",
        ),
        ("SLUICEMQ_STORAGE__URL", "", "SLUICEMQ_STORAGE__URL: storage.url: must be a path"),
        ("SLUICEMQ_QUEUES", "[{name: a}, {nam: b, name: c}]", "SLUICEMQ_QUEUES: queues[1].nam: unknown key"),
        ("SLUICEMQ_QUEUES", "[{name: a, name: b}]", "SLUICEMQ_QUEUES: queues[0].name: duplicate key"),
        ("SLUICEMQ_QUEUES", "[", "SLUICEMQ_QUEUES: queues: not YAML: "),
        ("SLUICEMQ_STORAGE", "words", "SLUICEMQ_STORAGE: storage: must be a mapping of keys to values"),
    ],
)
def test_problem_in_the_environment_names_the_variable(
    problems: Problems, name: str, value: str, problem: str
) -> None:
    [found] = problems("", {name: value})
    assert problem in found


def test_problem_inside_a_variable_does_not_name_a_line_of_the_file(problems: Problems) -> None:
    text = "queues:\n  - name: a\n    topics: [x]\n"
    [found] = problems(text, {"SLUICEMQ_QUEUES": "[{name: a, topics: ['#/x']}]"})
    assert found.startswith("SLUICEMQ_QUEUES: queues[0].topics[0]: ")


def test_problem_on_the_command_line_names_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(
            None, {}, {"listeners.mqtt.port": 70_000, "storage.urls": "x", "storage.url": "ftp://x"}
        )
    assert sorted(caught.value.problems) == [
        "command line: listeners.mqtt.port: must be at most 65535",
        "command line: storage.url: ftp:// is not a known storage: use a path, memory:, s3://, gs://, az://",
        'command line: storage.urls: unknown key (did you mean "url"?)',
    ]


@pytest.mark.parametrize("text", ["[1]", "listeners: 5", "listeners: {mqtt: 5}"])
def test_file_of_the_wrong_shape_is_refused_despite_overrides(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_settings(path, {"SLUICEMQ_LISTENERS__MQTT__PORT": "1"}, {"listeners.mqtt.port": 2})


def test_valid_file_has_no_problems(problems: Problems) -> None:
    assert problems("log: {level: debug}", {"SLUICEMQ_FAST_BATCH": "1"}) == []


_words = st.sampled_from(
    [
        "storage",
        "url",
        "sync",
        "listeners",
        "mqtt",
        "amqp",
        "http",
        "bind",
        "port",
        "queue_manager",
        "auto_create",
        "visibility_timeout",
        "queues",
        "name",
        "topics",
        "type",
        "limits",
        "max_depth",
        "retry",
        "max_retries",
        "log",
        "level",
        "30s",
        "10MiB",
        "infinite",
        "always",
        "q",
        "a/#",
        "7",
    ]
)
_values = st.recursive(
    _words | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=5),
    max_leaves=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(_words, _values, max_size=5) | _values)
def test_arbitrary_values_load_or_are_reported(tmp_path: Path, value: object) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(value), "utf-8")
    for problem in check_file(path, {}):
        assert problem.startswith(f"{path}:")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.binary(max_size=60)
    | st.text("{}[]:,-&*!|>'\"%@`?# \n\tab1<=.", max_size=60).map(lambda text: textwrap.dedent(text).encode())
)
def test_arbitrary_bytes_load_or_are_reported(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(data)
    for problem in check_file(path, {"SLUICEMQ_QUEUES": data.decode("latin-1")}):
        assert problem.startswith((f"{path}:", "SLUICEMQ_QUEUES: "))
