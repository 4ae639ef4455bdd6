"""Hints at a mistyped name or one of another server: right, or absent. Each row of a table is the input and the
hint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kirsch.adopt import command
from kirsch.config import compat
from kirsch.config.compat import texts
from kirsch.config.schema import SETTINGS
from kirsch.config.setting import Setting, UsageError
from kirsch.config.sources import read
from kirsch.suggest import nearest

OURS = {flag for each in SETTINGS for flag in (*each.flags, *each.negations)}

NO_HINT = "kirsch --help-all lists those there are"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        # Slips of the fingers
        ("--bnid", "did you mean --bind?"),
        ("--wrokers", "did you mean --workers?"),
        ("--worker", "did you mean --workers?"),
        ("--thread", "did you mean --threads?"),
        ("--keepalive", "did you mean --keep-alive?"),
        ("--keepalve", "did you mean --keep-alive?"),
        ("--keep_alive", "did you mean --keep-alive?"),
        ("--Workers", "did you mean --workers?"),
        ("--time-out", "did you mean --timeout?"),
        ("--timeout-header", "did you mean --header-timeout?"),
        ("--grcaeful-timeuot", "did you mean --graceful-timeout?"),
        ("--access-logfil", "did you mean --access-logfile?"),
        ("--acess-log-file", "did you mean --access-logfile?"),
        ("--limit-request-felds", "did you mean --limit-request-fields?"),
        ("--max-request", "did you mean --max-requests?"),
        ("--no-relaod", "did you mean --no-reload?"),
        ("--hlep", "did you mean --help?"),
        # Near in letters, and far in meaning
        ("--min-requests", NO_HINT),
        ("--find", NO_HINT),
        ("--load", NO_HINT),
        ("--unload", NO_HINT),
        ("--minimum-rate", NO_HINT),
        ("--xyzzy", NO_HINT),
        ("--ip", NO_HINT),
        ("-Z", NO_HINT),
        # Other servers', by name
        ("--proceses", "for --processes, write --workers"),
        ("--no-sendfile", "omit it; wsgi.file_wrapper sends a file with sendfile where the kernel can"),
        ("--proxy-headers", f"write {texts.FORWARDED}"),
        ("--trusted-proxy", f"write {texts.FORWARDED}"),
        ("--proxy-protocol", f"write {texts.PROXY_PROTOCOL}"),
        ("--https-socket", f"write {texts.TLS}"),
        ("--uds", "write --bind unix:PATH"),
        ("--harakiri", "write --timeout"),
        ("--maximum-requests", "write --max-requests"),
        ("--timeout-keep-alive", "write --keep-alive"),
        ("--channel-timeout", "write --keep-alive, with --header-timeout, --body-timeout and --write-timeout"),
        ("--asgi-lifespan", "write --lifespan"),
        ("--read-timeout", "write --header-timeout and --body-timeout, which hold unasked"),
        ("--quic-bind", "Kirsch speaks HTTP/1.1 and HTTP/2; a proxy in front may speak HTTP/3 to clients"),
        ("--static-path-mount", "write --static /static=DIRECTORY, which is both"),
        ("--listen=127.0.0.1:80", "write --bind HOST:PORT"),
        ("--listen=1024", "write --backlog COUNT"),
        ("--listen", "as in uWSGI: write --backlog COUNT; as in waitress: write --bind HOST:PORT"),
        ("--no-request-buffering", "write --request-buffering off"),
        ("--emperor-tyrant", "use a systemd unit for each application, which systemd starts and watches"),
    ],
)
def test_hint_at_a_flag(typed: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read([typed], {})
    flag = typed.partition("=")[0]
    assert str(refused.value) == f"there is no flag {flag}; {hint}"


@pytest.mark.parametrize(
    ("typed", "known", "hint"),
    [
        ("chekc", ("check", "bench"), "check"),
        ("nomodule", ("module", "mdurl"), None),
        ("helo", ("hello", "help"), None),  # one letter from each
        ("helo", ("hello", "world"), "hello"),
        ("Hello", ("hello",), "hello"),
        ("ap", ("app",), "app"),
        ("ap", ("app", "api"), None),
        ("app", ("create_app",), None),
        ("wsgi", ("asgi",), None),
        ("", ("app",), None),
        ("x", ("y",), None),
    ],
)
def test_the_nearest_word_is_a_misspelling_or_none(typed: str, known: tuple[str, ...], hint: str | None) -> None:
    assert nearest(typed, known) == hint


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.name)
def test_one_slip_in_a_flag_is_understood_or_passed_over(each: Setting) -> None:
    """Whatever letter of a flag is left out or doubled, nothing but that flag is suggested."""
    flag = each.flags[-1]
    known = sorted(flag for flag in OURS if flag.startswith("--"))
    same = set(each.flags)
    for at in range(2, len(flag)):
        for typed in (flag[:at] + flag[at + 1 :], flag[:at] + flag[at] + flag[at:]):
            if typed not in known:
                assert nearest(typed, known, "--") in {None, *same, *each.negations}, typed


def test_flags_of_gunicorn_simply_work_where_they_mean_the_same() -> None:
    settings = read(["-k", "gthread", "-t", "30", "--worker-class", "gthread", "hello"], {})
    assert (settings.driver, settings.timeout) == ("threads", 30.0)
    assert read(["-k", "gevent"], {}).driver == "gevent"


# Every option of the others, as the --help of gunicorn 27, uWSGI 2.0, mod_wsgi-express 5.0, waitress 3.0, uvicorn 0.54,
# hypercorn 0.18 and granian 2.8 list them; names on lines, to be split.
PEERS = json.loads((Path(__file__).parent / "peer_options.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("server", PEERS)
def test_every_option_of_another_server_is_known(server: str) -> None:
    options = " ".join(PEERS[server]).split()
    assert len(options) > 20
    unknown = [flag for flag in options if not compat.equivalent(server, flag)]
    assert unknown == []
    # A flag that is called the same exists here; a flag that exists here has no other name suggested.
    for flag in options:
        same = compat.equivalent(server, flag).startswith("=")
        assert not same or flag in OURS or flag in ("--version", "--no-factory", "--no-reload", "-v"), flag


# No settings, but flags all the same: --host and --port become one --bind.
UNDERSTOOD = {"--version", "-v", "--host", "--port"}


@pytest.mark.parametrize("server", PEERS)
@pytest.mark.slow
def test_every_option_of_another_server_is_answered_on_the_command_line(server: str) -> None:
    """Options that are no flags here are answered with a known counterpart, never with a guess at a misspelling."""
    for flag in " ".join(PEERS[server]).split():
        if flag not in OURS and flag not in UNDERSTOOD:
            with pytest.raises(UsageError) as refused:
                read([f"{flag}=1" if flag.startswith("--") else flag], {})
            line = str(refused.value).splitlines()[0]
            assert line.startswith(f"there is no flag {flag}; ") or not flag.startswith("--"), line
            assert NO_HINT not in line, line
            assert "did you mean" not in line, line


# Prints the flags and the variables that a server's own command line knows.
ASGI_SERVERS = {
    "uvicorn": "from uvicorn.main import main as command",
    "granian": "from granian.cli import cli as command",
    "hypercorn": "import argparse; from hypercorn.__main__ import main; command = None",
}
LIST_OPTIONS = """
flags, variables = [], []
if command is None:
    def listed(parser, *_):
        flags.extend(flag for action in parser._actions for flag in action.option_strings)
        raise SystemExit
    argparse.ArgumentParser.parse_args = listed
    try:
        main([])
    except SystemExit:
        pass
