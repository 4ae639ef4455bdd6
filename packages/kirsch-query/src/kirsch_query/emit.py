"""SQL text: one small SQLAlchemy element for each operation whose spelling or meaning depends on the database.

For each database, an element emits SQL with the meaning of Python. Values are only sent as bound parameters: an element
emits only its compiled arguments and the fixed text in this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from kirsch_query.errors import Refused

DIALECTS = ("sqlite", "postgresql", "mariadb")
"""The databases for which each translation is tested to mean what Python means."""

Emit = Callable[..., str]


class Operation(FunctionElement[Any]):
    """The base class of the elements."""

    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the element itself: each emits its own parentheses, and SQLAlchemy's ``= 1`` would prevent the use
        of an index."""
        return self


_EMITTERS: dict[str, dict[str, Emit]] = {}
_CLASSES: dict[str, type[FunctionElement[Any]]] = {}


def dialect_name(dialect: Any) -> str:
    """Return the database name of a dialect, an engine or a name; it distinguishes MariaDB from MySQL."""
    dialect = getattr(dialect, "dialect", dialect)
    name = str(getattr(dialect, "name", dialect))
    return "mariadb" if name == "mysql" and getattr(dialect, "is_mariadb", False) else name


def operation(
    name: str, type_: Any, *, sqlite: Emit, postgresql: Emit | None = None, mariadb: Emit | None = None
) -> None:
    """Define an element. A database without its own emitter uses SQLite's."""
    _EMITTERS[name] = {
        "default": sqlite,
        "sqlite": sqlite,
        "postgresql": postgresql or sqlite,
        "mariadb": mariadb or sqlite,
    }
    cls: type[FunctionElement[Any]] = type(
        f"_{name}", (Operation,), {"inherit_cache": True, "name": name, "type": type_ or sa.types.NULLTYPE}
    )
    _CLASSES[name] = cls
    compiles(cls)(_print)


def op(name: str, *arguments: Any) -> sa.ColumnElement[Any]:
    """Return an element of the operation ``name`` with these arguments."""
    return _CLASSES[name](*arguments)


def _print(element: Any, compiler: Any, **options: Any) -> str:
    options.pop("within_columns_clause", None)
    dialect = dialect_name(compiler.dialect)
    emitter = _EMITTERS[element.name].get(dialect)
    if emitter is None:
        raise unproven(dialect)
    linter = options.get("from_linter")
    if linter is not None:  # tell SQLAlchemy's check for Cartesian products that this joins the tables of its arguments
        for one, other in itertools.combinations(element.clauses, 2):
            linter.edges.update(itertools.product(one._from_objects, other._from_objects))
    return emitter(*(_grouped(each, compiler, options) for each in element.clauses))


def _grouped(clause: Any, compiler: Any, options: dict[str, Any]) -> str:
    text: str = compiler.process(clause, **options)
    plain = isinstance(clause, sa.Column | sa.BindParameter | sa.ScalarSelect | Operation)
    return text if plain else f"({text})"


def unproven(dialect: str) -> Refused:
    """Return the Refused error for a database on which this package was not tested."""
    hint = " Its LIKE, = and collations differ from MariaDB's." if dialect == "mysql" else ""
    return Refused(
        f"this query was not tested on {dialect}, so that its meaning there is not known",
        hint=f"It was on {', '.join(DIALECTS)}.{hint} Elsewhere, read the rows and use filter().",
    )


class Checked(Operation):
    """A whole translated condition. It refuses to compile for a database on which it is not exact."""

    inherit_cache = True
    name = "checked"
    type = sa.Boolean()

    def __init__(
        self, clause: Any, refusals: dict[str, Refused], read: frozenset[Any] = frozenset(), classes: Any = frozenset()
    ) -> None:
        super().__init__(clause)
        self.refusals = refusals
        self.read = read
        """The targets and the names of the attributes that it reads."""
        self.classes: frozenset[Any] = classes
        """The mapped classes that it reads through relations."""

    def _negate(self) -> sa.ColumnElement[Any]:
        """Return the negation for SQLAlchemy's ``not_``: true for each row for which the condition is not true."""
        return Checked(op("not_true", *self.clauses), self.refusals, self.read, self.classes)


