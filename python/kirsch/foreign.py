"""Flags of other servers, and what to say to fingers that know them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = {
    # Addresses
    "--host": "write --bind HOST:PORT",
    "--port": "write --bind HOST:PORT",
    "--http": "write --bind HOST:PORT",
    "--socket": "write --bind unix:PATH; it speaks HTTP",
    "--uds": "write --bind unix:PATH",
    "--fd": "write --bind fd://N",
    "--chmod-socket": "write --bind unix:PATH?mode=660",
    "--uds-permissions": "write --bind unix:PATH?mode=660",
    "--vacuum": "a unix socket is always removed at the end",
    "--listen": "write --backlog",
    "--server-backlog": "write --backlog",
    "--daemon-backlog": "write --backlog",
    "--metrics": "write --metrics-bind HOST:PORT",
    "--metrics-address": "write --metrics-bind HOST:PORT",
    "--metrics-port": "write --metrics-bind HOST:PORT",
    "--stats": "write --metrics-bind HOST:PORT",
    "--enable-telemetry": "write --metrics-bind HOST:PORT",
    "--statsd-host": "write --metrics-bind HOST:PORT, for Prometheus",
    "--certfile": "TLS is not there yet; let a proxy in front see to it",
    "--keyfile": "TLS is not there yet; let a proxy in front see to it",
    "--https": "TLS is not there yet; let a proxy in front see to it",
    "--ssl-certfile": "TLS is not there yet; let a proxy in front see to it",
    "--ssl-keyfile": "TLS is not there yet; let a proxy in front see to it",
    "--ssl-certificate": "TLS is not there yet; let a proxy in front see to it",
    # The application
    "--module": "write the application as it is: kirsch module:app",
    "--wsgi-file": "write the application as a module: kirsch module:app",
    "--app": "write the application as it is: kirsch module:app",
    "--app-dir": "write --chdir",
    "--application-type": "write the application as a module: kirsch module:app",
    "--working-dir": "write --chdir",
    "--working-directory": "write --chdir",
    "--python-path": "write --pythonpath",
    "--mount": "write a table [[mount]] in kirsch.toml",
    "--mount-point": "write a table [[mount]] in kirsch.toml",
    "--url-path-prefix": "write a table [[mount]] in kirsch.toml",
    "--root-path": "write a table [[mount]] in kirsch.toml",
    "--ini": "write --config FILE, in TOML",
    "--toml": "write --config FILE",
    "--strict": "unknown settings are always refused",
    # Workers
    "--processes": "write --workers",
    "--preload-app": "write --preload",
    "--lazy-apps": "that is the default; --preload is the other way",
    "--lazy": "that is the default; --preload is the other way",
    "--cheaper": "write --min-workers and --max-workers",
    "--master": "there is always a supervisor, but with --workers 0",
    "--enable-threads": "threads are always there; --threads says how many",
    "--worker-tmp-dir": "leave it away; workers show that they live without a file",
    "--die-on-term": "that is the default",
    "--need-app": "that is the default",
    "--reload-engine": "write --reload",
    "--reload-dir": "write --reload; it watches what is imported, and --reload-extra-file names more",
    "--reload-paths": "write --reload; it watches what is imported, and --reload-extra-file names more",
    "--reload-include": "write --reload-extra-file",
    "--reload-on-changes": "write --reload",
    "--py-autoreload": "write --reload",
    "--py-auto-reload": "write --reload",
    "--respawn-failed-workers": "a worker that dies is always replaced",
    "--limit-max-requests": "write --max-requests",
    "--limit-max-requests-jitter": "write --max-requests-jitter",
    "--max-requests-delta": "write --max-requests-jitter",
    "--maximum-requests": "write --max-requests",
    "--workers-lifetime": "write --max-lifetime",
    "--max-worker-lifetime": "write --max-lifetime",
    "--restart-interval": "write --max-lifetime",
    "--workers-max-rss": "write --max-memory; it counts what a worker does not share",
    "--reload-on-rss": "write --max-memory; it counts what a worker does not share",
    "--reload-on-uss": "write --max-memory",
    "--memory-limit": "write --max-memory",
    "--idle": "write --inactivity-timeout",
    "--timeout-worker-healthcheck": "write --deadlock-timeout",
    # The process
    "-D": "systemd keeps a server in the background: {systemd}",
    "--daemon": "systemd keeps a server in the background: {systemd}",
    "--daemonize": "systemd keeps a server in the background: {systemd}",
    "--pidfile": "write --pid-file",
    "--procname": "write --process-name",
    "--uid": "write --user",
    "--gid": "write --group",
    "--setenv": "write --env NAME=VALUE",
    "--env-file": "write --env NAME=VALUE, or a table [env] in kirsch.toml",
    "--env-files": "write --env NAME=VALUE, or a table [env] in kirsch.toml",
    # Requests
    "-t": "write --timeout; it is for each request",
    "-k": "write --driver threads or --driver gevent",
    "--worker-class": "write --driver threads or --driver gevent",
    "--interface": "an application is WSGI; --driver says how it is called",
    "--request-timeout": "write --timeout",
    "--harakiri": "write --timeout",
    "--interrupt-timeout": "write --timeout",
    "--no-request-buffering": "write --request-buffering off",
    "--limit-concurrency": "write --worker-connections",
    "--backpressure": "write --worker-connections",
    "--blocking-threads": "write --threads",
    "--worker-threads": "write --threads",
    "--slow-requests": "write --slow-request DURATION",
    # Time and size
    "--timeout-keep-alive": "write --keep-alive",
    "--keep-alive-timeout": "write --keep-alive",
    "--http-keepalive": "write --keep-alive",
    "--http1-header-read-timeout": "write --header-timeout, in seconds",
    "--header-max-timeout": "write --header-timeout",
    "--header-min-rate": "write --min-rate",
    "--timeout-graceful-shutdown": "write --graceful-timeout",
    "--workers-kill-timeout": "write --graceful-timeout",
    "--worker-reload-mercy": "write --graceful-timeout",
    "--eviction-timeout": "write --graceful-timeout",
    "--limit-post": "write --limit-request-body",
    "--buffer-size": "write --limit-request-head",
    "--h11-max-incomplete-event-size": "write --limit-request-head",
    # Logs
    "--access-log": "write --access-logfile -",
    "--no-access-log": "leave --access-logfile away",
    "--access-log-fmt": "write --access-logformat",
    "--access-log-format": "write --access-logformat",
    "--log-format": "write --access-logformat",
    "--logto": "write --error-logfile",
    "--capture-output": "leave it away; the workers have the standard output and error of the supervisor",
}


def hint(flag: str, argv: Sequence[str] = ()) -> str:
    """What to write instead of ``flag``, or nothing where no other server has it; ``argv`` is the whole command line.

    The line for systemd is the command as it was, to be started in the background.
    """
    text = FLAGS.get(flag, "")
    return text.replace("{systemd}", _systemd_line(argv)) if "{systemd}" in text else text


def _systemd_line(argv: Sequence[str]) -> str:
    import os
    import shlex

    daemon = [flag for flag, text in FLAGS.items() if "{systemd}" in text]
    words = [word for word in argv if word.partition("=")[0] not in daemon] or ["module:app"]
    user = [] if os.geteuid() == 0 else ["--user"]
    start = ["systemd-run", *user, "--unit=kirsch", "--same-dir", "--property=Type=notify", "kirsch"]
    return f"`{shlex.join([*start, *words])}`, or a unit as in docs/deploy/systemd.md"
