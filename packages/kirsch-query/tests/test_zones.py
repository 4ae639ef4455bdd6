"""The parts of times with a zone, on the clocks of the zone that a query names, are Python's."""

from __future__ import annotations

import datetime
import random
import zoneinfo
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from generate import asked
from kirsch_query import Refused

UTC = datetime.timezone.utc
ZONES: dict[str, Any] = {
    "utc": UTC,
    "east": datetime.timezone(datetime.timedelta(hours=5, minutes=45)),
    "west": datetime.timezone(-datetime.timedelta(hours=11)),
    "berlin": zoneinfo.ZoneInfo("Europe/Berlin"),
    "new_york": zoneinfo.ZoneInfo("America/New_York"),
    "lord_howe": zoneinfo.ZoneInfo("Australia/Lord_Howe"),
}
PARTS = [
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "microsecond",
    "weekday()",
    "isoweekday()",
    "date().day",
    "date()",
]


def test_parts_of_times_in_a_zone_agree_with_python(engine: sa.Engine) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("the database stores no time zone")
    chance = random.Random(3)
    table = sa.Table(
        "zoned", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime(True))
    )
    start = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    moments = [
        start + datetime.timedelta(seconds=chance.randrange(-(2**31), 2**32), microseconds=chance.choice([0, 1]))
        for _ in range(200)
    ]
    # Around the hours at which Berlin's clocks change in 2024.
    moments += [
        datetime.datetime(2024, month, day, 1, tzinfo=UTC) + datetime.timedelta(microseconds=each)
        for month, day in ((3, 31), (10, 27))
        for each in (-1, 0, 1)
    ]
    rows: list[dict[str, Any]] = [{"id": at, "at": each} for at, each in enumerate(moments)] + [
        {"id": len(moments), "at": None}
    ]
    things = [SimpleNamespace(**each) for each in rows]
    with engine.connect() as connection:
        table.create(connection)
        connection.execute(table.insert(), rows)
        for zone in ZONES:
            for part in PARTS:
                value = "datetime.date(2024, 3, 31)" if part == "date()" else chance.choice([0, 1, 3, 5, 12, 30, 2024])
                text = f"x.at.astimezone({zone}).{part} {chance.choice(['<', '==', '>=', '!='])} {value}"
                query = asked(text, {**ZONES, "datetime": datetime})
                found = list(connection.scalars(sa.select(table.c.id).where(query.clause(table)).order_by(table.c.id)))
                assert found == [each.id for each in query.filter(things)], text
        connection.rollback()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x.at.hour == 3", "depend on the zone of who reads it"),
        ("x.at.astimezone(utc) == moment", "is not compared"),
        ("x.at.astimezone(utc) < moment", "have no order|order of local"),
        ("x.at.astimezone(nothing).hour == 3", "the zone is a datetime.timezone"),
    ],
)
def test_what_depends_on_an_unknown_zone_is_refused(text: str, why: str) -> None:
    table = sa.Table("zoned", sa.MetaData(), sa.Column("at", sa.DateTime(True)))
    names = {"utc": UTC, "moment": datetime.datetime(2024, 1, 1, tzinfo=UTC), "nothing": None}
    with pytest.raises(Refused, match=why):
        asked(text, names).clause(table)
