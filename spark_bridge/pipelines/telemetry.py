"""Readings of devices to alerts, an archive and reports: `telemetry.py --help`, docs/spark.md.

    devices -> stream `telemetry` -> alerts   -> queue `alerts` -> workers
                                  -> archive     Parquet, by hour
                                  -> rejected -> stream `telemetry-rejected`

`run` starts streaming queries, `recompute` says what the alerts must be, from the stream or from the archive,
and `dead-letters` reports what went wrong.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_bridge
from spark_bridge.pipelines import alerts, dead_letters, readings
from spark_bridge.pipelines.alerts import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

POLL_S: Final = 0.5
ARCHIVED: Final = ["queue", "offset", "routing_key", "timestamp", "message_id", "payload"]


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line, see `--help`."""
    parser = argparse.ArgumentParser(prog="telemetry", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="streaming queries, until SIGTERM")
    run.add_argument("queries", nargs="+", choices=sorted(QUERIES), metavar="QUERY", help="|".join(QUERIES))
    run.add_argument("--checkpoints", required=True, help="directory (any file system Spark knows)")
    run.add_argument(
        "--name",
        default="telemetry",
        help="of the groups that tell how far the queries are; take another one with new checkpoints, else"
        " the queries go on where the old ones were (%(default)s)",
    )
    run.add_argument("--archive", help="directory of the archive")
    run.add_argument("--every", default="1 second", help="how often a batch starts (%(default)s)")
    run.add_argument("--archive-every", default="1 minute", help="the same for the archive (%(default)s)")
    run.add_argument("--rows-per-batch", type=int, help="at most; Spark 4.2 and later")
    run.add_argument("--once", action="store_true", help="everything there is, then end")

    recompute = commands.add_parser("recompute", help="the alerts of all that is there, by a batch job")
    recompute.add_argument("--archive", help="from this archive instead of the stream")
    recompute.add_argument("--out", required=True, help="directory for JSON lines, overwritten")

    report = commands.add_parser("dead-letters", help="what was rejected or given up, and why")
    report.add_argument(
        "--queues", default="telemetry-rejected,alerts-dead", help="streams of dead letters (%(default)s)"
    )
    report.add_argument("--out", help="directory for JSON lines, overwritten")

    for command in (run, recompute, report):
        command.add_argument("--broker", default="amqp://localhost:5672/", help="%(default)s")
        command.add_argument("--password-file", metavar="FILE", help="on the driver")
        command.add_argument("--telemetry", default="telemetry", help="the stream (%(default)s)")
    run.add_argument("--alerts", default="alerts", help="the queue (%(default)s)")
    run.add_argument("--rejected", default="telemetry-rejected", help="the queue (%(default)s)")
    for command in (run, recompute):
        _add_rule(command)
    args = parser.parse_args(given)
    if args.command == "run" and "archive" in args.queries and not args.archive:
        parser.error("query archive needs --archive")
    return args


def _add_rule(parser: argparse.ArgumentParser) -> None:
    rule = Rule()
    parser.add_argument("--ahead-max", default="5 minutes", help="clocks may be ahead by (%(default)s)")
    parser.add_argument("--window", default=rule.window, help="%(default)s")
    parser.add_argument("--delay", default=rule.delay, help="readings may be late by (%(default)s)")
    parser.add_argument("--average-max", default=rule.average_max, help="else a warning (%(default)s)")
    parser.add_argument("--peak-max", default=rule.peak_max, help="else critical (%(default)s)")
    parser.add_argument("--count-min", type=int, default=rule.count_min, help="readings (%(default)s)")


def rule_of(args: argparse.Namespace) -> Rule:
    """Return the rule the command line describes."""
    return Rule(**{field.name: getattr(args, field.name) for field in fields(Rule)})


def connection_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of the bridge that say where the broker is."""
    options = {"url": args.broker}
    if args.password_file:
        options["passwordFile"] = args.password_file
    return options


def _stream(spark: SparkSession, args: argparse.Namespace, group: str) -> DataFrame:
    source = spark.readStream.format("sluice").options(**connection_of(args))
    source = source.option("queue", args.telemetry).option("group", f"{args.name}-{group}")
    source = source.option("includeHeaders", "false")
    if args.rows_per_batch:
        source = source.option("maxOffsetsPerTrigger", str(args.rows_per_batch))
    return source.load()


def _start(writer: Any, args: argparse.Namespace, name: str, every: str) -> StreamingQuery:
    writer = writer.queryName(name).outputMode("append")
    writer = writer.option("checkpointLocation", f"{args.checkpoints.rstrip('/')}/{name}")
    trigger: dict[str, Any] = {"availableNow": True} if args.once else {"processingTime": every}
    started: StreamingQuery = writer.trigger(**trigger).start()
    return started


def start_alerts(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Write alerts into their queue, each exactly once."""
    parsed = readings.parsed(_stream(spark, args, "alerts"), args.ahead_max)
    messages = alerts.as_messages(alerts.alerts(readings.valid(parsed), rule_of(args)))
    sink = messages.writeStream.format("sluice").options(**connection_of(args))
    sink = sink.option("queue", args.alerts).option("delivery", "exactly-once")
    return _start(sink, args, "alerts", args.every)


