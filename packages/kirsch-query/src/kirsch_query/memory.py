"""Evaluation of a query for objects in memory, by the same rule as in databases. A comparison that Python cannot
evaluate, because a part of it is None or it divides by zero, is false. Otherwise the result is Python's. This module
defines the rule; :mod:`judging` has faster code for most queries.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from kirsch_query.errors import Refused
from kirsch_query.scope import (
    ABSENT,
    Item,
    Late,
    Scope,
    attribute_name,
    bound_names,
    called,
    constant,
    inlined,
    inlined_with,
    is_builtin,
    run,
)

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def read(value: Any, name: str) -> Any:
    """Return an attribute of an object, or the item with that name of a mapping."""
    if (type(value) is dict or isinstance(value, Mapping)) and name in value:
        return value[name]
    return getattr(value, name)


def truth(node: ast.expr, scope: Scope) -> bool:
    """Return whether an expression holds; false if it is None or cannot be evaluated because of a None."""
    if isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.And):
            return all(truth(each, scope) for each in node.values)
        return any(truth(each, scope) for each in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not truth(node.operand, scope)
    if isinstance(node, ast.IfExp):
        return truth(node.body if truth(node.test, scope) else node.orelse, scope)
    return bool(value(node, scope))


def value(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression, or ABSENT if it cannot be evaluated because a part is None."""
    if isinstance(node, ast.Name) and node.id in scope.names:
        return resolve(scope.names[node.id])
    if not bound_names(node, scope):
        return constant(node, scope)
    handler = _HANDLERS.get(type(node))
    return _opaque(node, scope) if handler is None else handler(node, scope)


def resolve(binding: Any) -> Any:
    """Return the value to which a name is bound."""
    return value(binding.node, binding.scope) if isinstance(binding, Late) else binding.value


def _opaque(node: ast.expr, scope: Scope) -> Any:
    """Evaluate an expression without a special rule by Python, which may raise."""
    values = {name: resolve(scope.names[name]) for name in bound_names(node, scope)}
    return ABSENT if any(each is ABSENT for each in values.values()) else run(node, scope, values)


def _attribute(node: ast.Attribute, scope: Scope) -> Any:
    owner = value(node.value, scope)
    return ABSENT if owner is None or owner is ABSENT else attribute(owner, attribute_name(node, scope))


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute of an object. A property that raises because of a None is evaluated by the rule."""
    try:
        return read(owner, name)
    except (TypeError, AttributeError, ZeroDivisionError):
        import inspect  # imported here, because it takes as long to import as this package

        found = inspect.getattr_static(type(owner), name, None)
        if not isinstance(found, property) or not isinstance(found.fget, FunctionType):
            raise
        scope = inlined_with(found.fget, [Item(owner)])
        if scope is None:
            raise
        return value(scope.source.body, scope)


def _missing(*values: Any) -> bool:
    return any(each is None or each is ABSENT for each in values)


def _guarded(function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Call a function. The result is absent if a value is absent, if the function does not accept a None, or if it
    divides by zero."""
    given = (*values, *named.values())
    if any(each is ABSENT for each in given):
        return ABSENT
    try:
        return function(*values, **named)
    except (TypeError, AttributeError) as error:
        # An object without the attribute is a mistake in the query, even if another value is None.
        mistake = isinstance(error, AttributeError) and (error.name is None or error.obj is not None)
        if mistake or not any(map(_holds_none, given)):
            raise
        return ABSENT
    except ArithmeticError as error:
        decimal = sys.modules.get("decimal")  # if it was never imported, no Decimal divides by zero
        if isinstance(error, ZeroDivisionError) or (decimal and isinstance(error, decimal.InvalidOperation)):
            return ABSENT
        raise


def _holds_none(given: Any) -> bool:
    return given is None or (type(given) in (tuple, list, set) and any(map(_holds_none, given)))


