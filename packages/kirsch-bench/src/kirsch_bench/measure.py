"""Running one load in processes, and merging their results."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from kirsch_bench import target as targets
from kirsch_bench.errors import Failure, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.load_processes import Outcome
    from kirsch_bench.plan import Load
    from kirsch_bench.progress import Display
    from kirsch_bench.results import Result
    from kirsch_bench.thresholds import Threshold


def measure(load: Load, display: Display, prefix: str = "", thresholds: Sequence[Threshold] = ()) -> Result:
    """Run a load in its processes. ``prefix`` is the prefix of the progress line. An aborting threshold ends the run.
    With ``load.hosts`` the processes run there in turn. Raises UnreachableError if the server did not respond, Failure
    if no process could measure.
    """
    from kirsch_bench import load_processes, server_cost
    from kirsch_bench import thresholds as judging
    from kirsch_bench.chart import Chart
    from kirsch_bench.processes import Watch
    from kirsch_bench.progress import load_line
    from kirsch_bench.results import merge

    planned = load.seconds_planned
    there = {}
    if load.hosts:
        there = {"url": load.target.url, "own": load.target.own, "silence": load_processes.SILENCE_SECONDS}
    chart = Chart(planned, None if load.curve is None else load.curve.mean)
    judge = judging.ThresholdWatch(thresholds)
    server = server_cost.find(load.target)
    with Watch(server) if server is not None else contextlib.nullcontext() as watch:

        def show(words: Sequence[dict[str, Any]]) -> None:
            if watch is not None and load.duration is not None:
                start = time.time() - max(word["elapsed"] for word in words)
                watch.aim(start + load.warmup_seconds, start + load.warmup_seconds + load.duration)
            display.show(load_line(words, planned, prefix), chart)

        def hear(process: int, word: dict[str, Any]) -> bool:
            chart.hear(process, word)
            return judge.hear(process, word)

        ran = load_processes.run(
            [{"kind": "plan", "plan": plan, **there} for plan in load.plans()],
            seconds_max=load.seconds_max,
            progress=show,
            hear=hear,
            hosts=load.hosts,
        )
    display.clear()
    parts = [_by_our_clock(outcome) for outcome in ran.outcomes if outcome.result is not None]
    troubles = [
        f"{outcome.host or 'a process of the load'}: {outcome.trouble}" for outcome in ran.outcomes if outcome.trouble
    ]
    if not parts:
        if ran.interrupted:
            raise KeyboardInterrupt
        raise Failure(troubles[0])
    result = merge(parts, load, troubles=troubles)
    # A stopped process reports that it was interrupted.
    result.interrupted = ran.interrupted or (result.interrupted and not ran.stopped)
    result.thresholds = judging.judge(thresholds, result, judge.aborted)
    if watch is not None and result.answered:
        window = result.started + result.window_from
        used = watch.between(window, window + result.seconds)
        result.server = {
            "user": used.user,
            "system": used.system,
            "per_request": (used.user + used.system) / result.answered,
            "processes": len(watch.pids),
        }
    if result.unreachable and not result.answered and not result.discarded["requests"]:
        example = result.errors[0]["example"] if result.errors else "no connection could be opened"
        raise UnreachableError(f"{targets.where(load.target)} does not answer: {example}")
    return result


def _by_our_clock(outcome: Outcome) -> dict[str, Any]:
    """Return the result of an outcome with its host, and with its start time converted to our clock."""
    result = outcome.result or {}
    if outcome.clock is None:
        return result
    return {
        **result,
        "started": result["started"] - outcome.clock.time,
        "host": {
            "name": outcome.host,
            "clock_ahead": outcome.clock.time,
            "clock_uncertainty": outcome.clock.uncertainty,
        },
    }
