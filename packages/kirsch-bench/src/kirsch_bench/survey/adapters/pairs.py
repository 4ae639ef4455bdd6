"""An application server behind a web server: each combination ``BACK+FRONT`` with a common protocol, such as
``kirsch-fastcgi+nginx``. A Unix socket connects them. Neither writes an access log. Apache is prefork, with as many
children as the survey's file says, because that is what the founding document varies.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kirsch_bench.survey.adapters.base import RUNTIME, Adapter, Program
from kirsch_bench.survey.adapters.behind import (
    APACHE,
    LIGHTTPD,
    MODULES,
    NGINX,
    apache,
    found,
    let_in,
    module_folder,
    serving_user,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_bench.survey.adapters.base import Launch

_CADDY = Program(("caddy",), "caddy")
_HAPROXY = Program(("haproxy",), "haproxy")
_PHP_FPM = Program(tuple(f"php-fpm{version}" for version in ("8.4", "8.3", "8.2", "")), "php-fpm")
_PHP_MODULE = "libphp*.so"

_CHILDREN = 5
_CONNECTIONS = 4096
_PAGE = '<?php header("Content-Type: text/plain"); header("Content-Length: 12"); echo "Hello World!";\n'


@dataclass(frozen=True)
class Back:
    """An application server on a Unix socket."""

    about: str
    speaks: str
    """``http``, ``http-closed`` (a connection for each request), ``fastcgi``, ``uwsgi`` or ``scgi``."""
    command: Callable[[Launch, str], list[str]]
    """From the path of the socket."""
    requirements: tuple[str, ...] = ()
    is_passed: bool = False
    """True if the server gets the socket as descriptor 0."""
    programs: tuple[Program, ...] = ()
    fronts: tuple[str, ...] = ()
    """The web servers that it is measured behind; none: all that speak its protocol."""
    is_python: bool = True


def _kirsch(protocol: str) -> Callable[[Launch, str], list[str]]:
    def command(launch: Launch, path: str) -> list[str]:
        size = ["--workers", str(launch.workers), "--threads", str(launch.threads)]
        bind = f"{protocol}unix:{path}?mode=666"
        return [launch.python, "-m", "kirsch", launch.target, "--bind", bind, *size, *launch.extra]

    return command


def _flup(server: str) -> Callable[[Launch, str], list[str]]:
    def command(launch: Launch, _path: str) -> list[str]:
        launcher = os.path.join(RUNTIME, "survey_launch.py")
        return [launch.python, launcher, server, "", "", launch.target, str(launch.threads), *launch.extra]

    return command


def _uwsgi(launch: Launch, path: str) -> list[str]:
    size = ["--processes", str(launch.workers), "--threads", str(launch.threads), "--listen", "100"]
    start = [launch.script("uwsgi"), "--uwsgi-socket", path, "--chmod-socket=666", "--master", "--die-on-term"]
    return [*start, *size, "--disable-logging", "--module", launch.target, *launch.extra]


def _gunicorn(*options: str) -> Callable[[Launch, str], list[str]]:
    def command(launch: Launch, path: str) -> list[str]:
        size = ["-w", str(launch.workers), "-k", "gthread", "--threads", str(launch.threads)]
        # Let the web server close idle connections.
        start = [launch.python, "-m", "gunicorn", *size, "--keep-alive", "75", "--umask", "0", *options]
        return [*start, "-b", f"unix:{path}", *launch.extra, launch.target]

    return command


def _php_fpm(launch: Launch, path: str) -> list[str]:
    user, group = serving_user()
    identity = f"user = {user}\ngroup = {group}\n" if user else ""
    children = launch.children or _CHILDREN
    text = f"""\