@compiles(Checked)
def _print_checked(element: Checked, compiler: Any, **options: Any) -> str:
    dialect = dialect_name(compiler.dialect)
    # The default dialect executes nothing; SQLAlchemy compiles for it to analyze or print a statement.
    if dialect not in DIALECTS and dialect != "default":
        raise unproven(dialect)
    if dialect in element.refusals:
        raise element.refusals[dialect]
    options.pop("within_columns_clause", None)
    (clause,) = element.clauses
    return f"({compiler.process(clause, **options)})"


# Equal on all three databases: true if a condition is false or NULL, else false.
operation("not_true", sa.Boolean(), sqlite=lambda x: f"({x} IS NOT TRUE)")
# MariaDB caches results of a subquery by the values of the outer row, and compares these by collation: for 'A' it would
# return the result for 'a'. It does not cache a subquery that calls rand().
operation("uncached", sa.Boolean(), sqlite=lambda x: x, mariadb=lambda x: f"({x} AND rand() >= 0)")
operation("not", sa.Boolean(), sqlite=lambda x: f"(NOT {x})")
# True if a value is in the result of a subquery, or in an expanding parameter.
operation("among", sa.Boolean(), sqlite=lambda x, y: f"({x} IN {y})")
# The same condition as IN and as EXISTS; each database gets the better one.
operation("semi_join", sa.Boolean(), sqlite=lambda _, exists: f"({exists})", postgresql=lambda among, _: among,
           mariadb=lambda among, _: among)  # fmt: skip
operation("same", sa.Boolean(), sqlite=lambda x, y: f"({x} IS {y})",
           postgresql=lambda x, y: f"({x} IS NOT DISTINCT FROM {y})", mariadb=lambda x, y: f"({x} <=> {y})")  # fmt: skip

# Comparisons of numbers. In PostgreSQL NaN equals itself and is greater than all other numbers.
for _name, _sign, _greater in (("eq", "=", 0), ("lt", "<", 1), ("le", "<=", 1), ("gt", ">", 0), ("ge", ">=", 0)):
    operation(f"number_{_name}", sa.Boolean(), sqlite=lambda x, y, sign=_sign: f"({x} {sign} {y})")
    operation(
        f"float_{_name}", sa.Boolean(), sqlite=lambda x, y, sign=_sign: f"({x} {sign} {y})",
        postgresql=lambda x, y, sign=_sign, greater=_greater: f"({x} {sign} {y} AND {(x, y)[greater]} <> 'NaN')",
    )  # fmt: skip
# Comparisons of a float with infinity. MariaDB has no infinity: it is above or below all floats.
for _name, _sign, _more in (
    ("lt", "plus", "<"), ("le", "plus", "<="), ("ge", "plus", ">="), ("gt", "minus", ">"), ("ge", "minus", ">="), ("le", "minus", "<=")
):  # fmt: skip
    _digits, _nan = ("9e999", "'Infinity'") if _sign == "plus" else ("-9e999", "'-Infinity'"), ">" in _more
    operation(
        f"float_{_name}_{_sign}", sa.Boolean(), sqlite=lambda x, more=_more, inf=_digits[0]: f"({x} {more} {inf})",
        postgresql=lambda x, more=_more, inf=_digits[1], nan=_nan: f"({x} {more} {inf}{f' AND {x} <> {chr(39)}NaN{chr(39)}' if nan else ''})",
        mariadb=lambda x, all_=(_sign == "plus") == (_more[0] == "<"): f"({x} {'=' if all_ else '<>'} {x})",
    )  # fmt: skip


# Text: compared by code points, without padding, for any collation of the column.


def bytewise(x: str) -> str:
    return f"CONVERT({x} USING utf8mb4) COLLATE utf8mb4_nopad_bin"


def _utf8(digits: str) -> str:
    return f"CHAR(0x{digits} USING utf8mb4)"


operation("text", sa.String(), sqlite=lambda x: f"({x} COLLATE BINARY)", postgresql=lambda x: f'({x} COLLATE "C")',
           mariadb=lambda x: f"({bytewise(x)})")  # fmt: skip
