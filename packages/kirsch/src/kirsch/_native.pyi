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
    """Writes to the file ``path``, or to descriptor 2 where that is empty, in a thread that needs no GIL.

    ``json`` is the form in which it tells of lines that it has dropped. A path that is a FIFO needs no reader. Raises
    OSError if the file cannot be opened.
    """

    def __new__(cls, path: str = ..., *, json: bool = False) -> LogWriter: ...
    def write(self, lines: bytes, patience: float) -> None:
        """Append whole lines, and wait up to ``patience`` seconds until they are written; not at all while the file
        does not accept any. A mebibyte may wait; what finds no room is dropped and counted, and a line tells how many
        when there is room again. It raises nothing if the file cannot be written."""

    def reopen(self) -> None:
        """Open the path again after a rotation; what was written before goes to the old file. Raises OSError, and
        keeps the old file, if it cannot."""

def flush_logs(patience: float, *, settle: bool = False) -> bool:
    """Wait up to ``patience`` seconds until all lines that were logged in this process are written or dropped, access
    lines included; whether they are. With ``settle`` also until the threads that write have ended and the kernel counts
    them no longer, as before a fork."""

def check_addresses(addresses: str, /) -> None:
    """Raise ValueError where ``addresses`` is not a list of addresses that a server can trust: what is wrong with which
    entry, and what to write instead."""

def forwarded_client(
    trusted_proxies: str,
    forwarded: str,
    peer: str,
    lines: Sequence[str],
    *,
    host: bool = False,
    prefix: bool = False,
) -> tuple[str | None, int | None, bool | None, str | None, str | None]:
    """Return the client of a request with these field lines from ``peer`` (an IP address or ``unix``): address, port,
    whether it uses https, host and prefix, each None if it is not named. The arguments are those of the settings.

    Raises ValueError for what cannot be read, and if a server would refuse the request.
    """

def is_request_id(given: str) -> bool:
    """Return whether an X-Request-ID is short and plain, so that it may be repeated in logs."""

def find_mount(places: Sequence[tuple[str, str]], host: str, path: str) -> int | None:
    """Return the index of the place, a host and a prefix of paths, that fits a request for ``path`` at ``host``
    (docs/design/interfaces.md); None if none fits."""

def count_dropped_line() -> None:
    """Count a line that was dropped outside the native writer, in ``log_lines_dropped`` of the statistics."""

def dropped_lines() -> int:
    """Return how many log lines this process has dropped since it began, as ``log_lines_dropped`` of the statistics."""

class AcmeFailure(Exception):
    """The authority has refused something, or cannot be reached. The arguments are one line, and the kind of the
    authority's problem (RFC 8555 section 6.7), which may be empty."""

_Fields: TypeAlias = list[tuple[str, str]]
_Send: TypeAlias = Callable[[str, str, _Fields, bytes], tuple[int, _Fields, bytes]]

@final
class AcmeAccount:
    """An account at an authority (ACME, RFC 8555).

    ``send`` is called with method, URL, fields and body of each request, and returns status, fields and body of the
    response. If it raises, the text of the exception is that of the AcmeFailure. Every method may raise AcmeFailure.
    """

    @staticmethod
    def register(
        send: _Send, directory: str, contacts: Sequence[str], external: tuple[str, bytes] | None, /
    ) -> tuple[AcmeAccount, str]:
        """Return a new account at the authority of ``directory``, and the text from which :meth:`restore` makes it; the
        text contains the private key. The caller has agreed to the terms of service. ``external`` are identifier and
        key of an account that the authority knows (external account binding)."""

    @staticmethod
    def restore(send: _Send, text: str, /) -> AcmeAccount: ...
    @property
    def url(self) -> str: ...
    @property
    def thumbprint(self) -> str:
        """The thumbprint of the account's key."""

    def profiles(self) -> list[str]:
        """Return the names of the profiles that the authority offers."""

    def renewal(self, chain: bytes, /) -> tuple[float, float, float, str | None]:
        """Return when the certificate is to be replaced (RFC 9773): the window in Unix time, the seconds after which to
        ask again, and a page that explains it."""

    def order(self, name: str, profile: str | None, replaces: bytes | None, /) -> AcmeOrder:
        """Order a certificate for a host name or an IP address; ``replaces`` is the one that it follows, in PEM."""

    def resume(self, url: str, /) -> AcmeOrder:
        """Return an order that was made before."""

