"""Random selector trees that the grammar of a dialect allows, and how to write them as text."""

import string

from hypothesis import strategies as st

from queue_manager.filters import tree
from queue_manager.filters.fields import APPLICATION_PREFIX, HEADER_PRIORITY, NOW

# small pools, so that names, kinds and values meet often
NAMES = ["a", "b", "flag", "text", "$odd_1", "größe", "JMSPriority", "JMSXGroupID", "JMS_vendor"]
SQL_NAMES = [
    *(APPLICATION_PREFIX + key for key in ("a", "b", "flag", "text", "JMSPriority", "x-odd [name]", "p.to")),
    HEADER_PRIORITY,
    "properties.message-id",
    NOW,
]
TEXTS = st.one_of(st.sampled_from(["", "a", "ab", "a%", "O'Reilly", "ß\n"]), st.text(max_size=5))
SIMPLE_TEXTS = st.text(string.ascii_letters + string.digits + " '\"%_\\!ß", max_size=5)
INTEGERS = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1), st.sampled_from([2**53, 2**53 + 1]))
FLOATS = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.0**53, 1e300]),
    st.floats(min_value=0, allow_infinity=False, allow_nan=False),
)
PATTERNS = st.text("ab%_\\ß", max_size=6)

FIELD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**64 - 1, 10**400]),
    st.sampled_from([0.0, -1.0, 0.5, 1.0, 2.0, 2.0**53, float("inf"), float("nan")]),
    st.sampled_from(["", "a", "ab", "aßb", "a\nb", "TRUE", "1"]),
    st.text("abß\n", max_size=6),
    st.binary(max_size=2),
    st.sampled_from([[], ["a"], {"a": 1}, b"a"]),
)


def fields(dialect: str) -> st.SearchStrategy:
    return st.dictionaries(st.sampled_from(NAMES if dialect == "jms" else SQL_NAMES), FIELD_VALUES)


def likes(subjects: st.SearchStrategy) -> st.SearchStrategy:
    plain = st.builds(tree.Like, subjects, PATTERNS, st.none(), st.booleans())
    escaped = st.builds(
        lambda subject, pieces, negated: tree.Like(subject, "".join(pieces), "\\", negated),
        subjects,
        st.lists(st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "\\a"]), max_size=5),
        st.booleans(),
    )
    return st.one_of(plain, escaped)


def _chains(operators: list[str], operands: st.SearchStrategy) -> st.SearchStrategy:
    pair = st.tuples(st.sampled_from(operators), operands)
    return st.builds(tree.Chain, operands, st.lists(pair, min_size=1, max_size=3).map(tuple))


def expressions(dialect: str) -> st.SearchStrategy:
    """Trees of any shape, not too large for the limits of selectors."""
    is_jms = dialect == "jms"
    names = st.sampled_from(NAMES if is_jms else SQL_NAMES).map(tree.Name)
    nullable = names.filter(lambda name: name.field != NOW)
    texts = (TEXTS if is_jms else SIMPLE_TEXTS).map(tree.Literal)
    constants = [INTEGERS.map(tree.Literal), FLOATS.map(tree.Literal), texts, st.booleans().map(tree.Literal)]
    if not is_jms:
        constants.append(st.binary(min_size=1, max_size=3).map(tree.Literal))
    leaves = st.one_of(names, *constants)

    def extended(inner: st.SearchStrategy) -> st.SearchStrategy:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        ordered = inner.filter(has_order) if is_jms else inner
        subjects = names if is_jms else inner
        items = st.lists(texts if is_jms else inner, min_size=1, max_size=3).map(tuple)
        choices = [
            st.builds(tree.And, several),
            st.builds(tree.Or, several),
            st.builds(tree.Not, inner),
            st.builds(tree.Compare, st.sampled_from(["=", "<>"]), inner, inner),
            st.builds(tree.Compare, st.sampled_from(["<", "<=", ">", ">="]), ordered, ordered),
            st.builds(tree.In, subjects, items, st.booleans()),
            likes(subjects),
            st.builds(tree.IsNull, nullable, st.booleans()),
            _chains(["+", "-"], inner),
            _chains(["*", "/"] if is_jms else ["*", "/", "%"], inner),
            st.builds(tree.Signed, st.sampled_from(["+", "-"]), inner),
        ]
        if is_jms:
            choices.append(st.builds(tree.Between, ordered, ordered, ordered, st.booleans()))
        return st.one_of(choices)

    return st.recursive(leaves, extended, max_leaves=10)


def has_order(node: tree.Expression) -> bool:
    return not (isinstance(node, tree.Literal) and isinstance(node.value, str | bool))


def written(node: tree.Expression, dialect: str) -> str:
    """The text of a tree, with parentheses where they are needed and in some places where they are not."""
    match node:
        case tree.Literal(value):
            return _constant(value)
        case tree.Name(field):
            return _name(field, dialect)
        case tree.Or(operands):
            return " OR ".join(_operand(operand, dialect) for operand in operands)
        case tree.And(operands):
            return " AND ".join(_operand(operand, dialect) for operand in operands)
        case tree.Not(operand):
            return f"NOT {_operand(operand, dialect)}"
        case tree.Compare(operator, left, right):
            return f"{_operand(left, dialect)} {operator} {_operand(right, dialect)}"
        case tree.Between(subject, low, high, negated):
            bounds = f"{_operand(low, dialect)} AND {_operand(high, dialect)}"
            return f"{_operand(subject, dialect)} {_not(negated)}BETWEEN {bounds}"
        case tree.In(subject, items, negated):
            listed = ", ".join(_operand(item, dialect) for item in items)
            return f"{_operand(subject, dialect)} {_not(negated)}IN ({listed})"
        case tree.Like(subject, pattern, escape, negated):
            tail = "" if escape is None else f" ESCAPE {_quoted(escape)}"
            return f"{_operand(subject, dialect)} {_not(negated)}LIKE {_quoted(pattern)}{tail}"
        case tree.IsNull(subject, negated):
            return f"{_operand(subject, dialect)} IS {_not(negated)}NULL"
        case tree.Signed(sign, operand):
            return f"{sign} {_operand(operand, dialect)}"
        case tree.Chain(first, rest):
            pieces = [f" {operator} {_operand(operand, dialect)}" for operator, operand in rest]
            return _operand(first, dialect) + "".join(pieces)
    raise AssertionError(node)


def _operand(node: tree.Expression, dialect: str) -> str:
    text = written(node, dialect)
    return text if isinstance(node, tree.Literal | tree.Name) else f"({text})"


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _constant(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return _quoted(value)
        case bytes():
            return f"0x{value.hex().upper()}"
        case float():
            mantissa, _, exponent = repr(value).partition("e")
            mantissa += "" if "." in mantissa else ".0"
            return mantissa + (f"E{int(exponent)}" if exponent else "")
    return str(value)


def _name(field: str, dialect: str) -> str:
    if dialect == "jms" or field == NOW:
        return field
    if field == HEADER_PRIORITY:
        return "h.priority"
    if field.startswith(APPLICATION_PREFIX):
        key = field[len(APPLICATION_PREFIX) :]
        if key.isidentifier():
            return key
        return "[" + key.replace("[", "[[").replace("]", "]]") + "]"
    return field.replace("-", "_")
