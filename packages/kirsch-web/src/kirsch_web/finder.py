"""The compiled form of a dispatcher, which finds the endpoint of each request."""

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
    """Base of what dispatchers compile to.

    A dispatcher whose paths have no endpoints overrides :meth:`request` too.
    """

    dynamic = True
    """True if finding an endpoint may call the application's own code."""

    def __init__(self, app: Application) -> None:
        self.app = app

    def request(self, environ: dict[str, Any]) -> Request:
        """Return the request of ``environ``, with its plan. What goes wrong here is raised where a handler would
        run."""
        method = environ["REQUEST_METHOD"]
        try:
            endpoint, rest, captured = self.find(percent.wsgi_path(environ.get("PATH_INFO", "")), method)
        except Exception as error:  # noqa: BLE001 - of the path, or of an object's own code
            return Request(environ, self.app, self.refusal(error))
        return Request(environ, self.app, endpoint.plan(method), rest, captured)

    @abstractmethod
    def find(self, path: str, method: str = "GET", /) -> tuple[Endpoint, Sequence[str], dict[str, str] | None]:
        """Return the endpoint of a decoded path, the segments for positional parameters, and those that have names."""

    def exact(self) -> Iterator[tuple[str, Endpoint]]:
        """Paths whose endpoint never depends on the request, and which leave no segments."""
        return iter(())

    def leaves(self) -> Iterator[tuple[str, Endpoint]]:
        """Paths below which every segment is the one positional argument of the same endpoint."""
        return iter(())

    def handlers(self) -> Iterator[Plan]:
        """Return the plans of all handlers that are known before a request arrives."""
        return iter(())

    def named(self, name: str) -> Any:
        """Return the route of a name, for URLs. Raises KeyError."""
        raise KeyError(name)

    def path_of(self, plan: Plan, values: dict[str, object]) -> str:
        """Return the path of a handler with ``values`` for its names, which are taken out."""
        return filled(plan.path, values)

    def refusal(self, error: Exception) -> Plan:
        """Return a plan, with the configuration of the root, whose handler raises ``error``."""

        def fail(_request: Request) -> object:
            raise error

        layers = [each for each in (self.app.defaults, self.app.sections.get(""), self.app.sections.get("/")) if each]
        return Plan(self.app.settings(layers), fail, method="")
