"""Two executors: there a repeated task behind a shuffle really gets its rows in another order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.broker_process import PROJECT
from tests.spark.conftest import environment
from tests.spark.helpers import Queue

ROWS = 3_000


@pytest.mark.long
def test_a_task_repeated_behind_a_shuffle(broker, tmp_path):
    import pyspark

    queue = Queue(broker, "clustered")
    mark = tmp_path / "failed"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.cluster_job"),
            *(queue.name, str(broker.amqp_port), str(ROWS), str(mark)),
        ],
        cwd=PROJECT,
        env={**os.environ, **environment(), "SPARK_HOME": str(Path(pyspark.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert mark.exists()
    assert queue.bodies(ROWS) == sorted(str(number) for number in range(ROWS))
