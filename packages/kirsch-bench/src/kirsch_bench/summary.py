"""A result as text for a terminal, and warnings about it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from kirsch_bench.results import PERCENTILES
from kirsch_bench.show import plural, show_bytes, show_columns, show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.plan import Load
    from kirsch_bench.results import Interval, Result, Times

_RESTS_ON_MIN = 10
"""Times beyond a percentile, below which it is a few requests' luck and no property of the server."""

_DRIFT = 0.02
_WINDOWS = 5
"""The rate is steady if over five windows it changes by less than this, or by less than chance explains."""

_STALL = 10.0
"""How many times the median a stall lasts beyond which a result of the closed model gets a warning."""


def text(result: Result) -> str:
    """Return the whole summary, without a newline at its end."""
    parts = [_title(result), _counts(result)]
    if result.latency.count:
        parts.append(_latencies(result))
    blocks = (
        _left_out(result),
        _table("Stages", stage_rows(result), left=(0, 1)),
        _table("Hosts", host_rows(result)),
        _thresholds(result),
        _errors(result),
        _list("Warnings", warnings(result)),
    )
    parts += [block for block in blocks if block]
    return "\n\n".join(parts)


def describe(load: Load) -> str:
    """Return the load, in one line."""
    words = []
    if load.curve is None:
        words.append(f"closed model, {plural(load.connections, 'connection')}")
        if load.think:
            words.append(f"{load.thinking} think time of {show_seconds(load.think)}")
    else:
        words.append(f"open model, {load.curve.text()}")
        if load.replay is None:
            words.append(f"{load.arrivals} arrivals")
    if load.pipeline > 1:
        words.append(f"{load.pipeline} {'streams' if load.version == '2' else 'pipelined'}")
    if load.keep_alive is False:
        words.append("no keep-alive")
    elif load.keep_alive is not True:
        words.append(f"{plural(load.keep_alive, 'request')} on a connection")
    if load.version != "1.1":
        words.append(f"HTTP/{load.version}")
    if load.target.tls:
        words.append("TLS" if load.roots else "TLS without a check of the certificate")
    if load.processes_used > 1:
        words.append(f"{load.processes_used} processes")
    if load.hosts:
        words.append(f"on {', '.join(host.name for host in load.hosts)}")
    return ", ".join(words)


def warnings(result: Result) -> list[str]:
    """Return the reasons to doubt the figures, one sentence each."""
    found = [
        f"The generator {trouble}: this may be its limit and not the server's." for trouble in result.generator_troubles
    ]
    if result.dropped:
        found.append(
            f"{plural(result.dropped, 'request')} found no connection and went unsent; latency is of the others."
        )
    requested = result.rate_asked
    if result.load.hosts and re.fullmatch(r"localhost|127\..*|::1", result.load.target.host):
        found.append("The target is a loopback address, so each host measured a server of its own.")
    # If a host was lost, the rate of the others says nothing about the server.
    if requested is not None and result.rate < requested * 0.95 and not (result.interrupted or result.troubles):
        found.append(
            f"The server answered {result.rate:,.0f} a second of the {requested:,.0f} asked for, so the queue grew for "
            "as long as the run lasted, and its latencies with it."
        )
    steady = [] if result.load.stages or result.load.replay else [each for each in result.series if not each.warmup]
    drift = rate_drift(steady)
    if drift is not None:
        found.append(
            f"The rate went {'up' if drift > 0 else 'down'} by {abs(drift):.0%} during the run: it was not warm, or is "
            "not steady."
        )
    times = result.latency
    if result.rate_asked is None and times.count and times.max > _STALL * max(times.percentile(50), 1e-3):
        found.append(
            f"One answer took {show_seconds(times.max)}. In the closed model no client sends meanwhile, so the "
            "percentiles hardly show it; --rate sends as clients do that do not wait for each other."
        )
    thin = [percent for percent in PERCENTILES if times.count and times.beyond(percent) < _RESTS_ON_MIN]
    if thin and thin[0] <= 99:
        found.append(
            f"Of {plural(times.count, 'time')} p{thin[0]:g} and beyond rest on fewer than {_RESTS_ON_MIN} each."
        )
    return found


