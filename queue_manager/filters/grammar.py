"""Selector text to tree: an LALR parser per dialect, built from the .lark files on first use."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken

from config import limits
from queue_manager.filters.build import AmqpSqlBuilder, Builder, JmsBuilder, Part, position
from queue_manager.filters.errors import SelectorError, shown
from queue_manager.filters.tree import Expression

_BUILDERS: Final[dict[str, type[Builder]]] = {"jms": JmsBuilder, "amqp-sql": AmqpSqlBuilder}
DIALECTS: Final = tuple(_BUILDERS)

# the words a reader knows for what the grammar expects, the most telling first
_EXPECTED: Final = (
    ("NAME", "a value or a name"),
    ("STRING", "a text in quotes"),
    ("COMPARISON", "a comparison"),
    ("SIGN", "an operator"),
    ("_AND", "AND"),
    ("_OR", "OR"),
    ("IN", "IN"),
    ("LIKE", "LIKE"),
    ("_BETWEEN", "BETWEEN"),
    ("_NULL", "NULL"),
    ("_COMMA", "','"),
    ("_LPAR", "'('"),
    ("_RPAR", "')'"),
    ("$END", "the end"),
)
_OPERANDS: Final = frozenset(
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
        "_RPAR",
    }
)
_WORD: Final = re.compile(r"[\w$.]+")


@cache
def _parser(dialect: str) -> Lark:
    folder = files(__package__)
    grammar = "\n".join((folder / f"{name}.lark").read_text("utf-8") for name in ("selector", dialect))
    return Lark(grammar, parser="lalr", lexer="basic", transformer=_BUILDERS[dialect]())


class _Nesting:
    """Counts parentheses, NOT and signs that are open at a token."""

    __slots__ = ("_after_operand", "_prefixes")

    def __init__(self) -> None:
        self._prefixes = [0]  # NOT and signs that wait for their operand, per open parenthesis
        self._after_operand = False

    def take(self, kind: str) -> int:
        """Return the nesting with this token."""
        prefixes = self._prefixes
        if kind == "_LPAR":
            prefixes.append(0)
        elif kind in ("NOT", "SIGN") and not self._after_operand:
            prefixes[-1] += 1
        else:
            if kind == "_RPAR" and len(prefixes) > 1:
                prefixes.pop()
            prefixes[-1] = 0
        self._after_operand = kind in _OPERANDS
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
    parser = _parser(dialect).parse_interactive(text)
    nesting = _Nesting()
    try:
        for count, token in enumerate(parser.iter_parse(), 1):
            if count > limits.SELECTOR_TOKENS_MAX:
                raise SelectorError(
                    f"more than {limits.SELECTOR_TOKENS_MAX} words, numbers and signs", position(token)
                )
            if nesting.take(token.type) > limits.SELECTOR_NESTING_MAX:
                raise SelectorError(
                    f"parentheses, NOT and signs nested more than {limits.SELECTOR_NESTING_MAX} deep",
                    position(token),
                )
        part: Part = parser.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as error:
        raise _bad_character(text, error.pos_in_stream or 0, dialect) from None
    except UnexpectedToken as error:
        expected = parser.accepts()  # type: ignore[no-untyped-call]
        if dialect != "jms":
            expected.discard("_BETWEEN")  # stands in the rules that both dialects share
        raise _bad_token(text, error.token, expected) from None
    return part.node


def _bad_character(text: str, index: int, dialect: str) -> SelectorError:
    character = text[index]
    word = found.group() if (found := _WORD.match(text, index)) else character
    if character == "'" or (character == '"' and dialect != "jms"):
        reason = "the text that begins here has no closing quote"
    elif character == '"':
        reason = "texts stand in single quotes, not double ones"
    elif character.isdecimal() or (character == "." and len(word) > 1 and word[1].isdecimal()):
        reason = f"{shown(word)} is not a number"
    elif word != character and "." in word:
        reason = f"{shown(word)} is not a name: a dot cannot be part of it"
    elif character == "!":
        reason = "'!' is not known; unequal is written <>"
    elif character == "[":
        reason = "'[' does not begin a name" + ("" if dialect == "jms" else " that a ']' ends")
    else:
        reason = f"{character!r} is not known here"
    return SelectorError(reason, index + 1)


def _bad_token(text: str, token: Token, expected: set[str]) -> SelectorError:
    words = [word for kind, word in _EXPECTED if kind in expected]
    if "NAME" in expected:
        words = words[:1]
    wanted = " or ".join(words[:4])
    at_end = token.type == "$END"
    found = "the end" if at_end else shown(token) if token.type == "STRING" else f"'{shown(token)}'"
    reason = f"found {found} where {wanted or 'something else'} should be"
    return SelectorError(reason, len(text) + 1 if at_end else position(token))
