"""The driver dies while rows are staged or inside its commit; another one with other cores goes on."""

import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.broker_process import PROJECT
from tests.spark.conftest import environment
from tests.spark.helpers import Queue, Source
from tests.waiting import until

START_TIMEOUT_S = 90


def run(queue, directory, cores, *stay, source=""):
    arguments = [
        queue.name,
        str(queue.broker.amqp_port),
        source or str(directory / "in"),
        str(directory / "checkpoint"),
    ]
    log = (directory / "driver.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", *arguments, str(cores), *stay],
        cwd=PROJECT,
        env={**os.environ, **environment()},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def killed_at_mark(queue, directory, cores, moment, source=""):
    mark = directory / f"mark-{moment}"
    driver = run(queue, directory, cores, str(mark), moment, source=source)
    try:
        until(lambda: mark.exists() or driver.poll() is not None, START_TIMEOUT_S)
        assert mark.exists(), (directory / "driver.log").read_text()[-4000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(10)


@pytest.mark.parametrize(
    "moments", [("during",), pytest.param(("before", "after"), marks=pytest.mark.long)], ids="-".join
)
def test_each_row_once_though_the_driver_is_killed(broker, tmp_path, moments):
    queue = Queue(broker, "killed-" + "-".join(moments))
    (tmp_path / "in").mkdir()
    wanted = []
    for number in range(8):
        lines = [f"{number}-{line}" for line in range(200)]
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        wanted += lines
    for cores, moment in enumerate(moments, 2):
        killed_at_mark(queue, tmp_path, cores, moment)
    driver = run(queue, tmp_path, 4)
    assert driver.wait(START_TIMEOUT_S) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    assert queue.bodies(len(wanted)) == sorted(wanted)


@pytest.mark.parametrize(
    "moments", [("after",), pytest.param(("during", "before"), marks=pytest.mark.long)], ids="-".join
)
def test_each_message_of_a_work_queue_once_though_the_driver_that_claimed_it_is_killed(
    broker, tmp_path, moments
):
    work = Source(broker, "claimed-" + "-".join(moments), **{"x-queue-type": "classic"})
    queue = Queue(broker, f"{work.name}-copies")
    wanted = [str(number) for number in range(1_600)]
    work.publish(*wanted)
    for cores, moment in enumerate(moments, 2):
        killed_at_mark(queue, tmp_path, cores, moment, source=f"claim:{work.name}")
        work.publish("late")
    driver = run(queue, tmp_path, 4, source=f"claim:{work.name}")
    assert driver.wait(START_TIMEOUT_S) == 0, (tmp_path / "driver.log").read_text()[-4000:]
    wanted += ["late"] * len(moments)
    assert queue.bodies(len(wanted)) == sorted(wanted)
    assert work.count() == 0
