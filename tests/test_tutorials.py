"""docs/start.md and docs/tutorials, done as a reader would do them.

A block of Python whose first line names a file is that file. In a block of a console, `kirsch ...` serves until the
next one, and each other command must print what the page shows. Installations are left out: what they install is here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from running import Running, Serve

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = {
    "start.md": "kirsch",
    "tutorials/django.md": "django",
    "tutorials/flask.md": "flask",
    "tutorials/fastapi.md": "fastapi",
    "tutorials/cherrypy.md": "cherrypy",
}
SHOWN = "http://127.0.0.1:8000"


def steps(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page, as (language, text), in order; a console's is one for each command."""
    found = []
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.M | re.S):
        if language == "console":
            found += [("console", each) for each in re.split(r"^\$ ", text, flags=re.M) if each]
        else:
            found.append((language, text))
    return found


class Reader:
    """A reader of a page: a folder, and the server that runs in it."""

    def __init__(self, folder: Path, serve: Serve) -> None:
        self.folder = folder
        self.serve = serve
        self.server: Running | None = None

    def write(self, text: str) -> None:
        first = re.match(r"# (\S+\.py)\n", text)
        assert first, f"a block of Python without the name of its file: {text[:60]}"
        (self.folder / first[1]).write_text(text, "utf-8")

    def type(self, command: str, output: str) -> None:
        if command.startswith("kirsch ") and not command.startswith("kirsch check "):
            self._serve(shlex.split(command)[1:])
            return
        if command.startswith("kirsch "):
            command = f"{shlex.quote(sys.executable)} -m {command}"
        if command.startswith("curl "):
            command = command.replace("curl ", "curl --silent --show-error --globoff ", 1)
            command = re.sub(rf"({SHOWN}\S*)", lambda match: match[1].replace(SHOWN, self.server_url()), command)
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        if output:
            assert done.stdout.rstrip("\n") == output.rstrip("\n"), command

    def server_url(self) -> str:
        assert self.server is not None
        return str(self.server.url)

    def _serve(self, words: list[str]) -> None:
        if self.server is not None:
            assert self.server.stop() == 0
        *arguments, target = words
        if "--bind" in arguments:
            at = arguments.index("--bind")
            del arguments[at : at + 2]
        self.server = self.serve(target, *arguments, cwd=self.folder)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if "/" in page else ()) for page in PAGES], ids=PAGES
)
def test_a_reader_gets_what_the_page_shows(page: str, tmp_path: Path, serve: Serve) -> None:
    pytest.importorskip(PAGES[page], reason=f"{PAGES[page]} is not installed: make test-slow-python installs it")
    reader = Reader(tmp_path, serve)
    ran = 0
    for language, text in steps(page):
        if language == "python":
            reader.write(text)
        elif language == "console":
            command, _, output = text.partition("\n")
            reader.type(command, output)
            ran += 1
        else:
            # Only the installation, which has nothing to compare.
            assert language == "sh"
            assert "pip install" in text
    assert ran >= 3
