"""The schema: every setting, declared once. This file is a table: ``setting.py`` and ``merged.py`` have the code.

A setting is one declaration in :class:`Settings`: its section, flags, kind, default, prose, bounds, and who reads it.
The declaration determines

* the option of the command line and its help, the environment variable ``KIRSCH_<NAME>``, the key of the settings file;
* the keyword argument of ``kirsch.Server``, with its static type (``kirsch.config.options``, generated);
* the check of a value from any source, and the typed attribute of :class:`Settings`;
* what a reload may change, and the attributes of the native server's configuration (``kirsch.config.native``);
* shell completion, the manual page, and docs/reference/settings.md.

No library is used here, because its import would delay every start. On CPython 3.13, a bare interpreter takes 10.5 ms,
importing click 30 ms and argparse 7 ms; dataclasses take 10 ms more than the descriptor in ``setting.py``, because they
import inspect. Kirsch as a whole, from the command to the first response, takes 13 ms beyond importing the application;
the limit is 60 ms.
"""

from __future__ import annotations

from kirsch.config.acme_settings import AcmeSettings
from kirsch.config.compression_settings import CompressionSettings
from kirsch.config.group_settings import GroupSettings
from kirsch.config.kinds import (
    ACCOUNT,
    ADDRESSES,
    COUNT,
    DIRECTORIES,
    DIRECTORY,
    DRIVER,
    DURATION,
    ENVIRONMENT,
    FIELD_VALUE,
    FILE,
    FILE_NAME,
    FILES,
    FUNCTION,
    HTTP_VERSIONS,
    LOG_CONFIG,
    LOG_FORMAT,
    MOUNTS,
    NAME,
    ON_OFF,
    OPTIONAL_ADDRESSES,
    PATH_LIMITS,
    PATTERNS,
    PID_FILE,
    PROXIES,
    SCRIPT_NAME,
    SIZE,
    STATIC,
    SWITCH,
    SWITCH_OR_CALLABLE,
    UMASK,
    URL_PATH,
    one_of,
)
from kirsch.config.merged import MergedSettings
from kirsch.config.sections import SECTIONS
from kirsch.config.setting import ENGINE, PROGRAM, setting
from kirsch.config.tls_settings import TlsSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The limit of workers, each of which has a slot on the scoreboard. Machines have far fewer CPUs.
_WORKERS_MAX = 256


