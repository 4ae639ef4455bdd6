"""Keep the clauses of queries, so that the next use of a query binds its values and builds nothing.

A translation decides by the syntax tree, by the models, and by the values of expressions that read no row. It records
those values in the order in which it reads them. A kept clause serves again if each of them would lead to the same
decisions: a value that the translation looked at must be the same, of the others the type must be, and the code that
made the parameters of the first value makes the same number of parameters of the same types. The first value that
differs ends the comparison, so that nothing is evaluated that a translation would not evaluate. What a translation
reads beside that (the source of a function that it calls, for example) is not recorded: it is not kept.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import functools
import threading
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.sql import visitors
from sqlalchemy.sql.selectable import AliasedReturnsRows, Join

from kirsch_query import sql
from kirsch_query.emit import Checked, dialect_name
from kirsch_query.errors import Refused
from kirsch_query.scope import ABSENT, constant
from kirsch_query.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_query.scope import Scope
    from kirsch_query.trace import Leaf, Query, Read

MOST_KEYS = 512
"""How many pairs of a query and its models have kept clauses; the oldest gives way."""
MOST_CLAUSES = 8
"""How many clauses each of them keeps: one for each number of prefixes, for example."""


class _Values(sql.Translator):
    """Makes the values of parameters, and not the parameters."""

    def literal(self, value: Any, type_: Any) -> Any:
        return value, type_


_VALUES = _Values()
_UNKNOWN = object()
_FREE = object()
_UNCHANGING = frozenset({bool, int, str, bytes, float, type(None), datetime.date, datetime.datetime, decimal.Decimal})
_PLAIN = (bool, int, str, bytes, type(None), type(ABSENT), datetime.date, datetime.timedelta)


def _pin(value: Any) -> Any:
    """Return a key that is equal for two values of one type only if translations treat them alike; else _UNKNOWN."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (float, decimal.Decimal):
        return repr(value)  # tells 0.0 from -0.0, and knows NaN
    if kind is tuple:
        parts = tuple(_pin(each) for each in value)
        return _UNKNOWN if _UNKNOWN in parts else (tuple(map(type, value)), parts)
    if kind is BuiltinFunctionType or kind is type:
        return value
    return _UNKNOWN


Getter: TypeAlias = "Callable[[Leaf], Any]"


def _getter(node: ast.expr, leaf: Leaf) -> Getter:
    """A function that gives the value of a name around a query; _UNKNOWN if reading it takes more than that.

    It skips the scope in which the expressions of a translation are evaluated: making one takes longer than all else
    that the second use of a query does. It serves each function that has the leaf's code.
    """
    function, name = leaf.function, node.id if isinstance(node, ast.Name) else ""
    code = None if function is None else function.__code__
    if not name or name in leaf.source.rows or leaf.source.private:
        return lambda _: _UNKNOWN
    if code is not None and name in code.co_freevars:
        at = code.co_freevars.index(name)

        def cell(leaf: Leaf) -> Any:
            if name in leaf.given:
                return leaf.given[name]
            try:
                return leaf.function.__closure__[at].cell_contents
            except ValueError:  # not assigned yet
                return _UNKNOWN

        return cell
    if code is None or name in code.co_varnames:
        return lambda leaf: leaf.given.get(name, _UNKNOWN)
    return lambda leaf: leaf.given[name] if name in leaf.given else leaf.function.__globals__.get(name, _UNKNOWN)


class _Expected:
    """A read, without the value that it had: what another value must have in common with it, and what it fills."""

    __slots__ = ("claims", "get", "last", "leaf", "node", "pin", "type")

    def __init__(self, read: Read, pin: Any, leaf: Leaf) -> None:
        self.node = read.node
        self.leaf = read.leaf
        self.type = type(read.value)
        self.pin = pin
        self.claims = tuple(read.claims)
        self.get = _getter(read.node, leaf)
        self.last: tuple[Any, list[Any]] = (_UNKNOWN, [])
        """The last value of a type that cannot change, and what the parameters have for it."""

    def values(self, value: Any) -> list[Any] | None:
        """Return the values of the parameters for another value; None if the clause would differ."""
        if type(value) is not self.type or (self.pin is not _FREE and _pin(value) != self.pin):
            return None
        found = []
        for shape, binds, binder in self.claims:
            try:
                new_shape, pairs = binder(_VALUES, value)
            except Refused:
                return None
            if new_shape != shape or len(pairs) != len(binds):
                return None
            for bind, (new, type_) in zip(binds, pairs, strict=True):
                if type_ is not bind.type and repr(type_) != repr(bind.type):
                    return None
                found.append(new)
        if self.type in _UNCHANGING:
            self.last = (value, found)
        return found


