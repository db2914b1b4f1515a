"""Following topics live: a queue in memory of its own for each follower, bound to the exchange of topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from broker.access.login import Identity, NotPermitted
from broker.engine.traffic import Claim, Consumer, Message
from broker.http.guard import OPERATORS, check_operator, identity_of
from broker.http.lasting import lasting
from broker.http.problems import Problem, answer_of, problem_of
from broker.http.site import Site
from broker.http.values import shown
from broker.topics import EXCHANGE, routing_key_of, topic_of
from config import limits
from queue_manager.api import BindingDefinition, QueueDeclaration
from queue_manager.errors import QueueManagerError
from queue_manager.patterns import MATCH_ALL, validate
from storage.errors import StorageError

_POLICY_VIOLATION: Final = 1008


class Tail:
    """Follows one topic filter for one follower; what it is too slow for is left out.

    Implements `broker.engine.traffic.Sink`.
    """

    def __init__(self, site: Site) -> None:
        self._hub = site.hub
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(limits.TAIL_MESSAGES_MAX)
        self._refusal = ""

    def end(self, reason: str) -> None:
        """Follow no longer; what was not handed over yet is left out."""
        self._refusal = reason
        while not self._messages.empty():
            self._messages.get_nowait()
        self._messages.put_nowait(None)

    async def messages(self, topic_filter: str) -> AsyncGenerator[dict[str, str]]:
        """Yield what is published from now on, until the caller ends it: first an empty object, when that
        begins.

        Raises QueueManagerError; NotPermitted after `end`.
        """
        validate(topic_filter)
        hub = self._hub
        caller = hub.new_caller()
        name = f"amq.tail.{caller}"
        await hub.client.queues.declare(
            QueueDeclaration(
                name=name, durable=False, policy=hub.default_policy, exclusive=True, is_server_named=True
            ),
            caller,
        )
        try:
            key = _pattern_of(topic_filter)
            binding = BindingDefinition(source=EXCHANGE, destination=name, routing_key=key)
            await hub.client.exchanges.bind(binding, caller)
            await hub.client.consuming.subscribe(
                hub.client.consuming.find(name, caller),
                "",
                MATCH_ALL,
                self,
                consumer_id=f"tail-{caller}",
                credit_max=limits.TAIL_MESSAGES_MAX,
                no_ack=True,
                exclusive=True,
                lease_ms=hub.default_policy.visibility_timeout_ms,
            )
            yield {}
            while True:
                message = await self._messages.get()
                if message is None:
                    raise NotPermitted(self._refusal)
                body, encoding = shown((message.body or b"")[: limits.TAIL_BODY_BYTES])
                yield {"topic": topic_of(message.template.topic), "body": body, "encoding": encoding}
        finally:
            hub.client.queues.forget_caller(caller)
            hub.settle_turn()

    # the sink

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        for message in messages:
            if self._refusal or self._messages.full():
                break
            self._messages.put_nowait(message)
        return True

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """See `broker.engine.traffic.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `broker.engine.traffic.Sink`: the virtual host is deleted."""
        self.end(reason)


class Tails:
    """Serves all who follow topics: pages by WebSocket, programs by lines of JSON."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0

    async def serve_socket(self, socket: WebSocket) -> None:
        """Serve one page that follows topics."""
        try:
            check_operator(identity_of(socket.scope), is_looking=True)
        except Problem as problem:
            await socket.close(_POLICY_VIOLATION, problem.reason)
            return
        await socket.accept()
        sending = asyncio.ensure_future(self._send(socket))
        gone = asyncio.ensure_future(_gone(socket))
        try:
            await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, socket: WebSocket) -> None:
        try:
            topic_filter = socket.query_params.get("filter", "#")
            async for message in self._followed(self._site, topic_filter, identity_of(socket.scope)):
                if message:
                    await socket.send_text(json.dumps(message))
        except (QueueManagerError, Problem) as error:
            await socket.close(_POLICY_VIOLATION, error.reason[:100])
        except (StorageError, WebSocketDisconnect):
            pass

    async def serve_lines(self, request: Request) -> Response:
        """Serve a program that follows topics: an object on each line, the first one empty."""
        topic_filter = request.query_params.get("filter", "#")
        vhost = request.path_params.get("vhost")
        try:
            check_operator(identity_of(request.scope), is_looking=True)
            site = self._site if vhost is None else self._site.of_vhost(unquote(vhost))
            validate(topic_filter)
        except Exception as error:
            return answer_of(error)
        lines = self._lines(site, topic_filter, identity_of(request.scope))
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _lines(self, site: Site, topic_filter: str, identity: Identity) -> AsyncIterator[str]:
        try:
            async for message in self._followed(site, topic_filter, identity):
                yield json.dumps(message) + "\n"
        except (QueueManagerError, Problem) as error:
            yield json.dumps({"error": problem_of(error).error, "reason": error.reason}) + "\n"

    async def _followed(
        self, site: Site, topic_filter: str, identity: Identity
    ) -> AsyncGenerator[dict[str, str]]:
        if self._count >= limits.TAILS_MAX:
            raise Problem(503, "unavailable", "too many follow topics")
        self._count += 1
        try:
            tail = Tail(site)
            with lasting(site.hub.access, identity, tail.end, tags=OPERATORS):
                async with aclosing(tail.messages(topic_filter)) as messages:
                    async for message in messages:
                        yield message
        finally:
            self._count -= 1


async def _gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _pattern_of(topic_filter: str) -> str:
    """Return the routing key of a topic binding that stands for an MQTT filter."""
    return routing_key_of(topic_filter).replace("+", "*")
