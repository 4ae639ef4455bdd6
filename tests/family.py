"""A supervisor of which only the scoreboard and the metrics child are real: what the workers count, the test says."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

DOCS = Path(__file__).resolve().parent.parent / "docs"
_PROGRAM = """
import json, os, sys, time
from kirsch.monitor import scoreboard
from kirsch.reports import ErrorLog
from kirsch.monitor.scoreboard import Scoreboard, STATES
from kirsch.net.sockets import listen
from kirsch.supervisor import metrics_process

bind = sys.argv[1]
board = Scoreboard.create(8)
board.application = "shop.wsgi:app"
listeners = listen([bind])
child = os.fork()
if child == 0:
    sys.stdin.close()
    os.close(0)
    os._exit(metrics_process.run(board, listeners, ErrorLog()))
for listener in listeners:
    listener.close()
print(child, listeners[0].url, flush=True)

def claim(generation=0, reason="start", pid=0, state="serving", memory=0, silence=0, **values):
    slot = board.claim(generation, reason)
    slot.pid, slot.state, slot.memory = pid or os.getpid(), STATES.index(state), memory
    slot._set(scoreboard._S_HEARTBEAT, time.monotonic_ns() - int(silence * 1e9))
    put(slot.index, **values)
    return slot.index

def put(index, **values):
    slot = board.slot(index)
    words = slot.native.cast("Q")
    for name, value in values.items():
        words[board.layout.fields.index(name)] = value

def add(index, **values):
    before = board.slot(index).values
    put(index, **{name: before[name] + value for name, value in values.items()})

def beat(index):
    board.slot(index).beat()

def fold(index):
    board.release(index)

def replaced(reason, text=""):
    board.count_replacement(reason, text)

def slow(index, **record):
    return board.slot(index).add_slow(json.dumps(record).encode())

for line in sys.stdin:
    name, args, named = json.loads(line)
    print(json.dumps(globals()[name](*args, **named)), flush=True)
"""


class Family:
    """For the time of a ``with`` block. ``do("claim", requests=5)`` calls the function of that name above.

    ``url`` is where the metrics child answers, ``child`` its pid, ``pid`` that of the parent.
    """

    def __init__(self, bind: str = "127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, bind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self.process.pid
        assert self.process.stdout is not None
        first = self.process.stdout.readline().split()
        if len(first) != 2:
            raise AssertionError(f"it did not start:\n{self.process.communicate()[1]}")
        self.child, self.url = int(first[0]), first[1]

    def do(self, name: str, *args: object, **named: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, args, named]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{name} failed"
        return json.loads(answer)

    def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
        return get(self.url, path, method)

    def status(self) -> Any:
        code, _, text = self.get("/status.json")
        assert code == 200, text
        return json.loads(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End both, and fail where a traceback was written."""
        if self.process.poll() is None:
            os.kill(self.child, signal.SIGTERM)  # it would leave with its parent, within a second
        output = self.process.communicate(timeout=30)[1]  # the end of its standard input is the end of the parent
        print(output)
        if error is None:
            assert "Traceback" not in output, output


def get(url: str, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers in lower case, and body of one request to ``http://host:port`` or ``unix:path``."""
    if url.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(url[5:])
    else:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read().decode()
    finally:
        connection.close()


def is_alive(pid: int) -> bool:
    """Return whether the process runs; one that has ended and waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parse(text: str) -> dict[str, Any]:
    """Families by name, as Prometheus's own client for Python reads them; each name and each series once."""
    parser = pytest.importorskip("prometheus_client.parser", reason="pyproject.toml names prometheus_client")
    families = list(parser.text_string_to_metric_families(text))
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for each in families for sample in each.samples]
    assert len(set(series)) == len(series)
    assert len({each.name for each in families}) == len(families)
    assert all(each.documentation for each in families)
    assert all(each.type in ("counter", "gauge", "histogram") for each in families)
    return {each.name: each for each in families}


def scrape(family: Family | str) -> dict[tuple[str, str], float]:
    """Values by name and by the labels' values."""
    code, headers, text = get(family if isinstance(family, str) else family.url, "/metrics")
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for each in parse(text).values()
        for sample in each.samples
    }


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
