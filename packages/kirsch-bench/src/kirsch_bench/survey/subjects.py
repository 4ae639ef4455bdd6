"""The subjects of a survey: each server under each interpreter, installed and ready to start, or why it is not."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import importlib.util
import os
import stat
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kirsch
from kirsch_bench.errors import UsageError
from kirsch_bench.survey import interpreters, records
from kirsch_bench.survey.adapters import ADAPTERS
from kirsch_bench.survey.adapters.base import RUNTIME, Adapter, Launch, fill
from kirsch_bench.survey.spec import NULL, uses_python
from kirsch_bench.survey.venvs import InstallError, Venvs, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_bench.survey.interpreters import Interpreter
    from kirsch_bench.survey.spec import Scenario, Server, Survey

OPEN_VENVS = "/var/cache/kirsch/survey"
"""The folder in which root puts the environment of a server that serves as another user, if that user cannot enter
the usual folder."""

_SYSTEM_PYTHON = "/usr/bin/python3"

_KIRSCH_HOME = os.path.dirname(os.path.dirname(os.path.abspath(kirsch.__file__)))


@dataclass(frozen=True)
class Candidate:
    """A server under an interpreter, before its installation."""

    server: Server
    interpreter: Interpreter | None
    absent: str = ""
    requirements: tuple[str, ...] = ()
    """For an environment of its own; none and no ``in_venv``: it has no need of one."""
    in_venv: bool = False

    @property
    def adapter(self) -> Adapter:
        return ADAPTERS[self.server.adapter]

    @property
    def python(self) -> str:
        """The name of the interpreter in the records."""
        return self.interpreter.label if self.interpreter else ""


@dataclass(frozen=True)
class Ready:
    """A subject that is ready to start."""

    subject: records.Subject
    candidate: Candidate | None
    """None: the null server."""
    python: str = ""

    @property
    def name(self) -> str:
        """The name for display."""
        return f"{self.subject.server}{f' ({self.subject.python})' if self.subject.python else ''}"

    def takes_part(self, scenario: Scenario) -> bool:
        """Return whether it takes part in a scenario: the file does not exclude it, and it can serve the request."""
        if self.candidate is None:
            return True
        adapter = self.candidate.adapter
        serves = scenario.page in adapter.pages if adapter.pages is not None else bool(scenario.target(adapter.speaks))
        return serves and self.candidate.server.takes_part(scenario)

    def command(self, scenario: Scenario, port: int, directory: str) -> list[str]:
        """Return the command that starts the subject."""
        assert self.candidate is not None
        server, adapter = self.candidate.server, self.candidate.adapter
        speaks = "wsgi" if adapter.speaks == "own" else adapter.speaks
        launch = Launch(
            python=self.python,
            host="127.0.0.1",
            port=port,
            target=scenario.target(speaks),
            page=scenario.page,
            path=scenario.record.path,
            directory=directory,
            threads=server.threads or adapter.threads,
            workers=server.workers,
            extra=server.options,
            home=scenario.directory,
            children=server.children,
        )
        return fill(server.command, launch) if server.command else adapter.command(launch)

    def environment(self, scenario: Scenario) -> dict[str, str]:
        """Return the survey's, without what would lead another interpreter astray."""
        assert self.candidate is not None
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "KIRSCH_", "GUNICORN_", "UVICORN_", "VIRTUAL_ENV", "WEB_CONCURRENCY"))
        }
        path = [RUNTIME, scenario.directory]
        if self.candidate.server.adapter.startswith("kirsch") and not self.candidate.server.wheel:
            path += [] if self.candidate.server.requirements else [_KIRSCH_HOME]
        kept |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, **self.candidate.server.environment}


def candidates(survey: Survey, pythons: Sequence[str]) -> list[Candidate]:
    """Return each server under each interpreter. Raises UsageError for an interpreter that is not found."""
    general = tuple(pythons) or survey.pythons
    found: list[Candidate] = []
    for server in survey.servers:
        adapter = ADAPTERS[server.adapter]
        if adapter.absent:
            found.append(Candidate(server, None, absent=adapter.absent))
        elif not adapter.is_python or (server.command and not uses_python(server.command)):
            found.append(Candidate(server, None, absent=_missing_program(adapter)))
        else:
            names = server.pythons if server.pythons and not pythons else general
            seen = [interpreters.find(name) for name in names] or [interpreters.ours()]
            pages = {scenario.directory for scenario in survey.scenarios if not scenario.page}
            if adapter.becomes and adapter.becomes():
                seen = [_open_interpreter(each, adapter.becomes()) for each in seen]
            each_once = {each.label: each for each in seen}.values()
            found += [_candidate(server, adapter, each, pages) for each in each_once]
    return found


def _candidate(server: Server, adapter: Adapter, interpreter: Interpreter, pages: set[str]) -> Candidate:
    if interpreter.implementation not in adapter.interpreters:
        return Candidate(server, interpreter, absent=f"not under {interpreter.label}: {adapter.why_not}")
    if absent := _missing_program(adapter) or _missing_header(adapter) or _closed(adapter, interpreter, pages):
        return Candidate(server, interpreter, absent=absent)
    requirements = _requirements(server, adapter)
    if server.adapter.startswith("kirsch") and not (server.wheel or server.requirements):
        if not interpreter.is_ours:
            why = f"there is no Kirsch for {interpreter.label} at hand: name one by wheel = or requirements ="
            return Candidate(server, interpreter, absent=why)
        if not requirements or all(importlib.util.find_spec(name) for name in adapter.requirements):
            # The survey's own installation is the one that is surveyed.
            return Candidate(server, interpreters.ours())
    if server.wheel:
        requirements = (server.wheel, *requirements)
    return Candidate(server, interpreter, requirements=requirements, in_venv=True)