else:
    for option in command.params:
        if option.param_type_name == "option":
            flags += [*option.opts, *option.secondary_opts]
            variables += [option.envvar] if isinstance(option.envvar, str) else []
import json
print(json.dumps([flags, variables]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("server", ASGI_SERVERS)
def test_every_option_of_an_installed_server_is_in_its_table(server: str) -> None:
    """The release of tests/requirements.txt: where it has a new option, this test names it."""
    pytest.importorskip(server)
    program = [sys.executable, "-W", "ignore", "-c", f"{ASGI_SERVERS[server]}\n{LIST_OPTIONS}"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    flags, variables = json.loads(done.stdout)
    assert len(flags) > 20
    assert [flag for flag in flags if flag not in ("--help", "-h") and not compat.equivalent(server, flag)] == []
    names = [name.removeprefix(f"{server.upper()}_") for name in variables]
    assert [name for name in names if not compat.equivalent(server, compat.flag_of_variable(server, name))] == []


@pytest.mark.parametrize("server", compat.SERVERS)
def test_an_answer_names_only_flags_that_there_are(server: str) -> None:
    for spelling, text in compat.patterns(server):
        named = set(re.findall(r"(?<![\w=-])--[a-z][\w-]*", text))
        assert named <= OURS | {"--help-all"}, (spelling, named - OURS)
        if text.startswith("=") and spelling != "--version":
            assert spelling in OURS or spelling == "--no-factory", spelling
        else:
            assert spelling not in OURS or text.startswith(("--", "omit", "use", "write", "Kirsch")), spelling


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("worker_class", None),  # works
        ("accesslog", "write access-logfile"),
        ("loglevel", "did you mean log-level?"),
        ("keepalive", "write keep-alive"),
        ("raw_env", "write env NAME=VALUE, or a table [env]"),
        ("when_ready", "no equivalent; systemd is told READY=1, and ready-path says when a worker is ready"),
        ("post_fork", "use worker-start; with preload also after-fork"),
        ("processes", "write workers"),
        ("harakiri", "write timeout"),
        # hypercorn's
        ("keep_alive_timeout", "write keep-alive"),
        ("pid_path", "write pid-file"),
        ("max_app_queue_size", "omit it; while the application receives nothing, nothing is read from the client"),
        ("mounts", None),
        ("xyzzy", "kirsch --help-all lists those there are"),
    ],
)
def test_hint_at_a_key(key: str, hint: str | None, tmp_path: object) -> None:
    path = f"{tmp_path}/kirsch.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{key} = {{}}\n" if key == "mounts" else f'{key} = "gevent"\n')
    if hint is None:
        read(["-c", path], {})
        return
    with pytest.raises(UsageError) as refused:
        read(["-c", path], {})
    assert str(refused.value).removeprefix(f"{path}:1: there is no setting {key}; ") in (
        hint,
        *([f"write {hint.removeprefix('did you mean ').rstrip('?')}"]),
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("KIRSCH_WORKER", "KIRSCH_WORKER in the environment is no setting; did you mean KIRSCH_WORKERS?"),
        ("KIRSCH_PROCESSES", "KIRSCH_PROCESSES in the environment is no setting; write KIRSCH_WORKERS"),
        ("KIRSCH_UDS", "KIRSCH_UDS in the environment is no setting; write KIRSCH_BIND=unix:PATH"),
        ("KIRSCH_CONFG", "KIRSCH_CONFG in the environment is no setting; did you mean KIRSCH_CONFIG?"),
        ("UWSGI_HTTP", "UWSGI_HTTP in the environment is uWSGI's and is not read; write KIRSCH_BIND=HOST:PORT"),
        ("UWSGI_PROCESSES", "UWSGI_PROCESSES in the environment is uWSGI's and is not read; write KIRSCH_WORKERS"),
        ("UWSGI_THREADS", "UWSGI_THREADS in the environment is uWSGI's and is not read; write KIRSCH_THREADS"),
        ("UWSGI_LAZY_APPS", ("UWSGI_LAZY_APPS in the environment is uWSGI's and is not read; omit it; that is the "
         "default, and KIRSCH_PRELOAD is the other way")),
        ("UVICORN_PORT", "UVICORN_PORT in the environment is uvicorn's and is not read; write KIRSCH_BIND=HOST:PORT"),
        ("GRANIAN_WORKERS", "GRANIAN_WORKERS in the environment is granian's and is not read; write KIRSCH_WORKERS"),
        ("GRANIAN_LOG_ACCESS_ENABLED", ("GRANIAN_LOG_ACCESS_ENABLED in the environment is granian's and is not read; "
         "write KIRSCH_ACCESS_LOGFILE=-")),
        ("FORWARDED_ALLOW_IPS", ("FORWARDED_ALLOW_IPS in the environment is gunicorn's and uvicorn's and is not read; "
         "write KIRSCH_TRUSTED_PROXIES=ADDRESSES")),
    ],
)  # fmt: skip
def test_hint_at_a_variable(name: str, line: str) -> None:
    assert read([], {name: "1"}).warnings == (line,)