[global]
error_log = /dev/stderr
log_level = error
daemonize = no
[pool]
{identity}listen = {path}
listen.mode = 0666
listen.backlog = 1024
pm = static
pm.max_children = {children}
"""
    return [found(_PHP_FPM), "-F", "-y", launch.write("php-fpm.conf", text), *launch.extra]


_BACKS = {
    "kirsch-http": Back("Kirsch over HTTP, connections are kept", "http", _kirsch("")),
    "kirsch-http-closed": Back("Kirsch over HTTP, a connection for each request", "http-closed", _kirsch("")),
    "kirsch-fastcgi": Back("Kirsch over FastCGI", "fastcgi", _kirsch("fastcgi:")),
    "kirsch-uwsgi": Back("Kirsch over uwsgi", "uwsgi", _kirsch("uwsgi:")),
    "kirsch-scgi": Back("Kirsch over SCGI", "scgi", _kirsch("scgi:")),
    "flup-fastcgi": Back(
        "flup over FastCGI, threads without a limit", "fastcgi", _flup("flup"), ("flup",), is_passed=True
    ),
    "flup-limited": Back(
        "flup over FastCGI, as many threads as are given", "fastcgi", _flup("flup_limited"), ("flup",), is_passed=True
    ),
    "uwsgi-uwsgi": Back("uWSGI over uwsgi", "uwsgi", _uwsgi, ("uwsgi",)),
    "gunicorn-http": Back("gunicorn, gthread, over HTTP, connections are kept", "http", _gunicorn(), ("gunicorn",)),
    "gunicorn-uwsgi": Back("gunicorn over uwsgi", "uwsgi", _gunicorn("--protocol", "uwsgi"), ("gunicorn",)),
    "php-fpm": Back(
        "PHP: echo, by php-fpm",
        "fastcgi",
        _php_fpm,
        programs=(_PHP_FPM,),
        fronts=("nginx", "apache"),
        is_python=False,
    ),
}


# ---------------------------------------------------------------------------------------------------------- web servers


def _nginx(launch: Launch, back: Back, path: str) -> list[str]:
    user, group = serving_user()
    temporary = " ".join(
        f"{name}_temp_path {launch.directory}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    to_http = 'proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection "";'
    passed = {
        "http": to_http,
        "http-closed": "proxy_pass http://back; proxy_http_version 1.0; proxy_set_header Connection close;",
        "fastcgi": "include /etc/nginx/fastcgi_params; fastcgi_pass back; fastcgi_keep_conn on;"
        f" fastcgi_param SCRIPT_FILENAME {launch.directory}/index.php;",
        "uwsgi": "include /etc/nginx/uwsgi_params; uwsgi_pass back;",
        "scgi": "include /etc/nginx/scgi_params; scgi_pass back;",
    }[back.speaks]
    # A php-fpm process serves only its own connection, so that kept connections would occupy all processes.
    keeps = back.is_python and back.speaks in ("http", "fastcgi")
    if not keeps:
        passed = passed.replace("fastcgi_keep_conn on", "fastcgi_keep_conn off")
    text = f"""\
{f"user {user} {group};" if user else ""}
worker_processes 1;
pid {launch.directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections {_CONNECTIONS}; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    {temporary}
    upstream back {{
        server unix:{path} fail_timeout=0;
        {"keepalive 64;" if keeps else ""}
    }}
    server {{
        listen {launch.address} backlog=2048;
        location / {{ {passed} }}
    }}
}}
"""
    configuration = launch.write("nginx.conf", text)
    return [found(NGINX), "-p", launch.directory, "-c", configuration, "-e", "stderr", "-g", "daemon off;"]


def _apache(launch: Launch, back: Back | None, path: str) -> list[str]:
    """Return the command of Apache with prefork; ``back`` None: with PHP in Apache itself."""
    scheme = {"http": "http", "http-closed": "http", "fastcgi": "fcgi", "uwsgi": "uwsgi", "scgi": "scgi"}
    modules = {"http": "proxy_http", "http-closed": "proxy_http", "fastcgi": "proxy_fcgi"}
    loaded = ["mpm_prefork", "authz_core"]
    if back is None:
        (library,) = glob.glob(f"{module_folder()}/{_PHP_MODULE}")[:1]
        serving = f"LoadModule php_module {library}\n"
        serving += f"DocumentRoot {launch.directory}/pages\nAliasMatch ^ {launch.directory}/pages/index.php\n"
        serving += f"<Directory {launch.directory}/pages>\nRequire all granted\nSetHandler application/x-httpd-php\n"
        serving += "</Directory>\n"
        loaded.append("alias")
    else:
        loaded += ["proxy", modules.get(back.speaks, f"proxy_{back.speaks}")]
        reuse = "on" if back.is_python and back.speaks in ("http", "fastcgi") else "off"
        serving = "ProxyFCGIBackendType GENERIC\n" if back.speaks == "fastcgi" and back.is_python else ""
        serving += f'ProxyPass "/" "unix:{path}|{scheme[back.speaks]}://back/" enablereuse={reuse}\n'
        if not back.is_python:
            serving += f'ProxyFCGISetEnvIf "true" SCRIPT_FILENAME "{launch.directory}/index.php"\n'
    children = launch.children or _CHILDREN
    for directive in ("StartServers", "ServerLimit", "MaxRequestWorkers", "MinSpareServers", "MaxSpareServers"):
        serving += f"{directive} {children}\n"
    serving += "MaxConnectionsPerChild 0"
    return apache(launch, loaded, serving, log_level="crit")


def _lighttpd(launch: Launch, back: Back, path: str) -> list[str]:
    socket = f'(("socket" => "{path}", "check-local" => "disable", "fix-root-scriptname" => "enable"))'
    passed = {
        "http-closed": f'server.modules += ("mod_proxy")\nproxy.server = ("/" => (("host" => "{path}")))\n',
        "fastcgi": f'server.modules += ("mod_fastcgi")\nfastcgi.server = ("/" => {socket})\n',
        "uwsgi": f'server.modules += ("mod_scgi")\nscgi.protocol = "uwsgi"\nscgi.server = ("/" => {socket})\n',
        "scgi": f'server.modules += ("mod_scgi")\nscgi.server = ("/" => {socket})\n',
    }[back.speaks]
    text = f"""\
