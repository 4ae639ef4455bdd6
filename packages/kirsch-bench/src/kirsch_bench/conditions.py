"""Conditions on the figures of a measurement, such as ``p99 < 20ms``: their syntax and evaluation.

::

    condition   figure sign limit
    figure      p50, p99.9 ... | max | mean | errors | failed | dropped | rate
    sign        < | <= | > | >=
    limit       of a latency: a number with us, ms or s; of errors: a share, as 0.1% or 0.001; else a number

``--slo`` has conditions that must hold, ``--fail-if`` has conditions that must not.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from kirsch_bench.errors import UsageError
from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Collection

_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}

LATENCIES = frozenset({"percentile", "max", "mean"})
COUNTS = frozenset({"failed", "dropped", "rate"})


class Latencies(Protocol):
    """Latencies in seconds; ``percentile`` takes a number from 0 to 100."""

    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def max(self) -> float: ...
    def percentile(self, percent: float) -> float: ...


class Figures(Protocol):
    """The figures that conditions use: of a result, or of a run so far."""

    @property
    def latency(self) -> Latencies: ...
    @property
    def error_share(self) -> float: ...
    @property
    def failed(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def rate(self) -> float: ...


@dataclass(frozen=True)
class Condition:
    """One condition. ``limit`` is in seconds, a share from 0 to 1, a count, or requests per second."""

    text: str
    figure: str
    """``percentile``, ``max``, ``mean``, ``errors``, ``failed``, ``dropped`` or ``rate``."""
    percentile: float
    sign: str
    limit: float

    @property
    def name(self) -> str:
        """The name of the figure, as it is written."""
        return f"p{self.percentile:g}" if self.figure == "percentile" else self.figure

    def value(self, figures: Figures) -> float:
        """Return the value of the figure. A latency without measurements is infinite."""
        if self.figure == "errors":
            return figures.error_share
        if self.figure in COUNTS:
            return float(getattr(figures, self.figure))
        if not figures.latency.count:
            return math.inf
        if self.figure == "mean":
            return figures.latency.mean
        return figures.latency.max if self.figure == "max" else figures.latency.percentile(self.percentile)

    def holds(self, figures: Figures) -> bool:
        """Return whether the condition is true."""
        return bool(_SIGNS[self.sign](self.value(figures), self.limit))

    def show(self, value: float) -> str:
        """Format a value of the figure."""
        if self.figure == "errors":
            return f"{value:.3%}"
        if self.figure in LATENCIES:
            return show_seconds(value)
        return f"{value:,.1f} a second" if self.figure == "rate" else f"{value:,.0f}"


class Reader:
    """A parser of conditions and words in ``text``. ``flag`` is the prefix of its messages."""

    def __init__(self, text: str, flag: str) -> None:
        self._text = text
        self._flag = flag
        self._at = 0

    def condition(self, figures: frozenset[str], signs: Collection[str]) -> Condition:
        """Read a condition on one of ``figures`` with one of ``signs``. Raises UsageError."""
        begin = self._skip()
        match = self.take(r"p(\d{1,2}(?:\.\d{1,4})?)(?![\w.])|[a-z]+")
        word = match[0].lower() if match else ""
        figure = "percentile" if match and match[1] else "errors" if word in ("err", "error") else word
        if figure not in figures:
            names = ["p99", *sorted(figures - {"percentile"})]
            self.fail(f"expected {', '.join(names[:-1])} or {names[-1]}", begin)
        at = self._skip()
        sign = self.take(r"[<>=!]+")
        if sign is None or sign[0] not in signs:
            self.fail(f"expected {' or '.join(sorted(signs))}", at)
        limit = self._limit(figure)
        text = " ".join(self._text[begin : self._at].split())
        return Condition(text, figure, float(match[1] or 0) if match else 0.0, sign[0], limit)

    def _limit(self, figure: str) -> float:
        at = self._skip()
        number = self.take(r"\d+(?:\.\d+)?")
        if number is None:
            self.fail("expected a number", at)
        at = self._skip()
        unit = self.take(r"[^\W\d_]+|%")
        word = unit[0].lower() if unit else ""
        if figure in LATENCIES:
            if word not in _SECONDS:
                self.fail("a latency has a unit: us, ms or s", at)
            return float(number[0]) * _SECONDS[word]
        if figure == "errors":
            if word not in ("", "%"):
                self.fail("errors are a share, such as 0.1%", at)
            return float(number[0]) * (0.01 if word else 1.0)
        if word:
            # It may belong to the next element.
            self._at = at
        return float(number[0])

    def take(self, pattern: str) -> re.Match[str] | None:
        """Parse ``pattern``, if it is next; return None otherwise."""
        self._skip()
        match = re.compile(pattern, re.IGNORECASE).match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def end(self, expected: str) -> None:
        """Check that the whole text is parsed. Raises UsageError."""
        if self._skip() < len(self._text):
            self.fail(f"expected {expected}", self._at)

    @property
    def is_at_end(self) -> bool:
        """Return whether the whole text is parsed."""
        return self._skip() == len(self._text)

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        """Raise UsageError with the problem, the text, and a caret below the position ``at`` (default: the current
        one)."""
        place = self._skip() if at is None else at
        raise UsageError(f"{self._flag}: {problem}\n  {self._text}\n  {' ' * place}^")

    def _skip(self) -> int:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at
