"""Queries of the kinds that Pony, Django and SQLAlchemy show in their documentation, and what each became here.

``python tests/ported.py`` writes docs/ported.md anew; test_ported.py runs each query on each database.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from generate import asked
from kirsch_query import Refused, chosen, count, desc, exists, group, recall, total
from kirsch_query.emit import DIALECTS
from models import Chief, Clerk, Colour, Item, Owner, Thing
from translates import TITLES, dialect

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ported.md"

HEAD = """# 76 ported queries

Queries of the kinds that the documentation of Pony, Django and SQLAlchemy shows, and what each became. The models are those
of the tests: a `Thing` has an `owner` and `items`, an `Owner` has a `boss` and `things`. A condition is a function of `x`,
written here without `lambda x:`. The tests run each on the three databases, and make this page.

| | asks for | became | |
|-|-|-|-|
"""

# The origin, what is asked for, the query, and a remark. A query that begins with a call is run as it is.
PORTED: list[tuple[str, str, str, str]] = [
    ("Pony", "a number below a limit", "x.i < limit", ""),
    ("Pony", "two conditions", "x.i > 1 and x.t.startswith('a')", ""),
    ("Pony", "a range by a chained comparison", "1 <= x.i <= 4", ""),
    ("Pony", "another value, None included", "x.i != 3", "rows with NULL too, as in Python"),
    ("Pony", "values of a list", "x.t in words", "a list of any length is one statement"),
    ("Pony", "values outside of a list", "x.i not in (1, None)", ""),
    ("Pony", "text within text", "'b' in x.t", ""),
    ("Pony", "text without regard to case", "x.t.lower() == 'ab'", ""),
    ("Pony", "text in capitals", "x.t.upper() == 'AB'", "compare `.lower()`"),
    ("Pony", "the length of text", "len(x.t) > 1", ""),
    ("Pony", "a slice of text", "x.t[:2] == 'ab'", ""),
    ("Pony", "joined text", "x.s + '-' + x.t == 'a-b'", ""),
    ("Pony", "text made by an f-string", "f'{x.s}-{x.t}' == 'a-b'", "refused before"),
    ("Pony", "text without surrounding space", "x.s.strip() == 'a'", "refused before"),
    ("Pony", "an attribute of a related object", "x.owner.name == 'a'", ""),
    ("Pony", "two relations further", "x.owner.boss.rank > 1", ""),
    ("Pony", "the number of related objects", "len(x.items) > 1", ""),
    ("Pony", "a sum over related objects", "sum(i.n for i in x.items) > 3", ""),
    ("Pony", "the greatest of related objects", "max(i.n for i in x.items) == 7", ""),
    ("Pony", "related objects that meet a condition", "any(i.n > 3 for i in x.items)", ""),
    ("Pony", "none that meets a condition", "not any(i.n > 3 for i in x.items)", ""),
    ("Pony", "a choice", "(x.i if x.sure else x.j) > 2", ""),
    ("Pony", "the year of a date", "x.day.year == 2024", ""),
    ("Pony", "a raw piece of SQL", "raw_sql(x.i, '> 3')", "a condition of SQLAlchemy's beside the clause"),
    ("Pony", "sums by a key", "group(session, Thing, key=lambda x: x.owner, n=lambda g: sum(x.j for x in g))", "refused before"),
    ("Pony", "a count by two keys", "group(session, Thing, key=lambda x: (x.sure, x.colour), n=lambda g: len(g))", "refused before"),
    ("Django", "equal, by a keyword", "recall(session, Thing, where(j=3))", ""),
    ("Django", "exact without regard to case", "x.t.lower() == 'ab'", ""),
    ("Django", "contains", "'b' in x.t", ""),
    ("Django", "contains, without regard to case", "'b' in x.t.lower()", ""),
    ("Django", "starts with", "x.t.startswith('a')", "served by an index"),
    ("Django", "ends with", "x.t.endswith('b')", ""),
    ("Django", "a regular expression", "re.search('^a[0-9]*$', x.t)", "refused before"),
    ("Django", "a regular expression without regard to case", "re.search('^a', x.t, re.IGNORECASE)", "refused before"),
    ("Django", "a range", "2 <= x.j < 9", ""),
    ("Django", "a month of a date", "x.day.month == 3", ""),
    ("Django", "a day of the week", "x.day.isoweekday() == 7", ""),
    ("Django", "an hour of a time", "x.at.hour >= 12", ""),
    ("Django", "the date of a time", "x.at.date() == datetime.date(2024, 3, 31)", "a range of times has an index"),
    ("Django", "a date of the last days", "x.day >= today - datetime.timedelta(days=7)", "evaluated once"),
    ("Django", "the time between two dates", "(x.at.date() - x.day).days > 3", "refused before"),
    ("Django", "null", "x.s is None", ""),
    ("Django", "two columns compared", "x.i > x.j", ""),
    ("Django", "two columns calculated with", "x.i + x.j > 3", ""),
    ("Django", "a remainder", "x.j % 3 == 1", "of the divisor's sign, as in Python"),
    ("Django", "a bit", "x.j & 4 != 0", "refused before"),
    ("Django", "a power", "x.j ** 2 < 50", "refused before"),
    ("Django", "a rounded quotient", "round(x.i / 4) == 2", "refused before"),
    ("Django", "a rounded Decimal", "round(x.d * 3, 1) > Decimal('0.5')", "refused before; on SQLite still"),
    ("Django", "either condition", "x.i == 1 or x.j == 1", ""),
    ("Django", "a negated condition over a relation", "not any(i.word == 'a' for i in x.items)", ""),
    ("Django", "a count of those that meet a condition", "len([i for i in x.items if i.n > 1]) == 2", ""),
    ("Django", "a count of different values", "len({i.n for i in x.items}) == 2", "refused before"),
    ("Django", "a related object", "x.owner == owner", "by its primary key"),
    ("Django", "the first few in an order", "recall(session, Thing, 'x.j > 0', order=lambda x: (desc(x.j), x.t), limit=3)", ""),
    ("Django", "an order that a user chose", "recall(session, Thing, 'x.j > 0', order=chosen('-j', ['j', 't']))", "refused before"),
    ("Django", "a count", "count(session, Thing, 'x.j > 0')", ""),
    ("Django", "whether there is any", "exists(session, Thing, 'x.j > 0')", ""),
    ("Django", "a sum", "total(session, Thing, 'x.j > 0', lambda x: x.j)", ""),
    ("Django", "groups whose sum is large", "group(session, Thing, key=lambda x: x.t, n=lambda g: sum(x.j for x in g), having=lambda g: g.n > 3)", "refused before"),
    ("Django", "a mean by a key", "group(session, Thing, key=lambda x: x.sure, mean=lambda g: sum(x.j for x in g) / len(g))", "refused before"),
    ("SQLAlchemy", "`and_`, `or_`, `not_`", "not (x.i == 1 and (x.j > 2 or x.sure))", ""),
    ("SQLAlchemy", "`in_` of tuples", "(x.i, x.t) in ((1, 'a'), (2, 'b'))", ""),
    ("SQLAlchemy", "`is_distinct_from`", "x.i != x.j", "what `!=` means in Python"),
    ("SQLAlchemy", "`between` dates", "datetime.date(2024, 1, 1) <= x.day <= today", ""),
    ("SQLAlchemy", "`case`", "(1 if x.i > 3 else 2 if x.j > 3 else 3) == 2", ""),
    ("SQLAlchemy", "`coalesce`", "(x.s or 'none') == 'none'", "the empty text too, as in Python"),
    ("SQLAlchemy", "`has` of a relation", "x.owner is not None and x.owner.rank > 1", ""),
    ("SQLAlchemy", "`any` of a collection", "any(t.sure for t in x.owner.things)", ""),
    ("SQLAlchemy", "`of_type` of a hierarchy", "isinstance(x.owner, Chief) and x.owner.bonus > 3", "refused before"),
    ("SQLAlchemy", "two classes of a hierarchy", "isinstance(x.owner, (Chief, Clerk))", "refused before"),
    ("SQLAlchemy", "a join of two entities", "recall(session, (Thing, Owner), 'lambda x, o: x.owner_id == o.id and o.rank > 1')", ""),
    ("SQLAlchemy", "groups of a join", "group(session, (Thing, Owner), 'lambda x, o: x.owner_id == o.id', key=lambda x, o: o.name, n=lambda g: max(x.j for x, o in g))", "refused before"),
    ("SQLAlchemy", "a quotient of large integers", "x.big / 3 > 10", "refused before; beyond 2⁵³ an error, except on PostgreSQL"),
    ("SQLAlchemy", "an item of a JSON column", "x.doc['d']['n'] == 3", "refused before"),
    ("SQLAlchemy", "a window function", "rank_over(x.j) < 3", "select() of SQLAlchemy"),
]  # fmt: skip

NAMES: dict[str, Any] = {
    "limit": 3, "words": ["a", "ab"], "today": datetime.date(2026, 11, 22), "owner": Owner(), "re": re, "datetime": datetime, "Decimal": Decimal,
    "Colour": Colour, "Chief": Chief, "Clerk": Clerk, "raw_sql": int, "rank_over": int,
}  # fmt: skip
CALLS: dict[str, Any] = {
    "recall": recall, "count": count, "exists": exists, "total": total, "group": group, "desc": desc, "chosen": chosen,
    "Thing": Thing, "Owner": Owner, "Item": Item,
}  # fmt: skip


def is_call(text: str) -> bool:
    return text.partition("(")[0] in CALLS


def cell(text: str) -> str:
    """Return on which databases a query translates."""
    if is_call(text):
        return "yes"
    names = []
    for name in DIALECTS:
        try:
            asked(text, NAMES).clause(Thing, dialect=dialect(name))
        except Refused:
            continue
        names.append(TITLES[name])
    return "yes" if len(names) == len(DIALECTS) else "refused" if not names else ", ".join(names)


def page() -> str:
    """The page, in Markdown."""
    rows = []
    for origin, asks, text, note in PORTED:
        result = cell(text)
        shown = f"{result}: {note}" if note and result != "yes" else note or result
        rows.append(f"| {origin} | {asks} | `{text.replace('|', chr(92) + '|')}` | {shown} |\n")
    done = sum(cell(text) != "refused" for _, _, text, _ in PORTED)
    refused = len(PORTED) - done
    tail = f'\n{done} of {len(PORTED)} translate; {refused} are refused with words, and `finish="python"` allows those that are Python.\n'
    return HEAD + "".join(rows) + tail


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
