"""A record of the outer names that a translation reads, so that its clause can be cached for other values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping, Sequence

    from kirsch_query.scope import Scope, Space
    from kirsch_query.source import Source


class Leaf(Protocol):
    """One function of a query, with its outer names."""

    source: Source
    function: Any
    """The Python function; None if the query is given as text."""
    given: Mapping[str, Any]

    def space(self) -> Space: ...
    def scope(self, names: Mapping[str, Any]) -> Scope: ...


class Query(Protocol):
    """The part of :class:`query.Where` that a translation needs."""

    def form(self) -> Any: ...
    def leaves(self) -> Sequence[Leaf]: ...
    def translate(self, translator: Any, rows: tuple[Any, ...], positive: bool) -> Any: ...


Binder: TypeAlias = Callable[[Any, Any], tuple[Any, list[Any]]]
"""Makes the shape and the parameters of a value, by a translator."""


@dataclass(eq=False)
class Read:
    """A value that a translation has read."""

    node: ast.expr
    leaf: int
    """In which of the query's functions."""
    value: Any
    pinned: bool = False
    """True if the translation depends on the value, and not only on its type."""
    claims: list[tuple[Any, tuple[Any, ...], Binder]] = field(default_factory=list)
    """The parameters that have the value: their shape, themselves, and the function that computes them anew."""


class Trace:
    """The values that one translation reads, in order."""

    def __init__(self, spaces: list[Space]) -> None:
        self.spaces = spaces
        self.reads: list[Read] = []
        self.kept = True
        self._next = iter(spaces)

    def next_space(self) -> Space:
        """Return the outer names of the query's next function."""
        return next(self._next)

    def holds(self, space: Space) -> bool:
        """Return whether ``space`` has the outer names of one of the query's functions."""
        return any(each is space for each in self.spaces)

    def record(self, node: ast.expr, space: Space, value: Any) -> Read:
        leaf = next((at for at, each in enumerate(self.spaces) if each is space), 0)
        read = Read(node, leaf, value)
        self.reads.append(read)
        return read
