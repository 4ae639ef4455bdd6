"""What a profile has found: as text, as JSON, as a page."""

from __future__ import annotations

import http
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from kirsch import _native
from kirsch.bench.show import plural
from kirsch.profile import stats, tree
from kirsch.profile.asking import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kirsch.bench.results import Result
    from kirsch.profile.serving import Times
    from kirsch.profile.stats import Stats

_SERVERS = ("read", "parse", "environ", "write", "other")
"""Stages in which the server works. In ``queue`` a request waits for the application's threads, in ``peer`` for its
client."""

_BEFORE, _AFTER = ("read", "parse", "environ", "queue"), ("write", "other", "peer")


@dataclass
class Report:
    """All of it. Times in nanoseconds."""

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
        """Whether it was answered, each time, with neither an error nor less than announced."""
        return (
            200 <= self.answer.status < 400
            and not self.calls_trouble
            and not self.other_answers
            and (self.result is None or self.result.went_well)
        )

    @property
    def other_answers(self) -> dict[str, int]:
        """How many were answered otherwise than the first, by status."""
        statuses = {} if self.result is None else self.result.statuses
        return {status: count for status, count in statuses.items() if status != str(self.answer.status)}

    @property
    def stages(self) -> dict[str, Stage]:
        """Each stage, and ``total`` without the client's time."""
        if not self.times:
            return {}
        spent = {name: [times[0][index] for times in self.times] for index, name in enumerate(_native.STAGES)}
        whole = [sum(times[0]) for times in self.times]
        mean = sum(whole) / len(whole)
        found = {name: Stage.of(values, mean) for name, values in spent.items()}
        found["total"] = Stage.of(whole, mean)
        return found

    @property
    def worked_in_application(self) -> float:
        """Processor time of the application for a request."""
        return sum(times[1] for times in self.times) / len(self.times)

    @property
    def server(self) -> float:
        """What the server takes of a worker's time for a request: its processor time; or, where that cannot be told
        apart, the time of its stages."""
        if self.worked is not None:
            return max(0.0, self.worked - self.worked_in_application)
        stages = self.stages
        return sum(stages[name].mean for name in _SERVERS)

    @property
    def server_share(self) -> float:
        """Of the time in which a request is served, the application's included."""
        took = self.server + self.stages["app"].mean
        return self.server / took if took else 0.0

    @property
    def server_share_at_rate(self) -> float:
        """Of a worker's time, at so many requests a second."""
        return self.server * self.rate / 1e9

    def marshalled(self) -> bytes:
        """The calls as a ``.prof`` file."""
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
    """One stage over all requests."""

    mean: float
    p50: int
    p99: int
    share: float

    @classmethod
    def of(cls, values: Sequence[int], whole: float) -> Stage:
        """Of the values and the mean of the whole."""
        ordered = sorted(values)
        mean = sum(values) / len(values)
        return cls(mean, _quantile(ordered, 0.5), _quantile(ordered, 0.99), mean / whole if whole else 0.0)


def _quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that so many do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def text(report: Report) -> str:
    """For a terminal."""
    parts = ["\n".join(_answered(report))]
    if report.times:
        parts += ["\n".join(_stages(report)), "\n".join(_shares(report))]
    parts.append("\n".join(_calls(report)))
    return "\n\n".join(parts)


def _answered(report: Report) -> Iterator[str]:
    threads = f", {plural(report.threads, 'thread')}" if report.driver == "threads" else ""
    served = f"{report.application}, driver {report.driver}{threads}"
    yield f"{report.method} {report.path} of {served}: {_said(report.answer)}"
    if report.raised:
        yield f"The application raised {report.raised}."
    if report.other_answers:
        others = ", ".join(f"{count:,} with {status}" for status, count in report.other_answers.items())
        yield f"Not all were answered like the first: {others}."
    if report.result is not None and report.result.failed:
        example = report.result.errors[0]["example"] if report.result.errors else ""
        yield f"{plural(report.result.failed, 'request')} failed: {example}"
    if report.reports_repeated:
        yield f"{plural(report.reports_repeated, 'report')} like those above were not repeated."


def _said(answer: Answer) -> str:
    if answer.trouble:
        return answer.trouble
    try:
        phrase = f" {http.HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    where = f", to {answer.location}, which was not followed" if answer.location else ""
    return f"{answer.status}{phrase}, {plural(answer.length, 'byte')}{where}"


def _stages(report: Report) -> Iterator[str]:
    yield f"Stages of {plural(len(report.times), 'request')}, microseconds, without a tracer"
    yield f"  {'':8} {'mean':>10} {'p50':>10} {'p99':>10} {'share':>7}"
    for name, stage in report.stages.items():
        if name == "peer" and not stage.mean:
            continue
        figures = f"{stage.mean / 1e3:10,.2f} {stage.p50 / 1e3:10,.2f} {stage.p99 / 1e3:10,.2f}"
        yield f"  {name:8} {figures} {stage.share:7.1%}"


