"""Exact queries over the database and the session's unsaved objects together, without a flush. The statement excludes
rows that the session has changed or deleted; new and changed objects that match in memory are added. So the result is
the same as after a flush, but nothing is written.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import uuid
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import cache, sql, terms
from kirsch_query.errors import QueryError, Refused
from kirsch_query.order import ordering
from kirsch_query.pending import Changes, refuse_related
from kirsch_query.query import Where, asked_value, where
from kirsch_query.scope import Item
from kirsch_query.sorting import desc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

    Plain: TypeAlias = orm.Session | orm.scoped_session[Any]
    Asynchronous: TypeAlias = AsyncSession | async_scoped_session[Any]
    _Models: TypeAlias = type[Any] | tuple[type[Any], ...]
    _Asked: TypeAlias = Where[Any] | Callable[..., object] | str

T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_log = logging.getLogger("kirsch_query")

MOST_CHANGED = 5000
"""How many changed objects of one class a statement names at most."""


MOST_TOGETHER = 100
"""How many changed objects of one class are joined with rows by one statement."""


class Recalled(list[T], Generic[T]):
    """A list of the objects found. ``rows_read`` is the number of rows that the database has sent for it."""

    def __init__(self, found: Sequence[T], rows_read: int, left: Sequence[Refused] = ()) -> None:
        super().__init__(found)
        self.rows_read = rows_read
        self.left_to_python = list(left)
        """Why Python, and not the database, decided parts of the query (``finish="python"``)."""


class _Either(Protocol[P, R]):
    """A function of a session. If the session is asynchronous, its result must be awaited."""

    @overload
    def __call__(self, session: Plain, *args: P.args, **options: P.kwargs) -> R: ...
    @overload
    def __call__(self, session: Asynchronous, *args: P.args, **options: P.kwargs) -> Awaitable[R]: ...


def asynchronous(function: Callable[Concatenate[Any, P], R]) -> _Either[P, R]:
    """Let a function also accept an asynchronous session, whose result must then be awaited, or a session registry."""

    @functools.wraps(function)
    def either(session: Any, *args: P.args, **options: P.kwargs) -> Any:
        if hasattr(session, "registry"):  # scoped_session, async_scoped_session
            session = session()
        if hasattr(session, "run_sync"):
            return session.run_sync(lambda plain: either(plain, *args, **options))
        if not isinstance(session, orm.Session):
            raise QueryError(f"{session!r} is not a session", hint="For a connection: execute(query.select(table)).")
        with session.no_autoflush:
            return function(session, *args, **options)

    return either


class Asking:
    """One query of models in a session: statements for the database, and the unsaved objects."""

    def __init__(self, session: orm.Session, models: Any, query: Any, finish: str | None) -> None:
        if finish not in (None, "python"):
            raise QueryError(f'finish={finish!r} is not known: there is "python"')
        self.session = session
        self.several = isinstance(models, tuple)
        self.models: tuple[Any, ...] = models if isinstance(models, tuple) else (models,)
        for model in self.models:
            found = sa.inspect(model, raiseerr=False)
            if not getattr(found, "is_mapper", False) and not getattr(found, "is_aliased_class", False):
                raise QueryError(
                    f"{model!r} is not a mapped class",
                    hint="Give a class or a tuple of classes. For a table: session.execute(query.select(table)).",
                )
        self.query: Where[Any] = where(query)
        self.query.models(self.models)
        self.finish = finish
        self.dialect = session.get_bind(sa.inspect(self.models[0]).mapper).dialect
        # If a model is joined with itself, each occurrence needs an alias.
        repeated = len(set(self.models)) < len(self.models)
        self.targets = [orm.aliased(model) if repeated else model for model in self.models]
        self.changes = [Changes(session, model) for model in self.models]
        for each in self.changes:
            if len(each.identities) > MOST_CHANGED:
                raise Refused(
                    f"the session has {len(each.identities):,} unsaved changes of {each.name}",
                    hint="Flush it first: session.flush().",
                )
        self.options: tuple[Any, ...] = ()
        """Loader options of what is read."""
        self.left: list[Refused] = []
        self.rows_read = 0

    @contextlib.contextmanager
    def flushed(self) -> Iterator[None]:
        """A context manager that sets the attributes of changed objects that a flush would set, and resets them at
        the end."""
        with contextlib.ExitStack() as stack:
            for each in self.changes:
                stack.enter_context(each.flushed())
            yield

    def condition(self, rows: Sequence[Any]) -> tuple[sql.Condition, bool]:
        """Return the condition for ``rows`` (entities or objects in memory), and whether it is exact."""
        if self.finish is None and all(isinstance(each, sql.Entity) for each in rows):
            clause = cache.clause(self.query, tuple(self.targets), self.dialect)
            self.refuse_unsaved(clause.read, clause.classes)
            return clause, True
        translator = sql.Translator(self.dialect, lenient=self.finish == "python")
        found = self.query.translate(translator, tuple(rows), positive=True)
        self.refuse_unsaved(translator.read, translator.classes, unknown=bool(translator.left))
        self.left += translator.left
        return found, not translator.left

    def refuse_unsaved(
        self,
        read: Collection[tuple[Any, str]],
        classes: Collection[Any],
        *,
        but_key: bool = False,
        unknown: bool = False,
    ) -> None:
        """Raise Refused if the query reads values that are unknown before a flush, among these attributes of the
        targets and these classes. ``unknown``: Python decides parts of the query, so it is not known what they read.
        """
        refuse_related(self.session, classes, self.models, {name for _, name in read}, unknown=unknown)
        for each, target in zip(self.changes, self.targets, strict=True):
            names = {name for owner, name in read if owner is target}
            names |= set(each.mapper.attrs.keys()) if unknown else set()
            each.refuse_unknown(names, but_key=but_key)

    def condition_beside(self, held: Sequence[Any]) -> tuple[sql.Condition, bool]:
        """Return the condition for rows that the database adds to ``held``, which has None for each model of these
        rows."""
        return self.condition(
            [
                sql.Entity(target) if item is None else Item(item)
                for target, item in zip(self.targets, held, strict=True)
            ]
        )

    def statement(self, held: Sequence[Any], condition: sql.Condition) -> Any:
        """Return the SELECT of the rows that the database adds to the objects ``held``, with a condition. It excludes
        rows that the session has changed or deleted.
        """
        asked = [target for target, item in zip(self.targets, held, strict=True) if item is None]
        statement = sa.select(*asked).options(*self.options)
        if len(asked) > 1:
            # An explicit join, so that SQLAlchemy does not warn of a Cartesian product: the condition may hold for all
            # pairs.
            statement = statement.select_from(functools.reduce(lambda one, two: orm.join(one, two, sa.true()), asked))
        if condition is not True:
            statement = statement.where(terms.as_sql(condition))
        for target, item, changed in zip(self.targets, held, self.changes, strict=True):
            if item is None and changed.identities:
                statement = statement.where(changed.excluded(target))
        return statement

    def rows(self, statement: Any) -> Any:
        """Return the rows of a statement, without duplicates from joined eager loading."""
        found = self.session.execute(statement).unique().all()
        self.rows_read += len(found)
        return found

    def held(self) -> Any:
        """Return the object in the session, if the query only selects one primary key; else None."""
        if self.several or len(mapper_key := self.changes[0].mapper.primary_key) != 1:
            return None
        asked = asked_value(self.query, self.changes[0].mapper.get_property_by_column(mapper_key[0]).key)
        # Only for these types do equal values mean the same key: True equals 1.
        if type(asked) not in (int, str, uuid.UUID) or type(asked) is not mapper_key[0].type.python_type:
            return None
        item = self.session.identity_map.get(self.changes[0].mapper.identity_key_from_primary_key((asked,)))
        if item is None or not isinstance(item, self.changes[0].mapper.class_):
            return None
        if sa.inspect(item).expired or self.changes[0].live or self.changes[0].identities:
            return None
        return item

    def found(self, ask: Callable[[Any, bool], Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the matching rows, in no particular order. ``ask(statement, exact)`` is called with the SELECT of the
        rows that are only in the database; ``exact`` is false if it may return rows that do not match. The statement
        that ``ask`` returns is executed; None skips the database.
        """
        guarded = self.query.judge().guarded
        # For each choice of models whose rows are changed objects; the database adds the rows of the other models.
        for choice in itertools.product(*([False, True] if each.live else [False] for each in self.changes)):
            every = itertools.product(
                *(each.live if chosen else [None] for chosen, each in zip(choice, self.changes, strict=True))
            )
            if all(choice):
                yield from (held for held in every if guarded(*held))
            elif any(choice):
                while some := list(itertools.islice(every, MOST_TOGETHER)):
                    yield from self.added(some, guarded)
            else:
                held = (None,) * len(self.models)
                condition, exact = self.condition_beside(held)
                asked = None if condition is False else ask(self.statement(held, condition), exact)
                for row in () if asked is None else self.rows(asked):
                    if exact or guarded(*row):
                        yield tuple(row)
        if self.left:
            _log.info("%d rows were read, since Python decides: %s", self.rows_read, self.left[0].problem)

    def added(self, some: list[tuple[Any, ...]], guarded: Callable[..., bool]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that the database adds to several choices of changed objects, by one statement. A row has a
        flag for each choice."""
        made = [(held, *self.condition_beside(held)) for held in some]
        made = [each for each in made if each[1] is not False]
        if not made:
            return
        conditions = [terms.as_sql(condition) for _, condition, _ in made]
        statement = self.statement(some[0], sa.or_(*conditions))
        flags = [
            sa.case((each, sa.text("1")), else_=sa.text("0")).label(f"holds_{at}") for at, each in enumerate(conditions)
        ]
        for row in self.rows(statement.add_columns(*flags)):
            for holds, (held, _, exact) in zip(row[-len(made) :], made, strict=True):
                given = iter(row)
                whole = tuple(next(given) if each is None else each for each in held)
                if holds and (exact or guarded(*whole)):
                    yield whole


@overload
def recall(
    session: Plain,
    models: type[T],
    query: Where[T] | Callable[[T], object] | str,
    *,
    order: Callable[[T], Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Recalled[T]: ...
@overload
def recall(
    session: Plain,
    models: tuple[type[T], type[U]],
    query: Where[Any] | Callable[[T, U], object] | str,
    *,
    order: Callable[[T, U], Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Recalled[tuple[T, U]]: ...
@overload
def recall(
    session: Plain,
    models: tuple[type[Any], ...],
    query: _Asked,
    *,
    order: Callable[..., Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Recalled[Any]: ...
@overload
def recall(
    session: Asynchronous,
    models: type[T],
    query: Where[T] | Callable[[T], object] | str,
    *,
    order: Callable[[T], Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Awaitable[Recalled[T]]: ...
@overload
def recall(
    session: Asynchronous,
    models: tuple[type[T], type[U]],
    query: Where[Any] | Callable[[T, U], object] | str,
    *,
    order: Callable[[T, U], Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Awaitable[Recalled[tuple[T, U]]]: ...
@overload
def recall(
    session: Asynchronous,
    models: tuple[type[Any], ...],
    query: _Asked,
    *,
    order: Callable[..., Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Awaitable[Recalled[Any]]: ...
@asynchronous
def recall(
    session: Any,
    models: Any,
    query: Any,
    *,
    order: Callable[..., Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    finish: str | None = None,
    options: Sequence[Any] = (),
) -> Any:
    """Return the objects for which a query holds, in the database and among the unsaved ones of the session. ``models``
    is a mapped class, or a tuple of classes for a function of several arguments; then the results are tuples. ``order``
    is a function of the same arguments that returns one key or a tuple; :func:`desc` reverses a key. None sorts first;
    ties are sorted by primary key, objects without one last. ``finish="python"`` lets Python evaluate the parts that
    the database cannot; without it such a query raises :class:`Refused`. ``options`` are SQLAlchemy loader options for
    the rows, such as ``selectinload(Book.author)``. With an asynchronous session, await the result. For a query such as
    ``lambda b: b.id == 7``, the object with this primary key is taken from the session, as by ``session.get()``, and
    the database is only queried if it is not there.
    """
    numbers: tuple[Any, ...] = (0 if limit is None else limit, offset)
    if not all(isinstance(each, int) and each >= 0 for each in numbers):
        raise QueryError("limit and offset are integers that are not negative")
    asked = Asking(session, models, query, finish)
    asked.options = tuple(options)
    keys = ordering(order, asked.targets, asked.dialect, asked.changes)
    if limit != 0 and not offset and not options:
        held = asked.held()
        if held is not None:
            return Recalled([held], 0)

    def arranged(statement: Any, exact: bool) -> Any:
        if limit is None or not exact:
            return statement  # memory sorts the rows; an order in SQL could prevent the use of an index
        return keys.applied(statement.limit(limit + offset))

    with asked.flushed():
        if keys.translator is not None:
            asked.refuse_unsaved(keys.translator.read, keys.translator.classes, but_key=True)
        found = sorted(asked.found(arranged), key=keys.key)[offset : None if limit is None else offset + limit]
    result = found if asked.several else [row[0] for row in found]
    return Recalled(result, asked.rows_read, asked.left)


def _counted(asked: Asking, aggregate: Any, memory: Callable[..., Any]) -> list[Any]:
    """Return the results of an aggregate over the database's rows, and the value of each row that is decided in
    memory."""
    sums = []

    def summed(statement: Any, exact: bool) -> Any:
        if not exact:
            return statement
        # Keep the FROM clause: a condition that is always true names no table.
        sums.append(statement.with_only_columns(aggregate, maintain_column_froms=True))
        return None

    with asked.flushed():
        values = [memory(*rows) for rows in asked.found(summed)]
    return [*(asked.session.execute(each).scalar_one() for each in sums), *values]


@asynchronous
def count(session: Any, models: _Models, query: _Asked, *, finish: str | None = None) -> int:
    """Return the number of objects that :func:`recall` would return, without reading those of the database."""
    asked = Asking(session, models, query, finish)
    return int(sum(_counted(asked, sa.func.count(), lambda *_: 1)))


@asynchronous
def exists(session: Any, models: _Models, query: _Asked, *, finish: str | None = None) -> bool:
    """Return whether :func:`recall` would return any object."""
    return bool(recall(session, models, query, limit=1, finish=finish))


@asynchronous
def total(session: Any, models: _Models, query: _Asked, of: Callable[..., Any], *, finish: str | None = None) -> Any:
    """Return the sum of a number over the objects that :func:`recall` would return; a None is not added.

    Integers and Decimals are summed exactly. Floats are refused, because their sum depends on the order of the rows.
    """
    asked = Asking(session, models, query, finish)
    values = ordering(of, asked.targets, asked.dialect, asked.changes).single()
    assert values.translator is not None
    with asked.flushed():
        asked.refuse_unsaved(values.translator.read, values.translator.classes)

    def memory(*rows: Any) -> Any:
        found = values.value(rows)
        return 0 if found is None else found

    found = 0
    for each in _counted(asked, values.sum(), memory):
        found += values.python(each)
    return found


__all__ = ["Recalled", "count", "desc", "exists", "recall", "total"]
