"""The command line: what it serves and prints, and that each mistake is one helpful line and a status."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
from command_line import (
    ANY_PORT,
    APP,
    Write,
    get,
    module_writer,
    not_loaded,
    refused,
    run,
    working_directory,
)
from interpreter import needs_gevent
from kirsch.config.schema import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Serve

here = pytest.fixture(working_directory)
write = pytest.fixture(module_writer)


def get_unix(path: str | Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with client.makefile("rb") as stream:
            return stream.read()


# Serving


def test_three_lines_say_what_is_served_where(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    running = serve("hello:app", cwd=here)
    assert get(running.url) == "here"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert re.fullmatch(
        rf"kirsch {re.escape(kirsch.__version__)} \(\w+ {re.escape(version)}\S*, pid {running.process.pid}\)\n"
        rf"serving hello:app\non http://127\.0\.0\.1:{running.port}\n",
        running.stderr,
    )
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("target", "args", "name"),
    [
        ("one", [], "one:app"),
        ("two", [], "two:application"),
        ("made:make()", [], "made:make()"),
        ("made:make", ["--factory"], "made:make()"),
        ("made", ["--factory"], "made:create_app()"),
        ("made:shelf.app", [], "made:shelf.app"),
        ("package.inner:app", [], "package.inner:app"),
    ],
)
def test_the_application_is_found_by_its_name(
    target: str, args: list[str], name: str, serve: Serve, write: Write, here: Path
) -> None:
    made = APP + "def make():\n    return app\ncreate_app = make\nclass shelf:\n    app = staticmethod(app)\n"
    write(one=APP, two=APP.replace("app(", "application("), made=made)
    (here / "package").mkdir()
    (here / "package" / "inner.py").write_text(APP, encoding="utf-8")
    running = serve(target, *args, cwd=here)
    assert get(running.url) == "here"
    assert f"\nserving {name}\n" in running.stderr


def test_chdir_and_pythonpath_say_where_modules_are(serve: Serve, write: Write, here: Path) -> None:
    shown = """
        import os, helper

        def app(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [f"{os.getcwd()} {helper.name}".encode()]
        """
    write(shown=shown)
    for folder in ("first", "second"):
        (here / folder).mkdir()
        (here / folder / "helper.py").write_text(f"name = {folder!r}\n", encoding="utf-8")
    running = serve("shown", "--chdir", str(here), "--pythonpath", "first,second", cwd=here.parent)
    assert get(running.url) == f"{here} first"


def test_settings_come_from_the_environment(serve: Serve, write: Write, here: Path) -> None:
    write(made=APP.replace("app(", "made_app(") + "def make():\n    return made_app\n")
    running = serve("made:make", env={"KIRSCH_FACTORY": "1", "KIRSCH_SERVER_HEADER": "elder"}, cwd=here)
    with urllib.request.urlopen(running.url, timeout=10) as response:
        assert response.headers["Server"] == "elder"


def test_the_server_field_can_be_left_out(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    with urllib.request.urlopen(serve("hello", "--server-header=", cwd=here).url, timeout=10) as response:
        assert response.headers["Server"] is None


def test_several_addresses_are_served_and_told(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    running = serve("hello", "-b", "localhost:0", "-b", "unix:k.sock", cwd=here)
    assert running.addresses[-1] == f"unix:{here}/k.sock"
    assert len(running.addresses) >= 3
    for address in running.addresses[:-1]:
        assert get(address) == "here"
    # A name with several addresses has one port on all of them.
    assert len({address.rpartition(":")[2] for address in running.addresses[1:-1]}) == 1
    assert get_unix(here / "k.sock").endswith(b"here")
    assert running.stop() == 0
    assert not (here / "k.sock").exists()


def test_the_limit_on_open_files_is_raised(serve: Serve, write: Write, here: Path) -> None:
    write(
        limited="""
        import resource

        def app(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [repr(resource.getrlimit(resource.RLIMIT_NOFILE)).encode()]
        """
    )
    (here / "sitecustomize.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, "
        "(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))\n",
        encoding="utf-8",
    )
    running = serve("limited", env={"PYTHONPATH": str(here)}, cwd=here)
    soft, hard = re.findall(r"\d+", get(running.url))
    assert soft == hard != "64"


# Drivers


def test_gevent_patches_before_the_application_is_imported(write: Write, here: Path) -> None:
    needs_gevent()
    write(early="import socket, sys\nprint(socket.socket.__module__, file=sys.stderr)\n" + APP)
    done = run("--check-config", "early", "--driver", "gevent", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "early:app is ok\n", "gevent._socket3\n")
    assert run("--check-config", "early", cwd=here).stderr == "socket\n"


def test_gevent_that_is_not_installed_is_told(write: Write, here: Path) -> None:
    write(hello=APP)
    (here / "sitecustomize.py").write_text(
        "import sys\nsys.modules['gevent'] = None  # importing it is a ModuleNotFoundError\n", encoding="utf-8"
    )
    done = run("hello", "--driver", "gevent", cwd=here, env=ANY_PORT | {"PYTHONPATH": str(here)})
    line = "kirsch: the driver gevent needs the package gevent: pip install 'kirsch[gevent]'"
    assert (done.returncode, done.stdout, done.stderr.splitlines()[1:]) == (1, "", [line])


def test_an_application_that_eventlet_has_patched_is_told_what_to_use(serve: Serve, write: Write, here: Path) -> None:
    # What Kirsch looks at is these two functions; eventlet itself no longer runs on every Python.
    (here / "eventlet").mkdir()
    (here / "eventlet" / "__init__.py").touch()
    (here / "eventlet" / "patcher.py").write_text(
        "import importlib\n\n\ndef is_monkey_patched(module):\n    return True\n\n\n"
        "def original(name):\n    return importlib.import_module(name)\n",
        encoding="utf-8",
    )
    write(patched="import eventlet.patcher\n" + APP)
    running = serve("patched", cwd=here)
    assert get(running.url) == "here"
    assert re.search(r"\[WARNING\] eventlet has patched this process.* use --driver gevent", running.stderr)


STUCK = """
    import sys, time

    def app(environ, start_response):
        while True:
            try:
                print("stuck", file=sys.stderr, flush=True)
                while True:
                    time.sleep(0.01)
            except BaseException:
                pass
    """


@pytest.mark.parametrize("args", [["--threads", "1"], ["--threads", "4"], ["--driver", "gevent"]])
@pytest.mark.slow
def test_a_call_that_swallows_the_exception_of_its_deadline_ends_the_process_with_75(
    args: list[str], serve: Serve, write: Write, here: Path
) -> None:
    if "gevent" in args:
        needs_gevent()
    write(stuck=STUCK)
    running = serve("stuck", "-w", "0", *args, "--timeout", "200ms", "--graceful-timeout", "200ms", cwd=here)
    with socket.create_connection((running.host, running.port), timeout=10) as client:
        client.sendall(b"GET /there?secret HTTP/1.1\r\nHost: x\r\nX-Request-ID: seven-7\r\n\r\n")
        assert running.process.wait(20) == 75
    assert running.stop() == 75
    assert re.search(r"\[ERROR\] GET /there \(id seven-7\) has passed its deadline of 0\.2 s", running.stderr)
    assert re.search(r"\[CRITICAL\] GET /there \(id seven-7\) is stuck: 1 s after", running.stderr)
    assert re.search(r'^  File ".*/stuck\.py", line \d+, in app$', running.stderr, re.MULTILINE)
    assert "secret" not in running.stderr


def test_a_request_id_is_repeated_only_if_it_is_plain(serve: Serve, write: Write, here: Path) -> None:
    write(stuck=STUCK)
    running = serve("stuck", "-w", "0", "--threads", "4", cwd=here)
    with contextlib.ExitStack() as clients:
        for given in (b"f81d4fae-7dec-11d0_A.1", b"a\xffb", b"a b", b"x" * 129, b"<b>"):
            client = clients.enter_context(socket.create_connection((running.host, running.port), timeout=10))
            client.sendall(b"GET /there?secret HTTP/1.1\r\nHost: x\r\nX-Request-ID: " + given + b"\r\n\r\n")
        running.wait_for(r"(?s)(stuck.*){4}")
        seen, dumped = 0, ""
        while "4 running, 0 suspended, 1 queued, 5 connections" not in dumped:  # the last may have to be accepted yet
            seen = len(running.stderr)
            running.process.send_signal(getattr(signal, "SIGINFO", signal.SIGPWR))
            dumped = running.wait_for(r"^kirsch, pid .*connections$", after=seen)[0]
        running.wait_for(r"(^GET /there \(id .*\n(  .*\n)+\n?){4}", after=seen)
        ids = re.findall(r"^GET (\S+) \(id (.*?)\): ", running.stderr[seen:], re.MULTILINE)
        # If one is not, the number of the request stands in for it.
        assert all(path == "/there" for path, _ in ids)
        assert len(ids) == len(set(ids)) == 4
        assert {name for _, name in ids} < {"f81d4fae-7dec-11d0_A.1", "1", "2", "3", "4", "5"}
        assert "secret" not in running.stderr
        running.process.kill()
        running.process.wait(10)


# Answers


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version(flag: str) -> None:
    done = run(flag)
    assert re.fullmatch(rf"kirsch {re.escape(kirsch.__version__)} \(\w+ [\d.]+\S*\)\n", done.stdout)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flag", ["-h", "--help", "help"])
def test_help_fits_a_screen(flag: str) -> None:
    done = run(flag)
    assert done.stdout.startswith("usage: kirsch [options] module:app\n")
    lines = done.stdout.splitlines()
    assert 24 <= len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_standard_output_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kirsch", "--help"], stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disc_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kirsch", "--help"], stdout=full, stderr=subprocess.PIPE, timeout=30, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"kirsch: cannot write to standard output: No space left on device\n")


def test_an_installation_without_the_engine_says_so(here: Path) -> None:
    (here / "sitecustomize.py").write_text(
        "import sys\nsys.modules['kirsch._native'] = None  # importing it is an ImportError\n", encoding="utf-8"
    )
    done = run("--version", env={"PYTHONPATH": str(here)})
    assert done.returncode == 1
    told = r"kirsch: the compiled part of Kirsch cannot be loaded \(.*\); install it again .*\n"
    assert re.fullmatch(told, done.stderr)


def test_help_names_the_subcommands() -> None:
    for args in (["--help"], ["--help-all"], ["help", "all"]):
        usage = run(*args).stdout.partition("\n\n")[0].splitlines()[1:]
        shown = "".join(line.strip() for line in usage)
        installed = sorted(each.name for each in entry_points(group="kirsch.commands"))
        assert {"bench", "profile", "survey"} <= set(installed)
        own = "check|certificates|dev-cert|top|quarantine|adopt|static|completion|man"
        assert shown == f"kirsch {own}|{'|'.join(installed)}|help ..."


def test_commands_of_kirsch_web_run(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import kirsch_web as web\n\n"
        "class Root:\n"
        "    def index(self) -> str:\n"
        "        return 'books'\n\n"
        "app = web.App(Root())\n"
    )
    done = run("routes", "shop:app", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "shop.Root.index" in done.stdout
    done = run("explain", "shop:app", "GET /", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "shop.py:4" in done.stdout


@pytest.mark.parametrize("args", [["--help-all"], ["help", "all"]])
def test_help_all_names_every_setting(args: list[str]) -> None:
    shown = run(*args).stdout
    for each in SETTINGS:
        assert each.variable in shown
        assert all(flag in shown for flag in each.flags)


@pytest.mark.parametrize(
    "name", ["check", "top", "quarantine", "bench", "survey", "profile", "completion", "man", "static"]
)
def test_help_of_a_command_is_what_the_command_prints(name: str) -> None:
    done = run("help", name, env={"COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: kirsch {name}")
    assert done.stdout == run(name, "--help", env={"COLUMNS": "80"}).stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "docs/" not in done.stdout, "users have no such file"


@pytest.mark.parametrize("command", [["help", "all"], ["routes", "--help"], ["explain", "--help"]])
def test_other_help_fits_80_columns(command: list[str]) -> None:
    done = run(*command, env={"COLUMNS": "80"})
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "docs/" not in done.stdout, "users have no such file"


def test_help_of_a_misspelled_command_names_the_right_one() -> None:
    assert refused("help", "chekc", status=2) == "there is no command, setting or guide chekc; did you mean check?"


@pytest.mark.parametrize("args", [["check:app"], ["-w", "0", "check"], ["--", "check"]])
def test_a_module_that_is_called_like_a_subcommand_can_be_served(args: list[str], write: Write, here: Path) -> None:
    write(check=APP)
    done = run(*args, "--check-config", cwd=here) if args[0] != "--" else run("--check-config", *args, cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "check:app is ok\n", "")


def test_check_config_imports_and_does_not_serve(write: Write, here: Path) -> None:
    write(hello=APP)
    with occupied() as port:
        done = run("--check-config", "-b", f"127.0.0.1:{port}", "hello", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello:app is ok\n", "")


def test_print_config_tells_values_and_origins() -> None:
    done = run("--print-config", "--keep-alive", "5m", env={"KIRSCH_BIND": ":1,:2"})
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["keep_alive"] == ["5m", "--keep-alive"]
    assert rows["bind"] == [":1,:2", "KIRSCH_BIND"]
    assert rows["backlog"] == ["2048", "default"]


# Mistakes on the command line: status 2


def test_a_file_that_cannot_be_read_is_the_only_mistake(here: Path) -> None:
    assert (
        refused("-c", "nowhere.toml", cwd=here, status=2) == "-c: cannot read nowhere.toml: No such file or directory"
    )
    (here / "kirsch.toml").write_bytes(b"app = '\xff'")
    line = "kirsch.toml:1: this is not UTF-8, in which TOML is written"
    assert refused(cwd=here, status=2) == line


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["chekc"], ("there is no module 'chekc' in {here} or elsewhere on the Python path; did you mean the command "
         "`kirsch check`?")),
        (["nomodule"], ("there is no module 'nomodule' in {here} or elsewhere on the Python path; --chdir or "
         "--pythonpath can say where it is")),
    ],
)  # fmt: skip
def test_a_module_that_is_not_there_is_not_taken_for_an_installed_one(args: list[str], line: str, here: Path) -> None:
    assert not_loaded(*args, cwd=here) == line.replace("{here}", str(here))


def test_a_misspelled_command_is_told(write: Write, here: Path) -> None:
    write(hello=APP)
    line = "there is no command chekc; did you mean `kirsch check`?"
    assert refused("chekc", "hello:app", cwd=here, status=2) == line
    assert refused("serve", "hello:app", cwd=here, status=2).endswith("write `kirsch hello:app` without 'serve'")


def test_mistakes_of_all_sources_are_told_in_one_run(here: Path) -> None:
    (here / "kirsch.toml").write_text("wrokers = 3\napp = helo:app\n", encoding="utf-8")
    done = run("--bnid", ":1", "--threads", "many", "--factory=1", cwd=here, env={"KIRSCH_BACKLOG": "few"})
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(done.stderr.splitlines()) == sorted(
        [
            "kirsch: --factory: it takes no value, and '1' was given; write --factory alone",
            "kirsch: there is no flag --bnid; did you mean --bind?",
            "kirsch: kirsch.toml:1: there is no setting wrokers; did you mean workers?",
            'kirsch: kirsch.toml:2: helo:app lacks its quotes; write app = "helo:app"',
            "kirsch: KIRSCH_BACKLOG: 'few' is not a whole number",
            "kirsch: --threads: 'many' is not a whole number",
        ]
    )


def test_port_of_the_environment_is_served(write: Write, here: Path) -> None:
    write(hello=APP)
    with occupied() as port:
        done = run("hello", cwd=here, env={"PORT": str(port)})
    assert done.returncode == 1
    assert f"cannot listen on 0.0.0.0:{port}: port {port} is taken" in done.stderr


def test_no_application() -> None:
    assert "Name it, as in `kirsch hello:app`" in refused(status=2)


def test_an_unknown_flag(write: Write, here: Path) -> None:
    write(hello=APP)
    assert refused("--bnid", ":80", "hello:app", cwd=here, status=2) == "there is no flag --bnid; did you mean --bind?"


def test_the_background_is_systemds(write: Write, here: Path) -> None:
    write(hello=APP)
    line = refused("-D", "-b", "127.0.0.1:0", "hello", cwd=here, status=2)
    user = "" if os.geteuid() == 0 else "--user "
    assert line == (
        f"there is no flag -D; systemd keeps a server in the background: `systemd-run {user}--unit=kirsch --same-dir "
        "--property=Type=notify kirsch -b 127.0.0.1:0 hello`, or a unit file of your own"
    )


def test_a_variable_that_is_no_setting_is_pointed_out() -> None:
    done = run("--print-config", env={"KIRSCH_KEEPALIVE": "1", "KIRSCH_PORT": "tcp://10.0.0.1:80"})
    line = "kirsch: KIRSCH_KEEPALIVE in the environment is no setting; did you mean KIRSCH_KEEP_ALIVE?\n"
    assert (done.returncode, done.stderr) == (0, line)
    # Kubernetes never sets it to a number.
    done = run("--print-config", env={"KIRSCH_PORT": "8080"})
    line = "kirsch: KIRSCH_PORT in the environment is no setting; write KIRSCH_BIND=HOST:PORT\n"
    assert (done.returncode, done.stderr) == (0, line)


def test_a_bad_value_and_a_bad_variable() -> None:
    assert refused("--keep-alive", "soon", "sys:exit", status=2).startswith("--keep-alive: 'soon' is not a duration")
    done = run("-b", ":0", env={"KIRSCH_BACKLOG": "many", "KIRSCH_APP": "sys:exit"})
    assert (done.returncode, done.stderr) == (2, "kirsch: KIRSCH_BACKLOG: 'many' is not a whole number\n")


def test_a_directory_that_is_not_there() -> None:
    assert refused("--chdir", "/nowhere/at/all", "hello", status=2) == (
        "--chdir: cannot change to '/nowhere/at/all': No such file or directory"
    )


# An address that cannot be had: status 1


@contextlib.contextmanager
def occupied() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_an_occupied_port_says_which_and_how_to_find_its_holder(write: Write, here: Path) -> None:
    write(hello=APP)
    with occupied() as port:
        assert refused("hello", "-b", f"127.0.0.1:{port}", cwd=here) == (
            f"cannot listen on 127.0.0.1:{port}: port {port} is taken; "
            f"`ss -ltnp 'sport = :{port}'` shows by whom; or choose another"
        )


def test_a_privileged_port() -> None:
    # In a process that gives its privilege away: root may bind every port.
    program = (
        "import os\n"
        "from kirsch.net import sockets\n"
        "if os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
        "try:\n    sockets.listen(['127.0.0.1:1'])\n"
        "except PermissionError as error:\n    print(error.strerror)\n"
    )
    lowest = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if lowest.exists() and int(lowest.read_text()) <= 1:
        pytest.skip("this machine lets every user bind every port")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert "this user may not bind port 1; take one from 1024 up" in done.stdout, done.stderr


def test_an_unknown_host_and_an_address_of_another_machine(write: Write, here: Path) -> None:
    write(hello=APP)
    # .invalid never resolves (RFC 6761, 6.4); 192.0.2.0/24 is reserved for documentation (RFC 5737).
    assert refused("hello", "-b", "nosuch.invalid:0", cwd=here).startswith(
        "cannot listen on nosuch.invalid:0: no address is known for 'nosuch.invalid'"
    )
    assert refused("hello", "-b", "192.0.2.1:0", cwd=here).startswith(
        "cannot listen on 192.0.2.1:0: this machine has no address 192.0.2.1"
    )


def test_unix_paths_that_cannot_be(write: Write, here: Path) -> None:
    write(hello=APP)
    (here / "file").write_text("precious", encoding="utf-8")
    assert "and a socket's path at most 107" in refused("hello", "-b", f"unix:{'x' * 108}", cwd=here)
    assert "exists and is not a socket" in refused("hello", "-b", "unix:file", cwd=here)
    assert (here / "file").read_text(encoding="utf-8") == "precious"
    assert "there is no directory" in refused("hello", "-b", "unix:no/k.sock", cwd=here)


def test_a_unix_path_where_a_live_server_answers_is_left_to_it(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    serve("hello", "-b", "unix:k.sock", cwd=here)
    assert "a live server listens there" in refused("hello", "-b", "unix:k.sock", cwd=here)
    assert get_unix(here / "k.sock").endswith(b"here")


def test_the_socket_of_a_dead_server_is_replaced(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(here / "k.sock"))
    running = serve("hello", "-b", "unix:k.sock", cwd=here)
    assert get_unix(here / "k.sock").endswith(b"here")
    assert running.stop() == 0
    assert not (here / "k.sock").exists()


def test_a_socket_that_became_anothers_is_not_removed(serve: Serve, write: Write, here: Path) -> None:
    write(hello=APP)
    running = serve("hello", "-b", "unix:k.sock", cwd=here)
    (here / "k.sock").unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(here / "k.sock"))
        assert running.stop() == 0
        assert (here / "k.sock").is_socket()


@pytest.mark.parametrize("flag", ["--access-logfile", "--error-logfile"])
def test_a_log_that_cannot_be_written(flag: str, write: Write, here: Path) -> None:
    write(hello=APP)
    line = refused("hello", "-b", "127.0.0.1:0", flag, str(here / "no" / "log"), cwd=here)
    assert str(here / "no" / "log") in line
    assert "No such file or directory" in line
