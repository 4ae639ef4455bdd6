"""Many different signals at the same moment, as a process gets them that was stopped, or waited for a processor.

Each is delivered into the handler of the one before, all on the small alternate stack that faulthandler has made.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
from interpreter import needs_gevent
from kirsch.supervisor.worker_process import DUMP_SIGNAL
from proc import wait_until
from running import children, title
from supervised import APP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from running import Running, Serve

    Write = Callable[[str], str]

# With PYTHONFAULTHANDLER every process has such a stack; without, those that may be told to dump (SIGRTMIN) do.
ENVIRONMENTS = pytest.mark.parametrize(
    "env", [{"PYTHONFAULTHANDLER": "1"}, {"PYTHONFAULTHANDLER": ""}], ids=["faulthandler", "plain"]
)

HARMLESS = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGPWR", "SIGCHLD")
ENDS = ("SIGTERM", "SIGINT", "SIGQUIT")

# The application has a handler for each signal that is still free, as a program with much to tell may.
BUSY = (
    """
    import signal

    seen = set()
    FREE = [each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_DFL]
    for number in FREE:
        # What ends a process because it has gone wrong, stops it, or is meant for the server.
        if number > signal.SIGRTMIN + 2 or number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO):
            signal.signal(number, lambda number, _frame: seen.add(number))
"""
    + APP
)


def thread_kill(pid: int, number: int) -> None:
    """Send a signal to the main thread of a process: sent to the process, any of its threads could take it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):
        pytest.skip("the C library has no tgkill")
    if libc.tgkill(pid, pid, int(number)) != 0:
        raise OSError(ctypes.get_errno(), f"signal {number} to {pid}: {os.strerror(ctypes.get_errno())}")


def field(pid: int, name: str) -> str:
    """Returns /proc/PID/status of the main thread; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            return next(line.split()[1] for line in status if line.startswith(f"{name}:"))
    except (FileNotFoundError, ProcessLookupError):
        return ""


def at_once(pid: int, numbers: Iterable[int]) -> None:
    """Let the main thread find all these signals at the same moment, and wait until it has taken them.

    But for TTIN and TTOU, which SIGCONT takes back (signal(7)).
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: field(pid, "State") == "T", f"{pid} is stopped")
    for number in numbers:
        thread_kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not int(field(pid, "SigPnd") or "0", 16), f"{pid} has taken its signals")


def numbers(names: Iterable[str]) -> list[int]:
    return [int(signal.Signals[name]) for name in names]


def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def no_crash(site: Running) -> None:
    assert "SIGSEGV" not in site.stderr
    assert "Segmentation fault" not in site.stderr


@ENVIRONMENTS
@pytest.mark.parametrize("args", [("-w1",), ("--preload",), ("--threads=1",), ("--driver=gevent",)], ids=" ".join)
@pytest.mark.slow
def test_worker_survives_many_signals_at_once(
    serve: Serve, write_app: Write, args: tuple[str, ...], env: dict[str, str]
) -> None:
    if "--driver=gevent" in args:
        needs_gevent()
    site = serve(write_app(APP), *args, env=env)
    (pid,) = site.worker_pids()
    order = chance()
    for _ in range(100):
        at_once(pid, order.sample(numbers(HARMLESS), len(HARMLESS)))
    for _ in range(300):
        # Also as they come, over each other.
        for number in order.sample(numbers(HARMLESS), order.randint(2, len(HARMLESS))):
            os.kill(pid, number)
    assert site.page() == str(pid)
    at_once(pid, numbers((*ENDS, *HARMLESS)))
    site.wait_for(rf"worker {pid} ends: SIG[A-Z]+; another is started$")
    site.wait_for_workers(1, without=[pid])
    assert site.stop() == 0
    no_crash(site)


