"""The search for the highest rate at which a server meets an objective (``p99<20ms,errors<0.1%``). Latency is measured
in the open model, from the scheduled time of each request. At a rate beyond the server's capacity, the queue and so the
latency grow, and every objective is missed. So the limit can be found by bisection:

1. Double the rate, from a low one on, until the objective is missed.
2. Halve the distance (of logarithms) between the highest rate that held and the lowest that did not, until the two are
   nearer than the precision.
3. Confirm the upper bound: run it again. If it now holds in two of three steps, the search goes on from there.
4. Confirm the result: run the rate found until it has held twice. If it fails twice before, try a lower one, and so on
   downwards in growing steps.

A rate bounds the search from above only when it failed in two of at most three steps. Another program that takes the
processor for a second breaks one step of any rate, and one such step must not decide the result.

A step also fails if the answers fall behind the rate that was asked for or requests are dropped; and it *says nothing*
where the generator itself did not keep up, which ends the search with that as its result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench.conditions import LATENCIES, Condition, Reader
from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_bench.results import Result

_FIGURES = LATENCIES | {"errors"}

_NO_ERRORS = Condition("errors <= 0%", "errors", 0.0, "<=", 0.0)

_MISSING = 0.02
"""Share of the requests that may be missing from the answers of a step, beside those that were under way at its end and
what chance leaves out of Poisson's arrivals."""

_UNDER_WAY = 10

_CONFIRMATIONS_MAX = 8

_VOTES = 2
"""Steps of one rate that have to agree, of ``2 * _VOTES - 1`` at most."""

_REOPENED_MAX = 3
"""How often an upper bound that holds after all may reopen the search: a server that is not steady must end too."""

_STEPS_MAX = 60


@dataclass(frozen=True)
class Objective:
    """An objective: conditions that must all hold. Without a condition about errors, none may occur."""

    promises: tuple[Condition, ...]

    def broken(self, result: Result) -> list[str]:
        """Return the conditions that a result does not meet, a few words each; empty if it meets all."""
        wrong = [
            f"{promise.name} is {promise.show(promise.value(result))}"
            for promise in self.promises
            if not promise.holds(result)
        ]
        if result.dropped:
            wrong.append(f"{result.dropped} dropped")
        if _fell_behind(result):
            wrong.append(f"only {result.rate:,.0f} a second answered")
        return wrong


def _fell_behind(result: Result) -> bool:
    if result.rate_asked is None:
        return False
    expected = result.rate_asked * result.seconds
    chance = 3 * math.sqrt(expected) if result.load.arrivals == "poisson" else 0.0
    return expected - result.rate * result.seconds > _MISSING * expected + _UNDER_WAY + chance


def parse(text: str) -> Objective:
    """Read ``p99<20ms``, or several such terms with commas between. Raises UsageError."""
    reader = Reader(text, "--slo")
    promises = [reader.condition(_FIGURES, ("<", "<="))]
    while reader.take(","):
        promises.append(reader.condition(_FIGURES, ("<", "<=")))
    reader.end("a comma or the end")
    if not any(promise.figure == "errors" for promise in promises):
        promises.append(_NO_ERRORS)
    return Objective(tuple(promises))


@dataclass(frozen=True)
class Step:
    """One tested rate. ``kept`` is None if the generator did not keep up, so that the step is inconclusive."""

    rate: float
    kept: bool | None
    wrong: tuple[str, ...]
    result: Result
    purpose: str
    """``search``; ``repeat``, for a rate that failed once; ``bound``, for the lowest rate that failed; ``confirm``."""

    def as_json(self) -> dict[str, Any]:
        """Return the part of the step that a report keeps."""
        latency = self.result.latency
        return {
            "rate": self.rate,
            "kept": self.kept,
            "wrong": list(self.wrong),
            "purpose": self.purpose,
            "answered_rate": self.result.rate,
            "error_share": self.result.error_share,
            "p50": latency.percentile(50) if latency.count else None,
            "p99": latency.percentile(99) if latency.count else None,
            "max": latency.max if latency.count else None,
        }


