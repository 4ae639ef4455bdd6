"""Exact grouping of the rows in a database together with the unsaved objects of a session. The database aggregates its
own rows. Each aggregate is split into calls of sum(), min(), max(), len(), any() and all() over the group. For each
call, the database returns partial results, the unsaved objects are aggregated in memory, and both are combined. Python
evaluates the rest of the function. For groups with an unsaved object, Python also evaluates ``having`` and the order;
one statement selects these groups, and another the remaining ones, with a limit if there is one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import memory, terms
from kirsch_query.aggregating import DISTINCT, ONE, ZERO, Measure
from kirsch_query.emit import dialect_name, op
from kirsch_query.errors import Refused
from kirsch_query.groups import Calculation, Grouping, present
from kirsch_query.kinds import INT32, INT64, Kind, python_value
from kirsch_query.merging import MOST_TOGETHER, Asking, Recalled, asynchronous
from kirsch_query.order import arranged, sort_columns, sortable
from kirsch_query.query import where
from kirsch_query.scope import ABSENT, Item, Scope, called, is_builtin
from kirsch_query.source import free_names, shallow
from kirsch_query.sql import Translator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FUNCTIONS = ("sum", "min", "max", "len", "any", "all")


_BEST: dict[str, Callable[[Any], Any]] = {"sum": sum, "min": min, "max": max}


class Partial(NamedTuple):
    """A partial aggregate: two of them, for two sets of rows, can be combined to that of both sets."""

    number: int
    """How many rows there are."""
    whole: int
    """How many of their items are neither None nor absent."""
    there: int
    """How many of their items are not absent."""
    best: Any
    """The aggregate of the whole items; None if there are none. A set of them, or the number of the set's members."""


@dataclass(eq=False)
class Atom:
    """A call of an aggregate such as ``sum`` over a group. ``node`` is its comprehension; None for the number of all
    rows."""

    name: str
    node: Any
    scope: Scope
    group: str
    measure: Measure

    @property
    def kind(self) -> Kind:
        return self.measure.kind

    def partial(self, rows: Sequence[Any]) -> Partial:
        """Return the partial aggregate of rows in memory."""
        if self.node is None:
            return Partial(len(rows), len(rows), len(rows), None)
        elements = [
            each for each in memory.elements(self.node, self.scope.with_names({self.group: Item(rows)})) if each
        ]
        if self.name in ("any", "all"):
            number = sum(memory.truth(self.node.elt, each) is (self.name == "any") for each in elements)
            return Partial(number, number, number, None)
        if self.measure.name == "len":
            return Partial(len(elements), len(elements), len(elements), None)
        values = [memory.value(self.node.elt, each) for each in elements]
        whole = [each for each in values if each is not None and each is not ABSENT]
        there = sum(each is not ABSENT for each in values)
        best: Any = set(whole) if self.measure.name == "distinct" else None
        if whole and self.measure.name != "distinct":
            best = _BEST[self.name](whole)
        return Partial(len(values), len(whole), there, best)

    def together(self, one: Partial, other: Partial) -> Partial:
        """Combine the partial aggregates of two sets of rows."""
        both = [each for each in (one.best, other.best) if each is not None]
        best = both[0] if both else None
        if len(both) == 2:
            best = both[0] | both[1] if self.measure.name == "distinct" else _BEST[self.name](both)
        return Partial(one.number + other.number, one.whole + other.whole, one.there + other.there, best)

    def value(self, found: Partial) -> Any:
        """Return the value of the call for a partial aggregate."""
        name = self.measure.name
        if self.name in ("any", "all"):
            return (found.number > 0) is (self.name == "any")
        if name == "len":
            return found.number
        if found.there < found.number and (name in ("distinct", "sum") or found.number):
            return ABSENT
        if name == "distinct":
            best = len(found.best) if isinstance(found.best, set) else found.best
            return best + (found.whole < found.there)
        if name == "sum":
            return ABSENT if found.whole < found.number else 0 if found.best is None else found.best
        if not found.number or (found.whole < found.number and found.number > 1):
            return ABSENT
        return found.best