@final
class AcmeOrder:
    """An order of a certificate. Every method may raise AcmeFailure."""

    @property
    def url(self) -> str: ...
    def challenges(self) -> list[tuple[str, str, str]]:
        """Return kind, token and answer of each challenge, of which one has to be answered; none if the authority is
        convinced already."""

    def answer(self, kind: str, /) -> None:
        """Tell the authority that the answer is in place."""

    def refresh(self) -> str:
        """Return the state: ``pending``, ``ready``, ``processing``, ``valid`` or ``invalid``."""

    def failure(self) -> tuple[str, str]:
        """Return why it is invalid, as the arguments of an AcmeFailure."""

    def finalize(self, request: bytes, /) -> None:
        """Ask for the certificate of a request of :func:`make_request`."""

    def certificate(self) -> str | None:
        """Return the certificate with its issuers in PEM; None while the authority still makes it."""

def make_request(name: str, /) -> tuple[str, bytes]:
    """Return a new key in PEM, and a request for a certificate of ``name`` in DER. Raises AcmeFailure."""

def make_challenge(name: str, key_authorization: str, /) -> tuple[str, str]:
    """Return key and certificate, in PEM, that answer a challenge of TLS-ALPN-01 (RFC 8737). Raises AcmeFailure."""

def make_authority() -> tuple[str, str]:
    """Return key and certificate, in PEM, of an authority of development, which can issue no certificate for a name of
    the public internet. Raises AcmeFailure."""

def issue_certificate(authority_key: str, names: Sequence[str], /) -> tuple[str, str]:
    """Return key and certificate, in PEM, by such an authority. Raises AcmeFailure for names that it must not have."""

def confine(writable: str, readable: Sequence[str], /) -> str:
    """Take rights from this process for good: it may write at and below ``writable``, read there and at and below each
    of ``readable``, and connect; it has no capability of root. Return ``full``, ``partial`` for a kernel that knows
    fewer rights, or ``none`` if the system cannot do so. Raises AcmeFailure if the system did not do it."""

@final
class Certificates:
    """The certificates with which listeners encrypt (``NativeConfig.certificates``)."""

    def __new__(cls, terms: dict[str, Any]) -> Certificates:
        """``terms`` has

        * ``certificates``: a list of dicts with ``chain`` and ``key`` (each a path, for messages, and the content of
          the file), ``password`` (bytes or None), ``names`` (of servers; empty: those of the certificate) and
          ``is_challenge`` (it answers an authority's challenge of TLS-ALPN-01 alone). The first is the default;
        * ``minimum_version`` (1.2 or 1.3), ``cipher_suites`` (names with colons) and ``protocols`` (for ALPN);
        * ``client_certificates`` (none, optional or required), ``authorities`` and ``revocation_lists`` (paths with
          contents);
        * ``ticket_secrets``: 32 bytes each; new tickets have the first;
        * ``awaited_names``: names that will have a certificate; ``challenge_thumbprint``: that of the account's key
          at an authority, which answers challenges of HTTP-01, or None.

        Raises ValueError with a line for each mistake, which says how to mend it.
        """

    def replace(self, terms: dict[str, Any]) -> None:
        """Take other terms for handshakes that begin from now on. Raises as the constructor does; then nothing has
        changed."""

    def certificates(self) -> list[dict[str, Any]]:
        """Return the description of each certificate in force: ``path``, ``names``, ``subject``, ``issuer``,
        ``serial``, ``key`` (its kind), ``not_before`` and ``not_after`` (seconds of Unix time)."""

    def warnings(self) -> list[str]:
        """Return the probable mistakes in the terms, each in one line."""

    def handshakes(self) -> dict[tuple[str, str], int]:
        """Return the numbers of handshakes so far, by a family and a name in it: ``full`` and ``resumed`` by the
        version of TLS, ``failed`` by the reason, ``cipher`` and ``group`` of those that have succeeded."""

