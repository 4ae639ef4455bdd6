"""Serves the applications of the matrix, has them misbehave, and examines the server afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.servers import TESTS, Server, python_for
from ports import free_port
from proc import wait_until
from running import Transcript, descendants, own_frame, title

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.table import Behaviour

ADDRESS = re.compile(r"http://127\.0\.0\.1:(?P<port>[0-9]+)")
START_SECONDS = 30.0
STOP_SECONDS = 12.0
ANSWER_SECONDS = 10.0
"""How long another client tries at most: ten busy loops beside the tests may slow everything down."""

CLIENTS = 8
"""Clients that ask at once afterwards, so that each worker has some of them."""

_HELLO = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_TRIGGER_SECONDS = 3.0
_TRIGGER_BYTES = 1 << 20


@dataclass
class Outcome:
    """The outcome of one behaviour. ``wrong`` are sentences on what a server must not do; the rest is measured."""

    name: str
    group: str
    started: bool = True
    response: str = ""
    answered: float | None = None
    """Seconds until another client was answered, who asked while the application misbehaved; None: it was not."""

    afterwards: float | None = None
    """The same of the slowest of several clients that asked afterwards."""

    named: bool | None = None
    """True if the log names the cause; None where there is nothing to name."""

    status: int | None = None
    """The exit status after SIGTERM, -9 after a signal 9; None where the server was not stopped behind this one."""

    left: list[str] = field(default_factory=list)
    """The processes and files that were still there after the stop."""

    wrong: list[str] = field(default_factory=list)
    log: str = ""


class Site:
    """A server that runs, in a directory and session of its own."""

    def __init__(self, server: Server, target: str, peers: str, env: dict[str, str] | None = None) -> None:
        self.server = server
        self.mark = f"MATRIX_RUN={uuid.uuid4()}"
        self.folder = Path(tempfile.mkdtemp(prefix="matrix-"))
        for name in ("run", "tmp"):
            (self.folder / name).mkdir()
        self.port = free_port()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("KIRSCH_", "PYTEST_", "COV_"))
        }
        environment |= {
            "PYTHONPATH": str(TESTS),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder / "tmp"),
            "NO_COLOR": "1",
            **dict([self.mark.split("=")]),
            **(env or {}),
        }
        self.process = subprocess.Popen(
            server.line(python_for(server, peers), target, self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=self.folder / "run",
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.transcript = Transcript(self.process.stdout)
        self.shared_memory = set(os.listdir("/dev/shm"))

    @property
    def log(self) -> str:
        return self.transcript.text

    def await_start(self) -> bool:
        """Wait until the server answers; False where it ends instead, or does neither."""
        with contextlib.suppress(AssertionError):
            self.port = int(self.transcript.wait_for(ADDRESS, START_SECONDS)["port"])
            return self.ask(1, START_SECONDS) is not None
        return False

    def ask(self, clients: int, seconds: float) -> float | None:
        """Have so many clients ask for /hello at once; return the seconds that the slowest took, with its repetitions.

        None where one of them had no answer in ``seconds``.
        """
        began = time.monotonic()
        with contextlib.ExitStack() as opened:

            def connect() -> socket.socket | None:
                sock = self._connect(_HELLO)
                return sock and opened.enter_context(sock)

            for sock in [connect() for _ in range(clients)]:
                while not _is_hello(sock, began + seconds - time.monotonic()):
                    if time.monotonic() - began > seconds or self.process.poll() is not None:
                        return None
                    time.sleep(0.02)
                    sock = connect()
        return time.monotonic() - began

    def trigger(self, path: str, outcome: Outcome) -> None:
        """Ask for ``path``; note how the response begins, or how the connection ended."""
        sock = self._connect(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        if sock is None:
            outcome.response = "refused"
            return
        with sock:
            received, total, deadline = b"", 0, time.monotonic() + _TRIGGER_SECONDS
            try:
                while total < _TRIGGER_BYTES:
                    sock.settimeout(max(deadline - time.monotonic(), 0.01))
                    if not (data := sock.recv(65536)):
                        break
                    received = received or data
                    total += len(data)
            except OSError as error:
                outcome.response = type(error).__name__
            outcome.response = received[9:12].decode("latin-1") or outcome.response or "closed"

    def _connect(self, data: bytes) -> socket.socket | None:
        try:
            sock = socket.create_connection(("127.0.0.1", self.port), 3)
        except OSError:
            return None
        try:
            sock.sendall(data)
        except OSError:
            sock.close()
            return None
        return sock

    def family(self) -> dict[int, str]:
        """Return the processes that this server, or its application, has started and that still run."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                is_ours = int(fields[3]) == self.process.pid
                if not is_ours:
                    is_ours = self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes()
                if is_ours and fields[0] not in "ZX":
                    found[int(name)] = title(int(name)) or "?"
        return found

    def stop(self, outcome: Outcome, behaviour: Behaviour | None, own_frames: bool = False) -> None:
        """Stop the server, or wait for its end where the behaviour ends it, and examine what is left.

        ``own_frames``: tracebacks of the application may show functions of the server's.
        """
        ends = behaviour is not None and behaviour.ends
        if self.process.poll() is None and not ends:
            self.process.send_signal(signal.SIGTERM)
        try:
            outcome.status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            outcome.left.append(f"the server runs {STOP_SECONDS:g} s after SIGTERM")
        keeps = behaviour is not None and behaviour.keeps
        deadline = time.monotonic() + (5.0 if ends else 1.0)
        # A process that has been told to end may need a moment more than the one that told it.
        while (family := self.family()) and not keeps and time.monotonic() < deadline:
            time.sleep(0.05)
        if (sock := self._connect(b"")) is not None:
            sock.close()
            outcome.left.append("the port accepts connections")
        if not keeps:
            outcome.left += [f"process {pid}: {text[:80]}" for pid, text in family.items()]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if not self.transcript.wait_for_end(5) and not keeps:
            outcome.left.append("a process that holds the log")
        outcome.left += [f"file {path.relative_to(self.folder)}" for path in self.folder.glob("*/*") if not keeps]
        mine = {name for name in set(os.listdir("/dev/shm")) - self.shared_memory if "kirsch" in name}
        outcome.left += [f"shared memory {name}" for name in mine]
        outcome.log = self.log
        if self.server.is_kirsch:
            if not own_frames and not (behaviour and behaviour.calls) and (frame := own_frame(self.log)):
                outcome.wrong.append(f"a traceback through Kirsch's own code: {frame}")
            if "panicked at" in self.log:
                outcome.wrong.append("a panic")
        shutil.rmtree(self.folder, ignore_errors=True)

    def await_workers(self, outcome: Outcome) -> None:
        """Wait until Kirsch has as many workers as it should have."""

        def workers() -> int:
            return sum(title(pid).startswith("kirsch: worker") for pid in descendants(self.process.pid))

        try:
            wait_until(lambda: workers() >= 2, "both workers run", 20)
        except AssertionError:
            outcome.wrong.append(f"{workers()} of 2 workers run")


