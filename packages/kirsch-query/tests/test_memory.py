"""The rule for None in memory: a comparison that Python cannot evaluate because of a None is false, and no other."""

from __future__ import annotations

import dataclasses
import datetime
import linecache
import math
import os
import random
import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import generate
from kirsch_query import QueryError, judging, memory, where
from kirsch_query.scope import Item, Scope
from models import Thing

if TYPE_CHECKING:
    from collections.abc import Callable


def row(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"a": None, "b": 2, "s": None, "owner": None, "items": [], **values})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x.a < 3", False),
        ("not x.a < 3", True),
        ("x.a == None", True),
        ("x.a is not None", False),
        ("x.a != 3", True),
        ("x.a + 1 == 4", False),
        ("x.a + 1 != 4", False),
        ("not x.a + 1 == 4", True),
        ("x.b / 0 == 1", False),
        ("not x.b % 0 == 1", True),
        ("x.b < 3 and (x.a > 1 or x.b == 2)", True),
        ("x.a", False),
        ("not x.a", True),
        ("x.s.startswith('a')", False),
        ("'a' in x.s", False),
        ("'a' not in x.s", False),
        ("x.a in (1, None)", True),
        ("x.a not in (1, 2)", True),
        ("len(x.s) == 0", False),
        ("x.owner.name == 'a'", False),
        ("x.owner.name != 'a'", False),
        ("x.owner.name is None", False),
        ("x.owner is None", True),
        ("1 < x.b < x.a", False),
        ("min(x.a, x.b) == 2", False),
        ("(x.a or x.b) == 2", True),
        ("(1 if x.a else 2) == x.b", True),
        ("any(i.n > 3 for i in x.items)", False),
        ("all(i.n > 3 for i in x.items)", True),
        ("all(i.n > 3 for i in x.owner.items)", False),
        ("x.s[0] == 'a'", False),
        ("helper(x.a)", False),
        ("not helper(x.a)", True),
    ],
)
def test_none_makes_false_what_cannot_be_compared(text: str, holds: bool) -> None:
    query = generate.asked(text, {"helper": lambda n: n > 1})
    assert query(row()) is holds
    assert bool([*query.filter([row()])]) is holds
    mapping: dict[str, Any] = {"a": None, "b": 2, "s": None, "owner": None, "items": []}
    assert query(mapping) is holds


def test_objects_dicts_and_dataclasses() -> None:
    @dataclasses.dataclass
    class Book:
        price: int | None
        items: str = ""

    query = where(lambda b: b.price < 3 and b.items != "x")
    rows: list[Any] = [
        Book(1),
        Book(None),
        {"price": 2, "items": "y"},
        {"price": None},
        Book(9),
        {"price": 2, "items": "x"},
    ]
    assert [*query.filter(rows)] == [Book(1), {"price": 2, "items": "y"}]


def test_mistakes_are_not_swallowed() -> None:
    with pytest.raises(AttributeError, match="prize"):
        where(lambda b: b.prize < 3)(row())
    with pytest.raises(TypeError):
        where(lambda b: b.b < "x")(row())

    def several(b: Any, limit: int | None) -> bool:
        found = b.prize
        return bool(found < limit)

    with pytest.raises(AttributeError, match="prize"):
        where(lambda b: several(b, None))(row())
    assert not where(lambda b: several(b, None))(row(prize=3))
    assert not where(lambda b: several(b.owner, 3))(row())
    missing = where("b.a < 3 or unknown_function(b)", unknown_function=lambda b: b.nothing > 1)
    with pytest.raises(AttributeError, match="nothing"):
        missing(row(a=5))


CASES = int(os.environ.get("QUERY_CASES", "2000")) // 4
RAISED = (TypeError, ZeroDivisionError, OverflowError, AttributeError, LookupError)
SEED = int(os.environ.get("QUERY_SEED", "0"))


class Row(dict[str, Any]):
    """A mapping with the values of an object, and its properties."""

    is_sure = Thing.is_sure
    is_prefixed = Thing.is_prefixed


def function_of(text: str, names: dict[str, Any]) -> Any:
    """Return the function of a row ``x``, with half of the names in its closure and half of them global."""
    inner = sorted(names)[::2]
    source = f"def outer({', '.join(inner)}):\n    return lambda x: {text}\n"
    linecache.cache[source] = (0, None, source.splitlines(keepends=True), source)
    outer: dict[str, Any] = dict(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(source, source, "exec"), outer)
    return outer["outer"](*(names[name] for name in inner))


