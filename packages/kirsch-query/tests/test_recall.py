"""recall, count, total, exists: the session's unsaved objects and the database as one."""

from __future__ import annotations

import asyncio
import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine

from generate import TIMES
from kirsch_query import QueryError, Refused, count, desc, exists, recall, total, where
from models import Base, Item, Owner, Thing, stored, wipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kirsch_query import Recalled


def thing(**values: Any) -> Thing:
    """A new object with every column set, so that a flush changes nothing but its key."""
    given = {"j": 0, "g": 0.0, "t": "", "sure": False, "i": None, "s": None, "d": None, "owner_id": None, **values}
    return Thing(**given)


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[orm.Session]:
    with orm.Session(engine) as session:
        wipe(session)
        yield session
        session.rollback()


def test_an_edit_is_seen_in_both_directions(session: orm.Session) -> None:
    first, second = thing(j=1), thing(j=5)
    session.add_all([first, second])
    session.commit()
    small = where(lambda x: x.j < 3)
    assert recall(session, Thing, small) == [first]
    first.j, second.j = 9, 2
    assert recall(session, Thing, small) == [second]
    assert session.scalars(sa.select(Thing).where(small.clause(Thing)).execution_options(autoflush=False)).all() == [
        first
    ]
    session.delete(second)
    assert recall(session, Thing, small) == []
    assert not exists(session, Thing, small)


def test_a_join_pairs_saved_and_unsaved_objects(session: orm.Session) -> None:
    ann, bob = Owner(name="Ann", rank=1, boss_id=None), Owner(name="Bob", rank=2, boss_id=None)
    session.add_all([ann, bob])
    session.flush()
    saved = [thing(j=1, owner_id=ann.id, t="x"), thing(j=2, owner_id=bob.id, t="y")]
    session.add_all(saved)
    session.commit()
    name = "Ann"
    owned = where(lambda x, o: x.owner_id == o.id and o.name == name)
    assert recall(session, (Thing, Owner), owned, order=lambda x, o: x.j) == [(saved[0], ann)]
    new = thing(j=3, owner_id=ann.id, t="z")
    session.add(new)
    assert recall(session, (Thing, Owner), owned, order=lambda x, o: desc(x.j)) == [(new, ann), (saved[0], ann)]
    bob.name = "Ann"
    assert recall(session, (Thing, Owner), owned, order=lambda x, o: x.j) == [
        (saved[0], ann),
        (saved[1], bob),
        (new, ann),
    ]
    assert recall(session, (Thing, Owner), owned, order=lambda x, o: x.j, limit=1, offset=1) == [(saved[1], bob)]
    assert count(session, (Thing, Owner), owned) == 3
    ann.name = None
    assert recall(session, (Thing, Owner), owned) == [(saved[1], bob)]
    assert total(session, (Thing, Owner), owned, lambda x, o: x.j * o.rank) == 4
    session.delete(bob)
    with pytest.raises(Refused, match="Owner was deleted, and a flush may change"):
        count(session, (Thing, Owner), owned)
    assert count(session, (Thing, Owner), lambda x, o: x.j > o.rank) == 2
    session.flush()
    assert count(session, (Thing, Owner), owned) == 0


def test_a_model_is_joined_with_itself(session: orm.Session) -> None:
    things = [thing(j=1), thing(j=2), thing(j=3)]
    session.add_all(things)
    session.commit()
    following = where(lambda x, y: x.j + 1 == y.j)
    assert recall(session, (Thing, Thing), following) == [(things[0], things[1]), (things[1], things[2])]
    things[0].j = 3
    assert recall(session, (Thing, Thing), following) == [(things[1], things[0]), (things[1], things[2])]


