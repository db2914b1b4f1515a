"""The definitions of queues and groups, and their spec records (`06`).

The RFC's fields hold filters, attempts, done retention, bucket exponent, description; ours lie in spec
extensions: `policy` (JSON: limits in milliseconds and bytes, log ID, bindings, declared arguments), `done` =
00 for "keep no done records", `paused` of a queue that is, and for a group of its own `group` (JSON: name,
pattern). The filters say which messages of the queue's log are the group's: all of them but for a pattern and
a selector. What comes into the log bindings have decided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, replace
from dataclasses import fields as fields_of
from typing import Any, Final

from queue_manager.address import address_of, validate_queue_name
from queue_manager.errors import Inequivalent, QueueManagerError, ResourceLocked
from queue_manager.patterns import MATCH_ALL, validate
from queue_manager.policy import FOREVER, NOT_PAUSED, Pause, QueuePolicy
from storage.encoding import Reader, pack_u64
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import QueueSpec, queue_spec

# among the arguments
DURABLE: Final = "durable"  # what was declared, where it is not what the queue is
_TYPE: Final = "x-queue-type"
REPORTED: Final = "reported"  # arguments that a redeclaration need not repeat
_POLICY_FIELDS: Final = frozenset(field.name for field in fields_of(QueuePolicy))
_GROUP_FIELDS: Final = frozenset(("name", "pattern"))
PAUSED: Final = "paused"  # extension: u8, the sum of what is paused: 1 for publishers, 2 for consumers
PURGED: Final = "purged"  # extension: u64LE, the offset behind what was there at the last purge
AWAITS_HISTORY: Final = "unborn"  # extension: a group was made, but not told yet what there is for it


@dataclass(eq=False, slots=True)
class QueueDefinition:
    """The definition that a declaration gives. `arguments` are the declared arguments that a redeclaration
    must repeat; None: made by configuration, any redeclaration of the same kind fits. `owner` makes it
    exclusive. `auto_created`: it was not declared, but made because its name was used. `is_server_named`: the
    broker chose the name. `user` made it; None: no user did.
    """

    name: str
    _: KW_ONLY
    durable: bool
    policy: QueuePolicy
    topics: tuple[str, ...] = ()
    arguments: Mapping[str, object] | None = None
    auto_delete: bool = False
    owner: object = None
    auto_created: bool = False
    description: str = ""
    is_server_named: bool = False
    user: str | None = None

    def __post_init__(self) -> None:
        validate_queue_name(self.name)
        topics = tuple(validate(topic) for topic in self.topics)
        self.topics = topics or (f"{address_of(self.name)}/#",)

    @classmethod
    def ephemeral(cls, name: str, policy: QueuePolicy, user: str | None = None) -> QueueDefinition:
        """Return the definition of a queue made because its name was used."""
        return cls(name, durable=False, policy=policy, auto_created=True, user=user)

    def difference(self, existing: QueueDefinition) -> QueueManagerError | None:
        """Return the refusal of a redeclaration that contradicts an existing queue; None if it does not."""
        if (self.owner is None) != (existing.owner is None):
            return ResourceLocked(self.name)
        mine, theirs = self.arguments, existing.arguments
        # an exclusive or auto-delete queue is kept in memory even if it was declared as durable
        ours, others = ({} if each is None else each for each in (mine, theirs))
        durable = ours.get(DURABLE, self.durable), others.get(DURABLE, existing.durable)
        flags = {"durable": durable, "auto_delete": (self.auto_delete, existing.auto_delete)}
        for name, (received, current) in flags.items():
            if received != current:
                return Inequivalent("queue", self.name, name, received, current, is_argument=False)
        if self.policy.stream != existing.policy.stream:
            received, current = _type(self), _type(existing)
            return Inequivalent("queue", self.name, _TYPE, received, current, is_argument=True)
        received, current = (declared_arguments(each).get(_TYPE) for each in (mine, theirs))
        if received is not None and current is not None and received != current:
            return Inequivalent("queue", self.name, _TYPE, received, current, is_argument=True)
        if mine is not None and theirs is not None:
            for name in sorted({*mine, *theirs} - {DURABLE, REPORTED}):
                received, current = mine.get(name), theirs.get(name)
                if received != current:
                    return Inequivalent("queue", self.name, name, received, current, is_argument=True)
        return None


def declared_arguments(arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Return all arguments that were declared, also those that need not be repeated."""
    given = {} if arguments is None else dict(arguments)
    given.pop(DURABLE, None)
    reported = given.pop(REPORTED, {})
    return {**given, **reported} if isinstance(reported, Mapping) else given


def is_quorum(arguments: Mapping[str, object] | None) -> bool:
    """Return whether a queue with these arguments was declared as a quorum queue."""
    return declared_arguments(arguments).get(_TYPE) == "quorum"


def _type(definition: QueueDefinition) -> str | None:
    return "stream" if definition.policy.stream else None


