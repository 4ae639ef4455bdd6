"""The options of waitress-serve, with their equivalents in Kirsch."""

from kirsch.config.compat import texts

OPTIONS = {
    "--listen": "--bind HOST:PORT",
    "--host": "--bind HOST:PORT",
    "--port": "--bind HOST:PORT",
    "--no-ipv4": "--bind [::]:PORT",
    "--no-ipv6": "--bind 0.0.0.0:PORT",
    "--unix-socket": "--bind unix:PATH",
    "--unix-socket-perms": "--bind unix:PATH?mode=600",
    "--call": "--factory",
    "--app": texts.MODULE,
    "--url-scheme": texts.FORWARDED,
    "--url-prefix": texts.PREFIX,
    "--ident": "--server-header TEXT",
    "--threads": "=; the default is 16 and not 4",
    "--backlog": "=",
    "--recv-bytes --send-bytes --outbuf-overflow --outbuf-high-watermark": (
        "omit it; what a client is slow to take is bounded, and the application waits for it"
    ),
    "--inbuf-overflow": "--body-memory",
    "--connection-limit": "--worker-connections",
    "--cleanup-interval": "omit it; each connection has its own deadline",
    "--channel-timeout": "--keep-alive, with --header-timeout, --body-timeout and --write-timeout",
    "--max-request-header-size": "--limit-request-head",
    "--max-request-body-size": "--limit-request-body",
    "--asyncore-loop-timeout --asyncore-use-poll": "omit it; the kernel tells what is ready",
    "--channel-request-lookahead": "omit it; a client that has left is noticed before its request is run",
    "--expose-tracebacks --no-expose-tracebacks": "omit it; a traceback goes to the log and never to a client",
    "--log-socket-errors --no-log-socket-errors": "--log-level",
    "--trusted-proxy --trusted-proxy-count --trusted-proxy-headers": texts.FORWARDED,
    "--log-untrusted-proxy-headers --no-log-untrusted-proxy-headers": texts.FORWARDED,
    "--clear-untrusted-proxy-headers --no-clear-untrusted-proxy-headers": texts.FORWARDED,
}
