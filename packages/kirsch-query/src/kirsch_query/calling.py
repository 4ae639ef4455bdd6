"""Subscripts, calls, any() and all()."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from . import memory
from .calculating import Calculating
from .emit import op
from .kinds import (
    INT32,
    NUMBERS,
    STRING,
    TEXTS,
    Kind,
    next_prefix,
)
from .scope import ABSENT, Late, Scope, attribute_name, inlined, inlined_with, is_builtin
from .terms import (
    IN_MEMORY,
    SQL,
    Condition,
    Constant,
    Entity,
    Found,
    Many,
    Related,
    Value,
    as_int,
    both,
    either,
    is_condition,
    negated,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Calling(Calculating):
    """The part of a translation that calls."""

    # Subscripts and calls

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Found:
        owner = self.value(node.value, scope)
        if not isinstance(owner, Value) or owner.kind.name != "str":
            raise self.refuse("only text is indexed or sliced")
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.refuse("a slice with a step is not translated")
            start = self._position(node.slice.lower, 0, owner, scope)
            stop = self._position(node.slice.upper, None, owner, scope)
            if stop is None:
                stop = op("length", owner.sql)
            if start is None:
                return Constant(ABSENT)
            return Value(op("slice", owner.sql, start, stop), Kind("str", sa.String()))
        index = self.value(node.slice, scope)
        if not isinstance(index, Constant) or type(index.value) is not int or abs(index.value) >= INT32 // 2:
            raise self.refuse("text is indexed by a constant")
        at = index.value
        length = op("length", owner.sql)
        if at >= 0:
            start, inside = sa.literal(at, sa.Integer()), length > sa.literal(at, sa.Integer())
        else:
            start, inside = (
                op("from_end", owner.sql, sa.literal(-at, sa.Integer())),
                length >= sa.literal(-at, sa.Integer()),
            )
        stop = start + sa.literal(1, sa.Integer())
        return Value(sa.case((inside, op("slice", owner.sql, start, stop))), Kind("str", sa.String()))

    def _position(self, part: ast.expr | None, missing: int | None, owner: Value, scope: Scope) -> SQL | None:
        found = Constant(None) if part is None else self.value(part, scope)
        if isinstance(found, Constant) and found.value is None:
            return None if missing is None else sa.literal(missing, sa.Integer())
        if not isinstance(found, Constant) or type(found.value) is not int or abs(found.value) >= INT32 // 2:
            raise self.refuse("text is sliced by constants")
        if found.value >= 0:
            return sa.literal(found.value, sa.Integer())
        return op("from_end", owner.sql, sa.literal(-found.value, sa.Integer()))

    def _call(self, node: ast.Call, scope: Scope, as_condition: bool = False) -> Any:
        """A call: a value, or where ``as_condition`` perhaps a condition."""
        if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
            raise self.refuse("* and ** are not translated")
        keywords = {each.arg: each.value for each in node.keywords if each.arg}
        found: Any = None
        if isinstance(node.func, ast.Attribute) and self._reads_rows(node.func.value, scope):
            found = self._method(node, node.func, keywords, scope)
        elif self._reads_rows(node.func, scope):
            raise self.refuse("which function is called depends on a row")
        else:
            function = self.known(node.func, scope).value
            found = self._function(function, node, keywords, scope)
        if isinstance(found, bool | sa.ColumnElement) and not as_condition:
            return self._boolean_value(found)
        return found

    def _function(self, function: Any, node: ast.Call, keywords: dict[str, ast.expr], scope: Scope) -> Any:
        arguments = node.args
        if not keywords and len(arguments) == 1:
            if is_builtin(function, "any", "all") and isinstance(arguments[0], ast.GeneratorExp | ast.ListComp):
                return self._quantifier(arguments[0], is_builtin(function, "all"), scope)
            if is_builtin(function, "bool"):
                return self._exact(arguments[0], scope)
            if is_builtin(function, "len"):
                return self._length(node, scope)
            if is_builtin(function, "abs"):
                return self._absolute(node, scope)
        if is_builtin(function, "min", "max") and len(arguments) > 1 and not keywords:
            return self._extreme(is_builtin(function, "max"), node, scope)
        inner = inlined(function, arguments, keywords, scope)
        if inner is not None:
            self.keep_nothing()
            return self._inside(inner)
        name = getattr(function, "__name__", repr(function))
        reasons = {
            "round": "databases round halves away from zero, and Python to even",
            "str": "each database writes numbers in its own way",
            "int": "databases convert in their own ways",
            "float": "databases convert in their own ways",
            "isinstance": "a database does not know Python's types",
        }
        why = (
            reasons.get(name, "it has no source that is one expression")
            if getattr(function, "__module__", "") == "builtins"
            else "it has no source that is one expression"
        )
        raise self.refuse(f"{name}() of a row is not translated: {why}")

    def _inside(self, inner: Scope) -> Any:
        body = inner.source.body
        if isinstance(body, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call) and is_condition(body):
            return self._exact(body, inner)
        return self.value(body, inner)

    def _method(self, node: ast.Call, function: ast.Attribute, keywords: dict[str, ast.expr], scope: Scope) -> Any:
        owner, name = self.value(function.value, scope), attribute_name(function, scope)
        if isinstance(owner, Entity | Related):
            target = owner.target
            found = None
            if not isinstance(target, sa.FromClause):
                found = inspect.getattr_static(sa.inspect(target).mapper.class_, name, None)
            if isinstance(found, FunctionType):
                inner = inlined_with(
                    found,
                    [owner, *(Late(each, scope) for each in node.args)],
                    {key: Late(each, scope) for key, each in keywords.items()},
                )
                if inner is not None:
                    self.keep_nothing()
                    return self._inside(inner)
            raise self.refuse(f"the method {name} is not one expression whose source is known")
        if isinstance(owner, Value) and not keywords:
            if owner.kind.name in TEXTS and name in ("startswith", "endswith") and len(node.args) == 1:
                return self._affix(name == "startswith", owner, node.args[0], scope)
            if owner.kind.name == "str" and name == "lower" and not node.args:
                self.note("ASCII letters change alone: it is compared with ASCII text, in which no others are")
                return Value(op("lower", owner.sql), Kind("lower", sa.String()))
            if owner.kind.name in ("date", "datetime") and not node.args:
                if name in ("weekday", "isoweekday"):
                    sql = op("weekday", owner.sql)
                    return Value(
                        sql + sa.literal(1, sa.Integer()) if name == "isoweekday" else sql,
                        Kind("int", sa.BigInteger(), bound=7),
                    )
                if name == "date" and owner.kind.name == "datetime":
                    return Value(op("date", owner.sql), Kind("date", sa.Date()))
        hint = IN_MEMORY
        if name in ("upper", "casefold", "swapcase", "title", "capitalize"):
            hint = f"Databases change fewer letters than Python. Compare .lower() with ASCII text. {IN_MEMORY}"
        raise self.refuse(f".{name}() is not exact on every database", hint)

    def _affix(self, prefix: bool, owner: Value, argument: ast.expr, scope: Scope) -> Condition:
        affix = self.value(argument, scope)
        if isinstance(affix, Constant):
            if affix.is_nothing():
                return False
            kind = owner.kind
            shape, bounds = self._affix_bounds(kind, prefix, affix.peek())
            self.claim(affix, shape, bounds, lambda again, value: again._affix_bounds(kind, prefix, value))
            given = iter(bounds)
            parts = (self._affix_constant(prefix, owner, [next(given) for _ in range(n)]) for n in shape)
            return either(*parts)
        if not isinstance(affix, Value) or affix.kind.name != "str" or owner.kind.name != "str":
            raise self.refuse("the prefix or suffix is not text", "Give a constant, or text of another row.")
        return op("starts" if prefix else "ends", owner.sql, affix.sql)

    def _affix_bounds(self, kind: Kind, prefix: bool, texts: Any) -> tuple[tuple[int, ...], list[SQL]]:
        """The parameters for some prefixes or suffixes, and how many each has: the text, and what is behind it."""
        shape, bounds = [], []
        for text in texts if isinstance(texts, tuple) else (texts,):
            if type(text) is not str:
                raise self.refuse("the prefix or suffix is not text")
            found = [self._bound_text(kind, text)] if text else []
            if text and prefix and (after := next_prefix(text)) is not None:
                found.append(self.literal(after, STRING))
            shape.append(len(found))
            bounds += found
        return tuple(shape), bounds

    def _affix_constant(self, prefix: bool, owner: Value, bounds: list[SQL]) -> Condition:
        if not bounds:
            return owner.sql.is_not(None)
        if not prefix:
            return op("ends", owner.sql, *bounds)
        self.note("a range by code points, which knows no wildcards, and which an index of that order serves")
        found = op("text_ge", owner.sql, bounds[0])
        return found if len(bounds) == 1 else sa.and_(found, op("text_lt", owner.sql, bounds[1]))

    def _length(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        kind = Kind("int", sa.BigInteger(), bound=INT32)
        if isinstance(found, Many):
            count = sa.select(sa.func.count()).where(*found.conditions).select_from(found.target)
            sql = count.correlate_except(*found.aliases).scalar_subquery()
            present = self._reachable(found)
            return Value(sql, kind, column=True) if isinstance(present, bool) else Value(sa.case((present, sql)), kind)
        if isinstance(found, Value) and found.kind.name in ("str", "bytes"):
            return Value(op("length" if found.kind.name == "str" else "bytes_length", found.sql), kind)
        raise self.refuse("len() is of text, bytes or a relation")

    def _absolute(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS:
            raise self.refuse("abs() is of a number")
        if found.kind.name in ("bool", "int"):
            return Value(op("int_abs", as_int(found)), Kind("int", sa.BigInteger(), bound=found.kind.bound))
        return Value(op("abs", found.sql), found.kind)

    def _extreme(self, greatest: bool, node: ast.Call, scope: Scope) -> Found:
        """min() and max() of several: the first of those that are equal, as in Python."""
        found = self.value(node.args[0], scope)
        for each in node.args[1:]:
            other = self.value(each, scope)
            for one in (found, other):
                if isinstance(one, Constant) and one.value in (None, ABSENT):
                    return Constant(ABSENT)
            first, second = self._same_kind(found, other)
            better = self._ordered(ast.Gt() if greatest else ast.Lt(), second, first)
            assert not isinstance(better, bool)
            worse = sa.and_(first.sql.is_not(None), second.sql.is_not(None))
            sql = sa.case((better, second.sql), (worse, first.sql))
            bound = max(first.kind.bound, second.kind.bound)
            digits = first.kind.digits and second.kind.digits and tuple(map(max, first.kind.digits, second.kind.digits))
            found = Value(sql, replace(first.kind, bound=bound, digits=digits))  # type: ignore[arg-type]
        return found

    # any() and all()

    def _quantifier(self, node: ast.GeneratorExp | ast.ListComp, every: bool, scope: Scope) -> Condition:
        if not every:
            return self._any(node, scope, lambda inner: self._exact(node.elt, inner))
        # Where a relation cannot be reached, all() is false and not true of nothing.
        unmet = self._any(node, scope, lambda inner: negated(self._exact(node.elt, inner)), unreachable=True)
        return negated(unmet)

    def _reachable(self, found: Many) -> Condition:
        """Whether no None is on the way to the objects of a relation."""
        if len(found.aliases) == 1:
            return True
        return Related(found.target, found.aliases[:-1], found.conditions[:-1]).exists()

    def _any(
        self, node: Any, scope: Scope, test: Callable[[Scope], Condition], depth: int = 0, unreachable: bool = False
    ) -> Condition:
        """Whether the test holds for an element of a comprehension, from its loop number ``depth`` on.

        What cannot be looped over, since a None is on the way to it, has no elements; or one for which the test holds,
        where ``unreachable`` is true.
        """
        if depth == len(node.generators):
            return test(scope)
        part = node.generators[depth]
        if part.is_async:
            raise self.refuse("asynchronous loops are not translated", node=part.iter)

        def rest(inner: Scope) -> Condition:
            met: Condition = True
            for each in part.ifs:
                met = both(met, self._exact(each, inner))
                if met is False:
                    return False
            return both(met, self._any(node, inner, test, depth + 1, unreachable))

        iterable = self.value(part.iter, scope)
        if isinstance(iterable, Constant):
            if iterable.value is None or iterable.value is ABSENT:
                return unreachable
            items = list(iterable.value)
            if len(items) > 500:
                raise self.refuse(
                    "a loop over more than 500 constants is not translated", "Write `in`.", node=part.iter
                )
            return either(*(rest(scope.with_names(memory.unpack(part.target, item))) for item in items))
        if not isinstance(iterable, Many) or not isinstance(part.target, ast.Name):
            raise self.refuse("a loop is over a relation or over constants", node=part.iter)
        inner = rest(scope.with_names({part.target.id: Entity(iterable.target)}))
        missing: Condition = negated(self._reachable(iterable)) if unreachable else False
        if inner is False:
            return missing
        conditions = iterable.conditions if inner is True else (*iterable.conditions, inner)
        return either(missing, Related(iterable.target, iterable.aliases, conditions).exists())
