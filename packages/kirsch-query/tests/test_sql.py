"""Clauses: what is refused and how that is said, what is bound, and which index serves."""

from __future__ import annotations

import datetime
import decimal
import enum
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from generate import asked
from kirsch_query import QueryError, Refused, recall, where
from models import Colour, Thing, insert, wipe


class Tone(str, enum.Enum):
    LOW = "low"


def plain_dialect(name: str) -> Any:
    return sa.engine.make_url(f"{name}://").get_dialect()()


class Shifting(datetime.tzinfo):
    """A zone whose clocks are put forward on 31 March 2024 and back on 27 October."""

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        assert when is not None
        shown = (when.month, when.day, when.hour)
        return datetime.timedelta(hours=1 + ((3, 31, 3 - when.fold) <= shown < (10, 27, 3 - when.fold)))

    def dst(self, when: datetime.datetime | None) -> datetime.timedelta:
        return self.utcoffset(when) - datetime.timedelta(hours=1)

    def tzname(self, when: datetime.datetime | None) -> str:
        return "shifting"


TWICE = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=Shifting())
NEVER = datetime.datetime(2024, 3, 31, 2, 30, tzinfo=Shifting())

EVERYWHERE = [
    ("x.s.upper() == 'A'", "x.s.upper()", ".upper() is not exact on every database"),
    ("x.s.lower() == 'σ'", "x.s.lower() == 'σ'", "depends on the letters around it"),
    ("x.s.lower() == x.t.lower()", "x.s.lower() == x.t.lower()", "with a constant alone"),
    ("x.s.lower() == x.t", "x.s.lower() == x.t", "with a constant alone"),
    ("x.s.lower() < 'b'", "x.s.lower() < 'b'", "the order of lower values"),
    ("x.t in x.s.lower()", "x.t in x.s.lower()", "asks for text"),
    ("x.s.lower() in 'abc'", "x.s.lower() in 'abc'", "asks for text"),
    ("x.s.lower().startswith(x.t)", "x.s.lower().startswith(x.t)", "is not text"),
    ("len(x.s.lower()) == 1", "len(x.s.lower())", "len() is of text"),
    ("x.s.lower() + 'a' == 'aa'", "x.s.lower() + 'a'", "this arithmetic"),
    ("min(x.s.lower(), x.t.lower()) == 'a'", "min(x.s.lower(), x.t.lower())", "the order of lower values"),
    ("x.j < 3 and x.t.upper() == ''", "x.t.upper()", ".upper() is not exact"),
    ("round(x.f, 1) == 2", "round(x.f, 1)", "rounds the decimal digits"),
    ("str(x.j) == '1'", "str(x.j)", "numbers in its own way"),
    ("int(x.f) == 1", "int(x.f)", "int()"),
    ("isinstance(x.j, int)", "isinstance(x.j, int)", "does not know other types"),
    ("f'{x.j:3}' == '  1'", "f'{x.j:3}'", "formats in its own way"),
    ("x.f % 2.0 == 1", "x.f % 2.0", "not exact on any database"),
    ("x.f ** 2 > 3", "x.f ** 2", "exponent that is written out"),
    ("x.d > 0.5", "x.d > 0.5", "Decimal is compared with a float"),
    ("x.d / 2 > 1", "x.d / 2", "division of Decimals"),
    ("x.d * x.d * x.d * x.d > 1", "x.d * x.d * x.d", "28 digits"),
    ("x.f == x.big", "x.f == x.big", "not a float without loss"),
    ("x.s < 3", "x.s < 3", "have no order in Python"),
    ("x.colour < x.colour", "x.colour < x.colour", "the order of enum values"),
    ("x.at == today", "x.at == today", "kind date"),
    ("x.at < aware", "x.at < aware", "have no order"),
    ("x.at == aware", "x.at == aware", "kind aware"),
    ("x.s + 'a\\0b' == 'a'", "x.s + 'a\\0b'", "NUL"),
    ("(x.s or '\\ud800') == 'a'", "x.s or '\\ud800'", "surrogate"),
    ("x.s[::2] == 'a'", "x.s[::2]", "step"),
    ("x.s[x.j] == 'a'", "x.s[x.j]", "indexed by a constant"),
    ("x.owner == x.owner.boss", "x.owner == x.owner.boss", "compared by identity"),
    ("x.owner == 3", "x.owner == 3", "compared by identity"),
    ("x.j is 3", "x.j is 3", "`is` compares identity"),
    ("x.nothing == 3", "x.nothing", "has no attribute nothing"),
    ("x.f + infinity > 0", "x.f + infinity", "not a finite float"),
    ("x.colour == tone", "x.colour == tone", "equality of their own"),
    ("unknown(x.j)", "unknown(x.j)", "no source that is one expression"),
    ("x.at + delta > x.at", "x.at + delta", "this arithmetic is not translated"),
]
NEW_YEAR = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
NAMES = {
    "today": datetime.date(2024, 1, 1), "aware": NEW_YEAR,
    "infinity": float("inf"), "tone": Tone.LOW, "unknown": hash, "delta": datetime.timedelta(1),
}  # fmt: skip


