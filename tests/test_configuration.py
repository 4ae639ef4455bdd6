"""The settings file: its settings, mistakes reported with their lines, and reading it again at a reload."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kirsch.config.schema import SETTINGS
from kirsch.config.setting import Setting, UsageError
from kirsch.config.sources import changes, read, read_again, reloaded
from kirsch.config.toml import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kirsch.config.schema import Settings
    from running import Serve

    Write = Callable[..., Path]

ROOT = Path(__file__).resolve().parent.parent

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"here"]
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into an empty directory, which is the current one."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(text: str, name: str = "kirsch.toml") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def mistakes(*argv: str) -> list[str]:
    with pytest.raises(UsageError) as refused:
        read(argv, {})
    return str(refused.value).splitlines()


def run(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    return subprocess.run(
        [sys.executable, "-m", "kirsch", *args],
        cwd=cwd,
        env={**environment, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


# The content of a file


def test_a_file_is_served_from(serve: Serve, write: Write) -> None:
    write(APP, "hello.py")
    path = write(
        """
        app = "hello:app"
        server-header = "from a file"
        """
    )
    # `serve` names an application and an address, so the file gets its word only in the rest.
    with urllib.request.urlopen(serve("hello:app", cwd=path.parent).url, timeout=10) as response:
        assert response.headers["Server"] == "from a file"


def test_flags_win_over_variables_and_variables_over_the_file(write: Write) -> None:
    path = write('app = "hello:app"\nkeep-alive = 3\nbacklog = 5\nthreads = 7\nbind = [":1", ":2"]\n')
    done = run("--print-config", "--threads", "8", "-b", ":3", cwd=path.parent, env={"KIRSCH_BACKLOG": "6"})
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert (done.returncode, done.stderr) == (0, "")
    assert rows["app"] == ["hello:app", "kirsch.toml:1"]
    assert rows["keep_alive"] == ["3", "kirsch.toml:2"]
    assert rows["backlog"] == ["6", "KIRSCH_BACKLOG"]
    assert rows["threads"] == ["8", "--threads"]
    assert rows["bind"] == [":3", "-b"]
    assert rows["header_timeout"] == ["15s", "default"]


def test_toml_has_values_of_its_own(write: Write) -> None:
    write(
        """
        app = "hello:app"
        bind = [
            "127.0.0.1:0",
            "unix:k.sock",      # [
        ]
        workers = 2
        preload = true
        factory = false
        request-buffering = false
        keep-alive = 1.5
        timeout = "1h30m"
        header_timeout = 3
        limit-request-body = "1MiB"
        body-memory = 4_096
        pythonpath = ["lib", "vendor"]
        user = 1000
        umask = "027"
        access-logformat = "json"
        touch-reload = "touched"

        [timeout-paths]
        "/reports" = "300s"
        "/upload" = 0

        [env]
        SECRET = '''
        a "b",
        c'''
        NUMBER = 3
        """
    )
    settings = read([], {})
    assert settings.target == "hello:app"
    assert settings.bind == ("127.0.0.1:0", "unix:k.sock")
    assert (settings.workers, settings.preload, settings.factory, settings.request_buffering) == (2, True, False, False)
    assert (settings.keep_alive, settings.timeout, settings.header_timeout) == (1.5, 5400.0, 3.0)
    assert (settings.limit_request_body, settings.body_memory) == (1 << 20, 4096)
    assert settings.pythonpath == ("lib", "vendor")
    assert (settings.user, settings.umask) == ("1000", 0o27)
    assert settings.access_logformat == "json"
    assert settings.touch_reload == ("touched",)
    assert settings.timeout_paths == (("/reports", 300.0), ("/upload", 0.0))
    assert settings.env == (("SECRET", 'a "b",\nc'), ("NUMBER", "3"))
    assert settings.origins["bind"] == "kirsch.toml:3"
    assert settings.origins["timeout_paths"] == "kirsch.toml:22"
    assert settings.origins["env"] == "kirsch.toml:26"


_ELSEWHERE = {"config", "check_config", "print_config", "mount"}


@pytest.mark.parametrize("each", [each for each in SETTINGS if each.name not in _ELSEWHERE], ids=lambda each: each.name)
def test_every_setting_can_be_given_by_the_name_of_each_flag(each: Setting, write: Write) -> None:
    value: Any = each.default
    if each.is_switch:
        value = False
    elif each.default.isdigit():
        value = int(each.default)
    for flag in each.flags:
        if flag.startswith("--"):
            for name in {flag[2:], flag[2:].replace("-", "_")}:
                write(f"{name} = {json.dumps(value)}\n")
                settings = read([], {})
                assert getattr(settings, each.name) == getattr(read(["-c", os.devnull], {}), each.name)
                assert settings.origins[each.name] == "kirsch.toml:1"


def test_a_project_file_has_a_table(write: Write) -> None:
    write(
        """
        [project]
        name = "shop"

        [tool.other]
        workers = "many"

        [tool.kirsch]
        app = "shop:app"
        workers = 3
        env.DEBUG = "1"

        [[tool.kirsch.mount]]
        path = "/a"
        app = "a"
        """,
        "pyproject.toml",
    )
    settings = read([], {})
    assert (settings.target, settings.workers, settings.env) == ("shop:app", 3, (("DEBUG", "1"),))
    assert settings.origins["workers"] == "pyproject.toml:10"
    assert settings.origins["env"] == "pyproject.toml:11"
    assert [(mount.path, mount.origin) for mount in settings.mounts] == [("/a", "pyproject.toml:13")]


@pytest.mark.parametrize(
    "text",
    [
        "[tool.kirsch]\nworkers = 3",
        "[ tool . 'kirsch' ]\nworkers = 3",
        "[tool]\nkirsch.workers = 3",
        "[tool]\nkirsch = { workers = 3 }",
        "tool = { kirsch = { workers = 3 } }",
        "tool.kirsch.workers = 3",
        '["tool"."kirsch"]\nworkers = 3',
    ],
)
def test_a_project_file_may_spell_the_table_in_every_way(text: str, write: Write) -> None:
    write(text, "pyproject.toml")
    assert read([], {}).workers == 3


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'kirsch'\n", "[tool.x]\n", "this is no TOML", "tool = 3\nkirsch = 1\n"]
)
def test_a_project_file_without_the_table_is_let_alone(text: str, write: Write) -> None:
    write(text, "pyproject.toml")
    settings = read([], {})
    assert settings.file == ""
    assert set(settings.origins.values()) == {"default"}


def test_a_file_of_our_own_wins_over_that_of_the_project(write: Write) -> None:
    write("[tool.kirsch]\nworkers = 2\nbacklog = 3\n", "pyproject.toml")
    path = write("workers = 4\n")
    settings = read([], {})
    assert (settings.workers, settings.backlog, settings.file) == (4, 2048, str(path))


def test_a_file_can_be_named(write: Write) -> None:
    write("workers = 2\n")
    path = write("workers = 3\n", "etc/other.toml")
    assert read([], {}).workers == 2
    assert read(["-c", "etc/other.toml"], {}).origins["workers"] == "etc/other.toml:1"
    assert read([], {"KIRSCH_CONFIG": str(path)}).workers == 3
    assert read(["-c", "/dev/null"], {}).workers == 1
    write("[tool.kirsch]\nworkers = 5\n", "etc/pyproject.toml")
    assert read(["--config", "etc/pyproject.toml"], {}).workers == 5


def test_a_named_file_must_be_there(write: Write) -> None:
    write("[tool.other]\n", "pyproject.toml")
    assert mistakes("-c", "nowhere.toml") == ["-c: cannot read nowhere.toml: No such file or directory"]
    assert mistakes("--config", ".") == ["--config: cannot read .: Is a directory"]
    (line,) = mistakes("-c", "gunicorn.conf.py")
    assert line.startswith("-c: gunicorn.conf.py is Python, as gunicorn's settings are, and TOML is wanted; ")
    assert mistakes("-c", "pyproject.toml") == ["-c: pyproject.toml has no table [tool.kirsch]"]


def test_the_directory_of_a_named_file_is_where_its_chdir_begins(write: Write) -> None:
    path = write('chdir = "src"\n', "etc/kirsch.toml")
    assert read(["-c", "etc/kirsch.toml"], {}).chdir == str(path.parent / "src")
    assert read(["-c", "etc/kirsch.toml", "--chdir", "lib"], {}).chdir == "lib"
    write('chdir = "src"\n')
    assert read([], {}).chdir == "src"


def test_the_file_is_looked_for_before_the_directory_is_changed(write: Write) -> None:
    write(APP, "src/hello.py")
    write('app = "nothing:app"\n', "src/kirsch.toml")
    path = write('app = "hello:app"\nchdir = "src"\n')
    done = run("--check-config", cwd=path.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello:app is ok\n", "")


def test_a_byte_order_mark_and_line_ends_of_windows_are_read(write: Write) -> None:
    path = write("")
    path.write_bytes(b"\xef\xbb\xbfbacklog = 3\r\nbind = [\r\n  ':1'\r\n]\r\nthreads = 2\r\n")
    settings = read([], {})
    assert (settings.backlog, settings.bind) == (3, (":1",))
    assert settings.origins["threads"] == "kirsch.toml:5"


# Texts without a meaning


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("workres = 3", "1: there is no setting workres; did you mean workers?"),
        ("max_request = 3", "1: there is no setting max_request; did you mean max-requests?"),
        ("xyzzy = 3", "1: there is no setting xyzzy; kirsch --help-all lists those there are"),
        ("processes = 3", "1: there is no setting processes; write workers"),
        ('host = "x"', "1: there is no setting host; write bind HOST:PORT"),
        ("no-preload = true", "1: there is no setting no-preload; write preload = false"),
        ("[kirsch]\nworkers = 1", "1: there is no setting kirsch; settings stand at the top of this file, in no table"),
        ('module = "a:b"', "1: there is no setting module; write app"),
        ("check-config = true", "1: check-config belongs on the command line"),
        ('config = "x"', "1: config belongs on the command line"),
        ("\n\nworkers = 1\nWorkers = 2", "4: there is no setting Workers; did you mean workers?"),
        ("pid = 'a'\npid-file = 'b'", "2: pid-file is there already, kirsch.toml:1 has it"),
        ("keep-alive = 'soon'", "1: keep-alive: 'soon' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms"),
        ("keep-alive = -1", "1: keep-alive: '-1' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms"),
        ("keep-alive = nan", "1: keep-alive: 'nan' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms"),
        ("keep-alive = 1e-7", "1: keep-alive: '1e-07' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms"),
        ("workers = '4'", '1: workers is the string "4", and a whole number is wanted'),
        ("workers = 4.0", "1: workers is the number 4.0, and a whole number is wanted"),
        ("workers = true", "1: workers is true, and a whole number is wanted"),
        ("preload = 'yes'", '1: preload is the string "yes", and true or false is wanted'),
        ("preload = 1", "1: preload is the number 1, and true or false is wanted"),
        ("bind = 8000", "1: bind is the number 8000, and a string is wanted"),
        ("bind = [':1', 2]", "1: bind is the number 2, and an array of strings is wanted"),
        ("bind = '8000'", "1: bind: '8000' lacks a host or a port; did you mean :8000 or 127.0.0.1:8000?"),
        ("umask = 0o27", "1: umask is the number 23, and a string is wanted"),
        ("keep-alive = 07:32:00", ("1: keep-alive is a date or a time, and a number of seconds or a string such as "
         '"30s" is wanted')),
        ("timeout-paths = 3", ('1: timeout-paths is the number 3, and a table such as { "/reports" = "300s" } is '
         "wanted")),
        ("[timeout-paths]\n'/a' = true", ("2: timeout-paths of /a is true, and a number of seconds or a string such as "
         '"30s" is wanted')),
        ("[env]\nA = false", "2: env of A is false, and a string is wanted"),
        ("app = 3", '1: app is the number 3, and a string is wanted, such as "hello:app"'),
        ("max-requests-jitter = 3", "1: max-requests-jitter: it goes with --max-requests, which is not set"),
        ("[mount]\npath = '/a'", ('1: mount is a table, and tables are wanted: write [[mount]], or [mounts] with '
         '"/path" = "module:app"')),
        ("[[mount]]\npath = '/a'", '1: a mount has an application, such as app = "shop:app"'),
        ("[[mount]]\napp = 'a'", '1: a mount has a path or a host, such as path = "/shop"'),
        ("[[mount]]\n\npth = '/a'\nhost='b'\napp='a'", "3: a mount has no pth; did you mean path?"),
        ("[[mount]]\npath = '/a'\napp='a'\nfactory='x'", '4: factory is the string "x", and true or false is wanted'),
        ("[[mount]]\npath = 'a'\napp='a'", "2: path: 'a' is not the beginning of a path; did you mean '/a'?"),
        ("[[mount]]\npath = '/a%20b'\napp='a'", ("2: path: '/a%20b' is percent-encoded; write the decoded "
         "path")),
        ("[[mount]]\npath = '/a?b'\napp='a'", ("2: path: '/a?b' is more than a path; omit what follows ? "
         "and #")),
        ("[[mount]]\npath = '/a/../b'\napp='a'", ("2: path: '/a/../b' has an empty segment, or a . or .. that browsers "
         "remove; it would match no request")),
        ("[[mount]]\npath = 3\napp='a'", "2: path is the number 3, and a string is wanted"),
        ("[[mount]]\nhost = 'a:80'\napp='a'", "2: host: 'a:80' has a port, which is not compared; did you mean 'a'?"),
        ("[[mount]]\nhost = 'a.*'\napp='a'", ("2: host: 'a.*' is not a host; a star stands for whole labels at the "
         "beginning, as in *.example.org")),
        ("[[mount]]\nhost = 'http://a'\napp='a'", ("2: host: 'http://a' is not a host; write example.org or "
         "*.example.org")),
        ("[[mount]]\nhost = 'käse.de'\napp='a'", ("2: host: 'käse.de' is not what requests contain; write it as DNS "
         "does, beginning with xn--")),
        ("[[mount]]\npath = '/a/'\napp='a'\n[[mount]]\npath = '/a'\napp='b'", ("4: there is a mount /a already, "
         "kirsch.toml:1 has it")),
        ("app = 'x'\n[[mount]]\npath = '/'\napp='a'", ("2: this mount is for every request, and so is the application "
         "x (kirsch.toml:1); omit one of them")),
        ("workers = ", "1: workers lacks a value; write workers = VALUE, or remove it"),
        ("app = hello:app # x", '1: hello:app lacks its quotes; write app = "hello:app"'),
        ("preload = yes", "1: yes is not a value of TOML; write preload = true"),
        ("keep-alive = 30s", '1: 30s lacks its quotes; write keep-alive = "30s"'),
        ("[server]\nworkers = 1", ("1: there is no setting server; settings stand at the top of this file, and its "
         "tables are acme, env, logging, mounts, static, timeout-paths and tls")),
        ("\na = 1\na = 2", "3: this is not TOML: cannot overwrite a value"),
        ("\n\n[tool", "3: this is not TOML: expected ']' at the end of a table declaration"),
        ("\n\na = '''", "3: this is not TOML: expected \"'''\""),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text: str, line: str, write: Write) -> None:
    write(text)
    assert mistakes() == [f"kirsch.toml:{line}"]


def test_what_is_not_utf_8_is_told(write: Write) -> None:
    write("").write_bytes(b"# one\na = '\xff'\n")
    assert mistakes() == ["kirsch.toml:2: this is not UTF-8, in which TOML is written"]


def test_a_file_that_nests_without_end_is_refused(write: Write) -> None:
    write(f"a = {'[' * 100_000}")
    assert mistakes()[0].startswith("kirsch.toml:")


def test_several_mistakes_are_told_together_in_their_order(write: Write) -> None:
    path = write("backlog = 0\n[[mount]]\npth = 1\n[env]\nA = false\n")
    path.write_text("wrokers = 3\n" + path.read_text(), encoding="utf-8")
    write(APP, "hello.py")
    done = run("--check-config", "hello:app", cwd=path.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "kirsch: kirsch.toml:1: there is no setting wrokers; did you mean workers?",
        "kirsch: kirsch.toml:2: backlog: '0' is too little; 1 is the least",
        'kirsch: kirsch.toml:3: a mount has an application, such as app = "shop:app"',
        'kirsch: kirsch.toml:3: a mount has a path or a host, such as path = "/shop"',
        "kirsch: kirsch.toml:4: a mount has no pth; did you mean path?",
        "kirsch: kirsch.toml:6: env of A is false, and a string is wanted",
    ]


# Lines


def test_every_key_is_found_on_its_line() -> None:
    """Files of every construct that TOML has, with a comment in each place that may have one."""
    chance = random.Random(20240117)
    print("seed 20240117")
    values = [
        "1", '"[a]"', "'# no'", '"\\""', '[1, # ]\n\n"]", [2]]', '"""a\n[b]\nc = "d" """', "'''\n[[x]]\n'y'''",
        "{ a = [ 1, 2 ], b = '}' }", "1979-05-27 07:32:00", '"""\n\\""" = """', "[\n]", '""""a"""',
    ]  # fmt: skip
    for _ in range(200):
        lines: list[str] = []
        wanted: dict[tuple[str | int, ...], int] = {}
        table: tuple[str | int, ...] = ()
        counts: dict[str, int] = {}
        for number in range(chance.randrange(1, 12)):
            lines += chance.choice([[], [""], ["# c = 1"], ["\t"]])
            kind = chance.randrange(6)
            if kind == 0:
                table = (f"t{number}", "sub table")
                lines.append(f"[ t{number} . 'sub table' ] # [x]")
                wanted[table] = len(lines)
            elif kind == 1:
                name = chance.choice(["mount", "other"])
                counts[name] = counts.get(name, -1) + 1
                table = (name, counts[name])
                lines.append(f" [[{name}]]")
                wanted[table] = len(lines)
            else:
                key = chance.choice([f"k{number}", f'"k {number}"', f"'k.{number}'"])
                path = (*table, key.strip("\"'"))
                wanted[path] = len(lines) + 1
                lines += f"{key} = {chance.choice(values)}{chance.choice(['', ' # c', ' '])}".split("\n")
        text = "\n".join(lines)
        found = Lines(text)
        assert {path: found.of(*path) for path in wanted} == wanted, text