class _Parameter(sa.BindParameter[Any]):
    """A parameter like another one with a value of its own. It takes its unique name when SQLAlchemy asks for it.

    SQLAlchemy does so when it compiles a statement, and not when it executes one that is compiled. Making the name
    takes longer than all the rest. Copies of a parameter would have its name: SQLAlchemy would take them for one.
    """

    inherit_cache = True

    def __init__(self, state: dict[str, Any], value: Any) -> None:
        self.__dict__ = {**state, "value": value}

    @functools.cached_property
    def _named(self) -> Any:
        return sa.BindParameter(None, None, self.type, unique=True)  # held, since its name is made of its id()

    @functools.cached_property
    def key(self) -> Any:  # type: ignore[override]
        return self._named.key

    @functools.cached_property
    def _identifying_key(self) -> Any:  # type: ignore[override]
        return self._named._identifying_key

    @functools.cached_property
    def _anon_map_key(self) -> Any:  # type: ignore[override]
        return self._named._anon_map_key

    def _clone(self, *args: Any, **options: Any) -> Any:
        """A copy. It may keep the name, so that the name must be known."""
        _ = self.key
        return super()._clone(*args, **options)


_NAMES = ("key", "_identifying_key", "_anon_map_key")


class Template:
    """A clause whose parameters other values can take."""

    def __init__(self, clause: Any, reads: tuple[_Expected, ...], models: tuple[Any, ...]) -> None:
        self.clause = clause
        self.reads = reads
        self.models = models
        self.binds = [bind for read in reads for _, binds, _ in read.claims for bind in binds]
        self.keys = [bind.key for bind in self.binds]
        # The attributes that a parameter shares with all parameters that replace it.
        blank = [sa.BindParameter(None, None, bind.type, unique=True, expanding=bind.expanding) for bind in self.binds]
        self.states = [{name: each for name, each in bind.__dict__.items() if name not in _NAMES} for bind in blank]

    def values(self, leaves: Sequence[Leaf], scopes: list[Scope | None]) -> list[Any] | None:
        """Return the values of the parameters for the present values of the names; None if the clause would differ.

        ``scopes`` are those of the leaves; one that is needed is made there.
        """
        found: list[Any] = []
        for read in self.reads:
            leaf = leaves[read.leaf]
            value = read.get(leaf)
            if value is _UNKNOWN:
                scope = scopes[read.leaf] = scopes[read.leaf] or leaf.scope({})
                value = constant(read.node, scope)
            last, known = read.last
            if last is not value:
                new = read.values(value)
                if new is None:
                    return None
                known = new
            found += known
        return found

    @functools.cached_property
    def statement(self) -> Any:
        """A SELECT of the clause's models by it."""
        return sa.select(*self.models).where(Prepared(self, None))

    @functools.cached_property
    def state(self) -> dict[str, Any]:
        """Return the attributes of a SELECT of the clause's models, except its condition."""
        return sa.select(*self.models).__dict__


class Selected(sa.Select[Any]):
    """The SELECT by a kept clause with values of its own.

    Executed as it is, it is its template's own statement with parameters: SQLAlchemy keeps in a statement the key by
    which it finds what it has compiled, and takes as long to make a key as to execute the statement. A method such as
    ``order_by`` makes a plain SELECT of it.
    """

    inherit_cache = True

    def __init__(self, template: Template, values: list[Any] | None) -> None:
        self.__dict__ = {**template.state, "_where_criteria": (Prepared(template, values),)}

    def _execute_on_connection(self, connection: Any, distilled_params: Any, execution_options: Any) -> Any:
        if type(self) is not Selected or (distilled_params and distilled_params != [{}]):
            return super()._execute_on_connection(connection, distilled_params, execution_options)
        prepared: Any = self._where_criteria[0]
        template = prepared.template
        parameters = [dict(zip(template.keys, prepared.values, strict=True))] if prepared.values else ()
        return connection._execute_clauseelement(template.statement, parameters, execution_options)

    def _plain(self, made: Any) -> Any:
        if type(self) is Selected:
            made.__class__ = sa.Select
        return made

    def _generate(self) -> Any:
        return self._plain(super()._generate())

    def _clone(self, **options: Any) -> Any:
        return self._plain(super()._clone(**options))


