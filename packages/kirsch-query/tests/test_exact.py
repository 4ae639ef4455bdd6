"""Queries that a reader of the documentation may try next: the three databases are exact, or refuse in clear words."""

from __future__ import annotations

import collections
import datetime
import decimal
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import kirsch_query
from agreement import is_overflow
from generate import asked
from kirsch_query import QueryError, Refused, SourceError, Where, comparison, desc, recall, total, where
from models import Colour, Item, Owner, Thing, stored


class Loose(list[Any]):
    """A list that has everything."""

    def __contains__(self, item: object) -> bool:
        return True


class Point(NamedTuple):
    i: int
    t: str


class Anything(tuple[Any, ...]):
    """A tuple that equals all others."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = tuple.__hash__


class Word(str):
    """Text with a mind of its own."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        return True


NAMES: dict[str, Any] = {
    "last": (3, "b"), "listed": [3, "b"], "pairs": [(3, "b"), (None, "A"), (1,), "a", 5], "keyed": {(3, "b"): 1}, "one": decimal.Decimal(1),
    "point": Point(3, "b"), "points": [Point(3, "b"), Point(0, "a")], "views": {"a": 1, "é": 2}.keys(), "ordered": collections.OrderedDict(a=1), "whole": "a banana", "nothing": None,
    "Colour": Colour, "huge": 1e300,
}  # fmt: skip