def _shares(report: Report) -> Iterator[str]:
    stages = report.stages
    server, app = report.server / 1e3, stages["app"].mean / 1e3
    if report.worked is not None:
        yield (
            f"Processor time of a request: {report.worked / 1e3:,.1f} us, of which the application "
            f"{report.worked_in_application / 1e3:,.1f} and the server {server:,.1f}, its waiting for sockets included."
        )
    else:
        yield f"The server takes {server:,.1f} us of a request: the time of its stages, for its client has its thread."
    yield f"Of a request's time the server is {report.server_share:.1%}; the rest is the application ({app:,.1f} us)."
    share, each = report.server_share_at_rate, 1e6 / report.rate
    yield (
        f"At {report.rate:,g} requests a second for each worker the server is {share:.1%} of a worker's time "
        f"({server:,.1f} of {each:,.0f} us for each request)."
    )


def _calls(report: Report) -> Iterator[str]:
    if report.calls_trouble:
        yield f"No calls: {report.calls_trouble}."
        return
    total = sum(call["total"] for call in report.calls)
    which = f"that took {_duration(report.threshold)} or longer" if report.threshold else "all of them"
    yield f"Calls of one more request, under the tracer, {which}"
    yield f"{tree.HEAD[0]}"
    if report.followed_times is None:
        yield from tree.lines(report.calls, report.threshold, report.sort)
    else:
        spent = dict(zip(_native.STAGES, report.followed_times[0], strict=True))
        whole = sum(spent[name] for name in (*_BEFORE, *_AFTER)) + total
        yield tree.line(whole, None, None, 0, f"{report.method} {report.path}")
        for name in _BEFORE:
            yield tree.line(spent[name], None, None, 1, f"kirsch: {name}")
        yield tree.line(total, None, None, 1, "application")
        yield from tree.lines(report.calls, report.threshold, report.sort, 2)
        for name in _AFTER:
            if spent[name] or name != "peer":
                yield tree.line(spent[name], None, None, 1, f"kirsch: {name}")
    longest = tree.longest(report.calls)
    if longest is None:
        yield "The application is no function of Python's, and called none."
    elif longest["total"] < report.threshold:
        yield (
            f"No call took so long; the longest, {tree.named(longest)}, took {_duration(longest['total'])}. "
            "--threshold 0 shows all."
        )


def _duration(nanoseconds: int) -> str:
    if nanoseconds and nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:g} us"
    return f"{nanoseconds / 1e6:g} ms" if nanoseconds else "0"


def document(report: Report) -> dict[str, Any]:
    """What ``--json`` writes; docs/profiling.md describes it. Times in microseconds, but in ``calls``."""
    stages = {
        name: {"mean": each.mean / 1e3, "p50": each.p50 / 1e3, "p99": each.p99 / 1e3, "share": each.share}
        for name, each in report.stages.items()
    }
    found: dict[str, Any] = {
        "schema": "kirsch-profile-1",
        "application": report.application,
        "request": {"method": report.method, "path": report.path},
        "driver": report.driver,
        "threads": report.threads,
        "answer": {
            "status": report.answer.status or None,
            "bytes": report.answer.length,
            "location": report.answer.location or None,
            "trouble": report.answer.trouble or None,
        },
        "raised": report.raised or None,
        "environment": report.environment,
        "requests": len(report.times),
        "stages": stages,
    }
    if report.times:
        found["clock_readings"] = sum(times[2] for times in report.times) / len(report.times)
        found["processor"] = {
            "all": None if report.worked is None else report.worked / 1e3,
            "application": report.worked_in_application / 1e3,
        }
        found["server"] = {
            "time": report.server / 1e3,
            "share": report.server_share,
            "rate": report.rate,
            "share_at_rate": report.server_share_at_rate,
        }
        found["statuses"] = {} if report.result is None else report.result.statuses
    found["calls"] = report.calls
    return found


def page(report: Report) -> str:
    """What ``--html`` writes."""
    from kirsch.bench import page as pages

    what, *remarks = _answered(report)
    parts = [f"<p class='doubt'>{escape(remark)}</p>" for remark in remarks]
    if report.times:
        rows = [["stage", "mean us", "p50", "p99", "share"]]
        rows += [
            [name, *(f"{value / 1e3:,.2f}" for value in (each.mean, each.p50, each.p99)), f"{each.share:.1%}"]
            for name, each in report.stages.items()
        ]
        parts += [f"<h2>Stages of {plural(len(report.times), 'request')}</h2>", pages.table(rows)]
        parts += [f"<p>{escape(line)}</p>" for line in _shares(report)]
    title, *lines = _calls(report)
    parts += [f"<h2>{escape(title)}</h2>", f"<pre>{escape(chr(10).join(lines))}</pre>"]
    return pages.document_page(f"{report.method} {report.path}", what, parts, document(report))
