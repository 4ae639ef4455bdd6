"""The terms of a translation: the SQL forms of expressions, and operations on conditions."""

from __future__ import annotations

import ast
import decimal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from kirsch_query import memory
from kirsch_query.emit import DIALECTS, dialect_name, op, unproven
from kirsch_query.errors import QueryError, Refused
from kirsch_query.kinds import NUMBERS, Kind, constant_kind
from kirsch_query.relations import anti_join, semi_join
from kirsch_query.scope import ABSENT, Item, Late, Scope, bound_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_query.trace import Binder, Read, Trace


SQL: TypeAlias = sa.ColumnElement[Any]
Condition: TypeAlias = "SQL | bool"

IN_MEMORY = 'Read the rows and use filter(), or let recall() do so: finish="python".'
DEEPEST = 96
"""How many expressions within each other are translated."""


@dataclass(frozen=True, eq=False)
class Entity:
    """A row of a mapped class, an alias of one, or a table."""

    target: Any

    def __post_init__(self) -> None:
        found = sa.inspect(self.target, raiseerr=False)
        mapped = getattr(found, "is_mapper", False) or getattr(found, "is_aliased_class", False)
        if type(self.target).__name__ == "_WrapUserEntity":
            raise QueryError(
                "SQLAlchemy keeps what a function given to with_loader_criteria() returns, with its values",
                hint="Write options(*cheap.criteria(Book)). Book may be a class from which mapped ones inherit.",
            )
        if not mapped and not isinstance(found, sa.FromClause):
            raise QueryError(f"{self.target!r} is not a mapped class, an alias of one, or a table")


@dataclass(frozen=True, eq=False)
class Related:
    """The object to which a to-one reference points: at most one row, which ``conditions`` select."""

    target: Any
    aliases: tuple[Any, ...]
    conditions: tuple[SQL, ...]

    def exists(self) -> SQL:
        """Return the condition that the row exists."""
        return semi_join(self.aliases, self.conditions)

    def where(self, found: Condition) -> Condition:
        """Return the condition that the row exists and ``found`` holds for it."""
        if isinstance(found, bool):
            return found and self.exists()
        return semi_join(self.aliases, (*self.conditions, found))


@dataclass(frozen=True, eq=False)
class Many:
    """The objects to which a to-many reference points."""

    target: Any
    aliases: tuple[Any, ...]
    conditions: tuple[SQL, ...]


class Constant:
    """A value that is known during translation, or ABSENT. A translation that is cached for other values records where
    each value was read. Reading ``value`` makes the translation depend on the value. A caller of ``peek()`` must only
    depend on the type, or claim the value.
    """

    __slots__ = ("_value", "read")

    def __init__(self, value: Any, read: Read | None = None) -> None:
        self._value = value
        self.read = read

    @property
    def value(self) -> Any:
        if self.read is not None:
            self.read.pinned = True
        return self._value

    def peek(self) -> Any:
        """Return the value, for decisions that are the same for other values of the type."""
        return self._value

    def is_absent(self) -> bool:
        return self._value is ABSENT

    def is_nothing(self) -> bool:
        return self._value is None or self._value is ABSENT