class Settings(AcmeSettings, GroupSettings, TlsSettings, CompressionSettings, MergedSettings, sections=SECTIONS):
    """All settings. Those of TLS, ACME, groups and compression are declared in separate files."""

    __slots__ = ()

    @property
    def has_certificates(self) -> bool:
        """Return whether the settings name certificates, so that listeners can encrypt."""
        return bool(self.certfile or self.tls or self.acme)

    config = setting(
        "Application", "-c --config", FILE, "",
        "Read settings from this TOML file. Empty: read kirsch.toml, or else the table [tool.kirsch] of "
        "pyproject.toml, in the current directory.",
        fixed=True, command_line_only=True, summary="settings from this file",
    )  # fmt: skip
    chdir = setting(
        "Application", "--chdir", DIRECTORY, "",
        "Change to this directory first. The module is looked for there, and relative paths begin there.",
    )  # fmt: skip
    pythonpath = setting(
        "Application", "--pythonpath", DIRECTORIES, "",
        "Directories, separated by commas, in which modules are looked for after the current directory.",
    )  # fmt: skip
    factory = setting(
        "Application", "--factory", SWITCH, "no",
        "The name is that of a function that returns the application, as if it were written module:function(). "
        "module:function(\"prod\", debug=True) passes arguments, which must be literals.",
        summary="the name is that of a function that returns it",
    )  # fmt: skip
    mount = setting(
        "Application", "--mount", MOUNTS, "",
        "Serve another application below a path, as in /shop=shop:app, or for a host, as in example.org=site:app or "
        "example.org/shop=shop:app. Repeat the flag for several; in the variable each mount is a line of its own. "
        "WSGI and ASGI applications stand side by side; where the signature of one does not tell, write its interface, "
        "as in /api=asgi:shop.api:app. Mounts of the command line or the environment replace those of the settings "
        "file.",
        summary="another application below a path, /shop=shop:app",
    )  # fmt: skip

    bind = setting(
        "Sockets", "-b --bind", ADDRESSES, "127.0.0.1:8000",
        "Address to listen on: HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH. Repeat the flag for several addresses, or "
        "separate them with commas. Port 0 takes a free port. A host name stands for each of its addresses, an empty "
        "host for all addresses of the machine. unix:PATH?mode=660 sets the permissions of the socket. fd://N is a "
        "socket that is already open as descriptor N, systemd:NAME one that systemd has passed under this name. "
        ":8000?proxy demands a header of the PROXY protocol on each connection (unix:PATH?mode=660&proxy); see "
        "--proxy-from. fastcgi:, uwsgi: or scgi: before an address is what a web server speaks there instead of HTTP, "
        "as in fastcgi:unix:/run/app.sock or uwsgi:127.0.0.1:3031. https://:443 encrypts (--certfile), http://:80 does "
        "not. If no address is given anywhere, Kirsch serves the sockets that systemd has passed, or FastCGI on "
        "descriptor 0 if a web server has started it so, or else port $PORT on 0.0.0.0 if the environment has that "
        "variable.",
        fixed=True, summary="where to listen, also unix:PATH; repeat it",
    )  # fmt: skip
    fastcgi_script_name = setting(
        "Sockets", "--fastcgi-script-name", SCRIPT_NAME, "auto",
        "With fastcgi:, uwsgi: or scgi: addresses: the path below which the web server serves the application, as in "
        "/shop, or / for the root. It becomes SCRIPT_NAME, and the rest of the request's path PATH_INFO. auto is what "
        "the web server says if it gives a PATH_INFO, and otherwise the root.",
        scope=ENGINE,
    )  # fmt: skip
    fastcgi_stderr = setting(
        "Sockets", "--fastcgi-stderr", ON_OFF, "on",
        "With fastcgi: addresses: on passes on to the web server what a WSGI application writes to wsgi.errors, at "
        "most 64 KiB of each request; web servers write it to their error log. off leaves it to the log of Kirsch, "
        "which has it in any case.",
        scope=ENGINE,
    )  # fmt: skip
    http = setting(
        "Sockets", "--http", HTTP_VERSIONS, "auto",
        "Which versions of HTTP clients may speak: auto is HTTP/1.1 and HTTP/2, 1 is HTTP/1.1 alone, 2 is HTTP/2 "
        "alone. With TLS the handshake decides (ALPN), where auto prefers HTTP/2. In clear a client that knows of it, "
        "such as a proxy, begins with HTTP/2; a request to upgrade (Upgrade: h2c) is ignored.",
        scope=PROGRAM,
    )  # fmt: skip
    backlog = setting(
        "Sockets", "--backlog", COUNT, "2048",
        "How many connections the kernel keeps until the server accepts them. The kernel caps it at "
        "net.core.somaxconn. A connection costs memory only while it waits. With a short backlog a burst of "
        "connections is refused.",
        least=1, scope=PROGRAM, fixed=True,
    )  # fmt: skip
    worker_connections = setting(
        "Sockets", "--worker-connections", COUNT, "65536",
        "How many connections a worker has open at most. Further connections wait in the backlog. An idle connection "
        "costs a file descriptor and less than 1 KiB, besides what the kernel keeps for it.",
        least=1, scope=ENGINE,
    )  # fmt: skip
    reuse_port = setting(
        "Sockets", "--reuse-port", SWITCH, "no",
        "Let each worker have a listening socket of its own (SO_REUSEPORT). The kernel then distributes connections "
        "by a hash of their addresses, so some workers get more than others. Otherwise the workers share one socket, "
        "and a new connection goes to the worker that has the fewest.",
        fixed=True, supervised=True,
    )  # fmt: skip

    trusted_proxies = setting(
        "Proxies", "--forwarded-allow-ips --trusted-proxies", PROXIES, "",
        "Proxies that are trusted to name the client of a request: IP addresses, networks such as 10.0.0.0/8, and unix "
        "for peers on Unix sockets. The list of addresses in X-Forwarded-For (or Forwarded, see --forwarded) is read "
        "from the right, past trusted addresses; the first one that is not trusted is the client. The client and its "
        "scheme then show in REMOTE_ADDR, REMOTE_PORT, wsgi.url_scheme and the access log; kirsch.peer in the environ "
        "keeps the address of the socket. From peers that are not trusted these fields are removed. Only these peers, "
        "and those on this machine, may connect to addresses with fastcgi:, uwsgi: and scgi:. all trusts every peer, "
        "and takes the last address of the list. Empty: no peer.",
        scope=ENGINE,
    )  # fmt: skip
    forwarded = setting(
        "Proxies", "--forwarded", one_of("x", "rfc7239"), "x",
        "Which fields trusted proxies write: x for X-Forwarded-For, X-Forwarded-Proto and their like, rfc7239 for "
        "Forwarded. The other family is not read and is removed, because it is the client who has written it.",
        scope=ENGINE,
    )  # fmt: skip
    forwarded_host = setting(
        "Proxies", "--forwarded-host", SWITCH, "no",
        "Let trusted proxies replace the host of a request (HTTP_HOST), by X-Forwarded-Host or the host of Forwarded. "
        "Only for proxies that set it themselves: a host that the client has written ends up in links and caches.",
        scope=ENGINE,
    )  # fmt: skip
    forwarded_prefix = setting(
        "Proxies", "--forwarded-prefix", SWITCH, "no",
        "Let trusted proxies name the path below which they serve the application (SCRIPT_NAME), by "
        "X-Forwarded-Prefix. Only for proxies that set it themselves. Forwarded has no such parameter.",
        scope=ENGINE,
    )  # fmt: skip
    proxy_from = setting(
        "Proxies", "--proxy-from", PROXIES, "",
        "Peers that may connect to addresses with ?proxy: IP addresses, networks and unix, as for --trusted-proxies. A "
        "connection of any other peer is closed. Empty: every peer, which is safe only where nothing but the proxy can "
        "reach the address.",
        scope=ENGINE,
    )  # fmt: skip

    workers = setting(
        "Workers", "-w --workers", COUNT, "1",
        "How many worker processes serve. The supervisor starts them, replaces those that die, and loses no request "
        "when it reloads. An application that computes needs at most one worker for each processor; one that waits "
        "needs --threads instead. 0 serves in a single process, without a supervisor.",
        most=_WORKERS_MAX, variables=("WEB_CONCURRENCY",), summary="processes that serve",
    )  # fmt: skip
    min_workers = setting(
        "Workers", "--min-workers", COUNT, "1",
        "With --max-workers: how many workers stay when there is little to do.",
        least=1, supervised=True, needs="max_workers",
    )  # fmt: skip
    max_workers = setting(
        "Workers", "--max-workers", COUNT, "0",
        "Start more workers than --workers, up to this number, while requests wait for a thread; end them again when "
        "they have little to do. 0 keeps the number of workers constant.",
        most=_WORKERS_MAX, supervised=True,
    )  # fmt: skip
    preload = setting(
        "Workers", "--preload", SWITCH, "no",
        "Import the application once, in a process that ps shows as the zygote, and fork the workers from it. They "
        "share its memory and start faster. A reload imports the application again. Connections and threads that the "
        "application makes while it is imported cannot be shared.",
        supervised=True,
    )  # fmt: skip
    ready_path = setting(
        "Workers", "--ready-path", URL_PATH, "",
        "A new worker requests this path of its application, and is ready when the status is 2xx. Until then it "
        "accepts no connections, and the old worker keeps serving. Empty: a worker is ready when the application is "
        "imported.",
        supervised=True,
    )  # fmt: skip
    reload = setting(
        "Workers", "--reload", SWITCH, "no",
        "For development: reload when a file of the application has changed. On systems other than Linux it needs pip "
        "install 'kirsch[reload]'.",
        fixed=True, supervised=True, summary="for development: reload when a file has changed",
    )  # fmt: skip
    reload_extra_files = setting(
        "Workers", "--reload-extra-file --reload-extra-files", FILES, "",
        "With --reload: watch this file or directory too, for example a directory of templates. Repeat the flag, or "
        "separate several with commas.",
        fixed=True, supervised=True, needs="reload",
    )  # fmt: skip
    touch_reload = setting(
        "Workers", "--touch-reload", FILES, "",
        "Reload, as at SIGHUP, when this file is touched: for a deployment that may not send signals. Repeat the "
        "flag, or separate several with commas.",
        fixed=True, supervised=True,
    )  # fmt: skip
    worker_start = setting(
        "Workers", "--worker-start", FUNCTION, "",
        "Call this function in each worker after the application is imported and before the worker is ready, for "
        "example to open connections or to start threads. If it raises, the worker does not start, and a reload "
        "fails. A hook is called with one argument, a kirsch.hooks.WorkerInfo; see python -m pydoc kirsch.hooks.",
    )  # fmt: skip
    worker_stop = setting(
        "Workers", "--worker-stop", FUNCTION, "",
        "Call this function in each worker that stops normally, after its requests have ended. It has to return "
        "within --shutdown-timeout.",
    )  # fmt: skip
    before_fork = setting(
        "Workers", "--before-fork", FUNCTION, "",
        "With --preload: call this function before each fork of a worker, in the process that has imported the "
        "application.",
        supervised=True, needs="preload",
    )  # fmt: skip
    after_fork = setting(
        "Workers", "--after-fork", FUNCTION, "",
        "With --preload: call this function first in each new worker, to make again what processes cannot share.",
        supervised=True, needs="preload",
    )  # fmt: skip
    drain_delay = setting(
        "Workers", "--drain-delay", DURATION, "0",
        "At SIGTERM, keep serving for this long while --health-path answers 503, so that load balancers stop sending "
        "requests before the sockets are closed.",
        supervised=True,
    )  # fmt: skip

    max_requests = setting(
        "Limits of a worker", "--max-requests", COUNT, "0",
        "Replace a worker that has begun this many requests. 0 sets no limit.",
        supervised=True,
    )  # fmt: skip
    max_requests_jitter = setting(
        "Limits of a worker", "--max-requests-jitter", COUNT, "0",
        "With --max-requests: add a random number up to this one to each worker's limit, so that the workers are not "
        "replaced all at once.",
        supervised=True, needs="max_requests",
    )  # fmt: skip
    max_lifetime = setting(
        "Limits of a worker", "--max-lifetime", DURATION, "0",
        "Replace a worker that has run for this long. 0 sets no limit.",
        supervised=True,
    )  # fmt: skip
    max_lifetime_jitter = setting(
        "Limits of a worker", "--max-lifetime-jitter", DURATION, "0",
        "With --max-lifetime: add a random time up to this one to each worker's limit, so that the workers are not "
        "replaced all at once.",
        supervised=True, needs="max_lifetime",
    )  # fmt: skip
    max_memory = setting(
        "Limits of a worker", "--max-memory", SIZE, "0",
        "Replace a worker that has this much memory to itself (USS: what would be free if the worker ended). 0 sets "
        "no limit.",
        supervised=True,
    )  # fmt: skip
    inactivity_timeout = setting(
        "Limits of a worker", "--inactivity-timeout", DURATION, "0",
        "Stop all workers when none of them has had a request for this long. Their memory is free then; the "
        "supervisor keeps listening, and the next connection starts them again. 0 never stops them.",
        supervised=True,
    )  # fmt: skip
    startup_timeout = setting(
        "Limits of a worker", "--startup-timeout", DURATION, "60s",
        "How long a worker may take until it is ready. Then it is killed, and the reload that started it fails. 0 "
        "sets no limit.",
        supervised=True,
    )  # fmt: skip
    deadlock_timeout = setting(
        "Limits of a worker", "--deadlock-timeout", DURATION, "300s",
        "Kill and replace a worker in which no thread has got the GIL for this long, because code of an extension "
        "holds it and does not return. 0 sets no limit.",
        supervised=True,
    )  # fmt: skip
    quarantine = setting(
        "Limits of a worker", "--quarantine", DURATION, "60s",
        "Answer requests for a route (method and path) with 503 for this long after it has crashed several workers. A "
        "reload lifts it, and so does `kirsch quarantine --lift`. 0 never does.",
        supervised=True,
    )  # fmt: skip
    shutdown_timeout = setting(
        "Limits of a worker", "--shutdown-timeout", DURATION, "5s",
        "How long a worker may take to end after its --graceful-timeout, for what the application does at its exit. "
        "Then the worker is killed.",
        supervised=True,
    )  # fmt: skip

    pid_file = setting(
        "Process", "-p --pid --pid-file", PID_FILE, "",
        "Write the process id of the supervisor to this file. It stays the same while the server runs. The file is "
        "removed at the end.",
        fixed=True, supervised=True,
    )  # fmt: skip
    process_name = setting(
        "Process", "-n --name --process-name", NAME, "",
        "What ps shows after `kirsch`. Empty: the name of the application.",
        supervised=True,
    )  # fmt: skip
    user = setting(
        "Process", "-u --user", ACCOUNT, "",
        "Run the workers as this user, by name or number; the supervisor opens the sockets first. Only root can.",
        metavar="USER", fixed=True, supervised=True,
    )  # fmt: skip
    group = setting(
        "Process", "-g --group", ACCOUNT, "",
        "Run the workers as this group, by name or number. Empty: the group of --user. Only root can.",
        metavar="GROUP", fixed=True, supervised=True,
    )  # fmt: skip
    umask = setting(
        "Process", "-m --umask", UMASK, "",
        "Permission bits that new files and unix sockets do not get, such as 027. Empty: the umask stays as it is.",
        fixed=True, supervised=True,
    )  # fmt: skip
    env = setting(
        "Process", "-e --env", ENVIRONMENT, "",
        "Set an environment variable for the application. Repeat the flag for several; in the variable each is a line "
        "of its own.",
    )  # fmt: skip

    health_path = setting(
        "Outside view", "--health-path", URL_PATH, "",
        "Answer this path in the engine, without the application, even while every thread is busy or blocked: status "
        "200 for alive or saturated, 503 for draining or stalled, with the word in a JSON body. Empty: no such path.",
        scope=ENGINE,
    )  # fmt: skip
    stall_timeout = setting(
        "Outside view", "--stall-timeout", DURATION, "30s",
        "How long the engine may not be polled, because one call keeps the only thread, the GIL or gevent's hub, "
        "until --health-path answers stalled, with 503. The worker is not ended: --deadlock-timeout and --timeout do "
        "that. 0 never answers stalled.",
        scope=ENGINE,
    )  # fmt: skip
    metrics_bind = setting(
        "Outside view", "--metrics-bind", OPTIONAL_ADDRESSES, "",
        "Serve /metrics for Prometheus and a status page on this address, for all workers together. It is written "
        "like --bind. Every client that can connect to it can read them.",
        fixed=True, summary="numbers for Prometheus, and a status page", supervised=True,
    )  # fmt: skip
    otel = setting(
        "Outside view", "--otel", SWITCH, "no",
        "Export spans of requests by OTLP, as OpenTelemetry's variables say. Needs kirsch[otel].")  # fmt: skip
    slow_request = setting(
        "Outside view", "--slow-request", DURATION, "0",
        "Log a request that takes longer than this, with its stack, while it still runs. 0 logs none.",
        scope=PROGRAM,
    )  # fmt: skip

    interface = setting(
        "Requests", "--interface", one_of("auto", "wsgi", "asgi"), "auto",
        "How the application is called. auto finds out from its signature: a coroutine function, or what takes scope, "
        "receive and send, is an ASGI application. A mount can say its own (--mount /api=asgi:shop.api:app).",
        scope=PROGRAM,
    )  # fmt: skip
    driver = setting(
        "Requests", "-k --worker-class --driver", DRIVER, "threads",
        "threads, gevent or asyncio; gthread, gunicorn's name, is the same as threads. Threads serve any WSGI "
        "application. gevent runs each request in a greenlet, for applications that wait much; it patches the standard "
        "library before the application is imported, and needs pip install 'kirsch[gevent]'. An ASGI application is "
        "always served by asyncio, also where this is threads.",
        scope=PROGRAM, summary="threads or gevent; asyncio serves ASGI",
    )  # fmt: skip
    lifespan = setting(
        "Requests", "--lifespan", one_of("auto", "on", "off"), "auto",
        "Call the lifespan of an ASGI application at the start and end of its worker. on: an application that "
        "does not know it is not served. A worker is ready when the start-up is complete, and the shutdown comes after "
        "the last request.",
        scope=PROGRAM,
    )  # fmt: skip
    loop = setting(
        "Requests", "--loop", one_of("auto", "asyncio", "uvloop"), "auto",
        "The event loop of an ASGI application. auto and asyncio: CPython's own, of which the engine is a part. "
        "uvloop: for an application whose own connections, as to a database, are its bottleneck; needs pip install "
        "uvloop.",
        scope=PROGRAM,
    )  # fmt: skip
    threads = setting(
        "Requests", "--threads", COUNT, "16",
        "How many calls of the application may run at a time in each worker, with the driver threads. A thread is "
        "started when a call needs it. 1 calls the application in the main thread, one call after another, for an "
        "application that is not thread-safe. More threads serve more requests that wait; they cost memory, and "
        "requests that compute delay each other.",
        least=1, scope=PROGRAM, summary="calls of the application at a time, in each process",
    )  # fmt: skip
    timeout = setting(
        "Requests", "-t --timeout", DURATION, "0",
        "How long one call of the application may take; gunicorn's limit of this name is for a whole worker. At the "
        "limit the engine sends 504 to the client, whatever the call does; the stack of the call is logged, and "
        "kirsch.RequestTimeout is raised in it. If the call does not end within --graceful-timeout after that, the "
        "worker is replaced: a new worker is started first. With --workers 0 such a call ends the server, with exit "
        "status 75. Time in which a slow client delays the response does not count. 0 sets no limit.",
        scope=ENGINE, summary="how long a request may be in the application",
    )  # fmt: skip
    timeout_paths = setting(
        "Requests", "--timeout-path --timeout-paths", PATH_LIMITS, "",
        "Another --timeout for a path and all paths below it: /reports=300s is for /reports and /reports/x, and not "
        "for /reportsx. Repeat the flag, or separate several with commas. The longest prefix wins. 0 sets no limit "
        "there.",
        scope=ENGINE,
    )  # fmt: skip
    queue = setting(
        "Requests", "--queue", COUNT, "1024",
        "How many requests may wait for a thread. While the queue is full the engine reads no further requests, so "
        "they wait in the kernel's buffers; none is dropped.",
        least=1, scope=ENGINE,
    )  # fmt: skip
    queue_timeout = setting(
        "Requests", "--queue-timeout", DURATION, "60s",
        "How long a request may wait for a thread. Then it is answered with 503 and Retry-After, and the application "
        "is not called. 0 sets no limit. With --threads 1 the engine reads nothing while a call runs, so requests "
        "wait in the kernel and this time does not run.",
        scope=ENGINE,
    )  # fmt: skip
    limit_concurrency = setting(
        "Requests", "--limit-concurrency", COUNT, "0",
        "How many requests a worker may have in the application at a time, with those whose calls go on behind their "
        "responses. One more is answered with 503 and Retry-After, and the application is not called. Health checks, "
        "static files and idle connections do not count. The driver threads runs at most --threads calls at a time, "
        "and further requests wait in the --queue, so asyncio and gevent need this limit. 0 sets no limit.",
        scope=ENGINE,
    )  # fmt: skip
    request_buffering = setting(
        "Requests", "--request-buffering", ON_OFF, "on",
        "on receives the whole request body before the application is called, so that a slow client occupies no "
        "thread. off calls the application after the head and passes the body on as it arrives. An ASGI application "
        "always receives it as it arrives.",
        scope=ENGINE,
    )  # fmt: skip

    keep_alive = setting(
        "Time", "--keep-alive", DURATION, "75s",
        "How long a connection may be idle between two requests. A longer time saves clients new connections and "
        "keeps more idle connections open. Behind a proxy it should be longer than the proxy's idle time. 0 sets no "
        "limit.",
        scope=ENGINE,
    )  # fmt: skip
    header_timeout = setting(
        "Time", "--header-timeout", DURATION, "15s",
        "How long a request head may take from its first byte to its last. Then the response is 408. 0 sets no limit, "
        "and lets a slow client keep a connection.",
        scope=ENGINE,
    )  # fmt: skip
    body_timeout = setting(
        "Time", "--body-timeout", DURATION, "30s",
        "How long a client may send nothing in the middle of a request body. Then the response is 408. 0 sets no "
        "limit.",
        scope=ENGINE,
    )  # fmt: skip
    write_timeout = setting(
        "Time", "--write-timeout", DURATION, "30s",
        "How long a client may receive nothing in the middle of a response. Then the connection is cut. 0 sets no "
        "limit.",
        scope=ENGINE,
    )  # fmt: skip
    min_rate = setting(
        "Time", "--min-rate", SIZE, "500",
        "How many bytes per second a client must send of a body, or receive of a response, on average. 0 sets no "
        "limit, and lets a client that sends a byte at a time keep a connection and its buffers.",
        scope=ENGINE,
    )  # fmt: skip
    graceful_timeout = setting(
        "Time", "--graceful-timeout", DURATION, "30s",
        "How long requests in flight may take after SIGTERM before they are cut. 0 cuts them at once. After SIGINT "
        "and SIGQUIT they have one second. A request is in flight when its whole head has arrived. Half a head has "
        "half a second, like an idle connection, and is answered with 408.",
        scope=PROGRAM,
    )  # fmt: skip

    limit_request_line = setting(
        "Size", "--limit-request-line", SIZE, "8190",
        "How long a request line may be. A longer one is answered with 414.",
        least=64, scope=ENGINE,
    )  # fmt: skip
    limit_request_fields = setting(
        "Size", "--limit-request-fields", COUNT, "100",
        "How many header fields a request may have. More are answered with 431.",
        least=1, scope=ENGINE,
    )  # fmt: skip
    limit_request_field_size = setting(
        "Size", "--limit-request-field-size --limit-request-field_size", SIZE, "8190",
        "How long one header field may be, name and value together. A longer one is answered with 431.",
        least=64, scope=ENGINE,
    )  # fmt: skip
    limit_request_head = setting(
        "Size", "--limit-request-head", SIZE, "65536",
        "How long the request line and all header fields may be together. A longer head is answered with 431. Each "
        "connection that sends a head may take this much memory.",
        least=256, scope=ENGINE,
    )  # fmt: skip
    limit_request_body = setting(
        "Size", "--limit-request-body", SIZE, "1GiB",
        "How long a request body may be. A longer one is answered with 413. Each body may take this much of the disk "
        "that holds the temporary directory.",
        scope=ENGINE,
    )  # fmt: skip
    body_memory = setting(
        "Size", "--body-memory", SIZE, "1MiB",
        "How long a request body may be to stay in memory. A longer one goes to a temporary file. More memory saves "
        "disk traffic, and is taken for each connection that uploads.",
        scope=ENGINE,
    )  # fmt: skip
    body_memory_total = setting(
        "Size", "--body-memory-total", SIZE, "64MiB",
        "How much memory all request bodies of a worker may take together, each from its first byte until its "
        "response is complete. A body that does not fit goes to a temporary file, however short it is. With "
        "--request-buffering off the engine then reads 4 KiB ahead for each call, instead of 64. Messages of "
        "WebSockets that are incomplete, or that the application has not received, may take as much again; one that "
        "does not fit closes its WebSocket with code 1013.",
        scope=ENGINE,
    )  # fmt: skip

    ws_max_size = setting(
        "WebSocket", "--ws-max-size", SIZE, "16MiB",
        "How long a message of a client may be, after it is decompressed. A longer one closes the WebSocket with code "
        "1009. Each WebSocket may take this much memory.",
        least=1, scope=ENGINE,
    )  # fmt: skip
    ws_max_queue = setting(
        "WebSocket", "--ws-max-queue", COUNT, "32",
        "How many messages of a client may wait for the application. While as many do, or 64 KiB, nothing is read from "
        "this client.",
        least=1, scope=ENGINE,
    )  # fmt: skip
    ws_ping_interval = setting(
        "WebSocket", "--ws-ping-interval", DURATION, "20s",
        "How often a client is pinged, which also keeps proxies from closing an idle WebSocket. 0 sends no pings.",
        scope=ENGINE,
    )  # fmt: skip
    ws_ping_timeout = setting(
        "WebSocket", "--ws-ping-timeout", DURATION, "20s",
        "How long a client may send nothing at all after a ping. Then the WebSocket is closed, with code 1006 for the "
        "application. 0 sets no limit.",
        scope=ENGINE,
    )  # fmt: skip
    ws_compression = setting(
        "WebSocket", "--ws-compression", ON_OFF, "on",
        "Whether messages are compressed (permessage-deflate) where the client offers it. Messages below 256 bytes "
        "never are.",
        scope=ENGINE,
    )  # fmt: skip

    static = setting(
        "Static files", "--static", STATIC, "",
        "Answer requests beneath a path with the files of a directory, as in /static=./public, before any mount and "
        "without the application. Repeat the flag for several; in the variable each is a line of its own. A directory "
        "is opened when a worker starts.",
        scope=ENGINE, summary="files of a directory, /static=./public",
    )  # fmt: skip
    static_max_age = setting(
        "Static files", "--static-max-age", DURATION, "60s",
        "How long browsers and caches may use a file without asking again (Cache-Control: max-age). 0 lets them ask "
        "each time. A file whose name has a hash of its content, such as app.55e7cbb9ba48.css, is theirs for a year.",
        scope=ENGINE,
    )  # fmt: skip
    static_immutable = setting(
        "Static files", "--static-immutable", PATTERNS, "",
        "Patterns, separated by commas, of further names whose content never changes, relative to the directory, such "
        "as assets/*. A star stands for any characters but slashes, two stars for any, a question mark for one.",
        scope=ENGINE,
    )  # fmt: skip
    static_index = setting(
        "Static files", "--static-index", FILE_NAME, "index.html",
        "The file of a directory that answers a path which ends in a slash. Empty: there is none. Directories are "
        "never listed.",
        scope=ENGINE,
    )  # fmt: skip
    static_missing = setting(
        "Static files", "--static-missing", one_of("not-found", "app"), "not-found",
        "What answers a request for which there is no file: not-found is 404, app is the application.",
        scope=ENGINE,
    )  # fmt: skip
    static_symlinks = setting(
        "Static files", "--static-symlinks", one_of("inside", "anywhere"), "inside",
        "Where symbolic links may lead: inside the directory, or anywhere. Kernels before Linux 5.6, and sandboxes "
        "that forbid openat2, follow none inside.",
        scope=ENGINE,
    )  # fmt: skip

    server_header = setting(
        "Response", "--server-header", FIELD_VALUE, "kirsch",
        "The Server header field of responses in which the application sets none. Empty: no such field.",
        scope=ENGINE,
    )  # fmt: skip

    access_logfile = setting(
        "Logs", "--access-logfile", FILE, "",
        "Write a line for each request to this file. - is standard output. Empty: no access log. SIGUSR1 opens the "
        "file again, after a rotation.",
        scope=ENGINE, summary="a line for each request; - is standard output",
    )  # fmt: skip
    access_logformat = setting(
        "Logs", "--access-logformat", LOG_FORMAT, "combined",
        "The format of access lines: combined (Apache's), json, or a text with gunicorn's atoms, such as '%(h)s "
        "\"%(r)s\" %(s)s %(D)s'. For a variable (%({NAME}e)s) that is neither text nor a number, the name of its "
        "class is written.",
        scope=ENGINE,
    )  # fmt: skip
    access_logger = setting(
        "Logs", "--access-logger", SWITCH_OR_CALLABLE, "no",
        "Pass each access line to the logger kirsch.access too, for handlers of Python's logging; lines go to "
        "standard output if it has no handler. It costs several microseconds of Python for each request; "
        "--access-logfile costs none.",
        scope=PROGRAM,
    )  # fmt: skip
    error_logfile = setting(
        "Logs", "--error-logfile --log-file", FILE, "-",
        "Write errors to this file, with the tracebacks of the application. - is standard error. SIGUSR1 opens the "
        "file again.",
        fixed=True,
    )  # fmt: skip
    log_config = setting(
        "Logs", "--log-config", LOG_CONFIG, "",
        "Configure Python's logging from this file before the application is imported: .json and .toml files with "
        "logging.config.dictConfig, others with fileConfig. In the settings file it can be a table [logging] too.",
    )  # fmt: skip
    error_logformat = setting(
        "Logs", "--error-logformat --error-logfmt", one_of("text", "json"), "text",
        "The format of the error log: text, or json, which writes each record as a line with time, level, pid, "
        "worker, message and traceback. Messages of the start and what the application writes to wsgi.errors have the "
        "same format.",
        metavar="FORMAT", fixed=True,
    )  # fmt: skip
    log_level = setting(
        "Logs", "--log-level", one_of("debug", "info", "warning", "error", "critical"), "info",
        "The lowest level that is logged: debug, info, warning, error or critical.",
        metavar="LEVEL", fixed=True, summary="debug, info, warning, error or critical",
    )  # fmt: skip

    check_config = setting(
        "Instead of serving", "--check-config", SWITCH, "no",
        "Import the application, print whether it can be served, and exit: the same as kirsch check --only "
        "application.",
        command_line_only=True, summary="import the application, say whether it is ok",
    )  # fmt: skip
    print_config = setting(
        "Instead of serving", "--print-config", SWITCH, "no",
        "Print each setting with its value and origin, and exit: the same as kirsch check --only settings.",
        command_line_only=True,
    )  # fmt: skip


SETTINGS = Settings.declared
BY_NAME = Settings.by_name


def default(name: str) -> Any:
    """Return the default value of the setting ``name``."""
    return BY_NAME[name].default_value
