"""Static files that others take the place of while they are asked for: each answer is of one file, and none fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from raw import build_request, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

PATIENCE = 20.0
SIZES = (1, 100, 32_768, 32_769, 200_000)
"""Some whose content may be kept in memory, and some above that."""

APP = """
def app(environ, start_response):
    start_response("404 Not Found", [("Content-Length", "0")])
    return []
"""

# Files of one letter each; a pause now and then, in which a file can be found unchanged.
WRITER = f"""
import itertools, os, sys, time
for number in itertools.count():
    with open("next", "w") as file:
        file.write(chr(97 + number % 26) * {SIZES}[number % {len(SIZES)}])
    os.replace("next", "file.txt")
    if number == 0:
        print("written", flush=True)
    if number % 50 == 0:
        time.sleep(0.005)
"""


@pytest.fixture
def replaced(serve: Serve, tmp_path: Path) -> Running:
    public = tmp_path / "public"
    public.mkdir()
    (tmp_path / "app.py").write_text(APP)
    return serve("app:app", "--static", "/static=./public", cwd=tmp_path)


def test_file_that_is_replaced_all_the_time_is_found_whole(replaced: Running, tmp_path: Path) -> None:
    wrong: list[object] = []
    letters: dict[str, str] = {}
    lock = threading.Lock()

    def ask(fields: dict[str, str]) -> None:
        for _ in range(400):
            asked = build_request("GET", "/static/file.txt", headers=fields)
            response = exchange(replaced.host, replaced.port, asked, timeout=PATIENCE)
            if response.status == 416:
                continue  # a shorter file
            declared = int(response.header("Content-Length") or -1)
            found = set(response.body.decode())
            etag = response.header("ETag") or ""
            is_right = response.status in (200, 206) and len(response.body) == declared and len(found) == 1
            with lock:
                if not is_right or letters.setdefault(etag, *found) not in found:
                    wrong.append((response.status, etag, declared, len(response.body), found))

    command = [sys.executable, "-c", WRITER]
    with subprocess.Popen(command, cwd=tmp_path / "public", stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert re.match(rb"written", writer.stdout.readline())
            threads = [threading.Thread(target=ask, args=({},)) for _ in range(2)]
            threads.append(threading.Thread(target=ask, args=({"Range": "bytes=50-99"},)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            writer.kill()
    assert wrong == []
    assert len(letters) > 10, "the file was replaced meanwhile"