operation("text_eq", sa.Boolean(), sqlite=lambda x, y: f"({x} = {y} COLLATE BINARY)",
           postgresql=lambda x, y: f'({x} = {y} COLLATE "C")', mariadb=lambda x, y: f"({bytewise(x)} = {bytewise(y)})")  # fmt: skip
# A column and a value: the plain comparison uses an index, and is implied by the exact one.
operation("text_is", sa.Boolean(), sqlite=lambda x, y: f"({x} = {y} COLLATE BINARY)",
           postgresql=lambda x, y: f"({x} = {y})",
           mariadb=lambda x, y: f"({x} = {y} AND {bytewise(x)} = {bytewise(y)})")  # fmt: skip
# The same for a column with its own collation, which in PostgreSQL may be nondeterministic, so that different texts are
# equal.
operation("text_is_collated", sa.Boolean(), sqlite=lambda x, y: f"({x} = {y} COLLATE BINARY)",
           postgresql=lambda x, y: f'({x} = {y} AND {x} = {y} COLLATE "C")',
           mariadb=lambda x, y: f"({x} = {y} AND {bytewise(x)} = {bytewise(y)})")  # fmt: skip
# The same for several values in one expanding parameter.
operation("text_among", sa.Boolean(), sqlite=lambda x, y: f"({x} COLLATE BINARY IN {y})",
           postgresql=lambda x, y: f"({x} IN {y})", mariadb=lambda x, y: f"({x} IN {y} AND {bytewise(x)} IN {y})")  # fmt: skip
operation("text_among_collated", sa.Boolean(), sqlite=lambda x, y: f"({x} COLLATE BINARY IN {y})",
           postgresql=lambda x, y: f'({x} IN {y} AND {x} COLLATE "C" IN {y})',
           mariadb=lambda x, y: f"({x} IN {y} AND {bytewise(x)} IN {y})")  # fmt: skip
# Ordered comparisons, and the range of texts with a prefix. For a column with a known collation (see kinds.order_of)
# the comparison uses it, so that an index can be used.


def _between(x: str, low: str, high: str) -> str:
    return f"({x} >= {low} AND {x} < {high})"


def _like(x: str, low: str, high: str) -> str:
    """Return the range on MariaDB with a LIKE without wildcards, which is true for all text in the range and can use
    an index."""
    escaped = low
    for each in ("!", "_", "char(37)"):  # a literal percent sign would have to be doubled for the driver
        sign = each if each.startswith("char") else f"'{each}'"
        escaped = f"replace({escaped}, {sign}, concat('!', {sign}))"
    exact = _between(bytewise(x), bytewise(low), bytewise(high))
    return f"({x} LIKE concat({escaped}, char(37)) ESCAPE '!' AND {exact})"


for _order in ("", "p", "m", "pm", "g", "pg", "u", "pu"):
    _c = "" if "p" in _order else ' COLLATE "C"'
    for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        operation(
            f"text_{_name}{_order}", sa.Boolean(), sqlite=lambda x, y, sign=_sign: f"({x} {sign} {y} COLLATE BINARY)",
            postgresql=lambda x, y, sign=_sign, c=_c: f"({x} {sign} {y}{c})",
            mariadb=lambda x, y, sign=_sign, known="m" in _order:
                f"({x} {sign} {y})" if known else f"({bytewise(x)} {sign} {bytewise(y)})",
        )  # fmt: skip
    operation(
        f"prefix{_order}", sa.Boolean(),
        sqlite=lambda x, low, high: _between(x, f"{low} COLLATE BINARY", f"{high} COLLATE BINARY"),
        postgresql=lambda x, low, high, c=_c: _between(x, f"{low}{c}", f"{high}{c}"),
        mariadb=_like if "g" in _order else _between if "m" in _order else
            lambda x, low, high: _between(bytewise(x), bytewise(low), bytewise(high)),
    )  # fmt: skip
    # The same with two texts that enclose the range, by a collation whose index can then be used.
    if "u" in _order:
        operation(
            f"prefix_within{_order}", sa.Boolean(),
            sqlite=lambda x, low, high, *_: _between(x, f"{low} COLLATE BINARY", f"{high} COLLATE BINARY"),
            postgresql=lambda x, low, high, *_, c=_c: _between(x, f"{low}{c}", f"{high}{c}"),
            mariadb=lambda x, low, high, start, end:
                f"({_between(x, start, end)} AND {_between(bytewise(x), bytewise(low), bytewise(high))})",
        )  # fmt: skip
    operation(
        f"sorted{_order}", sa.String(), sqlite=lambda x: f"({x} COLLATE BINARY)",
        postgresql=lambda x, c=_c: f"({x}{c})", mariadb=lambda x, known="m" in _order: x if known else f"({bytewise(x)})",
    )  # fmt: skip
