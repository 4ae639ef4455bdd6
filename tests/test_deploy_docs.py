"""The pages of docs/deploy work: their units, configurations and commands are taken from there and run.

Paths and ports are replaced by a test's own, and nothing else. What needs a running systemd, Docker or Kubernetes is
checked as far as its files go, and its command for Kirsch is run as that would run it. The file is long because all
pages share the blocks, the application and the launcher; web servers and machines have files of their own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from configparser import RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import running
from ports import free_port
from running import Running
from service_manager import ServiceManager, activated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DOCS = Path(__file__).parent.parent / "docs" / "deploy"

KIRSCH = shlex.join([sys.executable, "-m", "kirsch"])


class Block:
    """A fenced block of a page: its language, its text, and the path in its first line's comment, if there is one."""

    def __init__(self, page: str, language: str, text: str) -> None:
        self.page = page
        self.language = language
        self.text = text
        first = re.match(r"# (\S+)\n", text)
        self.path = first[1] if first else ""


def blocks(page: str) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [Block(page, language, text) for language, text in found]


def block(page: str, path: str) -> str:
    (text,) = [each.text for each in blocks(page) if each.path.endswith(path)]
    return text


PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def commands(language: str = "sh") -> list[tuple[str, str]]:
    """(Page, command) of every command line, continued lines joined and comments left out."""
    found = []
    for page in PAGES:
        for each in blocks(page):
            if each.language == language:
                lines = each.text.replace("\\\n", " ").splitlines()
                found += [(page, shlex.join(shlex.split(line, comments=True))) for line in lines if line.strip()]
    return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application that the pages serve, in the current directory, as ``shop.wsgi:app``."""
    folder = tmp_path / "srv"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "wsgi.py").write_text(
        "import json, os, subprocess\n"
        "def app(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/orphan':\n"
        "        subprocess.run('sleep 0.1 & :', shell=True)\n"
        "    if environ['PATH_INFO'] == '/upload':\n"
        "        size = len(environ['wsgi.input'].read())\n"
        "    else:\n"
        "        size = None\n"
        "    start_response('200 OK', [('Content-Type', 'application/json')])\n"
        "    found = {name: value for name, value in environ.items() if isinstance(value, str)}\n"
        "    return [json.dumps({**found, 'pid': os.getpid(), 'size': size}).encode()]\n"
    )
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("KIRSCH_") and not name.startswith("KIRSCH_TEST")]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def launch(shop: Path) -> Iterator[Callable[..., Running]]:
    """Run a server's command until it reports that it listens; stop it afterwards."""
    started: list[Running] = []

    def launch(
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        passed: Sequence[socket.socket] = (),
        pattern: re.Pattern[str] = running.STARTED,
    ) -> Running:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[sock.fileno() for sock in passed],
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        started.append(Running("shop.wsgi:app", process, pattern))
        return started[-1]

    yield launch
    assert [complaint for server in started for complaint in server.finish()] == []


def adapted(text: str, shop: Path) -> str:
    """``text`` with the paths of the pages replaced by the test's own."""
    replacements = {
        "/srv/shop/venv/bin/kirsch": KIRSCH,
        "/srv/shop": str(shop),
        "/run/shop/": f"{shop.parent}/run/",
        "/run/shop.sock": f"{shop.parent}/run/shop.sock",
        "/var/log/shop": str(shop.parent / "log"),
    }
    return re.sub("|".join(map(re.escape, replacements)), lambda match: replacements[match[0]], text)


