"""The values that go over links: each declared type by the name it has there, and the errors.

What may be added to them, and how, is said in `link_codec`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from broker.connections.connection_views import (
    ChannelView,
    ConnectionView,
    ConsumerView,
    Description,
    SubscriptionView,
)
from broker.engine.client.federating import Federated
from broker.engine.client.listings import ListedPage, RetainedView, SessionView
from broker.engine.elsewhere import FilterFact
from broker.engine.shard_ending import BrokerStopped, WorkerLost
from broker.process.counters import CounterView
from broker.workers.link_codec import Carried, Codec, NotCarried, Told, carried, scalar, with_fields
from broker.workers.remote_consumers import RemoteGroup
from broker.workers.worker_directory import BindingFact, QueueFact, QueueGone, ReplyFact
from config import limits
from protocols.amqp10 import types as amqp10
from queue_manager import api, errors
from queue_manager.filters.consumer_filter import ConsumerFilter, consumer_filter
from queue_manager.filters.stream_values import StreamValues
from queue_manager.options import PublishOptions
from storage import errors as storage_errors
from storage.cuts import Cut, TooManyCuts
from storage.envelope import EnvelopeTemplate


def _filter_made(told: Told) -> Any:
    return consumer_filter(
        told.get("selector", ""),
        told.get("tables", {}),
        told.get("dialect", "jms"),
        told.get("stream_values"),
    )


_POLICY_FIELDS: Final = carried("", api.QueuePolicy).names


@lru_cache(limits.LINK_POLICIES_KEPT_MAX, typed=True)
def _policy(*values: Any) -> api.QueuePolicy:
    """Return a policy; those of most queues are alike, and making one takes longer than to find it."""
    return api.QueuePolicy(**dict(zip(_POLICY_FIELDS, values, strict=True)))


_FILTER_FIELDS: Final = ("selector", "tables", "dialect", "stream_values")
_TEMPLATE_FIELDS: Final = (
    "topic", "properties_kind", "properties", "priority", "visible_at_ms", "expires_at_ms", "persistent",
    "shared", "exchange",
)  # fmt: skip

CARRIED: Final = (
    # of queues, exchanges, groups and messages
    replace(carried("QueuePolicy", api.QueuePolicy), make_alike=lambda items: _policy(*items)),
    carried("QueueDeclaration", api.QueueDeclaration, "arguments", "reported"),
    carried("QueueStatus", api.QueueStatus),
    carried("QueueView", api.QueueView, "arguments"),
    carried("Dropped", api.Dropped),
    carried("Changed", api.Changed),
    carried("Pause", api.Pause),
    carried("PolicyNames", api.PolicyNames, "definition"),
    carried("ExchangeDeclaration", api.ExchangeDeclaration, "arguments"),
    carried("BindingDefinition", api.BindingDefinition, "arguments"),
    carried("GroupDefinition", api.GroupDefinition),
    carried("GroupStart", api.GroupStart),
    carried("GroupView", api.GroupView),
    carried("BrowseRequest", api.BrowseRequest),
    carried("BrowsedPage", api.BrowsedPage),
    carried("BrowsedMessage", api.BrowsedMessage),
    with_fields("EnvelopeTemplate", EnvelopeTemplate, _TEMPLATE_FIELDS),
    carried("PublishOptions", PublishOptions),
    carried("StreamStart", api.StreamStart),
    carried("StreamStatus", api.StreamStatus),
    carried("StageTag", api.StageTag),
    carried("EpochPart", api.EpochPart),
    carried("CommittedEpoch", api.CommittedEpoch),
    carried("EpochStatus", api.EpochStatus),
    carried("ProducerView", api.ProducerView),
    Carried(
        "ConsumerFilter",
        ConsumerFilter,
        _FILTER_FIELDS,
        lambda it: it.source,
        _filter_made,
        None,
        ("tables",),
    ),
    Carried(
        "StreamValues",
        StreamValues,
        ("values", "takes_unfiltered"),
        lambda it: it.key[1:],
        lambda told: StreamValues(**told),
    ),
    # of what all workers have alike, and of all together
    carried("Policy", api.Policy, "definition", "settings"),
    carried("StoredVhost", api.StoredVhost),
    carried("BanKey", api.BanKey),
    carried("StoredBan", api.StoredBan),
    carried("QuotasView", api.QuotasView),
    carried("QuotaView", api.QuotaView),
    carried("Cut", Cut),
    carried("Federated", Federated, "definition"),
    carried("ListedPage", ListedPage),
    carried("SessionView", SessionView),
    carried("RetainedView", RetainedView),
    carried("CounterView", CounterView),
    carried("ConnectionView", ConnectionView),
    carried("Description", Description),
    carried("ChannelView", ChannelView),
    carried("ConsumerView", ConsumerView),
    carried("SubscriptionView", SubscriptionView),
    # of links
    carried("QueueFact", QueueFact),
    carried("QueueGone", QueueGone),
    carried("BindingFact", BindingFact),
    carried("ReplyFact", ReplyFact),
    carried("FilterFact", FilterFact),
    carried("RemoteGroup", RemoteGroup),
    # values that clients of AMQP 1.0 give; those of the other protocols are plain
    *[scalar(f"amqp10.{kind.__name__}", kind, int) for kind in (
        amqp10.UByte, amqp10.UShort, amqp10.UInt, amqp10.ULong, amqp10.Byte, amqp10.Short, amqp10.Int,
        amqp10.Timestamp,
    )],
    scalar("amqp10.Float", amqp10.Float, float),
    scalar("amqp10.Char", amqp10.Char, str),
    scalar("amqp10.Symbol", amqp10.Symbol, str),
    *[scalar(f"amqp10.{kind.__name__}", kind, bytes) for kind in (
        amqp10.Decimal32, amqp10.Decimal64, amqp10.Decimal128,
    )],
    carried("amqp10.Described", amqp10.Described, "descriptor", "value"),
    Carried(
        "amqp10.Array",
        amqp10.Array,
        ("kind", "values", "descriptor"),
        lambda it: (it.kind, list(it), it.descriptor),
        lambda told: amqp10.Array(**told),
        None,
        ("values", "descriptor"),
    ),
)  # fmt: skip

ERRORS: Final[dict[type[Exception], tuple[str, ...]]] = {
    errors.QueueManagerError: (),
    errors.QueueNotFound: ("name",),
    errors.ExchangeNotFound: ("name",),
    errors.PreconditionFailed: (),
    errors.Inequivalent: ("kind", "name", "what", "received", "current", "is_argument"),
    errors.InUse: ("kind", "name"),
    errors.NotEmpty: ("name",),
    errors.ResourceLocked: ("name",),
    errors.InternalExchange: ("name",),
    errors.AccessRefused: (),
    errors.InExclusiveUse: ("name", "group"),
    errors.ReservedName: (),
    errors.InvalidAddress: (),
    errors.InvalidArgument: (),
    errors.NotText: ("argument", "owner", "value"),
    errors.LimitReached: (),
    errors.GroupNotFound: (),
    errors.QueueBusy: ("name",),
    NotCarried: (),
    WorkerLost: ("name",),
    storage_errors.StorageError: (),
    storage_errors.StoreFenced: (),
    storage_errors.StoreInUse: (),
    storage_errors.StoreUnavailable: (),
    storage_errors.StoreFull: (),
    storage_errors.CorruptRecord: ("record_type", "field"),
    storage_errors.NotOpened: (),
    storage_errors.FormatTooNew: (),
    TooManyCuts: (),
    BrokerStopped: (),
}
"""The errors that calls come to, with what they keep beside their reason."""

CODEC: Final = Codec(CARRIED, ERRORS)
