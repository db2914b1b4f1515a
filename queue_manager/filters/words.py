"""The words of selectors: what they look like in each dialect, and a text taken apart into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from queue_manager.filters.errors import SelectorError, shown

END: Final = "END"
SQL_KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"})
_JMS_KEYWORDS: Final = SQL_KEYWORDS | {"BETWEEN"}
_SPACE: Final = r"[ \t\f\r\n]"
_TEXT: Final = r"'[^']*(?:''[^']*)*'(?!')"
_BRACKETS: Final = r"\[(?:[^\[\]\x00-\x1f\x7f]|\[\[|\]\])+\](?!\])"
_SQL_NAME: Final = r"[A-Za-z][A-Za-z0-9_]*"
_EXPONENT: Final = "[eE][+-]?[0-9]+"
_ENDS: Final = r"(?![\w$.])"
_PUNCTUATION: Final = {"(": "LPAR", ")": "RPAR", ",": "COMMA"}
_WORD: Final = re.compile(r"[\w$.]+")

# kinds and patterns, the first that fits is taken; KEYWORD is a word that no name can be, as a dot follows
_JMS: Final = {
    # the one integer that is in range only with its sign
    "MINIMUM": rf"-{_SPACE}*9223372036854775808[lL]?{_ENDS}",
    # header names as AMQP JMS clients may rewrite them
    "QUALIFIED": rf"amqp[.][A-Za-z_]+{_ENDS}",
    "NAME": rf"(?:[^\W0-9]|[$])[\w$]*{_ENDS}",
    "KEYWORD": r"[A-Za-z]+(?![\w$])",
    "STRING": _TEXT,
    "APPROXIMATE": rf"(?:(?:[0-9]+[.][0-9]*|[.][0-9]+)(?:{_EXPONENT})?|[0-9]+{_EXPONENT})[fFdD]?{_ENDS}",
    "EXACT": rf"(?:0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9][0-9]*)[lL]?{_ENDS}",
    "COMPARISON": "<>|<=|>=|=|<|>",
    "SIGN": "[+-]",
    "FACTOR": "[*/]",
    "PUNCTUATION": "[(),]",
    "SPACE": f"{_SPACE}+",
}
_AMQP_SQL: Final = {
    "QUALIFIED": rf"{_SQL_NAME}[.](?:{_SQL_NAME}{_ENDS}|{_BRACKETS})",
    "UTC": rf"UTC(?={_SPACE}*[(])",
    "NAME": f"{_SQL_NAME}{_ENDS}",
    "KEYWORD": r"[A-Za-z]+(?![\w$])",
    "DELIMITED": _BRACKETS,
    "STRING": rf'{_TEXT}|"[^"]*(?:""[^"]*)*"(?!")',
    "APPROXIMATE": rf"[0-9]+[.][0-9]+(?:E[+-]?[0-9]+)?{_ENDS}",
    "BINARY": rf"0x(?:[0-9A-F]{{2}})+{_ENDS}",
    "EXACT": f"[0-9]+{_ENDS}",
    "COMPARISON": "<>|!=|<=|>=|=|<|>",
    "SIGN": "[+-]",
    "FACTOR": "[*/%]",
    "PUNCTUATION": "[(),]",
    "SPACE": f"{_SPACE}+",
}


class Token(NamedTuple):
    """A word, of a kind that is its own for a keyword. `position` is its column, from 1."""

    kind: str
    text: str
    position: int


class Words:
    """What the words of a dialect look like; `keywords` in capitals, which JMS alone does not insist on."""

    def __init__(self, patterns: dict[str, str], keywords: frozenset[str], *, is_jms: bool) -> None:
        self.keywords = keywords
        self._is_jms = is_jms
        self._pattern = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in patterns.items()))

    def of(self, text: str) -> Iterator[Token]:
        """Return the words of a text, and an END behind them; raises SelectorError for what is none, when
        that has its turn.
        """
        match = self._pattern.match
        at = 0
        while at < len(text):
            found = match(text, at)
            kind = None if found is None else self._kind(found)
            if found is None or kind is None:
                raise self._unknown(text, at)
            if kind != "SPACE":
                yield Token(kind, found.group(), at + 1)
            at = found.end()
        yield Token(END, "", len(text) + 1)

    def _kind(self, found: re.Match[str]) -> str | None:
        kind = found.lastgroup
        word = found.group()
        if kind in ("NAME", "KEYWORD"):
            capitals = word.upper() if self._is_jms and word.isascii() else word
            if capitals in self.keywords:
                return capitals
            return None if kind == "KEYWORD" else kind
        return _PUNCTUATION.get(word, kind)

    def _unknown(self, text: str, at: int) -> SelectorError:
        character = text[at]
        word = found.group() if (found := _WORD.match(text, at)) else character
        if character == "'" or (character == '"' and not self._is_jms):
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
            reason = "'[' does not begin a name" + ("" if self._is_jms else " that a ']' ends")
        else:
            reason = f"{character!r} is not known here"
        return SelectorError(reason, at + 1)


def jms_words() -> Words:
    """Return the words of JMS selectors (Jakarta Messaging 3.1, 3.8.1.1): Java names and numbers."""
    return Words(_JMS, _JMS_KEYWORDS, is_jms=True)


def amqp_sql_words() -> Words:
    """Return the words of AMQP SQL filters (AMQP Filter Expressions 1.0, 6.2), as far as RabbitMQ 4.2 has
    them.
    """
    return Words(_AMQP_SQL, SQL_KEYWORDS, is_jms=False)
