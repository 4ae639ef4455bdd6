"""A failed test takes no other test with it (leftovers.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FAILS = """
import gc
import socket
import subprocess
import sys

import pytest


def connect():
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, socket.create_connection(listener.getsockname())


def test_fails():
    listener, client = connect()
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    child.wait()
    raise AssertionError("as it is meant to")


def test_fails_in_a_handler():
    try:
        pair = connect()
        1 / 0
    except ZeroDivisionError:
        raise ValueError("as it is meant to") from None


@pytest.fixture
def broken():
    pair = connect()
    yield
    raise AssertionError("as it is meant to")


def test_whose_fixture_fails(broken):
    pass


def test_passes():
    gc.collect()
"""

LEAKS = """
import gc
import socket


def test_leaves_a_socket():
    socket.create_server(("127.0.0.1", 0))
    gc.collect()
"""


def run(folder: Path, source: str) -> str:
    """What pytest says at the end of running ``source`` with the plugin, warnings being errors."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "leftovers", "-p", "no:cacheprovider", "test_it.py"],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_a_failed_test_leaves_nothing_open_that_fails_the_next(tmp_path: Path) -> None:
    output = run(tmp_path, FAILS)
    assert "2 failed, 2 passed, 1 error in" in output.splitlines()[-1], output
    assert "PytestUnraisableExceptionWarning" not in output


@pytest.mark.slow
def test_a_passing_test_that_leaves_a_socket_open_fails(tmp_path: Path) -> None:
    output = run(tmp_path, LEAKS)
    assert "1 failed in" in output.splitlines()[-1], output
    assert "unclosed <socket.socket" in output