def test_variables_of_another_server_that_mean_nothing_are_let_alone() -> None:
    assert read([], {"UVICORN_XYZZY": "1", "GRANIAN_": "1", "GUNICORN_PID": "1", "UWSGI_RELOADS": "1"}).warnings == ()


def test_page_on_migrating_names_only_flags_that_there_are() -> None:
    """The tables are written from the answers above, which scripts/settings_page.py holds; this is the prose."""
    page = (Path(__file__).parent.parent / "docs" / "migrating.md").read_text(encoding="utf-8")
    prose = re.sub(r"<!-- table: .*?<!-- end -->", "", page, flags=re.DOTALL)
    theirs = set(" ".join(line for lines in PEERS.values() for line in lines).split())
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", prose))
    assert len(named) > 10
    adopting = {flag for action in command._parser()._actions for flag in action.option_strings}
    assert named <= OURS | theirs | adopting, named - OURS - theirs - adopting


def test_page_on_migrating_has_every_answer() -> None:
    page = (Path(__file__).parent.parent / "docs" / "migrating.md").read_text(encoding="utf-8")
    for server in compat.SERVERS:
        for spelling, _ in compat.patterns(server):
            assert f"`{spelling}`" in page, (server, spelling)


def test_page_on_migrating_shows_a_flag_with_its_whole_value() -> None:
    page = (Path(__file__).parent.parent / "docs" / "migrating.md").read_text(encoding="utf-8")
    tables = "".join(re.findall(r"<!-- table: .*?<!-- end -->", page, flags=re.DOTALL))
    cut = re.findall(r"`--[^`|]+`(?:[\w?=./[]| [-/[]| \w+:unix| (?:gevent|uvloop|debug|off)\b)[^|]*", tables)
    assert cut == []


