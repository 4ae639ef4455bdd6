"""Values that a client may send: none makes a query an error, and each gives the rows that Python gives.

``QUERY_HOSTILE`` says how many random queries there are for each database (600), ``QUERY_SEED`` which (0).
"""

from __future__ import annotations

import datetime
import decimal
import os
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import generate
from generate import asked
from kirsch_query import Refused
from models import Colour, Item, Owner, Thing, stored

CASES = int(os.environ.get("QUERY_HOSTILE", "600"))
SEED = int(os.environ.get("QUERY_SEED", "0"))
D = decimal.Decimal

PARTS = ["\0", "\ud800", "\udfff", "a", "A", "é", "É", "ß", "ẞ", "Ω", "\u2126", "\u212a", "İ", "i\u0307", "ı", "b", " ", "%", "\\", "'", "\1", "\ud7ff",
         "\ue000", "\U0010ffff", "Å", "å", "\u212b", "ж", "Ж", "\u1e9e", "x" * 5000, "\n", "\x7f", "\u2028", "Ǆ", "ǅ", "ǆ"]  # fmt: skip
INTEGERS = [
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    10**30,
    -(10**30),
    10**54,
    10**400,
    -(10**4200),
    True,
]
FLOATS = [
    float("nan"),
    float("inf"),
    float("-inf"),
    0.0,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    -1e308,
    2.0**63,
    1e30,
    0.5,
    -2.5,
]
DECIMALS = [D("NaN"), D("sNaN"), D("Infinity"), D("-Infinity"), D("1E+999999"), D("-1E+999999"), D("1E-999999"), D("0.105"), D("99999999.995"),
            D("123456789012345678901234567890.123456789012345678901234567890"), D("-0.00"), D("1E+8"), D("99999999.99"), D("0.10"), D("7")]  # fmt: skip
DAYS = [
    datetime.date.min,
    datetime.date.max,
    datetime.date(999, 12, 31),
    datetime.date(99, 1, 1),
    datetime.date(2024, 2, 29),
    datetime.date(1582, 10, 10),
]
MOMENTS = [
    datetime.datetime.min,
    datetime.datetime.max,
    datetime.datetime(70, 1, 1, 0, 0, 0, 1),
    datetime.datetime(2024, 3, 31, 2, 30, fold=1),
    datetime.datetime(2000, 1, 1),
]
CLOCKS = [datetime.time.min, datetime.time.max, datetime.time(2, 30, fold=1), datetime.time(0, 0, 0, 1)]
ORDERS = ["==", "!=", "<", "<=", ">", ">="]
ANY = ["{x} {order} v", "{x} in (v, w)", "{x} not in (w, v)", "{x} in many", "{x} not in many", "({x}, x.j) == (v, 1)", "({x}, x.j) < (v, 1)",
       "any({x} == e for e in many)", "not {x} {order} v", "({x} == v) == False", "v {order} {x}"]  # fmt: skip

