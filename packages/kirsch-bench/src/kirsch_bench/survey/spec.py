"""The survey's file, ``survey.toml``: servers, scenarios, interpreters, rounds. ``docs/survey.md`` describes it.

The whole file is checked before anything is installed or started, the flags of each load too; every mistake is
reported with its line.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch.config import setting, toml
from kirsch.suggest import did_you_mean
from kirsch_bench import errors, flags
from kirsch_bench import target as targets
from kirsch_bench.command import build_load
from kirsch_bench.survey import records
from kirsch_bench.survey.adapters import ADAPTERS
from kirsch_bench.survey.adapters.base import APPLICATIONS, Launch, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NULL = "null"
"""The name of the bare loop that the generator is judged by."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_TARGET = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?")

_LOAD_FLAGS = flags.LOAD - {
    *("target", "slo", "slo_precision", "max_rate", "json", "html", "hdr", "ab", "quiet", "host", "workers", "max"),
    *("unix_socket", "i_own_this_host", "help"),
}
"""Flags of ``kirsch bench`` that ask for a load; the target and the reports are the survey's."""

_THREADS_BY_CHOICE = frozenset({"kirsch", "command", "gunicorn", "uwsgi", "uwsgi-http11"})
"""Adapters that have threads only where the file asks for them."""

_SERIES_MAX = 200
_COPIES_MAX = 100


@dataclass(frozen=True)
class Server:
    """One ``[[server]]``. ``versions`` narrow the adapter's requirements, as ``gunicorn==23.0.0``."""

    adapter: str
    name: str
    requirements: tuple[str, ...] = ()
    version: str = ""
    wheel: str = ""
    command: str = ""
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    workers: int = 1
    children: int = 0
    pythons: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    about: str = ""
    same_as: str = ""

    def takes_part(self, scenario: Scenario) -> bool:
        """Return whether the file includes this server in a scenario."""
        names = {scenario.record.name, scenario.base}
        return not (self.only and not names & set(self.only)) and not names & set(self.skip)


@dataclass(frozen=True)
class Scenario:
    """One ``[[scenario]]``, or one of a series."""

    record: records.Scenario
    given: dict[str, Any]
    """The load's flags, as ``kirsch_bench.flags`` has them."""
    base: str
    """The name in the file; of a series that of all."""
    directory: str = ""
    """The folder of the application's modules."""
    asgi: str = ""
    """The same application for ASGI servers."""

    @property
    def page(self) -> str:
        """The application's name, if it is one of ours."""
        return self.record.application if self.record.application in APPLICATIONS else ""

    def target(self, speaks: str) -> str:
        """``module:name`` for a server that speaks so; empty if there is none."""
        if self.page:
            return f"survey_apps:{self.page}{'_asgi' if speaks == 'asgi' else ''}"
        return {"wsgi": self.record.application, "asgi": self.asgi}.get(speaks, "")


@dataclass(frozen=True)
class Survey:
    """The file. Times in seconds."""

    path: str
    title: str = ""
    about: str = ""
    rounds: int = 5
    seconds: float = 3.0
    warmup: float = 1.0
    cooldown: float = 0.5
    idle: float = 2.0
    patience: float = 60.0
    longest: float = 300.0
    seed: int = 1
    null: bool = True
    historical: str = ""
    """The file of an earlier measurement's tables, see historical.py; empty: there is none."""
    pythons: tuple[str, ...] = ()
    processors: dict[str, tuple[int, ...]] | None = None
    """Of ``server`` and ``generator``; None: chosen."""
    servers: tuple[Server, ...] = ()
    scenarios: tuple[Scenario, ...] = ()

    @property
    def name(self) -> str:
        """The file's."""
        return os.path.splitext(os.path.basename(self.path))[0]

    def limited(self, servers: frozenset[str], scenarios: frozenset[str]) -> Survey:
        """With those alone; empty is all. Raises UsageError for a name that it has not."""
        for kind, asked, known in (
            ("server", servers, {name for each in self.servers for name in (each.name, each.same_as) if name}),
            ("scenario", scenarios, {name for each in self.scenarios for name in (each.base, each.record.name)}),
        ):
            for name in sorted(asked - known):
                hint = did_you_mean(name, known) or f"; it has {', '.join(sorted(known))}"
                raise errors.UsageError(f"{self.path} has no {kind} {name}{hint}")
        return dataclasses.replace(
            self,
            servers=tuple(each for each in self.servers if not servers or {each.name, each.same_as} & servers),
            scenarios=tuple(
                each for each in self.scenarios if not scenarios or {each.base, each.record.name} & scenarios
            ),
        )

    def doubled(self, copies: int) -> Survey:
        """An A/A survey: each server so many times under names of its own, all the same in fact."""
        return dataclasses.replace(
            self, servers=tuple(twin for each in self.servers for twin in _copies(each, copies)), historical=""
        )


