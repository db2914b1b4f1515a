"""Selectors evaluated the slow and obvious way, straight from the rules, to check the compiler against."""

from collections.abc import Mapping
from typing import Any

from queue_manager.filters import tree

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def evaluate(node: tree.Expression, fields: Mapping[str, Any], dialect: str) -> bool | None:
    """True, False or None (unknown)."""
    return as_condition(Interpreter(fields, dialect).value(node))


def as_condition(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", int: "number", float: "number", str: "text", bytes: "binary"}.get(
        type(value), "?"
    )


def like(text: str, pattern: list[str | None]) -> bool:
    """By dynamic programming over all prefixes; `%` is "any", `_` is None, a literal its character."""
    reachable = {0}
    for symbol in pattern:
        if symbol == "any":
            reachable = set(range(min(reachable), len(text) + 1)) if reachable else set()
        else:
            reachable = {i + 1 for i in reachable if i < len(text) and symbol in (None, text[i])}
    return len(text) in reachable


def symbols(pattern: str, escape: str | None) -> list[str | None]:
    found: list[str | None] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            found.append(pattern[index])
        else:
            found.append({"%": "any", "_": None}.get(character, character))
        index += 1
    return found


class Interpreter:
    def __init__(self, fields: Mapping[str, Any], dialect: str) -> None:
        self.fields = fields
        self.is_jms = dialect == "jms"

    def value(self, node: tree.Expression) -> Any:
        return getattr(self, f"of_{type(node).__name__.lower()}")(node)

    def condition(self, node: tree.Expression) -> bool | None:
        return as_condition(self.value(node))

    def of_literal(self, node: tree.Literal) -> Any:
        return node.value

    def of_name(self, node: tree.Name) -> Any:
        return self.fields.get(node.field)

    def _not(self, value: bool | None) -> bool | None:
        return None if value is None else not value

    def _and(self, values: list[bool | None]) -> bool | None:
        if False in values:
            return False
        return None if None in values else True

    def _or(self, values: list[bool | None]) -> bool | None:
        return self._not(self._and([self._not(value) for value in values]))

    def of_and(self, node: tree.And) -> bool | None:
        return self._and([self.condition(operand) for operand in node.operands])

    def of_or(self, node: tree.Or) -> bool | None:
        return self._or([self.condition(operand) for operand in node.operands])

    def of_not(self, node: tree.Not) -> bool | None:
        return self._not(self.condition(node.operand))

    def of_compare(self, node: tree.Compare) -> bool | None:
        return self._compare(node.operator, self.value(node.left), self.value(node.right))

    def _compare(self, operator: str, left: Any, right: Any) -> bool | None:
        kinds = (kind(left), kind(right))
        if "null" in kinds:
            return None
        if kinds == ("number", "number"):
            if self.is_jms and float in (type(left), type(right)):
                left, right = float(left), float(right)
        elif self.is_jms:
            if kinds not in (("text", "text"), ("boolean", "boolean")) or operator not in ("=", "<>"):
                return False
        elif kinds[0] != kinds[1] or kinds[0] == "?":
            return operator == "<>"
        elif kinds[0] == "boolean" and operator not in ("=", "<>"):
            return False
        return {
            "=": lambda: left == right,
            "<>": lambda: left != right,
            "<": lambda: left < right,
            "<=": lambda: left <= right,
            ">": lambda: left > right,
            ">=": lambda: left >= right,
        }[operator]()

    def of_between(self, node: tree.Between) -> bool | None:
        subject, low, high = self.value(node.subject), self.value(node.low), self.value(node.high)
        if node.negated:
            return self._or([self._compare("<", subject, low), self._compare(">", subject, high)])
        return self._and([self._compare(">=", subject, low), self._compare("<=", subject, high)])

    def of_in(self, node: tree.In) -> bool | None:
        subject = self.value(node.subject)
        if subject is None:
            return None
        found = any(self._compare("=", subject, self.value(item)) is True for item in node.items)
        return found is not node.negated

    def of_like(self, node: tree.Like) -> bool | None:
        subject = self.value(node.subject)
        if kind(subject) != "text":
            return None
        return like(subject, symbols(node.pattern, node.escape)) is not node.negated

    def of_isnull(self, node: tree.IsNull) -> bool:
        return (self.value(node.subject) is None) is not node.negated

    def of_signed(self, node: tree.Signed) -> Any:
        value = self.value(node.operand)
        if kind(value) != "number":
            return None
        return self._calculate("*", -1, value) if node.sign == "-" else value

    def of_chain(self, node: tree.Chain) -> Any:
        value = self.value(node.first)
        for operator, operand in node.rest:
            value = self._calculate(operator, value, self.value(operand))
        return value

    def _calculate(self, operator: str, left: Any, right: Any) -> Any:
        if kind(left) != "number" or kind(right) != "number":
            return None
        integers = type(left) is int and type(right) is int
        if operator == "%" and not integers:
            return None
        if operator in "/%" and right == 0:
            return None
        if not integers or (operator == "/" and not self.is_jms):
            left, right = float(left), float(right)
        if operator == "/":
            result = self._divide(left, right)
        elif operator == "%":
            result = left - right * self._divide(left, right)
        else:
            result = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__}[operator](right)
        if type(result) is int and not LOWEST <= result <= HIGHEST:
            return None
        return result

    def _divide(self, left: Any, right: Any) -> Any:
        if type(left) is float:
            return left / right
        quotient = left // right
        return quotient + 1 if quotient < 0 and quotient * right != left else quotient