# For each kind of value: the values, the expressions of that kind, and the forms of queries with them.
KINDS: dict[str, tuple[Callable[[random.Random], Any], list[str], list[str]]] = {
    "text": (
        lambda c: "".join(c.choice(PARTS) for _ in range(c.choice([1, 1, 2, 3]))),
        ["x.s", "x.t", "x.owner.name", "x.t[:2]"],
        [*ANY, "v in {x}", "v not in {x}", "{x} in v", "{x} not in v", "{x}.startswith(v)", "{x}.endswith(v)", "{x}.startswith((v, w))", "v.startswith({x})",
         "v.endswith({x})", "any(o.word == v for o in x.items)", "{x}.startswith(v) == False", "({x} or 'a') == v", "({x} + 'a') {order} v"],
    ),
    "lower": (
        lambda c: "".join(c.choice(PARTS) for _ in range(c.choice([1, 1, 2, 3]))),
        ["x.s", "x.t", "x.owner.name"],
        ["v.lower() in {x}.lower()", "v in {x}.lower()", "v not in {x}.lower()", "{x}.lower() == v.lower()", "{x}.lower() != v", "{x}.lower() in (v, w)",
         "{x}.lower() not in (v.lower(), 'a')", "{x}.lower().startswith(v.lower())", "{x}.lower().endswith(v.lower())", "{x}.lower().startswith((v, w.lower()))"],
    ),
    "integer": (lambda c: c.choice(INTEGERS), ["x.i", "x.j", "x.big", "x.f", "x.flag", "len(x.s)", "x.at.year", "x.i % 7", "abs(x.j)"], ANY),
    "product": (lambda c: c.choice(INTEGERS), ["x.j * x.i", "x.j - x.i"], ANY),
    "float": (lambda c: c.choice(FLOATS), ["x.i", "x.big", "x.f", "x.g", "x.sure", "-x.f", "len(x.t)"], ANY),
    "decimal": (lambda c: c.choice(DECIMALS), ["x.i", "x.big", "x.d", "x.sure", "x.d + x.d"], ANY),
    "whole": (lambda c: c.choice(INTEGERS), ["x.d", "x.d * 2"], ANY),
    "day": (lambda c: c.choice(DAYS), ["x.day", "x.at.date()"], ANY),
    "moment": (lambda c: c.choice(MOMENTS), ["x.at"], ANY),
    "clock": (lambda c: c.choice(CLOCKS), ["x.clock"], ANY),
    "place": (lambda c: c.choice([each for each in INTEGERS if each is not True]), ["x.s", "x.t"], ["{x}[:v] == 'a'", "{x}[v:] == ''", "{x}[v] == 'a'", "{x}[v:w] != 'a'"]),
    "bytes": (lambda c: c.choice([b"", b"\0", b"\xff" * 9, b"a" * 70000, b"'"]), ["x.data"], ["{x} == v", "{x} in (v, w)", "{x} != v"]),
    "uuid": (lambda c: uuid.UUID(int=c.choice([0, 2**128 - 1])), ["x.uid"], ["{x} == v", "{x} not in (v, w)"]),
    "enum": (lambda c: c.choice([*Colour]), ["x.colour"], ["{x} == v", "{x} not in (v, w)"]),
}  # fmt: skip


def rows() -> list[Any]:
    """Random rows, and rows that differ from the hostile values by little."""
    chance = random.Random(SEED)
    found = generate.rows(chance, 25)
    texts = [each for each in PARTS if len(each) < 9 and each.isprintable()] + [
        "aé",
        "éa",
        "aÉb",
        "ÅÅ",
        "a\ud7ff",
        "a\ue000",
        "a\1",
        "i̇",
        "xİ",
        "ΑΣ",
    ]
    owner = next(each for each in found if isinstance(each, Owner))
    days = [*DAYS, *(None for _ in texts)]
    moments = [*MOMENTS, *(None for _ in texts)]
    for at, text in enumerate(texts):
        found.append(Thing(
            id=1000 + at, i=at - 5, j=at, big=[2**63 - 1, -(2**63), 2**53 + 1, 2**53][at % 4], f=[1e308, -1e308, 2.0**53, 5e-324][at % 4],
            g=0.5, d=[D("99999999.99"), D("0.11"), D("0.10"), D("-0.01")][at % 4], s=text, t=text, sure=True, day=days[at], at=moments[at],
            clock=CLOCKS[at % 4], owner=owner, items=[Item(id=1000 + at, n=1, word=text)],
        ))  # fmt: skip
    return found


def refused_by_type(kind: str, text: str, database: str) -> bool:
    """Return whether a query is refused for any values."""
    exact = {"decimal": ("x.d",), "whole": ("x.d",)}
    return database == "sqlite" and any(each in text for each in exact.get(kind, ()))


