"""The supervisor: forks the workers of a broker, starts again who dies, and passes on what it is told.

It has neither threads nor an event loop, since it forks whenever a worker died: it only waits, for signals
and for what workers report. To each worker leads a channel, a pair of sockets. Over it go `STOP` and
`RELOAD`, not as signals, since a terminal or service manager that signals all processes of a broker would be
heard twice; and that it breaks tells a worker that its supervisor is gone.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import structlog

from broker.process.service_manager import ServiceManager
from broker.workers.supervised import (
    ALIVE,
    AWAIT,
    CLOSE,
    FAILED,
    OPEN,
    PEERS,
    RELOAD,
    RELOADED,
    SERVING,
    STOP,
    WISH,
    Supervised,
)
from broker.workers.worker_place import WorkerPlace
from config import limits

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

_HEARD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_log: Final = structlog.get_logger("sluicemq.workers")

Work = Callable[[WorkerPlace, Supervised], int]
"""Does the work of a worker, in its process, until told to stop; gives the exit code."""

KEEPER: Final = -1
"""The number of the process, beside the workers, that keeps the place of a node among others."""


@dataclass(frozen=True, slots=True)
class Node:
    """What makes the broker a node of several: `keep` is the work of a process that says which shards are to
    be opened and closed here, and is told what became of that. `place_of` gives the place of the worker of a
    shard, by its number, how many there are, and the epoch in which this node has it; None: it is about to.
    """

    keep: Work
    place: WorkerPlace
    place_of: Callable[[int, int, int | None], WorkerPlace]


@dataclass(frozen=True, slots=True)
class Serving:
    """A worker that serves: what it reported."""

    pid: int
    ports: dict[str, int]
    storage: str


@dataclass(slots=True)
class _Worker:
    """A worker, and the process that it is at present."""

    place: WorkerPlace
    work: Work
    is_waiting: bool = False
    """Whether its shard is about to be handed to this node: it is told when that is so."""
    pid: int = 0
    """0: it does not run, and is started at `due`."""
    channel: socket.socket | None = None
    serving: Serving | None = None
    due: float = 0.0
    began_serving: float = 0.0
    is_heard: bool = False
    """Whether it reported since the supervisor last looked."""
    silent_s: float = 0.0
    failure: str = ""
    """Why it cannot start, as it reported."""
    pause_s: float = limits.WORKER_RESTART_PAUSE_MIN_S


@dataclass(slots=True)
class Supervisor:
    """The workers at `places`, each of which does `work`; of a `node` those that its keeper wants.

    `on_serving` is called whenever all of them serve, `on_reload` when settings are to be read anew; the
    `manager` is told how the broker is. `leave` closes, in a worker, what is the supervisor's. `tell_failure`
    is given the reason of the first worker that cannot start. Once all of them have served, one that cannot
    is tried again and again: the others serve meanwhile.
    """

    places: Sequence[WorkerPlace]
    work: Work
    on_serving: Callable[[Sequence[Serving]], None]
    on_reload: Callable[[], None]
    leave: Callable[[], None]
    manager: ServiceManager
    tell_failure: Callable[[str], None]
    node: Node | None = None
    _workers: list[_Worker] = field(init=False)
    _keeper: _Worker | None = field(default=None, init=False)
    _peers: bytes = field(default=b"", init=False)
    _selector: selectors.BaseSelector = field(init=False)
    _woken: socket.socket = field(init=False)
    _waking: socket.socket = field(init=False)
    _stop_due: float | None = None
    _next_look: float = 0.0
    _code: int = EXIT_OK
    _have_served: bool = False

    def run(self) -> int:
        """Have the workers work until SIGTERM or SIGINT, or until one cannot start; gives the exit code.

        SIGHUP has all of them read their settings anew.
        """
        self._workers = [_Worker(place, self.work) for place in self.places]
        if self.node is not None:
            self._keeper = _Worker(self.node.place, self.node.keep)
        self._selector = selectors.DefaultSelector()
        self._hear_signals()
        try:
            while self._is_needed():
                self._start_due()
                self._wait()
                self._bury()
                self._look()
        finally:
            self._selector.close()
            self._restore_signals()
        return self._code

    def _is_needed(self) -> bool:
        return self._stop_due is None or any(child.pid for child in self._children())

    def _children(self) -> list[_Worker]:
        return self._workers if self._keeper is None else [*self._workers, self._keeper]

    # signals

    def _hear_signals(self) -> None:
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        for number in _HEARD:
            signal.signal(number, _note)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def _restore_signals(self) -> None:
        signal.set_wakeup_fd(-1)
        self._woken.close()
        self._waking.close()

    def _on_signals(self) -> None:
        with suppress(BlockingIOError):
            for number in self._woken.recv(limits.WORKER_REPORT_BYTES_MAX):
                if number in (signal.SIGTERM, signal.SIGINT):
                    self._stop()
                elif number == signal.SIGHUP:
                    self._reload()

    def _stop(self, code: int = EXIT_OK) -> None:
        """Have all workers stop; those that are stopping wait for no client any more."""
        self._code = max(self._code, code)
        is_first = self._stop_due is None
        if self._stop_due is None:
            self._stop_due = time.monotonic() + limits.WORKER_STOP_TIMEOUT_S
            self.manager.stopping("finishing what is open" if code == EXIT_OK else "a worker cannot start")
        self._end_waiting()
        if self._keeper is not None and self._keeper.pid and is_first:
            _tell(self._keeper, STOP)  # it hands over what is here, one shard after the other
        else:
            self._tell_all(STOP)

    def _reload(self, besides: _Worker | None = None) -> None:
        """Have settings read anew, by all processes but one."""
        self.on_reload()
        self._end_waiting()  # with settings that it could not read anew
        self._tell_all(RELOAD, besides)
        if self._keeper is not None:
            _tell(self._keeper, RELOAD)

    def _tell_all(self, what: bytes, besides: _Worker | None = None) -> None:
        for worker in self._workers:
            if worker is not besides:
                _tell(worker, what)

    # workers

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._children():
            if not worker.pid and worker.due <= now and self._stop_due is None:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # the worker has our handlers until it begins
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._be(worker, theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        theirs.close()
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        worker.pid, worker.channel, worker.serving, worker.failure = pid, ours, None, ""
        if self._peers:
            _tell(worker, self._peers)

    def _be(self, worker: _Worker, channel: socket.socket) -> NoReturn:
        """Be that worker, in its process."""
        code = EXIT_FAILED
        try:
            self._restore_signals()
            self._selector.close()
            for other in self._children():
                if other.channel is not None:
                    other.channel.close()
            self.leave()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
            supervised = Supervised(worker.place, channel, self._look_interval_s)
            code = worker.work(worker.place, supervised)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _wait(self) -> None:
        for key, _ in self._selector.select(self._until_next()):
            if key.data is None:
                self._on_signals()
            else:
                self._on_report(key.data)

    def _until_next(self) -> float | None:
        """Return the seconds until something is due, if anything is."""
        if self._stop_due is not None:
            due = [self._stop_due]
        else:
            due = [child.due for child in self._children() if not child.pid]
            if self._have_served:
                due.append(self._next_look)
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def _on_report(self, worker: _Worker) -> bool:
        """Take a report, or the end of the channel; whether there was one and more may come."""
        assert worker.channel is not None
        try:
            report = worker.channel.recv(limits.WORKER_REPORT_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:
            report = b""
        if not report:  # it ended, which SIGCHLD tells
            self._close_channel(worker)
            return False
        worker.is_heard = True
        told: dict[str, Any] = json.loads(report)
        if told["report"] == SERVING:
            self._on_serving(worker, told)
        elif told["report"] == RELOADED:
            self._reload(besides=worker)
        elif told["report"] == FAILED:
            worker.failure = told["reason"]
            if self._stop_due is None:
                self._on_failure(worker)
        elif worker is self._keeper:
            self._on_wanted(told)
        elif self._keeper is not None and told["report"] in (ALIVE, WISH):
            _tell(self._keeper, report)
        return True

    def _on_serving(self, worker: _Worker, told: dict[str, Any]) -> None:
        worker.serving = Serving(worker.pid, told["ports"], told["storage"])
        worker.began_serving, worker.silent_s = time.monotonic(), 0.0
        if self._keeper is not None:
            _tell_json(self._keeper, {"opened": worker.place.number})
        serving = [other.serving for other in self._workers if other.serving is not None]
        wanted = [other for other in self._workers if not other.is_waiting]
        if len(serving) == len(wanted) and self._stop_due is None:
            self._have_served = True
            self.on_serving(serving)

    def _on_failure(self, worker: _Worker) -> None:
        """Give up, unless the worker is tried again: here, or at another node."""
        is_first = not self._have_served if self._keeper is None else not self._peers
        if is_first:
            self.tell_failure(worker.failure)
            self._stop(EXIT_FAILED)

    # a node

    def _on_wanted(self, told: dict[str, Any]) -> None:
        """Do what the keeper wants."""
        assert self.node is not None
        if told["report"] == PEERS:
            self._peers = json.dumps(told).encode()
            self._tell_all(self._peers)
            return
        if told["report"] == AWAIT:
            self._await_shards(told["shards"], told["count"])
            return
        number: int = told["shard"]
        worker = next((each for each in self._workers if each.place.number == number), None)
        if told["report"] == OPEN and worker is None:
            self._add(_Worker(self.node.place_of(number, told["count"], told["epoch"]), self.work))
        elif told["report"] == OPEN and worker is not None and worker.is_waiting:
            worker.is_waiting = False
            worker.place = self.node.place_of(number, told["count"], told["epoch"])
            if worker.pid and not _tell_json(worker, {"epoch": told["epoch"]}):
                os.kill(worker.pid, signal.SIGKILL)
        elif told["report"] == CLOSE and worker is not None:
            if not worker.pid:
                self._workers.remove(worker)
                self._tell_closed(number)
            elif told["kill"]:
                os.kill(worker.pid, signal.SIGKILL)
            else:
                _tell(worker, STOP)

    def _add(self, worker: _Worker) -> None:
        self._workers.append(worker)
        self._workers.sort(key=lambda each: each.place.number)

    def _await_shards(self, shards: Sequence[int], count: int) -> None:
        """Have workers wait for these shards, and no others: each is ready by the time that it is handed over
        to this node, up to the opening of its database.
        """
        assert self.node is not None
        self._end_waiting(besides=shards)
        known = [worker.place.number for worker in self._workers]
        for number in shards:
            if number not in known and self._stop_due is None:
                self._add(_Worker(self.node.place_of(number, count, None), self.work, is_waiting=True))

    def _end_waiting(self, besides: Sequence[int] = ()) -> None:
        for worker in self._workers[:]:
            if worker.is_waiting and worker.place.number not in besides:
                if worker.pid:
                    _tell(worker, STOP)
                else:
                    self._workers.remove(worker)

    def _tell_closed(self, number: int) -> None:
        if self._keeper is not None:
            _tell_json(self._keeper, {"closed": number})

    def _on_keeper_death(self, keeper: _Worker, why: str) -> None:
        """End the workers: the place among other nodes is lost, or given up."""
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
        if self._stop_due is None and not self._peers:
            self._stop(EXIT_FAILED)  # it said why
        elif self._stop_due is None:
            keeper.due = time.monotonic() + keeper.pause_s
            _log.error("node.left", why=why, again_in_s=keeper.pause_s)
            keeper.pause_s = min(keeper.pause_s * 2, limits.WORKER_RESTART_PAUSE_MAX_S)

    def _close_channel(self, worker: _Worker) -> None:
        if worker.channel is not None:
            self._selector.unregister(worker.channel)
            worker.channel.close()
            worker.channel = None

    def _bury(self) -> None:
        """See who died."""
        for worker in self._children()[:]:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._on_death(worker, os.waitstatus_to_exitcode(status))
        if self._stop_due is not None and time.monotonic() >= self._stop_due:
            self._kill_left()

    def _on_death(self, worker: _Worker, code: int) -> None:
        while worker.channel is not None and self._on_report(worker):
            pass  # its last words
        self._close_channel(worker)
        pid, worker.pid = worker.pid, 0
        served, worker.serving = worker.serving is not None, None
        number = worker.place.number
        if worker is self._keeper:
            self._on_keeper_death(worker, _why(code))
            return
        if self._keeper is not None:
            self._workers.remove(worker)
            if not worker.is_waiting:
                self._tell_closed(number)
            if code != EXIT_OK:
                event = "worker.not_started" if worker.failure else "worker.died"
                _log.error(event, worker=number, pid=pid, why=worker.failure or _why(code))
            return
        if self._stop_due is not None:
            if code != EXIT_OK:
                self._code = EXIT_FAILED
            return
        if code > 0 and not served and not self._have_served:  # it said why
            _log.error("worker.not_started", worker=number)
            self._stop(EXIT_FAILED)
            return
        now = time.monotonic()
        if served and now - worker.began_serving >= limits.WORKER_SERVED_LONG_S:
            worker.pause_s = limits.WORKER_RESTART_PAUSE_MIN_S
        worker.due = now + worker.pause_s
        event, why = ("worker.not_started", worker.failure) if worker.failure else ("worker.died", _why(code))
        _log.error(event, worker=number, pid=pid, why=why, again_in_s=worker.pause_s)
        worker.pause_s = min(worker.pause_s * 2, limits.WORKER_RESTART_PAUSE_MAX_S)

    def _kill_left(self) -> None:
        """End workers that did not stop in time."""
        for worker in self._children()[:]:
            if worker.pid:
                _log.error("worker.not_stopped", worker=worker.place.number, pid=worker.pid)
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
                self._on_death(worker, -signal.SIGKILL)

    @property
    def _look_interval_s(self) -> float:
        """How often workers report that they turn, which is looked at."""
        side = None if self.node is None else self.node.place.node
        wanted_s = self.manager.alive_interval_s or limits.WORKER_ALIVE_INTERVAL_S
        wanted_s = min(wanted_s, limits.WORKER_ALIVE_INTERVAL_S)
        return wanted_s if side is None else min(wanted_s, side.alive_interval_s)

    def _look(self) -> None:
        """Kill workers whose loops do not turn, and tell the service manager's watchdog that ours does.

        What counts is how often nothing was heard: not how long this process or the machine stood still.
        """
        now = time.monotonic()
        if now < self._next_look or self._stop_due is not None or not self._have_served:
            return  # it watches who is ready
        self._next_look = now + self._look_interval_s
        for worker in self._workers:
            worker.silent_s = 0.0 if worker.is_heard else worker.silent_s + self._look_interval_s
            worker.is_heard = False
            if worker.serving is not None and worker.silent_s >= limits.WORKER_STUCK_S_MAX:
                _log.error(
                    "worker.stuck", worker=worker.place.number, pid=worker.pid, silent_s=worker.silent_s
                )
                os.kill(worker.pid, signal.SIGKILL)
        self.manager.alive()


def _tell(worker: _Worker, what: bytes) -> bool:
    """Tell a worker something; whether it can hear that."""
    if worker.channel is not None:
        with suppress(OSError):  # it has just died, or is too busy to listen
            worker.channel.send(what)
            return True
    return False


def _tell_json(worker: _Worker, what: dict[str, object]) -> bool:
    return _tell(worker, json.dumps(what).encode())


def _note(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor tells of the signal."""


def _why(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal
        return f"signal {-code}"