@dataclass(frozen=True)
class Found:
    """The result of the search. ``rate`` is the highest rate that held twice, or None; ``above`` is the lowest that
    failed twice, or None if the generator or the limit ended the search, as ``why`` explains."""

    rate: float | None
    above: float | None
    precision: float
    steps: tuple[Step, ...]
    why: str = ""
    interrupted: bool = False

    @property
    def best(self) -> Step | None:
        """The last step at the rate that was found."""
        return next((step for step in reversed(self.steps) if step.rate == self.rate and step.kept), None)

    def as_json(self, objective: str) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "objective": objective,
            "rate": self.rate,
            "above": self.above,
            "precision": self.precision,
            "why": self.why,
            "confirmed": sum(step.kept is True and step.rate == self.rate for step in self.steps) >= _VOTES,
            "steps": [step.as_json() for step in self.steps],
        }


def line(step: Step) -> str:
    """A step in a line."""
    latency = step.result.latency
    shown = (
        ", ".join(f"p{percent:g} {show_seconds(latency.percentile(percent))}" for percent in (50, 99, 99.9))
        if latency.count
        else "nothing answered"
    )
    verdict = {True: "holds", False: "broken", None: "says nothing, as the generator was at its limit"}[step.kept]
    wrong = f": {', '.join(step.wrong)}" if step.wrong else ""
    again = "" if step.purpose == "search" else ", once more"
    return f"{step.rate:>12,.1f} a second{again}: {shown}; {verdict}{wrong}"


def verdict(found: Found, objective: str) -> str:
    """Return the result of the search, in a sentence or two."""
    if found.rate is None:
        return (
            f"{objective} does not hold"
            + (f" at {found.above:,.1f} a second" if found.above else "")
            + f": {found.why}"
        )
    text = f"{objective} holds at {found.rate:,.1f} requests a second"
    if found.above is not None:
        text += f", and at {found.above:,.1f}, {found.above / found.rate - 1:.1%} more, it does not"
    return text + (f"; {found.why}" if found.why else "")


def search(
    measure: Callable[[float], Result],
    objective: Objective,
    *,
    start: float,
    highest: float,
    precision: float,
    tell: Callable[[Step], object],
) -> Found:
    """Find the highest rate in ``start`` to ``highest`` at which the objective holds.

    ``measure`` runs one rate; ``tell`` is called with each step. ``precision`` is a ratio: with 0.05 the rate found
    and the one that failed are at most 5 % apart.
    """
    ongoing = _Search(measure, objective, precision, tell)
    try:
        low, high, why = ongoing.bisect(start, highest)
        for _ in range(_REOPENED_MAX):
            if low is None or high is None or not ongoing.bound_holds(high):
                break
            low, high, why = ongoing.bisect(high, highest)
        return ongoing.confirm(low, high, why)
    except _Ended as ended:
        return ended.found


