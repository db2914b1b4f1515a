"""broker.access.key_cover: a pattern covers a binding only if it covers all that the binding matches."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access import key_cover
from broker.access.key_cover import KeyCover, TooHard
from broker.access.name_patterns import NamePattern
from config import limits


def matches(binding, key):
    """Whether the binding matches, as AMQP has it."""
    words = [".*" if word == "#" else "[^.]*" if word == "*" else re.escape(word) for word in binding]
    if not words:
        return not key
    if binding[0] == "#":
        return any(matches(binding[1:], key[at:]) for at in range(len(key) + 1))
    return bool(key) and bool(re.fullmatch(words[0], key[0])) and matches(binding[1:], key[1:])


COVERED = [
    (r"^metrics\.", "metrics.*"),
    (r"^metrics(\..*)?$", "metrics.#"),
    (r"^metrics\.[^.]+$|^metrics\.$", "metrics.*"),
    (r"^a\.(b|c)\.", "a.b.#.d"),
    (r"a", "#.a.#"),
    (r"^(?:[^.]*\.)*[^.]*$", "#"),
    (r"^.*\Z", "#"),
    (r"^[\s\S]*$", "*.#"),
    (r"^(?i:METRICS)\.", "metrics.*.#"),
    (r"(?i)^[m]etrics\.", "METRICS.#.x"),
    (r"^\w+(\.|$)", "a.#"),
    (r"^a(\.[^.]*){0,2}$", "a.*.*"),
]
UNCOVERED = [
    (r"^metrics(\.[^.]+)?$", "metrics.#"),
    (r"^metrics(\.[^.]+){0,100}$", "metrics.#"),
    (r"^metrics\.[^s]", "metrics.*"),
    (r"^metrics\.([^s]|s[^e]|se[^c])", "metrics.*"),
    (r"^metrics\.\w+$", "metrics.*"),
    (r"^metrics\.[a-y]*$", "metrics.*"),
    (r"^metrics\.[\w.-]*$", "metrics.#"),
    (r"^metrics\.", "metrics.#"),  # which is for `metrics`, too
    (r"^a\.b$", "a.*"),
    (r"^a.b$", "a.*.b"),
    (r"^(a|b)\.", "*.x"),
    (r"secret", "#"),
    (r"^a\.(.{0,30})$", "a.*"),
]


@pytest.mark.parametrize(("pattern", "binding"), COVERED)
def test_a_binding_is_covered_where_all_its_keys_are(pattern, binding):
    assert KeyCover(pattern).uncovered(binding) is None
    assert NamePattern(pattern).covers_keys(binding)


@pytest.mark.parametrize(("pattern", "binding"), UNCOVERED)
def test_a_binding_is_not_covered_where_one_of_its_keys_is_not(pattern, binding):
    key = KeyCover(pattern).uncovered(binding)
    assert key is not None
    assert matches(binding.split("."), key.split(".") if key else [])
    assert not re.search(pattern, key)
    assert not NamePattern(pattern).covers_keys(binding)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^a\.(?!secret)",
        r"(?<=a)\.",
        r"^(a)\.\1",
        r"\ba",
        r"^a\.(?>.*)",
        r"^a\..*+",
        "^" + "(a?b){0,900}" + "$",
    ],
)
def test_what_is_too_hard_covers_no_wildcards(pattern):
    with pytest.raises(TooHard):
        KeyCover(pattern).uncovered("a.#")
    assert not NamePattern(pattern).covers_keys("a.#")


def test_with_an_unknown_reader_of_expressions_nothing_covers_wildcards(monkeypatch):
    monkeypatch.setattr(key_cover, "_parser", None)
    with pytest.raises(TooHard):
        KeyCover("^a")
    assert not NamePattern("^a").covers_keys("a.#")
    assert NamePattern("^a").covers_keys("a.b")
    assert NamePattern(".*").covers_keys("a.#")


def test_a_comparison_that_takes_too_many_steps_is_given_up():
    pattern = r"^(?:.*a.{15}|.*)$"  # which remembers where an a was, in 2**15 states
    with pytest.raises(TooHard):
        KeyCover(pattern).uncovered("#")
    assert limits.ACCESS_COVER_STEPS_MAX <= 20_000  # some 50 ms


def patterns():
    atoms = st.sampled_from(["a", "b", r"\.", ".", "[^.]", "[^a]", "[ab]", "^", "$"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])).map(
                lambda two: f"(?:{two[0]}){two[1]}"
            ),
        ),
        max_leaves=8,
    )


WORDS = [*map("".join, itertools.product("ab", repeat=2)), "", "a", "b", "c"]
KEYS = [(), *((one,) for one in WORDS), *itertools.product(WORDS, repeat=2)]
KEYS += itertools.product(["", "a", "b", "c"], repeat=3)


@given(
    patterns(),
    st.lists(st.sampled_from(["a", "b", "ab", "", "*", "#"]), min_size=1, max_size=4).filter(
        lambda words: "*" in words or "#" in words
    ),
)
def test_what_it_finds_is_what_trying_finds(pattern, words):
    found = KeyCover(pattern).uncovered(".".join(words))
    if found is not None:
        assert any(
            matches(words, key) for key in (found.split("."), [] if not found else None) if key is not None
        )
        assert not re.search(pattern, found)
    else:
        for key in KEYS:
            if matches(words, list(key)):
                assert re.search(pattern, ".".join(key)), key
