"""Every setting, declared once.

A setting is one line of :class:`Settings`: from it come the command line option and its help, the environment
variable ``KIRSCH_<NAME>``, the check of its value, the typed attribute, and its entry in docs/reference/settings.md
(``scripts/settings_page.py``). Flags win over the environment, the environment over the default.

Two libraries are absent here for what they would add to every start of the server. On CPython 3.13, with a bare
interpreter at 10.5 ms, importing click takes 30 ms and argparse 7; dataclasses take 10 more than the descriptor below,
because they import inspect. All of Kirsch, from the command to the first answer, takes 13 ms beyond importing the
application, of the 60 that it may take.
"""

from __future__ import annotations

import argparse
import os

from kirsch.drivers import check_name
from kirsch.options import DEFAULT_DRIVER, DEFAULT_THREADS, path_limits
from kirsch.sockets import DEFAULT_BACKLOG, DEFAULT_BIND, parse_bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")

# In the order in which help and reference page show them.
SECTIONS = {
    "Application": "Where the application is found.",
    "Sockets": "Where it is served.",
    "Requests": "How the application is called: where, how often at a time, and how long a request may take.",
    "Time": "How long a peer may take. Durations are written 90, 90s, 5m, 1h30m or 500ms; a bare number is seconds.",
    "Size": "How much a peer may send. Sizes are written 65536, 64k, 1MiB or 1g; k, m and g are powers of 1024.",
    "Response": "What is added to responses.",
    "Logs": "What is written where.",
    "Instead of serving": "Look at the configuration and leave.",
}

# Flags of other servers, and what to say to fingers that know them.
_FOREIGN = {
    "--host": "write --bind HOST:PORT",
    "--port": "write --bind HOST:PORT",
    "-p": "write --bind HOST:PORT",
    "--uds": "write --bind unix:PATH",
    "--app-dir": "write --chdir",
    "--working-dir": "write --chdir",
    "--working-directory": "write --chdir",
    "--access-log": "write --access-logfile -",
    "-t": "write --timeout; it is for each request",
    "-k": "write --driver threads or --driver gevent",
    "--worker-class": "write --driver threads or --driver gevent",
    "--request-timeout": "write --timeout",
    "--no-request-buffering": "write --request-buffering off",
    "--timeout-keep-alive": "write --keep-alive",
    "--timeout-graceful-shutdown": "write --graceful-timeout",
    "--workers-kill-timeout": "write --graceful-timeout",
    "--limit-concurrency": "write --worker-connections",
    "--backpressure": "write --worker-connections",
    "--workers": "one process serves for now",
    "-w": "one process serves for now",
    "--blocking-threads": "write --threads",
    "--worker-threads": "write --threads",
    "--reload": "restart the server to load changed code for now",
}


class UsageError(Exception):
    """The command line or the environment asks for something that there is not. One line, exit status 2."""


