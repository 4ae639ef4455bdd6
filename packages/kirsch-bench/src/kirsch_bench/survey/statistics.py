"""Figures over rounds, how sure they are, and which servers can be told apart.

**The figure** of a server is the geometric mean over its rounds. What disturbs a measurement multiplies it (a processor
that is slower for a minute, another guest of the machine that takes a tenth), so logarithms are what scatters evenly,
and the ratio of two such figures is the mean of the rounds' ratios, which is what is compared. A median of five rounds
would throw away half of what was measured, and the ratio of two medians is the ratio of no round.

**Two servers are compared round by round.** Rounds are interleaved, so what drifts touches both, and leaves their
ratio alone: the intervals of two figures may overlap while their ratio is sure. The test is Student's t on the
logarithms of the rounds' ratios. If the two are the same, each of these is the difference of two values from one
distribution, however skewed: it is symmetric, and densest at zero (its characteristic function is a square). There t
errs towards "the same".

**The bootstrap errs the other way.** Whatever its refinement, an interval of resampled means stays within the range of
the data, and five differences around zero lie on one side of it in 2 of 32 cases: at five rounds it calls a server
different from itself at least 6 times in 100, and even the widened one below does 7 to 9 times, where t does 1 to 5.
From ``BOOTSTRAP_FROM`` rounds on intervals are bootstrapped, with rounds as blocks, and widened as Student's t is
(Hesterberg, "What Teachers Should Know about the Bootstrap", 2015: the expanded percentile); with fewer they are
Student's. What is called different rests on t always.

**Ranks.** All pairs of a scenario are tested, and of these a share is called different such that at most ``ERROR`` of
the calls are chance (Benjamini and Hochberg, 1995). If all are the same, any call at all is made in at most that share
of surveys. Beyond that a difference has to be ``LEAST`` at least: processes of one program differ by as much.

The tests simulate all this, with noise that is skewed and drifts.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

CONFIDENCE = 0.95

ERROR = 1 - CONFIDENCE
"""The share of "different" that may be chance."""

LEAST = 0.01
"""The least difference that is called one, as a share. Where memory happens to lie makes as much between two processes
of the same server."""

ROUNDS_MIN = 3
"""With two, chance alone may make two equal pairs of values, and these prove nothing."""

BOOTSTRAP_FROM = 8
"""Rounds: with fewer the bootstrap's intervals are too narrow by more than they gain in shape."""

_RESAMPLES = 4000

Key = TypeVar("Key", bound="Hashable")

Interval = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """A value over ``rounds`` rounds, with its 95 % interval; None if there are fewer than two rounds."""

    value: float
    interval: Interval | None
    rounds: int

    @property
    def relative(self) -> float | None:
        """Half the interval's width, as a share of the value."""
        if self.interval is None or not self.value:
            return None
        return (self.interval[1] - self.interval[0]) / 2 / abs(self.value)


@dataclass(frozen=True)
class Comparison:
    """Of two servers: the ratio of the first to the second, and how likely one as far from 1 is if they are the same.
    ``p`` None: too few rounds in which both were measured."""

    ratio: float
    p: float | None
    rounds: int


@dataclass(frozen=True)
class Rank(Generic[Key]):
    """``best`` is 1 and as many as are better beyond doubt; ``last`` is the number of all less those that are worse.

    ``same`` are the others that it cannot be told apart from. That is no group: the first may be the same as the
    second and this the same as the third, and the first differ from the third all the same.
    """

    key: Key
    figure: Figure
    best: int
    last: int
    same: tuple[Key, ...]

    @property
    def text(self) -> str:
        """``3``, or ``2–4``."""
        return f"{self.best}" if self.best == self.last else f"{self.best}–{self.last}"


def figure(values: Collection[float]) -> Figure:
    """Return the geometric mean of positive values, one for each round. Raises ValueError for no or non-positive
    values."""
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean is of positive values")
    logarithms = [math.log(value) for value in values]
    interval = _interval(logarithms)
    return Figure(
        value=math.exp(math.fsum(logarithms) / len(logarithms)),
        interval=None if interval is None else (_exp(interval[0]), _exp(interval[1])),
        rounds=len(logarithms),
    )


def mean(values: Collection[float]) -> Figure:
    """Return the arithmetic mean of values that may be 0 or negative. Raises ValueError if there are none."""
    if not values:
        raise ValueError("a mean is of values")
    return Figure(math.fsum(values) / len(values), _interval(list(values)), len(values))


