"""The command ``kirsch`` in tests, and the one line of its refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"here"]
"""

Write = Callable[..., None]


def working_directory(tmp_path: Path) -> Path:
    """Return a working directory with a path short enough for Unix sockets. The fixture ``here`` of test files."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def module_writer(here: Path) -> Write:
    """Return a function that writes modules into ``here``. The fixture ``write`` of test files."""

    def write(**modules: str) -> None:
        for name, source in modules.items():
            (here / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")

    return write


ANY_PORT = {"KIRSCH_BIND": "127.0.0.1:0"}
"""The environment of commands that listen before they fail."""


def run(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command, which must end by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    command = [sys.executable, "-m", "kirsch", *args]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**environment, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def refused(*args: str, cwd: Path | None = None, status: int = 1) -> str:
    """Return the one line with which the command refuses ``args``."""
    done = run(*args, cwd=cwd)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    return only_line(done.stderr)


def not_loaded(*args: str, cwd: Path | None = None) -> str:
    """Return the one line with which the command refuses an application, after the line with its version."""
    done = run(*args, cwd=cwd, env=ANY_PORT)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    return only_line(without_version(done.stderr))


def only_line(text: str) -> str:
    assert re.fullmatch(r"kirsch: [^\n]+\n", text), text
    return text.removeprefix("kirsch: ").rstrip("\n")


def without_version(text: str) -> str:
    return re.sub(r"\Akirsch \S+ \(.*\)\n", "", text)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        body: bytes = response.read()
    return body.decode()