class Setting:
    """A descriptor: on the class itself, on an instance the value. ``default`` is text, parsed like any other."""

    def __init__(
        self,
        section: str,
        flags: tuple[str, ...],
        metavar: str,
        parse: Callable[[str], Any],
        default: str,
        prose: str,
    ) -> None:
        assert section in SECTIONS
        self.name = ""
        self.section = section
        self.flags = flags
        self.metavar = metavar
        self.parse = parse
        self.default = default
        self.prose = prose

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Settings | None, owner: type | None = None) -> Any:
        return self if instance is None else instance._values[self.name]

    def __set__(self, instance: Settings, value: object) -> NoReturn:
        raise AttributeError(f"settings are read once; {self.name} cannot be set")

    @property
    def variable(self) -> str:
        return f"KIRSCH_{self.name.upper()}"

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands alone, without a value."""
        return self.parse is parse_switch

    @property
    def is_repeatable(self) -> bool:
        return self.parse in (parse_binds, parse_path_limits)

    @property
    def negations(self) -> tuple[str, ...]:
        """The flags that turn a switch off, which its variable may have turned on."""
        return tuple(flag.replace("--", "--no-", 1) for flag in self.flags if self.is_switch and flag[:2] == "--")


def parse_duration(text: str) -> float:
    """Seconds, from ``90``, ``90s``, ``5m``, ``1h30m`` or ``500ms``. Raises ValueError."""
    import re

    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}(?:s|$))?(?:{number}ms)?", text.strip(), re.ASCII)
    if not text.strip() or match is None:
        raise ValueError("is not a duration; write 90, 90s, 5m, 1h30m or 500ms")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    duration = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    if duration > 366 * 86400:
        raise ValueError("is more than a year; 0 means no limit")
    return duration


def parse_size(text: str) -> int:
    """Bytes, from ``65536``, ``64k``, ``1MiB`` or ``1g``. Raises ValueError."""
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise ValueError("is not a size; write 65536, 64k, 1MiB or 1g")
    size = float(match[1]) * 1024 ** " kmgt".index((match[2] or " ").lower())
    if size != int(size):
        raise ValueError("is not a whole number of bytes")
    if size >= 2**53:
        raise ValueError("is more than any request has")
    return int(size)


def parse_count(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text.strip()) > 15:
        raise ValueError("is not a whole number")
    return int(text)


def parse_switch(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("is neither yes nor no; write 1 or 0")


def parse_on_off(text: str) -> bool:
    """A switch that is on unless somebody turns it off, and so takes a value."""
    try:
        if text.strip():
            return parse_switch(text)
    except ValueError:
        pass
    raise ValueError("is neither on nor off")


def parse_driver(text: str) -> str:
    name = text.strip()
    check_name(name)
    return name


def parse_path_limits(text: str) -> tuple[tuple[str, float], ...]:
    """``/reports=300s,/upload=0`` as (prefix, seconds). Raises ValueError."""
    limits = []
    for part in filter(None, map(str.strip, text.split(","))):
        prefix, equals, duration = part.rpartition("=")
        if not equals:
            raise ValueError(f"{part!r} lacks a duration; write {part}=300s")
        try:
            limits.append((prefix.strip(), parse_duration(duration)))
        except ValueError as error:
            raise ValueError(f"{part!r}: {duration!r} {error}") from None
    return path_limits(limits)


def parse_binds(text: str) -> tuple[str, ...]:
    binds = tuple(part.strip() for part in text.split(",") if part.strip())
    if not binds:
        raise ValueError("names no address; write 127.0.0.1:8000 or unix:/run/app.sock")
    for bind in binds:
        parse_bind(bind)
    return binds


def parse_paths(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_path(text: str) -> str:
    if "\0" in text:
        raise ValueError("is not a path")
    return text


def parse_field_value(text: str) -> str:
    """A header field's value (RFC 9110, 5.5), in visible ASCII and single spaces; empty for none."""
    if any(not " " <= character <= "~" for character in text) or text != text.strip():
        raise ValueError("cannot be a header's value; write visible ASCII")
    return text


def parse_log_format(text: str) -> str:
    if not text.strip() or any(character in text for character in "\r\n\0"):
        raise ValueError("is not a format; write combined, json, or atoms such as '%(h)s %(r)s %(s)s'")
    if "%" not in text:
        return _one_of("combined", "json")(text)
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"is not one of {', '.join(words)}{_did_you_mean(word, words)}")
        return word

    return parse