def test_related_objects_that_are_unsaved_refuse_until_a_flush(session: orm.Session) -> None:
    owner = Owner(name="Ann", rank=1, boss_id=None)
    one = thing(j=1, owner=owner)
    session.add_all([owner, one])
    session.commit()
    by_ann = where(lambda x: x.owner.name == "Ann")
    assert recall(session, Thing, by_ann) == [one]
    owner.name = "Bob"
    with pytest.raises(Refused, match="an unsaved Owner"):
        recall(session, Thing, by_ann)
    session.flush()
    assert recall(session, Thing, by_ann) == []
    one.items.append(Item(n=1, word=None))
    with pytest.raises(Refused, match="an unsaved Item"):
        count(session, Thing, where(lambda x: any(o.n == 1 for o in x.items)))
    session.flush()
    assert count(session, Thing, where(lambda x: any(o.n == 1 for o in x.items))) == 1


def test_what_only_a_flush_can_know_is_refused(session: orm.Session) -> None:
    owner = Owner(name="Ann", rank=1, boss_id=None)
    session.add(owner)
    session.commit()
    new = thing(j=1)
    session.add(new)
    with pytest.raises(Refused, match="gets its id when it is flushed"):
        recall(session, Thing, where(lambda x: x.id > 0))
    new.owner = Owner(name="Bob", rank=2, boss_id=None)
    with pytest.raises(Refused, match=r"Thing\.owner was changed"):
        recall(session, Thing, where(lambda x: x.owner_id == 1))
    session.flush()
    new.owner = owner
    session.flush()
    assert recall(session, Thing, where(lambda x: x.owner_id == owner.id)) == [new]


class Own(orm.DeclarativeBase):
    pass


class Offer(Own):
    __tablename__ = "offer"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    sold: orm.Mapped[bool | None] = orm.mapped_column(default=True)
    price: orm.Mapped[int | None] = orm.mapped_column()
    edits: orm.Mapped[int] = orm.mapped_column(default=0, onupdate=1)
    code: orm.Mapped[int] = orm.mapped_column(default=lambda: 1)


@pytest.mark.parametrize("values", [{}, {"sold": None}])
def test_a_default_that_a_flush_will_give_is_known_if_it_is_a_plain_value(values: dict[str, Any]) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Own.metadata.create_all(engine)
    with orm.Session(engine) as session:
        offer = Offer(**values)
        session.add(offer)
        with pytest.raises(Refused, match="gets its code when it is flushed"):
            count(session, Offer, where(lambda x: x.code == 1))
        assert count(session, Offer, where(lambda x: x.sold)) == 1
        assert recall(session, Offer, where(lambda x: x.edits == 0), order=lambda x: desc(x.sold)) == [offer]
        assert "edits" not in sa.inspect(offer).dict, "only a flush sets it"
        assert ("sold" in sa.inspect(offer).dict) == bool(values)
        assert count(session, Offer, where(lambda x: x.price is None)) == 1
        session.flush()
        assert count(session, Offer, where(lambda x: x.sold)) == 1
        session.scalars(sa.select(Offer)).one().price = 3
        with pytest.raises(Refused, match=r"will update Offer\.edits"):
            count(session, Offer, where(lambda x: x.edits > 0))
        session.flush()
        assert count(session, Offer, where(lambda x: x.edits > 0)) == 1
    engine.dispose()


def test_what_a_database_cannot_do_is_finished_by_python_when_asked(session: orm.Session) -> None:
    session.add_all(
        [thing(j=1, s="Élan"), thing(j=2, s="élan"), thing(j=3, s="elan"), thing(j=9, s="ÉLAN"), thing(j=1, s=None)]
    )
    session.commit()
    same = where(lambda x: x.s.casefold() == "élan" and x.j < 5)
    with pytest.raises(Refused, match="casefold"):
        recall(session, Thing, same)
    found = recall(session, Thing, same, finish="python", order=lambda x: desc(x.j), limit=1)
    assert [each.s for each in found] == ["élan"]
    assert found.rows_read == 4, "the other half of the query is still the database's"
    assert "casefold" in found.left_to_python[0].problem
    assert count(session, Thing, same, finish="python") == 2
    other = where(lambda x: not (x.s.casefold() == "élan" and x.j < 5))
    assert sorted(each.j for each in recall(session, Thing, other, finish="python")) == [1, 3, 9]
    assert total(session, Thing, same, lambda x: x.j, finish="python") == 3


