"""Where shards go when nodes come, go and die: in a simulated cluster where little else happens."""

import pytest

from broker.nodes.node_machine import Drain, Wish
from broker.nodes.shard_map import Shard
from storage.object_records import Stored, Tag
from tests.nodes.simulation import LEASE_MS, Simulation


def settled(nodes: int, per_node: int, *, seed: int = 1, spare: int = 0) -> Simulation:
    """A cluster whose nodes all serve their shards; `spare` more have not been started."""
    sim = Simulation(seed, nodes=nodes + spare, shards=nodes * per_node)
    for node in sim.nodes[:nodes]:
        node.start()
    sim.run_until(lambda: sim.map is not None and loads(sim)[:nodes] == [per_node] * nodes, 40_000)
    balanced_ms = sim.now
    sim.run_until(lambda: sim.has_served(balanced_ms), 10_000)
    sim.moves = 0
    sim.run(sim.now + sim.random.uniform(1_000, 3_000))
    return sim


def loads(sim: Simulation) -> list[int]:
    return [len(sim.map.owned_by(node.machine.name)) if node.starts else 0 for node in sim.nodes]


def until_served(sim: Simulation, within_ms: float) -> float:
    """Give how long it took until each shard has confirmed something anew."""
    now = sim.now
    return sim.run_until(lambda: sim.has_served(now), within_ms)


@pytest.mark.parametrize("seed", range(20))
def test_shards_of_a_node_that_died_serve_within_a_lease_and_two_seconds(seed):
    sim = settled(3, 4, seed=seed)
    sim.nodes[1].kill()
    sim.run(sim.now + 1)
    assert until_served(sim, LEASE_MS + 2_000) > LEASE_MS * 0.7
    sim.run(sim.now + 1_000)
    assert loads(sim) == [6, 0, 6]


def test_shards_go_to_nobody_who_died_too():
    sim = settled(4, 2)
    sim.nodes[1].kill()
    sim.run(sim.now + 1_000)  # so that it is suspect by the time that the other's lease is over
    sim.nodes[2].kill()
    sim.run(sim.now + 12_000)
    assert sim.moves == 4
    assert loads(sim) == [4, 0, 0, 4]


@pytest.mark.parametrize("seed", [*range(8), 23, 26])  # of the last two another looks at the map meanwhile
def test_node_that_is_started_again_has_its_shards_at_once_and_no_other_moves(seed):
    sim = settled(3, 3, seed=seed)
    before = list(sim.map.shards)
    sim.nodes[0].kill()
    sim.run(sim.now + 300)
    sim.nodes[0].start()
    assert until_served(sim, 2_000) < 2_000
    moved = [old.owner for old, new in zip(before, sim.map.shards, strict=True) if old.owner != new.owner]
    assert moved == ["a.1"] * 3
    assert loads(sim) == [3, 3, 3]


def test_node_that_is_started_again_beside_a_process_of_the_former_one_waits_for_its_lease():
    sim = settled(3, 3)
    sim.nodes[0].kill(orphaned_ms=60_000)
    sim.run(sim.now + 300)
    sim.nodes[0].start()
    sim.run(sim.now + LEASE_MS * 0.6)
    assert not sim.ended
    sim.run_until(lambda: loads(sim) == [3, 3, 3], LEASE_MS)
    assert sim.ended == {"nodes/a.1"}


def test_new_node_is_handed_its_part():
    sim = settled(3, 4, spare=1)
    sim.nodes[3].start()
    sim.run_until(lambda: loads(sim) == [3, 3, 3, 3], 15_000)
    assert sim.moves == 3
    assert sim.shards == 12


@pytest.mark.parametrize("seed", range(10))
def test_drained_node_hands_over_one_shard_after_the_other_within_600_ms_each(seed):
    sim = settled(3, 4, seed=seed)
    sim.nodes[seed % 3].tell(Drain("c", True))
    served_ms = dict.fromkeys(range(sim.shards), sim.now)
    began = sim.now
    while any(owner == "c.1" for owner in map(sim.owner, range(sim.shards))):
        sim.run(sim.now + 20)
        served_ms |= {shard: sim.now for shard in served_ms if sim.serves(shard)}
        assert sim.now - min(served_ms.values()) < 600
        assert sim.now < began + 4 * 2_000 + 1_000
    assert loads(sim) == [6, 6, 0]
    sim.nodes[seed % 2].tell(Drain("c", False))
    sim.run_until(lambda: not sim.map.members["c.1"].is_draining, 3_000)
    sim.run_until(lambda: loads(sim) == [4, 4, 4], 20_000)
    sim.run(sim.now + 3_000)
    assert not sim.map.is_balancing
    assert loads(sim) == [4, 4, 4]


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_shard_whose_next_owner_dies_is_served_within_a_lease_and_two_seconds(seed, is_given):
    sim = settled(3, 4, seed=seed)
    sim.nodes[0].tell(Drain("c", True))

    def next_owner() -> str:
        if is_given:  # not served yet
            return next(
                (each.owner for each in sim.map.shards if each.reason == "handed over" and new(each)), ""
            )
        return next((each.to for each in sim.map.shards if each.to), "")

    before = set(sim.map.shards)

    def new(shard: Shard) -> bool:
        return shard not in before and not shard.to and shard.owner != "c.1"

    sim.run_until(lambda: bool(next_owner()), 5_000)
    dying = "abc".index(next_owner()[0])
    sim.nodes[dying].kill()
    sim.run(sim.now + 1)
    until_served(sim, LEASE_MS + 2_000)
    sim.run_until(lambda: sorted(loads(sim)) == [0, 0, 12], 20_000)
    assert loads(sim)[1 - dying] == 12


