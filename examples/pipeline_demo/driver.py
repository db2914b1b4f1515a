"""Spark as it is started on a cluster, by `spark-submit`, only with a local master."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
STOP_TIMEOUT_S = 30


def _bridge() -> Path:
    """The folder of the package `spark_bridge`, which this process has no need to import."""
    found = find_spec("spark_bridge")
    if found is None or found.origin is None:
        sys.exit("this example needs the Spark bridge: pip install ./spark_bridge")
    return Path(found.origin).parent


BRIDGE = _bridge()
PIPELINE = BRIDGE / "pipelines" / "telemetry.py"


class Driver:
    """One `spark-submit` of the telemetry pipeline; what it says goes to `log`."""

    def __init__(self, cores: int, log: Path, arguments: Sequence[str]) -> None:
        self._log = log
        command = [str(Path(sys.executable).parent / "spark-submit"), "--master", f"local[{cores}]"]
        for name, value in CONF.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": _path()}
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*command, str(PIPELINE), *arguments],
                cwd=log.parent,
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def progress(self) -> dict[str, dict[str, Any]]:
        """The last batch of each query; raises RuntimeError if the driver has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the Spark driver ended\n{self._log_end()}")
        found = {}
        for line in self._log.read_text(errors="replace").splitlines():
            if line.startswith('{"query"') and line.endswith("}"):
                batch = json.loads(line)
                found[batch["query"]] = batch
        return found

    def effort(self) -> tuple[int, int]:
        """What moves while it is at work: the bytes of its log, the processor seconds of its processes."""
        cpu_s = 0.0
        try:
            main = psutil.Process(self._process.pid)
            for process in (main, *main.children(recursive=True)):
                times = process.cpu_times()
                cpu_s += times.user + times.system
        except psutil.NoSuchProcess:  # one of them ended just now
            pass
        return self._log.stat().st_size, int(cpu_s)

    def kill(self) -> int:
        """kill -9 of the JVM, the Python driver and all their workers; gives how many there were."""
        try:
            main = psutil.Process(self._process.pid)
            # the parent first: it must not see its children die
            family = [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        self._process.wait()
        psutil.wait_procs(family[1:], timeout=5)
        return len(family)

    def stop(self) -> None:
        """Ask the pipeline to end, and wait for it; raises RuntimeError if it does not or fails."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if str(PIPELINE) in process.cmdline() and "python" in process.name():
                    process.send_signal(signal.SIGTERM)
            except psutil.NoSuchProcess:  # Spark's workers come and go
                pass
        self.wait(STOP_TIMEOUT_S)

    def wait(self, timeout_s: float) -> None:
        """Until it ends by itself."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the Spark driver did not end\n{self._log_end()}") from None
        if code:
            raise RuntimeError(f"the Spark driver failed\n{self._log_end()}")

    def poll(self) -> bool:
        """Whether it has ended; raises RuntimeError if it failed."""
        if self._process.poll() is None:
            return False
        self.wait(0)
        return True

    def text(self) -> str:
        """Everything it has said."""
        return self._log.read_text(errors="replace")

    def _log_end(self) -> str:
        return self.text()[-3_000:]


def _path() -> str:
    return os.pathsep.join(filter(None, [str(BRIDGE.parent), os.environ.get("PYTHONPATH", "")]))