def test_sums_are_exact_or_refused(session: orm.Session) -> None:
    session.add_all([thing(j=2, i=2**31 - 1), thing(j=3, i=2**31 - 1), thing(j=4)])
    session.commit()
    every = where(lambda x: True)
    assert total(session, Thing, every, lambda x: x.i * x.j) == 5 * (2**31 - 1)
    assert total(session, Thing, where(lambda x: x.j > 9), lambda x: x.j) == 0
    with pytest.raises(Refused, match="exactly in any order"):
        total(session, Thing, every, lambda x: x.g)


def test_decimals_are_summed_exactly(session: orm.Session) -> None:
    every = where(lambda x: True)
    session.add_all([thing(d=Decimal("0.10")), thing(d=Decimal("0.20")), thing()])
    session.commit()
    session.add(thing(d=Decimal("99999999.99")))
    if session.get_bind().dialect.name == "sqlite":
        with pytest.raises(Refused, match="SQLite has no decimals"):
            total(session, Thing, every, lambda x: x.d)
    else:
        assert total(session, Thing, every, lambda x: x.d) == Decimal("100000000.29")


@pytest.mark.parametrize("scoped", [False, True], ids=["session", "scoped"])
def test_an_asynchronous_session_is_awaited(scoped: bool) -> None:
    async def main() -> None:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=sa.StaticPool)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        make = async_sessionmaker(engine)
        registry = async_scoped_session(make, asyncio.current_task)
        session = registry if scoped else make()
        ann = Owner(name="Ann", rank=2, boss_id=None)
        session.add(ann)
        await session.commit()
        await session.refresh(ann)
        session.add_all([thing(j=1, owner_id=ann.id), thing(j=2)])
        await session.commit()
        await session.refresh(ann)
        session.add(thing(j=0, owner_id=ann.id))
        small = where(lambda x: x.j < 2)
        found: Recalled[Thing] = await recall(session, Thing, small, order=lambda x: x.j)
        assert [each.j for each in found] == [0, 1]
        assert await count(session, Thing, small) == 2
        assert await exists(session, Thing, small)
        assert await total(session, Thing, small, lambda x: x.j) == 1
        pairs: Recalled[tuple[Thing, Owner]] = await recall(
            session, (Thing, Owner), lambda x, o: x.owner_id == o.id and o.name == "Ann", order=lambda x, o: desc(x.j)
        )
        assert [(one.j, two.name) for one, two in pairs] == [(1, "Ann"), (0, "Ann")]
        assert await count(session, (Thing, Owner), lambda x, o: x.owner_id == o.id) == 2
        await session.close()
        await engine.dispose()

    asyncio.run(main())


def test_a_registry_of_sessions_is_taken_for_its_session(session: orm.Session, engine: sa.Engine) -> None:
    registry = orm.scoped_session(orm.sessionmaker(engine))
    registry.add(thing(j=1))
    assert [each.j for each in recall(registry, Thing, lambda x: x.j == 1)] == [1]
    assert count(registry, Thing, lambda x: x.j == 1) == 1
    registry.remove()


def test_new_objects_are_in_the_order_in_which_a_flush_inserts_them(session: orm.Session) -> None:
    first, second, third, fourth = (thing(j=number) for number in range(4))
    session.add_all([first, second, third])
    session.expunge(first)
    session.expunge(second)
    session.add(fourth)  # SQLAlchemy inserts it before the third, since it counts the new objects that there are
    unsaved = recall(session, Thing, lambda x: x.j >= 0)
    by_key = recall(session, Thing, lambda x: x.j >= 0, order=lambda x: x.id)
    assert third in session.new
    session.flush()
    saved = recall(session, Thing, lambda x: x.j >= 0)
    assert unsaved == by_key == saved
    assert [each.id for each in saved] == sorted(each.id for each in (third, fourth))


class Kept(orm.DeclarativeBase):
    pass


class Box(Kept):
    __tablename__ = "box"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    owned: orm.Mapped[list[Toy]] = orm.relationship(back_populates="box", cascade="all, delete-orphan")
    lent: orm.Mapped[list[Loan]] = orm.relationship(back_populates="box")
    marks: orm.Mapped[list[Mark]] = orm.relationship(passive_deletes=True)


