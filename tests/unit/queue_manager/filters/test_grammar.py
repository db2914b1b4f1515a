"""Texts to trees: round trips, what is refused and where."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config import limits
from queue_manager.filters import SelectorError, tree
from queue_manager.filters.grammar import DIALECTS, parse
from queue_manager.filters.tree import And, Chain, Compare, Literal, Name, Not, Or, Signed
from tests.examples import examples
from tests.unit.queue_manager.filters import trees

A, B, C = Name("a"), Name("b"), Name("c")


def refusal(text, dialect="jms"):
    try:
        parse(text, dialect)
    except SelectorError as error:
        return error
    return None


@settings(max_examples=examples(250, 1_500), deadline=None)
@given(trees.cases())
def test_a_tree_written_as_text_is_read_as_the_same_tree(case):
    dialect, expression, _ = case
    text = trees.written(expression, dialect)
    if len(text) > limits.SELECTOR_TEXT_CHARS_MAX or text.count(" ") > limits.SELECTOR_TOKENS_MAX // 2:
        return
    parsed = parse(text, dialect)
    assert parsed == expression
    assert repr(parsed) == repr(expression)  # tells 1, 1.0 and True from each other


# pieces that come close to selectors more often than letters do
PIECES = [
    *("NOT", "AND", "or", "BETWEEN", "like", "IN", "IS", "ESCAPE", "NULL", "TRUE", "false", "UTC", "UTC()"),
    *(
        "a",
        "größe",
        "JMSPriority",
        "JMSReplyTo",
        "amqp.subject",
        "amqp.x",
        "p.to",
        "h.x",
        "a.[b]",
        "[c d]",
        "x.y",
    ),
    *(
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "!=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "(",
        ")",
        ",",
        ".",
        "'",
        '"',
        "[",
        "]",
        ";",
    ),
    *(
        "'x'",
        "'it''s'",
        '"x"',
        "''",
        "0",
        "1",
        "017",
        "08",
        "0x1F",
        "0xA2",
        "7.",
        ".5",
        "1e9",
        "1e999",
        "1L",
        "2d",
    ),
    *("9223372036854775807", "9223372036854775808", "1abc", " ", "\n", "\t", "\0", "--", "🦀", "²", "\udcff"),
]


@settings(max_examples=examples(400, 5_000), deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join),
        st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    ),
    st.sampled_from(DIALECTS),
)
def test_any_text_is_a_selector_or_refused(text, dialect):
    error = refusal(text, dialect)
    if error is not None:
        assert 1 <= error.position <= len(text) + 1
        assert error.reason.startswith(f"selector, column {error.position}: ")
        assert len(error.reason) < 350


def test_precedence():
    assert parse("a OR b AND NOT c", "jms") == Or((A, And((B, Not(C)))))
    assert parse("NOT a = b", "jms") == Not(Compare("=", A, B))
    assert parse("a + b * -c = 1", "jms") == Compare(
        "=", Chain(A, (("+", Chain(B, (("*", Signed("-", C)),))),)), Literal(1)
    )
    assert parse("a - b - c = 1", "jms") == Compare("=", Chain(A, (("-", B), ("-", C))), Literal(1))
    assert parse("a - (b - c) = 1", "jms") == Compare(
        "=", Chain(A, (("-", Chain(B, (("-", C),))),)), Literal(1)
    )
    assert parse("a BETWEEN 1 AND 2 AND b", "jms") == And((tree.Between(A, Literal(1), Literal(2), False), B))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("7L", 7),
        ("017", 15),
        ("0", 0),
        ("0x1F", 31),
        ("0X1fl", 31),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("- 9223372036854775808l", -(2**63)),
        ("7.", 7.0),
        (".5", 0.5),
        ("7E3", 7000.0),
        ("1.5e-3", 0.0015),
        ("1.5f", 1.5),
        ("2e1d", 20.0),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'a\nb'", "a\nb"),
        ("true", True),
        ("FALSE", False),
    ],
)
def test_jms_literals(text, value):
    parsed = parse(f"a = {text}", "jms")
    assert repr(parsed) == repr(Compare("=", A, Literal(value)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("017", 17),
        ("1.5E-3", 0.0015),
        ("0x00FF", b"\0\xff"),
        ('"say ""hi"""', 'say "hi"'),
        ("'it''s'", "it's"),
        ("TRUE", True),
    ],
)
def test_amqp_sql_literals(text, value):
    parsed = parse(f"a = {text}", "amqp-sql")
    assert repr(parsed) == repr(Compare("=", Name("application-properties.a"), Literal(value)))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a", "application-properties.a"),
        ("a.a", "application-properties.a"),
        ("application_properties.x_1", "application-properties.x_1"),
        ("[a.b - c]", "application-properties.a.b - c"),
        ("a.[x[[1]]]", "application-properties.x[1]"),
        ("[not]", "application-properties.not"),
        ("JMSPriority", "application-properties.JMSPriority"),
        ("between", "application-properties.between"),
        ("p.subject", "properties.subject"),
        ("properties.reply_to_group_id", "properties.reply-to-group-id"),
        ("h.priority", "header.priority"),
        ("header.priority", "header.priority"),
        ("UTC()", "UTC()"),
        ("UTC", "application-properties.UTC"),
    ],
)
def test_amqp_sql_names(text, field):
    assert parse(text, "amqp-sql") == Name(field)


