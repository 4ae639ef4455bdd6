"""Random queries over random rows: each database gives the rows that Python gives, or the query is refused.

``QUERY_CASES`` says how many queries there are for each database (2,000), ``QUERY_SEED`` which (0). Each query is
compared in the columns of a SELECT, fifty at a time, and every twentieth alone in a WHERE too.
"""

from __future__ import annotations

import ast
import os
import random
import warnings
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import generate
from kirsch_query import Refused, Where, where
from models import Item, Owner, Thing, insert, wipe

CASES = int(os.environ.get("QUERY_CASES", "2000"))
SEED = int(os.environ.get("QUERY_SEED", "0"))
ROWS = 48
BATCH = 50
ALONE = 20

Query = tuple[str, "Where[Any]"]


def query(text: str) -> Where[Any]:
    return where(f"lambda x: {text}", **generate.Predicates.names)


class World:
    """The rows of one database, in memory and there."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.session = orm.Session(engine)
        wipe(self.session)
        insert(self.session, generate.rows(random.Random(SEED + 1), ROWS))
        options = [orm.selectinload(Thing.items), orm.selectinload(Thing.owner)]
        self.things = list(self.session.scalars(sa.select(Thing).options(*options).order_by(Thing.id)))
        everything = [*self.session.scalars(sa.select(Owner)), *self.session.scalars(sa.select(Item))]
        for owner in everything:
            if isinstance(owner, Owner):
                assert owner.boss is not owner  # read now, while nothing else is asked
                assert owner.things is not None
        self.connection = engine.connect()

    def close(self) -> None:
        self.connection.close()
        self.session.close()

    def memory(self, query: Where[Any]) -> list[int]:
        return [thing.id for thing in query.filter(self.things)]

    def raw(self, text: str) -> dict[int, bool]:
        """What Python itself says, of the rows for which it does not raise."""
        names = dict(generate.Predicates.names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            function = eval(f"lambda x: {text}", names)
        found = {}
        for thing in self.things:
            try:
                found[thing.id] = bool(function(thing))
            except (TypeError, AttributeError, ZeroDivisionError, IndexError):
                continue
        return found

    def columns(self, queries: list[Query]) -> list[list[int] | Exception]:
        """The rows for which each query holds, by one SELECT; by one for each where the database raises an error."""
        cases = [sa.case((each.clause(Thing, dialect=self.engine.dialect), 1), else_=0) for _, each in queries]
        try:
            rows = self.connection.execute(sa.select(Thing.id, *cases).order_by(Thing.id)).all()
        except sa.exc.DBAPIError as error:
            self.connection.rollback()
            if len(queries) == 1:
                return [error]
            return [found for each in queries for found in self.columns([each])]
        return [[row[0] for row in rows if row[number + 1]] for number in range(len(queries))]

    def alone(self, query: Where[Any]) -> list[int] | Exception:
        try:
            clause = query.clause(Thing)
            return list(self.connection.scalars(sa.select(Thing.id).where(clause).order_by(Thing.id)))
        except sa.exc.DBAPIError as error:
            self.connection.rollback()
            return error


def is_refusal(error: Exception) -> bool:
    """Whether the database refused to calculate, and did not reject the SQL."""
    text = str(error).lower()
    return any(each in text for each in ("overflow", "out of range", "underflow"))


def shrunk(world: World, text: str) -> str:
    """A smaller query that still disagrees."""
    tree = ast.parse(text, mode="eval").body
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(tree):
            candidate = ast.unparse(smaller)
            try:
                each = query(candidate)
                (found,) = world.columns([(candidate, each)])
                wrong = found != world.memory(each)
            except Exception:
                continue
            if wrong and not isinstance(found, Exception):
                tree, changed = smaller, True
                break
    return ast.unparse(tree)


def _smaller(tree: ast.expr) -> list[ast.expr]:
    pairs = [(node, child) for node in ast.walk(tree) for child in ast.iter_child_nodes(node)]
    return [
        child if node is tree else _replaced(tree, node, child)
        for node, child in pairs
        if isinstance(node, ast.expr)
        and isinstance(child, ast.expr)
        and len(ast.unparse(child)) < len(ast.unparse(node))
    ]


def _replaced(tree: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return new if node is old else super().generic_visit(node)

    import copy

    memo: dict[int, Any] = {id(old): old, id(new): new}
    replaced: ast.expr = Replace().visit(copy.deepcopy(tree, memo))
    return replaced


def report(world: World, text: str, found: Any) -> str:
    small = shrunk(world, text) if isinstance(found, list) else text
    each = query(small)
    sql = each.clause(Thing, dialect=world.engine.dialect).compile(dialect=world.engine.dialect)
    (there,) = world.columns([(small, each)])
    here = world.memory(each)
    wrong = set(here) ^ set(there) if isinstance(there, list) else set()
    rows = [thing for thing in world.things if thing.id in wrong][:3]
    shown = [
        {name: getattr(row, name) for name in row.__mapper__.column_attrs.keys()}  # noqa: SIM118
        for row in rows
    ]
    return f"seed {SEED}: {text}\nsmaller: {small}\nPython {here}\nSQL    {there}\n{sql}\n{sql.params}\nrows {shown}"


@pytest.fixture(scope="module")
def world(engine: sa.Engine) -> Any:
    world = World(engine)
    yield world
    world.close()


def test_random_queries_give_the_rows_that_python_gives(world: World) -> None:
    print(f"seed {SEED}, {CASES} queries; QUERY_SEED and QUERY_CASES change them")
    chance = random.Random(SEED)
    predicates = generate.Predicates(chance)
    refused = raised = errors = compared = alone = 0
    batch: list[Query] = []

    def judge() -> None:
        nonlocal errors, compared
        for (text, each), found in zip(batch, world.columns(batch), strict=True):
            here = world.memory(each)
            if isinstance(found, Exception):
                assert is_refusal(found), f"seed {SEED}: {text}\n{found}"
                errors += 1
                continue
            assert found == here, report(world, text, found)
            raw = world.raw(text)
            wrong = [number for number, holds in raw.items() if holds != (number in set(here))]
            assert not wrong, f"seed {SEED}: {text}: memory differs from Python on rows {wrong}"
            compared += 1
        batch.clear()

    for number in range(CASES):
        text = predicates.predicate(chance.choice([1, 2, 2, 3]))
        each = query(text)
        try:
            each.clause(Thing, dialect=world.engine.dialect)
        except Refused:
            refused += 1
            continue
        except (TypeError, ZeroDivisionError, OverflowError, AttributeError, IndexError):
            raised += 1  # a part that no row is in: Python raises, and so does the translation
            continue
        batch.append((text, each))
        if len(batch) == BATCH:
            judge()
        if number % ALONE == 0:
            found = world.alone(each)
            if isinstance(found, Exception):
                assert is_refusal(found), f"seed {SEED}: {text}\n{found}"
            else:
                assert found == world.memory(each), report(world, text, found)
                alone += 1
    judge()
    print(
        f"{world.engine.dialect.name}: {compared} compared, {alone} alone, {refused} refused, {raised} raised, "
        f"{errors} overflows"
    )
    # A test that refuses nearly everything would prove nothing.
    assert compared > CASES * 0.5
    assert errors < CASES * 0.15
