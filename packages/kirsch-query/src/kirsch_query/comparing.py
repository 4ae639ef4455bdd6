"""Translation of comparisons, by the types of both sides."""

from __future__ import annotations

import ast
import datetime
import decimal
import enum
import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import memory
from kirsch_query.documents import Documents, is_document
from kirsch_query.emit import op
from kirsch_query.kinds import (
    BIG,
    BOOL,
    DECIMAL,
    DOUBLE,
    EXACT_DOUBLE,
    HUGE,
    INT64,
    NUMBERS,
    TEXTS,
    Kind,
    constant_kind,
    in_days,
    is_finite,
)
from kirsch_query.terms import (
    SQL,
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
    digits_of,
    either,
    group_of,
    int_value,
    is_double,
    negated,
    primary_key,
    reachable,
    there,
)
from kirsch_query.texts import BEFORE, NEXT, SIGMAS, SOUGHT, capitals, has_half, is_lower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_query.scope import Scope


CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, range, type({}.keys()))
MOST_LOOPED = 500
"""How many constants a loop over them may have."""


def _is_signal(constant: Constant) -> bool:
    """Return whether a constant is a signaling NaN, which no operation accepts."""
    value = constant.peek()
    if type(value) is not decimal.Decimal or not value.is_nan():
        return False
    return bool(constant.value.is_snan())


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, decimal.Decimal) else isinstance(value, float) and math.isnan(value)


def _tamed(number: Any) -> Any:
    """Return ``number``, with fewer digits if it exceeds all numbers of columns: int() of 1E+999999 is slow."""
    if isinstance(number, decimal.Decimal) and number.is_finite() and number.adjusted() > _BEYOND:
        return decimal.Decimal(10**_BEYOND).copy_sign(number)
    if isinstance(number, int) and number.bit_length() > 4 * _BEYOND:
        return 10**_BEYOND if number > 0 else -(10**_BEYOND)
    return number


_BEYOND = 400
"""No number of a column or of a calculation has as many digits before its point; floats have up to 309."""


def _same_key(one: Any, other: Any) -> SQL:
    """Return the condition that two key values are equal."""
    if not isinstance(one.type, sa.String):
        same: SQL = one == other
        return same
    return op("text_is" if isinstance(other, sa.BindParameter) else "text_eq", one, other)


def _days_beside(found: Found, other: Found) -> Found:
    """For a comparison of a date difference with a timedelta, return one side as a number of days; else unchanged."""
    if isinstance(found, Value) and found.kind.name == "span":
        known = isinstance(other, Constant) and type(other.peek()) is datetime.timedelta
        return replace(found, kind=in_days(found.kind)) if known else found
    beside = isinstance(other, Value) and other.kind.name == "span"
    if beside and isinstance(found, Constant) and type(found.peek()) is datetime.timedelta:
        days, rest = divmod(found.value, datetime.timedelta(1))
        return Constant(days + 0.5 if rest else days)  # any part of a day has the same order relative to whole days
    return found


