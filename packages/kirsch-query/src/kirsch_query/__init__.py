"""Plain Python functions as queries: one meaning in memory, in SQL, and over both.

>>> from kirsch_query import where
>>> limit = 10
>>> cheap = where(lambda book: book["price"] < limit)
>>> [*cheap.filter([{"price": 5}, {"price": 50}, {"price": None}])]
[{'price': 5}]
"""

from __future__ import annotations

from kirsch_query.errors import QueryError, Refused, SourceError
from kirsch_query.query import Where, comparison, filter, where  # noqa: A004 - Dejavu's name: kirsch_query.filter

TYPE_CHECKING = False  # importing typing would take a fifth of the time that all of this takes
if TYPE_CHECKING:
    from typing import Any

    from kirsch_query.collations import learn_collations
    from kirsch_query.merging import Recalled, count, desc, exists, recall, total

__all__ = [
    "QueryError", "Recalled", "Refused", "SourceError", "Where", "comparison", "count", "desc", "exists", "filter",
    "learn_collations", "recall", "total", "where",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the names that need SQLAlchemy when they are first used."""
    if name in ("Recalled", "count", "desc", "exists", "recall", "total"):
        from kirsch_query import merging

        return getattr(merging, name)
    if name == "learn_collations":
        from kirsch_query.collations import learn_collations

        return learn_collations
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