EXACT = [
    # Tuples and lists: the first items that differ decide.
    "(x.i, x.t) == (3, 'b')", "(x.i, x.t) != (3, 'b')", "(x.i, x.t) < last", "(x.i, x.t) <= last", "(x.i, x.t) > last", "last >= (x.i, x.t)",
    "not (x.i, x.t) > last", "(x.i, x.s) == (x.j, x.t)", "(x.i, x.s) != (x.j, x.t)", "(x.s, x.i) == (None, None)", "(x.i, x.t) in pairs",
    "(x.i, x.t) not in pairs", "(x.i, x.t) in keyed", "[x.i, x.t] == listed", "[x.i, x.t] == last", "(x.i, x.t) == listed", "(x.i, x.t) != listed",
    "(x.i,) < (x.j, 1)", "(x.i, x.j) <= (x.i, x.j)", "(x.i + 1, x.t) != (4, 'b')", "(x.owner.name, x.i) != ('a', 3)", "(x.owner.name, x.i) == (None, 3)",
    "(x.i, x.t)", "(x.i + 1, 3) and x.sure", "(x.i, x.t) in ((3, 'b'), (x.j, 'a'))", "(x.i, x.t) == nothing", "(x.i, x.t) != nothing",
    "((x.i, 1), x.t) < ((3, 7), 'a')", "(x.i, nothing) == (3, x.s)", "(x.j, x.t) > (3, 'a') and (x.j, x.t) <= (7, 'b')",
    "x.i in (x.j, *listed)", "x.i not in [x.j, *pairs]", "(x.i, *last[1:]) == (3, 'b')", "x.t in {x.s, *listed}",
    "(x.i, x.t) == point", "(x.i, x.t) != point", "(x.i, x.t) < point", "(x.i, x.t) in points", "(x.i, x.t) == 'ab'",
    # Loops over what is written out, min() and max() of it.
    "any(v == 3 for v in (x.i, x.j))", "all(v > 0 for v in [x.i, x.j])", "any(v == 'a' for v in (x.s, x.t, x.owner.name))", "all(v != 3 for v in (x.i, 5))",
    "not all(v > 0 for v in (x.i + 1, x.j))", "max((x.i, x.j)) == 7", "min([x.i, 3, x.j]) < 2", "any({o.n > 1 for o in x.items})", "all({v for v in (x.i, x.j)})",
    # Aggregates of related rows, of which there may be none, and among which there may be a None.
    "sum(o.n for o in x.items) > 2", "sum(o.n for o in x.items) == 0", "not sum(o.n for o in x.items) == 0", "sum(o.n for o in x.items) != 3",
    "sum([o.n for o in x.items if o.n != 1]) == 2", "sum(1 for o in x.items if o.n) == 2", "sum(o.n > 0 for o in x.items) == 2", "sum(o.n * 2 + 1 for o in x.items) < x.j",
    "sum(o.i for o in x.owner.things if o.j == 3 and o.i != None) > x.i", "sum(o.i for o in x.owner.things if o.i is not None) > 3", "sum(o.j for o in x.owner.things) != 3",
"sum(o.n for o in x.items) + x.j > 8", "sum(o.n for o in x.items) in (0, 1, None)",
    "min(o.n for o in x.items) == 0", "max(o.n for o in x.items) == 2", "max(o.n for o in x.items) != 2", "max(o.n for o in x.items) is None", "not max(o.n for o in x.items) is None",
    "max(o.n for o in x.items) == None", "max(o.n for o in x.items) == x.i", "max(o.n for o in x.items) != x.i", "max([o.n for o in x.items if o.n > 0]) < 2",
    "min(o.j for o in x.owner.things) == x.j", "max(o.day for o in x.owner.things if o.day is not None) == x.day",
    "len([o for o in x.items if o.n > 0]) == 1", "len([o for o in x.items if not o.n > 0]) != 1", "len([o for o in x.owner.things if o.s == x.s]) > 2",
    "len([o for o in x.owner.things]) != 3", "max(len([o for o in x.items]), x.i) == 3",
    # Columns of types that are never equal, but where both are None.
    "x.i == x.s", "x.i != x.s", "not x.s == x.day", "x.uid == x.data", "x.day in (x.s, x.uid)", "x.i not in (x.s, x.flag)", "x.owner.name == x.i",
    # Constant text that starts or ends with a row's.
    "'ab'.startswith(x.t)", "whole.endswith(x.s)", "not 'Ab'.startswith(x.t)", "''.startswith(x.t)",
    "x.t in views", "x.t not in ordered",
    # NaN, which SQLite stores as NULL.
    "x.f * huge * huge - x.f * huge * huge != 3.0", "not x.f * huge * huge - x.f * huge * huge == 3.0", "-(x.f * huge * huge - x.f * huge * huge) != 3.0",
    "abs(x.g * huge * huge - x.g * huge * huge) != 3.0", "x.f / x.g != 3.0", "(x.f / x.g if x.sure else x.f) != 3.0", "max(x.f / x.g, x.f) != 3.0", "x.g - x.g != 3.0",
]  # fmt: skip


def rows() -> list[Any]:
    named, nameless = Owner(name="a", rank=1), Owner(name=None, rank=2)
    made = []
    owners, days = itertools.cycle([named, nameless, None]), itertools.cycle([None, datetime.date(2024, 2, 29)])
    for at, (i, j, text) in enumerate(itertools.product([None, 0, 3], [3, 7], ["a", "b", "", "é"])):
        made.append(Thing(
            i=i, j=j, t=text, s=None if at % 3 == 0 else text, g=float(at % 4), f=None if at % 5 == 0 else at / 4, sure=at % 2 == 0,
            flag=[True, False, None][at % 3], day=next(days), owner=next(owners), items=[Item(n=None if at % 7 == 6 - n else n) for n in range(at % 4)],
        ))  # fmt: skip
    return [named, nameless, *made]


@pytest.fixture(scope="module")
def session(engine: sa.Engine) -> Any:
    with stored(engine, rows()) as session:
        yield session


