"""`kirsch check`: what it shows of the settings, what it imports, and which mistakes it points out."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from kirsch.config.schema import SETTINGS
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
    return kirsch("check", *args, cwd=cwd, env=env)


def kirsch(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    environment.pop("WEB_CONCURRENCY", None)
    return subprocess.run(
        [sys.executable, "-m", "kirsch", *args],
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
    # A machine without IPv6 has no ::1 to listen on, which the check reports.
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
        (["--strct", "hello"], 2, "there is no flag --strct; did you mean --strict?"),
        (["--keep-alive", "soon", "hello"], 2, ("--keep-alive: 'soon' is not a duration; write 90, 90s, 5m, 1h30m, "
         "30d or 500ms")),
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
    assert done.returncode == 1
    assert done.stderr.endswith("kirsch: broken could not be imported: it raised ZeroDivisionError\n")
    assert own_frame(done.stderr) is None
    # What is wrong besides is not lost.
    assert "kirsch: cannot write the pid file " in done.stderr


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


# One part alone, and its other spellings


@pytest.mark.parametrize(("flag", "part"), [("--print-config", "settings"), ("--check-config", "application")])
@pytest.mark.parametrize(
    "args",
    [
        ["hello"],
        ["--keep-alive", "5", "--preload", "hello"],
        ["--keep-alive", "soon", "--bnid", ":1", "hello:ap"],
        ["--user", "nosuchuser", "hello"],
        ["--error-logfile", "no/log", "-b", "unix:no/k.sock", "hello"],
        ["--chdir", "/nowhere/at/all", "hello"],
        ["nosuch:app"],
        [],
    ],
)
def test_a_flag_of_gunicorns_is_another_spelling_of_the_check_of_a_part(
    flag: str, part: str, args: list[str], here: Path
) -> None:
    spelled = check("--only", part, *args, cwd=here, env={"KIRSCH_WORKER": "1"})
    for words in ([flag, *args], ["check", flag, *args]):
        done = kirsch(*words, cwd=here, env={"KIRSCH_WORKER": "1"})
        rows = [line for line in done.stdout.splitlines() if not line.startswith(flag[2:].replace("-", "_"))]
        wanted = [line for line in spelled.stdout.splitlines() if not line.startswith(flag[2:].replace("-", "_"))]
        assert (done.returncode, rows, done.stderr) == (spelled.returncode, wanted, spelled.stderr)


def test_the_settings_alone_are_a_table_of_all_with_warnings_on_standard_error(here: Path) -> None:
    done = check("--only=settings", "--keep-alive", "5", "nosuch:app", cwd=here, env={"KIRSCH_WORKER": "1"})
    rows = [line.split() for line in done.stdout.splitlines()]
    # A row for the application, and one for each setting but --mount: mounts have rows of their own.
    assert (done.returncode, len(rows)) == (0, 1 + len(SETTINGS) - 1)
    assert ["app", "nosuch:app", "command", "line"] in rows
    assert ["keep_alive", "5", "--keep-alive"] in rows
    assert ["header_timeout", "15s", "default"] in rows
    assert done.stderr.startswith("kirsch: KIRSCH_WORKER in the environment is no")
    assert len(done.stderr.splitlines()) == 1
    words = ["--strict", "--only", "settings", "hello"]
    assert check(*words, cwd=here).returncode == 0
    assert check(*words, cwd=here, env={"KIRSCH_WORKER": "1"}).returncode == 1


def test_the_sockets_alone_are_checked_with_the_files_and_without_the_application(here: Path) -> None:
    done = check("--only", "sockets", "-b", "127.0.0.1:8001", "--metrics-bind", "unix:m.sock", "nosuch:app", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows == [["http://127.0.0.1:8001"], [f"unix:{here}/m.sock", "metrics"]]
    done = check("--only", "sockets", "--error-logfile", "no/log", "nosuch:app", cwd=here)
    assert done.returncode == 1
    assert done.stderr.startswith(f"kirsch: cannot write the log {here}/no/log: No such file")


def test_the_application_alone_is_imported_and_nothing_else_is_looked_at(here: Path) -> None:
    done = check("--only", "application", "--error-logfile", "no/log", "-b", "unix:no/k.sock", "hello", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello:app is ok\n", "")


@pytest.mark.parametrize("words", [["--only", "everything"], ["--only="], ["--only"]])
def test_a_part_that_does_not_exist_is_refused(words: list[str], here: Path) -> None:
    done = check(*words, cwd=here)
    assert done.returncode == 2
    assert done.stderr.endswith(" is not one of settings, sockets, application\n")
    assert done.stderr.startswith("kirsch: --only: '")


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
        (["--max-memory", "1m"], "--max-memory: 1 MiB is hardly more than the "),
        (["--pythonpath", "missing"], "--pythonpath: there is no missing; Python ignores such a directory"),
        (
            ["-e", "TMPDIR=missing"],
            "--body-memory: longer bodies go to files in missing, where this user cannot write; ",
        ),
    ],
)
def test_a_likely_mistake_is_pointed_out(args: list[str], beginning: str, here: Path) -> None:
    (found,) = warnings(*args, "hello", cwd=here)
    assert found.startswith(beginning)
    done = check("--strict", *args, "hello", cwd=here)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("\nhello:app is ok, with 1 warning\n")


@pytest.mark.parametrize(
    ("args", "status", "beginning"),
    [
        (["--error-logfile", "no/log"], 1, "cannot write the log {here}/no/log: No such file or directory; create the"),
        (["--access-logfile", "/"], 1, "cannot write the log /: Is a directory"),
        (["--pid", "no/pid"], 1, "cannot write the pid file {here}/no/pid: there is no directory {here}/no; create"),
        (["--pid", "hello.py"], 1, "cannot write the pid file {here}/hello.py: something else is there; move it away"),
        (["-b", "nosuch.invalid:80"], 1, "cannot listen on nosuch.invalid:80: no address is known for 'nosuch.inv"),
        (["-b", "192.0.2.1:8000"], 1, "cannot listen on 192.0.2.1:8000: this machine has no address 192.0.2.1"),
        (["--metrics-bind", "192.0.2.1:1"], 1, "cannot listen on 192.0.2.1:1: this machine has no address 192.0.2.1"),
        (["-b", "unix:no/k.sock"], 1, "cannot listen on unix:no/k.sock: there is no directory {here}/no; create it"),
        (["-b", f"unix:/tmp/{'x' * 108}"], 1, f"cannot listen on unix:/tmp/{'x' * 108}: /tmp/{'x' * 108} has 113"),
        (["-b", "unix:hello.py"], 1, "cannot listen on unix:hello.py: {here}/hello.py exists and is not a socket"),
        (["-b", ":8001", "-b", ":8001"], 2, "-b: ':8001' is the address of ':8001'; give each address once"),
        (["-b", ":8001", "--metrics-bind", ":8001"], 1, "cannot listen on :8001: :8001 asks for http://0.0.0.0:8001 t"),
        (["--user", "nosuchuser"], 2, "--user: there is no user 'nosuchuser'"),
        (["--access-logformat", "%(zz)s"], 2, "--access-logformat: '%(zz)s' is no access log format: there is no atom"),
    ],
)
def test_what_serving_would_refuse_is_refused_by_the_check_in_the_same_words(
    args: list[str], status: int, beginning: str, here: Path
) -> None:
    done = check(*args, "hello", cwd=here)
    told = done.stderr.splitlines()
    assert (done.returncode, "is ok" in done.stdout) == (status, False), done.stderr
    assert told[0].startswith("kirsch: " + beginning.replace("{here}", str(here))), told
    if "asks for" not in beginning:
        served = subprocess.run(
            [sys.executable, "-m", "kirsch", *args, "hello"],
            cwd=here, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert served.returncode == status
        assert served.stderr.splitlines()[-1] == told[0]


def test_mistakes_of_everything_are_told_in_one_run(write: Write, here: Path) -> None:
    write('keep-alive = "soon"\nwrokers = 2\nlog-level = debug\n')
    done = check(
        "--bnid", ":1", "-w", "four", "--error-logfile", "no/log", "hello:ap",
        cwd=here, env={"KIRSCH_BACKLOG": "many", "PORT": "http"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "kirsch: there is no flag --bnid; did you mean --bind?",
        "kirsch: kirsch.toml:1: keep-alive: 'soon' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms",
        "kirsch: kirsch.toml:2: there is no setting wrokers; did you mean workers?",
        'kirsch: kirsch.toml:3: debug lacks its quotes; write log-level = "debug"',
        "kirsch: PORT: 'http' is not a port, a number from 1 to 65535; correct it, or give --bind",
        "kirsch: KIRSCH_BACKLOG: 'many' is not a whole number",
        "kirsch: -w: 'four' is not a whole number",
        f"kirsch: cannot write the log {here}/no/log: No such file or directory; create the directory first",
        "kirsch: hello has no 'ap'; did you mean hello:app?",
    ]


def test_all_applications_that_cannot_be_had_are_told_in_one_run(here: Path) -> None:
    done = check("hello:ap", "--mount", "/a=helo:app", "--mount", "/b=hello:app", cwd=here)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "kirsch: hello has no 'ap'; did you mean hello:app?",
        (
            f"kirsch: --mount /a: there is no module 'helo' in {here} or elsewhere on the Python path; did you mean "
            "hello:app?"
        ),
    ]


def test_a_mistake_in_the_file_is_told_with_its_line(write: Write, here: Path) -> None:
    write("\nkeep-alive = 5\n")
    (found,) = warnings("hello", cwd=here)
    assert found.startswith("kirsch.toml:2: keep-alive: 5 s is not more than")


def test_unread_table_is_reported(write: Write, here: Path) -> None:
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


def test_what_only_root_can_is_pointed_out_to_others(here: Path) -> None:
    program = (
        "import os, sys\n"
        "from kirsch.commands import cli\n"
        # Once as root, which imports all that an interpreter in root's home would keep from others.
        "cli.main(['check', 'hello'])\n"
        "print('again')\n"
        "if os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(cli.main(['check', '-b', '127.0.0.1:1', '--error-logfile', '/log', 'hello']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "kirsch: cannot listen on 127.0.0.1:1: this user may not bind port 1; take one from " in done.stderr
    assert "kirsch: cannot write the log /log: Permission denied\n" in done.stderr


CONTRADICTED = {
    "asgi": ["--interface=asgi", "both:wsgi"],
    "wsgi": ["--interface=wsgi", "both:asgi"],
    "factory": ["--interface=asgi", "both:make()"],
    "default": ["--interface=asgi", "both:wsgi", "--mount=/a=wsgi:both:wsgi"],
    "mount": ["--mount=/a=asgi:both:wsgi", "both:asgi"],
    "mount of wsgi": ["--mount=/a=wsgi:both:asgi"],
    "mounts": ["--interface=asgi", "--mount=/a=both:wsgi", "--mount=/b=both:asgi"],
}


@pytest.mark.parametrize("name", CONTRADICTED)
def test_interface_that_contradicts_the_signature_is_refused(name: str, write: Write, here: Path) -> None:
    """It would be a 500 for each request."""
    write(
        """
        def wsgi(environ, start_response):
            start_response("200 OK", [])
            return [b"here"]

        async def asgi(scope, receive, send): ...

        def make():
            return wsgi

        def either(*args): ...

        def three(a, b, c): ...
        """,
        "both.py",
    )
    done = check(*CONTRADICTED[name], cwd=here)
    assert done.returncode != 0, done.stdout
    assert " is ok" not in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "both:" in line]
    assert re.search(r"--interface [aw]sgi would call .*; omit that, or write [aw]sgi$", line), line
    served = kirsch(*CONTRADICTED[name], "-b", "127.0.0.1:0", cwd=here)
    assert served.returncode == 3, served
    assert line.partition("both:")[2] in served.stderr
    for fine in (
        ["--interface=asgi", "both:either"],
        ["--interface=asgi", "both:three"],
        ["--interface=wsgi", "both:either"],
    ):
        assert check(*fine, cwd=here).returncode == 0, fine
