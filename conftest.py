"""Fixtures that every test may use: a server as a real process, an application as a file, a system program.

Developing a test against another server
    ``KIRSCH_TEST_SERVER_COMMAND`` replaces the command that ``serve`` starts. It is split as a shell would; the words
    ``{python}`` and ``{target}`` stand for the interpreter and the application, and a word ``{args}`` alone for the
    command-line arguments of the test, which are otherwise left out. The server must bind 127.0.0.1 and port 0, and
    is taken to listen when its standard error names an ``http://host:port``. For example::

        KIRSCH_TEST_SERVER_COMMAND='{python} -m waitress --listen 127.0.0.1:0 {target}' pytest tests/real
        KIRSCH_TEST_SERVER_COMMAND='{python} -m gunicorn --bind 127.0.0.1:0 --threads 1 {target}' pytest tests/real
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import signal
import textwrap
import zlib
from typing import TYPE_CHECKING

import pytest

from interpreter import HAS_LOCK
from running import Running, Serve, start

pytest_plugins = ["leftovers", "reruns"]

# A shell without job control has its background processes ignore SIGINT, and they pass that on to what they start.
# Tests of Ctrl-C need servers that do not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


# The tests of these files start servers or commands again and again. `make test` runs the first test of each; the slow
# tests have them all; those on other interpreters have them with two drivers, one for each interface.
COSTLY = {
    "access_log", "adopt", "asgi_extensions", "asgi_reports", "asgi_waiting", "blocked_logs", "certificates",
    "check", "cli", "client_socket", "completion", "compression", "connection_balance", "deploy_docs",
    "disconnected", "distributions", "end_of_connection", "engines", "exit", "fairness", "forks",
    "gateway_errors", "gateways", "gevent", "groups", "hooks", "hpack", "http2_ends", "http2_versions",
    "installation", "live_systemd", "log_config", "logs", "metrics", "mounted_asgi", "native_scoreboard",
    "one_declaration", "proxies", "proxy_protocol", "pytest_plugin", "quarantine", "racing", "rate_limits",
    "redirect", "release", "reload_fails", "signal_storms", "sockets_inherited", "suggestions", "top", "tracing",
    "tutorials", "unharmed", "upgrade", "watching", "web_served", "websocket_wsgi", "worker_limits",
}  # fmt: skip
OTHER_DRIVERS = {"gevent", "one thread", "uvloop"}
# Fixtures that run programs of the system.
PROGRAMS = {"broker", "program", "redis"}


def pytest_configure(config: pytest.Config) -> None:
    """Allow tests to fork while a thread of an earlier test still runs: CPython 3.15 raises its warning about that."""
    config.addinivalue_line("filterwarnings", "ignore:.*use of fork:DeprecationWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the share ``PYTEST_SHARE``: "1/3" is the second third, by the hash of a function's name.

    Mark as slow the tests that drive a program of the system, because to install it takes longer than most tests, and
    as costly those of the costly files but the first of each; skip tests with a parameter that names a package which is
    not installed for this interpreter.
    """
    share, _, shares = os.environ.get("PYTEST_SHARE", "").partition("/")
    if shares:
        chosen: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
            of = zlib.crc32(name.encode()) % int(shares)
            (chosen if of == int(share) else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = chosen
    missing = [name for name in ("gevent", "uvloop") if importlib.util.find_spec(name) is None]
    begun = set()
    for item in items:
        if not PROGRAMS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        callspec = getattr(item, "callspec", None)
        params = {} if callspec is None else callspec.params
        words = {value for value in params.values() if isinstance(value, str)}
        if item.path.stem.removeprefix("test_") in COSTLY:
            if not OTHER_DRIVERS.isdisjoint(words):
                item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("slow") is None:
                if item.path in begun:
                    item.add_marker(pytest.mark.costly)
                begun.add(item.path)
        for value in missing:
            if value in words:
                item.add_marker(pytest.mark.skip(reason=f"{value} is not installed (pyproject.toml names it)"))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers (see :class:`running.Serve`); end them afterwards and fail the test where one misbehaved:
    a panic, a traceback through our own code, a crash, an exit without a request to stop, a stop that does not end."""
    started: list[Running] = []

    def serve(
        target: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Running:
        running = start(target, args, env, cwd)
        started.append(running)
        return running

    yield serve
    complaints = []
    for running in started:
        complaints += [f"{running.target}: {complaint}" for complaint in running.finish()]
        # pytest shows this with a test that failed, and only then.
        print(f"---- standard error of {running.target} (pid {running.pid}) ----\n{running.stderr}")
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


@pytest.fixture
def one_engine() -> Iterator[None]:
    """Servers have one engine whatever the interpreter, so that any of their threads can run any connection's calls.

    Without the interpreter's lock each processor has an engine, with threads and connections of its own; for those that
    are started in this test there is one processor.
    """
    before = os.sched_getaffinity(0)
    if not HAS_LOCK:
        os.sched_setaffinity(0, {random.choice(sorted(before))})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def write_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write an application's source (indented as it stands in the test) to a module, and return the module's name.

    The module's folder goes first on the PYTHONPATH of every process started afterwards in this test.
    """
    numbers = itertools.count(1)
    folder = tmp_path / "apps"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    def write_app(source: str) -> str:
        name = f"app{next(numbers)}"
        (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        return name

    return write_app


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """The path of a system program; skips the test, saying so, where the machine lacks it."""

    def program(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed (tests/system_packages.sh installs it where it may)")
        return path

    return program
