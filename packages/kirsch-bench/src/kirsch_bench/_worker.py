"""One process of the load: ``python -m kirsch_bench._worker``, or ``kirsch bench worker`` on another host, started by
:mod:`kirsch_bench.load_processes`, which describes their messages."""

from __future__ import annotations

import json
import os
import resource
import select
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
    speech, hearing = _Speech(), _Hearing()
    try:
        from kirsch_bench import native

        speech.say({"version": native.VERSION})
        job = hearing.word()
        if job is None:
            return 1
        work = _prepare(job, speech, hearing)
        speech.say({"ready": True})
        while (word := hearing.word()) is not None and "ping" in word:
            speech.say({"pong": word["ping"], "monotonic": time.monotonic(), "time": time.time()})
        if word is None:
            return 1
        threading.Thread(target=hearing.listen, args=(job.get("silence"),), daemon=True).start()
        speech.say({"result": work(word["go"])})
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
                pass  # the parent is gone, and _Hearing.listen sees it too


class _Hearing:
    """Lines of the parent, read without Python's buffer: a thread that holds its lock at the interpreter's end is a
    fatal error."""

    def __init__(self) -> None:
        self._data = b""
        self.stop = threading.Event()
        """Set once the parent wants the result of what was measured so far."""

    def word(self) -> dict[str, Any] | None:
        """Return the next message; None: the parent is gone."""
        while b"\n" not in self._data:
            data = os.read(0, 1 << 16)
            if not data:
                return None
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        word: dict[str, Any] = json.loads(line)
        return word

    def listen(self, silence: float | None) -> None:
        """Wait for a message to stop. End the process if the parent is gone, or silent for so many seconds."""
        while b"\n" in self._data or select.select([0], [], [], silence)[0]:
            word = self.word()
            if word is None:
                break
            if "stop" in word:
                self.stop.set()
        os._exit(1)


def _prepare(job: dict[str, Any], speech: _Speech, hearing: _Hearing) -> Callable[[float], dict[str, Any]]:
    """Load all that the job needs, so that nothing has to be loaded once it runs."""
    if job["kind"] == "users":
        from kirsch_bench.users import Users

        users = Users(job)
        return lambda start: users.run(start, lambda progress: speech.say({"progress": progress}))
    from kirsch_bench import native

    _raise_descriptor_limit()
    if "url" in job:
        # Another host has its own names and ways to the server.
        from kirsch_bench import target as targets

        job["plan"]["target"] = targets.require_answering(targets.parse(job["url"], own=job["own"])).plan()

    def observe(progress: dict[str, Any]) -> bool:
        speech.say({"progress": progress})
        return not hearing.stop.is_set()

    def load(start: float) -> dict[str, Any]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        time.sleep(max(0.0, start - time.monotonic()))
        return native.load(job["plan"], observe)

    return load


def _raise_descriptor_limit() -> None:
    """Let the soft limit on open files be the hard one: each connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # then connections beyond it are reported as what they are, failures of this machine


if __name__ == "__main__":
    sys.exit(main())