def test_code_made_of_random_queries_gives_what_their_trees_give(
    say: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "RARE", 0)
    chance = random.Random(SEED)
    things = [each for each in generate.rows(chance, 40) if isinstance(each, Thing)]
    names = [each.key for each in sa.inspect(Thing).attrs]
    mappings = [Row((name, getattr(thing, name)) for name in names) for thing in things]
    predicates = generate.Predicates(chance)
    compared = written = 0
    for _ in range(CASES):
        text = predicates.predicate(chance.choice([1, 2, 2, 3]))
        query: Any = generate.asked(text, predicates.names)
        scope, source = query.scope({}), query.source
        try:
            expected = [memory.truth(source.body, Scope(source, scope.space, {"x": Item(each)})) for each in things]
        except RAISED:
            with pytest.raises(RAISED):
                [*query.filter(things)]  # raised in memory by a part that no row is in, whatever evaluates it
            continue
        found = set(map(id, query.filter(things)))
        assert [id(each) in found for each in things] == expected, f"seed {SEED}: {text}"
        found = set(map(id, query.filter(mappings)))
        assert [id(each) in found for each in mappings] == expected, f"seed {SEED}: {text}, of mappings"
        if "is_sure" not in text and "is_prefixed" not in text:
            dicts = [dict(each) for each in mappings]
            mixed = [row for rows in zip(things, dicts, mappings, strict=True) for row in rows]
            found = set(map(id, query.filter(dicts)))
            assert [id(each) in found for each in dicts] == expected, f"seed {SEED}: {text}, of dicts"
            found = set(map(id, query.filter(mixed)))
            assert [id(each) in found for each in mixed[::3]] == expected, f"seed {SEED}: {text}, of several kinds"
            single: Any = where(function_of(text, predicates.names))
            for kind in (things, dicts):
                assert [single(each) for each in kind] == expected, f"seed {SEED}: {text}, one by one"
        compared += 1
        written += judging._rule_code(source) is not None
    say(f"memory: QUERY_SEED={SEED} {compared} queries compared with their trees, code was written for {written}")
    assert written > CASES / 2


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        # A function that takes None is called with it: what it gives is what Python's own function gives.
        ("x.a < 3 or getattr(x.owner, 'name', None) is None", True),
        ("x.a < 3 or str(x.a) == 'None'", True),
        ("x.a < 3 or isinstance(x.a, type(None))", True),
        ("x.a < 3 or repr(x.a) == 'None'", True),
        ("x.a < 3 or x.word.strip(None) == 'w'", True),
        ("x.a < 3 or x.word.split(None, 1) == ['w']", True),
        ("x.a < 3 or '%s' % x.a == 'None'", True),
        ("x.a < 3 or form % x.a == 'None'", True),
        ("x.a < 3 or x.table.get(x.a) == 'none'", True),
        ("x.a < 3 or x.table[x.a] == 'none'", True),
        ("x.a < 3 or round(x.b, x.a) == 2", True),
        ("x.a < 3 or several(x.b) == 3", True),
        # One that does not makes the comparison false.
        ("several(x.a) == 3", False),
        ("not several(x.a) == 3", True),
        ("math.sqrt(x.a) > 1", False),
        ("str.upper(x.s) == 'A'", False),
        ("datetime.date(2024, x.a, 1) > day", False),
        ("x.word[x.a] == 'w'", False),
        ("x.b % x.a == 0", False),
        ("int('3', base=x.a) == 3", False),
        # Loops: a comprehension in brackets, and one that a None stops on the way.
        ("any([i.n > 3 for i in x.pair])", True),
        ("all([i.n > 3 for i in x.pair])", False),
        ("any(k > 3 for i in x.pair for k in i.more)", True),
        ("all(k > 3 for i in x.pair for k in i.more)", False),
        ("not all(k > 3 for i in x.pair for k in i.more)", True),
        ("5 in [k for i in x.pair for k in i.more]", True),
        ("6 not in [k for i in x.pair for k in i.more]", False),
    ],
)
def test_a_function_that_takes_none_is_called_with_it(text: str, holds: bool) -> None:
    def several(n: int) -> int:
        n += 1
        return n

    names = {"several": several, "math": math, "datetime": datetime, "day": datetime.date(2024, 1, 1), "form": "%s"}
    query = generate.asked(text, names)
    pair = [row(n=None, more=None), row(n=4, more=[5])]
    values = {"a": None, "b": 2, "s": None, "word": "w", "table": {None: "none"}, "pair": pair, "owner": row()}
    for rare in (judging.RARE, 0):
        query.source.judged = judging.RARE - rare  # type: ignore[attr-defined]
        assert query(row(**values)) is holds
        assert query(values) is holds
    try:
        by_hand = eval(f"lambda x: {text}", dict(names))(row(**values))
    except (TypeError, AttributeError):
        return
    assert bool(by_hand) is holds


