"""What stands behind a web server, or is one: mod_wsgi in Apache, FastCGI behind lighttpd, files as they are.

Nothing of the machine's own web servers is used but the programs: each is started with a configuration of its own, in
a folder of its own, on a port of its own.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from typing import TYPE_CHECKING

from kirsch.survey.adapters.base import WITHIN, Adapter, Program

if TYPE_CHECKING:
    from kirsch.survey.adapters.base import Place

_APACHE = Program(("apache2", "httpd"), "apache2")
_APXS = Program(("apxs", "apxs2"), "apache2-dev")
_LIGHTTPD = Program(("lighttpd",), "lighttpd")
_NGINX = Program(("nginx",), "nginx-light")

_MODULES = ("/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/libexec/apache2")


def _user() -> tuple[str, str]:
    """Who serves where the survey runs as root, as web servers refuse to."""
    if os.geteuid() == 0:
        for name in ("www-data", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            import grp

            return name, grp.getgrgid(entry.pw_gid).gr_name
    return "", ""


def _mod_wsgi(place: Place) -> list[str]:
    user, group = _user()
    _let_in(place.directory)
    identity = ["--user", user, "--group", group] if user else []
    module = place.target.partition(":")[0]
    # Its daemon's callable is named "application" unless it is told.
    name = place.target.partition(":")[2] or "application"
    start = [place.script("mod_wsgi-express"), "start-server", module, "--application-type", "module"]
    paths = [
        "--server-root",
        os.path.join(place.directory, "root"),
        "--python-path",
        WITHIN,
        "--python-path",
        place.home,
    ]
    size = ["--processes", str(place.workers), "--threads", str(place.threads), "--max-clients", "128"]
    # All of Apache's own processes from the start: one that it ends as superfluous takes its connections along.
    size += ["--initial-workers", "1", "--minimum-spare-workers", "1", "--maximum-spare-workers", "1"]
    serving = ["--host", place.host, "--port", str(place.port), "--callable-object", name, "--log-to-terminal"]
    return [*start, *serving, *size, *paths, "--working-directory", place.home, *identity, *place.extra]


def _flup(place: Place) -> list[str]:
    socket = os.path.join(place.directory, "flup.sock")
    launcher = os.path.join(WITHIN, "survey_launch.py")
    words = [place.python, launcher, "flup", "", "", place.target, str(place.threads)]
    start = place.write("start.sh", f"#!/bin/sh\ncd {shlex.quote(place.home)}\nexec {shlex.join(words)}\n")
    os.chmod(start, 0o755)  # noqa: S103 - a program, in a folder of our own
    # bin-path: lighttpd starts it, and hands it the socket as descriptor 0 (FastCGI 1.0 section 2.2).
    configuration = f"""\
server.bind = "{place.host}"
server.port = {place.port}
server.document-root = "{place.directory}"
server.max-keep-alive-requests = 100000
server.max-connections = 1024
server.modules = ("mod_fastcgi")
server.upload-dirs = ("{place.directory}")
fastcgi.server = ("/" => ((
    "socket" => "{socket}", "bin-path" => "{start}", "check-local" => "disable", "max-procs" => {place.workers},
    "bin-copy-environment" => ("PATH", "PYTHONPATH", "HOME"), "fix-root-scriptname" => "enable")))
"""
    return [_found(_LIGHTTPD), "-D", "-f", place.write("lighttpd.conf", configuration), *place.extra]


def _write_page(place: Place) -> str:
    """The page's bytes as a file; returns the folder that is served."""
    sys.path.insert(0, WITHIN)
    try:
        import survey_apps  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.remove(WITHIN)
    path = place.path.partition("?")[0]
    body: bytes = survey_apps.LARGE if place.page == "large" else survey_apps.HELLO
    if place.page == "sizer":
        body = survey_apps.sized(path)
    name = path.lstrip("/") or "index.html"
    place.write(os.path.join("pages", name), body.decode())
    root = os.path.join(place.directory, "pages")
    for folder in (place.directory, root):
        _let_in(folder)
    return root


def _let_in(folder: str) -> None:
    """Whoever the web server becomes."""
    os.chmod(folder, 0o755)  # noqa: S103 - it is ours alone to write to, all the same


def _nginx(place: Place) -> list[str]:
    root = _write_page(place)
    user, group = _user()
    temporary = "\n".join(
        f"    {name}_temp_path {place.directory}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = f"""\
{f"user {user} {group};" if user else ""}
worker_processes {place.workers};
pid {place.directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    default_type text/plain;
{temporary}
    server {{
        listen {place.address} backlog=2048;
        root {root};
        index index.html;
    }}
}}
"""
    path = place.write("nginx.conf", configuration)
    return [_found(_NGINX), "-p", place.directory, "-c", path, "-e", "stderr", "-g", "daemon off;", *place.extra]


def _apache(place: Place) -> list[str]:
    root = _write_page(place)
    user, group = _user()
    folder = next((each for each in _MODULES if os.path.isdir(each)), _MODULES[0])
    modules = "\n".join(
        f"LoadModule {name}_module {folder}/mod_{name}.so"
        for name in ("mpm_event", "authz_core", "dir", "mime")
        if os.path.exists(f"{folder}/mod_{name}.so")
    )
    configuration = f"""\
ServerRoot {place.directory}
ServerName {place.host}
{modules}
Listen {place.address}
ListenBacklog 2048
PidFile {place.directory}/apache.pid
DefaultRuntimeDir {place.directory}
Mutex file:{place.directory}
ErrorLog /dev/stderr
LogLevel error
TypesConfig /dev/null
{f"User {user}" if user else ""}
{f"Group {group}" if group else ""}
KeepAlive On
MaxKeepAliveRequests 0
DocumentRoot {root}
DirectoryIndex index.html
<Directory {root}>
    Require all granted
    ForceType text/plain
</Directory>
"""
    path = place.write("apache.conf", configuration)
    return [_found(_APACHE), "-D", "FOREGROUND", "-f", path, *place.extra]


def _found(program: Program) -> str:
    return program.find() or program.names[0]


_PAGES = ("hello", "large", "sizer")

ADAPTERS = (
    Adapter(
        "mod_wsgi",
        "Apache with daemon processes, by mod_wsgi-express",
        _mod_wsgi,
        ("mod_wsgi",),
        frozenset({"cpython"}),
        "it is written against CPython's C interface",
        programs=(_APACHE, _APXS),
        threads=5,
        workers=True,
        becomes=lambda: _user()[0],
    ),
    Adapter(
        "flup",
        "FastCGI in Python behind lighttpd",
        _flup,
        ("flup",),
        programs=(_LIGHTTPD,),
        threads=5,
        workers=True,
    ),
    Adapter(
        "nginx-static",
        "nginx with a file: no Python",
        _nginx,
        interpreters=frozenset(),
        programs=(_NGINX,),
        workers=True,
        speaks="own",
        pages=_PAGES,
    ),
    Adapter(
        "apache-static",
        "Apache with a file: no Python",
        _apache,
        interpreters=frozenset(),
        programs=(_APACHE,),
        speaks="own",
        pages=_PAGES,
    ),
)