class _Split(ast.NodeTransformer):
    """Replaces each aggregate call over the group by a name, and collects the calls."""

    def __init__(self, calculation: Calculation) -> None:
        (self.group,) = calculation.source.rows
        self.scope = calculation.scope([Item(())])
        self.prefix = "atom_"
        while any(self.prefix in line for line in calculation.source.lines):
            self.prefix += "_"
        self.calls: list[tuple[str, ast.Call]] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Call) and self._is_atom(node):
            self.calls.append((f"{self.prefix}{len(self.calls)}", node))
            return ast.copy_location(ast.Name(self.calls[-1][0], ast.Load()), node)
        return self.generic_visit(shallow(node)) if node._fields else node

    def _is_atom(self, node: ast.Call) -> bool:
        if len(node.args) != 1 or node.keywords or not is_builtin(called(node, self.scope), *_FUNCTIONS):
            return False
        (over,) = node.args
        if isinstance(over, memory.LOOPS) and len(over.generators) == 1:
            over = over.generators[0].iter
        return isinstance(over, ast.Name) and over.id == self.group


class Plan:
    """The SQL of one call of :func:`group`: the columns of rows and groups, and how results are read."""

    def __init__(self, asked: Grouping, targets: Sequence[Any], dialect: Any) -> None:
        self.asked = asked
        self.dialect = dialect
        self.translator = Translator(dialect)
        self.rows = list(map(terms.Entity, targets))
        self.columns: list[Any] = []
        """The columns of each row: the parts of the key, then those of the aggregates."""
        self.is_tuple = isinstance(asked.key.source.body, ast.Tuple)
        self.parts = [self._part(each) for each in self._parts(asked.key)]
        self.keys = len(self.columns)
        """How many columns the key has."""
        self.atoms: list[Atom] = []
        self.bodies: dict[str, tuple[ast.expr, Scope, list[str]]] = {}
        """Of each aggregate the expression with names in place of the calls, their scope, and these names."""
        self.numbers: dict[int, Any] = {}
        for name, each in asked.aggregates.items():
            self.bodies[name] = self._body(each)

    def _parts(self, key: Calculation) -> list[ast.expr]:
        body = key.source.body
        return body.elts if isinstance(body, ast.Tuple) else [body]

    def _part(self, node: ast.expr) -> _Part:
        """Return a part of the key, after adding its columns."""
        key = self.asked.key
        found = self.translator.value(node, key.scope(self.rows))
        source = key.source
        if isinstance(found, terms.Constant):
            return _Part(present(found.value))
        start = len(self.columns)
        if isinstance(found, terms.Value):
            if found.kind.name not in DISTINCT:
                hint = "Group by a number of whole steps, such as b.price // 10."
                raise Refused(f"{found.kind.name} values are no key on every database", source.place(node), hint)
            self.columns.append(_column(found))
            return _Part(None, start, (replace(found.kind, order="", collated=False),))
        if not isinstance(found, terms.Entity | terms.Related) or isinstance(found.target, sa.FromClause):
            raise Refused("a key is a value or an object of each row", source.place(node))
        mapper = sa.inspect(found.target).mapper
        if mapper.class_.__eq__ is not object.__eq__:
            raise Refused(f"{mapper.class_.__name__} decides itself which objects are equal", source.place(node))
        names = [mapper.get_property_by_column(each).key for each in mapper.primary_key]
        values: list[Any] = [self.translator._field(found, each) for each in names]
        self.columns += [_column(each) for each in values]
        return _Part(None, start, tuple(each.kind for each in values), mapper)

    def _body(self, calculation: Calculation) -> tuple[ast.expr, Scope, list[str]]:
        split = _Split(calculation)
        body = split.visit(calculation.source.body)
        if split.group in free_names(body):
            raise Refused(
                "a group is read by sum(), min(), max(), len(), any() and all() of one loop over it",
                calculation.source.place(calculation.source.body),
                "Write sum(b.price for b in g if b.price > 3).",
            )
        names = []
        for name, call in split.calls:
            names.append(name)
            self.atoms.append(self._atom(calculation, split.group, call))
        return body, calculation.scope([Item(())]), names

    def _atom(self, calculation: Calculation, group: str, call: ast.Call) -> Atom:
        """Return a call as an aggregate of columns of the rows, after adding these."""
        scope = calculation.scope([Item(())])
        name = called(call, scope).__name__
        (node,) = call.args
        if not isinstance(node, memory.LOOPS):
            if name != "len":
                raise Refused(f"{name}() of the objects themselves is not translated", calculation.source.place(call))
            return Atom(name, None, scope, group, Measure("len", True, Kind("int", sa.BigInteger(), bound=INT32)))
        target = node.generators[0].target
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(targets) != len(self.rows) or not all(isinstance(each, ast.Name) for each in targets):
            raise Refused("a loop over a group binds a name for each object of a row", calculation.source.place(target))
        bound: dict[str, Any] = {each.id: row for each, row in zip(targets, self.rows, strict=True)}  # type: ignore[attr-defined]
        measure = self.translator.within(lambda: self._measure(name, node, scope.with_names(bound), bound), node, scope)
        return Atom(name, node, scope, group, measure)

    def _measure(self, name: str, node: Any, inner: Scope, bound: dict[str, Any]) -> Measure:
        if name not in ("any", "all"):
            return self.translator.measure(name, node, inner, frozenset(bound))
        holds = self.translator._exact(node.elt, inner)
        conditions = [self.translator._exact(each, inner) for each in node.generators[0].ifs]
        met = terms.both(*conditions, holds if name == "any" else terms.negated(holds))
        return Measure(name, met, Kind("bool", sa.Boolean(), bound=1))

    # Statements

    def read(self, selected: Any) -> None:
        """Use the rows of a SELECT."""
        labels: list[Any] = [each.label(f"key_{at}") for at, each in enumerate(self.columns)]
        for at, atom in enumerate(self.atoms):
            labels += [each.label(f"{name}_{at}") for name, each in _row_columns(atom.measure).items()]
        rows: Any = selected.with_only_columns(*(labels or [ONE.label("one")]), maintain_column_froms=True)
        self.found = rows.subquery("found")

    def statement(self, condition: terms.Condition = True) -> Any:
        """Return the SELECT of groups, over the rows whose key fulfils ``condition``."""
        rows = self.found
        keys = [rows.c[f"key_{at}"] for at in range(self.keys)]
        columns: list[Any] = [*keys, sa.func.count().label("number")]
        for at, atom in enumerate(self.atoms):
            columns += [each.label(f"{name}_{at}") for name, each in _group_columns(atom.measure, rows, at).items()]
        made = sa.select(*columns).select_from(rows)
        made = made.group_by(*keys) if keys else made.having(sa.func.count() > ZERO)
        if condition is not True:
            made = made.where(terms.as_sql(condition))
        if dialect_name(self.dialect) == "mariadb":
            made = made.limit(
                INT64 - 1
            )  # a limit, because MariaDB would move conditions into the subquery and use names that do not exist there
        self.groups = made.subquery("groups")
        return sa.select(self.groups)

    def record(self) -> terms.Record:
        """Return a group in the form that ``having`` and the order read. A part that is None is NULL."""
        parts = [each.found(self.groups.c) for each in self.parts]
        fields: dict[str, Any] = {"key": terms.Several(tuple, tuple(parts)) if self.is_tuple else parts[0]}
        values = iter(self.atoms)
        numbers = iter(range(len(self.atoms)))
        for name, (body, scope, names) in self.bodies.items():
            given = {each: self._value(next(values), next(numbers)) for each in names}
            found = self.translator.value(body, Scope(scope.source, scope.space, given))
            if isinstance(found, terms.Value):
                sql = found.sql if found.present is None else sa.case((found.present, found.sql))
                found = replace(found, sql=sql, none=True, present=None)
            elif isinstance(found, terms.Constant):
                found = terms.Constant(present(found.value))
            fields[name] = found
        return terms.Record(fields)

    def _value(self, atom: Atom, at: int) -> Any:
        found = self._numbers(atom, self.groups.c, at)
        if atom.name in ("any", "all"):
            met = found.number > ZERO if atom.name == "any" else found.number == ZERO
            return self.translator._boolean_value(met)
        best = ZERO if found.best is None else found.best
        sql, there = atom.measure.value(found.number, found.whole, found.there, best)  # type: ignore[arg-type]
        return terms.Value(sql, atom.kind, none=there is not None, present=there, column=atom.measure.is_always())

    def _numbers(self, atom: Atom, columns: Any, at: int) -> Partial:
        """Return the partial results of a call: from the columns of the groups, or from one row of them."""
        number = columns.get(f"number_{at}", columns["number"])
        whole = columns.get(f"whole_{at}", number)
        return Partial(number, whole, columns.get(f"there_{at}", whole if atom.measure.there() is not True else number),
                       columns.get(f"best_{at}"))  # fmt: skip

    def equals(self, keys: Sequence[Any]) -> Any:
        """Return the condition that the key of a group is one of ``keys``."""
        found = []
        for key in keys:
            given = key if self.is_tuple else (key,)
            found.append(terms.both(*(part.equals(self, value) for part, value in zip(self.parts, given, strict=True))))
        return terms.either(*found)


