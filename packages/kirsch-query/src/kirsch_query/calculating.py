"""Columns, relations, parts of dates, arithmetic and choices."""

from __future__ import annotations

import ast
import decimal
import inspect
from dataclasses import replace
from types import FunctionType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.sql.selectable import FromGrouping

from kirsch_query.containing import Containing
from kirsch_query.emit import op
from kirsch_query.kinds import INT64, MOST_DAYS, NUMBERS, Kind, NotExact, constant_kind, in_days, is_finite, known_kind
from kirsch_query.scope import ABSENT, Scope, attribute_name, inlined_with
from kirsch_query.terms import (
    SQL,
    Constant,
    Entity,
    Found,
    Many,
    Related,
    Value,
    as_int,
    as_sql,
    both,
    digits_of,
    int_value,
    is_double,
    kind_name,
    size_of,
    solid,
)


def _is_plain(rows: Any) -> bool:
    """Return whether rows have no NULL in columns that are NOT NULL. Rows of an outer join or of a subquery may."""
    if isinstance(rows, sa.Alias | FromGrouping):
        return _is_plain(rows.element)
    if isinstance(rows, sa.Join):
        return not rows.isouter and not rows.full and _is_plain(rows.left) and _is_plain(rows.right)
    return isinstance(rows, sa.Table)