@pytest.mark.parametrize("text", ["x.a < 3 and x.owner.name == 'a'", "not x.a < 3 or x.s.startswith('b')"])
def test_a_long_filter_gives_what_calls_give(text: str) -> None:
    query = generate.asked(text, {})
    owners = [None, SimpleNamespace(name="a"), {"name": "a"}, SimpleNamespace(name=None)]
    rows: list[Any] = []
    for at in range(200):
        values = {"a": [None, 1, 5][at % 3], "owner": owners[at % 4], "s": [None, "ab", "ba"][at % 5 % 3]}
        rows.append([SimpleNamespace(**values), values, Row(values)][at // 20 % 3])
    found = set(map(id, query.filter(rows)))
    assert [id(each) in found for each in rows] == [query(each) for each in rows]
    assert found
    assert len(found) < len(rows)


def test_one_row_after_the_other_reads_names_at_each_use_and_takes_none() -> None:
    limit = 0
    query = where(lambda b: len(b.title) < limit)
    for number in range(2 * judging.RARE):
        limit = number % 3
        assert query({"title": "a"}) == (limit > 1)
        assert query(row(title="a")) == (limit > 1)
        assert query(row(title=None)) is False
    assert query.one is not None  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        query(row(name="a"))


def test_a_long_filter_raises_what_a_call_raises_and_reads_no_further() -> None:
    query = generate.asked("x.a < 3", {})
    rows: Any = iter([*(SimpleNamespace(a=at % 7) for at in range(100)), SimpleNamespace(a="text"), "unread"])
    found = query.filter(rows)
    assert len([next(found) for _ in range(43)]) == 43
    with pytest.raises(TypeError, match="'<' not supported"):
        list(found)
    assert next(rows) == "unread"


def test_a_filter_of_single_rows_is_refused_to_a_query_of_pairs() -> None:
    with pytest.raises(QueryError, match="judges 2 rows together"):
        [*where(lambda a, b: a.b == b.b).filter([row()])]


class Word(str):
    """Text with a method that takes None."""

    @staticmethod
    def count(part: str | None) -> int:  # type: ignore[override]
        return 0 if part is None else 1


def test_a_static_method_of_a_known_name_is_called_with_none() -> None:
    query = where(lambda x: x.s.count(x.a) == 0 and not x.a > 1)
    assert query(row(s=Word("a")))
    assert not query(row(s="a"))


def test_a_name_in_the_query_may_be_one_that_the_code_made_of_it_would_use() -> None:
    part_0 = 3
    query = where(lambda part_value1: part_value1.b < part_0 and part_value1.a != 1)
    assert query({"a": 2, "b": 2})
    assert query(row())
    assert not query({"a": 1, "b": 2})


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="PyPy compiles calls away; CPython's are counted")
def test_filter_of_many_rows_with_none_evaluates_no_syntax_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("the tree was evaluated")

    limit = 3
    rows = [row(a=None if at % 3 == 0 else at, s=None if at % 5 == 0 else "ab", b=at) for at in range(30)]
    queries = [
        where(lambda x: x.a < limit and x.s.startswith("a")),
        where(lambda x: not x.a * 2 >= limit or len(x.s) > x.a),
        where(lambda x: limit < x.a <= x.b and x.a in (x.b, limit, 1) and x.s[:1] in ("a", "b")),
    ]
    mappings = [vars(each) for each in rows]
    for query in queries:
        expected = [each for each in rows if query(each)]
        assert len([*query.filter(mappings * 2)]) == 2 * len(expected)
    monkeypatch.setattr(memory, "truth", fail)
    for query in queries:
        expected = [each for each in rows if query(each)]
        assert [*query.filter(rows)] == expected
        assert [*query.filter(mappings)] == [vars(each) for each in expected]
