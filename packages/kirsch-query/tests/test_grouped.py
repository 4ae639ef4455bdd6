"""Groups in memory, in SQL, and of unsaved objects are one."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import databases
import grouped
from kirsch_query import QueryError, Refused, desc, group
from models import Base, Colour, Owner, Thing, stored

if TYPE_CHECKING:
    from conftest import Servers

CASES = int(os.environ.get("QUERY_GROUPINGS", "200"))
SEED = int(os.environ.get("QUERY_SEED", "0"))
CHUNK = 500


@pytest.mark.timeout(max(900, CASES // 2))
def test_random_groupings_agree_with_python(servers: Servers, say: Callable[[str], None]) -> None:
    start = time.monotonic()
    chunks = [
        (SEED * 1_000_000 + at // CHUNK, min(CHUNK, CASES - at), name, url)
        for at in range(0, CASES, CHUNK)
        for name, url in servers.all().items()
    ]
    failures: list[str] = []
    counts: dict[str, Counter[str]] = {}
    for outcome in databases.shared(grouped.run, chunks):
        failures += outcome.failures
        counts.setdefault(outcome.name, Counter()).update(outcome.counts)
    say(f"groupings: QUERY_SEED={SEED} QUERY_GROUPINGS={CASES}, {time.monotonic() - start:.0f} s")
    for name, found in counts.items():
        say(f"  {name}: {', '.join(f'{number} {what}' for what, number in sorted(found.items()))}")
    assert not failures, f"{len(failures)} differences, the first of them:\n" + "\n\n".join(failures[:5])
    for found in counts.values():  # a test that refuses nearly everything would prove nothing
        assert found["compared"] > CASES * 0.35
        assert found["unsaved rows"] > CASES * 0.04


def thing(**values: Any) -> Any:
    return Thing(**{"j": 0, "g": 0.0, "t": "", "sure": True, **values})


@pytest.fixture
def session(engine: sa.Engine) -> Any:
    owners = [Owner(id=1, name="a", rank=5), Owner(id=2, name="b", rank=7)]
    rows = [
        thing(id=at, i=at, t="aAbB"[at % 4], owner=owners[at % 2] if at < 8 else None, colour=Colour.RED)
        for at in range(1, 10)
    ]
    with stored(engine, [*owners, *rows]) as session:
        yield session


def test_groups_are_named_tuples_in_the_order_of_their_keys(session: orm.Session) -> None:
    found = group(
        session, Thing, lambda x: x.i > 1, key=lambda x: x.owner, n=lambda g: len(g), most=lambda g: max(x.i for x in g)
    )
    assert [(each.key and each.key.name, each.n, each.most) for each in found] == [
        (None, 2, 9),
        ("a", 3, 6),
        ("b", 3, 7),
    ]
    assert found.rows_read == 3
    assert found[1] == (session.get(Owner, 1), 3, 6)


def test_text_that_a_collation_takes_for_equal_has_groups_of_its_own(session: orm.Session) -> None:
    found = group(session, Thing, key=lambda x: x.t, n=lambda g: len(g))
    assert [tuple(each) for each in found] == [("A", 3), ("B", 2), ("a", 2), ("b", 2)]


def test_an_unsaved_object_joins_its_group_and_the_limit_counts_it(session: orm.Session) -> None:
    session.add(thing(i=100, t="b"))
    session.delete(session.get(Thing, 4))
    keywords: Any = {"key": lambda x: x.t, "total": lambda g: sum(x.i for x in g), "order": lambda g: desc(g.total)}
    assert [tuple(each) for each in group(session, Thing, **keywords, limit=2)] == [("b", 108), ("A", 15)]
    assert [each.key for each in group(session, Thing, **keywords, having=lambda g: g.total < 15)] == ["B", "a"]
    assert session.new


def test_groups_of_a_join(session: orm.Session) -> None:
    found = group(session, (Thing, Owner), lambda x, o: x.owner_id == o.id, key=lambda x, o: o.name,
                  total=lambda g: sum(x.i + o.rank for x, o in g))  # fmt: skip
    assert [tuple(each) for each in found] == [("a", 2 + 4 + 6 + 15), ("b", 1 + 3 + 5 + 7 + 28)]


def test_rows_are_read_only_if_python_may_group_them(session: orm.Session) -> None:
    keywords: Any = {"key": lambda x: x.t.upper(), "n": lambda g: len(g)}
    with pytest.raises(Refused, match=r"\.upper\(\) is not exact"):
        group(session, Thing, **keywords)
    found = group(session, Thing, **keywords, finish="python")
    assert ([tuple(each) for each in found], found.rows_read) == ([("A", 5), ("B", 4)], 9)


def test_having_that_a_database_cannot_decide_is_decided_by_python_if_it_may(session: orm.Session) -> None:
    keywords: Any = {"key": lambda x: x.t, "n": lambda g: len(g), "having": lambda g: g.key.upper() == "A", "limit": 1}
    with pytest.raises(Refused, match=r"\.upper\(\) is not exact"):
        group(session, Thing, **keywords)
    assert group(session, Thing, **keywords, finish="python") == [("A", 3)]


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"key": lambda x: x.g}, "float values are no key"),
        ({"key": lambda x: x.items}, "a key is a value or an object"),
        ({"key": lambda x: x.t, "n": lambda g: g}, "a group is read by"),
        ({"key": lambda x: x.t, "n": lambda g: sum(x.g for x in g)}, "sum\\(\\) is of integers"),
        ({"key": lambda x: x.t, "n": lambda g: max(g)}, "of the objects themselves"),
        ({"key": lambda x: x.t, "n": lambda g: len(g), "having": lambda g: g.m > 1}, "a group has no m"),
    ],
)
def test_what_cannot_be_grouped_exactly_is_refused_with_its_place(
    session: orm.Session, keywords: Any, why: str
) -> None:
    with pytest.raises(Refused, match=f"(?s){why}.*test_grouped.py"):
        group(session, Thing, **keywords)


def test_mistakes_in_a_call_are_named() -> None:
    plain: Any = group
    with pytest.raises(QueryError, match="cannot be named key"):
        group_of_one(plain, _key=lambda g: 1)
    with pytest.raises(QueryError, match="not negative"):
        group_of_one(plain, limit=-1)
    with pytest.raises(QueryError, match="is not a session"):
        plain([], Thing, key=lambda x: x.t)
    with pytest.raises(QueryError, match="a key is a function of 1"):
        plain([], key=lambda x, y: x)


def group_of_one(function: Any, **keywords: Any) -> None:
    try:
        function([], key=lambda x: x, **keywords)
    except QueryError as error:
        raise QueryError(str(error).replace("_key", "key")) from None


def test_objects_and_dicts_in_memory_are_grouped_by_the_rule_for_none() -> None:
    rows = [SimpleNamespace(a=1, n=3), SimpleNamespace(a=None, n=4), SimpleNamespace(a=1, n=None)]
    keywords: Any = {
        "key": lambda r: r.a + 1,
        "total": lambda g: sum(r.n for r in g),
        "some": lambda g: sum(r.n for r in g if r.n),
    }
    right = [(None, 4, 4), (2, None, 3)]
    assert [tuple(each) for each in group(rows, **keywords)] == right
    assert [tuple(each) for each in group([vars(each) for each in rows], **keywords)] == right


def test_keys_without_an_order_keep_the_order_in_which_they_were_met() -> None:
    one, two = SimpleNamespace(), SimpleNamespace()
    rows = [SimpleNamespace(key=key) for key in (two, one, two)]
    keyed: Any = {id(one): one, id(two): two}
    found = group(rows, key=lambda r: id(r.key), n=lambda g: len(g), order=lambda g: desc(g.n))
    assert [keyed[each.key] for each in found] == [two, one]
    objects = [object(), object()]
    assert [each.key for each in group(objects, key=lambda o: o, n=lambda g: len(g))] == objects


def test_groups_of_an_asynchronous_session() -> None:
    async def main() -> Any:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=sa.StaticPool)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all([thing(t="a"), thing(t="b"), thing(t="a")])
            found = await group(session, Thing, key=lambda x: x.t, n=lambda g: len(g))
        await engine.dispose()
        return found

    assert asyncio.run(main()) == [("a", 2), ("b", 1)]