class _Ended(Exception):
    """Raised if the search cannot go on. It has the result so far."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


class _Search:
    """The steps so far, and their conclusions for each rate."""

    def __init__(
        self,
        measure: Callable[[float], Result],
        objective: Objective,
        precision: float,
        tell: Callable[[Step], object],
    ) -> None:
        self._measure = measure
        self._objective = objective
        self._precision = precision
        self._tell = tell
        self._steps: list[Step] = []

    def bisect(self, start: float, highest: float) -> tuple[float | None, float | None, str]:
        """Return the highest rate that held at least once, the lowest that failed twice, and the reason if there is
        none."""
        low: float | None = None
        high: float | None = None
        rate, why = start, ""
        while len(self._steps) < _STEPS_MAX:
            kept = self._judge(rate)
            if kept:
                low = rate
            else:
                high = rate
                if kept is None:
                    why = f"at {rate:,.0f} a second the generator itself was at its limit; try more --processes"
            if high is None:
                if rate >= highest:
                    why = f"it still held at {highest:,.0f} a second, which is as far as it was to go"
                    break
                rate = min(rate * 2, highest)
            elif low is None:
                # Below the first rate: a slow server, or an impossible objective.
                if rate <= _lowest(measured=self._steps[-1].result):
                    break
                rate /= 2
            elif high / low <= 1 + self._precision:
                break
            else:
                rate = math.sqrt(low * high)
        # A bound that only the generator caused says nothing about the server.
        return low, high, why if high is None or self._broken() != high else ""

    def bound_holds(self, high: float) -> bool:
        """Return whether the upper bound holds after all, in two of at most three more steps: a disturbance may have
        caused its failure. False also if the generator caused the bound."""
        if self._broken() != high:
            return False
        failed = 0
        while self._votes(high, kept=True) < _VOTES and failed < _VOTES:
            failed += not self._run(high, "bound").kept
        return failed < _VOTES

    def confirm(self, low: float | None, high: float | None, why: str) -> Found:
        """Go down from ``low`` until a rate has held twice. ``high`` is what bounded the search."""
        above = self._broken()
        why = why if high is None or high != above else ""
        held = {step.rate for step in self._steps if step.kept}
        for attempt in range(1, _CONFIRMATIONS_MAX + 1):
            if low is None:
                return self._found(None, above, why or "it held at no rate")
            while max(self._votes(low, kept=True), self._votes(low, kept=False)) < _VOTES:
                self._run(low, "confirm")
            if self._votes(low, kept=True) >= _VOTES:
                return self._found(low, above, why)
            if any(step.kept is False for step in self._steps if step.rate == low):
                above = low
            lowest = low / (1 + self._precision) ** attempt
            low = max((rate for rate in held if lowest <= rate < low), default=lowest)
        return self._found(
            None, above, "it held once, and then not again at rates near it: the server, or this machine, is not steady"
        )

    def _judge(self, rate: float) -> bool | None:
        """Return True after one step that held, or two of three. Return False after two that failed, None if these
        failed because of the generator."""
        kept = self._run(rate).kept
        while not kept and max(self._votes(rate, kept=True), self._votes(rate, kept=False)) < _VOTES:
            self._run(rate, "repeat")
        if kept or self._votes(rate, kept=True) >= _VOTES:
            return True
        return False if any(step.kept is False for step in self._steps if step.rate == rate) else None

    def _run(self, rate: float, purpose: str = "search") -> Step:
        """Run one step. Raises _Ended if no further step can be run."""
        result = self._measure(rate)
        wrong = tuple(self._objective.broken(result))
        kept = not wrong if not wrong or not result.generator_bound else None
        step = Step(rate, kept, wrong, result, purpose)
        self._steps.append(step)
        self._tell(step)
        if result.interrupted or result.unreachable:
            # The step was interrupted and is inconclusive.
            before = [each for each in self._steps[:-1] if each.kept]
            low = max((each.rate for each in before if each.rate < (self._broken() or math.inf)), default=None)
            why = (
                "it was interrupted, and is not confirmed"
                if result.interrupted
                else "the server was gone, and nothing is confirmed"
            )
            raise _Ended(self._found(low, self._broken(), why, interrupted=result.interrupted))
        return step

    def _votes(self, rate: float, *, kept: bool) -> int:
        """Return how many steps at ``rate`` met the objective (``kept``), or did not."""
        return sum((step.kept is True) == kept for step in self._steps if step.rate == rate)

    def _broken(self) -> float | None:
        """Return the lowest rate that failed twice, at least once by the server's fault, and did not hold twice."""
        rates = {step.rate for step in self._steps if step.kept is False}
        return min(
            (
                rate
                for rate in rates
                if self._votes(rate, kept=False) >= _VOTES and self._votes(rate, kept=True) < _VOTES
            ),
            default=None,
        )

    def _found(self, rate: float | None, above: float | None, why: str = "", *, interrupted: bool = False) -> Found:
        return Found(rate, above, self._precision, tuple(self._steps), why, interrupted)


def _lowest(measured: Result) -> float:
    """Return the lowest rate at which a step has enough requests."""
    return max(1.0, 20.0 / max(measured.seconds, 1.0))
