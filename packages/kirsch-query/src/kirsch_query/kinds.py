"""The kinds of values of columns and constants, and which of them each database stores exactly."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import math
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Mapping

INT32 = 2**31
INT64 = 2**63
EXACT_DOUBLE = 2**53
"""Integers up to here are doubles without loss."""

# The types by which values of the common kinds are bound.
BIG: sa.BigInteger = sa.BigInteger()
BOOL: sa.Boolean = sa.Boolean()


class _Real(sa.types.TypeDecorator[Any]):
    """The type of a float that may be infinite. For MariaDB, which cannot store infinity, it is bound as NULL."""

    impl: Any = sa.Double
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Return the number."""
        infinite = value is not None and not is_finite(value)
        return None if infinite and dialect.name in ("mysql", "mariadb") else value


class _Decimal(_Real):
    """The type of a Decimal that may be infinite, like :class:`_Real`."""

    impl = sa.Numeric
    cache_ok = True


class _Huge(sa.types.TypeDecorator[Any]):
    """The type of an integer beyond 64 bits. SQLite cannot calculate one, so it is bound as a float beyond all its
    integers."""

    impl = sa.Numeric
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Return the number."""
        if dialect.name == "sqlite" and value is not None:
            return decimal.Decimal(2**64 if value > 0 else -(2**64))
        return value


DOUBLE = _Real()
DECIMAL = _Decimal()
HUGE = _Huge()

TEXTS = ("str", "lower")
NUMBERS = ("bool", "int", "float", "decimal")


@dataclass(frozen=True)
class Kind:
    """The Python type of a column's values, and their limits."""

    name: str
    """The name of the Python type; ``lower`` for text of which ASCII letters alone are in lower case."""
    type: Any
    """The SQLAlchemy type with which a value beside it is bound."""
    bound: int = 0
    """The largest absolute value of an int."""
    digits: tuple[int, int] | None = None
    """The digits of a Decimal before and after its point; None if the column does not say."""
    members: Any = None
    """The class of an enum, or the strings of one that has no class."""
    collated: bool = False
    """True if a text column has a collation of its own."""
    order: str = ""
    """The letters of :func:`order_of` for the collation of a text column; empty if it is not known."""
    refusals: tuple[tuple[str, str, str], ...] = ()
    """Databases on which it is not exact: the database, why, and what to do instead."""

    def joined(self, other: Kind) -> Kind:
        """Return this kind with the larger limits of both, and without a column."""
        digits: Any = self.digits and other.digits and tuple(map(max, self.digits, other.digits))
        return replace(self, bound=max(self.bound, other.bound), digits=digits, order="")


MOST_DAYS = datetime.date.max.toordinal()
"""More days than are between two dates."""


def in_days(kind: Kind) -> Kind:
    """Return the kind of a number of days, for a date difference (kind ``span``)."""
    return replace(kind, name="int", type=sa.BigInteger())


class NotExact(Exception):
    """Raised for a type that is exact on no database. Internal to this package."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


_NO_ZONES = "stores no time zone"
_PLAIN_DATETIMES = (sa.DateTime, sa.DATETIME, sa.TIMESTAMP, mysql.DATETIME, postgresql.TIMESTAMP, sqlite.DATETIME)


@functools.lru_cache(maxsize=1024)
def kind_of(type_: Any) -> Kind:
    """Return the kind of a column's type. Raises NotExact."""
    kind = _kind(type_)
    for dialect, variant in getattr(type_, "_variant_mapping", {}).items():
        database = "mariadb" if dialect == "mysql" else dialect
        others = tuple(each for each in kind.refusals if each[0] != database)
        try:
            there = _kind(variant)
        except NotExact as why:
            kind = replace(kind, refusals=(*others, (database, why.problem, why.hint)))
            continue
        own = tuple(each for each in there.refusals if each[0] == database)
        if there.name != kind.name:
            own = ((database, f"the column's type there stores a {there.name}", "Give it one type everywhere."),)
        kind = replace(kind.joined(there), refusals=others + own, collated=kind.collated or there.collated)
    return kind


KNOWN = "kirsch_query.collation"
"""The key of :attr:`sqlalchemy.Column.info` with the collation's name on each database, None if databases differ."""


def known_kind(column: Any) -> Kind:
    """Return the kind of a column, by its type and its learned collation. Raises NotExact."""
    kind = kind_of(column.type)
    collations = column.info.get(KNOWN) if kind.name == "str" else None
    return replace(kind, order=order_of(collations)) if collations else kind


