"""Deeds that harm the interpreter: recursion, memory, the GIL, patched modules and hooks, and errors that resist a
report.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import faulthandler
import gc
import linecache
import locale
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from typing import Any

from matrix.process import KEPT
from matrix.table import DEEDS

# Recursion, and errors that are hard to report

errors = DEEDS.group("errors")


@errors(cause="RecursionError")
def recursion() -> None:
    recursion()


@errors(cause="RecursionError")
def recursion_in_repr() -> None:
    class Mirror:
        def __repr__(self) -> str:
            return repr(self)

    repr(Mirror())


@errors(cause="RecursionError")
def nested_list() -> None:
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    repr(nested)


@errors(alone=True)
def low_recursion_limit() -> None:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 20)


@errors(alone=True, cause="RecursionError|SIGSEGV|MemoryError|signal 11|-11|SIGABRT|-6|Aborted|signal 6")
def deep_recursion() -> None:
    # Through C, so that the stack of the thread ends before the limit.
    sys.setrecursionlimit(1 << 30)

    def deeper(match: object) -> str:
        return re.sub("x", deeper, "x")  # type: ignore[arg-type]

    deeper(None)


class Silent(Exception):
    """An error without words."""

    def __str__(self) -> str:
        raise ValueError("in __str__")

    __repr__ = __str__


@errors(cause="Silent")
def str_of_error_raises() -> None:
    raise Silent


class Bottomless(Exception):
    """An error whose words do not end."""

    def __str__(self) -> str:
        return str(self)


@errors(cause="Bottomless")
def str_of_error_recurses() -> None:
    raise Bottomless


@errors(cause="ValueError")
def long_message() -> None:
    raise ValueError("x" * 100_000)


@errors(cause="ValueError")
def surrogate_message() -> None:
    raise ValueError("\udc80 \ud800 \0 \x1b[2J")


@errors(cause="the application's own name")
def exception_class_without_module() -> None:
    raise type("Odd\nname", (Exception,), {"__module__": None})("the application's own name")


@errors(cause="ValueError|chained")
def chain_of_1_000() -> None:
    error: BaseException | None = None
    for number in range(1_000):
        following = ValueError(f"chained {number}")
        following.__cause__ = error
        error = following
    assert error is not None
    raise error


@errors(cause="KeyError|ValueError")
def chain_in_a_circle() -> None:
    first, second = KeyError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


@errors(cause="in a group")
def exception_group() -> None:
    kind = getattr(builtins, "ExceptionGroup", None)
    raise (
        kind("in a group", [kind("inner", [ValueError("in a group")]), KeyError("k")])
        if kind
        else ValueError("in a group")
    )


@errors(cause="SyntaxError")
def syntax_error() -> None:
    raise SyntaxError("no", ("\0nowhere", -5, 10**10, None))


@errors(cause="UnicodeDecodeError")
def unicode_error() -> None:
    raise UnicodeDecodeError("utf-8", b"\xff" * 1_000_000, 0, 1_000_000, "all of it")


@errors(cause="gone")
def source_is_missing() -> None:
    exec(compile("raise LookupError('gone')", "/nowhere/\udcff.py", "exec"), {})


@errors(cause="LookupError")
def frame_without_globals() -> None:
    exec(compile("raise LookupError", "<odd>", "exec"), {"__loader__": 1, "__name__": 2, "__builtins__": builtins})


@errors(cause="SystemError|error return without exception|returned a result with an exception|ValueError")
def exception_set_and_returned() -> None:
    ctypes.pythonapi.PyErr_SetString.argtypes = [ctypes.py_object, ctypes.c_char_p]
    ctypes.pythonapi.PyErr_SetString(ValueError, b"set by C")


@errors
def error_in_del() -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("in __del__")

    Broken()


@errors
def exit_in_del() -> None:
    class Broken:
        def __del__(self) -> None:
            sys.exit(7)

    Broken()


@errors
def weakref_callback_raises() -> None:
    class Target:
        pass

    target = Target()
    KEPT.append(weakref.ref(target, lambda _: int("x")))
    del target


@errors(blocks=True)
def slow_del() -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(1.2)

    Slow()


@errors(cause="ValueError")
def arguments_that_raise() -> None:
    raise ValueError(Silent(), Bottomless())


class Liar(Exception):
    """An error that claims to be of another class."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")


@errors(cause="Liar")
def class_that_raises() -> None:
    raise Liar


# Memory

memory = DEEDS.group("memory")


@memory(cause="MemoryError")
def memory_error() -> None:
    raise MemoryError


@memory(cause="MemoryError")
def huge_allocation() -> None:
    bytearray(1 << 60)


@memory
def garbage_in_cycles() -> None:
    for _ in range(100_000):
        cycle: list[Any] = []
        cycle.append(cycle)


@memory(alone=True)
def leak_100_mb() -> None:
    KEPT.append(bytearray(100 << 20))


@memory(alone=True)
def gc_disabled_and_frozen() -> None:
    gc.disable()
    gc.freeze()


@memory(alone=True)
def gc_at_each_allocation() -> None:
    gc.set_threshold(1, 1, 1)


@memory(alone=True)
def gc_callback_raises() -> None:
    gc.callbacks.append(lambda *_: int("x"))
    gc.collect()


# The GIL, and the only thread

gil = DEEDS.group("gil", blocks=True)


@gil
def held_by_c() -> None:
    ctypes.PyDLL(None).usleep(1_200_000)


@gil
def released_by_c() -> None:
    time.sleep(1.2)


@gil
def busy_loop() -> None:
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        pass


@gil
def regular_expression() -> None:
    re.match(r"(a|a)+$", "a" * 21 + "b")


@gil(alone=True)
def held_by_a_thread() -> None:
    threading.Thread(target=ctypes.PyDLL(None).usleep, args=(1_200_000,)).start()


