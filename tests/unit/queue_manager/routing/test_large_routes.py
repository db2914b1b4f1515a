"""What one message may cost that goes through many exchanges, or meets patterns with many `#`."""

from itertools import product

import pytest

from config import limits
from queue_manager.errors import LimitReached
from queue_manager.routing.exchange import ExchangeDefinition
from queue_manager.routing.exchange_types.base import NO_HEADERS
from queue_manager.routing.exchange_types.topic import TopicMatcher, _Node
from tests.unit.queue_manager.managers import make_manager, make_queue


def chain(manager, count):
    """Exchanges of which each leads on what it does not take itself."""
    exchanges = manager.queues.exchanges
    for number in range(count):
        arguments = {"alternate-exchange": f"x{number + 1}"} if number + 1 < count else {}
        exchanges.declare(ExchangeDefinition(f"x{number}", "fanout", durable=False, arguments=arguments))
    last = make_queue(manager, "last")
    exchanges.bind(exchanges.find(f"x{count - 1}"), last, "", {})
    return last


def test_a_message_passes_through_many_exchanges_but_not_through_any_number():
    manager = make_manager()
    last = chain(manager, limits.EXCHANGES_PER_ROUTE_MAX + 1)
    exchanges = manager.queues.exchanges
    assert exchanges.route("x1", ("k",), lambda: NO_HEADERS).queues == (last,)
    with pytest.raises(LimitReached, match="'x0' would pass through more than 1000 exchanges"):
        exchanges.route("x0", ("k",), lambda: NO_HEADERS)
    assert not exchanges.unconditional_route("x0", "k").queues


def test_dead_letters_that_would_pass_through_too_many_exchanges_stay():
    manager = make_manager()
    chain(manager, limits.EXCHANGES_PER_ROUTE_MAX + 1)
    assert manager.queues.targets("x0", ("k",), None) == ()


class Bound:
    """A binding, as far as patterns know it."""

    def __init__(self, key):
        self.key = key


class Looked(dict):
    """Counts how often it is looked at."""

    count = 0

    def get(self, key, default=None):
        Looked.count += 1
        return super().get(key, default)


def test_a_place_of_a_pattern_is_looked_at_once_for_each_word(monkeypatch):
    begin = _Node.__init__

    def counting(node, **options):
        begin(node, **options)
        node.following = Looked()

    monkeypatch.setattr(_Node, "__init__", counting)
    matcher = TopicMatcher()
    levels = 40
    matcher.add(Bound(".".join(["#", "*"] * levels)))
    Looked.count = 0
    assert len(matcher.match([".".join(["w"] * 120)], NO_HEADERS)) == 1
    assert Looked.count <= 3 * (2 * levels + 1) * 121


def words_match(pattern, words):
    """By the definition, without a trie."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(words_match(pattern[1:], words[start:]) for start in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and words_match(pattern[1:], words[1:])


def test_all_short_patterns_match_as_they_are_defined():
    patterns = [list(p) for size in range(5) for p in product(["a", "b", "*", "#"], repeat=size)]
    matcher = TopicMatcher()
    bindings = {}
    for pattern in patterns:
        bindings[".".join(pattern)] = binding = Bound(".".join(pattern))
        matcher.add(binding)
    keys = [list(p) for size in range(5) for p in product(["a", "b", "c"], repeat=size)]
    for key in [*keys, ["#"], ["*", "a"], ["a", "#"]]:
        found = {binding.key for binding in matcher.match([".".join(key)], NO_HEADERS)}
        assert found == {".".join(p) for p in patterns if matches_literally(p, key)}
    for binding in bindings.values():
        matcher.remove(binding)
    assert not matcher._root.following


def matches_literally(pattern, key):
    """A `#` among the words of a key is matched by patterns' `*` and `#` alone."""
    return words_match(pattern, ["\0" if word == "#" else word for word in key])