def test_names_that_jms_clients_rewrite():
    assert parse("amqp.priority > 4", "jms") == parse("JMSPriority > 4", "jms")
    assert parse("amqp.correlation_id = 'x'", "jms") == parse("JMSCorrelationID = 'x'", "jms")


def test_keywords_are_ascii_and_whole_words():
    assert parse("Not a", "jms") == Not(A)
    assert parse("nota", "jms") == Name("nota")
    assert parse("not_a", "jms") == Name("not_a")
    assert parse("ıs", "jms") == Name("ıs")
    assert "found 'lıke'" in refusal("a lıke 'x'").reason


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("color =", 8, "found the end where a value or a name should be"),
        ("color = 'blue", 9, "closing quote"),
        ('color = "blue"', 9, "single quotes"),
        ("color == 'x'", 8, "found '='"),
        ("color != 'x'", 7, "unequal is written <>"),
        ("a = 1 b = 2", 7, "found 'b'"),
        ("a = 1\n  AND ) b", 13, "found ')'"),
        ("(a = 1", 7, "found the end where ')' should be"),
        ("a = 1)", 6, "found ')' where the end should be"),
        ("a < b < c", 7, "found '<'"),
        ("a IN ()", 7, "found ')'"),
        ("a IN ('x',)", 11, "found ')'"),
        ("a IN ('x', 2)", 12, "only texts"),
        ("a IN (('x'))", 8, "only texts"),
        ("'x' IN ('x')", 1, "IN needs a property name"),
        ("(a) in ('x')", 2, "IN needs a property name"),
        ("a + 1 LIKE 'x'", 1, "LIKE needs a property name"),
        ("1 IS NULL", 1, "IS needs a property name"),
        ("a IS 1", 6, "NULL"),
        ("a LIKE b", 8, "a text in quotes"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "ends in its escape character"),
        ("a LIKE 'x' ESCAPE ''", 19, "one character"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "one character"),
        ("a BETWEEN 1", 12, "AND"),
        ("a > 'x'", 5, "text has no order"),
        ("'x' <= a", 1, "text has no order"),
        ("a > (TRUE)", 6, "a boolean has no order"),
        ("a BETWEEN 'x' AND 'y'", 11, "text has no order"),
        ("a % 2 = 0", 3, "'%'"),
        ("a = NULL", 5, "found 'NULL'"),
        ("a.b = 1", 1, "a dot cannot be part of it"),
        ("a-b.c = 1", 3, "a dot cannot be part of it"),
        ("amqp.durable = TRUE", 1, "amqp.durable is not known"),
        ("JMSReplyTo = 'x'", 1, "JMSReplyTo cannot be named"),
        ("a AND JMSRedelivered", 7, "JMSRedelivered cannot be named"),
        ("½ = 1", 1, "cannot begin with '½'"),
        ("1abc = 2", 1, "1abc is not a number"),
        ("a = 08", 5, "08 is not a number"),
        ("a = 1.5.3", 5, "1.5.3 is not a number"),
        ("a = 9223372036854775808", 5, "at most 9223372036854775807"),
        ("a = -9223372036854775809", 6, "at most 9223372036854775807"),
        ("a = 0xFFFFFFFFFFFFFFFF", 5, "at most 9223372036854775807"),
        ("a = 1e999", 5, "range of doubles"),
        ("a = 1; b", 6, "';' is not known"),
        ("UTC() > 1", 4, "found '('"),
    ],
)
def test_a_refused_jms_selector_says_where_and_why(text, position, words):
    error = refusal(text)
    assert error.position == position
    assert words in error.reason
    assert str(error) == error.reason


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a = 1 and b = 2", 7, "found 'and'"),
        ("a = true", 5, "must be written TRUE"),
        ("Not = 1", 1, "must be written NOT"),
        ("p.colour = 'x'", 1, "no property colour"),
        ("p.message-id = 'x'", 1, "no property message"),
        ("h.durable", 1, "only priority"),
        ("x.y = 1", 1, "no section x"),
        ("_a = 1", 1, "not known"),
        ("a BETWEEN 1 AND 2", 3, "found 'BETWEEN' where a comparison"),
        ("a NOT BETWEEN 1 AND 2", 7, "where IN or LIKE should be"),
        ("UTC() IS NULL", 1, "IS needs a property name"),
        ("a LIKE 'x\ty'", 8, "control characters"),
        ("[a\x01b] = 1", 1, "'['"),
        ("[abc = 1", 1, "']'"),
        ("a = 0xff", 5, "0xff is not a number"),
        ("a = 0xABC", 5, "0xABC is not a number"),
        ("a = 5.", 5, "5. is not a number"),
        ("a = ''", 5, "at least one character"),
        ("a = 'x", 5, "closing quote"),
        ('a = "x', 5, "closing quote"),
    ],
)
def test_a_refused_amqp_sql_filter_says_where_and_why(text, position, words):
    error = refusal(text, "amqp-sql")
    assert error.position == position
    assert words in error.reason