def test_leaving_node_hands_over_one_shard_after_the_other():
    sim = settled(2, 3)
    sim.nodes[0].tell(Wish.LEAVE)
    while not sim.nodes[0].has_left:
        sim.run(sim.now + 20)
        assert all(sim.now - last_ms < 2_000 for last_ms in sim.last_confirm_ms.values())
        assert sum([sim.serves(shard) for shard in range(sim.shards)]) >= 3, "one closes, two open"
    assert loads(sim) == [0, 6]
    sim.run(sim.now + 1_000)
    assert sorted(sim.objects) == ["map", "nodes/b.1"]


def test_node_that_cannot_read_the_map_ends_and_leaves_nothing_behind():
    sim = settled(2, 1, spare=1)
    sim.objects["map"] = Stored(b'{"format":2}', Tag("newer", None))
    sim.nodes[2].start()
    node = sim.nodes[2]
    sim.run_until(lambda: node.starts > 1, 2_000)
    sim.nodes[2].kill()
    sim.run(sim.now + 1_000)
    assert not sim.nodes[0].workers, "who has read it opens nothing"


def test_last_node_leaves_its_shards_to_the_next_one():
    sim = settled(1, 4, spare=1)
    sim.nodes[0].tell(Wish.LEAVE)
    sim.run_until(lambda: sim.nodes[0].has_left, 10_000)
    assert sim.map.orphans() == [0, 1, 2, 3]
    sim.nodes[1].start()
    until_served(sim, 3_000)
    assert loads(sim) == [0, 4]


def test_shard_that_does_not_get_on_is_opened_again_at_its_node():
    sim = settled(3, 2)
    sim.nodes[0].workers[min(sim.nodes[0].workers)].is_stuck = True
    until_served(sim, LEASE_MS + 1_000)
    assert sim.moves == 0
    assert sim.shards == 6


@pytest.mark.parametrize("away_ms", [1_000, 2_000, 4_000, 8_000])
def test_store_that_was_away_ends_no_process(away_ms):
    sim = settled(3, 2)
    workers = [worker for node in sim.nodes for worker in node.workers.values()]
    sim.is_away = True
    sim.run(sim.now + away_ms)
    sim.is_away = False
    until_served(sim, 5_000)
    sim.run(sim.now + 10_000)
    assert all(worker.is_alive for worker in workers)


def test_shard_that_a_node_fails_to_open_goes_to_another():
    sim = settled(2, 1)
    sim.faults.fails_to_open = 1.0
    shard = min(sim.nodes[0].workers)
    sim.nodes[0].workers[shard].die()
    sim.run_until(lambda: sim.owner(shard) == "b.1", 6_000)
    sim.faults.fails_to_open = 0.0
    until_served(sim, 10_000)


def test_node_cut_off_from_the_store_says_so_and_refuses_within_its_lease():
    sim = settled(3, 1)
    node = sim.nodes[0]
    node.is_cut_up = True
    sim.run(sim.now + LEASE_MS * 1.02)
    assert not node.is_valid()
    assert "the store does not answer" in node.machine.trouble(node.local())
    sim.run(sim.now + 5_000)
    assert loads(sim) == [0, 2, 1] or loads(sim) == [0, 1, 2]
    node.is_cut_up = False
    sim.run_until(lambda: node.machine.name == "a.2" and node.is_valid(), 3_000)


def test_next_owner_of_a_shard_looks_for_its_hand_over_every_fiftieth_of_a_lease():
    sim = settled(2, 1)
    taker = sim.nodes[1].machine
    sim.nodes[0].tell(Drain("a", True))
    sim.run_until(lambda: any(shard.to == taker.name for shard in taker.map.shards), 5_000)
    now_ms = sim.nodes[1].local()
    assert taker.due_ms(now_ms) - now_ms <= LEASE_MS // 50
