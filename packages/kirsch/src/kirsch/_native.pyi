"""The native engine and its gateway to WSGI and ASGI (``crates/gateway``).

Everything here is re-exported or wrapped by ``kirsch``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, TypeAlias, final

from kirsch.config.native import NativeConfig

__all__ = [
    "GROUP_RECORD_SIZE",
    "PROTOCOLS",
    "QUARANTINED_MAX",
    "QUARANTINE_SIZE",
    "RATE_LIMIT_SIZE",
    "ROUTE_TABLE_SIZE",
    "SCOREBOARD_BOUNDS",
    "SCOREBOARD_FIELDS",
    "SCOREBOARD_SIZE",
    "STAGES",
    "AcmeAccount",
    "AcmeFailure",
    "AcmeOrder",
    "Call",
    "Certificates",
    "Exchange",
    "FileWrapper",
    "Hijack",
    "Inotify",
    "LogWriter",
    "NativeServer",
    "RequestCount",
    "SignalHandler",
    "WebSocket",
    "__version__",
    "add_rate_limit_debts",
    "block_signals",
    "check_access_log_format",
    "check_addresses",
    "confine",
    "count_dropped_line",
    "dropped_lines",
    "eventfd",
    "find_mount",
    "flush_logs",
    "follow_frames",
    "forwarded_client",
    "is_request_id",
    "issue_certificate",
    "leave_engines",
    "make_authority",
    "make_challenge",
    "make_request",
    "make_room_for_signals",
    "name_thread",
    "publish_quarantine",
    "quarantined_routes",
    "rate_limit_evictions",
    "recorded_routes",
    "restore_signals",
    "sampled",
    "send_to_all",
    "start_quarantine",
    "take_rate_limit_debts",
]

__version__: str

SCOREBOARD_SIZE: int
"""Bytes of a server's scoreboard: an unsigned 64-bit word, in the machine's byte order, for each of the fields."""

QUARANTINE_SIZE: int
"""Bytes of the list of routes in quarantine, which all workers read and the supervisor writes."""

QUARANTINED_MAX: int
"""The greatest number of routes in quarantine at a time."""

ROUTE_TABLE_SIZE: int
"""Bytes of a worker's table of the routes of its calls."""

RATE_LIMIT_SIZE: int
"""Bytes of the memory of the rate limits, which all workers share."""

GROUP_RECORD_SIZE: int
"""Bytes of what the engines of one process show to those of other processes, see :class:`NativeServer`, ``group``."""

SCOREBOARD_FIELDS: tuple[str, ...]
"""Names of the scoreboard's words, from offset 0 on.

``published`` is when counters and gauges were published last (nanoseconds, as :func:`time.monotonic_ns`, a few
milliseconds coarse). Then come those of :meth:`NativeServer.statistics`, and for each histogram its ``_sum`` in
nanoseconds and the numbers of observations in its buckets, ``_0`` to the last, which has no bound; these numbers are
not cumulative.

``queue_wait``: from the moment at which a request is whole until the application is called; 0 for one that did not
have to wait. Under gevent, until the hub polls the engine. ``service_time``: from the call of
the application to the end of its response, the time in which its peer is slow to read included. ``interpreter_wait``:
how long a thread of the server that comes back from waiting for the engine's work waits for the GIL.
"""

SCOREBOARD_BOUNDS: tuple[float, ...]
"""The upper bounds of the histograms' buckets, in seconds. The last bucket has no bound."""

PROTOCOLS: dict[str, tuple[str, ...]]
"""For the name of each protocol that a listener may have the names on which a handshake may agree (ALPN), the
preferred one first."""

STAGES: tuple[str, ...]
"""The stages of a request, see :meth:`NativeServer.times`.

``read``: receiving; ``parse``: understanding the head, keeping the body; ``environ``: making what the application is
given; ``queue``: waiting for a thread or greenlet that calls it; ``app``: the application, its iterable and ``close()``
included; ``write``: composing and sending; ``peer``: waiting for the client, to send or to read; ``other``: the rest.
"""

