"""Random selector trees that the grammar of a dialect allows, and how to write them as text."""

import string
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from queue_manager.filters import tree
from queue_manager.filters.field_access import APPLICATION_PREFIX, HEADER_PRIORITY, NOW

# small pools, so that names, kinds and values meet often
NAMES = ["a", "b", "flag", "text", "$odd_1", "größe", "JMSPriority", "JMSXGroupID", "JMS_vendor"]
SQL_NAMES = [
    *(APPLICATION_PREFIX + key for key in ("a", "b", "flag", "text", "JMSPriority", "x-odd [name]", "p.to")),
    HEADER_PRIORITY,
    "properties.message-id",
    NOW,
]
TEXTS = st.one_of(st.sampled_from(["", "a", "ab", "a%", "O'Reilly", "ß\n"]), st.text(max_size=5))
SIMPLE_TEXTS = st.text(string.ascii_letters + string.digits + " '\"%_\\!ß", min_size=1, max_size=5)
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
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**64 - 1]),
    st.sampled_from([0.0, -1.0, 0.5, 1.0, 2.0, 2.0**53, float("inf"), float("nan")]),
    st.sampled_from(["", "a", "ab", "aßb", "a\nb", "TRUE", "1"]),
    st.text("abß\n", max_size=6),
    st.binary(max_size=2),
    st.sampled_from([[], ["a"], {"a": 1}, b"a"]),
)


CONSTANTS = st.one_of(INTEGERS, FLOATS, TEXTS, st.booleans()).map(tree.Literal)
SQL_CONSTANTS = st.one_of(
    INTEGERS, FLOATS, SIMPLE_TEXTS, st.booleans(), st.binary(min_size=1, max_size=3)
).map(tree.Literal)
ESCAPED_PATTERNS = st.lists(
    st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "\\a"]), max_size=5
).map("".join)
ORDERINGS = st.sampled_from(["<", "<=", ">", ">="])


class Draws:
    """Draws the pieces of one tree."""

    def __init__(self, draw: Callable[[st.SearchStrategy], Any], dialect: str) -> None:
        self.draw = draw
        self.is_jms = dialect == "jms"

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def name(self) -> tree.Name:
        return tree.Name(self.draw(st.sampled_from(NAMES if self.is_jms else SQL_NAMES)))

    def constant(self) -> tree.Literal:
        return self.draw(CONSTANTS if self.is_jms else SQL_CONSTANTS)

    def text(self) -> tree.Literal:
        return tree.Literal(self.draw(TEXTS if self.is_jms else SIMPLE_TEXTS))

    def like(self, subject: tree.Expression) -> tree.Like:
        if self.flag():
            return tree.Like(subject, self.draw(PATTERNS), None, self.flag())
        return tree.Like(subject, self.draw(ESCAPED_PATTERNS), "\\", self.flag())

    def several(self, depth: int) -> tuple[tree.Expression, ...]:
        return tuple(self.any(depth) for _ in range(self.draw(st.integers(2, 3))))

    def ordered(self, depth: int) -> tree.Expression:
        node = self.any(depth)
        return node if not self.is_jms or has_order(node) else tree.Literal(2)

    def chain(self, depth: int) -> tree.Chain:
        operators = self.draw(st.sampled_from(["+-", "*/" if self.is_jms else "*/%"]))
        rest = [
            (self.draw(st.sampled_from(operators)), self.any(depth))
            for _ in range(self.draw(st.integers(1, 2)))
        ]
        return tree.Chain(self.any(depth), tuple(rest))

    def any(self, depth: int) -> tree.Expression:
        """A tree of at most so many levels below its root."""
        choice = self.draw(st.integers(-4 * (depth < 3), 11)) if depth else -1
        match choice:
            case 0:
                return tree.And(self.several(depth - 1))
            case 1:
                return tree.Or(self.several(depth - 1))
            case 2:
                return tree.Not(self.any(depth - 1))
            case 3 | 4:
                operator = self.draw(st.sampled_from(["=", "<>"]))
                return tree.Compare(operator, self.any(depth - 1), self.any(depth - 1))
            case 5 | 6:
                return tree.Compare(self.draw(ORDERINGS), self.ordered(depth - 1), self.ordered(depth - 1))
            case 7:
                count = range(self.draw(st.integers(1, 3)))
                if self.is_jms:
                    return tree.In(self.name(), tuple(self.text() for _ in count), self.flag())
                return tree.In(self.any(depth - 1), tuple(self.any(depth - 1) for _ in count), self.flag())
            case 8:
                return self.like(self.name() if self.is_jms else self.any(depth - 1))
            case 9:
                name = self.name()
                return tree.IsNull(name if name.field != NOW else tree.Name(HEADER_PRIORITY), self.flag())
            case 10:
                return self.chain(depth - 1)
            case 11:
                if self.is_jms and self.flag():
                    return tree.Between(
                        self.ordered(depth - 1), self.ordered(depth - 1), self.ordered(depth - 1), self.flag()
                    )
                return tree.Signed(self.draw(st.sampled_from("+-")), self.any(depth - 1))
        return self.name() if self.flag() else self.constant()


@st.composite
def expressions(draw: Callable[[st.SearchStrategy], Any], dialect: str) -> tree.Expression:
    """Trees of any shape."""
    return Draws(draw, dialect).any(3)


@st.composite
def cases(draw: Callable[[st.SearchStrategy], Any]) -> tuple[str, tree.Expression, dict[str, Any]]:
    """A dialect, a tree, and a message that has some of its fields."""
    dialect = draw(st.sampled_from(["jms", "amqp-sql"]))
    expression = draw(expressions(dialect))
    names = sorted(tree.field_names(expression))
    values = [draw(FIELD_VALUES) for _ in names]
    return dialect, expression, dict(zip(names, values, strict=True))


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
