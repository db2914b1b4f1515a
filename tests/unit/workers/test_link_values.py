"""The values that are declared to go over links: all that calls need, and as the last release has them."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import types
import typing
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from broker.admin.figures import Figures
from broker.admin.node import Node
from broker.engine.answers import Answer
from broker.engine.client.commits import BackupClient
from broker.engine.client.epochs import EpochClient
from broker.engine.client.exchanges import ExchangeClient
from broker.engine.client.federating import FederationClient
from broker.engine.client.groups import GroupClient
from broker.engine.client.message_flow import ConsumingClient, PublishingClient
from broker.engine.client.messages import MessageClient
from broker.engine.client.queues import QueueClient
from broker.engine.client.quotas import QuotaClient
from broker.engine.client.streams import StreamClient
from broker.workers import link_frames
from broker.workers.far_topics import Topics
from broker.workers.link_calls import CALLS
from broker.workers.link_codec import defaults_of
from broker.workers.link_greeting import LINK_VERSION
from broker.workers.link_values import CARRIED, CODEC, ERRORS
from broker.workers.retained_pages import RetainedSearches
from broker.workers.sharded_queues import OwnExchanges, OwnQueues, ShardedExchanges, _names_queue
from broker.workers.shared_federation import OwnFederation
from broker.workers.shared_listings import OwnListings
from broker.workers.shared_quotas import QuotaExchange
from broker.workers.shared_state import SharedState
from broker.workers.worker_directory import Directory
from broker.workers.workers import Workers
from protocols.amqp10 import types as amqp10
from queue_manager.api import BindingDefinition, Policy, QueuePolicy
from queue_manager.errors import QueueManagerError
from queue_manager.filters.consumer_filter import ConsumerFilter, consumer_filter
from queue_manager.filters.stream_values import StreamValues
from storage.envelope import EnvelopeTemplate
from storage.errors import StorageError

VECTORS = Path(__file__).parents[2] / "vectors" / "link_values.json"
READER = CODEC.reader(CODEC.table)
PARTS: dict[str, tuple[type, ...]] = {
    "queues": (OwnQueues, QueueClient),
    "exchanges": (ShardedExchanges,),
    "own_exchanges": (OwnExchanges, ExchangeClient),
    "groups": (GroupClient,),
    "messages": (MessageClient,),
    "streams": (StreamClient,),
    "epochs": (EpochClient,),
    "directory": (Directory,),
    "topics": (Topics,),
    "retained": (RetainedSearches,),
    "shared": (SharedState,),
    "listings": (OwnListings,),
    "backups": (BackupClient,),
    "federation": (OwnFederation, FederationClient),
    "quotas": (QuotaClient,),
    "quota_exchange": (QuotaExchange,),
    "workers": (Workers,),
    "node": (Node,),
    "figures": (Figures,),
}
"""The classes of the parts that are called over links; of several the first that states a call."""

PLAIN = {None, type(None), bool, int, float, str, bytes, datetime, Decimal}
CONTAINERS = (list, tuple, dict, set, frozenset, Sequence, Mapping, Iterable, Collection)
AROUND = (Answer, Awaitable, typing.Union, types.UnionType, typing.Annotated)
KINDS = {each.kind for each in CARRIED}
OPEN = {each.kind: each.open_fields for each in CARRIED}


def function_of(part: str, call: str) -> Any:
    return next(getattr(kind, call) for kind in PARTS[part] if hasattr(kind, call))


def undeclared(hint: Any, at: str, seen: set[object], *, is_open: bool = False) -> Iterator[str]:
    """Yield what of a type, as it is annotated, cannot go over a link."""
    origin = typing.get_origin(hint)
    if hint in PLAIN or isinstance(hint, typing.TypeVar) or origin is typing.Literal:
        return
    if hint in (Any, object):
        if not is_open:
            yield f"{at}: anything may be there"
        return
    if origin is typing.Annotated:
        yield from undeclared(hint.__origin__, at, seen, is_open=is_open)
        return
    if origin is not None:
        for inner in typing.get_args(hint):
            if inner is not Ellipsis:
                yield from undeclared(inner, at, seen, is_open=is_open)
        if origin not in CONTAINERS and origin not in AROUND:
            yield from undeclared(origin, at, seen)
        return
    if hint not in KINDS:
        yield f"{at}: {hint}"
    elif hint not in seen and (is_dataclass(hint) or hasattr(hint, "_fields")):
        seen.add(hint)
        hints = typing.get_type_hints(hint)
        names = (
            hint._fields if hasattr(hint, "_fields") else [each.name for each in fields(hint) if each.init]
        )
        for name in names:
            place = f"{at} > {hint.__name__}.{name}"
            yield from undeclared(hints[name], place, seen, is_open=name in OPEN[hint])


@pytest.mark.parametrize("part", CALLS)
def test_all_that_calls_take_and_give_may_go_over_links(part):
    found = [
        one
        for call in sorted(CALLS[part])
        for name, hint in typing.get_type_hints(function_of(part, call)).items()
        for one in undeclared(hint, f"{part}.{call}({name})", set())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("function", "left_out"),
    [
        (ConsumingClient.subscribe, {"queue", "sink", "pool", "on_activity", "return"}),
        (ConsumingClient.puller, {"queue", "sink", "return"}),
        (PublishingClient.plan, {"return"}),
    ],
)
def test_options_of_consumers_and_plans_may_go_over_links(function, left_out):
    hints = typing.get_type_hints(function)
    assert left_out <= hints.keys()
    found = [
        one
        for name, hint in hints.items()
        if name not in left_out
        for one in undeclared(hint, f"{function.__name__}({name})", set())
    ]
    assert found == []


def test_type_that_nobody_declared_is_found():
    class Stray:
        pass

    assert list(undeclared(dict[str, list[Stray] | None], "call", set())) == [f"call: {Stray}"]
    assert list(undeclared(Mapping[str, Any], "call", set())) == ["call: anything may be there"]


@pytest.mark.parametrize("part", ["groups", "messages", "streams", "epochs"])
def test_calls_that_name_a_queue_are_those_that_go_to_its_worker(part):
    stated = inspect.getmembers(PARTS[part][0], inspect.isfunction)
    by_queue = {name for name, call in stated if not name.startswith("_") and _names_queue(call)}
    assert CALLS[part] == by_queue


def test_calls_that_are_named_where_they_are_made_are_declared():
    made = re.compile(r'(?:call|ask|ask_others|_tell_others)\((?:\w+, )?"(\w+)", "(\w+)"')
    sources = (Path(__file__).parents[3] / "broker").rglob("*.py")
    found = {call for source in sources for call in made.findall(source.read_text())}
    assert ("topics", "know") in found
    assert [call for call in sorted(found) if call[1] not in CALLS.get(call[0], ())] == []


def subclasses(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_errors_of_the_core_and_of_storage_are_all_declared():
    for package in ("queue_manager", "storage"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            importlib.import_module(module.name)
    bases: tuple[type, ...] = (QueueManagerError, StorageError)
    from_there = [
        kind
        for base in bases
        for kind in subclasses(base)
        if kind.__module__ in ("queue_manager.errors", "storage.errors")
    ]
    assert [kind for kind in from_there if kind not in ERRORS] == []


def test_no_two_types_or_errors_have_one_name():
    assert len(CODEC.carried) == len(CARRIED)
    assert len(KINDS) == len(CARRIED)
    assert len({kind.__name__ for kind in ERRORS}) == len(ERRORS)


# as they were


def test_declared_types_are_those_of_the_vectors_but_for_fields_with_defaults():
    """Where this fails on purpose: raise LINK_VERSION unless fields with defaults were added alone, and write
    the file anew (python -m tests.unit.workers.test_link_values).
    """
    recorded = json.loads(VECTORS.read_text())
    if recorded["version"] == LINK_VERSION:
        for name, known in recorded["types"].items():
            assert name in CODEC.table, f"{name} is missing"
            each = CODEC.carried[name]
            assert set(known) <= set(each.names), f"{name} has lost a field"
            added = set(each.names) - set(known)
            is_plain = is_dataclass(each.kind) or hasattr(each.kind, "_fields")
            assert not is_plain or added <= defaults_of(each.kind).keys(), (
                f"{name}: an added field has no default"
            )
        assert set(recorded["errors"]) <= {kind.__name__ for kind in ERRORS}
    assert recorded == vectors()


def vectors() -> dict[str, Any]:
    return {
        "version": LINK_VERSION,
        "types": {name: list(names) for name, names in sorted(CODEC.table.items())},
        "errors": {
            kind.__name__: list(kept) for kind, kept in sorted(ERRORS.items(), key=lambda it: it[0].__name__)
        },
    }


# values


def through(value: Any) -> Any:
    frame = CODEC.frame(link_frames.CALL, value)
    return READER.fields(frame, 0, len(frame))[0]


AMQP10 = [
    amqp10.UByte(1), amqp10.UShort(1), amqp10.UInt(1), amqp10.ULong(1 << 63), amqp10.Byte(-1),
    amqp10.Short(1), amqp10.Int(1), amqp10.Timestamp(1), amqp10.Float(1.5), amqp10.Char("a"),
    amqp10.Symbol("a"),
    amqp10.Decimal32(b"abcd"), amqp10.Decimal64(b"abcdefgh"), amqp10.Decimal128(b"abcdefghabcdefgh"),
]  # fmt: skip


@pytest.mark.parametrize("value", AMQP10, ids=lambda value: type(value).__name__)
def test_values_of_amqp_1_0_come_with_their_types(value):
    described = amqp10.Described(amqp10.Symbol("d"), [value])
    back = through(BindingDefinition(source="a", destination="b", arguments={"x": described}))
    assert back.arguments == {"x": described}
    assert type(back.arguments["x"].value[0]) is type(value)


def test_arrays_of_amqp_1_0_come_as_they_are():
    array = amqp10.Array("uint", [amqp10.UInt(1)], amqp10.Symbol("d"))
    back = through(array)
    assert type(back) is amqp10.Array
    assert back == array


def test_filters_are_made_anew_of_what_they_were_made_of():
    stream_values = StreamValues(["a", "b"], takes_unfiltered=True)
    wanted = consumer_filter("size > 3", {}, "jms", stream_values)
    back = through(wanted)
    assert type(back) is ConsumerFilter
    assert back.key == wanted.key


def test_policies_and_envelopes_are_made_anew():
    policy = Policy(
        vhost="", name="p", pattern="^a", apply_to="all", priority=1, definition={"x": [1]}, settings={}
    )
    back = through(policy)
    assert back == policy
    assert back.matches("ab", "classic")
    template = EnvelopeTemplate("a/b", 1, b"x", priority=3, expires_at_ms=5, exchange="e", context=object())
    again = through(template)
    assert (again.head, again.suffix, again.context) == (template.head, template.suffix, None)


def test_policies_alike_are_one_and_others_are_not():
    policy = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=2)
    first, again, other = through(
        [
            policy,
            QueuePolicy(visibility_timeout_ms=1, message_bytes_max=2),
            QueuePolicy(visibility_timeout_ms=1, message_bytes_max=3),
        ]
    )
    assert first is again
    assert (first.message_bytes_max, other.message_bytes_max) == (2, 3)
    assert through(datetime(2024, 1, 1, tzinfo=UTC)) == datetime(2024, 1, 1, tzinfo=UTC)


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1) + "\n")
