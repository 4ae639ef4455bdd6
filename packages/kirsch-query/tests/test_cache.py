"""The second use of a query takes the clause of the first, and means what its values are then."""

from __future__ import annotations

import datetime
import decimal
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.sql.util import ClauseAdapter

from kirsch_query import Refused, cache, comparison, where
from models import Colour, Item, Owner, Thing, stored

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def session(engine: sa.Engine) -> Any:
    named = Owner(name="a", rank=1)
    things = [
        Thing(t=text, s=None if at % 3 == 0 else text, j=at, i=None if at % 4 == 0 else at, g=at / 4, f=at / 2,
              sure=at % 2 == 0, colour=list(Colour)[at % len(Colour)], day=datetime.date(2024, 1, 1 + at),
              owner=named if at % 2 else None, items=[Item(n=at)])
        for at, text in enumerate(["", "a", "A", "ab", "b", "b ", "%", "_b", "\U0010ffff", "é", "10"])
    ]  # fmt: skip
    with stored(engine, [named, *things]) as session:
        yield session


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_kept", {})


def same(session: orm.Session, query: Any, model: Any = Thing) -> list[int]:
    """Return the rows that the database gives, after a check that memory gives the same."""
    rows = session.scalars(sa.select(model).order_by(model.id)).all()
    found = list(session.scalars(sa.select(model.id).where(query.clause(model)).order_by(model.id)))
    assert found == [each.id for each in query.filter(rows)]
    return found


def dialect(url: str) -> Any:
    return sa.make_url(url).get_dialect()()


SQLITE, POSTGRESQL = dialect("sqlite://"), dialect("postgresql+psycopg://")


def bound(clause: Any) -> list[Any]:
    """The values of a clause's parameters."""
    return list(clause.compile(dialect=SQLITE).params.values())


def kept() -> int:
    return sum(map(len, cache._kept.values()))


VALUES: list[tuple[str, list[Any]]] = [
    ("x.i < v", [3, 5, 2.5, 10**30, -(10**30), None, True, float("nan"), 7]),
    ("x.i == v", [3, 4, 2.5, 3.0, None, "3", 10**30, False]),
    ("x.i != v", [3, None, 4, 2.5]),
    ("not x.i >= v", [3, 4, None, 2.5]),
    ("x.f > v", [1, 1.5, 2, float("nan"), 0.0]),
    ("x.t == v", ["a", "A", "", None, 10, "b"]),
    ("x.t < v", ["a", "b", "\U0010ffff"]),
    ("x.t.startswith(v)", ["a", "", "b", "\U0010ffff", "%", "_", None, ("a", "b"), ("a",), ()]),
    ("x.t.endswith(v)", ["b", "", " ", ("b", "")]),
    ("v in x.t", ["a", "", "b", "%"]),
    ("x.t in v", ["ab", "b ", ["a", "b"], ["a"], [], ["A", None], ("b",), {"a", "é"}, {"a": 1}]),
    ("x.i in v", [[1, 2], [3, 5], [1, None], [None], [], [1, 2, 3], [1, "a"], [2.0], range(2, 5), range(3)]),
    ("x.i not in v", [[1, 2], [1, None], []]),
    ("x.i is v", [None, None]),
    ("v < x.i", [3, 4, 2.5]),
    ("v in (x.i, 5)", [3, 5, 4]),
    ("v in (x.i, x.j, v)", [3, 50]),
    ("x.i + v > 5", [1, 2, -1]),
    ("x.j // v == 1", [2, 3, -2]),
    ("x.t[v] == 'b'", [0, 1, -1]),
    ("x.t[:v] == 'a'", [1, 2, None, -1]),
    ("x.sure == v", [True, False, 1, 2, 0.0]),
    ("x.colour == v", [Colour(each) for each in Colour]),
    ("x.day > v", [datetime.date(2024, 1, 3), datetime.date(2024, 1, 8)]),
    ("v and x.i > 3", [True, False, 1, 0, "", "a", None]),
    ("x.i > 3 if v else x.i < 3", [True, False]),
    ("any(o.n > v for o in x.items)", [3, 5, None]),
    ("any(x.t == c for c in v)", ["ab", "b", ["a", "é"], ("a", "b")]),
    ("x.owner.name == v", ["a", "b", None]),
    ("(x.i if v else x.j) > 2", [True, False]),
    ("x.i > max(v, 2)", [1, 5]),
    ("x.i > v.real", [1, 5]),
    ("max(x.j, v) == 5", [5, 4, 6]),
]


