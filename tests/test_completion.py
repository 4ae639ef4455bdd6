"""`kirsch completion`, in real shells, and `kirsch man`, as manual page tools read it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from kirsch import commands
from kirsch.commands import completion
from kirsch.config.schema import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60


def kirsch(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kirsch", *args], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "hello.py").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "site").mkdir()
    for shell in completion.SHELLS:
        done = kirsch("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        (tmp_path / f"script.{shell}").write_text(done.stdout, encoding="utf-8")
    return tmp_path


CASES = [
    ("kirsch --log-l", {"--log-level"}, set()),
    ("kirsch --log-level d", {"debug"}, {"--log-level", "hello.py"}),
    ("kirsch -k g", {"gevent"}, {"hello.py"}),
    ("kirsch --request-buffering o", {"on", "off"}, set()),
    ("kirsch --no-prel", {"--no-preload"}, set()),
    ("kirsch ch", {"check"}, {"bench"}),
    ("kirsch hel", {"help", "hello.py"}, {"notes.txt"}),
    ("kirsch --config no", {"notes.txt"}, set()),
    ("kirsch check --st", {"--strict"}, {"--preload"}),
    ("kirsch check --prel", {"--preload"}, set()),
    ("kirsch bench --connec", {"--connections"}, set()),
    ("kirsch completion z", {"zsh"}, {"bash"}),
    ("kirsch help pro", {"profile"}, set()),
]
"""(Line as typed, what has to be offered, what must not be)."""


@pytest.mark.parametrize(("line", "offered", "absent"), [*CASES, ("kirsch --log-level=d", {"debug"}, {"info"})])
@pytest.mark.slow
def test_bash_completes(line: str, offered: set[str], absent: set[str], here: Path) -> None:
    words = re.findall(r"[^ =]+|=", line)
    program = (
        f"source script.bash; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        "compopt() { :; }; _kirsch kirsch; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = set(done.stdout.split())
    assert offered <= found
    assert not absent & found


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed; tests/system_packages.sh does it")
@pytest.mark.parametrize(("line", "offered", "absent"), CASES)
@pytest.mark.slow
def test_fish_completes(line: str, offered: set[str], absent: set[str], here: Path) -> None:
    program = f'source script.fish; complete -C "{line}"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "HOME": str(here)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {row.partition("\t")[0].rstrip("/") for row in done.stdout.splitlines()}
    assert offered <= found
    assert not absent & found


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed; tests/system_packages.sh does it")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("kirsch --log-lev", "kirsch --log-level="),
        ("kirsch --log-level deb", "kirsch --log-level debug"),
        ("kirsch prof", "kirsch profile"),
        ("kirsch hello.", "kirsch hello.py"),
        ("kirsch check --stri", "kirsch check --strict"),
        ("kirsch bench --connecti", "kirsch bench --connections"),
    ],
)
@pytest.mark.slow
def test_zsh_completes(line: str, completed: str, here: Path) -> None:
    """A terminal with zsh in it: what stands on its line when Tab was pressed."""
    setup = (
        "PROMPT='READY> '; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -d ./dump; "
        "source ./script.zsh; show() { print -r -- \"LINE<$BUFFER>\" >&2 }; zle -N show; bindkey '^X' show; "
        "clear; print DONE"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(here)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "HOME": str(here), "TERM": "dumb", "COLUMNS": "200"})
    try:
        os.write(terminal, f"{setup}\n".encode())
        _wait_for(terminal, r"\nDONE\r?\n(?s:.*)READY> ")
        os.write(terminal, f"{line}\t\x18".encode())
        shown = _wait_for(terminal, r"LINE<([^>]*)>")
        assert shown.rstrip() == completed
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _wait_for(terminal: int, pattern: str) -> str:
    """Waits until the terminal shows ``pattern``, and returns its group, or all of it."""
    shown = b""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
            match = re.search(pattern, shown.decode(errors="replace"))
            if match:
                return match[match.lastindex or 0]
    raise AssertionError(f"no {pattern!r} in {shown!r}")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_flag_and_command_is_in_the_script(shell: str) -> None:
    script = kirsch("completion", shell).stdout
    for flag in (flag for each in SETTINGS for flag in (*each.flags, *each.negations)):
        spelled = flag if shell != "fish" else f"-l {flag[2:]} " if flag.startswith("--") else f"-s {flag[1:]} "
        assert spelled in f"{script} ", flag
    assert all(name in script for name in commands.installed())


def test_flags_of_subcommands_are_those_that_they_take() -> None:
    present = commands.installed()
    assert {"--connections", "-c", "--slo", "--json"} <= set(completion.flags_of(present["bench"]))
    assert {"--all", "--strict", "--only", "--help", "-h"} >= set(completion.flags_of(present["check"]))
    assert "--threshold" in completion.flags_of(present["profile"])


def test_a_shell_that_is_not_known_is_told() -> None:
    done = kirsch("completion", "tcsh")
    line = "kirsch: there is no completion for tcsh; which shell? Write kirsch completion bash|zsh|fish\n"
    assert (done.returncode, done.stderr) == (2, line)
    assert kirsch("completion").returncode == 2


def test_manual_page_has_every_setting() -> None:
    page = kirsch("man").stdout.replace("\\-", "-")
    for each in SETTINGS:
        assert all(flag in page for flag in each.flags)
        assert each.variable in page
    assert all(f".B kirsch {name}" in page for name in commands.installed())


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed; tests/system_packages.sh does it")
@pytest.mark.slow
def test_mandoc_finds_nothing_wrong_with_the_manual_page() -> None:
    page = kirsch("man").stdout
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning"],
        input=page,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    # A page without a date is one that does not change every day.
    complaints = [row for row in done.stdout.splitlines() if "missing date" not in row]
    assert complaints == []


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed; tests/system_packages.sh does it")
@pytest.mark.slow
def test_man_shows_the_manual_page(tmp_path: Path) -> None:
    path = tmp_path / "kirsch.1"
    path.write_text(kirsch("man").stdout, encoding="utf-8")
    done = subprocess.run(
        ["man", "--warnings", "-l", str(path)],
        env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "-b, --bind ADDRESS" in plain
    assert "EXIT STATUS" in plain


def test_the_wheel_installs_the_manual_page() -> None:
    files = [str(path) for path in metadata.files("kirsch") or []]
    assert any(path.endswith("share/man/man1/kirsch.1") for path in files)
