"""The table in docs/queries.md of what translates on which database, and the queries from which it is made.

``python tests/translates.py`` writes it anew. test_translates.py runs each query on each database, and compares the
page.
"""

from __future__ import annotations

import datetime
import re
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from generate import asked
from kirsch_query import Refused
from models import Chief, Clerk, Colour, Owner, Thing

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).resolve().parent.parent / "docs" / "queries.md"
START, STOP = "<!-- made by tests/translates.py -->\n", "<!-- end -->\n"

DIALECTS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://", "mariadb": "mariadb+pymysql://"}
TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}

NAMES: dict[str, Any] = {
    "limit": 3, "text": "a_b", "Decimal": Decimal, "datetime": datetime, "UUID": uuid.UUID, "Colour": Colour, "nothing": None,
    "helper": lambda n: n > 3, "owner": Owner(), "re": re, "WORD": re.compile(r"[a-z]+\d?$"), "Chief": Chief, "Clerk": Clerk,
}  # fmt: skip

# Each row of the table: what a reader looks for, the queries that stand for it, and what a reader should know.
ROWS: list[tuple[str, list[str], str]] = [
    ("`and`, `or`, `not`", ["x.i > 1 and x.j < 3", "not (x.i > 1 or x.s == 'a')"], ""),
    ("`< <= > >=` of numbers, text, dates", ["x.i < limit", "x.f >= 0.5", "x.s <= 'b'", "x.day > datetime.date(2000, 1, 1)"], ""),
    ("`==`, `!=`", ["x.i == limit", "x.i != limit", "x.s == text", "x.i == x.j"], ""),
    ("`is None`, `is not None`, `== None`", ["x.i is None", "x.s is not None", "x.i == nothing"], ""),
    ("chained comparisons", ["1 < x.i <= 5", "x.i < x.j < 9"], ""),
    ("`in`, `not in` of constants", ["x.i in (1, 2, None)", "x.s not in {'a', 'b'}", "x.i in range(2, 6)"], "at most 10,000"),
    ("`a if c else b`, `x or y`", ["(x.i if x.sure else x.j) > 2", "(x.i or x.j) == 7", "(x.s or 'none') == 'none'"], "of one type"),
    ("`+ - *` of integers", ["x.i + 1 > x.j", "x.i - x.j == 2", "x.i * x.j < 10", "-x.i > 1"], "an error beyond 64 bits on SQLite; to 55 digits"),
    ("`//`, `%` of integers", ["x.j // 2 == -4", "x.j % 3 == 2", "x.i % x.j == 0"], "rounded down, as in Python"),
    ("`/` of integers", ["x.j / 2 == 3.5", "x.i / x.j > 0", "(x.j * 4194304 + 1) / 3 > 1"], "beyond 2⁵³ an error, except on PostgreSQL"),
    ("`& | ^ ~` of integers and booleans", ["x.j & 1 == 1", "x.big | 6 == 7", "x.flag ^ x.sure", "~x.i < 0"], "of 64 bits"),
    ("`**`, `<<`, `>>` of integers", ["x.j ** 2 > 3", "x.j << 1 == 2", "x.big >> 3 == 1"], "the second number is written out"),
    ("`+ - * /` of floats", ["x.f + x.g > 1", "x.f * 2.0 < 1", "x.f / x.g > 0"], "of Double columns; an overflow is an error, except on SQLite"),
    ("`//`, `%` of floats", ["x.f % 2.0 == 1", "x.f // 2 == 1"], ""),
    ("`**` of floats, by another number", ["x.f ** 2 > 3", "x.j ** limit > 3", "x.j << x.i == 2"], ""),
    ("`round` to a whole number", ["round(x.f) == 2", "round(x.i / 2) == 2", "round(x.j) > 1"], "halves become even; an error beyond 64 bits"),
    ("`round` of a Decimal", ["round(x.d) == 1", "round(x.d, 1) == Decimal('0.2')"], "digits are written out"),
    ("`round` of a float to digits", ["round(x.f, 1) == 0.2"], "write `round(b.weight * 10)`"),
    ("`abs`, `min`, `max`", ["abs(x.j) == 7", "min(x.i, x.j) < 0", "max(x.s, x.t) == 'b'"], "of two or more"),
    ("`int`, `float`, `str`", ["int(x.f) == 1", "float(x.i) == 1.0", "str(x.i) == '1'"], ""),
    ("Decimal: comparisons", ["x.d > Decimal('0.10')", "x.d == 1"], ""),
    ("Decimal: `+ - *`", ["x.d + x.d == Decimal('0.20')", "x.d * 3 > 1"], "to 28 digits"),
    ("Decimal: `//`, `%`, `**`", ["x.d // 3 == 1", "x.d % 3 > 1", "x.d ** 2 > 1"], "to 28 digits; rounded towards zero, as Python does"),
    ("Decimal: `/`", ["x.d / 2 > 1"], ""),
    ("Decimal with float", ["x.d > 0.5"], ""),
    ("text: `startswith`, `endswith`, `in`", ["x.s.startswith(text)", "x.s.endswith(('a', 'b'))", "'%' in x.s", "x.s in x.t", "text.startswith(x.s)"], "no wildcards"),
    ("text: `len`, `+`, slices", ["len(x.s) == 2", "x.s + x.t == 'ab'", "x.s[:1] == 'a'", "x.s[-2:] == 'bc'", "x.s[0] == 'a'"], "slices by constants"),
    ("text: `lower` beside constants", ["x.s.lower() == 'a'", "x.s.lower() in ('a', 'é')", "x.s.lower().startswith('a')", "'é' in x.s.lower()"], "without the Greek σ and ς"),
    ("text: `lower` beside a row's text, `upper`, `casefold`", ["x.s.lower() == x.t", "x.s.upper() == 'A'", "x.s.casefold() == 'a'"], "databases know fewer letters"),
    ("text: `strip`, `lstrip`, `rstrip`", ["x.s.strip() == 'a'", "x.s.lstrip('ab') == ''", "x.s.rstrip(text) == 'b'"], "of white space or of a constant's characters"),
    ("patterns: `search`, `match`, `fullmatch`", ["WORD.search(x.s)", "re.match('a+', x.s)", "re.search('a', x.s, re.IGNORECASE)", "WORD.fullmatch(x.t) is None"], "compiled or written out, see below"),
    ("patterns with back references, `\\b`", ["re.search(r'(a)\\1', x.s)", "re.search(r'\\ba', x.s)", "re.search(text, x.s)"], ""),
    ("f-strings", ["f'{x.s}: {x.i}' == 'a: 1'", "f'{text}-{x.t}'.startswith('a')"], "of columns of text and integers, without a format"),
    ("text: `replace`, `split`", ["x.s.replace('a', 'b') == 'b'", "x.s.split() == ['a']"], ""),
    (
        "parts of JSON columns",
        [
            "x.doc['d']['n'] == 3", "x.doc['l'][0] > limit", "x.doc['w'] in ('a', None)", "x.doc['w'].startswith(text)", "'a' in x.doc['l']",
            "len(x.doc['l']) == 2", "x.doc.get('w') is None", "not x.doc['n']", "x.doc['n'] == x.i",
        ],
        "keys are written out, see below",
    ),
    ("parts of JSON columns: arithmetic, an order of rows", ["x.doc['n'] + 1 == 3", "x.doc['n'] == Decimal(1)", "x.doc['n'] == x.doc['w']", "x.doc[text] == 3", "max(x.doc['n'], 1) == 3", "x.doc == {'n': 1}", "abs(x.doc['n']) == 1", "(x.doc['n'] or 1) == 1", "x.doc['w'][:1] == 'a'", "round(x.doc['n']) == 1"], ""),
    ("dates and times: parts", ["x.at.year == 2024", "x.at.microsecond == 0", "x.day.month == 2", "x.clock.hour == 2"], ""),
    ("`weekday()`, `isoweekday()`, `date()`", ["x.day.weekday() == 3", "x.at.isoweekday() == 7", "x.at.date() == datetime.date(2000, 1, 1)"], ""),
    (
        "`-` of dates, `.days`",
        [
            "(x.day - datetime.date(2000, 1, 1)).days > 40", "(x.at.date() - x.day).days < 0", "not x.day - x.at.date() == datetime.timedelta(0)",
            "datetime.date(2024, 1, 1) - x.day >= datetime.timedelta(days=3, hours=1)", "x.day - datetime.date(1, 1, 1)",
            "(datetime.date.max - x.day).days % 7 == 3", "x.day - x.at.date() == x.at.date() - x.day",
        ],
        "",
    ),
    ("other arithmetic of dates with a row", ["x.at - x.at == datetime.timedelta(0)", "x.day + datetime.timedelta(1) == x.at.date()"], "write `b.day > today - timedelta(3)`"),
    ("times with a zone: comparisons", ["zoned > moment"], "of a column with a zone"),
    ("times with a zone: parts", ["zoned.astimezone(utc).hour == 3", "zoned.astimezone(berlin).date() == day", "zoned.astimezone(tokyo).weekday() == 2"], "on the clocks of the zone that is named"),
    ("booleans", ["x.sure", "not x.flag", "x.flag == x.sure", "x.flag is True"], ""),
    ("enums, UUIDs, bytes: `==`, `in`", ["x.colour == Colour.RED", "x.uid != UUID(int=1)", "x.data in (b'a', b'')"], "no order"),
    ("attributes over relations", ["x.owner.name == 'a'", "x.owner.boss.rank > 1", "x.owner is None"], ""),
    ("`any`, `all`, `len` of a relation", ["any(o.n > 1 for o in x.items)", "all(o.n > 1 for o in x.items if o.n)", "len(x.items) == 2", "x.i in [o.n for o in x.items]"], "subqueries"),
    (
        "`sum`, `min`, `max`, `len([...])` of a relation",
        ["sum(o.n for o in x.items) > 3", "max(o.n for o in x.items if o.n > 1) == x.i", "len([o for o in x.items if o.n]) == 2", "sum(1 for o in x.items if o.n) < 3", "len({o.n for o in x.items}) == 2", "max(o.word for o in x.items) == 'a'", "len([o for o in x.owner.things if limit < 0]) == 0"],
        "of integers and Decimals; `min`, `max` of text and dates too",
    ),
    ("objects: `==`, `!=`, `is`", ["x.owner == owner", "x.owner.boss is not owner", "any(i.thing == x for i in x.items)"], "by their primary keys"),
    ("`isinstance` of mapped objects", ["isinstance(x.owner, Chief)", "isinstance(x.owner.boss, (Chief, Clerk)) and x.j > 1", "isinstance(x.owner, Chief) and x.owner.bonus > 3"], "by the column that names the class"),
    ("tuples: `==`, an order, `in`", ["(x.i, x.t) == (3, 'a')", "(x.j, x.t) > (limit, text)", "(x.i, x.s) in ((1, 'a'), (2, None))"], "the first items that differ decide"),
    ("`any`, `all` of constants", ["any(x.i == v for v in (1, 5))"], "at most 500"),
    ("functions, methods, properties of one expression", ["helper(x.j)", "x.is_sure"], "with a source"),
]  # fmt: skip

