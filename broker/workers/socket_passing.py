"""Passing the socket of a client to another worker, over a Unix socket in the run directory."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog

from broker.engine.shard_ending import resolve
from config import limits

_log: Final = structlog.get_logger("sluicemq.workers")

_HEAD: Final = struct.Struct("<II")  # bytes that tell of the client, and of what it has said
_TAKEN: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Told:
    """What the other worker cannot see by the socket: which listener the client came to, its address as
    `host:port`, the names of its certificate, and the host that a page of a browser asked for.
    """

    listener: str
    peer: str
    certificate_names: tuple[str, ...] = ()
    asked_for: str = ""


def told_bytes(told: Told) -> bytes:
    """Return it as it is sent."""
    return json.dumps(asdict(told)).encode()


def told_of(sent: bytes) -> Told:
    """Return what was sent as `told_bytes`. Raises ValueError."""
    about = json.loads(sent)
    try:
        return Told(**about | {"certificate_names": tuple(about["certificate_names"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"what is told of a client cannot be read: {error}") from None


Take = Callable[[socket.socket, Told, bytes], None]
"""Takes a client that comes from another worker, with what it has said so far."""


def _path_of(run_directory: Path, number: int) -> str:
    return str(run_directory / f"clients-{number}.sock")


async def pass_on(
    run_directory: Path, number: int, connection: socket.socket, told: Told, said: bytes
) -> None:
    """Have another worker take a client, and return once it has; a worker that is not there has so much time
    to come. Raises OSError, TimeoutError.
    """
    async with asyncio.timeout(limits.CLIENT_PASSING_TIMEOUT_S):
        while True:
            try:
                await _pass_on(_path_of(run_directory, number), connection, told, said)
                return
            except (FileNotFoundError, ConnectionError, BlockingIOError):
                await asyncio.sleep(limits.WORKER_CONNECT_INTERVAL_MS / 1000)


async def _pass_on(path: str, connection: socket.socket, told: Told, said: bytes) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.setblocking(False)
        way.connect(path)
        about = told_bytes(told)
        socket.send_fds(way, [_HEAD.pack(len(about), len(said))], [connection.fileno()])
        await loop.sock_sendall(way, about + said)
        if await loop.sock_recv(way, 1) != _TAKEN:
            raise ConnectionResetError("the other worker did not take the client")


class Arrivals:
    """The clients that other workers pass to this one."""

    def __init__(self, run_directory: Path, number: int, take: Take) -> None:
        self._path = _path_of(run_directory, number)
        self._take = take
        self._listening: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Take clients from now on. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listening = listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        listening.bind(self._path)
        listening.listen(limits.LISTEN_BACKLOG)
        asyncio.get_running_loop().add_reader(listening, self._accept)

    def stop(self) -> None:
        """Take no more."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        listening = self._listening
        for _ in range(limits.ACCEPTS_PER_TURN_MAX):
            if listening is None:
                return
            try:
                way, _ = listening.accept()
            except OSError:
                return  # none waits; or there is no descriptor, and who passes tries again
            way.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._arrive(way))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _arrive(self, way: socket.socket) -> None:
        connection: socket.socket | None = None
        with way:
            try:
                async with asyncio.timeout(limits.CLIENT_PASSING_TIMEOUT_S):
                    await _readable(way)
                    head, descriptors, _, _ = socket.recv_fds(way, _HEAD.size, 1)
                    if len(head) < _HEAD.size or not descriptors:
                        return
                    connection = socket.socket(fileno=descriptors[0])
                    about_bytes, said_bytes = _HEAD.unpack(head)
                    told = told_of(await _read(way, about_bytes))
                    said = await _read(way, said_bytes)
                connection.setblocking(False)
                way.send(_TAKEN)
                taken, connection = connection, None
                self._take(taken, told, said)
            except (OSError, TimeoutError, ValueError) as error:
                _log.warning("client.not_taken", reason=str(error) or type(error).__name__)
            finally:
                if connection is not None:
                    connection.close()


async def _readable(way: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(way, resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(way)


async def _read(way: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    taken = bytearray()
    while len(taken) < size:
        part = await loop.sock_recv(way, size - len(taken))
        if not part:
            raise ConnectionResetError("the worker that passes the client is gone")
        taken += part
    return bytes(taken)
