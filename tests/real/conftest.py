"""What the tests with real applications and real clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def browser() -> Iterator[requests.Session]:
    """A client that keeps cookies and connections, and takes no proxy or password from the environment."""
    with requests.Session() as session:
        session.trust_env = False
        yield session
