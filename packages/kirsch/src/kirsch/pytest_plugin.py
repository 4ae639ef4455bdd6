"""The pytest plugin: the fixture ``kirsch_server``, a live server for the application under test.

pytest loads it in every run (entry point ``pytest11``), so the server is imported only when a test asks for it. If a
test fails, pytest shows the lines that the servers logged during it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kirsch.development import LiveServer

_SCOPES = ("session", "package", "module", "class", "function")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the plugin in pytest's configuration file."""
    parser.addini("kirsch_app", "the application of the fixture kirsch_server: module:app, or a call of a factory")
    parser.addini("kirsch_scope", f"how long one kirsch_server lives: {', '.join(_SCOPES)}", default="session")


def pytest_configure(config: pytest.Config) -> None:
    """Raise UsageError if ``kirsch_scope`` is no scope of pytest."""
    scope = config.getini("kirsch_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"kirsch_scope: {scope!r} is none of {', '.join(_SCOPES)}")
    config.stash[_SERVERS] = []


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 - pytest calls it by these names
    return config.getini("kirsch_scope")


# The running servers, each with the number of lines in its log when the current test began.
_SERVERS = pytest.StashKey[list[list[Any]]]()


@pytest.fixture(scope=_scope)
def kirsch_options() -> dict[str, Any]:
    """Return options of :class:`kirsch.Server` for ``kirsch_server``. Override this fixture to set some."""
    return {}


@pytest.fixture(scope=_scope)
def kirsch_app(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return the application: that of the setting ``kirsch_app``, of the fixture ``app``, or of Django.

    Override this fixture to serve another one.
    """
    name = request.config.getini("kirsch_app")
    if name:
        from kirsch.apps.loading import LoadError, load

        try:
            return load(name)[0]
        except LoadError as error:
            raise pytest.UsageError(f"kirsch_app: {error}") from error.cause
    try:
        application: Callable[..., Any] = request.getfixturevalue("app")
        return application
    except pytest.FixtureLookupError:
        pass
    if _uses_django():
        from kirsch.django.testing import application_under_test

        return application_under_test()
    raise pytest.UsageError(
        "kirsch_server has no application: set kirsch_app = module:app in pytest's configuration, or write a fixture "
        "named kirsch_app"
    )


@pytest.fixture(scope=_scope)
def kirsch_server(
    request: pytest.FixtureRequest, kirsch_app: Callable[..., Any], kirsch_options: dict[str, Any]
) -> Iterator[LiveServer]:
    """Start a server for the application on a free port of 127.0.0.1 and return it; ``kirsch_server.url`` is its base
    URL.

    The option ``kirsch_scope`` sets how long the server lives.
    """
    yield from _serve(request.config, kirsch_app, kirsch_options)


@pytest.fixture
def kirsch_serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., LiveServer]]:
    """Return a function ``kirsch_serve(app, **options)`` that starts a server for ``app``, which stops when the test
    ends."""
    running = []

    def serve(app: Callable[..., Any], **options: Any) -> LiveServer:
        steps = _serve(request.config, app, options)
        running.append(steps)
        return next(steps)

    yield serve
    complaints = []
    for steps in reversed(running):
        try:
            next(steps, None)
        except pytest.fail.Exception as error:
            complaints.append(str(error))
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def _serve(config: pytest.Config, app: Callable[..., Any], options: dict[str, Any]) -> Iterator[LiveServer]:
    from kirsch.development import LiveServer

    server = LiveServer(app, **options)
    entry: list[Any] = [server, 0]
    config.stash[_SERVERS].append(entry)
    try:
        with contextlib.ExitStack() as stack:
            if _uses_django():
                from kirsch.django.testing import shared_database

                stack.enter_context(shared_database(server))
            server.start()
            stack.callback(_tell_framework(server, app))
            yield server
            stacks = server.server.dump()
            if not server.stop():
                pytest.fail(f"a request of {server.url} has not ended:\n{stacks}", pytrace=False)
    finally:
        config.stash[_SERVERS].remove(entry)


def _tell_framework(server: LiveServer, app: Callable[..., Any]) -> Callable[[], None]:
    """Set the address of the server in the framework's configuration; return a function that restores it."""
    configuration = getattr(app, "config", None)
    if hasattr(app, "test_client") and isinstance(configuration, dict) and "SERVER_NAME" in configuration:
        # Flask's url_for(..., _external=True) needs the server's name outside of requests.
        before = configuration["SERVER_NAME"]
        configuration["SERVER_NAME"] = before or f"{server.host}:{server.port}"
        return lambda: configuration.__setitem__("SERVER_NAME", before)
    return _nothing


def _nothing() -> None:
    pass


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make pytest-django commit the data of tests that use a server: the server's thread cannot see an open
    transaction."""
    if not (config.pluginmanager.hasplugin("django") and _uses_django()):
        return
    for item in items:
        if "kirsch_server" in getattr(item, "fixturenames", ()) and item.get_closest_marker("django_db") is None:
            item.add_marker(pytest.mark.django_db(transaction=True))


def _uses_django() -> bool:
    """Return whether a Django project is configured in this process."""
    import sys

    configuration = sys.modules.get("django.conf")
    return configuration is not None and bool(configuration.settings.configured)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the length of each server's log, so that a failure shows only the lines of its test."""
    for entry in item.config.stash[_SERVERS]:
        entry[1] = len(entry[0].log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log lines of the servers to the report of a failed test."""
    report = yield
    if report.failed:
        for server, seen in item.config.stash[_SERVERS]:
            if lines := server.log[seen:]:
                report.sections.append((f"Log of Kirsch at {server.url}", "\n".join(lines)))
    return report
