import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.errors import Inequivalent, InvalidAddress, ResourceLocked
from queue_manager.model import Message
from queue_manager.patterns import compile_pattern
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.spec_records import (
    QueueDefinition,
    StoredQueue,
    stored_group,
)
from storage.envelope import EnvelopeTemplate
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import QueueSpec, queue_spec
from tests.unit.queue_manager.managers import make_manager

numbers = st.integers(0, 1 << 40)
policies = st.builds(
    QueuePolicy,
    visibility_timeout_ms=numbers,
    message_bytes_max=numbers,
    done_retention_ms=st.one_of(st.just(FOREVER), st.integers(0, 1 << 40)),
    bucket_size=st.integers(0, 4),
    attempts_max=st.integers(0, 65_535),
    depth_max=numbers,
    expires_ms=numbers,
)
arguments = st.one_of(
    st.none(), st.dictionaries(st.text(max_size=9), st.one_of(st.integers(), st.text(), st.booleans()))
)
POLICY = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100)


@given(policies, arguments, st.sampled_from([(), ("a/+", "$queue/x/#")]))
def test_a_spec_record_gives_back_what_the_queue_was_made_with(
    policy: QueuePolicy, arguments: dict[str, object] | None, topics: tuple[str, ...]
) -> None:
    manager = make_manager()
    definition = QueueDefinition(
        "jobs", durable=True, policy=policy, topics=topics, arguments=arguments, description="what for"
    )
    queue = manager.queues.declare(definition, 0)
    spec = queue_spec.decode(manager.context.commit.puts[queue_spec.key("jobs")])
    stored = StoredQueue(spec)
    assert stored.policy == policy
    assert stored.arguments == arguments
    assert stored.topics == (topics or ("$queue/jobs/#",))
    assert stored.log_id == queue.log.log_id
    assert stored.description == spec.description == "what for"
    assert spec.topic_filters == ()  # bindings have decided what comes into its log
    assert not stored.has_default_group
    assert spec.bucket_exponent == policy.bucket_size
    assert spec.max_attempts == policy.attempts_max
    assert (spec.done_retention_s == 0) == (policy.done_retention_ms == FOREVER)
    assert (spec.extensions.get("done") == b"\x00") == (policy.done_retention_ms == 0)


def test_the_record_says_whether_the_default_group_was_used() -> None:
    manager = make_manager()
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=POLICY), 0)
    queue.group("")
    value = manager.context.commit.puts[queue_spec.key("jobs")]
    assert StoredQueue(queue_spec.decode(value)).has_default_group


@pytest.mark.parametrize("pattern", ["#", "eu/#", "+"])
def test_a_group_s_record_names_it(pattern: str) -> None:
    manager = make_manager()
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=POLICY), 0)
    group = queue.group("billing", pattern)
    spec = queue_spec.decode(manager.context.commit.puts[queue_spec.key(group.cursors[0].storage_id)])
    assert stored_group(spec) == ("billing", pattern)
    assert spec.topic_filters == (() if pattern == "#" else (f"$queue/jobs/{pattern}", pattern))


@pytest.mark.parametrize("extensions", [{}, {"policy": b"{"}, {"policy": b"{}"}, {"policy": b"[]"}])
def test_a_damaged_record_is_named(extensions: dict[str, bytes]) -> None:
    with pytest.raises(CorruptRecord):
        StoredQueue(QueueSpec(extensions=extensions))
    with pytest.raises(CorruptRecord):
        stored_group(QueueSpec(extensions={"group": b"{}"}))


