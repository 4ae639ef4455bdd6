"""Comparisons and membership, by the types of both sides."""

from __future__ import annotations

import ast
import decimal
import enum
import math
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from . import memory
from .emit import op
from .kinds import (
    BIG,
    BOOL,
    DOUBLE,
    EXACT_DOUBLE,
    INT64,
    NUMBERS,
    STRING,
    TEXTS,
    Kind,
    bad_text,
    constant_kind,
    is_finite,
)
from .terms import (
    SQL,
    Base,
    Condition,
    Constant,
    Entity,
    Found,
    Many,
    Related,
    Several,
    Value,
    as_int,
    both,
    bytewise,
    digits_of,
    either,
    group_of,
    int_value,
    is_double,
    negated,
    solid,
    there,
)

if TYPE_CHECKING:
    from .scope import Scope


_TEXT = Kind("str", STRING)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, range, type({}.keys()))
MOST_LOOPED = 500
"""How many constants a loop over them may have."""


class Comparing(Base):
    """The part of a translation that compares."""

    # Comparisons

    def _compare(self, node: ast.Compare, scope: Scope) -> Condition:
        parts: list[SQL] = []
        left = node.left
        for cmp, right in zip(node.ops, node.comparators, strict=True):
            part = self._atom(cmp, left, right, scope)
            if part is False:
                return False
            if part is not True:
                parts.append(part)
            left = right
        return sa.and_(*parts) if len(parts) > 1 else parts[0] if parts else True

    def _atom(self, cmp: ast.cmpop, left: ast.expr, right: ast.expr, scope: Scope) -> Condition:
        if isinstance(cmp, ast.In | ast.NotIn):
            return self._membership(isinstance(cmp, ast.NotIn), left, right, scope)
        first, second = self.value(left, scope), self.value(right, scope)
        return self.compare(cmp, first, second)

    def compare(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        """One comparison."""
        if any(isinstance(each, Constant) and each.is_absent() for each in (left, right)):
            return False
        if isinstance(left, Several) or isinstance(right, Several):
            return self._compare_several(cmp, left, right)
        if isinstance(cmp, ast.Is | ast.IsNot):
            return self._identity(isinstance(cmp, ast.IsNot), left, right)
        if isinstance(left, Constant) and isinstance(right, Constant):
            return memory.compare(cmp, left.value, right.value)
        for one, other in ((left, right), (right, left)):
            if not isinstance(one, Constant | Value):
                if isinstance(other, Constant) and other.peek() is None and isinstance(cmp, ast.Eq | ast.NotEq):
                    return self._identity(isinstance(cmp, ast.NotEq), one, other)
                raise self.refuse(
                    "objects are compared by identity, which a database does not know",
                    "Compare their keys: b.author.id == author.id.",
                )
        if isinstance(cmp, ast.Eq | ast.NotEq):
            equal = self._equal(left, right)
            if isinstance(cmp, ast.Eq):
                return equal
            self.note("IS NOT TRUE: None differs from every value")
            return both(negated(equal), *there(left, right))
        return self._ordered(cmp, left, right)

    def _compare_several(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        """A comparison of two tuples or two lists, which the first items that differ decide."""
        types, items = [], []
        for each in (left, right):
            if isinstance(cmp, ast.Is | ast.IsNot) or not isinstance(each, Several | Constant):
                raise self.refuse("a tuple is compared with something else", "Compare tuples by ==, != or an order.")
            types.append(each.type if isinstance(each, Several) else self._plain_type(each.value))
            known = each.value if isinstance(each, Constant) and types[-1] in (tuple, list) else ()
            items.append(each.items if isinstance(each, Several) else tuple(map(Constant, known)))
        pairs = list(zip(*items, strict=False))
        nan = ("float", "decimal")
        if any(all(isinstance(each, Value) and each.kind.name in nan for each in pair) for pair in pairs):
            raise self.refuse("NaN in a tuple equals itself", "Compare the items one by one.")
        alike = types[0] is types[1]
        if isinstance(cmp, ast.Eq | ast.NotEq):
            equal: Condition = alike and len(items[0]) == len(items[1])
            for one, other in pairs if equal else ():
                equal = both(equal, self.compare(ast.Eq(), one, other))
            found = equal if isinstance(cmp, ast.Eq) else negated(equal)
        elif not alike:
            names = " and ".join(each.__name__ for each in types)
            raise self.refuse(f"{names} have no order in Python", "Give both sides the same type.")
        else:
            strict = ast.Lt() if isinstance(cmp, ast.Lt | ast.LtE) else ast.Gt()
            found = bool(memory.compare(cmp, len(items[0]), len(items[1])))
            for one, other in reversed(pairs):
                found = both(self.compare(ast.Eq(), one, other), found)
                found = either(self.compare(strict, one, other), found)
        return both(found, *there(left, right))

    def _plain_type(self, value: Any) -> type[Any]:
        """The type of a constant beside a tuple; tuple, where its class only gives names to the items of one."""
        own: Any = type(value)
        if isinstance(value, tuple) and own.__eq__ is tuple.__eq__ and own.__lt__ is tuple.__lt__:
            return tuple
        if own not in _CONTAINERS and value is not None and constant_kind(value) in (None, "enum"):
            raise self.refuse(f"constants of type {own.__name__} are not translated", "Give a plain tuple: tuple(row).")
        found: type[Any] = own
        return found

    def _identity(self, negate: bool, left: Found, right: Found) -> Condition:
        if isinstance(left, Constant) and isinstance(right, Constant):
            return (left.value is right.value) is not negate
        value, other = (right, left) if isinstance(left, Constant) else (left, right)
        if not isinstance(other, Constant) or not any(other.value is each for each in (None, True, False)):
            raise self.refuse("`is` compares identity, which a database does not know", "Write ==.")
        if isinstance(value, Related | Many):
            if other.value is not None or isinstance(value, Many):
                return negate
            exists = value.exists()
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
            found = self._equal(value, other)
            return both(negated(found), value.is_there()) if negate else found
        if not value.none:
            return both(negate, value.is_there())
        found = value.sql.is_not(None) if negate else value.sql.is_(None)
        return both(found, value.is_there())

    def _equal(self, left: Found, right: Found) -> Condition:
        if isinstance(left, Constant):
            left, right = right, left
        assert isinstance(left, Value)
        if isinstance(right, Constant):
            if right.peek() is None:
                return self._identity(False, left, right)
            return self._equals_constant(left, right)
        assert isinstance(right, Value)
        if "lower" in (left.kind.name, right.kind.name):
            raise self.refuse(".lower() is compared with a constant alone")
        if group_of(left.kind) != group_of(right.kind) or left.kind.members != right.kind.members:
            self._refuse_mixture(left.kind.name, right.kind.name)
            if not (left.none and right.none):
                return False
            return both(left.sql.is_(None), right.sql.is_(None), left.present, right.present)  # None equals None
        name, first, second = self._aligned(left, right)
        if left.none and right.none:
            self.note("IS NOT DISTINCT FROM: None equals None")
            if name == "text":
                first, second = op("text", first), op("text", second)
            elif name == "float":
                self.note("NaN differs from itself")
                both_none = sa.and_(left.sql.is_(None), right.sql.is_(None))
                return both(sa.or_(both_none, op("float_eq", first, second)), left.present, right.present)
            return both(op("same", first, second), left.present, right.present)
        return op(f"{name}_eq", first, second)

    def _refuse_mixture(self, left: str, right: str) -> None:
        """Refuse what Python compares in a way of its own; other kinds are never equal."""
        for pair in (("datetime", "aware"), ("date", "datetime"), ("date", "aware"), ("enum", "str"), ("str", "enum")):
            if (left, right) in (pair, pair[::-1]):
                raise self.refuse(
                    f"a column of kind {left} is compared with one of kind {right}", "Give both sides the same type."
                )

    def _aligned(self, left: Value, right: Value) -> tuple[str, SQL, SQL]:
        """Two values of one group as they can be compared: the operation's name and both sides."""
        kinds = {left.kind.name, right.kind.name}
        if kinds == {"str"}:
            return "text", left.sql, right.sql
        if not kinds & set(NUMBERS):
            return "number", left.sql, right.sql
        if "decimal" in kinds and "float" in kinds:
            raise self.refuse(
                "a Decimal is compared with a float, which no database does exactly", "Make both of one type."
            )
        if "float" in kinds and kinds != {"float"}:
            return "float", self._as_double(left), self._as_double(right)
        if "decimal" in kinds:
            one, two = (
                each.sql if each.kind.name == "decimal" else op("numeric", as_int(each)) for each in (left, right)
            )
            return "float", one, two  # PostgreSQL's NUMERIC has a NaN too
        if kinds == {"bool"}:
            return "number", left.sql, right.sql
        return "float" if kinds == {"float"} else "number", as_int(left), as_int(right)

    def _as_double(self, value: Value) -> SQL:
        if value.kind.name == "float":
            return value.sql
        if value.kind.bound > EXACT_DOUBLE:
            raise self.refuse(
                "an integer of this size is not a float without loss",
                "Declare the column Integer, or compare integers with integers.",
            )
        # SQLite keeps to no size; larger integers there would be rounded in silence.
        return op("double", as_int(value))

    def _equals_constant(self, left: Value, constant: Constant) -> Condition:
        bound = self._bound_claimed(left.kind, constant)
        if bound is None:
            return False
        return self._is_text(left, bound) if left.kind.name in TEXTS else left.sql == bound

    def _is_text(self, left: Value, bound: SQL) -> SQL:
        """Whether text is a value, in a way that an index of the column serves."""
        if not left.column:
            return op("text_eq", left.sql, bound)
        return op("text_is_collated" if left.kind.collated else "text_is", left.sql, bound)

    def _bound_claimed(self, kind: Kind, constant: Constant) -> SQL | None:
        """As :meth:`_bound`, where nothing else depends on which value the constant has."""
        bound = self._bound(kind, constant.peek())
        shape = bound is None
        bounds = [] if bound is None else [bound]

        def again(translator: Comparing, value: Any) -> tuple[bool, list[SQL]]:
            found = translator._bound(kind, value)
            return found is None, [] if found is None else [found]

        self.claim(constant, shape, bounds, again)
        return bound

    def _bound(self, kind: Kind, constant: Any) -> SQL | None:
        """A constant as a parameter beside a value of this kind; None where Python finds no such value equal to it."""
        name = constant_kind(constant)
        if kind.name == "enum":
            return self._bound_enum(kind, constant)
        if type(constant) in _CONTAINERS:
            return None
        if name is None or name == "enum":
            raise self.refuse(
                f"constants of type {type(constant).__name__} are not translated",
                "Give its plain value: .value of an enum, str() of a text, float() of a number.",
            )
        if kind.name in NUMBERS and name in NUMBERS:
            return self._bound_number(kind, constant)
        if kind.name in TEXTS and name == "str":
            return self._bound_text(kind, constant)
        if kind.name != name:
            self._refuse_mixture(kind.name, name)
            return None
        if name in ("datetime", "date") and constant.year < 1000:
            raise self.refuse("years before 1000 are not stored by all databases", "Use a later date.")
        if name == "aware" and constant.utcoffset() != constant.replace(fold=1 - constant.fold).utcoffset():
            raise self.refuse(
                "the clocks of its zone show this time twice or never, so that Python compares it in a way of its own",
                "Convert it to UTC: .astimezone(timezone.utc).",
            )
        return self.literal(constant, kind.type)

    def _bound_enum(self, kind: Kind, constant: Any) -> SQL | None:
        if isinstance(kind.members, tuple):
            if type(constant) is str:
                return self.literal(constant, kind.type) if constant in kind.members else None
        elif type(constant) is kind.members:
            return self.literal(constant, kind.type)
        if (isinstance(constant, enum.Enum) and isinstance(constant, str | int | float)) or (
            "__eq__" in vars(type(constant)) and constant_kind(constant) is None
        ):
            raise self.refuse(f"constants of type {type(constant).__name__} have an equality of their own")
        return None

    def _bound_number(self, kind: Kind, constant: Any) -> SQL | None:
        """A number that equals the constant, in the column's own type."""
        if isinstance(constant, float) and math.isnan(constant):
            return None
        self._check_number(kind, constant)
        if kind.name == "bool":
            return self.literal(bool(constant), BOOL) if constant in (0, 1) else None
        if kind.name == "int":
            if constant != int(constant) or not -INT64 <= constant < INT64:
                if kind.bound > INT64 and constant == int(constant):
                    raise self.refuse("the number has more than 64 bits")
                return None
            return self.literal(int(constant), BIG)
        if kind.name == "float":
            return self.literal(float(constant), DOUBLE) if is_double(constant) else None
        return self._bound_decimal(decimal.Decimal(constant))

    def _check_number(self, kind: Kind, constant: Any) -> None:
        """Refuse a number that no database compares exactly with one of this kind."""
        if isinstance(constant, float | decimal.Decimal) and not is_finite(constant):
            raise self.refuse(f"{constant!r} is no number that every database knows", "Compare with a finite number.")
        if kind.name == "float" and isinstance(constant, decimal.Decimal):
            raise self.refuse("a float is compared with a Decimal", "Make both of one type.")
        if kind.name == "decimal" and isinstance(constant, float):
            hint = f"Write Decimal({str(constant)!r}) if that is what is meant."
            raise self.refuse("a Decimal is compared with a float, which no database does exactly", hint)

    def _bound_decimal(self, constant: decimal.Decimal) -> SQL:
        before, after = digits_of(constant)
        if before > 35 or after > 30:
            raise self.refuse("the Decimal has more digits than every database keeps", "Use at most 30 digits.")
        return self.literal(constant, sa.Numeric(before + after, after))

    def _ordered(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        """``<``, ``<=``, ``>``, ``>=``."""
        names = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
        name = names[type(cmp)]
        if isinstance(left, Constant):
            left, right = right, left
            name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[name]
        assert isinstance(left, Value)
        if left.kind.name in ("enum", "uuid", "bytes", "lower"):
            raise self.refuse(
                f"the order of {left.kind.name} values is not the same on every database",
                "They are compared by == and in.",
            )
        if isinstance(right, Constant):
            if right.peek() is None:
                return False
            return self._ordered_constant(name, left, right)
        assert isinstance(right, Value)
        if group_of(left.kind) != group_of(right.kind):
            raise self.refuse(
                f"{left.kind.name} and {right.kind.name} have no order in Python", "Give both sides the same type."
            )
        if left.kind.name == "bool" and right.kind.name == "bool":
            left, right = int_value(left), int_value(right)
        group, first, second = self._aligned(left, right)
        return op(f"{group}_{name}", first, second)

    def _ordered_constant(self, name: str, left: Value, constant: Constant) -> Condition:
        kind = constant_kind(constant.peek())
        if left.kind.name in NUMBERS and kind in NUMBERS:
            return self._ordered_number(name, left, constant)
        if kind != left.kind.name:
            raise self.refuse(
                f"{left.kind.name} and {type(constant.peek()).__name__} have no order in Python",
                "Give both sides the same type.",
            )
        bound = self._bound_claimed(left.kind, constant)
        assert bound is not None
        return op(f"text_{name}" if kind == "str" else f"number_{name}", left.sql, bound)

    def _ordered_number(self, name: str, left: Value, constant: Constant) -> Condition:
        kind = left.kind
        shape, bounds = self._ordered_bounds(name, kind, constant.peek())
        self.claim(constant, shape, bounds, lambda again, value: again._ordered_bounds(name, kind, value))
        whole = kind.name in ("bool", "int")
        sql = as_int(left) if whole else left.sql
        if not bounds:
            return sql.is_not(None) if shape else False
        if kind.name == "float":
            self.note("on PostgreSQL also <> 'NaN', which is the greatest number there")
        return op(f"{'number' if whole else 'float'}_{name}", sql, *bounds)

    def _ordered_bounds(self, name: str, kind: Kind, constant: Any) -> tuple[bool, list[SQL]]:
        """The parameter with which a number is compared; none where the comparison holds for all numbers or none."""
        if isinstance(constant, float) and math.isnan(constant):
            return False, []
        self._check_number(kind, constant)
        if kind.name in ("bool", "int"):
            # Beside an integer, a number between two others is the next one up or down.
            bound = math.floor(constant) if name in ("le", "gt") else math.ceil(constant)
            if not -INT64 <= bound < INT64:
                if kind.bound > INT64:
                    raise self.refuse("the number has more than 64 bits")
                return (bound > 0) == (name in ("lt", "le")), []
            return True, [self.literal(bound, BIG)]
        if kind.name == "float":
            if not is_double(constant):
                raise self.refuse("the integer is not a float without loss", "Use a smaller one.")
            return True, [self.literal(float(constant), DOUBLE)]
        return True, [self._bound_decimal(decimal.Decimal(constant))]

    # Membership

    def _membership(self, negate: bool, left: ast.expr, right: ast.expr, scope: Scope) -> Condition:
        needle = self.value(left, scope)
        if isinstance(needle, Constant) and needle.is_absent():
            return False
        if isinstance(right, ast.Tuple | ast.List | ast.Set) and self._reads_rows(right, scope):
            parts = [self.compare(ast.Eq(), needle, each) for each in self.items(right, scope)]
            return self._negated_membership(negate, either(*parts), needle)
        if isinstance(right, ast.ListComp | ast.SetComp | ast.GeneratorExp) and self._reads_rows(right, scope):
            found = self._any(
                right,
                scope,
                lambda inner: self.compare(ast.Eq(), self.value(left, scope), self.value(right.elt, inner)),
            )
            if negate:
                raise self.refuse("`not in` of a comprehension is not translated", "Write not (x in ...).")
            return found
        container = self.value(right, scope)
        if isinstance(container, Constant):
            return self._in_constant(negate, needle, container)
        if isinstance(container, Value) and container.kind.name in TEXTS:
            return self._in_text(negate, needle, container)
        raise self.refuse("what `in` looks into is not translated", "Look into a constant, or into text.")

    def _negated_membership(self, negate: bool, found: Condition, needle: Found) -> Condition:
        if not negate:
            return found
        return both(negated(found), *there(needle))

    def _in_constant(self, negate: bool, needle: Found, given: Constant) -> Condition:
        if given.is_nothing():
            return False
        if isinstance(needle, Constant):
            return (needle.value in given.value) is not negate
        container = given.peek()
        if isinstance(needle, Several):
            if type(container) not in (list, tuple, set, frozenset, dict) or len(given.value) > MOST_LOOPED:
                raise self.refuse(
                    "this container of tuples is not translated", f"Give a list of {MOST_LOOPED} at most."
                )
            parts = [self.compare(ast.Eq(), needle, Constant(each)) for each in given.value]
            return self._negated_membership(negate, either(*parts), needle)
        if not isinstance(needle, Value):
            raise self.refuse(
                "objects are compared by identity, which a database does not know",
                "Compare their keys: b.author.id in ids.",
            )
        if type(container) is str:
            return self._in_text(negate, needle, given)
        if type(container) is range and given.value.step == 1 and needle.kind.name == "int":
            found = both(
                self._ordered_number("ge", needle, Constant(container.start)),
                self._ordered_number("lt", needle, Constant(container.stop)),
            )
            return self._negated_membership(negate, found, needle)
        kind = needle.kind
        has_none, bounds = self._item_bounds(kind, container)
        self.claim(given, has_none, bounds, lambda again, value: again._item_bounds(kind, value))
        parts = [self._identity(False, needle, Constant(None))] if has_none else []
        if bounds:
            if kind.name not in TEXTS:
                parts.append(needle.sql.in_(bounds))
            elif len(bounds) == 1:
                parts.append(self._is_text(needle, bounds[0]))
            else:
                parts.append(op("text", needle.sql).in_([bytewise(each) for each in bounds]))
        return self._negated_membership(negate, either(*parts), needle)

    def _item_bounds(self, kind: Kind, items: Any) -> tuple[bool, list[SQL]]:
        """The parameters for the items of a container, and whether None is among them."""
        plain = any(isinstance(items, each) and type(items).__contains__ is each.__contains__ for each in _CONTAINERS)
        if not plain or len(items) > 10000:
            raise self.refuse(
                f"`in` a {type(items).__name__} is not translated", "Give a list, tuple, set or dict of at most 10,000."
            )
        has_none, bounds = False, []
        for each in items:
            if each is None:
                has_none = True
            elif isinstance(each, float) and math.isnan(each):
                raise self.refuse("NaN is in a list by identity", "Leave it out.")
            elif (bound := self._bound(kind, each)) is not None:
                bounds.append(bound)
        return has_none, bounds

    def _in_text(self, negate: bool, needle: Found, text: Value | Constant) -> Condition:
        if isinstance(needle, Constant) and type(needle.peek()) is not str:
            if needle.peek() is None:
                return False
            raise self.refuse("`in` text asks for text")
        kind = text.kind if isinstance(text, Value) else _TEXT
        if not isinstance(needle, Constant | Value) or (
            isinstance(needle, Value) and {needle.kind.name, kind.name} != {"str"}
        ):
            raise self.refuse("`in` text asks for text")
        found = op("contains", self._text(text), self._text(needle, kind))
        return both(negated(found), solid(text, needle)) if negate else found

    def _text(self, value: Constant | Value, kind: Kind = _TEXT) -> SQL:
        if isinstance(value, Value):
            return value.sql
        bound = self._bound_text(kind, value.peek())
        self.claim(value, None, [bound], lambda again, text: (None, [again._bound_text(kind, text)]))
        return bound

    def _bound_text(self, kind: Kind, text: str) -> SQL:
        """Text as a parameter beside text of this kind."""
        if problem := bad_text(text):
            raise self.refuse(problem, "Compare with text without it.")
        if kind.name == "lower" and not text.isascii():
            raise self.refuse(
                ".lower() is compared with text that is not ASCII: databases change fewer letters than Python"
            )
        return self.literal(text, STRING)
