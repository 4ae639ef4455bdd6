"""Plugins: objects that subscribe their methods to the bus.

``Daemonizer`` and ``Autoreloader`` are stand-ins: a supervisor and ``kirsch --reload`` replace them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any


class SimplePlugin:
    """Base class of plugins. Subscribes each method whose name is that of a channel."""

    bus: Any = None

    def __init__(self, bus: Any) -> None:
        self.bus = bus

    def _channels(self) -> Any:
        return [(channel, getattr(self, channel)) for channel in self.bus.listeners if hasattr(self, channel)]

    def subscribe(self) -> None:
        """Subscribe the plugin's methods to their channels."""
        for channel, method in self._channels():
            self.bus.subscribe(channel, method)

    def unsubscribe(self) -> None:
        """Unsubscribe the plugin's methods."""
        for channel, method in self._channels():
            self.bus.unsubscribe(channel, method)


class SignalHandler:
    """Publishes signals on the bus: SIGTERM and SIGHUP exit, SIGUSR1 is graceful. Subscribe it in the main thread."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus
        self.handlers: dict[str, Any] = {"SIGTERM": bus.exit, "SIGHUP": bus.exit, "SIGUSR1": bus.graceful}
        self._previous_handlers: dict[int, Any] = {}

    def subscribe(self) -> None:
        """Install the signal handlers."""
        for name, handler in self.handlers.items():
            with contextlib.suppress(ValueError):  # only the main thread can install signal handlers
                self.set_handler(name, handler)

    def unsubscribe(self) -> None:
        """Restore the previous signal handlers."""
        for number, previous in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
        self._previous_handlers.clear()

    def set_handler(self, name: Any, listener: Any = None) -> None:
        """Publish a signal on the channel with its name, to which ``listener`` is subscribed."""
        number = getattr(signal, name, None) if isinstance(name, str) else name
        if number is None:
            raise ValueError(f"there is no signal {name!r}")
        name = signal.Signals(number).name
        previous = signal.signal(number, self._handle_signal)
        self._previous_handlers.setdefault(number, previous)
        if listener is not None:
            self.bus.subscribe(name, listener)

    def _handle_signal(self, number: int, _frame: Any = None) -> None:
        name = signal.Signals(number).name
        self.bus.log(f"Caught signal {name}.")
        self.bus.publish(name)


class BackgroundTask(threading.Thread):
    """A daemon thread that calls a function repeatedly, and waits ``interval`` seconds before each call."""

    def __init__(self, interval: float, function: Any, args: Any = (), kwargs: Any = None, bus: Any = None) -> None:
        super().__init__(daemon=True)
        self.bus = bus
        self.function, self.args, self.kwargs = function, args, kwargs or {}
        self.interval = interval
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Make the thread end after the current call."""
        self._cancelled.set()

    def run(self) -> None:
        while not self._cancelled.wait(self.interval):
            try:
                self.function(*self.args, **self.kwargs)
            except Exception:
                if self.bus is not None:
                    self.bus.log(f"The background task {self.function!r} failed and ends", 40, traceback=True)
                raise


PerpetualTimer = BackgroundTask


class Monitor(SimplePlugin):
    """Calls a function every ``frequency`` seconds while the bus is started."""

    thread: Any = None
    frequency: float = 60
    callback: Any = None

    def __init__(self, bus: Any, callback: Any, frequency: float = 60, name: str | None = None) -> None:
        super().__init__(bus)
        self.callback = callback
        self.frequency = frequency
        self.name = name

    def start(self) -> None:
        """Start the thread, unless it runs or ``frequency`` is 0 or less."""
        if self.frequency > 0 and self.thread is None:
            self.thread = BackgroundTask(self.frequency, self.callback, bus=self.bus)
            self.thread.name = self.name or type(self).__name__
            self.thread.start()

    start.priority = 70  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Stop the thread."""
        thread, self.thread = self.thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.cancel()
            thread.join()

    def graceful(self) -> None:
        """Restart the thread, with the current ``frequency``."""
        self.stop()
        self.start()


class ThreadManager(SimplePlugin):
    """Publishes ``start_thread`` when a thread serves its first request, and ``stop_thread`` when the bus stops."""

    threads: Any = None

    def __init__(self, bus: Any) -> None:
        self.threads = {}
        super().__init__(bus)
        for channel in ("acquire_thread", "start_thread", "release_thread", "stop_thread"):
            bus.listeners.setdefault(channel, [])

    def acquire_thread(self) -> None:
        """Register the current thread. Publish ``start_thread`` if it is new."""
        ident = threading.get_ident()
        if ident not in self.threads:
            number = self.threads[ident] = len(self.threads) + 1
            self.bus.publish("start_thread", number)

    def release_thread(self) -> None:
        """Unregister the current thread, and publish ``stop_thread``."""
        number = self.threads.pop(threading.get_ident(), None)
        if number is not None:
            self.bus.publish("stop_thread", number)

    def stop(self) -> None:
        """Unregister all threads, and publish ``stop_thread`` for each."""
        for number in list(self.threads.values()):
            self.bus.publish("stop_thread", number)
        self.threads.clear()

    graceful = stop


class PIDFile(SimplePlugin):
    """Writes the process ID to a file when the bus starts, and removes the file when it exits."""

    def __init__(self, bus: Any, pidfile: str) -> None:
        super().__init__(bus)
        self.pidfile = pidfile
        self.finalized = False

    def start(self) -> None:
        """Write the process ID to the file."""
        if not self.finalized:
            with open(self.pidfile, "w", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
            self.finalized = True

    start.priority = 70  # type: ignore[attr-defined]

    def exit(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.remove(self.pidfile)


class DropPrivileges(SimplePlugin):
    """Sets the umask, group and user of the process when the bus starts, after the server has bound its port.

    Args:
        bus: the bus.
        umask: the umask, or None to keep it.
        uid: the number or name of the user, or None to keep it.
        gid: the number or name of the group, or None to keep it.
    """

    def __init__(self, bus: Any, umask: int | None = None, uid: Any = None, gid: Any = None) -> None:
        super().__init__(bus)
        self.umask, self.uid, self.gid = umask, uid, gid

    def start(self) -> None:
        """Set the umask, group and user. Group and user are set only at the first start."""
        import grp
        import pwd

        if self.umask is not None:
            os.umask(self.umask)
        uid, gid, self.uid, self.gid = self.uid, self.gid, None, None
        # Look up both names before changing anything, and set the user last: only root may set the groups.
        uid = pwd.getpwnam(uid).pw_uid if isinstance(uid, str) else uid
        gid = grp.getgrnam(gid).gr_gid if isinstance(gid, str) else gid
        if gid is not None:
            os.setgroups([])
            os.setgid(gid)
        if uid is not None:
            os.setuid(uid)

    start.priority = 77  # type: ignore[attr-defined]


def Daemonizer(*_: Any, **__: Any) -> None:
    """Raise ValueError: programs should use a supervisor instead."""
    raise ValueError("Daemonizer is left out: run the program under systemd or another supervisor")


class Autoreloader(Monitor):
    """Does nothing, but programs may set its options. Use ``kirsch --reload`` to reload."""

    files: Any = None
    match = ".*"

    def __init__(self, bus: Any, frequency: float = 1, match: str = ".*") -> None:
        self.files = set()
        self.match = match
        super().__init__(bus, lambda: None, frequency)

    def subscribe(self) -> None:
        """Subscribe nothing."""
