"""An S3 endpoint for brokers as processes."""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import boto3
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from tests.waiting import INTERVAL_S, hold_up_task

BUCKET = "sluice"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


_PUTTING = threading.Lock()
_put_object = S3Response.put_object


def _put_alone(self: S3Response) -> Any:
    """Look whether a condition holds and put, while nobody else does: moto alone lets two put what is to be
    put once.
    """
    with _PUTTING:
        return _put_object(self)


S3Response.put_object = _put_alone  # type: ignore[method-assign]


@contextmanager
def s3_endpoint() -> Iterator[dict[str, str]]:
    """A bucket at a server of its own; gives the environment that leads there."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=BUCKET)
    try:
        yield {"AWS_ENDPOINT_URL": endpoint, **KEYS}
    finally:
        server.stop()


ASKED, ANSWERED = True, False
"""The two directions of a way."""
BOTH = (ASKED, ANSWERED)


class Talk:
    """What goes over one connection of a `Way`."""

    def asked(self, data: bytes) -> None:
        """Note what is asked, before it goes on."""

    def sent(self) -> None:
        """Note that what was asked so far is on its way to the server."""

    def answered(self, data: bytes) -> bytes:
        """Return what goes on of an answer. Raises ConnectionError: the connection is to end."""
        return data


class Way:
    """A way to a server, or to several, that can be cut, healed and made long; in a thread of its own.

    It begins at `endpoint`; that to more than one server at `ports`, one for each.
    """

    def __init__(self, *targets: str, talk: Callable[[], Talk] = Talk) -> None:
        """Lead to these servers on this machine, each "http://HOST:PORT"."""
        self.delay_s = 0.0  # of what is asked
        self._talk = talk
        self._lost: Collection[bool] = ()
        self._held: Collection[bool] = ()
        self._is_refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.ports = [self._begin(int(target.rpartition(":")[2])) for target in targets]
        self.endpoint = f"http://127.0.0.1:{self.ports[0]}"

    def cut(self, *directions: bool) -> None:
        """Let nothing through, in these directions or in both: what is open is silent, what is new is not
        answered.
        """
        self._lost = directions or BOTH

    def hold(self, *directions: bool) -> None:
        """Do the same, but keep what is said: it goes on once the way is healed, as lost packets do."""
        self._held = directions or BOTH

    def refuse(self) -> None:
        """Reset all connections, those to come, too."""
        self._is_refusing = True
        self._loop.call_soon_threadsafe(self._reset)

    def heal(self) -> None:
        """Let everything through; what was cut is reset."""
        is_reset = bool(self._lost)
        self._lost = self._held = ()
        self._is_refusing = False
        if is_reset:
            self._loop.call_soon_threadsafe(self._reset)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        self._reset()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _begin(self, target: int) -> int:
        serving = asyncio.start_server(partial(self._serve, target), "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            writer.transport.abort()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, other_writer}
        self._writers |= both
        talk = self._talk()
        with suppress(OSError):
            await asyncio.gather(
                self._pump(reader, other_writer, ASKED, talk),
                self._pump(other_reader, writer, ANSWERED, talk),
            )
        for each in both:
            each.close()
        self._writers -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: bool, talk: Talk
    ) -> None:
        while data := await reader.read(65_536):
            if direction is ASKED:
                talk.asked(data)
            else:
                data = talk.answered(data)
            while direction in self._held:
                await hold_up_task(INTERVAL_S)
            if direction in self._lost:
                continue
            if direction is ASKED and self.delay_s:
                await hold_up_task(self.delay_s)
            writer.write(data)
            if direction is ASKED:
                talk.sent()
            await writer.drain()
        writer.close()
