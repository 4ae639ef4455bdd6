"""Translate a query to one SQLAlchemy condition, exactly, or refuse.

Each expression becomes a constant, or a value in SQL of a known kind. A condition is true in SQL wherever the query
holds in memory; where it does not, SQL has false or NULL, which a WHERE takes for the same. A negation must tell the
two from true, so it is ``(condition) IS NOT TRUE``.
"""

from __future__ import annotations

import ast
import decimal
import enum
import inspect
import math
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.hybrid import hybrid_property

from . import memory
from .emit import DIALECTS, Checked, dialect_name, op, unproven
from .errors import Refused
from .kinds import (
    EXACT_DOUBLE,
    INT32,
    INT64,
    NUMBERS,
    Kind,
    NotExact,
    bad_text,
    constant_kind,
    is_finite,
    kind_of,
    next_prefix,
)
from .scope import ABSENT, Item, Late, Scope, attribute_name, bound_names, inlined, inlined_with, is_builtin

if TYPE_CHECKING:
    from collections.abc import Callable

SQL: TypeAlias = sa.ColumnElement[Any]
Condition: TypeAlias = "SQL | bool"

_MEMORY = 'Read the rows and use filter(), or let recall() do so: finish="python".'
_DEEPEST = 24


@dataclass(frozen=True, eq=False)
class Entity:
    """A row: a mapped class or an alias of one, or a table."""

    target: Any


@dataclass(frozen=True, eq=False)
class Related:
    """What a reference to one other object leads to: at most one row, found by these conditions."""

    target: Any
    aliases: tuple[Any, ...]
    conditions: tuple[SQL, ...]

    def exists(self) -> SQL:
        return sa.exists(sa.literal_column("1")).where(*self.conditions).correlate_except(*self.aliases)


@dataclass(frozen=True, eq=False)
class Many:
    """What a reference to several objects leads to."""

    target: Any
    aliases: tuple[Any, ...]
    conditions: tuple[SQL, ...]


@dataclass(frozen=True)
class Constant:
    """A value that is known now, or ABSENT."""

    value: Any


@dataclass(frozen=True, eq=False)
class Value:
    """An expression in SQL. It is NULL where the value is None and where it is absent."""

    sql: SQL
    kind: Kind
    none: bool = False
    """Whether it can be None, as a column that may be NULL can."""
    present: SQL | None = None
    """The condition that it is not absent, where it can be both None and absent."""
    column: bool = False
    """Whether it is a plain column, so that an index may serve it."""

    def is_there(self) -> SQL | None:
        """The condition that Python could evaluate it; None where it always could."""
        if self.present is not None:
            return self.present
        if self.none or (self.column and not self.none):
            return None
        return self.sql.is_not(None)


Found: TypeAlias = "Constant | Value | Entity | Related | Many"


@dataclass(frozen=True)
class Note:
    """Something that the translation added so that SQL means what Python means."""

    text: str
    reason: str


