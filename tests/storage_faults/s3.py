"""An S3 endpoint for brokers as processes."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import boto3
from moto.server import ThreadedMotoServer

from tests.waiting import hold_up_task

T = TypeVar("T")

BUCKET = "sluice"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


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


class Way:
    """A way to a server that can be cut, healed and made long. It runs in a thread of its own."""

    def __init__(self, endpoint: str) -> None:
        self._target = int(endpoint.rpartition(":")[2])
        self.delay_s = 0.0  # of what is asked
        self._is_cut = self._is_heard = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, *, only_answers: bool = False) -> None:
        """Let nothing through, or no answers: what is open is silent, what is new is not answered."""
        self._is_cut = True
        self._is_heard = only_answers

    def heal(self) -> None:
        """Let new connections through; what was cut is reset."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._reset)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._reset)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, other_writer}
        self._writers |= both
        with suppress(OSError):
            await asyncio.gather(
                self._pump(reader, other_writer, asked=True), self._pump(other_reader, writer)
            )
        for each in both:
            each.close()
        self._writers -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asked: bool = False
    ) -> None:
        while data := await reader.read(65_536):
            if self._is_cut and not (asked and self._is_heard):
                continue
            if asked and self.delay_s:
                await hold_up_task(self.delay_s)
            writer.write(data)
            await writer.drain()
        writer.close()
