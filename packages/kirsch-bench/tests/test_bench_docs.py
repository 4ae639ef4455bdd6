"""The commands on the pages about load tests: the command takes each of them, and the quick ones run."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from benching import bench, scripted
from kirsch_bench import command, flags, thresholds
from kirsch_bench.target import Target

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["bench.md", *sorted(path.name for path in (ROOT / "docs").glob("load-*.md"))]


def commands(page: str) -> list[list[str]]:
    """Return the arguments of each ``kirsch bench`` on a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line.split(" | ")[0], comments=True)[2:] for line in lines if line.startswith("kirsch bench ")]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_a_page_is_taken(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = '192.0.2.7 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5\n'
    entry = {"startedDateTime": "2026-10-10T10:00:00Z", "request": {"method": "GET", "url": "http://shop.example/"}}
    (tmp_path / "access.log").write_text(line)
    (tmp_path / "access.log.1.gz").write_bytes(gzip.compress(line.encode()))
    (tmp_path / "shop.har").write_text(json.dumps({"log": {"entries": [entry]}}))
    (tmp_path / "ca.pem").write_text("")
    target = Target("127.0.0.1", 8000, "/", "127.0.0.1:8000", ips=("127.0.0.1",))
    found = [words for words in commands(page) if words[0] != "compare"]
    assert found
    for words in found:
        given = flags.parse(words)
        for condition in given.get("fail_if", ()):
            thresholds.parse(condition)
        if (
            not given.keys() & {"kubernetes", "workers", "thread_report", "size_report", "cycles"}
            and ".py" not in given["target"]
        ):
            command.build_load(given, dataclasses.replace(target, tls=given["target"].startswith("https:")))


@pytest.mark.parametrize("page", ["load-thresholds.md", "load-stages.md"])
def test_commands_of_a_page_run_at_a_hundredth_of_their_time(page: str) -> None:
    with scripted() as server:
        for words in commands(page):
            quick = [re.sub(r"(\d+)(m|s)(?=:|$)", _hundredth, word) for word in words[:-1]]
            done = bench("--warmup", "0s", *quick, server.url)
            assert done.returncode in (0, 4), done.stderr


def _hundredth(match: re.Match[str]) -> str:
    return f"{int(match[1]) * (60 if match[2] == 'm' else 1) * 10}ms"
