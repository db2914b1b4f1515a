"""A work queue as a source: a batch is what was claimed for it, settled once it is in the checkpoint."""

import json
from pathlib import Path

import pytest

from tests.e2e import amqp
from tests.spark.helpers import Queue
from tests.waiting import until


def publish(queue, *bodies, **properties):
    connection = amqp.connect(queue.broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    amqp.publish(channel, queue.name, *bodies, **properties)
    amqp.close_quietly(connection)


def texts(*numbers):
    return list(map(str, range(*numbers)))


class Work:
    """A query that takes a work queue's messages, run until there are no more."""

    def __init__(self, spark, queue, directory, options=None):
        self.spark = spark
        self.queue = queue
        self.checkpoint = directory / "checkpoint"
        self.options = queue.options(claim="true", **(options or {}))

    def start(self, write, **trigger):
        frame = self.spark.readStream.format("sluice").options(**self.options).load()
        query = write(frame).option("checkpointLocation", str(self.checkpoint))
        return query.trigger(**(trigger or {"availableNow": True})).start()

    def into(self, sink):
        """Copy everything into a queue, exactly once; gives the rows of each batch."""

        def write(frame):
            return frame.select("payload").writeStream.format("sluice").options(**sink.options())

        query = self.start(write)
        assert query.awaitTermination(90)
        return [progress.numInputRows for progress in query.recentProgress]

    def unsettled(self, state):
        options = {**self.queue.options(), "state": state}
        return self.spark.read.format("sluice").options(**options).load().count()


def test_batches_are_limited_and_settled_and_copied_once(spark, broker, tmp_path):
    queue, sink = Queue(broker, "work"), Queue(broker, "worked")
    publish(queue, *texts(100))
    work = Work(spark, queue, tmp_path, {"maxOffsetsPerTrigger": 40, "offsetsPerPartition": 15})
    shares = [count for count in work.into(sink) if count]
    assert sum(shares) == 100
    assert max(shares) <= 40
    assert (queue.count(), work.unsettled("in_flight")) == (0, 0)
    publish(queue, *texts(100, 130))
    # as after a crash before Spark noted the last batch: it is repeated, and its messages are settled
    last = str(len(shares) - 1)
    for path in (work.checkpoint / "commits").iterdir():
        if path.name.lstrip(".").split(".")[0] == last:
            path.unlink()
    work.into(sink)
    assert sink.bodies(130) == sorted(texts(130))
    assert (queue.count(), work.unsettled("in_flight")) == (0, 0)


def test_a_batch_that_is_repeated_has_the_messages_it_had(spark, broker, tmp_path):
    from pyspark.errors import StreamingQueryException

    queue = Queue(broker, "repeatable")
    publish(queue, *texts(60), headers={"k": "v"}, message_id="m")
    publish(queue, *texts(60, 100), priority=3)
    work = Work(spark, queue, tmp_path, {"maxOffsetsPerTrigger": 50})
    seen = tmp_path / "seen"
    seen.mkdir()
    fails = {0: True, 1: True}

    def batch(frame, number):
        rows = [
            (row.offset, bytes(row.payload).decode(), row.timestamp.timestamp()) for row in frame.collect()
        ]
        name = f"{number}-{len(list(seen.glob(f'{number}-*')))}"
        (seen / name).write_text(json.dumps(sorted(rows)))
        if fails.pop(number, False):
            raise RuntimeError("the sink fails")

    def write(frame):
        return frame.writeStream.foreachBatch(batch)

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            work.start(write).awaitTermination(60)
        until(lambda: work.unsettled("in_flight") == 0)  # all were given back
        publish(queue, "later")
    assert work.start(write).awaitTermination(60)
    read = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    assert read["0-0"] == read["0-1"]
    assert read["1-0"] == read["1-1"]
    bodies = [row[1] for name in ("0-1", "1-1", "2-0") for row in read[name]]
    assert bodies == [*texts(100), "later", "later"]
    assert queue.count() == 0


def test_others_work_beside_a_query_which_settles_what_is_in_its_checkpoint(spark, broker, tmp_path):
    queue = Queue(broker, "shared-work")
    publish(queue, *texts(10))
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=4)
    other = amqp.Collector(channel, queue.name)
    held = {delivery.body.decode() for delivery in other.wait(4)}
    work = Work(spark, queue, tmp_path)
    seen = tmp_path / "seen"

    def write(frame):
        text = frame.selectExpr("cast(payload as string) value")
        return text.writeStream.format("text").option("path", str(seen))

    def found():
        return sorted(line for path in Path(seen).glob("*.txt") for line in path.read_text().splitlines())

    query = work.start(write, processingTime="0 seconds")
    mine = sorted(set(texts(10)) - held)
    until(lambda: found() == mine, 60)
    amqp.close_quietly(connection)  # what the other held comes to the query
    until(lambda: found() == texts(10), 60)
    until(lambda: work.unsettled("in_flight") == 0, 60)  # settled once they are in the checkpoint
    query.stop()
    assert queue.count() == 0


def test_a_group_and_a_selector(spark, broker, tmp_path):
    queue, sink = Queue(broker, "selected-work"), Queue(broker, "selected")
    publish(queue, *texts(5), headers={"region": "eu"})
    publish(queue, *texts(5, 10), headers={"region": "us"})
    work = Work(spark, queue, tmp_path, {"group": "analysts", "selector": "region = 'eu'"})
    work.into(sink)
    assert sink.bodies(5) == texts(5)


def test_what_cannot_be_claimed_is_said(spark, broker, tmp_path):
    from pyspark.errors import PySparkException, StreamingQueryException

    from tests.spark.helpers import Source

    queue, stream = Queue(broker, "unclaimed"), Source(broker, "unclaimed-stream")

    def write(frame):
        return frame.writeStream.format("noop")

    for number, (options, reason) in enumerate(
        (
            ({"queue": stream.name}, "is a stream: leave option claim out"),
            ({"queue": "nowhere"}, r"no queue 'nowhere'.*\(option queue\)"),
            ({"startingOffsets": "earliest"}, "option startingOffsets is for streams"),
            ({"selector": "region ="}, "selector"),
        )
    ):
        work = Work(spark, queue, tmp_path / str(number), options)
        with pytest.raises(StreamingQueryException, match=reason) as caught:
            work.start(write).awaitTermination(60)
        assert "Traceback" not in str(caught.value).splitlines()[0]
    with pytest.raises(PySparkException, match="option claim is for streaming reads"):
        spark.read.format("sluice").options(**queue.options(claim="true")).load().count()