@final
class LogWriter:
    """A log that a thread without the GIL writes to the file ``path``, or to descriptor 2 if ``path`` is empty.

    With ``json`` the reports of dropped lines are JSON. A FIFO needs no reader when it is opened. Raises
    OSError if the file cannot be opened.
    """

    def __new__(cls, path: str = ..., *, json: bool = False) -> LogWriter: ...
    def write(self, lines: bytes, patience: float) -> None:
        """Append whole lines, and wait up to ``patience`` seconds until they are written; do not wait while the file
        accepts no data. The queue holds 1 MiB; lines that do not fit are dropped and counted, and a later line
        reports their number. Raises nothing if the file cannot be written."""

    def reopen(self) -> None:
        """Reopen the path after a rotation; earlier lines go to the old file. Raises OSError, and keeps the old
        file, if that fails."""

def flush_logs(patience: float, *, settle: bool = False) -> bool:
    """Wait up to ``patience`` seconds until all log lines of this process, access lines included, are written or
    dropped; return whether they are. With ``settle``, also wait until the writing threads have ended and the kernel
    no longer counts them, as is needed before a fork."""

def check_addresses(addresses: str, /) -> None:
    """Check a list of addresses of trusted proxies. Raises ValueError that says which entry is wrong, why, and what
    to write instead."""

def forwarded_client(
    trusted_proxies: str,
    forwarded: str,
    peer: str,
    lines: Sequence[str],
    *,
    host: bool = False,
    prefix: bool = False,
) -> tuple[str | None, int | None, bool | None, str | None, str | None]:
    """Return the client of a request that has the field ``lines`` and comes from ``peer`` (an IP address or ``unix``):
    address, port, whether it uses https, host and prefix; None for what is not named. The arguments are those of the
    settings.

    Raises ValueError if the fields cannot be parsed, and if a server would refuse the request.
    """

def is_request_id(given: str) -> bool:
    """Return whether ``given``, an X-Request-ID, is short and plain enough to be written to logs."""

def find_mount(places: Sequence[tuple[str, str]], host: str, path: str) -> int | None:
    """Return the index of the place (a host and a path prefix) that matches a request for ``path`` at ``host``; None
    if none matches. docs/design/interfaces.md has the rules."""

def count_dropped_line() -> None:
    """Count a log line that was dropped outside the native writer, for ``log_lines_dropped`` of the statistics."""

def dropped_lines() -> int:
    """Return how many log lines this process has dropped since it began (``log_lines_dropped`` of the statistics)."""

class AcmeFailure(Exception):
    """Raised if the certificate authority refuses a request or cannot be reached. The arguments are a message in one
    line, and the type of the ACME problem (RFC 8555 section 6.7), which may be empty."""

_Fields: TypeAlias = list[tuple[str, str]]
_Send: TypeAlias = Callable[[str, str, _Fields, bytes], tuple[int, _Fields, bytes]]

@final
class AcmeAccount:
    """An account at a certificate authority (ACME, RFC 8555).

    ``send`` sends a request, given by method, URL, fields and body, and returns status, fields and body of the
    response. If it raises, the AcmeFailure has the text of its exception. Every method may raise AcmeFailure.
    """

    @staticmethod
    def register(
        send: _Send, directory: str, contacts: Sequence[str], external: tuple[str, bytes] | None, /
    ) -> tuple[AcmeAccount, str]:
        """Create an account at the authority whose directory URL is ``directory``. Return the account, and its text
        for :meth:`restore`, which contains the private key. The caller has agreed to the terms of service.
        ``external`` is the identifier and key of an account that the authority knows (external account binding)."""

    @staticmethod
    def restore(send: _Send, text: str, /) -> AcmeAccount: ...
    @property
    def url(self) -> str: ...
    @property
    def thumbprint(self) -> str:
        """The thumbprint of the account's public key (RFC 7638)."""

    def profiles(self) -> list[str]:
        """Return the names of the certificate profiles that the authority offers."""

    def renewal(self, chain: bytes, /) -> tuple[float, float, float, str | None]:
        """Return when to renew the certificate (RFC 9773): start and end of the window in Unix time, the seconds
        after which to ask again, and the URL of an explanation."""

    def order(self, name: str, profile: str | None, replaces: bytes | None, /) -> AcmeOrder:
        """Order a certificate for a host name or an IP address. ``replaces`` is the previous certificate, in PEM."""

    def resume(self, url: str, /) -> AcmeOrder:
        """Return the order at ``url``, which was created before."""