@pytest.mark.parametrize(("text", "part", "reason"), EVERYWHERE)
def test_what_is_not_exact_is_refused_with_a_caret_and_a_hint(text: str, part: str, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        asked(text, NAMES).clause(Thing)
    lines = str(caught.value).splitlines()
    assert reason in lines[0]
    assert lines[1].startswith('  File "<query>", line 1')
    start = lines[3].index("^")
    assert lines[2][start : start + lines[3].count("^")] == part
    assert lines[4].strip(), "what to do instead"


def test_some_databases_refuse_when_sql_is_compiled_for_them() -> None:
    clause = where(lambda x: x.d > 1).clause(Thing)
    assert "thing.d >" in str(clause.compile(dialect=plain_dialect("postgresql+psycopg")))
    with pytest.raises(Refused, match="SQLite has no decimals") as caught:
        clause.compile(dialect=plain_dialect("sqlite"))
    assert "x.d > 1" in str(caught.value)
    for dialect in (plain_dialect("mysql+pymysql"), plain_dialect("oracle")):
        with pytest.raises(Refused, match="was not tested on"):
            where(lambda x: x.j > 1).clause(Thing).compile(dialect=dialect)
    with pytest.raises(Refused, match="was not tested on oracle"):
        where(lambda x: x.j > 1).clause(Thing, dialect=plain_dialect("oracle"))


class Odd(orm.DeclarativeBase):
    pass


class Strange(Odd):
    __tablename__ = "strange"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    single: orm.Mapped[float] = orm.mapped_column(sa.Float)
    padded: orm.Mapped[str] = orm.mapped_column(sa.CHAR(3))
    own: orm.Mapped[str] = orm.mapped_column(
        type_=type("Own", (sa.TypeDecorator,), {"impl": sa.String, "cache_ok": True})
    )
    aware: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True))
    free: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric)
    tone: orm.Mapped[Tone] = orm.mapped_column()
    calculated: orm.Mapped[int] = orm.column_property(sa.literal(1) + 1)
    json: orm.Mapped[Any] = orm.mapped_column(sa.JSON)


@pytest.mark.parametrize(
    ("text", "dialect", "reason"),
    [
        ("x.single > 1", partial(plain_dialect, "mariadb+pymysql"), "single precision"),
        ("x.padded == 'a'", None, "padded"),
        ("x.own == 'a'", None, "a type of its own"),
        ("x.aware > now", partial(plain_dialect, "sqlite"), "stores no time zone"),
        ("x.aware.year == 2024", None, "depend on the zone"),
        ("x.free + 1 > 1", None, "how many digits"),
        ("x.tone == tone", None, "text or numbers too"),
        ("x.calculated == 2", None, "calculated by SQL"),
        ("x.json + 2 == 3", None, "not translated"),
    ],
)
def test_columns_that_are_not_exact_are_refused(text: str, dialect: Any, reason: str) -> None:
    names = {"now": NEW_YEAR, "tone": Tone.LOW, "twice": TWICE, "never": NEVER}
    with pytest.raises(Refused, match=reason):
        asked(text, names).clause(Strange, dialect=dialect and dialect())


