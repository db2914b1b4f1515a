"""What changed of the accounts, as events: users, their passwords, tags, permissions and quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.access.accounts_of_file import Users
from broker.events.event_facts import Events
from config.access_settings import PermissionSettings
from config.quota_settings import quota_field
from queue_manager.api import Event


def tell_users(events: Events, before: Users | None, after: Users | None, by: str) -> None:
    """Tell what is different between two readings of the users file; `by` changed it, "" if nobody knows."""
    if events.is_wanted:
        for event in _changes(before, after):
            events.note(event.key, event.headers, by or None)


def _changes(before: Users | None, after: Users | None) -> Iterator[Event]:
    were = [] if before is None else before.names
    are = [] if after is None else after.names
    for name in were:
        if name not in are:
            yield Event("user.deleted", {"name": name})
    for name in are:
        assert after is not None
        if before is None or name not in were:
            yield Event("user.created", {"name": name})
            yield from _changed(name, None, after)
        else:
            if before.password_hash(name) != after.password_hash(name):
                yield Event("user.password.changed", {"name": name})
            yield from _changed(name, before, after)


def _changed(name: str, before: Users | None, after: Users) -> Iterator[Event]:
    """Yield what is different of a user that is there."""
    old = None if before is None else before.view(name)
    new = after.view(name)
    if new.tags != (() if old is None else old.tags):
        yield Event("user.tags.set", {"name": name, "tags": list(new.tags)})
    had = {} if old is None else {each.vhost: each for each in old.permissions}
    has = {each.vhost: each for each in new.permissions}
    for vhost in had.keys() - has.keys():
        yield Event("permission.deleted", {"user": name, "vhost": vhost})
    for vhost, permission in has.items():
        if permission != had.get(vhost):
            yield from _permission(name, had.get(vhost), permission)
    quotas: Mapping[str, int] = new.quotas()
    if quotas != ({} if old is None else old.quotas()):
        key = "user.limits.set" if quotas else "user.limits.cleared"
        yield Event(key, {"username": name, "name": "limits", **limits_told(quotas)})


def limits_told(quotas: Mapping[str, int]) -> dict[str, int]:
    """Return quotas under the names that RabbitMQ has for limits."""
    return {quota_field(name).replace("_", "-"): most for name, most in quotas.items()}


def _permission(name: str, old: PermissionSettings | None, new: PermissionSettings) -> Iterator[Event]:
    """Yield what is different of a user's permissions in a virtual host."""
    told: dict[str, Any] = {"user": name, "vhost": new.vhost}
    rights = {"configure": new.configure, "write": new.write, "read": new.read}
    if old is None or rights != {"configure": old.configure, "write": old.write, "read": old.read}:
        yield Event("permission.created", {**told, **rights})
    had = {} if old is None else {topic.exchange: topic for topic in old.topics}
    has = {topic.exchange: topic for topic in new.topics}
    if had.keys() - has.keys():
        yield Event("topic.permission.deleted", dict(told))
    for exchange, topic in has.items():
        if topic != had.get(exchange):
            headers = {**told, "exchange": exchange, "write": topic.write, "read": topic.read}
            yield Event("topic.permission.created", headers)
