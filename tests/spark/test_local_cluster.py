"""Several executors: there a repeated task behind a shuffle really gets its rows in another order."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.broker_process import PROJECT
from tests.spark.conftest import environment
from tests.spark.helpers import Queue, Source
from tests.waiting import until

pytestmark = pytest.mark.long
ROWS = 3_000
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
START_TIMEOUT_S = 30


def spark_environment():
    import pyspark

    return {**os.environ, **environment(), "SPARK_HOME": str(Path(pyspark.__file__).parent)}


def run(master, queue, marks, mode):
    marks.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.cluster_job", master),
            *(queue.name, str(queue.broker.amqp_port), str(ROWS), str(marks), mode),
        ],
        cwd=PROJECT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def each_once(queue):
    return queue.bodies(ROWS) == sorted(str(number) for number in range(ROWS))


def test_a_task_repeated_behind_a_shuffle(broker, tmp_path):
    queue = Queue(broker, "clustered")
    run(LOCAL_CLUSTER, queue, tmp_path / "marks", "task")
    assert (tmp_path / "marks" / "task").exists()
    assert each_once(queue)


def test_a_stage_repeated_because_an_executor_was_killed(broker, tmp_path):
    queue = Queue(broker, "staged-again")
    run(LOCAL_CLUSTER, queue, tmp_path / "marks", "executor")
    marks = [path.name for path in (tmp_path / "marks").iterdir()]
    assert "executor" in marks
    # attempts are counted anew when a stage is
    attempts = [name.rpartition("-")[0] for name in marks if name.startswith("attempt-")]
    assert len(set(attempts)) < len(attempts)
    assert each_once(queue)


def test_executors_read_a_stream_and_what_the_driver_claimed(broker, tmp_path):
    queue = Queue(broker, "read-by-many")
    stream, work = Source(broker, "read-by-many-stream"), Queue(broker, "read-by-many-work")
    stream.publish(*map(str, range(ROWS)))
    run(LOCAL_CLUSTER, queue, tmp_path / "marks", "copy")
    assert len(list((tmp_path / "marks").glob("executor-*"))) == 2
    assert each_once(queue)
    assert work.count() == 0


@contextlib.contextmanager
def cluster(directory):
    """A master and two workers with different addresses: only then does Spark speculate."""
    spark = spark_environment()
    launcher = f"{spark['SPARK_HOME']}/bin/spark-class"
    processes = []

    def start(name, *arguments):
        log = directory / f"{name}.log"
        with log.open("wb") as out:
            processes.append(
                subprocess.Popen(
                    [launcher, f"org.apache.spark.deploy.{name.rstrip('12')}", *arguments],
                    env={**spark, "SPARK_WORKER_DIR": str(directory / "work"), "SPARK_DAEMON_MEMORY": "256m"},
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )
        return log

    def wait_for(log, pattern):
        found = until(
            lambda: re.search(pattern, log.read_text()),
            START_TIMEOUT_S,
            told=lambda: log.read_text()[-3000:],
        )
        return found[0]

    try:
        master_log = start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = wait_for(master_log, r"spark://127\.0\.0\.1:\d+")
        for number in (1, 2):
            worker = ("--host", f"127.0.0.{number}", "--webui-port", "0", "--cores", "2", "--memory", "1g")
            start(f"worker.Worker{number}", *worker, master)
        wait_for(master_log, r"(?s)Registering worker.*Registering worker")
        yield master
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait(10)


def test_two_attempts_at_one_task_at_the_same_time(broker, tmp_path):
    queue = Queue(broker, "speculated")
    with cluster(tmp_path) as master:
        run(master, queue, tmp_path / "marks", "speculation")
    assert len(list((tmp_path / "marks").glob("attempt-0-1-*"))) == 1
    assert each_once(queue)
