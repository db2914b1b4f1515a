import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_manager.errors import InvalidAddress
from queue_manager.patterns import compile_pattern, validate
from tests.model.oracle import topic_matches

words = st.sampled_from(["", "a", "b", "aa", "$x"])
patterns = st.lists(st.one_of(words, st.just("+")), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"])
)
topics = st.lists(words, min_size=1, max_size=5).map("/".join)


@given(patterns, topics)
@example("a/#", "a")
@example("+", "")
@example("", "")
@example("+/#", "a")
def test_a_pattern_matches_by_the_rules_of_mqtt(pattern: str, topic: str) -> None:
    validate(pattern)
    if pattern == "" or topic == "":
        return  # an empty pattern is no pattern; see below for an empty key
    assert compile_pattern(pattern)(topic) == topic_matches(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("#", ["", "a", "a/b", "/"], []),
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["", "b", "ab", "ab/c"]),
        ("a", ["a"], ["", "a/b", "A"]),
        ("+", ["a", "b"], ["", "a/b"]),
        ("+/#", ["a", "a/b", "/a"], [""]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c"]),
        ("+/+/c", ["a/b/c", "//c"], ["a/b", "a/b/c/d"]),
        ("a/+/#", ["a/b", "a/b/c"], ["a"]),
    ],
)
def test_routing_keys(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = compile_pattern(pattern)
    assert [key for key in matching + other if matches(key)] == matching


@pytest.mark.parametrize("pattern", ["a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+/c", "a\0b", "##", "++"])
def test_misplaced_wildcards_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidAddress):
        validate(pattern)
