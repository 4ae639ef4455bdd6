"""Scopes: the meaning of the names in a query, and its parts that do not depend on a row."""

from __future__ import annotations

import ast
import builtins
import functools
from types import CodeType, FunctionType, MethodType

from kirsch_query.errors import QueryError, SourceError
from kirsch_query.source import Source, code_of, free_names, from_function, function_of, is_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias


class Absent:
    """The value of an expression that Python cannot evaluate because a part of it is None. It is false."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Item:
    """A name that is bound to a Python value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Late:
    """A name that is bound to an expression: an argument of a function whose body is inlined."""

    __slots__ = ("node", "scope")

    def __init__(self, node: ast.expr, scope: Scope) -> None:
        self.node = node
        self.scope = scope


Binding: TypeAlias = "Item | Late | Any"
"""Beside the two above, what a translator binds to a row."""


class Space:
    """The outer names of a query (closure, defaults and globals), with their values at its creation."""

    __slots__ = ("evaluated", "globals", "locals")

    def __init__(self, global_names: dict[str, Any], local_names: Mapping[str, Any]) -> None:
        self.globals = global_names
        self.locals = local_names
        self.evaluated: dict[ast.expr, Any] = {}
        """The values of the expressions that depend on no row: each is evaluated once per use of the query."""


def space_of(function: FunctionType, given: Mapping[str, Any] | None = None) -> Space:
    """Return the names that a function sees now; ``given`` overrides them."""
    code = function.__code__
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet: reading it raises NameError, as in Python
            continue
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    found.update(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    found.update(function.__kwdefaults__ or {})
    found.update(given or {})
    return Space(function.__globals__, found)


class Scope:
    """The source of a query with the names bound in it (rows, elements, arguments) and its outer names."""

    __slots__ = ("names", "source", "space")

    def __init__(self, source: Source, space: Space, names: Mapping[str, Binding]) -> None:
        self.source = source
        self.space = space
        self.names = names

    def with_names(self, names: Mapping[str, Binding]) -> Scope:
        return Scope(self.source, self.space, {**self.names, **names})


def bound_names(node: ast.expr, scope: Scope) -> frozenset[str]:
    """Return the bound names of the scope that an expression reads."""
    return free_names(node) & scope.names.keys()


@functools.lru_cache(maxsize=65536)
def _compiled(node: ast.expr, names: tuple[str, ...], filename: str, private: str) -> CodeType:
    """Return the code of a function of ``names`` that returns the value of ``node``."""
    body = _Mangler(private).visit(_copy(node)) if private else node
    return code_of(function_of((mangled(name, private) for name in names), body), filename)


def _copy(node: ast.expr) -> ast.expr:
    import copy

    return copy.deepcopy(node)


def mangled(name: str, private: str) -> str:
    prefix = private.lstrip("_")
    return f"_{prefix}{name}" if prefix and name.startswith("__") and not name.endswith("__") else name


class _Mangler(ast.NodeTransformer):
    """Adds the class prefix to private names, like the compiler inside a class."""

    def __init__(self, private: str) -> None:
        self.private = private

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = mangled(node.attr, self.private)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = mangled(node.id, self.private)
        return node


def attribute_name(node: ast.Attribute, scope: Scope) -> str:
    """Return the name of an attribute after mangling of private names."""
    return mangled(node.attr, scope.source.private)


def run(node: ast.expr, scope: Scope, values: Mapping[str, Any]) -> Any:
    """Evaluate an expression by Python; ``values`` are the values of the bound names that it reads."""
    outside = scope.space.locals
    private = scope.source.private
    names = tuple(sorted(free_names(node) & (values.keys() | _unmangled(outside, free_names(node), private))))
    arguments = [values[name] if name in values else outside[mangled(name, private)] for name in names]
    code = _compiled(node, names, scope.source.filename, private)
    return FunctionType(code, scope.space.globals)(*arguments)


def _unmangled(outside: Mapping[str, Any], names: frozenset[str], private: str) -> frozenset[str]:
    return frozenset(name for name in names if mangled(name, private) in outside)


def constant(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression that reads no bound name. It is evaluated once per use of the query."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value  # type: ignore[operator]
    if isinstance(node, ast.Name) and not scope.source.private:
        outside = scope.space
        if node.id in outside.locals:
            return outside.locals[node.id]
        if node.id in outside.globals:
            return outside.globals[node.id]
    evaluated = scope.space.evaluated
    if node not in evaluated:
        evaluated[node] = run(node, scope, {})
    return evaluated[node]


def called(node: ast.Call, scope: Scope) -> Any:
    """Return the function that a call names, if that does not depend on a row; else None."""
    if bound_names(node.func, scope):
        return None
    return constant(node.func, scope)


def inlined(function: Any, arguments: list[ast.expr], keywords: Mapping[str, ast.expr], scope: Scope) -> Scope | None:
    """Return the scope in which the single expression of a Python function has the meaning of the call; None if the
    function is not a single expression. Each argument is evaluated where the function reads its parameter, so that a
    None in it makes only the comparison false that reads it.
    """
    first: list[Binding] = []
    if isinstance(function, MethodType):
        first = [Item(function.__self__)]
        function = function.__func__
    if not is_python(function):
        return None
    return inlined_with(function, [*first, *(Late(each, scope) for each in arguments)],
                        {name: Late(each, scope) for name, each in keywords.items()})  # fmt: skip


def inlined_with(
    function: FunctionType, positional: list[Binding], keywords: Mapping[str, Binding] | None = None
) -> Scope | None:
    """Do the same as :func:`inlined` for arguments that are already bound."""
    import inspect  # imported here, because it takes as long to import as this package

    try:
        source = from_function(function)
        signature = inspect.signature(function, follow_wrapped=False)
        bound = signature.bind(*positional, **(keywords or {}))
    except (SourceError, TypeError):
        return None
    names: dict[str, Binding] = dict(bound.arguments)
    bound.apply_defaults()
    names.update((name, Item(value)) for name, value in bound.arguments.items() if name not in names)
    return Scope(source, space_of(function), names)


def is_builtin(function: Any, *names: str) -> bool:
    """Return whether ``function`` is one of the builtin functions ``names``."""
    return any(function is getattr(builtins, name) for name in names)


__all__ = [
    "ABSENT", "Absent", "Binding", "Item", "Late", "QueryError", "Scope", "Space", "attribute_name", "bound_names",
    "called", "constant", "free_names", "inlined", "inlined_with", "is_builtin", "mangled", "run", "space_of",
]  # fmt: skip
