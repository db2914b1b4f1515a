"""Topic exchanges: patterns of words between dots; `*` is one word, `#` any number of them (3.1.3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"


def words_of(key: str) -> list[str]:
    """The words of a routing key or pattern; an empty one has none."""
    return key.split(".") if key else []


class _Node:
    """What follows a number of words: further words, and the bindings whose pattern ends here."""

    __slots__ = ("bindings", "following")

    def __init__(self) -> None:
        self.following: dict[str, _Node] = {}
        self.bindings: dict[Binding, None] = {}


class TopicMatcher:
    """See `Matcher`. The patterns are a trie, so that a key costs by its words and not by the patterns."""

    reads_headers = False
    varies = False

    def __init__(self) -> None:
        self._root = _Node()

    def check(self, key: str, arguments: Headers) -> None:
        """See `Matcher`."""

    def add(self, binding: Binding) -> None:
        """See `Matcher`."""
        node = self._root
        for word in words_of(binding.key):
            node = node.following.setdefault(word, _Node())
        node.bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        """See `Matcher`."""
        path = [self._root]
        words = words_of(binding.key)
        for word in words:
            path.append(path[-1].following[word])
        del path[-1].bindings[binding]
        for node, parent, word in zip(path[:0:-1], path[-2::-1], reversed(words), strict=True):
            if node.bindings or node.following:
                break
            del parent.following[word]

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        """See `Matcher`."""
        found: dict[Binding, None] = {}
        for key in keys:
            self._match(words_of(key), found)
        return found

    def _match(self, words: list[str], found: dict[Binding, None]) -> None:
        count = len(words)
        # a set of places, so that several `#` in a pattern do not try the same words over and over
        places = [(self._root, 0)]
        seen = {(self._root, 0)}
        while places:
            node, position = places.pop()
            following = node.following
            nexts: list[tuple[_Node, int]] = []
            if position < count:
                for word in {words[position], ONE_WORD} - {ANY_WORDS}:
                    child = following.get(word)
                    if child is not None:
                        nexts.append((child, position + 1))
            else:
                found.update(node.bindings)
            if (rest := following.get(ANY_WORDS)) is not None:
                nexts += [(rest, end) for end in range(position, count + 1)]
            for place in nexts:
                if place not in seen:
                    seen.add(place)
                    places.append(place)
