"""Topic exchanges: patterns of words between dots; `*` is one word, `#` any number of them (3.1.3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"


def words_of(key: str) -> list[str]:
    """Return the words of a routing key or pattern; an empty one has none."""
    return key.split(".") if key else []


class _Node:
    """A node behind a number of words: further words, and the bindings whose pattern ends here. `takes_any`:
    after `#`, where it stays whatever words come.
    """

    __slots__ = ("bindings", "following", "takes_any")

    def __init__(self, *, takes_any: bool = False) -> None:
        self.takes_any = takes_any
        self.following: dict[str, _Node] = {}
        self.bindings: dict[Binding, None] = {}


class TopicMatcher(Matcher):
    """The patterns are a trie, so that a key costs by its words and not by the patterns."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            following = node.following
            child = following.get(word)
            if child is None:
                child = following[word] = _Node(takes_any=word == ANY_WORDS)
            node = child
        node.bindings[binding] = None

    def remove(self, binding: Binding) -> None:
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
        found: dict[Binding, None] = {}
        for key in keys:
            self._match(words_of(key), found)
        return found

    def _match(self, words: list[str], found: dict[Binding, None]) -> None:
        # word by word, with all places that the words so far lead to: however many `#` there are in patterns,
        # a place is looked at once for each word
        places: dict[_Node, None] = {}
        _enter(self._root, places)
        for word in words:
            before, places = places, {}
            for node in before:
                if node.takes_any:
                    _enter(node, places)
                following = node.following
                if word != ANY_WORDS and (child := following.get(word)) is not None:
                    _enter(child, places)
                if (child := following.get(ONE_WORD)) is not None:
                    _enter(child, places)
            if not places:
                return
        for node in places:
            found.update(node.bindings)


def _enter(node: _Node, places: dict[_Node, None]) -> None:
    """Come to a place, and to what follows it by `#`, which may be no word."""
    while node not in places:
        places[node] = None
        following = node.following.get(ANY_WORDS)
        if following is None:
            return
        node = following
