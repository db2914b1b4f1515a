"""A webhook: what comes into a queue is posted to a receiver, again until it takes it.

Taken (2xx) is acknowledged; what the receiver calls wrong (400, 413, 415, 422) is rejected, alone if it was
in a batch; everything else is tried again, after growing pauses. Rejected are dead letters of the queue.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import httpcore
import structlog
from pamqp import commands

from broker.links.amqp_peer import AmqpPeer, OpenHere, connect
from broker.links.amqp_uri import read_uri, without_login
from broker.links.outward_http import AddressRefused, open_pool, post
from broker.links.relay import Parcel, Relay, encode_acks
from broker.links.supervised_link import RETRYING, Link
from broker.links.webhook_settings import RAW, WebhookSettings
from broker.vhosts.hub import Hub
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.methods import unchecked

_log: Final = structlog.get_logger("sluicemq.link")

_WRONG: Final = frozenset((400, 413, 415, 422))
_TAKEN: Final = range(200, 300)


class Webhook(Link):
    """One webhook, which lives as long as its parameter."""

    component = "webhook"

    def __init__(self, hub: Hub, name: str, settings: WebhookSettings, open_here: OpenHere) -> None:
        super().__init__(hub, name)
        self._settings = settings
        self._open_here = open_here
        self._queue = settings.queue or f"webhook.{name}"
        self._waiting: deque[Parcel] = deque()
        self._has_some = asyncio.Event()
        self._pending_count = 0
        self._rejected_count = 0
        self._failing: set[int] = set()  # the posters that try something again

    @property
    def pending_count(self) -> int:
        return self._pending_count

    @property
    def details(self) -> dict[str, Any]:
        url = without_login(self._settings.url)
        return {"queue": self._queue, "url": url, "rejected": self._rejected_count}

    async def serve(self) -> None:
        settings = self._settings
        here = read_uri("amqp://", self.hub.vhost.name)
        peer = await connect(here, self._open_here, f"Webhook {self.name}", "this broker")
        pool: httpcore.AsyncConnectionPool | None = None
        try:
            access = self.hub.access
            pool = await open_pool(settings.ca_file, lambda: access.webhook_networks, settings.concurrency)
            await self._declare(peer)
            self._waiting.clear()
            self._failing.clear()
            self._pending_count = 0
            qos = commands.Basic.Qos(
                prefetch_count=min(0xFFFF, 2 * settings.batch_max * settings.concurrency)
            )
            await peer.call(qos, commands.Basic.QosOk)
            consume = unchecked(commands.Basic.Consume, queue=self._queue)
            await peer.call(consume, commands.Basic.ConsumeOk)
            self.is_up()
            await self._work(peer, pool)
        finally:
            await peer.close()
            if pool is not None:
                await pool.aclose()

    async def _work(self, peer: AmqpPeer, pool: httpcore.AsyncConnectionPool) -> None:
        posters = [self._post_all(number, peer, pool) for number in range(self._settings.concurrency)]
        tasks = [asyncio.create_task(each) for each in (self._take(peer), *posters)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # the queue

    async def _declare(self, peer: AmqpPeer) -> None:
        """Have the queue, one of its own with a queue for its dead letters, and its bindings."""
        passive = unchecked(commands.Queue.Declare, queue=self._queue, passive=True)
        if self._settings.queue is not None:
            await peer.call(passive, commands.Queue.DeclareOk)
        elif await peer.is_there(passive, commands.Queue.DeclareOk) is None:
            dead = f"{self._queue}.dead"
            to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
            for queue, arguments in ((dead, {}), (self._queue, to_dead)):
                declare = unchecked(commands.Queue.Declare, queue=queue, durable=True, arguments=arguments)
                await peer.call(declare, commands.Queue.DeclareOk)
        for source in self._settings.bindings:
            bind = unchecked(
                commands.Queue.Bind,
                queue=self._queue,
                exchange=source.exchange,
                routing_key=source.routing_key,
                arguments=dict(source.arguments),
            )
            await peer.call(bind, commands.Queue.BindOk)

    async def _take(self, peer: AmqpPeer) -> None:
        relay = Relay(_never)
        while True:
            for frame in await peer.frames():
                relay.take(frame)
            self._waiting.extend(relay.take_ready())
            relay.order.clear()  # what is settled is known here
            if self._waiting:
                self._has_some.set()

    async def _next(self) -> list[Parcel]:
        """Return what is posted next, together."""
        while not self._waiting:
            self._has_some.clear()
            await self._has_some.wait()
        batch = [self._waiting.popleft()]
        size = len(batch[0].body)
        while self._waiting and len(batch) < self._settings.batch_max:
            size += len(self._waiting[0].body)
            if size > limits.WEBHOOK_BATCH_BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    # the receiver

    async def _post_all(self, number: int, peer: AmqpPeer, pool: httpcore.AsyncConnectionPool) -> None:
        while True:
            batch = await self._next()
            self._pending_count += len(batch)
            for again in await self._deliver(number, batch, peer, pool):
                await self._deliver(number, [again], peer, pool)

    async def _deliver(
        self, number: int, batch: list[Parcel], peer: AmqpPeer, pool: httpcore.AsyncConnectionPool
    ) -> list[Parcel]:
        """Post some messages until they are settled; returns those that have to be posted one by one, since
        one of them is wrong.
        """
        settings = self._settings
        number_of_post = f"msg_{secrets.token_hex(12)}"
        attempts, pause_s = 0, limits.LINK_RETRY_S_MIN
        while True:
            attempts += 1
            status, reason, wanted_s = await self._post(pool, batch, number_of_post)
            if status in _TAKEN:
                self._settle(number, batch, peer)
                return []
            if status in _WRONG and len(batch) > 1:
                return batch
            if status in _WRONG or 0 < settings.attempts_max <= attempts:
                self._reject(number, batch, peer, reason, attempts)
                return []
            wait_s = min(max(pause_s, wanted_s), settings.retry_max_s)
            self._failing.add(number)
            self._tell(RETRYING, reason)
            where = {"vhost": self.hub.vhost.name, "name": self.name}
            _log.warning("webhook.failed", reason=reason, attempts=attempts, retry_s=wait_s, **where)
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, settings.retry_max_s)

    async def _post(
        self, pool: httpcore.AsyncConnectionPool, batch: Sequence[Parcel], number_of_post: str
    ) -> tuple[int, str, float]:
        """Return the status of a post (0: none came), what there is to tell of it, and how long the receiver
        wants to be left alone.
        """
        settings = self._settings
        try:
            headers, body = self._request(batch, number_of_post)
            status, wanted = await post(pool, settings.url, headers, body, settings.timeout_s)
        except TimeoutError:
            return 0, f"no answer within {settings.timeout_s:g} s", 0.0
        except (
            AddressRefused,
            OSError,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
        ) as error:
            return 0, str(error) or type(error).__name__, 0.0
        return status, f"status {status}", float(wanted) if wanted.isdecimal() else 0.0

    def _settle(self, number: int, batch: Sequence[Parcel], peer: AmqpPeer) -> None:
        peer.send(encode_acks(batch, multiple=False))
        self._pending_count -= len(batch)
        self.moved_count += len(batch)
        if number in self._failing:
            self._failing.discard(number)
            if not self._failing:
                self.is_up()

    def _reject(
        self, number: int, batch: Sequence[Parcel], peer: AmqpPeer, reason: str, attempts: int
    ) -> None:
        for parcel in batch:
            peer.say(commands.Basic.Reject(parcel.tag, False))
        self._pending_count -= len(batch)
        self._rejected_count += len(batch)
        self._failing.discard(number)
        _log.warning(
            "webhook.rejected",
            vhost=self.hub.vhost.name,
            name=self.name,
            count=len(batch),
            reason=reason,
            attempts=attempts,
        )

    def _request(self, batch: Sequence[Parcel], number_of_post: str) -> tuple[list[tuple[str, str]], bytes]:
        """Return headers and body of a post; signed as Standard Webhooks has it."""
        settings = self._settings
        if settings.format == RAW:
            parcel = batch[0]
            body = parcel.body
            kind = content.decode_properties(parcel.properties).content_type
            said = [
                ("content-type", _header(kind or "application/octet-stream")),
                ("x-exchange", _header(parcel.exchange)),
                ("x-routing-key", _header(parcel.routing_key)),
            ]
        else:
            told = {"webhook": self.name, "vhost": self.hub.vhost.name, "queue": self._queue}
            document = {**told, "messages": list(map(_told, batch))}
            body = json.dumps(document, ensure_ascii=False, default=_as_text).encode(errors="replace")
            said = [("content-type", "application/json")]
        sent_at = str(self.clock.now_ms() // 1000)
        said += [("webhook-id", number_of_post), ("webhook-timestamp", sent_at)]
        if settings.secret:
            signed = f"{number_of_post}.{sent_at}.".encode() + body
            digest = hmac.new(settings.secret, signed, hashlib.sha256).digest()
            said.append(("webhook-signature", f"v1,{base64.b64encode(digest).decode()}"))
        return [*said, *settings.headers], body


def _never(parcel: Parcel) -> bytes:
    raise AssertionError("a webhook publishes nothing")


def _header(text: str) -> str:
    """Return a text as a header may have it."""
    return "".join([each if " " <= each <= "~" else "?" for each in text])


def _told(parcel: Parcel) -> dict[str, Any]:
    """Return a message as JSON tells it."""
    properties = content.decode_properties(parcel.properties)
    fields = {name: getattr(properties, name) for name in properties.attributes() if name != "headers"}
    try:
        body, encoding = parcel.body.decode(), "text"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(parcel.body).decode(), "base64"
    return {
        "exchange": parcel.exchange,
        "routing_key": parcel.routing_key,
        "properties": {name: value for name, value in fields.items() if value not in (None, "")},
        "headers": dict(content.decode_headers(parcel.properties)),
        "body": body,
        "encoding": encoding,
    }


def _as_text(value: object) -> object:
    """Return what JSON has no type for."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)
