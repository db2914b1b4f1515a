"""From the grammar's rules to the tree, with the checks that a grammar cannot say: a class per dialect."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, cast

from lark import Token, Transformer, v_args

from queue_manager.filters import field_values, like
from queue_manager.filters.errors import SelectorError, shown
from queue_manager.filters.field_access import (
    APPLICATION_PREFIX,
    HEADER_PRIORITY,
    JMS_HEADERS,
    NOW,
    PROPERTIES_PREFIX,
    PROPERTY_FIELDS,
)
from queue_manager.filters.tree import (
    And,
    Between,
    Chain,
    Compare,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    Signed,
)

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"})

# what AMQP JMS clients may write for a header (AMQP JMS mapping); those that mean the same and no others
JMS_ALIASES: Final = {
    "amqp.message_id": "JMSMessageID",
    "amqp.correlation_id": "JMSCorrelationID",
    "amqp.subject": "JMSType",
    "amqp.priority": "JMSPriority",
    "amqp.creation_time": "JMSTimestamp",
    "amqp.user_id": "JMSXUserID",
    "amqp.group_id": "JMSXGroupID",
    "amqp.group_sequence": "JMSXGroupSeq",
}

_PROPERTIES: Final = {field.replace("-", "_"): PROPERTIES_PREFIX + field for field in PROPERTY_FIELDS}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Part(NamedTuple):
    """A piece of the tree with what only building needs: its column, and whether it is in parentheses."""

    node: Expression
    position: int
    grouped: bool = False


def position(token: Token) -> int:
    """Return the column of a token, from 1."""
    return (token.start_pos or 0) + 1


@v_args(inline=True)
class Builder(Transformer[Token, Part]):
    """The base of both dialects. The methods are the grammar's rules; a wrong use raises SelectorError."""

    def disjunction(self, *parts: Part) -> Part:
        return Part(Or(tuple(part.node for part in parts)), parts[0].position)

    def conjunction(self, *parts: Part) -> Part:
        return Part(And(tuple(part.node for part in parts)), parts[0].position)

    def negation(self, word: Token, part: Part) -> Part:
        return Part(Not(part.node), position(word))

    def compare(self, left: Part, operator: Token, right: Part) -> Part:
        sign = "<>" if operator == "!=" else str(operator)
        if sign not in ("=", "<>"):
            self.check_ordered(left)
            self.check_ordered(right)
        return Part(Compare(cast(Comparison, sign), left.node, right.node), left.position)

    def between(self, subject: Part, negated: Token | None, low: Part, high: Part) -> Part:
        for part in (subject, low, high):
            self.check_ordered(part)
        return Part(Between(subject.node, low.node, high.node, negated is not None), subject.position)

    def in_list(self, subject: Part, negated: Token | None, word: Token, *items: Part) -> Part:
        self.check_subject(subject, word)
        for item in items:
            self.check_item(item)
        return Part(
            In(subject.node, tuple(item.node for item in items), negated is not None), subject.position
        )

    def like(
        self, subject: Part, negated: Token | None, word: Token, pattern: Token, escape: Token | None
    ) -> Part:
        self.check_subject(subject, word)
        self.check_pattern(pattern)
        escape_text = None if escape is None else _unquoted(escape)
        if escape is not None and len(escape_text or "") != 1:
            raise SelectorError("the text after ESCAPE must be one character", position(escape))
        text = _unquoted(pattern)
        try:
            like.split(text, escape_text)
        except ValueError as error:
            raise SelectorError(str(error), position(pattern)) from None
        return Part(Like(subject.node, text, escape_text, negated is not None), subject.position)

    def is_null(self, subject: Part, word: Token, negated: Token | None) -> Part:
        self.check_name(subject, word)
        return Part(IsNull(subject.node, negated is not None), subject.position)

    def sum(self, first: Part, *rest: Part | Token) -> Part:
        operators = cast("tuple[Token, ...]", rest[::2])
        operands = cast("tuple[Part, ...]", rest[1::2])
        pairs = tuple((str(operator), part.node) for operator, part in zip(operators, operands, strict=True))
        return Part(Chain(first.node, pairs), first.position)

    product = sum

    def signed(self, sign: Token, part: Part) -> Part:
        return Part(Signed(str(sign), part.node), position(sign))

    def group(self, part: Part) -> Part:
        return Part(part.node, part.position, grouped=True)

    def string(self, token: Token) -> Part:
        self.check_text(token)
        return Part(Literal(_unquoted(token)), position(token))

    def approximate(self, token: Token) -> Part:
        value = float(token.rstrip("fFdD"))
        if value == float("inf"):
            raise SelectorError(f"{shown(token)} is beyond the range of doubles", position(token))
        return Part(Literal(value), position(token))

    def exact(self, token: Token) -> Part:
        value = self.integer(token)
        self.check_integer(value, token)
        return Part(Literal(value), position(token))

    def minimum(self, token: Token) -> Part:
        return Part(Literal(field_values.INTEGER_MIN), position(token))

    def true(self, token: Token) -> Part:
        return Part(Literal(True), position(token))

    def false(self, token: Token) -> Part:
        return Part(Literal(False), position(token))

    def integer(self, digits: str) -> int:
        return int(digits)

    def check_integer(self, value: int, token: Token) -> None:
        """Refuse an integer that is too large."""

    def check_text(self, token: Token) -> None:
        """Refuse a text."""

    def check_ordered(self, part: Part) -> None:
        """Refuse an operand that has no order."""

    def check_subject(self, part: Part, word: Token) -> None:
        """Refuse what may not stand left of IN and LIKE."""

    def check_name(self, part: Part, word: Token) -> None:
        if part.grouped or not isinstance(part.node, Name):
            raise SelectorError(
                f"{word.upper()} needs a property name on its left, without parentheses", part.position
            )

    def check_item(self, part: Part) -> None:
        """Refuse what may not stand in an IN list."""

    def check_pattern(self, token: Token) -> None:
        """Refuse a LIKE pattern."""