class Prepared(Checked):
    """A kept clause with values of its own, or with those for which it was made where ``values`` is None.

    The whole clause is made when SQLAlchemy first looks into it. SQLAlchemy's cache of compiled statements knows it by
    its template and its parameters.
    """

    inherit_cache = True

    def __init__(self, template: Template, values: list[Any] | None) -> None:
        self.template: Template | None = template
        self.values = values
        clause = template.clause
        self.refusals = clause.refusals
        self.read = clause.read
        self.classes = clause.classes
        self._propagate_attrs = clause._propagate_attrs
        self._has_args = True

    @functools.cached_property
    def binds(self) -> list[Any]:
        """The clause's parameters."""
        assert self.template is not None
        return self.template.binds if self.values is None else list(map(_Parameter, self.template.states, self.values))

    @functools.cached_property
    def clause_expr(self) -> Any:  # type: ignore[override]
        assert self.template is not None
        if self.values is None:
            return self.template.clause.clause_expr
        new = {id(old): bind for old, bind in zip(self.template.binds, self.binds, strict=True)}

        def replaced(element: Any, **_: Any) -> Any:
            if isinstance(element, sa.BindParameter):
                return new.get(id(element), element)
            if isinstance(element, sa.ColumnClause | sa.TableClause | AliasedReturnsRows | Join):
                return element
            return None

        return visitors.replacement_traverse(self.template.clause.clause_expr, {}, replaced)

    def _clone(self, **options: Any) -> Any:
        _ = self.binds  # which a copy has too
        return super()._clone(**options)

    def _copy_internals(self, **options: Any) -> None:
        super()._copy_internals(**options)
        self.template = None  # a copy may differ, when an alias takes the place of a table for example

    def _gen_cache_key(self, anon_map: Any, bindparams: Any) -> Any:
        if self.template is None or self._annotations:
            return super()._gen_cache_key(anon_map, bindparams)
        number, found = anon_map.get_anon(self)
        if found:
            return (number, Prepared)
        if bindparams is not None:
            bindparams += self.binds
        return (number, Prepared, self.template)


_kept: dict[Any, tuple[Template, ...]] = {}
_writing = threading.Lock()


def _kept_for(query: Query, models: tuple[Any, ...], dialect: Any) -> tuple[Template, list[Any] | None] | Checked:
    """Return the template of a query for some models, and other values for it; the clause itself if none is kept."""
    # The number of digits in the thread's context decides if Decimals are exact.
    key = (query.form(), models, dialect and dialect_name(dialect), decimal.getcontext().prec < 28)
    leaves = query.leaves()
    scopes: list[Scope | None] = [None] * len(leaves)
    for template in _kept.get(key, ()):
        values = template.values(leaves, scopes)
        if values is not None:
            return template, values
    translator = sql.Translator(dialect)
    spaces = [leaf.space() if scope is None else scope.space for leaf, scope in zip(leaves, scopes, strict=True)]
    translator.trace = trace = Trace(spaces)
    rows = tuple(map(sql.Entity, models))
    made = sql.checked(query.translate(translator, rows, positive=True), translator)
    # An alias is made for one statement, and would be kept in vain.
    if not trace.kept or not all(isinstance(each, (type, sa.Table)) for each in models):
        return made
    reads = []
    for each in trace.reads:
        pin = _pin(each.value) if each.pinned else _FREE
        if pin is _UNKNOWN:
            return made
        reads.append(_Expected(each, pin, leaves[each.leaf]))
    template = Template(made, tuple(reads), models)
    with _writing:
        _kept[key] = (template, *_kept.pop(key, ())[: MOST_CLAUSES - 1])
        while len(_kept) > MOST_KEYS:
            del _kept[next(iter(_kept))]
    return template, None


def forget() -> None:
    """Forget all kept clauses."""
    with _writing:
        _kept.clear()


def clause(query: Query, models: tuple[Any, ...], dialect: Any) -> Checked:
    """Return the condition of a query for some models, with the values that the names around it have now."""
    found = _kept_for(query, models, dialect)
    return Prepared(*found) if isinstance(found, tuple) else found


def criteria(query: Query, base: type[Any]) -> list[Any]:
    """Return options by which SQLAlchemy loads no rows of a class and its subclasses but those of a query."""
    if sa.inspect(base, raiseerr=False) is not None:
        return [orm.with_loader_criteria(base, clause(query, (base,), None), include_aliases=True)]
    return [option for each in base.__subclasses__() for option in criteria(query, each)]


def select(query: Query, models: tuple[Any, ...]) -> sa.Select[Any]:
    """The SELECT of the rows for which a query holds."""
    found = _kept_for(query, models, None)
    return Selected(*found) if isinstance(found, tuple) else sa.select(*models).where(found)