@ENVIRONMENTS
def test_worker_survives_every_signal_at_once(serve: Serve, write_app: Write, env: dict[str, str]) -> None:
    site = serve(write_app(BUSY), env=env)
    (pid,) = site.worker_pids()
    handled = int(field(pid, "SigCgt"), 16)
    # faulthandler's, which reads the stacks of other threads without the interpreter's lock: the supervisor sends the
    # last of them to a worker that is stuck, and one that is not may die of it.
    wrong = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, DUMP_SIGNAL}
    free = [each for each in range(1, 65) if handled >> (each - 1) & 1 and each not in {*wrong, *numbers(ENDS)}]
    # 32 and 33 belong to the C library and cannot be sent.
    free = [each for each in free if each in signal.valid_signals()]
    assert len(free) > 35, free
    for _ in range(30):
        at_once(pid, free)
    assert site.page() == str(pid)
    no_crash(site)


@ENVIRONMENTS
def test_single_process_survives_many_signals_at_once(serve: Serve, write_app: Write, env: dict[str, str]) -> None:
    # As it would without us, this program enables it for itself, after the server has been imported.
    source = BUSY + "\n    import faulthandler\n    faulthandler.enable()\n"
    site = serve(write_app(source), "--workers=0", env=env)
    free = [each for each in signal.valid_signals() if each > signal.SIGRTMIN + 2]
    for _ in range(30):
        at_once(site.pid, [signal.SIGUSR1, signal.SIGPWR, signal.SIGALRM, *free])
    assert site.page() == str(site.pid)
    at_once(site.pid, [signal.SIGUSR1, *numbers(ENDS), *free])
    assert site.process.wait(10) == 0
    no_crash(site)


@ENVIRONMENTS
@pytest.mark.parametrize("args", [(), ("--preload",)], ids=["fork", "preload"])
def test_supervisor_survives_many_signals_at_once(
    serve: Serve, write_app: Write, args: tuple[str, ...], env: dict[str, str]
) -> None:
    site = serve(write_app(APP), *args, env=env)
    order = chance()
    for _ in range(10):
        at_once(site.pid, order.sample(numbers(HARMLESS), len(HARMLESS)))
    for _ in range(50):
        for number in order.sample(numbers(HARMLESS), order.randint(2, len(HARMLESS))):
            os.kill(site.pid, number)
    # WINCH may have come last.
    site.said_at(signal.SIGHUP, r"(SIGHUP|SIGUSR2): done, (a new worker|\d+ workers) for")
    assert int(site.page()) in site.worker_pids()
    at_once(site.pid, numbers((*ENDS, *HARMLESS)))
    assert site.process.wait(20) in (0, 1), (
        "INT and QUIT and TERM: the workers are hurried, and may not have been quick"
    )
    no_crash(site)


@ENVIRONMENTS
def test_zygote_and_metrics_process_survive_many_signals_at_once(
    serve: Serve, write_app: Write, env: dict[str, str]
) -> None:
    """The zygote, and the process that serves metrics."""
    site = serve(write_app(APP), "--preload", "--metrics-bind=127.0.0.1:0", env=env)
    site.wait_for("^metrics on ")
    wait_until(lambda: any("metrics" in title(pid) for pid in children(site.pid)), "metrics are served")
    others = [pid for pid in children(site.pid) if pid not in site.worker_pids()]
    assert len(others) == 2
    for pid in others:
        for _ in range(30):
            at_once(pid, numbers(set(HARMLESS) - {"SIGUSR1", "SIGPWR"}))
    assert others == [pid for pid in children(site.pid) if pid not in site.worker_pids()]
    no_crash(site)


def test_handlers_are_set_in_one_place() -> None:
    """Code that sets one elsewhere does not make room for it. Removing or restoring one needs no room."""
    package = Path(kirsch.__file__).parent
    elsewhere = {package / "commands" / "top.py", package / "process" / "signal_handlers.py"}
    for path in {*package.rglob("*.py")} - elsewhere:
        for line in path.read_text().splitlines():
            if "signal.signal(" in line:
                assert "signal.SIG_DFL" in line or "signal.SIG_IGN" in line, f"{path.name}: {line.strip()}"
