"""The pages of docs/deploy in tests: their blocks and commands, the application that they serve, and its launcher."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import running
from running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pytest

DOCS = Path(__file__).parent.parent / "docs" / "deploy"

KIRSCH = shlex.join([sys.executable, "-m", "kirsch"])


class Block:
    """A fenced block of a page: its language, its text, and the path in its first line's comment, if there is one."""

    def __init__(self, page: str, language: str, text: str) -> None:
        self.page = page
        self.language = language
        self.text = text
        first = re.match(r"# (\S+)\n", text)
        self.path = first[1] if first else ""


def blocks(page: str) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [Block(page, language, text) for language, text in found]


def block(page: str, path: str) -> str:
    (text,) = [each.text for each in blocks(page) if each.path.endswith(path)]
    return text


PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def commands(language: str = "sh") -> list[tuple[str, str]]:
    """Return the page and the command of every command line, with continued lines joined and without comments."""
    found = []
    for page in PAGES:
        for each in blocks(page):
            if each.language == language:
                lines = each.text.replace("\\\n", " ").splitlines()
                found += [(page, shlex.join(shlex.split(line, comments=True))) for line in lines if line.strip()]
    return found


def shop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the application of the pages, ``shop.wsgi:app``, into the current directory. The fixture ``shop`` of test
    files."""
    folder = tmp_path / "srv"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "wsgi.py").write_text(
        "import json, os, subprocess\n"
        "def app(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/orphan':\n"
        "        subprocess.run('sleep 0.1 & :', shell=True)\n"
        "    if environ['PATH_INFO'] == '/upload':\n"
        "        size = len(environ['wsgi.input'].read())\n"
        "    else:\n"
        "        size = None\n"
        "    start_response('200 OK', [('Content-Type', 'application/json')])\n"
        "    found = {name: value for name, value in environ.items() if isinstance(value, str)}\n"
        "    return [json.dumps({**found, 'pid': os.getpid(), 'size': size}).encode()]\n"
    )
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("KIRSCH_") and not name.startswith("KIRSCH_TEST")]:
        monkeypatch.delenv(name)
    return folder


def launcher(shop: Path) -> Iterator[Callable[..., Running]]:
    """Yield a function that runs a server's command until the server listens. The server is stopped after the test. The
    fixture ``launch`` of test files."""
    started: list[Running] = []

    def launch(
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        passed: Sequence[socket.socket] = (),
        pattern: re.Pattern[str] = running.STARTED,
    ) -> Running:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[sock.fileno() for sock in passed],
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        started.append(Running("shop.wsgi:app", process, pattern))
        return started[-1]

    yield launch
    assert [complaint for server in started for complaint in server.finish()] == []


def adapted(text: str, shop: Path) -> str:
    """Return ``text`` with the paths of the pages replaced by the test's own."""
    replacements = {
        "/srv/shop/venv/bin/kirsch": KIRSCH,
        "/srv/shop": str(shop),
        "/run/shop/": f"{shop.parent}/run/",
        "/run/shop.sock": f"{shop.parent}/run/shop.sock",
        "/var/log/shop": str(shop.parent / "log"),
    }
    return re.sub("|".join(map(re.escape, replacements)), lambda match: replacements[match[0]], text)


def unit(name: str, shop: Path) -> tuple[str, RawConfigParser]:
    text = adapted(block("systemd.md", name), shop)
    parser = RawConfigParser(strict=False, delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return text, parser


def get(
    address: str | tuple[str, int], path: str = "/", headers: Mapping[str, str] | None = None, source: str = "127.0.0.1"
) -> dict[str, Any]:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    if isinstance(address, str):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(address)
    else:
        connection.sock = socket.create_connection(address, 10, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        found: dict[str, Any] = json.load(response)
        return found


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            return error.code