INJECTIONS = [
    "' OR 1=1 --", "'; DROP TABLE thing; --", '" OR ""="', "\\' OR 1=1 #", "%' OR '1'='1", "a%_\\", ":param_1",
    "%(param_1)s",
    "%s", "?", "{x}", "/* x */", "*/ OR 1=1 /*", "\u02bc OR 1=1", "\uff07 OR 1=1", "x'; SELECT pg_sleep(9)--", "${7*7}",
    "\n--\n", "\u2028", "'||(SELECT 1)||'",
]  # fmt: skip


@pytest.fixture
def session(engine: sa.Engine) -> Any:
    with orm.Session(engine) as session:
        wipe(session)
        yield session
        session.rollback()


def new(**values: Any) -> Thing:
    return Thing(**{"j": 0, "g": 0.0, "t": "", "sure": False, **values})


def test_no_value_is_ever_printed_into_sql(session: orm.Session) -> None:
    insert(session, [new(t=text, s=text[:3]) for text in INJECTIONS] + [new(t="plain")])
    seen: list[str] = []
    engine = session.get_bind()
    sa.event.listen(engine, "before_cursor_execute", lambda c, cursor, statement, *more: seen.append(statement))
    things = session.scalars(sa.select(Thing)).all()
    queries: dict[str, Any] = {
        "==": lambda v: where(lambda x: x.t == v),
        "!=": lambda v: where(lambda x: x.t != v),
        "<": lambda v: where(lambda x: x.t < v),
        "in": lambda v: where(lambda x: x.t in (v, v + "x")),
        "contains": lambda v: where(lambda x: v in x.t),
        "starts": lambda v: where(lambda x: x.t.startswith(v)),
        "ends": lambda v: where(lambda x: x.t.endswith(v)),
        "concat": lambda v: where(lambda x: x.s + v != x.t),
        "choice": lambda v: where(lambda x: (x.s or v) == v),
        "filter": lambda v: where(t=v),
    }
    plain: dict[str, list[str]] = {}
    for value in ["harmless", *INJECTIONS]:
        for name, make in queries.items():
            query = make(value)
            seen.clear()
            found = session.scalars(sa.select(Thing).where(query.clause(Thing)).order_by(Thing.id)).all()
            assert found == [*query.filter(things)], (name, value)
            assert seen == plain.setdefault(name, list(seen)), "the text is the same whatever the value is"
    value = "harmless"
    explained = where(lambda x: x.t == value or x.s.startswith(value)).explain(Thing).sql
    for value in INJECTIONS:
        small, by_hand = where(lambda x: x.t == value or x.s.startswith(value)), sa.text("thing.t <> :other")
        statement = sa.select(Thing).where(small.clause(Thing), by_hand.bindparams(other=value))
        assert session.scalars(statement.order_by(Thing.id)).all() == [x for x in small.filter(things) if x.t != value]
        seen.clear()
        assert set(recall(session, Thing, small, order=lambda x: (x.s == value, x.id), limit=30)) == {
            *small.filter(things)
        }
        assert len(set(seen)) == 1
        assert seen[:1] == plain.setdefault("recall", seen[:1])
        assert small.explain(Thing).sql == explained
    hostile = where('lambda x: x.t == "\'; --" or "\'; --" in x.t')
    session.scalars(sa.select(Thing).where(hostile.clause(Thing))).all()
    assert "; --" not in seen[-1]


