"""The bus: the state of the process, and callbacks on channels such as ``start``, ``stop``, ``exit`` and ``log``.

The server manages processes, workers and reloading. The bus only calls the callbacks of programs.
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
    """Raised if callbacks of a published channel failed. Its arguments are their exceptions."""

    def get_instances(self) -> list[BaseException]:
        """Return the exceptions of the callbacks."""
        return list(self.args)

    def __str__(self) -> str:
        return "\n".join(map(repr, self.args))


_startup_cwd = os.getcwd()

states = Enum("states", ("STOPPED", "STARTING", "STARTED", "STOPPING", "EXITING"))


class Bus:
    """Calls the callbacks of a channel in the order of their priorities. The default priority is 50."""

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
        """Add a callback to a channel. Without a callback, return a decorator that adds one."""
        if callback is None:
            return lambda target: self.subscribe(channel, target, priority) or target
        with self._changed:
            self._priorities[channel, callback] = getattr(callback, "priority", 50) if priority is None else priority
            # Replace the list, because publish() reads it without the lock.
            kept = [each for each in self.listeners.get(channel, ()) if each != callback] + [callback]
            self.listeners[channel] = sorted(kept, key=lambda each: self._priorities[channel, each])
        return None

    def unsubscribe(self, channel: str, callback: Any) -> None:
        """Remove a callback from a channel, if it is subscribed."""
        with self._changed:
            if self._priorities.pop((channel, callback), None) is not None:
                self.listeners[channel] = [each for each in self.listeners[channel] if each != callback]

    def publish(self, channel: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the callbacks of a channel and return their results.

        If some raise, the others are still called, then ChannelFailures is raised. SystemExit is raised at once.
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
                # If a callback failed, the process must not exit with status 0.
                if failures and getattr(stop, "code", None) == 0:
                    stop.code = 1  # type: ignore[union-attr]
                raise
            except BaseException as error:  # noqa: BLE001 - raised below with the others
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
        """Start the bus, which publishes ``start``. If a callback fails, exit the bus and raise the exception."""
        atexit.register(self._clean_exit)
        try:
            self._change(states.STARTING, "start", states.STARTED)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            self.log("A callback of the channel start failed: the bus exits", level=40, traceback=True)
            with contextlib.suppress(Exception):  # log errors of the exit, and raise the original one
                self.exit()
            raise

    def _change(self, meanwhile: Any, channel: str, then: Any) -> None:
        """Enter the state ``meanwhile``, publish ``channel``, and enter the state ``then``."""
        self._become(meanwhile)
        self.log(f"Bus {meanwhile.name}")
        self.publish(channel)
        self._become(then)
        self.log(f"Bus {then.name}")

    def stop(self) -> None:
        """Stop the bus, which publishes ``stop``."""
        self._change(states.STOPPING, "stop", states.STOPPED)

    def exit(self) -> None:
        """Stop the bus and publish ``exit``; :meth:`block` returns then."""
        before = self.state
        try:
            self.stop()
            self._become(states.EXITING)
            self.log("Bus EXITING")
            self.publish("exit")
            self.log("Bus EXITED")
        except BaseException:  # noqa: BLE001 - the process must end in any case
            # If stopping fails, do not leave the process partially running.
            os._exit(70)
        if before is states.STARTING:
            # The start failed and no thread waits in block(), so end the process here.
            os._exit(70)

    def restart(self) -> None:
        """Exit the bus, and then execute the program again in the same process."""
        self.execv = True
        self.exit()

    def graceful(self) -> None:
        """Publish ``graceful``, at which plugins restart and log files are reopened."""
        self.log("Bus graceful")
        self.publish("graceful")

    def block(self, interval: float = 0.1) -> None:
        """Block the main thread until the bus exits, and publish ``main`` meanwhile. Ctrl-C exits the bus."""
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
        """Execute the program again in this process, in the directory in which it was started.

        Programs that manage their own restart, such as SABnzbd, call this method.
        """
        arguments = [sys.executable, *sys.orig_argv[1:]]
        self.log(f"Re-spawning {' '.join(arguments)}")
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(_startup_cwd)
        os.execv(sys.executable, arguments)  # noqa: S606 - the program itself

    def wait(self, state: Any, interval: float = 0.1, channel: str | None = None) -> None:
        """Wait for a state, or one of several. Publish ``channel``, if given, every ``interval`` seconds meanwhile."""
        wanted = state if isinstance(state, (tuple, list)) else [state]
        while True:
            with self._changed:
                if self.state in wanted:
                    return
                self._changed.wait(interval)
            self.publish(channel) if channel else None

    def start_with_callback(self, func: Any, args: Any = None, kwargs: Any = None) -> threading.Thread:
        """Start the bus, and call ``func`` in a new thread after the start."""

        def call() -> None:
            self.wait(states.STARTED)
            func(*(args or ()), **(kwargs or {}))

        thread = threading.Thread(target=call, name="Bus Callback " + getattr(func, "__name__", "function"))
        thread.start()
        self.start()
        return thread

    def log(self, msg: str = "", level: int = 20, traceback: bool = False) -> None:
        """Publish a message on ``log``, with the traceback of the current exception if ``traceback``."""
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
