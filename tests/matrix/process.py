"""Deeds that end, multiply or signal the process."""

from __future__ import annotations

import _thread
import builtins
import contextlib
import ctypes
import faulthandler
import multiprocessing
import multiprocessing.shared_memory
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from matrix.table import DEEDS

LIBC = ctypes.CDLL(None)
FORK = multiprocessing.get_context("fork")
KEPT: list[Any] = []
"""Objects that must outlive their call."""

# Exit

exits = DEEDS.group("exit", cause=r"SystemExit|exit(ed|s)?\b|status|code")


@exits
def sys_exit() -> None:
    sys.exit(3)


@exits
def sys_exit_text() -> None:
    sys.exit("the application gives up")


@exits
def quit_() -> None:
    builtins.quit()


@exits(alone=True)
def os_exit_0() -> None:
    os._exit(0)


@exits(alone=True)
def os_exit_3() -> None:
    os._exit(3)


@exits(alone=True)
def libc_exit() -> None:
    LIBC.exit(4)


@exits(alone=True)
def os_exit_in_thread() -> None:
    threading.Thread(target=os._exit, args=(5,)).start()
    time.sleep(0.2)


@exits(alone=True, cause=None)
def sys_exit_in_thread() -> None:
    threading.Thread(target=sys.exit).start()


@exits(alone=True, cause=r"SIGTERM|SIGKILL|signal 9|killed|Kill|9")
def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)


@exits(alone=True)
def execs_another_program() -> None:
    os.execv("/bin/true", ["true"])


# Crash

crash = DEEDS.group("crash", alone=True)
SEGV = r"SIGSEGV|signal 11|[Ss]egmentation|-11"
ABRT = r"SIGABRT|signal 6|[Aa]borted|-6"


@crash(cause=ABRT)
def abort() -> None:
    os.abort()


@crash(cause=SEGV)
def segfault() -> None:
    ctypes.string_at(0)


@crash(cause=SEGV)
def segfault_in_thread() -> None:
    threading.Thread(target=ctypes.string_at, args=(0,)).start()
    time.sleep(0.3)


@crash(cause=SEGV)
def stack_overflow() -> None:
    faulthandler._stack_overflow()  # type: ignore[attr-defined]


@crash(cause=r"SIGFPE|signal 8|[Ff]loating|-8")
def division_by_zero() -> None:
    faulthandler._sigfpe()  # type: ignore[attr-defined]


@crash(cause=ABRT)
def fatal_error() -> None:
    ctypes.pythonapi.Py_FatalError(b"the application's")


@crash(cause=f"{ABRT}|{SEGV}")
def invalid_free() -> None:
    LIBC.free(ctypes.c_void_p(os.getpid() * 16 + 1))


@crash(cause=r"SIGBUS|signal 7|[Bb]us error|-7")
def bus_error() -> None:
    os.kill(os.getpid(), signal.SIGBUS)
    time.sleep(0.5)


@crash(cause=r"SIGILL|signal 4|[Ii]llegal|-4")
def illegal_instruction() -> None:
    signal.raise_signal(signal.SIGILL)


@crash(cause=SEGV)
def crash_while_others_wait() -> None:
    time.sleep(0.3)
    ctypes.string_at(0)


# Fork

forks = DEEDS.group("fork", alone=True)


@forks
def child_returns() -> None:
    os.fork()


@forks
def child_raises() -> None:
    if not os.fork():
        raise ValueError("in the child")


@forks
def child_sys_exits() -> None:
    if not os.fork():
        sys.exit(0)


@forks
def child_exits() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


@forks
def zombie() -> None:
    if not os.fork():
        os._exit(0)


@forks
def twenty_children_return() -> None:
    for _ in range(20):
        if not os.fork():
            return


@forks(keeps=True)
def child_stays() -> None:
    if not os.fork():
        time.sleep(60)
        os._exit(0)


@forks(keeps=True)
def daemon() -> None:
    if not os.fork():
        os.setsid()
        if not os.fork():
            time.sleep(60)
        os._exit(0)


@forks(keeps=True)
def child_execs() -> None:
    if not os.fork():
        os.execv("/bin/sleep", ["sleep", "60"])


@forks
def grandchild_returns() -> None:
    if not os.fork():
        os.fork()


@forks
def child_is_terminated() -> None:
    pid = os.fork()
    if not pid:
        time.sleep(30)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)


