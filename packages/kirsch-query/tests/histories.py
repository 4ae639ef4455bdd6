"""Random histories of a session: what recall() and the others give, compared with a list of dicts after each step."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm

from databases import own_engine
from kirsch_query import count, desc, exists, recall, total, where
from models import Thing, wipe

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]

limit = 3

# Each query with the same condition for a dict, written by hand: a comparison with None is false.
QUERIES: dict[str, tuple[Any, Callable[[Row], bool]]] = {
    "small": (where(lambda x: x.j < limit), lambda row: row["j"] < limit),
    "not small": (where(lambda x: not x.i < limit), lambda row: row["i"] is None or not row["i"] < limit),
    "text": (where(lambda x: x.t.startswith("a") or x.s == "B"), lambda row: row["t"][:1] == "a" or row["s"] == "B"),
    "none": (where(lambda x: x.i is None or x.i != x.j), lambda row: row["i"] is None or row["i"] != row["j"]),
    "even": (where(lambda x: x.i % 2 == 0), lambda row: row["i"] is not None and row["i"] % 2 == 0),
    "joined": (where(lambda x: x.j > 0) & ~where(s="a"), lambda row: row["j"] > 0 and row["s"] != "a"),
    "longer": (
        where(lambda x: len(x.s) > len(x.t)),
        lambda row: row["s"] is not None and len(row["s"]) > len(row["t"]),
    ),
}
FOLLOWING = where(lambda x, y: x.j + 1 == y.i)
TEXTS = ["a", "A", "ab", "B", "b", "é", "", "a ", "😀"]


def none_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


# Each order as the function for recall(), and as keys of a dict with whether they descend.
ORDERS: dict[str, tuple[Any, list[tuple[Callable[[Row], Any], bool]]]] = {
    "j": (lambda x: x.j, [(lambda row: row["j"], False)]),
    "i, t": (lambda x: (x.i, desc(x.t)), [(lambda row: none_first(row["i"]), False), (lambda row: row["t"], True)]),
    "text": (lambda x: x.s, [(lambda row: (row["s"] is not None, row["s"] or ""), False)]),
    "descending": (
        lambda x: (desc(x.i), x.j),
        [(lambda row: none_first(row["i"]), True), (lambda row: row["j"], False)],
    ),
    "remainder": (
        lambda x: (x.j % 2, desc(x.j + 1)),
        [(lambda row: row["j"] % 2, False), (lambda row: row["j"], True)],
    ),
}


class History:
    """A session and the list of dicts that it should look like."""

    def __init__(self, session: orm.Session, chance: random.Random) -> None:
        self.session = session
        self.chance = chance
        self.rows: list[Row] = []
        self.added = 0
        self.steps: list[str] = []

    def values(self) -> Row:
        c = self.chance
        return {
            "i": c.choice([None, -3, -2, 0, 1, 2, 3, 4]), "j": c.choice([0, 1, 2, 3, 4]),
            "s": c.choice([None, *TEXTS]), "t": c.choice(TEXTS),
        }  # fmt: skip

    def add(self) -> None:
        row = self.values()
        given = {"g": 0.0, "sure": False, "d": None, "owner_id": None, **row}
        row["thing"] = Thing(**given)
        self.added += 1
        row["added"] = self.added
        self.session.add(row["thing"])
        self.rows.append(row)

    def step(self) -> None:
        """Change something."""
        what = self.chance.choice(["add", "add", "edit", "edit", "delete", "flush", "expire"])
        if not self.rows:
            what = "add"
        self.steps.append(what)
        if what == "add":
            self.add()
        elif what == "edit":
            row = self.chance.choice(self.rows)
            for name, value in self.values().items():
                if self.chance.random() < 0.5:
                    row[name] = value
                    setattr(row["thing"], name, value)
        elif what == "delete":
            thing = self.rows.pop(self.chance.randrange(len(self.rows)))["thing"]
            (self.session.expunge if thing in self.session.new else self.session.delete)(thing)
        else:
            self.session.flush()
            if what == "expire":
                self.session.expire_all()

    def expected(self, name: str, order: str | None, limit: int | None, offset: int) -> list[Any]:
        found = [row for row in self.rows if QUERIES[name][1](row)]
        # Equal keys: by primary key. Rows that have none yet follow in the order in which a flush will insert them.
        # SQLAlchemy numbers them by how many new objects the session has then, which are fewer after one was expunged.
        states = {row["added"]: sa.inspect(row["thing"]) for row in found}

        def place(row: Row) -> Any:
            state = states[row["added"]]
            return (0, state.identity) if state.identity else (1, state.insert_order, row["added"])

        found.sort(key=place)
        for key, descends in reversed(ORDERS[order][1] if order else []):
            found.sort(key=key, reverse=descends)
        return [row["thing"] for row in found[offset : None if limit is None else offset + limit]]

    def ask(self) -> str | None:
        """Ask something, and say what is wrong with the result; None where it is right."""
        global limit
        c, session = self.chance, self.session
        limit = c.choice([1, 3, 3, 4])
        name, order = c.choice(list(QUERIES)), c.choice([None, *ORDERS])
        most, offset = c.choice([None, 0, 1, 2, 5]), c.choice([0, 0, 1, 3])
        unsaved = [set(each) for each in (session.new, session.dirty, session.deleted)]
        query = QUERIES[name][0]
        everything = [row for row in self.rows if QUERIES[name][1](row)]
        what = c.choice(["recall", "recall", "recall", "count", "exists", "total", "pairs"])
        found: Any
        right: Any
        if what == "recall":
            found = recall(session, Thing, query, order=ORDERS[order][0] if order else None, limit=most, offset=offset)
            right = self.expected(name, order, most, offset)
        elif what == "count":
            found, right = count(session, Thing, query), len(everything)
        elif what == "exists":
            found, right = exists(session, Thing, query), bool(everything)
        elif what == "total":
            found = total(session, Thing, query, lambda x: x.i + x.j)
            right = sum(row["i"] + row["j"] for row in everything if row["i"] is not None)
        else:
            found = {(id(x), id(y)) for x, y in recall(session, (Thing, Thing), FOLLOWING)}
            right = {(id(x["thing"]), id(y["thing"])) for x in self.rows for y in self.rows if x["j"] + 1 == y["i"]}
        if found != right:
            return f"{what} {name!r} order={order!r} limit={most} offset={offset} value={limit}: {found} is not {right}"
        if unsaved != [set(each) for each in (session.new, session.dirty, session.deleted)]:
            return f"{what} {name!r} has flushed"
        return None


def play(session: orm.Session, seed: int, steps: int) -> str | None:
    """One history; what went wrong in it."""
    history = History(session, random.Random(seed))
    for _ in range(history.chance.randrange(5)):
        history.add()
    if history.chance.random() < 0.7:
        session.flush()
        session.expire_all()
    for _ in range(steps):
        history.step()
        if problem := history.ask():
            return f"after {', '.join(history.steps)}: {problem}"
    return None


def run(seed: int, histories: int, name: str, url: str, steps: int) -> tuple[str, int, list[str]]:
    """Play some histories on one database. A failure is played again with fewer steps, to find the shortest."""
    failures = []
    with orm.Session(own_engine(name, url), autoflush=False) as session:
        wipe(session)
        for number in range(seed, seed + histories):
            problem = play(session, number, steps)
            session.rollback()
            if problem:
                for fewer in range(1, steps):
                    shorter = play(session, number, fewer)
                    session.rollback()
                    if shorter:
                        problem = shorter
                        break
                failures.append(f"{name}, seed {number}, {problem}")
    return name, histories, failures