_ORDERS = {
    **{("postgresql", name): "p" for name in ("C", "POSIX", "C.UTF-8", "C.utf8", "C.UTF8", "ucs_basic", "pg_c_utf8")},
    ("mariadb", "utf8mb4_nopad_bin"): "m",
    ("mariadb", "utf8mb4_general_ci"): "g",
    **{("mariadb", f"utf8mb4_unicode_{name}ci"): "u" for name in ("", "520_", "nopad_", "520_nopad_")},
    **{
        ("mariadb", f"utf8mb4_uca1400_{pad}{accents}_{case}"): "u"
        for pad in ("", "nopad_")
        for accents in ("ai", "as")
        for case in ("ci", "cs")
    },
}


def order_of(collations: Mapping[str, str | None]) -> str:
    """Return the properties of a column's collations (names by database) as letters. ``p``: compares by code points on
    PostgreSQL. ``m``: compares by code points on MariaDB. ``g``: on MariaDB, LIKE matches every text with a given
    prefix (only tested for utf8mb4_general_ci). ``u``: on MariaDB, compares by the language-independent table of the
    Unicode Collation Algorithm, see :func:`texts.around`.
    """
    letters = [_ORDERS.get((database, name), "") for database, name in collations.items() if name]
    return "".join(sorted(letters, key="pmgu".index))


def _kind(type_: Any) -> Kind:
    """Return the kind of a type, without regard to its variants."""
    refused: tuple[tuple[str, str, str], ...]
    if isinstance(type_, sa.TypeDecorator):
        raise NotExact(
            f"the column has a type of its own, {type(type_).__name__}, and what it does with values is not known",
            "Give the column a type of SQLAlchemy's.",
        )
    if isinstance(type_, sa.Boolean):
        return Kind("bool", sa.Boolean(), bound=1)
    if isinstance(type_, sa.Integer):
        if getattr(type_, "unsigned", False) or getattr(type_, "zerofill", False):
            raise NotExact("the column is unsigned", "Use a signed type.")
        return Kind("int", sa.BigInteger(), bound=INT64 if isinstance(type_, sa.BigInteger | mysql.BIGINT) else INT32)
    if isinstance(type_, sa.Float):
        return _float(type_)
    if isinstance(type_, sa.Numeric):
        if not type_.asdecimal:
            raise NotExact("the column stores decimals and gives floats", "Declare it Double, or let it give Decimal.")
        places = None
        if type_.precision is not None:
            scale = type_.scale or 0
            places = (type_.precision - scale, scale)
        refused = (("sqlite", "SQLite has no decimals and stores floats", "Store an integer, of cents for example."),)
        return Kind("decimal", sa.Numeric(), digits=places, refusals=refused)
    if isinstance(type_, sa.Enum):
        return _enum(type_)
    if isinstance(type_, sa.JSON):
        return Kind("json", sa.JSON())
    if isinstance(type_, sa.CHAR | sa.NCHAR):
        raise NotExact("a CHAR column is padded on some databases", "Use String.")
    if isinstance(type_, sa.String) and type(type_).__module__.startswith(("sqlalchemy.sql.", "sqlalchemy.dialects.")):
        if type(type_).__name__ in {"CITEXT", "SET", "ENUM", "JSON", "XML"}:
            raise NotExact(f"a {type(type_).__name__} column compares in its own way", "Use String.")
        return Kind("str", sa.String(), collated=type_.collation is not None)
    if isinstance(type_, sa.LargeBinary | sa.VARBINARY):
        return Kind("bytes", sa.LargeBinary())
    if type(type_) in _PLAIN_DATETIMES:
        return _datetime(type_)
    if type(type_) in (sa.Date, sa.DATE):
        return Kind("date", sa.Date())
    if type(type_) in (sa.Time, sa.TIME, mysql.TIME, sqlite.TIME):
        if getattr(type_, "timezone", False):
            raise NotExact("a time of day with a zone has no fixed meaning", "Store a time without one.")
        return Kind("time", type_)
    if isinstance(type_, sa.Uuid):
        if not type_.as_uuid:
            raise NotExact("the column gives UUIDs as text", "Declare it Uuid(as_uuid=True).")
        return Kind("uuid", type_)
    raise NotExact(f"columns of type {type_!r} are not translated", "Read the rows and use filter().")


def _float(type_: Any) -> Kind:
    if type_.asdecimal:
        raise NotExact("the column stores floats and gives Decimal", "Declare it Numeric, or Double.")
    if isinstance(type_, sa.REAL) and not isinstance(type_, sa.Double):
        refused = (
            ("postgresql", "REAL has single precision", "Use Double."),
            ("mariadb", "REAL may be single", "Use Double."),
        )
        return Kind("float", sa.Double(), refusals=refused)
    if isinstance(type_, sa.Double | sa.DOUBLE | sa.DOUBLE_PRECISION | mysql.DOUBLE):
        return Kind("float", sa.Double())
    precision = type_.precision
    single = "this column has single precision there, so that no value in it equals the float that was stored"
    found = []
    if precision is None or precision <= 24:
        found.append(("mariadb", single, "Declare it Double."))
    if precision is not None and precision <= 24:
        found.append(("postgresql", single, "Declare it Double."))
    return Kind("float", sa.Double(), refusals=tuple(found))