def test_no_value_makes_a_query_an_error(engine: sa.Engine, say: Callable[[str], None]) -> None:
    name = "mariadb" if engine.dialect.name == "mysql" else engine.dialect.name
    chance = random.Random(f"{SEED} {name}")
    wrong, calculated = [], 0
    with stored(engine, rows()) as session:
        things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
        for _ in range(CASES):
            kind = chance.choice(list(KINDS))
            make, expressions, forms = KINDS[kind]
            x = chance.choice(expressions)
            text = chance.choice(forms).format(x=f"({x})" if " " in x else x, order=chance.choice(ORDERS))
            v, w = make(chance), make(chance)
            values = {"v": v, "w": w, "many": [make(chance) for _ in range(chance.choice([1, 2, 5]))]}
            query = asked(text, values)
            try:
                here = [thing.id for thing in query.filter(things)]
                there = list(session.scalars(sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id)))
            except Refused as refused:
                if refused_by_type(kind, text, name):
                    continue
                if "('a')" in text or "or 'a'" in text or "sigma" in refused.problem:
                    calculated += 1
                    continue
                wrong.append(f"{text} with {values!r:.300}: {refused.problem}")
            except Exception as error:
                session.rollback()
                if "overflow" in str(error) and name == "sqlite":  # x.i * x.j: as documented, whatever v is
                    continue
                wrong.append(f"{text} with {values!r:.300}: {type(error).__name__}: {str(error)[:300]}")
            else:
                if here != there:
                    differ = [
                        (thing.id, thing.i, thing.f, thing.d, thing.s, thing.t, thing.day, thing.at)
                        for thing in things
                        if thing.id in {*here} ^ {*there}
                    ]
                    wrong.append(f"{text} with {values!r:.300}: Python {here}, SQL {there}, {differ[:2]}")
    say(f"hostile values, {name}: QUERY_SEED={SEED} QUERY_HOSTILE={CASES}, {len(wrong)} errors or differences")
    assert not wrong, f"{len(wrong)} of {CASES}, the first of them:\n" + "\n".join(wrong[:12])
    assert calculated < CASES * 0.1


@pytest.mark.parametrize("value", ["é\0", "É", "\0", "\ud800"])
def test_a_search_for_any_text_needs_no_care(engine: sa.Engine, value: str) -> None:
    things = [Thing(j=1, g=0.0, sure=True, t=text) for text in ("Élan", "élan", "elan", "")]
    with stored(engine, things) as session:
        query = asked("q.lower() in x.t.lower()", {"q": value})
        found = session.scalars(sa.select(Thing.t).where(query.clause(Thing)).order_by(Thing.id)).all()
        assert found == [each for each in ("Élan", "élan", "elan", "") if value.lower() in each.lower()]
        query = asked("x.t.startswith(q)", {"q": value})
        found = session.scalars(sa.select(Thing.t).where(query.clause(Thing)).order_by(Thing.id)).all()
        assert found == [each for each in ("Élan", "élan", "elan", "") if each.startswith(value)]


class Shifting(datetime.tzinfo):
    """A zone whose clocks show 2:30 twice on 27 October."""

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=2 - when.fold if when else 1)

    def dst(self, when: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1 - when.fold if when else 0)

    def tzname(self, when: datetime.datetime | None) -> str:
        return "shifting"


def test_a_time_that_clocks_show_twice_equals_none_and_has_an_order(engine: sa.Engine) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("PostgreSQL alone stores time zones")
    table = sa.Table("zoned", sa.MetaData(), sa.Column("at", sa.DateTime(timezone=True)))
    twice = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=Shifting())
    utc = twice.astimezone(datetime.timezone.utc)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        connection.exec_driver_sql("CREATE TEMPORARY TABLE zoned (at TIMESTAMP WITH TIME ZONE)")
        moments = [utc, utc + datetime.timedelta(1), utc - datetime.timedelta(1), None]
        connection.execute(table.insert(), [{"at": each} for each in moments])
        for text in ("x.at == v", "x.at != v", "x.at < v", "x.at <= v", "x.at in [v]", "x.at not in [v]"):
            query = asked(text, {"v": twice})
            rows = connection.execute(sa.select(table)).mappings().all()
            found = connection.execute(sa.select(table).where(query.clause(table))).mappings().all()
            assert found == [*query.filter(rows)], text
        connection.rollback()