def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


@v_args(inline=True)
class JmsBuilder(Builder):
    """Jakarta Messaging 3.1, 3.8.1."""

    def name(self, token: Token) -> Part:
        field = str(token)
        if not (field[0].isalpha() or field[0] in "_$"):
            raise SelectorError(f"a name cannot begin with {field[0]!r}", position(token))
        if field.startswith("JMS") and field not in JMS_HEADERS and not field.startswith(("JMSX", "JMS_")):
            raise SelectorError(
                f"{shown(field)} cannot be named; of the headers only {', '.join(sorted(JMS_HEADERS))} can",
                position(token),
            )
        return Part(Name(field), position(token))

    def qualified(self, token: Token) -> Part:
        field = JMS_ALIASES.get(str(token))
        if field is None:
            raise SelectorError(
                f"{shown(token)} is not known; of the names with a dot only {', '.join(JMS_ALIASES)} are",
                position(token),
            )
        return Part(Name(field), position(token))

    def integer(self, digits: str) -> int:
        digits = digits.rstrip("lL")
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        return int(digits, 8 if digits[0] == "0" else 10)

    def check_integer(self, value: int, token: Token) -> None:
        if value > field_values.INTEGER_MAX:
            raise SelectorError(
                f"an integer is at most {field_values.INTEGER_MAX} (64 bits)", position(token)
            )

    def check_ordered(self, part: Part) -> None:
        if isinstance(part.node, Literal) and isinstance(part.node.value, str | bool):
            kind = "text" if isinstance(part.node.value, str) else "a boolean"
            raise SelectorError(f"{kind} has no order, it can only be compared with = and <>", part.position)

    def check_subject(self, part: Part, word: Token) -> None:
        self.check_name(part, word)

    def check_item(self, part: Part) -> None:
        if part.grouped or not (isinstance(part.node, Literal) and isinstance(part.node.value, str)):
            raise SelectorError("an IN list holds only texts in single quotes", part.position)


@v_args(inline=True)
class AmqpSqlBuilder(Builder):
    """AMQP Filter Expressions 1.0, 6, as far as RabbitMQ 4.2 has it."""

    def name(self, token: Token) -> Part:
        if token.upper() in KEYWORDS:
            raise SelectorError(
                f"{shown(token)} is a keyword and must be written {token.upper()}", position(token)
            )
        return Part(Name(APPLICATION_PREFIX + str(token)), position(token))

    def delimited(self, token: Token) -> Part:
        return Part(Name(APPLICATION_PREFIX + _undelimited(token)), position(token))

    def qualified(self, token: Token) -> Part:
        section, _, key = token.partition(".")
        if section in ("a", "application_properties"):
            return Part(
                Name(APPLICATION_PREFIX + (_undelimited(key) if key[0] == "[" else key)), position(token)
            )
        if section in ("p", "properties"):
            if key not in _PROPERTIES:
                raise SelectorError(
                    f"there is no property {shown(key)}; there are {', '.join(_PROPERTIES)}", position(token)
                )
            return Part(Name(_PROPERTIES[key]), position(token))
        if section in ("h", "header"):
            if key != "priority":
                raise SelectorError(
                    f"of the header only priority can be named, not {shown(key)}", position(token)
                )
            return Part(Name(HEADER_PRIORITY), position(token))
        raise SelectorError(
            f"there is no section {shown(section)}; there are header (h), properties (p) and "
            "application_properties (a)",
            position(token),
        )

    def now(self, token: Token) -> Part:
        return Part(Name(NOW), position(token))

    def binary(self, token: Token) -> Part:
        return Part(Literal(bytes.fromhex(token[2:])), position(token))

    def check_name(self, part: Part, word: Token) -> None:
        super().check_name(part, word)
        if part.node == Name(NOW):
            raise SelectorError(f"{word.upper()} needs a property name on its left", part.position)

    def check_text(self, token: Token) -> None:
        if len(token) == 2:
            raise SelectorError("a text holds at least one character", position(token))

    def check_pattern(self, token: Token) -> None:
        if _CONTROL.search(token):
            raise SelectorError("a pattern cannot hold control characters", position(token))


def _undelimited(text: str) -> str:
    return text[1:-1].replace("[[", "[").replace("]]", "]")
