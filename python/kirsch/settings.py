"""Every setting, declared once.

A setting is one line of :class:`Settings`: from it come the command line option and its help, the environment
variable ``KIRSCH_<NAME>``, the key of the settings file, the check of its value, the typed attribute, and its entry in
docs/reference/settings.md (``scripts/settings_page.py``). ``kirsch.configuration`` reads them.

Libraries are absent here for what they would add to every start of the server. On CPython 3.13, with a bare
interpreter at 10.5 ms, importing click takes 30 ms and argparse 7; dataclasses take 10 more than the descriptor below,
because they import inspect. All of Kirsch, from the command to the first answer, takes 13 ms beyond importing the
application, of the 60 that it may take.
"""

from __future__ import annotations

from kirsch.options import DEFAULT_DRIVER, DEFAULT_THREADS
from kirsch.sockets import DEFAULT_BACKLOG, DEFAULT_BIND
from kirsch.values import (
    Bounded,
    OneOf,
    parse_account,
    parse_binds,
    parse_count,
    parse_driver,
    parse_duration,
    parse_environment,
    parse_field_value,
    parse_function,
    parse_log_config,
    parse_log_format,
    parse_mounts,
    parse_name,
    parse_on_off,
    parse_optional_binds,
    parse_path,
    parse_path_limits,
    parse_paths,
    parse_pid_file,
    parse_size,
    parse_switch,
    parse_umask,
    parse_url_path,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, TypeVar

    from kirsch.mounts import Mount

    T = TypeVar("T")

# In the order in which help and reference page show them.
SECTIONS = {
    "Application": "Where the application and its settings are found.",
    "Sockets": "Where it is served.",
    "Workers": "How many processes serve, and how new ones take over from old ones.",
    "Limits of a worker": "When a worker is replaced, and how long each step may take. Its successor is ready first.",
    "Process": "What the processes are in the eyes of the system.",
    "Outside view": "What can be seen without asking the application.",
    "Requests": "How the application is called: where, how often at a time, and how long a request may take.",
    "Time": "How long a peer may take. Durations are written 90, 90s, 5m, 1h30m or 500ms; a bare number is seconds.",
    "Size": "How much a peer may send. Sizes are written 65536, 64k, 1MiB or 1g; k, m and g are powers of 1024.",
    "Response": "What is added to responses.",
    "Logs": "What is written where.",
    "Instead of serving": "Look at the configuration and leave.",
}

# Each worker is a slot in the scoreboard, and far more than a machine has processors for.
_WORKERS_MAX = 256


COMMAND_LINE = "command line"
"""The origin of what no flag names: the application."""


PORT_VARIABLE = "PORT"
"""The variable with which a platform such as Heroku says where to listen; used where nothing else names an address."""


class UsageError(Exception):
    """The command line, the environment or the settings file asks for something that there is not. Exit status 2.

    One line for each mistake. ``settings`` are those that were understood, with defaults for the rest, where the
    mistakes leave that much; they are for finding more mistakes, and not for serving.
    """

    settings: Settings | None = None


class Setting:
    """A descriptor: on the class itself, on an instance the value. ``default`` is text, parsed like any other.

    ``fixed`` is what a reload cannot change, ``supervised`` what has no meaning without a supervisor (``--workers 0``);
    ``variables`` are read after ``KIRSCH_<NAME>``.
    """

    def __init__(
        self,
        section: str,
        flags: tuple[str, ...],
        metavar: str,
        parse: Callable[[str], Any],
        default: str,
        prose: str,
        *,
        fixed: bool = False,
        supervised: bool = False,
        variables: tuple[str, ...] = (),
    ) -> None:
        assert section in SECTIONS
        self.name = ""
        self.section = section
        self.flags = flags
        self.metavar = metavar
        self.parse = parse
        self.default = default
        self.prose = prose
        self.fixed = fixed
        self.supervised = supervised
        self._more_variables = variables

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
    def variables(self) -> tuple[str, ...]:
        """The environment variables that may hold it; the first that is set counts."""
        return (self.variable, *self._more_variables)

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands alone, without a value."""
        return self.parse is parse_switch

    @property
    def is_on_off(self) -> bool:
        """Whether its value is on or off, and it is on unless somebody turns it off."""
        return self.parse is parse_on_off

    @property
    def is_repeatable(self) -> bool:
        return self.parse in (
            parse_binds, parse_optional_binds, parse_path_limits, parse_paths, parse_environment, parse_mounts
        )  # fmt: skip

    @property
    def separator(self) -> str:
        """What stands between several values in one text; no value of the environment holds a NUL."""
        return "\0" if self.parse in (parse_environment, parse_mounts) else ","

    def value(self, text: str, origin: str) -> Any:
        """The value of ``text``. Raises UsageError, which names the origin."""
        try:
            return self.parse(text)
        except ValueError as error:
            message = str(error)
            # Addresses quote the one that is wrong; the others tell only what is wrong with the text.
            if not message.startswith(("'", '"')):
                message = f"{text!r} {message}"
            raise UsageError(f"{self.label(origin)}: {message}") from None

    def label(self, origin: str) -> str:
        """What a mistake is found under: the flag, the variable, or the line of the file with the key."""
        if origin == "default":
            return self.flags[-1]
        if origin.startswith("-") or origin in self.variables or origin == PORT_VARIABLE:
            return origin
        return f"{origin}: {self.key}"

    @property
    def key(self) -> str:
        """Its name in a settings file."""
        return self.name.replace("_", "-")

    @property
    def negations(self) -> tuple[str, ...]:
        """The flags that turn a switch off, which its variable may have turned on."""
        return tuple(flag.replace("--", "--no-", 1) for flag in self.flags if self.is_switch and flag[:2] == "--")


def setting(
    section: str, flags: str, metavar: str, parse: Callable[[str], T], default: str, prose: str, **more: Any
) -> T:
    """A :class:`Setting`, typed as its value, so that mypy holds the annotation and the parser together."""
    return Setting(section, tuple(flags.split()), metavar, parse, default, prose, **more)  # type: ignore[return-value]


class Settings:
    """What the command line, the environment and the defaults come to. Cannot be changed."""

    __slots__ = ("_source", "_texts", "_values", "directory", "file", "mounts", "origins", "target", "warnings")

    bind: tuple[str, ...] = setting(
        "Sockets", "-b --bind", "ADDRESS", parse_binds, DEFAULT_BIND,
        "Address to listen on: HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH. Repeat it, or separate several with commas. "
        "Port 0 takes a free one. A name is served on each of its addresses, an empty host on all of the machine's. "
        "unix:PATH?mode=660 sets the permissions of the path; fd://N is a socket that is open already as descriptor N, "
        "systemd:NAME one that systemd has passed under this name. Where no address is given anywhere, sockets that "
        "systemd has passed are served, or else port $PORT on 0.0.0.0 if the environment has that variable.",
        fixed=True,
    )  # fmt: skip
    backlog: int = setting(
        "Sockets", "--backlog", "COUNT", Bounded(parse_count, least=1), str(DEFAULT_BACKLOG),
        "Connections that the kernel keeps waiting until they are accepted. The kernel caps it at net.core.somaxconn. "
        "More of them costs memory only while they wait; fewer turn a burst away.",
        fixed=True,
    )  # fmt: skip
    worker_connections: int = setting(
        "Sockets", "--worker-connections", "COUNT", Bounded(parse_count, least=1), "65536",
        "Open connections at most; further ones wait in the backlog. An idle one costs a file descriptor and less "
        "than 1 KiB beside what the kernel keeps for it.",
    )  # fmt: skip
    reuse_port: bool = setting(
        "Sockets", "--reuse-port", "", parse_switch, "no",
        "Let each worker listen for itself (SO_REUSEPORT). The kernel then spreads connections by a hash of their "
        "addresses, so some workers get more than others. Otherwise the workers share one socket, and a new "
        "connection goes to the worker that has the fewest.",
        fixed=True, supervised=True,
    )  # fmt: skip

    workers: int = setting(
        "Workers", "-w --workers", "COUNT", Bounded(parse_count, most=_WORKERS_MAX), "1",
        "Processes that serve. A supervisor starts them, replaces those that die, and never drops a request when it "
        "reloads. One for each processor is much for an application that computes; one that waits needs --threads "
        "rather. 0 serves in the one process, without a supervisor.",
        variables=("WEB_CONCURRENCY",),
    )  # fmt: skip
    min_workers: int = setting(
        "Workers", "--min-workers", "COUNT", Bounded(parse_count, least=1), "1",
        "With --max-workers: so many are left when there is little to do.",
        supervised=True,
    )  # fmt: skip
    max_workers: int = setting(
        "Workers", "--max-workers", "COUNT", Bounded(parse_count, most=_WORKERS_MAX), "0",
        "Start more workers than --workers while requests wait for a thread, up to so many, and end them again when "
        "they have little to do. 0 keeps the number as it is.",
        supervised=True,
    )  # fmt: skip
    preload: bool = setting(
        "Workers", "--preload", "", parse_switch, "no",
        "Import the application once and fork the workers from there, which share its memory and start faster. A "
        "reload imports it anew. Connections and threads that it makes while it is imported are not for sharing.",
        supervised=True,
    )  # fmt: skip
    ready_path: str = setting(
        "Workers", "--ready-path", "PATH", parse_url_path, "",
        "A new worker asks its application for this path, and is ready when the answer is 2xx; until then it accepts "
        "nothing, and its predecessor serves on. Empty: a worker is ready when the application is imported.",
        supervised=True,
    )  # fmt: skip
    reload: bool = setting(
        "Workers", "--reload", "", parse_switch, "no",
        "For development: reload when a file of the application has changed. On other systems than Linux it needs "
        "pip install 'kirsch[reload]'.",
        fixed=True, supervised=True,
    )  # fmt: skip
    reload_extra_files: tuple[str, ...] = setting(
        "Workers", "--reload-extra-file --reload-extra-files", "FILE", parse_paths, "",
        "With --reload: watch this file or directory too, templates for instance. Repeat it, or separate several with "
        "commas.",
        fixed=True, supervised=True,
    )  # fmt: skip
    touch_reload: tuple[str, ...] = setting(
        "Workers", "--touch-reload", "FILE", parse_paths, "",
        "Reload, as at SIGHUP, when this file is touched: for a deployment that may not send signals. Repeat it, or "
        "separate several with commas.",
        fixed=True, supervised=True,
    )  # fmt: skip
    worker_start: str = setting(
        "Workers", "--worker-start", "MODULE:FUNCTION", parse_function, "",
        "Call this function in each worker when the application is imported, before the worker is ready: to open "
        "connections, to start threads. Where it raises, the worker does not start, and a reload fails. "
        "docs/configuration.md tells what hooks are given.",
    )  # fmt: skip
    worker_stop: str = setting(
        "Workers", "--worker-stop", "MODULE:FUNCTION", parse_function, "",
        "Call this function in each worker that ends in order, when its requests are done. --shutdown-timeout is for "
        "it too.",
    )  # fmt: skip
    before_fork: str = setting(
        "Workers", "--before-fork", "MODULE:FUNCTION", parse_function, "",
        "With --preload: call this function before each fork of a worker, in the process that has imported the "
        "application.",
        supervised=True,
    )  # fmt: skip
    after_fork: str = setting(
        "Workers", "--after-fork", "MODULE:FUNCTION", parse_function, "",
        "With --preload: call this function first in each new worker: to make anew what processes cannot share.",
        supervised=True,
    )  # fmt: skip
    drain_delay: float = setting(
        "Workers", "--drain-delay", "DURATION", parse_duration, "0",
        "At SIGTERM, serve on for so long while --health-path answers 503, so that a load balancer has looked "
        "elsewhere before the sockets are closed.",
        supervised=True,
    )  # fmt: skip

    max_requests: int = setting(
        "Limits of a worker", "--max-requests", "COUNT", parse_count, "0",
        "Replace a worker that has begun so many requests. 0 never does.",
        supervised=True,
    )  # fmt: skip
    max_requests_jitter: int = setting(
        "Limits of a worker", "--max-requests-jitter", "COUNT", parse_count, "0",
        "With --max-requests: each worker gets up to so many more, so that they are not replaced all at once.",
        supervised=True,
    )  # fmt: skip
    max_lifetime: float = setting(
        "Limits of a worker", "--max-lifetime", "DURATION", parse_duration, "0",
        "Replace a worker that has lived so long. 0 never does.",
        supervised=True,
    )  # fmt: skip
    max_lifetime_jitter: float = setting(
        "Limits of a worker", "--max-lifetime-jitter", "DURATION", parse_duration, "0",
        "With --max-lifetime: each worker gets up to so much more, so that they are not replaced all at once.",
        supervised=True,
    )  # fmt: skip
    max_memory: int = setting(
        "Limits of a worker", "--max-memory", "BYTES", parse_size, "0",
        "Replace a worker that has so much memory to itself (USS: what would be free again if it ended). 0 never does.",
        supervised=True,
    )  # fmt: skip
    inactivity_timeout: float = setting(
        "Limits of a worker", "--inactivity-timeout", "DURATION", parse_duration, "0",
        "End the workers when none of them has had a request for so long: their memory is free, the supervisor goes on "
        "listening, and the next connection starts them. 0 never does.",
        supervised=True,
    )  # fmt: skip
    startup_timeout: float = setting(
        "Limits of a worker", "--startup-timeout", "DURATION", parse_duration, "60s",
        "How long a worker may take until it is ready; then it is killed, and a reload that it was for fails. "
        "0 waits for ever.",
        supervised=True,
    )  # fmt: skip
    deadlock_timeout: float = setting(
        "Limits of a worker", "--deadlock-timeout", "DURATION", parse_duration, "300s",
        "Kill and replace a worker in which no thread has got the interpreter for so long: something holds it and does "
        "not come back. 0 never does.",
        supervised=True,
    )  # fmt: skip
    shutdown_timeout: float = setting(
        "Limits of a worker", "--shutdown-timeout", "DURATION", parse_duration, "5s",
        "How long a worker may take to end after its --graceful-timeout, for what the application does at its exit; "
        "then it is killed.",
        supervised=True,
    )  # fmt: skip

    pid_file: str = setting(
        "Process", "-p --pid --pid-file", "FILE", parse_pid_file, "",
        "Write the process id there, the supervisor's, which never changes while it runs; the file is removed at the "
        "end.",
        fixed=True, supervised=True,
    )  # fmt: skip
    process_name: str = setting(
        "Process", "-n --name --process-name", "NAME", parse_name, "",
        "What ps shows behind `kirsch`; empty is the application's name.",
        supervised=True,
    )  # fmt: skip
    user: str = setting(
        "Process", "-u --user", "USER", parse_account, "",
        "Serve as this user, by name or number, after the sockets have been opened. Only root can.",
        fixed=True, supervised=True,
    )  # fmt: skip
    group: str = setting(
        "Process", "-g --group", "GROUP", parse_account, "",
        "Serve as this group, by name or number; empty is the group of --user. Only root can.",
        fixed=True, supervised=True,
    )  # fmt: skip
    umask: int | None = setting(
        "Process", "-m --umask", "OCTAL", parse_umask, "",
        "Permissions that new files and unix sockets are without, such as 027. Empty leaves it as it is.",
        fixed=True, supervised=True,
    )  # fmt: skip
    env: tuple[tuple[str, str], ...] = setting(
        "Process", "-e --env", "NAME=VALUE", parse_environment, "",
        "Set an environment variable for the application. Repeat it; in the variable each stands on a line of its own.",
    )  # fmt: skip

    health_path: str = setting(
        "Outside view", "--health-path", "PATH", parse_url_path, "",
        "Answer this path in the server itself, also while every thread is busy or stuck: 200 alive or saturated, 503 "
        "draining or stalled, and the word in JSON. "
        "The application does not see it.",
    )  # fmt: skip
    stall_timeout: float = setting(
        "Outside view", "--stall-timeout", "DURATION", parse_duration, "30s",
        "How long nobody may get anywhere, because one call keeps the only thread, the interpreter or gevent's hub, "
        "until --health-path says stalled, with 503. The worker is left alone: --deadlock-timeout or --timeout end it. "
        "0 never says so.",
    )  # fmt: skip
    metrics_bind: tuple[str, ...] = setting(
        "Outside view", "--metrics-bind", "ADDRESS", parse_optional_binds, "",
        "Serve /metrics for Prometheus and a status page there, for all workers together; written like --bind. Who "
        "can reach it can read it.",
        fixed=True, supervised=True,
    )  # fmt: skip
    slow_request: float = setting(
        "Outside view", "--slow-request", "DURATION", parse_duration, "0",
        "Record a request that takes longer than so long, with its stack, while it still runs. 0 records none.",
    )  # fmt: skip

    driver: str = setting(
        "Requests", "-k --worker-class --driver", "NAME", parse_driver, DEFAULT_DRIVER,
        "threads or gevent; gthread is gunicorn's name for threads. Threads serve any application. gevent runs each "
        "request in a greenlet, for applications that wait much for others; it patches the standard library before the "
        "application is imported, and needs pip install 'kirsch[gevent]'.",
    )  # fmt: skip
    threads: int = setting(
        "Requests", "--threads", "COUNT", Bounded(parse_count, least=1), str(DEFAULT_THREADS),
        "Calls of the application at a time, with the driver threads. A thread is started when a call needs it. 1 "
        "calls in the main thread, one after another, for an application that is not thread-safe. More threads wait "
        "for more at a time, and cost memory and, where they compute, patience.",
    )  # fmt: skip
    timeout: float = setting(
        "Requests", "-t --timeout", "DURATION", parse_duration, "0",
        "How long a request may be in the application, each for itself; gunicorn's limit of this name is for a whole "
        "worker. At the limit the engine sends 504 to the client, whatever the call does; the stack of the call is "
        "reported, and kirsch.RequestTimeout is raised in it. A worker with a call that does not end within "
        "--graceful-timeout after that is replaced: its successor is started first. With --workers 0 such a call ends "
        "the server, with exit status 75. Time in which a slow client holds up the response is left out. 0 sets no "
        "limit.",
    )  # fmt: skip
    timeout_paths: tuple[tuple[str, float], ...] = setting(
        "Requests", "--timeout-path --timeout-paths", "PREFIX=DURATION", parse_path_limits, "",
        "Another --timeout for a path and all below it: /reports=300s is for /reports and /reports/x, and not for "
        "/reportsx. Repeat it, or separate several with commas; the longest prefix wins. 0 sets no limit there.",
    )  # fmt: skip
    queue: int = setting(
        "Requests", "--queue", "COUNT", Bounded(parse_count, least=1), "1024",
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

    config: str = setting(
        "Application", "-c --config", "FILE", parse_path, "",
        "Read settings from this file, in TOML. Empty looks for kirsch.toml, and then for [tool.kirsch] in "
        "pyproject.toml, in the current directory.",
        fixed=True,
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
        "The name is that of a function which returns the application, as if it were written module:function(). "
        "module:function(\"prod\", debug=True) passes arguments, which are literals.",
    )  # fmt: skip
    mount: tuple[Mount, ...] = setting(
        "Application", "--mount", "PLACE=APP", parse_mounts, "",
        "Serve another application below a path, as in /shop=shop:app, or for a host, as in example.org=site:app or "
        "example.org/shop=shop:app. Repeat it; in the variable each stands on a line of its own. These take the place "
        "of those in the settings file.",
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
        "one second. A request is in flight when its head has arrived as a whole: half a head has half a second, like "
        "an idle connection, and gets 408.",
    )  # fmt: skip

    limit_request_line: int = setting(
        "Size", "--limit-request-line", "BYTES", Bounded(parse_size, least=64), "8190",
        "A request line at most; then 414.",
    )  # fmt: skip
    limit_request_fields: int = setting(
        "Size", "--limit-request-fields", "COUNT", Bounded(parse_count, least=1), "100",
        "Header fields of a request at most; then 431.",
    )  # fmt: skip
    limit_request_field_size: int = setting(
        "Size", "--limit-request-field-size --limit-request-field_size", "BYTES", Bounded(parse_size, least=64), "8190",
        "One header field at most, name and value; then 431.",
    )  # fmt: skip
    limit_request_head: int = setting(
        "Size", "--limit-request-head", "BYTES", Bounded(parse_size, least=256), "65536",
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
    body_memory_total: int = setting(
        "Size", "--body-memory-total", "BYTES", parse_size, "64MiB",
        "What all request bodies of a worker together may take of memory, each from its first byte until its response "
        "is complete. A body for which there is no room goes to a temporary file, however short it is. With "
        "--request-buffering off, 4 KiB at a time are read ahead for each call then, instead of 64.",
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
        "combined (Apache's), json, or a text with gunicorn's atoms, such as '%(h)s \"%(r)s\" %(s)s %(D)s'. Of a "
        "variable (%({NAME}e)s) that is neither text nor number its class is told.",
    )  # fmt: skip
    access_logger: bool = setting(
        "Logs", "--access-logger", "", parse_switch, "no",
        "Hand each access line to the logger kirsch.access too, for handlers of Python's logging; to stdout where it "
        "has none. It costs several microseconds of Python for each request, which --access-logfile does not.",
    )  # fmt: skip
    error_logfile: str = setting(
        "Logs", "--error-logfile --log-file", "FILE", parse_path, "-",
        "Where errors go, the application's tracebacks among them; - is stderr. SIGUSR1 opens it again.",
        fixed=True,
    )  # fmt: skip
    log_config: str = setting(
        "Logs", "--log-config", "FILE", parse_log_config, "",
        "Configure Python's logging with this file before the application is imported: .json and .toml for "
        "logging.config.dictConfig, any other for fileConfig. In the settings file it can be a table [logging] too.",
    )  # fmt: skip
    error_logformat: str = setting(
        "Logs", "--error-logformat --error-logfmt", "FORMAT", OneOf("text", "json"), "text",
        "How errors are written: text, or json, which makes a line of each record, with time, level, pid, worker, "
        "message and traceback. What is written at the start and to wsgi.errors is in the same form.",
        fixed=True,
    )  # fmt: skip
    log_level: str = setting(
        "Logs", "--log-level", "LEVEL", OneOf("debug", "info", "warning", "error", "critical"), "info",
        "The least that is reported: debug, info, warning, error or critical.",
        fixed=True,
    )  # fmt: skip

    check_config: bool = setting(
        "Instead of serving", "--check-config", "", parse_switch, "no",
        "Import the application, say whether it can be served, and exit.",
    )  # fmt: skip
    print_config: bool = setting(
        "Instead of serving", "--print-config", "", parse_switch, "no",
        "Print each setting with its value and where that comes from, and exit.",
    )  # fmt: skip

    def __init__(
        self,
        given: Mapping[str, tuple[str, str]],
        target: tuple[str, str] | None = None,
        *,
        mounts: tuple[Mount, ...] = (),
        file: str = "",
        warnings: Sequence[str] = (),
        source: tuple[Sequence[str], Mapping[str, str], str] = ((), {}, ""),
    ) -> None:
        """``given`` maps names to (text, origin), ``target`` is such a pair too; the rest keeps its default.

        ``file`` is the settings file that was read, ``source`` what :func:`kirsch.configuration.read` was called with.
        Raises UsageError.
        """
        texts = {each.name: given.get(each.name, (each.default, "default")) for each in SETTINGS}
        origins = {name: origin for name, (_, origin) in texts.items()}
        values = {}
        mistakes = []
        for each in SETTINGS:
            try:
                values[each.name] = each.value(*texts[each.name])
            except UsageError as error:
                mistakes.append(str(error))
        if mistakes:
            raise UsageError("\n".join(mistakes))
        if target is not None:
            origins["app"] = target[1]
        put = object.__setattr__
        put(self, "target", target and target[0])
        for mount in values["mount"]:
            mount.origin = f"{origins['mount']} {mount.place}"
        put(self, "mounts", values["mount"] or mounts)
        put(self, "file", file)
        put(self, "warnings", tuple(warnings))
        put(self, "directory", source[2])
        put(self, "origins", origins)
        put(self, "_source", source)
        put(self, "_texts", {name: text for name, (text, _) in texts.items()})
        put(self, "_values", values)

    if TYPE_CHECKING:
        target: str | None
        mounts: tuple[Mount, ...]
        file: str
        warnings: tuple[str, ...]
        directory: str
        """Where the command was started, and where ``chdir`` begins."""
        origins: dict[str, str]
        _source: tuple[Sequence[str], Mapping[str, str], str]
        _texts: dict[str, str]
        _values: dict[str, Any]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings are read once; {name} cannot be set")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def label(self, name: str) -> str:
        """What a complaint about the setting ``name`` begins with: where its value is from."""
        setting: Setting = getattr(Settings, name)
        return setting.label(self.origins[name])

    def rows(self) -> list[tuple[str, str, str]]:
        """(Name, value, origin) of the application, the mounts and each setting, as people are shown them.

        Of ``env`` only the names are shown: its values may be secrets.
        """
        rows = [("app", self.target, self.origins["app"])] if self.target is not None else []
        rows += [("mount", str(mount), mount.origin) for mount in self.mounts]
        for name, text in self._texts.items():
            if name == "mount":
                continue
            if name == "env":
                text = ", ".join(f"{variable}=..." for variable, _ in self.env)
            elif name == "log_config" and text.startswith("{"):
                text = "[logging]"
            rows.append((name, text, self.origins[name]))
        return rows


SETTINGS: tuple[Setting, ...] = tuple(
    sorted(
        (each for each in vars(Settings).values() if isinstance(each, Setting)),
        key=lambda each: list(SECTIONS).index(each.section),
    )
)
