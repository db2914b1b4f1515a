"""Who runs the broker: what a process hears from there, and what it tells."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from broker.network.listening import ListenError
from broker.process.service_manager import ServiceManager
from broker.version import PRODUCT, VERSION
from config.settings import Settings
from storage.open import storage_holder

_NAMES: Final = {
    "mqtt": "MQTT 3.1.1 and 5",
    "mqtts": "the same over TLS",
    "mqtt_ws": "over WebSocket",
    "mqtt_wss": "over WebSocket, TLS",
    "amqp": "AMQP 0.9.1 and 1.0",
    "amqps": "the same over TLS",
    "amqp_ws": "over WebSocket",
    "amqp_wss": "over WebSocket, TLS",
    "http": "HTTP",
    "https": "the same over TLS",
    "mqcore": "MQ-Core",
    "mqcores": "the same over TLS",
}


class Outside(Protocol):
    """Who started the process and may end it."""

    @property
    def alive_interval_s(self) -> float:
        """How often `alive` is to be called; 0: nobody listens."""

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Have `stop` called each time that the broker is told to stop."""

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Have `reload` called when settings are to be read anew."""

    def reloaded(self) -> None:
        """Tell that settings were read anew, and not because of `on_reload`."""

    def serving(self, ports: Mapping[str, int], storage: str) -> None:
        """Tell that clients are let in, and where."""

    def cannot_start(self, reason: str) -> None:
        """Tell that nobody will be served, and why."""

    def alive(self) -> None:
        """Tell that the event loop turns."""

    def stopping(self, status: str) -> None:
        """Tell that the broker stops, and why."""

    def stopped(self) -> None:
        """Tell that nobody is served any more."""


class Process:
    """The outside of a broker that is one process: signals, standard output, the ready file, systemd."""

    def __init__(self, settings: Settings, ready_file: Path | None) -> None:
        self._settings = settings
        self._ready_file = ready_file
        self._manager = ServiceManager()

    @property
    def alive_interval_s(self) -> float:
        return self._manager.alive_interval_s

    def on_stop(self, stop: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

    def on_reload(self, reload: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)

    def reloaded(self) -> None:
        pass

    def serving(self, ports: Mapping[str, int], storage: str) -> None:
        announce(self._settings, ports, storage)
        if self._ready_file is not None:
            write_ready_file(self._ready_file, {"ports": dict(ports)})
        self._manager.ready(status_text(ports))

    def cannot_start(self, reason: str) -> None:
        tell_failure(reason)

    def alive(self) -> None:
        self._manager.alive()

    def stopping(self, status: str) -> None:
        self._manager.stopping(status)

    def stopped(self) -> None:
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)


def listen_failure(error: ListenError, settings: Settings) -> str:
    """Describe why there is no broker, and who may be in its place."""
    holder = storage_holder(settings.storage)
    hint = f" ({settings.storage.url} is in use by {holder})" if holder else ""
    return f"cannot listen: {error.reason}{hint}"


def tell_failure(reason: str) -> None:
    """Say on standard error why there is no broker."""
    print(f"sluicemq: {reason}", file=sys.stderr, flush=True)


def status_text(ports: Mapping[str, int]) -> str:
    """Return what service managers show of a broker that serves."""
    return ", ".join(f"{name} on port {port}" for name, port in ports.items())


def write_ready_file(path: Path, told: Mapping[str, Any]) -> None:
    """Write, in one step, that this process serves."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps({"pid": os.getpid(), **told}))
    partial.replace(path)


def announce(settings: Settings, ports: Mapping[str, int], storage: str) -> None:
    """Say on standard output that the broker serves, and where."""
    _say(f"{PRODUCT} {VERSION} serving; storage: {storage}")
    listeners = settings.listeners.opened()
    for name, port in ports.items():
        _say(f"  {_NAMES[name]:<18} {listeners[name].bind}:{port}")
    if settings.log.format == "text":
        _say("Try:")
        if "amqp" in ports:
            _say(f"  {_python()} -m sluicemq.examples.amqp_worker --port {ports['amqp']}    a worker")
        if "mqtt" in ports:
            _say(f"  {_python()} -m sluicemq.examples.mqtt_device --port {ports['mqtt']}    a device")
        if "http" in ports:
            address = _browsable(listeners["http"].bind)
            _say(f"  open http://{address}:{ports['http']}/    the broker's page")
        _say("Stop with Ctrl-C.")


def _browsable(bind: str) -> str:
    """Return an address as it stands in a URL, for a browser on this machine."""
    if bind in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return "localhost"
    return f"[{bind}]" if ":" in bind else bind


def _python() -> str:
    """Return the interpreter this runs in, as one types it here."""
    path = Path(sys.executable)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def _say(text: str) -> None:
    print(text, flush=True)
