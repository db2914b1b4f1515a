"""Changing the settings of a broker while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from config.field_types import Section
from config.settings import Settings

RELOADED: Final = ("access.", "default_policies", "log.level", "queues", "vhosts")
"""Keys that take effect at once; so do the TLS settings of listeners that are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The result of a reload: keys that changed, and those of them that wait for a restart.

    `connections_ended`: of users who were removed or may do less.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    connections_ended: int


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """Return the keys whose values differ, as the documentation names them."""
    before, after = dict(_values(old)), dict(_values(new))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def needs_restart(key: str) -> bool:
    """Return whether a changed key takes effect with a restart only."""
    if key.startswith("listeners."):
        return ".tls." not in key
    return not any(key == known or (known.endswith(".") and key.startswith(known)) for known in RELOADED)


def merged(old: Settings, new: Settings) -> Settings:
    """Return the settings that hold after a reload: of the new ones what takes effect at once."""
    listeners = {
        name: listener.model_copy(update={"tls": tls})
        for name, listener in old.listeners.opened().items()
        if (tls := new.listeners.with_tls().get(name)) is not None
    }
    return old.model_copy(
        update={
            "access": new.access,
            "default_policies": new.default_policies,
            "queues": new.queues,
            "vhosts": new.vhosts,
            "log": old.log.model_copy(update={"level": new.log.level}),
            "listeners": old.listeners.model_copy(update=listeners),
        }
    )


def _values(section: Section, path: str = "") -> Iterator[tuple[str, Any]]:
    for attribute, field in type(section).model_fields.items():
        name = field.validation_alias if isinstance(field.validation_alias, str) else attribute
        value = getattr(section, attribute)
        if isinstance(value, Section):
            yield from _values(value, f"{path}{name}.")
        else:
            yield path + name, value