class Toy(Kept):
    __tablename__ = "toy"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    n: orm.Mapped[int] = orm.mapped_column()
    box_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("box.id"))
    box: orm.Mapped[Box | None] = orm.relationship(back_populates="owned")


class Loan(Kept):
    __tablename__ = "loan"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    box_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("box.id"))
    box: orm.Mapped[Box | None] = orm.relationship(back_populates="lent")


class Mark(Kept):
    __tablename__ = "mark"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    box_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("box.id", ondelete="CASCADE"))


@pytest.fixture
def kept(engine: sa.Engine) -> Iterator[orm.Session]:
    Kept.metadata.create_all(engine)
    with orm.Session(engine) as session:
        if engine.dialect.name == "sqlite":
            session.execute(sa.text("PRAGMA foreign_keys = ON"))
        session.add_all(
            [Box(id=1, owned=[Toy(id=1, n=1), Toy(id=2, n=2)], lent=[Loan(id=1)], marks=[Mark(id=1)]), Box(id=2)]
        )
        session.commit()
        yield session
    Kept.metadata.drop_all(engine)


def test_what_a_flush_deletes_or_changes_with_a_deleted_object_is_refused(kept: orm.Session) -> None:
    box = kept.get_one(Box, 1)
    kept.delete(box)
    with pytest.raises(Refused, match="a Box was deleted, and a flush may change or delete Loan objects"):
        count(kept, Loan, lambda x: x.box_id == 1)
    with pytest.raises(Refused, match="change or delete Mark objects"):
        count(kept, Mark, lambda x: x.id > 0)
    assert count(kept, Toy, lambda x: x.n > 0) == 0, "SQLAlchemy has marked these as deleted"
    assert count(kept, Box, lambda x: x.id > 0) == 1
    kept.flush()
    assert count(kept, Loan, lambda x: x.box_id is None) == 1
    assert count(kept, Mark, lambda x: x.id > 0) == 0


def test_an_object_that_lost_its_owner_is_refused_until_a_flush_deletes_it(kept: orm.Session) -> None:
    box = kept.get_one(Box, 1)
    box.owned.pop()
    with pytest.raises(Refused, match="a flush will delete a Toy that was taken from its owner"):
        recall(kept, Toy, lambda x: x.n > 0)
    assert count(kept, Loan, lambda x: x.id > 0) == 1
    kept.flush()
    assert [each.n for each in recall(kept, Toy, lambda x: x.n > 0)] == [1]


@pytest.mark.parametrize(
    ("name", "value", "query"),
    [
        ("i", 2.5, lambda x: x.i > 2),
        ("i", "3", lambda x: x.i is None),
        ("j", Thing.j + 1, lambda x: x.j > 0),
        ("d", 0.1, lambda x: x.d is None),
        ("d", Decimal("0.105"), lambda x: x.d is not None),
        ("day", TIMES[0], lambda x: x.day is None),
        ("at", datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), lambda x: x.at is None),
        ("t", 3, lambda x: x.t == "3"),
    ],
)
def test_values_that_a_database_stores_as_others_are_refused_until_then(
    session: orm.Session, name: str, value: Any, query: Any
) -> None:
    first = thing(j=1)
    session.add(first)
    session.commit()
    setattr(first, name, value)
    if name == "d" and session.get_bind().dialect.name == "sqlite":
        return
    with pytest.raises(Refused, match=f"Thing.{name} is .* flush"):
        count(session, Thing, query)
    assert count(session, Thing, lambda x: x.sure is False) == 1, "which does not read it"


@pytest.mark.parametrize(
    ("name", "value"),
    [("i", 2.0), ("i", True), ("f", 2), ("f", 1e300), ("flag", 1), ("day", datetime.date(2024, 1, 1)), ("s", ""),
     ("d", 1), ("d", Decimal("1.500")), ("d", Decimal("1E+2")), ("at", TIMES[1]), ("big", 2**62)],
)  # fmt: skip
def test_values_that_a_database_stores_as_they_are_are_not_refused(session: orm.Session, name: str, value: Any) -> None:
    if name == "d" and session.get_bind().dialect.name == "sqlite":
        return
    session.add(thing(**{name: value}))
    for _ in range(2):
        assert count(session, Thing, where(**{name: value})) == 1
        session.flush()
        session.expire_all()


