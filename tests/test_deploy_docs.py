"""The pages of docs/deploy work: their units, configurations and commands are taken from there and run.

Paths and ports are replaced by a test's own, and nothing else. What needs a running systemd is checked as far as its
files go, and its command for Kirsch is run as that would run it. Containers, web servers and machines have files of
their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from deploy_pages import (
    DOCS,
    KIRSCH,
    PAGES,
    adapted,
    block,
    blocks,
    commands,
    get,
    launcher,
    shop_folder,
    status,
    unit,
)
from ports import free_port
from service_manager import ServiceManager, activated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Running

shop = pytest.fixture(shop_folder)
launch = pytest.fixture(launcher)


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
