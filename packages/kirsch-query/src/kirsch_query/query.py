"""``where``: a plain Python function as a query."""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, GenericAlias, MethodType

from kirsch_query.errors import QueryError, SourceError
from kirsch_query.scope import Scope, Space, constant, mangled, space_of
from kirsch_query.source import Source, bound_source, free_names, from_function, from_text, has_loops, is_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generic, Protocol, overload

    import sqlalchemy as sa
    from sqlalchemy.orm.interfaces import ORMOption
    from typing_extensions import TypeVar  # installed with type checkers

    from kirsch_query.explain import Explanation
    from kirsch_query.judging import Judge

    T = TypeVar("T", default=Any)

    class _OneDefault(Protocol):
        def __call__(self, row: Any, one: Any = ..., /) -> object: ...

    class _TwoDefaults(Protocol):
        def __call__(self, row: Any, one: Any = ..., two: Any = ..., /) -> object: ...
else:
    T = "T"

    class Generic:
        """A substitute for typing.Generic, for the annotation Where[Book]: importing typing takes long."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)


class Where(Generic[T]):
    """A query, made by :func:`where`: called with an object, it is true or false; it filters objects, and translates
    to SQL."""

    __slots__ = ("arity",)

    arity: int
    """How many rows it judges together: 1, or as many as a join has."""

    def __call__(self, *rows: Any) -> bool:
        """Return whether the query holds for an object; for a join, for one object of each kind."""
        if len(rows) != self.arity:
            raise QueryError(f"this query judges {self.arity} rows together, and was given {len(rows)}")
        return _ask(self.judge(), rows)

    def filter(self, rows: Iterable[T]) -> Iterator[T]:
        """Yield the rows for which the query holds, in order. Parts that depend on no row are evaluated once, at the
        first row."""
        if self.arity != 1:
            raise QueryError(
                f"this query judges {self.arity} rows together, so that it filters no single ones",
                hint="Call it: [pair for pair in itertools.product(ones, others) if query(*pair)].",
            )
        from kirsch_query import judging

        return judging.filtered(self.judge, rows)

    def clause(self, *models: Any, dialect: Any = None) -> sa.ColumnElement[bool]:
        """Return the condition in SQL, for ``select().where()`` and similar methods. ``models`` are mapped classes,
        aliases of them, or tables: one for each argument of the query. Raises :class:`Refused` if the translation is
        not exact. If that depends on the database, it raises when SQL is compiled for the database, or at once if
        ``dialect`` is given.
        """
        from kirsch_query import cache

        return cache.clause(self, self.models(models), dialect)

    def select(self, *models: Any) -> sa.Select[Any]:
        """Return ``sa.select(*models).where(self.clause(*models))``, which is faster from the second use on. The most
        expensive part, SQLAlchemy's key of the statement, is cached until a method changes the statement.
        """
        from kirsch_query import cache

        return cache.select(self, self.models(models))

    def criteria(self, base: type[Any]) -> list[ORMOption]:
        """Return SQLAlchemy options that load only the rows of a class for which the query holds. ``base`` is a mapped
        class, or a base class of mapped classes. This replaces ``with_loader_criteria(base, lambda cls: ...)``, for
        which SQLAlchemy would keep the values of the first use. Raises :class:`Refused` if the translation is not
        exact.
        """
        from kirsch_query import cache

        return cache.criteria(self, base)

    def explain(self, *models: Any, engine: Any = None) -> Explanation:
        """Return the translation of the query: SQL, bound values, additions and their reasons, and the index used.

        ``engine`` is an engine or a connection; it may also be the last positional argument.
        """
        from kirsch_query.explain import explain

        if engine is None and len(models) == self.arity + 1:
            *models, engine = models  # type: ignore[assignment]
        return explain(self, self.models(tuple(models)), engine)

    def models(self, models: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``models``. Raises QueryError if their number differs from that of the query's arguments."""
        if len(models) != self.arity:
            raise QueryError(f"this query judges {self.arity} rows together, and was given {len(models)} models")
        return models

    def __and__(self, other: Where[T]) -> Where[T]:
        return _Joint("and", (self, other))

    def __or__(self, other: Where[T]) -> Where[T]:
        return _Joint("or", (self, other))

    def __invert__(self) -> Where[T]:
        return _Not(self)

    def __bool__(self) -> bool:
        raise QueryError("a query is neither true nor false", hint="Join queries by & and |, negate one by ~.")

    def judge(self) -> Judge:
        """Return the functions that test rows, with the current values of outer names."""
        raise NotImplementedError

    def form(self) -> Any:
        """Return a hashable key that is equal for queries that differ only in the values of outer names."""
        raise NotImplementedError

    def leaves(self) -> tuple[_Leaf[Any], ...]:
        """Return the functions of which the query consists, in the order of their translation."""
        raise NotImplementedError

    def translate(self, translator: Any, rows: tuple[Any, ...], positive: bool) -> Any:
        """Return the condition by a :class:`sql.Translator`; ``rows`` are the arguments of the function."""
        raise NotImplementedError


