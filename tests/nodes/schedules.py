"""Random schedules of a simulated cluster."""

from collections.abc import Callable
from random import Random

from broker.nodes.node_machine import Drain, Event, Wish
from tests.nodes.simulation import SETTLED_MS, USUAL_MS, Node, Simulation

CHAOS_MS = 20_000
LONG_CHAOS_MS = 140_000  # a node may stand still for two minutes


def run_schedule(seed: int) -> Simulation:
    """Run the schedule of a seed. Raises Violation."""
    chance = Random(seed)
    nodes = chance.choice((3, 3, 3, 4, 5))
    sim = Simulation(seed, nodes=nodes, shards=chance.randrange(4, 13))
    for node in sim.nodes:
        sim.at(chance.uniform(0, 1_500), node.start)
    if chance.random() < 0.7:
        sim.run(6_000)
    level = chance.choice((0.0, 0.0, 0.02, 0.1))
    sim.faults.lost = level * chance.random()
    sim.faults.late = level * chance.random()
    sim.faults.doubled = 2 * level * chance.random()
    sim.faults.fails_to_open = level * chance.random()
    end_ms = sim.calm_ms = sim.now + (LONG_CHAOS_MS if chance.random() < 0.04 else CHAOS_MS)
    for _ in range(chance.randrange(1, 9)):
        sim.at(chance.uniform(sim.now, end_ms), _fault(sim, chance.randrange(1 << 30)))
    sim.run(end_ms)
    _heal(sim, chance)
    healed_ms = sim.now
    sim.run_until(lambda: sim.has_served(healed_ms), SETTLED_MS)
    sim.run(max(sim.now + 1_000, healed_ms + 8_000))
    sim.check_settled()
    for shard, write in sim.confirmed:
        sim.check_kept(shard, write)
    return sim


def _fault(sim: Simulation, seed: int) -> Callable[[], None]:
    """Return something that goes wrong, for a while."""
    chance = Random(seed)
    node = chance.choice(sim.nodes)
    kinds = (
        _kill,
        _kill,
        _pause,
        _pause,
        _pause_keeper,
        _cut,
        _cut,
        _away,
        _slow,
        _slow_then_cut,
        _stick,
        _crash,
        _wish,
        _wish,
    )
    kind = chance.choice(kinds)
    return lambda: kind(sim, node, chance)


def _kill(sim: Simulation, node: Node, chance) -> None:
    if node.is_alive:
        node.kill(orphaned_ms=chance.choice((0, 0, 500, 4_000, 12_000)))
        sim.after(chance.choice((300, 2_000, 9_000, 30_000)), node.start_again)


def _pause(sim: Simulation, node: Node, chance) -> None:
    node.pause(chance.choice((800, 4_000, 7_000, 20_000, 40_000, 120_000)))


def _pause_keeper(sim: Simulation, node: Node, chance) -> None:
    node.pause(chance.choice((800, 4_000, 7_000, 20_000)), only_keeper=True)


def _cut(sim: Simulation, node: Node, chance) -> None:
    node.is_cut_up, node.is_cut_down = chance.choice(((True, True), (True, False), (False, True)))

    def heal() -> None:
        node.is_cut_up = node.is_cut_down = False

    sim.after(chance.uniform(300, 15_000), heal)


def _away(sim: Simulation, node: Node, chance) -> None:
    sim.is_away = True

    def heal() -> None:
        sim.is_away = False

    sim.after(chance.choice((1_000, 4_000, 20_000)), heal)


def _slow(sim: Simulation, node: Node, chance) -> None:
    sim.latency_ms, sim.back_ms = chance.choice((((300, 500), (300, 500)), (USUAL_MS, (800, 1_150))))

    def heal() -> None:
        sim.latency_ms = sim.back_ms = USUAL_MS

    sim.after(chance.uniform(2_000, 12_000), heal)


def _slow_then_cut(sim: Simulation, node: Node, chance) -> None:
    _slow(sim, node, chance)
    sim.at(min(sim.now + chance.uniform(1_000, 3_000), sim.calm_ms - 1), lambda: _cut(sim, node, chance))


def _stick(sim: Simulation, node: Node, chance) -> None:
    for worker in list(node.workers.values())[:1]:
        worker.is_stuck = True


def _crash(sim: Simulation, node: Node, chance) -> None:
    for worker in list(node.workers.values())[:1]:
        worker.die()


def _wish(sim: Simulation, node: Node, chance) -> None:
    wish: Event = chance.choice((Wish.LEAVE, Wish.BALANCE, Drain(node.name, True), Drain(node.name, False)))
    teller = chance.choice(sim.nodes) if isinstance(wish, Drain) else node
    if teller.is_alive:
        teller.tell(wish)
    if isinstance(wish, Drain):
        resume = Drain(node.name, False)

        def tell_all() -> None:
            for each in sim.nodes:
                if each.is_alive:
                    each.tell(resume)

        sim.after(chance.uniform(3_000, 20_000), tell_all)
    if wish is Wish.LEAVE:
        sim.after(chance.uniform(500, 15_000), node.start_again)


def _heal(sim: Simulation, chance) -> None:
    """Let nothing be wrong any more, but that nodes are gone or stand still: at least one works."""
    sim.faults.lost = sim.faults.late = sim.faults.doubled = sim.faults.fails_to_open = 0.0
    sim.is_away = False
    sim.latency_ms = sim.back_ms = USUAL_MS
    alive = [node for node in sim.nodes if node.is_alive]
    for node in sim.nodes:
        node.is_cut_up = node.is_cut_down = False
        if chance.random() < 0.8:
            node.go_on()
    if not alive:
        sim.nodes[0].start()
    elif all(node.sim.now < node.paused_until for node in alive):
        alive[0].go_on()
