"""tests.nodes.story finds what is late, by what was written."""

from __future__ import annotations

import json

from broker.nodes.leases import lease_key
from broker.nodes.shard_map import MAP_KEY, Shard, ShardMap
from tests.crash.queue_clients import Confirm, Reading
from tests.nodes.story import Story
from tests.storage_faults.store_way import Write

LEASE_S = 3.0


def lease(member: str, at_s: float, is_done: bool | None = True) -> Write:
    content = json.dumps({"beat": 1}).encode()
    return Write(f"/b/cluster/{lease_key(member)}", True, at_s, content, is_sent=True, is_done=is_done)


def owned(version: int, member: str, at_s: float, is_done: bool | None = True) -> Write:
    content = ShardMap(version, {}, (Shard(member, 0, ""),)).encode()
    return Write(f"/b/cluster/{MAP_KEY}", True, at_s, content, is_sent=True, is_done=is_done)


def late_s(*writes: Write, at_s: float) -> float:
    """How late a delivery is to a consumer of the first owner, which was made at 11 s."""
    return Story(writes, LEASE_S).late_s(0, Reading("q", 10.5, 11.0, [at_s]))[0]


def test_delivery_is_late_behind_the_last_renewal_of_its_owner() -> None:
    writes = owned(1, "a.1", 10.0), lease("a.1", 10.0), lease("a.1", 12.0)
    assert late_s(*writes, at_s=14.0) == -1.0
    assert late_s(*writes, at_s=17.0) == 2.0
    assert late_s(*writes, lease("b.1", 16.0), at_s=17.0) == 2.0


def test_renewal_counts_that_may_have_been_done_and_none_that_was_refused() -> None:
    writes = owned(1, "a.1", 10.0), lease("a.1", 10.0)
    assert late_s(*writes, lease("a.1", 15.0, is_done=None), at_s=17.0) == -1.0
    assert late_s(*writes, lease("a.1", 15.0, is_done=False), at_s=17.0) == 4.0


def test_delivery_is_late_behind_the_map_that_names_another_owner() -> None:
    writes = owned(1, "a.1", 10.0), lease("a.1", 16.0)
    assert late_s(*writes, owned(2, "a.1", 12.0), at_s=17.0) == -2.0
    assert late_s(*writes, owned(2, "b.1", 15.0), at_s=17.0) == 2.0
    assert late_s(*writes, owned(2, "b.1", 15.0, is_done=None), at_s=17.0) == -2.0


def test_confirm_is_late_that_was_asked_for_when_no_owner_had_a_lease() -> None:
    story = Story((owned(1, "a.1", 10.0), lease("a.1", 10.0)), LEASE_S)
    assert story.late_confirm_s(0, Confirm("q", b"m", 12.0, 20.0)) == -1.0
    assert story.late_confirm_s(0, Confirm("q", b"m", 15.0, 20.0)) == 2.0
