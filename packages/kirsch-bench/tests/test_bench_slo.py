"""The highest rate that keeps a promise: what a promise is, and that the search finds it."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from benching import bench as run_bench
from benching import ok, scripted
from kirsch_bench import slo
from kirsch_bench.errors import UsageError


def result(asked: float, p99: float, **options: Any) -> Any:
    """As much of a result as a search looks at."""
    latency = SimpleNamespace(count=1000, mean=p99 / 2, max=p99 * 2, percentile=lambda percent: p99 * percent / 99)
    plain = {
        "latency": latency, "error_share": 0.0, "dropped": 0, "rate": asked, "rate_asked": asked, "seconds": 5.0,
        "generator_bound": False, "load": SimpleNamespace(arrivals="constant"), "interrupted": False,
        "unreachable": False,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **options})


def search(measure: Any, objective: str = "p99<20ms", **options: Any) -> slo.Found:
    settings = {
        "start": 100.0,
        "highest": 1e7,
        "precision": 0.05,
        "tell": lambda step: print(slo.line(step)),
        **options,
    }
    return slo.search(measure, slo.parse(objective), **settings)


def queue(capacity: float) -> Any:
    """A server whose answers take ever longer as the rate comes near its capacity, as of one queue (M/M/1)."""

    def measure(rate: float) -> Any:
        if rate >= capacity:
            return result(rate, 10.0, rate=capacity)
        return result(rate, math.log(100) / (capacity - rate))

    return measure


@pytest.mark.parametrize("capacity", [700.0, 1000.0, 33333.0, 250.0, 5e5])
@pytest.mark.parametrize("precision", [0.05, 0.01])
def test_the_rate_found_is_within_the_precision_of_the_true_one(capacity: float, precision: float) -> None:
    true = capacity - math.log(100) / 0.020
    found = search(queue(capacity), precision=precision)
    assert found.rate is not None
    assert found.above is not None
    assert found.rate <= true < found.above
    assert found.above / found.rate <= 1 + precision
    assert found.as_json("p99<20ms")["confirmed"]
    assert len(found.steps) < 40


def test_a_first_rate_that_is_too_high_already_is_gone_below() -> None:
    found = search(queue(250.0), start=800.0)
    assert found.rate is not None
    assert found.rate < 250 - math.log(100) / 0.020 <= found.rate * 1.05


def test_a_promise_that_nothing_keeps_ends_the_search() -> None:
    found = search(lambda rate: result(rate, 1.0))
    assert found.rate is None
    assert "does not hold" in slo.verdict(found, "p99<20ms")
    assert len(found.steps) <= 12  # each of six rates twice


def test_a_server_that_always_holds_is_asked_as_far_as_it_was_said() -> None:
    found = search(lambda rate: result(rate, 0.001), highest=3000.0)
    assert found.rate == 3000.0
    assert found.above is None
    assert "it still held at 3,000" in slo.verdict(found, "p99<20ms")


def test_where_the_generator_is_at_its_limit_nothing_is_said_of_the_server() -> None:
    found = search(lambda rate: result(rate, 0.001 if rate < 5000 else 1.0, generator_bound=rate >= 5000))
    assert found.rate is not None
    assert found.rate < 5000
    assert found.above is None
    assert "the generator itself was at its limit" in slo.verdict(found, "p99<20ms")


def test_a_rate_that_held_by_luck_is_not_confirmed() -> None:
    seen: list[float] = []

    def measure(rate: float) -> Any:
        """Above 500 a rate holds the first time and never again."""
        seen.append(rate)
        return result(rate, 0.001 if rate <= 500 or (rate <= 550 and seen.count(rate) == 1) else 1.0)

    found = search(measure, precision=0.02)
    assert found.rate is not None
    assert found.rate <= 500
    assert found.best is not None
    assert found.best.purpose == "confirm"


def test_a_noisy_server_ends_too() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    found = search(lambda rate: result(rate, dice.choice((0.001, 1.0))))
    assert len(found.steps) <= 70


def test_an_interruption_ends_the_search_with_what_it_has() -> None:
    found = search(lambda rate: result(rate, 0.001, interrupted=rate > 300))
    assert found.interrupted
    assert found.rate == 200.0
    assert "not confirmed" in slo.verdict(found, "p99<20ms")


def test_falling_behind_dropping_and_errors_break_every_promise() -> None:
    objective = slo.parse("p99<20ms")
    assert objective.broken(result(100, 0.001)) == []
    assert objective.broken(result(100, 0.03)) == ["p99 is 30.0 ms"]
    assert objective.broken(result(100, 0.001, rate=90.0)) == ["only 90 a second answered"]
    assert objective.broken(result(100, 0.001, dropped=3)) == ["3 dropped"]
    assert objective.broken(result(100, 0.001, error_share=0.01)) == ["errors is 1.000%"]
    assert slo.parse("p99<20ms,errors<2%").broken(result(100, 0.001, error_share=0.01)) == []
    nothing = result(100, 0.001)
    nothing.latency.count = 0
    assert objective.broken(nothing) == ["p99 is endless"]


@pytest.mark.parametrize(
    ("text", "limit"),
    [("p99<20ms", 0.02), ("p99.9 <= 1s", 1.0), ("max<500us", 0.0005), ("mean<2ms", 0.002), ("errors<0.1%", 0.001),
     ("err<0.01", 0.01)],
)  # fmt: skip
def test_promises_are_read(text: str, limit: float) -> None:
    assert slo.parse(text).promises[0].limit == pytest.approx(limit)


@pytest.mark.parametrize("text", ["", "p99", "p99<20", "p100<1s", "p99>20ms", "errors<1ms", "fast", "p99<20ms;max<1s"])
def test_what_is_no_promise_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--slo"):
        slo.parse(text)


@pytest.mark.slow
def test_the_command_searches_and_shows_each_step() -> None:
    with scripted(lambda _: ok()) as server:
        done = run_bench(
            "--slo", "p99<2s", "-R", "50", "--max-rate", "100", "-z", "0.4s", "--warmup", "0.1s", server.url
        )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.split("\n") if " a second" in line and "p99 " in line]
    assert len(steps) == 3, done.stdout
    assert "once more" in steps[-1]
    assert "p99<2s holds at 100.0 requests a second" in done.stdout


@pytest.mark.slow
def test_a_promise_that_breaks_ends_with_an_error() -> None:
    with scripted(lambda _: ok(status="500 Internal Server Error")) as server:
        done = run_bench("--slo", "p99<2s", "-R", "40", "-z", "0.5s", "--warmup", "0.1s", server.url)
    assert done.returncode == 1
    assert "does not hold" in done.stdout


# ------------------------------------------------------------------------------------------------- a machine with noise


class NoisyMachine:
    """A server of a known capacity on a machine that other programs disturb now and then, in virtual time.

    Each step takes ``STEP_SECONDS``. A burst of the other programs, 2 s on average and one in ``every`` seconds, makes
    each step that it falls into miss its promise, at any rate.
    """

    STEP_SECONDS = 6.5

    def __init__(self, capacity: float, seed: int, every: float = 90.0) -> None:
        self.true = capacity - math.log(100) / 0.020
        self._capacity = capacity
        self._chance = random.Random(seed)
        self._every = every
        self._now = 0.0
        self._burst = (self._chance.expovariate(1 / every), self._chance.expovariate(1 / 2.0))

    def measure(self, rate: float) -> Any:
        begin, self._now = self._now, self._now + self.STEP_SECONDS
        disturbed = False
        while self._burst[0] < self._now:
            disturbed = disturbed or sum(self._burst) > begin
            if sum(self._burst) > self._now:
                break
            self._burst = (
                sum(self._burst) + self._chance.expovariate(1 / self._every),
                self._chance.expovariate(1 / 2.0),
            )
        return result(rate, 1.0) if disturbed else queue(self._capacity)(rate)


def test_one_disturbed_step_does_not_bound_the_search() -> None:
    """Any single step of the search, whichever it is, may be broken by the machine: the result stays the same."""
    undisturbed = search(queue(9000.0))
    assert undisturbed.rate is not None
    for disturbed in range(len(undisturbed.steps)):
        number = iter(range(1000))

        def measure(rate: float, number: Any = number, disturbed: int = disturbed) -> Any:
            return result(rate, 1.0) if next(number) == disturbed else queue(9000.0)(rate)

        found = search(measure)
        assert found.rate == undisturbed.rate, f"step {disturbed} was disturbed"
        assert found.above == undisturbed.above


def test_a_noisy_machine_gives_the_true_rate_in_nearly_all_searches() -> None:
    first = random.randrange(1 << 31)
    print("seed", first)
    machines = [NoisyMachine(capacity=9000.0, seed=first + number) for number in range(200)]
    found = [search(machine.measure, tell=lambda _: None) for machine in machines]
    near = [
        each.rate is not None and machine.true / 1.12 <= each.rate <= machine.true
        for each, machine in zip(found, machines, strict=True)
    ]
    assert sum(near) >= 185, [each.rate for each in found]


def test_a_bound_that_holds_when_it_is_tried_again_reopens_the_search() -> None:
    """The machine is disturbed for the first three steps at 400 a second, and never again."""
    seen: list[float] = []

    def measure(rate: float) -> Any:
        seen.append(rate)
        return result(rate, 1.0) if rate == 400.0 and seen.count(rate) <= 2 else queue(3000.0)(rate)

    found = search(measure)
    true = 3000.0 - math.log(100) / 0.020
    assert found.rate is not None
    assert true / 1.05 <= found.rate <= true
    assert any(step.purpose == "bound" and step.rate == 400.0 for step in found.steps)


def test_a_generator_that_is_late_once_does_not_end_the_search() -> None:
    seen: list[float] = []

    def measure(rate: float) -> Any:
        seen.append(rate)
        late = rate == 400.0 and seen.count(rate) == 1
        return result(rate, 1.0, generator_bound=True) if late else queue(3000.0)(rate)

    found = search(measure)
    assert found.rate is not None
    assert found.rate > 2500
    assert found.why == ""