def start_rejected(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Write what is no reading into a queue of its own."""
    messages = readings.rejected(readings.parsed(_stream(spark, args, "rejected"), args.ahead_max))
    sink = messages.writeStream.format("sluice").options(**connection_of(args))
    sink = sink.option("queue", args.rejected).option("delivery", "exactly-once")
    return _start(sink, args, "rejected", args.every)


def start_archive(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Write every message as it came, in Parquet by the hour (UTC) in which it was published."""
    rows = _stream(spark, args, "archive").select(*ARCHIVED)
    rows = rows.withColumn("date", F.to_date("timestamp")).withColumn("hour", F.hour("timestamp"))
    sink = rows.writeStream.format("parquet").partitionBy("date", "hour").option("path", args.archive)
    return _start(sink, args, "archive", args.archive_every)


QUERIES: Final[dict[str, Callable[[SparkSession, argparse.Namespace], Any]]] = {
    "alerts": start_alerts,
    "archive": start_archive,
    "rejected": start_rejected,
}


def run(spark: SparkSession, args: argparse.Namespace) -> None:
    """Run queries until SIGTERM, or with `--once` until they have read everything.

    Tells each batch as a line of JSON. When one query fails the others are stopped and its error raised.
    """
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    queries = [QUERIES[name](spark, args) for name in dict.fromkeys(args.queries)]
    told = dict.fromkeys((query.name for query in queries), -1)
    try:
        while not stopping:
            active = [query for query in queries if query.isActive]
            for query in queries:
                told[query.name] = _tell(query, told[query.name])
                if query.exception():
                    query.awaitTermination()  # raises it
            if not active:
                return
            active[0].awaitTermination(POLL_S)
    finally:
        for query in queries:
            query.stop()


def _tell(query: StreamingQuery, told: int) -> int:
    """Print the batches after `told`; gives the last one."""
    for progress in query.recentProgress:
        batch = progress["batchId"]
        if batch <= told:
            continue
        told = batch
        states = progress["stateOperators"]
        line = {
            "query": query.name,
            "batch": batch,
            "rows": progress["numInputRows"],
            "end": json.loads(progress["sources"][0]["endOffset"] or "null"),
            "watermark": (progress.get("eventTime") or {}).get("watermark"),
            "late": sum(state["numRowsDroppedByWatermark"] for state in states),
            "ms": progress["durationMs"].get("triggerExecution"),
        }
        print(json.dumps(line, default=str), flush=True)
    return told


def recomputed(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Return all alerts there must be, and `late`: how many readings of the window the stream may have
    dropped.

    A window with late readings is there also if it is nothing out of the ordinary; `severity` is null then.
    """
    if args.archive:
        messages = spark.read.parquet(args.archive)
    else:
        source = spark.read.format("sluice").options(**connection_of(args))
        messages = source.option("queue", args.telemetry).option("includeHeaders", "false").load()
    rows = readings.valid(readings.parsed(messages.select(*ARCHIVED), args.ahead_max)).cache()
    rule = rule_of(args)
    found = alerts.as_rows(alerts.alerts(rows, rule))
    return found.join(alerts.late_windows(rows, rule), "alert_id", "full")


def recompute(spark: SparkSession, args: argparse.Namespace) -> None:
    """Write what the alerts must be."""
    recomputed(spark, args).coalesce(1).write.mode("overwrite").json(args.out)


def report(spark: SparkSession, args: argparse.Namespace) -> None:
    """Print the dead letters by queue and reason, and write them where `--out` says."""
    source = spark.read.format("sluice").options(**connection_of(args)).option("queue", args.queues)
    table = dead_letters.summary(source.load()).cache()
    table.show(100, truncate=60)
    if args.out:
        table.coalesce(1).write.mode("overwrite").json(args.out)


COMMANDS: Final = {"run": run, "recompute": recompute, "dead-letters": report}


def main() -> None:
    """See the module."""
    args = arguments(sys.argv[1:])
    spark = SparkSession.builder.appName(f"telemetry {args.command}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark_bridge.register(spark)
    try:
        COMMANDS[args.command](spark, args)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