# Reading again


def test_a_file_is_read_again_from_where_it_was(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"KIRSCH_BACKLOG": "5"}
    path = write("workers = 2\nkeep-alive = 3\nbacklog = 4\n")
    old = read(["-w", "1"], environ)
    environ["KIRSCH_BACKLOG"] = "7"
    monkeypatch.chdir(tmp_path)  # as --chdir does
    path.write_text("workers = 3\nkeep-alive = 4\nbacklog = 6\n", encoding="utf-8")
    new = read_again(old)
    assert (new.workers, new.keep_alive, new.backlog) == (1, 4.0, 5)
    path.unlink()
    assert read_again(new).keep_alive == 75.0
    path.write_text("workers = 'x'\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"^kirsch\.toml:1: workers is the string"):
        read_again(new)


def test_what_a_reload_changes_and_what_it_cannot(write: Write) -> None:
    def settings(text: str, *argv: str) -> Settings:
        write(text)
        return read(argv, {})

    old = settings('app = "a"\nworkers = 2\npid-file = "x"\n[[mount]]\npath = "/x"\napp = "x"\n')
    assert changes(old, old) == ((), ())
    new = settings('app = "b"\nworkers = 3\npid-file = "y"\nkeep-alive = "5s"\n[[mount]]\npath = "/y"\napp = "x"\n')
    assert changes(old, new) == (("workers", "keep_alive", "app", "mounts"), ("pid_file",))
    applied = reloaded(old, new)
    assert (applied.workers, applied.pid_file, applied.keep_alive, applied.target) == (3, "x", 5.0, "b")
    assert applied.origins["pid_file"] == "kirsch.toml:3"
    assert [mount.path for mount in applied.mounts] == ["/y"]
    # A setting that could not be changed is reported again at the next reload.
    assert changes(applied, read_again(applied)) == ((), ("pid_file",))
    # The same value in another spelling, or from elsewhere, is no change.
    assert changes(settings("keep-alive = 60\n"), settings("", "--keep-alive", "1m")) == ((), ())


def test_a_supervisor_does_not_come_and_go_with_a_reload(write: Write) -> None:
    write("workers = 0\n")
    alone = read(["a"], {})
    write("workers = 1\n")
    assert changes(alone, read_again(alone)) == ((), ("workers",))


# The cost of reading it


def test_a_start_without_a_file_imports_no_parser(write: Write) -> None:
    write('[project]\nname = "x"\ndependencies = ["kirsch"]\n\n[tool.other]\na = 1\n', "pyproject.toml")
    program = (
        "import sys\nfrom kirsch.config import sources\nsources.read(['a:app'], {})\n"
        "print({'tomllib', 'tomli', 'kirsch.config.toml', 'kirsch.config.compat', 'kirsch.commands.help', 'difflib'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "set()\n"


# The page about it

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_file_of_the_page_is_read_without_a_mistake(text: str, write: Write) -> None:
    write(text, "pyproject.toml" if "tool.kirsch" in text else "kirsch.toml")
    settings = read([], {})
    assert any(origin != "default" for _name, _text, origin in settings.rows())