@forks(cause=r"SIGKILL|signal 9|9")
def child_kills_parent() -> None:
    parent = os.getpid()
    if not os.fork():
        os.kill(parent, signal.SIGKILL)
        os._exit(0)
    time.sleep(2)


@forks
def child_segfaults() -> None:
    if not os.fork():
        ctypes.string_at(0)


@forks
def fork_in_thread() -> None:
    def fork() -> None:
        os.fork()

    threading.Thread(target=fork).start()
    time.sleep(0.2)


@forks
def vfork_and_exec() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)


@forks
def waits_for_any_child() -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)


@forks(keeps=True)
def subprocess_left() -> None:
    KEPT.append(subprocess.Popen(["sleep", "60"]))


@forks
def shell_kills_itself() -> None:
    os.system("kill -9 $$")


@forks
def unread_pipe() -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process = subprocess.Popen(["head", "-c", "1000000", "/dev/zero"], stdout=subprocess.PIPE)
        KEPT.append(process)
        process.wait(0.3)


# Multiprocessing

processes = DEEDS.group("multiprocessing", alone=True)


@processes
def process_joins() -> None:
    process = FORK.Process(target=int)
    process.start()
    process.join(5)


@processes
def process_terminated() -> None:
    process = FORK.Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(3)


@processes
def process_killed() -> None:
    process = FORK.Process(target=time.sleep, args=(60,))
    process.start()
    process.kill()
    process.join(3)


@processes
def process_left() -> None:
    process = FORK.Process(target=time.sleep, args=(5,), daemon=True)
    process.start()
    KEPT.append(process)


@processes
def process_crashes() -> None:
    process = FORK.Process(target=ctypes.string_at, args=(0,))
    process.start()
    process.join(3)


@processes
def process_raises() -> None:
    process = FORK.Process(target=int, args=("x",))
    process.start()
    process.join(3)


@processes
def pool_maps() -> None:
    with FORK.Pool(2) as pool:
        pool.map_async(abs, range(10)).get(5)


@processes
def pool_left() -> None:
    pool = FORK.Pool(2)
    KEPT.append(pool)
    pool.map_async(abs, range(10)).get(5)


@processes
def pool_child_dies() -> None:
    with FORK.Pool(2) as pool:
        pool.apply_async(os._exit, (1,))
        time.sleep(0.2)


@processes
def pool_terminated() -> None:
    pool = FORK.Pool(2)
    pool.map_async(time.sleep, [30] * 4)
    pool.terminate()


@processes
def shared_memory_left() -> None:
    KEPT.append(multiprocessing.shared_memory.SharedMemory(create=True, size=4096))


@processes
def manager() -> None:
    with FORK.Manager() as shared:
        shared.list([1])


@processes
def queue_left_full() -> None:
    queue = FORK.Queue()
    queue.put(b"x" * 1_000_000)
    KEPT.append(queue)


# Threads

threads = DEEDS.group("threads", alone=True)


@threads(cause=r"thread", late=True)
def left_behind() -> None:
    threading.Thread(target=time.sleep, args=(600,), name="left by the application").start()


@threads
def daemon_left() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@threads(cause=r"in a thread of the application")
def raises() -> None:
    def fail() -> None:
        raise ValueError("in a thread of the application")

    threading.Thread(target=fail).start()
    time.sleep(0.1)


@threads
def two_hundred() -> None:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()


@threads
def spins() -> None:
    def spin() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            pass

    threading.Thread(target=spin, daemon=True).start()


@threads
def dead_thread_holds_logging() -> None:
    import logging

    thread = threading.Thread(
        target=logging._acquireLock if hasattr(logging, "_acquireLock") else logging._lock.acquire
    )
    thread.start()
    thread.join()


@threads
def dead_thread_holds_import_lock() -> None:
    import _imp

    thread = threading.Thread(target=_imp.acquire_lock)
    thread.start()
    thread.join()


@threads
def dead_thread_holds_stderr() -> None:
    # The thread waits within write() for a pipe that nobody reads.
    reader, writer = os.pipe()
    KEPT.append(reader)
    sys.stderr = os.fdopen(writer, "w")
    threading.Thread(target=lambda: print("x" * 1_000_000, file=sys.stderr), daemon=True).start()
    time.sleep(0.1)


