"""Servers that are behind a web server, or are one: mod_wsgi in Apache, FastCGI behind lighttpd, files as they are.

Only the programs of the machine's web servers are used: each is started with its own configuration, folder and port.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from typing import TYPE_CHECKING

from kirsch_bench.survey.adapters.base import RUNTIME, Adapter, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.survey.adapters.base import Launch

APACHE = Program(("apache2", "httpd"), "apache2")
_APXS = Program(("apxs", "apxs2"), "apache2-dev")
LIGHTTPD = Program(("lighttpd",), "lighttpd")
NGINX = Program(("nginx",), "nginx-light")

MODULES = ("/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/libexec/apache2")


def serving_user() -> tuple[str, str]:
    """Return the user that serves if the survey runs as root, because web servers refuse to serve as root."""
    if os.geteuid() == 0:
        for name in ("www-data", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            import grp

            return name, grp.getgrgid(entry.pw_gid).gr_name
    return "", ""


def _mod_wsgi(launch: Launch) -> list[str]:
    user, group = serving_user()
    let_in(launch.directory)
    identity = ["--user", user, "--group", group] if user else []
    module = launch.target.partition(":")[0]
    # The callable of mod_wsgi's daemon is named "application" by default.
    name = launch.target.partition(":")[2] or "application"
    start = [launch.script("mod_wsgi-express"), "start-server", module, "--application-type", "module"]
    paths = [
        "--server-root",
        os.path.join(launch.directory, "root"),
        "--python-path",
        RUNTIME,
        "--python-path",
        launch.home,
    ]
    size = ["--processes", str(launch.workers), "--threads", str(launch.threads), "--max-clients", "128"]
    # Start all of Apache's processes at once: one that it later ends as superfluous would close its connections.
    size += ["--initial-workers", "1", "--minimum-spare-workers", "1", "--maximum-spare-workers", "1"]
    serving = ["--host", launch.host, "--port", str(launch.port), "--callable-object", name, "--log-to-terminal"]
    return [*start, *serving, *size, *paths, "--working-directory", launch.home, *identity, *launch.extra]


def _flup(launch: Launch) -> list[str]:
    socket = os.path.join(launch.directory, "flup.sock")
    launcher = os.path.join(RUNTIME, "survey_launch.py")
    words = [launch.python, launcher, "flup", "", "", launch.target, str(launch.threads)]
    start = launch.write("start.sh", f"#!/bin/sh\ncd {shlex.quote(launch.home)}\nexec {shlex.join(words)}\n")
    os.chmod(start, 0o755)  # noqa: S103 - a program, in a folder of our own
    # bin-path: lighttpd starts it, and hands it the socket as descriptor 0 (FastCGI 1.0 section 2.2).
    configuration = f"""\
server.bind = "{launch.host}"
server.port = {launch.port}
server.document-root = "{launch.directory}"
server.max-keep-alive-requests = 100000
server.max-connections = 1024
server.modules = ("mod_fastcgi")
server.upload-dirs = ("{launch.directory}")
fastcgi.server = ("/" => ((
    "socket" => "{socket}", "bin-path" => "{start}", "check-local" => "disable", "max-procs" => {launch.workers},
    "bin-copy-environment" => ("PATH", "PYTHONPATH", "HOME"), "fix-root-scriptname" => "enable")))
"""
    return [found(LIGHTTPD), "-D", "-f", launch.write("lighttpd.conf", configuration), *launch.extra]


def _write_page(launch: Launch) -> str:
    """Return the page's bytes as a file; returns the folder that is served."""
    sys.path.insert(0, RUNTIME)
    try:
        import survey_apps  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.remove(RUNTIME)
    path = launch.path.partition("?")[0]
    body: bytes = survey_apps.LARGE if launch.page == "large" else survey_apps.HELLO
    if launch.page == "sizer":
        body = survey_apps.sized(path)
    name = path.lstrip("/") or "index.html"
    launch.write(os.path.join("pages", name), body.decode())
    root = os.path.join(launch.directory, "pages")
    for folder in (launch.directory, root):
        let_in(folder)
    return root


def let_in(folder: str) -> None:
    """Make a folder readable for the user of the web server."""
    os.chmod(folder, 0o755)  # noqa: S103 - it is ours alone to write to, all the same


def _nginx(launch: Launch) -> list[str]:
    root = _write_page(launch)
    user, group = serving_user()
    temporary = "\n".join(
        f"    {name}_temp_path {launch.directory}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = f"""\
{f"user {user} {group};" if user else ""}
worker_processes {launch.workers};
pid {launch.directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    default_type text/plain;
{temporary}
    server {{
        listen {launch.address} backlog=2048;
        root {root};
        index index.html;
    }}
}}
"""
    path = launch.write("nginx.conf", configuration)
    return [found(NGINX), "-p", launch.directory, "-c", path, "-e", "stderr", "-g", "daemon off;", *launch.extra]


def apache(launch: Launch, modules: Sequence[str], serving: str, log_level: str = "error") -> list[str]:
    """Run Apache in the foreground with those of ``modules`` that exist; ``serving`` says what it serves."""
    user, group = serving_user()
    folder = module_folder()
    loads = "\n".join(
        f"LoadModule {name}_module {folder}/mod_{name}.so"
        for name in modules
        if os.path.exists(f"{folder}/mod_{name}.so")
    )
    configuration = f"""\
ServerRoot {launch.directory}
ServerName {launch.host}
{loads}
Listen {launch.address}
ListenBacklog 2048
PidFile {launch.directory}/apache.pid
DefaultRuntimeDir {launch.directory}
Mutex file:{launch.directory}
ErrorLog /dev/stderr
LogLevel {log_level}
{f"User {user}" if user else ""}
{f"Group {group}" if group else ""}
KeepAlive On
MaxKeepAliveRequests 0
{serving}
"""
    return [found(APACHE), "-D", "FOREGROUND", "-f", launch.write("apache.conf", configuration)]


def module_folder() -> str:
    """Return the folder of Apache's modules, or its most common path."""
    return next((each for each in MODULES if os.path.isdir(each)), MODULES[0])


def _apache_with_file(launch: Launch) -> list[str]:
    root = _write_page(launch)
    serving = f"""\
TypesConfig /dev/null
DocumentRoot {root}
DirectoryIndex index.html
<Directory {root}>
    Require all granted
    ForceType text/plain
</Directory>"""
    return [*apache(launch, ["mpm_event", "authz_core", "dir", "mime"], serving), *launch.extra]


def found(program: Program) -> str:
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
        programs=(APACHE, _APXS),
        threads=5,
        workers=True,
        becomes=lambda: serving_user()[0],
    ),
    Adapter(
        "flup",
        "FastCGI in Python behind lighttpd",
        _flup,
        ("flup",),
        programs=(LIGHTTPD,),
        threads=5,
        workers=True,
    ),
    Adapter(
        "nginx-static",
        "nginx with a file: no Python",
        _nginx,
        interpreters=frozenset(),
        programs=(NGINX,),
        workers=True,
        speaks="own",
        pages=_PAGES,
    ),
    Adapter(
        "apache-static",
        "Apache with a file: no Python",
        _apache_with_file,
        interpreters=frozenset(),
        programs=(APACHE,),
        speaks="own",
        pages=_PAGES,
    ),
)
