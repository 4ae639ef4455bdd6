"""A cache of clauses: the next use of a query only binds its values, without a new translation. A translation depends
on the syntax tree, the models, and the values of expressions that read no row. It records these values in the order in
which it reads them. A cached clause is reused if the values would lead to the same decisions: a value that the
translation inspected must be equal, other values must have the same type, and the code that made the parameters must
make the same number of parameters of the same types. The comparison stops at the first difference, so that no
expression is evaluated that a translation would not evaluate. A translation that reads other data (for example the
source of a function that it calls) is not cached.
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
    """Makes the values of parameters instead of the parameters."""

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
        return repr(value)  # distinguishes 0.0 from -0.0, and is equal for NaN
    if kind is tuple:
        parts = tuple(_pin(each) for each in value)
        return _UNKNOWN if _UNKNOWN in parts else (tuple(map(type, value)), parts)
    if kind is BuiltinFunctionType or kind is type:
        return value
    return _UNKNOWN


Getter: TypeAlias = "Callable[[Leaf], Any]"


def _getter(node: ast.expr, leaf: Leaf) -> Getter:
    """Return a function that returns the value of a name outside of a query, or _UNKNOWN if that needs more than a
    lookup.

    It avoids creating the scope in which a translation evaluates expressions: that takes longer than the rest of the
    second use of a query. It can be used for each function with the code of ``leaf``.
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
    """A recorded read without its value: the properties that another value must share, and the parameters to fill."""

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
    """A copy of a parameter with another value. Its unique name is only created when SQLAlchemy reads it: while
    compiling a statement, not while executing a compiled one. Creating the name takes longer than all the rest. A plain
    copy would have the name of the original, and SQLAlchemy would take both for one parameter.
    """

    inherit_cache = True

    def __init__(self, state: dict[str, Any], value: Any) -> None:
        self.__dict__ = {**state, "value": value}

    @functools.cached_property
    def _named(self) -> Any:
        return sa.BindParameter(None, None, self.type, unique=True)  # kept alive, because its name contains its id()

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
        """Return a copy. It may keep the name, so create the name first."""
        _ = self.key
        return super()._clone(*args, **options)


_NAMES = ("key", "_identifying_key", "_anon_map_key")


class Template:
    """A cached clause, whose parameters can take other values."""

    def __init__(self, clause: Any, reads: tuple[_Expected, ...], models: tuple[Any, ...]) -> None:
        self.clause = clause
        self.reads = reads
        self.models = models
        self.binds = [bind for read in reads for _, binds, _ in read.claims for bind in binds]
        self.keys = [bind.key for bind in self.binds]
        # The attributes that a parameter shares with its replacements.
        blank = [sa.BindParameter(None, None, bind.type, unique=True, expanding=bind.expanding) for bind in self.binds]
        self.states = [{name: each for name, each in bind.__dict__.items() if name not in _NAMES} for bind in blank]

    def values(self, leaves: Sequence[Leaf], scopes: list[Scope | None]) -> list[Any] | None:
        """Return the values of the parameters for the current values of the names; None if the clause would differ.
        ``scopes`` are the scopes of the leaves; a missing one is created in the list if needed.
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
        """Return a SELECT of the clause's models, with this clause as its condition."""
        return sa.select(*self.models).where(Prepared(self, None))

    @functools.cached_property
    def state(self) -> dict[str, Any]:
        """Return the attributes of a SELECT of the clause's models, except its condition."""
        return sa.select(*self.models).__dict__


class Selected(sa.Select[Any]):
    """A SELECT by a cached clause with other values. Unless it is changed, it is executed as the statement of its
    template with parameters: SQLAlchemy stores in a statement the key of its compiled form, and making that key takes
    as long as executing the statement. A method such as ``order_by`` returns a plain SELECT.
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
    """A cached clause with other values; ``values`` is None for the values of its translation. The whole clause is only
    created when SQLAlchemy traverses it. SQLAlchemy's cache of compiled statements identifies it by its template and
    its parameters.
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
        """The parameters of the clause."""
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
        _ = self.binds  # create them first: a copy needs the same ones
        return super()._clone(**options)

    def _copy_internals(self, **options: Any) -> None:
        super()._copy_internals(**options)
        self.template = None  # a copy may differ, for example if an alias replaces a table

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
    """Return the cached template of a query for ``models`` and the new values for it; or the clause itself if it is
    not cached."""
    # The precision of the thread's decimal context decides whether Decimals are exact.
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
    # An alias is made for one statement, so that its clause would never be reused.
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
    """Remove all cached clauses."""
    with _writing:
        _kept.clear()


def clause(query: Query, models: tuple[Any, ...], dialect: Any) -> Checked:
    """Return the condition of a query for ``models``, with the current values of the names outside of it."""
    found = _kept_for(query, models, dialect)
    return Prepared(*found) if isinstance(found, tuple) else found


def criteria(query: Query, base: type[Any]) -> list[Any]:
    """Return SQLAlchemy options that load only the rows of a class and its subclasses for which a query holds."""
    if sa.inspect(base, raiseerr=False) is not None:
        return [orm.with_loader_criteria(base, clause(query, (base,), None), include_aliases=True)]
    return [option for each in base.__subclasses__() for option in criteria(query, each)]


def select(query: Query, models: tuple[Any, ...]) -> sa.Select[Any]:
    """Return a SELECT of the rows for which a query holds."""
    found = _kept_for(query, models, None)
    return Selected(*found) if isinstance(found, tuple) else sa.select(*models).where(found)
