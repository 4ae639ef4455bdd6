"""The order of rounds: all take turns, in another order each time, and the order is the seed's.

A machine drifts, with its temperature and its other users. What is measured one after the other is compared across
that drift; what takes turns is not. The order does not depend on what was measured before, so that a survey that goes
on does so as if it had never stopped.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kirsch_bench.survey import records
    from kirsch_bench.survey.spec import Scenario, Survey
    from kirsch_bench.survey.subjects import Ready

HOPELESS = 2
"""Rounds of a scenario in which a server did not come up, one after the other, after which it is not tried again."""


@dataclass(frozen=True)
class Turn:
    """One round of one subject in one scenario."""

    ready: Ready
    scenario: Scenario
    number: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The key of the round in the records."""
        return self.ready.subject.server, self.ready.subject.python, self.scenario.record.name, self.number


def turns(survey: Survey, subjects: Iterable[Ready]) -> Iterator[Turn]:
    """All of them in their order. The null server comes first in each scenario: the others are judged by it."""
    present = [each for each in subjects if not each.subject.absent]
    for number in range(survey.rounds):
        chance = random.Random(f"{survey.seed}/{number}")  # noqa: S311 - an order that can be repeated
        scenarios = list(survey.scenarios)
        chance.shuffle(scenarios)
        for scenario in scenarios:
            taking_part = [each for each in present if each.candidate is not None and each.takes_part(scenario)]
            chance.shuffle(taking_part)
            nulls = [each for each in present if each.candidate is None] if taking_part else []
            for ready in (*nulls, *taking_part):
                yield Turn(ready, scenario, number)


def is_hopeless(turn: Turn, rounds: Iterable[records.Round]) -> str:
    """Why a server is not tried again in a scenario: it never came up there, and that takes long; empty: it is."""
    server, python, scenario, _ = turn.key
    before = [each for each in rounds if (each.server, each.python, each.scenario) == (server, python, scenario)]
    failures = [each.failure for each in before if each.failure and not each.startup]
    return failures[-1] if len(failures) == len(before) and len(failures) >= HOPELESS else ""
