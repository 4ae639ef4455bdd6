"""Conditions on related rows: subqueries give for each outer row what Python gives."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from generate import asked
from models import Item, Owner, Thing, stored

OUTER_TEXT = [
    "any(o.t == x.t and o.j > 0 for o in x.owner.things)",
    "all(o.t != x.t or o.j == 0 for o in x.owner.things)",
    "x.s in [o.s for o in x.owner.things if o.j > 0]",
    "any(any(i.word == x.t for i in o.items) for o in x.owner.things)",
    "any(o.t == x.owner.name and o.t == x.t for o in x.owner.things)",
]


@pytest.mark.parametrize("text", OUTER_TEXT)
def test_a_relation_is_asked_again_for_text_that_a_collation_takes_for_equal(engine: sa.Engine, text: str) -> None:
    # MariaDB keeps the results of a subquery by the values that it reads of the outer row, compared by their collation.
    owner = Owner(id=1, name="a", rank=1)
    words = ["a", "A", "a ", "\u00e1", "\u00c1", "a", "A"]
    things = [
        Thing(id=at, j=at % 5, g=0.0, t=word, s=word, sure=True, owner=owner, items=[Item(id=at, word=word)][: at == 1])
        for at, word in enumerate(words, 1)
    ]
    with stored(engine, [owner, *things]) as session:
        query = asked(text, {})
        expected = [each.id for each in session.scalars(sa.select(Thing).order_by(Thing.id)) if query(each)]
        assert expected
        assert list(session.scalars(sa.select(Thing.id).where(query.clause(Thing)).order_by(Thing.id))) == expected


def test_only_what_reads_text_of_the_outer_row_asks_mariadb_to_keep_no_results() -> None:
    dialect: Any = sa.make_url("mariadb+pymysql://").get_dialect()()
    for text in ("any(o.t == 'a' for o in x.owner.things)", "any(i.n == x.i and i.word == 'a' for i in x.items)"):
        assert "rand()" not in str(asked(text, {}).clause(Thing).compile(dialect=dialect)), text
    for text in OUTER_TEXT:
        assert "rand()" in str(asked(text, {}).clause(Thing).compile(dialect=dialect)), text
