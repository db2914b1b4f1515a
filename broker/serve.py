"""Running a broker as a process: event loop, signals, ready file, exit code."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
import uvloop

from broker.app import Broker
from broker.clock import Clock
from broker.logs.log_processors import LogLevel, LogRepeats
from broker.logs.printable import make_printable
from broker.network.listening import ListenError
from broker.process.descriptors import open_files_limit, raise_limit
from broker.process.loop_watch import LoopWatch
from broker.process.service_manager import ServiceManager
from broker.version import PRODUCT, VERSION
from config import limits
from config.settings import LogSettings, Settings
from config.settings_loader import ConfigError
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError, StoreInUse
from storage.open import storage_holder

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

_log: Final = structlog.get_logger("sluicemq")


def run(
    settings: Settings, load: Callable[[], Settings], ready_file: Path | None, *, take_over: bool = False
) -> int:
    """Serve until SIGTERM, SIGINT or a failure of the store; gives the process's exit code.

    SIGHUP has the settings read anew, by `load`.
    """
    level = configure_logging(settings.log)
    _tune_threads()
    raise_limit()
    if open_files_limit() < limits.OPEN_FILES_MIN:
        print(
            f"sluicemq: cannot start: the limit of open files (ulimit -n) is {open_files_limit()}, "
            f"{limits.OPEN_FILES_MIN} are needed at least",
            file=sys.stderr,
        )
        return EXIT_FAILED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(Broker(settings, load=load), level, ready_file, take_over=take_over))


async def _serve(broker: Broker, level: LogLevel, ready_file: Path | None, *, take_over: bool) -> int:
    manager = ServiceManager()
    broker.on_reload(level.follow)
    stopping = _stop_signals(broker)
    exit_code = await _start(broker, stopping, take_over=take_over)
    if exit_code is not None:
        return exit_code
    tune_garbage_collection()
    _announce(broker)
    if ready_file is not None:
        _write_ready_file(ready_file, broker)
    _reload_at_sighup(broker)
    watch = LoopWatch()
    watch.start()
    broker.tell_lag(lambda: watch.lag)
    manager.ready(", ".join(f"{name} on port {port}" for name, port in broker.ports.items()))
    alive = asyncio.create_task(_tell_alive(manager))
    waits = [asyncio.create_task(stopping.wait()), asyncio.create_task(broker.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in (*waits, alive):
        wait.cancel()
    watch.stop()
    if watch.lag.stall_count:
        _log.info("loop.lag", **watch.lag._asdict())
    manager.stopping("the store failed" if broker.failure is not None else "finishing what is open")
    if broker.failure is not None:
        print(f"sluicemq: stopping, the store failed: {broker.failure.reason}", file=sys.stderr)
    try:
        await broker.stop()
    except TimeoutError:
        print("sluicemq: the store did not close in time", file=sys.stderr)
        return EXIT_FAILED
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # noqa: ASYNC240 - nobody is served any more
    return EXIT_FAILED if broker.failure is not None else EXIT_OK


def _stop_signals(broker: Broker) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; the next one has the broker wait for no
    client.
    """
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            broker.hurry()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stopping


def _reload_at_sighup(broker: Broker) -> None:
    """Have SIGHUP read the settings anew; one signal after the other."""
    wanted = asyncio.Event()

    async def reload() -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            try:
                await broker.reload()
            except (ConfigError, QueueManagerError, StorageError) as error:
                problems = error.problems if isinstance(error, ConfigError) else [error.reason]
                _log.error("config.not_reloaded", problems=problems)

    broker.hub.spawn(reload())
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, wanted.set)


async def _tell_alive(manager: ServiceManager) -> None:
    while manager.alive_interval_s:
        manager.alive()
        await asyncio.sleep(manager.alive_interval_s)


async def _start(broker: Broker, stopping: asyncio.Event, *, take_over: bool) -> int | None:
    """Start, unless told to stop before that is done; the exit code, or None once the broker serves."""
    settings = broker.settings
    starting = asyncio.create_task(broker.start(take_over=take_over))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        _log.info("broker.stopped")
        return EXIT_OK
    try:
        starting.result()
    except StoreInUse as error:
        print(f"sluicemq: cannot start: {error.reason}; --take-over ends it", file=sys.stderr)
        return EXIT_FAILED
    except ConfigError as error:
        print(f"sluicemq: cannot start: {error}", file=sys.stderr)
        return EXIT_FAILED
    except (StorageError, QueueManagerError) as error:
        print(f"sluicemq: cannot start: {error.reason}", file=sys.stderr)
        return EXIT_FAILED
    except ListenError as error:
        holder = storage_holder(settings.storage)
        hint = f" ({settings.storage.url} is in use by {holder})" if holder else ""
        print(f"sluicemq: cannot listen: {error.reason}{hint}", file=sys.stderr)
        return EXIT_FAILED
    return None


def tune_garbage_collection() -> None:
    """Let the collector look at messages rarely: they hold no reference cycles, and there are many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 500, 50)  # each look at the young ones holds up everybody for some 5 ms


def _tune_threads() -> None:
    """Let a commit hop between threads: with the default of 5 ms each hop could wait that long for the
    loop.
    """
    sys.setswitchinterval(0.0005)


def _announce(broker: Broker) -> None:
    _say(f"{PRODUCT} {VERSION} serving; storage: {broker.storage_description}")
    listeners = broker.settings.listeners.opened()
    names = {
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
    for name, port in broker.ports.items():
        _say(f"  {names[name]:<18} {listeners[name].bind}:{port}")
    if broker.settings.log.format == "text":
        _say("Try:")
        if "amqp" in broker.ports:
            _say(f"  {_python()} -m sluicemq.examples.amqp_worker --port {broker.ports['amqp']}    a worker")
        if "mqtt" in broker.ports:
            _say(f"  {_python()} -m sluicemq.examples.mqtt_device --port {broker.ports['mqtt']}    a device")
        if "http" in broker.ports:
            address = _browsable(listeners["http"].bind)
            _say(f"  open http://{address}:{broker.ports['http']}/    the broker's page")
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


def _write_ready_file(path: Path, broker: Broker) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps({"pid": os.getpid(), "ports": broker.ports}))
    partial.replace(path)


def configure_logging(settings: LogSettings) -> LogLevel:
    """Write one line per event on standard error, as text or JSON; gives what changes the level."""
    level = LogLevel(settings.level)
    renderers: list[structlog.typing.Processor]
    if settings.format == "json":
        renderers = [structlog.processors.JSONRenderer()]
    else:
        renderers = [make_printable, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            level,
            LogRepeats(Clock()),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    return level
