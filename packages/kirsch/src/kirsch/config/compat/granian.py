"""granian's options and their equivalents in Kirsch. With a few exceptions, its environment variables are these
names with the prefix GRANIAN_."""

from kirsch.config.compat import texts

OPTIONS = {
    "--host": "--bind HOST:PORT",
    "--port": "--bind HOST:PORT",
    "--uds": "--bind unix:PATH",
    "--uds-permissions": "--bind unix:PATH?mode=660",
    "--interface": "=, for asgi and wsgi; asginl is --lifespan off; RSGI is not served",
    "--http": "=",
    "--no-ws --ws": "omit it; an ASGI application that does not answer WebSockets denies them",
    "--workers": "=",
    "--blocking-threads": "--threads",
    "--blocking-threads-idle-timeout": "omit it; a thread is started when a call needs it",
    "--loop": "=, for auto, asyncio and uvloop",
    "--runtime-threads --runtime-blocking-threads --runtime-mode --task-impl": (
        "omit it; one event loop serves each worker, and --threads call the application"
    ),
    "--backlog": "=",
    "--backpressure": (
        "--limit-concurrency, beyond which the answer is 503; for WSGI, --threads for calls at a time, and --queue for "
        "those that wait"
    ),
    "--http1-buffer-size": "--limit-request-head",
    "--http1-header-read-timeout": "--header-timeout, in seconds",
    "--http1-keep-alive": "omit it; --keep-alive DURATION says how long",
    "--no-http1-keep-alive": "--keep-alive 1ms; 0 never closes",
    "--http1-pipeline-flush --no-http1-pipeline-flush": "omit it; pipelined responses leave together",
    "--http2-*": texts.HTTP2_BOUNDS,
    "--no-http2-*": texts.HTTP2_BOUNDS,
    "--log --no-log": "--log-level, and --error-logfile for the place",
    "--log-level": "=",
    "--log-config": "=; a table [logging] in kirsch.toml does the same",
    "--access-log": "--access-logfile -",
    "--no-access-log": "omit --access-logfile",
    "--access-log-fmt": "--access-logformat, with gunicorn's atoms",
    "--ssl-certificate --ssl-keyfile --ssl-protocol-min --ssl-ca --ssl-crl": "=",
    "--ssl-keyfile-password": texts.SECRET_PLACE,
    "--ssl-client-verify": "--cert-reqs required",
    "--no-ssl-client-verify": "--cert-reqs none",
    "--url-path-prefix": texts.PREFIX,
    "--respawn-failed-workers --no-respawn-failed-workers": texts.REAP,
    "--respawn-interval": "omit it; the pause grows by itself where workers keep failing",
    "--rss-samples --rss-sample-interval": "omit it; --max-memory looks at what a worker has to itself",
    "--workers-lifetime": "--max-lifetime",
    "--workers-max-rss": "--max-memory; it counts what a worker does not share",
    "--workers-kill-timeout": "--graceful-timeout",
    "--factory --no-factory": "=",
    "--working-dir": "--chdir",
    "--env-files": "--env NAME=VALUE, or a table [env] in kirsch.toml",
    "--static-path-route --static-path-mount": "--static /static=DIRECTORY, which is both",
    "--static-path-dir-to-file": "--static-index FILE",
    "--static-path-expires": "--static-max-age DURATION; 60 seconds by default, and not a day",
    "--metrics --metrics-address --metrics-port": texts.METRICS,
    "--no-metrics": "omit --metrics-bind",
    "--metrics-scrape-interval": "omit it; numbers are read when they are asked for",
    "--reload --no-reload": "=",
    "--reload-paths": texts.RELOAD,
    "--reload-ignore-dirs --reload-ignore-paths --reload-ignore-patterns": texts.RELOAD_EXCLUDE,
    "--reload-ignore-worker-failure --no-reload-ignore-worker-failure": (
        "omit it; a reload that fails keeps the current workers"
    ),
    "--reload-tick": "omit it; changes that come together are one reload",
    "--process-name": "=",
    "--pid-file": "=",
    "--version": "=",
}

VARIABLES = {
    "WEBSOCKETS": "--ws",
    "LOG_ENABLED": "--log",
    "LOG_ACCESS_ENABLED": "--access-log",
    "LOG_ACCESS_FMT": "--access-log-fmt",
    "METRICS_ENABLED": "--metrics",
}
"""Environment variables, without GRANIAN_, that are not named as their flags."""
