"""From the tree of a selector to two Python functions.

Every node has three forms: what is true when the node is true, what is true when it is false, and its value
(None: unknown). `matches` is the true form of the root, so that in most selectors three-valued logic costs
nothing: true(a AND b) is true(a) and true(b), true(NOT a) is false(a), and so on down. `evaluate` is the
value form, made of the helpers in `values`.

The code is put together as syntax nodes from our own templates. Names and texts of the user enter it as
constants only: no part of the selector's text is ever compiled. In every form each subexpression stands
once, so code and time are linear in the selector.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any, Final, cast

from queue_manager.filters import field_values, inline, like
from queue_manager.filters.field_access import Fields
from queue_manager.filters.inline import expression, fill
from queue_manager.filters.tree import (
    And,
    Between,
    Chain,
    Compare,
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

_COMPARISON_HELPERS: Final = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_ARITHMETIC_HELPERS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder"}
_SIGN_HELPERS: Final = {"+": "plus", "-": "minus"}

_SHARED: Final[dict[str, object]] = {
    "__builtins__": {},
    **{kind.__name__: kind for kind in (type, str, int, float, bytes)},
    **{
        helper.__name__: helper
        for helper in (
            field_values.between,
            field_values.conjunction,
            field_values.disjunction,
            field_values.in_texts,
            field_values.in_values,
            field_values.is_like,
            field_values.minus,
            field_values.negation,
            field_values.not_between,
            field_values.plus,
        )
    },
    **{_ARITHMETIC_HELPERS[operator]: helper for operator, helper in field_values.ARITHMETIC.items()},
    "remainder": field_values.sql_remainder,
}


def _namespace(
    comparisons: dict[str, field_values.Operation], divide: field_values.Operation
) -> dict[str, object]:
    helpers = {_COMPARISON_HELPERS[operator]: helper for operator, helper in comparisons.items()}
    return {**_SHARED, **helpers, "divide": divide}


_NAMESPACES: Final = {
    "jms": _namespace(field_values.JMS_COMPARISONS, field_values.jms_divide),
    "amqp-sql": _namespace(field_values.SQL_COMPARISONS, field_values.sql_divide),
}

_MODULE: Final = ast.parse(
    """
def matches(fields):
    get = fields.get
    return true_form