def rate_drift(series: Sequence[Interval]) -> float | None:
    """Return the change of the rate from the first to the last of five windows, as a share of its mean; None if it
    is steady or there are too few data. A line is fitted; a change within two standard errors counts as chance."""
    # The last interval may be incomplete.
    whole = [each.rate for each in series if each.seconds >= 0.9 * series[0].seconds]
    size = len(whole) // _WINDOWS
    if size < 2:
        return None
    windows = [math.fsum(whole[index * size : (index + 1) * size]) / size for index in range(_WINDOWS)]
    mean = math.fsum(windows) / _WINDOWS
    if not mean:
        return None
    centre = (_WINDOWS - 1) / 2
    spread = sum((index - centre) ** 2 for index in range(_WINDOWS))
    slope = math.fsum((index - centre) * rate for index, rate in enumerate(windows)) / spread
    residual = math.fsum((rate - mean - slope * (index - centre)) ** 2 for index, rate in enumerate(windows))
    error = math.sqrt(residual / (_WINDOWS - 2) / spread)
    drift = slope * (_WINDOWS - 1) / mean
    # 3.18: Student's t for 95 % with three degrees of freedom.
    return drift if abs(drift) > _DRIFT and abs(slope) > 3.18 * error else None


def _title(result: Result) -> str:
    load = result.load
    warm = ""
    if load.warmup_requests:
        warm = f" after {plural(load.warmup_requests, 'request')} to warm up"
    elif load.warmup_seconds:
        warm = f" after {load.warmup_seconds:g} s to warm up"
    ended = ", interrupted" if result.interrupted else ", as the server was gone" if result.unreachable else ""
    if any(judged.aborted_at is not None for judged in result.thresholds):
        ended += ", ended by a threshold"
    return f"{load.target.url}\n{describe(load)}\n{result.seconds:.2f} s measured{warm}{ended}"


def _counts(result: Result) -> str:
    seconds = result.seconds or math.inf
    statuses = ", ".join(f"{status}: {count:,}" for status, count in result.statuses.items())
    rows = [
        ("rate", f"{result.rate:,.1f} a second"),
        ("requests", f"{result.requests:,}" + (f" (by status: {statuses})" if len(result.statuses) > 1 else "")),
        ("failed", f"{result.failed:,}" + (f" ({result.error_share:.3%})" if result.failed else "")),
    ]
    if result.rate_asked is not None:
        rows.append(("dropped", f"{result.dropped:,}"))
        rows.append(("sent late", f"{result.late:,}, of which {result.late_by_generator:,} by the generator's fault"))
    if result.unfinished:
        rows.append(("unfinished", f"{result.unfinished:,}"))
    if result.discarded["requests"]:
        bad = result.discarded["failed"]
        rows.append(
            ("warm-up", f"{result.discarded['requests']:,} discarded" + (f", of which {bad:,} failed" if bad else ""))
        )
    traffic = result.bytes
    if result.answered:
        bodies, heads = traffic["bodies"] / result.answered, traffic["heads"] / result.answered
        rows.append(("response", f"{bodies:,.0f} bytes, and {heads:,.0f} of head"))
    rows += [
        ("traffic", f"{show_bytes(traffic['received'] / seconds)}/s in, {show_bytes(traffic['sent'] / seconds)}/s out"),
        ("connections", f"{result.connections['opened']:,} opened"),
        ("generator", _generator(result)),
    ]
    if result.server is not None:
        used = (result.server["user"] + result.server["system"]) / seconds
        each = show_seconds(result.server["per_request"])
        rows.append(("server", f"{each} of processor time a request, {used:.0%} of a processor"))
    return "\n".join(f"  {name:<12} {value}" for name, value in rows)