def _at_least(least: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    def parse_checked(text: str) -> int:
        value = parse(text)
        if value < least:
            raise ValueError(f"is too little; {least} is the least")
        return value

    return parse_checked


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def setting(section: str, flags: str, metavar: str, parse: Callable[[str], T], default: str, prose: str) -> T:
    """A :class:`Setting`, typed as its value, so that mypy holds the annotation and the parser together."""
    return Setting(section, tuple(flags.split()), metavar, parse, default, prose)  # type: ignore[return-value]


class Settings:
    """What the command line, the environment and the defaults come to. Cannot be changed."""

    __slots__ = ("_texts", "_values", "origins", "target")

    bind: tuple[str, ...] = setting(
        "Sockets", "-b --bind", "ADDRESS", parse_binds, DEFAULT_BIND,
        "Address to listen on: HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH. Repeat it, or separate several with commas. "
        "Port 0 takes a free one. A name is served on each of its addresses, an empty host on all of the machine's.",
    )  # fmt: skip
    backlog: int = setting(
        "Sockets", "--backlog", "COUNT", _at_least(1, parse_count), str(DEFAULT_BACKLOG),
        "Connections that the kernel keeps waiting until they are accepted. The kernel caps it at net.core.somaxconn. "
        "More of them costs memory only while they wait; fewer turn a burst away.",
    )  # fmt: skip
    worker_connections: int = setting(
        "Sockets", "--worker-connections", "COUNT", _at_least(1, parse_count), "65536",
        "Open connections at most; further ones wait in the backlog. An idle one costs a file descriptor and less "
        "than 1 KiB beside what the kernel keeps for it.",
    )  # fmt: skip

    driver: str = setting(
        "Requests", "--driver", "NAME", parse_driver, DEFAULT_DRIVER,
        "threads or gevent. Threads serve any application. gevent runs each request in a greenlet, for applications "
        "that wait much for others; it patches the standard library before the application is imported, and needs "
        "pip install 'kirsch[gevent]'.",
    )  # fmt: skip
    threads: int = setting(
        "Requests", "--threads", "COUNT", _at_least(1, parse_count), str(DEFAULT_THREADS),
        "Calls of the application at a time, with the driver threads. A thread is started when a call needs it. 1 "
        "calls in the main thread, one after another, for an application that is not thread-safe. More threads wait "
        "for more at a time, and cost memory and, where they compute, patience.",
    )  # fmt: skip
    timeout: float = setting(
        "Requests", "--timeout", "DURATION", parse_duration, "0",
        "How long a request may be in the application, each for itself; gunicorn's limit of this name is for a whole "
        "worker. At the limit its stack is reported, kirsch.RequestTimeout is raised in it, and its client gets 504; "
        "others go on. A call that does not end within --graceful-timeout after that stops the server, with exit "
        "status 75. Time in which a slow client holds up the response is left out. 0 sets no limit.",
    )  # fmt: skip
    timeout_paths: tuple[tuple[str, float], ...] = setting(
        "Requests", "--timeout-path --timeout-paths", "PREFIX=DURATION", parse_path_limits, "",
        "Another --timeout for a path and all below it: /reports=300s is for /reports and /reports/x, and not for "
        "/reportsx. Repeat it, or separate several with commas; the longest prefix wins. 0 sets no limit there.",
    )  # fmt: skip
    queue: int = setting(
        "Requests", "--queue", "COUNT", _at_least(1, parse_count), "1024",
        "Requests that wait for a thread at most. While it is full nothing more is read, so clients wait in the "
        "kernel's buffers; nothing is dropped.",
    )  # fmt: skip
    queue_timeout: float = setting(
        "Requests", "--queue-timeout", "DURATION", parse_duration, "60s",
        "How long a request may wait for a thread; then it is answered with 503 and Retry-After, and never run. 0 "
        "waits for ever. With --threads 1 nobody reads while a call runs, so requests wait in the kernel, uncounted.",
    )  # fmt: skip
    request_buffering: bool = setting(
        "Requests", "--request-buffering", "on|off", parse_on_off, "on",
        "Whether a request body is received as a whole before the application is called, so that a slow client holds "
        "no thread. off calls it after the head and hands the body over as it arrives.",
    )  # fmt: skip

    chdir: str = setting(
        "Application", "--chdir", "DIRECTORY", parse_path, "",
        "Change to this directory first. It is where the module is looked for, and where relative paths begin.",
    )  # fmt: skip
    pythonpath: tuple[str, ...] = setting(
        "Application", "--pythonpath", "DIRECTORIES", parse_paths, "",
        "Directories, separated by commas, to look for modules in after the current one.",
    )  # fmt: skip
    factory: bool = setting(
        "Application", "--factory", "", parse_switch, "no",
        "The name is that of a function which returns the application, as if it were written module:function().",
    )  # fmt: skip

    keep_alive: float = setting(
        "Time", "--keep-alive", "DURATION", parse_duration, "75s",
        "How long a connection may rest between two requests. A longer time saves clients a handshake and keeps more "
        "idle connections open; stay above the idle time of a proxy in front. 0 never closes them.",
    )  # fmt: skip
    header_timeout: float = setting(
        "Time", "--header-timeout", "DURATION", parse_duration, "15s",
        "How long a request head may take from its first byte to its last; then 408. 0 waits for ever, and lets a "
        "slow peer hold a connection.",
    )  # fmt: skip
    body_timeout: float = setting(
        "Time", "--body-timeout", "DURATION", parse_duration, "30s",
        "How long a request body may stand still between two pieces; then 408. 0 waits for ever.",
    )  # fmt: skip
    write_timeout: float = setting(
        "Time", "--write-timeout", "DURATION", parse_duration, "30s",
        "How long a client may take nothing of its response; then the connection is cut. 0 waits for ever.",
    )  # fmt: skip
    min_rate: int = setting(
        "Time", "--min-rate", "BYTES", parse_size, "500",
        "Bytes per second that a peer must send of a body, or take of a response, over time. 0 asks for none, and lets "
        "a peer that drips hold a connection and its buffers.",
    )  # fmt: skip
    graceful_timeout: float = setting(
        "Time", "--graceful-timeout", "DURATION", parse_duration, "30s",
        "What SIGTERM leaves to the requests in flight before they are cut. 0 cuts at once. SIGINT and SIGQUIT leave "
        "one second.",
    )  # fmt: skip

    limit_request_line: int = setting(
        "Size", "--limit-request-line", "BYTES", _at_least(64, parse_size), "8190",
        "A request line at most; then 414.",
    )  # fmt: skip
    limit_request_fields: int = setting(
        "Size", "--limit-request-fields", "COUNT", _at_least(1, parse_count), "100",
        "Header fields of a request at most; then 431.",
    )  # fmt: skip
    limit_request_field_size: int = setting(
        "Size", "--limit-request-field-size --limit-request-field_size", "BYTES", _at_least(64, parse_size), "8190",
        "One header field at most, name and value; then 431.",
    )  # fmt: skip
    limit_request_head: int = setting(
        "Size", "--limit-request-head", "BYTES", _at_least(256, parse_size), "65536",
        "Request line and header fields together at most; then 431. Each connection that sends a head may hold this "
        "much memory.",
    )  # fmt: skip
    limit_request_body: int = setting(
        "Size", "--limit-request-body", "BYTES", parse_size, "1GiB",
        "A request body at most; then 413. Each may take this much of the temporary directory's disc.",
    )  # fmt: skip
    body_memory: int = setting(
        "Size", "--body-memory", "BYTES", parse_size, "256KiB",
        "What of a request body is kept in memory; the whole of a longer one goes to a temporary file. More saves "
        "disc traffic and costs memory on each connection that uploads.",
    )  # fmt: skip

    server_header: str = setting(
        "Response", "--server-header", "TEXT", parse_field_value, "kirsch",
        "The Server field, where the application sets none. Empty omits it.",
    )  # fmt: skip

    access_logfile: str = setting(
        "Logs", "--access-logfile", "FILE", parse_path, "",
        "Where a line for each request goes; - is stdout, empty is nowhere. SIGUSR1 opens it again, after a rotation.",
    )  # fmt: skip
    access_logformat: str = setting(
        "Logs", "--access-logformat", "FORMAT", parse_log_format, "combined",
        "combined (Apache's), json, or a text with gunicorn's atoms, such as '%(h)s \"%(r)s\" %(s)s %(D)s'.",
    )  # fmt: skip
    access_logger: bool = setting(
        "Logs", "--access-logger", "", parse_switch, "no",
        "Hand each access line to the logger kirsch.access too, for handlers of Python's logging; to stdout where it "
        "has none. It costs several microseconds of Python for each request, which --access-logfile does not.",
    )  # fmt: skip
    error_logfile: str = setting(
        "Logs", "--error-logfile --log-file", "FILE", parse_path, "-",
        "Where errors go, the application's tracebacks among them; - is stderr. SIGUSR1 opens it again.",
    )  # fmt: skip
    log_level: str = setting(
        "Logs", "--log-level", "LEVEL", _one_of("debug", "info", "warning", "error", "critical"), "info",
        "The least that is reported: debug, info, warning, error or critical.",
    )  # fmt: skip

    check_config: bool = setting(
        "Instead of serving", "--check-config", "", parse_switch, "no",
        "Import the application, say whether it can be served, and exit.",
    )  # fmt: skip
    print_config: bool = setting(
        "Instead of serving", "--print-config", "", parse_switch, "no",
        "Print each setting with its value and where that comes from, and exit.",
    )  # fmt: skip

    def __init__(self, given: Mapping[str, tuple[str, str]], target: str | None = None) -> None:
        """``given`` maps names to (text, origin); the rest keeps its default. Raises UsageError."""
        texts = {each.name: given.get(each.name, (each.default, "default")) for each in SETTINGS}
        put = object.__setattr__
        put(self, "target", target)
        put(self, "origins", {name: origin for name, (_, origin) in texts.items()})
        put(self, "_texts", {name: text for name, (text, _) in texts.items()})
        put(self, "_values", {each.name: _value(each, *texts[each.name]) for each in SETTINGS})

    if TYPE_CHECKING:
        target: str | None
        origins: dict[str, str]
        _texts: dict[str, str]
        _values: dict[str, Any]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are read once; {name} cannot be set")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def table(self) -> str:
        """Each setting, its value as it was written, and where that comes from: the answer of ``--print-config``."""
        width = max(map(len, self._texts))
        text_width = max(len(text) for text in self._texts.values())
        return "\n".join(
            f"{name:{width}}  {text:{text_width}}  {self.origins[name]}" for name, text in self._texts.items()
        )


SETTINGS: tuple[Setting, ...] = tuple(
    sorted(
        (each for each in vars(Settings).values() if isinstance(each, Setting)),
        key=lambda each: list(SECTIONS).index(each.section),
    )
)


def _value(each: Setting, text: str, origin: str) -> Any:
    try:
        return each.parse(text)
    except ValueError as error:
        message = str(error)
        # Addresses quote the one that is wrong; the others tell only what is wrong with the text.
        if not message.startswith(("'", '"')):
            message = f"{text!r} {message}"
        raise UsageError(f"{origin}: {message}") from None


def read(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the command line (without the program's name) and the environment. Raises UsageError."""
    parsed, rest = _parser().parse_known_args(argv)
    targets = _targets(rest)
    given: dict[str, tuple[str, str]] = {}
    for each in SETTINGS:
        flag_value = getattr(parsed, each.name, None)
        if flag_value is not None:
            given[each.name] = flag_value
        elif each.variable in environ:
            given[each.name] = (environ[each.variable], each.variable)
    return Settings(given, targets[0] if targets else None)


def _targets(rest: list[str]) -> list[str]:
    """The application among what argparse did not know; whatever else is there is a mistake."""
    flags_end = rest.index("--") if "--" in rest else len(rest)
    for word in rest[:flags_end]:
        if word.startswith("-") and word != "-":
            raise UsageError(_unknown_flag(word.partition("=")[0]))
    targets = rest[:flags_end] + rest[flags_end + 1 :]
    if len(targets) > 1:
        raise UsageError(f"one application is served, and there are {len(targets)}: {' '.join(targets)}")
    return targets


def _unknown_flag(flag: str) -> str:
    if flag in _FOREIGN:
        return f"there is no flag {flag}; {_FOREIGN[flag]}"
    known = [known for each in SETTINGS for known in (*each.flags, *each.negations)] + ["--help", "--version"]
    hint = _did_you_mean(flag, known) if flag.startswith("--") else ""
    return f"there is no flag {flag}{hint or '; kirsch --help lists those there are'}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("expected one argument", "a value is missing")
        raise UsageError(message.replace("ignored explicit argument", "it stands alone, without"))


class _Formatter(argparse.HelpFormatter):
    """argparse makes one for each option; left to find the width itself, it imports shutil and all compressors."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class _Take(argparse.Action):
    """Keeps (text, flag) for a setting: the text to be parsed as the environment's is, the flag as its origin."""

    def __init__(self, *, each: Setting, switch: str = "", **kwargs: Any) -> None:
        super().__init__(nargs=0 if each.is_switch else None, **kwargs)
        self._each = each
        self._switch = switch

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, flag: str | None = None
    ) -> None:
        text = self._switch or str(values)
        before = getattr(namespace, self.dest)
        if before is not None and self._each.is_repeatable:
            text = f"{before[0]},{text}"
        setattr(namespace, self.dest, (text, flag))


def _parser() -> argparse.ArgumentParser:
    """The options, without help texts for them and without the application, which argparse would take for missing
    when options come first (nargs="?")."""
    parser = _Parser(prog="kirsch", add_help=False, allow_abbrev=False, formatter_class=_Formatter)
    for each in SETTINGS:
        switch = "yes" if each.is_switch else ""
        parser.add_argument(*each.flags, dest=each.name, action=_Take, each=each, switch=switch)
        if each.is_switch:
            parser.add_argument(*each.negations, dest=each.name, action=_Take, each=each, switch="no")
    return parser


def help_text() -> str:
    """What ``kirsch --help`` prints: every setting by section, with its default and its variable."""
    import shutil
    import textwrap

    width = max(60, min(shutil.get_terminal_size().columns, 100))
    wrap = textwrap.TextWrapper(
        width, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )
    lines = [
        "usage: kirsch [options] module:app",
        "",
        "Serve the WSGI application `app` of `module` over HTTP/1.1.",
        "",
        "  kirsch hello:app                     the object app of hello.py, on 127.0.0.1:8000",
        "  kirsch hello                         the same: app, or else application",
        "  kirsch 'hello:create_app()'          what this function returns",
        "  kirsch -b :8000 -b unix:/run/h.sock --access-logfile - hello:app",
        "",
        "Each option has an environment variable, named in brackets; options win over variables.",
    ]
    for section, prose in SECTIONS.items():
        lines += ["", f"{section}:", *textwrap.wrap(prose, width, initial_indent="  ", subsequent_indent="  "), ""]
        for each in SETTINGS:
            if each.section == section:
                lines.append("  " + " ".join((", ".join(each.flags), each.metavar)).rstrip())
                default = "" if each.is_switch or not each.default else f"default {each.default}; "
                lines += wrap.wrap(f"{each.prose} [{default}{each.variable}]")
    lines += ["", "Help:", "", "  -h, --help", *wrap.wrap("Print this, and exit.")]
    lines += ["  --version", *wrap.wrap("Print the versions of Kirsch and Python, and exit.")]
    return "\n".join(lines)