@pytest.mark.parametrize("extension", ["policy", "group"])
def test_record_with_a_field_of_a_newer_release_is_told_as_such(extension: str) -> None:
    manager = make_manager()
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=POLICY), 0)
    storage_id = "jobs" if extension == "policy" else queue.group("billing").cursors[0].storage_id
    spec = queue_spec.decode(manager.context.commit.puts[queue_spec.key(storage_id)])
    newer = {**json.loads(spec.extensions[extension]), "colour": "red"}
    spec = replace(spec, extensions={**spec.extensions, extension: json.dumps(newer).encode()})
    with pytest.raises(FormatTooNew, match=f"{extension} has colour .written by a newer release"):
        StoredQueue(spec) if extension == "policy" else stored_group(spec)


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ({}, {}, None),
        ({"durable": False}, {}, ("durable", False, True)),
        ({"auto_delete": True}, {}, ("auto_delete", True, False)),
        ({"arguments": {"x": 1}}, {"arguments": {"x": 2}}, ("x", 1, 2)),
        ({"arguments": {}}, {"arguments": {"x": 2}}, ("x", None, 2)),
        ({"arguments": {"x": 1}}, {"arguments": None}, None),
        ({"arguments": None}, {"arguments": {"x": 1}}, None),
        ({"arguments": {}}, {"arguments": {"reported": {"x": 1}}}, None),
        ({"arguments": {"durable": True}, "durable": False}, {"durable": False}, ("durable", True, False)),
    ],
)
def test_a_redeclaration_names_what_it_contradicts(
    ours: dict[str, object], theirs: dict[str, object], difference: tuple[str, object, object] | None
) -> None:
    common: dict[str, object] = {"durable": True, "policy": POLICY}
    one = QueueDefinition("jobs", **{**common, **ours})  # type: ignore[arg-type]
    other = QueueDefinition("jobs", **{**common, **theirs})  # type: ignore[arg-type]
    found = one.difference(other)
    assert found is None or isinstance(found, Inequivalent)
    assert (found and (found.what, found.received, found.current)) == difference


def test_what_is_exclusive_is_locked_for_others() -> None:
    one = QueueDefinition("jobs", durable=True, policy=POLICY)
    other = QueueDefinition("jobs", durable=True, policy=POLICY, owner="me")
    assert isinstance(one.difference(other), ResourceLocked)
    assert isinstance(other.difference(one), ResourceLocked)


def test_the_definition_of_a_queue_agrees_with_it() -> None:
    manager = make_manager()
    definition = QueueDefinition("jobs", durable=True, policy=POLICY, arguments={"x": 1})
    queue = manager.queues.declare(definition, 0)
    assert queue.definition().difference(definition) is None
    assert manager.queues.declare(definition, 0) is queue


@pytest.mark.parametrize(("name", "topics"), [("$queue/b", ()), ("", ()), ("a", ("x#",))])
def test_unusable_names_and_bindings_are_refused(name: str, topics: tuple[str, ...]) -> None:
    with pytest.raises(InvalidAddress):
        QueueDefinition(name, durable=True, policy=POLICY, topics=topics)


def test_bindings_are_read_from_the_filters_of_older_records() -> None:
    fields = {**POLICY.fields(), "log": "q1", "arguments": None, "default_group": False}
    spec = QueueSpec(topic_filters=("a/+",), extensions={"policy": json.dumps(fields).encode()})
    assert StoredQueue(spec).topics == ("a/+",)


@pytest.mark.parametrize("pattern", ["#", "eu/#", "+", "shop/+/new"])
@pytest.mark.parametrize(
    "topic", ["$queue/jobs/eu/1", "$queue/jobs/eu", "$queue/jobs", "shop/eu/new", "eu", "other"]
)
def test_the_filters_of_a_group_decide_which_messages_of_the_log_are_its(pattern: str, topic: str) -> None:
    manager = make_manager()
    queue = manager.queues.declare(QueueDefinition("jobs", durable=True, policy=POLICY), 0)
    group = queue.group("workers", pattern)
    spec = queue_spec.decode(manager.context.commit.puts[queue_spec.key(f"jobs\x1f{group.group_id}")])
    accepted = not spec.topic_filters or any(compile_pattern(each)(topic) for each in spec.topic_filters)
    wanted = group.wants is None or group.wants(Message(0, 0, b"", EnvelopeTemplate(topic), 0))
    assert accepted == wanted
