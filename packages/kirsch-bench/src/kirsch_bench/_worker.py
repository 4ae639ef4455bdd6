"""One process of the load: ``python -m kirsch_bench._worker``, started by :mod:`kirsch_bench.load_processes`, which
describes their messages."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any

from kirsch_bench.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Do the one job that comes in on standard input."""
    # SIGINT is ignored until a job runs that it could interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speech = _Speech()
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    try:
        job = json.loads(line)
        work = _prepare(job, speech)
        speech.say({"ready": True})
        word = sys.stdin.buffer.readline()
        if not word:
            return 1
        threading.Thread(target=_end_with_parent, daemon=True).start()
        speech.say({"result": work(json.loads(word)["go"])})
    except Failure as failure:
        speech.say({"failed": str(failure)})
        return failure.status
    except KeyboardInterrupt:
        speech.say({"failed": "it was interrupted before there was anything to report"})
        return 1
    return 0


class _Speech:
    """Lines to the parent, on a descriptor of their own: whatever else prints goes to standard error."""

    def __init__(self) -> None:
        self._out: IO[bytes] = os.fdopen(os.dup(1), "wb")
        os.set_inheritable(self._out.fileno(), False)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def say(self, word: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._out.write(json.dumps(word).encode() + b"\n")
                self._out.flush()
            except OSError:
                pass  # the parent is gone, and _end_with_parent sees it too


def _prepare(job: dict[str, Any], speech: _Speech) -> Callable[[float], dict[str, Any]]:
    """Load all that the job needs, so that nothing has to be loaded once it runs."""
    if job["kind"] == "users":
        from kirsch_bench.users import Users

        users = Users(job)
        return lambda start: users.run(start, lambda progress: speech.say({"progress": progress}))
    from kirsch_bench import native

    _raise_descriptor_limit()

    def load(start: float) -> dict[str, Any]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        time.sleep(max(0.0, start - time.monotonic()))
        return native.load(job["plan"], lambda progress: speech.say({"progress": progress}))

    return load


def _raise_descriptor_limit() -> None:
    """Let the soft limit on open files be the hard one: each connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # then connections beyond it are reported as what they are, failures of this machine


def _end_with_parent() -> None:
    """The parent holds our input open as long as it lives, and says nothing more."""
    # Past Python's buffer: a thread that holds its lock at the interpreter's end is a fatal error.
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
