"""The static types of the keyword arguments of ``kirsch.Server`` and ``kirsch.serve``.

Written by scripts/settings_page.py from kirsch.config.schema; edit that. Only type checkers and editors read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kirsch.reports import Report


class Options(TypedDict, total=False):
    """Times are numbers of seconds (0: no limit), sizes numbers of bytes, or both text as on the command line: "90s".

    What is not given keeps its default.
    """

    fastcgi_script_name: str
    """Default: auto. With fastcgi:, uwsgi: or scgi: addresses: the path below which the web server serves the
    application, as in /shop, or / for the root. It becomes SCRIPT_NAME, and the rest of the request's path PATH_INFO.
    auto is what the web server says if it gives a PATH_INFO, and otherwise the root."""

    fastcgi_stderr: bool
    """Default: on. With fastcgi: addresses: on passes on to the web server what a WSGI application writes to
    wsgi.errors, at most 64 KiB of each request; web servers write it to their error log. off leaves it to the log of
    Kirsch, which has it in any case."""

    http: str | int
    """Default: auto. Which versions of HTTP clients may speak: auto is HTTP/1.1 and HTTP/2, 1 is HTTP/1.1 alone, 2 is
    HTTP/2 alone. With TLS the handshake decides (ALPN), where auto prefers HTTP/2. In clear a client that knows of it,
    such as a proxy, begins with HTTP/2; a request to upgrade (Upgrade: h2c) is ignored."""

    backlog: int
    """Default: 2048, at least 1. How many connections the kernel keeps until the server accepts them. The kernel caps
    it at net.core.somaxconn. A connection costs memory only while it waits. With a short backlog a burst of connections
    is refused."""

    worker_connections: int
    """Default: 65536, at least 1. How many connections a worker has open at most. Further connections wait in the
    backlog. An idle connection costs a file descriptor and less than 1 KiB, besides what the kernel keeps for it."""

    certfile: str
    """Encrypt connections with this certificate: a PEM file with the certificate and then its issuers, as in
    fullchain.pem of certbot. Addresses of TCP without a scheme are https then; http://:80 beside it stays plain, and so
    does unix:PATH unless it is written https:unix:PATH. A change of the file takes effect at once, and at SIGHUP; one
    that does not fit leaves the old certificate in force. kirsch check judges the files."""

    keyfile: str
    """The private key of --certfile, in PEM. Empty: it is in the same file."""

    keyfile_password: str
    """Where the password of an encrypted key is: file:PATH is the first line of a file, env:NAME a variable of the
    environment. On the command line itself every user of the machine could read it."""

    tls: Iterable[Mapping[str, str | list[str]]] | str
    """Another certificate, as CERTFILE,KEYFILE (or CERTFILE with the key in it). Repeat the flag for several; in the
    settings file each is a table [[tls]] with certfile, keyfile, keyfile-password and names. A client gets the one of
    the server name that it asks for (SNI), exactly or by *.example.org; of several for one name that whose kind of key
    the client prefers, such as ECDSA, RSA and ML-DSA. The first certificate is that of unknown names. Without names,
    they are those of the certificate."""

    tls_min: str
    """Default: 1.2. The lowest version of TLS that is spoken. Versions before 1.2 are broken, and are not there."""

    ciphers: str
    """Use these cipher suites alone: names of OpenSSL or IANA with colons between them, as in
    ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256. A list that names none of TLS 1.3 leaves those of TLS 1.3 as
    they are, and likewise for 1.2. Empty: all, of which none is weak."""

    ca_certs: Iterable[str] | str
    """The authorities whose certificates clients may present, in PEM; see --cert-reqs."""

    cert_reqs: str | int
    """Default: none. Whether clients have to present a certificate of --ca-certs: none, optional or required; 0, 1 and
    2 are the same. SSL_CLIENT_S_DN and others tell a WSGI application of it, the extension tls an ASGI application."""

    crlfile: Iterable[str] | str
    """Revocation lists of the authorities of --ca-certs, in PEM or DER. With any, each authority needs one. They are
    read again when they change."""

    redirect_http: bool
    """Send clients of http:// addresses to https with 308, to the same path. Hosts without a certificate get 421.
    Health checks, and the requests by which an authority verifies a name (--acme), are answered as before. A trusted
    proxy that says that its client uses https is served."""

    https_port: int
    """Default: 0, 0 to 65535. The port to which --redirect-http sends clients. 0 is that of the first https address;
    another one is needed where something forwards port 443 to it."""

    hsts: float | str
    """Default: 0. Have browsers use https alone for this long after each response (Strict-Transport-Security), unless
    the application sets the field. They keep to it even if https fails: begin with 1h, then write 365d for a year. 0:
    responses say nothing of it."""

    hsts_subdomains: bool
    """With --hsts: for all names below the host, too."""

    trusted_proxies: str
    """Proxies that are trusted to name the client of a request: IP addresses, networks such as 10.0.0.0/8, and unix for
    peers on Unix sockets. The list of addresses in X-Forwarded-For (or Forwarded, see --forwarded) is read from the
    right, past trusted addresses; the first one that is not trusted is the client. The client and its scheme then show
    in REMOTE_ADDR, REMOTE_PORT, wsgi.url_scheme and the access log; kirsch.peer in the environ keeps the address of the
    socket. From peers that are not trusted these fields are removed. Only these peers, and those on this machine, may
    connect to addresses with fastcgi:, uwsgi: and scgi:. all trusts every peer, and takes the last address of the list.
    Empty: no peer."""

    forwarded: str
    """Default: x. Which fields trusted proxies write: x for X-Forwarded-For, X-Forwarded-Proto and their like, rfc7239
    for Forwarded. The other family is not read and is removed, because it is the client who has written it."""

    forwarded_host: bool
    """Let trusted proxies replace the host of a request (HTTP_HOST), by X-Forwarded-Host or the host of Forwarded. Only
    for proxies that set it themselves: a host that the client has written ends up in links and caches."""

    forwarded_prefix: bool
    """Let trusted proxies name the path below which they serve the application (SCRIPT_NAME), by X-Forwarded-Prefix.
    Only for proxies that set it themselves. Forwarded has no such parameter."""

    proxy_from: str
    """Peers that may connect to addresses with ?proxy: IP addresses, networks and unix, as for --trusted-proxies. A
    connection of any other peer is closed. Empty: every peer, which is safe only where nothing but the proxy can reach
    the address."""

    health_path: str
    """Answer this path in the engine, without the application, even while every thread is busy or blocked: status 200
    for alive or saturated, 503 for draining or stalled, with the word in a JSON body. Empty: no such path."""

    stall_timeout: float | str
    """Default: 30s. How long the engine may not be polled, because one call keeps the only thread, the GIL or gevent's
    hub, until --health-path answers stalled, with 503. The worker is not ended: --deadlock-timeout and --timeout do
    that. 0 never answers stalled."""

    slow_request: float | str
    """Default: 0. Log a request that takes longer than this, with its stack, while it still runs. 0 logs none."""

    interface: str
    """Default: auto. How the application is called. auto finds out from its signature: a coroutine function, or what
    takes scope, receive and send, is an ASGI application. A mount can say its own (--mount /api=asgi:shop.api:app)."""

    driver: str
    """Default: threads. threads, gevent or asyncio; gthread, gunicorn's name, is the same as threads. Threads serve any
    WSGI application. gevent runs each request in a greenlet, for applications that wait much; it patches the standard
    library before the application is imported, and needs pip install 'kirsch[gevent]'. An ASGI application is always
    served by asyncio, also where this is threads."""

    lifespan: str
    """Default: auto. Call the lifespan of an ASGI application at the start and end of its worker. on: an application
    that does not know it is not served. A worker is ready when the start-up is complete, and the shutdown comes after
    the last request."""

    loop: str
    """Default: auto. The event loop of an ASGI application. auto and asyncio: CPython's own, of which the engine is a
    part. uvloop: for an application whose own connections, as to a database, are its bottleneck; needs pip install
    uvloop."""

    threads: int
    """Default: 16, at least 1. How many calls of the application may run at a time in each worker, with the driver
    threads. A thread is started when a call needs it. 1 calls the application in the main thread, one call after
    another, for an application that is not thread-safe. More threads serve more requests that wait; they cost memory,
    and requests that compute delay each other."""

    timeout: float | str
    """Default: 0. How long one call of the application may take; gunicorn's limit of this name is for a whole worker.
    At the limit the engine sends 504 to the client, whatever the call does; the stack of the call is logged, and
    kirsch.RequestTimeout is raised in it. If the call does not end within --graceful-timeout after that, the worker is
    replaced: a new worker is started first. With --workers 0 such a call ends the server, with exit status 75. Time in
    which a slow client delays the response does not count. 0 sets no limit."""

    timeout_paths: Mapping[str, float | str] | Iterable[tuple[str, float | str]]
    """Another --timeout for a path and all paths below it: /reports=300s is for /reports and /reports/x, and not for
    /reportsx. Repeat the flag, or separate several with commas. The longest prefix wins. 0 sets no limit there."""

    queue: int
    """Default: 1024, at least 1. How many requests may wait for a thread. While the queue is full the engine reads no
    further requests, so they wait in the kernel's buffers; none is dropped."""

    queue_timeout: float | str
    """Default: 60s. How long a request may wait for a thread. Then it is answered with 503 and Retry-After, and the
    application is not called. 0 sets no limit. With --threads 1 the engine reads nothing while a call runs, so requests
    wait in the kernel and this time does not run."""

    limit_concurrency: int
    """Default: 0. How many requests a worker may have in the application at a time, with those whose calls go on behind
    their responses. One more is answered with 503 and Retry-After, and the application is not called. Health checks,
    static files and idle connections do not count. The driver threads runs at most --threads calls at a time, and
    further requests wait in the --queue, so asyncio and gevent need this limit. 0 sets no limit."""

    request_buffering: bool
    """Default: on. on receives the whole request body before the application is called, so that a slow client occupies
    no thread. off calls the application after the head and passes the body on as it arrives. An ASGI application always
    receives it as it arrives."""

    rate_limit: Mapping[str, str] | Iterable[str] | str
    """Answer the requests of a client that sends more than so many in a time with 429 and Retry-After, without the
    application: 20/s, 100/m, 1000/h or 30/10s for all paths, /login=5/m for a path and what is beneath it. The longest
    path that fits decides; /static=off has no limit. Options follow behind a space: burst=3, how many requests may come
    at once (otherwise as many as the rate has); by=client (the address, of IPv6 the /64), by=all (all clients share the
    limit) or by=header:X-Api-Key (each value of the field; requests without it count for their address). Commas
    separate limits. They hold for all workers together, and with --groups for all hosts. Empty: there is no limit."""

    keep_alive: float | str
    """Default: 75s. How long a connection may be idle between two requests. A longer time saves clients new connections
    and keeps more idle connections open. Behind a proxy it should be longer than the proxy's idle time. 0 sets no
    limit."""

    header_timeout: float | str
    """Default: 15s. How long a request head may take from its first byte to its last. Then the response is 408. 0 sets
    no limit, and lets a slow client keep a connection."""

    body_timeout: float | str
    """Default: 30s. How long a client may send nothing in the middle of a request body. Then the response is 408. 0
    sets no limit."""

    write_timeout: float | str
    """Default: 30s. How long a client may receive nothing in the middle of a response. Then the connection is cut. 0
    sets no limit."""

    min_rate: int | str
    """Default: 500. How many bytes per second a client must send of a body, or receive of a response, on average. 0
    sets no limit, and lets a client that sends a byte at a time keep a connection and its buffers."""

    graceful_timeout: float | str
    """Default: 30s. How long requests in flight may take after SIGTERM before they are cut. 0 cuts them at once. After
    SIGINT and SIGQUIT they have one second. A request is in flight when its whole head has arrived. Half a head has
    half a second, like an idle connection, and is answered with 408."""

    limit_request_line: int | str
    """Default: 8190, at least 64. How long a request line may be. A longer one is answered with 414."""

    limit_request_fields: int
    """Default: 100, at least 1. How many header fields a request may have. More are answered with 431."""

    limit_request_field_size: int | str
    """Default: 8190, at least 64. How long one header field may be, name and value together. A longer one is answered
    with 431."""

    limit_request_head: int | str
    """Default: 65536, at least 256. How long the request line and all header fields may be together. A longer head is
    answered with 431. Each connection that sends a head may take this much memory."""

    limit_request_body: int | str
    """Default: 1GiB. How long a request body may be. A longer one is answered with 413. Each body may take this much of
    the disk that holds the temporary directory."""

    body_memory: int | str
    """Default: 1MiB. How long a request body may be to stay in memory. A longer one goes to a temporary file. More
    memory saves disk traffic, and is taken for each connection that uploads."""

    body_memory_total: int | str
    """Default: 64MiB. How much memory all request bodies of a worker may take together, each from its first byte until
    its response is complete. A body that does not fit goes to a temporary file, however short it is. With
    --request-buffering off the engine then reads 4 KiB ahead for each call, instead of 64. Messages of WebSockets that
    are incomplete, or that the application has not received, may take as much again; one that does not fit closes its
    WebSocket with code 1013."""

    server_header: str
    """Default: kirsch. The Server header field of responses in which the application sets none. Empty: no such
    field."""

    compress: Iterable[str] | str | bool
    """Default: off. Compress the responses of the application for clients that accept it (Accept-Encoding): on, or the
    codings in order of preference, as in zstd,br,gzip, which is what on means. Each part of a response can be decoded
    when it arrives. Left as they are: responses that are encoded already, that are parts (206), or that say
    Cache-Control: no-transform or Kirsch-Compress: off; files (wsgi.file_wrapper, pathsend); clients of HTTP/1.0. Files
    of --static are compressed ahead of time instead. off: no response is compressed."""

    compress_types: Iterable[str] | str
    """Default: text/*, application/json, application/javascript, application/xml, application/x-ndjson,
    application/wasm, image/svg+xml, *+json, *+xml. The media types that --compress compresses. A star stands for any
    beginning or any end. Images, audio and video are compressed already."""

    compress_min_size: int | str
    """Default: 512. Compress no body that is shorter, if its length is known when the response begins."""

    compress_private: bool
    """Compress also responses that may hold a secret of the client's: those to requests with Cookie or Authorization,
    and those with Set-Cookie. Over https, a page that shows both a secret (such as a CSRF token that stays the same)
    and a text of the request's lets an attacker find out the secret from the lengths of responses (BREACH).
    Kirsch-Compress: on in a response allows it for that response."""

    compress_memory: int | str
    """Default: 64m. The memory of a worker for compression. A response under way takes 400 KiB with gzip, 768 KiB with
    zstd and 1200 KiB with br; one for which there is no room is not compressed."""

    ws_max_size: int | str
    """Default: 16MiB, at least 1. How long a message of a client may be, after it is decompressed. A longer one closes
    the WebSocket with code 1009. Each WebSocket may take this much memory."""

    ws_max_queue: int
    """Default: 32, at least 1. How many messages of a client may wait for the application. While as many do, or 64 KiB,
    nothing is read from this client."""

    ws_ping_interval: float | str
    """Default: 20s. How often a client is pinged, which also keeps proxies from closing an idle WebSocket. 0 sends no
    pings."""

    ws_ping_timeout: float | str
    """Default: 20s. How long a client may send nothing at all after a ping. Then the WebSocket is closed, with code
    1006 for the application. 0 sets no limit."""

    ws_compression: bool
    """Default: on. Whether messages are compressed (permessage-deflate) where the client offers it. Messages below 256
    bytes never are."""

    static: Mapping[str, str] | Iterable[tuple[str, str]]
    """Answer requests beneath a path with the files of a directory, as in /static=./public, before any mount and
    without the application. Repeat the flag for several; in the variable each is a line of its own. A directory is
    opened when a worker starts."""

    static_max_age: float | str
    """Default: 60s. How long browsers and caches may use a file without asking again (Cache-Control: max-age). 0 lets
    them ask each time. A file whose name has a hash of its content, such as app.55e7cbb9ba48.css, is theirs for a
    year."""

    static_immutable: Iterable[str] | str
    """Patterns, separated by commas, of further names whose content never changes, relative to the directory, such as
    assets/*. A star stands for any characters but slashes, two stars for any, a question mark for one."""

    static_index: str
    """Default: index.html. The file of a directory that answers a path which ends in a slash. Empty: there is none.
    Directories are never listed."""

    static_missing: str
    """Default: not-found. What answers a request for which there is no file: not-found is 404, app is the
    application."""

    static_symlinks: str
    """Default: inside. Where symbolic links may lead: inside the directory, or anywhere. Kernels before Linux 5.6, and
    sandboxes that forbid openat2, follow none inside."""

    access_logfile: str
    """Write a line for each request to this file. - is standard output. Empty: no access log. SIGUSR1 opens the file
    again, after a rotation."""

    access_logformat: str
    """Default: combined. The format of access lines: combined (Apache's), json, or a text with gunicorn's atoms, such
    as '%(h)s "%(r)s" %(s)s %(D)s'. For a variable (%({NAME}e)s) that is neither text nor a number, the name of its
    class is written."""

    access_logger: bool | Callable[[str, dict[str, str]], None]
    """Pass each access line to the logger kirsch.access too, for handlers of Python's logging; lines go to standard
    output if it has no handler. It costs several microseconds of Python for each request; --access-logfile costs
    none."""

    report: Report
    """Called with level, message and exception; default: logger kirsch."""
