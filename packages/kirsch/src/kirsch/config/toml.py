"""The reader of the settings file: TOML, with settings named like their flags. Messages about mistakes have line
numbers. ``kirsch.toml`` has the settings at its top level, ``pyproject.toml`` in the table ``[tool.kirsch]``.
"""

from __future__ import annotations

import os
import re
import sys

from kirsch.config.kinds import CERTIFICATES, LOG_CONFIG, STATIC
from kirsch.config.mounts import INTERFACES, Mount, check_host, check_path, parse_mount
from kirsch.config.schema import SETTINGS
from kirsch.config.setting import Setting, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kirsch.config.kinds import Kind

PROJECT_FILE = "pyproject.toml"
_PROJECT_TABLE = ("tool", "kirsch")

_MOUNT_KEYS = ("path", "host", "app", "factory", "interface")
_TABLES = "acme, env, logging, mounts, static, timeout-paths and tls"
_OTHER_NAMES = {
    "application": "app",
    "target": "app",
    "module": "app",
}


class File:
    """The content of a file: ``given`` and ``target`` for :class:`kirsch.config.schema.Settings`, and the mounts."""

    __slots__ = ("given", "mounts", "path", "target")

    def __init__(self, path: str) -> None:
        self.path = path
        self.given: dict[str, tuple[str, str]] = {}
        self.target: tuple[str, str] | None = None
        self.mounts: tuple[Mount, ...] = ()


def read_file(name: str, directory: str, *, origin: str = "", mistakes: list[str] | None = None) -> File | None:
    """Read the file ``name``, relative to ``directory``. ``origin`` is the flag or variable that named it, or empty.
    Return None for a pyproject.toml without a table ``[tool.kirsch]``, unless it was named. A line for each mistake is
    added to ``mistakes``, and the rest of the file is read; without ``mistakes`` they are raised as UsageError.
    """
    found: list[str] = []
    file = None
    try:
        file = _read_file(name, directory, origin, found)
    except UsageError as error:
        found += str(error).splitlines()
    if mistakes is not None:
        mistakes += found
    elif found:
        raise UsageError("\n".join(found))
    return file


def _read_file(name: str, directory: str, origin: str, mistakes: list[str]) -> File | None:
    if name.endswith(".py") or name.startswith("python:"):
        raise UsageError(
            f"{origin + ': ' if origin else ''}{name} is Python, as gunicorn's settings are, and TOML is wanted; "
            "in kirsch.toml the flags of `kirsch help all` are written without dashes, as in workers = 2; "
            "see kirsch help configuration"
        )
    path = os.path.join(directory, name)
    text = _decode(_read(path, name, origin), name)
    tables, repaired, syntax = _parse_all(text, name)
    is_project = os.path.basename(name) == PROJECT_FILE
    prefix: tuple[str, ...] = ()
    if is_project:
        tool = tables.get("tool", {})
        if not isinstance(tool, dict) or "kirsch" not in tool:
            if origin:
                raise UsageError(f"{origin}: {name} has no table [tool.kirsch]")
            return None
        prefix, tables = _PROJECT_TABLE, tool["kirsch"]
        if not isinstance(tables, dict):
            raise UsageError(f"{name}: tool.kirsch is {described(tables)}, and a table [tool.kirsch] is wanted")
    reader = _Reader(name, os.path.dirname(os.path.abspath(path)), Lines(repaired, prefix))
    reader.read(tables)
    mistakes += [line for _, line in sorted([*syntax, *reader.mistakes], key=lambda mistake: mistake[0])]
    file = File(os.path.abspath(path))
    file.given = reader.given
    file.target = reader.target
    file.mounts = tuple(reader.mounts)
    if reader.folder == os.path.abspath(directory or "."):
        return file
    return _with_own_chdir(file, reader.folder)


