"""Arguments of a stream's consumers: honoured, or refused by name."""

import pytest

from broker.amqp.consuming import consume_arguments
from broker.amqp.consuming.consume_arguments import ConsumerArguments
from broker.mqtt.consuming.subscribe_options import stream_options
from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import OFFSET, StreamStart

NOW_MS = 1_767_225_600_000


def test_of_a_consumer():
    wanted = consume_arguments.consumer_arguments({"x-stream-offset": 5, "x-auto-commit": False})
    assert (wanted.stream_offset, wanted.auto_commit) == (5, False)
    assert wanted.stream_start(NOW_MS) == StreamStart(OFFSET, 5)
    assert ConsumerArguments().stream_start(NOW_MS) is None
    assert not ConsumerArguments(auto_commit=False).commits_itself()
    assert ConsumerArguments().commits_itself()
    with pytest.raises(InvalidArgument, match="x-auto-commit"):
        ConsumerArguments(auto_commit="no").commits_itself()
    with pytest.raises(InvalidArgument, match="x-stream-offset of queue type rabbit_classic_queue"):
        wanted.check_no_stream()
    consume_arguments.consumer_arguments({}).check_no_stream()


def test_of_a_subscription():
    assert stream_options({"prefetch": "1"}, NOW_MS) is None
    wanted = stream_options({"x-stream-offset": "5", "auto-commit": "false"}, NOW_MS)
    assert (wanted.start, wanted.auto_commit) == (StreamStart(OFFSET, 5), False)
    assert stream_options({"auto-commit": "true"}, NOW_MS).start is None
    for options in ({"auto-commit": "no"}, {"x-stream-offset": "soon"}):
        with pytest.raises(InvalidArgument, match=next(iter(options))):
            stream_options(options, NOW_MS)