@final
class AcmeOrder:
    """An order for a certificate. Every method may raise AcmeFailure."""

    @property
    def url(self) -> str: ...
    def challenges(self) -> list[tuple[str, str, str]]:
        """Return kind, token and answer of each challenge. One of them has to be answered; empty if the authority
        has already validated the name."""

    def answer(self, kind: str, /) -> None:
        """Tell the authority that the answer to the challenge is in place."""

    def refresh(self) -> str:
        """Fetch the state: ``pending``, ``ready``, ``processing``, ``valid`` or ``invalid``."""

    def failure(self) -> tuple[str, str]:
        """Return why the order is invalid, in the form of the arguments of an AcmeFailure."""

    def finalize(self, request: bytes, /) -> None:
        """Ask the authority to issue the certificate for ``request``, which :func:`make_request` has returned."""

    def certificate(self) -> str | None:
        """Return the certificate chain in PEM; None while the authority has not issued it."""

def make_request(name: str, /) -> tuple[str, bytes]:
    """Return a new private key in PEM, and a certificate signing request for ``name`` in DER. Raises AcmeFailure."""

def make_challenge(name: str, key_authorization: str, /) -> tuple[str, str]:
    """Return the key and the certificate, in PEM, that answer a TLS-ALPN-01 challenge (RFC 8737). Raises
    AcmeFailure."""

def make_authority() -> tuple[str, str]:
    """Return the key and the certificate, in PEM, of a development authority, which can issue no certificate for a
    name of the public internet. Raises AcmeFailure."""

def issue_certificate(authority_key: str, names: Sequence[str], /) -> tuple[str, str]:
    """Return the key and the certificate, in PEM, that such an authority issues. Raises AcmeFailure for names
    outside of its limits."""

def confine(writable: str, readable: Sequence[str], /) -> str:
    """Restrict this process for good (Landlock): it may write at and below ``writable``, read there and at and below
    each of ``readable``, and open connections; it loses the capabilities of root. Return ``full``, ``partial`` if
    the kernel supports fewer restrictions, or ``none`` if it supports none. Raises AcmeFailure if the restriction
    fails."""

@final
class Certificates:
    """The certificates of encrypted listeners (``NativeConfig.certificates``)."""

    def __new__(cls, terms: dict[str, Any]) -> Certificates:
        """Load the certificates. ``terms`` contains

        * ``certificates``: a list of dicts with ``chain`` and ``key`` (each a path, for messages, and the content of
        the file), ``password`` (bytes or None), ``names`` (server names; empty: those in the certificate) and
        ``is_challenge`` (used only for TLS-ALPN-01 challenges). The first one is the default; * ``minimum_version``
        (1.2 or 1.3), ``cipher_suites`` (names separated by colons) and ``protocols`` (for ALPN); *
        ``client_certificates`` (none, optional or required), ``authorities`` and ``revocation_lists`` (pairs of path
        and content); * ``ticket_secrets``: 32 bytes each; the first one encrypts new tickets; * ``awaited_names``:
        names that will have a certificate later; ``challenge_thumbprint``: the thumbprint of the ACME account's key,
        with which HTTP-01 challenges are answered, or None.

        Raises ValueError with one line for each mistake, which says how to correct it.
        """

    def replace(self, terms: dict[str, Any]) -> None:
        """Use other ``terms`` for new handshakes. Raises like the constructor; then nothing is changed."""

    def certificates(self) -> list[dict[str, Any]]:
        """Return the description of each certificate in use: ``path``, ``names``, ``subject``, ``issuer``,
        ``serial``, ``key`` (the kind of key), ``not_before`` and ``not_after`` (seconds of Unix time)."""

    def warnings(self) -> list[str]:
        """Return the probable mistakes in the terms, one line each."""

    def handshakes(self) -> dict[tuple[str, str], int]:
        """Return the numbers of handshakes so far, by (family, name): ``full`` and ``resumed`` by TLS version,
        ``failed`` by reason, and successful ones by ``cipher`` and by ``group``."""