# A boolean column. PostgreSQL does not send IS TRUE to a foreign server, and MariaDB uses no index for it.
operation("is_true", sa.Boolean(), sqlite=lambda x: f"({x} IS 1)", postgresql=lambda x: f"({x})",
           mariadb=lambda x: f"({x} = 1)")  # fmt: skip
operation("length", sa.Integer(), sqlite=lambda x: f"length({x})", postgresql=lambda x: f"char_length({x})",
           mariadb=lambda x: f"char_length({x})")  # fmt: skip
operation("contains", sa.Boolean(), sqlite=lambda x, y: f"(instr({x}, {y}) > 0)",
           postgresql=lambda x, y: f'(strpos({x} COLLATE "C", {y}) > 0)',
           mariadb=lambda x, y: f"(locate({bytewise(y)}, {bytewise(x)}) > 0)")  # fmt: skip
operation("starts", sa.Boolean(), sqlite=lambda x, y: f"(substr({x}, 1, length({y})) = {y} COLLATE BINARY)",
           postgresql=lambda x, y: f'(left({x}, char_length({y})) = {y} COLLATE "C")',
           mariadb=lambda x, y: f"(left({bytewise(x)}, char_length({y})) = {bytewise(y)})")  # fmt: skip
operation("ends", sa.Boolean(),
           sqlite=lambda x, y: f"(length({x}) >= length({y}) AND substr({x}, length({x}) - length({y}) + 1) = {y} COLLATE BINARY)",
           postgresql=lambda x, y: f'(right({x}, char_length({y})) = {y} COLLATE "C")',
           mariadb=lambda x, y: f"(right({bytewise(x)}, char_length({y})) = {bytewise(y)})")  # fmt: skip
operation("int_text", sa.String(), sqlite=lambda x: f"CAST({x} AS TEXT)", mariadb=lambda x: f"CAST({x} AS CHAR)")
operation("concat", sa.String(), sqlite=lambda x, y: f"({x} || {y})", mariadb=lambda x, y: f"concat({x}, {y})")
# Lower case of ASCII letters, as in Python. Of other letters only the two are changed whose lower case has an ASCII
# letter: the Kelvin sign, and the dotted capital I, which becomes two characters.
operation("lower", sa.String(),
           sqlite=lambda x: f"lower(replace(replace({x}, char(8490), 'k'), char(304), 'i' || char(775)))",
           postgresql=lambda x: f"""lower(replace(replace({x} COLLATE "C", chr(8490), 'k'), chr(304), 'i' || chr(775)))""",
           mariadb=lambda x: f"lower(replace(replace({bytewise(x)}, {_utf8('e284aa')}, 'k'), {_utf8('c4b0')}, {_utf8('69cc87')}))")  # fmt: skip
operation("replace", sa.String(), sqlite=lambda x, old, new: f"replace({x}, {old}, {new})",
           postgresql=lambda x, old, new: f'replace({x} COLLATE "C", {old}, {new})',
           mariadb=lambda x, old, new: f"replace({bytewise(x)}, {old}, {new})")  # fmt: skip
# From a start and up to a stop that are not negative.
# Without the characters of a set around it, which MariaDB is given as a pattern.
for _name, _trim, _btrim in (("strip", "trim", "btrim"), ("lstrip", "ltrim", "ltrim"), ("rstrip", "rtrim", "rtrim")):
    operation(_name, sa.String(), sqlite=lambda x, y, trim=_trim: f"{trim}({x}, {y})",
               postgresql=lambda x, y, trim=_btrim: f"{trim}({x}, {y})",
               mariadb=lambda x, y: f"regexp_replace({bytewise(x)}, {y}, '')")  # fmt: skip
