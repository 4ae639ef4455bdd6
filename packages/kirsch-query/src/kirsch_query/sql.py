"""Translate a query to one SQLAlchemy condition, exactly, or refuse.

Each expression becomes a constant, or a value in SQL of a known kind. A condition is true in SQL wherever the query
holds in memory; where it does not, SQL has false or NULL, which a WHERE takes for the same. A negation must tell the
two from true, so it is ``(condition) IS NOT TRUE``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from .calling import Calling
from .emit import Checked, op
from .errors import Refused
from .kinds import TEXTS, Kind
from .scope import ABSENT, Item, Late, Scope
from .terms import (
    DEEPEST,
    SQL,
    Condition,
    Constant,
    Entity,
    Found,
    Many,
    Note,
    Related,
    Value,
    both,
    either,
    is_not,
    negated,
)

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_WORDS: dict[type[ast.expr], str] = {
    ast.JoinedStr: "an f-string", ast.Lambda: "a lambda", ast.Dict: "a dict with values of a row",
    ast.Set: "a set with values of a row", ast.Starred: "*", ast.GeneratorExp: "a comprehension",
    ast.ListComp: "a comprehension", ast.SetComp: "a comprehension", ast.DictComp: "a comprehension",
}  # fmt: skip


class Translator(Calling):
    """One translation. ``dialect`` may be unknown: what some database refuses is then refused when SQL is compiled."""

    # Conditions

    def condition(self, node: ast.expr, scope: Scope, positive: bool = True) -> Condition:
        """The condition that an expression holds. Where lenient, it may hold of more rows; of fewer if not positive."""
        try:
            return self._within(self._condition, node, scope, positive)
        except Refused as refused:
            if not self.lenient or isinstance(node, ast.BoolOp) or is_not(node):
                raise
            self.left.append(refused)
            return positive

    def _within(self, translate: Callable[..., T], node: ast.expr, scope: Scope, *more: Any) -> T:
        """Translate an expression, which refusals and notes name meanwhile."""
        outer, self.at = self.at, (node, scope)
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise self.refuse("the expression is nested too deeply")
            return translate(node, scope, *more)
        finally:
            self.at = outer
            self.depth -= 1

    def _condition(self, node: ast.expr, scope: Scope, positive: bool) -> Condition:
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, scope, positive)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.note("IS NOT TRUE: what is unknown in SQL is false here, so that its negation is true")
            return negated(self.condition(node.operand, scope, not positive))
        if isinstance(node, ast.IfExp):
            return self._choice(node, scope)
        if isinstance(node, ast.Compare) and self._reads_rows(node, scope):
            return self._compare(node, scope)
        if isinstance(node, ast.Call) and self._reads_rows(node, scope):
            found = self._call(node, scope, as_condition=True)
            return found if isinstance(found, bool | sa.ColumnElement) else self._truth(found)
        if isinstance(node, ast.Name) and isinstance(binding := scope.names.get(node.id), Late):
            return self.condition(binding.node, binding.scope, positive)
        return self._truth(self.value(node, scope))

    def _boolean(self, node: ast.BoolOp, scope: Scope, positive: bool) -> Condition:
        """``and`` and ``or``: as in Python, nothing after the constant that decides is looked at."""
        decides = isinstance(node.op, ast.Or)
        parts: list[SQL] = []
        for each in node.values:
            part = self.condition(each, scope, positive)
            if part is decides:
                return decides
            if not isinstance(part, bool):
                parts.append(part)
        if not parts:
            return not decides
        return (sa.or_ if decides else sa.and_)(*parts) if len(parts) > 1 else parts[0]

    def _choice(self, node: ast.IfExp, scope: Scope) -> Condition:
        exact = self._exact(node.test, scope)
        if isinstance(exact, bool):
            return self.condition(node.body if exact else node.orelse, scope)
        then, other = self._exact(node.body, scope), self._exact(node.orelse, scope)
        return either(both(exact, then), both(negated(exact), other))

    def _exact(self, node: ast.expr, scope: Scope) -> Condition:
        """A condition where no leniency would be sound."""
        lenient, self.lenient = self.lenient, False
        try:
            return self.condition(node, scope)
        finally:
            self.lenient = lenient

    def _truth(self, found: Found) -> Condition:
        """Whether a value counts as true, by its kind."""
        if isinstance(found, Constant):
            return found.value is not ABSENT and bool(found.value)
        if isinstance(found, Related):
            cls = sa.inspect(found.target).mapper.class_
            if hasattr(cls, "__bool__") or hasattr(cls, "__len__"):
                raise self.refuse(f"{cls.__name__} decides itself what counts as true", "Write: is not None.")
            return found.exists()
        if isinstance(found, Many):
            return Related(found.target, found.aliases, found.conditions).exists()
        if isinstance(found, Entity):
            raise self.refuse("whether a whole row counts as true is not decided by the database")
        name = found.kind.name
        if name == "bool":
            return found.sql.is_(sa.true()) if found.column else found.sql
        if name in ("int", "decimal") or (name == "float" and found.column):
            zero = sa.literal(0.0, sa.Double()) if name == "float" else sa.literal(0, sa.BigInteger())
            return found.sql != zero
        if name == "float":
            raise self.refuse("whether a calculated float counts as true is not exact: NaN does", "Compare with 0.")
        if name in TEXTS:
            return op("length", found.sql) > sa.literal(0, sa.Integer())
        if name == "bytes":
            return op("bytes_length", found.sql) > sa.literal(0, sa.Integer())
        if name == "enum" and not all(map(bool, found.kind.members)):
            raise self.refuse("a member of this enum counts as false", "Compare with members.")
        return found.sql.is_not(None)

    # Values

    def value(self, node: ast.expr, scope: Scope) -> Found:
        """What an expression is in SQL, or the constant that it is."""
        if isinstance(node, ast.Name) and node.id in scope.names:
            binding = scope.names[node.id]
            if isinstance(binding, Late):
                return self.value(binding.node, binding.scope)
            return Constant(binding.value) if isinstance(binding, Item) else binding
        if not self._reads_rows(node, scope):
            return self.known(node, scope)
        handlers: dict[type[ast.expr], Callable[[Any, Scope], Found]] = {
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._conditional,
            ast.BoolOp: self._either_value,
            ast.Compare: self._as_value,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
        }
        return self._within(handlers.get(type(node), self._other), node, scope)

    def _other(self, node: ast.expr, _: Scope) -> Found:
        what = _WORDS.get(type(node), f"an expression of the kind {type(node).__name__}")
        raise self.refuse(f"{what} is not translated")

    def _as_value(self, node: ast.expr, scope: Scope) -> Found:
        """A condition whose True or False is asked for."""
        return self._boolean_value(self._exact(node, scope))

    def _boolean_value(self, found: Condition) -> Found:
        if isinstance(found, bool):
            return Constant(found)
        sql = sa.case((found, sa.true()), else_=sa.false())
        return Value(sql, Kind("bool", sa.Boolean(), bound=1), column=True)


def checked(found: Condition, translator: Translator) -> Checked:
    """A whole condition as one element that refuses where it is not exact."""
    clause = found if not isinstance(found, bool) else sa.true() if found else sa.false()
    return Checked(clause, dict(translator.refusals), frozenset(translator.read), frozenset(translator.classes))


__all__ = ["Condition", "Entity", "Note", "Translator", "checked"]
