"""Each of the ported queries gives on each database what Python gives, or is refused."""

from __future__ import annotations

import linecache
import random
from typing import Any

import pytest
import sqlalchemy as sa

import generate
import ported
from kirsch_query import Refused, where
from kirsch_query.emit import dialect_name
from models import Thing, stored
from translates import TITLES


def called(text: str, session: Any) -> Any:
    """Return the result of a call, whose functions have a source as if they were in a file."""
    linecache.cache[text] = (0, None, [text], text)
    return eval(compile(text, text, "eval"), {**ported.CALLS, "where": where, "session": session})


def test_ported_queries_give_what_python_gives(engine: sa.Engine) -> None:
    assert len(ported.PORTED) == 76
    rows = generate.rows(random.Random(11), 60)
    for each in rows:
        if isinstance(each, Thing):
            each.big = each.big and max(
                min(each.big, 2**50), -(2**50)
            )  # beyond 53 bits `/` is an error on two databases
    name = dialect_name(engine.dialect)
    with stored(engine, rows) as session:
        things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
        for _, _, text, _ in ported.PORTED:
            if ported.is_call(text):
                assert called(text, session) is not None
            elif TITLES[name] in ported.cell(text) or ported.cell(text) == "yes":
                query = generate.asked(text, ported.NAMES)
                found = list(session.scalars(sa.select(Thing).where(query.clause(Thing)).order_by(Thing.id)))
                assert found == [*query.filter(things)], text
            else:
                with pytest.raises(Refused):
                    generate.asked(text, ported.NAMES).clause(Thing, dialect=engine.dialect)


def test_the_page_of_ported_queries_is_current() -> None:
    assert ported.PAGE.read_text("utf-8") == ported.page(), "run python tests/ported.py"
