"""Random groupings of a session's rows, some of them unsaved: each database gives what Python gives for the objects."""

from __future__ import annotations

import collections
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

import agreement
import generate
from databases import own_engine
from kirsch_query import Refused, group
from kirsch_query.merging import MOST_TOGETHER
from models import Colour, Owner, Thing, insert, wipe

ROWS = 40
CASES_EACH = 25
"""How many groupings are asked for of the same rows."""
RAISED = (TypeError, ZeroDivisionError, OverflowError, AttributeError, LookupError, ValueError)


@dataclass
class Outcome:
    """The numbers of groupings by their outcome, and the differences."""

    name: str
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)


class Groupings:
    """A source of random keys, aggregates, conditions and orders, as text."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.predicates = generate.Predicates(chance)

    def part(self) -> str:
        c, p = self.chance, self.predicates
        return c.choice(
            [
                c.choice(["x.i", "x.j", "x.big", "x.s", "x.t", "x.flag", "x.sure", "x.day", "x.at", "x.clock", "x.d"]),
                c.choice(["x.colour", "x.uid", "x.data", "x.owner", "x.owner.boss", "x.owner.name", "x.owner.rank"]),
                c.choice(["x.at.date()", "x.at.year", "x.day.weekday()", "len(x.items)", "limit", "None", "x"]),
                p.integer(1, "x"), p.text(1, "x"), f"({p.boolean(1, 'x')})", f"({p.predicate(1)})",
            ]
        )  # fmt: skip

    def key(self) -> str:
        c = self.chance
        return (
            self.part() if c.random() < 0.6 else f"({', '.join(self.part() for _ in range(c.choice([1, 2, 2, 3])))},)"
        )

    def call(self) -> str:
        c, p = self.chance, self.predicates
        some = c.choice(["", "", f" if {p.predicate(c.choice([0, 1]))}", " if x.i is not None"])
        item = c.choice(["x.i", "x.j", "x.d", "x.sure", p.integer(1, "x"), p.integer(1, "x")])
        best = c.choice([item, "x.s", "x.t", "x.day", "x.at", p.text(1, "x")])
        own = c.choice([item, best, "x.colour", "x.uid", "x.clock", "x.flag", "x.owner.name", "x.owner.id"])
        return c.choice(
            [
                "len(g)", f"len([x for x in g{some}])", f"sum({item} for x in g{some})", f"sum(1 for x in g{some})",
                f"min({best} for x in g{some})", f"max([{best} for x in g{some}])", f"len({{{own} for x in g{some}}})",
                f"{c.choice(['any', 'all'])}({p.predicate(1)} for x in g{some})",
            ]
        )  # fmt: skip

    def aggregate(self) -> str:
        c = self.chance
        one, two = self.call(), self.call()
        number = f"sum({self.predicates.integer(0, 'x')} for x in g)"
        if c.random() < 0.5:
            return one
        return c.choice(
            [
                f"{number} / len(g)", f"{number} + len(g)", f"{one} if {two} else {number}", f"{number} > 3", "3",
                f"{number} // len(g)", f"{one} is None", f"{one} == {two}", f"({one} or {two})",
            ]
        )  # fmt: skip

    def condition(self, key: str) -> str:
        c = self.chance
        part = f"g.key{c.choice(['', '[0]'])}" if key.startswith("(") else "g.key"
        return c.choice(
            [
                "not g.a",
                "g.a",
                f"g.a {c.choice(['<', '>=', '==', '!='])} {c.choice(['3', '0', 'g.b', 'limit'])}",
                f"{part} {c.choice(['is', 'is not'])} None",
                f"{part} {c.choice(['==', '!='])} {c.choice(['3', 'word', 'True'])}",
                f"{part}.rank > 0", f"not (g.a < g.b or {part} is None)", "g.a in (1, 2, None)", "g.a + g.b > 3",
            ]
        )  # fmt: skip

    def order(self) -> str:
        return self.chance.choice(["g.a", "desc(g.a)", "(g.b, desc(g.a))", "g.a + 1", "len(g.a)", "(desc(g.b),)"])


def change(session: orm.Session, things: list[Any], owners: list[Any], chance: random.Random) -> list[Any]:
    """Change some of a session's rows without a flush, and return those that there are afterwards."""
    things = list(things)
    for _ in range(chance.choice([0, 0, 1, 2, 5])):
        what = chance.choice(["add", "add", "edit", "edit", "delete"])
        (new,) = (each for each in generate.rows(chance, 1) if isinstance(each, Thing))
        values = {
            name: getattr(new, name) for name in ("i", "j", "big", "d", "s", "t", "flag", "sure", "day", "colour")
        }
        if what == "delete":
            gone = things.pop(chance.randrange(len(things)))
            (session.expunge if gone in session.new else session.delete)(gone)
        elif what == "add":
            made = Thing(**values, g=0.0, owner_id=None)
            if chance.random() < 0.5:
                made.owner = chance.choice(owners)
            session.add(made)
            things.append(made)
        else:
            edited = chance.choice(things)
            for name, value in values.items():
                if chance.random() < 0.4:
                    setattr(edited, name, value)
            if chance.random() < 0.2:
                edited.owner = chance.choice([None, *owners])
    return things