class Translator:
    """One translation. ``dialect`` may be unknown: what some database refuses is then refused when SQL is compiled."""

    def __init__(self, dialect: Any = None, *, lenient: bool = False) -> None:
        self.dialect = None if dialect is None else dialect_name(dialect)
        if self.dialect is not None and self.dialect not in DIALECTS:
            raise unproven(self.dialect)
        self.lenient = lenient
        self.refusals: dict[str, Refused] = {}
        self.left: list[Refused] = []
        """What a lenient translation has left for Python to decide."""
        self.notes: dict[Note, None] = {}
        self.classes: set[Any] = set()
        """The mapped classes that are read through relations."""
        self.read: set[tuple[Any, str]] = set()
        """The targets and the names of the attributes that are read."""
        self.depth = 0

    # Refusing

    def refuse(self, problem: str, node: ast.AST, scope: Scope, hint: str = _MEMORY) -> Refused:
        """The refusal of a part of the query."""
        return Refused(problem, scope.source.place(node), hint)

    def refuse_on(self, database: str, problem: str, node: ast.AST, scope: Scope, hint: str) -> None:
        """Refuse on one database, now or when its SQL is asked for."""
        refused = Refused(f"not exact on {database}: {problem}", scope.source.place(node), hint)
        if self.dialect == database:
            raise refused
        if self.dialect is None:
            self.refusals.setdefault(database, refused)

    def note(self, node: ast.AST, scope: Scope, reason: str) -> None:
        self.notes.setdefault(Note(scope.source.segment(node), reason))

    # Conditions

    def condition(self, node: ast.expr, scope: Scope, positive: bool = True) -> Condition:
        """The condition that an expression holds. Where lenient, it may hold of more rows; of fewer if not positive."""
        self.depth += 1
        try:
            if self.depth > _DEEPEST * 4:
                raise self.refuse("the expression is nested too deeply", node, scope)
            if not self.lenient or isinstance(node, ast.BoolOp) or _is_not(node):
                return self._condition(node, scope, positive)
            try:
                return self._condition(node, scope, positive)
            except Refused as refused:
                self.left.append(refused)
                return positive
        finally:
            self.depth -= 1

    def _condition(self, node: ast.expr, scope: Scope, positive: bool) -> Condition:
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, scope, positive)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.note(node, scope, "IS NOT TRUE: what is unknown in SQL is false here, so that its negation is true")
            return negated(self.condition(node.operand, scope, not positive))
        if isinstance(node, ast.IfExp):
            return self._choice(node, scope)
        if isinstance(node, ast.Compare) and self._reads_rows(node, scope):
            return self._compare(node, scope)
        if isinstance(node, ast.Call) and self._reads_rows(node, scope):
            found = self._call(node, scope, as_condition=True)
            return found if isinstance(found, bool | sa.ColumnElement) else self._truth(found, node, scope)
        if isinstance(node, ast.Name) and isinstance(binding := scope.names.get(node.id), Late):
            return self.condition(binding.node, binding.scope, positive)
        return self._truth(self.value(node, scope), node, scope)

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

    def _reads_rows(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression reads a row of the database, and not only values that are known."""
        return any(_is_row(scope.names[name]) for name in bound_names(node, scope))

    def _truth(self, found: Found, node: ast.expr, scope: Scope) -> Condition:
        """Whether a value counts as true, by its kind."""
        if isinstance(found, Constant):
            return found.value is not ABSENT and bool(found.value)
        if isinstance(found, Related):
            return found.exists()
        if isinstance(found, Many):
            return sa.exists(sa.literal_column("1")).where(*found.conditions).correlate_except(*found.aliases)
        if isinstance(found, Entity):
            raise self.refuse("whether a whole row counts as true is not decided by the database", node, scope)
        name = found.kind.name
        if name == "bool":
            return found.sql.is_(sa.true()) if found.column else found.sql
        if name in ("int", "decimal") or (name == "float" and found.column):
            zero = sa.literal(0.0, sa.Double()) if name == "float" else sa.literal(0, sa.BigInteger())
            return found.sql != zero
        if name == "float":
            raise self.refuse(
                "whether a calculated float counts as true is not exact: NaN does", node, scope, "Compare with 0."
            )
        if name == "str":
            return op("length", found.sql) > sa.literal(0, sa.Integer())
        if name == "bytes":
            return op("bytes_length", found.sql) > sa.literal(0, sa.Integer())
        if name == "enum" and not all(map(bool, found.kind.members)):
            raise self.refuse("a member of this enum counts as false", node, scope, "Compare with members.")
        return found.sql.is_not(None)

    # Comparisons

    def _compare(self, node: ast.Compare, scope: Scope) -> Condition:
        parts: list[SQL] = []
        left = node.left
        for cmp, right in zip(node.ops, node.comparators, strict=True):
            part = self._atom(cmp, left, right, node, scope)
            if part is False:
                return False
            if part is not True:
                parts.append(part)
            left = right
        return sa.and_(*parts) if len(parts) > 1 else parts[0] if parts else True

    def _atom(self, cmp: ast.cmpop, left: ast.expr, right: ast.expr, node: ast.expr, scope: Scope) -> Condition:
        if isinstance(cmp, ast.In | ast.NotIn):
            return self._membership(isinstance(cmp, ast.NotIn), left, right, node, scope)
        first, second = self.value(left, scope), self.value(right, scope)
        return self.compare(cmp, first, second, node, scope)

    def compare(self, cmp: ast.cmpop, left: Found, right: Found, node: ast.expr, scope: Scope) -> Condition:
        """One comparison."""
        if Constant(ABSENT) in (left, right):
            return False
        if isinstance(cmp, ast.Is | ast.IsNot):
            return self._identity(isinstance(cmp, ast.IsNot), left, right, node, scope)
        if isinstance(left, Constant) and isinstance(right, Constant):
            return memory.compare(cmp, left.value, right.value)
        for one, other in ((left, right), (right, left)):
            if not isinstance(one, Constant | Value):
                if isinstance(other, Constant) and other.value is None and isinstance(cmp, ast.Eq | ast.NotEq):
                    return self._identity(isinstance(cmp, ast.NotEq), one, other, node, scope)
                raise self.refuse(
                    "objects are compared by identity, which a database does not know",
                    node,
                    scope,
                    "Compare their keys: b.author.id == author.id.",
                )
        if isinstance(cmp, ast.Eq | ast.NotEq):
            equal = self._equal(left, right, node, scope)
            if isinstance(cmp, ast.Eq):
                return equal
            there = [each.is_there() for each in (left, right) if isinstance(each, Value)]
            self.note(node, scope, "IS NOT TRUE: None differs from every value")
            return both(negated(equal), *(each for each in there if each is not None))
        return self._ordered(cmp, left, right, node, scope)

    def _identity(self, negate: bool, left: Found, right: Found, node: ast.expr, scope: Scope) -> Condition:
        if isinstance(left, Constant) and isinstance(right, Constant):
            return (left.value is right.value) is not negate
        value, other = (right, left) if isinstance(left, Constant) else (left, right)
        if (
            not isinstance(other, Constant)
            or other.value not in (None, True, False)
            or (isinstance(other.value, int | float) and not isinstance(other.value, bool))
        ):
            raise self.refuse("`is` compares identity, which a database does not know", node, scope, "Write ==.")
        if isinstance(value, Related | Many):
            exists = self._truth(value, node, scope)
            if other.value is not None or isinstance(value, Many):
                return negate
            # None where the whole path leads to no row; absent where it breaks off before its end.
            before = (
                Related(value.target, value.aliases[:-1], value.conditions[:-1]) if len(value.aliases) > 1 else None
            )
            found = exists if negate else negated(exists)
            return found if before is None else both(before.exists(), found)
        if isinstance(value, Entity):
            return negate
        assert isinstance(value, Value)
        if other.value is not None:
            if value.kind.name != "bool":
                return both(negate, value.is_there())
            found = self._equal(value, other, node, scope)
            there = value.is_there()
            return both(negated(found), there) if negate else found
        there = value.is_there()
        if not value.none:
            return both(True, there) if negate else False
        found = value.sql.is_not(None) if negate else value.sql.is_(None)
        return both(found, there)

    def _equal(self, left: Found, right: Found, node: ast.expr, scope: Scope) -> Condition:
        if isinstance(left, Constant):
            left, right = right, left
        assert isinstance(left, Value)
        if isinstance(right, Constant):
            if right.value is None:
                return self._identity(False, left, right, node, scope)
            return self._equals_constant(left, right.value, node, scope)
        assert isinstance(right, Value)
        if _group(left.kind) != _group(right.kind) or left.kind.members != right.kind.members:
            self._refuse_mixture(left.kind.name, right.kind.name, node, scope)
            return False
        name, first, second = self._aligned(left, right, node, scope)
        if left.none and right.none:
            self.note(node, scope, "IS NOT DISTINCT FROM: None equals None")
            if name == "text":
                first, second = op("text", first), op("text", second)
            elif name == "float":
                self.note(node, scope, "NaN differs from itself")
                both_none = sa.and_(left.sql.is_(None), right.sql.is_(None))
                return both(sa.or_(both_none, op("float_eq", first, second)), left.present, right.present)
            return both(op("same", first, second), left.present, right.present)
        return op(f"{name}_eq", first, second)

    def _refuse_mixture(self, left: str, right: str, node: ast.expr, scope: Scope) -> None:
        """Refuse what Python compares in a way of its own; other kinds are never equal."""
        for pair in (("datetime", "aware"), ("date", "datetime"), ("date", "aware"), ("enum", "str"), ("str", "enum")):
            if (left, right) in (pair, pair[::-1]):
                raise self.refuse(
                    f"a column of kind {left} is compared with one of kind {right}",
                    node,
                    scope,
                    "Give both sides the same type.",
                )

    def _aligned(self, left: Value, right: Value, node: ast.expr, scope: Scope) -> tuple[str, SQL, SQL]:
        """Two values of one group as they can be compared: the operation's name and both sides."""
        kinds = {left.kind.name, right.kind.name}
        if kinds == {"str"}:
            return "text", left.sql, right.sql
        if not kinds & set(NUMBERS):
            return "number", left.sql, right.sql
        if "decimal" in kinds and "float" in kinds:
            raise self.refuse(
                "a Decimal is compared with a float, which no database does exactly",
                node,
                scope,
                "Make both of one type.",
            )
        if "float" in kinds and kinds != {"float"}:
            return "float", self._as_double(left, node, scope), self._as_double(right, node, scope)
        if "decimal" in kinds:
            one, two = (
                each.sql if each.kind.name == "decimal" else op("numeric", _as_int(each)) for each in (left, right)
            )
            return "float", one, two  # PostgreSQL's NUMERIC has a NaN too
        if kinds == {"bool"}:
            return "number", left.sql, right.sql
        return "float" if kinds == {"float"} else "number", _as_int(left), _as_int(right)

    def _as_double(self, value: Value, node: ast.expr, scope: Scope) -> SQL:
        if value.kind.name == "float":
            return value.sql
        if value.kind.bound > EXACT_DOUBLE:
            raise self.refuse(
                "an integer of this size is not a float without loss",
                node,
                scope,
                "Declare the column Integer, or compare integers with integers.",
            )
        # SQLite keeps to no size; larger integers there would be rounded in silence.
        return op("double", _as_int(value))

    def _equals_constant(self, left: Value, constant: Any, node: ast.expr, scope: Scope) -> Condition:
        bound = self._bound(left.kind, constant, node, scope)
        if bound is None:
            return False
        if left.kind.name == "str":
            return op("text_is" if left.column else "text_eq", left.sql, bound)
        if left.kind.name == "bool":
            return left.sql == bound
        return left.sql == bound

    def _bound(self, kind: Kind, constant: Any, node: ast.expr, scope: Scope) -> SQL | None:
        """A constant as a parameter beside a value of this kind; None where Python finds no such value equal to it."""
        name = constant_kind(constant)
        if kind.name == "enum":
            return self._bound_enum(kind, constant, node, scope)
        if name is None or name == "enum":
            raise self.refuse(
                f"constants of type {type(constant).__name__} are not translated",
                node,
                scope,
                "Give its plain value: .value of an enum, str() of a text, float() of a number.",
            )
        if kind.name in NUMBERS and name in NUMBERS:
            return self._bound_number(kind, constant, node, scope)
        if kind.name != name:
            self._refuse_mixture(kind.name, name, node, scope)
            return None
        if name == "str" and (problem := bad_text(constant)):
            raise self.refuse(problem, node, scope, "Compare with text without it.")
        if name in ("datetime", "date") and constant.year < 1000:
            raise self.refuse("years before 1000 are not stored by all databases", node, scope, "Use a later date.")
        return sa.literal(constant, kind.type)

    def _bound_enum(self, kind: Kind, constant: Any, node: ast.expr, scope: Scope) -> SQL | None:
        if isinstance(kind.members, tuple):
            if type(constant) is str:
                return sa.literal(constant, kind.type) if constant in kind.members else None
        elif type(constant) is kind.members:
            return sa.literal(constant, kind.type)
        if (isinstance(constant, enum.Enum) and isinstance(constant, str | int | float)) or (
            "__eq__" in vars(type(constant)) and constant_kind(constant) is None
        ):
            raise self.refuse(f"constants of type {type(constant).__name__} have an equality of their own", node, scope)
        return None

    def _bound_number(self, kind: Kind, constant: Any, node: ast.expr, scope: Scope) -> SQL | None:
        """A number that equals the constant, in the column's own type."""
        if isinstance(constant, float) and math.isnan(constant):
            return None
        if isinstance(constant, float | decimal.Decimal) and not is_finite(constant):
            raise self.refuse(
                f"{constant!r} is no number that every database knows", node, scope, "Compare with a finite number."
            )
        if kind.name == "bool":
            return sa.literal(bool(constant), sa.Boolean()) if constant in (0, 1) else None
        if kind.name == "int":
            if constant != int(constant) or not -INT64 <= constant < INT64:
                if kind.bound > INT64 and constant == int(constant):
                    raise self.refuse("the number has more than 64 bits", node, scope)
                return None
            return sa.literal(int(constant), sa.BigInteger())
        if kind.name == "float":
            if isinstance(constant, decimal.Decimal):
                raise self.refuse("a float is compared with a Decimal", node, scope, "Make both of one type.")
            return sa.literal(float(constant), sa.Double()) if _is_double(constant) else None
        if isinstance(constant, float):
            raise self.refuse(
                "a Decimal is compared with a float, which no database does exactly",
                node,
                scope,
                f"Write Decimal({str(constant)!r}) if that is what is meant.",
            )
        return self._bound_decimal(decimal.Decimal(constant), node, scope)

    def _bound_decimal(self, constant: decimal.Decimal, node: ast.expr, scope: Scope) -> SQL:
        before, after = _digits(constant)
        if before > 35 or after > 30:
            raise self.refuse(
                "the Decimal has more digits than every database keeps", node, scope, "Use at most 30 digits."
            )
        return sa.literal(constant, sa.Numeric(before + after, after))

    def _ordered(self, cmp: ast.cmpop, left: Found, right: Found, node: ast.expr, scope: Scope) -> Condition:
        """``<``, ``<=``, ``>``, ``>=``."""
        names = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
        name = names[type(cmp)]
        if isinstance(left, Constant):
            left, right = right, left
            name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[name]
        assert isinstance(left, Value)
        if left.kind.name in ("enum", "uuid", "bytes"):
            raise self.refuse(
                f"the order of {left.kind.name} values is not the same on every database",
                node,
                scope,
                "They are compared by == and in.",
            )
        if isinstance(right, Constant):
            if right.value is None:
                return False
            return self._ordered_constant(name, left, right.value, node, scope)
        assert isinstance(right, Value)
        if _group(left.kind) != _group(right.kind):
            raise self.refuse(
                f"{left.kind.name} and {right.kind.name} have no order in Python",
                node,
                scope,
                "Give both sides the same type.",
            )
        if left.kind.name == "bool" and right.kind.name == "bool":
            left, right = _int_value(left), _int_value(right)
        group, first, second = self._aligned(left, right, node, scope)
        return op(f"{group}_{name}", first, second)

    def _ordered_constant(self, name: str, left: Value, constant: Any, node: ast.expr, scope: Scope) -> Condition:
        kind = constant_kind(constant)
        if left.kind.name in NUMBERS and kind in NUMBERS:
            return self._ordered_number(name, left, constant, node, scope)
        if kind != left.kind.name:
            raise self.refuse(
                f"{left.kind.name} and {type(constant).__name__} have no order in Python",
                node,
                scope,
                "Give both sides the same type.",
            )
        bound = self._bound(left.kind, constant, node, scope)
        assert bound is not None
        return op(f"text_{name}" if kind == "str" else f"number_{name}", left.sql, bound)

    def _ordered_number(self, name: str, left: Value, constant: Any, node: ast.expr, scope: Scope) -> Condition:
        if isinstance(constant, float) and math.isnan(constant):
            return False
        if isinstance(constant, float | decimal.Decimal) and not is_finite(constant):
            raise self.refuse(
                f"{constant!r} is no number that every database knows", node, scope, "Compare with a finite number."
            )
        if left.kind.name in ("bool", "int"):
            sql = _as_int(left)
            # Beside an integer, a number between two others is the next one up or down.
            bound = math.floor(constant) if name in ("le", "gt") else math.ceil(constant)
            if not -INT64 <= bound < INT64:
                if left.kind.bound > INT64:
                    raise self.refuse("the number has more than 64 bits", node, scope)
                return sql.is_not(None) if (bound > 0) == (name in ("lt", "le")) else False
            return op(f"number_{name}", sql, sa.literal(bound, sa.BigInteger()))
        if left.kind.name == "float":
            if isinstance(constant, decimal.Decimal):
                raise self.refuse("a float is compared with a Decimal", node, scope, "Make both of one type.")
            if not _is_double(constant):
                raise self.refuse("the integer is not a float without loss", node, scope, "Use a smaller one.")
            self.note(node, scope, "on PostgreSQL also <> 'NaN', which is the greatest number there")
            return op(f"float_{name}", left.sql, sa.literal(float(constant), sa.Double()))
        if isinstance(constant, float):
            raise self.refuse(
                "a Decimal is compared with a float, which no database does exactly",
                node,
                scope,
                f"Write Decimal({str(constant)!r}) if that is what is meant.",
            )
        return op(f"float_{name}", left.sql, self._bound_decimal(decimal.Decimal(constant), node, scope))

    # Membership

    def _membership(self, negate: bool, left: ast.expr, right: ast.expr, node: ast.expr, scope: Scope) -> Condition:
        needle = self.value(left, scope)
        if needle == Constant(ABSENT):
            return False
        if isinstance(right, ast.Tuple | ast.List | ast.Set) and self._reads_rows(right, scope):
            parts = [self.compare(ast.Eq(), needle, self.value(each, scope), node, scope) for each in right.elts]
            return self._negated_membership(negate, either(*parts), needle)
        if isinstance(right, ast.ListComp | ast.SetComp | ast.GeneratorExp) and self._reads_rows(right, scope):
            found = self._any(
                right,
                scope,
                lambda inner: self.compare(
                    ast.Eq(), self.value(left, scope), self.value(right.elt, inner), node, inner
                ),
            )
            if negate:
                raise self.refuse("`not in` of a comprehension is not translated", node, scope, "Write not (x in ...).")
            return found
        container = self.value(right, scope)
        if isinstance(container, Constant):
            return self._in_constant(negate, needle, container.value, node, scope)
        if isinstance(container, Value) and container.kind.name == "str":
            return self._in_text(negate, needle, container, node, scope)
        raise self.refuse("what `in` looks into is not translated", node, scope, "Look into a constant, or into text.")

    def _negated_membership(self, negate: bool, found: Condition, needle: Found) -> Condition:
        if not negate:
            return found
        there = needle.is_there() if isinstance(needle, Value) else None
        return both(negated(found), there)

    def _in_constant(self, negate: bool, needle: Found, container: Any, node: ast.expr, scope: Scope) -> Condition:
        if container is None or container is ABSENT:
            return False
        if isinstance(needle, Constant):
            return (needle.value in container) is not negate
        if not isinstance(needle, Value):
            raise self.refuse("objects are compared by identity, which a database does not know", node, scope)
        if isinstance(container, str):
            return self._in_text(negate, needle, Constant(container), node, scope)
        if type(container) is range and container.step == 1 and needle.kind.name == "int":
            found = both(
                self._ordered_number("ge", needle, container.start, node, scope),
                self._ordered_number("lt", needle, container.stop, node, scope),
            )
            return self._negated_membership(negate, found, needle)
        if not isinstance(container, list | tuple | set | frozenset | dict | range) or len(container) > 10000:
            raise self.refuse(
                f"`in` a {type(container).__name__} is not translated",
                node,
                scope,
                "Give a list, tuple, set or dict of at most 10,000.",
            )
        bounds, parts = [], []
        for each in container:
            if each is None:
                parts.append(self._identity(False, needle, Constant(None), node, scope))
            elif isinstance(each, float) and math.isnan(each):
                raise self.refuse("NaN is in a list by identity", node, scope, "Leave it out.")
            elif (bound := self._bound(needle.kind, each, node, scope)) is not None:
                bounds.append(bound)
        if bounds:
            if needle.kind.name == "str":
                first = (
                    [op("text_is" if needle.column else "text_eq", needle.sql, bounds[0])] if len(bounds) == 1 else []
                )
                parts += first or [op("text", needle.sql).in_([_binary(each) for each in bounds])]
            else:
                parts.append(needle.sql.in_(bounds))
        return self._negated_membership(negate, either(*parts), needle)

    def _in_text(self, negate: bool, needle: Found, text: Value | Constant, node: ast.expr, scope: Scope) -> Condition:
        if isinstance(needle, Constant) and not isinstance(needle.value, str):
            if needle.value is None:
                return False
            raise self.refuse("`in` text asks for text", node, scope)
        if isinstance(needle, Value) and needle.kind.name != "str":
            raise self.refuse("`in` text asks for text", node, scope)
        assert isinstance(needle, Constant | Value)
        found = op("contains", self._text(text, node, scope), self._text(needle, node, scope))
        return negated_strict(found, text, needle) if negate else found

    def _text(self, value: Constant | Value, node: ast.expr, scope: Scope) -> SQL:
        if isinstance(value, Value):
            return value.sql
        if problem := bad_text(value.value):
            raise self.refuse(problem, node, scope, "Compare with text without it.")
        return sa.literal(value.value, sa.String())

    # Values

    def value(self, node: ast.expr, scope: Scope) -> Found:
        """What an expression is in SQL, or the constant that it is."""
        if isinstance(node, ast.Name) and node.id in scope.names:
            binding = scope.names[node.id]
            if isinstance(binding, Late):
                return self.value(binding.node, binding.scope)
            return Constant(binding.value) if isinstance(binding, Item) else binding
        if not self._reads_rows(node, scope):
            return Constant(memory.value(node, _known(scope)))
        handler: Callable[[Any, Scope], Found] | None = {
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._conditional,
            ast.BoolOp: self._either_value,
            ast.Compare: self._as_value,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
        }.get(type(node))  # type: ignore[assignment]
        if handler is None:
            what: dict[type[ast.expr], str] = {
                ast.JoinedStr: "an f-string",
                ast.Lambda: "a lambda",
                ast.NamedExpr: ":=",
            }
            raise self.refuse(f"{what.get(type(node), type(node).__name__)} is not translated", node, scope)
        self.depth += 1
        if self.depth > _DEEPEST * 4:
            raise self.refuse("the expression is nested too deeply", node, scope)
        try:
            return handler(node, scope)
        finally:
            self.depth -= 1

    def _as_value(self, node: ast.expr, scope: Scope) -> Found:
        """A condition whose True or False is asked for."""
        return self._boolean_value(self._exact(node, scope))

    def _boolean_value(self, found: Condition) -> Found:
        if isinstance(found, bool):
            return Constant(found)
        sql = sa.case((found, sa.true()), else_=sa.false())
        return Value(sql, Kind("bool", sa.Boolean(), bound=1), column=True)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Found:
        owner, name = self.value(node.value, scope), attribute_name(node, scope)
        if isinstance(owner, Entity | Related):
            return self._field(owner, name, node, scope)
        if isinstance(owner, Value) and owner.kind.name in ("date", "datetime", "time", "aware"):
            return self._part(owner, name, node, scope)
        raise self.refuse(f"the attribute {name} of this is not translated", node, scope)

    def _field(self, owner: Entity | Related, name: str, node: ast.expr, scope: Scope) -> Found:
        target = owner.target
        if isinstance(target, sa.FromClause):
            if name not in target.c:
                raise self.refuse(f"there is no column {name}", node, scope, f"There are {', '.join(target.c.keys())}.")
            return self._column(owner, target.c[name], target.c[name], node, scope)
        mapper = sa.inspect(target).mapper
        if name in mapper.synonyms:
            name = mapper.synonyms[name].name
        attribute = mapper.attrs.get(name)
        self.read.add((target, name))
        if isinstance(attribute, orm.ColumnProperty):
            columns = attribute.columns
            if isinstance(columns[0], sa.Column):
                return self._column(owner, getattr(target, name), columns[0], node, scope)
            raise self.refuse(
                f"{name} is calculated by SQL, so that objects in memory do not know its value", node, scope
            )
        if isinstance(attribute, orm.RelationshipProperty):
            return self._relation(owner, attribute, name, node, scope)
        found = inspect.getattr_static(mapper.class_, name, None)
        if isinstance(found, hybrid_property) and (found.expr is None or found.expr is found.fget):
            found = property(found.fget)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            inner = inlined_with(found.fget, [owner])
            if inner is not None:
                return self.value(inner.source.body, inner)
        if found is None:
            names = ", ".join(sorted(mapper.attrs.keys()))
            raise self.refuse(f"{mapper.class_.__name__} has no attribute {name}", node, scope, f"It has {names}.")
        raise self.refuse(
            f"{mapper.class_.__name__}.{name} is no column, and no property of one expression", node, scope
        )

    def _column(self, owner: Entity | Related, sql: Any, column: Any, node: ast.expr, scope: Scope) -> Value:
        try:
            kind = kind_of(column.type)
        except NotExact as why:
            raise self.refuse(why.problem, node, scope, why.hint) from None
        for database, problem, hint in kind.refusals:
            self.refuse_on(database, problem, node, scope, hint)
        if isinstance(owner, Entity):
            return Value(sql, kind, none=bool(column.nullable), column=True)
        scalar = sa.select(sql).where(*owner.conditions).correlate_except(*owner.aliases).scalar_subquery()
        return Value(scalar, kind, none=bool(column.nullable), present=owner.exists() if column.nullable else None)

    def _relation(self, owner: Entity | Related, attribute: Any, name: str, node: ast.expr, scope: Scope) -> Found:
        if attribute.lazy in ("dynamic", "write_only"):
            raise self.refuse(
                f"the relation {name} is {attribute.lazy}, so that objects in memory do not hold it", node, scope
            )
        alias = orm.aliased(attribute.mapper)
        self.classes.add(attribute.mapper.class_)
        condition = getattr(owner.target, name).of_type(alias).__clause_element__()
        aliases, conditions = (owner.aliases, owner.conditions) if isinstance(owner, Related) else ((), ())
        self.note(node, scope, "a correlated subquery finds the related rows")
        return (Many if attribute.uselist else Related)(alias, (*aliases, alias), (*conditions, condition))

    def _part(self, owner: Value, name: str, node: ast.expr, scope: Scope) -> Value:
        """A part of a date or time."""
        dates, times = ("year", "month", "day"), ("hour", "minute", "second", "microsecond")
        known = {"date": dates, "datetime": dates + times, "time": times}.get(owner.kind.name, ())
        if owner.kind.name == "aware":
            raise self.refuse(
                "the parts of a time with a zone depend on the zone of who reads it",
                node,
                scope,
                "Compare whole times.",
            )
        if name not in known:
            raise self.refuse(f"the attribute {name} of a {owner.kind.name} is not translated", node, scope)
        prefix = "time_" if owner.kind.name == "time" else ""
        return Value(op(f"{prefix}{name}", owner.sql), Kind("int", sa.BigInteger(), bound=999999))

    def _binary(self, node: ast.BinOp, scope: Scope) -> Found:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        for each in (left, right):
            if isinstance(each, Constant) and each.value in (None, ABSENT):
                return Constant(ABSENT)
        if not isinstance(left, Constant | Value) or not isinstance(right, Constant | Value):
            raise self.refuse("objects have no arithmetic", node, scope)
        kinds = {_kind_name(left), _kind_name(right)}
        if kinds == {"str"} and isinstance(node.op, ast.Add):
            first, second = (self._text(each, node, scope) for each in (left, right))
            return Value(op("concat", first, second), Kind("str", sa.String()))
        if not kinds <= set(NUMBERS):
            raise self.refuse(
                "this arithmetic is not translated",
                node,
                scope,
                "Move it to a side of the comparison that no row is in: b.day > today - timedelta(days=3).",
            )
        if "float" in kinds and "decimal" in kinds:
            raise self.refuse("Decimal and float have no arithmetic in Python", node, scope, "Make both of one type.")
        if "decimal" in kinds:
            return self._decimal_arithmetic(node, left, right, scope)
        if "float" in kinds or isinstance(node.op, ast.Div):
            return self._float_arithmetic(node, left, right, scope)
        return self._int_arithmetic(node, left, right, scope)

    def _int_arithmetic(self, node: ast.BinOp, left: Constant | Value, right: Constant | Value, scope: Scope) -> Value:
        names = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("this operator on integers is not translated", node, scope)
        first, second = self._int(left, node, scope), self._int(right, node, scope)
        one, two = first.kind.bound, second.kind.bound
        bound = {"add": one + two, "sub": one + two, "mul": one * two, "floordiv": one + 1, "mod": two}[name]
        if len(str(bound)) > 55:
            raise self.refuse(
                "the result may have more digits than every database keeps", node, scope, "Multiply fewer columns."
            )
        if name in ("floordiv", "mod"):
            if _size(node.left) + 2 * _size(node.right) > 12:
                raise self.refuse("division within division is not translated", node, scope, "Divide once.")
            self.note(node, scope, "rounded down, as Python does; NULL where the divisor is 0")
        else:
            self.note(node, scope, "exact integers of any size (on SQLite an error beyond 64 bits)")
        return Value(op(f"int_{name}", first.sql, second.sql), Kind("int", sa.BigInteger(), bound=bound))

    def _int(self, value: Constant | Value, node: ast.expr, scope: Scope) -> Value:
        if isinstance(value, Value):
            return value if value.kind.name == "int" else _int_value(value)
        number = int(value.value)
        if not -INT64 <= number < INT64:
            raise self.refuse("the number has more than 64 bits", node, scope)
        return Value(sa.literal(number, sa.BigInteger()), Kind("int", sa.BigInteger(), bound=abs(number)))

    def _float_arithmetic(
        self, node: ast.BinOp, left: Constant | Value, right: Constant | Value, scope: Scope
    ) -> Value:
        names = {ast.Add: "float_add", ast.Sub: "float_sub", ast.Mult: "float_mul", ast.Div: "divide"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("//, % and ** of floats are not exact on any database", node, scope)
        if name == "divide":
            self.note(node, scope, "as floats; NULL where the divisor is 0")
        first, second = self._double(left, node, scope), self._double(right, node, scope)
        return Value(op(name, first, second), Kind("float", sa.Double()))

    def _double(self, value: Constant | Value, node: ast.expr, scope: Scope) -> SQL:
        if isinstance(value, Value):
            return self._as_double(value, node, scope)
        if not is_finite(value.value) or not _is_double(value.value):
            raise self.refuse("the number is not a finite float without loss", node, scope, "Use a smaller one.")
        return op("double", sa.literal(float(value.value), sa.Double()))

    def _decimal_arithmetic(
        self, node: ast.BinOp, left: Constant | Value, right: Constant | Value, scope: Scope
    ) -> Value:
        names = {ast.Add: "decimal_add", ast.Sub: "decimal_sub", ast.Mult: "decimal_mul"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse(
                "division of Decimals is not exact on every database", node, scope, "Multiply the other side instead."
            )
        (one, first), (two, second) = self._decimal(left, node, scope), self._decimal(right, node, scope)
        if name == "decimal_mul":
            digits = (one[0] + two[0], one[1] + two[1])
        else:
            digits = (max(one[0], two[0]) + 1, max(one[1], two[1]))
        if sum(digits) > min(28, decimal.getcontext().prec):
            raise self.refuse(
                "Python rounds Decimals to 28 digits, and this may have more",
                node,
                scope,
                "Declare the columns with fewer digits, as in Numeric(10, 2).",
            )
        return Value(op(name, first, second), Kind("decimal", sa.Numeric(), digits=digits))

    def _decimal(self, value: Constant | Value, node: ast.expr, scope: Scope) -> tuple[tuple[int, int], SQL]:
        if isinstance(value, Constant):
            number = decimal.Decimal(value.value)
            if not is_finite(number):
                raise self.refuse(f"{number!r} is no number that every database knows", node, scope)
            return _digits(number), self._bound_decimal(number, node, scope)
        if value.kind.name == "decimal":
            if value.kind.digits is None:
                raise self.refuse(
                    "the column does not say how many digits it has", node, scope, "Declare it Numeric(10, 2)."
                )
            return value.kind.digits, value.sql
        return (len(str(value.kind.bound)), 0), _as_int(value)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Found:
        if isinstance(node.op, ast.Not):
            return self._as_value(node, scope)
        found = self.value(node.operand, scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS or isinstance(node.op, ast.Invert):
            raise self.refuse("this operator is not translated", node, scope)
        if found.kind.name in ("bool", "int"):
            found = replace(_int_value(found), column=False, none=False, present=None)
            if isinstance(node.op, ast.UAdd):
                return found
            return replace(found, sql=op("int_sub", sa.literal(0, sa.BigInteger()), found.sql))
        sql = -found.sql if isinstance(node.op, ast.USub) else found.sql
        return Value(sql, found.kind)

    def _conditional(self, node: ast.IfExp, scope: Scope) -> Found:
        test = self._exact(node.test, scope)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse, scope)
        return self._chosen(test, self.value(node.body, scope), self.value(node.orelse, scope), node, scope)

    def _chosen(self, test: SQL, then: Found, other: Found, node: ast.expr, scope: Scope) -> Value:
        """A value by a condition."""
        first, second = self._same_kind(then, other, node, scope)
        none = first.none or second.none
        there = [each.is_there() for each in (first, second)]
        always = there == [None, None]
        present = None
        if none and not always:
            one, two = (sa.true() if each is None else each for each in there)
            present = sa.case((test, one), else_=two) == sa.true()
        sql = sa.case((test, first.sql), else_=second.sql)
        bound = max(first.kind.bound, second.kind.bound)
        digits = first.kind.digits and second.kind.digits and tuple(map(max, first.kind.digits, second.kind.digits))
        kind = replace(first.kind, bound=bound, digits=digits)  # type: ignore[arg-type]
        return Value(sql, kind, none=none, present=present, column=always and not none)

    def _same_kind(self, then: Found, other: Found, node: ast.expr, scope: Scope) -> tuple[Value, Value]:
        model = next((each for each in (then, other) if isinstance(each, Value)), None)
        if model is None:
            known = next(
                (each.value for each in (then, other) if isinstance(each, Constant) and each.value is not None), None
            )
            types = {"bool": sa.Boolean(), "int": sa.BigInteger(), "str": sa.String(), "float": sa.Double()}
            name = constant_kind(known)
            if name not in types:
                raise self.refuse("a choice between these is not translated", node, scope)
            model = Value(sa.null(), Kind(name, types[name], bound=INT64))
        found = []
        for each in (then, other):
            if isinstance(each, Constant):
                each = self._typed(each, model.kind, node, scope)
            if (
                not isinstance(each, Value)
                or each.kind.name != model.kind.name
                or each.kind.members != model.kind.members
            ):
                raise self.refuse("both results of a choice must have one type", node, scope, "Convert one of them.")
            found.append(each)
        return found[0], found[1]

    def _typed(self, constant: Constant, kind: Kind, node: ast.expr, scope: Scope) -> Value:
        """A constant as a value in SQL."""
        if constant.value is None or constant.value is ABSENT:
            absent = constant.value is ABSENT
            return Value(
                sa.cast(sa.null(), kind.type) if kind.name not in ("enum", "uuid") else sa.null(),
                kind,
                none=not absent,
                column=not absent,
            )
        if constant_kind(constant.value) != kind.name:
            raise self.refuse("both results of a choice must have one type", node, scope, "Convert one of them.")
        bound = self._bound(kind, constant.value, node, scope)
        if bound is None:
            raise self.refuse("this constant has no place beside the other values", node, scope)
        if kind.name == "float":
            bound = op("double", bound)
        if kind.name in ("datetime", "date", "time"):
            bound = op(f"as_{kind.name}", bound)
        size = abs(constant.value) if kind.name == "int" else kind.bound
        digits = _digits(constant.value) if kind.name == "decimal" else kind.digits
        return Value(bound, replace(kind, bound=size, digits=digits), column=True)

    def _either_value(self, node: ast.BoolOp, scope: Scope) -> Found:
        """``and`` and ``or`` where a value is asked for: the first that decides, or the last."""
        first, *rest = node.values
        found = self.value(first, scope)
        for each in rest:
            truth = self._truth(found, node, scope)
            decides = isinstance(node.op, ast.Or)
            if isinstance(truth, bool):
                if truth is decides:
                    return found
                found = self.value(each, scope)
                continue
            following = self.value(each, scope)
            then, other = (found, following) if decides else (following, found)
            found = self._chosen(truth, then, other, node, scope)
        return found

    # Subscripts and calls

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Found:
        owner = self.value(node.value, scope)
        if not isinstance(owner, Value) or owner.kind.name != "str":
            raise self.refuse("only text is indexed or sliced", node, scope)
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.refuse("a slice with a step is not translated", node, scope)
            start = self._position(node.slice.lower, 0, owner, node, scope)
            stop = self._position(node.slice.upper, None, owner, node, scope)
            if stop is None:
                stop = op("length", owner.sql)
            if start is None:
                return Constant(ABSENT)
            return Value(op("slice", owner.sql, start, stop), Kind("str", sa.String()))
        index = self.value(node.slice, scope)
        if not isinstance(index, Constant) or type(index.value) is not int or abs(index.value) >= INT32 // 2:
            raise self.refuse("text is indexed by a constant", node, scope)
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

    def _position(
        self, part: ast.expr | None, missing: int | None, owner: Value, node: ast.expr, scope: Scope
    ) -> SQL | None:
        found = Constant(None) if part is None else self.value(part, scope)
        if isinstance(found, Constant) and found.value is None:
            return None if missing is None else sa.literal(missing, sa.Integer())
        if not isinstance(found, Constant) or type(found.value) is not int or abs(found.value) >= INT32 // 2:
            raise self.refuse("text is sliced by constants", node, scope)
        if found.value >= 0:
            return sa.literal(found.value, sa.Integer())
        return op("from_end", owner.sql, sa.literal(-found.value, sa.Integer()))

    def _call(self, node: ast.Call, scope: Scope, as_condition: bool = False) -> Any:
        """A call: a value, or where ``as_condition`` perhaps a condition."""
        if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
            raise self.refuse("* and ** are not translated", node, scope)
        keywords = {each.arg: each.value for each in node.keywords if each.arg}
        found: Any = None
        if isinstance(node.func, ast.Attribute) and self._reads_rows(node.func.value, scope):
            found = self._method(node, node.func, keywords, scope)
        elif self._reads_rows(node.func, scope):
            raise self.refuse("which function is called depends on a row", node, scope)
        else:
            function = memory.value(node.func, _known(scope))
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
        raise self.refuse(f"{name}() of a row is not translated: {why}", node, scope)

    def _inside(self, inner: Scope) -> Any:
        body = inner.source.body
        if isinstance(body, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call) and _is_condition(body):
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
                    return self._inside(inner)
            raise self.refuse(f"the method {name} is not one expression whose source is known", node, scope)
        if isinstance(owner, Value) and not keywords:
            if owner.kind.name == "str" and name in ("startswith", "endswith") and len(node.args) == 1:
                return self._affix(name == "startswith", owner, node.args[0], node, scope)
            if owner.kind.name in ("date", "datetime") and not node.args:
                if name in ("weekday", "isoweekday"):
                    sql = op("weekday", owner.sql)
                    return Value(
                        sql + sa.literal(1, sa.Integer()) if name == "isoweekday" else sql,
                        Kind("int", sa.BigInteger(), bound=7),
                    )
                if name == "date" and owner.kind.name == "datetime":
                    return Value(op("date", owner.sql), Kind("date", sa.Date()))
        hint = _MEMORY
        if name in ("lower", "upper", "casefold"):
            hint = f"Databases change the case of fewer letters than Python. Store the text in one case. {_MEMORY}"
        raise self.refuse(f".{name}() is not exact on every database", node, scope, hint)

    def _affix(self, prefix: bool, owner: Value, argument: ast.expr, node: ast.Call, scope: Scope) -> Condition:
        affix = self.value(argument, scope)
        if isinstance(affix, Constant):
            if affix.value is None or affix.value is ABSENT:
                return False
            choices = affix.value if isinstance(affix.value, tuple) else (affix.value,)
            if not all(type(each) is str for each in choices):
                raise self.refuse("the prefix or suffix is not text", node, scope)
            return either(*(self._affix_constant(prefix, owner, each, node, scope) for each in choices))
        if not isinstance(affix, Value) or affix.kind.name != "str":
            raise self.refuse("the prefix or suffix is not text", node, scope)
        return op("starts" if prefix else "ends", owner.sql, affix.sql)

    def _affix_constant(self, prefix: bool, owner: Value, text: str, node: ast.expr, scope: Scope) -> Condition:
        if not text:
            return owner.sql.is_not(None)
        bound = self._text(Constant(text), node, scope)
        if not prefix:
            return op("ends", owner.sql, bound)
        after = next_prefix(text)
        self.note(
            node, scope, "a range by code points, which knows no wildcards, and which an index of that order serves"
        )
        found = op("text_ge", owner.sql, bound)
        return found if after is None else sa.and_(found, op("text_lt", owner.sql, sa.literal(after, sa.String())))

    def _length(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        kind = Kind("int", sa.BigInteger(), bound=INT32)
        if isinstance(found, Many):
            count = sa.select(sa.func.count()).where(*found.conditions).select_from(found.target)
            sql = count.correlate_except(*found.aliases).scalar_subquery()
            present = (
                Related(found.target, found.aliases[:-1], found.conditions[:-1]).exists()
                if len(found.aliases) > 1
                else None
            )
            if present is not None:
                return Value(sa.case((present, sql)), kind)
            return Value(sql, kind, column=True)
        if isinstance(found, Value) and found.kind.name in ("str", "bytes"):
            return Value(op("length" if found.kind.name == "str" else "bytes_length", found.sql), kind)
        raise self.refuse("len() is of text, bytes or a relation", node, scope)

    def _absolute(self, node: ast.Call, scope: Scope) -> Value:
        found = self.value(node.args[0], scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS:
            raise self.refuse("abs() is of a number", node, scope)
        if found.kind.name in ("bool", "int"):
            return Value(op("int_abs", _as_int(found)), Kind("int", sa.BigInteger(), bound=found.kind.bound))
        return Value(op("abs", found.sql), found.kind)

    def _extreme(self, greatest: bool, node: ast.Call, scope: Scope) -> Found:
        """min() and max() of several: the first of those that are equal, as in Python."""
        found = self.value(node.args[0], scope)
        for each in node.args[1:]:
            other = self.value(each, scope)
            for one in (found, other):
                if isinstance(one, Constant) and one.value in (None, ABSENT):
                    return Constant(ABSENT)
            first, second = self._same_kind(found, other, node, scope)
            better = self._ordered(ast.Gt() if greatest else ast.Lt(), second, first, node, scope)
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
        unmet = self._any(node, scope, lambda inner: negated(self._exact(node.elt, inner)))
        # Where the relation cannot be reached, all() is false and not true of nothing.
        return both(negated(unmet), self._reachable(node.generators[0].iter, scope))

    def _reachable(self, iterable: ast.expr, scope: Scope) -> Condition:
        found = self.value(iterable, scope)
        if isinstance(found, Many) and len(found.aliases) > 1:
            return Related(found.target, found.aliases[:-1], found.conditions[:-1]).exists()
        return not (isinstance(found, Constant) and found.value in (None, ABSENT))

    def _any(self, node: Any, scope: Scope, test: Callable[[Scope], Condition], depth: int = 0) -> Condition:
        """Whether the test holds for an element of a comprehension, from its loop number ``depth`` on."""
        if depth == len(node.generators):
            return test(scope)
        part = node.generators[depth]
        if part.is_async:
            raise self.refuse("asynchronous loops are not translated", part.iter, scope)

        def rest(inner: Scope) -> Condition:
            met: Condition = True
            for each in part.ifs:
                met = both(met, self._exact(each, inner))
                if met is False:
                    return False
            return both(met, self._any(node, inner, test, depth + 1))

        iterable = self.value(part.iter, scope)
        if isinstance(iterable, Constant):
            if iterable.value is None or iterable.value is ABSENT:
                return False
            items = list(iterable.value)
            if len(items) > 500:
                raise self.refuse(
                    "a loop over more than 500 constants is not translated", part.iter, scope, "Write `in`."
                )
            return either(*(rest(scope.with_names(memory.unpack(part.target, item))) for item in items))
        if not isinstance(iterable, Many) or not isinstance(part.target, ast.Name):
            raise self.refuse("a loop is over a relation or over constants", part.iter, scope)
        inner = rest(scope.with_names({part.target.id: Entity(iterable.target)}))
        if inner is False:
            return False
        conditions = iterable.conditions if inner is True else (*iterable.conditions, inner)
        return sa.exists(sa.literal_column("1")).where(*conditions).correlate_except(*iterable.aliases)


# Small helpers


def negated(found: Condition) -> Condition:
    """True wherever the condition is not true."""
    return not found if isinstance(found, bool) else op("not_true", found)


def negated_strict(found: SQL, *values: Constant | Value) -> Condition:
    """True where the condition is false and every value is there."""
    return both(negated(found), *(each.sql.is_not(None) for each in values if isinstance(each, Value)))


def both(*conditions: Condition | None) -> Condition:
    """All of the conditions; None among them asks for nothing."""
    parts = []
    for each in conditions:
        if each is False:
            return False
        if each is not True and each is not None:
            parts.append(each)
    return sa.and_(*parts) if len(parts) > 1 else parts[0] if parts else True


def either(*conditions: Condition) -> Condition:
    """At least one of the conditions."""
    parts = []
    for each in conditions:
        if each is True:
            return True
        if each is not False:
            parts.append(each)
    return sa.or_(*parts) if len(parts) > 1 else parts[0] if parts else False


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_condition(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Compare | ast.Call)
        or _is_not(node)
        or (isinstance(node, ast.BoolOp) and all(map(_is_condition, node.values)))
    )


def _is_row(binding: Any) -> bool:
    if isinstance(binding, Late):
        names = bound_names(binding.node, binding.scope)
        return any(_is_row(binding.scope.names[name]) for name in names)
    return not isinstance(binding, Item)


def _known(scope: Scope) -> Scope:
    """The scope without its rows of the database: what memory can evaluate."""
    return Scope(scope.source, scope.space, {name: each for name, each in scope.names.items() if not _is_row(each)})


def _group(kind: Kind) -> str:
    return "number" if kind.name in NUMBERS else kind.name


def _kind_name(value: Constant | Value) -> str | None:
    return value.kind.name if isinstance(value, Value) else constant_kind(value.value)


def _as_int(value: Value) -> SQL:
    return op("whole", value.sql) if value.kind.name == "bool" else value.sql


def _int_value(value: Value) -> Value:
    if value.kind.name != "bool":
        return value
    return replace(value, sql=_as_int(value), kind=Kind("int", sa.BigInteger(), bound=1))


def _is_double(number: float) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


def _digits(number: Any) -> tuple[int, int]:
    """How many digits a number has before and after its point."""
    _, digits, exponent = decimal.Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    return max(len(digits) + exponent, 1), max(-exponent, 0)


def _size(node: ast.AST) -> int:
    return sum(isinstance(each, ast.BinOp) for each in ast.walk(node)) * 3 + 1


def _binary(bound: SQL) -> SQL:
    return op("text", bound)


def checked(found: Condition, translator: Translator) -> SQL:
    """A whole condition as one element that refuses where it is not exact."""
    clause = found if not isinstance(found, bool) else sa.true() if found else sa.false()
    return Checked(clause, dict(translator.refusals))


__all__ = ["Condition", "Entity", "Note", "Translator", "both", "checked", "either", "negated"]
