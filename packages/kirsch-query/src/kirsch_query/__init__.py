"""Plain Python functions as queries: one meaning in memory, in SQL, and over both.

>>> from kirsch_query import where
>>> limit = 10
>>> cheap = where(lambda book: book["price"] < limit)
>>> [*cheap.filter([{"price": 5}, {"price": 50}, {"price": None}])]
[{'price': 5}]
"""

from __future__ import annotations

import sys

# pip refuses to install on older versions, but a copied folder on the import path can still be imported by them.
if sys.version_info < (3, 10):  # noqa: UP036
    raise ImportError(
        f"kirsch-query needs Python 3.10 or newer, and this is {sys.version.split()[0]} ({sys.executable})"
    )

from kirsch_query.errors import QueryError, Refused, SourceError
from kirsch_query.query import Where, comparison, filter, where  # noqa: A004 - Dejavu's name: kirsch_query.filter

TYPE_CHECKING = False  # importing typing would take a fifth of the import time of this package
if TYPE_CHECKING:
    from typing import Any

    from kirsch_query.collations import learn_collations
    from kirsch_query.grouped import group
    from kirsch_query.merging import Recalled, count, exists, recall, total
    from kirsch_query.sorting import chosen, desc

__all__ = [
    "QueryError", "Recalled", "Refused", "SourceError", "Where", "chosen", "comparison", "count", "desc", "exists",
    "filter", "group", "learn_collations", "recall", "total", "where",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because few programs use it or it needs SQLAlchemy."""
    for module, names in _LATE.items():
        if name in names:
            import importlib

            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_LATE = {
    "merging": ("Recalled", "count", "exists", "recall", "total"),
    "collations": ("learn_collations",),
    "sorting": ("chosen", "desc"),
    "grouped": ("group",),
}
