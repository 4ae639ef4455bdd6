"""Settings: what is written becomes a value, from the right place, or one line that says how to mend it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kirsch import _native
from kirsch.commands.help import help_all
from kirsch.config.native import NativeConfig
from kirsch.config.options import Options
from kirsch.config.schema import SETTINGS
from kirsch.config.sections import SECTIONS
from kirsch.config.setting import Setting, UsageError
from kirsch.config.sources import read
from kirsch.config.values import (
    parse_binds,
    parse_count,
    parse_duration,
    parse_on_off,
    parse_path_limits,
    parse_size,
    parse_switch,
    path_limits,
)
from kirsch.monitor.running_requests import Statistics

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("0", 0.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("365d", 31_536_000.0),
        ("1d12h", 129_600.0),
        ("1h1m1s1ms", 3661.001),
        ("500ms", 0.5),
        ("1.5", 1.5),
        ("1.5s", 1.5),
        ("2m30", 150.0),
        (" 7s ", 7.0),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", " ", "s", "-1", "9x", "1s1m", "1e3", "nan", "inf", "1..5", "٣", "9999999999"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is (not a duration|more than a year)"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("0", 0),
        ("64k", 65536),
        ("64K", 65536),
        ("64KiB", 65536),
        ("64kb", 65536),
        ("1MiB", 1 << 20),
        ("1g", 1 << 30),
        ("2T", 2 << 40),
        ("1.5k", 1536),
        ("10 b", 10),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "1x", "1kk", "1 e", "0x10", "9999999t", "9" * 400, "1.k", ".5k", "٣k", "1.0001k"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|is larger than"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "-1", "1.0", "one", "²", "1_0", "9" * 16])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a whole number|is below 0"):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("off", False), ("", False)]
)
def test_a_switch_is_read(text: str, value: bool) -> None:
    assert parse_switch(text) is value


@pytest.mark.parametrize(("text", "value"), [("on", True), ("OFF", False), ("1", True), (" no ", False)])
def test_what_is_on_or_off_is_read(text: str, value: bool) -> None:
    assert parse_on_off(text) is value


@pytest.mark.parametrize("text", ["", "maybe", "onoff"])
def test_what_is_neither_on_nor_off_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is neither on nor off"):
        parse_on_off(text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", ()),
        ("/reports=300s", (("/reports", 300.0),)),
        ("/reports/=5m , /=0", (("/reports", 300.0), ("/", 0.0))),
        ("/a=b/c=1,", (("/a=b/c", 1.0),)),
    ],
)
def test_limits_of_paths_are_read(text: str, limits: tuple[tuple[str, float], ...]) -> None:
    assert parse_path_limits(text) == limits


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("/reports", "'/reports' lacks a duration; write /reports=300s"),
        ("/reports=soon", "'/reports=soon': 'soon' is not a duration"),
        ("reports=1s", "did you mean '/reports'?"),
        ("/reports?x=1", "omit what follows ? and #"),
        ("/reports=1s,/reports/=2s", "'/reports/' is there twice"),
        ("/größe=1s", "'/größe' is not what requests contain; write it percent-encoded"),
        ("=1s", "'' is not the beginning of a path"),
    ],
)
def test_limits_of_paths_that_cannot_be_meant_are_refused(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_path_limits(text)
    assert hint in str(refused.value)


def test_limits_of_paths_in_a_program_are_a_mapping_or_pairs() -> None:
    wanted = (("/a", 1.0), ("/b", 2.5))
    assert path_limits({"/a": 1, "/b/": 2.5}) == wanted
    assert path_limits([("/a", 1), ("/b", 2.5)]) == wanted
    assert path_limits(iter(wanted)) == wanted
    for wrong in ("/a=1", [("/a", "1s")], [("/a", True)], [("/a",)], [("/a", 1, 2)]):
        with pytest.raises(TypeError, match=r"wanted|must be str and float"):
            path_limits(wrong)  # type: ignore[arg-type]
    for bad in ([("/a", -1)], [("/a", float("nan"))]):
        with pytest.raises(ValueError, match="must not be negative"):
            path_limits(bad)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:0", ":8000", "[::1]:8000", "localhost:80", "unix:/run/x.sock", "unix:x", "a:1,unix:b , [::]:2"]
)
def test_an_address_is_read(text: str) -> None:
    assert ",".join(parse_binds(text)) == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("8000", "did you mean :8000 or 127.0.0.1:8000?"),
        ("localhost", "did you mean localhost:8000?"),
        ("::1:8000", "put an IPv6 address in brackets"),
        ("[::1]", "put an IPv6 address in brackets"),
        ("[::1]8000", "put an IPv6 address in brackets"),
        ("[localhost]:80", "did you mean localhost:80?"),
        ("a:65536", "the port is a number"),
        ("a:-1", "the port is a number"),
        ("a:http", "the port is a number"),
        ("tcp://a:80", "did you mean a:80?"),
        ("a b:80", "write HOST:PORT"),
        ("unix:", "write unix:/run/app.sock"),
        ("", "names no address"),
    ],
)
def test_what_is_no_address_is_refused_with_the_right_spelling(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_binds(text)
    assert hint in str(refused.value)


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    environ = {"KIRSCH_KEEP_ALIVE": "5m", "KIRSCH_BACKLOG": "7", "KIRSCH_FACTORY": "yes", "KIRSCH_BIND": ":1,:2"}
    settings = read(["--keep-alive", "1s", "--no-factory", "hello:app"], environ)
    assert (settings.keep_alive, settings.backlog, settings.factory) == (1.0, 7, False)
    assert settings.bind == (":1", ":2")
    assert settings.header_timeout == 15.0
    assert settings.target == "hello:app"
    assert settings.origins["keep_alive"] == "--keep-alive"
    assert settings.origins["backlog"] == "KIRSCH_BACKLOG"
    assert settings.origins["factory"] == "--no-factory"
    assert settings.origins["header_timeout"] == "default"


def test_a_repeated_bind_adds_and_replaces_the_variable() -> None:
    assert read(["-b", ":1", "--bind=:2"], {"KIRSCH_BIND": ":3"}).bind == (":1", ":2")


def test_a_repeated_limit_of_a_path_adds_and_replaces_the_variable() -> None:
    settings = read(["--timeout-path", "/a=1", "--timeout-path=/b=2"], {"KIRSCH_TIMEOUT_PATHS": "/c=3"})
    assert settings.timeout_paths == (("/a", 1.0), ("/b", 2.0))
    assert read([], {"KIRSCH_TIMEOUT_PATHS": "/c=3,/d=4"}).timeout_paths == (("/c", 3.0), ("/d", 4.0))


def test_of_another_repeated_flag_the_last_one_counts() -> None:
    assert read(["--backlog", "1", "--backlog", "2"], {}).backlog == 2


@pytest.mark.parametrize(
    "argv", [["hello", "-b", ":1"], ["-b", ":1", "hello"], ["-b", ":1", "--", "hello"], ["--", "hello"]]
)
def test_the_application_may_stand_anywhere(argv: list[str]) -> None:
    assert read(argv, {}).target == "hello"


def test_gunicorns_spelling_with_the_underscore_is_known() -> None:
    assert read(["--limit-request-field_size", "4k"], {}).limit_request_field_size == 4096


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--bnid", ":1"], "there is no flag --bnid; did you mean --bind?"),
        (["--keepalive=3"], "there is no flag --keepalive; did you mean --keep-alive?"),
        (["--access-logfil", "-"], "there is no flag --access-logfil; did you mean --access-logfile?"),
        (["--xyzzy"], "there is no flag --xyzzy; kirsch --help-all lists those there are"),
        (["-Z"], "there is no flag -Z; kirsch --help-all lists those there are"),
        (["--processes", "4"], "there is no flag --processes; write --workers"),
        (["--cheaper=2"], "there is no flag --cheaper; write --min-workers and --max-workers"),
        (["--pidfile", "x"], "there is no flag --pidfile; write --pid-file"),
        (["--mount", "x"], "--mount: 'x' names no application; write /x=module:app"),
        (["--host"], "--host: a value is missing; write --host=127.0.0.1"),
        (["--port", "http"], "--port: '127.0.0.1:http': the port is a number from 0 (any free one) to 65535"),
        (["--host", "::1", "-b", ":1"], "--host: -b names the address too; give one of them"),
        (["-b", "unix:/x.sock?mod=600"], ("-b: 'unix:/x.sock?mod=600': there is no option 'mod=600'; behind "
         "the question mark may stand mode=660 and proxy")),
        (["-b", ":8000", "-b", ":8000"], "-b: ':8000' is the address of ':8000'; give each address once"),
        (["-b", "unix:/a.sock", "-b", "unix:/a.sock?mode=660"], ("-b: 'unix:/a.sock?mode=660' is the address of "
         "'unix:/a.sock'; give each address once")),
        (["-b", "/run/x.sock"], "-b: '/run/x.sock' is a path; did you mean unix:/run/x.sock?"),
        (["-b", "fastcgi:/x.sock"], "-b: 'fastcgi:/x.sock': '/x.sock' is a path; did you mean unix:/x.sock?"),
        (["-b", "fcgi:127.0.0.1:9000"], ("-b: 'fcgi:127.0.0.1:9000': fcgi is called fastcgi here; did you mean "
         "fastcgi:127.0.0.1:9000?")),
        (["-b", "wss://0.0.0.0:443"], ("-b: 'wss://0.0.0.0:443': WebSockets come over HTTP; did you mean "
         "https://0.0.0.0:443?")),
        (["-w", "-3"], "-w: '-3' is below 0"),
        (["--bind"], "--bind: a value is missing; write --bind=ADDRESS"),
        (["--factory=1"], "--factory: it takes no value, and '1' was given; write --factory alone"),
        (["a", "b"], ("one application is served, and there are 2: a b; omit the others, or give each a path "
         "with --mount /path=module:app")),
        (["--log-level", "x"], "--log-level: 'x' is not one of debug, info, warning, error, critical"),
        (["--log-level", "WARN"], ("--log-level: 'WARN' is not one of debug, info, warning, error, critical; "
         "did you mean warning?")),
        (["-b", "http://127.0.0.1:8000/"], ("-b: 'http://127.0.0.1:8000/' has a path, and an address to listen on has "
         "none; did you mean http://127.0.0.1:8000?")),
        (["-b", "127.0.0.1 8000"], ("-b: '127.0.0.1 8000' is not an address to listen on; write HOST:PORT, :PORT, "
         "[IPV6]:PORT, unix:PATH or fd://N")),
        (["--access-logformat", "jsn"], "--access-logformat: 'jsn' is not one of combined, json; did you mean json?"),
        (["--server-header", "a\nX:y"], "--server-header: 'a\\nX:y' cannot be a header's value; write visible ASCII"),
        (["--no-request-buffering"], "there is no flag --no-request-buffering; write --request-buffering off"),
        (["--request-buffering", "no way"], "--request-buffering: 'no way' is neither on nor off"),
        (["--threads", "0"], "--threads: '0' is too little; 1 is the least"),
        (["--queue", "0"], "--queue: '0' is too little; 1 is the least"),
        (["--timeout-path", "x=1"], "--timeout-path: 'x' is not the beginning of a path; did you mean '/x'?"),
        (["--driver", "gevnt"], "--driver: 'gevnt' is not one of threads, gevent, asyncio; did you mean gevent?"),
        (["--driver", "xyzzy"], "--driver: 'xyzzy' is not one of threads, gevent, asyncio"),
        (["--backlog", "0"], "--backlog: '0' is too little; 1 is the least"),
        (["-w", "four"], "-w: 'four' is not a whole number"),
        (["-w", "257"], "-w: '257' is too much; 256 is the most"),
        (["--min-workers", "0"], "--min-workers: '0' is too little; 1 is the least"),
        (["-p", "8000"], "-p: '8000' is a number, but -p names the pid file; did you mean --bind :8000?"),
        (["-e", "DEBUG"], "-e: 'DEBUG' is not a variable; write NAME=VALUE"),
        (["-m", "999"], "-m: '999' is not a umask; write octal digits such as 027"),
        (["-u", "www data"], "-u: 'www data' is not a name or a number"),
        (["--ready-path", "ready"], "--ready-path: 'ready' is not a path; did you mean /ready?"),
        (["--health-path", "/a?b"], ("--health-path: '/a?b' is not what requests contain; write a path, "
         "percent-encoded, without ? and #")),
        (["--metrics-bind", "9100"], ("--metrics-bind: '9100' lacks a host or a port; did you mean :9100 or "
         "127.0.0.1:9100?")),
        (["--body-memory", "1x"], "--body-memory: '1x' is not a size; write 65536, 64k, 1MiB or 1g"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(argv, {})
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--max-requests-jitter", "5"], "--max-requests-jitter: it goes with --max-requests, which is not set"),
        (["--max-lifetime-jitter", "5"], "--max-lifetime-jitter: it goes with --max-lifetime, which is not set"),
        (["--reload-extra-file", "x"], "--reload-extra-file: it goes with --reload, which is not set"),
        (["--min-workers", "2", "-w", "3"], "--min-workers: it goes with --max-workers, which is not set"),
        (["--min-workers", "3", "--max-workers", "2"], "--min-workers: 3 is more than --max-workers, 2"),
        (["-w", "9", "--max-workers", "4"], "-w: 9 is not between --min-workers, 1, and --max-workers, 4"),
        (["-w", "0", "--preload"], ("-w: 0 serves without a supervisor, which --preload needs; omit it, or "
         "write 1")),
        (["-w", "0", "--max-requests=9", "--reload"], ("-w: 0 serves without a supervisor, which --reload, "
         "--max-requests need; omit them, or write 1")),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_told(argv: list[str], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(argv, {})
    assert str(refused.value) == line


def test_what_changes_nothing_goes_with_everything() -> None:
    read(["-w", "0", "--max-requests", "0", "--no-preload", "--max-requests-jitter", "0", "--min-workers", "1"], {})
    read(["-w", "3", "--min-workers", "2", "--max-workers", "4"], {})


def test_the_number_of_workers_is_the_least_where_it_is_not_given() -> None:
    settings = read(["--min-workers", "3", "--max-workers", "8"], {})
    assert (settings.workers, settings.origins["workers"]) == (3, "--min-workers")


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        read(["--backlog", "x", "--keep-alive", "y"], {"KIRSCH_THREADS": "z"})
    assert sorted(line.split(":")[0] for line in str(refused.value).splitlines()) == [
        "--backlog", "--keep-alive", "KIRSCH_THREADS",
    ]  # fmt: skip


def test_the_number_of_workers_may_come_from_the_platform() -> None:
    assert read([], {"WEB_CONCURRENCY": "3"}).origins["workers"] == "WEB_CONCURRENCY"
    assert read([], {"WEB_CONCURRENCY": "3", "KIRSCH_WORKERS": "2"}).workers == 2
    assert read(["-w", "4"], {"WEB_CONCURRENCY": "3"}).workers == 4
    with pytest.raises(UsageError, match=r"^WEB_CONCURRENCY: 'auto' is not a whole number$"):
        read([], {"WEB_CONCURRENCY": "auto"})


def test_the_application_may_come_from_the_environment() -> None:
    settings = read([], {"KIRSCH_APP": "hello:app"})
    assert (settings.target, settings.origins["app"]) == ("hello:app", "KIRSCH_APP")
    assert read(["other"], {"KIRSCH_APP": "hello:app"}).target == "other"


def test_variables_for_the_application() -> None:
    settings = read(["-e", "A=1,2", "--env", "B=x=y", "-e", "A=3"], {"KIRSCH_ENV": "C=1"})
    assert settings.env == (("A", "3"), ("B", "x=y"))
    assert read([], {"KIRSCH_ENV": "A=1,2\nB=\n"}).env == (("A", "1,2"), ("B", ""))
    shown = {name: text for name, text, _ in settings.rows()}["env"]
    assert shown == "A=..., B=..."  # values may be secrets


@pytest.mark.parametrize(("text", "value"), [("", None), ("0", 0), ("022", 0o22), ("0o27", 0o27), ("777", 0o777)])
def test_a_umask_is_read(text: str, value: int | None) -> None:
    assert read([f"--umask={text}"], {}).umask == value


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("eventlet", "use gevent; eventlet's own maintainers advise to migrate"),
        ("greenlet", "use gevent"),
        ("sync", "for one request at a time --threads 1"),
        ("trio", "write asyncio; there is no driver for trio"),
        ("uvicorn", "an ASGI application is always served by asyncio"),
        ("uvicorn.workers.UvicornWorker", "an ASGI application is always served by asyncio"),
    ],
)
def test_a_driver_of_another_server_is_told_what_to_use(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(["--driver", name], {})
    assert str(refused.value).startswith(f"--driver: {name!r} is not one of threads, gevent, asyncio; ")
    assert hint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bad_variable_is_told_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"^KIRSCH_KEEP_ALIVE: 'soon' is not a duration"):
        read([], {"KIRSCH_KEEP_ALIVE": "soon"})
    with pytest.raises(UsageError, match=r"^KIRSCH_FACTORY: 'perhaps' is neither yes nor no"):
        read([], {"KIRSCH_FACTORY": "perhaps"})


def test_variables_of_others_are_let_alone() -> None:
    """Kubernetes sets KIRSCH_PORT and KIRSCH_SERVICE_HOST for a service that is called kirsch."""
    assert read([], {"KIRSCH_PORT": "tcp://10.0.0.1:80"}).warnings == ()
    for name in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_80_TCP", "PORT_80_TCP_ADDR", "WEB_SERVICE_PORT"):
        assert read([], {f"KIRSCH_{name}": "10.0.0.1"}).warnings == ()
    assert not {"port", "service_host", "service_port"} & {each.name for each in SETTINGS}
    assert read([], {"KIRSCH_TEST_SEED": "1", "XKIRSCH_WORKER": "1", "KIRSCH_WORKERS": "1"}).warnings == ()


def test_variables_that_are_no_settings_are_pointed_out() -> None:
    settings = read([], {"KIRSCH_WORKER": "3", "KIRSCH_XYZZY": ""})
    assert settings.warnings == (
        "KIRSCH_WORKER in the environment is no setting; did you mean KIRSCH_WORKERS?",
        "KIRSCH_XYZZY in the environment is no setting; kirsch --help-all lists those there are",
    )


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.name)
def test_every_setting_can_be_given_by_flag_and_by_variable(each: Setting) -> None:
    name, flags, default = each.name, each.flags, each.default
    if each.is_switch:
        # These go with certificates.
        others = {"acme": ["--acme", "a.example", "--acme-agree-tos"], "hsts": ["--certfile", "a.pem", "--hsts", "1"]}
        with_others = others.get(name.partition("_")[0], ["--certfile", "a.pem"] if name == "redirect_http" else [])
        assert getattr(read([*with_others, flags[-1]], {}), name) is True
        assert getattr(read(with_others, {f"KIRSCH_{name.upper()}": "1"}), name) is True
    else:
        for flag in flags:
            given = read([f"{flag}={default}"], {})
            assert getattr(given, name) == getattr(read([], {}), name)
            assert given.origins[name] == flag
        given = read([], {f"KIRSCH_{name.upper()}": default})
        assert given.origins[name] == f"KIRSCH_{name.upper()}"
    assert f"--{name.replace('_', '-')}" in flags


def test_settings_cannot_be_changed() -> None:
    settings = read([], {})
    for name in ("keep_alive", "target", "new"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set"):
            setattr(settings, name, 1)
    assert settings.keep_alive == 75.0


def test_help_names_every_flag_variable_and_section() -> None:
    text = help_all()
    words = re.findall(r"[-\w]+", text)
    for each in SETTINGS:
        assert set(each.flags) <= set(words), each.name
        assert each.variable in words
    for section in SECTIONS:
        assert f"\n{section}:\n" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_reference_page_is_fresh() -> None:
    script = ROOT / "scripts" / "settings_page.py"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(script), "--check"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def native_server(config: NativeConfig) -> _native.NativeServer:
    return _native.NativeServer(lambda *_: [], [], config)


def test_native_server_takes_the_configuration_and_keeps_no_defaults_of_its_own() -> None:
    """Each attribute is missed by its name. So all that the engine uses is given by the schema."""
    native_server(NativeConfig())
    for name in vars(NativeConfig()):
        config = NativeConfig()
        del vars(config)[name]
        with pytest.raises(TypeError, match=rf"^the configuration has no {name}$"):
            native_server(config)


def test_native_server_refuses_what_it_does_not_read() -> None:
    config = NativeConfig()
    vars(config).update(brew_time=240.0, cups=2)
    with pytest.raises(TypeError, match=r"^the native server does not read brew_time, cups of its configuration$"):
        native_server(config)
    with pytest.raises(TypeError, match=r"^the native server has no brew_time, cups$"):
        NativeConfig({"cups": 2, "brew_time": 240.0})


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("keep_alive", "soon", TypeError, "keep_alive: must be real number, not str"),
        ("queue", 1.5, TypeError, "queue: 'float' object cannot be interpreted as an integer"),
        ("queue", -1, OverflowError, "queue: can't convert negative int to unsigned"),
        ("server_header", 7, TypeError, "server_header: "),
        ("body_timeout", float("nan"), ValueError, "body_timeout: NaN seconds: "),
    ],
)
def test_native_server_names_the_setting_that_it_cannot_use(
    name: str, value: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        native_server(NativeConfig({name: value}))
    assert str(refused.value).startswith(message)


def test_configuration_of_the_native_server_is_copied_when_it_is_made() -> None:
    config = NativeConfig({"keep_alive": 1.0})
    server = native_server(config)
    vars(config).clear()
    assert server.statistics()["connections"] == 0


def test_counters_are_typed() -> None:
    """Names that the engine counts under are those that ``Server.statistics()`` promises."""
    counted = native_server(NativeConfig()).statistics()
    assert set(counted) == set(Statistics.__annotations__) - {"exchanges"}
    assert set(map(type, counted.values())) == {int}


def test_options_of_a_program_are_settings_and_the_report() -> None:
    assert set(Options.__annotations__) == {each.name for each in SETTINGS if each.in_programs} | {"report"}


@pytest.mark.parametrize("each", [each for each in SETTINGS if each.in_programs], ids=lambda each: each.name)
def test_a_default_may_be_given_by_a_program_and_changes_nothing(each: Setting) -> None:
    assert each.program_value(each.default_value) == each.default_value
    assert each.default_value == getattr(read([], {}), each.name)


# The addresses to listen at, as platforms give them


def test_port_is_listened_on_where_nothing_else_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read([], {"PORT": "5000"})
    assert (settings.bind, settings.origins["bind"]) == (("0.0.0.0:5000",), "PORT")
    assert read([], {"PORT": ""}).bind == ("127.0.0.1:8000",)
    assert read(["-b", ":1"], {"PORT": "5000"}).bind == (":1",)
    assert read([], {"PORT": "5000", "KIRSCH_BIND": ":2"}).bind == (":2",)
    (tmp_path / "kirsch.toml").write_text('bind = ":3"\n', encoding="utf-8")
    assert read([], {"PORT": "5000"}).bind == (":3",)
    assert read([], {"PORT": "no number"}).bind == (":3",)


@pytest.mark.parametrize("port", ["http", "0", "65536", "-1", "tcp://10.0.0.1:80", "٣"])
def test_port_that_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match=rf"^PORT: '{re.escape(port)}' is not a port, a number from 1 to 65535"):
        read([], {"PORT": port})


# Applications beside each other


def test_mounts_of_the_command_line_take_the_place_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "kirsch.toml"
    path.write_text('[mounts]\n"/a" = "a"\n"b.org/c" = "c:app"\n[[mount]]\npath = "/d"\napp = "d"\n', encoding="utf-8")
    settings = read(["-c", str(path)], {})
    assert [str(mount) for mount in settings.mounts] == ["a at /a", "c:app at b.org/c", "d at /d"]
    argv = ["-c", str(path), "--mount", "/x=x:make('a=b,c')", "--mount=y.org=y", "--mount", "z.org/z=z"]
    settings = read(argv, {})
    assert [str(mount) for mount in settings.mounts] == ["x:make('a=b,c') at /x", "y at y.org", "z at z.org/z"]
    assert [mount.origin for mount in settings.mounts] == ["--mount /x", "--mount y.org", "--mount z.org/z"]
    assert [str(mount) for mount in read([], {"KIRSCH_MOUNT": "/p=p\n/q=q"}).mounts] == ["p at /p", "q at /q"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("shop=shop:app", "'shop' is not the beginning of a path; did you mean /shop? The host shop is written shop."),
        (
            "shop/new=shop:app",
            "'shop/new' is not the beginning of a path; did you mean /shop/new? The host shop is written shop./new",
        ),
        ("=shop:app", "'=shop:app' names no path; write /path=shop:app"),
        ("shop:app", "'shop:app' names no path; write /path=shop:app"),
        ("shop:app=/shop", "'shop:app=/shop' has the path last; did you mean /shop=shop:app?"),
        ("/shop", "'/shop' names no application; write /shop=module:app"),
        ("shop", "'shop' names no application; write /shop=module:app"),
        ("shop=", "'shop=' names no application; write /shop=module:app"),
        ("/shop=", "'/shop=' names no application; write /shop=module:app"),
        ("=", "'=' has neither a path nor a value; write /path=module:app"),
        ("/a%20=a", "'/a%20' is percent-encoded; write the decoded path"),
        ("a:80/b=c", "'a:80/b' has a port, which is not compared; did you mean 'a'?"),
    ],
)
def test_a_mount_that_cannot_be_is_told(text: str, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(["--mount", text], {})
    assert str(refused.value) == f"--mount: {line}"


@pytest.mark.parametrize(
    ("text", "host"), [("shop.=shop:app/", "shop"), ("localhost=shop:app", "localhost"), ("[::1]/x=shop:app", "[::1]")]
)
def test_mount_takes_a_host_of_one_label_with_a_dot(text: str, host: str) -> None:
    assert read(["--mount", text], {}).mounts[0].host == host


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("static=public", "'static' is not the beginning of a path; did you mean '/static'?"),
        ("=public", "'=public' names no path; write /path=public"),
        ("public", "'public' names no path; write /path=public"),
        ("./public", "'./public' names no path; write /path=./public"),
        ("/static", "'/static' names no directory; write /static=DIRECTORY"),
        ("/static=", "'/static=' names no directory; write /static=DIRECTORY"),
        ("static=/srv/static", "'static' is not the beginning of a path; did you mean '/static'?"),
        ("./public=/static", "'./public=/static' has the path last; did you mean /static=./public?"),
        ("=", "'=' has neither a path nor a value; write /path=DIRECTORY"),
    ],
)
def test_static_that_lacks_a_part_is_refused(text: str, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(["--static", text], {})
    assert str(refused.value) == f"--static: {line}"


@pytest.mark.parametrize(
    ("argv", "bind"),
    [
        (["--host", "0.0.0.0", "--port=80"], "0.0.0.0:80"),
        (["--port", "9000"], "127.0.0.1:9000"),
        (["--host=::1"], "[::1]:8000"),
    ],
)
def test_host_and_port_together_are_one_bind(argv: list[str], bind: str) -> None:
    assert read([*argv, "shop:app"], {}).bind == (bind,)
