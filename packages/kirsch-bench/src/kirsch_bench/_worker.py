"""A process of the load: ``python -m kirsch_bench._worker``, or ``kirsch bench worker`` on another host.
:mod:`kirsch_bench.load_processes` starts it and describes the messages."""

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
    """Run the one job that is read from standard input; return the exit status."""
    # Ignore SIGINT until a job that can be interrupted runs.
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
    """Output to the parent on a separate descriptor; everything else that prints is redirected to standard error."""

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
                pass  # the parent is gone, which _Hearing.listen detects too


class _Hearing:
    """Input from the parent, without Python's buffer: a thread that holds the buffer's lock at the interpreter's
    exit causes a fatal error."""

    def __init__(self) -> None:
        self._data = b""
        self.stop = threading.Event()
        """Set once the parent wants the result of what was measured so far."""

    def word(self) -> dict[str, Any] | None:
        """Return the next message; None if the parent is gone."""
        while b"\n" not in self._data:
            data = os.read(0, 1 << 16)
            if not data:
                return None
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        word: dict[str, Any] = json.loads(line)
        return word

    def listen(self, silence: float | None) -> None:
        """Wait for a stop message. Exit if the parent is gone, or silent for ``silence`` seconds."""
        while b"\n" in self._data or select.select([0], [], [], silence)[0]:
            word = self.word()
            if word is None:
                break
            if "stop" in word:
                self.stop.set()
        os._exit(1)


def _prepare(job: dict[str, Any], speech: _Speech, hearing: _Hearing) -> Callable[[float], dict[str, Any]]:
    """Load everything that the job needs, so that nothing is loaded while it runs; return the function that runs it."""
    if job["kind"] == "users":
        from kirsch_bench.users import Users

        users = Users(job)
        return lambda start: users.run(start, lambda progress: speech.say({"progress": progress}))
    from kirsch_bench import native

    _raise_descriptor_limit()
    if "url" in job:
        # This process may run on another host, with its own name resolution and routes to the server.
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
    """Raise the soft limit of open files to the hard limit: each connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # then connections beyond the limit are reported as local failures


if __name__ == "__main__":
    sys.exit(main())