def alike(one: Any, other: Any) -> bool:
    """Return whether two results are the same, their types included."""
    return len(one) == len(other) and all(
        type(x) is type(y) and (alike(x, y) if isinstance(x, tuple) else x == y or x != x)
        for x, y in zip(one, other, strict=True)
    )


def by_hand(rows: list[Any], key: Any, aggregates: dict[str, Any]) -> dict[Any, dict[str, Any]] | None:
    """Return the groups by Python alone; None where a key raises. An aggregate that raises is left out."""
    found: dict[Any, list[Any]] = {}
    try:
        for row in rows:
            found.setdefault(key(row), []).append(row)
    except RAISED:
        return None
    results: dict[Any, dict[str, Any]] = {}
    for each, members in found.items():
        results[each] = {}
        for name, function in aggregates.items():
            try:
                results[each][name] = function(members)
            except RAISED:
                continue
    return results


def run(seed: int, cases: int, name: str, url: str) -> Outcome:
    """Try some groupings on one database."""
    warnings.simplefilter("ignore", SyntaxWarning)
    outcome = Outcome(name)
    chance = random.Random(seed)
    source = Groupings(chance)
    engine = own_engine(name, url, seed)
    session = orm.Session(engine, autoflush=False)
    overflows = -1
    things: list[Any] = []
    for number in range(cases):
        if number % CASES_EACH == 0 or outcome.counts["overflows"] != overflows:
            overflows = outcome.counts["overflows"]  # after one, the session's changes are gone
            session.close()
            wipe(session)
            insert(session, generate.rows(chance, ROWS))
            saved = list(session.scalars(sa.select(Thing)))
            owners = list(session.scalars(sa.select(Owner).order_by(Owner.id)))
            things = change(session, saved, owners, chance)
        texts = {"key": source.key(), "a": source.aggregate(), "b": source.aggregate()}
        if chance.random() < 0.5:
            texts["having"] = source.condition(texts["key"])
        if chance.random() < 0.4:
            texts["order"] = source.order()
        given: dict[str, Any] = {each: function(text, "x" if each == "key" else "g") for each, text in texts.items()}
        if chance.random() < 0.4:
            given |= {"limit": chance.choice([0, 1, 3, 10]), "offset": chance.choice([0, 0, 2])}
        problem = compare(outcome, session, things, given)
        if problem:
            outcome.failures.append(f"{name}, seed {seed}, {number}: {texts} {given.get('limit')} {problem}")
    session.close()
    return outcome


def function(text: str, argument: str) -> Any:
    """Return a function of a row or a group, with a source as if it were in a file."""
    import linecache

    source = f"lambda {argument}: {text}\n"
    linecache.cache[source] = (0, None, [source], source)
    from kirsch_query import desc

    return eval(compile(source, source, "eval"), {**generate.Predicates.names, "desc": desc, "Colour": Colour})


def compare(outcome: Outcome, session: orm.Session, things: list[Any], given: dict[str, Any]) -> str | None:
    """Return the difference between a grouping by the database and by Python; None if there is none."""
    try:
        here = group(things, **given)
    except RAISED:
        outcome.counts["raised"] += 1
        return None
    try:
        there = group(session, Thing, **given)
    except Refused as refused:
        outcome.counts["unsaved" if "lush" in str(refused) else "refused"] += 1
        return None
    except sa.exc.DBAPIError as error:
        session.rollback()
        outcome.counts["overflows"] += 1
        return None if agreement.is_overflow(error) else str(error)
    except RAISED:
        outcome.counts["raised"] += 1
        return None
    outcome.counts["compared"] += 1
    outcome.counts["unsaved rows"] += bool(session.new or session.dirty or session.deleted)
    if not alike(there, here):
        return f"\nPython {here}\nSQL    {there}"
    raw = by_hand(things, given["key"], {name: given[name] for name in ("a", "b")})
    if raw is not None:
        for each in here:
            for name, value in raw[each.key].items():
                if not alike((value,), (getattr(each, name),)):
                    return f"by hand, {each.key} has {name} {value}, and not {getattr(each, name)}"
    assert len(things) < MOST_TOGETHER
    return None