def uses_python(command: str) -> bool:
    """Return whether a command runs in an environment of the survey's."""
    return "{python}" in command or "{bin}" in command


def read(path: str) -> Survey:
    """Read a file. Raises UsageError with a line for each mistake."""
    try:
        text, tables = toml.read_tables(path, path)
    except setting.UsageError as error:
        raise errors.UsageError(str(error)) from None
    reader = _Reader(path, toml.Lines(text))
    survey = reader.survey(tables)
    if reader.mistakes:
        raise errors.UsageError("\n".join(line for _, line in sorted(reader.mistakes)))
    return survey


class _WrongError(Exception):
    """A wrong value in the file; the message names the right type."""


class _Reader:
    """Collects mistakes, each with its line."""

    def __init__(self, path: str, lines: toml.Lines) -> None:
        self.mistakes: list[tuple[int, str]] = []
        self._path = path
        self._folder = os.path.dirname(os.path.abspath(path))
        self._lines = lines

    def survey(self, tables: dict[str, Any]) -> Survey:
        for key in tables:
            if key not in ("survey", "server", "scenario"):
                hint = did_you_mean(key, _SURVEY) and f"; write {key} in the table [survey]" if key in _SURVEY else ""
                hint = hint or did_you_mean(key, ("survey", "server", "scenario"))
                self._mistake((key,), f"there is no {key}{hint or '; it has [survey], [[server]] and [[scenario]]'}")
        head = tables.get("survey", {})
        if not isinstance(head, dict):
            self._mistake(("survey",), "survey is to be a table: write [survey]")
            head = {}
        values = self._values("a survey", head, _SURVEY, ("survey",))
        if values.get("historical"):
            values["historical"] = os.path.join(self._folder, values["historical"])
            if not os.path.isfile(values["historical"]):
                self._mistake(("survey", "historical"), f"historical: there is no file {values['historical']}")
        scenarios = [
            each
            for index, table in self._tables(tables, "scenario")
            for each in self._scenario(table, ("scenario", index))
        ]
        servers = [
            each for index, table in self._tables(tables, "server") for each in self._server(table, ("server", index))
        ]
        self._unique([each.record.name for each in scenarios], "scenario")
        self._unique([each.name for each in servers], "server")
        known = {name for each in scenarios for name in (each.base, each.record.name)}
        for index, table in self._tables(tables, "server"):
            for key in ("only", "skip"):
                for name in table.get(key, ()) if isinstance(table.get(key), list) else ():
                    if name not in known:
                        hint = did_you_mean(str(name), known)
                        self._mistake(("server", index, key), f"{key}: there is no scenario {name}{hint}")
        return Survey(self._path, servers=tuple(servers), scenarios=tuple(scenarios), **values)

    def _tables(self, tables: dict[str, Any], kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        found = tables.get(kind, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self._once((kind,), f"{kind} is {toml.described(found)}, and tables are wanted: write [[{kind}]]")
        elif not found:
            self._once((), f"there is no [[{kind}]]; `kirsch survey --example` shows a whole file")
        else:
            yield from enumerate(found)

    def _values(
        self, what: str, table: dict[str, Any], keys: dict[str, Callable[[Any], Any]], path: tuple[str | int, ...]
    ) -> dict[str, Any]:
        found = {}
        for key, value in table.items():
            if key not in keys:
                self._mistake((*path, key), f"{what} has no {key}{did_you_mean(key, keys) or _listed(keys)}")
                continue
            try:
                found[key] = keys[key](value)
            except _WrongError as error:
                self._mistake((*path, key), f"{key} is {toml.described(value)}, and {error} is wanted")
        return found

    # ----------------------------------------------------------------------------------------------------- servers

    def _server(self, table: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Server]:
        values = self._values("a server", table, _SERVER, path)
        adapter = values.get("adapter")
        if adapter is None:
            if "adapter" not in table:
                self._mistake(path, 'a server has an adapter, such as adapter = "gunicorn", or "command" for any other')
            return
        copies = values.pop("copies", 1)
        server = Server(**{"name": adapter, **values})
        if server.name == NULL:
            self._mistake((*path, "name"), "null is the bare loop that the generator is judged by; take another name")
        if (adapter == "command") != bool(server.command):
            self._mistake(path, 'adapter = "command" and command = "..." belong together')
        elif server.command:
            try:
                fill(server.command, Launch("", "", 0, "", "", "", "", 1, 1))
            except ValueError as error:
                self._mistake((*path, "command"), f"command: {error}")
        known = ADAPTERS[adapter]
        if server.requirements and ((server.command and not uses_python(server.command)) or not known.is_python):
            self._mistake((*path, "requirements"), "requirements are for a server under a {python} of the survey's")
        if server.threads and not known.threads and adapter not in _THREADS_BY_CHOICE:
            self._mistake((*path, "threads"), f"{adapter} has no threads to choose")
        if server.workers != 1 and not known.workers:
            self._mistake((*path, "workers"), f"{adapter} is one process")
        if server.children and not known.children:
            self._mistake((*path, "children"), f"{adapter} has no children to count")
        if server.wheel and not adapter.startswith("kirsch"):
            self._mistake((*path, "wheel"), "wheel is for kirsch; a wheel of another server is one of its requirements")
        elif server.wheel:
            server = dataclasses.replace(server, wheel=os.path.join(self._folder, server.wheel))
            if not os.path.isfile(server.wheel):
                self._mistake((*path, "wheel"), f"wheel: there is no file {server.wheel}")
        yield from _copies(server, copies)

    # --------------------------------------------------------------------------------------------------- scenarios

    def _scenario(self, table: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Scenario]:
        values = self._values("a scenario", table, _SCENARIO, path)
        if "name" not in values:
            if "name" not in table:
                self._mistake(path, 'a scenario has a name, such as name = "hello"')
            return
        forms = [key for key in ("fields", "kib", "bytes", "connections") if key in values]
        if len(forms) > 1 or (forms and "x" in values):
            self._mistake((*path, forms[-1]), f"a scenario is one series, and {' and '.join(forms)} are several")
            return
        if not forms:
            yield from self._checked(values, path)
            return
        for number in values[forms[0]]:
            yield from self._checked({**values, **_of_series(forms[0], number, values)}, path)

    def _checked(self, values: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Scenario]:
        name = values["name"]
        application = values.get("application", "hello")
        record = records.Scenario(
            name=name,
            title=values.get("title") or name,
            load=values.get("load", ""),
            application=application,
            series=values.get("series", ""),
            x=values.get("x", 0.0),
            path=values.get("path", "/"),
        )
        if application not in APPLICATIONS and ":" not in application:
            hint = did_you_mean(application, APPLICATIONS)
            hint = hint or f"; there are {', '.join(APPLICATIONS)}, and yours as module:name"
            self._mistake((*path, "application"), f"there is no application {application}{hint}")
        directory = os.path.join(self._folder, values.get("directory", "."))
        if not os.path.isdir(directory):
            self._mistake((*path, "directory"), f"directory: there is no folder {directory}")
        try:
            given = self._load(record)
        except errors.UsageError as error:
            message = str(error).removesuffix("; kirsch bench --help tells more")
            self._mistake((*path, "load" if "load" in values else "path"), f"load: {message}")
            return
        base = values.get("base", name)
        yield Scenario(record, given, base, os.path.abspath(directory), values.get("asgi", ""))

    def _load(self, record: records.Scenario) -> dict[str, Any]:
        try:
            words = shlex.split(record.load)
        except ValueError as error:
            raise errors.UsageError(f"{record.load!r} is no command line: {error}") from None
        given = flags.parse(words)
        if given.pop("target", None):
            raise errors.UsageError("a URL has no place here: the survey starts the servers")
        flags.require_flags(given, _LOAD_FLAGS, "a survey")
        if "requests_file" in given:
            given["requests_file"] = os.path.join(self._folder, given["requests_file"])
        if given.get("data", "").startswith("@"):
            given["data"] = "@" + os.path.join(self._folder, given["data"][1:])
        targets.check_path(record.path, "path")
        build_load(given, targets.parse(f"http://127.0.0.1:1{record.path}"))
        return given

    # ---------------------------------------------------------------------------------------------------- mistakes

    def _unique(self, names: list[str], kind: str) -> None:
        for name in sorted({name for name in names if names.count(name) > 1}):
            hint = "give each a name of its own" if kind == "scenario" else 'give one of them a name = "..."'
            self._mistake((kind,), f"there are two {kind}s {name}; {hint}")

    def _mistake(self, path: tuple[str | int, ...], message: str) -> None:
        line = self._lines.of(*path)
        self.mistakes.append((line, f"{self._path}:{line}: {message}"))

    def _once(self, path: tuple[str | int, ...], message: str) -> None:
        if not any(reported.endswith(message) for _, reported in self.mistakes):
            self._mistake(path, message)


def _copies(server: Server, copies: int) -> Iterator[Server]:
    if copies == 1:
        yield server
        return
    for number in range(1, copies + 1):
        yield dataclasses.replace(server, name=f"{server.name}.{number}", same_as=server.name)


def _of_series(form: str, number: int, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of one scenario of a short form, with its number."""
    load, title = values.get("load", ""), values.get("title") or values["name"]
    made: dict[str, Any] = {"name": f"{values['name']}-{number}", "base": values["name"], "x": float(number)}
    if form == "fields":
        more = (f"-H 'X-Field-{index:02}: {'abcdefghij' * 3}{index:02}'" for index in range(number))
        made |= {
            "series": "headers",
            "load": " ".join([load, *more]).strip(),
            "title": f"{title}, {number} more fields",
        }
    elif form in ("kib", "bytes"):
        unit, suffix, series = ("KiB", "", "size") if form == "kib" else ("bytes", "B", "bytes")
        path = f"{values.get('path', '/').rstrip('/')}/{number}{suffix}"
        made |= {"series": series, "path": path, "title": f"{title}, {number} {unit}"}
        made["application"] = values.get("application", "sizer")
    else:
        made |= {
            "series": "connections",
            "load": f"{load} -c {number}".strip(),
            "title": f"{title}, {number} connections",
        }
    return made


def _listed(keys: dict[str, Any]) -> str:
    return f"; it has {', '.join(keys)}"


# ------------------------------------------------------------------------------------------------------------- values


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _WrongError("a string")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _WrongError("a name of letters, digits and . _ + -")
    return value


def _adapter(value: Any) -> str:
    if not isinstance(value, str) or value not in ADAPTERS:
        hint = did_you_mean(str(value), ADAPTERS).removeprefix("; ")
        raise _WrongError(f"an adapter ({hint})" if hint else f"one of {', '.join(ADAPTERS)}")
    return value


def _application(value: Any) -> str:
    if not isinstance(value, str) or not _TARGET.fullmatch(value):
        raise _WrongError(f"one of {', '.join(APPLICATIONS)} or module:name")
    return value


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise _WrongError("a path such as /page")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongError("true or false")
    return value


def _number(least: float, most: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise _WrongError(f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def _count(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _WrongError(f"a whole number from {least} to {most}")
        return value

    return check


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _WrongError('an array of strings, such as ["a", "b"],')
    return tuple(value)


def _numbers(value: Any) -> tuple[int, ...]:
    is_list = isinstance(value, list) and 0 < len(value) <= _SERIES_MAX
    if not is_list or not all(type(each) is int and 0 <= each <= 1_000_000 for each in value):
        raise _WrongError("an array of whole numbers, such as [0, 10, 20],")
    if len(set(value)) < len(value):
        raise _WrongError("an array without a number twice")
    return tuple(value)


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise _WrongError('a table of strings, such as { NAME = "value" },')
    return value


def _processors(value: Any) -> dict[str, tuple[int, ...]] | None:
    if value == "auto":
        return None
    wanted = '"auto" or { server = [0], generator = [1] }'
    if not isinstance(value, dict) or set(value) != {"server", "generator"}:
        raise _WrongError(wanted)
    for each in value.values():
        if not isinstance(each, list) or not each or not all(type(one) is int and one >= 0 for one in each):
            raise _WrongError(wanted)
    return {name: tuple(each) for name, each in value.items()}


_SURVEY: dict[str, Callable[[Any], Any]] = {
    "title": _text,
    "about": _text,
    "rounds": _count(1, 1000),
    "seconds": _number(0.1, 86400),
    "warmup": _number(0, 86400),
    "cooldown": _number(0, 3600),
    "idle": _number(0, 3600),
    "patience": _number(0.5, 3600),
    "longest": _number(1, 86400),
    "seed": _count(0, 2**31),
    "null": _flag,
    "historical": _text,
    "pythons": _texts,
    "processors": _processors,
}

_SERVER: dict[str, Callable[[Any], Any]] = {
    "adapter": _adapter,
    "name": _name,
    "about": _text,
    "version": _text,
    "requirements": _texts,
    "wheel": _text,
    "command": _text,
    "options": _texts,
    "environment": _environment,
    "threads": _count(1, 1000),
    "workers": _count(1, 256),
    "children": _count(1, 1000),
    "pythons": _texts,
    "only": _texts,
    "skip": _texts,
    "copies": _count(1, _COPIES_MAX),
}

_SCENARIO: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "title": _text,
    "load": _text,
    "path": _path,
    "application": _application,
    "asgi": _application,
    "directory": _text,
    "series": _name,
    "x": _number(-1e9, 1e9),
    "fields": _numbers,
    "kib": _numbers,
    "bytes": _numbers,
    "connections": _numbers,
}