@final
class NativeServer:
    """One engine and one application on listening sockets.

    The threads that are in :meth:`run` and :meth:`work` poll it, or a loop that hosts it. Such a loop either waits in
    :meth:`select`, or watches :meth:`fileno`, calls :meth:`poll` when that is readable and when :meth:`timeout` has
    passed, and runs what it gets.

    ``listeners`` are descriptors of listening stream sockets; they are duplicated, so the caller keeps and closes
    its own. Timeouts are seconds (0 means none), sizes are bytes, rates are bytes per second.
    """

    def __new__(cls, app: Callable[..., Any] | None, listeners: Sequence[int], config: NativeConfig) -> NativeServer:
        """``config`` is read once; ``kirsch.config.native`` and the schema describe what it has. If it has ``mounts``,
        ``app`` is not used.

        ``timeout`` is the deadline of a call, and ``timeout_paths`` are others for paths at and below a prefix. At the
        deadline the engine itself answers 504, also while no thread gets the GIL.

        GET and HEAD of ``health_path``, with any query, are answered by the engine: with a JSON object of ``status``
        and a few gauges, by closing the connection, without an access log line, and without being counted as requests.
        It works while all threads are in calls and the queue is full, and also while no thread polls the engine,
        because its only thread is in a call, or something holds the GIL, or a greenlet the hub: a thread without the
        GIL then answers new connections, within half a second. ``status`` is ``alive``; ``saturated`` where requests
        have to wait (both with 200, for a restart mends neither); ``stalled`` when a connection has waited for
        ``stall_timeout`` seconds (0: never) for the engine to be polled; or ``draining`` (both with 503). Other
        requests that arrive meanwhile are served afterwards, as from the queue; where other processes accept from the
        same listener, they have had a fifth of a second to do so.

        With several engines, ``draining`` and ``stalled`` on the scoreboard are how many engines are.

        Raises TypeError and ValueError for what cannot be used, naming it, and OSError for descriptors that cannot.
        """

    def run(self) -> None:
        """Serve until :meth:`stop`: with one thread in this one, with more in those that ``spawn`` starts.

        Signal handlers run in this thread, and what they raise ends it. Raises RuntimeError when it runs already or
        has been stopped.
        """

    def work(self, index: int) -> None:
        """Be the thread ``index`` of the server. Returns when the server has stopped and no call runs here."""

    def poll(self) -> tuple[list[Exchange], list[Any]]:
        """Do what is ready and due now, without waiting.

        Returns exchanges that can start or go on, each to be run in a greenlet of its own, and the waiters whose wait
        is over.
        """

    def attach(self, lent: Sequence[Any]) -> None:
        """Let a loop host the engine: it calls :meth:`select` in this thread.

        ``lent`` has an object for each ASGI application, in their order, with attributes: ``event_loop``,
        ``task_class`` and ``context``, of which each request's task is
        made; ``make_task(coroutine, context, name)``, or None if a task can begin at once; ``state``, which each
        scope copies, or None; ``beside``, a descriptor that ends the waits of :meth:`select`, or None; ``note_step()``
        or None, called when a step of the loop may have changed what the engine has to do next; and ``disconnected``,
        the class of what ``send`` raises when the client has left.

        Raises RuntimeError when there is a loop already, TypeError for another number of objects.
        """

    def select(self, timeout: float | None) -> tuple[bool, bool]:
        """Wait until the engine is ready, at most ``timeout`` seconds (None: without limit), and call the application
        for requests that can start; what WSGI applications have to run is handed over (``hand_over``). It returns when
        the loop has something to do. Returns whether the descriptor ``beside`` is readable, and whether the server has
        stopped."""

    def times(self) -> tuple[list[tuple[list[int], int, int]], int]:
        """Return the times of requests that were answered since the last call, and how many there was no room for.

        Of each: nanoseconds in each of ``STAGES``, which add up to all from the first byte received to the last one
        sent; the processor time in ``app``; and how often the clock was read. A request that was refused, or cut, or
        whose peer has left, has none. Empty if times are not taken. From any thread.
        """

    def timeout(self) -> float | None:
        """Seconds until :meth:`poll` is due though :meth:`fileno` is not readable; 0: now; None: never."""

    def is_stopped(self) -> bool:
        """Return whether all that :meth:`stop` left time for is over. A call without a connection does not count."""

    def finish(self) -> None:
        """End: the loop polls no more. Open connections are cut, and logs are flushed."""

    def await_overdue(self) -> list[Call] | None:
        """Wait, without the GIL, until calls have passed their deadlines, and return each once.

        None: the server has ended. For one thread at a time.
        """

    def calls(self) -> list[Call]:
        """Return all calls of the application that are not over, as they are now. From any thread."""

    def queue_wait(self, request: object) -> float | None:
        """Return the seconds that a request, which is an environ or a scope, has waited in the queue before its call.

        None: that was not measured, because there is no scoreboard, or the call is over.
        """

    def write_off(self, call: int) -> None:
        """Do not wait for the call of this number when the server stops. It has missed its deadline."""

    def interrupt(self, call: int) -> bool:
        """Raise ``timeout_exception`` in the thread in which the call of this number runs.

        False if it is over, or does not run there. The exception comes when that thread next executes Python.
        """

    def stop(self, graceful_timeout: float | None = None, idle_timeout: float | None = None) -> None:
        """Stop accepting, finish what is in flight, cut what is left after ``graceful_timeout`` seconds.

        None waits without limit, 0 cuts at once. An idle connection may ask once more within ``idle_timeout`` seconds
        (None: 0.5), counted from now or from the end of its response, and is answered with ``Connection: close``; that
        is never longer than ``graceful_timeout``, nor than ``keep_alive``.

        May be called from any thread and from a signal handler, and again: both times can only become shorter. Returns
        at once; :meth:`run` returns when all is done. Raises ValueError for times that are none.
        """

    def drain(self) -> None:
        """Go on accepting and serving, but say ``Connection: close`` in each response, and 503 to health checks.

        So peers go elsewhere when they ask the next time; idle connections stay until then. :meth:`stop` goes on from
        there. May be called from any thread and from a signal handler. Returns at once.
        """

    def wake(self) -> None:
        """Make a waiting :meth:`run` look at pending signals now. May be called from any thread."""

    def log_counts(self) -> None:
        """Report what was only counted so far, refused requests and dropped access lines: when it has ended."""

    def reopen_logs(self) -> None:
        """Open the access log's path again, after a rotation; the old file stays in use if that fails.

        Raises OSError then, if the server is not running; a running one does it in its own thread, soon, and reports
        a failure.
        """

    def fileno(self) -> int:
        """Return the poller's descriptor: readable when :meth:`poll` has something to do."""

    def wakeup_fd(self) -> int:
        """Return a descriptor for :func:`signal.set_wakeup_fd`: a byte written to it ends the engine's wait."""

    def statistics(self) -> dict[str, int]:
        """Counters since the start and gauges of now, as of the poll before: connections, accepted, requests, ...

        ``draining`` and ``stalled`` are 0 or 1; ``threads_most`` is how many calls may run at a time, and 0 if a
        loop hosts the engine.
        """

