"""Data about the command lines of other servers: options that are switches, options that name the application, and
values to be replaced. The module of each server has the equivalents of its options; :mod:`kirsch.config.compat.rules`
combines both.
"""

from __future__ import annotations

SWITCHES = {
    "gunicorn": (
        "--capture-output --casefold-http-method --check-config --daemon --disable-redirect-access-to-syslog "
        "--do-handshake-on-connect --enable-backlog-metric --enable-stdio-inheritance --http2-cleartext --initgroups "
        "--log-syslog --no-control-socket --no-sendfile --permit-obsolete-folding --permit-unconventional-http-method "
        "--permit-unconventional-http-version --preload --print-config --reload --reuse-port --spew "
        "--strip-header-spaces --suppress-ragged-eofs -D -R"
    ),
    "uvicorn": (
        "--access-log --date-header --factory --http2 --no-access-log --no-date-header --no-proxy-headers "
        "--no-server-header --no-use-colors --proxy-headers --reload --reset-contextvars --server-header --use-colors "
        "--version"
    ),
    "granian": (
        "--access-log --factory --http1-keep-alive --http1-pipeline-flush --http2-adaptive-window --log --metrics "
        "--no-access-log --no-factory --no-http1-keep-alive --no-http1-pipeline-flush --no-http2-adaptive-window "
        "--no-log --no-metrics --no-reload --no-reload-ignore-worker-failure --no-respawn-failed-workers "
        "--no-ssl-client-verify --no-ws --reload --reload-ignore-worker-failure --respawn-failed-workers "
        "--ssl-client-verify --version --ws"
    ),
    "hypercorn": "--daemon --debug --reload -D",
    "waitress": (
        "--asyncore-use-poll --call --clear-untrusted-proxy-headers --expose-tracebacks --log-socket-errors "
        "--log-untrusted-proxy-headers --no-clear-untrusted-proxy-headers "
        "--no-expose-tracebacks --no-ipv4 --no-ipv6 --no-log-socket-errors --no-log-untrusted-proxy-headers"
    ),
    "mod_wsgi-express": (
        "--access-log --allow-localhost --chunked-request --compress-responses --debug-mode --debugger-startup "
        "--directory-listing --disable-reloading --embedded-mode --enable-coverage --enable-debugger --enable-docs "
        "--enable-gdb --enable-profiler --enable-recorder --enable-sendfile --error-override --http2 --https-only "
        "--isatty --log-to-terminal --orphan-interpreter --reload-on-changes --rotate-logs --server-metrics "
        "--server-status --setup-only --ssl-environment --startup-log --verbose-debugging --with-cgi --with-php5"
    ),
    "uWSGI": (
        "--abstract-socket --auto-procname --autoload --catch-exceptions --cheap --close-on-exec --die-on-idle "
        "--die-on-term --disable-logging --disable-sendfile --disable-write-exception --enable-metrics "
        "--enable-proxy-protocol --enable-threads --exit-on-reload --freebind --gevent-monkey-patch "
        "--gevent-early-monkey-patch --harakiri-verbose --honour-stdin --http-auto-chunked --http-auto-gzip "
        "--http-chunked-input --http-raw-body --http-websockets --ignore-script-name --ignore-sigpipe "
        "--ignore-write-errors --lazy --lazy-apps --log-4xx --log-5xx --log-master --log-micros --log-reopen "
        "--log-x-forwarded-for --log-zero --manage-script-name --master --master-as-root --memory-report --need-app "
        "--no-default-app --no-defer-accept --no-initgroups --no-orphans --no-site --no-threads-wait --reaper "
        "--reload-on-exception --reload-os-env --reuse-port --show-config --single-interpreter --skip-atexit "
        "--so-keepalive --stats-http --strict --tcp-nodelay --threaded-logger --thunder-lock --use-abort --vacuum "
        "--version --vhost -L -M -T -a -c -i -m -r"
    ),
}
"""The options that take no value; every other one takes one."""

PROGRAMS = {"uwsgi": "uWSGI", "waitress-serve": "waitress"}
"""The names of commands that differ from the names of their servers."""

SUBCOMMANDS = {"mod_wsgi-express": "start-server"}
"""The word after the command that is no option and no application."""

APPLICATION = {
    "uWSGI": {"--module": "name", "-w": "name", "--wsgi": "name", "--wsgi-file": "name", "--file": "name",
              "--callable": "object"},
    "mod_wsgi-express": {"--entry-point": "name", "--callable-object": "object"},
    "waitress": {"--app": "name"},
}  # fmt: skip
"""The options that name the application, or the object in it."""

UNITS = {
    "granian": {"--http1-header-read-timeout": "ms", "--workers-max-rss": "MiB"},
    "uWSGI": {"--reload-on-rss": "MiB", "--evil-reload-on-rss": "MiB"},
}
"""The units of values that Kirsch reads in others when they have none."""

ADDRESS = {"waitress": ("0.0.0.0", "8080")}  # noqa: S104
"""The host and the port where a server listens unasked, if not at 127.0.0.1:8000."""

VALUES = {
    option: {
        "sync": "--threads 1",
        "threaded": "--driver threads",
        "threading": "--driver threads",
        "tornado": "--driver threads",
        "eventlet": "--driver gevent",
        "greenlet": "--driver gevent",
        "greenlets": "--driver gevent",
        "green": "--driver gevent",
        "egg:gunicorn#gevent": "--driver gevent",
        "asgi": "",
        "async": "",
        "asyncio": "",
        "trio": "",
        "uvloop": "--loop uvloop",
        "uvicorn": "",
        "uvicorn.workers.uvicornworker": "",
        "uvicorn_worker.uvicornworker": "",
        "uvicorn.workers.uvicornh11worker": "",
    }
    for option in ("-k", "--worker-class")
}
VALUES["--http"] = {"h11": "", "httptools": "", "zttp": ""}
VALUES["--keep-alive"] = VALUES["--timeout-keep-alive"] = {"0": "--keep-alive 1ms"}
"""Values of options that are the same otherwise, in lower case, and what to write for option and value together."""

REMARKS = {
    "gunicorn": {
        "unless": ["-k", "--worker-class", "--threads"],
        "say": "gunicorn runs one request at a time in each worker if neither --threads nor -k is given; Kirsch runs "
        "up to 16. Add --threads 1 if the application is not thread-safe.",
    },
    "uWSGI": {
        "unless": ["--threads", "--gevent", "--enable-threads"],
        "say": "uWSGI runs one request at a time in each process if --threads is not given; Kirsch runs up to 16. Add "
        "--threads 1 if the application is not thread-safe.",
    },
}
"""Differences that matter if none of some options is given."""