@pytest.mark.parametrize("text", EXACT)
def test_a_query_means_what_python_means(session: orm.Session, text: str) -> None:
    query = asked(text, NAMES)
    things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
    here = [thing.id for thing in query.filter(things)]
    function = eval(f"lambda x: {text}", dict(NAMES))
    raised = 0
    for thing in things:
        try:
            assert bool(function(thing)) == (thing.id in here), "memory says what Python says"
        except (TypeError, AttributeError, ZeroDivisionError):
            raised += 1
        except ValueError as error:
            assert "empty" in str(error), "min() or max() of nothing"  # noqa: PT017 - others are mistakes
            raised += 1
    assert raised < len(things)
    for _ in range(2):  # the second time by the clause that is kept
        try:
            found = list(session.scalars(sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id)))
        except sa.exc.DBAPIError as error:
            session.rollback()
            if "huge" in text and is_overflow(error):
                return
            raise
        assert found == here


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("x.i in (x.j, *endless)", "behind a star", "a list"),
        ("x.flag is one", "`is` compares identity", "=="),
        ("x.i in loose", "`in` a Loose", "list, tuple, set or dict"),
        ("x.s in word", "`in` a Word", "list, tuple"),
        ("word in x.s", "`in` text asks for text", ""),
        ("(x.i, x.j) in loose", "this container of tuples", "list"),
        ("(x.i, x.j) == anything", "constants of type Anything", "tuple("),
        ("(x.i, x.j) in [(1, 2), anything]", "constants of type Anything", "tuple("),
        ("(x.i, x.j) < listed", "tuple and list have no order", "same type"),
        ("(x.i, x.j) is nothing", "a tuple is compared with something else", "=="),
        ("(x.f, 1) == (x.g, 1)", "NaN in a tuple equals itself", "one by one"),
        ("(x.i, *x.items) == last", "* is not translated", ""),
        ("any(x.i == n for n in endless)", "more than 500 constants", "`in`"),
        ("sum(x.items) > 3", "sum() of a row", "sum("),
        ("sum(o.n for o in x.items for p in x.items) > 3", "sum() is of one loop", "sum("),
        ("sum({o.n for o in x.items}) > 3", "sum() of a set", "braces"),
        ("sum(x.j for o in x.items) > 3", "sum() reads the rows of its loop alone", "i.n"),
        ("sum(o.f for o in x.owner.things) > 3", "sum() is of integers", "floats"),
        ("max(o.uid for o in x.owner.things) == 1", "max() of rows is of", ""),
        ("max(o.g for o in x.owner.things) == 1.0", "max() of rows is of", ""),
        ("max(v for v in (x.i, x.j)) > 3", "max() is over a relation", ""),
        ("len([o.n for o in x.items]) > 3", "len() counts the objects themselves", "[o for."),
        ("getattr(x, 'i') > 3", "getattr() of a row", "comparison("),
        ("x['i'] > 3", "an object is not indexed", "b.price"),
        ("{x.i: 1} == {}", "a dict with values of a row", ""),
    ],
)
def test_what_is_refused_says_what_to_write_instead(text: str, reason: str, hint: str) -> None:
    names = {"anything": Anything((1,)), "loose": Loose(), "word": Word("abc"), "endless": itertools.count(), **NAMES}
    with pytest.raises(Refused) as caught:
        asked(text, names).clause(Thing)
    assert reason in caught.value.problem
    assert hint in caught.value.hint
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: where(lambda b: b.price < limit, limt=3), "Did you mean limit?"),
        (lambda s: where("b.price < limit", limit=3, limt=4), "Did you mean limit?"),
        (lambda s: where(lambda b: b.price < 3, zebra=3), "It reads no names"),
        (lambda s: where(lambda b: b.price < 3, b=3), "which the query does not read"),
        (lambda s: where(where(j=1), limit=3), "a query already"),
        (lambda s: comparison(3, "==", 3), "are text"),  # type: ignore[arg-type]
        (lambda s: comparison("j", ["=="], 3), "are text"),  # type: ignore[arg-type]
        (lambda s: where("x.j == '\0'").clause(Thing), "does not parse|NUL"),
        (lambda s: where("(" * 5000 + "x.j" + ")" * 5000), "does not parse"),
        (lambda s: where("x.j" + " + x.j" * 400 + " > 3"), "nested too deeply"),
        (lambda s: where("x.j" + " + x.j" * 3000 + " > 3"), "nested too deeply|does not parse"),
        (lambda s: where("not " * 900 + "x.j"), "nested too deeply|does not parse"),
        (lambda s: recall(s, Thing, where(j=1), limit="3"), "are integers"),  # type: ignore[call-overload]
        (lambda s: recall(s, Thing, where(j=1), offset=1.5), "are integers"),  # type: ignore[call-overload]
        (lambda s: recall(s.get_bind(), Thing, where(j=1)), "is not a session"),
        (lambda s: recall(s, Thing, where(j=1), order=lambda x: desc()), "turns one key"),  # type: ignore[call-arg]
        (lambda s: recall(s, Thing, where(j=1), order=lambda x: desc(key=x.j)), "turns one key"),
        (lambda s: total(s, Thing, where(j=1), None), "a function of the number"),  # type: ignore[call-overload]
        (lambda s: where(j=1).explain(Thing, "sqlite"), "is not an engine"),
    ],
)
def test_a_mistake_of_the_caller_is_an_error_of_this_package(call: Any, reason: str) -> None:
    engine = sa.create_engine("sqlite://")
    with orm.Session(engine) as session, pytest.raises(QueryError, match=reason):
        call(session)
    engine.dispose()


