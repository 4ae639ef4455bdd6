"""Classes that are mapped in other ways than the plainest: SQL, memory and recall() mean the same of them."""

from __future__ import annotations

import enum
import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.hybrid import hybrid_property

from kirsch_query import Refused, count, exists, recall, total, where

if TYPE_CHECKING:
    from collections.abc import Iterator


class Base(orm.DeclarativeBase):
    pass


class Firm(Base):
    __tablename__ = "firm"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    staff: orm.Mapped[list[Person]] = orm.relationship(back_populates="firm")
    managers: orm.Mapped[list[Manager]] = orm.relationship(viewonly=True)
    engineers: orm.Mapped[list[Engineer]] = orm.relationship(viewonly=True)


class Person(Base):
    """One table for it and for its first two subclasses, a second one for the third."""

    __tablename__ = "person"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(20))
    name: orm.Mapped[str] = orm.mapped_column("person_name", sa.String(20))
    firm_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("firm.id"))
    boss_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("person.id"))
    firm: orm.Mapped[Firm | None] = orm.relationship(back_populates="staff")
    boss: orm.Mapped[Person | None] = orm.relationship(remote_side="Person.id", back_populates="team")
    team: orm.Mapped[list[Person]] = orm.relationship(back_populates="boss")
    manager: orm.Mapped[Manager | None] = orm.relationship(
        remote_side="Person.id", foreign_keys="Person.boss_id", viewonly=True
    )
    tags: orm.Mapped[list[Tag]] = orm.relationship(secondary="person_tag", back_populates="persons")
    title = orm.synonym("name")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}  # noqa: RUF012

    @hybrid_property
    def short(self) -> bool:
        return len(self.name) < 4

    @hybrid_property
    def first(self) -> str:
        return self.name[:1]

    @first.inplace.expression
    @classmethod
    def _first(cls) -> sa.ColumnElement[str]:
        return sa.func.lower(cls.name)  # means something else, as it may


class Manager(Person):
    budget: orm.Mapped[int | None] = orm.mapped_column()
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Chief(Manager):
    __mapper_args__ = {"polymorphic_identity": "chief"}  # noqa: RUF012


class Engineer(Person):
    __tablename__ = "engineer"
    id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("person.id"), primary_key=True)
    tool: orm.Mapped[str | None] = orm.mapped_column(sa.String(20))
    __mapper_args__ = {"polymorphic_identity": "engineer"}  # noqa: RUF012


class Tag(Base):
    __tablename__ = "tag"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    word: orm.Mapped[str] = orm.mapped_column(sa.String(20))
    persons: orm.Mapped[list[Person]] = orm.relationship(secondary="person_tag", back_populates="tags")


sa.Table(
    "person_tag",
    Base.metadata,
    sa.Column("person_id", sa.ForeignKey("person.id"), primary_key=True),
    sa.Column("tag_id", sa.ForeignKey("tag.id"), primary_key=True),
)


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2
    HUGE = 0


class Shelf(Base):
    """A key of several parts, some of which the databases sort in ways of their own."""

    __tablename__ = "shelf"
    key: orm.Mapped[uuid.UUID] = orm.mapped_column(primary_key=True)
    size: orm.Mapped[Size] = orm.mapped_column(primary_key=True)
    label: orm.Mapped[str] = orm.mapped_column(
        sa.String(20).with_variant(sa.String(20, collation="utf8mb4_bin"), "mysql", "mariadb"), primary_key=True
    )
    n: orm.Mapped[int] = orm.mapped_column()


@pytest.fixture(scope="module")
def made(engine: sa.Engine) -> Iterator[sa.Engine]:
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)


@pytest.fixture
def session(made: sa.Engine) -> Iterator[orm.Session]:
    with orm.Session(made) as session:
        one, two = Firm(id=1), Firm(id=2)
        tags = [Tag(id=at + 1, word=word) for at, word in enumerate(["red", "Red", "blue"])]
        chief = Chief(id=1, name="Ada", firm=one, budget=9, tags=tags)
        cyd = Engineer(id=3, name="Cyd", firm=one, tool="saw", boss=chief, tags=tags[1:])
        session.add_all(
            [
                one, two, *tags, chief,
                Manager(id=2, name="Bob", firm=one, budget=None, boss=chief, tags=tags[:1]),
                cyd,
                Engineer(id=4, name="Dora", firm=two, tool=None),
                Person(id=5, name="Eve", firm=two),
                Person(id=6, name="ada", boss=cyd),
            ]
        )  # fmt: skip
        session.commit()
        yield session
        session.rollback()
        for table in reversed(Base.metadata.sorted_tables):
            if table.name == "person":
                session.execute(sa.update(table).values(boss_id=None))
            session.execute(sa.delete(table))
        session.commit()


