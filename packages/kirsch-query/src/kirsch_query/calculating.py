"""Translation of columns, relations, parts of dates, arithmetic and conditional expressions."""

from __future__ import annotations

import ast
import datetime
import inspect
from dataclasses import replace
from types import FunctionType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.sql.selectable import FromGrouping

from kirsch_query.arithmetic import Arithmetic
from kirsch_query.documents import is_document
from kirsch_query.emit import op
from kirsch_query.kinds import INT64, Kind, NotExact, constant_kind, in_days, is_finite, known_kind
from kirsch_query.scope import ABSENT, Scope, attribute_name, inlined_with
from kirsch_query.terms import (
    SQL,
    Answer,
    Constant,
    Entity,
    Found,
    Many,
    Record,
    Related,
    Value,
    as_sql,
    both,
    digits_of,
    primary_key,
    reachable,
)


def _is_plain(rows: Any) -> bool:
    """Return whether NOT NULL columns of the rows are never NULL. In an outer join or a subquery they can be."""
    if isinstance(rows, sa.Alias | FromGrouping):
        return _is_plain(rows.element)
    if isinstance(rows, sa.Join):
        return not rows.isouter and not rows.full and _is_plain(rows.left) and _is_plain(rows.right)
    return isinstance(rows, sa.Table)


class Calculating(Arithmetic):
    """The part of a translation that calculates values."""

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Found:
        owner, name = self.value(node.value, scope), attribute_name(node, scope)
        if isinstance(owner, Entity | Related):
            return self._field(owner, name)
        if isinstance(owner, Record):
            if name not in owner.fields:
                raise self.refuse(f"a group has no {name}", f"It has {', '.join(owner.fields)}.")
            return owner.fields[name]
        if isinstance(owner, Value) and owner.kind.name == "span" and name == "days":
            return Value(owner.sql, in_days(owner.kind))
        if isinstance(owner, Value) and owner.kind.name in ("date", "datetime", "time", "aware", "local"):
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
        if attribute is None and (own := [each for each in mapper.self_and_descendants if name in each.attrs]):
            return self._field(self._subclass(owner, own[0], name), name)
        found = inspect.getattr_static(mapper.class_, name, None)
        if isinstance(found, hybrid_property):
            found = property(found.fget)  # its Python function, as for objects in memory; its SQL expression may differ
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            inner = inlined_with(found.fget, [owner])
            if inner is not None:
                self.keep_nothing()
                return self.value(inner.source.body, inner)
        if found is None:
            names = ", ".join(sorted(mapper.attrs.keys()))
            raise self.refuse(f"{mapper.class_.__name__} has no attribute {name}", f"It has {names}.")
        raise self.refuse(f"{mapper.class_.__name__}.{name} is no column, and no property of one expression")

    def _subclass(self, owner: Entity | Related, mapper: Any, name: str) -> Related:
        """Return ``owner`` joined with the row of the subclass ``mapper``, which has the attribute ``name``; the row
        may be absent. Raises Refused if several subclasses have an attribute of this name.
        """
        others = [each for each in sa.inspect(owner.target).mapper.self_and_descendants if name in each.attrs]
        if not all(each.isa(mapper) for each in others):
            raise self.refuse(f"several subclasses have an attribute {name} of their own")
        alias = orm.aliased(mapper)
        aliases, conditions = (owner.aliases, owner.conditions) if isinstance(owner, Related) else ((), ())
        pairs = zip(primary_key(alias), primary_key(owner.target), strict=True)
        same = sa.and_(
            *(op("text_is", one, other) if isinstance(one.type, sa.String) else one == other for one, other in pairs)
        )
        return Related(alias, (*aliases, alias), (*conditions, same))

    def _column(self, owner: Entity | Related, sql: Any, column: Any) -> Value:
        try:
            kind = known_kind(column)
        except NotExact as why:
            raise self.refuse(why.problem, why.hint) from None
        for database, problem, hint in kind.refusals:
            self.refuse_on(database, problem, hint)
        if kind.name == "json":
            sql = op("json_root", sql)
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
        """Return a part of a date or time."""
        dates, times = ("year", "month", "day"), ("hour", "minute", "second", "microsecond")
        known = {"date": dates, "datetime": dates + times, "local": dates + times, "time": times}.get(
            owner.kind.name, ()
        )
        if owner.kind.name == "aware":
            raise self.refuse(
                "the parts of a time with a zone depend on the zone of who reads it",
                "Name the zone: b.at.astimezone(timezone.utc).hour.",
            )
        if name not in known:
            raise self.refuse(f"the attribute {name} of a {owner.kind.name} is not translated")
        prefix = "time_" if owner.kind.name == "time" else ""
        return Value(op(f"{prefix}{name}", owner.sql), Kind("int", sa.BigInteger(), bound=999999))

    def _in_zone(self, owner: Value, argument: ast.expr, scope: Scope) -> Value:
        """Return the local time in a time zone, whose parts can be read."""
        zone = self.known(argument, scope).value if not self._reads_rows(argument, scope) else None
        name = getattr(zone, "key", None)
        seconds = zone.utcoffset(None).total_seconds() if isinstance(zone, datetime.timezone) else 0.5
        if seconds == int(seconds):
            bound = op("offset", self.literal(int(seconds), sa.Integer()))
        elif type(zone).__name__ == "ZoneInfo" and isinstance(name, str):
            bound = self.literal(name, sa.String())
        else:
            raise self.refuse("the zone is a datetime.timezone or a ZoneInfo with a key", "Write timezone.utc.")
        self.note("the clocks of the zone, by the database's own table of zones")
        return Value(op("in_zone", owner.sql, bound), Kind("local", sa.DateTime()))

    def _is_instance(self, node: ast.expr, classes: Any, scope: Scope) -> Answer:
        """Translate ``isinstance`` of an object, by the column that has the class of each row."""
        found = self.value(node, scope)
        given = classes if isinstance(classes, tuple) else (classes,)
        if not isinstance(found, Entity | Related) or isinstance(found.target, sa.FromClause):
            raise self.refuse("isinstance() is of a mapped object: a database does not know other types")
        if not all(isinstance(each, type) for each in given):
            raise self.refuse("isinstance() is of classes")
        mapper = sa.inspect(found.target).mapper
        alike = [each for each in mapper.self_and_descendants if issubclass(each.class_, given)]
        present = reachable(found)
        if len(alike) in (0, len(list(mapper.self_and_descendants))):
            exists = found.exists() if isinstance(found, Related) else True
            return Answer(bool(alike) and exists, present)
        if not isinstance(mapper.polymorphic_on, sa.Column) or mapper.polymorphic_on not in mapper.c.values():
            raise self.refuse(f"no column of {mapper.class_.__name__} names the class of a row")
        self.note("the column that names the class of each row")
        field = self._field(found, mapper.get_property_by_column(mapper.polymorphic_on).key)
        names = Constant([each.polymorphic_identity for each in alike])
        return Answer(self._in_constant(False, field, names), present)

    def _conditional(self, node: ast.IfExp, scope: Scope) -> Found:
        test = self._exact(node.test, scope)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse, scope)
        return self._chosen(test, self.value(node.body, scope), self.value(node.orelse, scope))

    def _chosen(self, test: SQL, then: Found, other: Found) -> Value:
        """Translate a conditional expression."""
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
        if is_document(then) or is_document(other):
            raise self.refuse("the type of a part of a JSON document is not known", "Compare the part itself.")
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
        """Return a constant as an SQL value of ``kind``."""
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
        """Translate ``and`` and ``or`` whose value is used: the value of the operand that decides, or of the last
        one."""
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