def read_tables(path: str, name: str, origin: str = "") -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its tables. Messages call the file ``name``; ``origin`` is the flag or
    variable that named it.

    Raises UsageError.
    """
    text = _decode(_read(path, name, origin), name)
    return text, _parse(text, name)


def _with_own_chdir(file: File, folder: str) -> File:
    """Make ``chdir`` of a file in another directory relative to the directory of the file."""
    if file.given.get("chdir", ("", ""))[0]:
        text, origin = file.given["chdir"]
        file.given["chdir"] = (os.path.normpath(os.path.join(folder, text)), origin)
    return file


def _read(path: str, name: str, origin: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{origin + ': ' if origin else ''}cannot read {name}: {error.strerror}") from None


def _decode(data: bytes, name: str) -> str:
    try:
        # Some editors write a byte order mark, which TOML does not allow.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: this is not UTF-8, in which TOML is written") from None


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return _loads(text)
    except _SyntaxError as error:
        raise UsageError(f"{name}:{error.line}: {error}" if error.line else f"{name}: {error}") from None


class _SyntaxError(Exception):
    """Raised if a text is not TOML: the reason and the line, 0 if the line is unknown."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def _loads(text: str) -> dict[str, Any]:
    """Parse TOML. Raises _SyntaxError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables: dict[str, Any] = tomllib.loads(text)
        return tables
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
        if place is None:
            raise _SyntaxError(0, message) from None
        line = int(place[1]) if place[1] else max(1, len(text.splitlines()))
        what = message[: place.start()]
        raise _SyntaxError(line, f"this is not TOML: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise _SyntaxError(0, "this is nested too deeply") from None


# A key with a bare word as its value, which TOML does not allow: app = hello:app
_BARE = re.compile(r"([ \t]*[A-Za-z0-9_.-]+[ \t]*=[ \t]*)([^\s\"'\[{#][^\"'#\[\]{}]*?)([ \t]*(?:#.*)?)\r?$")
_EMPTY = re.compile(r"[ \t]*([A-Za-z0-9_.-]+)[ \t]*=[ \t]*(?:#.*)?\r?$")
_SWITCHES = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}

_REPAIRS_MAX = 100


def _is_value(text: str) -> bool:
    """Return whether ``text`` is a valid TOML value, so that the mistake is elsewhere in its line."""
    try:
        _loads(f"key = {text}")
    except _SyntaxError:
        return False
    return True


def _parse_all(text: str, name: str) -> tuple[dict[str, Any], str, list[tuple[int, str]]]:
    """Return the parsed text, the corrected text, and (line, mistake) for each value without quotes, which are added.
    Any other mistake makes the text unreadable: raises UsageError, with the mistakes found before.
    """
    found: list[tuple[int, str]] = []
    lines = text.split("\n")
    while True:
        try:
            return _loads("\n".join(lines)), "\n".join(lines), found
        except _SyntaxError as error:
            match = _BARE.match(lines[error.line - 1]) if 0 < error.line <= len(lines) else None
            where = f"{name}:{error.line}" if error.line else name
            if 0 < error.line <= len(lines) and (empty := _EMPTY.match(lines[error.line - 1])):
                found.append((error.line, f"{where}: {empty[1]} lacks a value; write {empty[1]} = VALUE, or remove it"))
                lines[error.line - 1] = ""
                continue
            if match is None or _is_value(match[2]) or len(found) == _REPAIRS_MAX:
                found.append((error.line, f"{where}: {error}"))
                raise UsageError("\n".join(line for _, line in sorted(found))) from None
            key, value, rest = match.groups()
            meant = _SWITCHES.get(value.lower(), f'"{value}"')
            what = "is not a value of TOML" if value.lower() in _SWITCHES else "lacks its quotes"
            found.append((error.line, f"{where}: {value} {what}; write {key.strip()} {meant}"))
            escaped = value.replace("\\", "\\\\")
            lines[error.line - 1] = key + (meant if meant in ("true", "false") else f'"{escaped}"') + rest


class _Reader:
    """Collects settings, the application, mounts, and mistakes with their lines."""

    def __init__(self, name: str, folder: str, lines: Lines) -> None:
        self.folder = folder
        self.given: dict[str, tuple[str, str]] = {}
        self.target: tuple[str, str] | None = None
        self.mounts: list[Mount] = []
        self.mistakes: list[tuple[int, str]] = []
        self._name = name
        self._lines = lines
        self._keys = {spelling: each for each in SETTINGS for spelling in _spellings(each)}
        # The table [logging] is another form of log-config.
        self._keys["logging"] = self._keys["log-config"]

    def read(self, table: dict[str, Any]) -> None:
        for key, value in table.items():
            if key == "app":
                self._read_target(key, value)
            elif key in ("mount", "mounts"):
                self._read_mounts(key, value)
            elif key == "acme" and isinstance(value, dict):
                self._read_acme(value)
            else:
                self._read_setting(key, value)

    def _mistake(self, path: tuple[str | int, ...], message: str) -> None:
        self.mistakes.append((self._lines.of(*path), f"{self._origin(*path)}: {message}"))

    def _origin(self, *path: str | int) -> str:
        return f"{self._name}:{self._lines.of(*path)}"

    def _read_target(self, key: str, value: object) -> None:
        if isinstance(value, str) and value:
            self.target = (value, self._origin(key))
        else:
            self._mistake((key,), f'app is {described(value)}, and a string is wanted, such as "hello:app"')

    def _read_acme(self, table: dict[str, Any]) -> None:
        """Read the table ``[acme]``, in which each key is a setting."""
        for name, value in table.items():
            self._read_setting("acme" if name == "names" else f"acme-{name}", value, ("acme", name))

    def _read_setting(self, key: str, value: object, path: tuple[str, ...] = ()) -> None:
        """Read the setting with the name ``key`` at ``path`` in the file."""
        path = path or (key,)
        each = self._keys.get(key)
        if each is None:
            hint = self._hint(key)
            if isinstance(value, dict) and hint.endswith("there are"):
                hint = f"; settings stand at the top of this file, and its tables are {_TABLES}"
            self._mistake(path, f"there is no setting {key}{hint}")
        elif each.command_line_only:
            self._mistake(path, f"{key} belongs on the command line")
        elif each.name in self.given:
            self._mistake(path, f"{key} is there already, {self.given[each.name][1]} has it")
        else:
            origin = self._origin(*path)
            try:
                text = _text(each, value)
                each.value(text, origin)
                self.given[each.name] = (text, origin)
            except _WrongTypeError as error:
                self._mistake((*path, *error.path), f"{key} {error}")
            except UsageError as error:
                self.mistakes.append((self._lines.of(*path), str(error)))

    def _hint(self, key: str) -> str:
        dashed = key.replace("_", "-")
        if key in _OTHER_NAMES:
            return f"; write {_OTHER_NAMES[key]}"
        if dashed in ("kirsch", "tool"):
            return "; settings stand at the top of this file, in no table"
        if dashed.startswith("no-") and dashed[3:] in self._keys:
            return f"; write {dashed[3:]} = false"
        from kirsch.config import compat
        from kirsch.suggest import did_you_mean

        if hint := compat.key_hint(key):
            return f"; {hint}"
        return did_you_mean(dashed, [*(each.key for each in SETTINGS), "app", "mount", "logging"]) or (
            "; kirsch --help-all lists those there are"
        )

    def _read_mounts(self, key: str, value: object) -> None:
        """Read ``[[mount]]`` tables with all properties of a mount, or a table ``[mounts]`` of ``"/path" =
        "module:app"``."""
        taken: dict[tuple[str, str], str] = {(each.host, each.path): each.origin for each in self.mounts}
        if isinstance(value, dict) and key == "mounts":
            found = ((path, self._short_mount(path, app)) for path, app in value.items())
            pairs = [((key, path), mount) for path, mount in found if mount is not None]
        elif isinstance(value, list) and all(isinstance(table, dict) for table in value):
            pairs = [
                ((key, index), mount)
                for index, table in enumerate(value)
                for mount in self._mounts_of(key, index, table)
            ]
        else:
            wanted = 'tables are wanted: write [[mount]], or [mounts] with "/path" = "module:app"'
            self._mistake((key,), f"{key} is {described(value)}, and {wanted}")
            return
        for path, mount in pairs:
            place = (mount.host, mount.path)
            if place in taken:
                self._mistake(path, f"there is a mount {mount.place} already, {taken[place]} has it")
            taken[place] = mount.origin
            self.mounts.append(mount)

    def _short_mount(self, place: str, app: object) -> Mount | None:
        if not isinstance(app, str) or not app:
            self._mistake(
                ("mounts", place),
                f'{place} is {described(app)}, and an application is wanted, such as "shop:app"; [[mount]] takes more',
            )
            return None
        try:
            return parse_mount(place, app, self._origin("mounts", place))
        except ValueError as error:
            self._mistake(("mounts", place), str(error))
            return None

    def _mounts_of(self, name: str, index: int, table: dict[str, Any]) -> Iterator[Mount]:
        """Yield a mount for each host in the table."""
        before = len(self.mistakes)
        for key in table:
            if key not in _MOUNT_KEYS:
                from kirsch.suggest import did_you_mean

                hint = did_you_mean(key, _MOUNT_KEYS) or f"; it has {', '.join(_MOUNT_KEYS)}"
                self._mistake((name, index, key), f"a mount has no {key}{hint}")
        app, factory, path, hosts = (table.get(key) for key in ("app", "factory", "path", "host"))
        interface = table.get("interface", "auto")
        if not isinstance(app, str) or not app:
            self._mistake((name, index, "app"), 'a mount has an application, such as app = "shop:app"')
        if not isinstance(factory, (bool, type(None))):
            self._mistake((name, index, "factory"), f"factory is {described(factory)}, and true or false is wanted")
        if interface not in ("auto", *INTERFACES):
            wanted = f"and one of auto, {', '.join(INTERFACES)} is wanted"
            self._mistake((name, index, "interface"), f"interface is {interface!r}, {wanted}")
        if path is None and hosts is None:
            self._mistake((name, index), 'a mount has a path or a host, such as path = "/shop"')
        checked_path = self._checked(check_path, "/" if path is None else path, name, index, "path")
        hosts = hosts if isinstance(hosts, list) and hosts else [hosts]
        checked_hosts = ["" if host is None else self._checked(check_host, host, name, index, "host") for host in hosts]
        if len(self.mistakes) > before or not isinstance(app, str):
            return
        for host in checked_hosts:
            origin = self._origin(name, index)
            called_by = "" if interface == "auto" else str(interface)
            yield Mount(app, path=checked_path, host=host, factory=bool(factory), interface=called_by, origin=origin)

    def _checked(self, check: Callable[[str], str], value: object, name: str, index: int, key: str) -> str:
        if not isinstance(value, str):
            self._mistake((name, index, key), f"{key} is {described(value)}, and a string is wanted")
            return ""
        try:
            return check(value)
        except ValueError as error:
            self._mistake((name, index, key), f"{key}: {value!r} {error}")
            return ""


def _spellings(each: Setting) -> Iterator[str]:
    """Yield the names by which a file may set the setting: its long flags, with dashes or underscores."""
    for name in (each.key, *(flag[2:] for flag in each.flags if flag.startswith("--"))):
        yield name
        yield name.replace("-", "_")


class _WrongTypeError(Exception):
    """Raised for a value of the wrong type, with the wanted type. ``path`` leads from the key to the value inside."""

    def __init__(self, value: object, wanted: str, *path: str) -> None:
        inner = "".join(f"{part} " for part in path)
        super().__init__(f"{inner and 'of ' + inner}is {described(value)}, and {wanted} is wanted")
        self.path = path


def _text(each: Setting, value: object) -> str:
    """Return the value as the text of the setting's flag. Raises _WrongTypeError."""
    kind = each.kind
    if kind.table is not None and isinstance(value, dict):
        pairs = (f"{name}={_scalar(kind.table, content, name)}" for name, content in value.items())
        return kind.separator.join(pairs)
    if kind is STATIC and isinstance(value, list) and all(isinstance(table, dict) for table in value):
        return kind.separator.join(_static_pair(table) for table in value)
    if kind is CERTIFICATES and isinstance(value, list) and all(isinstance(table, dict) for table in value):
        import json

        return kind.separator.join(json.dumps(table, default=str) for table in value)
    if kind is LOG_CONFIG and isinstance(value, dict):
        import json

        try:
            return json.dumps(value)
        except TypeError:
            raise _WrongTypeError(value, "a table without dates and times") from None
    if each.is_repeatable and isinstance(value, list):
        for item in value:
            if not isinstance(item, str):
                raise _WrongTypeError(item, "an array of strings")
        return kind.separator.join(value)
    return _scalar(kind, value)