limit = 5


def test_names_that_are_given_and_read_are_taken() -> None:
    assert where(lambda b: b["price"] < limit, limit=9)({"price": 8})
    assert where(lambda b, most=3: b["price"] < most, most=9)({"price": 8})
    assert where("any(n < limit for n in b.numbers)", limit=2)({"numbers": [1]})


def test_type_checkers_check_a_lambda_whose_row_is_declared() -> None:
    wrong: Where[Thing] = where(lambda b: b.nothing < 3)  # type: ignore[attr-defined]  # unused, so an error, if none is
    with pytest.raises(Refused, match="has no attribute nothing"):
        wrong.clause(Thing)
    odd: Where[Thing] = where(lambda b: b.i < 3)  # type: ignore[operator]
    assert not odd(Thing(i=None))
    assert where(lambda a, b: a.j < b.j).arity == 2
    assert Where[Thing] is not Where


def test_importing_the_package_imports_neither_typing_nor_sqlalchemy() -> None:
    code = "import sys; before = set(sys.modules); import kirsch_query; print(*sorted(set(sys.modules) - before))"
    # -S: the modules of an environment may have been imported by its .pth files.
    path = Path(kirsch_query.__file__).parent.parent
    found = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {code}"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "kirsch_query.query" in found
    assert not {"typing", "inspect", "dataclasses", "sqlalchemy"} & {*found}, "they take as long as all the rest"


def test_an_engine_may_follow_the_models(session: orm.Session) -> None:
    query = where(lambda x: x.t == "a")
    engine = session.get_bind()
    for found in (
        query.explain(Thing, engine),
        query.explain(Thing, engine=engine),
        query.explain(Thing, session.connection()),
    ):
        assert list(found.sql) == [session.get_bind().dialect.name.replace("mysql", "mariadb")]
        assert found.plan
    clause = query.clause(Thing, dialect=engine)
    assert str(clause.compile(engine)) == str(query.clause(Thing, dialect=session.get_bind().dialect).compile(engine))


def test_a_context_of_fewer_digits_refuses_decimals_that_were_translated_before() -> None:
    query = where("x.d * x.d > 1")
    query.clause(Thing)
    with decimal.localcontext() as context:
        context.prec = 5
        with pytest.raises(Refused, match="rounds Decimals"):
            query.clause(Thing)


def test_a_parsing_error_names_the_place() -> None:
    with pytest.raises(SourceError) as caught:
        where("b.price <")
    assert "does not parse" in str(caught.value)
