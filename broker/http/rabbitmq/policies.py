"""Policies of a definitions file, as far as queues can have them.

RabbitMQ's policies hold for what matches them as long as they are there. Here a queue is given its policy
when it is made: what the file's policies say of it joins what it was declared with, and clients need not
repeat it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.amqp.topology.declarations import queue_declaration
from queue_manager.api import QueueDeclaration, QueuePolicy
from queue_manager.errors import InvalidArgument

_ARGUMENTS: Final = {
    key: f"x-{key}"
    for key in (
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "delivery-limit",
        "expires",
        "max-age",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
    )
}
_LEAST: Final = frozenset(("delivery-limit", "expires", "max-length", "max-length-bytes", "message-ttl"))
"""Of these the smaller one counts where a queue was declared with one, too; of others the queue's own."""

_APPLY_TO: Final = {
    "all": ("classic", "quorum", "stream"),
    "queues": ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy: what it gives queues, and the keys that it has besides."""

    name: str
    vhost: str
    pattern: re.Pattern[str]
    kinds: tuple[str, ...]
    priority: int
    definition: dict[str, Any]

    def matches(self, vhost: str, name: str, kind: str) -> bool:
        """Return whether it is for a queue."""
        return self.vhost == vhost and kind in self.kinds and self.pattern.search(name) is not None


class Policies:
    """The policies of a file. `not_taken` says what of them was not applied, a line each."""

    def __init__(self, entries: list[Any]) -> None:
        self._policies: list[Policy] = []
        self.not_taken: list[str] = []
        self.untaken_names: set[str] = set()
        for entry in entries:
            self._read(entry)
        self._policies.sort(key=lambda policy: -policy.priority)

    def declaration(
        self, wanted: dict[str, Any], vhost: str, default: QueuePolicy, **kind: bool
    ) -> QueueDeclaration:
        """Return the declaration of a queue of the file, with the policy of the first of these that matches
        it.

        Raises InvalidArgument.
        """
        name, arguments = wanted["name"], wanted["arguments"]
        own = queue_declaration(name, arguments, default, vhost=vhost, **kind)
        queue_type = str(arguments.get("x-queue-type", "classic"))
        policy = next((each for each in self._policies if each.matches(vhost, name, queue_type)), None)
        if policy is None:
            return own
        try:
            joined = queue_declaration(
                name, _joined(arguments, policy.definition), default, vhost=vhost, **kind
            )
        except InvalidArgument as error:
            self._leave(policy.name, f"for queue {name}: {error.reason}")
            return own
        return replace(own, policy=joined.policy)

    def _read(self, entry: Any) -> None:
        try:
            name, definition = str(entry["name"]), dict(entry["definition"])
            applies_to = entry.get("apply-to", "all")
            pattern, priority = re.compile(str(entry["pattern"])), int(entry.get("priority", 0))
            vhost = str(entry.get("vhost", "/"))
        except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
            named = entry.get("name", "?") if isinstance(entry, dict) else "?"
            self._leave(str(named), f"cannot be read ({error})")
            return
        if applies_to not in _APPLY_TO:
            self._leave(name, f"is for {applies_to}")
            return
        left = sorted(definition.keys() - _ARGUMENTS.keys())
        if left:
            self._leave(name, ", ".join(left))
        taken = {key: value for key, value in definition.items() if key in _ARGUMENTS}
        self._policies.append(
            Policy(
                name=name,
                vhost=vhost,
                pattern=pattern,
                kinds=_APPLY_TO[applies_to],
                priority=priority,
                definition=taken,
            )
        )

    def _leave(self, name: str, what: str) -> None:
        self.untaken_names.add(name)
        self.not_taken.append(f"policy {name}: {what}")


def _joined(arguments: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    joined = dict(arguments)
    for key, value in definition.items():
        argument = _ARGUMENTS[key]
        own = joined.get(argument)
        if own is None:
            joined[argument] = value
        elif key in _LEAST and isinstance(own, int) and isinstance(value, int):
            joined[argument] = min(own, value)
    return joined
