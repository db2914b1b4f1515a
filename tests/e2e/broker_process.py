"""A SluiceMQ broker as its own process on free loopback ports, with a storage directory of the test."""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.copied_process import AHEAD_VARIABLE, PROJECT, SOURCE, CopiedProcess
from tests.waiting import pass_time, until

INSTALLED_PYTHON = os.environ.get("INSTALLED_PYTHON", "")  # of an environment with the wheel: make test-wheel
# an installed broker runs where modules of others have names of ours
WORKING_DIRECTORY = PROJECT / "tests" / "wheel" / "hostile" if INSTALLED_PYTHON else PROJECT
WORKERS = int(os.environ.get("TEST_WORKERS", "1"))  # of brokers whose test does not say: make test-workers
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
AT_ONCE_S_MAX = 10.0  # by which the clocks of a broker are put forward

Process = subprocess.Popen[bytes] | CopiedProcess

_running: set[Process] = set()


def _kill_group(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(timeout=10)
    _running.discard(process)


@atexit.register
def _kill_what_is_left() -> None:
    for process in list(_running):
        _kill_group(process)


def command_line(*arguments: str) -> list[str]:
    """The command under test, to be run in WORKING_DIRECTORY: of this checkout, or of an installed wheel."""
    return [INSTALLED_PYTHON or sys.executable, "-m", "sluicemq", *arguments]


class BrokerFailed(Exception):
    """The broker did not start, or did not stop as it should; the text ends with its log."""


class BrokerProcess:
    """One broker and its storage directory; may be stopped, killed and started again on the same storage.

    `config` overrides the defaults of the configuration file, section by section; `arguments` are further
    options of `serve`, `before_exec` is called in the process before it becomes the broker. What is `timed`
    has `pass_time` put its clocks forward. The attributes
    `ports` (by listener name) and `pid` hold while it runs. Every start takes new free ports, unless
    `ports_wanted` or `restart` say otherwise.
    """

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any] | None = None,
        *,
        storage: str | None = None,
        environment: dict[str, str] | None = None,
        arguments: Sequence[str] = (),
        before_exec: Callable[[], None] | None = None,
        working_directory: Path = WORKING_DIRECTORY,
        timed: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.config = {"workers": WORKERS} | (config or {}) if WORKERS > 1 else config or {}
        self.storage = storage or str(directory / "data")
        self.environment = environment or {}
        self.arguments = arguments
        self.before_exec = before_exec
        self.working_directory = working_directory
        self.timed = timed
        self._ahead_file = directory / "ahead"
        self._ahead_s = 0.0
        self.config_file = directory / "sluicemq.yaml"
        self.ready_file = directory / "ready.json"
        self.log_file = directory / "broker.log"
        self.process: Process | None = None
        self.ports: dict[str, int] = {}
        self.pid = 0
        self.ports_wanted = {"mqtt": 0, "amqp": 0, "http": 0}

    @property
    def mqtt_port(self) -> int:
        return self.ports["mqtt"]

    @property
    def amqp_port(self) -> int:
        return self.ports["amqp"]

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def log(self) -> str:
        """Everything the broker wrote to stdout and stderr, over all its starts."""
        return self.log_file.read_text("utf-8", errors="replace") if self.log_file.exists() else ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> Process:
        """Start the process without waiting for it to serve."""
        if self.alive:
            raise BrokerFailed("already running")
        self.ready_file.unlink(missing_ok=True)
        self.config_file.write_text(yaml.safe_dump(self.config), "utf-8")
        arguments = ["serve", "--config", str(self.config_file), "--storage", self.storage]
        arguments += [part for name, port in self.ports_wanted.items() for part in (f"--{name}", str(port))]
        arguments += ["--ready-file", str(self.ready_file), *self.arguments]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        if self._may_be_copied():
            if self.timed:
                environment[AHEAD_VARIABLE] = str(self._ahead_file)
            self.process = SOURCE.start(arguments, self.working_directory, environment, self.log_file)
        else:
            with self.log_file.open("ab") as log:
                self.process = subprocess.Popen(
                    command_line(*arguments),
                    cwd=self.working_directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=self.before_exec,
                )
        _running.add(self.process)
        return self.process

    def _may_be_copied(self) -> bool:
        """Whether the process may begin as a copy of one that has imported everything."""
        needs_own_interpreter = (
            INSTALLED_PYTHON  # the wheel's modules, not these
            or self.before_exec
            or self.working_directory != WORKING_DIRECTORY
            or any(name.startswith("PYTHON") for name in self.environment)
        )
        return not needs_own_interpreter

    def start(self, timeout_s: float = START_TIMEOUT_S) -> "BrokerProcess":
        """Start and wait until it serves. Raises BrokerFailed with the log when it does not."""
        self.spawn()
        return self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> "BrokerProcess":
        """Wait until what was spawned serves. Raises BrokerFailed with the log when it does not."""
        process = self.process
        assert process is not None
        try:
            until(lambda: process.poll() is not None or self._read_ready_file(), timeout_s)
        except AssertionError:
            self.kill9()
            raise BrokerFailed(f"not ready after {timeout_s} s\n{self.log[-4000:]}") from None
        if process.poll() is not None:
            _running.discard(process)
            raise BrokerFailed(f"exited with {process.returncode} at start\n{self.log[-4000:]}")
        return self

    def _read_ready_file(self) -> bool:
        try:
            ready = json.loads(self.ready_file.read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):  # absent, or half written
            return False
        self.ports = {name: int(port) for name, port in ready["ports"].items()}
        self.pid = int(ready["pid"])
        return True

    def wait_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit status, waiting for it. Kills and raises BrokerFailed when it does not come."""
        assert self.process is not None
        try:
            status = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(self.process)
            raise BrokerFailed(f"did not exit within {timeout_s} s\n{self.log[-4000:]}") from None
        _running.discard(self.process)
        return status

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, then the exit status (0: drained)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def kill9(self) -> None:
        """SIGKILL to the whole process group; nothing is written any more."""
        if self.process is not None:
            _kill_group(self.process)

    @property
    def ahead_s(self) -> float:
        """By how much its clocks are ahead of ours."""
        return self._ahead_s

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for a broker that is `timed`: at once, if its clocks can be put forward.

        What is due by then has begun when this returns, and is done when the broker has answered a few times.
        Waits for the store go on, too, so put them forward by no more than `AT_ONCE_S_MAX`.
        """
        assert self.timed, "its clocks cannot be put forward"
        if not self._may_be_copied():
            pass_time(seconds)
            return
        assert seconds < AT_ONCE_S_MAX, "what waits for the disk would be out of time"
        self._ahead_s += seconds
        whole = self._ahead_file.with_suffix(".new")
        whole.write_text(str(self._ahead_s))
        whole.replace(self._ahead_file)
        if self.alive:
            until(lambda: all(self._is_ahead(pid) for pid in self._pids()))

    def _pids(self) -> list[int]:
        """The broker's processes: the one that was started, and its workers where it has several."""
        assert self.process is not None
        ready = json.loads(self.ready_file.read_text("utf-8")) if self.ready_file.exists() else {}
        return [self.process.pid, *ready.get("workers", ())]

    def _is_ahead(self, pid: int) -> bool:
        """Whether the clocks of the process are ahead as wanted; it is told to look if they are not."""
        seen = self._ahead_file.with_suffix(f".seen-{pid}")
        if seen.exists() and seen.read_text() == str(self._ahead_s):
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
        return False

    def restart(
        self, *, kill: bool = False, same_amqp_port: bool = False, timeout_s: float = START_TIMEOUT_S
    ) -> "BrokerProcess":
        """Stop (or kill -9) and start again on the same storage; the ports change if not told otherwise."""
        self.ports_wanted["amqp"] = self.amqp_port if same_amqp_port else 0
        if kill:
            self.kill9()
        else:
            status = self.stop()
            if status != 0:
                raise BrokerFailed(f"SIGTERM: exit status {status}, not 0\n{self.log[-4000:]}")
        return self.start(timeout_s)


class ForeignBroker:
    """Another broker already running on loopback, from E2E_AMQP_PORT and E2E_MQTT_PORT: to test the tests."""

    alive = True
    log = ""

    def __init__(self, amqp_port: int, mqtt_port: int) -> None:
        self.amqp_port = amqp_port
        self.mqtt_port = mqtt_port
        self.ports = {"amqp": amqp_port, "mqtt": mqtt_port}

    def pass_time(self, seconds: float) -> None:
        pass_time(seconds)

    @classmethod
    def from_environment(cls) -> "ForeignBroker | None":
        amqp_port = os.environ.get("E2E_AMQP_PORT")
        mqtt_port = os.environ.get("E2E_MQTT_PORT")
        if not amqp_port and not mqtt_port:
            return None
        return cls(int(amqp_port or 1), int(mqtt_port or 1))


Broker = BrokerProcess | ForeignBroker
