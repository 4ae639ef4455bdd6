"""``ps`` tells the processes of a server apart, and which application they serve."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

HELLO = """
    import os
    os.environ["OF_THE_APP"] = "kept"
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.environ['HOME']} {os.environ['OF_THE_APP']}".encode()]
"""

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="titles need Linux")


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_supervisor_and_workers(serve: Serve, write_app: Callable[[str], str]) -> None:
    module = write_app(HELLO)
    server = serve(f"{module}:app", "--workers", "2")
    assert title(server.pid) == f"kirsch: supervisor [{module}:app]"
    assert sorted(map(title, children(server.pid))) == [
        f"kirsch: worker 0 [{module}:app]",
        f"kirsch: worker 1 [{module}:app]",
    ]
    for pid in (server.pid, *children(server.pid)):
        assert Path(f"/proc/{pid}/comm").read_text() == "kirsch\n"
    # What stands behind the command line in memory is the environment.
    with urlopen(server.url, timeout=10) as response:
        assert response.read().decode() == f"{os.environ['HOME']} kept"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_titles_are_right_after_a_reload_and_an_upgrade(
    serve: Serve, write_app: Callable[[str], str], number: signal.Signals
) -> None:
    module = write_app(HELLO)
    server = serve(f"{module}:app", "--process-name", "shop")
    os.kill(server.pid, number)
    server.wait_for(f"{number.name}: done")
    assert title(server.pid) == "kirsch: supervisor [shop]"
    titles = [found for found in map(title, children(server.pid)) if found]  # one that ends has none
    assert titles
    assert [found for found in titles if not re.fullmatch(r"kirsch: worker \d \[shop\]", found)] == []


def test_process_name_is_in_the_titles(serve: Serve, write_app: Callable[[str], str]) -> None:
    server = serve(f"{write_app(HELLO)}:app", "-n", "größer", "--preload")
    assert title(server.pid) == "kirsch: supervisor [größer]"
    assert sorted(map(title, children(server.pid))) == ["kirsch: worker 0 [größer]", "kirsch: zygote [größer]"]


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def test_title_is_at_most_as_long_as_the_command_line() -> None:
    program = (
        "import os\n"
        "from kirsch.supervisor import titles\n"
        "room = len(open('/proc/self/cmdline', 'rb').read())\n"
        "before = open('/proc/self/environ', 'rb').read()\n"
        "titles.worker(3, 'x' * 10000)\n"
        "now = open('/proc/self/cmdline', 'rb').read()\n"
        "assert now == b'kirsch: worker 3 [' + b'x' * (room - 19) + bytes(1), now\n"
        "assert open('/proc/self/environ', 'rb').read() == before\n"
        "titles.worker(4, 'shop:app')\n"
        "print(open('/proc/self/cmdline').read().rstrip(chr(0)))\n"
    )
    assert run(program) == "kirsch: worker 4 [shop:app]\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_titles_can_be_set_after_a_change_of_user() -> None:
    program = (
        "import os\n"
        "from kirsch.supervisor import titles\n"
        "import ctypes\n"  # afterwards the interpreter may be out of reach
        "os.setresuid(65534, 65534, 65534)\n"
        "titles.worker(1, 'shop:app')\n"
        "print(open('/proc/self/cmdline').read().rstrip(chr(0)))\n"
    )
    assert run(program) == "kirsch: worker 1 [shop:app]\n"


def test_titles_are_skipped_where_they_cannot_be_written() -> None:
    program = (
        "from kirsch.supervisor import titles\n"
        "titles._command_line = lambda: (0, 0)\n"
        "titles.worker(1, 'x')\n"
        "def missing(): raise FileNotFoundError('/proc/self/stat')\n"
        "titles._command_line = missing\n"
        "titles.supervisor('x')\n"
        "print('fine')\n"
    )
    assert run(program) == "fine\n"


def test_a_server_without_a_supervisor_is_a_single_process(serve: Serve, write_app: Callable[[str], str]) -> None:
    module = write_app(HELLO)
    server = serve(f"{module}:app", "--workers", "0")
    assert title(server.pid) == f"kirsch: single process [{module}:app]"
    assert Path(f"/proc/{server.pid}/comm").read_text() == "kirsch\n"
