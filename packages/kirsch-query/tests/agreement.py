"""Random queries over random rows: run each on every database, and compare with what Python gives.

One call of :func:`run` is one chunk: some rows, the same in all databases, and some queries. Chunks need nothing of
each other, so that several processes share the work.
"""

from __future__ import annotations

import ast
import copy
import gc
import linecache
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

import generate
from databases import own_engine
from kirsch_query import Refused, Where, learn_collations
from kirsch_query.kinds import KNOWN
from kirsch_query.order import ordering
from kirsch_query.pending import Changes
from models import Base, Item, Owner, Thing, insert, wipe

ROWS = 40
CHUNK = 2000
"""The number of queries in a chunk of many."""
BATCH = 50

Clause = tuple[str, Any]
"""The text of a query, and its condition in SQL."""


@dataclass
class Counts:
    """The numbers of queries on one database, by their outcome."""

    compared: int = 0
    alone: int = 0
    ordered: int = 0
    refused: int = 0
    overflows: int = 0


@dataclass
class Outcome:
    """The result of a chunk."""

    seed: int
    cases: int = 0
    raised: int = 0
    counts: dict[str, Counts] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """Differences, shrunk."""

    def add(self, other: Outcome) -> None:
        self.cases += other.cases
        self.raised += other.raised
        self.failures += other.failures
        for name, counts in other.counts.items():
            mine = self.counts.setdefault(name, Counts())
            for each in vars(counts):
                setattr(mine, each, getattr(mine, each) + getattr(counts, each))


def query(text: str) -> Where[Any]:
    return generate.asked(text, generate.Predicates.names)


class Database:
    """One database with the rows of a chunk."""

    def __init__(self, name: str, engine: sa.Engine, seed: int) -> None:
        self.name = name
        self.engine = engine
        self.counts = Counts()
        self.batch: list[Clause] = []
        with orm.Session(engine) as session:
            wipe(session)
            insert(session, generate.rows(random.Random(seed), ROWS))
        self.connection = engine.connect()

    def close(self) -> None:
        self.connection.close()

    def things(self) -> list[Any]:
        """The rows as objects, with all that they refer to."""
        with orm.Session(self.engine) as session:
            options = [orm.selectinload(Thing.items), orm.selectinload(Thing.owner)]
            things = list(session.scalars(sa.select(Thing).options(*options).order_by(Thing.id)))
            for each in [*session.scalars(sa.select(Owner)), *session.scalars(sa.select(Item))]:
                if isinstance(each, Owner):
                    assert each.boss is not each  # loads it
                    assert [getattr(each, name, None) for name in ("desk", "bonus")]
                    assert each.things is not None
            session.expunge_all()
        return things

    def columns(self, clauses: list[Clause]) -> list[list[int] | Exception]:
        """The rows for which each clause holds, by one SELECT; after an error of the database, by one of each half."""
        statement = sa.select(Thing.id, *(each for _, each in clauses)).order_by(Thing.id)
        # Compiled as Core does it, which takes half the time; alone() takes the way of the ORM.
        statement._propagate_attrs = sa.util.EMPTY_DICT
        try:
            rows = self.connection.execute(statement, execution_options={"compiled_cache": None}).all()
        except sa.exc.DBAPIError as error:
            self.connection.rollback()
            if len(clauses) == 1:
                return [error]
            half = len(clauses) // 2
            return [*self.columns(clauses[:half]), *self.columns(clauses[half:])]
        numbers = [row[0] for row in rows]
        return [
            [number for number, holds in zip(numbers, column, strict=True) if holds]
            for column in list(zip(*rows, strict=True))[1:]
        ]

    def alone(self, query: Where[Any]) -> list[int] | Exception:
        """The rows for which a query holds, in a WHERE."""
        try:
            return list(self.connection.scalars(sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id)))
        except sa.exc.DBAPIError as error:
            self.connection.rollback()
            return error

    def ordered(self, text: str) -> tuple[list[int], list[int]] | Exception:
        """The rows by a key, as the database sorts them and as memory does."""
        with orm.Session(self.engine, autoflush=False) as session:
            order = ordering(key(text), [Thing], self.engine.dialect, [Changes(session, Thing)])
            try:
                there = session.scalars(order.applied(sa.select(Thing))).all()
                return [each.id for each in there], [each.id for each in sorted(there, key=lambda x: order.key((x,)))]
            except sa.exc.DBAPIError as error:
                return error


def key(text: str) -> Any:
    """A function of a row, with a source as if it were in a file."""
    linecache.cache["key.py"] = (0, None, [f"lambda x: {text}\n"], "key.py")
    return eval(compile(f"lambda x: {text}\n", "key.py", "eval"), dict(generate.Predicates.names))