class _Leaf(Where[T]):
    __slots__ = ("function", "given", "one", "plain", "source")

    def __init__(self, source: Source, function: FunctionType | None, given: Mapping[str, Any]) -> None:
        self.source = source
        self.function = function
        self.given = given
        self.one: Any = None
        """The query by the rule for None, once it is made."""
        self.arity = len(source.rows)
        self.plain = function is not None and not given and not has_loops(source.body)
        """True if a call of the function evaluates what depends on no row once, as a use of the query does."""

    def __repr__(self) -> str:
        return f"where({', '.join(self.source.rows)}: {self.source.segment(self.source.body)})"

    def __call__(self, *rows: Any) -> bool:
        """Return whether the query holds, by the function itself if Python can evaluate it."""
        if self.plain and len(rows) == self.arity:
            try:
                if not any(isinstance(row, Mapping) for row in rows):
                    return bool(self.function(*rows))  # type: ignore[misc]
            except Exception:  # noqa: BLE001, S110 - the rule for None decides, and raises again what is another mistake
                pass
            try:
                if self.one is not None:
                    return bool(self.one(*rows))
            except Exception:  # noqa: BLE001, S110 - the tree decides, and raises again what is another mistake
                pass
            else:
                from kirsch_query import judging

                self.one = judging.of_one(self.function, self.source)  # type: ignore[arg-type]
        return super().__call__(*rows)

    def scope(self, names: Mapping[str, Any]) -> Scope:
        return Scope(self.source, self.space(), names)

    def space(self) -> Space:
        """Return the outer names of the query with their current values."""
        if self.function is not None:
            return space_of(self.function, self.given)
        return Space({"__builtins__": builtins}, self.given)

    def form(self) -> Any:
        return self.source

    def leaves(self) -> tuple[_Leaf[Any], ...]:
        return (self,)

    def judge(self) -> Judge:
        from kirsch_query import judging

        return judging.judge(self.scope({}))

    def translate(self, translator: Any, rows: tuple[Any, ...], positive: bool) -> Any:
        names = dict(zip(self.source.rows, rows, strict=True))
        space = self.space() if translator.trace is None else translator.trace.next_space()
        return translator.condition(self.source.body, Scope(self.source, space, names), positive)


class _Joint(Where[T]):
    __slots__ = ("op", "parts")

    def __init__(self, op: str, parts: tuple[Where[T], ...]) -> None:
        for each in parts:
            if not isinstance(each, Where):
                raise QueryError(f"a query is joined with another one, and not with {each!r}")
        if len({each.arity for each in parts}) != 1:
            raise QueryError("these queries judge different numbers of rows, and cannot be joined")
        self.op = op
        self.parts = parts
        self.arity = parts[0].arity

    def form(self) -> Any:
        return (self.op, *(each.form() for each in self.parts))

    def leaves(self) -> tuple[_Leaf[Any], ...]:
        return tuple(leaf for each in self.parts for leaf in each.leaves())

    def __repr__(self) -> str:
        return "(" + (" & " if self.op == "and" else " | ").join(map(repr, self.parts)) + ")"

    def judge(self) -> Judge:
        from kirsch_query.judging import Judge

        judges = [each.judge() for each in self.parts]
        whole = all if self.op == "and" else any

        def guarded(*rows: Any) -> bool:
            return whole(_ask(judge, rows) for judge in judges)

        return Judge(None, guarded)

    def translate(self, translator: Any, rows: tuple[Any, ...], positive: bool) -> Any:
        from kirsch_query import relations, terms

        parts = [each.translate(translator, rows, positive) for each in self.parts]
        return terms.either(*parts) if self.op == "or" else terms.both(*relations.conjoined(parts))


