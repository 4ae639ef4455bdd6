"""The results of a profile. Times are nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch import _native
from kirsch.profile import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.profile.stats import Stats
    from kirsch_bench.results import Result

    Times = tuple[list[int], int, int]
    """Of one request: nanoseconds in each of ``kirsch._native.STAGES``; processor time in the application; how often
    the clock was read."""

_SERVERS = ("read", "parse", "environ", "write", "other")
"""Stages in which the server works. In ``queue`` a request waits for the application's threads, in ``peer`` for its
client."""


@dataclass
class Answer:
    """The response to a request: a status, or the reason why there is none."""

    status: int = 0
    length: int = 0
    location: str = ""
    trouble: str = ""
    """Why there is none; empty if there is."""


@dataclass
class Profile:
    """All measurements of one request."""

    application: str
    method: str
    path: str
    driver: str
    threads: int
    threshold: int
    sort: str
    rate: float
    environment: dict[str, Any]
    answer: Answer = field(default_factory=Answer)
    times: list[Times] = field(default_factory=list)
    spent: list[dict[str, int]] = field(default_factory=list)
    """Of each request, nanoseconds in the stages that the application told of; empty if it told of none."""
    result: Result | None = None
    worked: float | None = None
    """Processor time of the whole process for a request, where it can be told apart."""
    followed: Answer | None = None
    followed_times: Times | None = None
    followed_started: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)
    stats: Stats | None = None
    calls_trouble: str = ""
    raised: str = ""
    reports_repeated: int = 0

    @property
    def went_well(self) -> bool:
        """Return whether each request was answered without an error and with the declared length."""
        return (
            200 <= self.answer.status < 400
            and not self.calls_trouble
            and not self.other_answers
            and (self.result is None or self.result.went_well)
        )

    @property
    def other_answers(self) -> dict[str, int]:
        """Return the numbers of responses with another status than the first one, by status."""
        statuses = {} if self.result is None else self.result.statuses
        return {status: count for status, count in statuses.items() if status != str(self.answer.status)}

    @property
    def stages(self) -> dict[str, Stage]:
        """Return each stage, and ``total`` without the client's time."""
        if not self.times:
            return {}
        spent = {name: [times[0][index] for times in self.times] for index, name in enumerate(_native.STAGES)}
        whole = [sum(times[0]) for times in self.times]
        mean = sum(whole) / len(whole)
        found = {name: Stage.of(values, mean) for name, values in spent.items()}
        found["total"] = Stage.of(whole, mean)
        return found

    @property
    def application_stages(self) -> dict[str, Stage]:
        """Return the parts of the stage ``app``, if the application reports them. ``rest`` is the time in none of
        them, such as middleware and the clock itself; only its mean is known, as the difference to ``app``."""
        if not self.spent or not self.times:
            return {}
        whole = self.stages["total"].mean
        names = dict.fromkeys(name for each in self.spent for name in each)
        found = {name: Stage.of([each.get(name, 0) for each in self.spent], whole) for name in names}
        rest = max(0.0, self.stages["app"].mean - sum(each.mean for each in found.values()))
        found["rest"] = Stage(rest, 0, 0, rest / whole if whole else 0.0)
        return found

    @property
    def worked_in_application(self) -> float:
        """Return the mean CPU time of the application for a request."""
        return sum(times[1] for times in self.times) / len(self.times)

    @property
    def server(self) -> float:
        """Return the server's part of the time for a request: its CPU time, or the time of its stages if the CPU
        time cannot be separated."""
        if self.worked is not None:
            return max(0.0, self.worked - self.worked_in_application)
        stages = self.stages
        return sum(stages[name].mean for name in _SERVERS)

    @property
    def server_share(self) -> float:
        """Return the server's share of the time for a request, which includes the application's time."""
        took = self.server + self.stages["app"].mean
        return self.server / took if took else 0.0

    @property
    def server_share_at_rate(self) -> float:
        """Return the share of a worker's time that the server uses at ``rate`` requests per second."""
        return self.server * self.rate / 1e9

    def marshalled(self) -> bytes:
        """Return the calls as a ``.prof`` file."""
        assert self.stats is not None
        about = {
            "method": self.method,
            "path": self.path.partition("?")[0],
            "started": self.followed_started,
            "nanoseconds": sum(call["total"] for call in self.calls),
            "raised": self.raised,
        }
        return stats.marshalled(self.stats, about, self.calls)


@dataclass(frozen=True)
class Stage:
    """The times of one stage of the work on requests, over all requests."""

    mean: float
    p50: int
    p99: int
    share: float

    @classmethod
    def of(cls, values: Sequence[int], whole: float) -> Stage:
        """Return the statistics of ``values``; ``whole`` is the mean of the whole time."""
        ordered = sorted(values)
        mean = sum(values) / len(values)
        return cls(mean, _quantile(ordered, 0.5), _quantile(ordered, 0.99), mean / whole if whole else 0.0)


def _quantile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that the share of values does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