@pytest.mark.parametrize(
    "query",
    [where(lambda x: x.s == "abc"), where(lambda x: x.s in ("abc", "abd")), where(lambda x: x.s.startswith("abc"))],
)
def test_an_index_serves_text_on_sqlite(query: Any) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Thing.metadata.create_all(engine)
    plan = query.explain(Thing, engine=engine).plan
    assert any("SEARCH thing USING INDEX ix_thing_s" in line for line in plan), plan
    engine.dispose()


def test_an_index_serves_equal_text_and_primary_keys(session: orm.Session) -> None:
    insert(session, [new(s=f"text {number}") for number in range(2000)])
    session.execute(
        sa.text(
            {"postgresql": "ANALYZE thing", "mariadb": "ANALYZE TABLE thing"}.get(
                session.get_bind().dialect.name, "ANALYZE"
            )
        )
    )
    session.commit()
    found = where(lambda x: x.s == "text 7").explain(Thing, engine=session.get_bind())
    assert found.indexes == ["ix_thing_s"]
    assert "indexes: ix_thing_s" in str(found)
    middle = session.scalars(sa.select(Thing.id)).all()[1000]
    assert len(where(lambda x: x.id == middle).explain(Thing, engine=session.get_bind()).indexes) == 1
    nothing = where(lambda x: x.j % 7 == 3).explain(Thing, engine=session.get_bind())
    assert nothing.indexes == []
    assert "none serves it" in str(nothing)


def test_explain_shows_sql_values_additions_and_refusals() -> None:
    limit = 3
    text = str(where(lambda x: not x.i < limit and x.t.startswith("a")).explain(Thing))
    assert text.count("FROM thing") == 3
    assert "param_1 = 3" in text
    assert "IS NOT TRUE: what is unknown" in text
    assert "a range by code points" in text
    text = str(where(lambda x: x.d > 1).explain(Thing))
    assert text.count("FROM thing") == 2
    assert "refused on sqlite:" in text
    assert "Store an integer, of cents for example." in text


def test_clauses_combine_with_sqlalchemy_and_with_each_other(session: orm.Session) -> None:
    insert(session, [new(j=1, i=None), new(j=2, i=5), new(j=3, i=1, colour=Colour.RED)])
    small = where(lambda x: x.i < 3)

    def found(clause: Any) -> list[int]:
        return list(session.scalars(sa.select(Thing.j).where(clause).order_by(Thing.j)))

    assert found(small.clause(Thing)) == [3]
    assert found(~small.clause(Thing)) == found(sa.not_(small.clause(Thing))) == found((~small).clause(Thing)) == [1, 2]
    assert found(small.clause(Thing) | sa.text("thing.j = 2")) == [2, 3]
    assert found(sa.and_(~small.clause(Thing), Thing.j > 1)) == [2]
    table = Thing.__table__
    assert found((small & where(lambda x: x.j > 2)).clause(table)) == [3]
    assert (
        session.scalar(
            sa.select(sa.func.count()).select_from(table).where(where(lambda x: x.colour == Colour.RED).clause(table))
        )
        == 1
    )
    alias = orm.aliased(Thing)
    pairs = where(lambda x, y: x.j + 1 == y.j).clause(Thing, alias)
    assert session.execute(sa.select(Thing.j, alias.j).where(pairs).order_by(Thing.j)).all() == [(1, 2), (2, 3)]
    session.execute(sa.delete(Thing).where(small.clause(Thing)))
    assert found(sa.true()) == [1, 2]
    with pytest.raises(QueryError, match="judges 1 rows together"):
        small.clause(Thing, Thing)


if hasattr(sa, "tstring"):

    def test_template_strings_combine_with_clauses() -> None:
        if not hasattr(__import__("string"), "templatelib"):
            pytest.skip("template strings are in Python from 3.14 on")
        made = eval('sa.tstring(t"thing.j = {2}")', {"sa": sa})
        assert "param" in str(sa.and_(where(lambda x: x.i < 3).clause(Thing), made))
