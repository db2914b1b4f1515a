"""Starts and stops the brokers that are compared, each on free loopback ports in its own directory."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import yaml

from benchmarks.load import process_stat
from benchmarks.load.amqp_wire import AmqpClient
from benchmarks.load.crew import LoadError
from benchmarks.load.mqtt_wire import MqttClient
from benchmarks.load.target import ANYBODY, Target

HOST = "127.0.0.1"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
SETTLE_STEP_S = 0.2
SETTLED_CPU_SHARE = 0.1
REPOSITORY = Path(__file__).resolve().parent.parent


class BrokerUnavailable(Exception):
    """The broker cannot be started here; the text says why."""


def free_port() -> int:
    """A loopback TCP port nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def end_when_terminated() -> None:
    """Have SIGTERM end this program as Ctrl-C does, so that the brokers it started are stopped."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Broker:
    """One broker process group. `start()` returns once a client is served; `stop()` leaves nothing."""

    name = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / self.name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.amqp_port = 0
        self.mqtt_port = 0
        self.login = ANYBODY
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def version(self) -> str:
        """What is compared. Raises BrokerUnavailable when it is not installed."""
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def prepare(self) -> None:
        """Write configuration and choose ports; called before every first start."""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def target(self) -> Target:
        return Target(self.name, HOST, self.amqp_port, self.mqtt_port, self.pid, self.login)

    def start(self) -> float:
        """Start (again, on the same data); returns the seconds until a client could connect."""
        if not self.amqp_port and not self.mqtt_port:
            self.version()
            self.prepare()
        end_when_terminated()
        begin = time.monotonic()
        self._log = (self.directory / "output.log").open("ab")
        self._process = subprocess.Popen(
            self.command(),
            cwd=REPOSITORY,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._wait_served(begin + START_TIMEOUT_S)
        except BaseException:
            self.stop(kill=True)
            raise
        return time.monotonic() - begin

    def serves(self) -> bool:
        """Whether a client gets through its handshake on every port."""
        try:
            if self.amqp_port:
                AmqpClient(HOST, self.amqp_port, wait_s=2, login=self.login).close()
            if self.mqtt_port:
                MqttClient(HOST, self.mqtt_port, "probe", wait_s=2, login=self.login).close()
        except (OSError, LoadError):
            return False
        return True

    def _wait_served(self, limit: float) -> None:
        while not self.serves():
            if self._process is None or self._process.poll() is not None:
                raise BrokerUnavailable(f"{self.name} stopped while starting: {self.last_output()}")
            if time.monotonic() > limit:
                raise BrokerUnavailable(f"{self.name} did not serve in time: {self.last_output()}")
            time.sleep(0.02)

    def last_output(self) -> str:
        """The end of what the broker printed, on one line."""
        log = self.directory / "output.log"
        text = log.read_text(errors="replace")[-600:] if log.exists() else ""
        return " ".join(text.split())

    def settle(self, limit_s: float = 5.0) -> None:
        """Wait until the broker has finished what earlier runs left it to do."""
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            before = process_stat.cpu_s(self.pid)
            time.sleep(SETTLE_STEP_S)
            if process_stat.cpu_s(self.pid) - before <= SETTLE_STEP_S * SETTLED_CPU_SHARE:
                return

    def stop(self, *, kill: bool = False) -> None:
        """End the process group: politely (the data stays usable) or at once."""
        process, self._process = self._process, None
        if process is not None:
            if not kill and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        if self._log is not None:
            self._log.close()
            self._log = None

    def clear(self) -> None:
        """Stop and remove everything it wrote."""
        self.stop(kill=True)
        shutil.rmtree(self.directory, ignore_errors=True)


B = TypeVar("B", bound=Broker)


@contextlib.contextmanager
def started(make: Callable[[Path], B]) -> Iterator[B]:
    """A broker that runs, in a directory that is removed with what it wrote."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        broker = make(Path(directory))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


