"""Federation of a virtual host: which exchanges and queues have which upstreams by the policies as they are,
and a link for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import structlog

from broker.engine.client.federating import UPSTREAM, UPSTREAM_SET, Federated, FederationClient
from broker.links.amqp_peer import OpenHere
from broker.links.federated_exchange import FederatedExchange
from broker.links.federated_queue import FederatedQueue
from broker.links.supervised_link import Link, LinkView
from broker.links.upstream_settings import ALL, UpstreamSettings, read_upstream
from broker.vhosts.hub import Hub
from config import limits
from queue_manager.errors import InvalidArgument

_log: Final = structlog.get_logger("sluicemq.link")


class _Key(NamedTuple):
    kind: str
    name: str
    upstream: str


class Federation:
    """Looks from time to time what is federated, and at once when it is told to."""

    def __init__(self, hub: Hub, open_here: OpenHere, cluster_name: str) -> None:
        """`cluster_name` tells this broker from all others."""
        self._hub = hub
        self._client: FederationClient = hub.client.federation
        self._open_here = open_here
        self._cluster_name = cluster_name
        self._upstreams: Mapping[str, Mapping[str, Any]] = {}
        self._sets: Mapping[str, Any] = {}
        self._links: dict[_Key, tuple[UpstreamSettings, Link]] = {}
        self._changed = asyncio.Event()
        self._is_over = False
        hub.spawn(self._watch())

    def follow(self, upstreams: Mapping[str, Mapping[str, Any]], sets: Mapping[str, Any]) -> None:
        """Go by these upstreams and sets of them from now on."""
        self._upstreams, self._sets = upstreams, sets
        self._changed.set()

    def stop(self) -> None:
        """Stop: the virtual host is deleted."""
        self._is_over = True
        self._changed.set()
        for _, link in self._links.values():
            link.stop()

    async def _watch(self) -> None:
        while not self._is_over:
            self._changed.clear()
            try:
                await self._look()
            except Exception:
                _log.exception("federation.internal_error", vhost=self._hub.vhost.name)
            try:
                async with asyncio.timeout(limits.FEDERATION_LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Have the links that there are to be."""
        wanted: dict[_Key, UpstreamSettings] = {}
        if self._upstreams:
            for federated in await self._client.all():
                for settings in self._upstreams_of(federated):
                    wanted[_Key(federated.kind, federated.name, settings.name)] = settings
            if self._is_over:
                return
        for key in list(self._links):
            if self._links[key][0] != wanted.get(key):
                _, link = self._links.pop(key)
                link.stop()
                if key not in wanted and isinstance(link, FederatedExchange):
                    self._hub.spawn(link.clean_up())
        for key in wanted.keys() - self._links.keys():
            most = limits.FEDERATION_LINKS_MAX
            if len(self._links) >= most:
                _log.error("federation.too_many", vhost=self._hub.vhost.name, most=most)
                break
            link = self._made(key, wanted[key])
            self._links[key] = wanted[key], link
            link.start(lambda done: None)

    def _made(self, key: _Key, settings: UpstreamSettings) -> Link:
        if key.kind == "queue":
            return FederatedQueue(self._hub, key.name, settings, self._open_here)
        return FederatedExchange(self._hub, key.name, settings, self._open_here, self._cluster_name)

    def _upstreams_of(self, federated: Federated) -> Iterator[UpstreamSettings]:
        """Yield the upstreams that a policy gives; those that are not there are passed over."""
        entries: list[Mapping[str, Any]]
        named = federated.definition.get(UPSTREAM)
        if named is not None:
            entries = [{"upstream": named}]
        elif federated.definition[UPSTREAM_SET] == ALL and ALL not in self._sets:
            entries = [{"upstream": name} for name in self._upstreams]
        else:
            entries = self._sets.get(federated.definition[UPSTREAM_SET], [])
        for entry in entries:
            name = entry["upstream"]
            if name in self._upstreams:
                value = {**self._upstreams[name], **entry}
                try:
                    yield read_upstream(name, value, self._hub.vhost.name)
                except InvalidArgument as error:
                    _log.error("federation.upstream_wrong", upstream=name, reason=error.reason)

    def views(self) -> list[LinkView]:
        """Return the links, by kind, name and upstream."""
        return [self._links[key][1].view() for key in sorted(self._links)]
