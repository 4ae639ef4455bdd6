"""ApacheBench's report: written from our results, read from ab's output, and swept over clients and sizes.

:class:`ABSession`, :func:`thread_report`, :func:`size_report` and :func:`print_report` keep the names, arguments and
columns of the script that CherryPy was measured with in 2006, so that script runs with them as it is::

    ABSession("/", 100, 5).run()        # http://localhost:8080/, as the script has it; see PORT
    print_report(thread_report())

The program ``ab`` does the work where it is installed, and the built-in generator, with ab's header fields, where not.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from kirsch_bench import profiles
from kirsch_bench import target as targets
from kirsch_bench.errors import Failure, UnreachableError
from kirsch_bench.plan import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_bench.results import Result, Times
    from kirsch_bench.target import Target

    Measure = Callable[[Load], Result]

PORT = 8080
"""The port on localhost that a session connects to if its path is no URL. Read when a session runs."""

SAFE_THREADS = (25, 50, 100, 200, 400)
"""Numbers of clients of a thread report."""

SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
"""Bytes of a size report."""

SIZE_CLIENTS = 50
"""Clients of a size report."""

_PERCENTS = (50, 66, 75, 80, 90, 95, 98, 99)

_RUN_SECONDS_MAX = 600.0
"""For one run of ab, which itself waits for an answer for half a minute (-s)."""


def block(result: Result) -> str:
    """Return a result in the format of ``ab -n -c``. Times are whole milliseconds, as in ab."""
    load, target = result.load, result.load.target
    complete = result.requests - result.dropped
    concurrency = load.connections if load.rate is None else load.max_connections
    rate = complete / result.seconds if result.seconds else 0.0
    sample: dict[str, Any] = result.samples[0] if result.samples else {"head": "", "length": 0}
    server = re.search(r"^server:[ \t]*(.*?)[ \t]*\r?$", sample["head"], re.IGNORECASE | re.MULTILINE)
    lines = [
        f"Server Software:        {server[1] if server else ''}",
        f"Server Hostname:        {target.unix or target.host}",
        f"Server Port:            {0 if target.unix else target.port}",
        "",
        f"Document Path:          {load.requests[0]['path']}",
        f"Document Length:        {sample['length']} bytes",
        "",
        f"Concurrency Level:      {concurrency}",
        f"Time taken for tests:   {result.seconds:.3f} seconds",
        f"Complete requests:      {complete}",
        f"Failed requests:        {result.failed + result.dropped}",
    ]
    if result.failed or result.dropped:
        lines.append(f"   ({_failures(result)})")
    unexpected = sum(count for status, count in result.statuses.items() if not status.startswith("2"))
    if unexpected:
        lines.append(f"Non-2xx responses:      {unexpected}")
    if load.keep_alive:
        # Each connection beyond the first ones stands for an answer that ended the one before.
        lines.append(f"Keep-Alive requests:    {max(0, complete - max(0, result.connections['opened'] - concurrency))}")
    received = result.bytes["heads"] + result.bytes["bodies"]
    lines += [
        f"Total transferred:      {received} bytes",
        f"HTML transferred:       {result.bytes['bodies']} bytes",
        f"Requests per second:    {rate:.2f} [#/sec] (mean)",
    ]
    if rate:
        lines += [
            f"Time per request:       {concurrency * 1000 / rate:.3f} [ms] (mean)",
            f"Time per request:       {1000 / rate:.3f} [ms] (mean, across all concurrent requests)",
            f"Transfer rate:          {received / 1024 / result.seconds:.2f} [Kbytes/sec] received",
        ]
    if result.latency.count:
        lines += ["", *_times(result), "", *_percentages(result.latency)]
    return "\n".join(lines)


def _failures(result: Result) -> str:
    """Return ab's four kinds of failures, converted from the generator's classes."""
    counts = {"Connect": 0, "Receive": 0, "Length": 0, "Exceptions": result.dropped}
    kinds = dict.fromkeys(("connect", "refused", "local", "tls"), "Connect") | {"length": "Length", "hash": "Length"}
    kinds |= dict.fromkeys(("reset", "unanswered", "closed_early", "stream", "goaway"), "Receive")
    for error in result.errors:
        counts[kinds.get(error["class"], "Exceptions")] += error["count"]
    return ", ".join(f"{kind}: {count}" for kind, count in counts.items())


def _times(result: Result) -> list[str]:
    kept = max(0, result.latency.count - result.connect.count)
    rows = [
        ("Connect:", _connect_row(result.connect, kept)),
        ("Processing:", _row(result.service)),
        ("Waiting:", _row(result.first_byte)),
        ("Total:", _row(result.latency)),
    ]
    return [
        "Connection Times (ms)",
        "              min  mean[+/-sd] median   max",
        *(
            f"{name:<12}{_ms(low):5d} {_ms(mean):4d} {sd * 1000:5.1f} {_ms(median):6d} {_ms(high):7d}"
            for name, (low, mean, sd, median, high) in rows
        ),
    ]


_Row = tuple[float, float, float, float, float]


def _row(times: Times) -> _Row:
    return times.min, times.mean, times.sd, times.percentile(50), times.max


def _connect_row(connect: Times, kept: int) -> _Row:
    """Return the row of connection times. As in ab, a request on a kept connection counts as connected in no time."""
    count = connect.count + kept
    if not kept or not connect.count:
        return _row(connect)
    share = connect.count / count
    mean = connect.mean * share
    sd = math.sqrt(max(0.0, share * (connect.sd**2 + connect.mean**2) - mean**2))
    beyond = 100 - 50 / share  # where the median of all lies among those that did connect
    return 0.0, mean, sd, connect.percentile(beyond) if beyond > 0 else 0.0, connect.max


def _percentages(latency: Times) -> list[str]:
    return [
        "Percentage of the requests served within a certain time (ms)",
        *(f"{percent:4d}% {_ms(latency.percentile(percent)):6d}" for percent in _PERCENTS),
        f" 100% {_ms(latency.max):6d} (longest request)",
    ]


def _ms(seconds: float) -> int:
    return int(seconds * 1000 + 0.5)


class ABSession:
    """One run of ``ab``, and the values of its report; None for a missing value.

    ``path`` is a path on localhost at ``PORT``, any URL that ``kirsch bench`` takes, or a target. It may be changed
    between runs, as may ``requests`` and ``concurrency``. ``command`` is the program to use in place of the ``ab`` that
    is found; empty, or for a target that ab cannot reach, ``measure`` runs the load (default: the built-in generator).
    """

    parse_patterns = (
        ("complete_requests", "Completed", r"^Complete requests:\s*(\d+)"),
        ("failed_requests", "Failed", r"^Failed requests:\s*(\d+)"),
        ("requests_per_second", "req/sec", r"^Requests per second:\s*([0-9.]+)"),
        ("time_per_request_concurrent", "msec/req", r"^Time per request:\s*([0-9.]+).*concurrent requests\)$"),
        ("transfer_rate", "KB/sec", r"^Transfer rate:\s*([0-9.]+)"),
    )

    complete_requests: str | None
    failed_requests: str | None
    requests_per_second: str | None
    time_per_request_concurrent: str | None
    transfer_rate: str | None

    def __init__(
        self,
        path: str | Target = "/",
        requests: int = 3000,
        concurrency: int = 10,
        *,
        command: str | None = None,
        measure: Measure | None = None,
    ) -> None:
        self.path = path
        self.requests = requests
        self.concurrency = concurrency
        self.output = ""
        self.problem = ""
        """The text that ab wrote to standard error."""
        self.document_length: int | None = None
        """Bytes of the first response's body."""
        self._command = (shutil.which("ab") or "") if command is None else command
        self._measure = measure
        self._answering: dict[str, Target] = {}
        self.parse("")

    @property
    def target(self) -> Target:
        """Return the target of ``path``. Raises UsageError if it is no URL, UnreachableError if the host is unknown."""
        if not isinstance(self.path, str):
            return self.path
        url = f"http://localhost:{PORT}{self.path}" if self.path.startswith("/") else self.path
        if url not in self._answering:
            parsed = targets.parse(url)
            try:
                # localhost may be two addresses, of which the server may have one.
                self._answering[url] = targets.require_answering(parsed)
            except UnreachableError:
                return parsed
        return self._answering[url]

    @property
    def uses_ab(self) -> bool:
        """Return whether the program ab is used."""
        return bool(self._command) and not self.target.unix

    def args(self) -> str:
        """Return the command-line arguments for ab. Raises Failure for numbers that ab refuses."""
        self._require_enough()
        target = self.target
        ip = f"[{target.ips[0]}]" if ":" in target.ips[0] else target.ips[0]
        # Use the checked address; ab would resolve the name again, perhaps to another one.
        return shlex.join(
            [
                *("-k", "-n", str(self.requests), "-c", str(self.concurrency), "-q"),
                *("-H", f"Host: {target.authority}"),
                f"http://{ip}:{target.port}{target.path}",
            ]
        )

    def run(self) -> None:
        """Run the load and parse the report. A failed run leaves None in the attributes."""
        self.output, self.problem = "", ""
        if self.uses_ab:
            self._run_ab()
        else:
            self.output = block((self._measure or _measure_natively)(self._load()))
        self.parse(self.output)

    def parse(self, output: str) -> None:
        """Set the attributes from a report."""
        for attribute, _, pattern in self.parse_patterns:
            found = re.search(pattern, output, re.MULTILINE)
            setattr(self, attribute, found[1] if found else None)
        length = re.search(r"^Document Length:\s*(\d+)", output, re.MULTILINE)
        self.document_length = int(length[1]) if length else None

    def _run_ab(self) -> None:
        try:
            done = subprocess.run(  # noqa: S603  # the arguments are ours, and no shell reads them
                [self._command, *shlex.split(self.args())],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_RUN_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.problem = f"ab did not end within {_RUN_SECONDS_MAX:g} s"
        except OSError as error:
            raise Failure(f"cannot run {self._command}: {error.strerror}") from None
        else:
            self.output = done.stdout
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            self.problem = lines[-1] if done.returncode and lines else ""

    def _require_enough(self) -> None:
        if not 0 < self.concurrency <= self.requests:
            raise Failure(f"{self.concurrency} clients cannot share {self.requests} requests")

    def _load(self) -> Load:
        self._require_enough()
        target = self.target
        return Load(
            target=target,
            requests=({"path": target.path, "fields": profiles.fields("ab", target.authority)},),
            connections=self.concurrency,
            duration=None,
            count=self.requests,
            version="1.0",
            checks={"status": [[200, 599]], "length": "first"},
        )


def _measure_natively(load: Load) -> Result:
    from kirsch_bench.measure import measure
    from kirsch_bench.progress import Display

    return measure(load, Display(quiet=True))


def thread_report(
    path: ABSession | str | Target = "/",
    concurrency: Sequence[int] = SAFE_THREADS,
    *,
    tell: Callable[[str], object] | None = None,
) -> list[list[object]]:
    """Run a session for each number of clients. Return rows for :func:`print_report`, first the header, last the
    averages. ``tell`` is called with a line about each run."""
    session = path if isinstance(path, ABSession) else ABSession(path)
    attributes, names, _ = zip(*session.parse_patterns, strict=True)
    rows: list[list[object]] = [["threads", *names]]
    for clients in concurrency:
        session.concurrency = clients
        session.run()
        if tell is not None:
            tell(f"{clients} clients: {session.problem or f'{session.requests_per_second} req/sec'}")
        rows.append([clients, *(getattr(session, attribute) for attribute in attributes)])
    if len(rows) > 2:
        rows.append(averages(rows[1:]))
    return rows


def size_report(
    path: str | Callable[[int], str | Target] = "/sizer",
    sizes: Sequence[int] = SIZES,
    concurrency: int = SIZE_CLIENTS,
    *,
    session: ABSession | None = None,
    tell: Callable[[str], object] | None = None,
) -> list[list[object]]:
    """Run a session for each number of bytes: rows for :func:`print_report`, the first of which is the header.

    ``path`` is called with the number, or is what :func:`with_size` takes. A body of another length is reported, and
    its row has the length that arrived.
    """
    session = session or ABSession()
    session.concurrency = concurrency
    attributes, names, _ = zip(*session.parse_patterns, strict=True)
    rows: list[list[object]] = [["bytes", *names]]
    for size in sizes:
        session.path = path(size) if callable(path) else with_size(path, size)
        session.run()
        length = session.document_length
        if tell is not None:
            wrong = "" if length in (size, None) else f"; the body has {length} bytes: does the page heed its size?"
            tell(f"{size} bytes: {session.problem or f'{session.requests_per_second} req/sec'}{wrong}")
        rows.append([size if length is None else length, *(getattr(session, each) for each in attributes)])
    return rows


def with_size(path: str, size: int) -> str:
    """Insert the size for ``{size}``, or append it as query parameter ``size``: ``/sizer?size=10``."""
    if "{size}" in path:
        return path.replace("{size}", str(size))
    return f"{path}{'&' if '?' in path else '?'}size={size}"


def thread_heading(session: ABSession, server_threads: int | None = None) -> str:
    """Return ``Client Thread Report (1000 requests, 14 byte response body, 10 server threads):``, without unknown
    values."""
    length = session.document_length
    words = [f"{session.requests} requests", f"{length} byte response body" if length is not None else ""]
    return _heading("Client Thread Report", words, server_threads)


def size_heading(session: ABSession, server_threads: int | None = None) -> str:
    """Return ``Size Report (1000 requests, 50 client threads, 10 server threads):``."""
    words = [f"{session.requests} requests", f"{session.concurrency} client threads"]
    return _heading("Size Report", words, server_threads)


def _heading(title: str, words: Sequence[str], server_threads: int | None) -> str:
    all_words = [*words, f"{server_threads} server threads" if server_threads else ""]
    return f"{title} ({', '.join(filter(None, all_words))}):"


def averages(rows: Sequence[Sequence[object]]) -> list[object]:
    """Return the averages of the columns over the rows that have a value, with as many digits as in 2006."""
    averages: list[object] = ["Average"]
    for column, values in enumerate(zip(*rows, strict=True)):
        if column:
            numbers = [float(str(value)) for value in values if value is not None]
            mean = sum(numbers) / len(numbers) if numbers else None
            averages.append(None if mean is None else f"{mean:.1f}" if column < 3 else f"{mean:.3f}")
    return averages


def print_report(rows: Sequence[Sequence[object]]) -> None:
    """Print :func:`report_text` to standard output."""
    print(report_text(rows), flush=True)  # noqa: T201 - that is what it is for


def report_text(rows: Sequence[Sequence[object]]) -> str:
    """Return the table as text: cells are right-aligned, and ``|`` follows each."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        " | ".join(str(value).rjust(width) for value, width in zip(row, widths, strict=True)) + " |" for row in rows
    )
