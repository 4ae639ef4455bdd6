"""Finders: compiled dispatchers, which find the endpoint of each request."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kirsch_web import percent
from kirsch_web.plan import Endpoint, Plan
from kirsch_web.request import Request
from kirsch_web.urls import filled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from kirsch_web.interfaces import Application


class Finder(ABC):
    """Base class of the finders that dispatchers compile to.

    A finder whose paths have no endpoints overrides :meth:`request` too.
    """

    dynamic = True
    """Whether finding an endpoint may call code of the application."""

    def __init__(self, app: Application) -> None:
        self.app = app

    def request(self, environ: dict[str, Any]) -> Request:
        """Create the request of ``environ`` with its plan. If finding the endpoint fails, the exception is raised when
        the handler would run."""
        method = environ["REQUEST_METHOD"]
        try:
            endpoint, rest, captured = self.find(percent.wsgi_path(environ.get("PATH_INFO", "")), method)
        except Exception as error:  # noqa: BLE001 - a bad path, or code of the application failed
            return Request(environ, self.app, self.refusal(error))
        return Request(environ, self.app, endpoint.plan(method), rest, captured)

    @abstractmethod
    def find(self, path: str, method: str = "GET", /) -> tuple[Endpoint, Sequence[str], dict[str, str] | None]:
        """Return the endpoint of a decoded path, the segments for positional parameters, and the named segments."""

    def exact(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield the paths with a fixed endpoint that takes no further segments, each with its endpoint."""
        return iter(())

    def leaves(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield the paths below which any one segment is the positional argument of a fixed endpoint, with it."""
        return iter(())

    def handlers(self) -> Iterator[Plan]:
        """Yield the plans of all handlers that are known before a request arrives."""
        return iter(())

    def named(self, name: str) -> Any:
        """Return the route named ``name``, to build URLs. Raises KeyError if there is none."""
        raise KeyError(name)

    def path_of(self, plan: Plan, values: dict[str, object]) -> str:
        """Return the path of a handler with its parameters filled in. Removes the used items from ``values``."""
        return filled(plan.path, values)

    def refusal(self, error: Exception) -> Plan:
        """Return a plan, with the configuration of the root, whose handler raises ``error``."""

        def fail(_request: Request) -> object:
            raise error

        layers = [each for each in (self.app.defaults, self.app.sections.get(""), self.app.sections.get("/")) if each]
        return Plan(self.app.settings(layers), fail, method="")
