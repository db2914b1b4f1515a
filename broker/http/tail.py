"""Following topics live, over a WebSocket: a queue in memory of its own, bound to the exchange of topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from broker.engine.traffic import Claim, Consumer, Message
from broker.http.guard import check_operator, identity_of
from broker.http.problems import Problem
from broker.http.site import Site
from broker.http.values import shown
from broker.topics import EXCHANGE, routing_key_of, topic_of
from config import limits
from queue_manager.api import BindingDefinition, QueueDeclaration
from queue_manager.errors import QueueManagerError
from queue_manager.patterns import MATCH_ALL, validate
from storage.errors import StorageError

_POLICY_VIOLATION: Final = 1008
_TRY_AGAIN_LATER: Final = 1013


class Tail:
    """Follows one topic filter for one page; what the page is too slow for is left out."""

    def __init__(self, site: Site) -> None:
        self._hub = site.hub
        self._messages: asyncio.Queue[Message] = asyncio.Queue(limits.TAIL_MESSAGES_MAX)

    async def follow(self, topic_filter: str, socket: WebSocket) -> None:
        """Until the page goes; raises QueueManagerError, WebSocketDisconnect."""
        validate(topic_filter)
        hub = self._hub
        caller = hub.new_caller()
        name = f"amq.tail.{caller}"
        await hub.client.queues.declare(
            QueueDeclaration(name=name, durable=False, policy=hub.default_policy, exclusive=True), caller
        )
        try:
            key = _pattern_of(topic_filter)
            binding = BindingDefinition(source=EXCHANGE, destination=name, routing_key=key)
            await hub.client.exchanges.bind(binding, caller)
            hub.client.consuming.subscribe(
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
            gone = asyncio.ensure_future(_gone(socket))
            sending = asyncio.ensure_future(self._send(socket))
            try:
                await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (gone, sending):
                    task.cancel()
                await asyncio.gather(gone, sending, return_exceptions=True)
        finally:
            hub.client.queues.forget_caller(caller)
            hub.settle_turn()

    async def _send(self, socket: WebSocket) -> None:
        while True:
            message = await self._messages.get()
            body, encoding = shown((message.body or b"")[: limits.PREVIEW_BYTES])
            told = {"topic": topic_of(message.template.topic), "body": body, "encoding": encoding}
            await socket.send_text(json.dumps(told))

    # the sink

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        """See `broker.engine.traffic.Sink`."""
        for message in messages:
            if self._messages.full():
                break
            self._messages.put_nowait(message)
        return True

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """See `broker.engine.traffic.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `broker.engine.traffic.Sink`."""


class Tails:
    """Serves the WebSockets of all pages."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0

    async def serve(self, socket: WebSocket) -> None:
        """One page that follows topics."""
        try:
            check_operator(identity_of(socket.scope), is_looking=True)
        except Problem as problem:
            await socket.close(_POLICY_VIOLATION, problem.reason)
            return
        await socket.accept()
        if self._count >= limits.TAILS_MAX:
            await socket.close(_TRY_AGAIN_LATER, "too many pages follow topics")
            return
        self._count += 1
        try:
            await Tail(self._site).follow(socket.query_params.get("filter", "#"), socket)
        except QueueManagerError as error:
            await socket.close(_POLICY_VIOLATION, error.reason[:100])
        except (StorageError, WebSocketDisconnect):
            pass
        finally:
            self._count -= 1


async def _gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _pattern_of(topic_filter: str) -> str:
    """The routing key of a topic binding that stands for an MQTT filter."""
    return routing_key_of(topic_filter).replace("+", "*")