@pytest.mark.parametrize(("text", "values"), VALUES)
def test_other_values_of_a_name_give_the_rows_of_those_values(
    session: orm.Session, text: str, values: list[Any]
) -> None:
    query = where("lambda x: " + text, v=None)
    holder = query.given  # type: ignore[attr-defined]
    for value in [*values, *values, *reversed(values)]:
        holder["v"] = value
        same(session, query)


def test_a_changed_closure_takes_the_kept_clause_and_its_own_values(session: orm.Session) -> None:
    limit, prefix = 9, "a"
    query = where(lambda x: x.j < limit and x.t.startswith(prefix))
    first = query.clause(Thing)
    assert same(session, query)
    limit, prefix = 6, "b"
    second = query.clause(Thing)
    assert same(session, query)
    assert kept() == 1
    assert bound(first) == [9, "a", "b"], "the clause that was made before keeps its values"
    assert bound(second) == [6, "b", "c"]


def selected(session: orm.Session, query: Any) -> list[int]:
    return [each.j for each in session.scalars(query.select(Thing).order_by(Thing.j))]


def test_select_gives_the_rows_of_the_clause_for_each_value(session: orm.Session) -> None:
    limit, prefix = 9, "a"
    query = where(lambda x: x.j < limit and x.t.startswith(prefix))
    table = Thing.__table__
    for limit, prefix in [(9, "a"), (2, "a"), (9, "b"), (9, ""), (2, "a")] * 2:
        statement = query.select(Thing)
        found = session.scalars(statement).all()
        assert set(found) == set(session.scalars(sa.select(Thing).where(query.clause(Thing))))
        assert selected(session, query) == sorted(each.j for each in found)
        assert sorted(row.j for row in session.execute(query.select(table))) == sorted(each.j for each in found)
        assert session.scalar(sa.select(sa.func.count()).select_from(statement.subquery())) == len(found)


def test_statements_of_select_are_executed_in_any_order_with_their_own_values(session: orm.Session) -> None:
    limit = 0
    query = where(lambda x: x.j < limit)
    statements = []
    for limit in range(12):
        statements.append(query.select(Thing))
    for number in (3, 0, 11, 3, 5):
        assert sorted(each.j for each in session.scalars(statements[number])) == list(range(min(number, 11)))
    both = sa.union_all(statements[2], statements[4]).subquery()
    assert session.scalar(sa.select(sa.func.count()).select_from(both)) == 6
    narrowed = statements[5].where(statements[3].whereclause, Thing.j > 0)  # type: ignore[arg-type]
    assert [each.j for each in session.scalars(narrowed.order_by(Thing.j))] == [1, 2]


def test_a_statement_of_select_takes_its_values_along_however_it_is_executed(session: orm.Session) -> None:
    limit = 0
    query = where(lambda x: x.j < limit)
    table = Thing.__table__
    connection = session.connection()
    for limit in (3, 5, 3, 11):
        statement = query.select(table)
        most: Any = sa.bindparam("most")
        ways = {
            "plain": connection.execute(statement),
            "no parameters": connection.execute(statement, {}),
            "not kept by SQLAlchemy": connection.execute(statement, execution_options={"compiled_cache": None}),
            "beside a parameter": connection.execute(statement.where(table.c.j <= most), {"most": 99}),
            "copied": connection.execute(statement._clone()),
            "annotated": connection.execute(statement._annotate({"a": 1})),
        }
        for name, result in ways.items():
            assert sorted(row.j for row in result) == list(range(limit)), name
        assert connection.scalar(statement.order_by(table.c.j.desc()).with_only_columns(table.c.j)) == limit - 1


def test_a_statement_without_parameters_is_copied_and_executed(session: orm.Session) -> None:
    query = where(lambda x: x.s is None)
    for _ in range(3):
        statement = query.select(Thing.__table__)
        assert len(session.execute(statement).all()) == 4
        assert len(session.execute(sa.select(statement._clone().subquery())).all()) == 4
        assert len(session.scalars(query.select(Thing).order_by(Thing.id)).all()) == 4


def test_listeners_see_the_values_of_a_statement_of_select(session: orm.Session) -> None:
    limit = 0
    query = where(lambda x: x.j < limit)
    seen: list[Any] = []
    connection = session.connection()

    def see(conn: Any, element: Any, many: Any, one: Any, options: Any) -> None:
        seen.append(sorted(one.values()))

    sa.event.listen(connection, "before_execute", see)
    try:
        for limit in (3, 5, 4):
            connection.execute(query.select(Thing.__table__)).all()
    finally:
        sa.event.remove(connection, "before_execute", see)
    assert seen[1:] == [[5], [4]]


