"""The fixture ``serve`` finds misbehaving servers, shown with small servers that misbehave."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

import running
from running import Running, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Not print(): a signal handler that prints while its program does is refused by the stream.
PRELUDE = """
import os, signal, subprocess, sys
def say(text, descriptor=2):
    os.write(descriptor, f"{text}\\n".encode())
"""
LISTENS = "say('listening on http://127.0.0.1:4242')\n"
WAITS = "signal.pause()\n"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Running]]:
    """Start a program in a server's place; whatever it did, it and its children are gone afterwards."""
    script = tmp_path / "server.py"
    monkeypatch.setenv(running.COMMAND_VARIABLE, f"{{python}} '{script}' {{target}} {{args}}")
    monkeypatch.setattr(running, "STOP_SECONDS", 1.0)
    started: list[Running] = []

    def fake(program: str) -> Running:
        script.write_text(PRELUDE + program)
        started.append(start("fake", ["--one", "two words"]))
        return started[-1]

    yield fake
    for server in started:
        server.finish()


def test_a_good_server_gives_no_reason_to_complain(fake: Callable[[str], Running]) -> None:
    server = fake("say(sys.argv[1:])\n" + LISTENS + WAITS)
    assert (server.host, server.port, server.url) == ("127.0.0.1", 4242, "http://127.0.0.1:4242")
    server.wait_for(r"^\['fake', '--one', 'two words'\]$")
    assert server.finish() == []
    assert server.process.returncode == -signal.SIGTERM


def test_stop_returns_the_exit_status_and_completes_the_log(fake: Callable[[str], Running]) -> None:
    bye = "signal.signal(signal.SIGHUP, lambda *_: (say('bye'), say('out', 1), sys.exit(7)))\n"
    server = fake(bye + LISTENS + WAITS)
    assert server.stop(signal.SIGHUP) == 7
    assert server.stderr.endswith("bye\n")
    assert server.stdout == "out\n"
    assert server.finish() == []


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("say(\"thread '<unnamed>' panicked at crates/engine/src/lib.rs:1:1:\")\n" + LISTENS + WAITS, "it panicked"),
        (
            "say('  File \"/x/site-packages/kirsch/server.py\", line 3, in run')\n" + LISTENS + WAITS,
            "its log has a traceback through our own code",
        ),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LISTENS + WAITS, "it did not end within 1.0 s of TERM"),
        (
            "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
            "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n" + LISTENS + WAITS,
            "it left processes behind",
        ),
    ],
)
@pytest.mark.slow
def test_faults_in_the_log_and_at_the_end(fake: Callable[[str], Running], program: str, complaint: str) -> None:
    complaints = fake(program).finish()
    assert len(complaints) == 1
    assert complaints[0].startswith(complaint)


@pytest.mark.parametrize(
    ("program", "complaints"),
    [
        ("sys.exit(3)\n", ["it ended by itself with exit status 3"]),
        ("os.abort()\n", ["it ended by itself with exit status -6", "it crashed with signal 6"]),
    ],
)
def test_an_end_that_nobody_asked_for(fake: Callable[[str], Running], program: str, complaints: list[str]) -> None:
    server = fake(LISTENS + program)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    assert server.finish() == complaints


@pytest.mark.parametrize("folder", ["/home/me/kirsch", "/home/me/python/kirsch", "/home/me/kirsch é/kirsch"])
def test_an_application_in_a_folder_of_the_same_name_is_not_our_code(
    fake: Callable[[str], Running], folder: str
) -> None:
    server = fake(f"say('  File \"{folder}/tests/app.py\", line 3, in app')\n" + LISTENS + WAITS)
    assert server.finish() == []


def test_a_server_that_does_not_start_is_quoted(fake: Callable[[str], Running]) -> None:
    with pytest.raises(AssertionError, match=r"exit status 2(.|\n)*no such app"):
        fake("say('no such app')\nsys.exit(2)\n")


def test_waiting_for_what_is_never_said(fake: Callable[[str], Running]) -> None:
    server = fake(LISTENS + WAITS)
    with pytest.raises(AssertionError, match="before 'never' was written"):
        server.wait_for("never", timeout=0.01)
    assert server.wait_for("http:(.*)")[1] == "//127.0.0.1:4242"
    with pytest.raises(AssertionError, match="before 'http' was written"):
        server.wait_for("http", timeout=0.01, after=len(server.stderr))
