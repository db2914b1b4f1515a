"""Selector text to tree, by recursive descent: one method for a rule or two of the grammar.

From the loosest binding to the tightest (Jakarta Messaging 3.1, 3.8.1.2; AMQP Filter Expressions 1.0, 6):

    disjunction = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation = { NOT } condition
    condition = sum [ COMPARISON sum | [NOT] BETWEEN sum AND sum | [NOT] IN LPAR sum { COMMA sum } RPAR
                    | [NOT] LIKE STRING [ ESCAPE STRING ] | IS [NOT] NULL ]
    sum = product { SIGN product }
    product = signed { FACTOR signed }
    signed = { SIGN } operand
    operand = literal | name | UTC LPAR RPAR | LPAR disjunction RPAR
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from config import limits
from queue_manager.filters.build import AmqpSqlBuilder, Builder, JmsBuilder, Part
from queue_manager.filters.errors import SelectorError, shown
from queue_manager.filters.tree import Expression
from queue_manager.filters.words import END, Token, Words, amqp_sql_words, jms_words

_DIALECTS: Final[dict[str, tuple[Callable[[], Words], Callable[[], Builder]]]] = {
    "jms": (jms_words, JmsBuilder),
    "amqp-sql": (amqp_sql_words, AmqpSqlBuilder),
}
DIALECTS: Final = tuple(_DIALECTS)

# the words a reader knows for what the grammar expects, the most telling first
_EXPECTED: Final = (
    ("NAME", "a value or a name"),
    ("STRING", "a text in quotes"),
    ("COMPARISON", "a comparison"),
    ("SIGN", "an operator"),
    ("AND", "AND"),
    ("OR", "OR"),
    ("IN", "IN"),
    ("LIKE", "LIKE"),
    ("BETWEEN", "BETWEEN"),
    ("NULL", "NULL"),
    ("COMMA", "','"),
    ("LPAR", "'('"),
    ("RPAR", "')'"),
    (END, "the end"),
)
_FOLLOWING: Final = frozenset({"RPAR", "COMMA", END})  # they end whatever they stand behind
_LITERALS_AND_NAMES: Final = frozenset(
    {
        "STRING",
        "EXACT",
        "MINIMUM",
        "APPROXIMATE",
        "BINARY",
        "TRUE",
        "FALSE",
        "NAME",
        "QUALIFIED",
        "DELIMITED",
    }
)


@cache
def _dialect(name: str) -> tuple[Words, Builder]:
    make_words, make_builder = _DIALECTS[name]
    return make_words(), make_builder()


class _Nesting:
    """Counts parentheses, NOT and signs that are open at a token."""

    __slots__ = ("_after_operand", "_prefixes")

    def __init__(self) -> None:
        self._prefixes = [0]  # NOT and signs that wait for their operand, per open parenthesis
        self._after_operand = False

    def take(self, kind: str) -> int:
        """Return the nesting with this token."""
        prefixes = self._prefixes
        if kind == "LPAR":
            prefixes.append(0)
        elif kind in ("NOT", "SIGN") and not self._after_operand:
            prefixes[-1] += 1
        else:
            if kind == "RPAR" and len(prefixes) > 1:
                prefixes.pop()
            prefixes[-1] = 0
        self._after_operand = kind in _LITERALS_AND_NAMES or kind == "RPAR"
        return len(prefixes) - 1 + sum(prefixes)


def parse(text: str, dialect: str) -> Expression:
    """Return the tree of a selector that is not blank. Raises SelectorError, and nothing else whatever the
    text.
    """
    if len(text) > limits.SELECTOR_TEXT_CHARS_MAX:
        raise SelectorError(
            f"the text has {len(text)} characters, at most {limits.SELECTOR_TEXT_CHARS_MAX} are allowed",
            limits.SELECTOR_TEXT_CHARS_MAX + 1,
        )
    return _Parser(text, *_dialect(dialect)).parse()


class _Parser:
    """Reads one selector. `_token` is the next word, `_tried` the kinds that it was asked for being."""

    def __init__(self, text: str, words: Words, builder: Builder) -> None:
        self._tokens = words.of(text)
        self._keywords = words.keywords
        self._builder = builder
        self._nesting = _Nesting()
        self._count = 0
        self._tried: set[str] = set()
        self._token = self._next()

    def parse(self) -> Expression:
        """Return the tree of the whole text."""
        part = self._disjunction()
        if not self._is(END):
            raise self._unexpected(END)
        return part.node

    # tokens

    def _next(self) -> Token:
        token = next(self._tokens)
        if token.kind == END:
            return token
        self._count += 1
        if self._count > limits.SELECTOR_TOKENS_MAX:
            raise SelectorError(
                f"more than {limits.SELECTOR_TOKENS_MAX} words, numbers and signs", token.position
            )
        if self._nesting.take(token.kind) > limits.SELECTOR_NESTING_MAX:
            raise SelectorError(
                f"parentheses, NOT and signs nested more than {limits.SELECTOR_NESTING_MAX} deep",
                token.position,
            )
        return token

    def _is(self, kind: str) -> bool:
        self._tried.add(kind)
        return self._token.kind == kind

    def _take(self) -> Token:
        """Return the next word, and go on behind it."""
        token = self._token
        self._tried.clear()
        self._token = self._next()
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._take() if self._is(kind) else None

    def _expect(self, kind: str, *others: str) -> Token:
        """Take a word of that kind; `others` could have stood there, too."""
        if not self._is(kind):
            raise self._unexpected(kind, *others)
        return self._take()

    def _unexpected(self, *wanted: str) -> SelectorError:
        """Refuse the next word, which is not what is wanted."""
        token = self._token
        expected = set(wanted) if token.kind in _FOLLOWING else self._tried.union(wanted)
        words = [
            word
            for kind, word in _EXPECTED
            if kind in expected and (kind != "BETWEEN" or kind in self._keywords)
        ]
        if "NAME" in expected:
            words = words[:1]
        found = shown(token.text) if token.kind == "STRING" else f"'{shown(token.text)}'"
        if token.kind == END:
            found = "the end"
        return SelectorError(f"found {found} where {' or '.join(words[:4])} should be", token.position)

    # rules

    def _disjunction(self) -> Part:
        parts = [self._conjunction()]
        while self._accept("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else self._builder.disjunction(parts)

    def _conjunction(self) -> Part:
        parts = [self._negation()]
        while self._accept("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else self._builder.conjunction(parts)

    def _negation(self) -> Part:
        words = []
        while word := self._accept("NOT"):
            words.append(word)
        part = self._condition()
        for word in reversed(words):
            part = self._builder.negation(word, part)
        return part

    def _condition(self) -> Part:
        left = self._sum()
        if operator := self._accept("COMPARISON"):
            return self._builder.compare(left, operator, self._sum())
        if word := self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return self._builder.is_null(left, word, negated)
        negated = self._accept("NOT")
        if self._accept("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            return self._builder.between(left, negated, low, self._sum())
        if word := self._accept("IN"):
            return self._builder.in_list(left, negated, word, self._items())
        if word := self._accept("LIKE"):
            pattern = self._expect("STRING")
            escape = self._expect("STRING") if self._accept("ESCAPE") else None
            return self._builder.like(left, negated, word, pattern, escape)
        if negated:
            raise self._unexpected("BETWEEN", "IN", "LIKE")
        return left

    def _items(self) -> list[Part]:
        self._expect("LPAR")
        items = [self._sum()]
        while self._accept("COMMA"):
            items.append(self._sum())
        self._expect("RPAR", "COMMA")
        return items

    def _sum(self) -> Part:
        first = self._product()
        rest = []
        while operator := self._accept("SIGN"):
            rest.append((operator, self._product()))
        return self._builder.chain(first, rest) if rest else first

    def _product(self) -> Part:
        first = self._signed()
        rest = []
        while operator := self._accept("FACTOR"):
            rest.append((operator, self._signed()))
        return self._builder.chain(first, rest) if rest else first

    def _signed(self) -> Part:
        signs = []
        while sign := self._accept("SIGN"):
            signs.append(sign)
        part = self._operand()
        for sign in reversed(signs):
            part = self._builder.signed(sign, part)
        return part

    def _operand(self) -> Part:
        if self._token.kind in _LITERALS_AND_NAMES:
            return self._builder.operand(self._take())
        if word := self._accept("UTC"):
            self._expect("LPAR")
            self._expect("RPAR")
            return self._builder.now(word)
        if self._accept("LPAR"):
            part = self._disjunction()
            self._expect("RPAR")
            return self._builder.group(part)
        raise self._unexpected("NAME")