QUERIES: list[tuple[Any, str]] = [
    (Person, "x.name < 'C'"),
    (Person, "x.title == 'Ada'"),
    (Person, "x.short"),
    (Person, "x.first == 'A'"),
    (Manager, "x.budget is None or x.budget > 3"),
    (Manager, "not x.budget > 3"),
    (Chief, "x.name != ''"),
    (Engineer, "x.tool == 'saw' and x.name < 'D'"),
    (Engineer, "x.tool is None"),
    (Engineer, "x.boss.name == 'Ada'"),
    (Engineer, "any(t.word == 'blue' for t in x.tags)"),
    (Person, "x.boss is None"),
    (Person, "x.boss.boss.name == 'Ada'"),
    (Person, "x.boss.boss is None"),
    (Person, "any(y.name == 'Cyd' for y in x.team)"),
    (Person, "any(y.name > z.word for y in x.team for z in y.tags)"),
    (Person, "any(t.word == 'red' for t in x.tags)"),
    (Person, "all(t.word != 'blue' for t in x.tags)"),
    (Person, "len(x.tags) == 2"),
    (Person, "any(any(p.name == 'Cyd' for p in t.persons) for t in x.tags)"),
    (Person, "any(p.id == 2 for t in x.tags for p in t.persons)"),
    (Person, "all(p.id < 3 for t in x.tags for p in t.persons)"),
    (Person, "all(z.id > 0 for y in x.team for z in y.boss.boss.team)"),
    (Person, "any(z.id > 0 for y in x.team for z in y.boss.boss.team)"),
    (Person, "x.id in [z.id for y in x.firm.staff for z in y.boss.team]"),
    (Person, "all([y.id > 2 for y in x.boss.team])"),
    (Person, "len(x.boss.boss.team) == 2"),
    (Firm, "len(x.managers) == 0"),
    (Firm, "any(m.budget is None for m in x.managers)"),
    (Firm, "all(m.budget > 3 for m in x.managers)"),
    (Firm, "x.managers"),
    (Firm, "any(e.tool == 'saw' for e in x.engineers)"),
    (Firm, "len(x.engineers) == 1"),
    (Firm, "any(e.boss.firm_id == x.id for e in x.engineers)"),
    (Person, "x.manager is None"),
    (Person, "x.manager.budget == 9"),
]


def keys(found: Any) -> list[Any]:
    return sorted(sa.inspect(each).identity for each in found)


@pytest.mark.parametrize(("model", "text"), QUERIES)
def test_memory_sql_and_recall_select_the_same(session: orm.Session, model: Any, text: str) -> None:
    query = where(f"lambda x: {text}")
    objects = session.scalars(sa.select(model)).all()
    here = keys(query.filter(objects))
    by_hand = eval(f"lambda x: {text}")
    for each in objects:
        try:
            assert bool(by_hand(each)) == (sa.inspect(each).identity in here)
        except (AttributeError, TypeError):
            continue
    assert keys(session.scalars(sa.select(model).where(query.clause(model)))) == here
    assert keys(session.scalars(query.select(model))) == here
    alias = orm.aliased(model)
    assert keys(session.scalars(sa.select(alias).where(query.clause(alias)))) == here
    assert keys(recall(session, model, query)) == here
    assert count(session, model, query) == len(here)
    assert exists(session, model, query) == bool(here)
    nothing = [each for each in objects if each not in query.filter(objects)]
    assert keys(recall(session, model, ~query)) == keys(nothing)
    if model is not Firm:
        ids = sum(each.id for each in query.filter(objects))
        assert total(session, model, query, lambda x: x.id) == ids


def test_unsaved_objects_of_subclasses_are_found_by_their_base(session: orm.Session) -> None:
    new = Engineer(id=9, name="Abe", firm_id=None, boss_id=None, tool="file")
    session.add(new)
    session.get_one(Manager, 2).budget = 5
    names = [each.name for each in recall(session, Person, lambda x: x.name < "C", order=lambda x: x.name)]
    assert names == ["Abe", "Ada", "Bob"]
    assert count(session, Manager, lambda x: x.budget > 3) == 2
    assert count(session, Engineer, lambda x: x.tool is not None) == 2