@dataclass(eq=False)
class _Part:
    """A part of a key: a constant, or columns of the rows (the primary key, if it is an object)."""

    constant: Any
    start: int = 0
    kinds: tuple[Kind, ...] = ()
    mapper: Any = None

    def values(self, columns: Any) -> list[terms.Value]:
        """Return the columns of this part in the groups."""
        return [terms.Value(columns[f"key_{at}"], kind, none=True) for at, kind in enumerate(self.kinds, self.start)]

    def found(self, columns: Any) -> Any:
        """Return the part as an SQL term."""
        if not self.kinds:
            return terms.Constant(self.constant)
        values = self.values(columns)
        if self.mapper is None:
            return values[0]
        alias = orm.aliased(self.mapper)
        pairs = zip(terms.primary_key(alias), values, strict=True)
        return terms.Related(alias, (alias,), (sa.and_(*(column == each.sql for column, each in pairs)),))

    def equals(self, plan: Plan, value: Any) -> terms.Condition:
        """Return the condition that the part equals ``value``, which an unsaved row has."""
        if not self.kinds:
            return True
        values = self.values(plan.found.c)
        identity: Any = [value]
        if self.mapper is not None:
            state = None if value is None else sa.inspect(value)
            if state is not None and state.key is None:
                return False
            identity = [None] * len(values) if state is None else state.identity
        pairs = zip(values, identity, strict=True)
        return terms.both(*(plan.translator.compare(ast.Eq(), each, terms.Constant(one)) for each, one in pairs))

    def value(self, row: Any, objects: dict[Any, Any]) -> Any:
        """Return the value of the part in a group that the database has returned."""
        if not self.kinds:
            return self.constant
        values = [python_value(kind, row[f"key_{at}"]) for at, kind in enumerate(self.kinds, self.start)]
        return values[0] if self.mapper is None else objects.get((self.start, tuple(values)))


