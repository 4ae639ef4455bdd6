"""The records of a survey, which are written line by line.

The file begins with a ``Header``; each round adds a ``Round`` as soon as it is over: nothing is lost when a survey is
interrupted. Sizes in bytes, times in seconds, rates in requests a second.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

CEILING = 0.8
"""The share of the null server's rate from which on the generator may be what is measured (seed S3.6)."""


@dataclass(frozen=True)
class Subject:
    """A subject of the survey: a server under an interpreter. ``null`` is the loop that shows the generator's limit."""

    server: str
    """Its name in the survey's file: unique."""
    python: str
    """``CPython 3.13.0``, ``PyPy 7.3.11 (3.9)``; empty for what is no Python."""
    adapter: str
    versions: dict[str, str] = field(default_factory=dict)
    """Of the packages that make it up."""
    options: str = ""
    """The options of its start that a reader must know: threads, workers, logging."""
    command: str = ""
    threads: int = 0
    """The threads that the server was started with; 0 if their number cannot be chosen."""
    same_as: str = ""
    """Of an A/A survey: the server in the file that this is one of several equals of; every difference is an error."""
    absent: str = ""
    """Why it could not be measured at all; such a subject has no rounds."""


@dataclass(frozen=True)
class Scenario:
    """A request that all servers get; ``title`` is for people, ``load`` are the flags of ``kirsch bench`` that ask it.

    ``series`` puts scenarios together that differ in one number, ``x``: fields of a request for "headers", KiB of a
    body for "size", bytes of it for "bytes", connections for "connections". Of a series a slope or a line is shown.
    """

    name: str
    title: str
    load: str
    application: str
    series: str = ""
    x: float = 0.0
    path: str = "/"
    """The path of the request, with its query."""

    @property
    def number(self) -> str:
        """``x`` as the file has it: ``1000000``, ``0.5``."""
        return f"{self.x:.0f}" if self.x == int(self.x) else f"{self.x:g}"


@dataclass(frozen=True)
class Header:
    """The conditions that all rounds have in common."""

    title: str
    about: str
    seed: int
    rounds: int
    seconds: float
    warmup: float
    subjects: tuple[Subject, ...]
    scenarios: tuple[Scenario, ...]
    environment: dict[str, Any]
    """``kirsch_bench.environment.capture()`` and ``processors``: which are the servers', which the generator's."""
    historical: dict[str, Any] | None = None
    """The tables of an earlier measurement that are printed beside these results; see historical.py."""


@dataclass(frozen=True)
class Round:
    """One fresh process of a server under one scenario, once."""

    server: str
    python: str
    scenario: str
    round: int
    started: float
    """Seconds since the epoch."""
    failure: str = ""
    """Why there are no figures: it did not start, it died, nothing was answered as expected."""
    rate: float = 0.0
    requests: int = 0
    failed: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """Of the generator's classes: reset, timeout, malformed, status..."""
    latency: dict[str, float] = field(default_factory=dict)
    """``mean sd max`` and percentiles by name: ``50 75 90 95 99 99.9``."""
    histogram: str = ""
    """HdrHistogram V2, compressed, base64."""
    user: float = 0.0
    system: float = 0.0
    """Processor seconds of all of the server's processes during the measured requests."""
    front: float = 0.0
    """Of them, those of the web server in front of the application; 0: there is none."""
    processor: float = 0.0
    """The share of one processor that it used: 1.2 is a processor and a fifth."""
    rss: int = 0
    pss: int = 0
    """Of all its processes, at the end of the load."""
    threads: int = 0
    processes: int = 0
    switches: dict[str, int] = field(default_factory=dict)
    """``voluntary`` and ``involuntary``, during the measured requests."""
    startup: float = 0.0
    """From the start of its process to the first answer."""
    first_request: float = 0.0
    """How long that first answer took, from the request that got it."""
    idle: float | None = None
    """The share of a processor used without requests; None: not measured in this round."""
    response: dict[str, Any] = field(default_factory=dict)
    """A sample: ``status``, ``head`` and ``body`` in bytes, ``fields`` as pairs."""
    generator: dict[str, Any] = field(default_factory=dict)
    """``used`` (share of its processors), ``bound`` and ``troubles`` as ``kirsch bench`` tells them; ``ceiling``: the
    null server's rate in the same round and scenario, which also makes what passes 80 % of it ``bound``."""
    machine: dict[str, float] = field(default_factory=dict)
    """``busy`` and ``steal`` meanwhile, as shares of all processors' time."""

    @property
    def processor_per_request(self) -> float:
        """The server's CPU seconds per request."""
        return (self.user + self.system) / self.requests if self.requests else 0.0

    @property
    def front_per_request(self) -> float:
        """The web server's CPU seconds per request."""
        return self.front / self.requests if self.requests else 0.0


def as_json(record: Header | Round) -> dict[str, Any]:
    """Return a record as plain data, with its kind."""
    return {"kind": type(record).__name__.lower(), **dataclasses.asdict(record)}


def from_json(data: dict[str, Any]) -> Header | Round:
    """The record again. Raises ValueError, KeyError or TypeError where it is none; keys of a later version are left."""
    values = {key: value for key, value in data.items() if key != "kind"}
    if data["kind"] == "round":
        return Round(**_known(Round, values))
    if data["kind"] != "header":
        raise ValueError(f"a record of kind {data['kind']!r}")
    values["subjects"] = tuple(Subject(**_known(Subject, each)) for each in values["subjects"])
    values["scenarios"] = tuple(Scenario(**_known(Scenario, each)) for each in values["scenarios"])
    return Header(**_known(Header, values))


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(kind)}
    return {key: value for key, value in values.items() if key in names}