def test_keys_of_several_parts_order_alike_in_sql_and_in_memory(session: orm.Session) -> None:
    ids = [uuid.UUID(int=each) for each in (1, 2**127, 2**64 + 7, 2**100, 0x0000_0001_0000_1000_8000_0000_0000_0000)]
    shelves = [
        Shelf(key=key, size=size, label=label, n=0)
        for key, size, label in itertools.product(ids, Size, ["a", "A", "b"])
    ]
    session.add_all(shelves)
    session.commit()
    expected = sorted(shelves, key=lambda each: (each.key, each.size.name, each.label))
    every = where(lambda x: x.n == 0)
    for unsaved in (False, True):
        if unsaved:
            shelves[7].n = 1
            expected.remove(shelves[7])
            session.add(Shelf(key=ids[1], size=Size.HUGE, label="c", n=0))
            expected = sorted([*expected, *session.new], key=lambda each: (each.key, each.size.name, each.label))
        assert recall(session, Shelf, every) == expected
        pages = [recall(session, Shelf, every, limit=7, offset=at) for at in range(0, len(expected) + 7, 7)]
        assert [each for page in pages for each in page] == expected


def test_columns_of_an_outer_join_may_be_none(session: orm.Session) -> None:
    firm, person = Firm.__table__, Person.__table__
    join = sa.outerjoin(person, firm, person.c.firm_id == firm.c.id)
    rows = sa.select(person.c.id, firm.c.id.label("firm"), sa.func.max(person.c.id).over().label("last")).select_from(
        join
    )
    target = rows.subquery()
    found = session.execute(rows).all()
    assert {each.firm for each in found} == {1, 2, None}
    for text in (
        "x.firm is None",
        "x.firm is not None",
        "x.firm != 1",
        "not x.firm == 1",
        "x.firm in (None, 1)",
        "x.firm or x.id > 5",
    ):
        query = where(f"lambda x: {text}")
        there = session.scalars(sa.select(target.c.id).where(query.clause(target)))
        assert sorted(there) == sorted(each.id for each in query.filter(found)), text
    with pytest.raises(Refused, match="calculated by SQL"):
        where(lambda x: x.last == 6).clause(target)


class Odd(orm.DeclarativeBase):
    pass


class Parcel(Odd):
    __tablename__ = "parcel"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    ignoring: orm.Mapped[str] = orm.mapped_column(sa.Text().with_variant(postgresql.CITEXT(), "postgresql"))
    other: orm.Mapped[str] = orm.mapped_column(sa.String(9).with_variant(mysql.DATETIME(), "mysql"))
    single: orm.Mapped[float] = orm.mapped_column(sa.Double().with_variant(sa.Float(), "mariadb"))
    fine: orm.Mapped[int] = orm.mapped_column(sa.BigInteger().with_variant(sa.Integer(), "sqlite"))
    odd_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("false.id"))
    odd: orm.Mapped[False_ | None] = orm.relationship()


class False_(Odd):
    __tablename__ = "false"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    def __bool__(self) -> bool:
        return False


DIALECTS = {
    name: sa.make_url(f"{name}://").get_dialect()() for name in ("sqlite", "postgresql+psycopg", "mariadb+pymysql")
}


@pytest.mark.parametrize(
    ("text", "dialects", "reason"),
    [
        ("x.ignoring == 'a'", "postgresql", "compares in its own way"),
        ("x.other == 'a'", "mariadb", "stores a datetime"),
        ("x.single == 0.1", "mariadb", "single precision"),
        ("x.fine == 1", "", ""),
        ("x.odd", "sqlite postgresql mariadb", "decides itself what counts as true"),
    ],
)
def test_a_variant_of_a_type_is_refused_on_its_database(text: str, dialects: str, reason: str) -> None:
    query = where(f"lambda x: {text}")
    for name, dialect in DIALECTS.items():
        if name.partition("+")[0] in dialects.split():
            with pytest.raises(Refused, match=reason):
                query.clause(Parcel, dialect=dialect)
        else:
            query.clause(Parcel, dialect=dialect)


def test_a_collation_that_takes_different_text_for_equal_changes_nothing(servers: Any) -> None:
    url = servers.url("postgresql")
    if url is None:
        pytest.skip(servers.missing["postgresql"])
    engine = sa.create_engine(url)
    table = sa.Table("collated", sa.MetaData(), sa.Column("word", sa.String(9, collation="ignoring_case")))
    words = ["a", "A", "b"]
    with engine.connect() as connection:
        connection.execute(
            sa.text("CREATE COLLATION ignoring_case (provider=icu, locale='und-u-ks-level2', deterministic=false)")
        )
        table.create(connection)
        connection.execute(table.insert(), [{"word": word} for word in words])
        for text in (
            "x.word == 'a'",
            "x.word != 'a'",
            "x.word in ('a',)",
            "x.word in ('A', 'b')",
            "x.word < 'a'",
            "x.word == x.word + ''",
        ):
            query = where(f"lambda x: {text}")
            found = sorted(connection.scalars(sa.select(table.c.word).where(query.clause(table))))
            assert found == sorted(each["word"] for each in query.filter([{"word": word} for word in words])), text
        connection.rollback()
    engine.dispose()