def unit(name: str, shop: Path) -> tuple[str, RawConfigParser]:
    text = adapted(block("systemd.md", name), shop)
    parser = RawConfigParser(strict=False, delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return text, parser


def get(
    address: str | tuple[str, int], path: str = "/", headers: Mapping[str, str] | None = None, source: str = "127.0.0.1"
) -> dict[str, Any]:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    if isinstance(address, str):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(address)
    else:
        connection.sock = socket.create_connection(address, 10, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        found: dict[str, Any] = json.load(response)
        return found


# --- All pages -------------------------------------------------------------------------------------------------------

# The blocks of each page by their language. Each is tried; a block of another language is not.
TRIED = {
    "systemd.md": {"ini": 2, "sh": 4, "": 1},
    "nginx.md": {"nginx": 1, "sh": 2, "python": 2},
    "proxies.md": {"sh": 2},
    # tests/test_fronts.py runs them, and their commands are tried below.
    "README.md": {"nginx": 1, "sh": 1},
    "web-servers.md": {"sh": 1, "apache": 1, "lighttpd": 1, "caddy": 1, "haproxy": 1, "yaml": 1},
    "platform.md": {"procfile": 1},
    "containers.md": {"dockerfile": 2, "sh": 1, "": 1},
    # tests/test_fronts.py and tests/test_shared_hosting.py run them, and its command is tried below.
    "gateways.md": {"sh": 1, "nginx": 3, "apache": 5, "python": 1, "lighttpd": 4, "caddy": 1, "haproxy": 1},
    # tests/test_machines.py runs them.
    "machines.md": {"sh": 3, "haproxy": 1, "nginx": 1},
    "kubernetes.md": {"yaml": 2, "sh": 1, "": 1},
}

# Programs that need more than this machine: a running systemd, Docker's or Kubernetes' daemons.
ELSEWHERE = {"systemctl", "journalctl", "systemd-run", "docker", "kubectl", "/srv/shop/venv/bin/pip"}


def test_there_is_no_block_that_nobody_tries() -> None:
    found: dict[str, dict[str, int]] = {}
    for page in PAGES:
        for each in blocks(page):
            counts = found.setdefault(page, {})
            counts[each.language] = counts.get(each.language, 0) + 1
    assert found == TRIED
    programs = {shlex.split(command)[0] for _, command in commands()}
    assert programs == ELSEWHERE | {"kirsch", "nginx", "curl", "sysctl", "systemd-socket-activate"}


def kirsch_commands() -> list[str]:
    """Each command for Kirsch, wherever it is started from."""
    return [
        command[command.index("kirsch ") :] for _, command in commands() if re.search(r"(^| )kirsch .*shop", command)
    ]


@pytest.mark.parametrize("command", kirsch_commands())
def test_kirsch_takes_each_command(command: str, shop: Path) -> None:
    words = [*shlex.split(KIRSCH), *shlex.split(command)[1:], "--check-config"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", (DOCS / page).read_text()):
        path, _, anchor = link.partition("#")
        target = (DOCS / path).resolve() if path else DOCS / page
        assert target.is_file(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert not anchor or anchor in [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings]


@pytest.mark.parametrize("page", PAGES)
def test_flags_that_are_named_exist(page: str) -> None:
    help_text = subprocess.run(
        [*shlex.split(KIRSCH), "--help-all"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    text = (DOCS / page).read_text()
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"`(docker|kubectl|systemctl|systemd-\S+) [^`]*`", "", outside)
    foreign = {"--init", "--cpus", "--stop-timeout", "--tmpfs"}  # docker's
    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", outside)) - foreign:
        assert re.search(rf"{flag}\b", help_text), flag


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            return error.code


# --- systemd ---------------------------------------------------------------------------------------------------------


def test_systemd_accepts_the_units(shop: Path, tmp_path: Path, program: Callable[[str], str]) -> None:
    analyze = program("systemd-analyze")
    folder = tmp_path / "units"
    folder.mkdir()
    names = ("shop.service", "shop.socket")
    for name in names:
        (folder / name).write_text(unit(name, shop)[0])
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", *(str(folder / name) for name in names)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "shop" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_systemd_finds_the_service_hardened(shop: Path, tmp_path: Path, program: Callable[[str], str]) -> None:
    analyze = program("systemd-analyze")
    path = tmp_path / "shop.service"
    path.write_text(unit("shop.service", shop)[0])
    command = [analyze, "security", "--offline=true", "--threshold=25", "--no-pager", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.slow
def test_the_service_runs_as_systemd_would_run_it(shop: Path, tmp_path: Path, launch: Callable[..., Running]) -> None:
    _, service = unit("shop.service", shop)
    assert service["Service"]["Type"] == "notify"
    seconds = int(service["Service"]["WatchdogSec"])
    with ServiceManager(str(tmp_path / "notify")) as manager:
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(seconds * 1_000_000)}
        server = launch(
            [*shlex.split(service["Service"]["ExecStart"]), "--bind", "127.0.0.1:0"], env=environment
        )  # the TCP address is for `launch`
        assert "4 workers" in manager.wait_for("READY=1")["STATUS"]
        address = str(tmp_path / "run" / "app.sock")
        assert os.stat(address).st_mode & 0o777 == 0o660
        assert get(address)["REQUEST_METHOD"] == "GET"
        reload = shlex.split(service["Service"]["ExecReload"].replace("$MAINPID", str(server.pid)))
        upgrade = next(command for _, command in commands() if "USR2" in command)
        number = re.search(r"--signal=(\w+)", upgrade)
        assert number is not None
        for command in (reload, ["kill", f"-{number[1]}", str(server.pid)]):
            before = len(manager.listen())
            subprocess.run(command, check=True, timeout=10)
            manager.wait_for("RELOADING=1", "MONOTONIC_USEC", after=before)
            manager.wait_for("READY=1", after=before)
            assert get(address)["REQUEST_METHOD"] == "GET"
        assert server.stop() == 0
        stopping = manager.wait_for("STOPPING=1")
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 35_000_000
        assert not os.path.exists(address)


def test_statuses_of_starts_that_fail(shop: Path) -> None:
    _, service = unit("shop.service", shop)
    command = shlex.split(service["Service"]["ExecStart"])
    wrong = subprocess.run([*command, "--no-such-flag"], capture_output=True, text=True, timeout=30)
    assert wrong.returncode == int(service["Service"]["RestartPreventExitStatus"])
    (shop / "shop" / "wsgi.py").write_text("raise ConnectionError('no database')\n")
    broken = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert broken.returncode == 3
    assert "ConnectionError: no database" in broken.stderr


def test_socket_activation_keeps_connections_over_a_restart(shop: Path, launch: Callable[..., Running]) -> None:
    _, service = unit("shop.service", shop)
    text, sockets = unit("shop.socket", shop)
    streams = re.findall(r"^ListenStream=(.*)$", text, re.MULTILINE)
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    with tcp, unix:
        assert streams[0].isdigit()
        unix.bind(streams[1])
        unix.listen()
        words = shlex.split(service["Service"]["ExecStart"])
        at = words.index("--bind")
        del words[at : at + 2]
        names = [sockets["Socket"]["FileDescriptorName"]] * 2

        def start() -> Running:
            return launch(activated(words, [tcp, unix], names), passed=[tcp, unix])

        server = start()
        assert get(tcp.getsockname())["SERVER_PROTOCOL"] == get(streams[1])["SERVER_PROTOCOL"] == "HTTP/1.1"
        assert server.stop() == 0
        with socket.create_connection(tcp.getsockname(), 10) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
            start()
            assert client.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def test_socket_activation_by_hand(shop: Path, program: Callable[[str], str]) -> None:
    activate = program("systemd-socket-activate")
    (command,) = [command for _, command in commands() if command.startswith("systemd-socket-activate")]
    port = free_port()
    words = shlex.split(command.replace("8000", str(port)).replace(" kirsch ", f" {KIRSCH} "))
    # It gives the program an environment of its own.
    keep = [f"-E{name}" for name in ("PYTHONPATH", "PATH", "HOME") if name in os.environ]
    process = subprocess.Popen([activate, *keep, *words[1:]], stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stderr is not None
        assert b"Listening on" in process.stderr.readline()
        assert get(("127.0.0.1", port))["SERVER_PORT"] == str(port)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_logrotate_and_the_server_agree(
    shop: Path, tmp_path: Path, launch: Callable[..., Running], program: Callable[[str], str]
) -> None:
    logrotate = program("logrotate")
    (tmp_path / "log").mkdir(mode=0o755)
    log = tmp_path / "log" / "access.log"
    words = [*shlex.split(KIRSCH), "shop.wsgi:app", "--bind", "127.0.0.1:0", "--access-logfile", str(log)]
    server = launch(words)
    address = (server.host, server.port)
    get(address, "/before")
    deadline = time.monotonic() + 20
    while "/before" not in log.read_text():  # an empty file is not rotated
        assert time.monotonic() < deadline
    # As systemctl would, if this were a service.
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        f'#!/bin/sh\n[ "$*" = "kill --kill-who=main --signal=USR1 shop.service" ] && kill -USR1 {server.pid}\n'
    )
    systemctl.chmod(0o755)
    config = tmp_path / "logrotate.conf"
    config.write_text(adapted(block("systemd.md", "logrotate.d/shop"), shop))
    config.chmod(0o644)
    tmp_path.chmod(0o755)
    subprocess.run(
        [logrotate, "--force", "--state", str(tmp_path / "state"), str(config)],
        env={**os.environ, "PATH": f"{systemctl.parent}:{os.environ['PATH']}"}, check=True, timeout=30,
    )  # fmt: skip
    deadline = time.monotonic() + 20
    while not log.exists() or "/after" not in log.read_text():
        assert time.monotonic() < deadline
        get(address, "/after")
    assert "/before" in (tmp_path / "log" / "access.log.1").read_text()


# --- nginx -----------------------------------------------------------------------------------------------------------


class Nginx:
    """The page's configuration, in a process of its own."""

    def __init__(self, executable: str, folder: Path, site: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.address = ("127.0.0.1", free_port())
        (folder / "shop.conf").write_text(site.replace("listen 80;", f"listen 127.0.0.1:{self.address[1]};"))
        places = "".join(
            f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
            f"events {{ worker_connections 256; }}\n"
            f"http {{\naccess_log off;\n{places}include {folder}/shop.conf;\n}}\n"
        )
        self.command = [executable, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf")]
        checked = subprocess.run([*self.command, "-t"], capture_output=True, text=True, timeout=20)
        assert checked.returncode == 0, checked.stderr
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(self.address, 10).close()
                return
            assert time.monotonic() < deadline, (folder / "error.log").read_text()
            time.sleep(0.01)

    def end(self) -> str:
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)
        return (self.folder / "error.log").read_text()


@pytest.fixture
def nginx(shop: Path, tmp_path: Path, program: Callable[[str], str]) -> Iterator[Callable[[str], Nginx]]:
    executable = program("nginx")
    started: list[Nginx] = []

    def nginx(upstream: str = "") -> Nginx:
        site = adapted(block("nginx.md", "shop.conf"), shop)
        if upstream:
            site = re.sub(r"server unix:\S+", f"server {upstream}", site)
        started.append(Nginx(executable, tmp_path / f"nginx{len(started)}", site))
        return started[-1]

    yield nginx
    for each in started:
        if each.process.poll() is None:
            each.end()


def behind(shop: Path, launch: Callable[..., Running], *, trusts: str | None = "unix") -> Running:
    """Kirsch as the page starts it; `launch` needs a TCP address beside that.

    It ``trusts`` these proxies; with None it reads nothing of any.
    """
    (command,) = [command for page, command in commands() if page == "nginx.md" and "app.sock" in command]
    words = shlex.split(adapted(command, shop))[1:]
    at = words.index("--trusted-proxies")
    assert words[at + 1] == "unix"
    words[at : at + 2] = [] if trusts is None else ["--trusted-proxies", trusts]
    return launch([*shlex.split(KIRSCH), *words, "--bind", "127.0.0.1:0"])


FORGED = {
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "evil.example",
    "X_Forwarded_For": "7.7.7.7",
    "Host": "shop.example",
}


def test_nginx_tells_who_the_client_is(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    """The client is 127.0.0.2, nginx 127.0.0.1."""
    server = behind(shop, launch, trusts="unix,127.0.0.1")
    for front in (nginx(""), nginx(f"127.0.0.1:{server.port}")):
        found = get(front.address, "/", FORGED, source="127.0.0.2")
        assert (found["REMOTE_ADDR"], found["REMOTE_PORT"]) == ("127.0.0.2", "")
        assert found["wsgi.url_scheme"] == "http"
        assert found["HTTP_HOST"] == "shop.example"
        assert found["HTTP_X_FORWARDED_FOR"] == "127.0.0.2"
        assert found["HTTP_X_FORWARDED_PROTO"] == "http"
        assert found["HTTP_X_FORWARDED_HOST"] == "shop.example"
    # Without nginx, too, the one with underscores never poses as the other.
    assert get((server.host, server.port), "/", {"X_Forwarded_For": "7.7.7.7"}).get("HTTP_X_FORWARDED_FOR") is None


def test_without_trusted_proxies_nothing_is_read_or_removed(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    server = behind(shop, launch, trusts=None)
    over_unix = get(nginx("").address, "/", FORGED, source="127.0.0.2")
    over_tcp = get(nginx(f"127.0.0.1:{server.port}").address, "/", FORGED, source="127.0.0.2")
    assert (over_unix["REMOTE_ADDR"], over_unix["REMOTE_PORT"]) == ("", "")
    assert over_tcp["REMOTE_ADDR"] == "127.0.0.1"
    for found in (over_unix, over_tcp):
        assert found["wsgi.url_scheme"] == "http"
        assert found["HTTP_X_FORWARDED_FOR"] == "127.0.0.2"


def test_nginx_uses_connections_again(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    server = behind(shop, launch)
    front = nginx(f"127.0.0.1:{server.port}")
    assert len({get(front.address)["REMOTE_PORT"] for _ in range(10)}) == 1


def test_nginx_passes_uploads_and_refuses_what_is_too_large(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    behind(shop, launch)
    url = f"http://127.0.0.1:{nginx('').address[1]}/upload"
    with urlopen(Request(url, data=bytes(5_000_000)), timeout=20) as response:
        assert json.load(response)["size"] == 5_000_000
    with pytest.raises((HTTPError, OSError)) as raised:
        urlopen(Request(url, data=bytes(21 << 20)), timeout=20)
    if isinstance(raised.value, HTTPError):
        assert raised.value.code == 413
        raised.value.close()


def test_nginx_sees_no_error_while_kirsch_reloads(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    server = behind(shop, launch)
    front = nginx("")
    first = get(front.address)["pid"]
    for number in (signal.SIGHUP, signal.SIGUSR2):
        before = len(server.stderr)
        os.kill(server.pid, number)
        while f"{number.name}: done" not in server.stderr[before:]:
            get(front.address)  # asserts that it is a 200
    assert any(get(front.address)["pid"] != first for _ in range(1000))
    assert front.end() == ""


def test_applications_can_believe_nginx(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    pytest.importorskip("werkzeug")
    (proxied,) = [each.text for each in blocks("nginx.md") if "ProxyFix" in each.text]
    with (shop / "shop" / "wsgi.py").open("a") as file:
        file.write(proxied)
    behind(shop, launch, trusts=None)
    found = get(nginx("").address, "/", FORGED)
    assert (found["REMOTE_ADDR"], found["wsgi.url_scheme"]) == ("127.0.0.1", "http")


def test_the_access_log_names_the_client(
    shop: Path, launch: Callable[..., Running], nginx: Callable[[str], Nginx]
) -> None:
    (command,) = [command for page, command in commands() if page == "nginx.md" and "logformat" in command]
    words = [*shlex.split(KIRSCH), *shlex.split(command)[1:], "--bind", "127.0.0.1:0"]
    server = launch(words)
    get(nginx(f"127.0.0.1:{server.port}").address, "/seen")
    server.wait_for_output(r'^127\.0\.0\.1 \[.*\] "GET /seen HTTP/1\.1" 200 \d+$')


# --- A platform ------------------------------------------------------------------------------------------------------


def test_a_platform_starts_the_procfile(shop: Path, launch: Callable[..., Running]) -> None:
    (command,) = re.findall(r"^web: (kirsch .*)$", block("platform.md", "Procfile"), re.MULTILINE)
    (shop / "public").mkdir()
    (shop / "public" / "shop.css").write_text("body {}")
    port = free_port()
    words = [*shlex.split(KIRSCH), *shlex.split(command)[1:]]
    server = launch(words, env={"PORT": str(port), "WEB_CONCURRENCY": "2"})
    assert (server.host, server.port) == ("0.0.0.0", port)
    assert "2 workers" in server.stderr
    address = ("127.0.0.1", port)
    found = get(address, "/", {"X-Forwarded-For": "6.6.6.6, 192.0.2.7", "X-Forwarded-Proto": "https"})
    assert (found["REMOTE_ADDR"], found["wsgi.url_scheme"]) == ("192.0.2.7", "https")
    with urlopen(f"http://127.0.0.1:{port}/static/shop.css", timeout=20) as response:
        assert response.read() == b"body {}"
        assert response.headers["ETag"]
    assert status(f"http://127.0.0.1:{port}/healthz") == 200
    table = subprocess.run([*words, "--print-config"], capture_output=True, text=True, timeout=30, check=True).stdout
    seconds = [int(found) for found in re.findall(r"^(?:graceful_timeout|shutdown_timeout) +(\d+)s ", table, re.M)]
    (limit,) = re.findall(r"kill (\d+) s later", (DOCS / "platform.md").read_text())
    assert len(seconds) == 2
    assert sum(seconds) < int(limit)
    assert server.stop() == 0


# --- Containers ------------------------------------------------------------------------------------------------------


def container_command() -> list[str]:
    (text,) = re.findall(r"^CMD (\[.*\])$", block("containers.md", "Dockerfile"), re.MULTILINE)
    words: list[str] = json.loads(text)
    assert words[0] == "kirsch"
    return [*shlex.split(KIRSCH), *words[1:]]


def docker_run() -> list[str]:
    (command,) = [command for _, command in commands() if command.startswith("docker run")]
    return shlex.split(command)


def docker_environment() -> dict[str, str]:
    words = docker_run()
    return dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--env")


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    trial = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "true"]
    return subprocess.run(trial, capture_output=True, timeout=20).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="namespaces may not be made here")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_process_1_on_a_read_only_disc_without_shm(
    number: signal.Signals, shop: Path, tmp_path: Path, launch: Callable[..., Running]
) -> None:
    """As in a container: a PID namespace of its own, nothing to write to but a /tmp, and no /dev/shm."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = [word.replace("0.0.0.0:8000", "127.0.0.1:0") for word in container_command()]
    script = (
        f"mount -t tmpfs tmpfs {temporary} && mount -t tmpfs -o ro tmpfs /dev/shm; "
        f"mount -o remount,bind,ro / && exec {shlex.join(words)}"
    )
    server = launch(
        ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
        env={**docker_environment(), "TMPDIR": str(temporary)},
    )
    assert "pid 1)" in server.stderr
    assert "2 workers" in server.stderr
    address = (server.host, server.port)
    get(address)
    with urlopen(Request(f"{server.url}/upload", data=bytes(3 << 20)), timeout=20) as response:
        assert json.load(response)["size"] == 3 << 20
    child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
    workers = len(Path(f"/proc/{child}/task/{child}/children").read_text().split())
    get(address, "/orphan")
    deadline = time.monotonic() + 20
    while True:  # what the application leaves behind comes to process 1, and is waited for
        if len(Path(f"/proc/{child}/task/{child}/children").read_text().split()) == workers:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child, number)
    assert server.process.wait(20) == 0


def test_the_numbers_of_docker_run_fit(shop: Path) -> None:
    words = docker_run()
    limit = int(words[words.index("--memory") + 1].removesuffix("m"))
    environment = docker_environment()
    workers, most = int(environment["KIRSCH_WORKERS"]), int(environment["KIRSCH_MAX_MEMORY"].removesuffix("MiB"))
    assert limit > (workers + 1) * most + 40
    done = subprocess.run(
        [*container_command(), "--print-config"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert re.search(r"^workers +2 +KIRSCH_WORKERS$", done.stdout, re.MULTILINE)
    assert re.search(r"^max_memory +150MiB +KIRSCH_MAX_MEMORY$", done.stdout, re.MULTILINE)
    seconds = {
        name: float(value) for name, value in re.findall(r"^(\w+_timeout|drain_delay) +(\d+)s? ", done.stdout, re.M)
    }
    needed = seconds["graceful_timeout"] + seconds["shutdown_timeout"] + seconds["drain_delay"]
    assert int(words[words.index("--stop-timeout") + 1]) > needed


def test_the_health_check_of_the_image(shop: Path, launch: Callable[..., Running]) -> None:
    (text,) = [each.text for each in blocks("containers.md") if each.text.startswith("HEALTHCHECK")]
    words = json.loads(text[text.index("CMD") + 3 :])
    server = launch([word.replace("0.0.0.0:8000", "127.0.0.1:0") for word in container_command()])

    def check(port: int) -> int:
        command = [sys.executable, *(word.replace("8000", str(port)) for word in words[1:])]
        return subprocess.run(command, capture_output=True, timeout=30).returncode

    assert check(server.port) == 0
    assert check(free_port()) != 0


# --- Kubernetes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def manifest() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return {each["kind"]: each for each in yaml.safe_load_all(block("kubernetes.md", "shop.yaml"))}


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def option(manifest: dict[str, Any], name: str) -> str:
    value: str
    (value,) = [word.partition("=")[2] for word in container(manifest)["args"] if word.startswith(f"--{name}=")]
    return value


def test_the_manifest_agrees_with_itself(manifest: dict[str, Any]) -> None:
    deployment = manifest["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == manifest["Service"]["spec"]["selector"]
    assert manifest["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = manifest["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", manifest["Deployment"]["metadata"]["name"])
    ports = {port["name"]: port["containerPort"] for port in container(manifest)["ports"]}
    assert option(manifest, "bind") == f"0.0.0.0:{ports['http']}"
    assert option(manifest, "metrics-bind") == f"0.0.0.0:{ports['metrics']}"
    annotations = deployment["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])
    for probe in ("startupProbe", "readinessProbe"):
        assert container(manifest)[probe]["httpGet"]["path"] == option(manifest, "health-path")
        assert container(manifest)[probe]["httpGet"]["port"] in ports
    assert "httpGet" not in container(manifest)["livenessProbe"]
    assert "lifecycle" not in container(manifest)
    mounts = {mount["name"] for mount in container(manifest)["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    metric = manifest["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert f"name: {{as: {metric}}}" in (DOCS.parent / "metrics.md").read_text()


def test_the_arithmetic_of_the_end(manifest: dict[str, Any], shop: Path) -> None:
    table = subprocess.run(
        [*shlex.split(KIRSCH), *container(manifest)["args"][1:], "--print-config"],
        capture_output=True, text=True, timeout=30, check=True,
    ).stdout  # fmt: skip
    names = ("drain_delay", "graceful_timeout", "shutdown_timeout")
    parts = [int(re.search(rf"^{name} +(\d+)s ", table, re.MULTILINE)[1]) for name in names]  # type: ignore[index]
    grace = manifest["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > sum(parts)
    (shown,) = [each.text for each in blocks("kubernetes.md") if "terminationGracePeriodSeconds  >" in each.text]
    assert [int(number) for number in re.findall(r"\d+", shown)] == [grace, *parts]


def test_the_container_serves_and_ends_as_the_page_says(
    manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]
) -> None:
    metrics = free_port()
    replaced = {"0.0.0.0:8000": "127.0.0.1:0", "0.0.0.0:9100": f"127.0.0.1:{metrics}", "=10s": "=1s"}
    words = container(manifest)["args"][1:]
    for there, here in replaced.items():
        words = [word.replace(there, here) for word in words]
    server = launch([*shlex.split(KIRSCH), *words])
    address = (server.host, server.port)
    assert get(address)["PATH_INFO"] == "/"
    os.kill(server.pid, signal.SIGTERM)
    assert get(address)["PATH_INFO"] == "/"  # it drains, and serves on
    assert server.process.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 10)


def test_the_probes_are_answered_by_the_server(
    manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]
) -> None:
    server = launch(
        [*shlex.split(KIRSCH), "shop.wsgi:app", "--bind=127.0.0.1:0", "--health-path=/healthz", "--drain-delay=3s"]
    )
    url = server.url + container(manifest)["readinessProbe"]["httpGet"]["path"]
    assert status(url) == 200
    os.kill(server.pid, signal.SIGTERM)
    assert any(status(url) == 503 for _ in range(1000))
    assert get((server.host, server.port))["PATH_INFO"] == "/"  # draining, and serving
    assert server.process.wait(20) == 0


def test_the_metrics_port_answers(manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]) -> None:
    port = free_port()
    words = [*shlex.split(KIRSCH), "shop.wsgi:app", "--bind=127.0.0.1:0", f"--metrics-bind=127.0.0.1:{port}"]
    launch(words)
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            exported = set(re.findall(r"^(kirsch_\w+)", response.read().decode(), re.MULTILINE))
            break
        assert time.monotonic() < deadline
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(
        r"^```yaml\n# prometheus-adapter\n(.*?)^```", (DOCS.parent / "metrics.md").read_text(), re.M | re.S
    )
    (rule,) = yaml.safe_load(text)["rules"]
    read = set(re.findall(r"kirsch_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
    assert len(read) >= 3
    assert read <= exported
    # The autoscaler reads the metric that the rule makes of them; the page names no other metric.
    named = {name for page in PAGES for name in re.findall(r"\bkirsch_[a-z_]+", (DOCS / page).read_text())}
    assert named <= exported | {rule["name"]["as"], "kirsch_web"}