@gil(alone=True, lasts=True, cause=r"(?i)timed? ?out|deadline|does not|stuck|unresponsive|not respond|killed")
def held_for_ever() -> None:
    ctypes.PyDLL(None).usleep(60_000_000)


@gil(alone=True, lasts=True, cause=r"(?i)timed? ?out|deadline|does not|stuck|unresponsive|not respond|killed")
def sleeps_for_ever() -> None:
    time.sleep(60)


# Patched modules and hooks

patches = DEEDS.group("patches", alone=True)


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken by the application")


def _breaks(owner: Any, *names: str) -> None:
    def act() -> None:
        for name in names:
            setattr(owner, name, _broken)

    act.__name__ = f"broken_{getattr(owner, '__name__', 'x')}_{'_'.join(names)}"
    patches(act)


_breaks(builtins, "len")
_breaks(builtins, "isinstance", "type", "getattr", "repr", "str")
_breaks(builtins, "__import__")
_breaks(builtins, "open", "print")
_breaks(builtins, "Exception", "BaseException", "RuntimeError")
_breaks(time, "sleep", "time", "monotonic", "perf_counter")
_breaks(threading, "Thread", "Lock", "RLock", "Condition", "Event")
_breaks(threading, "current_thread", "enumerate", "get_ident")
_breaks(os, "fork", "_exit", "getpid", "write", "close", "kill", "waitpid")
_breaks(signal, "signal", "getsignal", "set_wakeup_fd")
_breaks(socket, "socket", "fromfd")
_breaks(sys, "exit", "exc_info", "_getframe", "_current_frames")
_breaks(traceback, "format_exception", "TracebackException", "print_exc", "format_tb")
_breaks(linecache, "getline", "getlines", "checkcache")
_breaks(logging, "getLogger", "LogRecord", "Logger")
_breaks(sys, "excepthook", "unraisablehook", "displayhook")


@patches
def modules_cleared() -> None:
    sys.modules.clear()


@patches
def modules_are_none() -> None:
    for name in ("logging", "traceback", "threading", "signal", "json", "asyncio", "kirsch", "kirsch.reports"):
        sys.modules[name] = None  # type: ignore[assignment]


@patches
def path_cleared() -> None:
    sys.path[:] = []
    sys.meta_path[:] = []
    sys.path_hooks[:] = []


@patches
def trace_function_raises() -> None:
    sys.settrace(_broken)
    threading.settrace(_broken)


@patches
def profile_function_raises() -> None:
    sys.setprofile(_broken)
    threading.setprofile(_broken)


@patches
def audit_hook_raises() -> None:
    def audit(event: str, _: object) -> None:
        if event.startswith(("open", "os.", "socket.", "object.", "import", "compile", "exec")):
            raise RuntimeError(event)

    sys.addaudithook(audit)


@patches(cause="UserWarning")
def warnings_are_errors() -> None:
    warnings.simplefilter("error")
    warnings.warn("an error", stacklevel=1)


@patches
def showwarning_raises() -> None:
    warnings.showwarning = _broken
    warnings.warn("told to nobody", stacklevel=1)


@patches
def excepthook_and_error_in_del() -> None:
    sys.unraisablehook = _broken
    error_in_del()


@patches
def locale_changed() -> None:
    locale.setlocale(locale.LC_ALL, "C")
    os.environ["TZ"] = "Nowhere/Nothing"
    time.tzset()


@patches
def atexit_raises() -> None:
    atexit.register(_broken)


@patches
def atexit_hangs() -> None:
    atexit.register(time.sleep, 30)


@patches
def faulthandler_exits() -> None:
    faulthandler.dump_traceback_later(0.2, exit=True)
    time.sleep(0.5)


@patches
def faulthandler_disabled() -> None:
    faulthandler.disable()


# Logs and standard streams

logs = DEEDS.group("logs", alone=True)


@logs
def stdout_none() -> None:
    sys.stdout = None  # type: ignore[assignment]
    sys.stderr = None  # type: ignore[assignment]


@logs
def stderr_closed() -> None:
    sys.stderr.close()


@logs
def stdout_closed() -> None:
    sys.stdout.close()


@logs
def stderr_without_write() -> None:
    sys.stderr = object()  # type: ignore[assignment]


@logs
def stderr_raises() -> None:
    class Broken:
        def write(self, _: str) -> int:
            raise OSError("no more")

        flush = write

    sys.stderr = Broken()  # type: ignore[assignment]


@logs
def logging_disabled() -> None:
    logging.disable(logging.CRITICAL)


@logs
def logging_shut_down() -> None:
    logging.shutdown()


@logs
def handler_raises() -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise ValueError("in a handler")

    for name in (None, "kirsch", "gunicorn.error", "uvicorn.error"):
        logging.getLogger(name).handlers[:] = [Broken()]
    logging.getLogger().error("to a broken handler")


@logs
def handlers_close_their_stream() -> None:
    for name in (None, "kirsch", "gunicorn.error", "uvicorn.error"):
        for handler in logging.getLogger(name).handlers:
            stream = getattr(handler, "stream", None)
            if stream is not None:
                stream.close()


@logs
def filter_exits() -> None:
    logging.getLogger().addFilter(lambda _: sys.exit(1))  # type: ignore[arg-type, return-value]
    logging.getLogger().error("to a filter that exits")


@logs(cause="after the logs")
def all_of_it_and_an_error() -> None:
    logging.disable(logging.CRITICAL)
    sys.stderr = sys.stdout = None  # type: ignore[assignment]
    raise LookupError("after the logs")


@logs
def flood() -> None:
    for _ in range(20_000):
        print("a line of the application " * 4, file=sys.stderr)
