"""The adopted settings, each with its origin, and notes on options that are not adopted."""

from __future__ import annotations

import os
import re

from kirsch.config.compat.conversion import BY_HAND, LEFT_OUT, LOOK, Conversion, Note
from kirsch.config.schema import BY_NAME, SETTINGS
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.config.setting import Setting

VARIABLE = re.compile(r"\$(?:\w+|\{[^}]*\}|\()")
"""A variable of the environment, or a command, that a shell replaces when the server starts."""

_FLAGS: dict[str, Setting] = {flag: each for each in SETTINGS for flag in (*each.flags, *each.negations)}

_PORT = re.compile(r"(?:0\.0\.0\.0)?:\$\{?PORT\}?")

# An origin that already has the line of a file.
_LINE = re.compile(r"[^\s:]+:\d+")

# Equivalents that are only advice: the server serves as before without them.
_ADVICE = (
    "use the kirsch of that environment",
    "use kirsch top",
    "use kirsch profile",
    "use logrotate",
    "use signals",
    "use the file",
    "use the object",
    "use the module",
    "use options of a systemd unit",
    "use SIGUSR1",
    "--user and --group, whose",
    "--header-timeout, --body-timeout",
    "--body-timeout and --write-timeout",
    "--error-logfile and --access-logfile",
    "--metrics-bind",
    "--process-name; the role",
    "--timeout and --graceful-timeout",
    "use an import",
)


class AdoptError(Exception):
    """Raised if the configuration cannot be adopted. The text is a sentence."""