class SluiceMQ(Broker):
    """The broker of this repository, every commit made durable before its confirm."""

    name = "sluicemq"

    def version(self) -> str:
        answer = _output([sys.executable, "-m", "broker", "serve", "--help"], REPOSITORY)
        if answer is None:
            raise BrokerUnavailable("the broker package does not run here")
        project = (REPOSITORY / "pyproject.toml").read_text()
        found = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
        return found.group(1) if found else "unknown"

    def prepare(self) -> None:
        self.amqp_port, self.mqtt_port = free_port(), free_port()
        (self.directory / "config.yaml").write_text(yaml.safe_dump(self.configuration()))

    def configuration(self) -> dict[str, Any]:
        """What it is configured with."""
        return {"storage": {"sync": "always"}}

    def command(self) -> list[str]:
        (self.directory / "ready.json").unlink(missing_ok=True)
        return [
            *(sys.executable, "-m", "broker", "serve"),
            *("--config", str(self.directory / "config.yaml")),
            *("--storage", str(self.directory / "data")),
            *("--mqtt", str(self.mqtt_port)),
            *("--amqp", str(self.amqp_port)),
            *("--http", "0"),
            *("--ready-file", str(self.directory / "ready.json")),
        ]

    def serves(self) -> bool:
        try:
            json.loads((self.directory / "ready.json").read_text())
        except (OSError, ValueError):
            return False
        return super().serves()


class RabbitMQ(Broker):
    """One RabbitMQ node with its own name, data, epmd and distribution port."""

    name = "rabbitmq"
    scripts = Path("/usr/lib/rabbitmq/bin")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port = 0
        self._distribution_port = 0

    def version(self) -> str:
        if not (self.scripts / "rabbitmq-server").exists() or _epmd_program() is None:
            raise BrokerUnavailable("not installed (Debian: apt install rabbitmq-server)")
        package = _output(["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"])
        return (package or "unknown").strip()

    def prepare(self) -> None:
        self.amqp_port, self.mqtt_port = free_port(), free_port()
        self._epmd_port, self._distribution_port = free_port(), free_port()
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.amqp_port}\n"
            f"mqtt.listeners.tcp.1 = {HOST}:{self.mqtt_port}\n"
            "mqtt.allow_anonymous = true\n"
            "mqtt.default_user = guest\nmqtt.default_pass = guest\n"
            "vm_memory_high_watermark.relative = 0.8\n"
            "disk_free_limit.absolute = 50MB\n"
            "log.console = true\nlog.console.level = error\nlog.file = false\n"
        )
        (self.directory / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")

    def environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.directory),
            "RABBITMQ_HOME": str(self.directory),
            "RABBITMQ_NODENAME": f"bench{self.amqp_port}@localhost",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the Erlang VM instead of its parent
            "LANG": "C.UTF-8",
        }
        return dict(os.environ) | own

    def command(self) -> list[str]:
        return [str(self.scripts / "rabbitmq-server")]

    def start(self) -> float:
        if not self._epmd_port:
            self.version()
            self.prepare()
        if self._epmd is None:
            program = _epmd_program()
            assert program is not None
            self._epmd = subprocess.Popen(
                [program, "-port", str(self._epmd_port), "-address", HOST],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return super().start()

    def stop(self, *, kill: bool = False) -> None:
        super().stop(kill=kill)
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.kill()
            epmd.wait(10)


class Mosquitto(Broker):
    """mosquitto with every queue limit lifted, so that nothing is dropped."""

    name = "mosquitto"
    persistence = False

    def version(self) -> str:
        program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if program is None:
            raise BrokerUnavailable("not installed (Debian: apt install mosquitto)")
        self._program = program
        answer = _output([program, "-h"], codes=(0, 1, 3)) or ""
        return answer.splitlines()[0].removeprefix("mosquitto version ") if answer else "unknown"

    def prepare(self) -> None:
        self.mqtt_port = free_port()
        lines = [
            f"listener {self.mqtt_port} {HOST}",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "max_queued_messages 0",
            "max_queued_bytes 0",
            "max_inflight_messages 0",
            "log_type error",
            "log_dest stderr",
            "connection_messages false",
            "sys_interval 0",
            f"persistence {'true' if self.persistence else 'false'}",
        ]
        if self.persistence:
            lines += [f"persistence_location {self.directory}/", "autosave_interval 1"]
        if os.geteuid() == 0:
            lines.append("user root")
        (self.directory / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self._program, "-c", str(self.directory / "mosquitto.conf")]


def _epmd_program() -> str | None:
    return shutil.which("epmd", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")


def _output(command: list[str], directory: Path | None = None, codes: tuple[int, ...] = (0,)) -> str | None:
    """What a short command prints, or None when it fails."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in codes else None
