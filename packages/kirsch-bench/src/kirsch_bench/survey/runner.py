"""One round: start a fresh process of a server, wait until it answers, load it, watch it, end it.

Every end is bounded: a server that does not answer has ``patience`` to begin, one that stalls costs its requests'
timeout, one that never finishes is left at ``longest``. What becomes of it is in the record, never an exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench import load_processes
from kirsch_bench import target as targets
from kirsch_bench.command import build_load
from kirsch_bench.environment import Machine
from kirsch_bench.errors import Failure
from kirsch_bench.processes import Server, Watch, held
from kirsch_bench.results import PERCENTILES, merge
from kirsch_bench.survey import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_bench.plan import Load
    from kirsch_bench.results import Result
    from kirsch_bench.survey.processors import Processors
    from kirsch_bench.survey.spec import Scenario, Survey
    from kirsch_bench.survey.subjects import Ready

_TIMEOUT_SECONDS = 10.0
"""For one request, unless the load says otherwise: a server that stalls is known by then."""

_PROBE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.005
_PAUSE_MAX_SECONDS = 0.1
_HEAD_MAX = 1 << 18
_ANSWER_MAX = 64 << 20
"""Of the first answer; one that is longer counts as so long."""

_SIZES = {"hello": 12, "large": 100_000, "stream": 100_000, "slow": 12}


class Interrupted(KeyboardInterrupt):
    """Raised if the load was interrupted; the round is not recorded."""


@dataclass(frozen=True)
class Conditions:
    """The conditions that all rounds have in common."""

    survey: Survey
    processors: Processors
    progress: Callable[[Sequence[dict[str, Any]]], None]


@dataclass(frozen=True)
class Answer:
    """A received response, for readiness and as a sample."""

    status: int
    head: bytes
    body: bytes
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For a record: sizes and fields."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = [line.partition(":") for line in lines if line]
        fields = [[name.strip(), value.strip()] for name, _, value in pairs]
        return {"status": self.status, "head": len(self.head), "body": len(self.body), "fields": fields}


def measure(
    ready: Ready, scenario: Scenario, number: int, conditions: Conditions, *, idle: bool, ceiling: float | None
) -> records.Round:
    """Run one round and return its record. Raises Interrupted, and Failure if this machine cannot generate the load."""
    blank = records.Round(ready.subject.server, ready.subject.python, scenario.record.name, number, time.time())
    directory = tempfile.mkdtemp(prefix="kirsch-survey-")
    server: Server | None = None
    try:
        port = _free_port()
        target = targets.parse(f"http://127.0.0.1:{port}{scenario.record.path}")
        load = _load(scenario, conditions.survey, target)
        try:
            with held():
                server = _start(ready, scenario, port, directory, conditions.processors)
        except OSError as error:
            return dataclasses.replace(blank, failure=f"it cannot be started: {error.strerror}: {error.filename}")
        try:
            first = _await_answer(server, target, load, conditions.survey.patience)
        except NotReadyError as error:
            return dataclasses.replace(blank, failure=str(error))
        blank = dataclasses.replace(
            blank, startup=first[1], first_request=first[0].seconds, response=first[0].as_json()
        )
        if idle and conditions.survey.idle:
            blank = dataclasses.replace(blank, idle=_idle(server, conditions.survey.idle))
        return _loaded(blank, server, load, conditions, ceiling)
    finally:
        with held():
            if server is not None:
                server.end()
            shutil.rmtree(directory, ignore_errors=True)


class NotReadyError(Exception):
    """Raised if a server does not respond correctly; the text is the reason in one line."""


# ------------------------------------------------------------------------------------------------------------- starting


def _start(ready: Ready, scenario: Scenario, port: int, directory: str, processors: Processors) -> Server:
    if ready.candidate is None:
        size = _SIZES.get(scenario.page, 12)
        if scenario.page == "sizer":
            last = scenario.record.path.partition("?")[0].rpartition("/")[2]
            if last.endswith("B") and last[:-1].isdigit():
                size = int(last[:-1])
            else:
                size = 1024 * int(last) if last.isdigit() else size
        command = [sys.executable, "-m", "kirsch_bench.survey.null", "127.0.0.1", str(port), str(size)]
        environment, home = dict(os.environ), directory
    else:
        command = ready.command(scenario, port, directory)
        environment, home = ready.environment(scenario), scenario.directory or directory
    with processors.for_server():
        front = ready.candidate.adapter.front if ready.candidate is not None else ()
        return Server(command, directory=home, environment=environment, front=front)


def command_of(ready: Ready, scenario: Scenario) -> str:
    """Return the start command for the records, with placeholders for variable parts."""
    import shlex

    if ready.candidate is None:
        return "python -m kirsch_bench.survey.null 127.0.0.1 PORT SIZE"
    directory = tempfile.mkdtemp(prefix="kirsch-survey-")
    try:
        words = ready.command(scenario, 65535, directory)
    except OSError as error:
        return f"({error.strerror})"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    folder = os.path.dirname(ready.python) if ready.python else ""
    text = shlex.join(words)
    places = (
        (directory, "DIR"),
        (scenario.directory, "APP"),
        (ready.python, "python"),
        (sys.executable, "python"),
        (f"{folder}/" if folder else "", ""),
    )
    for found, name in places:
        text = text.replace(found, name) if found else text
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return text.replace("65535", "PORT").replace(f"{home}/", "kirsch/")


def _free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_answer(server: Server, target: targets.Target, load: Load, patience: float) -> tuple[Answer, float]:
    """Return the first correct response, and its time in seconds since the server's start. Raises NotReadyError."""
    pause, problem = _FIRST_PAUSE_SECONDS, "nothing listens"
    accepted = load.checks["status"]
    while True:
        ending = server.ending
        # A moment more, for what is left of it to take over: some servers leave their first process.
        try:
            answer = ask(target, load, min(_PROBE_SECONDS, max(0.1, patience - server.age)))
            if any(low <= answer.status <= high for low, high in accepted):
                return answer, server.age
            problem = f"it answers {answer.status}"
        except OSError as error:
            problem = "nothing listens" if isinstance(error, ConnectionRefusedError) else targets.reason(error)
        except ValueError as error:
            problem = str(error)
        if ending:
            raise NotReadyError(f"{ending} before it answered{_last_words(server)}")
        if server.age >= patience:
            why = f"it did not answer rightly within {patience:g} s: {problem}"
            server.end()
            raise NotReadyError(f"{why}{_last_words(server)}")
        time.sleep(pause)
        pause = min(pause * 1.5, _PAUSE_MAX_SECONDS)