@final
class NativeServer:
    """One engine and one application on listening sockets.

    The engine is polled by threads in :meth:`run` and :meth:`work`, or by an event loop. An event loop either waits in
    :meth:`select`; or it watches :meth:`fileno`, calls :meth:`poll` when that is readable or :meth:`timeout` has
    passed, and runs the exchanges that it gets.

    ``listeners`` are descriptors of listening stream sockets. The engine duplicates them; the caller closes its own.
    Timeouts are seconds (0 means none), sizes are bytes, rates are bytes per second.
    """

    def __new__(cls, app: Callable[..., Any] | None, listeners: Sequence[int], config: NativeConfig) -> NativeServer:
        """Create the server. ``config`` is read once; ``kirsch.config.native`` and the schema describe its attributes.
        If it has ``mounts``, ``app`` is not used.

        ``timeout`` is the deadline of a call; ``timeout_paths`` overrides it for paths at and below a prefix. At the
        deadline the engine itself responds with 504, even while no thread gets the GIL.

        The engine itself answers GET and HEAD of ``health_path``, with any query: with a JSON object of ``status`` and
        a few gauges; then it closes the connection. These requests are neither logged nor counted. They are answered
        while all threads are in calls and the queue is full. They are also answered while no thread polls the engine
        (its only thread is in a call, or another thread keeps the GIL, or a greenlet blocks the hub): then a thread
        without the GIL answers new connections within half a second. ``status`` is ``alive``; ``saturated`` if requests
        have to wait (both with 200, because a restart would not help); ``stalled`` when a connection has waited for
        ``stall_timeout`` seconds (0: never) for the engine to be polled; or ``draining`` (both with 503). Other
        requests on these connections are served afterwards, as from the queue. Other processes that accept from the
        same listener have had a fifth of a second to accept them first.

        With several engines, ``draining`` and ``stalled`` on the scoreboard are the numbers of engines in that state.

        Raises TypeError and ValueError for a wrong attribute, which the message names, and OSError for unusable
        descriptors.
        """

    def run(self) -> None:
        """Serve until :meth:`stop`: in this thread if there is only one, else in the threads that ``spawn`` starts.

        Signal handlers run in this thread; an exception of a handler ends the method. Raises RuntimeError if the server
        runs already or has been stopped.
        """

    def work(self, index: int) -> None:
        """Work as the thread ``index`` of the server. Returns when the server has stopped and no call runs in this
        thread."""

    def poll(self) -> tuple[list[Exchange], list[Any]]:
        """Process ready events and due timers, without waiting.

        Returns the exchanges that can start or continue, each to be run in a separate greenlet, and the waiters whose
        wait has ended.
        """

    def attach(self, lent: Sequence[Any]) -> None:
        """Attach the engine to an event loop, which calls :meth:`select` in this thread.

        ``lent`` has one object for each ASGI application, in order, with these attributes: ``event_loop``,
        ``task_class`` and ``context``, with which the task of a request is created; ``make_task(coroutine, context,
        name)``, or None if a task can start eagerly; ``state``, which is copied to each scope, or None; ``beside``, a
        descriptor that ends a wait in :meth:`select` when it is readable, or None; ``note_step()`` or None, called when
        a task may have changed the next deadline of the engine; and ``disconnected``, the exception class that ``send``
        raises if the client has disconnected.

        Raises RuntimeError if a loop is attached already, TypeError for a wrong number of objects.
        """

    def select(self, timeout: float | None) -> tuple[bool, bool]:
        """Wait until the engine is ready, at most ``timeout`` seconds (None: without limit), and call ASGI
        applications for requests that can start. Exchanges of WSGI applications are passed to ``hand_over``. Returns
        when the loop has something to do: whether the descriptor ``beside`` is readable, and whether the server has
        stopped."""

    def times(self) -> tuple[list[tuple[list[int], int, int]], int]:
        """Return the stage times of the requests that were answered since the last call, and how many did not fit in
        the buffer.

        For each request: the nanoseconds in each of ``STAGES``, whose sum is the time from the first byte received to
        the last byte sent; the CPU time in ``app``; and how often the clock was read. Requests that were refused or cut
        off, or whose client disconnected, are omitted. Empty if times are not measured. May be called in any thread.
        """

    def timeout(self) -> float | None:
        """Return the seconds after which :meth:`poll` is due even if :meth:`fileno` is not readable; 0 means now,
        None never."""

    def is_stopped(self) -> bool:
        """Return whether the server has stopped and the time that :meth:`stop` left has passed or all work has
        ended. A call whose connection is closed does not count."""

    def finish(self) -> None:
        """End serving, after the last poll: cut off open connections, and flush the logs."""

    def await_overdue(self) -> list[Call] | None:
        """Wait, without the GIL, until calls have missed their deadlines; return each such call once.

        Returns None when the server has ended. Only one thread at a time may call this.
        """

    def calls(self) -> list[Call]:
        """Return a snapshot of all application calls that have not ended. May be called in any thread."""

    def queue_wait(self, request: object) -> float | None:
        """Return how many seconds a request, given by its environ or scope, has waited in the queue before its call.
        None if that was not measured, because there is no scoreboard or the call has ended.
        """

    def write_off(self, call: int) -> None:
        """Abandon the call with this number, which has missed its deadline: the server does not wait for it when it
        stops."""

    def interrupt(self, call: int) -> bool:
        """Raise ``timeout_exception`` in the thread that runs the call with this number. Returns False if the call has
        ended or runs in no thread. The exception is raised when that thread next executes Python code.
        """

    def stop(self, graceful_timeout: float | None = None, idle_timeout: float | None = None) -> None:
        """Stop accepting, let requests in flight finish, and cut off the rest after ``graceful_timeout`` seconds.

        None means no limit, 0 means at once. An idle connection may send one more request within ``idle_timeout``
        seconds (None: 0.5), counted from now or from the end of its response; the response has ``Connection: close``.
        This time is at most ``graceful_timeout`` and ``keep_alive``.

        May be called in any thread and in a signal handler, and again: both times can only become shorter. Returns at
        once; :meth:`run` returns when the server has ended. Raises ValueError for an invalid time.
        """

    def drain(self) -> None:
        """Continue to accept and serve, but send ``Connection: close`` in each response, and 503 to health checks. So
        clients connect elsewhere for their next request; idle connections stay open. :meth:`stop` may follow. May be
        called in any thread and in a signal handler. Returns at once.
        """

    def wake(self) -> None:
        """Make a waiting :meth:`run` handle pending signals now. May be called in any thread."""

    def log_counts(self) -> None:
        """Report the events that were only counted so far: refused requests and dropped access lines. Called after
        the end."""

    def reopen_logs(self) -> None:
        """Reopen the access log after a rotation; if that fails, the old file stays in use. A running server does this
        soon, in its own thread, and reports a failure. If the server is not running, the method raises OSError.
        """

    def fileno(self) -> int:
        """Return the descriptor of the poller, which is readable when :meth:`poll` has something to do."""

    def wakeup_fd(self) -> int:
        """Return a descriptor for :func:`signal.set_wakeup_fd`: a byte written to it ends the engine's wait."""

    def statistics(self) -> dict[str, int]:
        """Return counters since the start and current gauges, as of the last poll: connections, accepted, requests, ...
        ``draining`` and ``stalled`` are 0 or 1; ``threads_most`` is the limit of concurrent calls, or 0 if an event
        loop hosts the engine.
        """