class Calculating(Containing):
    """The part of a translation that calculates."""

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Found:
        owner, name = self.value(node.value, scope), attribute_name(node, scope)
        if isinstance(owner, Entity | Related):
            return self._field(owner, name)
        if isinstance(owner, Value) and owner.kind.name == "span" and name == "days":
            return Value(owner.sql, in_days(owner.kind))
        if isinstance(owner, Value) and owner.kind.name in ("date", "datetime", "time", "aware"):
            return self._part(owner, name)
        raise self.refuse(f"the attribute {name} of this is not translated")

    def _field(self, owner: Entity | Related, name: str) -> Found:
        target = owner.target
        if isinstance(target, sa.FromClause):
            if name in target.c and not isinstance(target.c[name], sa.Column):
                raise self.refuse(f"{name} is calculated by SQL, so that its type is not known for certain")
            if name not in target.c:
                raise self.refuse(f"there is no column {name}", f"There are {', '.join(target.c.keys())}.")
            return self._column(owner, target.c[name], target.c[name])
        mapper = sa.inspect(target).mapper
        if name in mapper.synonyms:
            name = mapper.synonyms[name].name
        attribute = mapper.attrs.get(name)
        self.read.add((target, name))
        if isinstance(attribute, orm.ColumnProperty):
            columns = attribute.columns
            if isinstance(columns[0], sa.Column):
                return self._column(owner, getattr(target, name), columns[0])
            raise self.refuse(f"{name} is calculated by SQL, so that objects in memory do not know its value")
        if isinstance(attribute, orm.RelationshipProperty):
            return self._relation(owner, attribute, name)
        found = inspect.getattr_static(mapper.class_, name, None)
        if isinstance(found, hybrid_property):
            found = property(found.fget)  # what objects in memory do; its SQL expression may mean something else
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            inner = inlined_with(found.fget, [owner])
            if inner is not None:
                self.keep_nothing()
                return self.value(inner.source.body, inner)
        if found is None:
            names = ", ".join(sorted(mapper.attrs.keys()))
            raise self.refuse(f"{mapper.class_.__name__} has no attribute {name}", f"It has {names}.")
        raise self.refuse(f"{mapper.class_.__name__}.{name} is no column, and no property of one expression")

    def _column(self, owner: Entity | Related, sql: Any, column: Any) -> Value:
        try:
            kind = known_kind(column)
        except NotExact as why:
            raise self.refuse(why.problem, why.hint) from None
        for database, problem, hint in kind.refusals:
            self.refuse_on(database, problem, hint)
        none = bool(column.nullable) or not _is_plain(sa.inspect(owner.target).selectable)
        if isinstance(owner, Entity):
            return Value(sql, kind, none=none, column=True)
        scalar = sa.select(sql).where(*owner.conditions).correlate_except(*owner.aliases).scalar_subquery()
        present = owner.exists() if none else None
        return Value(scalar, kind, none, present, of_related=(owner, Value(sql, kind, none=none, column=True)))

    def _relation(self, owner: Entity | Related, attribute: Any, name: str) -> Found:
        if attribute.lazy in ("dynamic", "write_only", "noload"):
            raise self.refuse(f"the relation {name} is {attribute.lazy}, so that objects in memory do not hold it")
        alias = orm.aliased(attribute.mapper)
        self.classes.add(attribute.mapper.class_)
        condition = getattr(owner.target, name).of_type(alias).__clause_element__()
        aliases, conditions = (owner.aliases, owner.conditions) if isinstance(owner, Related) else ((), ())
        self.note("a subquery finds the related rows")
        return (Many if attribute.uselist else Related)(alias, (*aliases, alias), (*conditions, condition))

    def _part(self, owner: Value, name: str) -> Value:
        """A part of a date or time."""
        dates, times = ("year", "month", "day"), ("hour", "minute", "second", "microsecond")
        known = {"date": dates, "datetime": dates + times, "time": times}.get(owner.kind.name, ())
        if owner.kind.name == "aware":
            raise self.refuse(
                "the parts of a time with a zone depend on the zone of who reads it", "Compare whole times."
            )
        if name not in known:
            raise self.refuse(f"the attribute {name} of a {owner.kind.name} is not translated")
        prefix = "time_" if owner.kind.name == "time" else ""
        return Value(op(f"{prefix}{name}", owner.sql), Kind("int", sa.BigInteger(), bound=999999))

    def _binary(self, node: ast.BinOp, scope: Scope) -> Found:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        for each in (left, right):
            if isinstance(each, Constant) and each.value in (None, ABSENT):
                return Constant(ABSENT)
        if not isinstance(left, Constant | Value) or not isinstance(right, Constant | Value):
            raise self.refuse("objects have no arithmetic")
        kinds = {kind_name(left), kind_name(right)}
        if kinds == {"str"} and isinstance(node.op, ast.Add):
            first, second = (self._calculated(each) for each in (left, right))
            return Value(op("concat", first, second), Kind("str", sa.String()))
        if kinds == {"date"} and isinstance(node.op, ast.Sub):
            first, second = (each.sql if isinstance(each, Value) else self._date(each) for each in (left, right))
            return Value(op("days", first, second), Kind("span", sa.Integer(), bound=MOST_DAYS))
        if not kinds <= set(NUMBERS):
            raise self.refuse(
                "this arithmetic is not translated",
                "Move it to a side of the comparison that no row is in: b.day > today - timedelta(days=3).",
            )
        if "float" in kinds and "decimal" in kinds:
            raise self.refuse("Decimal and float have no arithmetic in Python", "Make both of one type.")
        if "decimal" in kinds:
            return self._decimal_arithmetic(node, left, right)
        if "float" in kinds or isinstance(node.op, ast.Div):
            return self._float_arithmetic(node, left, right)
        return self._int_arithmetic(node, left, right)

    def _date(self, constant: Constant) -> SQL:
        return op("as_date", self.literal(constant.value, sa.Date()))

    def _int_arithmetic(self, node: ast.BinOp, left: Constant | Value, right: Constant | Value) -> Value:
        names = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("this operator on integers is not translated")
        first, second = self._int(left), self._int(right)
        one, two = first.kind.bound, second.kind.bound
        bound = {"add": one + two, "sub": one + two, "mul": one * two, "floordiv": one + 1, "mod": two}[name]
        if len(str(bound)) > 55:
            raise self.refuse("the result may have more digits than every database keeps", "Multiply fewer columns.")
        if name in ("floordiv", "mod"):
            if size_of(node.left) + 2 * size_of(node.right) > 12:
                raise self.refuse("division within division is not translated", "Divide once.")
            self.note("rounded down, as Python does; NULL where the divisor is 0")
        else:
            self.note("exact integers of any size (on SQLite an error beyond 64 bits)")
        return Value(op(f"int_{name}", first.sql, second.sql), Kind("int", sa.BigInteger(), bound=bound))

    def _int(self, value: Constant | Value) -> Value:
        if isinstance(value, Value):
            return value if value.kind.name == "int" else int_value(value)
        number = int(value.value)
        if not -INT64 <= number < INT64:
            raise self.refuse("the number has more than 64 bits")
        return Value(sa.literal(number, sa.BigInteger()), Kind("int", sa.BigInteger(), bound=abs(number)))

    def _float_arithmetic(self, node: ast.BinOp, left: Constant | Value, right: Constant | Value) -> Value:
        names = {ast.Add: "float_add", ast.Sub: "float_sub", ast.Mult: "float_mul", ast.Div: "divide"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("//, % and ** of floats are not exact on any database")
        if name == "divide":
            self.note("as floats; NULL where the divisor is 0")
        first, second = self._double(left), self._double(right)
        # SQLite has NULL for NaN, such as infinity - infinity, which Python could evaluate.
        present = both(solid(left, right), second != sa.literal(0.0, sa.Double()) if name == "divide" else True)
        return Value(op(name, first, second), Kind("float", sa.Double()), present=as_sql(present))

    def _double(self, value: Constant | Value) -> SQL:
        if isinstance(value, Value):
            return self._as_double(value)
        if not is_finite(value.value) or not is_double(value.value):
            raise self.refuse("the number is not a finite float without loss", "Use a smaller one.")
        return op("double", sa.literal(float(value.value), sa.Double()))

    def _decimal_arithmetic(self, node: ast.BinOp, left: Constant | Value, right: Constant | Value) -> Value:
        names = {ast.Add: "decimal_add", ast.Sub: "decimal_sub", ast.Mult: "decimal_mul"}
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("division of Decimals is not exact on every database", "Multiply the other side instead.")
        (one, first), (two, second) = self._decimal(left), self._decimal(right)
        if name == "decimal_mul":
            digits = (one[0] + two[0], one[1] + two[1])
        else:
            digits = (max(one[0], two[0]) + 1, max(one[1], two[1]))
        if sum(digits) > min(28, decimal.getcontext().prec):
            raise self.refuse(
                "Python rounds Decimals to 28 digits, and this may have more",
                "Declare the columns with fewer digits, as in Numeric(10, 2).",
            )
        return Value(op(name, first, second), Kind("decimal", sa.Numeric(), digits=digits))

    def _decimal(self, value: Constant | Value) -> tuple[tuple[int, int], SQL]:
        if isinstance(value, Constant):
            number = decimal.Decimal(value.value)
            if not is_finite(number):
                raise self.refuse(f"{number!r} is no number that every database knows")
            return digits_of(number), self._bound_decimal(number)
        if value.kind.name == "decimal":
            if value.kind.digits is None:
                raise self.refuse("the column does not say how many digits it has", "Declare it Numeric(10, 2).")
            return value.kind.digits, value.sql
        return (len(str(value.kind.bound)), 0), as_int(value)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Found:
        if isinstance(node.op, ast.Not):
            return self._boolean_value(self._exact(node, scope))
        found = self.value(node.operand, scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS or isinstance(node.op, ast.Invert):
            raise self.refuse("this operator is not translated")
        if found.kind.name in ("bool", "int"):
            found = replace(int_value(found), column=False, none=False, present=None)
            if isinstance(node.op, ast.UAdd):
                return found
            return replace(found, sql=op("int_sub", sa.literal(0, sa.BigInteger()), found.sql))
        sql = -found.sql if isinstance(node.op, ast.USub) else found.sql
        return Value(sql, found.kind, present=as_sql(solid(found)))

    def _conditional(self, node: ast.IfExp, scope: Scope) -> Found:
        test = self._exact(node.test, scope)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse, scope)
        return self._chosen(test, self.value(node.body, scope), self.value(node.orelse, scope))

    def _chosen(self, test: SQL, then: Found, other: Found) -> Value:
        """A value by a condition."""
        first, second = self._same_kind(then, other)
        none = first.none or second.none
        one, two = first.is_there(), second.is_there()
        always = one is None and two is None
        present = None
        if not always and (none or first.kind.name == "float"):
            present = sa.case((test, as_sql(both(one))), else_=as_sql(both(two))) == sa.true()
        sql = sa.case((test, first.sql), else_=second.sql)
        kind = first.kind.joined(second.kind)
        return Value(sql, kind, none=none, present=present, column=always and not none)

    def _same_kind(self, then: Found, other: Found) -> tuple[Value, Value]:
        model = next((each for each in (then, other) if isinstance(each, Value)), None)
        if model is None:
            known = next(
                (each.value for each in (then, other) if isinstance(each, Constant) and each.value is not None), None
            )
            types = {"bool": sa.Boolean(), "int": sa.BigInteger(), "str": sa.String(), "float": sa.Double()}
            name = constant_kind(known)
            if name not in types:
                raise self.refuse("a choice between these is not translated")
            model = Value(sa.null(), Kind(name, types[name], bound=INT64))
        found = []
        for each in (then, other):
            if isinstance(each, Constant):
                each = self._typed(each, model.kind)
            if (
                not isinstance(each, Value)
                or each.kind.name != model.kind.name
                or each.kind.members != model.kind.members
            ):
                raise self.refuse("both results of a choice must have one type", "Convert one of them.")
            found.append(each)
        return found[0], found[1]

    def _typed(self, constant: Constant, kind: Kind) -> Value:
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
            raise self.refuse("both results of a choice must have one type", "Convert one of them.")
        text = kind.name == "str"
        bound = self._bound_calculated(constant.value) if text else self._bound(kind, constant.value)
        if bound is None or (kind.name == "float" and not is_finite(constant.value)):
            raise self.refuse("this constant has no place beside the other values")
        if kind.name == "float":
            bound = op("double", bound)
        if kind.name in ("datetime", "date", "time"):
            bound = op(f"as_{kind.name}", bound)
        size = abs(constant.value) if kind.name == "int" else kind.bound
        digits = digits_of(constant.value) if kind.name == "decimal" else kind.digits
        return Value(bound, replace(kind, bound=size, digits=digits), column=True)

    def _either_value(self, node: ast.BoolOp, scope: Scope) -> Found:
        """``and`` and ``or`` where a value is asked for: the first that decides, or the last."""
        first, *rest = node.values
        found = self.value(first, scope)
        for each in rest:
            truth = self._truth(found)
            decides = isinstance(node.op, ast.Or)
            if isinstance(truth, bool):
                if truth is decides:
                    return found
                found = self.value(each, scope)
                continue
            following = self.value(each, scope)
            then, other = (found, following) if decides else (following, found)
            found = self._chosen(truth, then, other)
        return found
