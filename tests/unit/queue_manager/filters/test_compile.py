"""Compiled selectors against the interpreter of the tests, and what the code may cost."""

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from queue_manager.filters import Selector, SelectorError, parse_selector, tree
from queue_manager.filters.compile import compile_expression
from queue_manager.filters.grammar import parse
from tests.unit.queue_manager.filters import interpreter, trees

CASES = st.sampled_from(["jms", "amqp-sql"]).flatmap(
    lambda dialect: st.tuples(st.just(dialect), trees.expressions(dialect), trees.fields(dialect))
)


@settings(max_examples=1_500, deadline=None)
@given(CASES)
def test_compiled_and_interpreted_agree(case):
    dialect, expression, fields = case
    compiled = compile_expression(expression, dialect)
    expected = interpreter.evaluate(expression, fields, dialect)
    assert compiled.evaluate(fields) is expected
    assert compiled.matches(fields) is (expected is True)
    negated = compile_expression(tree.Not(expression), dialect)
    assert negated.matches(fields) is (expected is False)


# conditions of one name and constants: those that are written in place
@st.composite
def _inline_cases(draw):
    dialect = draw(st.sampled_from(["jms", "amqp-sql"]))
    name = tree.Name("a")
    constant = st.one_of(trees.INTEGERS, trees.FLOATS, trees.TEXTS, st.booleans()).map(tree.Literal)
    constant = st.one_of(constant, st.builds(tree.Signed, st.sampled_from(["+", "-"]), constant))
    operator = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    node = draw(
        st.one_of(
            st.builds(tree.Compare, operator, st.just(name), constant),
            st.builds(tree.Compare, operator, constant, st.just(name)),
            st.builds(tree.Compare, operator, constant, constant),
            st.builds(
                tree.In, st.just(name), st.lists(trees.TEXTS.map(tree.Literal)).map(tuple), st.booleans()
            ),
            trees.likes(st.just(name)),
            st.builds(tree.IsNull, st.just(name), st.booleans()),
        )
        if dialect == "amqp-sql"
        else st.one_of(
            st.builds(tree.Compare, operator, st.just(name), constant),
            st.builds(tree.Compare, operator, constant, st.just(name)),
            st.builds(tree.Between, st.just(name), constant, constant, st.booleans()),
            trees.likes(st.just(name)),
        )
    )
    return dialect, node, {"a": draw(trees.FIELD_VALUES)}


@settings(max_examples=1_500, deadline=None)
@given(_inline_cases())
def test_conditions_on_one_field_agree_too(case):
    test_compiled_and_interpreted_agree.hypothesis.inner_test(case)


@settings(max_examples=300, deadline=None)
@given(CASES, st.text(max_size=20))
def test_fields_of_any_kind_never_raise(case, text):
    dialect, expression, fields = case
    compiled = compile_expression(expression, dialect)
    for value in (object(), Exception, [fields], {1: 2}, text, 1j, float("nan"), 10**5_000):
        anything = dict.fromkeys(tree.field_names(expression), value)
        assert compiled.evaluate(anything) in (True, False, None)
        assert compiled.matches(anything) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 64 + "a = 1" + ")" * 64,
        "NOT " * 64 + "a",
        "NOT (" * 32 + "a" + ")" * 32,
        "- " * 64 + "a = 1",
        "(" * 24 + "a" + " = 1) = b" * 24,
        "(" * 24 + "a" + " BETWEEN 0 AND b)" * 24,
        "(" * 24 + "a" + " <> 1 OR b)" * 24,
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
        selector.evaluate({"a": value, "b": True})
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
    assert selector.evaluate({name: index for index, name in enumerate(names)}) is True


@settings(max_examples=200, deadline=None)
@given(CASES)
def test_a_parsed_selector_does_the_same(case):
    dialect, expression, fields = case
    text = trees.written(expression, dialect)
    try:
        parsed = parse(text, dialect)
    except SelectorError:
        assume(False)
    compiled = compile_expression(parsed, dialect)
    assert compiled.evaluate(fields) is interpreter.evaluate(expression, fields, dialect)