def _is_hello(sock: socket.socket | None, seconds: float) -> bool:
    """Read a response to its end, close the connection, and return whether it is the page."""
    if sock is None:
        return False
    received, deadline = b"", time.monotonic() + seconds
    with sock:
        try:
            while not received.endswith(b"hello") and (left := deadline - time.monotonic()) > 0:
                sock.settimeout(left)
                if not (data := sock.recv(4096)):
                    break
                received += data
        except OSError:
            return False
    return received.startswith(b"HTTP/1.1 200") and received.endswith(b"hello")


class Runner:
    """Runs behaviours under one server. Those that are harmless share one."""

    def __init__(self, server: Server, peers: str = "") -> None:
        self.server = server
        self._peers = peers
        # The others name fewer causes, and those at once.
        self._patience = 10.0 if server.is_kirsch else 1.0

    def run(self, behaviours: Iterable[Behaviour]) -> list[Outcome]:
        """Run all of them, and return what came of each, in any order."""
        behaviours = list(behaviours)
        outcomes = [self.run_alone(behaviour) for behaviour in behaviours if behaviour.alone]
        shared = [behaviour for behaviour in behaviours if not behaviour.alone]
        return outcomes + self._run_shared(shared)

    def run_alone(self, behaviour: Behaviour) -> Outcome:
        """Run one on a server of its own."""
        outcome = Outcome(behaviour.name, behaviour.group)
        env = {f"MATRIX_{behaviour.group.upper()}": behaviour.name} if behaviour.group in ("lifespan", "import") else {}
        target = "matrix.at_import:app" if behaviour.group == "import" else f"matrix.{self.server.interface}:app"
        site = Site(self.server, target, self._peers, env)
        if site.await_start():
            if env:
                outcome.answered = outcome.afterwards = site.ask(CLIENTS, ANSWER_SECONDS)
            else:
                self._misbehave(site, behaviour, outcome)
                if behaviour.cause is not None and not behaviour.late:
                    self._await_cause(site, behaviour, 0, self._patience)
        else:
            # Not to start is right where the application cannot be served; the cause and the end are looked at.
            outcome.started = bool(env) and behaviour.cause is not None
            outcome.answered = outcome.afterwards = 0.0 if outcome.started else None
        site.stop(outcome, behaviour)
        if behaviour.cause is not None:
            outcome.named = _names(behaviour, outcome.log)
        self._judge(behaviour, outcome)
        return outcome

    def _run_shared(self, behaviours: list[Behaviour]) -> list[Outcome]:
        if not behaviours:
            return []
        outcomes: list[Outcome] = []
        site = Site(self.server, f"matrix.{self.server.interface}:app", self._peers)
        assert site.await_start(), f"{self.server.name} did not start:\n{site.log}"
        for behaviour in behaviours:
            outcome = Outcome(behaviour.name, behaviour.group)
            began = len(site.log)
            self._misbehave(site, behaviour, outcome)
            if behaviour.cause is not None:
                self._await_cause(site, behaviour, began, self._patience)
                outcome.named = _names(behaviour, site.log[began:])
            outcome.log = site.log[began:]
            outcomes.append(outcome)
            if outcome.afterwards is None:
                site.stop(Outcome("", ""), None)
                site = Site(self.server, f"matrix.{self.server.interface}:app", self._peers)
                assert site.await_start(), f"{self.server.name} did not start:\n{site.log}"
        last = Outcome("the stop", behaviours[0].group)
        site.stop(last, None, own_frames=any(behaviour.calls for behaviour in behaviours))
        if last.left or last.wrong or last.status != 0:
            # One of them is to blame: each is tried alone.
            return [self.run_alone(behaviour) for behaviour in behaviours]
        for behaviour, outcome in zip(behaviours, outcomes, strict=True):
            outcome.status = last.status
            self._judge(behaviour, outcome)
        return outcomes

    def _misbehave(self, site: Site, behaviour: Behaviour, outcome: Outcome) -> None:
        began = len(site.log)
        trigger = threading.Thread(target=site.trigger, args=(behaviour.name, outcome))
        trigger.start()
        with contextlib.suppress(AssertionError):
            site.transcript.wait_for(re.escape(f"matrix: {behaviour.name} begins"), 5, began)
        if behaviour.ends:
            trigger.join()
            outcome.answered = outcome.afterwards = 0.0
            return
        outcome.answered = site.ask(1, ANSWER_SECONDS)
        trigger.join()
        if behaviour.lasts:
            # Until the server's own time limit has passed.
            self._await_cause(site, behaviour, began, 10.0)
        outcome.afterwards = site.ask(CLIENTS, ANSWER_SECONDS)
        if self.server.is_kirsch:
            site.await_workers(outcome)

    def _await_cause(self, site: Site, behaviour: Behaviour, began: int, seconds: float) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: _names(behaviour, site.log[began:]), "the cause is named", seconds)

    def _judge(self, behaviour: Behaviour, outcome: Outcome) -> None:
        """Add to ``wrong`` what Kirsch promises and was not so."""
        if not outcome.started:
            outcome.wrong.append("the server did not start")
        for seconds, who in ((outcome.answered, "another client"), (outcome.afterwards, "a later client")):
            if seconds is None:
                outcome.wrong.append(f"{who} was not answered")
        if outcome.named is False:
            outcome.wrong.append(f"the log does not name the cause: {behaviour.cause}")
        allowed = {0, -signal.SIGKILL} if behaviour.ends else {0}
        if behaviour.group in ("import", "lifespan") and behaviour.cause is not None:
            allowed |= {1, 3, 4, 5}
        if outcome.status is not None and outcome.status not in allowed:
            outcome.wrong.append(f"the server ended with status {outcome.status}")
        outcome.wrong += [f"left: {each}" for each in outcome.left]


def _names(behaviour: Behaviour, log: str) -> bool:
    """Return whether a line of ``log`` that is not the application's own mark has the behaviour's words."""
    text = "\n".join(line for line in log.splitlines() if not line.startswith("matrix: "))
    return re.search(behaviour.cause or "", text) is not None
