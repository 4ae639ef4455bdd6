"""WSGI and ASGI applications that fork. The path names what they do; the response is what came of it, as text."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORK = multiprocessing.get_context("fork")
PROCESS_SECONDS = 20.0

pages: dict[str, Callable[[], str]] = {}


def page(function: Callable[[], str]) -> Callable[[], str]:
    pages["/" + function.__name__] = function
    return function


def how_ended(pid: int) -> str:
    """How a child ended, in words; the child is killed where it does not end."""
    deadline = time.monotonic() + PROCESS_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return f"signal {-code}" if code < 0 else f"status {code}"
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return "it did not end"


def fork(child: Callable[[], object]) -> int:
    """Fork; in the child, call ``child`` and return 0 as os.fork() does."""
    if not (pid := os.fork()):
        child()
    return pid


def received(reader: int, writer: int) -> str:
    """Returns the text that a child wrote to a pipe, in one piece. There may be no end: gevent closes late."""
    text = os.read(reader, 65536).decode()
    os.close(reader)
    os.close(writer)
    return text


@page
def hello() -> str:
    return str(os.getpid())


@page
def terminate() -> str:
    process = FORK.Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(PROCESS_SECONDS)
    return str(process.exitcode)


@page
def pool() -> str:
    with FORK.Pool(2) as workers:
        return str(workers.map_async(abs, range(-3, 0)).get(PROCESS_SECONDS))


@page
def forkserver() -> str:
    process = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(PROCESS_SECONDS)
    return str(process.exitcode)


@page
def signals() -> str:
    """Returns the report of a child about its signals."""
    reader, writer = os.pipe()
    if not os.fork():
        names = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTTIN", "SIGTTOU", "SIGWINCH")
        changed = [name for name in names if signal.getsignal(getattr(signal, name)) is not signal.SIG_DFL]
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        os.write(writer, f"{changed} {signal.set_wakeup_fd(-1)} {sorted(blocked)}".encode())
        os._exit(0)
    return received(reader, writer)


@page
def own_handler() -> str:
    """A handler of the application's own stays in the child."""
    if not (pid := os.fork()):
        os._exit(int(signal.getsignal(signal.SIGALRM) is not print))
    return how_ended(pid)


@page
def sockets() -> str:
    """The sockets that a child has open, besides standard streams."""
    reader, writer = os.pipe()
    if not os.fork():
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            if int(name) > 2 and target.startswith("socket:"):
                found.append(target)
        os.write(writer, f"sockets: {' '.join(found)}".encode())
        os._exit(0)
    return received(reader, writer)


@page
def stay() -> str:
    """Leave a child behind, which says its number and sleeps."""
    if not (pid := os.fork()):
        time.sleep(600)
        os._exit(0)
    return str(pid)


@page
def leave_process() -> str:
    process = FORK.Process(target=time.sleep, args=(600,))
    process.start()
    return str(process.pid)


@page
def child_returns() -> str:
    pid = os.fork()
    return how_ended(pid) if pid else "the child"


@page
def child_raises() -> str:
    if not (pid := os.fork()):
        raise ValueError("raised in the child")
    return how_ended(pid)


@page
def child_exits_with_7() -> str:
    return how_ended(fork(lambda: sys.exit(7)))


@page
def grandchild_returns() -> str:
    if not (pid := os.fork()):
        grandchild = os.fork()
        return how_ended(grandchild) if grandchild else "the grandchild"
    return how_ended(pid)


@page
def forkpty_returns() -> str:
    pid, terminal = os.forkpty()
    if not pid:
        return "the child"
    try:
        while os.read(terminal, 1024):
            pass
    except OSError:
        pass  # the child has ended
    os.close(terminal)
    return how_ended(pid)


@page
def pty_fork_execs() -> str:
    pid, terminal = pty.fork()
    if not pid:
        os.execv("/bin/true", ["true"])
    try:
        while os.read(terminal, 1024):
            pass
    except OSError:
        pass
    os.close(terminal)
    return how_ended(pid)


@page
def subprocess_runs() -> str:
    hello = subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout.strip()
    prepared = subprocess.run(["true"], preexec_fn=os.getpid, check=True)
    process = subprocess.Popen(["sleep", "60"])
    process.terminate()
    return f"{hello} {prepared.returncode} {process.wait(PROCESS_SECONDS)}"


@page
def thread_forks() -> str:
    """A thread of the application forks, and its target returns in the child."""
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(os.fork()))
    thread.start()
    thread.join()
    return how_ended(pids[0])


@page
def child_uses_asyncio() -> str:
    """A child may run an event loop of its own."""

    async def answer() -> int:
        await asyncio.sleep(0.01)
        return 9

    if not (pid := os.fork()):
        os._exit(asyncio.run(answer()))
    return how_ended(pid)


@page
def child_serves() -> str:
    """A child may make a server of its own."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        import urllib.request

        import kirsch

        server = kirsch.Server(_own, bind="127.0.0.1:0", threads=1)
        server.listen()
        threading.Thread(target=server.start, daemon=True).start()
        with urllib.request.urlopen(server.urls[0], timeout=PROCESS_SECONDS) as response:
            os.write(writer, response.read())
        server.stop(0)
        os._exit(0)
    return f"{received(reader, writer)} {how_ended(pid)}"


def _own(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def midway() -> Iterator[bytes]:
    pid = os.fork()
    yield (how_ended(pid) if pid else "the child").encode()


def wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/child_uses_server":
        pid = os.fork()
        if not pid:
            try:
                start_response("200 OK", [("Content-Length", "9")])(b"the child")
            except RuntimeError as error:
                os._exit(int("forked" not in str(error)))
        body: Any = [how_ended(pid).encode()]
    elif path == "/midway":
        body = midway()
    else:
        body = [pages[path]().encode()]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return body


signal.signal(signal.SIGALRM, print)


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise NotImplementedError
    path = scope["path"]
    if path == "/child_uses_server":
        pid = os.fork()
        if not pid:
            try:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"the child"})
            except RuntimeError as error:
                os._exit(int("forked" not in str(error)))
        text = how_ended(pid)
    elif path == "/child_awaits":
        await asyncio.sleep(0.001)  # so that this is not the first step of the task
        future = asyncio.get_running_loop().create_future()
        pid = os.fork()
        if not pid:
            await future
        text = how_ended(pid)
    elif path == "/in_a_later_step":
        await asyncio.sleep(0.001)
        text = pages["/" + scope["query_string"].decode()]()
    elif path == "/in_a_thread":
        text = await asyncio.to_thread(pages["/" + scope["query_string"].decode()])
    else:
        text = pages[path]()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})