def compare(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison | None:
    """Compare two servers by their common rounds; None if there are none."""
    differences = _differences(first, second)
    if not differences:
        return None
    centre = math.fsum(differences) / len(differences)
    p = None
    if len(differences) >= ROUNDS_MIN:
        error = _standard_error(differences, centre)
        p = student_tail(centre / error, len(differences) - 1) if error else float(centre == 0)
    return Comparison(math.exp(centre), p, len(differences))


def ratio(first: Mapping[int, float], second: Mapping[int, float]) -> Figure | None:
    """Return the first as a multiple of the second, with its interval; None without a round that both have."""
    differences = _differences(first, second)
    return figure([math.exp(each) for each in differences]) if differences else None


def different(comparisons: Mapping[Key, Comparison]) -> set[Key]:
    """Return the keys that are called different, such that at most ``ERROR`` of the calls are chance."""
    tested = sorted(
        ((each.p, key) for key, each in comparisons.items() if each.p is not None), key=lambda pair: pair[0]
    )
    called = 0
    for place, (p, _) in enumerate(tested, 1):
        if p <= ERROR * place / len(tested):
            called = place
    return {key for _, key in tested[:called] if abs(math.log(comparisons[key].ratio)) >= math.log1p(LEAST)}


def ranks(measured: Mapping[Key, Mapping[int, float]], *, higher_is_better: bool) -> list[Rank[Key]]:
    """Rank all servers that were measured at least once, the best first."""
    figures = {key: figure(list(rounds.values())) for key, rounds in measured.items() if rounds}
    order = sorted(figures, key=lambda key: figures[key].value, reverse=higher_is_better)
    pairs: dict[tuple[Key, Key], Comparison] = {}
    for first, second in itertools.combinations(order, 2):
        compared = compare(measured[first], measured[second])
        if compared is not None:
            pairs[first, second] = compared
    apart = different(pairs)
    better = {
        (first, second) if (pairs[first, second].ratio > 1) == higher_is_better else (second, first)
        for first, second in apart
    }
    found = []
    for key in order:
        above = sum((other, key) in better for other in order)
        below = sum((key, other) in better for other in order)
        same = tuple(
            other for other in order if other != key and (key, other) not in better and (other, key) not in better
        )
        found.append(Rank(key, figures[key], 1 + above, len(order) - below, same))
    return found


def slope(rounds: Mapping[int, Sequence[tuple[float, float]]]) -> Figure | None:
    """Return the cost of one more of x: the mean of the rounds' slopes, with its interval. Each round gets a line of
    its own, by least squares, because rounds differ by more than the points of one round do. None if no round has two
    different x."""
    slopes = [fitted for points in rounds.values() if (fitted := least_squares(points)) is not None]
    return mean(slopes) if slopes else None


def least_squares(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of the line through points; None if all have the same x, which no line goes through."""
    if len({x for x, _ in points}) < 2:
        return None
    middle_x = math.fsum(x for x, _ in points) / len(points)
    middle_y = math.fsum(y for _, y in points) / len(points)
    spread = math.fsum((x - middle_x) ** 2 for x, _ in points)
    return math.fsum((x - middle_x) * (y - middle_y) for x, y in points) / spread


def student_tail(t: float, degrees: int) -> float:
    """Return the probability that Student's t is at least this far from 0, on either side."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


@functools.cache
def student_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the distance from 0 that Student's t does not exceed with this probability."""
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, degrees) > 1 - confidence else (low, middle)
    return high


def _differences(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Return the differences of logarithms in the common rounds."""
    return [
        math.log(first[each] / second[each])
        for each in sorted(first.keys() & second.keys())
        if first[each] > 0 and second[each] > 0
    ]


def _interval(values: Sequence[float]) -> Interval | None:
    """Return the confidence interval of the mean; None for fewer than two values."""
    count = len(values)
    if count < 2:
        return None
    if count >= BOOTSTRAP_FROM:
        return expanded_percentile(values)
    centre = math.fsum(values) / count
    reach = student_quantile(count - 1) * _standard_error(values, centre)
    return centre - reach, centre + reach


def expanded_percentile(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The bootstrap's interval of the mean. Which resamples there are depends on the number of values alone, so the
    same rounds give the same interval each time."""
    count = len(values)
    means = sorted(math.fsum(map(values.__getitem__, resample)) / count for resample in _resamples(count))
    wide = math.sqrt(count / (count - 1)) * student_quantile(count - 1, confidence)
    beyond = statistics.NormalDist().cdf(-wide) * len(means)
    cut = min(int(beyond), len(means) // 2)
    return means[cut], means[-1 - cut]


@functools.cache
def _resamples(count: int) -> tuple[tuple[int, ...], ...]:
    random_ = random.Random(count)  # noqa: S311  # chance that is the same each time is what is wanted
    places: Callable[[], list[int]] = functools.partial(random_.choices, range(count), k=count)
    return tuple(tuple(places()) for _ in range(_RESAMPLES))


def _standard_error(values: Sequence[float], centre: float) -> float:
    """Return the standard error of the mean; 0 if the values differ only in the last digits of floating point."""
    count = len(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    error = math.sqrt(variance / count)
    return error if error > 1e-12 * max(map(abs, values)) else 0.0


def _exp(value: float) -> float:
    """Return exp(value), limited: with two rounds an interval may exceed the range of floats."""
    return math.exp(min(value, 700.0))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised: the continued fraction of DLMF 8.17.22, by Lentz's method, on the side where it converges."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    tiny = 1e-300
    c, d, fraction = 1.0, 0.0, 1.0
    for step in range(300):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        d = 1 / _away_from_zero(1 + term * d, tiny)
        c = _away_from_zero(1 + term / c, tiny)
        fraction *= c * d
        if abs(1 - c * d) < 1e-14:
            break
    return front * (fraction - 1)


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
