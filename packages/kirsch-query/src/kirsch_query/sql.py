"""Exact translation of a query to one SQLAlchemy condition, or a refusal. Each expression becomes a constant, or an SQL
value of a known kind. If the query holds in memory, the SQL condition is true; otherwise it is false or NULL, which are
equivalent in a WHERE. A negation must be true for both of these, so it is ``(condition) IS NOT TRUE``.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from kirsch_query import memory
from kirsch_query.aggregating import Aggregating
from kirsch_query.comparing import MOST_LOOPED
from kirsch_query.documents import is_document, length_of, text_of
from kirsch_query.emit import Checked, op
from kirsch_query.errors import Refused
from kirsch_query.kinds import INT32, NUMBERS, TEXTS, Kind
from kirsch_query.matching import STRIPS
from kirsch_query.relations import conjoined
from kirsch_query.scope import ABSENT, Item, Late, Scope, attribute_name, inlined, inlined_with, is_builtin
from kirsch_query.terms import (
    DEEPEST,
    IN_MEMORY,
    SQL,
    Answer,
    Condition,
    Constant,
    Entity,
    Found,
    Many,
    Note,
    Record,
    Related,
    Several,
    Value,
    as_int,
    as_sql,
    both,
    either,
    is_condition,
    is_not,
    negated,
    reachable,
    solid,
    there,
)
from kirsch_query.texts import AFTER, BEFORE, SOUGHT, around, is_lower, next_prefix

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_WORDS: dict[type[ast.expr], str] = {
    ast.Lambda: "a lambda", ast.Dict: "a dict with values of a row",
    ast.Set: "a set with values of a row", ast.Starred: "*", ast.GeneratorExp: "a comprehension",
    ast.ListComp: "a comprehension", ast.SetComp: "a comprehension", ast.DictComp: "a comprehension",
}  # fmt: skip

_AGGREGATE = (
    "a relation is asked by any(), all(), len(), sum(), min() and max() of one loop",
    "Write sum(o.n for o in b.items).",
)
_CONVERSION = ("databases convert in their own ways", IN_MEMORY)
_REASONS = {
    "str": ("each database writes numbers in its own way", IN_MEMORY),
    "int": _CONVERSION,
    "float": _CONVERSION,
    "getattr": ("the name is not in the source", "Use comparison(name, '<', value)."),
    "sum": _AGGREGATE,
    "min": _AGGREGATE,
    "max": _AGGREGATE,
}
"""Why builtin functions are refused, and what to write instead."""


def _near(position: int) -> int:
    """Clamp a position in text: all positions beyond the longest text are equivalent."""
    return max(-_LONGEST, min(position, _LONGEST))


_LONGEST = INT32 // 2 - 1


class Translator(Aggregating):
    """One translation. If ``dialect`` is unknown, refusals of single databases are raised when SQL is compiled."""

    # Conditions

    def condition(self, node: ast.expr, scope: Scope, positive: bool = True) -> Condition:
        """Return the condition for an expression. If lenient, it may hold for more rows, or for fewer if not
        positive."""
        try:
            return self._within(self._condition, node, scope, positive)
        except Refused as refused:
            if not self.lenient or isinstance(node, ast.BoolOp) or is_not(node):
                raise
            self.left.append(refused)
            return positive

    def _within(self, translate: Callable[..., T], node: ast.expr, scope: Scope, *more: Any) -> T:
        """Translate an expression; refusals and notes meanwhile refer to it."""
        outer, self.at = self.at, (node, scope)
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise self.refuse("the expression is nested too deeply")
            return translate(node, scope, *more)
        finally:
            self.at = outer
            self.depth -= 1

    def within(self, translate: Callable[[], T], node: ast.expr, scope: Scope) -> T:
        """Do the same as :meth:`_within` for an expression that is not part of another one."""
        return self._within(lambda *_: translate(), node, scope)

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
            if isinstance(found, Answer):
                return found.condition
            return found if isinstance(found, bool | sa.ColumnElement) else self._truth(found)
        if isinstance(node, ast.Name) and isinstance(binding := scope.names.get(node.id), Late):
            return self.condition(binding.node, binding.scope, positive)
        return self._truth(self.value(node, scope))

    def _boolean(self, node: ast.BoolOp, scope: Scope, positive: bool) -> Condition:
        """Translate ``and`` and ``or``. As in Python, operands after a deciding constant are not evaluated."""
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
        if len(parts) == 1:
            return parts[0]
        return sa.or_(*parts) if decides else sa.and_(*conjoined(parts))

    def _choice(self, node: ast.IfExp, scope: Scope) -> Condition:
        exact = self._exact(node.test, scope)
        if isinstance(exact, bool):
            return self.condition(node.body if exact else node.orelse, scope)
        then, other = self._exact(node.body, scope), self._exact(node.orelse, scope)
        return either(both(exact, then), both(negated(exact), other))

    def _exact(self, node: ast.expr, scope: Scope) -> Condition:
        """Return a condition without leniency, where that would be wrong."""
        lenient, self.lenient = self.lenient, False
        try:
            return self.condition(node, scope)
        finally:
            self.lenient = lenient

    def _truth(self, found: Found) -> Condition:
        """Return the condition that a value is true, by its kind."""
        if isinstance(found, Constant):
            return found.value is not ABSENT and bool(found.value)
        if isinstance(found, Related):
            cls = sa.inspect(found.target).mapper.class_
            if hasattr(cls, "__bool__") or hasattr(cls, "__len__"):
                raise self.refuse(f"{cls.__name__} decides itself what counts as true", "Write: is not None.")
            return found.exists()
        if isinstance(found, Many):
            return Related(found.target, found.aliases, found.conditions).exists()
        if isinstance(found, Several):
            return both(bool(found.items), *there(found))
        if isinstance(found, Entity | Record):
            raise self.refuse("whether a whole row counts as true is not decided by the database")
        if found.of_related is not None:
            owner, field = found.of_related
            return owner.where(self._truth(field))
        name = found.kind.name
        if name == "json":
            return op("json_true", found.sql)
        if name == "span":
            return found.sql != sa.literal(0, sa.Integer())
        if name == "bool":
            return op("is_true", found.sql) if found.column else found.sql
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
        """Return an expression as an SQL value or a constant."""
        if isinstance(node, ast.Name) and node.id in scope.names:
            binding = scope.names[node.id]
            if isinstance(binding, Late):
                return self.value(binding.node, binding.scope)
            return Constant(binding.value) if isinstance(binding, Item) else binding
        if not self._reads_rows(node, scope) and not isinstance(node, ast.Starred):
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
            ast.JoinedStr: self._formatted,
            ast.Tuple: self._several,
            ast.List: self._several,
        }
        return self._within(handlers.get(type(node), self._other), node, scope)

    def _several(self, node: ast.Tuple | ast.List, scope: Scope) -> Found:
        items = self.items(node, scope)
        if any(isinstance(each, Constant) and each.is_absent() for each in items):
            return Constant(ABSENT)
        return Several(tuple if isinstance(node, ast.Tuple) else list, items)

    def items(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> tuple[Found, ...]:
        """Return the items of a display, including the items of starred constants."""
        found: list[Found] = []
        for each in node.elts:
            star = isinstance(each, ast.Starred) and not self._reads_rows(each, scope)
            item = self.value(each.value if star else each, scope)  # type: ignore[attr-defined]
            if star and isinstance(item, Constant) and isinstance(item.peek(), list | tuple | set | frozenset):
                found += map(Constant, item.value)
            elif star:
                raise self.refuse("what is behind a star is not translated", "Give a list or a tuple.", node=each)
            else:
                found.append(item)
        return tuple(found)

    def _other(self, node: ast.expr, _: Scope) -> Found:
        what = _WORDS.get(type(node), f"an expression of the kind {type(node).__name__}")
        raise self.refuse(f"{what} is not translated")

    def _as_value(self, node: ast.expr, scope: Scope) -> Found:
        """Return a condition as a boolean value."""
        return self._boolean_value(self._exact(node, scope))

    def _boolean_value(self, found: Condition) -> Found:
        if isinstance(found, bool):
            return Constant(found)
        sql = sa.case((found, sa.true()), else_=sa.false())
        return Value(sql, Kind("bool", sa.Boolean(), bound=1), column=True)

    def _answer_value(self, found: Answer) -> Found:
        """Return the boolean value of an answer; NULL if it is absent."""
        if found.present is True:
            return self._boolean_value(found.condition)
        if found.present is False:
            return Constant(ABSENT)
        sql = sa.case((as_sql(found.condition), sa.true()), (found.present, sa.false()))
        return Value(sql, Kind("bool", sa.Boolean(), bound=1))

    # Subscripts and calls

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Found:
        owner = self.value(node.value, scope)
        if isinstance(owner, Entity | Related):
            raise self.refuse("an object is not indexed", "Write b.price, which reads the items of mappings too.")
        if isinstance(owner, Several):
            number = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if type(number) is int and number < len(owner.items):
                return owner.items[number]
            raise self.refuse("a tuple is indexed by a number that is written out")
        if isinstance(owner, Value) and is_document(owner) and not isinstance(node.slice, ast.Slice):
            return self.part_of(owner, node.slice)
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
        if not isinstance(index, Constant) or type(index.value) is not int:
            raise self.refuse("text is indexed by a constant")
        at = _near(index.value)
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
        if not isinstance(found, Constant) or type(found.value) is not int:
            raise self.refuse("text is sliced by constants")
        at = _near(found.value)
        return sa.literal(at, sa.Integer()) if at >= 0 else op("from_end", owner.sql, sa.literal(-at, sa.Integer()))

    def _call(self, node: ast.Call, scope: Scope, as_condition: bool = False) -> Any:
        """Translate a call: return a value; or with ``as_condition`` a condition or an answer."""
        if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
            raise self.refuse("* and ** are not translated")
        keywords = {each.arg: each.value for each in node.keywords if each.arg}
        found: Any = None
        if isinstance(node.func, ast.Attribute) and self._reads_rows(node.func.value, scope):
            found = self._method(node, node.func, keywords, scope, as_condition)
        elif self._reads_rows(node.func, scope):
            raise self.refuse("which function is called depends on a row")
        else:
            function = self.known(node.func, scope).value
            found = self._function(function, node, keywords, scope, as_condition)
        if as_condition:
            return found
        if isinstance(found, Answer):
            return self._answer_value(found)
        return self._boolean_value(found) if isinstance(found, bool | sa.ColumnElement) else found

    def _function(
        self, function: Any, node: ast.Call, keywords: dict[str, ast.expr], scope: Scope, as_condition: bool
    ) -> Any:
        arguments = node.args
        if not keywords and len(arguments) == 1:
            if is_builtin(function, "any", "all") and isinstance(arguments[0], memory.LOOPS):
                return self._quantifier(arguments[0], is_builtin(function, "all"), scope)
            kinds = (ast.ListComp, ast.SetComp) if is_builtin(function, "len") else memory.LOOPS
            if is_builtin(function, "sum", "min", "max", "len") and isinstance(arguments[0], kinds):
                return self._aggregate(function.__name__, arguments[0], scope)
            if is_builtin(function, "bool"):
                return self._exact(arguments[0], scope)
            if is_builtin(function, "len"):
                return self._length(node, scope)
            if is_builtin(function, "abs"):
                return self._absolute(node, scope)
            if is_builtin(function, "min", "max") and isinstance(arguments[0], ast.Tuple | ast.List):
                arguments = arguments[0].elts
        own = getattr(function, "__self__", None)
        if type(own) is str and function.__name__ in ("startswith", "endswith") and len(arguments) == 1:
            prefix = function.__name__ == "startswith"
            owner = Value(self._text(Constant(own), BEFORE if prefix else AFTER), Kind("str", SOUGHT), column=True)
            return self._affix(prefix, owner, arguments[0], scope)
        if is_builtin(function, "min", "max") and len(arguments) > 1 and not keywords:
            return self._extreme(is_builtin(function, "max"), arguments, scope)
        if is_builtin(function, "round") and not keywords and len(arguments) in (1, 2):
            return self._rounded_number(node, scope)
        if is_builtin(function, "isinstance") and not keywords and len(arguments) == 2:
            return self._is_instance(arguments[0], self.known(arguments[1], scope).value, scope)
        searched = None if keywords else self._pattern(function, arguments, scope)
        if searched is not None:
            return self._searched(*searched, scope, as_condition)
        inner = inlined(function, arguments, keywords, scope)
        if inner is not None:
            self.keep_nothing()
            return self._inside(inner, as_condition)
        name = getattr(function, "__name__", repr(function))
        known = _REASONS.get(name) if function is getattr(builtins, name, None) else None
        why, hint = known or ("it has no source that is one expression", IN_MEMORY)
        raise self.refuse(f"{name}() of a row is not translated: {why}", hint)

    def _inside(self, inner: Scope, as_condition: bool) -> Any:
        """Translate the single expression of an inlined function."""
        body = inner.source.body
        if as_condition and isinstance(body, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call) and is_condition(body):
            return self._exact(body, inner)
        return self.value(body, inner)

    def _method(
        self,
        node: ast.Call,
        function: ast.Attribute,
        keywords: dict[str, ast.expr],
        scope: Scope,
        as_condition: bool,
    ) -> Any:
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
                    return self._inside(inner, as_condition)
            raise self.refuse(f"the method {name} is not one expression whose source is known")
        if isinstance(owner, Value) and not keywords:
            if is_document(owner):
                if name == "get" and len(node.args) == 1:
                    return self.part_of(owner, node.args[0], get=True)
                owner = text_of(owner)
            if owner.kind.name in TEXTS and name in ("startswith", "endswith") and len(node.args) == 1:
                return self._affix(name == "startswith", owner, node.args[0], scope)
            if owner.kind.name == "str" and name == "lower" and not node.args:
                self.note("the letters change that are ASCII or in the constant; no others matter")
                return Value(op("lower", owner.sql), Kind("lower", sa.String()))
            if owner.kind.name == "str" and name in STRIPS and len(node.args) < 2:
                return self._stripped(name, owner, node.args, scope)
            if owner.kind.name == "aware" and name == "astimezone" and len(node.args) == 1:
                return self._in_zone(owner, node.args[0], scope)
            if owner.kind.name in ("date", "datetime", "local") and not node.args:
                if name in ("weekday", "isoweekday"):
                    sql = op("weekday", owner.sql)
                    return Value(
                        sql + sa.literal(1, sa.Integer()) if name == "isoweekday" else sql,
                        Kind("int", sa.BigInteger(), bound=7),
                    )
                if name == "date" and owner.kind.name != "date":
                    return Value(op("date", owner.sql), Kind("date", sa.Date()))
        hint = IN_MEMORY
        if name in ("upper", "casefold", "swapcase", "title", "capitalize"):
            hint = f"Databases change fewer letters than Python. Compare .lower() with a constant. {IN_MEMORY}"
        raise self.refuse(f".{name}() is not exact on every database", hint)

    def _affix(self, prefix: bool, owner: Value, argument: ast.expr, scope: Scope) -> Answer:
        affix = self.value(argument, scope)
        if owner.of_related is not None:
            related, field = owner.of_related
            answer = self._affixed(prefix, field, affix)
            return Answer(related.where(answer.condition), related.where(answer.present))
        return self._affixed(prefix, owner, affix)

    def _affixed(self, prefix: bool, owner: Value, affix: Found) -> Answer:
        if isinstance(affix, Constant):
            if affix.is_nothing():
                return Answer(False, False)
            kind = owner.kind
            shape, bounds = self._affix_bounds(kind, prefix, affix.peek())
            self.claim(affix, shape, bounds, lambda again, value: again._affix_bounds(kind, prefix, value))
            given = iter(bounds)
            texts = [[next(given) for _ in range(number)] for number in shape]
            beside = replace(owner, sql=self._lowered(owner, list(given)))
            parts = (self._affix_constant(prefix, beside, each) for each in texts)
            return Answer(either(*parts), solid(owner))
        if not isinstance(affix, Value) or affix.kind.name != "str" or owner.kind.name != "str":
            raise self.refuse("the prefix or suffix is not text", "Give a constant, or text of another row.")
        return Answer(op("starts" if prefix else "ends", owner.sql, affix.sql), solid(owner, affix))

    def _affix_bounds(self, kind: Kind, prefix: bool, texts: Any) -> tuple[tuple[int, ...], list[SQL]]:
        """Return the numbers of parameters, and the parameters for prefixes or suffixes: the text, and the end of its
        range. Then the parameters for the letters that :meth:`_lowered` replaces.
        """
        shape, bounds = [], []
        given = texts if isinstance(texts, tuple) else (texts,)
        if any(type(each) is not str for each in given):
            raise self.refuse("the prefix or suffix is not text")
        if kind.name == "lower":
            given = tuple(each for each in given if is_lower(each))
        for text in given:
            found = [self.literal(text, SOUGHT)] if text else []
            if text and prefix and (after := next_prefix(text)) is not None:
                found.append(self.literal(after, SOUGHT))
                if "u" in kind.order:
                    found += [self.literal(each, SOUGHT) for each in around(text)]
            shape.append(len(found))
            bounds += found
        return tuple(shape), bounds + (self._letter_bounds(given) if kind.name == "lower" else [])

    def _affix_constant(self, prefix: bool, owner: Value, bounds: list[SQL]) -> Condition:
        if not bounds:
            return owner.sql.is_not(None)
        if not prefix:
            return op("ends", owner.sql, *bounds)
        self.note("a range by code points, which knows no wildcards, and which an index of that order serves")
        order = owner.kind.order
        names = {1: f"text_ge{order}", 2: f"prefix{order}", 4: f"prefix_within{order}"}
        return op(names[len(bounds)], owner.sql, *bounds)

    def _length(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        kind = Kind("int", sa.BigInteger(), bound=INT32)
        if isinstance(found, Many):
            return self._counted(found, True)
        if isinstance(found, Value) and found.kind.name in ("str", "bytes"):
            return Value(op("length" if found.kind.name == "str" else "bytes_length", found.sql), kind)
        if isinstance(found, Value) and is_document(found):
            return length_of(found)
        raise self.refuse("len() is of text, bytes or a relation")

    def _absolute(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS:
            raise self.refuse("abs() is of a number")
        if found.kind.name in ("bool", "int"):
            return Value(op("int_abs", as_int(found)), Kind("int", sa.BigInteger(), bound=found.kind.bound))
        return Value(op("abs", found.sql), found.kind, present=as_sql(solid(found)))

    def _extreme(self, greatest: bool, arguments: list[ast.expr], scope: Scope) -> Found:
        """Translate min() and max() of several arguments: the first of equal ones, as in Python."""
        found, *others = (self.value(each, scope) for each in arguments)
        for other in others:
            for one in (found, other):
                if isinstance(one, Constant) and one.value in (None, ABSENT):
                    return Constant(ABSENT)
            first, second = self._same_kind(found, other)
            better = self._ordered(ast.Gt() if greatest else ast.Lt(), second, first)
            assert not isinstance(better, bool)
            present = as_sql(solid(first, second))
            sql = sa.case((better, second.sql), (present, first.sql))
            found = Value(sql, first.kind.joined(second.kind), present=present)
        return found

    # any() and all()

    def _quantifier(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp, every: bool, scope: Scope) -> Condition:
        if not every:
            return self._any(node, scope, lambda inner: self._exact(node.elt, inner))
        # If a relation cannot be reached, all() is false, although there are no elements.
        unmet = self._any(node, scope, lambda inner: negated(self._exact(node.elt, inner)), unreachable=True)
        return negated(unmet)

    def _any(
        self, node: Any, scope: Scope, test: Callable[[Scope], Condition], depth: int = 0, unreachable: bool = False
    ) -> Condition:
        """Return the condition that the test holds for an element of a comprehension, from its loop ``depth`` on. A
        relation that cannot be reached, because an object on the path is None, has no elements. With ``unreachable`` it
        counts as an element for which the test holds.
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
            items = list(itertools.islice(iterable.value, MOST_LOOPED + 1))  # the iterable may be endless
            if len(items) > MOST_LOOPED:
                raise self.refuse(
                    f"a loop over more than {MOST_LOOPED} constants is not translated", "Write `in`.", node=part.iter
                )
            return either(*(rest(scope.with_names(memory.unpack(part.target, item))) for item in items))
        if isinstance(iterable, Several) and isinstance(part.target, ast.Name):
            bound = [Item(each.value) if isinstance(each, Constant) else each for each in iterable.items]
            met = either(*(rest(scope.with_names({part.target.id: each})) for each in bound))
            present = both(*there(iterable))
            return either(met, negated(present)) if unreachable else both(met, present)
        if not isinstance(iterable, Many) or not isinstance(part.target, ast.Name):
            raise self.refuse("a loop is over a relation or over constants", node=part.iter)
        inner = rest(scope.with_names({part.target.id: Entity(iterable.target)}))
        missing: Condition = negated(reachable(iterable)) if unreachable else False
        if inner is False:
            return missing
        return either(missing, Related(iterable.target, iterable.aliases, iterable.conditions).where(inner))


def checked(found: Condition, translator: Translator) -> Checked:
    """Return a whole condition as one element, which refuses to compile for databases where it is not exact."""
    return Checked(as_sql(found), dict(translator.refusals), frozenset(translator.read), frozenset(translator.classes))


__all__ = ["Condition", "Entity", "Note", "Translator", "checked"]
