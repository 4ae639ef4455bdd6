"""The interface of an adapter, and the adapter for any command."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "runtime")
"""A folder that is on the path of every server that is measured: the applications and the launcher."""

APPLICATIONS = ("hello", "large", "stream", "echo", "sizer", "slow")
"""The applications of ``runtime/survey_apps.py``."""


@dataclass(frozen=True)
class Launch:
    """The parameters with which a server is started."""

    python: str
    """An interpreter with the server's packages; empty for a server that is no Python."""
    host: str
    port: int
    target: str
    """``module:name`` in WSGI, or in ASGI where the adapter's ``speaks`` says so."""
    page: str
    """The application's name, where it is one of the survey's own."""
    path: str
    """The path that will be requested."""
    directory: str
    """A fresh folder, for sockets and the like."""
    threads: int
    workers: int
    extra: tuple[str, ...] = ()
    """Arguments that the survey's file adds."""
    home: str = ""
    """The folder of the application's modules; the server is started there."""
    children: int = 0
    """Processes of a web server, each of which serves one request at a time; 0: as many as it has by default."""

    def script(self, name: str) -> str:
        """Return the path of a command that was installed beside the interpreter."""
        return os.path.join(os.path.dirname(self.python), name)

    @property
    def address(self) -> str:
        """The address as ``host:port``."""
        return f"{self.host}:{self.port}"

    def write(self, name: str, text: str) -> str:
        """Write a file in ``directory``; return its path. Raises OSError."""
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


@dataclass(frozen=True)
class Program:
    """A required program of the system, and the package to install if it is missing."""

    names: tuple[str, ...]
    package: str

    def find(self) -> str | None:
        """Return the path of the program, or None. ``sbin`` is searched too, because it is often not on PATH."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
        return next(filter(None, (shutil.which(name, path=path) for name in self.names)), None)


@dataclass(frozen=True)
class Adapter:
    """One kind of server: how it is installed and started."""

    name: str
    about: str
    """For a reader of the table: how it serves."""
    command: Callable[[Launch], list[str]]
    requirements: tuple[str, ...] = ()
    """The packages that pip installs for it, without versions."""
    interpreters: frozenset[str] = frozenset({"cpython", "pypy"})
    """Implementations that it can run under; none: it is no Python."""
    why_not: str = ""
    """Of the interpreters that are missing above."""
    programs: tuple[Program, ...] = ()
    threads: int = 0
    """As many as it has unless the survey's file says otherwise; 0: the number means nothing to it."""
    workers: bool = False
    """True if the server can have several processes."""
    speaks: str = "wsgi"
    """``asgi`` if the server gets the application of that name and ``_asgi``."""
    pages: tuple[str, ...] | None = None
    """Of our applications, those that the server can serve. None: any that is WSGI."""
    headers: tuple[str, ...] = ()
    """Files of libraries that building it needs, as ``ev.h libev-dev``."""
    becomes: Callable[[], str] | None = None
    """The user that serves, if the server switches to another user; empty if it does not."""
    absent: str = ""
    """Why it can run nowhere."""
    front: tuple[str, ...] = ()
    """Names of the programs that stand in front of the application; their processor time is shown apart."""
    children: int = 0
    """Processes that each serve one request at a time, unless the survey's file says otherwise; 0: it has none."""

    @property
    def is_python(self) -> bool:
        """Return whether the server is measured under each interpreter."""
        return bool(self.interpreters)


def launched(launch: Launch, server: str) -> list[str]:
    """Return the command of a server that ``runtime/survey_launch.py`` starts."""
    launcher = os.path.join(RUNTIME, "survey_launch.py")
    threads = str(launch.threads or 1)
    return [launch.python, launcher, server, launch.host, str(launch.port), launch.target, threads, *launch.extra]


def fill(template: str, launch: Launch) -> list[str]:
    """Return the words of ``adapter = "command"``, split as a shell does, with what stands in braces replaced. Raises
    ValueError."""
    values = {
        "host": launch.host,
        "port": str(launch.port),
        "app": launch.target,
        "python": launch.python,
        "bin": os.path.dirname(launch.python),
        "threads": str(launch.threads or 1),
        "workers": str(launch.workers),
        "directory": launch.directory,
    }
    try:
        return [*(word.format(**values) for word in shlex.split(template)), *launch.extra]
    except (KeyError, IndexError) as error:
        raise ValueError(f"{{{error.args[0]}}} is none of {', '.join(f'{{{name}}}' for name in values)}") from None


COMMAND = Adapter("command", "", lambda _: [], workers=True)
"""Whatever the survey's file says."""
