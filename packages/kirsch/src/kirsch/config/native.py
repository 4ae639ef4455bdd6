"""The configuration of the native server: an object with an attribute for each setting and resource that it uses."""

from __future__ import annotations

from kirsch.config.schema import SETTINGS
from kirsch.config.setting import ENGINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kirsch.reports import Report

_SETTINGS = tuple(each for each in SETTINGS if each.scope == ENGINE)


class NativeConfig:
    """The configuration of a native server: settings, and the resources below. The constructor of the native server
    reads every attribute once, by name (crates/gateway/src/config.rs). It raises TypeError for an unknown or missing
    attribute. Defaults are only here and in the schema.
    """

    threads: int = 1
    """The number of calls of the application that ``NativeServer.run`` runs at a time. More than 1 need ``spawn``."""

    interface: str = "wsgi"
    """``wsgi`` or ``asgi``: how the application is called."""

    mounts: Sequence[tuple[str, str, str, Callable[..., Any]]] = ()
    """Several applications: host (empty: any), prefix of the path (empty: any), ``wsgi`` or
    ``asgi``, application. The last one gets the requests that no place fits. Without any, the server has the one
    application that it is made with."""

    hand_over: Callable[[Any], object] | None = None
    """Called in the loop's thread with an exchange of a WSGI application that is mounted beside ASGI applications: has
    a thread ``work`` on it."""

    spawn: Callable[[int], None] | None = None
    """Called with an index: starts a thread that calls ``NativeServer.work(index)``. If it raises, there are fewer
    threads."""

    waiter: Callable[[], object] | None = None
    """With a loop that hosts the engine: each exchange calls it once, at its start and in its thread."""

    wait: Callable[[Any], object] | None = None
    """With a loop that hosts the engine: called with the result of ``waiter``, lets others run until a poll has
    returned that object. It may return earlier, and may raise what is to be raised in the application."""

    engines: int = 1
    """The number of engines that accept from the listeners: at most 63, and one if a loop hosts the engine. Each has
    its share of ``threads``, ``worker_connections`` and ``queue``; if a share is too small (two threads, one of the
    others) there are fewer engines. Calls of the server are for all engines, and numbers are sums; only a health check
    is about the engine that has accepted it."""

    multiprocess: bool = False
    """``wsgi.multiprocess``."""

    report: Report | None = None
    """Called with level, message and exception for each report; without it reports go to standard error."""

    errors: Any = None
    """``wsgi.errors``; None: what ``sys.stderr`` is now."""

    access_log_handler: Callable[[str, dict[str, str]], None] | None = None
    """Called with each access line and its atoms, instead of writing ``access_logfile``."""

    timeout_exception: type[BaseException] | None = None
    """The exception that ``NativeServer.interrupt`` raises in a call that has missed its deadline."""

    scoreboard: Any = None
    """A writable buffer of ``SCOREBOARD_SIZE`` bytes or more, at an address that is a multiple of 8, such as an mmap
    that processes share. The server sets it to zero and keeps it. It may be read at any time, word by word, and its
    words are not of one moment: nothing locks it. Counters and gauges are written whenever a thread is about to wait,
    and every few hundred milliseconds at the latest."""

    quarantine: tuple[Any, Any] | None = None
    """Two writable buffers that processes share, at addresses that are multiples of 8: the list of routes in
    quarantine, of ``QUARANTINE_SIZE`` bytes, and this process's table of routes, of ``ROUTE_TABLE_SIZE`` bytes, which
    are zero. The server keeps both. Only a supervised worker has them."""

    rate_limit_memory: Any = None
    """How much of ``rate_limit`` each client has used: a writable buffer of ``RATE_LIMIT_SIZE`` bytes that processes
    share, at an address that is a multiple of 8, zero at first. The server keeps it. Needed if there are limits."""

    request_limit: int = 0
    """After so many requests have begun (0: no limit) one byte is written to ``limit_fd``, once."""

    limit_fd: int | None = None
    """A pipe or a socket, of which the server keeps a duplicate. If it has no room the byte is left out, because there
    is something to read already."""

    replacement: tuple[int, bytes, bytes] | None = None
    """A socket that must not block, and two messages, one of which is sent to it once: the first when a call that has
    missed its deadline has kept all threads from polling the engine for seconds, the second when the listening socket
    is lost. Only a supervised worker has it."""

    group: tuple[Any, int, int, Sequence[int]] | None = None
    """``(memory, stride, index, eventfds)``, for processes that accept from the same listeners: a new connection goes
    to the one with the fewest. ``memory`` is a writable buffer that all of them share, with a record of
    ``GROUP_RECORD_SIZE`` bytes for each process every ``stride`` bytes (both multiples of 128); ``index`` is that of
    this process. The server keeps it. A record that begins with eight zero bytes is of no process. ``eventfds`` wake
    the processes, in the same order, and do not block; the server owns them, also if it raises."""

    evicts_silent: bool = False
    """True if a connection that comes when there are ``worker_connections`` takes the place of the one whose client has
    been silent for longest. Otherwise it waits in the backlog."""

    protocols: Sequence[str] = ()
    """The protocol of each listener, in their order: ``http`` (HTTP/1, and HTTP/2 for clients that choose it),
    ``http1`` or ``http2`` (one of them alone), ``fastcgi``, ``uwsgi`` or ``scgi``. A listener without an entry speaks
    ``http``."""

    proxy_listeners: Sequence[bool] = ()
    """For each listener whether each connection has to begin with a header of the PROXY protocol."""

    certificates: Sequence[Any] = ()
    """For each listener whose connections are encrypted its ``_native.Certificates``, and None for another one; a
    listener without an entry does not encrypt."""

    edge: Any = None
    """The ``_native.Certificates`` whose names the engine sends clients to, and whose challenges it answers."""

    redirect_listeners: Sequence[bool] = ()
    """For each listener whether it sends clients to https."""

    redirect_port: int = 443
    """The port of https."""

    time_stages: int = 0
    """The engine measures the stages of each request (``NativeServer.times``) and keeps so many until they are
    fetched. It reads a clock some twelve times for a request then, and never otherwise."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        """``given`` contains values of settings and resources by name. Raises TypeError for an unknown name."""
        own = vars(self)
        own.update((name, getattr(NativeConfig, name)) for name in NativeConfig.__annotations__)
        own.update((each.name, each.default_value) for each in _SETTINGS)
        if given:
            if unknown := given.keys() - own.keys():
                raise TypeError(f"the native server has no {', '.join(sorted(unknown))}")
            own.update(given)

    def but(self, **given: Any) -> NativeConfig:
        """Return a copy with the values in ``given`` replaced."""
        return NativeConfig({**vars(self), **given})