@final
class Exchange:
    """A request, or the rest of a response, to be run once."""

    @property
    def number(self) -> int:
        """The server's requests are counted from 1."""

    @property
    def worker(self) -> int | None:
        """The thread that has to :meth:`work` on an exchange that was handed over; None: any thread."""

    def run(self) -> None:
        """Call the application, or go on with its iterable, and write the response.

        Raises nothing that the application raised.
        """

    def work(self, worker: int) -> None:
        """The same for what was handed over, in the thread ``worker``, which is not the loop's."""

    def refuse(self) -> None:
        """Answer with 503 instead of calling the application."""

@final
class Call:
    """A call of the application as it was at one moment."""

    @property
    def number(self) -> int:
        """The environ or scope of its request."""

    @property
    def environ(self) -> dict[str, Any]:
        """The request's own, not a copy; to be read only."""

    @property
    def age(self) -> float:
        """Seconds since the application was called."""

    @property
    def limit(self) -> float | None:
        """Its deadline, in seconds from the call; None: it has none."""

    @property
    def thread(self) -> int | None:
        """The ident of the thread in which it runs; None while it is suspended."""

    @property
    def waiter(self) -> Any:
        """The result of ``waiter()`` for this call; None if the driver has no waiters."""

    @property
    def state(self) -> str:
        """``running``, ``queued`` (not begun), ``suspended`` (no thread; its peer is slow) or ``waiting`` (for its body
        or its peer)."""

    @property
    def outcome(self) -> str | None:
        """The end of the exchange at the deadline, as the client sees it; None before.

        ``504``; ``cut``: a part of the response, and the end of the connection; ``whole``: the whole response, though
        the call has not ended; ``left``: nothing, because the client had left.
        """

    @property
    def worker(self) -> int | None:
        """The index of the thread that it belongs to."""

    @property
    def websocket(self) -> bool:
        """Return whether it takes the messages of a WebSocket: it lasts as long as both sides want."""

