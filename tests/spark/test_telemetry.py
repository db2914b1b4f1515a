"""The telemetry pipeline on a small data set: streamed in two runs, compared with batch jobs."""

import json
import os
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import spark_bridge
from spark_bridge.pipelines import telemetry
from tests.e2e import amqp
from tests.spark.helpers import Queue

BEGIN = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
ODD = {("a", 1), ("b", 0), ("c", 7)}  # device and minute
MALFORMED = [b"", b"\xff{", b'{"device": "a/b", "seq": 1, "ts": "2026-01-01T09:00:00Z", "value": 1}']


def reading(device, seq, second, **more):
    taken = (BEGIN + timedelta(seconds=second)).isoformat()
    return json.dumps({"device": device, "seq": seq, "ts": taken, **more}).encode()


def minute(number):
    """Six readings of each device, the second one behind the third, the last one twice."""
    found = []
    for second in (5, 25, 15, 35, 45, 55, 55):
        for device in "abcd":
            value = 90.125 if (device, number) in ODD else 20.5
            second_of_all = 60 * number + second
            found.append(reading(device, second_of_all, second_of_all, value=value))
    return found


def publish(broker, queue, bodies):
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    amqp.publish(channel, queue, *bodies)
    amqp.close_quietly(connection)


def rows(directory):
    return [json.loads(line) for path in directory.glob("*.json") for line in path.read_text().splitlines()]


@pytest.mark.long
def test_alerts_archive_and_dead_letters(spark, broker, tmp_path, capfd):
    url = f"amqp://127.0.0.1:{broker.amqp_port}/"
    Queue(broker, "telemetry", **{"x-queue-type": "stream"})
    for name in ("telemetry-rejected", "alerts-dead"):
        Queue(broker, name, **{"x-queue-type": "stream"})
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "alerts-dead"}
    sink = Queue(broker, "alerts", **dead)

    def run(command, *given):
        args = telemetry.arguments([command, "--broker", url, *given])
        telemetry.COMMANDS[args.command](spark, args)

    archive = str(tmp_path / "archive")
    streaming = ["alerts", "archive", "rejected", "--once", "--checkpoints", str(tmp_path / "checkpoints")]
    streaming += ["--archive", archive]
    publish(broker, "telemetry", [body for number in range(4) for body in minute(number)] + MALFORMED)
    run("run", *streaming)
    # far too late: its window was closed, and would be an alert with it
    late = reading("d", 1, 1, value=99)
    publish(broker, "telemetry", [late, *(body for number in range(4, 8) for body in minute(number))])
    publish(broker, "telemetry", [reading(device, 999, 999, tick=True) for device in "abcd"])
    run("run", *streaming)
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert sum(line["late"] for line in told) == 1
    assert max(line["end"]["telemetry"] for line in told) == 8 * 28 + 3 + 1 + 4

    deliveries = sink.take(3)
    alerts = {delivery.properties.message_id: json.loads(delivery.body) for delivery in deliveries}
    assert len(deliveries) == len(alerts) == 3
    assert set(alerts) == {f"{device}|2026-01-01T09:{number:02}:00Z" for device, number in ODD}
    assert alerts["a|2026-01-01T09:01:00Z"] == {
        "device": "a", "from": "2026-01-01T09:01:00Z", "until": "2026-01-01T09:02:00Z",
        "readings": 6, "average": 90.125, "peak": 90.125, "severity": "warning",
    }  # fmt: skip
    for source in ([], ["--archive", archive]):
        run("recompute", "--out", str(tmp_path / "recomputed"), *source)
        found = {row.pop("alert_id"): row for row in rows(tmp_path / "recomputed")}
        undecided = found.pop("d|2026-01-01T09:00:00Z")
        assert (undecided["late"], undecided["severity"]) == (1, "critical")
        assert found == alerts

    publish(broker, "alerts", [b'{"device": "a"}'])
    connection = amqp.connect(broker.amqp_port)
    reader = amqp.Collector(connection.channel(), "alerts")
    reader.wait(1)
    reader.channel.basic_reject(reader.deliveries[0].tag, requeue=False)
    reader.wait_quiet()
    amqp.close_quietly(connection)
    run("dead-letters", "--out", str(tmp_path / "report"))
    report = {
        (row["queue"], row["source"], row["reason"]): row["letters"] for row in rows(tmp_path / "report")
    }
    assert report == {
        ("alerts-dead", "alerts", "rejected"): 1,
        ("telemetry-rejected", "telemetry", "malformed"): 2,
        ("telemetry-rejected", "telemetry", "device"): 1,
    }


@pytest.mark.long
def test_the_bridge_comes_as_a_file_beside_the_job(broker, tmp_path):
    Queue(broker, "alone", **{"x-queue-type": "stream"})
    sink = Queue(broker, "alone-rejected")
    publish(broker, "alone", [b"no reading"])
    folder = Path(spark_bridge.__file__).parent
    with zipfile.ZipFile(tmp_path / "bridge.zip", "w") as file:
        for path in folder.rglob("*.py"):
            file.write(path, Path("spark_bridge") / path.relative_to(folder))
    job = tmp_path / "telemetry.py"
    job.write_text(Path(telemetry.__file__).read_text())
    command = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    command += ["--py-files", "bridge.zip", job, "run", "rejected", "--once", "--checkpoints", "checkpoints"]
    command += ["--telemetry", "alone", "--rejected", "alone-rejected"]
    command += ["--broker", f"amqp://127.0.0.1:{broker.amqp_port}/"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sink.bodies(1) == ["no reading"]
