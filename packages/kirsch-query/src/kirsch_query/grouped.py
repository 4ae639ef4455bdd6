"""The function ``group``: objects grouped by a key, with aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kirsch_query.errors import QueryError
from kirsch_query.groups import Grouping

if TYPE_CHECKING:
    from collections.abc import Callable


def group(
    rows: Any,
    models: Any = None,
    query: Any = None,
    *,
    key: Callable[..., Any],
    having: Any = None,
    order: Any = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    **aggregates: Callable[[Any], Any],
) -> Any:
    """Return a list of groups: named tuples of ``key`` and the named aggregates.

    ``group(books, key=lambda b: b.author, total=lambda g: sum(b.price for b in g))`` groups objects in memory.
    ``group(session, Book, query, key=..., ...)`` groups the objects that :func:`recall` would return, with aggregation
    in the database; without a query, all objects. ``having`` is a query over groups and ``order`` a key for groups:
    ``lambda g: g.total``. By default groups are sorted by their keys, None first. A key or an aggregate that Python
    cannot evaluate because of a None is None. With an asynchronous session, await the result. ``finish="python"`` lets
    Python do the parts that the database cannot.
    """
    given = (key, having, order, limit, offset, aggregates)
    if any(hasattr(rows, each) for each in ("run_sync", "registry", "get_bind")):  # what a session may be
        from kirsch_query import grouping

        return grouping.grouped(rows, models, query, given, finish=finish)
    if models is not None or query is not None or finish is not None:
        raise QueryError(
            f"{rows!r} is not a session", hint="Objects are filtered first: group(query.filter(books), key=...)."
        )
    asked = Grouping(1, *given)
    groups = asked.collected((row,) for row in rows)
    values = asked.aggregates.values()
    return asked.finished(asked.made(each, *(one.value(found) for one in values)) for each, found in groups.items())


__all__ = ["group"]
