"""The pid file names the live supervisor, and only one supervisor at a time has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from kirsch.supervisor.pid_file import PidFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Serve

HELLO = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]
"""

# Claims a pid file, says how that went, and holds it until its input ends.
CLAIM = """
import sys
from kirsch.supervisor.pid_file import PidFile
pid_file = PidFile(sys.argv[1])
try:
    pid_file.write()
except OSError as error:
    print("refused", flush=True)
else:
    print("mine", flush=True)
sys.stdin.read()
"""


def claim(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=20)


def word(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def refusal(path: Path | str) -> str:
    with pytest.raises(OSError) as raised:
        PidFile(str(path)).write()
    assert raised.value.strerror is not None
    assert "\n" not in raised.value.strerror
    return raised.value.strerror


def test_pid_file_is_written_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    pid_file = PidFile(str(path))
    pid_file.write()
    assert path.read_text() == f"{os.getpid()}\n"
    assert path.stat().st_mode & 0o777 == 0o644
    pid_file.remove()
    pid_file.remove()
    assert list(tmp_path.iterdir()) == []


def test_file_of_live_server_is_refused_with_its_pid(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    holder = claim(path)
    try:
        assert word(holder) == "mine"
        assert refusal(path) == (
            f"cannot write the pid file {path}: the server with pid {holder.pid} holds it and is alive; "
            f"stop that first (`kill {holder.pid}`), or choose another path"
        )
        assert path.read_text() == f"{holder.pid}\n"
    finally:
        holder.kill()
        end(holder)
    pid_file = PidFile(str(path))  # killed, it could not remove its file
    pid_file.write()
    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.remove()


@pytest.mark.parametrize(
    "stale",
    ["", f"{os.getpid()}\n", f"{os.getppid()}\n", "999999999\n", "4711"],
    ids=["empty", "ours", "alive", "impossible", "no line end"],
)
def test_stale_file_is_replaced_even_if_its_pid_is_in_use(tmp_path: Path, stale: str) -> None:
    path = tmp_path / "app.pid"
    path.write_text(stale)
    pid_file = PidFile(str(path))
    pid_file.write()
    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.remove()
    assert not path.exists()


def test_only_one_of_many_processes_takes_a_stale_file(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    path.write_text("4711\n")
    claimants = [claim(path) for _ in range(6)]
    try:
        with ThreadPoolExecutor() as executor:
            words = list(executor.map(word, claimants))
        assert sorted(words) == ["mine"] + ["refused"] * 5
        assert path.read_text() == f"{claimants[words.index('mine')].pid}\n"
    finally:
        for claimant in claimants:
            end(claimant)


def test_what_is_no_pid_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("important = yes\n")
    assert refusal(path).endswith(f"{path}: something else is there; move it away, or choose another path")
    assert path.read_text() == "important = yes\n"
    link = tmp_path / "link"
    link.symlink_to(path)
    assert refusal(link).endswith("that is a symbolic link; name the file itself")
    assert refusal("/dev/null").endswith("something else is there; move it away, or choose another path")
    assert refusal(tmp_path).endswith("that is a directory; name a file in it")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "precious"]


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "run" / "app.pid"
    assert refusal(path) == f"cannot write the pid file {path}: there is no directory {path.parent}; create it first"


def test_a_forked_child_neither_removes_nor_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    program = """
import os, sys
from kirsch.supervisor.pid_file import PidFile
pid_file = PidFile(sys.argv[1])
pid_file.write()
child = os.fork()
if child == 0:
    pid_file.remove()
    os.closerange(3, 256)
    os._exit(0)
os.waitpid(child, 0)
print("held", flush=True)
sys.stdin.read()
pid_file.remove()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert word(holder) == "held"
    assert f"the server with pid {holder.pid} holds it" in refusal(path)
    end(holder)
    assert not path.exists()


def test_lock_survives_an_exec(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    program = """
import json, os, sys
from kirsch.supervisor.pid_file import PidFile
if len(sys.argv) == 2:
    pid_file = PidFile(sys.argv[1])
    pid_file.write()
    os.execv(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"], sys.argv[1], json.dumps(pid_file.export())])
pid_file = PidFile.inherit(json.loads(sys.argv[2]))
print("again", flush=True)
sys.stdin.read()
pid_file.remove()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PROGRAM": program},
    )
    assert word(holder) == "again"
    assert path.read_text() == f"{holder.pid}\n"
    assert f"the server with pid {holder.pid} holds it" in refusal(path)
    end(holder)
    assert not path.exists()


def test_file_of_another_process_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    pid_file = PidFile(str(path))
    pid_file.write()
    (tmp_path / "other").write_text("4711\n")
    (tmp_path / "other").rename(path)
    pid_file.remove()
    assert path.read_text() == "4711\n"


def test_server_writes_pid_file(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    app = f"{write_app(HELLO)}:app"
    server = serve(app, "--pid", str(path))
    assert path.read_text() == f"{server.pid}\n"
    second = subprocess.run(
        [sys.executable, "-m", "kirsch", app, "--bind", "127.0.0.1:0", "--pid-file", str(path)],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"kirsch: cannot write the pid file {path}: the server with pid {server.pid} holds it" in second.stderr
    assert "Traceback" not in second.stderr
    with urlopen(server.url, timeout=10) as response:
        assert response.read() == b"hello"
    before = len(server.stderr)
    os.kill(server.pid, signal.SIGUSR2)
    server.wait_for("SIGUSR2: done", after=before)
    assert path.read_text() == f"{server.pid}\n"
    server.stop()
    assert not path.exists()


def test_server_does_not_start_when_pid_file_cannot_be_written(write_app: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "run" / "app.pid"
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", f"{write_app(HELLO)}:app", "--bind", "127.0.0.1:0", "-p", str(path)],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"kirsch: cannot write the pid file {path}: there is no directory {path.parent}" in done.stderr
    assert "Traceback" not in done.stderr