def test_savepoints_expired_and_detached_objects(session: orm.Session) -> None:
    first, second, third = thing(j=1), thing(j=2), thing(j=3)
    session.add_all([first, second, third])
    session.commit()
    small = where(lambda x: x.j < 3)
    inner = session.begin_nested()
    first.j = 9
    session.add(thing(j=0))
    assert [each.j for each in recall(session, Thing, small, order=lambda x: x.j)] == [0, 2]
    session.flush()
    assert [each.j for each in recall(session, Thing, small, order=lambda x: x.j)] == [0, 2]
    inner.rollback()
    assert recall(session, Thing, small, order=lambda x: x.j) == [first, second]
    session.expire(second)
    second.t = "changed"
    assert recall(session, Thing, small & where(t="changed")) == [second]
    session.expunge(first)
    found = recall(session, Thing, small, order=lambda x: x.j)
    assert [each.j for each in found] == [1, 2]
    assert found[0] is not first, "a detached object is not the session's"
    session.delete(second)
    session.flush()
    assert [each.j for each in recall(session, Thing, small)] == [1]


def test_a_new_object_with_a_key_stands_where_its_key_belongs(session: orm.Session) -> None:
    session.add_all([thing(id=10), thing(id=30)])
    session.commit()
    session.add_all([thing(id=40), thing(id=20)])
    every = where(lambda x: x.j == 0)
    for _ in range(2):
        assert [each.id for each in recall(session, Thing, every)] == [10, 20, 30, 40]
        assert [each.id for each in recall(session, Thing, every, limit=2, offset=1)] == [20, 30]
        assert [each.id for each in recall(session, Thing, every, order=lambda x: (x.s, desc(x.id)))] == [
            40,
            30,
            20,
            10,
        ]
        session.flush()


def test_limits_and_offsets_at_their_ends(session: orm.Session) -> None:
    session.add_all([thing(j=number) for number in range(4)])
    session.commit()
    session.add(thing(j=4))
    every = where(lambda x: x.j >= 0)

    def found(**options: Any) -> list[int]:
        return [each.j for each in recall(session, Thing, every, order=lambda x: desc(x.j), **options)]

    assert found(limit=0) == found(limit=0, offset=3) == found(offset=5) == found(limit=2, offset=99) == []
    assert found(limit=99) == found() == [4, 3, 2, 1, 0]
    assert found(limit=2, offset=4) == [0]
    with pytest.raises(QueryError, match="not negative"):
        found(limit=-1)


def test_what_is_no_mapped_class_is_refused(session: orm.Session) -> None:
    every: Any = where(lambda x: x.j >= 0)
    one: Any = thing()
    models: list[Any] = [Thing.__table__, [Thing], one, "thing"]
    for model in models:
        with pytest.raises(QueryError, match="is not a mapped class"):
            recall(session, model, every)
    for model in (one, "thing", int, Thing.j):
        with pytest.raises(QueryError, match="is not a mapped class, an alias of one, or a table"):
            every.clause(model)


def test_lists_that_are_empty_or_long(session: orm.Session) -> None:
    session.add_all([thing(i=3), thing(i=None)])
    session.commit()
    session.add(thing(i=9_998))
    numbers: list[int] = []
    assert count(session, Thing, lambda x: x.i in numbers) == 0
    assert count(session, Thing, lambda x: x.i not in numbers) == 3
    assert count(session, Thing, lambda x: x.i + 1 not in numbers) == 2
    numbers = list(range(10_000))
    assert count(session, Thing, lambda x: x.i in numbers) == 2
    assert count(session, Thing, lambda x: x.i not in numbers) == 1
    numbers.append(1)
    with pytest.raises(Refused, match="at most 10,000"):
        count(session, Thing, lambda x: x.i in numbers)