"""
)
_FIELD: Final = expression("get(field)")
_IS_TRUE: Final = expression("value is True")
_IS_FALSE: Final = expression("value is False")
_IS_NULL: Final = expression("value is None")
_IS_NOT_NULL: Final = expression("value is not None")
_NEITHER_NULL_NOR_TRUE: Final = expression("(v := subject) is not None and not test")
_TEXT_TRUE: Final = expression("type(v := subject) is str and test")
_TEXT_FALSE: Final = expression("type(v := subject) is str and not test")
_V: Final = ast.Name("v", ast.Load())


def compile_expression(root: Expression, dialect: str) -> Callable[[Fields], bool]:
    """Compile a tree that the parser of the dialect made: what tells whether it is true of fields."""
    compiler = _Compiler(dialect)
    module = ast.fix_missing_locations(fill(_MODULE, {"true_form": compiler.true(root)}))
    code = compile(module, "<selector>", "exec")
    (function,) = [each for each in code.co_consts if isinstance(each, CodeType)]
    return FunctionType(function, compiler.namespace)


class _Compiler:
    """Writes the forms of nodes; `namespace` collects what the code refers to."""

    def __init__(self, dialect: str) -> None:
        self.namespace = dict(_NAMESPACES[dialect])
        self._is_jms = dialect == "jms"
        self._like_names: dict[tuple[str, str | None], str] = {}

    def true(self, node: Expression) -> ast.expr:
        """Return code that is True when the node is true, else False."""
        match node:
            case And(operands):
                return ast.BoolOp(ast.And(), [self.true(operand) for operand in operands])
            case Or(operands):
                return ast.BoolOp(ast.Or(), [self.true(operand) for operand in operands])
            case Not(operand):
                return self.false(operand)
            case IsNull():
                return self.value(node)
            case Literal(constant):
                return ast.Constant(constant is True)
            case Like(subject, _, _, negated):
                template = _TEXT_FALSE if negated else _TEXT_TRUE
                return fill(template, {"subject": self.value(subject), "test": self._like_test(node)})
        test = inline.test(node, self._is_jms)
        if test is None:
            return fill(_IS_TRUE, {"value": self.value(node)})
        return self._other(test) if test.negated else self._passes(test)

    def false(self, node: Expression) -> ast.expr:
        """Return code that is True when the node is false, else False."""
        match node:
            case And(operands):
                return ast.BoolOp(ast.Or(), [self.false(operand) for operand in operands])
            case Or(operands):
                return ast.BoolOp(ast.And(), [self.false(operand) for operand in operands])
            case Not(operand):
                return self.true(operand)
            case IsNull():
                return self.value(replace(node, negated=not node.negated))
            case Literal(constant):
                return ast.Constant(constant is False)
            case Like():
                return self.true(replace(node, negated=not node.negated))
        test = inline.test(node, self._is_jms)
        if test is None:
            return fill(_IS_FALSE, {"value": self.value(node)})
        return self._passes(test) if test.negated else self._other(test)

    def _passes(self, test: inline.Test) -> ast.expr:
        return fill(test.template, {**test.constants, "subject": self.value(test.subject)})

    def _other(self, test: inline.Test) -> ast.expr:
        passes = fill(test.template, {**test.constants, "subject": _V})
        return fill(_NEITHER_NULL_NOR_TRUE, {"subject": self.value(test.subject), "test": passes})

    def value(self, node: Expression) -> ast.expr:
        """Return the node's value."""
        match node:
            case Literal(constant):
                return ast.Constant(constant)
            case Name(field):
                return fill(_FIELD, {"field": ast.Constant(field)})
            case And(operands):
                return self._call("conjunction", *operands)
            case Or(operands):
                return self._call("disjunction", *operands)
            case Not(operand):
                return self._call("negation", operand)
            case Compare(operator, left, right):
                return self._call(_COMPARISON_HELPERS[operator], left, right)
            case Between(subject, low, high, negated):
                return self._call("not_between" if negated else "between", subject, low, high)
            case In(subject, items, negated):
                member = self._member(subject, items)
                return _calling("negation", member) if negated else member
            case Like(subject, _, _, negated):
                result = _calling("is_like", self.value(subject), self._like_function(node))
                return _calling("negation", result) if negated else result
            case IsNull(subject, negated):
                return fill(_IS_NOT_NULL if negated else _IS_NULL, {"value": self.value(subject)})
            case Chain(first, rest):
                result = self.value(first)
                for sign, operand in rest:
                    result = _calling(_ARITHMETIC_HELPERS[sign], result, self.value(operand))
                return result
            case Signed(sign, operand):
                return self._call(_SIGN_HELPERS[sign], operand)

    def _call(self, helper: str, *operands: Expression) -> ast.expr:
        return _calling(helper, *(self.value(operand) for operand in operands))

    def _member(self, subject: Expression, items: tuple[Expression, ...]) -> ast.expr:
        texts = inline.texts(items)
        if texts is None:
            return self._call("in_values", subject, *items)
        return _calling("in_texts", self.value(subject), ast.Constant(cast(Any, texts)))

    def _like_test(self, node: Like) -> ast.expr:
        """Return a test on `v`, which is a text."""
        segments = like.split(node.pattern, node.escape)
        kind, text = like.classify(segments)
        if kind == like.GENERAL:
            return ast.Call(self._like_function(node), [_V], [])
        return fill(inline.LIKE_TEMPLATES[kind], {"literal": ast.Constant(text)})

    def _like_function(self, node: Like) -> ast.expr:
        key = (node.pattern, node.escape)
        name = self._like_names.get(key)
        if name is None:
            name = self._like_names[key] = f"like_{len(self._like_names)}"
            self.namespace[name] = like.matcher(like.split(*key))
        return ast.Name(name, ast.Load())


def _calling(helper: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(helper, ast.Load()), list(arguments), [])
