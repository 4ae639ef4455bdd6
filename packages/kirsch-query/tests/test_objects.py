"""Objects compared with each other: the same object has the same primary key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from generate import asked
from kirsch_query import Refused, recall, where
from models import Item, Owner, Thing, stored

if TYPE_CHECKING:
    from collections.abc import Iterator


def thing(at: int, owner: Owner | None) -> Thing:
    return Thing(id=at, j=at % 2, g=0.0, t="a", sure=True, owner=owner, items=[Item(id=at, n=at)])


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[orm.Session]:
    boss = Owner(id=1, name="boss", rank=1)
    owners = [boss, Owner(id=2, name="a", rank=2, boss=boss), Owner(id=3, name="b", rank=3)]
    things = [thing(at, [*owners, None][at % 4]) for at in range(1, 13)]
    with stored(engine, [*owners, *things]) as session:
        yield session


FORMS = [
    "x.owner == boss",
    "x.owner != boss",
    "x.owner is boss",
    "x.owner is not boss",
    "boss == x.owner",
    "not x.owner == boss",
    "not x.owner != boss",
    "x.owner == boss and x.j == 0",
    "x.owner == boss or x.id == 1",
    "x.owner.boss == boss",
    "x.owner.boss != boss",
    "x == first",
    "x != first",
    "x is first",
    "any(i == item for i in x.items)",
    "all(i != item for i in x.items)",
    "any(o == first for o in x.owner.things)",
    "any(o == x for o in x.owner.things)",
    "any(o != x for o in x.owner.things)",
    "x.owner == unsaved",
    "x.owner != unsaved",
    "x.owner == first",
    "x.owner != first",
    "any(i.thing == x for i in x.items)",
]


@pytest.mark.parametrize("text", FORMS)
def test_an_object_is_the_row_with_its_primary_key(session: orm.Session, text: str) -> None:
    things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
    names = {
        "boss": session.get_one(Owner, 1),
        "first": things[0],
        "item": session.get_one(Item, 5),
        "unsaved": Owner(name="new", rank=9),
    }
    query = asked(text, names)
    function = eval(f"lambda x: {text}", dict(names))
    expected = []
    for each in things:
        try:
            holds = bool(function(each))
        except AttributeError:  # the rule for None
            holds = query(each)
        assert query(each) == holds
        expected += [each.id] if holds else []
    assert list(session.scalars(sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id))) == expected
    assert [each.id for each in recall(session, Thing, query)] == expected


def test_a_query_of_pairs_joins_objects_and_knows_unsaved_changes(session: orm.Session) -> None:
    owned = where(lambda x, o: x.owner == o and o.rank < 3)
    expected = [(at, owner) for at in range(1, 13) for owner in (1, 2) if at % 4 == owner - 1]
    assert [(x.id, o.id) for x, o in recall(session, (Thing, Owner), owned)] == expected
    boss = session.get_one(Owner, 1)
    ours = where(lambda x: x.owner == boss)
    first = session.get_one(Thing, 1)
    assert first.owner is not boss
    first.owner = boss
    assert [each.id for each in recall(session, Thing, ours)] == [1, 4, 8, 12]
    session.flush()
    assert [each.id for each in recall(session, Thing, ours)] == [1, 4, 8, 12]
    session.rollback()


def test_an_index_serves_the_key_of_an_object() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Owner.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE INDEX thing_owner ON thing (owner_id)")
    with orm.Session(engine) as session:
        session.add(boss := Owner(id=1, rank=1))
        session.flush()
        plan = where(lambda x: x.owner == boss).explain(Thing, session.connection()).plan
        assert any("SEARCH thing USING INDEX thing_owner" in line for line in plan), plan
    engine.dispose()


def test_an_object_of_no_session_is_refused() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Owner.metadata.create_all(engine)
    with orm.Session(engine, expire_on_commit=False) as session:
        session.add(boss := Owner(id=1, rank=1))
        session.commit()
    with pytest.raises(Refused, match="this Owner is in no session"):
        where(lambda x: x.owner == boss).clause(Thing)
    engine.dispose()


def test_a_class_that_decides_what_is_equal_is_refused() -> None:
    class Base(orm.MappedAsDataclass, orm.DeclarativeBase):
        pass

    class Point(Base):
        __tablename__ = "point"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    point: Any = Point(id=1)
    with pytest.raises(Refused, match="Point decides itself which objects are equal"):
        where(lambda p: p == point).clause(Point)
