"""Arithmetic in a specification: ``lam = "rho * m * mu"``, ``where = "n <= K and q < 1"``.

The text is parsed to Python's syntax tree; the few node kinds below are translated to array operations and everything
else is refused, so nothing is ever executed. All numbers are real (a power like 9**9**9 overflows to infinity and costs
nothing). The same expression runs on numpy (planning) and inside a jitted kernel, where it has derivatives.
"""

import ast
import functools
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hetjax.sweep.errors import SpecError, nearest

MAX_LENGTH = 1000  # characters
MAX_DEPTH = 50  # nested operations
CONSTANTS = {"inf": math.inf, "pi": math.pi}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne}
FUNCTIONS: dict[str, tuple[str, int, int]] = {  # name -> (array function, fewest arguments, most arguments)
    "min": ("minimum", 2, 20), "max": ("maximum", 2, 20), "ceil": ("ceil", 1, 1), "floor": ("floor", 1, 1),
    "sqrt": ("sqrt", 1, 1), "exp": ("exp", 1, 1), "log": ("log", 1, 1), "abs": ("abs", 1, 1)}



class _Context(NamedTuple):
    xp: Any  # numpy or jax.numpy
    values: Mapping[str, Any]
    dtype: Any


Evaluator = Callable[[_Context], Any]


@dataclass(frozen=True)
class Expression:
    """A checked expression: ``text``, the ``names`` it uses, and whether it is a ``condition`` (true or false)."""

    text: str
    names: frozenset[str]
    condition: bool
    _evaluate: Evaluator = field(repr=False, compare=False)

    def __call__(self, xp: Any, values: Mapping[str, Any], dtype: Any = np.float64) -> Any:
        """The value for ``values`` (name -> arrays of ``dtype``), computed with ``xp`` (numpy or jax.numpy).

        >>> import numpy
        >>> float(parse_expression("max(q, 2) ** 2", "example")(numpy, {"q": numpy.float64(3.0)}))
        9.0
        """
        with np.errstate(all="ignore"):  # infinities and NaN are results here; the status of a point tells
            return self._evaluate(_Context(xp, values, dtype))


def parse_expression(text: Any, where: str, condition: bool = False) -> Expression:
    """Parses ``text``; ``where`` names its key in error messages; ``condition``: must be a comparison, not a number.

    Raises SpecError (one line) for anything but arithmetic, comparisons, and/or/not and the functions listed.
    """
    if not isinstance(text, str):
        raise SpecError(f"{where} = {text!r} is no expression; give text like \"rho * m\"")
    if len(text) > MAX_LENGTH:
        raise SpecError(f"{where} is {len(text)} characters long, more than {MAX_LENGTH}; use [derived] steps")
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd but legal spellings like 1if
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "too deeply nested or not text"
        raise SpecError(f"{where} = {text!r} cannot be read as arithmetic: {reason}") from None
    parser = _Parser(text, where)
    is_condition, evaluate = parser.visit(tree.body, 0)
    if is_condition != condition:
        raise SpecError(f"{where} = {text!r} is a {_kind(is_condition)}; give a {_kind(condition)}"
                        + (" like \"n <= K\"" if condition else " like \"rho * m\""))
    return Expression(text, frozenset(parser.names), condition, evaluate)