ZONES: dict[str, Any] = {
    "utc": datetime.timezone.utc, "berlin": zoneinfo.ZoneInfo("Europe/Berlin"), "day": datetime.date(2024, 3, 31),
    "tokyo": datetime.timezone(datetime.timedelta(hours=9)), "moment": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
}  # fmt: skip
ZONED = sa.Table("zoned", sa.MetaData(), sa.Column("at", sa.DateTime(timezone=True)))


def clause(text: str, dialect: Any) -> Any:
    """The condition of a query of the table. Raises Refused."""
    if text.startswith("zoned"):
        return asked(text.replace("zoned", "x.at"), ZONES).clause(ZONED, dialect=dialect)
    return asked(text, NAMES).clause(Thing, dialect=dialect)


def dialect(name: str) -> Any:
    """A dialect that needs no driver, since nothing connects."""
    return sa.make_url(DIALECTS[name]).get_dialect()()


def cell(texts: Sequence[str], name: str) -> str:
    """Return the table's cell for the queries of one row on one database."""
    refused = []
    for text in texts:
        try:
            clause(text, dialect(name))
        except Refused as error:
            refused.append(error.problem)
    assert len(refused) in (0, len(texts)), f"{texts}: some are refused on {name} and some are not: {refused}"
    return "refused" if refused else "yes"


def table() -> str:
    """The table, in Markdown."""
    lines = [f"| Python | {' | '.join(TITLES.values())} | |", "|-|-|-|-|-|"]
    for label, texts, note in ROWS:
        cells = [cell(texts, name) for name in TITLES]
        lines.append(f"| {label} | {' | '.join(cells)} | {note} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(START)
    PAGE.write_text(before + START + "\n" + table() + "\n" + STOP + rest.partition(STOP)[2], "utf-8")


if __name__ == "__main__":
    main()
