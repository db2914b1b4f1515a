"""The broker as a process of its own: start, kill, start again on the same ports and storage."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 15


class BrokerProcess:
    """One broker with its data below `directory`; `ports` are kept from the first start on."""

    def __init__(self, directory: Path, config: Path | None = None) -> None:
        self._config = ["--config", str(config)] if config else []
        self.ports = {"mqtt": 0, "amqp": 0}
        self._storage = directory / "data"
        self._ready_file = directory / "ready.json"
        self._log_file = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it and wait until it serves; gives the seconds that took. Raises RuntimeError if it ends."""
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "sluicemq", "serve", "--storage", str(self._storage), *self._config]
        command += ["--mqtt", str(self.ports["mqtt"]), "--amqp", str(self.ports["amqp"])]
        command += ["--ready-file", str(self._ready_file)]
        began = time.monotonic()
        with self._log_file.open("ab") as log:
            # a session of its own: Ctrl-C is for the demo, which then stops the broker
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while not self._ready_file.exists():
            if self._process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                log_end = self._log_file.read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"the broker did not start:\n{log_end}")
            time.sleep(0.01)
        self.ports = json.loads(self._ready_file.read_text())["ports"]
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it if it runs, as gently as it lets us."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
