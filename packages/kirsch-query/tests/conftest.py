"""Fixtures: the three databases, each with the tables of :mod:`models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import databases
from models import Base

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = {"postgresql": databases.postgresql, "mariadb": databases.mariadb}


@pytest.fixture(scope="session", params=["sqlite", "postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """An engine of each database; says aloud where a server is not installed."""
    if request.param == "sqlite":
        yield from _prepared(sa.create_engine("sqlite://", poolclass=sa.StaticPool))
        return
    try:
        with SERVERS[request.param]() as url:
            yield from _prepared(sa.create_engine(url))
    except databases.NotInstalled as why:
        pytest.skip(f"NOT TESTED on {request.param}: {why}")


def _prepared(engine: sa.Engine) -> Iterator[sa.Engine]:
    Base.metadata.create_all(engine)
    try:
        yield engine
    finally:
        engine.dispose()
