"""Arguments of streams: honoured, or refused by name."""

import pytest

from broker.amqp import arguments, stream_arguments
from broker.mqtt.subscribe_options import stream_options
from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import OFFSET, StreamStart
from queue_manager.policy import QueuePolicy

DEFAULT = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=1, expires_ms=5, attempts_max=9)
STREAM = {"x-queue-type": "stream"}
NOW_MS = 1_767_225_600_000


def policy(table, *, plain=True):
    return stream_arguments.stream_policy(STREAM | table, DEFAULT, plain=plain)


def test_a_stream_of_its_own_kind():
    assert stream_arguments.is_stream(STREAM)
    assert not stream_arguments.is_stream({"x-queue-type": "classic"})
    made = policy({})
    assert (made.stream, made.expires_ms, made.attempts_max) == (True, 0, 0)


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ({"x-max-age": "7D"}, "retention_age_ms", 604_800_000),
        ({"x-max-age": "36h"}, "retention_age_ms", 129_600_000),
        ({"x-max-age": 60}, "retention_age_ms", 60_000),
        ({"x-max-length": 10}, "retention_count", 10),
        ({"x-max-length-bytes": 1 << 30}, "retention_bytes", 1 << 30),
        ({"x-single-active-consumer": True}, "single_active", True),
        ({"x-stream-max-segment-size-bytes": 500_000_000}, "retention_bytes", 0),
    ],
)
def test_honoured(table, field, value):
    assert getattr(policy(table), field) == value


@pytest.mark.parametrize(
    "table",
    [
        {"x-max-age": "7X"},
        {"x-max-age": "0s"},
        {"x-max-age": 0},
        {"x-max-age": True},
        {"x-max-age": 1.5},
        {"x-max-length": -1},
        {"x-max-length-bytes": "1GB"},
        {"x-single-active-consumer": 1},
        {"x-stream-max-segment-size-bytes": 0},
        {"x-delivery-limit": 3},
        {"x-dead-letter-exchange": ""},
        {"x-overflow": "reject-publish"},
        {"x-expires": 5},
        {"x-something": 1},
    ],
)
def test_refused_by_name(table):
    with pytest.raises(InvalidArgument, match=next(iter(table))):
        policy(table)


def test_only_durable():
    with pytest.raises(InvalidArgument, match="durable"):
        policy({}, plain=False)


def test_of_a_consumer():
    wanted = arguments.consumer_arguments({"x-stream-offset": 5, "x-auto-commit": False})
    assert (wanted.stream_offset, wanted.auto_commit) == (5, False)
    assert stream_arguments.stream_start(wanted.stream_offset, NOW_MS) == StreamStart(OFFSET, 5)
    assert stream_arguments.stream_start(None, NOW_MS) is None
    assert not stream_arguments.auto_commit(False)
    assert stream_arguments.auto_commit(None)
    with pytest.raises(InvalidArgument, match="x-auto-commit"):
        stream_arguments.auto_commit("no")
    with pytest.raises(InvalidArgument, match="x-stream-offset.*no stream"):
        wanted.check_no_stream("q")
    arguments.consumer_arguments({}).check_no_stream("q")


def test_of_a_subscription():
    assert stream_options({"prefetch": "1"}, NOW_MS) is None
    wanted = stream_options({"x-stream-offset": "5", "auto-commit": "false"}, NOW_MS)
    assert (wanted.start, wanted.auto_commit) == (StreamStart(OFFSET, 5), False)
    assert stream_options({"auto-commit": "true"}, NOW_MS).start is None
    for options in ({"auto-commit": "no"}, {"x-stream-offset": "soon"}):
        with pytest.raises(InvalidArgument, match=next(iter(options))):
            stream_options(options, NOW_MS)
