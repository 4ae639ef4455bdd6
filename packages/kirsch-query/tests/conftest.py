"""Fixtures: the three databases, each with the tables of :mod:`models`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import sqlalchemy as sa

import databases
from models import Base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATABASES = ("sqlite", "postgresql", "mariadb")
_report: list[str] = []


class Servers:
    """The database servers of one run, each started when a test first asks for it."""

    starters: ClassVar[dict[str, Any]] = {"postgresql": databases.postgresql, "mariadb": databases.mariadb}

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.urls: dict[str, str] = {"sqlite": "sqlite://"}
        self.missing: dict[str, str] = {}

    def url(self, name: str) -> str | None:
        """The URL of a database; None where its server is not installed, which the summary of the run says."""
        if name not in self.urls and name not in self.missing:
            try:
                self.urls[name] = self.stack.enter_context(self.starters[name]())
            except databases.NotInstalled as why:
                self.missing[name] = str(why)
                _report.append(f"NOT TESTED on {name}: {why}")
        return self.urls.get(name)

    def all(self) -> dict[str, str]:
        """The URLs of all databases that are installed."""
        return {name: url for name in DATABASES if (url := self.url(name))}


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="session", params=DATABASES)
def engine(request: pytest.FixtureRequest, servers: Servers) -> Iterator[sa.Engine]:
    """An engine of each database."""
    url = servers.url(request.param)
    if url is None:
        pytest.skip(f"NOT TESTED on {request.param}: {servers.missing[request.param]}")
    engine = sa.create_engine(url, poolclass=sa.StaticPool if request.param == "sqlite" else None)
    Base.metadata.create_all(engine)
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture
def say() -> Callable[[str], None]:
    """Print a line at the end of the run, also of tests that pass: seeds and counts."""
    return _report.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _report:
        terminalreporter.write_line(line)