@final
class FileWrapper:
    """``wsgi.file_wrapper``: an iterator over ``file.read(block_size)`` that the server sends with sendfile(2)
    where ``file`` is a regular file (PEP 3333, Optional Platform-Specific File Handling)."""

    def __new__(cls, file: Any, block_size: int = 8192) -> FileWrapper: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None: ...

@final
class Hijack:
    """Takes a connection over: what :class:`kirsch.net.client_socket.ClientSocket` is made with."""

    def take(self) -> int:
        """Return a descriptor of the client's connection, which the caller closes. The server neither reads nor writes
        there any more. It does not block.

        Raises RuntimeError when the connection cannot be taken over now, ConnectionResetError when the client has left,
        OSError when the system has no descriptor left.
        """

    def end(self) -> None:
        """Note that Python has closed the descriptor."""

@final
class WebSocket:
    """The WebSocket that a request asks for: ``environ["wsgi.websocket"]``. All of it may be used by any thread.

    The first use accepts it, without a subprotocol. When the call of the application returns it is closed with 1000,
    unless a handler has been given; with 1011 if the call raises.
    """

    def accept(self, subprotocol: str | None = None, headers: Sequence[tuple[str, str]] | None = None) -> None:
        """Accept, with one of the subprotocols that the client offers, and with more header fields.

        Raises ValueError for a subprotocol that is not offered and for a field that may not be set, RuntimeError when
        it has been accepted or the request was answered, :class:`kirsch.websocket.Closed` when the client has left.
        """

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message: ``str`` if it is text, ``bytes`` if it is binary. Wait for it, at most ``timeout``
        seconds (None: without limit).

        Raises TimeoutError when no message has come, :class:`kirsch.websocket.Closed` when none follows, RuntimeError
        when a handler takes the messages.
        """

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any:
        """Return the next message. The iteration ends when none follows."""

    def send(self, data: str | bytes | bytearray | memoryview, timeout: float | None = None) -> None:
        """Send a message: text for a ``str``, binary for bytes. While the client has more than 64 KiB to read, wait
        until 16 KiB are left, at most ``timeout`` seconds. None: without limit, but ``--write-timeout`` ends a
        connection whose client takes nothing. 0: do not wait.

        Raises :class:`kirsch.websocket.QueueFull` when there was no room in time, :class:`kirsch.websocket.Closed`,
        TypeError for what is no message, ValueError for surrogates.
        """

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close, with 1000 unless another code is given (RFC 6455 section 7.4). Nothing happens if it is closed.

        Messages that came before can still be received. Raises ValueError for a code that no Close frame may carry, and
        for a reason of more than 123 bytes.
        """

    def handle(self, handler: object) -> None:
        """Have ``handler`` take the messages when the call of the application has returned; what the call returns is
        ignored. See ``kirsch.websocket.Handler``.

        Raises TypeError for what is no handler, RuntimeError if there is one, or the call has returned.
        """

    @property
    def subprotocols(self) -> list[str]:
        """The subprotocols that the client offers, the preferred one first."""

    @property
    def subprotocol(self) -> str | None:
        """The one that was accepted."""

    @property
    def closed(self) -> bool:
        """Return whether it was closed, by either side. Messages that came before can still be received."""

    @property
    def close_code(self) -> int | None:
        """The code of the side that closed first: 1005 if it gave none, 1006 if the connection ended without a Close
        frame. None while it is open."""

    @property
    def close_reason(self) -> str | None:
        """The reason that the Close frame gave. None while it is open."""

    @property
    def data(self) -> Any:
        """Anything that the application keeps with it; None at first."""

    @data.setter
    def data(self, data: Any) -> None: ...