operation("matches", sa.Boolean(), sqlite=lambda x, y: f"({x} REGEXP {y})", postgresql=lambda x, y: f'({x} COLLATE "C" ~ {y})',
           mariadb=lambda x, y: f"({bytewise(x)} REGEXP {y})")  # fmt: skip
operation("slice", sa.String(), sqlite=lambda x, start, stop: f"substr({x}, {start} + 1, max({stop} - {start}, 0))",
           postgresql=lambda x, start, stop: f"substr({x}, {start} + 1, greatest({stop} - {start}, 0))",
           mariadb=lambda x, start, stop: f"substr({x}, {start} + 1, greatest({stop} - {start}, 0))")  # fmt: skip
operation("from_end", sa.Integer(), sqlite=lambda x, n: f"max(length({x}) - {n}, 0)",
           postgresql=lambda x, n: f"greatest(char_length({x}) - {n}, 0)",
           mariadb=lambda x, n: f"greatest(char_length({x}) - {n}, 0)")  # fmt: skip
operation("bytes_length", sa.Integer(), sqlite=lambda x: f"length({x})", postgresql=lambda x: f"octet_length({x})")


# Integers of any length. SQLite's have 64 bits and would overflow to inexact floats: raise an error instead, by abs()
# of the smallest integer.


def _whole(text: str) -> str:
    value = "CASE WHEN typeof(v) <> 'real' THEN v ELSE abs(-9223372036854775808) END"
    return f"(SELECT {value} FROM (SELECT {text} AS v))"  # noqa: S608 - of SQL that is compiled already


def _exact(x: str) -> str:
    return f"CAST({x} AS DECIMAL(65, 0))"


def _numeric(x: str) -> str:
    return f"CAST({x} AS NUMERIC)"


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
    operation(
        f"int_{_name}", sa.BigInteger(), sqlite=lambda x, y, sign=_sign: _whole(f"{x} {sign} {y}"),
        postgresql=lambda x, y, sign=_sign: f"({_numeric(x)} {sign} {y})",
        mariadb=lambda x, y, sign=_sign: f"({_exact(x)} {sign} {_exact(y)})",
    )  # fmt: skip
    operation(f"float_{_name}", sa.Double(), sqlite=lambda x, y, sign=_sign: f"({x} {sign} {y})")
    operation(f"decimal_{_name}", sa.Numeric(), sqlite=lambda x, y, sign=_sign: f"({x} {sign} {y})")


def _modulo(x: str, y: str) -> str:
    """Return a modulo with the sign of the divisor, as in Python; NULL if the divisor is zero."""
    # + 0, because MariaDB's mod() of numbers with more than nine digits can return -0, which it considers less than 0.
    return f"(mod(mod({x}, nullif({y}, 0)) + {y}, nullif({y}, 0)) + 0)"


def _modulo_sqlite(x: str, y: str) -> str:
    return _whole(f"({x} % {y} + {y}) % {y}")


operation("int_mod", sa.BigInteger(), sqlite=_modulo_sqlite,
           postgresql=lambda x, y: _modulo(_numeric(x), _numeric(y)), mariadb=lambda x, y: _modulo(_exact(x), _exact(y)))  # fmt: skip
operation("int_floordiv", sa.BigInteger(),
           sqlite=lambda x, y: _whole(f"({_whole(f'{x} - {_modulo_sqlite(x, y)}')}) / {y}"),
           postgresql=lambda x, y: f"div({_numeric(x)} - {_modulo(_numeric(x), _numeric(y))}, nullif({_numeric(y)}, 0))",
           mariadb=lambda x, y: f"round(({_exact(x)} - {_modulo(_exact(x), _exact(y))}) / nullif({_exact(y)}, 0))")  # fmt: skip
