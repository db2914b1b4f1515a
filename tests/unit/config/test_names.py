"""Queue names, topic filters, bind addresses, storage URLs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits, name_rules


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "orders",
        "with space",
        "amq.gen-1",
        "Größe",
        "é" * 127,
        "n" * 255,
        "a/b",
        "a+b",
        "#",
        "$ack",
        "$queues/a",
        "tab\there",
    ],
)
def test_valid_queue_name_is_returned(name: str) -> None:
    assert name_rules.check_queue_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("n" * 256, "at most 255 bytes"),
        ("é" * 128, "this has 256"),
        ("a\0b", "0x00"),
        ("a\x1db", "0x1D"),
        ("a\x1fb", "0x1F"),
        ("\ud800", "surrogate"),
        ("$queue", "must not be an address"),
        ("$queue/a", "must not be an address"),
    ],
)
def test_invalid_queue_name_is_refused_with_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        name_rules.check_queue_name(name)


@pytest.mark.parametrize(
    "topic", ["#", "+", "a", "/", "a//b", "+/+/#", "a/+/b/#", "$queue/orders/#", "a b/ü"]
)
def test_valid_topic_filter_is_returned(topic: str) -> None:
    assert name_rules.check_topic_filter(topic) == topic


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "empty"),
        ("a#", "# must be"),
        ("#/a", "# must be"),
        ("a/#/b", "# must be"),
        ("a+/b", r"\+ must be"),
        ("a/b+", r"\+ must be"),
        ("a\0", "NUL"),
        ("t" * 65_536, "at most 65535 bytes"),
        ("/" * limits.MQTT_TOPIC_LEVELS_MAX, "levels"),
        ("$share/g/a", "shared subscription"),
        ("\udfff", "surrogate"),
    ],
)
def test_invalid_topic_filter_is_refused_with_reason(topic: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        name_rules.check_topic_filter(topic)


@given(st.text())
def test_accepted_queue_name_is_one_level_of_a_valid_topic(name: str) -> None:
    try:
        name_rules.check_queue_name(name)
    except ValueError:
        return
    assert 1 <= len(name.encode()) <= 255
    level = name_rules.queue_level(name)
    assert name_rules.check_topic_filter(f"$queue/{level}/#").count("/") == 2
    assert level[0] not in "$+#"
    assert name_rules.queue_of_level(level) == name


@given(st.text("%/#+$2345BFbfx", max_size=12))
def test_a_name_of_what_codes_are_made_of_is_read_back_from_its_level(name: str) -> None:
    assert name_rules.queue_of_level(name_rules.queue_level(name)) == name


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("orders", "orders"),
        ("a/b", "a%2Fb"),
        ("a+b#c", "a%2Bb%23c"),
        ("$ack", "%24ack"),
        ("a$", "a$"),
        ("50%", "50%"),
        ("a%2Fb", "a%252Fb"),
        ("%41", "%41"),
    ],
)
def test_only_what_a_level_cannot_hold_is_written_as_a_code(name: str, level: str) -> None:
    assert name_rules.queue_level(name) == level


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0", "::", "::1", "localhost", "broker-1.example.net"])
def test_valid_bind_address_is_returned(bind: str) -> None:
    assert name_rules.check_bind(bind) == bind


@pytest.mark.parametrize(
    "bind", ["", "127.0.0", "256.0.0.1", "[::1]", "a b", "-a", "http://a", "a" * 64, "127.0.0.1:1883"]
)
def test_invalid_bind_address_is_refused(bind: str) -> None:
    with pytest.raises(ValueError, match="neither an IP address nor a host name"):
        name_rules.check_bind(bind)


@pytest.mark.parametrize(
    "url", ["./data", "/srv/x", "data", "memory:", "s3://bucket", "s3://bucket/a/b", "gs://b", "az://c/p"]
)
def test_valid_storage_url_is_returned(url: str) -> None:
    assert name_rules.check_storage_url(url) == url


@pytest.mark.parametrize(
    "url", ["", " ", "a\0b", "memory://", "memory:x", "ftp://x", "file:///x", "s3://", "s3:///p"]
)
def test_invalid_storage_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        name_rules.check_storage_url(url)