def send_to_all(peers: Sequence[Any], data: Any, /) -> list[list[Any]]:
    """Send a message, framed and compressed once, without waiting. Returns those that are closed, and those whose
    clients have too much to read and have got nothing.

    Each peer is a :class:`WebSocket`, or the entry ``kirsch.websocket`` of the extensions of an ASGI scope.
    """

def check_access_log_format(log_format: str, /) -> None:
    """Raise ValueError if no access log can be written in ``log_format``.

    The message is the end of a sentence that begins with the format.
    """

@final
class SignalHandler:
    """A signal handler that calls ``handler``.

    A ``timeout_exception`` that was to be raised in a call of the application in this thread is raised behind it.
    """

    def __new__(cls, handler: Callable[[int, FrameType | None], object]) -> SignalHandler: ...
    def __call__(self, *arguments: Any) -> Any: ...
    @property
    def __self__(self) -> Any:
        """The object whose method ``handler`` is. AttributeError: it is no method."""

def make_room_for_signals() -> None:
    """Let all signals be handled at once in this thread: enlarge its alternate stack for handlers, where it has one.

    OSError: the system gives no memory.
    """

def start_quarantine(memory: Any, hash_key: Sequence[int]) -> None:
    """Begin an empty list of routes in quarantine. ``hash_key``: two random 64-bit numbers. Workers identify routes by
    a keyed hash, so that no client can find two routes with one hash.

    ``memory`` is a writable buffer of ``QUARANTINE_SIZE`` bytes or more. ValueError: it does not fit.
    """

def publish_quarantine(memory: Any, recording: int | None, routes: Sequence[tuple[int, int, int, str]]) -> None:
    """Replace the list: at most ``QUARANTINED_MAX`` routes as (key, until, since, name), times in nanoseconds of
    CLOCK_MONOTONIC. A key is that of a route or of a family.

    ``recording``: workers record the routes of their calls, under this number, which is another one each time that
    recording begins; None: they do not.
    """

def quarantined_routes(memory: Any) -> list[tuple[int, int, int, str]]:
    """Return the list that :func:`publish_quarantine` has published."""

