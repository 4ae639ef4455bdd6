"""Fixtures that the tests with real applications and real clients share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what a real application or client does: seconds each, and a fault of ours fails another test too."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def browser() -> Iterator[requests.Session]:
    """A client that keeps cookies and connections, and takes no proxy or password from the environment."""
    with requests.Session() as session:
        session.trust_env = False
        yield session
