import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.filters import like
from tests.examples import examples
from tests.unit.queue_manager.filters import interpreter


@pytest.mark.parametrize(
    ("pattern", "kind", "text"),
    [
        ("", like.EXACT, ""),
        ("abc", like.EXACT, "abc"),
        ("abc%", like.PREFIX, "abc"),
        ("%%", like.PREFIX, ""),
        ("%", like.PREFIX, ""),
        ("%abc", like.SUFFIX, "abc"),
        ("%abc%", like.CONTAINS, "abc"),
        ("%%abc%%%", like.CONTAINS, "abc"),
        ("a%b", like.GENERAL, ""),
        ("a_", like.GENERAL, ""),
    ],
)
def test_patterns_with_a_quicker_test_are_known(pattern, kind, text):
    assert like.classify(like.split(pattern, None)) == (kind, text)


def test_escaped_signs_are_characters():
    assert like.classify(like.split(r"\%a\_\\b", "\\")) == (like.EXACT, r"%a_\b")
    assert like.classify(like.split("50%%", "%")) == (like.EXACT, "50%")


@pytest.mark.parametrize("pattern", ["!", "a!", "!!!"])
def test_a_pattern_cannot_end_in_its_escape_character(pattern):
    with pytest.raises(ValueError, match="escape"):
        like.split(pattern, "!")


@settings(max_examples=examples(400, 2_000), deadline=None)
@given(st.text("ab%_ß\n", max_size=9), st.text("abß\n", max_size=12))
def test_matcher_agrees_with_trying_everything(pattern, value):
    matches = like.matcher(like.split(pattern, None))
    assert matches(value) is interpreter.like(value, interpreter.symbols(pattern, None))


@pytest.mark.parametrize(
    "pattern", ["%a" * 1_000 + "b", "%_a" * 1_000 + "b", "%" + "_a" * 2_000 + "%b", "%" + "a" * 2_000 + "_b%"]
)
def test_no_pattern_takes_long(pattern):
    matches = like.matcher(like.split(pattern, None))
    begin = time.perf_counter()
    assert not matches("a" * 100_000)
    assert time.perf_counter() - begin < 1
