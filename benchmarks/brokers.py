"""The brokers that are measured: SluiceMQ, started on free loopback ports, and peers that run already."""

import argparse
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
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from benchmarks.load import process_stat
from benchmarks.load.target import TLS_NAME, Target
from broker.commands.bench_clients import ClientError
from broker.network.tls.making import Authority, write_pair

HOST = "127.0.0.1"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
SETTLE_STEP_S = 0.2
SETTLED_CPU_SHARE = 0.1
REPOSITORY = Path(__file__).resolve().parent.parent


class Broker:
    """A broker under load; this one runs already and stays as it is: a peer, known by its address."""

    can_restart = False

    def __init__(self, target: Target, tls: Target | None = None, version: str = "unknown") -> None:
        self.target = target
        self.tls = tls
        self.version = version

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.target.name

    def start(self) -> float:
        """Start, on the data that is there; return the seconds until a client could connect."""
        return 0.0

    def stop(self, *, kill: bool = False) -> None:
        """End the process, politely or at once. The data stays."""

    def clear(self) -> None:
        """Stop and remove all that was written."""

    def last_output(self) -> str:
        """Return the end of what the broker printed, on one line."""
        return ""

    def settle(self, limit_s: float = 5.0) -> None:
        """Wait until the broker has finished what earlier runs left it to do."""
        limit = time.monotonic() + limit_s
        while self.target.pid and time.monotonic() < limit:
            before = process_stat.cpu_s(self.target.pid)
            time.sleep(SETTLE_STEP_S)
            if process_stat.cpu_s(self.target.pid) - before <= SETTLE_STEP_S * SETTLED_CPU_SHARE:
                return


def peer(text: str) -> Broker:
    """Read a peer from the command line: `rabbitmq,amqp=5672,mqtt=1883`, with more of the same form.

    `nats` is the port of NATS. `host`, `user`, `password`, `pid` (its processor time and memory are told),
    `version`, and for TLS `amqps`, `mqtts` and `ca`, the file of the authority of its certificate. Raises
    ArgumentTypeError.
    """
    name, *parts = text.split(",")
    given = dict(part.partition("=")[::2] for part in parts)
    try:
        amqp, mqtt, nats, amqps, mqtts, pid = (
            int(given.pop(key, 0)) for key in ("amqp", "mqtt", "nats", "amqps", "mqtts", "pid")
        )
        version, ca_file = given.pop("version", "unknown"), given.pop("ca", "")
        if not amqp + mqtt + nats or not given.keys() <= {"host", "user", "password"}:
            raise ValueError
        ports = Target(name=name, amqp_port=amqp, mqtt_port=mqtt, nats_port=nats, pid=pid)
        target = replace(ports, **given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME,amqp=PORT,mqtt=PORT,...") from None
    tls = replace(target, amqp_port=amqps, mqtt_port=mqtts, ca_file=ca_file) if ca_file else None
    return Broker(target, tls, version)


def free_port() -> int:
    """Return a loopback TCP port on which nothing listens now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


class SluiceMQ(Broker):
    """The broker of this repository, every commit made durable before its confirm, in `directory`.

    `with_tls`: it has ports with TLS, too, and a certificate (ECDSA P-256) made for it.
    """

    can_restart = True

    def __init__(self, directory: Path, *, with_tls: bool = False) -> None:
        project = (REPOSITORY / "pyproject.toml").read_text()
        found = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
        target = Target(name="sluicemq", amqp_port=free_port(), mqtt_port=free_port())
        super().__init__(target, version=found.group(1) if found else "unknown")
        self.directory = directory / self.name
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        if with_tls:
            authority = Authority.made()
            write_pair(self.directory, "ca", authority.key, authority.certificate)
            write_pair(self.directory, "server", *authority.issue(TLS_NAME, [TLS_NAME], is_server=True))
            ca_file = str(self.directory / "ca.crt")
            self.tls = replace(target, amqp_port=free_port(), mqtt_port=free_port(), ca_file=ca_file)

    def configuration(self) -> dict[str, Any]:
        """What it is configured with."""
        settings: dict[str, Any] = {"storage": {"sync": "always"}}
        if self.tls is not None:
            pem = {
                name: str(self.directory / f"server.{end}") for name, end in (("cert", "crt"), ("key", "key"))
            }
            ports = {"amqps": self.tls.amqp_port, "mqtts": self.tls.mqtt_port}
            settings["listeners"] = {name: {"port": port, "tls": pem} for name, port in ports.items()}
        return settings

    def command(self) -> list[str]:
        """What starts it."""
        return [
            *(sys.executable, "-m", "broker", "serve"),
            *("--config", str(self.directory / "config.yaml")),
            *("--storage", str(self.directory / "data")),
            *("--mqtt", str(self.target.mqtt_port)),
            *("--amqp", str(self.target.amqp_port)),
            *("--http", "0"),
            *("--ready-file", str(self.directory / "ready.json")),
        ]

    def spawn(self) -> None:
        """Start the process, without waiting until it serves; SIGTERM ends this program as Ctrl-C does from
        now on, so that the broker is stopped.
        """
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        (self.directory / "config.yaml").write_text(yaml.safe_dump(self.configuration()))
        (self.directory / "ready.json").unlink(missing_ok=True)
        with (self.directory / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.target = replace(self.target, pid=self._process.pid)

    def start(self) -> float:
        """Start, as `spawn`, and wait until it serves."""
        begin = time.monotonic()
        self.spawn()
        process = self._process
        assert process is not None
        try:
            while not self._serves():
                if process.poll() is not None or time.monotonic() > begin + START_TIMEOUT_S:
                    raise ClientError(f"{self.name} does not start: {self.last_output()}")
                time.sleep(0.02)
        except BaseException:
            self.stop(kill=True)
            raise
        return time.monotonic() - begin

    def _serves(self) -> bool:
        """Whether a client gets through its handshake on every port."""
        try:
            ports = json.loads((self.directory / "ready.json").read_text())["ports"]
            self.target = replace(self.target, http_port=ports["http"])
            self.target.amqp(2).close()
            self.target.mqtt("probe", 2).close()
        except (OSError, ValueError, ClientError):
            return False
        return True

    def last_output(self) -> str:
        """Return the end of what the broker printed, on one line."""
        log = self.directory / "output.log"
        text = log.read_text(errors="replace")[-600:] if log.exists() else ""
        return " ".join(text.split())

    def stop(self, *, kill: bool = False) -> None:
        """End the process group: politely (the data stays usable) or at once."""
        process, self._process = self._process, None
        if process is None:
            return
        if not kill and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def clear(self) -> None:
        """Stop and remove all that was written."""
        self.stop(kill=True)
        shutil.rmtree(self.directory, ignore_errors=True)


B = TypeVar("B", bound=SluiceMQ)


@contextlib.contextmanager
def started(make: Callable[[Path], B]) -> Iterator[B]:
    """Run a broker, in a directory that is removed with what it wrote."""
    with tempfile.TemporaryDirectory(prefix="sluicemq-bench-") as directory:
        broker = make(Path(directory))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