def test_loader_options_load_relations_along(session: orm.Session) -> None:
    ann = Owner(name="Ann", rank=1, boss_id=None)
    session.add_all([ann, thing(j=1), thing(j=2)])
    session.flush()
    session.add_all([thing(j=3, owner_id=ann.id), thing(j=4, owner_id=ann.id)])
    session.commit()
    for load in (orm.joinedload, orm.selectinload):
        session.expunge_all()
        session.add(thing(j=5))
        found = recall(session, Thing, lambda x: x.j > 2, order=lambda x: x.j, limit=3, options=[load(Thing.owner)])
        assert [each.j for each in found] == [3, 4, 5]
        assert all("owner" in sa.inspect(each).dict for each in found[:2]), "no statement is needed for it"
        session.rollback()


def test_a_decimal_that_is_not_a_number_is_sorted_last(session: orm.Session) -> None:
    if session.get_bind().dialect.name != "postgresql":
        pytest.skip("PostgreSQL alone stores NaN in NUMERIC")
    session.add_all([thing(j=1, d=Decimal("NaN")), thing(j=2, d=Decimal("1.00")), thing(j=3, d=None)])
    session.commit()
    assert [x.j for x in recall(session, Thing, lambda x: True, order=lambda x: x.d)] == [3, 2, 1]
    assert [x.j for x in recall(session, Thing, lambda x: True, order=lambda x: desc(x.d))] == [1, 2, 3]
    assert [x.j for x in recall(session, Thing, "lambda x: x.d > 0")] == [2]


class Site(orm.DeclarativeBase):
    pass


class Blog(Site):
    __tablename__ = "blog"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column()
    entries: orm.Mapped[list[Entry]] = orm.relationship(back_populates="blog")


class Entry(Site):
    __tablename__ = "entry"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(default="untitled")
    blog_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("blog.id"))
    blog: orm.Mapped[Blog | None] = orm.relationship(back_populates="entries")


def test_a_new_object_of_a_saved_one_is_found_before_a_flush() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Site.metadata.create_all(engine)
    with orm.Session(engine, autoflush=False) as session:
        blog, other = Blog(name="first"), Blog(name="second")
        saved = Entry(blog=blog, title="saved")
        session.add_all([blog, other, saved])
        session.commit()
        assert blog.id != other.id
        queries: dict[str, Any] = {
            "key": where(lambda e: e.blog_id == blog.id), "relation": where(lambda e: e.blog.name == "first"),
            "default": where(lambda e: e.title != ""), "there": where(lambda e: e.blog is not None),
            "absent": where(lambda e: e.blog.name != "second"),
        }  # fmt: skip
        new = Entry(blog=blog)
        session.add(new)
        before = {name: recall(session, Entry, query, order=lambda e: e.title) for name, query in queries.items()}
        assert new.blog_id is None
        assert new in session.new
        assert before["key"] == [saved, new]
        assert count(session, Entry, queries["key"]) == 2
        pairs = recall(session, (Entry, Blog), lambda e, b: e.blog_id == b.id)
        assert pairs == [(saved, blog), (new, blog)]
        assert recall(session, Blog, lambda b: b.name == "first") == [blog]
        with pytest.raises(Refused, match="an unsaved Entry"):
            recall(session, Entry, "lambda e: any(o.title == 'x' for o in e.blog.entries)")
        saved.blog = other
        moved = recall(session, Entry, queries["key"])
        assert moved == [new]
        assert saved.blog_id == blog.id
        saved.blog = blog
        session.flush()
        after = {name: recall(session, Entry, query, order=lambda e: e.title) for name, query in queries.items()}
        assert after == before
    engine.dispose()


def test_one_statement_joins_many_unsaved_objects(session: orm.Session) -> None:
    owners = [Owner(name=f"owner {number}", rank=number, boss_id=None) for number in range(5)]
    session.add_all(owners)
    session.commit()
    assert [each.rank for each in owners] == [*range(5)]
    new = [thing(j=number % 7, t=str(number)) for number in range(60)]
    session.add_all(new)
    seen: list[str] = []
    engine = session.get_bind()
    sa.event.listen(engine, "before_cursor_execute", lambda c, cursor, statement, *more: seen.append(statement))
    found = recall(session, (Thing, Owner), lambda x, o: x.j == o.rank and o.name != "owner 3")
    assert set(found) == {(each, owners[each.j]) for each in new if each.j in (0, 1, 2, 4)}
    assert len(seen) == 2, "one of saved things, and one of unsaved ones"


