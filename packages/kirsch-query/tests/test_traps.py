"""The known differences of SQL and Python, one by one: each query gives Python's result on each database."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from generate import asked
from kirsch_query import Refused, where
from models import Item, Owner, Thing, stored

TRAPS = [
    # Division rounds down, a remainder has the sign of the divisor, and / gives fractions.
    "x.j / 2 == 3.5", "x.j // 2 == -4", "x.j % 2 == 1", "x.j % -3 == -2", "x.i % -2147483648 == 0", "x.i * -2147483648 == 0", "x.j // -1000000000 == 0", "x.j // -2 == 3", "x.i / x.j > 0", "1 / x.i == 1",
    # Letter case, accents, trailing spaces, wildcards, characters beyond 16 bits.
    "x.t == 'A'", "x.t == 'a '", "x.t == 'e'", "x.t < 'B'", "x.t > '\\uffff'", "x.t.startswith('A')", "x.t.startswith('_')", "x.t.endswith('%')",
    "'%' in x.t", "'B' in x.t", "len(x.t) == 1", "len(x.t) == 2", "x.t in ('A', 'e', '😀')", "x.t not in ('A',)", "x.t[-2:] == 'bc'", "x.t[0] == 'a'",
    "x.t", "not x.t", "x.t == ' '", "x.t == ''", "min(x.t, 'b') == 'b'", "x.t.startswith('')", "'' in x.t", "x.t.startswith('\\U0010ffff')",
    "x.t.lower() == 'a'", "x.t.lower() != 'a'", "x.t.lower() in ('a', 'AB', 'abc')", "x.t.lower().startswith('a')", "x.t.lower().endswith('b')", "'b' in x.t.lower()", "x.t.lower() == 'k'",
    "x.t.lower().startswith('i')", "x.t.lower().endswith('i')", "(x.t + 'B').lower() == 'ab'", "not x.t.lower()", "x.t.lower() == ''", "'A' in x.t.lower()",
    # None.
    "not x.i < 3", "x.i != 3", "x.i not in (1, None)", "x.i in (1, None)", "not (x.i == 3 and x.j == 3)", "x.i == x.n_ull", "not x.i % 0 == 1",
    # Booleans as values: absent if the method's text or argument is None.
    "x.s.startswith('a') == False", "x.s.startswith('a') != True", "x.s.endswith(x.t) is False", "x.s.startswith(('a', 'b')) in (False, None)",
    "(x.s.startswith('a') + 1) == 1", "min(x.s.startswith('a'), x.sure) == False", "'abc'.startswith(x.s) == False", "(x.s in 'abc') == False",
    "x.owner.name.startswith('a') == False", "(x.s.startswith('a') if x.sure else x.sure) == False", "(x.s.startswith('a') or x.t == '') == False",
    "x.is_prefixed == False", "x.s.startswith(nothing) == False", "(x.i < 3) == False", "x.s.startswith('') == False", "x.t.startswith('a') == False",
    "(not x.s.startswith('a')) == True", "(x.s.startswith('a'), 1) != (True, 1)", "any(e == False for e in (x.s.startswith('a'), x.sure))",
    # Numbers: floats are doubles, integers have as many digits as they need, types that differ are not equal.
    "x.f + 0.2 == 0.3", "x.f + 0.2 == 0.30000000000000004", "x.f == 0.1", "x.big + 1 > x.big", "x.big * x.big > 0", "x.big == 2**53 + 1",
    "x.big < 1e30", "x.i < 2.5", "x.i == 2.0", "x.i == 2.5", "x.i > 10**30", "x.t == 10", "x.sure == 1", "x.sure == 2", "x.sure + x.sure == 2", "x.d == Decimal('0.10')",
    "x.d + x.d == Decimal('0.20')", "x.d > 0", "bool(x.f)", "abs(x.j) == 7", "max(x.j, 2) == 2", "-x.j == 7",
    # Dates.
    "x.at == datetime.datetime(1999, 12, 31, 23, 59, 59, 999999)", "x.at.isoweekday() == 5", "x.at.second == 59", "x.at.microsecond == 999999",
    "x.at.date() == datetime.date(1999, 12, 31)", "x.at.year < 2000", "x.day.weekday() == 3", "x.clock.minute == 30", "x.at < datetime.datetime(2000, 1, 1)",
    # Relations.
    "any(o.n > 1 for o in x.items)", "all(o.n > 1 for o in x.items)", "x.owner.name == 'a'", "x.owner.name != 'a'", "x.owner.name is None",
    "len(x.items) == 0", "x.i in [o.n for o in x.items]",
]  # fmt: skip
NAMES: dict[str, Any] = {"datetime": datetime, "Decimal": Decimal}
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "a ",
    "e",
    "é",
    "e\u0301",
    "😀",
    "_b",
    "ab",
    "AB",
    "abc",
    "%",
    "\U0010ffff",
    "\U0010ffffz",
    "\uffff",
    "10",
    "\u212a",
    "İ",
    "ı",
    "ſ",
    "ﬁ",
]


def rows() -> list[Any]:
    named, nameless = Owner(name="a", rank=1), Owner(name=None, rank=1)
    texts = [Thing(t=text, j=7, g=0.0, sure=True, i=None) for text in TEXTS]
    numbers = [
        Thing(t="x", j=j, g=0.0, sure=j > 0, i=i, f=f, d=d, big=big)
        for j, i, f, d, big in [
            (7, 0, 0.1, Decimal("0.10"), 2**63 - 1), (-7, 2, 0.0, Decimal("0.00"), 2**53), (0, 3, -0.0, None, 2**53 + 1),
            (3, 1, 1e300, Decimal("-1.50"), -(2**63)), (1, None, None, Decimal("99999999.99"), None),
        ]
    ]  # fmt: skip
    late = datetime.datetime(1999, 12, 31, 23, 59, 59, 999999)
    dates = [Thing(t="x", j=1, g=0.0, sure=True, at=late, day=datetime.date(2024, 2, 29), clock=datetime.time(2, 30))]
    items: list[list[int | None]] = [[], [None], [1], [2], [2, 3], [2, None], [3]]
    related = [
        Thing(t="x", j=1, g=0.0, sure=True, i=3, owner=owner, items=[Item(n=n) for n in numbers])
        for owner, numbers in zip([named, nameless, None, named, named, None, None], items, strict=True)
    ]
    return [named, nameless, *texts, *numbers, *dates, *related]


@pytest.fixture(scope="module")
def session(engine: sa.Engine) -> Any:
    with stored(engine, rows()) as session:
        yield session


@pytest.mark.parametrize("text", TRAPS)
def test_a_known_trap_means_what_python_means(session: orm.Session, text: str) -> None:
    names = {**NAMES, "nothing": None}
    text = text.replace("x.n_ull", "nothing")
    query = asked(text, names)
    things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
    here = [thing.id for thing in query.filter(things)]
    function = eval(f"lambda x: {text}", dict(names))
    for thing in things:
        try:
            assert bool(function(thing)) == (thing.id in here), "memory says what Python says"
        except (TypeError, AttributeError, ZeroDivisionError, IndexError):
            continue
    try:
        statement = sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id)
        found = list(session.scalars(statement))
    except Refused:
        assert session.get_bind().dialect.name == "sqlite", "only SQLite has no decimals"
        assert "x.d" in text
        return
    except sa.exc.OperationalError as error:
        # Integers beyond 64 bits: an error of SQLite's, and not a rounded result.
        if "integer overflow" in str(error) and "x.big" in text:
            return
        raise
    assert found == here


def test_most_traps_catch_some_rows_and_not_all() -> None:
    """A query that holds for no row, or for all, would show little."""
    things = [each for each in rows() if isinstance(each, Thing)]
    useful = 0
    for text in TRAPS:
        query = asked(text.replace("x.n_ull", "nothing"), {**NAMES, "nothing": None})
        useful += 0 < len([*query.filter(things)]) < len(things)
    assert useful > len(TRAPS) * 0.75


def test_lower_case_of_each_character_is_ascii_where_python_says_so(engine: sa.Engine) -> None:
    table = sa.Table("letter", sa.MetaData(), sa.Column("code", sa.Integer), sa.Column("letter", sa.String(4)))
    letters: list[dict[str, Any]] = [
        {"code": code, "letter": chr(code)} for code in range(1, 0x1F000) if not 0xD800 <= code < 0xE000
    ]
    ascii_ = [chr(code) for code in range(1, 128)]
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE TEMPORARY TABLE letter (code INTEGER, letter VARCHAR(4))"))
        for at in range(0, len(letters), 5000):
            connection.execute(table.insert().values(letters[at : at + 5000]))
        for query in (where(lambda x: x.letter.lower() in ascii_), where(lambda x: "i" in x.letter.lower())):
            found = set(connection.scalars(sa.select(table.c.code).where(query.clause(table))))
            assert found == {each["code"] for each in query.filter(letters)}
        touching = [each["code"] for each in letters if each["code"] > 127 and set(each["letter"].lower()) & {*ascii_}]
        assert touching == [0x130, 0x212A], "the two that SQL replaces"
        connection.rollback()
