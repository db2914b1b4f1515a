"""Three-valued logic (Jakarta Messaging 3.1, tables 3-4 to 3-6), kinds and numbers, by selectors."""

import pytest

from queue_manager.filters import parse_selector

FIELDS = {"t": True, "f": False}  # u is absent
T, F, U = True, False, None
NAMES = {T: "t", F: "f", U: "u"}


def result(text, fields=FIELDS, dialect="jms"):
    is_true = parse_selector(text, dialect).matches(fields)
    is_false = parse_selector(f"NOT ({text})", dialect).matches(fields)
    assert not (is_true and is_false)
    return True if is_true else False if is_false else None


# as a name, a comparison, and a boolean compared with
FORMS = [
    {T: "t", F: "f", U: "u"},
    {T: "t = TRUE", F: "t <> TRUE", U: "u = 1"},
    {T: "(t AND t) = TRUE", F: "t = (u IS NULL AND f)", U: "(t AND u) = TRUE"},
    {T: "TRUE", F: "FALSE", U: "'text'"},
]


@pytest.mark.parametrize("left_form", FORMS)
@pytest.mark.parametrize("right_form", FORMS)
@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, T, T),
        (T, F, F, T),
        (T, U, U, T),
        (F, T, F, T),
        (F, F, F, F),
        (F, U, F, U),
        (U, T, U, T),
        (U, F, F, U),
        (U, U, U, U),
    ],
)
def test_and_or(left, right, both, either, left_form, right_form):
    one, other = left_form[left], right_form[right]
    assert result(f"({one}) AND ({other})") is both
    assert result(f"({one}) OR ({other})") is either


@pytest.mark.parametrize("form", FORMS)
def test_not(form):
    assert result(f"NOT ({form[T]})") is F
    assert result(f"NOT ({form[F]})") is T
    assert result(f"NOT ({form[U]})") is U


BIG = 2**53


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x <> 2", "2", F),  # unlike kinds are false for every operator ...
        ("NOT (x = 2)", "2", T),  # ... so this is another question
        ("x = 1", True, F),
        ("x = TRUE", 1, F),
        ("x <> TRUE", 1, F),
        ("x <> TRUE", False, T),
        ("x = 'a'", b"a", F),
        ("x <> 'a'", b"a", F),
        ("x = x", b"a", F),
        ("x = x", [1], F),
        ("x IS NULL", [1], F),
        ("x < x", "a", F),
        ("x = x", float("nan"), F),
        ("x <> x", float("nan"), T),
        ("x <> 5", float("nan"), T),
        ("x > 1", float("inf"), T),
        (f"x = {BIG + 1}", BIG + 1, T),
        (f"x = {BIG}", BIG + 1, F),
        (f"x = {BIG}.0", BIG + 1, T),  # promoted to double, as Java does
        (f"x = {BIG + 1}", float(BIG), T),
        (f"x >= {BIG + 1}", float(BIG), T),
        (f"{BIG + 1} <= x", float(BIG), T),
        (f"x BETWEEN {BIG}.0 AND {BIG}.0", BIG + 1, T),
        ("x + 1 = 3", 2, T),
        ("x + 1 = 3", 2.0, T),
        ("x + 1 = 3", True, U),
        ("x + 1 = 3", "2", U),
        ("+x = 2", "2", U),
        ("-x = 2", None, U),
        ("x / 2 = 3", 7, T),
        ("x / 2 = -3", -7, T),
        ("x / -2 = -3", 7, T),
        ("x / 2 = 3.5", 7.0, T),
        ("x / 0 = 0", 7, U),
        ("x / 0.0 = 0", 7.0, U),
        ("0 / x = 0", False, U),
        ("x + 1 > 0", 2**63 - 1, U),  # leaves 64 bits
        ("x - 1 < 0", -(2**63), U),
        ("-x > 0", -(2**63), U),
        ("x / -1 > 0", -(2**63), U),
        ("x * 2.0 > 0", 2**63 - 1, T),
        ("x * 1e300 > 0", 1e300, T),
        ("x NOT BETWEEN 1 AND 3", "2", F),
        ("x NOT BETWEEN 1 AND y", 0, T),
        ("x NOT BETWEEN 1 AND y", 2, U),
        ("x BETWEEN 1 AND y", 0, F),
        ("x IN ('1')", 1, F),
        ("x NOT IN ('1')", 1, T),
        ("x NOT IN ('1')", None, U),
        ("x LIKE '1'", 1, U),
        ("x NOT LIKE '1'", 1, U),
        ("x", "TRUE", U),
        ("NOT x", 0, U),
        ("x = ''", "", T),
        ("x IS NULL", "", F),
    ],
)
def test_jms_kinds_and_numbers(text, value, expected):
    assert result(text, {"x": value}) is expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x <> 2", "2", T),
        ("x != TRUE", 1, T),
        ("x < 'b'", "a", T),
        ("x < 2", "1", F),
        ("x > FALSE", True, F),
        ("x = 0x6162", b"ab", T),
        ("x = 0x6162", "ab", F),
        ("x < 0x6162", b"aa", T),
        (f"x = {BIG}.0", BIG + 1, F),  # exactly
        ("x / 2 = 3.5", 7, T),
        ("x % 3 = -1", -7, T),
        ("x % 3 = 1", 7.0, U),
        ("x % 0 = 1", 7, U),
        ("x IN (1, y, 'a')", 1.0, T),
        ("x IN (2, y)", 1, F),
        ("x IN ('a', x)", None, U),
        ("x + 1 IN (3)", 2, T),
        ("'ab' LIKE 'a%'", None, T),
        ("1 LIKE 'a%'", None, U),
        ("x NOT LIKE 'a_'", "a\n", F),
        ("UTC() > x", 5, U),
    ],
)
def test_amqp_sql_kinds_and_numbers(text, value, expected):
    assert result(text, {"application-properties.x": value}, "amqp-sql") is expected