def _generator(result: Result) -> str:
    used = max((each["used"] for each in result.processors), default=0.0)
    each = "" if len(result.processors) < 2 else " at most, of each of its processes"
    return f"{used:.0%} of a processor{each}"


def _latencies(result: Result) -> str:
    columns = [f"p{percent:g}" for percent in PERCENTILES]
    rows = [["", *columns, "max", "mean", "sd"]]
    shown: list[tuple[str, Times]] = [("latency", result.latency)]
    if result.rate_asked is not None:
        shown.append(("service", result.service))
    shown += [("first byte", result.first_byte), ("connect", result.connect), ("failures", result.failed_latency)]
    rows += [[name, *_time_cells(times)] for name, times in shown if times.count]
    lines = [show_columns(rows, left=(0,), indent="  ")]
    if result.rate_asked is not None:
        lines.append("  latency counts from when a request was to be sent, service from when it was")
    return "\n".join(lines)


def _time_cells(times: Times) -> list[str]:
    cells = [show_seconds(times.percentile(percent)) if times.beyond(percent) >= 1 else "-" for percent in PERCENTILES]
    return [*cells, show_seconds(times.max), show_seconds(times.mean), show_seconds(times.sd)]


def _left_out(result: Result) -> str:
    replay = result.load.replay
    return _list("Left out", [f"{count:,} {reason}" for reason, count in replay.left_out] if replay else [])


def stage_rows(result: Result) -> list[list[str]]:
    """Return a table of the stages of the rate with a header; only the header if there are none."""
    rows = [["", "rate", "asked/s", "answered/s", "failed", "dropped", "late", "p50", "p99", "max"]]
    for stage in result.stages():
        times = [stage.percentile(percent) for percent in (50, 99, 100)]
        rows.append(
            [
                f"{stage.begin:g} to {stage.end:g} s",
                f"{stage.rate_from:,g} to {stage.rate_to:,g}",
                *(f"{rate:,.1f}" for rate in (stage.asked, stage.answered)),
                *(f"{count:,}" for count in (stage.failed, stage.dropped, stage.late)),
                *("-" if each is None else show_seconds(each) for each in times),
            ]
        )
    return rows


def host_rows(result: Result) -> list[list[str]]:
    """Return a table of the hosts with a header; only the header if there are none."""
    rows = [["", "processes", "answered/s", "requests", "failed", "p50", "p99", "max", "began", "clock known to"]]
    first = min((host.started for host in result.hosts), default=0.0)
    for host in result.hosts:
        latency = host.latency
        rows.append(
            [
                host.name,
                f"{host.processes}",
                f"{host.answered:,.1f}",
                f"{host.requests:,}",
                f"{host.failed:,}",
                *(show_seconds(each) for each in (latency.percentile(50), latency.percentile(99), latency.max)),
                f"+{show_seconds(host.started - first)}",
                f"±{show_seconds(host.clock_uncertainty)}",
            ]
        )
    return rows


def _thresholds(result: Result) -> str:
    rows = [
        ["CROSSED" if judged.is_crossed else "ok", judged.threshold.condition.text, judged.text]
        for judged in result.thresholds
    ]
    return f"Thresholds\n{show_columns(rows, left=(0, 1, 2), indent='  ')}" if rows else ""


def _errors(result: Result) -> str:
    lines = []
    for error in result.errors:
        detail = f" ({error['detail']})" if error["detail"] else ""
        lines.append(f"{error['count']:,} × {error['class']}{detail}: {error['example']}")
    if any(error["class"] in ("length", "hash") for error in result.errors):
        lines.append("Where answers may differ from each other, say --varying.")
    return _list("Errors", [*lines, *result.troubles])


def _table(title: str, rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """Return a table of text whose first row is the header; empty if there are no other rows."""
    return f"{title}\n{show_columns(rows, left=left, indent='  ')}" if len(rows) > 1 else ""


def _list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""
