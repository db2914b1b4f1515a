"""Options and columns of a write: what is refused, and by which name."""

import pytest

from spark_bridge.columns import check_columns
from spark_bridge.errors import OptionError
from spark_bridge.listing import SCHEMA as LISTED
from spark_bridge.options import is_list, list_settings, write_settings
from spark_bridge.reading import KAFKA_SCHEMA
from spark_bridge.settings import AT_LEAST_ONCE, EXACTLY_ONCE, ConnectionSettings, WriteSettings


def test_defaults():
    settings = write_settings({"queue": "orders", "checkpointLocation": "/x", "queryName": "q"})
    assert settings == WriteSettings(ConnectionSettings(), EXACTLY_ONCE, "orders")


def test_everything_set():
    settings = write_settings(
        {
            "HOST": "b",
            "port": "1",
            "vhost": "/v",
            "username": "u",
            "password": "p",
            "tls": "true",
            "caFile": "/ca",
            "connectTimeout": "500ms",
            "confirmTimeout": "2m",
            "exchange": "e",
            "routingKey": "",
            "delivery": AT_LEAST_ONCE,
            "confirmWindow": "9",
            "mandatory": "false",
        }
    )
    assert settings.connection == ConnectionSettings("b", 1, "/v", "u", "p", True, "/ca", 0.5, 120)
    assert (settings.exchange, settings.routing_key, settings.confirm_window) == ("e", "", 9)
    assert not settings.mandatory


def test_commit_may_be_waited_for_until_its_rows_can_be_consumed():
    assert write_settings({"queue": "q", "wait": "visible"}).waits_visible
    assert not write_settings({"queue": "q", "wait": "committed"}).waits_visible
    with pytest.raises(OptionError, match="wait is one of committed, visible"):
        write_settings({"queue": "q", "wait": "long"})
    with pytest.raises(OptionError, match="option wait is for delivery exactly-once"):
        write_settings({"queue": "q", "wait": "visible", "delivery": AT_LEAST_ONCE})


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("amqp://broker", ConnectionSettings("broker")),
        ("amqps://u%40x:p%2F@b:9/v%2Fw", ConnectionSettings("b", 9, "v/w", "u@x", "p/", True)),
        ("amqps://b", ConnectionSettings("b", 5671, tls=True)),
        (
            "amqp://u:p@a,b:9,[::1]/v",
            ConnectionSettings("a", 5672, "v", "u", "p", others=(("b", 9), ("::1", 5672))),
        ),
    ],
)
def test_a_url_says_it_all(url, wanted):
    assert write_settings({"queue": "q", "url": url}).connection == wanted


def test_several_hosts_are_tried_in_turn():
    found = write_settings({"queue": "q", "host": "a, b:9", "port": "7"}).connection
    assert found.addresses == (("a", 7), ("b", 9))