def test_limit_of_characters():
    longest = "a = '" + "x" * (limits.SELECTOR_TEXT_CHARS_MAX - 6) + "'"
    assert len(longest) == limits.SELECTOR_TEXT_CHARS_MAX
    parse(longest, "jms")
    assert "4097 characters" in refusal(longest + " ").reason
    assert refusal(longest + " ").position == limits.SELECTOR_TEXT_CHARS_MAX + 1


def test_limit_of_tokens():
    items = ",".join(["'x'"] * 98)
    parse(f"a IN ({items})", "jms")  # 2 + 98 texts + 97 commas + 2
    parse(f"a IN ({items}) ", "jms")
    parse(f"NOT a IN ({items})", "jms")
    error = refusal(f"NOT NOT a IN ({items})")
    assert "more than 200" in error.reason
    assert error.position == len(f"NOT NOT a IN ({items})")
    assert "nested" in refusal("(" * 4_000).reason


@pytest.mark.parametrize("opening", ["(", "NOT ", "- ", "+ ", "NOT ("])
def test_limit_of_nesting(opening):
    levels = len(opening.replace(" ", "").replace("NOT", "!"))
    count = limits.SELECTOR_NESTING_MAX // levels
    closing = ")" * opening.count("(")
    parse(opening * count + "a" + closing * count, "jms")
    error = refusal(opening * (count + 1) + "a" + closing * (count + 1))
    assert "nested more than 64" in error.reason
    assert error.position == len(opening * count) + 1


def test_operators_between_operands_do_not_nest():
    parse(" - ".join("(a)" for _ in range(49)) + " = 1", "jms")
    parse(" AND ".join("NOT a" for _ in range(60)), "jms")


def test_long_pieces_are_cut_in_errors():
    assert len(refusal("a = 1 " + "b" * 4_000).reason) < 150
    assert len(refusal("JMS" + "b" * 4_000).reason) < 250
    assert len(refusal("1" + "b" * 4_000).reason) < 150


FIRST_SELECTOR = """
import time
import queue_manager.manager
from queue_manager.filters.selector import parse_selector
begun = time.process_time()
parse_selector("a = 1 AND b LIKE 'x%' OR c IN ('y', 'z')", {dialect!r})
print(time.process_time() - begun)
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_selector_of_a_process_holds_it_up_no_longer_than_others(dialect):
    program = FIRST_SELECTOR.format(dialect=dialect)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.05  # 0.17 s when its parser was generated then
