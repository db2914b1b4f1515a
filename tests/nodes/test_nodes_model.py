"""Random schedules of a cluster hold what it promises, and no rule of it can be left out."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.nodes import leases
from broker.nodes import node_machine as m
from broker.nodes.leases import OwnLease, SeenLease
from broker.nodes.shard_map import MAP_KEY, Member, ShardMap, decode_map
from config import limits
from storage.object_records import Stored, Tag
from tests.nodes import test_nodes_moves as moves
from tests.nodes.schedules import run_schedule
from tests.nodes.simulation import ANY, GARBAGE_MS, LEASE_MS, Node, Violation, Worker
from tests.nodes.test_nodes_moves import settled

SEEDS = 240
MUTANT_SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 60))
def test_random_schedules_hold_what_is_promised(first):
    for seed in range(first, first + 60):
        _run(seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 12_000, 1_000))
def test_many_random_schedules_hold_what_is_promised(first):
    for seed in range(first, first + 1_000):
        _run(seed)


def _run(seed: int) -> None:
    try:
        run_schedule(seed)
    except Violation as violation:
        raise AssertionError(f"seed {seed}: {violation}") from violation


Patch = Callable[[Any, str, Any], None]


def _lease_from_its_answer_on(patch: Patch) -> None:
    take = m.NodeMachine._take_answer

    def mutant(self, now_ms, request, event):
        take(self, now_ms, request, event)
        if request.key == leases.lease_key(self.name) and isinstance(event, m.Written):
            self.lease.end_ms = now_ms + LEASE_MS

    patch(m.NodeMachine, "_take_answer", mutant)


def _others_wait_for_less_than_a_lease(patch: Patch) -> None:
    patch(SeenLease, "over_ms", lambda self: self._still_since_ms + LEASE_MS * 7 // 10)


def _taken_without_ending_the_lease(patch: Patch) -> None:
    def mutant(self, now_ms):
        for seen in self._seen_at.values():
            seen.is_ended |= seen.is_over(now_ms)
        return iter(())

    patch(m.NodeMachine, "_ending_others", mutant)


def _without_if_match(patch: Patch, is_meant: Callable[[m.NodeMachine, str, bytes], bool]) -> None:
    put = m.NodeMachine._put

    def mutant(self, key, content, base):
        return put(self, key, content, ANY if is_meant(self, key, content) else base)

    patch(m.NodeMachine, "_put", mutant)


def _lease_ended_without_if_match(patch: Patch) -> None:
    _without_if_match(patch, lambda machine, key, content: b"ended_by" in content)


def _lease_renewed_without_if_match(patch: Patch) -> None:
    _without_if_match(patch, lambda machine, key, content: b"beat" in content)


def _map_put_without_if_match(patch: Patch) -> None:
    _without_if_match(patch, lambda machine, key, content: key == MAP_KEY)


def _unanswered_put_taken_for_done(patch: Patch) -> None:
    take = m.NodeMachine._take_answer

    def mutant(self, now_ms, request, event):
        if isinstance(request, m.Put) and isinstance(event, m.Unanswered):
            event = m.Written(event.number, ANY._replace(e_tag="?"))
        take(self, now_ms, request, event)

    patch(m.NodeMachine, "_take_answer", mutant)


def _refused_put_of_the_lease_not_looked_at(patch: Patch) -> None:
    take = m.NodeMachine._take_lease

    def mutant(self, event, again_ms):
        if not isinstance(event, m.Refused | m.Unanswered):
            take(self, event, again_ms)

    patch(m.NodeMachine, "_take_lease", mutant)


def _refused_put_of_the_map_not_looked_at(patch: Patch) -> None:
    take = m.NodeMachine._take_map

    def mutant(self, now_ms, event, again_ms):
        if isinstance(event, m.Unanswered) and self._map_next is not None and self.map is not None:
            self._adopt(now_ms, self._map_next, self._map_tag)
        else:
            take(self, now_ms, event, again_ms)

    patch(m.NodeMachine, "_take_map", mutant)


def _handed_over_while_open(patch: Patch) -> None:
    planned = m.NodeMachine._planned

    def mutant(self, found, now_ms):
        found = planned(self, found, now_ms)
        for number, local in self._local.items():
            if local.marked_ms is not None and found.shards[number].to:
                found = found.given(number, found.shards[number].to, now_ms, "handed over")
        return found

    patch(m.NodeMachine, "_planned", mutant)


def _opened_again_while_it_is_handed_over(patch: Patch) -> None:
    moving = m.NodeMachine._moving_shards

    def mutant(self, now_ms):
        yield from moving(self, now_ms)
        for number, local in self._local.items():
            if local.state is m._State.CLOSED and MAP_KEY in self._asked:
                local.state = m._State.OPENING
                yield m.Open(number)

    patch(m.NodeMachine, "_moving_shards", mutant)


def _confirms_without_a_look_at_the_lease(patch: Patch) -> None:
    patch(Worker, "may_confirm", lambda self: True)


def _delivers_without_a_look_at_the_lease(patch: Patch) -> None:
    patch(Worker, "may_deliver", lambda self: True)


def _lease_means_no_work(patch: Patch) -> None:
    patch(m.NodeMachine, "_does_work", lambda self, now_ms: True)
    patch(m.NodeMachine, "_gets_on", lambda self, local: True)
    patch(m.NodeMachine, "_is_beyond_belief", lambda self, local, now_ms: False)


def _goes_on_behind_the_end_of_its_lease(patch: Patch) -> None:
    patch(m.NodeMachine, "_lose", lambda self, reason: None)


def _who_is_cut_off_opens_shards(patch: Patch) -> None:
    def mutant(self, now_ms):
        yield from decided(self, now_ms)
        if not self.reason and not self.is_valid(now_ms):
            yield from self._moving_shards(now_ms)

    decided = m.NodeMachine._decided
    patch(m.NodeMachine, "_decided", mutant)


def _version_stays(patch: Patch) -> None:
    encode = ShardMap.encode
    patch(ShardMap, "encode", lambda self: encode(replace(self, version=max(1, self.version - 1))))


def _shards_made_by_each_member(patch: Patch) -> None:
    planned = m.NodeMachine._planned

    def mutant(self, found, now_ms):
        is_new = self.name not in found.members
        found = planned(self, found, now_ms)
        return found.created(self.shards, self.name, now_ms) if is_new and self.map else found

    patch(m.NodeMachine, "_planned", mutant)


def _dead_without_a_look_at_its_processes(patch: Patch) -> None:
    patch(Node, "is_gone", lambda self: True)


MUTANTS = (
    _lease_from_its_answer_on,
    _others_wait_for_less_than_a_lease,
    _taken_without_ending_the_lease,
    _lease_ended_without_if_match,
    _lease_renewed_without_if_match,
    _map_put_without_if_match,
    _unanswered_put_taken_for_done,
    _refused_put_of_the_lease_not_looked_at,
    _refused_put_of_the_map_not_looked_at,
    _handed_over_while_open,
    _opened_again_while_it_is_handed_over,
    _confirms_without_a_look_at_the_lease,
    _delivers_without_a_look_at_the_lease,
    _lease_means_no_work,
    _goes_on_behind_the_end_of_its_lease,
    _who_is_cut_off_opens_shards,
    _version_stays,
    _shards_made_by_each_member,
    _dead_without_a_look_at_its_processes,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_rule_left_out_is_found(mutant, monkeypatch):
    mutant(monkeypatch.setattr)
    for seed in range(MUTANT_SEEDS):
        try:
            run_schedule(seed)
        except (Violation, AssertionError, KeyError):
            print(f"seed {seed}")
            return
    raise AssertionError(f"{MUTANT_SEEDS} schedules hold what is promised without the rule")


def test_late_answer_is_not_heard():
    machine = m.NodeMachine("a.1", "a", "a:1", 1, LEASE_MS)
    key = leases.lease_key("a.1")

    def asked(now_ms: int, event: m.Event | None = None) -> m.Read | m.Put:
        actions = machine.step(now_ms, event)
        return next(action for action in actions if isinstance(action, m.Read | m.Put) and action.key == key)

    first = asked(0)
    machine.step(10, m.Unanswered(first.number))
    second = asked(210, m.Found(asked(200).number, None))
    assert isinstance(second, m.Put)
    machine.step(220, m.Written(first.number, ANY))
    assert not machine.is_valid(220)
    machine.step(220, m.Written(second.number, ANY))
    assert machine.is_valid(220)


def _others_wait_for_a_lease_by_their_clocks(patch: Patch) -> None:
    patch(SeenLease, "over_ms", lambda self: self._still_since_ms + LEASE_MS)


def lease_is_not_over_by_a_clock_two_percent_faster() -> None:
    own, seen = OwnLease(LEASE_MS), SeenLease(LEASE_MS)
    own.next_write(0)
    own.written(ANY)
    seen.found(None, 0)
    assert seen.over_ms() / 1.01 > own.end_ms / 0.99


def _store_out_of_sight_taken_for_records_that_stand_still(patch: Patch) -> None:
    found = SeenLease.found

    def mutant(self, stored, now_ms):
        self._seen_ms = now_ms if self._seen_ms is not None else None
        found(self, stored, now_ms)

    patch(SeenLease, "found", mutant)
    patch(SeenLease, "is_over", lambda self, now_ms: self.tag is not None and now_ms >= self.over_ms())


def store_that_was_away_moves_no_shard_though_some_see_it_again_earlier() -> None:
    for seed in range(8):
        sim = settled(3, 2, seed=seed)
        before = sim.moves
        sim.is_away = True
        sim.run(sim.now + 20_000)
        sim.is_away = False
        sim.nodes[2].is_cut_up = True
        sim.run(sim.now + 1_500)
        sim.nodes[2].is_cut_up = False
        sim.run(sim.now + 15_000)
        assert sim.moves == before


def _shards_given_to_anybody(patch: Patch) -> None:
    patch(m.NodeMachine, "_is_alive", lambda self, name, now_ms: True)


def _map_looked_at_without_haste(patch: Patch) -> None:
    patch(m.NodeMachine, "_look_interval_ms", lambda self, now_ms: LEASE_MS // limits.LEASE_LOOKS)


def _shards_handed_over_before_that_is_seen(patch: Patch) -> None:
    adopt = m.NodeMachine._adopt

    def mutant(self, now_ms, found, tag):
        adopt(self, now_ms - LEASE_MS, found, tag)

    patch(m.NodeMachine, "_adopt", mutant)


def _last_node_waits_for_another(patch: Patch) -> None:
    patch(m.NodeMachine, "_is_alone_leaving", lambda self, now_ms: False)


def _shards_opened_again_though_the_node_may_have_left(patch: Patch) -> None:
    patch(m.NodeMachine, "_may_have_left", property(lambda self: False, lambda self, value: None))


def last_node_that_left_and_does_not_know_it_opens_nothing_again() -> None:
    """The map without it is in the store, the answer on its way, as it sees that another node is alive."""
    machine = m.NodeMachine("a.1", "a", "a:1", 1, LEASE_MS)
    store: dict[str, Stored] = {}
    unanswered: list[m.Event] = []
    done: list[m.Action] = []
    now_ms = writes = 0

    def put(key: str, content: bytes) -> Tag:
        nonlocal writes
        writes += 1
        store[key] = Stored(content, Tag(str(writes), None))
        return store[key].tag

    def step(event: m.Event | None = None) -> None:
        for action in machine.step(now_ms, event):
            done.append(action)
            match action:
                case m.Read(number, key):
                    step(m.Found(number, store.get(key)))
                case m.Put(number, key, content, _):
                    written = m.Written(number, put(key, content))
                    if key == MAP_KEY and "a.1" not in decode_map(content).members:
                        unanswered.append(written)
                    else:
                        step(written)
                case m.Open(shard):
                    step(m.Opened(shard))
                case m.Stop(shard, _):
                    step(m.Closed(shard))

    def go_on(ms: int) -> None:
        nonlocal now_ms
        for _ in range(ms // 100):
            now_ms += 100
            step(m.Turned(0, now_ms))
            step()

    go_on(1_000)
    assert machine.serving() == [0]
    other = decode_map(store[MAP_KEY].content).joined("b.1", Member("b", "b:1", 0))
    put(MAP_KEY, replace(other, version=other.version + 1).encode())
    put(leases.lease_key("b.1"), b'{"beat": 1}')
    go_on(4_500)  # more than half of a lease: it may be dead
    step(m.Wish.LEAVE)
    go_on(200)
    assert unanswered
    done.clear()
    put(leases.lease_key("b.1"), b'{"beat": 2}')
    go_on(800)
    assert m.Open(0) not in done
    step(unanswered[0])
    go_on(200)
    assert done[-1] == m.Ended("left", True)


def drained_nodes_hand_over_in_time() -> None:
    for seed in range(10):
        moves.test_drained_node_hands_over_one_shard_after_the_other_within_600_ms_each(seed)


def _shard_silent_for_long_believed(patch: Patch) -> None:
    patch(m.NodeMachine, "_is_beyond_belief", lambda self, local, now_ms: False)


def write_that_found_a_collected_place_is_not_confirmed() -> None:
    sim = settled(1, 1)
    sim.nodes[0].is_cut_up = True
    sim.run(sim.now + 100)
    sim.databases[0].epoch += 1  # opened by who should not have
    sim.databases[0].fenced_ms = sim.now
    sim.run(sim.now + GARBAGE_MS)
    sim.nodes[0].is_cut_up = False
    moves.until_served(sim, 5_000)


SCENARIOS = (
    (write_that_found_a_collected_place_is_not_confirmed, _shard_silent_for_long_believed),
    (lease_is_not_over_by_a_clock_two_percent_faster, _others_wait_for_a_lease_by_their_clocks),
    (
        store_that_was_away_moves_no_shard_though_some_see_it_again_earlier,
        _store_out_of_sight_taken_for_records_that_stand_still,
    ),
    (moves.test_shards_go_to_nobody_who_died_too, _shards_given_to_anybody),
    (drained_nodes_hand_over_in_time, _map_looked_at_without_haste),
    (drained_nodes_hand_over_in_time, _shards_handed_over_before_that_is_seen),
    (moves.test_last_node_leaves_its_shards_to_the_next_one, _last_node_waits_for_another),
    (
        last_node_that_left_and_does_not_know_it_opens_nothing_again,
        _shards_opened_again_though_the_node_may_have_left,
    ),
)


@pytest.mark.parametrize(("scenario", "mutant"), SCENARIOS)
def test_scenario_shows_what_the_rule_is_for(scenario, mutant, monkeypatch):
    scenario()
    mutant(monkeypatch.setattr)
    with pytest.raises((Violation, AssertionError)):
        scenario()


def test_map_survives_its_encoding():
    found = settled(2, 2).map
    assert decode_map(found.encode()) == found


def test_map_of_a_later_version_is_read_as_far_as_it_is_known():
    found = settled(2, 2).map
    told = json.loads(found.encode())
    for part in (told, *told["members"].values(), *told["shards"]):
        part["more"] = 1
    assert decode_map(json.dumps(told).encode()) == found
