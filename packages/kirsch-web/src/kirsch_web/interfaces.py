"""Protocols of the application and its plans, which avoid circular imports.

An :class:`~kirsch_web.app.App` is an ``Application``, and a :class:`~kirsch_web.plan.Plan` is a ``RequestPlan``. Only
type checkers load this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Application(Protocol):
    """The members of an App that dispatchers, plans, tools and requests use."""

    root: object
    tools: Any
    namespaces: tuple[str, ...]
    sections: dict[str, Any]
    defaults: Any
    mistakes: list[str]
    finder: Any
    paths: dict[Any, list[Any]] | None

    def layer_of(self, thing: Any) -> Any: ...

    def settings(self, layers: Sequence[Any]) -> Any: ...

    def handlers(self) -> Iterator[Any]: ...

    def _request(self, environ: dict[str, Any]) -> Any: ...

    def url(self, handler: Callable[..., object] | str, *segments: object, **query: object) -> str: ...


class RequestPlan(Protocol):
    """The members of a Plan that requests and responses use."""

    config: dict[str, Any]
    origins: dict[str, str]
    limits: Any
    points: Any
    hooks: dict[str, Any]
    run: Callable[[Any], object]
    function: Callable[..., object] | None
    method: str
    path: str
    is_index: bool
    allow: tuple[str, ...]
    status: int
    line: str
    fields: list[tuple[str, str]]
    html_fields: list[tuple[str, str]]
    json_fields: list[tuple[str, str]]
    checks_host: bool
    direct: bool
    quiet: bool
    streams: bool
    finishes: Any
    marked: Any
    encoded: Any
    quick: Any
