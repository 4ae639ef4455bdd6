"""The bus: states of the process, and callbacks on channels such as ``start``, ``stop``, ``exit`` and ``log``.

Processes, workers and reloading are the server's. The bus keeps what programs hang on it: callbacks.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback as _traceback
import warnings
from enum import Enum
from typing import Any


class ChannelFailures(Exception):
    """The exceptions of the callbacks of one publication, which are its arguments."""

    def get_instances(self) -> list[BaseException]:
        """Return the exceptions."""
        return list(self.args)

    def __str__(self) -> str:
        return "\n".join(map(repr, self.args))


_startup_cwd = os.getcwd()

states = Enum("states", ("STOPPED", "STARTING", "STARTED", "STOPPING", "EXITING"))


class Bus:
    """Publishes to callbacks on channels, in the order of their priorities; 50 if none is given."""

    states = states
    execv = False

    def __init__(self) -> None:
        self.state = states.STOPPED
        self.listeners: dict[str, list[Any]] = {
            name: [] for name in ("start", "stop", "exit", "graceful", "log", "main", "before_request", "after_request")
        }
        self._priorities: dict[tuple[str, Any], int] = {}
        self._changed = threading.Condition(threading.RLock())

    def subscribe(self, channel: str, callback: Any = None, priority: int | None = None) -> Any:
        """Add a callback to a channel; without one, return a decorator that does."""
        if callback is None:
            return lambda target: self.subscribe(channel, target, priority) or target
        with self._changed:
            self._priorities[channel, callback] = getattr(callback, "priority", 50) if priority is None else priority
            # A new list: publish() reads without the lock.
            kept = [each for each in self.listeners.get(channel, ()) if each != callback] + [callback]
            self.listeners[channel] = sorted(kept, key=lambda each: self._priorities[channel, each])
        return None

    def unsubscribe(self, channel: str, callback: Any) -> None:
        """Remove a callback; nothing if it is not there."""
        with self._changed:
            if self._priorities.pop((channel, callback), None) is not None:
                self.listeners[channel] = [each for each in self.listeners[channel] if each != callback]

    def publish(self, channel: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the callbacks of a channel and return their results.

        Each is called although others raise; then ChannelFailures tells of all. SystemExit passes through.
        """
        listeners = self.listeners.get(channel)
        if not listeners:
            return []
        failures: list[BaseException] = []
        output = []
        for listener in listeners:
            try:
                output.append(listener(*args, **kwargs))
            except (KeyboardInterrupt, SystemExit) as stop:
                # A process in which a callback failed must not end with the status of success.
                if failures and getattr(stop, "code", None) == 0:
                    stop.code = 1  # type: ignore[union-attr]
                raise
            except BaseException as error:  # noqa: BLE001 - it is raised with the others
                failures.append(error)
                if channel != "log":
                    self.log(f"Error in {channel!r} listener {listener!r}", level=40, traceback=True)
        if failures:
            raise ChannelFailures(*failures)
        return output

    def _become(self, state: Any) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def start(self) -> None:
        """Start: publish ``start``. Where a callback fails, stop and exit, and raise its exception."""
        atexit.register(self._clean_exit)
        try:
            self._change(states.STARTING, "start", states.STARTED)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            self.log("A callback of the channel start failed: the bus exits", level=40, traceback=True)
            with contextlib.suppress(Exception):  # each is logged, and the first one is raised
                self.exit()
            raise

    def _change(self, meanwhile: Any, channel: str, then: Any) -> None:
        """Go to a state, publish a channel, and go to the next state."""
        self._become(meanwhile)
        self.log(f"Bus {meanwhile.name}")
        self.publish(channel)
        self._become(then)
        self.log(f"Bus {then.name}")

    def stop(self) -> None:
        """Stop: publish ``stop``."""
        self._change(states.STOPPING, "stop", states.STOPPED)

    def exit(self) -> None:
        """Stop, and let :meth:`block` return."""
        before = self.state
        try:
            self.stop()
            self._become(states.EXITING)
            self.log("Bus EXITING")
            self.publish("exit")
            self.log("Bus EXITED")
        except BaseException:  # noqa: BLE001 - whatever it is, the process has to end
            # A process that cannot stop must not be left half alive.
            os._exit(70)
        if before is states.STARTING:
            # Nothing waits in block(): end the process, as a failed start has to.
            os._exit(70)

    def restart(self) -> None:
        """Exit, and run the program again in the same process."""
        self.execv = True
        self.exit()

    def graceful(self) -> None:
        """Publish ``graceful``: log files are opened again, and the like."""
        self.log("Bus graceful")
        self.publish("graceful")

    def block(self, interval: float = 0.1) -> None:
        """Wait until the bus exits, publishing ``main`` meanwhile; Ctrl-C exits it. The main thread calls it."""
        try:
            self.wait(states.EXITING, interval=interval, channel="main")
        except (KeyboardInterrupt, OSError, SystemExit) as stop:
            self.log(f"{type(stop).__name__}: the bus exits")
            self.exit()
            if isinstance(stop, SystemExit):
                raise
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon and thread is not threading.main_thread():
                self.log(f"Waiting for thread {thread.name}.")
                thread.join()
        if self.execv:
            self._do_execv()

    def _do_execv(self) -> None:
        """Run the program again in this process, from the directory that it was started in.

        Programs that stop by themselves, such as SABnzbd, call it by this name.
        """
        arguments = [sys.executable, *sys.orig_argv[1:]]
        self.log(f"Re-spawning {' '.join(arguments)}")
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(_startup_cwd)
        os.execv(sys.executable, arguments)  # noqa: S606 - the program itself

    def wait(self, state: Any, interval: float = 0.1, channel: str | None = None) -> None:
        """Wait for a state, or one of several."""
        wanted = state if isinstance(state, (tuple, list)) else [state]
        while True:
            with self._changed:
                if self.state in wanted:
                    return
                self._changed.wait(interval)
            self.publish(channel) if channel else None

    def start_with_callback(self, func: Any, args: Any = None, kwargs: Any = None) -> threading.Thread:
        """Start, and call ``func`` in a thread of its own once the bus has started."""

        def call() -> None:
            self.wait(states.STARTED)
            func(*(args or ()), **(kwargs or {}))

        thread = threading.Thread(target=call, name="Bus Callback " + getattr(func, "__name__", "function"))
        thread.start()
        self.start()
        return thread

    def log(self, msg: str = "", level: int = 20, traceback: bool = False) -> None:
        """Publish a message, with the traceback of the current exception if asked."""
        trace = f"\n{_traceback.format_exc()}" if traceback else ""
        self.publish("log", msg + trace, level)

    def _clean_exit(self) -> None:
        if self.state is not states.EXITING and self.state is not states.STOPPED:
            warnings.warn(
                f"the program ends while the bus is {self.state.name}, so the bus exits now: call engine.block() "
                "behind engine.start(), or engine.exit() at the end",
                RuntimeWarning,
                stacklevel=2,
            )
            self.exit()


bus = Bus()