def calls(use: Callable[[], object]) -> int:
    """How many functions a use calls. It is the same on a slow machine and on a fast one."""
    number = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        use()
    finally:
        sys.setprofile(before)
    return number


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="PyPy compiles calls away; CPython's are counted")
def test_second_use_of_a_query_makes_no_statement_anew() -> None:
    limit, prefix, table = 3, "a", Thing.__table__
    query = where(lambda x: x.j < limit and x.t.startswith(prefix))
    columns = table.c
    prepared = sa.select(table).where(
        columns.j < sa.bindparam("limit"), columns.t >= sa.bindparam("low"), columns.t < sa.bindparam("high")
    )
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.connect() as connection:
        Thing.metadata.create_all(connection)

        def by_query() -> Any:
            return connection.execute(query.select(table)).all()

        def beforehand() -> Any:
            return connection.execute(prepared, {"limit": limit, "low": "a", "high": "b"}).all()

        def by_hand() -> Any:
            return connection.execute(sa.select(table).where(columns.j < limit, columns.t.startswith("a"))).all()

        uses = (by_query, beforehand, by_hand)
        for each in uses * 3:
            each()
        limit = 4
        found = [calls(each) for each in uses]
    engine.dispose()
    assert found[0] < 2 * found[1], found
    assert found[0] < found[2] / 2, found


def test_relations_are_loaded_eagerly_by_a_statement_of_select(session: orm.Session) -> None:
    limit = 0
    query = where(lambda x: x.j < limit)
    for limit in (2, 5, 3):
        session.expire_all()
        for option in (orm.selectinload, orm.joinedload, orm.subqueryload):
            found = session.scalars(query.select(Thing).options(option(Thing.items))).unique().all()
            assert sorted(each.items[0].n for each in found) == list(range(limit))
        session.expire_all()
        found = session.scalars(query.select(Thing)).all()
        assert all((each.owner is None) == (each.j % 2 == 0) for each in found)


def test_two_clauses_of_one_query_in_one_statement_keep_their_values(session: orm.Session) -> None:
    limit = 2
    query = where(lambda x: x.j < limit)
    low = query.clause(Thing)
    limit = 8
    high = query.clause(Thing)
    ids = sa.select(Thing.j).order_by(Thing.j)
    for _ in range(2):
        assert list(session.scalars(ids.where(sa.or_(low, ~high)))) == [0, 1, 8, 9, 10]
        assert list(session.scalars(ids.where(high, sa.not_(low)))) == [2, 3, 4, 5, 6, 7]
        assert list(session.scalars(ids.where(low, low))) == [0, 1]
    assert "2" in str(low.compile(dialect=SQLITE, compile_kwargs={"literal_binds": True}))


def test_a_statement_that_adapts_the_clause_to_an_alias_reads_the_alias(session: orm.Session) -> None:
    limit = 3
    query = where(lambda x: x.j < limit and any(o.n >= limit - 2 for o in x.items))
    for limit in (3, 5, 3):
        subquery = sa.select(Thing).where(query.clause(Thing)).order_by(Thing.j).limit(10).subquery()
        other = orm.aliased(Thing, subquery)
        assert list(session.scalars(sa.select(other.j).order_by(other.j))) == list(range(limit - 2, limit))
        loaded = sa.select(Thing).where(query.clause(Thing)).order_by(Thing.j).options(orm.joinedload(Thing.items))
        found = session.scalars(loaded.limit(9)).unique().all()
        assert [each.j for each in found] == list(range(limit - 2, limit))


def test_a_copy_for_an_alias_is_another_clause_to_sqlalchemy(session: orm.Session) -> None:
    limit = 4
    query = where(lambda x: x.j < limit)
    table, clause = Thing.__table__, query.clause(Thing.__table__)
    alias = table.alias()
    copy = ClauseAdapter(alias).traverse(clause)
    for condition, rows in [(clause, 4 * 11), (copy, 11 * 4)] * 2:
        pairs = sa.select(table.c.j, alias.c.j).select_from(table.join(alias, sa.true())).where(condition)
        found = session.execute(pairs).all()
        assert len(found) == rows
        assert max(row[0 if condition is clause else 1] for row in found) == 3


def test_another_model_or_an_alias_has_a_clause_of_its_own(session: orm.Session) -> None:
    word = "a"
    query = where(lambda x: x.id > 0 and word == "a")
    assert len(same(session, query, Thing)) == 11
    assert len(same(session, query, Owner)) == 1
    alias = orm.aliased(Thing)
    assert len(list(session.scalars(sa.select(alias.id).where(query.clause(alias))))) == 11
    assert len(list(session.execute(sa.select(Thing.__table__).where(query.clause(Thing.__table__))))) == 11
    assert kept() == 3


