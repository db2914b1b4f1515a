"""From what the grammar finds to the tree, with the checks that a grammar cannot say: a class per dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

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
from queue_manager.filters.words import SQL_KEYWORDS, Token

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


class Builder:
    """The base of both dialects. The methods are what the grammar finds; a wrong use raises SelectorError."""

    def disjunction(self, parts: Sequence[Part]) -> Part:
        return Part(Or(tuple(part.node for part in parts)), parts[0].position)

    def conjunction(self, parts: Sequence[Part]) -> Part:
        return Part(And(tuple(part.node for part in parts)), parts[0].position)

    def negation(self, word: Token, part: Part) -> Part:
        return Part(Not(part.node), word.position)

    def compare(self, left: Part, operator: Token, right: Part) -> Part:
        sign = "<>" if operator.text == "!=" else operator.text
        if sign not in ("=", "<>"):
            self.check_ordered(left)
            self.check_ordered(right)
        return Part(Compare(cast(Comparison, sign), left.node, right.node), left.position)

    def between(self, subject: Part, negated: Token | None, low: Part, high: Part) -> Part:
        for part in (subject, low, high):
            self.check_ordered(part)
        return Part(Between(subject.node, low.node, high.node, negated is not None), subject.position)

    def in_list(self, subject: Part, negated: Token | None, word: Token, items: Sequence[Part]) -> Part:
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
            raise SelectorError("the text after ESCAPE must be one character", escape.position)
        text = _unquoted(pattern)
        try:
            like.split(text, escape_text)
        except ValueError as error:
            raise SelectorError(str(error), pattern.position) from None
        return Part(Like(subject.node, text, escape_text, negated is not None), subject.position)

    def is_null(self, subject: Part, word: Token, negated: Token | None) -> Part:
        self.check_name(subject, word)
        return Part(IsNull(subject.node, negated is not None), subject.position)

    def chain(self, first: Part, rest: Sequence[tuple[Token, Part]]) -> Part:
        pairs = tuple((operator.text, part.node) for operator, part in rest)
        return Part(Chain(first.node, pairs), first.position)

    def signed(self, sign: Token, part: Part) -> Part:
        return Part(Signed(sign.text, part.node), sign.position)

    def group(self, part: Part) -> Part:
        return Part(part.node, part.position, grouped=True)

    def operand(self, token: Token) -> Part:
        """Return a literal or a name."""
        kind = token.kind
        if kind == "STRING":
            self.check_text(token)
            return Part(Literal(_unquoted(token)), token.position)
        if kind == "EXACT":
            return Part(Literal(self.integer(token)), token.position)
        if kind == "MINIMUM":
            return Part(Literal(field_values.INTEGER_MIN), token.position)
        if kind == "APPROXIMATE":
            return Part(Literal(self.double(token)), token.position)
        return Part(Literal(kind == "TRUE"), token.position)

    def double(self, token: Token) -> float:
        value = float(token.text.rstrip("fFdD"))
        if value == float("inf"):
            raise SelectorError(f"{shown(token.text)} is beyond the range of doubles", token.position)
        return value

    def integer(self, token: Token) -> int:
        return int(token.text)

    def now(self, word: Token) -> Part:
        return Part(Name(NOW), word.position)

    def check_text(self, token: Token) -> None:
        """Refuse a text."""

    def check_ordered(self, part: Part) -> None:
        """Refuse an operand that has no order."""

    def check_subject(self, part: Part, word: Token) -> None:
        """Refuse what may not stand left of IN and LIKE."""

    def check_name(self, part: Part, word: Token) -> None:
        if part.grouped or not isinstance(part.node, Name):
            raise SelectorError(
                f"{word.text.upper()} needs a property name on its left, without parentheses", part.position
            )

    def check_item(self, part: Part) -> None:
        """Refuse what may not stand in an IN list."""

    def check_pattern(self, token: Token) -> None:
        """Refuse a LIKE pattern."""


def _unquoted(token: Token) -> str:
    text = token.text
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


class JmsBuilder(Builder):
    """Jakarta Messaging 3.1, 3.8.1."""

    def operand(self, token: Token) -> Part:
        if token.kind == "NAME":
            return Part(Name(self.name(token)), token.position)
        if token.kind == "QUALIFIED":
            return Part(Name(self.alias(token)), token.position)
        return super().operand(token)

    def name(self, token: Token) -> str:
        field = token.text
        if not (field[0].isalpha() or field[0] in "_$"):
            raise SelectorError(f"a name cannot begin with {field[0]!r}", token.position)
        if field.startswith("JMS") and field not in JMS_HEADERS and not field.startswith(("JMSX", "JMS_")):
            raise SelectorError(
                f"{shown(field)} cannot be named; of the headers only {', '.join(sorted(JMS_HEADERS))} can",
                token.position,
            )
        return field

    def alias(self, token: Token) -> str:
        field = JMS_ALIASES.get(token.text)
        if field is None:
            known = ", ".join(JMS_ALIASES)
            raise SelectorError(
                f"{shown(token.text)} is not known; of the names with a dot only {known} are", token.position
            )
        return field

    def integer(self, token: Token) -> int:
        digits = token.text.rstrip("lL")
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        value = int(digits, base)
        if value > field_values.INTEGER_MAX:
            raise SelectorError(f"an integer is at most {field_values.INTEGER_MAX} (64 bits)", token.position)
        return value

    def check_ordered(self, part: Part) -> None:
        if isinstance(part.node, Literal) and isinstance(part.node.value, str | bool):
            kind = "text" if isinstance(part.node.value, str) else "a boolean"
            raise SelectorError(f"{kind} has no order, it can only be compared with = and <>", part.position)

    def check_subject(self, part: Part, word: Token) -> None:
        self.check_name(part, word)

    def check_item(self, part: Part) -> None:
        if part.grouped or not (isinstance(part.node, Literal) and isinstance(part.node.value, str)):
            raise SelectorError("an IN list holds only texts in single quotes", part.position)


class AmqpSqlBuilder(Builder):
    """AMQP Filter Expressions 1.0, 6, as far as RabbitMQ 4.2 has it."""

    def operand(self, token: Token) -> Part:
        kind = token.kind
        if kind == "BINARY":
            return Part(Literal(bytes.fromhex(token.text[2:])), token.position)
        if kind == "DELIMITED":
            return Part(Name(APPLICATION_PREFIX + _undelimited(token.text)), token.position)
        if kind == "NAME":
            return Part(Name(self.name(token)), token.position)
        if kind == "QUALIFIED":
            return Part(Name(self.qualified(token)), token.position)
        return super().operand(token)

    def name(self, token: Token) -> str:
        if token.text.upper() in SQL_KEYWORDS:
            raise SelectorError(
                f"{shown(token.text)} is a keyword and must be written {token.text.upper()}", token.position
            )
        return APPLICATION_PREFIX + token.text

    def qualified(self, token: Token) -> str:
        section, _, key = token.text.partition(".")
        if section in ("a", "application_properties"):
            return APPLICATION_PREFIX + (_undelimited(key) if key[0] == "[" else key)
        if section in ("p", "properties"):
            if key not in _PROPERTIES:
                raise SelectorError(
                    f"there is no property {shown(key)}; there are {', '.join(_PROPERTIES)}", token.position
                )
            return _PROPERTIES[key]
        if section in ("h", "header"):
            if key != "priority":
                raise SelectorError(
                    f"of the header only priority can be named, not {shown(key)}", token.position
                )
            return HEADER_PRIORITY
        raise SelectorError(
            f"there is no section {shown(section)}; there are header (h), properties (p) and "
            "application_properties (a)",
            token.position,
        )

    def check_name(self, part: Part, word: Token) -> None:
        super().check_name(part, word)
        if part.node == Name(NOW):
            raise SelectorError(f"{word.text.upper()} needs a property name on its left", part.position)

    def check_text(self, token: Token) -> None:
        if len(token.text) == 2:
            raise SelectorError("a text holds at least one character", token.position)

    def check_pattern(self, token: Token) -> None:
        if _CONTROL.search(token.text):
            raise SelectorError("a pattern cannot hold control characters", token.position)


def _undelimited(text: str) -> str:
    return text[1:-1].replace("[[", "[").replace("]]", "]")
