"""Compiled selectors against the interpreter of the tests, and what the code may cost."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.filters import Selector, SelectorError, parse_selector, tree
from queue_manager.filters.compile import compile_expression
from queue_manager.filters.grammar import parse
from tests.examples import examples
from tests.unit.queue_manager.filters import interpreter, trees


@settings(max_examples=examples(150, 2_000), deadline=None)
@given(trees.cases())
def test_compiled_and_interpreted_agree(case):
    check_agreement(*case)


def check_agreement(dialect, expression, fields):
    expected = interpreter.evaluate(expression, fields, dialect)
    assert compile_expression(expression, dialect)(fields) is (expected is True)
    assert compile_expression(tree.Not(expression), dialect)(fields) is (expected is False)


@st.composite
def one_field_cases(draw):
    """Conditions of one name and constants: those that are written in place."""
    dialect = draw(st.sampled_from(["jms", "amqp-sql"]))
    draws = trees.Draws(draw, dialect)
    name = tree.Name("a")

    def constant():
        node = draws.constant()
        return tree.Signed(draw(st.sampled_from("+-")), node) if draws.flag() else node

    kind = draw(st.integers(0, 4))
    if kind == 0:
        node = tree.Between(name, constant(), constant(), draws.flag())
    elif kind == 1:
        node = tree.In(name, tuple(draws.text() for _ in range(3)), draws.flag())  # type: ignore[assignment]
    elif kind == 2:
        node = draws.like(name)  # type: ignore[assignment]
    else:
        sides = [name, constant()]
        operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
        node = tree.Compare(operator, *(sides if draws.flag() else sides[::-1]))  # type: ignore[assignment]
    if dialect == "amqp-sql" and kind == 0:
        node = tree.Compare("=", constant(), constant())  # type: ignore[assignment]
    return dialect, node, {"a": draw(trees.FIELD_VALUES)}


@settings(max_examples=examples(150, 2_000), deadline=None)
@given(one_field_cases())
def test_conditions_on_one_field_agree_too(case):
    check_agreement(*case)


@settings(max_examples=examples(100, 500), deadline=None)
@given(trees.cases(), st.text(max_size=20))
def test_fields_of_any_kind_never_raise(case, text):
    dialect, expression, fields = case
    matches = compile_expression(expression, dialect)
    for value in (object(), Exception, [fields], {1: 2}, text, 1j, float("nan"), 10**5_000):
        anything = dict.fromkeys(tree.field_names(expression), value)
        assert matches(anything) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 64 + "a = 1" + ")" * 64,
        "NOT " * 64 + "a",
        "NOT (" * 32 + "a" + ")" * 32,
        "- " * 64 + "a = 1",
        "(" * 39 + "a = b" + ") = b" * 39,
        "(" * 24 + "a BETWEEN 0 AND b" + ") BETWEEN 0 AND b" * 24,
        "(" * 24 + "a <> 1" + " OR b) <> 1" * 24,
        " OR ".join(["a LIKE 'x_%_y%'"] * 48),
        "+".join(["a"] * 99) + " = 1",
    ],
)
def test_the_largest_selectors_stay_quick(text):
    begin = time.perf_counter()
    selector = Selector(text, "jms")
    assert time.perf_counter() - begin < 2
    begin = time.perf_counter()
    for value in (1, True, "x" * 1_000):
        selector.matches({"a": value, "b": True})
    assert time.perf_counter() - begin < 0.5


def test_text_of_the_user_enters_the_code_as_constants_only():
    hostile = "__import__('os').system('false')"
    selector = parse_selector(f"a = '{hostile.replace(chr(39), chr(39) * 2)}'")
    assert selector.matches({"a": hostile})
    assert hostile in selector.matches.__code__.co_consts
    assert set(selector.matches.__code__.co_names) == {"get"}
    assert selector.matches.__globals__["__builtins__"] == {}


def test_a_field_may_be_called_as_the_code_calls_things():
    names = ["v", "t", "get", "fields", "type", "matches", "conjunction", "like_0", "None", "literal", "test"]
    text = " AND ".join(f"{name} = {index} AND {name} <> -{index}.5" for index, name in enumerate(names))
    selector = parse_selector(text)
    assert selector.names == set(names)
    assert selector.matches({name: index for index, name in enumerate(names)}) is True


@settings(max_examples=examples(100, 500), deadline=None)
@given(trees.cases())
def test_a_parsed_selector_does_the_same(case):
    dialect, expression, fields = case
    text = trees.written(expression, dialect)
    try:
        parsed = parse(text, dialect)
    except SelectorError:
        return  # too large
    expected = interpreter.evaluate(expression, fields, dialect) is True
    assert compile_expression(parsed, dialect)(fields) is expected