def _ask(judge: Judge, rows: tuple[Any, ...]) -> bool:
    fast, guarded = judge.fast, judge.guarded
    if fast is None or any(isinstance(row, Mapping) for row in rows):
        return guarded(*rows)
    try:
        return bool(fast(*rows))
    except Exception:  # noqa: BLE001 - the rule for None decides, and raises again what is another mistake
        return guarded(*rows)


class _Not(Where[T]):
    __slots__ = ("part",)

    def __init__(self, part: Where[T]) -> None:
        self.part = part
        self.arity = part.arity

    def __repr__(self) -> str:
        return f"~{self.part!r}"

    def __invert__(self) -> Where[T]:
        return self.part

    def form(self) -> Any:
        return ("not", self.part.form())

    def leaves(self) -> tuple[_Leaf[Any], ...]:
        return self.part.leaves()

    def judge(self) -> Judge:
        from kirsch_query.judging import Judge

        judge = self.part.judge()
        return Judge(None, lambda *rows: not _ask(judge, rows))

    def translate(self, translator: Any, rows: tuple[Any, ...], positive: bool) -> Any:
        from kirsch_query import terms

        return terms.negated(self.part.translate(translator, rows, not positive))


def asked_value(query: Where[Any], name: str) -> Any:
    """Return the value with which a query compares an attribute by ``==``, if that is the whole query; else None."""
    body = query.source.body if isinstance(query, _Leaf) else None
    if not isinstance(body, ast.Compare) or len(body.ops) != 1 or not isinstance(body.ops[0], ast.Eq):
        return None
    for one, other in ((body.left, body.comparators[0]), (body.comparators[0], body.left)):
        if isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.value, ast.Name):
            assert isinstance(query, _Leaf)
            if one.value.id in query.source.rows and free_names(other).isdisjoint(query.source.rows):
                return constant(other, query.scope({}))
    return None


if TYPE_CHECKING:

    @overload
    def where(query: Where[T], /) -> Where[T]: ...
    @overload
    def where(query: Callable[[T], object], /, **names: Any) -> Where[T]: ...
    # mypy infers the types of a lambda if a signature has the same number of arguments, including defaults. A signature
    # that accepts all functions would accept wrong ones too.
    @overload
    def where(query: _TwoDefaults, /, **names: Any) -> Where[Any]: ...
    @overload
    def where(query: _OneDefault, /, **names: Any) -> Where[Any]: ...
    @overload
    def where(query: Callable[[Any, Any], object], /, **names: Any) -> Where[Any]: ...
    @overload
    def where(query: Callable[[Any, Any, Any], object], /, **names: Any) -> Where[Any]: ...
    @overload
    def where(query: str | None = None, /, **names: Any) -> Where[Any]: ...


def where(query: Any = None, /, **names: Any) -> Where[Any]:
    """Return a query made from a function of rows, from source text, or from values of attributes. ``where(lambda b:
    b.price < limit)`` and a ``def`` with one return read outer names at each use; ``names`` override these. A bound
    method, ``functools.partial`` and a callable object work too. ``where("b.price < limit", limit=3)`` can only use
    ``names``. ``where(author="Le Guin")`` compares attributes. Text is executed as code: do not accept it from users.
    Raises :class:`SourceError`.
    """
    if isinstance(query, Where):
        if names:
            raise QueryError("values of names are given with a function or a text, and this is a query already")
        return query
    if query is None:
        return _attributes(names)
    if isinstance(query, str):
        return _checked(_Leaf(from_text(query, frozenset(names)), None, names))
    function, bound = _function(query)
    source = from_function(function)
    if bound:
        source = bound_source(source, frozenset(bound))
    return _checked(_Leaf(source, function, {**bound, **names}), frozenset(bound.keys() - names.keys()))