def _static_pair(table: dict[str, Any]) -> str:
    """Convert one ``[[static]]`` table to the text of ``--static``: ``PATH=DIRECTORY``. Raises _WrongTypeError."""
    wanted = 'path = "/static" with directory = "./public"'
    if table.keys() != {"path", "directory"} or not all(isinstance(value, str) for value in table.values()):
        raise _WrongTypeError(table, wanted)
    if "=" in table["path"]:
        raise _WrongTypeError(table["path"], "a path without =")
    return f"{table['path']}={table['directory']}"


def _scalar(kind: Kind[Any], value: object, *path: str) -> str:
    # In Python, True is an int too.
    if not isinstance(value, kind.toml) or (isinstance(value, bool) and bool not in kind.toml):
        raise _WrongTypeError(value, kind.wanted, *path)
    if isinstance(value, bool):
        return (kind.choices or ("yes", "no"))[not value]
    return str(value)


def described(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the string "{value}"' if len(value) < 40 else "a string"
    if isinstance(value, list):
        return "an array"
    return "a table" if isinstance(value, dict) else "a date or a time"


_KEY = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"


class Lines:
    """The line numbers of the keys in a valid TOML text, which the parser does not report. A path is relative to the
    table ``prefix``; in an array of tables it includes the index of the table. A key without its own line, as in an
    inline table, has the line of the table.
    """

    def __init__(self, text: str, prefix: tuple[str, ...] = ()) -> None:
        self._lines: dict[tuple[str | int, ...], int] = {}
        self._prefix = prefix
        self._scan(text)

    def of(self, *path: str | int) -> int:
        whole: tuple[str | int, ...] = (*self._prefix, *path)
        while whole:
            if whole in self._lines:
                return self._lines[whole]
            whole = whole[:-1]
        return 1

    def _scan(self, text: str) -> None:
        text = text.replace("\r\n", "\n")
        statement = re.compile(
            rf"[ \t\n]*(?:\#[^\n]*|(?P<open>\[\[?)[ \t]*(?P<table>{_KEYS})[ \t]*\]\]?|(?P<key>{_KEYS})[ \t]*=)"
        )
        # A value can span lines within brackets and within strings with triple quotes.
        token = re.compile(
            r'''
            """(?:\\.|(?!""").)*"{3,5} | \'\'\'(?:(?!\'\'\').)*'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' |
            \#[^\n]* | [\[{] | [\]}] | \n | .
            ''',
            re.DOTALL | re.VERBOSE,
        )
        position = line = 0
        table: tuple[str | int, ...] = ()
        counts: dict[tuple[str | int, ...], int] = {}
        while (match := statement.match(text, position)) is not None:
            start = match.start("table") if match["table"] else match.start("key")
            if match["table"]:
                line = text.count("\n", 0, start) + 1
                table = self._numbered(_parts(match["table"]), counts)
                if match["open"] == "[[":
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, counts[table])
                self._note(table, line)
                position = match.end()
            elif match["key"]:
                line = text.count("\n", 0, start) + 1
                self._note((*table, *_parts(match["key"])), line)
                position = _end_of_value(text, match.end(), token)
            else:
                position = match.end()

    def _numbered(self, parts: list[str], counts: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
        """Insert array indexes into a path: ``[mount.x]`` after a ``[[mount]]`` belongs to the last one."""
        path: tuple[str | int, ...] = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            if path in counts and index < len(parts) - 1:
                path = (*path, counts[path])
        return path

    def _note(self, path: tuple[str | int, ...], line: int) -> None:
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], line)


def _parts(keys: str) -> list[str]:
    return [key[1:-1] if key[0] in "\"'" else key for key in re.findall(_KEY, keys)]


def _end_of_value(text: str, position: int, token: re.Pattern[str]) -> int:
    depth = 0
    while (match := token.match(text, position)) is not None:
        position = match.end()
        if match[0] in ("[", "{"):
            depth += 1
        elif match[0] in ("]", "}"):
            depth -= 1
        elif match[0] == "\n" and depth == 0:
            break
    return position