@dataclass(frozen=True, eq=False)
class Value:
    """An SQL expression. It is NULL if the value is None or absent."""

    sql: SQL
    kind: Kind
    none: bool = False
    """True if the value can be None, like a column that may be NULL."""
    present: SQL | None = None
    """The condition that the value is not absent, if it differs from the one that the value is not NULL."""
    column: bool = False
    """True if the value is a plain column, so that an index may serve it."""
    of_related: tuple[Related, Value] | None = None
    """The related row of which it is a column, and the same as a column of that row, for :meth:`Related.where`.
    ``sql`` is a subquery then."""

    def is_there(self) -> SQL | None:
        """Return the condition that Python can evaluate it; None if it always can."""
        if self.present is not None:
            return self.present
        if self.none or (self.column and not self.none):
            return None
        return self.sql.is_not(None)

    def is_solid(self) -> SQL | None:
        """Return the condition that it is neither absent nor None; None if it never is."""
        return self.sql.is_not(None) if self.none else self.is_there()


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple or list display with values of rows among its items."""

    type: type[Any]
    items: tuple[Found, ...]


Found: TypeAlias = "Constant | Value | Entity | Related | Many | Several | Record"


@dataclass(frozen=True, eq=False)
class Answer:
    """A boolean result of a method of text, which is absent if the text or an argument is None."""

    condition: Condition
    present: Condition


@dataclass(frozen=True)
class Note:
    """An addition by the translation that gives SQL the meaning of Python."""

    text: str
    reason: str


@dataclass(frozen=True, eq=False)
class Record:
    """The result for a group of rows: its key and its aggregates, by name."""

    fields: dict[str, Found]


# Small helpers


def primary_key(target: Any) -> list[Any]:
    """Return the primary key attributes of a mapped class, or of an alias of one."""
    mapper = sa.inspect(target).mapper
    return [getattr(target, mapper.get_property_by_column(each).key) for each in mapper.primary_key]


def negated(found: Condition) -> Condition:
    """Return a condition that is true if ``found`` is not true."""
    if isinstance(found, bool):
        return not found
    without = anti_join(found)
    return op("not_true", found) if without is None else without


def there(*found: Found) -> list[SQL | None]:
    """Return the conditions that Python can evaluate all of ``found``."""
    conditions: list[SQL | None] = []
    for each in found:
        if isinstance(each, Several):
            conditions += there(*each.items)
        elif isinstance(each, Value):
            conditions.append(each.is_there())
    return conditions


def reachable(found: Found) -> Condition:
    """Return the condition that no object on the path to an object or relation is None."""
    if not isinstance(found, Related | Many) or len(found.aliases) == 1:
        return True
    return semi_join(found.aliases[:-1], found.conditions[:-1])


def as_sql(found: Condition) -> SQL:
    """Return a condition as SQL, even if it is a constant True or False."""
    return found if not isinstance(found, bool) else sa.true() if found else sa.false()


def solid(*found: Found) -> Condition:
    """Return the condition that none of ``found`` is absent or None."""
    return both(*(each.is_solid() for each in found if isinstance(each, Value)))


def both(*conditions: Condition | None) -> Condition:
    """Return the conjunction of conditions. None is ignored."""
    parts = []
    for each in conditions:
        if each is False:
            return False
        if each is not True and each is not None:
            parts.append(each)
    return sa.and_(*parts) if len(parts) > 1 else parts[0] if parts else True


def either(*conditions: Condition) -> Condition:
    """Return the disjunction of conditions."""
    parts = []
    for each in conditions:
        if each is True:
            return True
        if each is not False:
            parts.append(each)
    return sa.or_(*parts) if len(parts) > 1 else parts[0] if parts else False


def is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def is_condition(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Compare | ast.Call)
        or is_not(node)
        or (isinstance(node, ast.BoolOp) and all(map(is_condition, node.values)))
    )


def is_row(binding: Any) -> bool:
    if isinstance(binding, Late):
        names = bound_names(binding.node, binding.scope)
        return any(is_row(binding.scope.names[name]) for name in names)
    return not isinstance(binding, Item)


def known_of(scope: Scope) -> Scope:
    """Return the scope without its database rows: the names that can be evaluated in memory."""
    return Scope(scope.source, scope.space, {name: each for name, each in scope.names.items() if not is_row(each)})


def group_of(kind: Kind) -> str:
    return "number" if kind.name in NUMBERS else kind.name


def kind_name(value: Constant | Value) -> str | None:
    return value.kind.name if isinstance(value, Value) else constant_kind(value.value)


def as_int(value: Value) -> SQL:
    return op("whole", value.sql) if value.kind.name == "bool" else value.sql


def int_value(value: Value) -> Value:
    if value.kind.name != "bool":
        return value
    return replace(value, sql=as_int(value), kind=Kind("int", sa.BigInteger(), bound=1))


def is_double(number: float) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


def digits_of(number: Any) -> tuple[int, int]:
    """Return the numbers of digits before and after the decimal point."""
    _, digits, exponent = decimal.Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    return max(len(digits) + exponent, 1), max(-exponent, 0)


def size_of(node: ast.AST) -> int:
    return sum(isinstance(each, ast.BinOp) for each in ast.walk(node)) * 3 + 1


class Base:
    """The base class of all parts of a translation. Subclasses implement the methods that raise NotImplementedError."""

    def __init__(self, dialect: Any = None, *, lenient: bool = False) -> None:
        self.dialect = None if dialect is None else dialect_name(dialect)
        if self.dialect is not None and self.dialect not in DIALECTS:
            raise unproven(self.dialect)
        self.lenient = lenient
        self.refusals: dict[str, Refused] = {}
        self.left: list[Refused] = []
        """The parts of the query that a lenient translation leaves for Python to decide."""
        self.notes: dict[Note, None] = {}
        self.classes: set[Any] = set()
        """The mapped classes that are read through relations."""
        self.read: set[tuple[Any, str]] = set()
        """The targets and the names of the attributes that are read."""
        self.depth = 0
        self.at: tuple[ast.AST, Scope] | None = None
        """The expression that is being translated, which refusals and notes name."""
        self.trace: Trace | None = None
        """The names that the translation reads, if it is kept for later values."""

    # Values that may differ in the next use

    def literal(self, value: Any, type_: Any) -> SQL:
        """Return a value as a bound parameter; a list as an expanding one."""
        if type(value) is list:
            return sa.BindParameter(None, value, type_, unique=True, expanding=True)
        return sa.literal(value, type_)

    def literals(self, items: list[tuple[Any, Any]]) -> list[SQL]:
        """Return (value, type) pairs as expanding parameters, one for each type. SQLAlchemy expands them at execution,
        so that lists of any length have the same statement.
        """
        found: dict[str, tuple[Any, list[Any]]] = {}
        last = values = None
        for value, type_ in items:
            if type_ is not last or values is None:
                last, (_, values) = type_, found.setdefault(repr(type_), (type_, []))
            values.append(value)
        return [self.literal(values, type_) for type_, values in found.values()]

    def known(self, node: ast.expr, scope: Scope) -> Constant:
        """Return the value of an expression that reads no database row."""
        found = memory.value(node, known_of(scope))
        if self.trace is None or isinstance(node, ast.Constant):
            return Constant(found)
        if bound_names(node, scope) or not self.trace.holds(scope.space):
            self.keep_nothing()  # its value depends on more than the outer names of the query
        return Constant(found, self.trace.record(node, scope.space, found))

    def claim(self, constant: Constant, shape: Any, bounds: list[SQL], binder: Binder) -> None:
        """Allow another value in place of the constant in these parameters: ``binder`` returns its shape and its
        parameters."""
        if constant.read is not None:
            constant.read.claims.append((shape, tuple(bounds), binder))

    def keep_nothing(self) -> None:
        """Do not cache this translation: it depends on data that is not recorded."""
        if self.trace is not None:
            self.trace.kept = False

    # Refusing

    def refuse(self, problem: str, hint: str = IN_MEMORY, node: ast.AST | None = None) -> Refused:
        """Return a Refused error for the expression that is being translated, or for a part of it."""
        return Refused(problem, self.at and self.at[1].source.place(node or self.at[0]), hint)

    def refuse_on(self, database: str, problem: str, hint: str) -> None:
        """Refuse the query on one database: now, or when SQL is compiled for it."""
        refused = self.refuse(f"not exact on {database}: {problem}", hint)
        if self.dialect == database:
            raise refused
        if self.dialect is None:
            self.refusals.setdefault(database, refused)

    def note(self, reason: str) -> None:
        assert self.at is not None
        self.notes.setdefault(Note(self.at[1].source.segment(self.at[0]), reason))

    def _reads_rows(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression reads a database row."""
        return any(is_row(scope.names[name]) for name in bound_names(node, scope))

    # Methods that subclasses define

    def value(self, node: ast.expr, scope: Scope) -> Found:
        """Return an expression as an SQL value or a constant."""
        raise NotImplementedError

    def items(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> tuple[Found, ...]:
        raise NotImplementedError

    def _exact(self, node: ast.expr, scope: Scope) -> Condition:
        raise NotImplementedError

    def _truth(self, found: Found) -> Condition:
        raise NotImplementedError

    def _any(self, node: Any, scope: Scope, test: Callable[[Scope], Condition], depth: int = 0) -> Condition:
        raise NotImplementedError

    def _boolean_value(self, found: Condition) -> Found:
        raise NotImplementedError

    def compare(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        raise NotImplementedError

    def _in_constant(self, negate: bool, needle: Found, given: Constant) -> Condition:
        raise NotImplementedError

    def _membership(self, negate: bool, left: ast.expr, right: ast.expr, scope: Scope) -> Condition:
        raise NotImplementedError