# Bit operations of at most 64 bits. MariaDB returns unsigned numbers.
for _name, _sign, _mariadb in (("and", "&", "&"), ("or", "|", "|"), ("xor", "#", "^")):
    operation(
        f"int_{_name}", sa.BigInteger(),
        sqlite=(lambda x, y: f"(({x} | {y}) - ({x} & {y}))") if _name == "xor" else lambda x, y, sign=_sign: f"({x} {sign} {y})",
        postgresql=lambda x, y, sign=_sign: f"(CAST({x} AS BIGINT) {sign} CAST({y} AS BIGINT))",
        mariadb=lambda x, y, sign=_mariadb: f"CAST(CAST({x} AS SIGNED) {sign} CAST({y} AS SIGNED) AS SIGNED)",
    )  # fmt: skip


# The exact quotient of integers, rounded once. Up to 53 bits both sides are exact as floats; beyond that only
# PostgreSQL has enough digits, and the others raise an error.
def _quotient(double: Emit, error: str) -> Emit:
    most = 2**53
    return lambda x, y: (
        f"(CASE WHEN abs({x}) <= {most} AND abs({y}) <= {most} THEN {double(x)} / nullif({y}, 0)"
        f" WHEN {x} IS NOT NULL AND {y} <> 0 THEN {error.format(x=x, y=y)} END)"
    )


operation("quotient", sa.Double(), sqlite=_quotient(lambda x: f"CAST({x} AS REAL)", "abs(-9223372036854775808)"),
           postgresql=lambda x, y: f"CAST(CAST({x} AS NUMERIC(200, 130)) / nullif({_numeric(y)}, 0) AS DOUBLE PRECISION)",
           mariadb=_quotient(lambda x: f"CAST({x} AS DOUBLE)", "exp(710 + 0 * {x})"))  # fmt: skip


# A float rounded to the nearest integer, half to even. MariaDB limits it to 64 bits without an error.
def _rounded_sqlite(x: str) -> str:
    half = "v - CAST(v AS INTEGER)"
    odd = "CAST(v AS INTEGER) % 2 <> 0"
    up = f"{half} > 0.5 OR ({half} = 0.5 AND {odd})"
    down = f"{half} < -0.5 OR ({half} = -0.5 AND {odd})"
    whole = f"CAST(v AS INTEGER) + CASE WHEN {up} THEN 1 WHEN {down} THEN -1 ELSE 0 END"
    fits = "v >= -9223372036854775808.0 AND v < 9223372036854775808.0"
    value = f"CASE WHEN {fits} THEN {whole} WHEN v IS NOT NULL THEN abs(-9223372036854775808) END"
    return f"(SELECT {value} FROM (SELECT {x} AS v))"  # noqa: S608 - of SQL that is compiled already


def _rounded_mariadb(x: str) -> str:
    error = f"abs(CAST({x} AS SIGNED)) + 9223372036854775807"
    return f"(CASE WHEN abs({x}) < 9.2e18 THEN CAST({x} AS SIGNED) WHEN {x} IS NOT NULL THEN {error} END)"


operation("float_round", sa.BigInteger(), sqlite=_rounded_sqlite, postgresql=lambda x: f"CAST({x} AS BIGINT)",
           mariadb=_rounded_mariadb)  # fmt: skip
operation("half_even", sa.Numeric(), sqlite=lambda x: x,
           postgresql=lambda x: f"(floor({x}) + CASE WHEN {x} - floor({x}) > 0.5 OR ({x} - floor({x}) = 0.5 AND mod(floor({x}), 2) <> 0) THEN 1 ELSE 0 END)",
           mariadb=lambda x: f"(floor({x}) + CASE WHEN {x} - floor({x}) > 0.5 OR ({x} - floor({x}) = 0.5 AND mod(floor({x}), 2) <> 0) THEN 1 ELSE 0 END)")  # fmt: skip
operation("decimal_mod", sa.Numeric(), sqlite=lambda x, y: f"({x} % {y})", postgresql=lambda x, y: f"mod({x}, nullif({y}, 0))",
           mariadb=lambda x, y: f"(mod({x}, nullif({y}, 0)) + 0)")  # fmt: skip
operation("decimal_floordiv", sa.Numeric(), sqlite=lambda x, y: f"({x} / {y})", postgresql=lambda x, y: f"div({x}, nullif({y}, 0))",
           mariadb=lambda x, y: f"round(({x} - mod({x}, nullif({y}, 0))) / nullif({y}, 0))")  # fmt: skip
