"""Running a broker as a process: event loop, signals, ready file, exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import uvloop

from broker.app import Broker
from broker.clock import Clock
from broker.logs.log_processors import LogLevel, LogRepeats
from broker.logs.printable import make_printable
from broker.network.listening import ListenError
from broker.outside import Outside, Process, listen_failure, tell_failure
from broker.process.descriptors import open_files_limit, raise_limit
from broker.process.loop_watch import LoopWatch
from config import limits
from config.settings import LogSettings, Settings
from config.settings_loader import ConfigError
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError, StoreInUse

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

_log: Final = structlog.get_logger("sluicemq")


def run(
    settings: Settings, load: Callable[[], Settings], ready_file: Path | None, *, take_over: bool = False
) -> int:
    """Serve until SIGTERM, SIGINT or a failure of the store; gives the process's exit code.

    SIGHUP has the settings read anew, by `load`.
    """
    count = _worker_count(settings)
    if settings.cluster is not None and settings.cluster.listen:
        count = 0  # as many as the node has shards
    if count != 1:
        return _run_workers(settings, load, ready_file, count, take_over=take_over)
    level = configure_logging(settings.log)
    if not _prepare():
        return EXIT_FAILED
    return _run(Broker(settings, load=load), Process(settings, ready_file), level, take_over=take_over)


def _worker_count(settings: Settings) -> int:
    if settings.workers != "auto":
        return settings.workers
    from broker.process.usable_cores import usable_cores

    return min(usable_cores(), limits.WORKERS_AUTO_MAX)


def _run_workers(
    settings: Settings, load: Callable[[], Settings], ready_file: Path | None, count: int, *, take_over: bool
) -> int:
    from broker.supervising import Common, refuse_take_over, supervise
    from broker.workers.worker_mark import WorkerMark

    if take_over:
        return refuse_take_over()
    mark = WorkerMark()
    level = configure_logging(settings.log, mark)
    if not _prepare():
        return EXIT_FAILED
    return supervise(Common(settings, load, ready_file, count, partial(_run, level=level), level, mark))


def _prepare() -> bool:
    """Have the process take what it may; whether that is enough."""
    _tune_threads()
    raise_limit()
    if open_files_limit() < limits.OPEN_FILES_MIN:
        tell_failure(
            f"cannot start: the limit of open files (ulimit -n) is {open_files_limit()}, "
            f"{limits.OPEN_FILES_MIN} are needed at least"
        )
        return False
    return True


def _run(broker: Broker, outside: Outside, level: LogLevel, *, take_over: bool = False) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(broker, level, outside, take_over=take_over))


async def _serve(broker: Broker, level: LogLevel, outside: Outside, *, take_over: bool) -> int:
    broker.on_reload(level.follow)
    stopping = _stopping(broker, outside)
    exit_code = await _start(broker, outside, stopping, take_over=take_over)
    if exit_code is not None:
        return exit_code
    tune_garbage_collection()
    _reload_when_told(broker, outside)
    watch = LoopWatch()
    watch.start()
    broker.tell_lag(lambda: watch.lag)
    outside.serving(broker.ports, broker.storage_description)
    alive = asyncio.create_task(_tell_alive(outside))
    waits = [asyncio.create_task(stopping.wait()), asyncio.create_task(broker.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in (*waits, alive):
        wait.cancel()
    watch.stop()
    if watch.lag.stall_count:
        _log.info("loop.lag", **watch.lag._asdict())
    outside.stopping("the store failed" if broker.failure is not None else "finishing what is open")
    if broker.failure is not None:
        print(f"sluicemq: stopping, the store failed: {broker.failure.reason}", file=sys.stderr)
    try:
        await broker.stop()
    except TimeoutError:
        print("sluicemq: the store did not close in time", file=sys.stderr)
        return EXIT_FAILED
    outside.stopped()
    return EXIT_FAILED if broker.failure is not None else EXIT_OK


def _stopping(broker: Broker, outside: Outside) -> asyncio.Event:
    """Return an event that is set once the broker is told to stop; told again it waits for no client."""
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            broker.hurry()
        stopping.set()

    outside.on_stop(stop)
    return stopping


def _reload_when_told(broker: Broker, outside: Outside) -> None:
    """Have the settings read anew each time that this is wanted; one time after the other."""
    wanted = asyncio.Event()
    is_told = False

    async def reload() -> None:
        nonlocal is_told
        while True:
            await wanted.wait()
            wanted.clear()
            is_told = True
            try:
                await broker.reload()
            except (ConfigError, QueueManagerError, StorageError) as error:
                problems = error.problems if isinstance(error, ConfigError) else [error.reason]
                _log.error("config.not_reloaded", problems=problems)
            finally:
                is_told = False

    def on_reloaded(settings: Settings) -> None:
        if not is_told:  # over HTTP, then
            outside.reloaded()

    broker.on_reload(on_reloaded)
    broker.hub.spawn(reload())
    outside.on_reload(wanted.set)


async def _tell_alive(outside: Outside) -> None:
    while outside.alive_interval_s:
        outside.alive()
        await asyncio.sleep(outside.alive_interval_s)


async def _start(broker: Broker, outside: Outside, stopping: asyncio.Event, *, take_over: bool) -> int | None:
    """Start, unless told to stop before that is done; the exit code, or None once the broker serves."""
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
        hint = "; --take-over ends it" if broker.settings.workers == 1 else ""
        outside.cannot_start(f"cannot start: {error.reason}{hint}")
    except ConfigError as error:
        outside.cannot_start(f"cannot start: {error}")
    except (StorageError, QueueManagerError) as error:
        outside.cannot_start(f"cannot start: {error.reason}")
    except ListenError as error:
        outside.cannot_start(listen_failure(error, broker.settings))
    else:
        return None
    return EXIT_FAILED


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


def configure_logging(settings: LogSettings, *marks: structlog.typing.Processor) -> LogLevel:
    """Write one line per event on standard error, as text or JSON, with what `marks` add; gives what changes
    the level.
    """
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
            *marks,
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