def test_joined_and_negated_queries_keep_one_clause_for_all_their_values(session: orm.Session) -> None:
    def build(low: int, text: str) -> Any:
        return where(lambda x: x.j > low) & ~comparison("t", "startswith", text) | where(j=low)

    for low, text in [(2, "a"), (5, "b"), (3, "%")]:
        same(session, build(low, text))
    assert kept() == 1
    same(session, where(lambda x: x.j > 3) | comparison("t", "startswith", "a"))
    assert kept() == 2


def test_a_helper_is_read_anew_so_that_its_own_closure_counts(session: orm.Session) -> None:
    least = 3

    small: Any = lambda number: number < least  # noqa: E731

    query = where(lambda x: small(x.j))
    assert len(same(session, query)) == 3
    least = 5
    assert len(same(session, query)) == 5
    small = lambda number: number > 3  # noqa: E731
    assert len(same(session, query)) == 7


def test_an_expression_around_the_row_is_evaluated_once_in_each_use() -> None:
    calls = []

    def limit() -> int:
        calls.append(1)
        return len(calls)

    query = where(lambda x: x.j < limit())
    values = [bound(query.clause(Thing))[0] for _ in range(4)]
    assert values == [1, 2, 3, 4]
    assert kept() == 1


def test_a_refused_value_is_refused_after_one_that_was_not() -> None:
    holder = types.SimpleNamespace(value=3.5)
    query = where(lambda x: x.g < holder.value)
    query.clause(Thing)
    for bad in (decimal.Decimal(1), "a"):
        holder.value = bad
        with pytest.raises(Refused):
            query.clause(Thing)
    holder.value = 1.5
    assert bound(query.clause(Thing)) == [1.5]


def test_what_one_database_refuses_is_refused_of_the_kept_clause_too() -> None:
    query = where(lambda x: x.d > 1)
    for _ in range(3):
        clause = query.clause(Thing)
        with pytest.raises(Refused, match="SQLite has no decimals"):
            clause.compile(dialect=SQLITE)
        assert "thing.d >" in str(clause.compile(dialect=POSTGRESQL))
        with pytest.raises(Refused, match="SQLite has no decimals"):
            query.clause(Thing, dialect=SQLITE)


def test_a_decimal_is_bound_with_as_many_digits_as_its_column() -> None:
    limit = decimal.Decimal("1.5")
    query = where(lambda x: x.d > limit)
    first = query.clause(Thing)
    limit = decimal.Decimal("1.25")
    second = query.clause(Thing)
    scales: list[Any] = [next(iter(each.compile(dialect=POSTGRESQL).binds.values())).type for each in (first, second)]
    assert [each.scale for each in scales] == [2, 2]


def test_lists_of_any_length_share_one_clause(engine: sa.Engine) -> None:
    with stored(engine, [Thing(id=at, j=at, t=str(at), g=0.0, sure=True) for at in range(1, 60)]) as session:
        wanted, words = [1], {"1"}
        query = where(lambda x: x.j in wanted and x.t in words and x.i not in wanted)
        template: Any = None
        for length in (1, 2, 7, 50, 3):
            wanted, words = list(range(length)), set(map(str, range(length + 1)))
            prepared: Any = query.clause(Thing)
            assert template in (None, prepared.template)
            template = prepared.template
            assert [each.id for each in session.scalars(sa.select(Thing).where(prepared).order_by(Thing.id))] == [
                at for at in wanted if at
            ]
            assert [each.id for each in session.scalars(query.select(Thing).order_by(Thing.id))] == wanted[1:]
            assert len(session.scalars(query.select(Thing)).all()) == length - 1


def test_the_number_of_kept_clauses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_KEYS", 10)
    wanted: tuple[str, ...] = ()
    query = where(lambda x: x.t.startswith(wanted))
    for length in range(50):
        wanted = ("a",) * length
        query.clause(Thing)
    assert kept() == cache.MOST_CLAUSES
    for number in range(50):
        where(f"x.j < {number}").clause(Thing)
    assert len(cache._kept) == 10


def test_threads_that_share_a_query_get_each_their_own_values() -> None:
    failed: list[Any] = []

    def use(number: int) -> None:
        wanted: list[int] = []
        query = where(lambda x: x.j in wanted and x.i < number)
        for at in range(100):
            wanted = list(range(number, number + at % 12))
            found = bound(query.clause(Thing))
            if found != ([wanted, number] if wanted else []):
                failed.append((number, wanted, found))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