def _requirements(server: Server, adapter: Adapter) -> tuple[str, ...]:
    """Return the adapter's, of which the file may name the first one's version, and the file's own."""
    named = list(adapter.requirements)
    if server.version and named:
        named[0] = f"{named[0]}=={server.version}"
    return (*named, *server.requirements)


def _missing_program(adapter: Adapter) -> str:
    for program in adapter.programs:
        if program.find() is None:
            return f"{program.names[0]} is not installed: apt-get install {program.package}"
    return ""


def _missing_header(adapter: Adapter) -> str:
    for each in adapter.headers:
        header, _, package = each.partition(" ")
        patterns = (f"/usr/include/{header}", f"/usr/include/*/{header}", f"/usr/local/include/{header}")
        if not any(glob.glob(pattern) for pattern in patterns):
            return f"{header} is missing, without which it cannot be built: apt-get install {package}"
    return ""


def _closed(adapter: Adapter, interpreter: Interpreter, pages: set[str]) -> str:
    """Why the user that a web server becomes cannot run the interpreter, or read the applications."""
    user = adapter.becomes() if adapter.becomes else ""
    for folder in (interpreter.prefix, RUNTIME, *sorted(pages)):
        if user and (closed := closed_folder(folder)):
            who = f"{user}, the user that serves if root starts it,"
            return f"{who} cannot enter {closed}: name another Python, install elsewhere, or do not run as root"
    return ""


def closed_folder(folder: str) -> str:
    """Return the folder, of ``folder`` and all above it, that only its owner may enter; empty: there is none."""
    folder = os.path.realpath(folder)
    while folder != os.path.dirname(folder):
        with contextlib.suppress(OSError):
            if not os.stat(folder).st_mode & stat.S_IXOTH:
                return folder
        folder = os.path.dirname(folder)
    return ""


def _open_interpreter(interpreter: Interpreter, user: str) -> Interpreter:
    """The interpreter, or the system's where the user that a web server becomes cannot enter that one: pyenv, in root's
    home, for example. The report names the one that was used."""
    if not user or interpreter.implementation != "cpython" or not closed_folder(interpreter.prefix):
        return interpreter
    try:
        system = interpreters.probe(_SYSTEM_PYTHON)
    except UsageError:
        return interpreter
    return system if system.implementation == "cpython" and not closed_folder(system.prefix) else interpreter


def prepare(candidate: Candidate, venvs: Venvs, tell: Callable[[str], None]) -> Ready:
    """Install what it needs. ``absent`` of a subject says why it cannot take part."""
    server, interpreter = candidate.server, candidate.interpreter
    subject = records.Subject(
        server=server.name,
        python=candidate.python,
        adapter=server.adapter,
        options=_options(server, candidate.adapter),
        threads=server.threads or candidate.adapter.threads,
        same_as=server.same_as,
        absent=candidate.absent,
    )
    if candidate.absent:
        return Ready(subject, candidate)
    python = interpreter.executable if interpreter else ""
    found: dict[str, str] = {}
    if interpreter is not None and candidate.in_venv:
        try:
            home = venvs
            if candidate.adapter.becomes and candidate.adapter.becomes() and closed_folder(venvs.folder):
                tell(f"{server.name}: {venvs.folder} is closed to {candidate.adapter.becomes()}; using {OPEN_VENVS}")
                home = Venvs(OPEN_VENVS)
            python = home.get(interpreter, candidate.requirements, tell)
        except InstallError as error:
            return Ready(dataclasses.replace(subject, absent=f"pip could not install it: {error}"), candidate)
        found = versions(python)
    if server.adapter.startswith("kirsch") and not server.wheel and not server.requirements:
        found |= {"kirsch": kirsch.__version__}
    for program in candidate.adapter.programs:
        found |= _program_version(program.find() or "")
    return Ready(dataclasses.replace(subject, versions=found), candidate, python)


def null() -> Ready:
    """Return the null server as a subject."""
    return Ready(records.Subject(NULL, "", NULL, options="a native loop that answers without looking"), None)


def _options(server: Server, adapter: Adapter) -> str:
    """Return the remarks that a reader of the table needs."""
    words = [server.about or adapter.about or server.command]
    threads = server.threads or adapter.threads
    if server.adapter == "kirsch":
        words.append(f"--threads {threads}" if threads else "threads as by default")
    elif threads:
        words.append(f"{threads} thread{'' if threads == 1 else 's'}")
    if server.workers != 1:
        words.append(f"{server.workers} processes")
    if children := server.children or adapter.children:
        words.append(f"{children} children")
    words.append({"asgi": "ASGI", "own": "its own pages, not WSGI"}.get(adapter.speaks, ""))
    words.append(" ".join(server.options))
    if server.adapter != "command":
        words.append("no access log")
    return ", ".join(filter(None, words))


def _program_version(path: str) -> dict[str, str]:
    """Return the version that a web server prints for ``-v``; some print it on standard error."""
    name = os.path.basename(path)
    if name.startswith("apxs"):
        return {}
    try:
        done = subprocess.run(  # noqa: S603 - whatever the survey names
            [path, "-v"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    output = (done.stdout + done.stderr).strip().splitlines()
    version = next((word.partition("/")[2] for line in output for word in line.split() if "/" in word), "")
    return {name: version} if version else {}