def _column(value: terms.Value) -> Any:
    """Return a part of a key as a column of the rows."""
    return _typed(op("text", value.sql) if value.kind.name == "str" else value.sql, value.kind)


def _typed(sql: Any, kind: Kind) -> Any:
    """Return an expression with a type, so that SQLAlchemy converts its values."""
    return sa.type_coerce(sql, kind.type) if isinstance(sql.type, sa.types.NullType) else sql


def _row_columns(measure: Measure) -> dict[str, Any]:
    """Return the columns of a row for an aggregate, by name. They are NULL if the row is not counted."""
    counts = {"number": measure.condition}
    item = measure.item
    if item is not None:
        counts["whole"] = terms.both(measure.condition, measure.whole()) if measure.whole() is not True else True
        counts["there"] = terms.both(measure.condition, measure.there()) if measure.there() is not True else True
    found: dict[str, Any] = {
        name: sa.case((terms.as_sql(each), ONE)) for name, each in counts.items() if each is not True
    }
    if item is not None:
        sql = _typed(item.sql, item.kind)
        found["best"] = sql if measure.condition is True else sa.case((terms.as_sql(measure.condition), sql))
    return found


def _group_columns(measure: Measure, rows: Any, at: int) -> dict[str, Any]:
    """Return the aggregate columns of a group, by name."""
    found = {name: sa.func.count(rows.c[f"{name}_{at}"]) for name in _row_columns(measure) if name != "best"}
    if measure.item is not None:
        found["best"] = measure.best(rows.c[f"best_{at}"])
    return found