def rate_limit_evictions(memory: Any) -> int:
    """Return how many clients lost their place in ``memory``, of ``RATE_LIMIT_SIZE`` bytes, before their limit was
    whole again."""

def take_rate_limit_debts(memory: Any) -> bytes:
    """Return what clients of this host have used of the rate limits since the last call, for
    :func:`add_rate_limit_debts` on other hosts. The first call begins to note that."""

def add_rate_limit_debts(memory: Any, debts: bytes) -> None:
    """Count what clients of another host have used. Raises ValueError for what no :func:`take_rate_limit_debts` has
    returned."""

def recorded_routes(memory: Any) -> tuple[int, int, list[tuple[int, int, bool, int, int, int, str]]]:
    """Return the content of a worker's table ``memory`` of ``ROUTE_TABLE_SIZE`` bytes: the number of the recording (0:
    none), how many running calls are missing, and the routes.

    A route is (key, family, is_family, running, ended, since, name): ``running`` calls have not ended, ``ended`` ones
    have since recording began, and since ``since`` (nanoseconds of CLOCK_MONOTONIC) calls of it have run without a
    break. Paths that differ in numbers alone belong to one ``family`` (0: the path has no numbers), which has an entry
    of its own.
    """

def block_signals() -> None:
    """Block all signals in this thread until :func:`restore_signals`."""

def restore_signals() -> None:
    """Undo :func:`block_signals`, in this thread, or in the child that it has forked since."""

def leave_engines() -> None:
    """Close the sockets of the engines that run, and make the engines unusable. To be called in a forked child."""

@final
class RequestCount:
    """How many requests of one context were not sampled (:func:`sampled`)."""

    def __new__(cls) -> RequestCount: ...
    @property
    def number(self) -> int: ...

def sampled(
    application: Callable[..., Any],
    traced: Callable[..., Any],
    bound: int,
    seed: int,
    variable: ContextVar[RequestCount | None] | None = None,
    enter: Callable[[], RequestCount] | None = None,
    /,
) -> Callable[..., Any]:
    """Return a callable that passes each call on to ``traced`` or to ``application``.

    A call goes to ``traced`` if its request has a field ``traceparent``, or is none of HTTP, or if a random number of
    64 bits is below ``bound``. ``seed`` begins the random numbers. A WSGI application needs ``variable``, whose default
    is None, and ``enter``, which sets it in a context that has none: calls of ``application`` are counted there.
    """

def name_thread(name: str) -> None:
    """Name the calling thread for the operating system (``ps -T``); 15 bytes of the name are kept."""

def follow_frames(frame: FrameType) -> list[tuple[CodeType, dict[str, Any], int]]:
    """Return the code, the globals and the line number of a frame and of those that have called it, the outermost last.

    The frame may be another thread's, which goes on meanwhile: all threads are stopped for the moment. Where a
    free-threaded interpreter does not offer that, the list is empty.
    """

def eventfd() -> int:
    """Create an eventfd(2), non-blocking and closed at an exec: PyPy 3.11 has no :func:`os.eventfd`. Raises OSError."""

@final
class Inotify:
    """inotify(7), on Linux: tells what has changed in directories. Never waits; closed at an exec.

    Raises OSError if the system does not allow one more.
    """

    def __new__(cls) -> Inotify: ...
    def fileno(self) -> int:
        """Readable when there is something to read. Raises ValueError when it is closed."""

    def add(self, path: str) -> int:
        """Watch the entries of the directory ``path``, without those of directories in it; returns the watch.

        One that is watched already keeps its number. Raises OSError.
        """

    def remove(self, watch: int) -> None:
        """Watch it no more. Nothing if it has gone. Raises OSError."""

    def read(self) -> list[tuple[int, int, str]]:
        """Return the events: the watch (-1: events were lost), the bits of inotify(7), the name of the entry (empty:
        the directory itself). Raises OSError."""

    def close(self) -> None:
        """Let go of the descriptor. May be called again."""
