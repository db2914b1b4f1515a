"""One bridge: connects to the other broker, and again."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Final

import structlog

from broker.access.accounts_of_file import itself
from broker.access.login import Identity
from broker.engine.session_traffic import NEVER_S, Session, SubscriptionOptions
from broker.mqtt.bridges.bridge_connection import BridgeConnection, BridgeLost, VersionRefused
from broker.mqtt.bridges.bridge_link import BRIDGE_USER
from broker.mqtt.bridges.bridge_publisher import BridgePublisher
from broker.mqtt.bridges.bridge_topics import Dialects, local_filter
from broker.mqtt.topology.pubsub import PubSub
from broker.vhosts.hub import Hub
from config import limits
from config.bridge_settings import BridgeSettings
from protocols.errors import ProtocolError

_log: Final = structlog.get_logger("sluicemq.bridge")

_READ_BYTES: Final = 256 * 1024


class Bridge:
    """Runs as a task of the broker, whether the other broker is there or not."""

    def __init__(self, hub: Hub, pubsub: PubSub, settings: BridgeSettings) -> None:
        self._hub = hub
        self._pubsub = pubsub
        self._settings = settings
        self._dialects = Dialects(settings.protocol)
        self._identity: Identity = itself().enter(hub.vhost.name)
        self._session = self._prepared()
        self._writer: asyncio.StreamWriter | None = None
        self._is_over = False

    def _prepared(self) -> Session:
        """Return the session, subscribed to what goes out and to nothing else."""
        sessions = self._hub.client.sessions
        name = session_name(self._settings.name)
        session = sessions.find(name) or sessions.begin(name, BRIDGE_USER, NEVER_S)
        wanted = {local_filter(rule): rule.qos for rule in self._settings.out_topics}
        for known in list(session.subscriptions):
            if known not in wanted:
                sessions.unsubscribe(session, known)
        for topic_filter, qos in wanted.items():
            options = SubscriptionOptions(qos, True, True, 2, 0, b"")
            sessions.subscribe(session, topic_filter, options, is_logged=True)
        sessions.leave(session)
        return session

    def stop(self) -> None:
        """Stop: the virtual host is deleted, nothing more goes out or comes in."""
        self._is_over = True
        if self._writer is not None:
            self._writer.transport.abort()

    async def run(self) -> None:
        """Keep the connection up, until the broker stops."""
        delay_s = limits.BRIDGE_RETRY_S_MIN
        name = self._settings.name
        while not self._is_over:
            began = self._hub.clock.monotonic()
            try:
                await self._serve()
            except VersionRefused as error:
                spoken = self._dialects.current.told
                if self._dialects.refused():
                    following = self._dialects.current.told
                    _log.info("bridge.version_refused", bridge=name, protocol=spoken, next=following)
                    continue
                _log.warning("bridge.lost", bridge=name, reason=str(error), retry_s=delay_s)
            except (OSError, BridgeLost, ProtocolError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                _log.warning("bridge.lost", bridge=name, reason=reason, retry_s=delay_s)
            except Exception:
                _log.exception("bridge.internal_error", bridge=name)
            if self._hub.clock.monotonic() - began > limits.BRIDGE_RETRY_S_MAX:
                delay_s = limits.BRIDGE_RETRY_S_MIN
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, limits.BRIDGE_RETRY_S_MAX)

    async def _serve(self) -> None:
        """Connect, and serve the connection until it ends; raises what ended it."""
        settings = self._settings
        async with asyncio.timeout(limits.BRIDGE_CONNECT_TIMEOUT_S):
            context = ssl.create_default_context(cafile=settings.ca_file) if settings.tls else None
            reader, writer = await asyncio.open_connection(settings.host, settings.port, ssl=context)
        self._writer = writer
        connection = BridgeConnection(
            self._hub,
            self._session,
            settings,
            self._dialects.current,
            writer,
            partial(BridgePublisher, self._hub, self._pubsub, self._identity, self._session, settings.name),
        )
        try:
            while not self._is_over:
                async with asyncio.timeout(limits.BRIDGE_SILENCE_S):
                    data = await reader.read(_READ_BYTES)
                if not data:
                    raise BridgeLost("the other broker closed the connection")
                connection.receive(data)
                self._hub.settle_turn()
                await writer.drain()
        finally:
            self._writer = None
            connection.end()
            writer.close()
            self._hub.settle_turn()


def session_name(bridge: str) -> str:
    """Return the client identifier of a bridge's session here."""
    return f"$bridge/{bridge}"


def start_bridges(hub: Hub, pubsub: PubSub) -> list[Bridge]:
    """Have the bridges run that are configured for a virtual host; the sessions of others end."""
    settings = [each for each in hub.settings.mqtt.bridges if each.vhost == hub.vhost.name]
    sessions = hub.client.sessions
    names = {session_name(each.name) for each in settings}
    for session in sessions.of_user(BRIDGE_USER):
        if session.client_id not in names:
            sessions.end(session)
    bridges = [Bridge(hub, pubsub, each) for each in settings]
    for bridge in bridges:
        hub.spawn(bridge.run())
    return bridges


def has_bridges(hub: Hub) -> bool:
    """Return whether bridges are configured for a virtual host."""
    return any(each.vhost == hub.vhost.name for each in hub.settings.mqtt.bridges)
