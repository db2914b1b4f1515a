"""The parameters of all virtual hosts, and the links that are made from them."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.access.login import Login
from broker.links.components import COMPONENTS, UPSTREAM, UPSTREAM_SET, component_of
from broker.links.supervised_link import Link, LinkView
from broker.vhosts.hub import Hub
from config import limits
from queue_manager.api import ParameterKey
from queue_manager.errors import InvalidArgument, LimitReached, QueueManagerError

if TYPE_CHECKING:
    from broker.links.federation import Federation

FEDERATION: Final = "federation"
"""The component that links of federation are shown as."""
_CLUSTER_NAME: Final = ParameterKey("cluster_name", "", "")
_log: Final = structlog.get_logger("sluicemq.link")


class ParameterNotFound(QueueManagerError):
    """There is no parameter of that name."""

    def __init__(self, component: str, name: str) -> None:
        super().__init__(f"{component} {name} not found")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as listings show it: without passwords and other secrets."""

    component: str
    vhost: str
    name: str
    value: Any


class Links:
    """Keeps parameters, and has their links run. Changes are durable when a call returns."""

    def __init__(self, hub: Hub) -> None:
        """`hub` is that of `/`."""
        self._hub = hub
        self._records = hub.client.parameters
        self._commits = hub.client.commits
        self._values: dict[ParameterKey, Any] = {}
        self._links: dict[ParameterKey, Link] = {}
        self._federations: dict[str, Federation] = {}
        self._changing = asyncio.Lock()

    def begin(self) -> None:
        """Have those run that were kept before the start."""
        for key, raw in self._records.kept():
            if key == _CLUSTER_NAME:
                self._hub.server_properties["cluster_name"] = raw.decode()
            elif key.vhost in self._hub.vhosts():
                self._values[key] = json.loads(raw)
            else:
                self._records.forget(key)
        for key in list(self._values):
            try:
                self._start(key)
            except InvalidArgument as error:
                _log.error(
                    "link.not_started",
                    kind=key.component,
                    vhost=key.vhost,
                    name=key.name,
                    reason=error.reason,
                )
        for vhost in {key.vhost for key in self._values}:
            self._federate(vhost)
        self._hub.on_vhost(self._on_vhost)

    def _on_vhost(self, hub: Hub, begins: bool) -> None:
        if not begins:
            for key in [key for key in self._values if key.vhost == hub.vhost.name]:
                self._drop(key)
            federation = self._federations.pop(hub.vhost.name, None)
            if federation is not None:
                federation.stop()

    def all(self, vhost: str, component: str = "", *, with_secrets: bool = False) -> list[Parameter]:
        """Return the parameters of a virtual host, by component and name; those of a `component` alone.

        Raises InvalidArgument for one that is not known.
        """
        if component:
            component_of(component)
        found = [key for key in self._values if key.vhost == vhost and component in ("", key.component)]
        return [self._shown(key, with_secrets) for key in sorted(found)]

    def find(self, component: str, vhost: str, name: str, *, with_secrets: bool = False) -> Parameter:
        """Return one parameter; raises ParameterNotFound, InvalidArgument."""
        component_of(component)
        key = ParameterKey(component, vhost, name)
        if key not in self._values:
            raise ParameterNotFound(component, name)
        return self._shown(key, with_secrets)

    def _shown(self, key: ParameterKey, with_secrets: bool) -> Parameter:
        value = self._values[key]
        return Parameter(*key, value if with_secrets else component_of(key.component).without_secrets(value))

    async def set(self, component: str, vhost: str, name: str, value: object, login: Login) -> bool:
        """Have a parameter, in the place of one of that name, as far as that user may; whether it is new.

        Raises InvalidArgument, LimitReached, VhostNotFound, NotPermitted.
        """
        kind = component_of(component)
        raw = json.dumps(value).encode()
        if len(raw) > limits.PARAMETER_BYTES_MAX:
            raise InvalidArgument(f"value: at most {limits.PARAMETER_BYTES_MAX} bytes")
        if not 1 <= len(name.encode()) <= limits.PARAMETER_NAME_BYTES_MAX or not name.isprintable():
            raise InvalidArgument(f"a name has 1 to {limits.PARAMETER_NAME_BYTES_MAX} printable bytes")
        hub = self._hub.of_vhost(vhost)
        kind.check(value, hub, login)
        key = ParameterKey(component, vhost, name)
        async with self._changing:
            is_new = key not in self._values
            if (
                is_new
                and sum(each.vhost == vhost for each in self._values) >= limits.PARAMETERS_PER_VHOST_MAX
            ):
                raise LimitReached(f"{limits.PARAMETERS_PER_VHOST_MAX} parameters exist already")
            hub.check_there()
            self._stop(key)
            self._values[key] = value
            self._records.keep(key, raw)
            self._start(key)
            self._federate(vhost)
            await self._commits.durable()
        told = {"component": component, "name": name, "vhost": vhost}
        _log.info("parameter.set", **told, by=login.user)
        if self._hub.events.is_wanted:
            self._hub.events.note("parameter.set", told, login.user)
        return is_new

    async def clear(self, component: str, vhost: str, name: str, by: str) -> None:
        """Have a parameter no more; raises ParameterNotFound, InvalidArgument."""
        self.find(component, vhost, name)
        async with self._changing:
            self._drop(ParameterKey(component, vhost, name))
            self._federate(vhost)
            await self._commits.durable()
        told = {"component": component, "name": name, "vhost": vhost}
        _log.info("parameter.cleared", **told, by=by)
        if self._hub.events.is_wanted:
            self._hub.events.note("parameter.cleared", told, by)

    def _drop(self, key: ParameterKey) -> None:
        self._stop(key)
        self._values.pop(key, None)
        self._records.forget(key)

    def views(self, vhost: str, component: str = "") -> list[LinkView]:
        """Return the links of a virtual host, by component and name."""
        found = [key for key in self._links if key.vhost == vhost and component in ("", key.component)]
        views = [self._links[key].view() for key in sorted(found)]
        if component in ("", FEDERATION) and vhost in self._federations:
            views += self._federations[vhost].views()
        return views

    def restart(self, component: str, vhost: str, name: str) -> None:
        """Have a link begin anew; raises ParameterNotFound, InvalidArgument."""
        self.find(component, vhost, name)
        key = ParameterKey(component, vhost, name)
        self._stop(key)
        self._start(key)

    def _start(self, key: ParameterKey) -> None:
        component = COMPONENTS[key.component]
        link = component.make(self._values[key], self._hub.of_vhost(key.vhost), key.name)
        if link is not None:
            self._links[key] = link
            link.start(self._on_done)

    def _federate(self, vhost: str) -> None:
        """Tell federation of the upstreams as they are; it begins with the first one."""
        by_component: dict[str, dict[str, Any]] = {UPSTREAM: {}, UPSTREAM_SET: {}}
        for key, value in self._values.items():
            if key.vhost == vhost and key.component in by_component:
                by_component[key.component][key.name] = value
        if vhost not in self._federations:
            if not by_component[UPSTREAM]:
                return
            from broker.links.federation import Federation
            from broker.links.inner_connection import InnerConnections

            hub = self._hub.of_vhost(vhost)
            self._federations[vhost] = Federation(hub, InnerConnections(hub).open, self._cluster_name())
        self._federations[vhost].follow(by_component[UPSTREAM], by_component[UPSTREAM_SET])

    def _cluster_name(self) -> str:
        """Return what tells this broker from all others, over restarts; brokers of one machine, too."""
        properties = self._hub.server_properties
        if "cluster_name" not in properties:
            properties["cluster_name"] = f"sluicemq@{socket.gethostname()}-{secrets.token_hex(4)}"
            self._records.keep(_CLUSTER_NAME, properties["cluster_name"].encode())
        return str(properties["cluster_name"])

    def _stop(self, key: ParameterKey) -> None:
        link = self._links.pop(key, None)
        if link is not None:
            link.stop()

    def _on_done(self, link: Link) -> None:
        """Have a link no more that has nothing left to do."""
        key = ParameterKey(link.component, link.hub.vhost.name, link.name)
        if self._links.get(key) is link:
            self._drop(key)
            _log.info("parameter.done", component=key.component, vhost=key.vhost, name=key.name)