@asynchronous
def grouped(session: Any, models: Any, query: Any, given: tuple[Any, ...], *, finish: str | None = None) -> Any:
    """Return the groups of recalled objects, see :func:`grouped.group`."""
    count = len(models) if isinstance(models, tuple) else 1
    if query is None:
        query = where(f"lambda {', '.join(f'row{at}' for at in range(count))}: True")
    asked = Asking(session, models, query, finish)
    grouping = Grouping(count, *given)
    try:
        plan: Plan | None = Plan(grouping, asked.targets, asked.dialect)
    except Refused:
        if finish is None:
            raise
        plan = None  # Python groups the rows
    statements = []

    def kept(statement: Any, exact: bool) -> Any:
        if plan is None or not exact:
            return statement
        plan.read(statement)
        statements.append(statement)
        return None

    with asked.flushed():
        if plan is not None:
            asked.refuse_unsaved(plan.translator.read, plan.translator.classes)
        unsaved = grouping.collected(asked.found(kept))
        if plan is None or not statements:
            values = grouping.aggregates.values()
            made = [grouping.made(key, *(each.value(rows) for each in values)) for key, rows in unsaved.items()]
            return Recalled(grouping.finished(made), asked.rows_read, asked.left)
        groups, decided = _merged(asked, plan, unsaved)
        return Recalled(grouping.finished(groups, decided), asked.rows_read, asked.left)


def _merged(asked: Any, plan: Plan, unsaved: dict[Any, list[Any]]) -> tuple[list[Any], bool]:
    """Return the groups of the database's rows and the unsaved objects; and whether ``having`` has been applied."""
    grouping = plan.asked
    cut = grouping.having is not None or grouping.limit is not None
    decided = cut and len(unsaved) <= MOST_TOGETHER
    alike = plan.equals(list(unsaved)) if decided else False
    try:
        statements = [_narrowed(plan, terms.negated(alike)) if decided else plan.statement()]
    except Refused:
        if asked.finish is None:
            raise
        decided, alike, statements = False, False, [plan.statement()]
    if alike is not False:
        statements.append(plan.statement(alike))
    found = {key: partials for each in statements for key, partials in _read(asked, plan, each)}
    if unsaved and any(each.measure.name == "distinct" for each in plan.atoms):
        _make_sets(asked, plan, found, unsaved)
    for key, rows in unsaved.items():
        partials = [each.partial(rows) for each in plan.atoms]
        known = found.get(key)
        if known is not None:
            partials = [atom.together(*pair) for atom, *pair in zip(plan.atoms, known, partials, strict=True)]
        found[key] = partials
    return [_group(plan, key, partials) for key, partials in found.items()], decided and not unsaved


def _narrowed(plan: Plan, condition: terms.Condition) -> Any:
    """Return the SELECT of the groups for which ``having`` and ``condition`` hold, with order and limit."""
    grouping = plan.asked
    statement = plan.statement(condition)
    record = plan.record()
    if grouping.having is not None:
        condition = grouping.having.translate(plan.translator, (record,), positive=True)
        statement = statement.where(terms.as_sql(condition))
    if grouping.limit is None:
        return statement
    dialect = dialect_name(plan.dialect)
    if grouping.sorting is not None:
        columns = sort_columns(grouping.sorting, plan.translator, [record])
        statement = statement.order_by(*arranged(grouping.sorting, columns, dialect))
    for value in (each for part in plan.parts for each in part.values(plan.groups.c)):
        key = sortable(value.sql, value.kind)
        statement = statement.order_by(key.nulls_first() if dialect == "postgresql" else key)
    return statement.limit(grouping.limit + grouping.offset)


