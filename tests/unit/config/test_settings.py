"""The settings as Python objects: defaults, values passed by callers, refused values."""

import pytest
from pydantic import ValidationError

from config import limits
from config.queue_settings import QueueLimitsSettings, QueueSettings, RetrySettings
from config.settings import (
    AmqpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    QueueManagerSettings,
    Settings,
    StorageSettings,
)


def test_default_settings_are_as_documented() -> None:
    settings = Settings()
    assert settings.storage == StorageSettings(url="./data", sync="always")
    assert settings.listeners.mqtt == MqttListenerSettings(bind="127.0.0.1", port=1883)
    assert settings.listeners.amqp == AmqpListenerSettings(bind="127.0.0.1", port=5672)
    assert settings.queue_manager == QueueManagerSettings(
        auto_create=True,
        visibility_timeout_ms=30_000,
        consumer_timeout_ms=1_800_000,
        ephemeral_expires_ms=300_000,
        cache_bytes=64 * 1024 * 1024,
    )
    assert settings.queues == ()
    assert (settings.log.level, settings.log.format) == ("info", "text")


def test_default_queue_settings_are_as_documented() -> None:
    queue = QueueSettings(name="orders")
    assert queue.topics == ("$queue/orders/#",)
    assert queue.type == "classic"
    assert queue.visibility_timeout_ms is None
    assert queue.done_retention_ms == 60_000
    assert queue.bucket_size == 2
    assert queue.retry == RetrySettings(max_retries=0)
    assert queue.limits == QueueLimitsSettings(max_message_size_bytes=10 * 1024 * 1024, max_depth=0)
    assert queue.overflow == "reject-publish"


def test_python_names_take_milliseconds_and_bytes() -> None:
    queue = QueueSettings(
        name="q",
        visibility_timeout_ms=250,
        done_retention_ms=None,
        limits=QueueLimitsSettings(max_message_size_bytes=17),
    )
    assert queue.visibility_timeout_ms == 250
    assert queue.done_retention_ms is None
    assert queue.limits.max_message_size_bytes == 17


def test_queue_without_visibility_timeout_has_that_of_the_manager() -> None:
    own, other = QueueSettings(name="own", visibility_timeout_ms=7), QueueSettings(name="other")
    settings = Settings(queue_manager=QueueManagerSettings(visibility_timeout_ms=9), queues=(own, other))
    assert settings.visibility_timeout_ms(own) == 7
    assert settings.visibility_timeout_ms(other) == 9


def test_assigning_to_settings_is_refused() -> None:
    with pytest.raises(ValidationError):
        Settings().storage = StorageSettings()  # type: ignore[misc]


def test_two_queues_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two queues are named q"):
        Settings(queues=(QueueSettings(name="q"), QueueSettings(name="q")))


def test_only_listeners_that_are_set_are_opened() -> None:
    assert list(Settings().listeners.opened()) == ["mqtt", "amqp", "http"]
    assert list(ListenersSettings(amqp=AmqpListenerSettings()).opened()) == ["amqp"]
    assert ListenersSettings().opened() == {}


@pytest.mark.parametrize(
    ("mqtt_bind", "amqp_bind", "overlap"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "::1", False),
        ("::", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("0.0.0.0", "broker.example.net", True),
    ],
)
def test_listeners_that_overlap_on_a_port_are_refused(mqtt_bind: str, amqp_bind: str, overlap: bool) -> None:
    def listeners(port: int) -> ListenersSettings:
        return ListenersSettings(
            mqtt=MqttListenerSettings(bind=mqtt_bind, port=port),
            amqp=AmqpListenerSettings(bind=amqp_bind, port=port),
        )

    assert listeners(0).opened()
    if overlap:
        with pytest.raises(ValidationError, match="mqtt and amqp both take port 7000"):
            listeners(7000)
    else:
        assert listeners(7000).opened()


@pytest.mark.parametrize(
    "values",
    [
        {"topics": ()},
        {"topics": ("a", "b", "a")},
        {"topics": tuple(str(number) for number in range(limits.QUEUE_TOPICS_MAX + 1))},
        {"visibility_timeout_ms": 0},
        {"visibility_timeout_ms": -1},
        {"visibility_timeout_ms": True},
        {"done_retention_ms": limits.DURATION_MS_MAX + 1},
        {"bucket_size": 5},
        {"bucket_size": -1},
        {"bucket_size": True},
        {"type": "quorum"},
        {"primary_group": "workers"},
        {"type": "stream", "primary_group": "a@b"},
        {"type": "stream", "dlq": "dead"},
        {"type": "stream", "max_priority": 3},
        {"type": "stream", "retry": {"max_retries": 3}},
        {"type": "stream", "limits": {"max_depth": 5}},
        {"overflow": "drop-tail"},
        {"retry": {"max_retries": limits.ATTEMPTS_MAX}},
        {"limits": {"max_message_size": 0}},
        {"limits": {"max_message_size": limits.MESSAGE_BYTES_MAX + 1}},
        {"limits": {"max_depth": -1}},
        {"dlq": "$dlq/orders"},
        {"dlq": "q"},
        {"dlq": {"topic": "$queue/"}},
        {"dlq": {"topic": "a\0b"}},
        {"dlq": {"enabled": True, "name": "x"}},
        {"name": "n" * 252, "dlq": {}},
        {"retry": {"multiplier": 2}},
        {"retry": {"jitter": 0.5, "initial_backoff": 0}},
        {"retry": {"initial_backoff": "10s", "max_backoff": "5s"}},
        {"retry": {"initial_backoff": "10s", "max_backoff": 0}},
        {"retry": {"initial_backoff": "1s", "multiplier": 0.5}},
        {"retry": {"initial_backoff": "1s", "multiplier": float("inf")}},
        {"retry": {"initial_backoff": "1s", "multiplier": True}},
        {"retry": {"initial_backoff": "1s", "jitter": 1.1}},
        {"retry": {"initial_backoff": "1s", "jitter": "some"}},
    ],
)
def test_invalid_queue_setting_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QueueSettings.model_validate({"name": "q", **values})


@pytest.mark.parametrize(
    ("value", "dead_letter"),
    [
        (None, ""),
        ({}, "q.dlq"),
        ({"enabled": False}, ""),
        ({"enabled": False, "topic": "errors"}, ""),
        ({"topic": "errors"}, "errors"),
        ({"topic": "$queue/errors"}, "errors"),
        ("errors", "errors"),
        ("", "q.dlq"),
    ],
)
def test_dead_letter_queue_follows_from_dlq(value: object, dead_letter: str) -> None:
    assert QueueSettings.model_validate({"name": "q", "dlq": value}).dead_letter == dead_letter


def test_range_limits_are_inclusive() -> None:
    for exponent in range(5):
        assert QueueSettings(name="q", bucket_size=exponent).bucket_size == exponent
    assert RetrySettings(max_retries=limits.ATTEMPTS_MAX - 1).max_retries == limits.ATTEMPTS_MAX - 1
    largest = QueueLimitsSettings(max_message_size_bytes=limits.MESSAGE_BYTES_MAX)
    assert largest.max_message_size_bytes == limits.MESSAGE_BYTES_MAX
