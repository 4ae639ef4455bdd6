"""Methods, partial functions and objects that are called, as queries."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import QueryError, SourceError, cache, recall, where
from models import Base, Thing


class Shop:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.__secret = limit

    def is_cheap(self, x: Any) -> Any:
        return x.i < self.limit

    def is_secretly_cheap(self, x: Any) -> Any:
        return x.i < self.__secret

    def is_sure(self, x: Any) -> Any:
        return x.sure

    @classmethod
    def is_first(cls, x: Any) -> Any:
        return x.i == 1 and cls is not None

    def __call__(self, x: Any, most: int = 2) -> Any:
        return x.i < self.limit and x.i < most


def between(low: int, x: Any, high: int, *, odd: bool = False) -> Any:
    return low <= x.i < high and (not odd or x.i % 2 == 1)


CALLABLES: dict[str, tuple[Any, list[int]]] = {
    "method": (Shop(3).is_cheap, [1, 2]),
    "private name": (Shop(3).is_secretly_cheap, [1, 2]),
    "method that reads no self": (Shop(3).is_sure, [2, 4]),
    "class method": (Shop.is_first, [1]),
    "object": (Shop(3), [1]),
    "partial of an object": (functools.partial(Shop(3), most=5), [1, 2]),
    "partial": (functools.partial(between, 2, high=5), [2, 3, 4]),
    "partial of a partial": (functools.partial(functools.partial(between, 2, high=3), high=5, odd=True), [3]),
    "partial of a method": (functools.partial(Shop.is_cheap, Shop(4)), [1, 2, 3]),
}


@pytest.fixture(scope="module")
def session() -> Any:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all([Thing(id=at, i=at or None, j=0, g=0.0, t="", sure=at in (2, 4)) for at in range(5)])
        session.commit()
        yield session
    engine.dispose()


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_is_a_query_in_memory_and_in_sql(session: orm.Session, name: str) -> None:
    function, expected = CALLABLES[name]
    things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
    query = where(function)
    assert [each.id for each in things if query(each)] == expected
    assert [each.id for each in query.filter(things)] == expected
    for _ in range(2):
        assert [each.id for each in recall(session, Thing, function)] == expected


def test_methods_of_two_objects_share_one_clause_with_values_of_their_own(session: orm.Session) -> None:
    cache.forget()
    for limit in (2, 4, 3):
        query = where(functools.partial(between, 1, high=limit))
        assert [each.id for each in session.scalars(query.select(Thing).order_by(Thing.id))] == [*range(1, limit)]
    assert [len(each) for each in cache._kept.values()] == [1]


def test_a_method_reads_its_object_at_each_use(session: orm.Session) -> None:
    shop = Shop(2)
    query = where(shop.is_cheap)
    for limit in (2, 4):
        shop.limit = limit
        assert [each.id for each in session.scalars(query.select(Thing).order_by(Thing.id))] == [*range(1, limit)]
        assert query(SimpleNamespace(i=3)) == (limit == 4)


def test_what_binds_arguments_that_are_not_there_is_refused() -> None:
    plain: Any = between
    for function in (functools.partial(plain, lower=2), functools.partial(plain, 1, 2, 3, 4)):
        with pytest.raises(QueryError, match=r"binds arguments that .* does not have"):
            where(function)
    with pytest.raises(SourceError, match="has an argument for the row"):
        where(functools.partial(plain, 1, 2, 3))
    with pytest.raises(SourceError, match="is not a Python function"):
        where(functools.partial(len))
