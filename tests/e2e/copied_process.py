"""Processes of the `sluicemq` command that begin as copies of one that has imported everything.

A start costs a second of processor, nearly all of it for imports, and the tests start hundreds of brokers.
Here one process imports, and forks for each start: a copy runs the same command on the same arguments, in a
session of its own, and ends as any process does. Its clocks may be put forward (`_follow`). What has to be a
new interpreter is started by `subprocess`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
MESSAGE_BYTES_MAX = 1 << 20
AHEAD_VARIABLE = "TESTED_BROKER_AHEAD_FILE"
CHANGE_VARIABLE = "TESTED_BROKER_CHANGE"
"""Names a function, as "module:function", that a copy calls before the command."""


class CopiedProcess:
    """A started copy, with what the tests use of `subprocess.Popen`."""

    def __init__(self, source: Source, pid: int) -> None:
        self._source = source
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        if self.returncode is None:
            self.returncode = self._source.status(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once the process has ended. Raises TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left_s = 1.0 if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout or 0)
            self.returncode = self._source.status(self.pid, min(left_s, 1.0))
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal if the process has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Source:
    """The process that is copied, started at the first use; it ends as the socket does, with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # clients of a test look at its broker from threads
        self._socket: socket.socket | None = None
        self._statuses: dict[int, int] = {}

    def start(
        self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str], log: Path
    ) -> CopiedProcess:
        """Start `sluicemq` with these arguments, its output appended to `log`."""
        request = {
            "arguments": list(arguments),
            "directory": str(directory),
            "environment": dict(environment),
            "log": str(log),
        }
        with self._lock:
            if self._socket is None:
                self._socket = _started()
            self._socket.send(json.dumps(request).encode())
            while not isinstance(answer := self._next(), int):
                pass
        return CopiedProcess(self, answer)

    def status(self, pid: int, wait_s: float) -> int | None:
        """Return the exit status of a copy, waiting for it this long at most; None while it runs."""
        with self._lock:
            while pid not in self._statuses:
                assert self._socket is not None
                if not select.select([self._socket], [], [], wait_s)[0]:
                    return None
                self._next()
            return self._statuses[pid]

    def _next(self) -> int | None:
        """Take a message: the PID of a copy that began, or None of one that ended."""
        assert self._socket is not None
        data = self._socket.recv(MESSAGE_BYTES_MAX)
        if not data:
            raise RuntimeError("the process that is copied has ended")
        pid, status = json.loads(data)
        if status is None:
            self._statuses.pop(pid, None)  # of an earlier copy with this number
            return int(pid)
        self._statuses[pid] = status
        return None


def _started() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=PROJECT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    return ours


SOURCE = Source()


def _copies(channel: socket.socket) -> list[str]:
    """Fork for each request; return the arguments, in each copy. Does not return in what is copied."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        waited_for: list[Any] = [channel, woken]
        ready = select.select(waited_for, [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(channel)
        if channel not in ready:
            continue
        data = channel.recv(MESSAGE_BYTES_MAX)
        if not data:
            sys.exit()
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            os.close(woken)
            os.close(waking)
            return _become(**json.loads(data))
        channel.send(json.dumps([pid, None]).encode())


def _tell_ended(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        channel.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


def _become(arguments: list[str], directory: str, environment: dict[str, str], log: str) -> list[str]:
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    return arguments


def _follow(ahead: Path) -> None:
    """Have the broker's clocks be ahead by the seconds in the file, read at the start and at each SIGUSR2.

    Timers of uvloop are not to be moved: the loop is that of asyncio, which a signal wakes. SlateDB and the
    times of its files stay as they are.
    """
    import uvloop

    from broker.clock import Clock

    ahead_s = 0.0
    monotonic, time_ns = time.monotonic, time.time_ns

    def read(*_: object) -> None:
        nonlocal ahead_s
        if ahead.exists():
            ahead_s = float(ahead.read_text())
            ahead.with_suffix(f".seen-{os.getpid()}").write_text(str(ahead_s))

    read()
    signal.signal(signal.SIGUSR2, read)
    time.monotonic = lambda: monotonic() + ahead_s
    time.time_ns = lambda: time_ns() + int(ahead_s * 1_000_000_000)
    Clock.monotonic = staticmethod(time.monotonic)
    uvloop.new_event_loop = asyncio.SelectorEventLoop  # type: ignore[assignment]


def main() -> None:
    from typer.main import get_command

    from broker.cli import app
    from storage.fast_batch import CffiFiller

    # what each start would import or put together again
    for name in ("broker.serve", "broker.http.application", "uvicorn.lifespan.off"):
        importlib.import_module(name)
    CffiFiller()
    command = get_command(app)
    gc.collect()
    gc.freeze()  # no copy goes through all of that at its end

    sys.argv[1:] = _copies(socket.socket(fileno=int(sys.argv[1])))
    if ahead := os.environ.pop(AHEAD_VARIABLE, None):
        _follow(Path(ahead))
    if change := os.environ.pop(CHANGE_VARIABLE, None):
        module, _, function = change.partition(":")
        getattr(importlib.import_module(module), function)()
    command(prog_name="sluicemq")


if __name__ == "__main__":
    main()