def ask(target: targets.Target, load: Load, timeout: float) -> Answer:
    """Send one request on a new connection, which is then closed. Raises OSError, and ValueError for an invalid
    response."""
    import base64

    request = load.requests[0]
    body = base64.b64decode(request.get("body") or "")
    lines = [f"{request['method']} {request['path']} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request["fields"] if name.lower() != "connection"]
    lines += [f"Content-Length: {len(body)}"] if request.get("body") is not None else []
    data = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body
    started = time.monotonic()
    with target.connect(timeout) as connection:
        connection.sendall(data)
        got = bytearray()
        # Not known before the head is there; without a length the connection's end is the answer's.
        expected = _ANSWER_MAX
        while len(got) < expected:
            left = timeout - (time.monotonic() - started)
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            piece = connection.recv(1 << 16)
            if not piece:
                break
            if b"\n" in piece and expected == _ANSWER_MAX:
                expected = _expected(got[:_HEAD_MAX] + piece[:_HEAD_MAX])
            got += piece
    head, separator, rest = bytes(got).partition(b"\r\n\r\n")
    words = head.partition(b"\r\n")[0].split(None, 2)
    if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"what it answers is no HTTP: {bytes(got[:40])!r}" if got else "it closes without an answer")
    return Answer(int(words[1]), head + separator, rest, time.monotonic() - started)


def _expected(got: bytearray) -> int:
    """How long a response is whose head is there, and says so."""
    head, separator, _ = got[:_HEAD_MAX].partition(b"\r\n\r\n")
    if separator:
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                return min(len(head) + len(separator) + int(value), _ANSWER_MAX)
    return _ANSWER_MAX


def _idle(server: Server, seconds: float) -> float:
    """Return the share of a CPU that the server uses without requests."""
    before, start = server.usage(), time.monotonic()
    time.sleep(seconds)
    after, spent = server.usage(), time.monotonic() - start
    return round(max(0.0, (after.user + after.system - before.user - before.system) / spent), 6)


# -------------------------------------------------------------------------------------------------------------- loading


