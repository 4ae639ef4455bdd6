"""Translation of arithmetic with numbers and dates."""

from __future__ import annotations

import ast
import decimal
import functools
from dataclasses import replace
from functools import partial

import sqlalchemy as sa

from kirsch_query.emit import op
from kirsch_query.kinds import EXACT_DOUBLE, INT64, MOST_DAYS, NUMBERS, Kind, is_finite
from kirsch_query.matching import Matching
from kirsch_query.scope import ABSENT, Scope
from kirsch_query.terms import (
    SQL,
    Constant,
    Found,
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
from kirsch_query.texts import SOUGHT

MOST_FACTORS = 8
"""The greatest exponent of ``**``: it is written as a product."""
_BITS: dict[type[ast.operator], str] = {ast.BitAnd: "int_and", ast.BitOr: "int_or", ast.BitXor: "int_xor"}
_SHIFTS: dict[type[ast.operator], ast.operator] = {ast.LShift: ast.Mult(), ast.RShift: ast.FloorDiv()}


class Arithmetic(Matching):
    """The part of a translation that calculates with numbers and dates."""

    def _formatted(self, node: ast.JoinedStr, scope: Scope) -> Found:
        """Translate an f-string of text and integers, as a concatenation."""
        parts = [
            self._written(each, scope) if isinstance(each, ast.FormattedValue) else Constant(ast.literal_eval(each))
            for each in node.values
        ]
        return Value(functools.reduce(partial(op, "concat"), map(self._calculated, parts)), Kind("str", sa.String()))

    def _written(self, node: ast.FormattedValue, scope: Scope) -> Constant | Value:
        if node.conversion != -1 or node.format_spec is not None:
            raise self.refuse("each database formats in its own way", "Write {b.title} without a format.")
        found = self.value(node.value, scope)
        if isinstance(found, Constant) and not found.is_absent():
            return Constant(format(found.value))
        if not isinstance(found, Value) or not found.column or found.kind.name not in ("str", "int"):
            raise self.refuse("each database writes this in its own way", "Format columns of text and of integers.")
        text = found.sql if found.kind.name == "str" else op("int_text", found.sql)
        text = sa.func.coalesce(text, self.literal("None", SOUGHT)) if found.none else text
        return Value(text, Kind("str", sa.String()))

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
        if isinstance(node.op, ast.Pow | ast.LShift | ast.RShift):
            return self._by_literal(node, left)
        if "decimal" in kinds:
            return self._decimal_arithmetic(node, left, right)
        if "float" in kinds or isinstance(node.op, ast.Div):
            return self._float_arithmetic(node, left, right)
        if type(node.op) in _BITS:
            return self._bits(_BITS[type(node.op)], left, right)
        return self._int_arithmetic(node, left, right)

    def _by_literal(self, node: ast.BinOp, left: Constant | Value) -> Value:
        """Translate ``**``, ``<<`` and ``>>`` with a literal on the right, so that a value from a user cannot cause
        a refusal."""
        number = node.right.value if isinstance(node.right, ast.Constant) else None
        assert isinstance(left, Value)
        if type(number) is not int or number < 0 or left.kind.name == "float":
            raise self.refuse(
                "**, << and >> are of an integer or a Decimal and an exponent that is written out",
                "Write b.n ** 2. Databases calculate powers of floats with an error of their own.",
            )
        if not isinstance(node.op, ast.Pow):
            if left.kind.name == "decimal":
                raise self.refuse("Decimals are not shifted")
            return self._int_arithmetic(
                ast.BinOp(node.left, _SHIFTS[type(node.op)], node.right), left, Constant(2**number)
            )
        if not 0 < number <= MOST_FACTORS:
            raise self.refuse(f"an exponent is from 1 to {MOST_FACTORS}")
        factor = left if left.kind.name == "decimal" else replace(int_value(left), column=False)
        product = factor
        for _ in range(number - 1):
            multiply = self._decimal_arithmetic if factor.kind.name == "decimal" else self._int_arithmetic
            product = multiply(ast.BinOp(node.left, ast.Mult(), node.left), product, factor)
        return replace(product, column=False, none=False, present=None)

    def _bits(self, name: str, left: Constant | Value, right: Constant | Value) -> Value:
        """Translate ``&``, ``|`` and ``^`` of integers or booleans."""
        first, second = self._int(left), self._int(right)
        for each in (first, second):
            if each.kind.bound > INT64 or (each.kind.bound == INT64 and not each.column):
                raise self.refuse("the bits are of a calculated number that may have more than 64")
        sql = op(name, first.sql, second.sql)
        if kind_name(left) == kind_name(right) == "bool":
            return Value(sql != sa.literal(0, sa.Integer()), Kind("bool", sa.Boolean(), bound=1))
        bound = 1 << max(each.kind.bound.bit_length() for each in (first, second))
        return Value(sql, Kind("int", sa.BigInteger(), bound=min(bound, INT64)))

    # Rounding

    def _rounded_number(self, node: ast.Call, scope: Scope) -> Value:
        """Translate Python's ``round()``, which rounds half to even."""
        found = self.value(node.args[0], scope)
        if not isinstance(found, Value) or found.kind.name not in NUMBERS:
            raise self.refuse("round() is of a number")
        digits = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
        if len(node.args) > 1 and (type(digits) is not int or digits < 0):
            raise self.refuse("the digits of round() are a number that is written out and not negative")
        if found.kind.name in ("bool", "int"):
            return replace(int_value(found), column=False, none=False, present=found.is_solid())
        if found.kind.name == "float":
            if len(node.args) > 1:
                raise self.refuse(
                    "Python rounds the decimal digits of a float, which databases do not know",
                    "Round to a whole number, round(b.weight * 100), or declare the column Numeric.",
                )
            self.note("halves become even; an error beyond 64 bits")
            return Value(op("float_round", found.sql), Kind("int", sa.BigInteger(), bound=INT64))
        if found.kind.digits is None:
            raise self.refuse("the column does not say how many digits it has", "Declare it Numeric(10, 2).")
        before, after = found.kind.digits
        self.note("halves become even")
        if len(node.args) == 1:
            return Value(op("half_even", found.sql), Kind("int", sa.BigInteger(), bound=10 ** (before + 1)))
        assert type(digits) is int
        if digits >= after:
            return replace(found, column=False, none=False, present=None)
        scale = [
            sa.literal(decimal.Decimal(1).scaleb(each), sa.Numeric(digits + 1, digits)) for each in (digits, -digits)
        ]
        sql = op("decimal_mul", op("half_even", op("decimal_mul", found.sql, scale[0])), scale[1])
        return Value(sql, Kind("decimal", sa.Numeric(), digits=(before + 1, digits)))

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
        whole = not {kind_name(left), kind_name(right)} - {"bool", "int"}
        if whole and any(self._int(each).kind.bound > EXACT_DOUBLE for each in (left, right)):
            return self._quotient(self._int(left), self._int(right))
        first, second = self._double(left), self._double(right)
        # SQLite returns NULL for NaN, such as infinity - infinity, which Python can evaluate.
        present = both(solid(left, right), second != sa.literal(0.0, sa.Double()) if name == "divide" else True)
        return Value(op(name, first, second), Kind("float", sa.Double()), present=as_sql(present))

    def _quotient(self, first: Value, second: Value) -> Value:
        """Return ``/`` of integers that may not be exact as floats: Python rounds their exact quotient."""
        if max(first.kind.bound, second.kind.bound) > 2 * INT64:
            raise self.refuse("the quotient is of calculated numbers that may have more than 64 bits")
        self.note("the exact quotient, rounded once; on SQLite and MariaDB an error beyond 53 bits")
        sql = op("quotient", first.sql, second.sql)
        present = both(solid(first, second), second.sql != sa.literal(0, sa.BigInteger()))
        return Value(sql, Kind("float", sa.Double()), present=as_sql(present))

    def _double(self, value: Constant | Value) -> SQL:
        """Return a number as a float. Python and the databases convert an integer beside a float to float."""
        if isinstance(value, Value):
            return value.sql if value.kind.name == "float" else op("double", as_int(value))
        if not is_finite(value.value) or not is_double(value.value):
            raise self.refuse("the number is not a finite float without loss", "Use a smaller one.")
        return op("double", sa.literal(float(value.value), sa.Double()))

    def _decimal_arithmetic(self, node: ast.BinOp, left: Constant | Value, right: Constant | Value) -> Value:
        names = {ast.Add: "decimal_add", ast.Sub: "decimal_sub", ast.Mult: "decimal_mul",
                 ast.FloorDiv: "decimal_floordiv", ast.Mod: "decimal_mod"}  # fmt: skip
        name = names.get(type(node.op))
        if name is None:
            raise self.refuse("division of Decimals is not exact on every database", "Multiply the other side instead.")
        self.refuse_on(
            "sqlite", "SQLite has no decimals and calculates with floats", "Calculate with integers, of cents."
        )
        (one, first), (two, second) = self._decimal(left), self._decimal(right)
        if name == "decimal_mul":
            digits = (one[0] + two[0], one[1] + two[1])
        elif name in ("decimal_floordiv", "decimal_mod"):
            self.note("rounded towards zero, as Python does with Decimals; NULL where the divisor is 0")
            if one[0] + two[1] > min(28, decimal.getcontext().prec):
                raise self.refuse("the quotient may have more than 28 digits", "Declare the columns with fewer digits.")
            digits = (one[0] + two[1], 0) if name == "decimal_floordiv" else (min(one[0], two[0]), max(one[1], two[1]))
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
        if not isinstance(found, Value) or found.kind.name not in NUMBERS:
            raise self.refuse("this operator is not translated")
        if isinstance(node.op, ast.Invert):
            if found.kind.name not in ("bool", "int"):
                raise self.refuse("~ is of an integer")
            return self._int_arithmetic(ast.BinOp(node.operand, ast.Sub(), node.operand), Constant(-1), found)
        if found.kind.name in ("bool", "int"):
            found = replace(int_value(found), column=False, none=False, present=None)
            if isinstance(node.op, ast.UAdd):
                return found
            return replace(found, sql=op("int_sub", sa.literal(0, sa.BigInteger()), found.sql))
        sql = -found.sql if isinstance(node.op, ast.USub) else found.sql
        return Value(sql, found.kind, present=as_sql(solid(found)))


__all__ = ["Arithmetic"]
