"""The values that cross between the core and its clients: plain, none holds an object of the core.

A client in another process could send and receive all of them. `caller` names who asks, for what is exclusive
to a connection; OPERATOR may touch everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from queue_manager.effective_policy import APPLY_TO, Policy
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.group_start import EARLIEST, GroupStart, read_start
from queue_manager.log.stream_start import StreamStart
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import Pause, QueuePolicy
from queue_manager.quota_accounts import QuotaView
from queue_manager.routing.exchange import TOPICS as TOPICS_EXCHANGE
from queue_manager.routing.exchange_types.base import PROPERTY_KEYS
from queue_manager.routing.exchange_types.types_by_name import TYPES as EXCHANGE_TYPES
from queue_manager.shard.event_notes import EVENT_EXCHANGE, Event
from queue_manager.stage_tags import EpochPart, StageTag
from queue_manager.stored_bans import BanKey, StoredBan
from queue_manager.stored_parameters import ParameterKey
from queue_manager.stored_vhosts import StoredVhost
from storage.envelope import EnvelopeTemplate

# what is taken from elsewhere; the rest is below
__all__ = [
    "APPLY_TO",
    "EVENT_EXCHANGE",
    "EXCHANGE_TYPES",
    "PROPERTY_KEYS",
    "TOPICS_EXCHANGE",
    "BanKey",
    "EpochPart",
    "Event",
    "GroupStart",
    "ParameterKey",
    "Pause",
    "Policy",
    "QueuePolicy",
    "QuotaView",
    "StageTag",
    "StoredBan",
    "StoredVhost",
    "StreamStart",
    "read_start",
]

OPERATOR: Final = ""

State = Literal["ready", "in_flight", "delayed", "scheduled", "failed", "done"]
STATES: Final[tuple[State, ...]] = ("ready", "in_flight", "delayed", "scheduled", "failed", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """The declaration of a queue.

    `arguments` are the declared arguments that a redeclaration must repeat; None: made by configuration, any
    redeclaration of the same kind fits. `reported`: other arguments, told to who looks. `exclusive`: to the
    caller. `is_server_named`: the broker chose the name.
    """

    name: str
    durable: bool
    policy: QueuePolicy
    topics: tuple[str, ...] = ()
    arguments: Mapping[str, object] | None = None
    reported: Mapping[str, object] = field(default_factory=dict)
    auto_delete: bool = False
    exclusive: bool = False
    description: str = ""
    is_server_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A queue that was found or made (`is_new`)."""

    name: str
    durable: bool
    policy: QueuePolicy
    ready: int
    consumers: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many messages went with a purge or a deletion, from a queue that is `durable` or not."""

    count: int
    durable: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """Whether a call changed anything (`is_new`: something came or went), and whether that is kept on the
    store: then it is certain when the open commit is.
    """

    is_new: bool
    durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDeclaration:
    """The declaration of an exchange; `arguments` may name an `alternate-exchange`, and what types read."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotasView:
    """The quotas of a virtual host or a user (`scope`), and what it has of what they could bound."""

    scope: Literal["vhost", "user"]
    name: str
    quotas: tuple[QuotaView, ...]


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """The names of the policy and the operator's policy that hold for a queue or exchange ("": none), and
    what they ask for together.
    """

    policy: str = ""
    operator_policy: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """One exchange, with the number of its bindings to queues and other exchanges."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object]
    binding_count: int
    policies: PolicyNames = PolicyNames()


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDefinition:
    """From the exchange `source` to a queue or another exchange."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue. `pause` is what an operator has stopped in it.

    `policy` is what holds, `declared` what it was declared with, without the `policies` that hold for it.

    `ready` is what `message_count` of AMQP says (of a stream: all there is); `unmatched`,
    `delayed`, `in_flight`, `failed` and `done` are sums over its groups. `unwanted` are those that no group
    wanted, kept for groups to come; `unwanted_dropped` were not taken, or dead-lettered, for that since the
    start of the broker.

    Offsets `first_offset` up to `next_offset` are kept, or were when some group last let go of one (with
    priorities: those of priority 0, each has its own). `retained_bytes` is the payload a stream keeps, 0 for
    other queues. `memory_bytes` is what messages take in memory. `groups` leaves out the nameless ones of a
    stream's readers. `arguments` are those it was declared with.

    Counts that only grow: `published` since the queue was made; over its groups as they are, `delivered` and
    `settled` since those were made, and `redelivered` since the start of the broker.
    """

    name: str
    type: Literal["classic", "ephemeral", "stream"]
    durable: bool
    topics: tuple[str, ...]
    description: str
    policy: QueuePolicy
    declared: QueuePolicy
    pause: Pause
    exclusive: bool
    auto_delete: bool
    ready: int
    unmatched: int
    delayed: int
    in_flight: int
    scheduled: int
    failed: int
    done: int
    consumers: int
    first_offset: int
    next_offset: int
    retained_bytes: int
    memory_bytes: int
    groups: tuple[str, ...]
    unwanted: int = 0
    unwanted_dropped: int = 0
    arguments: Mapping[str, object] = field(default_factory=dict)
    published: int = 0
    delivered: int = 0
    settled: int = 0
    redelivered: int = 0
    policies: PolicyNames = PolicyNames()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDefinition:
    """A consumer group to be made: what it is given, and where it begins."""

    name: str
    pattern: str = MATCH_ALL
    selector: str = ""
    start: GroupStart = EARLIEST

    @property
    def group_id(self) -> str:
        """The name, with `@` and the pattern unless that is `#`."""
        return self.name if self.pattern == MATCH_ALL else f"{self.name}@{self.pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One consumer group. `group_id` is its name, with `@` and the pattern unless that is `#`.

    `lag` is what it has not done yet: `ready` (may be claimed), `delayed` (came back, waits for its next
    attempt) and `in_flight`. With a pattern `lag` and `ready` count messages that may turn out not to match.
    `oldest_age_ms`: how long ago the oldest of them was published, 0 if there is none. `position` is the
    first offset it never looked at. `unmatched`: those of `ready` that no filter of its consumers wants, as
    far as all were asked. `done` are kept until their retention ends. `redelivered` counts since the start
    of the broker. `idle_ms`: for how long it was not in use, as far as that was seen since the start;
    `expires_ms`: it goes after so long (0: never).

    In a stream `lag` is what lies between `committed` (where the group goes on after a restart; otherwise
    the same as `position`) and the end, and `lost` counts what retention took before the group read it. In a
    queue with priorities `position` is that of priority 0.
    """

    queue: str
    group_id: str
    name: str
    pattern: str
    selector: str
    position: int
    committed: int
    lag: int
    oldest_age_ms: int
    ready: int
    unmatched: int
    delayed: int
    in_flight: int
    failed: int
    done: int
    lost: int
    consumers: int
    redelivered: int
    idle_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseRequest:
    """Which messages of a queue are wanted: at most `limit` in a state, behind the cursor `after`, or from
    `start` on.

    `group` None: the default group, or the only one, or whatever is in a queue without groups; of a stream
    everything. `wanted`: those alone that match.
    """

    state: State
    group: str | None = None
    after: str | None = None
    start: GroupStart | None = None
    limit: int
    bodies: bool = True
    wanted: ConsumerFilter | None = None


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """One message of a listing, looked at and not touched.

    `name` names it within its queue: its offset, or, of a scheduled one (`offset` -1), when it is due.
    `template` has what it was published with.
    `time_ms` is when a scheduled or delayed message is due, when a
    claim was made, when a message was done or failed; 0 for a ready one. `body` None: not asked for, or not
    kept any more.
    """

    name: str
    offset: int
    template: EnvelopeTemplate
    received_at_ms: int
    attempts: int
    time_ms: int
    consumer: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class BrowsedPage:
    """Some messages of a listing, and the cursor its next page comes behind; None: this was the last.

    `last` is the cursor of the last message, behind which later ones come; None: there was none.
    """

    messages: tuple[BrowsedMessage, ...]
    next: str | None
    last: str | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The oldest offset of a stream and the one to come; the committed one of a group, and that of a place,
    where one was asked for and is there.
    """

    first_offset: int
    next_offset: int
    committed: int | None
    place: int | None


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """The last epoch a producer committed. `before`: it had been committed before the call."""

    epoch: int
    row_count: int
    checksum: str
    before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """A producer that stages epochs: the last one committed (None: none is known), and what waits for a
    commit.

    `is_moving`: not all rows of committed epochs are visible yet.
    """

    producer: str
    epoch: int | None
    row_count: int | None
    committed_at_ms: int | None
    is_moving: bool
    staged_attempts: int
    staged_rows: int
    staged_bytes: int


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """The state of a producer: its last committed epoch, and how many rows an attempt has staged, where
    one was asked for. `is_moving`: not all rows of committed epochs are visible yet.
    """

    last: CommittedEpoch | None
    staged_rows: int | None
    is_moving: bool = False
