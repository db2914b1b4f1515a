"""Parts are given what they need: they do not go a long way through the hub or the context for it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FLOORS = ("broker", "queue_manager", "storage", "protocols")

DOTS_MAX = 3
SHARED_BY_ALL = {"hub", "context"}
"""What everybody has, with everything in it: the `Hub` of the broker, the `Context` of the core."""


def chains_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the longest chains of attributes, with their lines."""
    tree = ast.parse(source)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    for node in attributes:
        if id(node) in inner:
            continue
        names = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        names.append(at.id if isinstance(at, ast.Name) else "()")
        yield node.lineno, ".".join(reversed(names))


def goes_through_shared(chain: str) -> bool:
    """Return whether a chain is long, and takes of the hub or the context a part of a part."""
    names = chain.split(".")
    is_through = any(name.lstrip("_") in SHARED_BY_ALL for name in names[:-2])
    return len(names) - 1 > DOTS_MAX and is_through


def test_a_long_chain_through_the_hub_is_seen() -> None:
    source = "\n".join(
        (
            "self._log.context.commit.put(self._client.hub.counters.drop())",
            "find(name).log.context.timers.set(1)",
            "self._context.commit.put(log.context.commit.puts)",
            "self._client.core.settling.ack()",
        )
    )
    assert [chain for _, chain in chains_of(source) if goes_through_shared(chain)] == [
        "self._log.context.commit.put",
        "().log.context.timers.set",
        "self._client.hub.counters.drop",
    ]


def test_no_part_goes_a_long_way_through_the_hub_or_the_context() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {chain}"
        for floor in FLOORS
        for file in sorted((ROOT / floor).rglob("*.py"))
        for line, chain in chains_of(file.read_text("utf-8"))
        if goes_through_shared(chain)
    ]
    assert found == []