def test_an_object_that_the_session_holds_is_found_by_its_key_without_sql(engine: sa.Engine) -> None:
    things = [Thing(id=at, j=1, g=0.0, t="a", sure=True) for at in (7, 8)]
    with stored(engine, things) as session:
        statements: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda *event: statements.append(event[2]))
        at = 7
        by_key = where(lambda x: x.id == at)
        (first,) = recall(session, Thing, by_key)
        assert len(statements) == 1
        assert recall(session, Thing, by_key) == [first]
        assert recall(session, Thing, lambda x: at == x.id, order=lambda x: x.t, limit=1) == [first]
        assert exists(session, Thing, by_key)
        assert len(statements) == 1
        assert recall(session, Thing, by_key, limit=0) == []
        assert recall(session, Thing, by_key, offset=1) == []
        assert len(statements) == 3
        at = 8
        assert [each.id for each in recall(session, Thing, by_key)] == [8]
        assert len(statements) == 4
        at = True  # which equals 1, and is no key of an object
        assert recall(session, Thing, by_key) == []
        assert len(statements) == 5
        at = 7
        session.expire(first)
        assert recall(session, Thing, by_key) == [first]
        assert len(statements) == 6
        session.delete(first)
        assert recall(session, Thing, by_key) == []
        session.rollback()


def test_a_changed_key_is_found_by_its_new_value(engine: sa.Engine) -> None:
    with stored(engine, [Thing(id=7, j=1, g=0.0, t="a", sure=True)]) as session:
        (first,) = recall(session, Thing, lambda x: x.id == 7)
        first.id = 9
        assert recall(session, Thing, lambda x: x.id == 7) == []
        assert recall(session, Thing, lambda x: x.id == 9) == [first]
        session.rollback()


def test_criteria_hold_for_all_that_is_loaded_and_a_function_of_a_class_is_refused() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Thing.metadata.create_all(engine)
    with orm.Session(engine) as session:
        things = [Thing(id=at, i=at, j=0, g=0.0, t="", sure=True) for at in range(1, 5)]
        session.add_all([Owner(id=1, rank=1, things=things)])
        session.commit()
        most = 3
        cheap = where(lambda x: x.i < most)
        for most in (3, 2):
            session.expunge_all()
            options, expected = cheap.criteria(Thing), list(range(1, most))
            assert [each.id for each in session.scalars(sa.select(Thing).options(*options))] == expected
            assert [each.id for each in session.scalars(sa.select(orm.aliased(Thing)).options(*options))] == expected
            owners = session.scalars(sa.select(Owner).options(orm.selectinload(Owner.things), *options))
            assert [each.id for each in owners.one().things] == expected
        with pytest.raises(QueryError, match="SQLAlchemy keeps what a function"):
            session.scalars(sa.select(Thing).options(orm.with_loader_criteria(Thing, lambda cls: cheap.clause(cls))))
    engine.dispose()


def test_criteria_of_a_class_hold_for_all_mapped_classes_that_inherit_from_it() -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Removable:
        removed: orm.Mapped[bool] = orm.mapped_column()

    class Note(Removable, Base):
        __tablename__ = "note"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    class Named(Removable):
        name: orm.Mapped[str] = orm.mapped_column(sa.String(9))

    class File(Named, Base):
        __tablename__ = "file"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all(
            [
                *(Note(id=at, removed=at == 1) for at in (1, 2)),
                *(File(id=at, removed=at == 1, name="") for at in (1, 2)),
            ]
        )
        session.flush()
        kept = where(lambda x: not x.removed)
        for column in (Note.id, File.id):
            loaded = sa.select(column).options(*kept.criteria(Removable))
            assert list(session.scalars(loaded)) == [2]
    engine.dispose()