def test_passwords_from_elsewhere(tmp_path, monkeypatch):
    file = tmp_path / "secret"
    file.write_text("from file\n")
    monkeypatch.setenv("SECRET", "from environment")
    for option, value, password in (
        ("passwordFile", str(file), "from file"),
        ("passwordEnv", "SECRET", "from environment"),
    ):
        assert write_settings({"queue": "q", option: value}).connection.password == password


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"quue": "x"}, "unknown option quue"),
        ({}, "set option queue"),
        ({"queue": "$queue/x"}, "option queue is a queue's name"),
        ({"queue": "q", "exchange": "e"}, "queue and exchange exclude"),
        ({"exchange": "e"}, "set option queue"),
        ({"queue": "q", "delivery": "often"}, "option delivery is one of"),
        ({"queue": "q", "delivery": "at-least-once", "producerId": "p"}, "option producerId is for"),
        ({"queue": "q", "epoch": "1"}, "needs option producerId"),
        ({"queue": "q", "producerId": ""}, "option producerId has 1 to"),
        ({"queue": "q", "producerId": "p", "epoch": "-1"}, "option epoch is a whole number"),
        ({"queue": "q", "port": "0"}, "option port is a whole number from 1 to 65535"),
        ({"queue": "q", "tls": "yes"}, "option tls is one of true, false"),
        ({"queue": "q", "caFile": "/x"}, "option caFile needs tls"),
        ({"queue": "q", "confirmTimeout": "soon"}, "option confirmTimeout is a time"),
        ({"queue": "q", "url": "http://x"}, "option url looks like"),
        ({"queue": "q", "url": "amqp://u@"}, "option url looks like"),
        ({"queue": "q", "url": "amqp://x:y"}, "option url: "),
        ({"queue": "q", "host": "a,,b"}, "option host: '' is no host"),
        ({"queue": "q", "host": "a:0"}, "option host: 'a:0' is no host"),
        ({"queue": "q", "host": "a,a:5672"}, "option host names 1 to 16 different"),
        ({"queue": "q", "connectTimeout": "1h"}, "option connectTimeout is a time"),
        ({"queue": "q", "url": "amqp://x", "host": "y"}, "option url says it already: host"),
        ({"queue": "q", "password": "x", "passwordEnv": "y"}, "only one of the options"),
        ({"queue": "q", "passwordEnv": "NOT_THERE_AT_ALL"}, "option passwordEnv"),
        ({"queue": "q", "passwordFile": "/not/there"}, "option passwordFile"),
    ],
)
def test_options_that_are_refused(options, reason):
    with pytest.raises(OptionError, match=reason):
        write_settings(options)


def settings_for(**options):
    return write_settings({"queue": "q", **options})


def test_columns_are_found_by_name():
    layout = check_columns(
        [("headers", "map<string,string>"), ("value", "string"), ("message_id", "string")], settings_for()
    )
    assert layout.payload == 1
    assert layout.properties == (("headers", 0), ("message_id", 2))


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ([("body", "string")], {}, "column 'body' cannot be written"),
        ([("payload", "bigint")], {}, "column payload is binary or string, not bigint"),
        ([("message_id", "string")], {}, "a column payload or value"),
        ([("value", "string"), ("key", "binary"), ("routing_key", "string")], {}, "key mean the same"),
        ([("payload", "string"), ("value", "string")], {}, "mean the same"),
        ([("payload", "string")], {"delivery": "idempotent"}, "needs a column message_id"),
        ([("payload", "string")], {"queue": "", "delivery": "at-least-once"}, "where to"),
    ],
)
def test_columns_that_are_refused(columns, options, reason):
    with pytest.raises(OptionError, match=reason):
        check_columns(columns, settings_for(**options))


def test_what_was_read_can_be_written_as_it_is():
    read = [tuple(column.split(" ", 1)) for column in LISTED.split(", ")]
    layout = check_columns(read, settings_for())
    assert (layout.payload, layout.routing_key, layout.exchange) == (8, 3, -1)
    kafka = [tuple(column.split(" ", 1)) for column in KAFKA_SCHEMA.split(", ")]
    layout = check_columns(kafka, settings_for())
    assert (layout.payload, layout.routing_key) == (1, 0)
    assert layout.has_kafka_headers
    assert dict(layout.properties) == {"timestamp": 5, "headers": 7}


def test_lists():
    given = {"queue": "a, b", "State": "failed", "group": "g", "includeHeaders": "false", "port": "1"}
    assert is_list(given)
    settings = list_settings(given)
    assert (settings.queues, settings.state, settings.group) == (("a", "b"), "failed", "g")
    assert (settings.include_headers, settings.connection.port) == (False, 1)
    assert not is_list({"queue": "a"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"state": "lost"}, "option state is one of ready"),
        ({"state": "done", "StartingOffsets": "earliest"}, "option startingOffsets is for streams"),
        ({"state": "done", "delivery": "x"}, "unknown option delivery"),
        ({"state": "done", "queue": ","}, "option queue names"),
    ],
)
def test_lists_that_are_refused(options, reason):
    with pytest.raises(OptionError, match=reason):
        list_settings({"queue": "q", **options})