operation("int_abs", sa.BigInteger(), sqlite=lambda x: f"abs({x})", postgresql=lambda x: f"abs({_numeric(x)})",
           mariadb=lambda x: f"abs({_exact(x)})")  # fmt: skip
operation("abs", sa.Double(), sqlite=lambda x: f"abs({x})")
operation("whole", sa.Integer(), sqlite=lambda x: f"CAST({x} AS INTEGER)", mariadb=lambda x: f"CAST({x} AS SIGNED)")
operation("double", sa.Double(), sqlite=lambda x: f"CAST({x} AS REAL)",
           postgresql=lambda x: f"CAST({x} AS DOUBLE PRECISION)", mariadb=lambda x: f"CAST({x} AS DOUBLE)")  # fmt: skip
operation("numeric", sa.Numeric(), sqlite=lambda x: x, postgresql=_numeric)
# MariaDB treats a value of these types as text, which matters if it is not compared with a column.
for _name, _type in (("datetime", "DATETIME(6)"), ("date", "DATE"), ("time", "TIME(6)")):
    operation(f"as_{_name}", None, sqlite=lambda x: x, mariadb=lambda x, type_=_type: f"CAST({x} AS {type_})")
operation("days", sa.Integer(), sqlite=lambda x, y: f"CAST(julianday({x}) - julianday({y}) AS INTEGER)",
           postgresql=lambda x, y: f"({x} - {y})", mariadb=lambda x, y: f"datediff({x}, {y})")  # fmt: skip
operation("divide", sa.Double(), sqlite=lambda x, y: f"({x} / nullif({y}, 0))")

# Parts of dates and times. SQLite stores them as text with fixed positions.
_PARTS = {"year": (1, 4), "month": (6, 2), "day": (9, 2), "hour": (12, 2), "minute": (15, 2), "second": (18, 2),
          "microsecond": (21, 6)}  # fmt: skip


def _extract(part: str) -> str:
    if part == "second":
        return "CAST(floor(EXTRACT(SECOND FROM {x})) AS INTEGER)"
    if part == "microsecond":
        return "mod(CAST(EXTRACT(MICROSECOND FROM {x}) AS INTEGER), 1000000)"
    return f"CAST(EXTRACT({part.upper()} FROM {{x}}) AS INTEGER)"


for _name, (_start, _count) in _PARTS.items():
    for _prefix, _offset in (("", 0), ("time_", 11)):
        if _start <= _offset:
            continue
        operation(
            f"{_prefix}{_name}", sa.Integer(),
            sqlite=lambda x, start=_start - _offset, count=_count: f"CAST(substr({x}, {start}, {count}) AS INTEGER)",
            postgresql=lambda x, name=_name: _extract(name).format(x=x),
            mariadb=lambda x, name=_name: f"{name}({x})",
        )  # fmt: skip
operation("weekday", sa.Integer(), sqlite=lambda x: f"((CAST(strftime('%w', substr({x}, 1, 10)) AS INTEGER) + 6) % 7)",
           postgresql=lambda x: f"(CAST(EXTRACT(ISODOW FROM {x}) AS INTEGER) - 1)", mariadb=lambda x: f"weekday({x})")  # fmt: skip
# Values that sort as in Python: MariaDB sorts UUIDs by their time, and two databases sort enums by declaration.
operation("uuid", sa.String(), sqlite=lambda x: x, mariadb=lambda x: f"CAST({x} AS CHAR(36))")
operation("enum", sa.String(), sqlite=lambda x: f"({x} COLLATE BINARY)", postgresql=lambda x: f'(CAST({x} AS TEXT) COLLATE "C")',
           mariadb=lambda x: f"({bytewise(f'CAST({x} AS CHAR)')})")  # fmt: skip
operation("offset", sa.Interval(), sqlite=lambda x: x, postgresql=lambda x: f"make_interval(secs => {x})")
operation("in_zone", sa.DateTime(), sqlite=lambda x, _: x, postgresql=lambda x, zone: f"({x} AT TIME ZONE {zone})")
operation("date", sa.Date(), sqlite=lambda x: f"substr({x}, 1, 10)", postgresql=lambda x: f"CAST({x} AS DATE)",
           mariadb=lambda x: f"date({x})")  # fmt: skip
