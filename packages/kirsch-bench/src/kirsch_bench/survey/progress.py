"""The progress of a survey with its estimated end: one line on a terminal, otherwise a line for each round."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kirsch_bench.progress import bar, load_line
from kirsch_bench.show import show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.progress import Display
    from kirsch_bench.survey import records
    from kirsch_bench.survey.rounds import Turn
    from kirsch_bench.survey.spec import Survey

_STARTING_SECONDS = 1.0
"""The time to start and end a server, as estimated before the first one was started."""


class Progress:
    """The progress of the ``count`` remaining rounds."""

    def __init__(self, display: Display, survey: Survey, count: int) -> None:
        self._display = display
        self._count = count
        self._done = 0
        self._spent = 0.0
        self._expected = survey.warmup + survey.seconds + survey.cooldown + _STARTING_SECONDS
        self._begun = time.monotonic()
        self._name = ""

    def begin(self, turn: Turn) -> None:
        """Show that a round begins."""
        self._begun = time.monotonic()
        self._name = f"{turn.ready.name}, {turn.scenario.record.name}, round {turn.number + 1}"
        self._display.show(f"{self._prefix()} {self._name}: starting")

    def loading(self, words: Sequence[dict[str, Any]]) -> None:
        """Show the progress of the load in a round."""
        self._display.show(f"{self._prefix()} {self._name}: {load_line(words, None)}")

    def end(self, turn: Turn, measured: records.Round) -> None:
        """Record the end of a round, and show it."""
        self._done += 1
        self._spent += time.monotonic() - self._begun
        if measured.failure:
            self._display.say(f"{turn.ready.name}, {measured.scenario}, round {measured.round + 1}: {measured.failure}")
        else:
            self._display.show(f"{self._prefix()} {self._name}: {measured.rate:,.0f}/s")

    @property
    def left(self) -> float:
        """Return the estimated remaining seconds, from the mean duration of the rounds so far."""
        each = self._spent / self._done if self._done else self._expected
        return each * (self._count - self._done)

    def _prefix(self) -> str:
        share = self._done / self._count if self._count else 1.0
        return f"{bar(share)} {self._done}/{self._count}, {_span(self.left)} left,"


def _span(seconds: float) -> str:
    if seconds < 90:
        return show_seconds(round(max(seconds, 1.0)))
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