@final
class Exchange:
    """A request, or the rest of a response. It is run once."""

    @property
    def number(self) -> int:
        """The number of the request in this server, from 1."""

    @property
    def worker(self) -> int | None:
        """The index of the thread that must run this exchange with :meth:`work`; None if any thread can."""

    def run(self) -> None:
        """Call the application, or continue its iterable, and write the response. Exceptions of the application are not
        raised here.
        """

    def work(self, worker: int) -> None:
        """Do the same as :meth:`run` for an exchange that was handed over, in the thread ``worker`` beside the
        loop's thread."""

    def refuse(self) -> None:
        """Respond with 503 instead of calling the application."""

@final
class Call:
    """A snapshot of one application call."""

    @property
    def number(self) -> int:
        """The number of the call in this server, from 1."""

    @property
    def environ(self) -> dict[str, Any]:
        """The environ or scope of the request itself, not a copy. Must not be changed."""

    @property
    def age(self) -> float:
        """The seconds since the application was called."""

    @property
    def limit(self) -> float | None:
        """The deadline of the call in seconds after its start; None if it has none."""

    @property
    def thread(self) -> int | None:
        """The ident of the thread that runs the call; None while the call is suspended."""

    @property
    def waiter(self) -> Any:
        """The object that ``waiter()`` of the driver returned for this call; None if the driver has no waiters."""

    @property
    def state(self) -> str:
        """The state: ``running``, ``queued`` (not begun), ``suspended`` (holds no thread; its client is slow) or
        ``waiting`` (for its request body or its client)."""

    @property
    def outcome(self) -> str | None:
        """The result of the exchange at the deadline, as the client sees it; None before the deadline. ``504``;
        ``cut``: part of the response, then the end of the connection; ``whole``: the whole response, although the call
        has not ended; ``left``: nothing, because the client had disconnected.
        """

    @property
    def worker(self) -> int | None:
        """The index of the thread to which the call belongs."""

    @property
    def websocket(self) -> bool:
        """True if the call receives the messages of a WebSocket, so that it lasts as long as the WebSocket."""