def _load(scenario: Scenario, survey: Survey, target: targets.Target) -> Load:
    load = build_load({"timeout": _TIMEOUT_SECONDS, **scenario.given}, target)
    given = scenario.given
    if "requests" not in given and "duration" not in given:
        load = dataclasses.replace(load, duration=survey.seconds)
    if "warmup" not in given and load.count is None:
        load = dataclasses.replace(load, warmup_seconds=survey.warmup)
    if "seed" not in given:
        load = dataclasses.replace(load, seed=survey.seed)
    return load


def _loaded(
    blank: records.Round, server: Server, load: Load, conditions: Conditions, ceiling: float | None
) -> records.Round:
    machine = Machine()
    with conditions.processors.for_generator(), Watch(server) as watch:

        def hear(words: Sequence[dict[str, Any]]) -> None:
            if load.duration is not None:
                start = time.time() - max(word["elapsed"] for word in words)
                watch.aim(start + load.warmup_seconds, start + load.warmup_seconds + load.duration)
            conditions.progress(words)

        ran = load_processes.run(
            [{"kind": "plan", "plan": plan} for plan in load.plans()],
            seconds_max=min(load.seconds_max, conditions.survey.longest),
            progress=hear,
        )
    if ran.interrupted:
        raise Interrupted
    parts = [outcome.result for outcome in ran.outcomes if outcome.result is not None]
    troubles = [f"a process of the load: {outcome.trouble}" for outcome in ran.outcomes if outcome.trouble]
    if not parts:
        raise Failure(troubles[0])
    result = merge(parts, load, troubles=troubles)
    memory, ending = server.memory(), server.ending
    window = result.started + result.window_from
    used = watch.between(window, window + result.seconds)
    failure = _failure(result, ending, server)
    seconds = result.seconds or 1.0
    return dataclasses.replace(
        blank,
        failure=failure,
        rate=result.rate,
        requests=result.answered,
        failed=result.failed + result.dropped + result.discarded["failed"],
        errors=_errors(result),
        latency=_latency(result),
        histogram=result.latency.histogram.encode() if result.latency.count else "",
        user=used.user,
        front=used.front,
        system=used.system,
        processor=(used.user + used.system) / seconds,
        rss=memory.rss,
        pss=memory.pss,
        threads=memory.threads,
        processes=memory.processes,
        switches={"voluntary": used.voluntary, "involuntary": used.involuntary},
        generator=_generator(result, ceiling),
        machine=machine.as_json(),
    )


def _failure(result: Result, ending: str, server: Server) -> str:
    if ending:
        return f"{ending} under the load{_last_words(server)}"
    if not result.ok:
        lost = result.discarded["failed"]
        example = result.errors[0]["example"] if result.errors else f"{lost} requests failed while warming up"
        return f"nothing was answered as expected: {example}"
    if result.interrupted and not result.went_well:
        return "the load was not over in time"
    if result.troubles:
        return result.troubles[0]
    return ""


def _last_words(server: Server) -> str:
    words = server.last_words
    return f"; its last words: {words}" if words else ""


def _errors(result: Result) -> dict[str, int]:
    """Return the numbers of errors by class, including dropped requests."""
    found: dict[str, int] = {}
    for error in result.errors:
        found[error["class"]] = found.get(error["class"], 0) + error["count"]
    if result.dropped:
        found["dropped"] = result.dropped
    if result.discarded["failed"]:
        found["while warming up"] = result.discarded["failed"]
    return found


def _latency(result: Result) -> dict[str, float]:
    times = result.latency
    if not times.count:
        return {}
    percentiles = {f"{percent:g}": times.percentile(percent) for percent in PERCENTILES}
    return {"mean": times.mean, "sd": times.sd, "max": times.max, **percentiles}


def _generator(result: Result, ceiling: float | None) -> dict[str, Any]:
    troubles, bound = list(result.generator_troubles), result.generator_bound
    found: dict[str, Any] = {"used": max((each["used"] for each in result.processors), default=0.0)}
    if ceiling and result.rate_asked is None:
        found["ceiling"] = ceiling
        if result.rate > records.CEILING * ceiling:
            bound = True
            troubles.append(f"came to {result.rate / ceiling:.0%} of what it reaches with the null server")
    return {**found, "bound": bound, "troubles": troubles}


def cool_down(seconds: float) -> None:
    """Wait for sockets to time out, and for the CPU to cool down."""
    with contextlib.suppress(InterruptedError):
        time.sleep(seconds)
