"""`kirsch check`: what it shows of the settings, what it imports, and which mistakes it points out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from running import own_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Write = Callable[..., None]

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"here"]
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "hello.py").write_text(APP, encoding="utf-8")
    return tmp_path


@pytest.fixture
def write(here: Path) -> Write:
    def write(text: str, name: str = "kirsch.toml") -> None:
        (here / name).write_text(textwrap.dedent(text), encoding="utf-8")

    return write


def check(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    environment.pop("WEB_CONCURRENCY", None)
    return subprocess.run(
        [sys.executable, "-m", "kirsch", "check", *args],
        cwd=cwd,
        env={**environment, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def warnings(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> list[str]:
    done = check(*args, cwd=cwd, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    _, _, rest = done.stdout.partition("\nWarnings\n")
    return [line.strip() for line in rest.splitlines() if line.startswith("  ")]


def test_settings_with_their_origins_sockets_and_the_application(write: Write, here: Path) -> None:
    write(
        """
        app = "hello:app"
        bind = ["127.0.0.1:8000", "unix:k.sock"]
        metrics-bind = "[::1]:9100"
        keep-alive = "5m"

        [env]
        PASSWORD = "secret"

        [[mount]]
        path = "/shop"
        app = "hello"
        """
    )
    done = check("--backlog", "9", cwd=here, env={"KIRSCH_THREADS": "3", "WEB_CONCURRENCY": "2"})
    assert (done.returncode, done.stderr) == (0, "")
    settings, sockets, end = done.stdout.split("\n\n")
    assert [line.split() for line in settings.splitlines()[:-1]] == [
        ["Settings"],
        ["app", "hello:app", "kirsch.toml:2"],
        ["mount", "hello", "at", "/shop", "kirsch.toml:10"],
        ["bind", "127.0.0.1:8000,unix:k.sock", "kirsch.toml:3"],
        ["backlog", "9", "--backlog"],
        ["workers", "2", "WEB_CONCURRENCY"],
        ["env", "PASSWORD=...", "kirsch.toml:7"],
        ["metrics_bind", "[::1]:9100", "kirsch.toml:4"],
        ["threads", "3", "KIRSCH_THREADS"],
        ["keep_alive", "5m", "kirsch.toml:5"],
    ]
    assert settings.endswith(" more have their defaults; --all shows them)")
    # A machine without IPv6 has no ::1 to listen on, and is told so.
    assert sockets.splitlines()[:3] == ["Sockets", "  http://127.0.0.1:8000", f"  unix:{here}/k.sock"]
    assert end.splitlines()[-1].startswith("hello:app, hello:app at /shop is ok")
    assert not (here / "k.sock").exists()


def test_all_settings_are_shown_if_asked_for(here: Path) -> None:
    few, everything = check("hello", cwd=here).stdout, check("--all", "hello", cwd=here).stdout
    assert "header_timeout" not in few
    assert ["header_timeout", "15s", "default"] in [line.split() for line in everything.splitlines()]
    assert "--all shows them" not in everything


def test_an_address_in_use_is_no_trouble_because_nothing_is_bound(here: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = check("-b", f"127.0.0.1:{port}", "hello", cwd=here)
    assert done.returncode == 0
    assert done.stdout.endswith(f"Sockets\n  http://127.0.0.1:{port}\n\nhello:app is ok\n")


@pytest.mark.parametrize(
    ("args", "status", "line"),
    [
        (["--bnid", ":1", "hello"], 2, "there is no flag --bnid; did you mean --bind?"),
        (["--keep-alive", "soon", "hello"], 2, ("--keep-alive: 'soon' is not a duration; write 90, 90s, 5m, 1h30m or "
         "500ms")),
        ([], 2, "which application? Name it, as in `kirsch hello:app`; kirsch --help tells more"),
        (["--chdir", "/nowhere/at/all", "hello"], 2, ("--chdir: cannot change to '/nowhere/at/all': No such file or "
         "directory")),
        (["hello:ap"], 3, "hello has no 'ap'; did you mean hello:app?"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_told_as_without_the_check(
    args: list[str], status: int, line: str, here: Path
) -> None:
    done = check(*args, cwd=here)
    assert (done.returncode, done.stderr) == (status, f"kirsch: {line}\n")
    assert "is ok" not in done.stdout


def test_an_application_that_raises_shows_its_own_traceback(write: Write, here: Path) -> None:
    write("1 / 0\n", "broken.py")
    done = check("broken", "--pid", "no/pid", cwd=here)
    assert done.returncode == 3
    assert done.stderr.endswith("kirsch: broken could not be imported: it raised ZeroDivisionError\n")
    assert own_frame(done.stderr) is None
    # What is wrong besides is not lost.
    assert "--pid: there is no directory" in done.stdout


def test_the_application_finds_its_environment(write: Write, here: Path) -> None:
    write("import os\nos.environ['WANTED']\n" + APP, "wanting.py")
    assert check("wanting", cwd=here).returncode == 3
    assert check("wanting", "-e", "WANTED=1", cwd=here).returncode == 0


def test_help_tells_what_it_takes(here: Path) -> None:
    done = check("--help", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: kirsch check [--all] [--strict] [options] [module:app]\n")


def test_a_word_behind_two_dashes_is_an_application(here: Path, write: Write) -> None:
    assert check("--", "hello", cwd=here).returncode == 0


# Likely mistakes


def test_what_is_fine_has_no_warning(here: Path) -> None:
    args = ["-b", "127.0.0.1:0", "--timeout", "0", "--keep-alive", "0", "--error-logfile", "log", "-p", "pid"]
    assert warnings(*args, "--access-logfile=-", "--max-memory", "1g", "--preload", "hello", cwd=here) == []
    assert not (here / "log").exists()
    assert not (here / "pid").exists()


@pytest.mark.parametrize(
    ("args", "beginning"),
    [
        (["--keep-alive", "5"], "--keep-alive: 5 s is not more than the 60 s for which nginx"),
        (["--timeout", "90"], "--timeout: 90 s is more than --graceful-timeout, 30 s;"),
        (["--timeout-path", "/a=90"], "--timeout-path: 90 s is more than --graceful-timeout, 30 s;"),
        (["-w", "256"], "-w: 256 processes for "),
        (["--max-workers", "256"], "--max-workers: 256 processes for "),
        (["--ready-path", "/up", "--health-path", "/up"], "--ready-path: it is --health-path too"),
        (["--error-logfile", "no/log"], "--error-logfile: there is no directory "),
        (["--access-logfile", "/"], "--access-logfile: / is a directory"),
        (["--pid", "no/pid"], "--pid: there is no directory "),
        (["-b", "nosuch.invalid:80"], "nosuch.invalid:80: no address is known for 'nosuch.invalid'"),
        (["-b", "192.0.2.1:8000"], "192.0.2.1:8000: this machine has no address 192.0.2.1"),
        (["--metrics-bind", "192.0.2.1:8000"], "192.0.2.1:8000: this machine has no address 192.0.2.1"),
        (["-b", "unix:no/k.sock"], "unix:no/k.sock: there is no directory "),
        (["-b", f"unix:/tmp/{'x' * 108}"], f"unix:/tmp/{'x' * 108}: /tmp/{'x' * 108} has 113 bytes"),
        (["-b", "unix:hello.py"], "unix:hello.py: "),
        (["--max-memory", "1m"], "--max-memory: 1 MiB is hardly more than the "),
    ],
)
def test_a_likely_mistake_is_pointed_out(args: list[str], beginning: str, here: Path) -> None:
    (found,) = warnings(*args, "hello", cwd=here)
    assert found.startswith(beginning)
    done = check("--strict", *args, "hello", cwd=here)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("\nhello:app is ok, with 1 warning\n")


def test_a_mistake_in_the_file_is_told_with_its_line(write: Write, here: Path) -> None:
    write("\nkeep-alive = 5\n")
    (found,) = warnings("hello", cwd=here)
    assert found.startswith("kirsch.toml:2: keep-alive: 5 s is not more than")


def test_a_table_that_nobody_reads_is_pointed_out(write: Write, here: Path) -> None:
    write("backlog = 5\n")
    write("[tool.kirsch]\nthreads = 5\n", "pyproject.toml")
    line = "pyproject.toml has a table [tool.kirsch], which is not read while there is kirsch.toml"
    assert warnings("hello", cwd=here) == [line]


def test_a_variable_that_is_no_setting_is_pointed_out(here: Path) -> None:
    line = "KIRSCH_WORKER in the environment is no setting; did you mean KIRSCH_WORKERS?"
    assert warnings("hello", cwd=here, env={"KIRSCH_WORKER": "1"}) == [line]


def test_a_thread_that_would_be_lost_by_forking_is_pointed_out(write: Write, here: Path) -> None:
    write(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n" + APP,
        "busy.py",
    )
    (found,) = warnings("--preload", "busy", cwd=here)
    assert found.startswith("--preload: importing the application has started 1 thread, which will be missing")
    assert warnings("busy", cwd=here) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_that_is_not_there_is_pointed_out(here: Path) -> None:
    (found,) = warnings("--user", "nosuchuser", "hello", cwd=here)
    assert "nosuchuser" in found


def test_what_only_root_can_is_pointed_out_to_others(here: Path) -> None:
    program = (
        "import os, sys\n"
        "from kirsch import cli\n"
        # Once as root, which imports all that an interpreter in root's home would keep from others.
        "cli.main(['check', 'hello'])\n"
        "print('again')\n"
        "if os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(cli.main(['check', '-b', '127.0.0.1:1', '--error-logfile', '/log', 'hello']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.partition("again\n")[2]
    assert "  127.0.0.1:1: this user may not bind port 1; take one from " in shown
    assert "  --error-logfile: this user may not write in /\n" in shown