class Adoption:
    """The settings of the new server. ``values`` are texts by names of settings, each with its origin.

    ``arguments`` are flags with variables, which stay on the command line; ``shims`` are the contents of further files
    by name.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.app: str | None = None
        self.app_origin = ""
        self.values: dict[str, list[tuple[str, str]]] = {}
        self.mounts: list[tuple[str, str, str]] = []
        self.arguments: list[str] = []
        self.notes: list[tuple[str, Note]] = []
        self.shims: dict[str, str] = {}
        self.files: list[str] = []
        self.directory = ""
        self.command: list[str] = []
        self.before: list[str] = []
        self.gunicorn_file = ""

    def note(self, origin: str, option: str, result: str, say: str) -> None:
        """Add a note for the reader."""
        self.notes.append((origin, Note(option, result, say)))

    @property
    def by_hand(self) -> list[tuple[str, Note]]:
        """The notes about manual work."""
        return [pair for pair in self.notes if pair[1].result == BY_HAND]

    def add(self, name: str, value: str, origin: str) -> None:
        """Set ``name``, or add a value if the setting can have several."""
        if VARIABLE.search(value):
            self._set_at_start(name, value, origin)
            return
        each = BY_NAME[name]
        try:
            each.value(value, origin)
        except UsageError as error:
            self.note(origin, name, BY_HAND, str(error).partition(": ")[2])
            return
        if each.is_repeatable:
            self.values.setdefault(name, []).append((value, origin))
        else:
            self.values[name] = [(value, origin)]

    def has(self, name: str) -> bool:
        """Return whether a setting is set, in the file or on the command line."""
        flags = tuple(f"{flag}=" for flag in BY_NAME[name].flags)
        return name in self.values or any(word.startswith(flags) for word in self.arguments)

    def _set_at_start(self, name: str, value: str, origin: str) -> None:
        if name == "bind" and _PORT.fullmatch(value):
            self.note(origin, value, LEFT_OUT, "Kirsch listens on 0.0.0.0:$PORT by itself")
            return
        default = re.fullmatch(r"\$\{WEB_CONCURRENCY(?::?-(\d+))?\}|\$WEB_CONCURRENCY", value)
        if name == "workers" and default:
            if default[1]:
                self.values[name] = [(default[1], f"{origin}; WEB_CONCURRENCY takes precedence")]
            else:
                self.note(origin, value, LEFT_OUT, "Kirsch reads WEB_CONCURRENCY by itself")
            return
        self.arguments.append(f"{BY_NAME[name].flags[-1]}={value}")

    def take(self, conversion: Conversion, origin: str) -> None:
        """Take the settings and notes of a converted command line or file of the old server."""
        for each in conversion.settings:
            setting = _FLAGS[each.flag]
            source = each.origin if _LINE.match(each.origin) else f"{origin}: {each.origin}"
            if each.value is not None:
                self.add(setting.name, _value(setting, each.value), source)
            elif each.flag in setting.negations:
                self.values[setting.name] = [("no", source)]
            else:
                self.values[setting.name] = [("yes", source)]
        if conversion.application:
            self.app, self.app_origin = conversion.application, origin
        for note in conversion.notes:
            if note.result == BY_HAND and note.say.startswith(_ADVICE):
                note.result = LOOK
            if note.option == "--proxy-headers":
                note.result, note.say = LEFT_OUT, "trusted-proxies has the peers whose fields are read"
            if note.option and (note.needs_reader or note.result == LEFT_OUT):
                self.notes.append((origin, note))

    def finish(self, conversion_given: set[str]) -> None:
        """Add defaults of the old server that differ from Kirsch's, and remove settings that have no effect without
        others."""
        self._add_defaults(conversion_given)
        for name in list(self.values):
            needs = BY_NAME[name].needs
            if needs and not self.has(needs):
                [(value, origin), *_] = self.values.pop(name)
                self.note(origin, f"{name} {value}", LEFT_OUT, f"it has no meaning without {needs}")
        if self.app is None and not self.mounts:
            raise AdoptError("it names no application: no module:app, wsgi_app, module or script was found")

    def _add_defaults(self, given: set[str]) -> None:
        origin = f"{self.server}'s default"
        is_asgi = self.server in ("uvicorn", "hypercorn", "granian") or self._is_asgi_worker
        if self.server in ("gunicorn", "uWSGI") and not is_asgi and not self.has("threads"):
            is_green = any(value == "gevent" for value, _ in self.values.get("driver", []))
            if not is_green and not given & {"--gevent", "--async"}:
                self.add("threads", "1", f"{origin}: a process has one request at a time")
        # With threads or greenlets, gunicorn's timeout is not a limit for requests.
        is_sync = [value for value, _ in self.values.get("threads", [])] == ["1"] and not self.has("driver")
        if self.server == "gunicorn" and is_sync and not self.has("timeout"):
            self.add("timeout", "30", f"{origin} for its sync worker")
        trusts = self.server in ("gunicorn", "uvicorn") and "--no-proxy-headers" not in given
        if trusts and not self.has("trusted_proxies"):
            peers = "127.0.0.1,::1,unix" if self._has_unix_socket else "127.0.0.1,::1"
            self.add("trusted_proxies", peers, f"{origin}: X-Forwarded-* of these peers is read, of others removed")
        if self.server == "uvicorn" and not given & {"--no-access-log"} and not self.has("access_logfile"):
            self.add("access_logfile", "-", origin)

    @property
    def _is_asgi_worker(self) -> bool:
        return any("Uvicorn" in note.option or "uvicorn" in note.option for _, note in self.notes) or "asgi" in (
            self.app or ""
        )

    @property
    def _has_unix_socket(self) -> bool:
        return any("unix:" in value for value, _ in self.values.get("bind", []))

    def start_command(self) -> str:
        """Return the command that starts the new server."""
        words = [
            *self.before,
            "kirsch",
            *(word if not re.search(r"[\s;&|]", word) else f'"{word}"' for word in self.arguments),
        ]
        if self.app is not None and VARIABLE.search(self.app):
            words.append(f'"{self.app}"')
        return " ".join(words)


def line_of(text: str, pattern: str, after: int = 0) -> int:
    """Return the number of the first line after line ``after`` that matches ``pattern``, from 1; 0 if there is none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if number > after and re.search(pattern, line)), 0)


def place(path: str, line: int = 0) -> str:
    """Return ``file:line`` for display."""
    name = os.path.basename(path)
    return f"{name}:{line}" if line else name


def _value(setting: Setting, value: str) -> str:
    """Return a value in the form of Kirsch: other servers accept other spellings of some words."""
    if setting.name == "log_level":
        return {"warn": "warning", "trace": "debug", "fatal": "critical"}.get(value.lower(), value.lower())
    if setting.name == "bind" and value and not VARIABLE.search(value) and re.fullmatch(r"[\w.-]*[a-z.][\w.-]*", value):
        return f"{value}:8000"  # gunicorn's default port
    if setting.name == "interface":
        return value.removesuffix("nl").removesuffix("3")
    return value