server.bind = "{launch.host}"
server.port = {launch.port}
server.document-root = "{launch.directory}"
server.max-keep-alive-requests = 100000
server.max-connections = 1024
server.max-fds = {_CONNECTIONS}
server.upload-dirs = ("{launch.directory}")
{passed}"""
    return [found(LIGHTTPD), "-D", "-f", launch.write("lighttpd.conf", text)]


def _caddy(launch: Launch, back: Back, path: str) -> list[str]:
    transport = {
        "http": "transport http {\n keepalive 60s\n keepalive_idle_conns_per_host 64\n }",
        "http-closed": "transport http {\n keepalive off\n }",
        "fastcgi": "transport fastcgi",
    }[back.speaks]
    text = f"""\
{{
    admin off
    auto_https off
}}
http://{launch.address} {{
    reverse_proxy unix/{path} {{
        {transport}
    }}
}}
"""
    command = [found(_CADDY), "run", "--adapter", "caddyfile", "--config", launch.write("Caddyfile", text)]
    # Caddy stores its state in the home directory, which the user of the survey may lack.
    return ["env", f"HOME={launch.directory}", f"XDG_DATA_HOME={launch.directory}", *command]


def _haproxy(launch: Launch, back: Back, path: str) -> list[str]:
    fastcgi = "fcgi-app back\n    docroot /\n    option keep-conn\n" if back.speaks == "fastcgi" else ""
    passed = {
        "http": f"http-reuse always\n    server back unix@{path}",
        "http-closed": f"option http-server-close\n    http-reuse never\n    server back unix@{path} pool-max-conn 0",
        "fastcgi": f"use-fcgi-app back\n    http-reuse always\n    server back unix@{path} proto fcgi",
    }[back.speaks]
    text = f"""\
global
    maxconn {_CONNECTIONS}
    nbthread 1
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
{fastcgi}
frontend web
    bind {launch.address} backlog 2048
    default_backend back
backend back
    {passed}
"""
    return [found(_HAPROXY), "-db", "-f", launch.write("haproxy.cfg", text)]


_EVERYTHING = ("http", "http-closed", "fastcgi", "uwsgi", "scgi")

_FRONTS = {
    "nginx": (NGINX, _nginx, _EVERYTHING),
    "apache": (APACHE, _apache, _EVERYTHING),
    # lighttpd does not keep connections to an HTTP server.
    "lighttpd": (LIGHTTPD, _lighttpd, ("http-closed", "fastcgi", "uwsgi", "scgi")),
    "caddy": (_CADDY, _caddy, ("http", "http-closed", "fastcgi")),
    "haproxy": (_HAPROXY, _haproxy, ("http", "http-closed", "fastcgi")),
}


def _pair(back: Back, front: Callable[[Launch, Back, str], list[str]]) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        let_in(launch.directory)
        launch.write("index.php", _PAGE)
        path = os.path.join(launch.directory, "back.sock")
        # If the back server has no worker processes of its own and inherits the socket, start one process for each
        # worker.
        pair = {
            "back": _at_home(launch, back.command(launch, path)) if back.is_python else back.command(launch, path),
            "front": front(launch, back, path),
            "socket": path,
            "passed": back.is_passed,
            "processes": launch.workers,
        }
        return [
            sys.executable,
            os.path.join(RUNTIME, "survey_pair.py"),
            launch.write("pair.json", json.dumps(pair)),
        ]

    return command


def _at_home(launch: Launch, words: list[str]) -> list[str]:
    """Return a command that runs ``words`` in the folder of the application's modules."""
    return ["/bin/sh", "-c", f"cd {shlex.quote(launch.home or '.')} && exec {shlex.join(words)}"]


def _mod_php(launch: Launch) -> list[str]:
    let_in(launch.directory)
    launch.write(os.path.join("pages", "index.php"), _PAGE)
    let_in(os.path.join(launch.directory, "pages"))
    return [*_apache(launch, None, ""), *launch.extra]


def _without_php() -> str:
    if any(glob.glob(f"{folder}/{_PHP_MODULE}") for folder in MODULES):
        return ""
    return "Apache has no module for PHP: apt-get install libapache2-mod-php"


_CPYTHON = frozenset({"cpython"})


def _adapter(name: str, back: Back, front: str) -> Adapter:
    program, command, _ = _FRONTS[front]
    return Adapter(
        f"{name}+{front}",
        f"{back.about}, behind {front}",
        _pair(back, command),
        back.requirements,
        interpreters=_CPYTHON if back.is_python else frozenset(),
        why_not="pairs of servers are measured under CPython alone",
        programs=(program, *back.programs),
        threads=5 if back.is_python else 0,
        workers=back.is_python,
        speaks="wsgi" if back.is_python else "own",
        pages=None if back.is_python else ("hello",),
        front=program.names,
        children=_CHILDREN if front == "apache" or not back.is_python else 0,
    )


ADAPTERS = (
    *(
        _adapter(name, back, front)
        for front, (_, _, spoken) in _FRONTS.items()
        for name, back in _BACKS.items()
        if back.speaks in spoken and (not back.fronts or front in back.fronts)
    ),
    Adapter(
        "mod_php",
        "PHP: echo, inside Apache",
        _mod_php,
        interpreters=frozenset(),
        programs=(APACHE,),
        speaks="own",
        pages=("hello",),
        children=_CHILDREN,
        absent=_without_php(),
    ),
)
