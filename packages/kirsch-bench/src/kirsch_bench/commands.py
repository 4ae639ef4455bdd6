"""The commands that this distribution adds to ``kirsch``, as its entry points name them (:mod:`kirsch.commands`)."""

from __future__ import annotations

from kirsch.commands import Command

BENCH = Command(
    "Measure an HTTP server: rates, latencies, errors; also load tests written in Python.", "kirsch_bench.command"
)

SURVEY = Command(
    "Measure HTTP servers side by side, each in an environment of its own, with intervals and ranks.",
    "kirsch_bench.survey.command",
)

PROFILE = Command(
    "Show where the time of a request goes: in the server by stages, in the application by calls.",
    "kirsch_bench.profile.command",
    takes_settings=True,
)