def _display(node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Any:
    """Return a tuple, list or set display; absent if one of its items is."""
    items: list[Any] = []
    for each in node.elts:
        star = isinstance(each, ast.Starred)
        item = value(each.value if isinstance(each, ast.Starred) else each, scope)
        if item is ABSENT or (star and item is None):
            return ABSENT
        items += item if star else [item]
    return _DISPLAYS[type(node)](items)


_DISPLAYS: dict[type[ast.expr], Callable[[list[Any]], Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: set}


def _binary(node: ast.BinOp, scope: Scope) -> Any:
    function = _ARITHMETIC.get(type(node.op))
    if function is None:
        return _opaque(node, scope)
    return _guarded(function, value(node.left, scope), value(node.right, scope))


def _unary(node: ast.UnaryOp, scope: Scope) -> Any:
    if isinstance(node.op, ast.Not):
        return not truth(node.operand, scope)
    return _guarded(_UNARY[type(node.op)], value(node.operand, scope))


def _boolean(node: ast.BoolOp, scope: Scope) -> Any:
    """Return the value of ``and`` or ``or``, for an expression that uses more than its truth."""
    found: Any = ABSENT
    for each in node.values:
        found = value(each, scope)
        if bool(found) == isinstance(node.op, ast.Or):
            return found
    return found


def _conditional(node: ast.IfExp, scope: Scope) -> Any:
    return value(node.body if truth(node.test, scope) else node.orelse, scope)


def _compare(node: ast.Compare, scope: Scope) -> bool:
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        if not _atom(op, left, right, scope):
            return False
        left = right
    return True


def _atom(op: ast.cmpop, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
    if isinstance(op, ast.In | ast.NotIn):
        return _contained(isinstance(op, ast.NotIn), left, right, scope)
    return compare(op, value(left, scope), value(right, scope))


def compare(op: ast.cmpop, left: Any, right: Any) -> bool:
    """Return the result of one comparison of two values."""
    if left is ABSENT or right is ABSENT:
        return False
    if isinstance(op, ast.Is):
        return left is right
    if isinstance(op, ast.IsNot):
        return left is not right
    found = _guarded(_COMPARED[type(op)], left, right)
    return found is not ABSENT and bool(found)


def _contained(negated: bool, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
    needle = value(left, scope)
    if needle is ABSENT:
        return False
    star = any(isinstance(each, ast.Starred) for each in ast.iter_child_nodes(right))
    if isinstance(right, ast.Tuple | ast.List | ast.Set) and bound_names(right, scope) and not star:
        found = any(compare(ast.Eq(), needle, value(each, scope)) for each in right.elts)
    elif isinstance(right, LOOPS) and bound_names(right, scope):
        scopes = elements(right, scope)
        found = any(each is not None and compare(ast.Eq(), needle, value(right.elt, each)) for each in scopes)
        if negated and None in scopes:
            return False
    else:
        container = value(right, scope)
        if _missing(container) or (needle is None and isinstance(container, str | bytes)):
            return False
        try:
            found = needle in container
        except ArithmeticError:  # a signaling NaN among Decimals, which equals no value
            found = any(compare(ast.Eq(), needle, each) for each in container)
    return found is not negated


LOOPS = (ast.GeneratorExp, ast.ListComp, ast.SetComp)


def elements(node: ast.GeneratorExp | ast.ListComp | ast.SetComp, scope: Scope) -> list[Scope | None]:
    """Return the scopes of a comprehension's elements. None represents the elements of a None or absent iterable."""
    found: list[Scope | None] = [scope]
    for part in node.generators:
        scopes: list[Scope | None] = []
        for each in found:
            iterable: Any = ABSENT if each is None else value(part.iter, each)
            if each is None or _missing(iterable):
                scopes.append(None)
                continue
            for item in iterable:
                inner = each.with_names(unpack(part.target, item))
                if all(truth(test, inner) for test in part.ifs):
                    scopes.append(inner)
        found = scopes
    return found


def unpack(target: ast.expr, item: Any) -> dict[str, Any]:
    """Return the names that the target of a loop binds, with their values."""
    if isinstance(target, ast.Name):
        return {target.id: Item(item)}
    if isinstance(target, ast.Tuple | ast.List) and not any(isinstance(each, ast.Starred) for each in target.elts):
        names: dict[str, Any] = {}
        for part, each in zip(target.elts, item, strict=True):
            names.update(unpack(part, each))
        return names
    raise Refused(f"a loop in a query binds plain names, and not {ast.unparse(target)}")


METHODS = {
    "startswith", "endswith", "lower", "upper", "casefold", "strip", "lstrip", "rstrip", "title", "capitalize",
    "swapcase", "isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace", "replace", "split", "count", "find",
    "date", "time", "weekday", "astimezone",
    "isoweekday", "isoformat", "strftime", "timestamp", "hex", "quantize", "is_integer", "bit_length", "get",
}  # fmt: skip
"""Methods of the values that databases know. Each is a function of its owner and its arguments, and of nothing else."""

FUNCTIONS = ("len", "abs", "int", "float", "ord", "divmod", "sorted", "tuple", "list", "set", "min", "max", "sum")
"""Builtin functions that raise TypeError where an argument is None."""


def _call(node: ast.Call, scope: Scope) -> Any:
    function = called(node, scope)
    if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
        return _opaque(node, scope)
    if is_builtin(function, "any", "all") and len(node.args) == 1 and isinstance(node.args[0], LOOPS):
        whole = all if function is all else any  # without a loop: an absent iterable does not fulfil it
        return whole(each is not None and truth(node.args[0].elt, each) for each in elements(node.args[0], scope))
    if is_builtin(function, "sum", "min", "max", "len") and len(node.args) == 1 and not node.keywords:
        kinds = (ast.ListComp, ast.SetComp) if function is len else LOOPS
        if isinstance(node.args[0], kinds):
            return _aggregate(function, node.args[0], scope)
    if is_builtin(function, "bool") and len(node.args) == 1:
        return truth(node.args[0], scope)
    keywords = {each.arg: each.value for each in node.keywords if each.arg}
    if isinstance(node.func, ast.Attribute) and function is None:
        owner = value(node.func.value, scope)
        if _missing(owner):
            return ABSENT
        name = attribute_name(node.func, scope)
        method = getattr(owner, name)
        inner = None if name in METHODS else inlined(method, node.args, keywords, scope)
    else:
        method, inner = function, inlined(function, node.args, keywords, scope)
    if inner is not None:
        return value(inner.source.body, inner)
    arguments = [value(each, scope) for each in node.args]
    named = {name: value(each, scope) for name, each in keywords.items()}
    return _guarded(method, *arguments, **named)


def _aggregate(function: Any, node: ast.GeneratorExp | ast.ListComp | ast.SetComp, scope: Scope) -> Any:
    """Return ``sum``, ``min``, ``max`` or ``len`` of a comprehension. ``min`` and ``max`` of no elements are absent."""
    values = [ABSENT if each is None else value(node.elt, each) for each in elements(node, scope)]
    if any(each is ABSENT for each in values) or (not values and (function is min or function is max)):
        return ABSENT
    return _guarded(function, list(dict.fromkeys(values)) if isinstance(node, ast.SetComp) else values)


def _subscript(node: ast.Subscript, scope: Scope) -> Any:
    try:
        return _guarded(operator.getitem, value(node.value, scope), value(node.slice, scope))
    except LookupError:  # a missing position of a text or key of a document
        return ABSENT


def _slice(node: ast.Slice, scope: Scope) -> Any:
    parts = [None if each is None else value(each, scope) for each in (node.lower, node.upper, node.step)]
    return ABSENT if any(each is ABSENT for each in parts) else slice(*parts)


_HANDLERS: dict[type[ast.expr], Callable[[Any, Scope], Any]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.IfExp: _conditional,
    ast.Compare: _compare,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _display,
    ast.List: _display,
    ast.Set: _display,
}
