"""Reading streams with a real local Spark: every message once, whatever the batches and partitions are."""

import time

import pytest

from tests.spark.helpers import Queue, Source
from tests.waiting import pass_time


def load(spark, source, **options):
    return spark.read.format("sluice").options(**source.options(**options)).load()


def test_a_whole_stream(spark, broker):
    source = Source(broker, "whole")
    source.publish(*map(str, range(250)))
    source.publish("last", headers={"k": "v"}, message_id="m", content_type="t")
    frame = load(spark, source, offsetsPerPartition=100)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert [row.offset for row in sorted(rows)] == list(range(251))
    assert {bytes(row.payload).decode() for row in rows} == {*map(str, range(250)), "last"}
    last = max(rows, key=lambda row: row.offset)
    assert (last.queue, last.exchange, last.routing_key) == ("whole", "", None)
    assert (last.headers, last.message_id, last.content_type) == ({"k": "v"}, "m", "t")
    assert last.timestamp.year >= 2026
    part = load(
        spark, source, startingOffsets='{"whole": 10}', endingOffsets='{"whole": 20}', includeHeaders="false"
    )
    assert sorted(row.offset for row in part.collect()) == list(range(10, 20))
    assert load(spark, source, startingOffsets='{"whole": 999}').count() == 0


def test_between_two_times(spark, broker):
    source = Source(broker, "timed")
    source.publish("early")
    pass_time(0.01)
    first = round(time.time() * 1_000)
    source.publish("one", "two")
    pass_time(0.01)
    end = round(time.time() * 1_000)
    source.publish("late")
    for options, wanted in (
        ({"startingTimestamp": first, "endingTimestamp": end}, [1, 2]),
        ({"startingTimestamp": first}, [1, 2, 3]),
        ({"endingTimestamp": end, "startingOffsets": '{"timed": 1}'}, [1, 2]),
        ({"startingTimestamp": 0, "endingTimestamp": end + 600_000}, [0, 1, 2, 3]),
        ({"startingTimestamp": end + 600_000}, []),
    ):
        assert sorted(row.offset for row in load(spark, source, **options).collect()) == wanted


def test_what_cannot_be_read(spark, broker):
    from pyspark.errors import PySparkException

    source = Source(broker, "refused")
    Queue(broker, "classic")
    for options, reason in (
        ({"group": "g"}, "option group is for streaming reads"),
        ({"startingOffsets": "sometime"}, "option startingOffsets is earliest or latest, or JSON"),
        ({"startingOffsets": '{"other": 1}'}, "names 'other'"),
        ({"offset": "1"}, "unknown option offset"),
        ({"queue": "classic"}, "queue 'classic' is no stream"),
        ({"queue": "nowhere"}, "no queue 'nowhere'"),
    ):
        with pytest.raises(PySparkException, match=reason):
            load(spark, source, **options).count()


class Query:
    """A stream copied into a queue, run until it has taken everything."""

    def __init__(self, spark, source, sink, directory, **options):
        self.spark = spark
        self.source = source
        self.sink = sink
        self.checkpoint = directory / "checkpoint"
        self.options = options

    def run(self):
        frame = self.spark.readStream.format("sluice").options(**self.source.options(**self.options)).load()
        query = (
            frame.select("payload")
            .writeStream.format("sluice")
            .options(**self.sink.options())
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        return [progress.numInputRows for progress in query.recentProgress]


def test_from_a_stream_into_a_queue(spark, broker, tmp_path):
    source, sink = Source(broker, "readings"), Queue(broker, "copies")
    source.publish("before")
    query = Query(
        spark, source, sink, tmp_path, startingOffsets="latest", group="copier", maxOffsetsPerTrigger=40
    )
    query.run()  # the place is kept from here on
    source.publish(*map(str, range(100)))
    shares = query.run()
    assert sum(shares) == 100
    assert max(shares) <= 40
    # as after a crash before Spark noted the last batch
    for path in sorted((query.checkpoint / "commits").iterdir()):
        if path.name.lstrip(".").split(".")[0] == str(len(shares)):
            path.unlink()
    source.publish(*map(str, range(100, 130)))
    query.run()
    assert sink.bodies(130) == sorted(map(str, range(130)))
    assert 41 <= source.status(**{"x-group-id": "copier"})["committed"] <= 131


@pytest.mark.long
def test_what_retention_took_is_an_error_unless_told_otherwise(spark, broker, tmp_path):
    from pyspark.errors import StreamingQueryException

    source, sink = Source(broker, "short", **{"x-max-length": 16}), Queue(broker, "rest")
    query = Query(spark, source, sink, tmp_path, startingOffsets='{"short": 0}')
    source.publish("0", "1")
    query.run()
    source.publish(*map(str, range(2, 60)))
    with pytest.raises(StreamingQueryException, match="option failOnDataLoss"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    first = source.status()["first"]
    assert first > 2
    assert sink.bodies(62 - first) == sorted(["0", "1", *map(str, range(first, 60))])


def test_what_where_says_is_not_read(spark, broker):
    from pyspark.sql import functions as F

    source, other = Source(broker, "filtered"), Source(broker, "filtered-too")
    for stream in (source, other):
        stream.publish(*map(str, range(300)), headers={"k": "v"})
    options = {"queue": "filtered,filtered-too", "offsetsPerPartition": 100}
    conf = "spark.sql.python.filterPushdown.enabled"
    for where, partitions, rows in (
        ("true", 6, 600),
        ("queue = 'filtered'", 3, 300),
        ("queue in ('filtered', 'nowhere') and offset >= 250", 1, 50),
        ("offset > 100 and offset <= 200 and headers['k'] = 'v'", 4, 200),
        ("offset = 17", 2, 2),
        ("offset < 0 or offset > 297", 6, 4),
        ("timestamp > now()", 1, 0),
        ("timestamp >= now() - interval 1 hour and timestamp < now() + interval 1 hour", 6, 600),
        ("timestamp < now() - interval 1 hour", 1, 0),
    ):
        for is_on in ("true", "false"):
            spark.conf.set(conf, is_on)
            try:
                frame = load(spark, source, **options).where(where)
                assert frame.count() == rows, (where, is_on)
                found = frame.select(F.spark_partition_id()).rdd.getNumPartitions()
                assert found == (partitions if is_on == "true" else 6), (where, is_on)
            finally:
                spark.conf.unset(conf)


def test_the_broker_sends_only_what_a_selector_wants(spark, broker, tmp_path):
    source, sink = Source(broker, "selected-stream"), Queue(broker, "selected-copies")
    for number in range(5):
        source.publish(*map(str, range(100)), headers={"region": "eu" if number % 2 else "us"})
    options = {"selector": "region = 'eu'", "offsetsPerPartition": 70}
    rows = load(spark, source, **options).collect()
    assert sorted(row.offset for row in rows) == [*range(100, 200), *range(300, 400)]
    part = load(spark, source, startingOffsets='{"selected-stream": 150}', **options)
    assert part.count() == 150
    assert load(spark, source, selector="region = 'asia'").count() == 0
    query = Query(spark, source, sink, tmp_path, selector="region = 'eu'", maxOffsetsPerTrigger=90)
    assert sum(query.run()) == 200
    source.publish("late", headers={"region": "eu"})
    query.run()
    assert sink.count() == 201
