"""Files that load, and the order of defaults, file, environment and command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.settings import Settings
from config.settings_loader import ConfigError, default_file_text, load_settings

ROOT = Path(__file__).parents[3]
Write = Callable[[str], Path]


def test_without_a_file_the_defaults_are_loaded() -> None:
    assert load_settings() == load_settings(None, {}, {}) == Settings()


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "{}", "storage:\nqueues:\nlog:\nqueue_manager:\n"]
)
def test_empty_file_loads_the_defaults(write: Write, text: str) -> None:
    assert load_settings(write(text)) == Settings()


def test_default_file_loads_the_defaults(write: Write) -> None:
    assert load_settings(write(default_file_text())) == Settings()


def test_commented_queue_of_the_default_file_has_the_defaults(write: Write) -> None:
    text = default_file_text()
    _, _, example = text.partition("\n# queues:\n")
    lines = [line.removeprefix("# ") for line in example.splitlines() if line.startswith("#   ")]
    queue, stream = load_settings(write("\n".join(["queues:", *lines]))).queues
    expected = load_settings(write("queues: [{name: orders, visibility_timeout: 30s}]")).queues[0]
    assert queue == expected
    assert (stream.type, stream.retention.max_age_ms) == ("stream", 7 * 86_400_000)


def test_production_file_loads_and_binds_to_loopback() -> None:
    path = ROOT / "deploy" / "production.yaml"
    settings = load_settings(path)
    assert not settings.queue_manager.auto_create
    assert settings.storage.sync == "always"
    assert all(listener.bind == "127.0.0.1" for listener in settings.listeners.opened().values())


def test_every_key_of_a_file_reaches_its_setting(write: Write) -> None:
    settings = load_settings(
        write(
            """
            storage: {url: "s3://bucket/prefix", sync: os}
            listeners:
              mqtt: {bind: 0.0.0.0, port: 0}
              amqp: {bind: "::1"}
            queue_manager:
              auto_create: false
              visibility_timeout: 1m
              consumer_timeout: 2h
              ephemeral_expires: 90s
              cache_bytes: 1GB
            queues:
              - name: orders
                topics: [$queue/orders/#, $queue/+/orders]
                type: ephemeral
                visibility_timeout: 500ms
                done_retention: 0
                bucket_size: 4
                retention: {max_age: 7d, max_length_messages: 9}
                retry: {max_retries: 3}
                limits: {max_message_size: 64KiB, max_depth: 5}
                overflow: reject-publish
              - {name: kept, done_retention: infinite, retention: {max_length_bytes: 1KB}}
            log: {level: debug, format: json}
            """
        )
    )
    assert settings.storage.url == "s3://bucket/prefix"
    assert settings.storage.sync == "os"
    assert settings.listeners.mqtt is not None
    assert settings.listeners.mqtt.port == 0
    assert settings.listeners.amqp is not None
    assert (settings.listeners.amqp.bind, settings.listeners.amqp.port) == ("::1", 5672)
    manager = settings.queue_manager
    assert (manager.visibility_timeout_ms, manager.consumer_timeout_ms) == (60_000, 7_200_000)
    assert (manager.ephemeral_expires_ms, manager.cache_bytes) == (90_000, 10**9)
    orders, kept = settings.queues
    assert orders.topics == ("$queue/orders/#", "$queue/+/orders")
    assert (orders.type, orders.visibility_timeout_ms, orders.done_retention_ms) == ("ephemeral", 500, 0)
    assert (orders.bucket_size, orders.retry.max_retries) == (4, 3)
    assert (orders.limits.max_message_size_bytes, orders.limits.max_depth) == (65_536, 5)
    assert (orders.retention.max_age_ms, orders.retention.max_length_messages) == (7 * 86_400_000, 9)
    assert (kept.done_retention_ms, kept.retention.max_length_bytes) == (None, 1_000)
    assert (settings.log.level, settings.log.format) == ("debug", "json")


def test_listener_that_is_absent_or_null_does_not_open(write: Write) -> None:
    assert list(load_settings(write("listeners: {mqtt: {}}")).listeners.opened()) == ["mqtt"]
    assert list(load_settings(write("listeners: {mqtt: , amqp: {}}")).listeners.opened()) == ["amqp"]


def test_file_without_listeners_opens_those_of_the_default(write: Write) -> None:
    assert list(load_settings(write("log: {level: debug}")).listeners.opened()) == ["mqtt", "amqp", "http"]


def test_yaml_alias_is_followed(write: Write) -> None:
    text = "queues: [{name: a, limits: &small {max_depth: 3}}, {name: b, limits: *small}]"
    assert [queue.limits.max_depth for queue in load_settings(write(text)).queues] == [3, 3]


def test_date_as_queue_name_is_text(write: Write) -> None:
    assert load_settings(write("queues: [{name: 2024-01-31}]")).queues[0].name == "2024-01-31"


def test_file_with_byte_order_mark_loads(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbflog: {level: error}\r\n")
    assert load_settings(path).log.level == "error"


def test_environment_overrides_the_file(write: Write) -> None:
    path = write("storage: {url: ./file, sync: os}\nlisteners: {mqtt: {port: 1}, amqp: {port: 2}}")
    settings = load_settings(
        path,
        {
            "SLUICEMQ_STORAGE__URL": "./environment",
            "SLUICEMQ_LISTENERS__MQTT__PORT": "11",
            "SLUICEMQ_QUEUE_MANAGER__AUTO_CREATE": "false",
            "SLUICEMQ_QUEUE_MANAGER__CACHE_BYTES": "1MiB",
            "SLUICEMQ_QUEUE_MANAGER__VISIBILITY_TIMEOUT": "45s",
            "SLUICEMQ_FAST_BATCH": "0",
            "OTHER": "x",
        },
    )
    assert (settings.storage.url, settings.storage.sync) == ("./environment", "os")
    assert [listener.port for listener in settings.listeners.opened().values()] == [11, 2]
    assert settings.queue_manager.auto_create is False
    assert settings.queue_manager.cache_bytes == 1024 * 1024
    assert settings.queue_manager.visibility_timeout_ms == 45_000


def test_command_line_overrides_the_environment(write: Write) -> None:
    settings = load_settings(
        write("listeners: {mqtt: {port: 1, bind: '::1'}}"),
        {"SLUICEMQ_LISTENERS__MQTT__PORT": "2", "SLUICEMQ_STORAGE__URL": "./environment"},
        {"listeners.mqtt.port": 3, "storage.url": None},
    )
    assert settings.listeners.mqtt is not None
    assert (settings.listeners.mqtt.port, settings.listeners.mqtt.bind) == (3, "::1")
    assert settings.storage.url == "./environment"


@pytest.mark.parametrize("text", ["listeners: {mqtt: {}}", "listeners: {mqtt: {}, amqp: null}"])
def test_port_on_the_command_line_opens_a_listener_absent_from_the_file(write: Write, text: str) -> None:
    settings = load_settings(write(text), {}, {"listeners.amqp.port": 0})
    assert settings.listeners.amqp is not None
    assert (settings.listeners.amqp.bind, settings.listeners.amqp.port) == ("127.0.0.1", 0)


@pytest.mark.parametrize("text", [None, "log: {level: debug}"])
def test_one_port_leaves_the_other_listeners_open_when_the_file_names_none(
    write: Write, text: str | None
) -> None:
    path = None if text is None else write(text)
    for settings in (
        load_settings(path, {}, {"listeners.mqtt.port": 0}),
        load_settings(path, {"SLUICEMQ_LISTENERS__MQTT__PORT": "0"}),
    ):
        assert [listener.port for listener in settings.listeners.opened().values()] == [0, 5672, 15672]


def test_variable_with_yaml_replaces_a_section_or_the_queues() -> None:
    settings = load_settings(
        None,
        {
            "SLUICEMQ_QUEUES": "[{name: a}, {name: b, type: ephemeral}]",
            "SLUICEMQ_LISTENERS__AMQP": "null",
            "SLUICEMQ_LISTENERS": "{mqtt: {port: 1}, amqp: {port: 2}}",
        },
    )
    assert [queue.name for queue in settings.queues] == ["a", "b"]
    assert [listener.port for listener in settings.listeners.opened().values()] == [1]


def test_variable_with_digits_is_text_for_a_text_key() -> None:
    assert load_settings(None, {"SLUICEMQ_STORAGE__URL": "123"}).storage.url == "123"


def test_config_error_has_every_problem(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write("logs: 1\nstorages: 2"))
    assert len(caught.value.problems) == 2
    assert str(caught.value) == "\n".join(caught.value.problems)