def _enum(type_: sa.Enum) -> Kind:
    strings = tuple(type_.enums)
    if len({each.casefold() for each in strings}) != len(strings):
        raise NotExact("two members of the enum differ in case only", "Give them names of their own.")
    if type_.enum_class is None:
        return Kind("enum", type_, members=strings)
    if type_._sort_key_function is None or issubclass(type_.enum_class, str | int | float):
        raise NotExact(
            "members of an enum that are text or numbers too equal values that the column does not hold",
            "Use a plain enum.Enum.",
        )
    return Kind("enum", type_, members=type_.enum_class)


def _datetime(type_: Any) -> Kind:
    if isinstance(type_, sqlite.DATETIME) and type(type_) is sqlite.DATETIME:
        raise NotExact("the column has a storage format of its own", "Declare it DateTime.")
    if getattr(type_, "timezone", False):
        zones = (("sqlite", f"SQLite {_NO_ZONES}", "Store UTC in a column without a zone."),
                   ("mariadb", f"MariaDB {_NO_ZONES}", "Store UTC in a column without a zone."))  # fmt: skip
        return Kind("aware", sa.DateTime(timezone=True), refusals=zones)
    refused: tuple[tuple[str, str, str], ...] = ()
    if isinstance(type_, sa.TIMESTAMP):
        refused = (("mariadb", "a TIMESTAMP is converted to the session's time zone", "Declare it DateTime."),)
    return Kind("datetime", type_ if isinstance(type_, mysql.DATETIME) else sa.DateTime(), refusals=refused)


def python_value(kind: Kind, value: Any) -> Any:
    """Convert a value of a kind to Python's type: databases return Decimals for integers, and numbers for booleans."""
    if value is None:
        return None
    if kind.name == "span":
        return datetime.timedelta(days=int(value))
    convert: Any = {"int": int, "bool": bool, "decimal": decimal.Decimal}.get(kind.name)
    return convert(value) if convert else value


_SIMPLE: dict[type[Any], str] = {
    bool: "bool",
    int: "int",
    float: "float",
    decimal.Decimal: "decimal",
    str: "str",
    bytes: "bytes",
    datetime.date: "date",
    uuid.UUID: "uuid",
}


def constant_kind(value: Any) -> str | None:
    """Return the name of a constant's kind; None for an unknown type, including subclasses."""
    if isinstance(value, enum.Enum):
        return "enum"
    if type(value) is datetime.datetime:
        return "datetime" if value.utcoffset() is None else "aware"
    if type(value) is datetime.time:
        return "time" if value.tzinfo is None else None
    return _SIMPLE.get(type(value))


_STORED: dict[str, tuple[type[Any], ...]] = {
    "str": (str,),
    "bytes": (bytes,),
    "enum": (str, enum.Enum),
    "uuid": (uuid.UUID,),
    "date": (datetime.date,),
    "time": (datetime.time,),
}


def stored(kind: Kind, value: Any) -> bool:
    """Return whether a column of this kind stores the value so that an equal one is read back."""
    if isinstance(value, datetime.datetime):
        return kind.name == ("datetime" if value.utcoffset() is None else "aware")
    if kind.name == "json":
        return _is_json(value)
    if kind.name not in NUMBERS:
        return isinstance(value, _STORED.get(kind.name, ()))
    if not isinstance(value, int | float | decimal.Decimal) or not is_finite(value):
        return kind.name == "float" and isinstance(value, float)
    if kind.name == "decimal":
        _, digits, exponent = decimal.Decimal(value).as_tuple()
        beyond = (exponent if isinstance(exponent, int) else 0) + (kind.digits[1] if kind.digits else len(digits))
        return not isinstance(value, float) and (beyond >= 0 or not any(digits[beyond:]))
    return value in (0, 1) if kind.name == "bool" else kind.name == "float" or value == int(value)


def _is_json(value: Any) -> bool:
    """Return whether a value is unchanged after conversion to JSON and back."""
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value))


def is_finite(value: Any) -> bool:
    """Return whether a number is neither infinite nor NaN."""
    if isinstance(value, int):
        return True  # of any size; math.isfinite() would convert it to a float
    return bool(value.is_finite() if isinstance(value, decimal.Decimal) else math.isfinite(value))