def encode_queue_spec(
    policy: QueuePolicy,
    log_id: str,
    topics: tuple[str, ...],
    arguments: Mapping[str, object] | None,
    default_selector: str | None,
    *,
    description: str,
    pause: Pause,
    awaits_history: bool,
    purged_to: int = 0,
    user: str | None = None,
) -> bytes:
    """Return the spec record of a log of a queue, with its default group (`default_selector` None: there
    is none). `purged_to`: what is kept below was there at a purge; 0: nothing was.
    """
    fields: dict[str, Any] = {**policy.fields(), "log": log_id, "arguments": arguments, "topics": topics}
    fields["default_group"] = default_selector is not None
    if user is not None:
        fields["user"] = user
    extensions = {"policy": _json(fields)}
    if pause != NOT_PAUSED:
        extensions[PAUSED] = bytes((pause.publish | pause.deliver << 1,))
    if purged_to:
        extensions[PURGED] = pack_u64(purged_to)
    return _encode(policy, (), default_selector or "", extensions, description, awaits_history=awaits_history)


def encode_group_spec(
    policy: QueuePolicy, queue_name: str, name: str, pattern: str, selector: str, *, awaits_history: bool
) -> bytes:
    """Return the spec record of another group in a log of a queue."""
    extensions = {"group": _json({"name": name, "pattern": pattern})}
    filters = () if pattern == MATCH_ALL else (f"{address_of(queue_name)}/{pattern}", pattern)
    return _encode(policy, filters, selector, extensions, awaits_history=awaits_history)


def _encode(
    policy: QueuePolicy,
    filters: tuple[str, ...],
    selector: str,
    extensions: dict[str, bytes],
    description: str = "",
    *,
    awaits_history: bool,
) -> bytes:
    retention_ms = policy.done_retention_ms
    if retention_ms == 0:
        extensions = {"done": b"\x00", **extensions}
    if awaits_history:
        extensions = {**extensions, AWAITS_HISTORY: b""}
    return queue_spec.encode(
        QueueSpec(
            topic_filters=filters,
            selector=selector,
            max_attempts=policy.attempts_max,
            done_retention_s=0 if retention_ms == FOREVER else max(1, -(-retention_ms // 1000)),
            bucket_exponent=policy.bucket_size,
            description=description,
            extensions=extensions,
        )
    )


class StoredQueue:
    """A queue's spec record, read back."""

    __slots__ = (
        "arguments",
        "description",
        "has_default_group",
        "log_id",
        "pause",
        "policy",
        "purged_to",
        "topics",
        "user",
    )

    def __init__(self, spec: QueueSpec) -> None:
        """Read a spec record; raises CorruptRecord, or FormatTooNew for a field that this program does not
        know.
        """
        stored = _stored(spec, "policy")
        try:
            self.log_id: str = stored.pop("log")
            self.arguments: dict[str, object] | None = stored.pop("arguments")
            self.has_default_group: bool = stored.pop("default_group")
            self.user: str | None = stored.pop("user", None)
            # bindings stood in the filters once
            self.topics: tuple[str, ...] = tuple(stored.pop("topics", spec.topic_filters))
            _refuse_newer("policy", stored.keys() - _POLICY_FIELDS)
            self.policy = QueuePolicy(**stored)
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptRecord(queue_spec.name, "extension policy", str(error)) from error
        self.description = spec.description
        self.pause = _stored_pause(spec.extensions.get(PAUSED, b"\x00"))
        self.purged_to = _stored_offset(spec.extensions.get(PURGED, bytes(8)))


def with_log_id(spec: QueueSpec, rename: Callable[[str], str]) -> QueueSpec:
    """Return a spec record whose log, if it is that of a queue, has another ID. Raises CorruptRecord."""
    if "policy" not in spec.extensions:
        return spec
    stored = _stored(spec, "policy")
    try:
        stored["log"] = rename(stored["log"])
    except KeyError as error:
        raise CorruptRecord(queue_spec.name, "extension policy", str(error)) from error
    return replace(spec, extensions={**spec.extensions, "policy": _json(stored)})


def _stored_offset(value: bytes) -> int:
    reader = Reader(queue_spec.name, value)
    offset = reader.u64(f"extension {PURGED}")
    reader.finish()
    return offset


def _stored_pause(value: bytes) -> Pause:
    if len(value) != 1:
        raise CorruptRecord(queue_spec.name, "extension paused", value.hex())
    if value[0] > 3:
        raise FormatTooNew(f"{queue_spec.name}: extension paused {value.hex()}")
    return Pause(publish=value[0] & 1 > 0, deliver=value[0] & 2 > 0)


def stored_group(spec: QueueSpec) -> tuple[str, str]:
    """Return (name, pattern) of a group's spec record. Raises CorruptRecord, or FormatTooNew for a field that
    this program does not know.
    """
    stored = _stored(spec, "group")
    _refuse_newer("group", stored.keys() - _GROUP_FIELDS)
    try:
        return stored["name"], stored["pattern"]
    except KeyError as error:
        raise CorruptRecord(queue_spec.name, "extension group", str(error)) from error


def _stored(spec: QueueSpec, extension: str) -> dict[str, Any]:
    try:
        found = json.loads(spec.extensions[extension])
    except (KeyError, ValueError) as error:
        raise CorruptRecord(queue_spec.name, f"extension {extension}", str(error)) from error
    if not isinstance(found, dict):
        raise CorruptRecord(queue_spec.name, f"extension {extension}", "no object")
    return found


def _refuse_newer(extension: str, unknown: Set[str]) -> None:
    """Raise FormatTooNew for unknown fields: ignored, they would be lost, and the queue be another."""
    if unknown:
        raise FormatTooNew(f"{queue_spec.name}: {extension} has {', '.join(sorted(unknown))}")


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
