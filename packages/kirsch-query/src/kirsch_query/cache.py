"""Keep the clauses of queries, so that the next use of a query binds its values and builds nothing.

A translation decides by the syntax tree, by the models, and by the values of expressions that read no row. It records
those values in the order in which it reads them. A kept clause serves again if each of them would lead to the same
decisions: a value that the translation looked at must be the same, of the others the type must be, and the code that
made the parameters of the first value makes the same number of parameters of the same types. The first value that
differs ends the comparison, so that nothing is evaluated that a translation would not evaluate. What a translation
reads beside that (the source of a function that it calls, for example) is not recorded: it is not kept.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.sql import visitors
from sqlalchemy.sql.selectable import AliasedReturnsRows, Join

from . import sql
from .emit import Checked, dialect_name
from .errors import Refused
from .scope import ABSENT, Scope, Space, constant

if TYPE_CHECKING:
    import ast

    from .query import Where
    from .source import Source

MOST_KEYS = 512
"""How many pairs of a query and its models have kept clauses; the oldest gives way."""
MOST_CLAUSES = 8
"""How many clauses each of them keeps: one for each length of a list, for example."""

Binder: TypeAlias = Callable[[Any, Any, Scope], tuple[Any, list[Any]]]
"""Makes the shape and the parameters of a value, by a translator and in a scope."""


@dataclass(eq=False)
class Read:
    """A value that a translation has read."""

    node: ast.expr
    leaf: int
    """In which of the query's functions."""
    value: Any
    pinned: bool = False
    """Whether the translation depends on the value, and not only on its type."""
    claims: list[tuple[Any, tuple[Any, ...], Binder]] = field(default_factory=list)
    """The parameters that have the value: their shape, themselves, and what makes them of another value."""


class Trace:
    """What one translation reads, in its order."""

    def __init__(self, spaces: list[Space]) -> None:
        self.spaces = spaces
        self.reads: list[Read] = []
        self.kept = True
        self._next = iter(spaces)

    def next_space(self) -> Space:
        """The names around the query's next function."""
        return next(self._next)

    def holds(self, space: Space) -> bool:
        """Whether these are the names around one of the query's own functions."""
        return any(each is space for each in self.spaces)

    def record(self, node: ast.expr, space: Space, value: Any) -> Read:
        leaf = next((at for at, each in enumerate(self.spaces) if each is space), 0)
        read = Read(node, leaf, value)
        self.reads.append(read)
        return read


class _Values(sql.Translator):
    """Makes the values of parameters, and not the parameters."""

    def literal(self, value: Any, type_: Any) -> Any:
        return value, type_


_VALUES = _Values()
_UNKNOWN = object()
_FREE = object()
_PLAIN = (bool, int, str, bytes, type(None), type(ABSENT), datetime.date)


def _pin(value: Any) -> Any:
    """What is equal for two values of one type only if no translation can tell them apart; else _UNKNOWN."""
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


@dataclass(frozen=True, eq=False)
class _Expected:
    """A read, without the value that it had."""

    node: ast.expr
    leaf: int
    type: type[Any]
    pin: Any
    claims: tuple[tuple[Any, tuple[Any, ...], Binder], ...]


class Template:
    """A clause whose parameters other values can take."""

    def __init__(self, clause: Any, reads: tuple[_Expected, ...]) -> None:
        self.clause = clause
        self.reads = reads
        self.binds = [bind for read in reads for _, binds, _ in read.claims for bind in binds]

    def filled(self, sources: list[Source], spaces: list[Space]) -> list[Any] | None:
        """Parameters with the values that the names have now; None where the clause would be another one."""
        found: list[Any] = []
        scopes = [Scope(source, space, {}) for source, space in zip(sources, spaces, strict=True)]
        for read in self.reads:
            scope = scopes[read.leaf]
            value = constant(read.node, scope)
            if type(value) is not read.type or (read.pin is not _FREE and _pin(value) != read.pin):
                return None
            for shape, binds, binder in read.claims:
                try:
                    new_shape, pairs = binder(_VALUES, value, scope)
                except Refused:
                    return None
                if new_shape != shape or len(pairs) != len(binds):
                    return None
                for bind, (new, type_) in zip(binds, pairs, strict=True):
                    if type_ is not bind.type and repr(type_) != repr(bind.type):
                        return None
                    # Not a copy of the first one, which SQLAlchemy would take for the same parameter.
                    found.append(sa.BindParameter(None, new, bind.type, unique=True))
        return found


class Prepared(Checked):
    """A kept clause with values of its own. The whole clause is made when SQLAlchemy first looks into it.

    SQLAlchemy's cache of compiled statements knows it by its template and its parameters.
    """

    inherit_cache = True

    def __init__(self, template: Template, binds: list[Any]) -> None:
        self.template: Template | None = template
        self.binds = binds
        self.refusals = template.clause.refusals
        self._propagate_attrs = template.clause._propagate_attrs
        self._has_args = True

    @functools.cached_property
    def clause_expr(self) -> Any:  # type: ignore[override]
        assert self.template is not None
        new = {id(old): bind for old, bind in zip(self.template.binds, self.binds, strict=True)}

        def replaced(element: Any, **_: Any) -> Any:
            if isinstance(element, sa.BindParameter):
                return new.get(id(element), element)
            if isinstance(element, sa.ColumnClause | sa.TableClause | AliasedReturnsRows | Join):
                return element
            return None

        return visitors.replacement_traverse(self.template.clause.clause_expr, {}, replaced)

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


def clause(query: Where[Any], models: tuple[Any, ...], dialect: Any) -> sa.ColumnElement[bool]:
    """The condition of a query for some models, with the values that the names around it have now."""
    # An alias is made for one statement, and would be kept in vain.
    lasting = all(isinstance(each, type | sa.Table) for each in models)
    key = (query.form(), models, None if dialect is None else dialect_name(dialect)) if lasting else None
    leaves = list(query.leaves())
    spaces = [each.space() for each in leaves]
    sources = [each.source for each in leaves]
    for template in _kept.get(key, ()):
        binds = template.filled(sources, spaces)
        if binds is not None:
            return Prepared(template, binds)
    translator = sql.Translator(dialect)
    translator.trace = trace = Trace(spaces)
    rows = tuple(map(sql.Entity, models))
    made = sql.checked(query.translate(translator, rows, positive=True), translator)
    if key is None or not trace.kept:
        return made
    reads = []
    for each in trace.reads:
        pin = _pin(each.value) if each.pinned else _FREE
        if pin is _UNKNOWN:
            return made
        reads.append(_Expected(each.node, each.leaf, type(each.value), pin, tuple(each.claims)))
    template = Template(made, tuple(reads))
    with _writing:
        _kept[key] = (template, *_kept.pop(key, ())[: MOST_CLAUSES - 1])
        while len(_kept) > MOST_KEYS:
            del _kept[next(iter(_kept))]
    prepared = Prepared(template, template.binds)
    prepared.clause_expr = made.clause_expr
    return prepared