class World:
    """The rows of one chunk in memory, and the databases that have them."""

    def __init__(self, seed: int, urls: dict[str, str]) -> None:
        self.seed = seed
        # Every other chunk knows the collations of the columns, and every few have databases of another collation.
        number = seed // CHUNK
        self.databases = [Database(name, own_engine(name, url, number // 2), seed) for name, url in urls.items()]
        for table in Base.metadata.sorted_tables:
            for column in table.columns:
                column.info.pop(KNOWN, None)
        if number % 2 == 0:
            for each in self.databases:
                learn_collations(each.engine, Thing, Owner, Item)
        self.things = self.databases[0].things()
        names = [each.key for each in sa.inspect(Thing).column_attrs]
        for other in self.databases[1:]:
            for one, two in zip(self.things, other.things(), strict=True):
                for name in names:
                    assert getattr(one, name) == getattr(two, name), f"{other.name} stores {name} as it was given"

    def close(self) -> None:
        for each in self.databases:
            each.close()

    def memory(self, query: Where[Any]) -> list[int]:
        return [thing.id for thing in query.filter(self.things)]

    def raw(self, text: str) -> dict[int, bool]:
        """Return Python's own result for each row for which the expression does not raise."""
        names = dict(generate.Predicates.names)
        function = eval(f"lambda x: {text}", names)
        found = {}
        for thing in self.things:
            try:
                found[thing.id] = bool(function(thing))
            except (TypeError, AttributeError, ArithmeticError, LookupError):
                continue
            except ValueError as error:
                assert "empty" in str(error), "min() or max() of nothing"  # noqa: PT017 - others are mistakes
        return found

    def judge(self, database: Database, text: str, found: Any, here: list[int]) -> str | None:
        """Why what a database gives is wrong; None where it is right."""
        if isinstance(found, Exception):
            database.counts.overflows += 1
            return None if is_overflow(found) else f"{database.name}, seed {self.seed}: {text}\n{found}"
        return None if found == here else report(self, database, text)

    def judge_order(self, text: str) -> list[str]:
        """Return the differences between the order of the databases and that of memory, by a key."""
        wrong = []
        for database in self.databases:
            try:
                found = database.ordered(text)
            except (Refused, TypeError, ArithmeticError, AttributeError, LookupError):
                continue
            if isinstance(found, Exception):
                if not is_overflow(found):
                    wrong.append(f"{database.name}, seed {self.seed}, order by {text}\n{found}")
                continue
            database.counts.ordered += 1
            if found[0] != found[1]:
                wrong.append(
                    f"{database.name}, seed {self.seed}, order by {text}\nPython {found[1]}\nSQL    {found[0]}"
                )
        return wrong


def run(seed: int, cases: int, urls: dict[str, str], alone: int) -> Outcome:
    """Try ``cases`` queries on the databases, each ``alone``th of them also by itself in a WHERE."""
    gc.disable()  # looking for circles takes a fifth of the time, and a chunk leaves some 50 MB of them
    warnings.simplefilter("ignore", SyntaxWarning)  # of the functions that are made of the texts
    outcome = Outcome(seed, cases)
    world = World(seed, urls)
    chance = random.Random(seed)
    predicates = generate.Predicates(chance)
    expected: dict[str, list[int]] = {}

    def compare(database: Database) -> None:
        for (text, _), found in zip(database.batch, database.columns(database.batch), strict=True):
            database.counts.compared += not isinstance(found, Exception)
            if problem := world.judge(database, text, found, expected[text]):
                outcome.failures.append(problem)
        database.batch.clear()

    for number in range(cases):
        if number % alone == 0:
            outcome.failures += world.judge_order(predicates.key())
        text = predicates.predicate(chance.choice([1, 2, 2, 3]))
        each = query(text)
        try:
            clause: Any = each.clause(Thing)
        except Refused:
            for database in world.databases:
                database.counts.refused += 1
            continue
        except (TypeError, ArithmeticError, AttributeError, LookupError):
            outcome.raised += 1  # a part that no row is in: Python raises, and so does the translation
            continue
        here = expected[text] = world.memory(each)
        holds = set(here)
        wrong = [at for at, raw in world.raw(text).items() if raw != (at in holds)]
        if wrong:
            outcome.failures.append(f"seed {seed}: {text}: memory differs from Python on rows {wrong}")
        for database in world.databases:
            if database.name in clause.refusals:
                database.counts.refused += 1
                continue
            database.batch.append((text, clause))
            if len(database.batch) == BATCH:
                compare(database)
            if number % alone == 0:
                database.counts.alone += 1
                if problem := world.judge(database, text, database.alone(each), here):
                    outcome.failures.append(problem)
    for database in world.databases:
        compare(database)
        outcome.counts[database.name] = database.counts
    world.close()
    gc.enable()
    gc.collect()
    return outcome


def is_overflow(error: Exception) -> bool:
    """Return whether the database refused to calculate, and did not reject the SQL."""
    text = str(error).lower()
    return any(each in text for each in ("overflow", "out of range", "underflow"))


def shrunk(world: World, database: Database, text: str) -> str:
    """A smaller query that still disagrees."""
    tree = ast.parse(text, mode="eval").body
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(tree):
            candidate = ast.unparse(smaller)
            try:
                each = query(candidate)
                (found,) = database.columns([(candidate, each.clause(Thing))])
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

    memo: dict[int, Any] = {id(old): old, id(new): new}
    replaced: ast.expr = Replace().visit(copy.deepcopy(tree, memo))
    return replaced


def report(world: World, database: Database, text: str) -> str:
    """A difference: the smallest query that shows it, both results, SQL, and some of the rows that differ."""
    small = shrunk(world, database, text)
    each = query(small)
    sql = each.clause(Thing).compile(dialect=database.engine.dialect)
    (there,) = database.columns([(small, each.clause(Thing))])
    here = world.memory(each)
    wrong = set(here) ^ set(there) if isinstance(there, list) else set()
    names = [each.key for each in sa.inspect(Thing).column_attrs]
    rows = [{name: getattr(thing, name) for name in names} for thing in world.things if thing.id in wrong][:3]
    return (
        f"{database.name}, seed {world.seed}: {text}\nsmaller: {small}\nPython {here}\nSQL    {there}\n"
        f"{sql}\n{sql.params}\nrows {rows}"
    )
