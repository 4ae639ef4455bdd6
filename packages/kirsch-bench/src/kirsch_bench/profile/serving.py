"""A server in this process that runs during the requests of a profile."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from kirsch import bootstrap
from kirsch.apps.mounted import Mounted
from kirsch.net.sockets import listen
from kirsch.profile.wsgi import traced
from kirsch_bench import target as targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kirsch.apps.mounted import Application
    from kirsch.config.schema import Settings
    from kirsch.profile.wsgi import Run
    from kirsch.reports import Report
    from kirsch.server import Server
    from kirsch_bench.profile.results import Times
    from kirsch_bench.target import Target

_BIND = "127.0.0.1:0"

_END_SECONDS = 1.0
"""The graceful timeout when all requests have been sent."""

_LATE_SECONDS = 2.0
"""The client has its response a moment before the server records the times of the request. A call whose client has left
needs a moment to notice."""


def serve(
    app: Application,
    chosen: Settings,
    report: Report,
    path: str,
    time_stages: int,
    ask: Callable[[Server, Target], Any],
) -> Any:
    """Serve ``app`` in this thread, like a worker, while ``ask`` runs in another thread (under gevent: another
    greenlet). Return the result of ``ask``, or raise its exception. Raises StartupError."""
    server = bootstrap.make_server(app, chosen, report)
    server.config.time_stages = time_stages
    try:
        server.adopt(listen([_BIND], chosen.backlog))
    except OSError as error:
        raise bootstrap.StartupError(bootstrap.EXIT_FAILED, bootstrap.reason(error)) from None
    target = targets.parse(f"{server.urls[0]}{path}")
    returned: list[Any] = []
    raised: list[BaseException] = []

    def client() -> None:
        try:
            returned.append(ask(server, target))
        except BaseException as error:  # noqa: BLE001  # it is raised again in the thread that joins this one
            raised.append(error)
        finally:
            server.begin_stop(_END_SECONDS)

    thread = threading.Thread(target=client, name="kirsch profile", daemon=True)
    server.start(thread.start)
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]


def times(server: Server, expected: int) -> list[Times]:
    """Return the times of ``expected`` requests: fewer if no more arrive, the last ones if there are more."""
    found: list[Times] = []
    until = time.monotonic() + _LATE_SECONDS
    while True:
        found += server.stage_times()[0]
        if len(found) >= expected or time.monotonic() >= until:
            return found[-expected:] if expected else []
        time.sleep(0.002)


class Followed:
    """A wrapper that traces the calls of an application, one request at a time. Serve its attribute ``application``.
    ``interface`` is ``wsgi`` or ``asgi``; applications of ``--mount`` have interfaces of their own."""

    def __init__(self, app: Application, interface: str) -> None:
        self._runs: list[Run] = []
        self._is_over = threading.Event()
        self.application = app.wrapped(self._of) if isinstance(app, Mounted) else self._of(app, interface)

    def _of(self, app: Callable[..., Any], interface: str) -> Callable[..., Any]:
        def wsgi(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            iterable: Iterable[bytes] = traced(app, environ, start_response, self._done)
            return iterable

        if interface == "wsgi":
            return wsgi
        from kirsch.drivers.asyncio import application
        from kirsch.profile.asgi import traced as traced_asgi

        coroutine_function = application(app)

        async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await traced_asgi(coroutine_function, scope, receive, send, self._done)
            else:
                await coroutine_function(scope, receive, send)

        return asgi

    def _done(self, run: Run) -> None:
        self._runs.append(run)
        self._is_over.set()

    def last(self) -> Run | None:
        """Return the last traced request. Waits for its end; None if it does not end in time."""
        self._is_over.wait(_LATE_SECONDS)
        return self._runs[-1] if self._runs else None


class StageClock:
    """The nanoseconds of one request in each stage that the application reports by ``environ["kirsch.stage"]``."""

    __slots__ = ("_at", "_stage", "spent")

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self._stage = ""
        self._at = 0

    def mark(self, stage: str) -> str:
        """Begin ``stage``; return the name of the previous one, empty before the first."""
        now = time.perf_counter_ns()
        before = self._stage
        if before:
            self.spent[before] = self.spent.get(before, 0) + now - self._at
        self._stage, self._at = stage, time.perf_counter_ns()
        return before

    def start(self) -> None:
        """Start the clock: the application runs or continues."""
        self._at = time.perf_counter_ns()

    def stop(self) -> None:
        """Stop the clock: the application has returned, and the server continues."""
        if self._stage:
            self.spent[self._stage] = self.spent.get(self._stage, 0) + time.perf_counter_ns() - self._at


class Staged:
    """One or several WSGI applications that are asked to report their stages, as those of kirsch_web do; serve
    ``application``."""

    def __init__(self, app: Application) -> None:
        self.application = app.wrapped(self._of) if isinstance(app, Mounted) else self._of(app)
        self.spent: list[dict[str, int]] = []
        """Of each request that told of any, in the order of their ends."""

    def _of(self, app: Callable[..., Any], _interface: str = "wsgi") -> Callable[..., Any]:
        def wsgi(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            clock = StageClock()
            environ["kirsch.stage"] = clock.mark
            iterable: Iterable[bytes] = traced(app, environ, start_response, self._done, clock)
            return iterable

        return wsgi

    def _done(self, run: Run) -> None:
        if run.tracer.spent:  # type: ignore[attr-defined]
            self.spent.append(run.tracer.spent)  # type: ignore[attr-defined]


def no_report(_level: int, _message: str, _error: BaseException | None = None) -> None:
    """Ignore a report, for a request that repeats one whose reports were printed."""


class Reports:
    """Prints each report of the server once, because many are repeated for each request."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._said: set[str] = set()
        self.repeated = 0
        """Reports that were not printed."""

    def __call__(self, level: int, message: str, error: BaseException | None = None) -> None:
        if message in self._said:
            self.repeated += 1
        else:
            self._said.add(message)
            self._report(level, message, error)
