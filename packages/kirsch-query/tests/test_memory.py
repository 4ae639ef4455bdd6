"""The rule for None in memory: a comparison that Python cannot evaluate because of a None is false, and no other."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from kirsch_query import where


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
    query = where(f"lambda x: {text}", helper=lambda n: n > 1)
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
    missing = where("b.a < 3 or unknown_function(b)", unknown_function=lambda b: b.nothing > 1)
    with pytest.raises(AttributeError, match="nothing"):
        missing(row(a=5))