def _function(query: Any) -> tuple[FunctionType, dict[str, Any]]:
    """Return the function of a callable object, and the values of its bound arguments, such as ``self``. Raises
    SourceError.
    """
    function: Any = query
    arguments: tuple[Any, ...] = ()
    names: dict[str, Any] = {}
    while not is_python(function):
        call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is called
        if isinstance(function, functools.partial):
            arguments, names = (*function.args, *arguments), {**function.keywords, **names}
            function = function.func
        elif isinstance(function, MethodType):
            function, arguments = function.__func__, (function.__self__, *arguments)
        elif is_python(call):
            function, arguments = call, (function, *arguments)
        else:
            raise SourceError(
                f"{query!r} is not a Python function, so that it has no source",
                hint="Write lambda b: f(b), a def with one return, or the same as text.",
            )
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if len(arguments) > code.co_argcount or not names.keys() <= set(known[len(arguments) :]):
        raise QueryError(f"{query!r} binds arguments that {function.__name__}() does not have")
    return function, {**dict(zip(known, arguments, strict=False)), **names}


def _checked(leaf: _Leaf[Any], bound: frozenset[str] = frozenset()) -> Where[Any]:
    """Return ``leaf``, if it has rows and reads each name with a given value, except those in ``bound``. Raises
    SourceError or QueryError."""
    source = leaf.source
    if not leaf.arity:
        raise SourceError("a query has an argument for the row that it judges", hint="Write lambda b: ...")
    if leaf.given:
        read = {mangled(each, source.private) for each in free_names(source.body).difference(source.rows)}
        for name in leaf.given.keys() - read - bound:
            import difflib

            near = difflib.get_close_matches(name, read, 1)
            hint = f"Did you mean {near[0]}?" if near else f"It reads {', '.join(sorted(read)) or 'no names'}."
            problem = f"where() was given {name}, which the query does not read"
            raise QueryError(problem, source.place(source.body), hint)
    return leaf


def _attributes(names: Mapping[str, Any]) -> Where[Any]:
    if not names:
        raise QueryError("where() was given nothing to ask for")
    parts = [comparison(name, "==", value) for name, value in names.items()]
    return parts[0] if len(parts) == 1 else _Joint("and", tuple(parts))


_OPERATORS = {"==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"}
_CALLS = {"startswith", "endswith"}


def comparison(attribute: str, operator: str, value: Any) -> Where[Any]:
    """Return a query that compares an attribute, or an attribute of a related object (``author.name``), with a value.

    ``operator`` is one of Python's comparisons, ``contains`` for ``value in attribute``, ``startswith``, ``endswith``.
    """
    if not all(isinstance(each, str) for each in (attribute, operator)):
        raise QueryError("the attribute and the operator of a comparison are text")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in attribute.split(".")):
        raise QueryError(f"{attribute!r} is not the name of an attribute")
    if operator in _OPERATORS:
        text = f"lambda row: row.{attribute} {operator} value"
    elif operator in _CALLS:
        text = f"lambda row: row.{attribute}.{operator}(value)"
    elif operator == "contains":
        text = f"lambda row: value in row.{attribute}"
    else:
        known = ", ".join(sorted(_OPERATORS | _CALLS | {"contains"}))
        raise QueryError(f"{operator!r} is no comparison", hint=f"There are {known}.")
    return _Leaf(from_text(text, frozenset(["value"])), None, {"value": value})


def filter(**values: Any) -> Where[Any]:  # noqa: A001 - the name that Dejavu gave it
    """Return a query that compares attributes with values; all must be equal."""
    return _attributes(values)