class Comparing(Documents):
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
        """Translate one comparison."""
        if any(isinstance(each, Constant) and each.is_absent() for each in (left, right)):
            return False
        left, right = _days_beside(left, right), _days_beside(right, left)
        # It is false if there is no related row, so it can be a condition on that row.
        if isinstance(left, Value) and left.of_related is not None:
            owner, field = left.of_related
            return owner.where(self.compare(cmp, field, right))
        if isinstance(right, Value) and right.of_related is not None:
            owner, field = right.of_related
            return owner.where(self.compare(cmp, left, field))
        if is_document(left) or is_document(right):
            return self.compare_document(cmp, left, right)
        for one, other in ((left, right), (right, left)):
            if (
                isinstance(one, Constant)
                and isinstance(other, Value)
                and _is_signal(one)
                and other.kind.name in NUMBERS
            ):
                return isinstance(cmp, ast.NotEq) and self._identity(False, other, Constant(None))
        if isinstance(left, Several) or isinstance(right, Several):
            return self._compare_several(cmp, left, right)
        if isinstance(cmp, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            same = self._same_object(cmp, left, right)
            if same is not None:
                return same
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
        """Compare two tuples or lists: the first pair of different items decides."""
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
        """Return the type of a constant beside a tuple; tuple for a named tuple, which compares like a plain one."""
        own: Any = type(value)
        if isinstance(value, tuple) and own.__eq__ is tuple.__eq__ and own.__lt__ is tuple.__lt__:
            return tuple
        if own not in CONTAINERS and value is not None and constant_kind(value) in (None, "enum"):
            raise self.refuse(f"constants of type {own.__name__} are not translated", "Give a plain tuple: tuple(row).")
        found: type[Any] = own
        return found

    def _same_object(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition | None:
        """Return the condition that two objects are (not) the same, by their primary keys; None if they are no
        objects."""
        one, other = (right, left) if isinstance(left, Constant) else (left, right)
        if not isinstance(one, Entity | Related) or isinstance(one.target, sa.FromClause):
            return None
        mapper = sa.inspect(one.target).mapper
        if isinstance(other, Constant):
            state = sa.inspect(other.peek(), raiseerr=False)
            if not isinstance(state, orm.InstanceState):
                return None
            keys = self._identity_of(state, mapper)
        elif isinstance(other, Entity | Related) and not isinstance(other.target, sa.FromClause):
            if isinstance(one, Related) and isinstance(other, Related):
                return None  # either of them may be None
            keys = primary_key(other.target) if sa.inspect(other.target).mapper.common_parent(mapper) else None
        else:
            return None
        classes = [mapper.class_, type(other.peek()) if isinstance(other, Constant) else mapper.class_]
        if isinstance(cmp, ast.Eq | ast.NotEq) and any(each.__eq__ is not object.__eq__ for each in classes):
            raise self.refuse(f"{mapper.class_.__name__} decides itself which objects are equal", "Compare their keys.")
        same: Condition = False
        if keys is not None:
            self.note("the same object has the same primary key")
            same = both(*map(_same_key, primary_key(one.target), keys))
            for each in (one, other):
                same = each.where(same) if isinstance(each, Related) else same
        if isinstance(cmp, ast.Eq | ast.Is):
            return same
        return both(negated(same), *(reachable(each) for each in (one, other)))

    def _identity_of(self, state: Any, mapper: Any) -> list[SQL] | None:
        """Return the primary key of an object as parameters; None if it cannot be a row of the class."""
        self.keep_nothing()  # do not cache: the state of the object may change
        if not state.mapper.common_parent(mapper) or state.key is None:
            return None
        if state.session is None:
            hint = "Compare keys: b.author_id == author.id. Or merge it into the session: session.merge(author)."
            raise self.refuse(f"this {state.class_.__name__} is in no session, so that no row is the same object", hint)
        return [self.literal(each, key.type) for each, key in zip(state.identity, mapper.primary_key, strict=True)]

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
            # The value is None if the last step leads to no row, and absent if an earlier step does.
            return both(reachable(value), exists if negate else negated(exists))
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
        if "local" in (left.kind.name, right.kind.name):
            self._refuse_mixture(left.kind.name, right.kind.name)
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
        """Raise Refused for two kinds that Python compares in a special way; other different kinds are never equal."""
        if "local" in (left, right):
            raise self.refuse(
                "the time on the clocks of a zone is not compared", "Compare whole times, without astimezone()."
            )
        for pair in (("datetime", "aware"), ("date", "datetime"), ("date", "aware"), ("enum", "str"), ("str", "enum")):
            if (left, right) in (pair, pair[::-1]):
                raise self.refuse(
                    f"a column of kind {left} is compared with one of kind {right}", "Give both sides the same type."
                )

    def _aligned(self, left: Value, right: Value) -> tuple[str, SQL, SQL]:
        """Return how two comparable values are compared (``text``, ``number``, ...), and the SQL of both for that."""
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
            return "float", one, two  # PostgreSQL's NUMERIC can be NaN too
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
        # SQLite enforces no sizes, so larger integers would be rounded silently there.
        return op("double", as_int(value))

    def _equals_constant(self, left: Value, constant: Constant) -> Condition:
        if left.kind.name == "lower" and type(constant.peek()) is str:
            (count, _), bounds = self._lower_claimed(constant)
            return op("text_eq", self._lowered(left, bounds[count:]), bounds[0]) if count else False
        bound = self._bound_claimed(left.kind, constant)
        if bound is None:
            return False
        return self._is_text(left, bound) if left.kind.name in TEXTS else left.sql == bound

    def _is_text(self, left: Value, bound: SQL) -> SQL:
        """Return the condition that a text equals ``bound``, in a form that can use an index of the column."""
        if not left.column:
            return op("text_eq", left.sql, bound)
        return op("text_is_collated" if left.kind.collated else "text_is", left.sql, bound)

    # .lower()

    def _lower_claimed(self, constant: Constant) -> tuple[tuple[int, int], list[SQL]]:
        """Do the same as :meth:`_lower_bounds` for one constant, and claim it."""
        shape, bounds = self._lower_bounds([constant.peek()])
        self.claim(constant, shape, bounds, lambda again, value: again._lower_bounds([value]))
        return shape, bounds

    def _lower_bounds(self, texts: Sequence[str]) -> tuple[tuple[int, int], list[SQL]]:
        """Return the numbers of both kinds, and the parameters for texts compared with ``.lower()``, then for the
        letters to replace. A text that ``.lower()`` cannot return is omitted.
        """
        texts = [each for each in texts if is_lower(each)]
        letters = self._letter_bounds(texts)
        return (len(texts), len(letters)), [*(self.literal(each, SOUGHT) for each in texts), *letters]

    def _letter_bounds(self, texts: Sequence[str]) -> list[SQL]:
        """Return the parameters for the letters that :meth:`_lowered` replaces if compared with ``texts``."""
        if any(sigma in each for each in texts for sigma in SIGMAS):
            raise self.refuse(".lower() of a capital sigma depends on the letters around it")
        return [self.literal(each, SOUGHT) for pair in capitals(texts) for each in pair]

    def _lowered(self, value: Value, letters: Sequence[SQL]) -> SQL:
        """Return a text in lower case, as far as the comparison needs: ASCII letters, and the ``letters`` of the
        constants."""
        found = value.sql
        if letters:
            self.note("the capitals of the other letters in the constant are replaced")
        for capital, letter in zip(letters[::2], letters[1::2], strict=True):
            found = op("replace", found, capital, letter)
        return found

    def _bound_claimed(self, kind: Kind, constant: Constant) -> SQL | None:
        """Do the same as :meth:`_bound`, if no other part of the translation depends on the value of the constant."""
        bound = self._bound(kind, constant.peek())
        shape = bound is None
        bounds = [] if bound is None else [bound]

        def again(translator: Comparing, value: Any) -> tuple[bool, list[SQL]]:
            found = translator._bound(kind, value)
            return found is None, [] if found is None else [found]

        self.claim(constant, shape, bounds, again)
        return bound

    def _bound(self, kind: Kind, constant: Any) -> SQL | None:
        """Return a constant as a parameter to compare with a value of ``kind``; None if Python finds no equal value."""
        name = constant_kind(constant)
        if kind.name == "enum":
            return self._bound_enum(kind, constant)
        if type(constant) in CONTAINERS:
            return None
        if name is None or name == "enum":
            raise self.refuse(
                f"constants of type {type(constant).__name__} are not translated",
                "Give its plain value: .value of an enum, str() of a text, float() of a number.",
            )
        if kind.name in NUMBERS and name in NUMBERS:
            return self._bound_number(kind, constant)
        if kind.name in TEXTS and name == "str":
            return self.literal(constant, SOUGHT)
        if kind.name != name:
            self._refuse_mixture(kind.name, name)
            return None
        if name == "aware" and constant.utcoffset() != constant.replace(fold=1 - constant.fold).utcoffset():
            return None  # ambiguous or missing local time: Python finds no equal time in another zone
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
        """Return a number that equals the constant, in the type of the column; None if there is none."""
        if _is_nan(constant):
            return None
        constant = _tamed(constant)
        self._check_number(kind, constant)
        if kind.name == "float":
            return self.literal(float(constant), DOUBLE) if is_double(constant) else None
        if not is_finite(constant):
            free = kind.name == "decimal" and kind.digits is None
            return self.literal(decimal.Decimal(constant), DECIMAL) if free else None
        if kind.name == "bool":
            return self.literal(bool(constant), BOOL) if constant in (0, 1) else None
        if kind.name == "int":
            return self._bound_int(kind, int(constant)) if constant == int(constant) else None
        number = decimal.Decimal(constant)
        if kind.digits is None:
            return self._bound_decimal(number)
        found = self._rounded(kind.digits, number, decimal.ROUND_FLOOR)
        return None if found is None or found != number else self._bound_decimal(found)

    def _check_number(self, kind: Kind, constant: Any) -> None:
        """Raise Refused for a number of a type that no database compares exactly with this kind."""
        if kind.name == "float" and isinstance(constant, decimal.Decimal):
            raise self.refuse("a float is compared with a Decimal", "Make both of one type.")
        if kind.name == "decimal" and isinstance(constant, float):
            hint = f"Write Decimal({str(constant)!r}) if that is what is meant."
            raise self.refuse("a Decimal is compared with a float, which no database does exactly", hint)

    def _bound_int(self, kind: Kind, number: int) -> SQL | None:
        """Return an integer parameter; None if it exceeds all values of this kind."""
        if -INT64 <= number < INT64:
            return self.literal(number, BIG)
        return self.literal(number, HUGE) if abs(number) <= kind.bound else None

    def _rounded(self, digits: tuple[int, int], number: decimal.Decimal, rounding: str) -> decimal.Decimal | None:
        """Round a Decimal to the digits of a column; return None if it exceeds all values of the column."""
        if number and number.adjusted() >= digits[0]:
            return None
        scale = decimal.Decimal(1).scaleb(-digits[1])
        return number.quantize(scale, rounding, decimal.Context(prec=sum(digits) + 3))

    def _bound_decimal(self, constant: decimal.Decimal) -> SQL:
        before, after = digits_of(constant)
        if before > 35 or after > 30:
            raise self.refuse("the Decimal has more digits than every database keeps", "Use at most 30 digits.")
        return self.literal(constant, sa.Numeric(before + after, after))

    def _ordered(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        """Translate ``<``, ``<=``, ``>`` and ``>=``."""
        names = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
        name = names[type(cmp)]
        if isinstance(left, Constant):
            left, right = right, left
            name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[name]
        assert isinstance(left, Value)
        if left.kind.name in ("enum", "uuid", "bytes", "lower", "local", "match"):
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
        if kind == "str":
            shape, bounds = self._text_bounds(name, constant.peek())
            self.claim(constant, shape, bounds, lambda again, value: again._text_bounds(name, value))
            return op(f"text_{shape}{left.kind.order}", left.sql, *bounds)
        bound = self.literal(constant.peek(), left.kind.type)
        self.claim(constant, None, [bound], lambda again, value: (None, [again.literal(value, left.kind.type)]))
        return op(f"number_{name}", left.sql, bound)

    def _text_bounds(self, name: str, text: str) -> tuple[str, list[SQL]]:
        """Return the operation and the parameter for an ordered comparison with text, even text that cannot be
        stored."""
        if has_half(text):
            name = {"le": "lt", "gt": "ge"}.get(name, name)
        return name, [self.literal(text, NEXT if name in ("lt", "ge") else BEFORE)]

    def _ordered_number(self, name: str, left: Value, constant: Constant) -> Condition:
        kind = left.kind
        shape, bounds = self._ordered_bounds(name, kind, constant.peek())
        self.claim(constant, shape, bounds, lambda again, value: again._ordered_bounds(name, kind, value))
        whole = kind.name in ("bool", "int")
        sql = as_int(left) if whole else left.sql
        if shape is None:
            return False
        if kind.name == "float":
            self.note("on PostgreSQL also <> 'NaN', which is the greatest number there")
        if shape == "all":
            return sql.is_not(None) if whole else op("float_eq", sql, sql)
        return op(f"{'number' if whole else 'float'}_{shape}", sql, *bounds)

    def _ordered_bounds(self, name: str, kind: Kind, constant: Any) -> tuple[str | None, list[SQL]]:
        """Return the operation and the parameter for an ordered comparison with a number. The operation is None if it
        holds for no number, and ``all`` if it holds for all numbers except NaN.
        """
        if _is_nan(constant):
            return None, []
        constant = _tamed(constant)
        self._check_number(kind, constant)
        beyond = "all" if (constant > 0) == (name in ("lt", "le")) else None
        if kind.name == "float":
            return self._ordered_float(name, constant)
        if not is_finite(constant):
            free = kind.name == "decimal" and kind.digits is None
            return self._ordered_float(name, float(constant)) if free else (beyond, [])
        up = name in ("lt", "ge")
        # For integers, replace a number between two integers by the next one up or down; similarly for Decimals.
        if kind.name in ("bool", "int"):
            bound = self._bound_int(kind, math.ceil(constant) if up else math.floor(constant))
            return (beyond, []) if bound is None else (name, [bound])
        number = decimal.Decimal(constant)
        if kind.digits is not None:
            rounded = self._rounded(kind.digits, number, decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR)
            if rounded is None:
                return beyond, []
            number = rounded
        return name, [self._bound_decimal(number)]

    def _ordered_float(self, name: str, constant: Any) -> tuple[str | None, list[SQL]]:
        """Do the same for a float. An integer that is not a float is between two floats, one of which gives the same
        result."""
        if isinstance(constant, float) and math.isinf(constant):
            if name == ("gt" if constant > 0 else "lt"):
                return None, []
            return f"{name}_{'plus' if constant > 0 else 'minus'}", []
        if is_double(constant):
            return name, [self.literal(float(constant), DOUBLE)]
        near = sys.float_info.max if abs(constant) > sys.float_info.max else abs(float(constant))
        if near > abs(constant):
            near = math.nextafter(near, 0.0)
        if constant > 0:
            return {"lt": "le", "ge": "gt"}.get(name, name), [self.literal(near, DOUBLE)]
        return {"le": "lt", "gt": "ge"}.get(name, name), [self.literal(-near, DOUBLE)]
