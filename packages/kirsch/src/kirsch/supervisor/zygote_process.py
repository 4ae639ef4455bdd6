"""The zygote of ``--preload``: a process that imports the application, serves nothing, and forks the workers.

The workers share its memory. It forks twice and reaps the process in between, so that the worker is an orphan. Orphans
become children of the supervisor, which is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER). So the supervisor reaps
every worker, whichever process forked it. A reload starts another zygote, which imports the changed code.
"""

from __future__ import annotations

import gc
import os
import sys
from select import POLLIN
from select import poll as Poll

from kirsch import reports
from kirsch.bootstrap import StartupError
from kirsch.process import forks
from kirsch.supervisor import forking, titles, worker_process
from kirsch.supervisor.control import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.control import Message
    from kirsch.supervisor.worker_process import SpawnContext

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants. Raises OSError if the system cannot."""
    import errno

    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "--preload needs Linux, where a process can adopt the children of its children")
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"--preload: prctl failed: {os.strerror(ctypes.get_errno())}")


def main(context: SpawnContext, channel: Channel) -> int:
    """Import the application, report the result, and fork workers until the channel ends. Return the exit status."""
    try:
        forks.add(worker_process.restore_signals)
        try:
            loaded = forks.call(worker_process.load, context)
        finally:
            forks.discard(worker_process.restore_signals)
    except StartupError as error:
        return worker_process.report_failure(channel, error)
    titles.other("zygote", context.chosen.process_name or loaded.name)
    # Exempt all objects from garbage collection: in a worker it would write to every page, and so copy the page.
    gc.collect()
    if hasattr(gc, "freeze"):  # PyPy's collector moves objects anyway
        gc.freeze()
    channel.send("ready", name=loaded.name, threads=_thread_names())
    poll = Poll()
    poll.register(channel.fileno(), POLLIN)
    while True:
        message, fd = channel.receive_with_fd()
        if message is None:
            # Exit functions of the application run in the workers, not here: this process served no request.
            os._exit(0)
        if not message:
            poll.poll()
        elif message["message"] == "fork" and fd is not None:
            _fork_worker(context, Channel.from_fd(fd), message, loaded, channel)


def _fork_worker(
    context: SpawnContext, theirs: Channel, message: Message, loaded: worker_process.Loaded, ours: Channel
) -> None:
    try:
        loaded.hooks.call("before_fork", message["index"], message["slot"])
    except StartupError as error:
        worker_process.report_failure(theirs, error)
        theirs.close()
        return
    try:
        between = _fork()
    except OSError:
        theirs.close()  # the supervisor reads end-of-file, and tries again later
        return
    if between:
        theirs.close()
        os.waitpid(between, 0)
        return
    try:
        if _fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    if "gevent" in sys.modules:
        import gevent

        gevent.reinit()
    ours.close()
    values = {name: message[name] for name in ("index", "workers", "slot", "request_limit")}
    raise forking.Forked(lambda: worker_process.main(worker_process.WorkerArguments(context, theirs, **values), loaded))


def _fork() -> int:
    reports.prepare_fork()
    # The patched fork of gevent would watch for the child's exit in the hub.
    if (monkey := sys.modules.get("gevent.monkey")) is not None:
        pid: int = monkey.get_original("os", "fork")()
        return pid
    return os.fork()


def _thread_names() -> list[str]:
    """Return the names of the threads that the application's import has started. Workers will not have them."""
    reports.prepare_fork()
    try:
        count = len(os.listdir("/proc/self/task")) - 1
    except OSError:
        count = 0
    if count <= 0:
        return []
    threading = sys.modules.get("threading")
    names = [] if threading is None else [each.name for each in threading.enumerate()]
    names = [name for name in names if name != "MainThread"]
    return names or [f"{count} without a name"]