@threads
def async_exception_in_all() -> None:
    me = _thread.get_ident()
    for ident in sys._current_frames():
        if ident != me:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))


@threads
def interrupt_main() -> None:
    _thread.interrupt_main()


@threads
def excepthook_raises() -> None:
    def hook(_: object) -> None:
        raise RuntimeError("in the hook")

    threading.excepthook = hook
    raises()


@threads
def long_switch_interval() -> None:
    sys.setswitchinterval(100)


@threads
def renamed_current() -> None:
    threading.current_thread().name = "\udc80\n" * 20


@threads
def registry_cleared() -> None:
    threading._active.clear()  # type: ignore[attr-defined]


@threads
def timer_left() -> None:
    threading.Timer(3600, time.sleep).start()


@threads
def executor_left() -> None:
    import concurrent.futures

    executor = concurrent.futures.ThreadPoolExecutor(2)
    KEPT.append(executor)
    executor.submit(time.sleep, 600)


@threads
def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=1.5)


# Signals. A handler set from another thread than the main one is an error of Python's, so the C library sets it too.

signals = DEEDS.group("signals", alone=True)


def _disposition(number: int, handler: Any) -> None:
    with contextlib.suppress(ValueError):
        signal.signal(number, handler)
        return
    LIBC.signal(number, ctypes.c_void_p(1 if handler is signal.SIG_IGN else 0))


@signals
def term_ignored() -> None:
    _disposition(signal.SIGTERM, signal.SIG_IGN)


@signals
def term_default() -> None:
    _disposition(signal.SIGTERM, signal.SIG_DFL)


@signals
def term_handler() -> None:
    _disposition(signal.SIGTERM, lambda *_: None)


@signals
def int_ignored() -> None:
    _disposition(signal.SIGINT, signal.SIG_IGN)


@signals
def chld_ignored() -> None:
    _disposition(signal.SIGCHLD, signal.SIG_IGN)


@signals
def all_default() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            _disposition(number, signal.SIG_DFL)


@signals
def pipe_default() -> None:
    _disposition(signal.SIGPIPE, signal.SIG_DFL)


@signals
def all_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _fail(*_: object) -> None:
    raise ValueError("in a signal handler of the application")


@signals
def handler_raises() -> None:
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGALRM, _fail)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.2)


@signals(cause=r"SIGALRM|signal 14|14")
def alarm_kills() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(0.3)


@signals(cause=r"SIGPROF|signal 27|27")
def profiling_timer_kills() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.01)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        pass


@signals
def wakeup_fd_removed() -> None:
    signal.set_wakeup_fd(-1)


@signals
def wakeup_fd_closed() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    os.close(reader)
    os.close(writer)


def _signal_itself(name: str, **options: Any) -> None:
    number = getattr(signal, name)

    def act() -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.1)

    act.__name__ = f"itself_{name}"
    signals(act, **options)


for _name in ("SIGTERM", "SIGINT", "SIGQUIT"):
    _signal_itself(_name, cause=rf"{_name}|signal|[Ss]hut|stop")
for _name in (
    "SIGHUP",
    "SIGUSR1",
    "SIGUSR2",
    "SIGCHLD",
    "SIGWINCH",
    "SIGTTIN",
    "SIGPIPE",
    "SIGCONT",
    "SIGURG",
    "SIGXFSZ",
):
    _signal_itself(_name)
for _name in ("SIGRTMIN", "SIGVTALRM", "SIGTRAP"):
    _signal_itself(_name)


@signals
def stops_itself_for_a_second() -> None:
    # A child continues it.
    me = os.getpid()
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {me}"])
    os.kill(me, signal.SIGSTOP)


def _signal_parent(name: str, **options: Any) -> None:
    number = getattr(signal, name)

    def act() -> None:
        assert os.getsid(os.getppid()) == os.getsid(0), "the parent is not the server's"
        os.kill(os.getppid(), number)
        time.sleep(0.1)

    act.__name__ = f"parent_{name}"
    signals(act, **options)


_signal_parent("SIGHUP")
_signal_parent("SIGUSR1")
_signal_parent("SIGCHLD")
_signal_parent("SIGTERM", ends=True)
_signal_parent("SIGINT", ends=True)
_signal_parent("SIGKILL", ends=True)


@signals(ends=True)
def group_SIGTERM() -> None:
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.1)
