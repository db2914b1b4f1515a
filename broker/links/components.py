"""The components that have parameters: how these are checked, shown, and what runs by them.

What a component needs is imported once one of its parameters is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from broker.access.login import Login
from broker.access.rights import Action, Kind
from broker.links.supervised_link import Link
from broker.vhosts.hub import Hub
from queue_manager.errors import AccessRefused, InvalidArgument

HIDDEN: Final = "***"


class Component(ABC):
    """One kind of parameters."""

    @abstractmethod
    def check(self, value: Any, hub: Hub, login: Login) -> None:
        """Raise InvalidArgument for a value that cannot be, NotPermitted and VhostRefused for what that user
        may not have done.
        """

    @abstractmethod
    def make(self, value: Any, hub: Hub, name: str) -> Link | None:
        """Return what runs by a parameter, None: nothing does by itself. Raises InvalidArgument."""

    @abstractmethod
    def without_secrets(self, value: Any) -> Any:
        """Return a value as it may be shown."""


class _Shovels(Component):
    def check(self, value: Any, hub: Hub, login: Login) -> None:
        from broker.links.shovel_settings import read_shovel

        settings = read_shovel(table_of(value), hub.vhost.name)
        if login.is_administrator:
            return
        for end, action in ((settings.source, Action.READ), (settings.target, Action.WRITE)):
            for uri in end.uris:
                if not uri.is_here:
                    continue
                hub.of_vhost(uri.vhost)
                identity = login.enter(uri.vhost)
                if end.queue is not None:
                    identity.check(action, Kind.QUEUE, end.queue)
                    if not end.is_predeclared:
                        identity.check(Action.CONFIGURE, Kind.QUEUE, end.queue)
                elif end.exchange is not None:
                    identity.check(action, Kind.EXCHANGE, end.exchange)
                    if end.key is not None:
                        identity.check_keys(action, end.exchange, end.key)
                else:
                    raise AccessRefused("only administrators leave it open where messages go")

    def make(self, value: Any, hub: Hub, name: str) -> Link:
        from broker.links.inner_connection import InnerConnections
        from broker.links.shovel import Shovel
        from broker.links.shovel_settings import read_shovel

        settings = read_shovel(value, hub.vhost.name)
        return Shovel(hub, name, settings, InnerConnections(hub).open)

    def without_secrets(self, value: Any) -> Any:
        return without_passwords(value)


class _Upstreams(Component):
    def check(self, value: Any, hub: Hub, login: Login) -> None:
        from broker.links.upstream_settings import check_upstream, read_upstream

        check_upstream(table_of(value))
        settings = read_upstream("", value, hub.vhost.name)
        if any(uri.is_here for uri in settings.uris) and not login.is_administrator:
            raise AccessRefused("only administrators have this broker as an upstream of itself")

    def make(self, value: Any, hub: Hub, name: str) -> None:
        return None  # links are made by policies: `Federation`

    def without_secrets(self, value: Any) -> Any:
        return without_passwords(value)


class _UpstreamSets(Component):
    def check(self, value: Any, hub: Hub, login: Login) -> None:
        from broker.links.upstream_settings import check_set

        check_set(value)
        if not login.is_administrator and any("uri" in each for each in value):
            raise AccessRefused("only administrators have sets with URIs of their own")

    def make(self, value: Any, hub: Hub, name: str) -> None:
        return None

    def without_secrets(self, value: Any) -> Any:
        return [without_passwords(each) for each in value]


class _Webhooks(Component):
    def check(self, value: Any, hub: Hub, login: Login) -> None:
        from broker.links.webhook_settings import read_webhook

        if not login.is_administrator:
            raise AccessRefused("only administrators make webhooks: they send from where the broker is")
        read_webhook(table_of(value))

    def make(self, value: Any, hub: Hub, name: str) -> Link:
        from broker.links.inner_connection import InnerConnections
        from broker.links.webhook import Webhook
        from broker.links.webhook_settings import read_webhook

        return Webhook(hub, name, read_webhook(value), InnerConnections(hub).open)

    def without_secrets(self, value: Any) -> Any:
        from broker.links.webhook_settings import SECRETS

        shown = {key: HIDDEN if key in SECRETS else each for key, each in value.items()}
        if "headers" in shown:
            shown["headers"] = dict.fromkeys(shown["headers"], HIDDEN)
        return shown


def table_of(value: object) -> Mapping[str, Any]:
    """Return a value that is an object; raises InvalidArgument."""
    if not isinstance(value, dict):
        raise InvalidArgument("value: an object")
    return value


def without_passwords(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value whose URIs have no passwords."""
    from broker.links.amqp_uri import hidden

    def shown(uri: Any) -> Any:
        if isinstance(uri, list):
            return [shown(each) for each in uri]
        return hidden(uri) if isinstance(uri, str) else uri

    return {key: shown(each) if key.endswith("uri") else each for key, each in value.items()}


UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
COMPONENTS: Final[Mapping[str, Component]] = {
    "shovel": _Shovels(),
    UPSTREAM: _Upstreams(),
    UPSTREAM_SET: _UpstreamSets(),
    "webhook": _Webhooks(),
}


def component_of(name: str) -> Component:
    """Return the component of that name; raises InvalidArgument."""
    found = COMPONENTS.get(name)
    if found is None:
        raise InvalidArgument(f"Validation failed\n\ncomponent {name} not found\n")
    return found