def _read(asked: Any, plan: Plan, statement: Any) -> list[tuple[Any, list[Partial]]]:
    """Return the groups in the result of a statement: keys, and partial results of the calls."""
    rows = [dict(each) for each in asked.session.execute(statement).mappings()]
    asked.rows_read += len(rows)
    objects = _objects(asked.session, plan, rows)
    return [
        (_key(plan, row, objects), [_partial(plan, atom, row, at) for at, atom in enumerate(plan.atoms)])
        for row in rows
    ]


def _key(plan: Plan, row: dict[str, Any], objects: dict[Any, Any]) -> Any:
    found = tuple(each.value(row, objects) for each in plan.parts)
    return found if plan.is_tuple else found[0]


def _partial(plan: Plan, atom: Atom, row: dict[str, Any], at: int) -> Partial:
    found = plan._numbers(atom, row, at)
    if atom.measure.item is None or found.best is None:
        return found
    distinct = atom.measure.name == "distinct"
    return Partial(*found[:3], found.best if distinct else python_value(atom.kind, found.best))


def _objects(session: Any, plan: Plan, rows: list[dict[str, Any]]) -> dict[Any, Any]:
    """Return the objects in keys, by the number of their first column and their primary key."""
    found: dict[Any, Any] = {}
    for part in plan.parts:
        if part.mapper is None:
            continue
        names = [f"key_{at}" for at in range(part.start, part.start + len(part.kinds))]
        wanted = {tuple(row[name] for name in names) for row in rows}
        unknown = []
        for identity in wanted:
            known = session.identity_map.get(part.mapper.identity_key_from_primary_key(identity))
            if known is not None and not sa.inspect(known).expired:
                found[part.start, identity] = known
            elif None not in identity:
                unknown.append(identity)
        columns = terms.primary_key(part.mapper.class_)
        for at in range(0, len(unknown), MOST_READ):
            some = unknown[at : at + MOST_READ]
            keys = columns[0].in_([each[0] for each in some]) if len(columns) == 1 else sa.tuple_(*columns).in_(some)
            for each in session.scalars(sa.select(part.mapper.class_).where(keys)):
                found[part.start, tuple(sa.inspect(each).identity)] = each
    return found


MOST_READ = 500
"""How many objects one statement reads by their primary keys."""


def _make_sets(asked: Any, plan: Plan, found: dict[Any, Any], unsaved: dict[Any, Any]) -> None:
    """For ``distinct`` aggregates, replace the count by the set of values in the groups that have unsaved objects."""
    alike = plan.equals(list(unsaved))
    if alike is False:
        return
    for at, atom in enumerate(plan.atoms):
        if atom.measure.name != "distinct":
            continue
        for key in unsaved:
            if key in found:
                old = found[key][at]
                found[key][at] = Partial(old.number, old.whole, old.there, set())
        names = [*(f"key_{number}" for number in range(plan.keys)), f"best_{at}"]
        columns = [plan.found.c[name] for name in names]
        statement = sa.select(*columns).distinct().where(terms.as_sql(alike), columns[-1].is_not(None))
        values = [dict(each) for each in asked.session.execute(statement).mappings()]
        asked.rows_read += len(values)
        objects = _objects(asked.session, plan, values)
        for row in values:
            assert atom.measure.item is not None
            value = python_value(atom.measure.item.kind, row[f"best_{at}"])
            found[_key(plan, row, objects)][at].best.add(value)


def _group(plan: Plan, key: Any, partials: list[Partial]) -> Any:
    """Return the named tuple for a group, with aggregates calculated from the values of their calls."""
    values = iter(atom.value(each) for atom, each in zip(plan.atoms, partials, strict=True))
    made = []
    for body, scope, names in plan.bodies.values():
        given = {name: Item(next(values)) for name in names}
        made.append(present(memory.value(body, Scope(scope.source, scope.space, given))))
    return plan.asked.made(key, *made)


__all__ = ["grouped"]