def test_gunicorns_arguments_are_read_below_what_is_our_own(tmp_path: Path) -> None:
    file = tmp_path / "kirsch.toml"
    file.write_text('keep-alive = "5s"\n', encoding="utf-8")
    text = "--workers=3 -t 20 --threads 4 --keep-alive 9 --bind :81 -b 127.0.0.1:82 --backlog=5"
    environ = {"GUNICORN_CMD_ARGS": text, "KIRSCH_THREADS": "6", "WEB_CONCURRENCY": "9", "PORT": "83"}
    settings = read(["--backlog=7", "-c", str(file)], environ)
    assert (settings.workers, settings.timeout, settings.bind) == (3, 20, (":81", "127.0.0.1:82"))
    assert (settings.threads, settings.keep_alive, settings.backlog) == (6, 5, 7)
    assert settings.origins["workers"] == "GUNICORN_CMD_ARGS --workers"
    (warning,) = settings.warnings
    assert warning == (
        "GUNICORN_CMD_ARGS in the environment is read: --workers, -t, --threads, --keep-alive, -b, --backlog; the "
        "command line, KIRSCH_ variables and the settings file take precedence"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("--workers=x", "GUNICORN_CMD_ARGS --workers: 'x' is not a whole number"),
        ("--workers", "GUNICORN_CMD_ARGS: --workers: a value is missing; write --workers=COUNT"),
        ("-k sync", ("GUNICORN_CMD_ARGS -k: 'sync' is not one of threads, gevent, asyncio; write threads, and for one "
         "request at a time --threads 1")),
        ("--ssl-version 2", "GUNICORN_CMD_ARGS: --ssl-version is gunicorn's; write --tls-min VERSION; 1.2 or 1.3"),
        ("-c gunicorn.conf.py", ("GUNICORN_CMD_ARGS: -c gunicorn.conf.py is a settings file of gunicorn; write "
         "kirsch.toml, and name it with KIRSCH_CONFIG")),
        ("--check-config", "GUNICORN_CMD_ARGS: --check-config belongs on the command line"),
        ("--help", "GUNICORN_CMD_ARGS: --help belongs on the command line"),
        ("shop:app", ("GUNICORN_CMD_ARGS: 'shop:app' is not a flag; name the application on the command line, or in "
         "KIRSCH_APP")),
        ("--xyzzy", "GUNICORN_CMD_ARGS: there is no flag --xyzzy; kirsch --help-all lists those there are"),
        ("'--name", "GUNICORN_CMD_ARGS: \"'--name\" cannot be split into words: No closing quotation"),
    ],
)  # fmt: skip
def test_gunicorns_arguments_without_a_meaning_are_refused(text: str, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        read([], {"GUNICORN_CMD_ARGS": text})
    assert str(refused.value) == line


def test_gunicorns_arguments_that_are_not_needed_are_ignored() -> None:
    settings = read([], {"GUNICORN_CMD_ARGS": "--worker-tmp-dir /dev/shm --no-sendfile"})
    assert settings.warnings == (
        "GUNICORN_CMD_ARGS: --worker-tmp-dir is ignored: workers show that they live without a file",
        (
            "GUNICORN_CMD_ARGS: --no-sendfile is ignored: wsgi.file_wrapper sends a file with sendfile where the "
            "kernel can"
        ),
    )
