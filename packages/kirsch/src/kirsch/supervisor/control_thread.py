"""The control thread of a worker: it reads the supervisor's messages, and watches the worker's limits and memory.

It is a thread of the operating system even under gevent, and calls only functions that may be called in any thread.
Once a second it sets the heartbeat on the scoreboard. That needs the GIL, so a missing heartbeat shows that no thread
of the worker gets the GIL any more (``--deadlock-timeout``).
"""

from __future__ import annotations

import os
import time
from select import POLLIN
from select import poll as Poll

from kirsch.process.real_threads import start_thread
from kirsch.reports import CRITICAL, ERROR
from kirsch.supervisor.request_publisher import publish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.monitor.scoreboard import Slot
    from kirsch.monitor.shared_value import SharedValue
    from kirsch.server import Server
    from kirsch.serving import Signals
    from kirsch.supervisor.control import Channel, Message

BEAT_SECONDS = 1.0

# The fraction of a CPU that measuring memory may use: the kernel walks through all pages of the process.
_MEASURE_CPU_SHARE = 0.01
_MEASURE_SECONDS = 1.0
# The interval if there is no memory limit, and only the status page and ``kirsch top`` show the memory.
_MEASURE_UNLIMITED_SECONDS = 10.0

_FAILED = "the worker stops: its control thread failed; has the application replaced built-in functions or modules?"
_exit = os._exit  # bound before the application can replace it


class ControlThread:
    """The control thread. ``limit_fd`` becomes readable when the engine has begun ``--max-requests`` requests; -1:
    no limit."""

    def __init__(
        self,
        channel: Channel,
        slot: Slot,
        server: Server,
        signals: Signals,
        certificates: SharedValue | None,
        *,
        max_memory: int,
        limit_fd: int,
    ) -> None:
        self._channel = channel
        self._slot = slot
        self._server = server
        self._signals = signals
        self._certificates = certificates
        self._max_memory = max_memory
        self._limit_fd = limit_fd
        self._replacement_requested = False
        self._stop_reported = False
        self._measure_at = 0.0

    def start(self) -> None:
        start_thread("kirsch-control", self._run)

    def report_stopping(self, reason: str, why: str) -> None:
        """Report to the supervisor that this worker stops without its order. May be called in any thread."""
        self._stop_reported = True
        self._channel.send("stopping", reason=reason, why=why)

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001 - the application may break anything, and raise in any thread
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """Stop the worker gracefully because of ``error``: without this thread the supervisor could not control it."""
        try:
            self._signals.end("its control thread failed", self._server.graceful_timeout)
            self._server.report(CRITICAL, _FAILED, error)
            self.report_stopping("other", "its control thread failed")
        except BaseException:  # noqa: BLE001 - nothing can be relied on any more
            if not self._server.is_stopping:
                _exit(1)

    def _watch(self) -> None:
        poll = Poll()
        poll.register(self._channel.fileno(), POLLIN)
        if self._limit_fd >= 0:
            poll.register(self._limit_fd, POLLIN)
        while True:
            self._slot.beat()
            publish(self._slot, self._server)
            self._measure_memory()
            if self._server.is_stopping and not self._stop_reported:
                if self._server.is_stuck:
                    self.report_stopping("stuck", "a request is stuck")
                else:
                    self.report_stopping("other", "the application stopped the server")
            for fd, _events in poll.poll(BEAT_SECONDS * 1000):
                if fd == self._limit_fd:
                    poll.unregister(fd)
                    self.request_replacement("max-requests", "it has begun its maximum number of requests")
                elif not self._read_messages():
                    poll.unregister(fd)

    def _read_messages(self) -> bool:
        """Handle the messages that have arrived; return False at the end of the channel."""
        while message := self._channel.receive():
            self._handle(message)
        if message is not None:
            return True
        # Without a supervisor nothing would replace or stop this worker. Stop, to free the port.
        self._signals.end("the supervisor has gone", self._server.graceful_timeout)
        return False

    def _handle(self, message: Message) -> None:
        if message["message"] == "stop":
            self._stop_reported = True
            if message["why"] != "the end":
                # Other workers continue to serve: ask WebSocket clients to reconnect.
                self._server.drain()
            self._signals.end(message["why"], message["graceful_timeout"], message["idle_timeout"])
            self._channel.send("left")
        elif message["message"] == "drain":
            self._server.drain()
        elif message["message"] == "certificates" and self._certificates is not None:
            try:
                self._server.reload_certificates(self._certificates.read())
            except ValueError as error:  # unexpected, because the supervisor has checked them
                self._server.report(ERROR, f"keeping the current certificates: {error}")

    def request_replacement(self, reason: str, text: str) -> None:
        """Ask the supervisor for a successor, once, and continue to serve until it is ready. May be called in any
        thread."""
        if not self._replacement_requested:
            self._replacement_requested = True
            self._channel.send("leaving", reason=reason, text=text)

    def _measure_memory(self) -> None:
        began = time.monotonic()
        if began < self._measure_at:
            return
        memory = own_memory()
        took = time.monotonic() - began
        least = _MEASURE_SECONDS if self._max_memory else _MEASURE_UNLIMITED_SECONDS
        self._measure_at = began + max(least - BEAT_SECONDS / 2, took / _MEASURE_CPU_SHARE)
        self._slot.memory = memory
        if 0 < self._max_memory < memory:
            self.request_replacement(
                "max-memory", f"it uses {memory >> 20} MiB of its own, and its limit is {self._max_memory >> 20} MiB"
            )


def own_memory() -> int:
    """Return the memory that this process shares with no other (USS), in bytes; 0 if the system does not report it.

    An exit of the process would free this memory.
    """
    try:
        fd = os.open("/proc/self/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        rollup = os.read(fd, 8192)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(b"Private_")) * 1024