@final
class FileWrapper:
    """``wsgi.file_wrapper``: an iterator over ``file.read(block_size)`` that the server sends with sendfile(2)
    if ``file`` is a regular file (PEP 3333, Optional Platform-Specific File Handling)."""

    def __new__(cls, file: Any, block_size: int = 8192) -> FileWrapper: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None: ...

@final
class Hijack:
    """The right to take over a connection (hijack). :class:`kirsch.net.client_socket.ClientSocket` is constructed
    with it."""

    def take(self) -> int:
        """Take over the connection: return its descriptor, which the caller closes. It is non-blocking, and the server
        no longer reads or writes there. Raises RuntimeError if the connection cannot be taken over now,
        ConnectionResetError if the client has disconnected, OSError if the system has no free descriptor.
        """

    def end(self) -> None:
        """Tell the server that Python has closed the descriptor."""

@final
class WebSocket:
    """The WebSocket of a handshake request: ``environ["wsgi.websocket"]``. Any thread may use it. The first use accepts
    the handshake, without a subprotocol. When the application's call returns, the server closes the WebSocket with
    1000, unless a handler is set; if the call raises, with 1011.
    """

    def accept(self, subprotocol: str | None = None, headers: Sequence[tuple[str, str]] | None = None) -> None:
        """Accept the handshake, with one of the client's subprotocols and further header fields.

        Raises ValueError for a subprotocol that is not offered and for a field that may not be set, RuntimeError if the
        handshake has been accepted or rejected, :class:`kirsch.websocket.Closed` if the client has disconnected.
        """

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message: ``str`` for text, ``bytes`` for binary. Waits at most ``timeout`` seconds (None:
        without limit).

        Raises TimeoutError if none has arrived in time, :class:`kirsch.websocket.Closed` after the last message,
        RuntimeError if a handler receives the messages.
        """

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any:
        """Return the next message. The iteration ends after the last message."""

    def send(self, data: str | bytes | bytearray | memoryview, timeout: float | None = None) -> None:
        """Send a message: text for ``str``, binary for bytes. If more than 64 KiB are unsent, wait until only 16 KiB
        are, at most ``timeout`` seconds. None: without limit, but ``--write-timeout`` ends a connection whose client
        reads nothing. 0: do not wait.

        Raises :class:`kirsch.websocket.QueueFull` if the client did not read in time, :class:`kirsch.websocket.Closed`
        if it is closed, TypeError for another type of ``data``, ValueError for surrogates.
        """

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close with ``code``, by default 1000 (RFC 6455 section 7.4). Does nothing if it is closed. Earlier messages
        can still be received. Raises ValueError for a code that is not allowed in a Close frame, and for a reason of
        more than 123 bytes.
        """

    def handle(self, handler: object) -> None:
        """Set the ``handler`` that receives the messages after the application's call has returned. The return value of
        the call is then ignored. See ``kirsch.websocket.Handler``.

        Raises TypeError if it is no handler, RuntimeError if there is one or the call has returned.
        """

    @property
    def subprotocols(self) -> list[str]:
        """The subprotocols that the client offers, in its order of preference."""

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that was accepted; None if none was."""

    @property
    def closed(self) -> bool:
        """True if either side has closed the WebSocket. Earlier messages can still be received."""

    @property
    def close_code(self) -> int | None:
        """The code of the side that closed first: 1005 if it gave none, 1006 if the connection ended without a Close
        frame. None while the WebSocket is open."""

    @property
    def close_reason(self) -> str | None:
        """The reason in the Close frame of the side that closed first. None while the WebSocket is open."""

    @property
    def data(self) -> Any:
        """Any object that the application stores with the WebSocket; None at first."""

    @data.setter
    def data(self, data: Any) -> None: ...

def send_to_all(peers: Sequence[Any], data: Any, /) -> list[list[Any]]:
    """Send a message to all ``peers``, framed and compressed once, without waiting. Returns a list of the closed peers,
    and a list of the peers that did not get the message because their clients read too slowly.

    Each peer is a :class:`WebSocket`, or the extension ``kirsch.websocket`` of an ASGI scope.
    """

def check_access_log_format(log_format: str, /) -> None:
    """Check an access log format. Raises ValueError if it is wrong; the message continues a sentence that begins with
    the format.
    """

@final
class SignalHandler:
    """A signal handler that calls ``handler``.

    If a ``timeout_exception`` is pending for an application call in this thread, it is raised after the handler.
    """

    def __new__(cls, handler: Callable[[int, FrameType | None], object]) -> SignalHandler: ...
    def __call__(self, *arguments: Any) -> Any: ...
    @property
    def __self__(self) -> Any:
        """The object whose bound method ``handler`` is. AttributeError if it is no bound method."""

def make_room_for_signals() -> None:
    """Enlarge the alternate signal stack of this thread, if it has one, so that all signals can be handled at once.
    Raises OSError if there is no memory.
    """

def start_quarantine(memory: Any, hash_key: Sequence[int]) -> None:
    """Write an empty list of quarantined routes. ``hash_key`` is two random 64-bit numbers: workers identify a route by
    a keyed hash, so that no client can construct two routes with the same hash.

    ``memory`` is a writable buffer of ``QUARANTINE_SIZE`` bytes or more. Raises ValueError if it is too small.
    """

def publish_quarantine(memory: Any, recording: int | None, routes: Sequence[tuple[int, int, int, str]]) -> None:
    """Replace the list of quarantined routes: at most ``QUARANTINED_MAX`` routes as (key, until, since, name), times in
    nanoseconds of CLOCK_MONOTONIC. A key identifies a route or a family of routes.

    ``recording``: the number of this recording, different each time that recording begins: workers record the routes of
    their calls under it. None: workers do not record.
    """

def quarantined_routes(memory: Any) -> list[tuple[int, int, int, str]]:
    """Return the list that :func:`publish_quarantine` has published."""

def rate_limit_evictions(memory: Any) -> int:
    """Return how many clients lost their entry in ``memory`` (``RATE_LIMIT_SIZE`` bytes) before their rate limit had
    fully recovered."""

def take_rate_limit_debts(memory: Any) -> bytes:
    """Return how much of the rate limits the clients of this host have used since the last call, for
    :func:`add_rate_limit_debts` on other hosts. The first call starts the recording."""

def add_rate_limit_debts(memory: Any, debts: bytes) -> None:
    """Add the usage of clients on another host to the rate limits. Raises ValueError if ``debts`` was not returned
    by :func:`take_rate_limit_debts`."""

def recorded_routes(memory: Any) -> tuple[int, int, list[tuple[int, int, bool, int, int, int, str]]]:
    """Return the content of a worker's table ``memory`` of ``ROUTE_TABLE_SIZE`` bytes: the number of the recording (0:
    none), how many running calls did not fit, and the routes.

    A route is (key, family, is_family, running, ended, since, name): ``running`` is its number of running calls,
    ``ended`` the number of calls that have ended since recording began, and ``since`` the time (nanoseconds of
    CLOCK_MONOTONIC) from which at least one call has always been running. Paths that differ only in numbers belong to
    one ``family`` (0: the path has no numbers), which has its own entry.
    """

def block_signals() -> None:
    """Block all signals in this thread until :func:`restore_signals`."""

def restore_signals() -> None:
    """Undo :func:`block_signals`, in the same thread or in a child that it has forked."""

def leave_engines() -> None:
    """Close the sockets of the running engines, and make the engines unusable. Called in a forked child."""

@final
class RequestCount:
    """How many requests of one context were not sampled (:func:`sampled`)."""

    def __new__(cls) -> RequestCount: ...
    @property
    def number(self) -> int: ...

def sampled(
    application: Callable[..., Any],
    traced: Callable[..., Any],
    followed: Callable[..., Any] | None,
    bound: int,
    seed: int,
    context: tuple[ContextVar[RequestCount | None], Callable[[], RequestCount]] | None = None,
    /,
) -> Callable[..., Any]:
    """Return a callable that passes each call on to ``traced``, ``followed`` or ``application``.

    A call goes to ``traced`` if its request has a field ``traceparent``, or is none of HTTP, or if a random number of
    64 bits is below ``bound``; but to ``followed``, unless that is None, if the field is valid and its sender does not
    sample the trace. ``seed`` begins the random numbers. A WSGI application needs ``context``: a variable whose default
    is None, and a function that sets it in a context that has none. Calls of ``application`` and ``followed`` are
    counted there.
    """

def name_thread(name: str) -> None:
    """Name the calling thread for the operating system (``ps -T``); 15 bytes of the name are kept."""

def follow_frames(frame: FrameType) -> list[tuple[CodeType, dict[str, Any], int]]:
    """Return the code, the globals and the line number of a frame and its callers, the outermost last.

    The frame may belong to another thread that is running: all threads are stopped meanwhile. If a free-threaded
    interpreter cannot do that, the list is empty.
    """

def eventfd() -> int:
    """Create an eventfd(2), non-blocking and close-on-exec: PyPy 3.11 has no :func:`os.eventfd`. Raises OSError."""

@final
class Inotify:
    """An inotify(7) instance of Linux, which reports changes in directories. Non-blocking and close-on-exec.

    Raises OSError if the system does not allow one more.
    """

    def __new__(cls) -> Inotify: ...
    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are events. Raises ValueError if it is closed."""

    def add(self, path: str) -> int:
        """Watch the entries of the directory ``path``, not those of its subdirectories; return the watch descriptor. It
        is the same as before if the directory is watched already. Raises OSError.
        """

    def remove(self, watch: int) -> None:
        """Remove a watch, if it exists. Raises OSError."""

    def read(self) -> list[tuple[int, int, str]]:
        """Return the events: the watch (-1: events were lost), the flags of inotify(7), and the name of the entry
        (empty: the directory itself). Raises OSError."""

    def close(self) -> None:
        """Close the descriptor. May be called again."""