def _kind(condition: bool) -> str:
    return "condition" if condition else "number"


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.names: set[str] = set()

    def refuse(self, what: str) -> SpecError:
        return SpecError(f"{self.where} = {self.text!r}: {what}; allowed are + - * / // % **, comparisons, and, or,"
                         f" not, {', '.join(FUNCTIONS)}")

    def visit(self, node: ast.expr, depth: int) -> tuple[bool, Evaluator]:
        """(is a condition, evaluator) of one node."""
        if depth > MAX_DEPTH:
            raise self.refuse(f"nested deeper than {MAX_DEPTH}")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return False, _constant(self._real(value))
            case ast.Name(id=name) if name in CONSTANTS:
                return False, _constant(CONSTANTS[name])
            case ast.Name(id=name):
                self.names.add(name)
                return False, lambda c: c.values[name]
            case ast.BinOp(left=left, op=op, right=right):
                return False, self._binary(left, op, right, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._number(operand, depth)
                return False, lambda c: -inner(c)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return False, self._number(operand, depth)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._condition(operand, depth)
                return True, lambda c: c.xp.logical_not(inner(c))
            case ast.Compare():
                return True, self._compare(node, depth)
            case ast.BoolOp(op=op, values=terms):
                combine = "logical_and" if isinstance(op, ast.And) else "logical_or"
                return True, _fold(combine, [self._condition(term, depth) for term in terms])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return False, self._call(name, args, depth)
        raise self.refuse(f"{type(node).__name__} is not allowed")

    def _real(self, value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self.refuse("a number is too large") from None

    def _number(self, node: ast.expr, depth: int) -> Evaluator:
        is_condition, evaluate = self.visit(node, depth + 1)
        if is_condition:
            raise self.refuse("a condition is used as a number")
        return evaluate

    def _condition(self, node: ast.expr, depth: int) -> Evaluator:
        is_condition, evaluate = self.visit(node, depth + 1)
        if not is_condition:
            raise self.refuse("a number is used as a condition")
        return evaluate

    def _binary(self, left: ast.expr, op: ast.operator, right: ast.expr, depth: int) -> Evaluator:
        a, b = self._number(left, depth), self._number(right, depth)
        if type(op) in _ARITHMETIC:
            function = _ARITHMETIC[type(op)]
            return lambda c: function(a(c), b(c))
        if isinstance(op, ast.FloorDiv):
            return lambda c: c.xp.floor(a(c) / b(c))
        if isinstance(op, ast.Mod):
            return lambda c: c.xp.remainder(a(c), b(c))
        if isinstance(op, ast.Pow):
            if isinstance(right, ast.Constant) and float(right.value).is_integer() and 1 <= right.value <= 64:  # type: ignore[arg-type, operator]
                exponent = int(right.value)  # type: ignore[arg-type]
                # a product, not exp(k log x): right at and below 0, with its derivatives
                return lambda c: _integer_power(a(c), exponent)
            return lambda c: c.xp.power(a(c), b(c))
        raise self.refuse(f"the operator {type(op).__name__} is not allowed")

    def _compare(self, node: ast.Compare, depth: int) -> Evaluator:
        terms = [self._number(term, depth) for term in (node.left, *node.comparators)]
        pairs: list[Evaluator] = []
        for op, left, right in zip(node.ops, terms[:-1], terms[1:], strict=True):
            if type(op) not in _COMPARE:
                raise self.refuse(f"the comparison {type(op).__name__} is not allowed")
            pairs.append(_apply_two(_COMPARE[type(op)], left, right))
        return _fold("logical_and", pairs)

    def _call(self, name: str, args: list[ast.expr], depth: int) -> Evaluator:
        if name not in FUNCTIONS:
            raise self.refuse(f"the function {name!r} is unknown{nearest(name, FUNCTIONS)}")
        function, fewest, most = FUNCTIONS[name]
        if not fewest <= len(args) <= most:
            span = f"{fewest} to {most}" if most > fewest else f"{fewest}"
            raise self.refuse(f"{name} takes {span} arguments, got {len(args)}")
        inner = [self._number(arg, depth) for arg in args]
        if most == 1:
            return lambda c: getattr(c.xp, function)(inner[0](c))
        return _fold(function, inner)


def _constant(value: float) -> Evaluator:
    return lambda c: c.xp.asarray(value, dtype=c.dtype)


def _apply_two(function: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda c: function(left(c), right(c))


def _fold(function: str, terms: list[Evaluator]) -> Evaluator:
    return lambda c: functools.reduce(getattr(c.xp, function), [term(c) for term in terms])


def _integer_power(base: Any, exponent: int) -> Any:
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result
