"""A whole run of `sluicemq bench`, on a broker of its own or a running one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker.commands import bench_measures as measures
from broker.commands.bench_clients import ClientError, Target
from broker.commands.http_api import Api

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0

Tell = Callable[[str], None]
"""Is given what is being measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results; `disk_sync` None: of a broker elsewhere."""

    storage: str
    seconds: float
    disk_sync: measures.Times | None
    lone_confirm: measures.Times
    one_to_one: measures.Rate
    fleet_devices: int
    fleet: measures.Rate
    fleet_answer: measures.Times


def alone(directory: Path | None, seconds: float, devices: int, tell: Tell) -> Results:
    """Measure a broker started for this, with its storage in `directory`. Raises ClientError."""
    with (
        tempfile.TemporaryDirectory("", "sluicemq-bench-", directory) as name,
        _own_broker(Path(name)) as target,
    ):
        return _measure(target, name, Path(name), seconds, devices, tell)


def beside(api: Api, url: str, seconds: float, devices: int, tell: Tell) -> Results:
    """Measure a running broker, in a queue of its own. Raises ClientError."""
    return _measure(_target_of(api, url), str(api.get("/node")["storage"]), None, seconds, devices, tell)


def _measure(
    target: Target,
    storage: str,
    place: Path | None,
    seconds: float,
    devices: int,
    tell: Tell,
) -> Results:
    queue = f"sluicemq-bench-{os.getpid()}"
    tell("syncing to disk")
    disk_sync = None if place is None else measures.sync_times(place, seconds)
    tell("one message at a time")
    lone = measures.lone_confirms(target, queue, seconds)
    tell("one publisher, one consumer")
    one_to_one = measures.one_to_one(target, queue, seconds)
    tell(f"{devices} MQTT devices")
    fleet, answer = measures.mqtt_fleet(target, queue, devices, seconds)
    return Results(
        storage=storage,
        seconds=seconds,
        disk_sync=disk_sync,
        lone_confirm=lone,
        one_to_one=one_to_one,
        fleet_devices=devices,
        fleet=fleet,
        fleet_answer=answer,
    )


@contextlib.contextmanager
def _own_broker(place: Path) -> Iterator[Target]:
    """Run a broker with its storage in `place`, for as long as it is needed."""
    ready, log = place / "ready.json", place / "broker.log"
    command = [sys.executable, "-m", "sluicemq", "serve", "--storage", str(place / "data")]
    command += [part for name in ("mqtt", "amqp", "http") for part in (f"--{name}", "0")]
    command += ["--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClientError(f"the broker did not start: {log.read_text('utf-8', 'replace')[-2_000:]}")
            time.sleep(0.05)
        ports = json.loads(ready.read_text("utf-8"))["ports"]
        yield Target("127.0.0.1", ports["amqp"], ports["mqtt"])
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _target_of(api: Api, url: str) -> Target:
    """Return the plain listeners of a running broker."""
    ports = {each["name"]: each["port"] for each in api.get("/node")["listeners"]}
    missing = {"amqp", "mqtt"} - ports.keys()
    if missing:
        raise ClientError(f"that broker has no listener {' and '.join(sorted(missing))}")
    host = urlsplit(url).hostname or "127.0.0.1"
    return Target(host, ports["amqp"], ports["mqtt"], *(api.login or ("", "")))
