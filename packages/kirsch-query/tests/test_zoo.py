"""The queries of Dejavu's own tests: its animals and zoos, its 28 predicates, and how many rows each selects.

The animals, zoos and counts are facts of Dejavu 2.0's test fixture (``zoo_fixture``, test 4). Dejavu's functions that
ignore case (``ieq``, ``icontains``, ``icontainedby``) are written with ``lower()``; ``count`` is the method that Dejavu
knew to be unknown to its databases.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import Refused, comparison, count, desc, filter, recall, where  # noqa: A004
from models import MICROSECONDS


class Base(orm.DeclarativeBase):
    pass


class Zoo(Base):
    __tablename__ = "zoo"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50))
    founded: orm.Mapped[datetime.date | None] = orm.mapped_column()
    animals: orm.Mapped[list[Animal]] = orm.relationship(back_populates="zoo")


class Animal(Base):
    __tablename__ = "animal"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    species: orm.Mapped[str] = orm.mapped_column(sa.String(100))
    zoo_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("zoo.id"))
    legs: orm.Mapped[int] = orm.mapped_column()
    last_escape: orm.Mapped[datetime.datetime | None] = orm.mapped_column(MICROSECONDS)
    lifespan: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    zoo: orm.Mapped[Zoo | None] = orm.relationship(back_populates="animals")


def inhabitants() -> list[Any]:
    park = Zoo(name="Wild Animal Park", founded=datetime.date(2000, 1, 1))
    diego = Zoo(name="San Diego Zoo", founded=datetime.date(1835, 9, 13))
    biodome = Zoo(name="Montréal Biodôme", founded=datetime.date(1992, 6, 19))
    sea = Zoo(name="Sea_World", founded=None)
    escapes = {
        "Leopard": datetime.datetime(2004, 12, 21, 8, 15, 0, 999907),
        "Lion": datetime.datetime(2007, 9, 24, 16, 18, 42),
        "Adelie Penguin": datetime.datetime(2007, 9, 20, 19, 10, 14),
    }
    lifespans = {"Leopard": 73.5, "Slug": 0.75, "Ostrich": 103.2}
    animals = [
        ("Leopard", 4, park), ("Lion", 4, park), ("Slug", 1, None), ("Tiger", 4, diego), ("Bear", 4, None), ("Ostrich", 2, None),
        ("Centipede", 100, None), ("Emperor Penguin", 2, sea), ("Adelie Penguin", 2, sea), ("Millipede", 1000000, diego), ("Ape", 2, None),
        ("Ape", 2, None),
    ]  # fmt: skip
    return [
        park, diego, biodome, sea,
        *(Animal(species=species, legs=legs, zoo=zoo, last_escape=escapes.get(species), lifespan=lifespans.get(species))
          for species, legs, zoo in animals),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def session(engine: sa.Engine) -> Iterator[orm.Session]:
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all(inhabitants())
        session.commit()
        yield session
    Base.metadata.drop_all(engine)


class Pet:
    def __init__(self, name: str) -> None:
        self.name = name


pet, other = Pet("Slug"), Pet("Ostrich")
name = "Lion"
SOME = ("Lion", "Bear", "Leopard")
DECEMBER: dict[str, Any] = {"year": 2004}


def same_letters(one: str, two: str) -> bool:
    return one.lower() == two.lower()


# The model, the query, how many rows it selects, and whether a database can evaluate all of it.
QUERIES: list[tuple[Any, Callable[..., Any], int, bool]] = [
    (Animal, lambda x: True, 12, True),
    (Animal, lambda x: x.legs == 4, 4, True),
    (Animal, lambda x: x.legs == 2, 5, True),
    (Animal, lambda x: x.legs >= 2 and x.legs < 20, 9, True),
    (Animal, lambda x: x.legs > 10, 2, True),
    (Animal, lambda x: x.lifespan > 70, 2, True),
    (Animal, lambda x: x.species.startswith("L"), 2, True),
    (Animal, lambda x: x.species.endswith("pede"), 2, True),
    (Animal, lambda x: x.last_escape != None, 3, True),
    (Animal, lambda x: x.last_escape is not None, 3, True),
    (Animal, lambda x: None == x.last_escape, 9, True),
    (Animal, lambda x: "pede" in x.species, 2, True),
    (Animal, lambda x: x.species in ("Lion", "Tiger", "Bear"), 3, True),
    (Animal, lambda x: x.species in (pet.name, other.name), 2, True),
    (Animal, lambda x: same_letters(x.species, "slug"), 1, True),
    (Animal, lambda x: "pede" in x.species.lower(), 2, True),
    (Animal, lambda x: x.species.lower() in ("lion", "banana"), 1, True),
    (Animal, lambda x: x.species.lower() in tuple(each.lower() for each in SOME), 3, True),
    (Animal, lambda x: len(x.species) == len(name), 3, True),
    (Animal, lambda x: "i" in x.species, 7, True),
    (Zoo, lambda x: x.founded != None and x.founded < datetime.date.today(), 3, True),
    (Animal, lambda x: x.last_escape == datetime.datetime.now(), 0, True),
    (Animal, lambda x: x.last_escape.year == 2004, 1, True),
    (Animal, lambda x: x.last_escape.month == 12, 1, True),
    (Animal, lambda x: x.last_escape.day == 21, 1, True),
    (Animal, lambda x: "p" in x.species and x.species.count("e") > 1, 3, False),
    (
        Animal,
        lambda x: (
            x.last_escape != None
            and x.last_escape >= datetime.datetime(DECEMBER["year"], 12, 1)
            and x.last_escape < datetime.datetime(DECEMBER["year"], 12, 31)
        ),
        1,
        True,
    ),
    (Zoo, lambda x: "_" in x.name, 1, True),
]


def test_there_are_as_many_queries_as_dejavu_tests() -> None:
    assert len(QUERIES) == 28
    assert sum(exact for *_, exact in QUERIES) == 27


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_a_query_of_dejavu_selects_as_many_rows_as_there(session: orm.Session, number: int) -> None:
    model, function, rows, exact = QUERIES[number]
    query = where(function)
    stored = session.scalars(sa.select(model)).all()
    here = [*query.filter(stored)]
    assert len(here) == rows
    if exact:
        assert set(session.scalars(query.select(model))) == set(here)
        assert count(session, model, query) == rows
        assert set(recall(session, model, query)) == set(here)
    else:
        with pytest.raises(Refused, match=r"File .*test_zoo\.py"):
            query.clause(model)
        assert set(recall(session, model, query, finish="python")) == set(here)


def test_a_part_that_no_database_evaluates_leaves_the_rest_to_the_database(session: orm.Session) -> None:
    """Dejavu's recall read the table then; an `and` or `or` of it may be half the database's."""
    half = where(lambda x: "p" in x.species and x.species.count("e") > 1)
    assert recall(session, Animal, half, finish="python").rows_read == count(session, Animal, where("'p' in x.species"))
    turned = where(lambda x: not (x.species.count("e") > 1 and x.legs < 3))
    found = recall(session, Animal, turned, finish="python")
    animals = session.scalars(sa.select(Animal)).all()
    assert set(found) == {x for x in animals if not (x.species.count("e") > 1 and x.legs < 3)}


def test_values_are_late_bound_and_queries_are_made_without_a_function(session: orm.Session) -> None:
    query = where("x.last_escape.year == year", year=2004)
    assert count(session, Animal, query) == 1
    assert count(session, Animal, where("x.last_escape.year == year", year=2007)) == 2
    for made in (comparison("legs", "==", 4), filter(legs=4), where(legs=4), where("x.legs == 4")):
        assert count(session, Animal, made) == 4
        assert str(made.clause(Animal)) == str(where(lambda x: x.legs == 4).clause(Animal))


def test_order_limit_and_offset_give_what_dejavu_gives(session: orm.Session) -> None:
    everything = where(lambda x: True)
    names = ["Adelie Penguin", "Ape", "Ape", "Bear", "Centipede", "Emperor Penguin", "Leopard", "Lion", "Millipede",
             "Ostrich", "Slug", "Tiger"]  # fmt: skip
    for limit in range(len(names) + 1):
        found = recall(session, Animal, everything, order=lambda x: x.species, limit=limit)
        assert [each.species for each in found] == names[:limit]
    found = recall(session, Animal, everything, order=lambda x: x.species, limit=5, offset=2)
    assert [each.species for each in found] == names[2:7]
    founded = where(lambda z: z.founded is not None)
    zoos = recall(session, Zoo, founded, order=lambda z: desc(z.founded), limit=2)
    assert [each.founded and each.founded.year for each in zoos] == [2000, 1992]


def test_joins_give_what_dejavu_gives(session: orm.Session) -> None:
    housed = where(lambda z, a: a.zoo_id == z.id)
    pairs = recall(session, (Zoo, Animal), housed & where(lambda z, a: z.name == "San Diego Zoo"))
    assert {(z.name, a.species) for z, a in pairs} == {("San Diego Zoo", "Tiger"), ("San Diego Zoo", "Millipede")}
    assert len({id(z) for z, _ in pairs}) == 1
    nowhere = where(lambda z, a: z.name == "San Diego Zoo" and a.species == "Leopard")
    assert recall(session, (Zoo, Animal), housed & nowhere) == []
    assert count(session, (Zoo, Animal), housed) == 6
    escaped = housed & where(lambda z, a: a.last_escape is not None)
    latest = recall(session, (Zoo, Animal), escaped, order=lambda z, a: desc(a.last_escape), limit=1)
    assert [a.species for _, a in latest] == ["Lion"]


def test_an_edit_is_recalled_and_the_database_left_as_it_is(session: orm.Session) -> None:
    diego = recall(session, Zoo, where(name="San Diego Zoo"))[0]
    diego.name = "The San Diego Zoo"
    assert recall(session, Zoo, where(lambda z: z.name == "The San Diego Zoo")) == [diego]
    assert recall(session, Zoo, where(name="San Diego Zoo")) == []
    session.rollback()
    assert recall(session, Zoo, where(name="San Diego Zoo")) == [diego]
