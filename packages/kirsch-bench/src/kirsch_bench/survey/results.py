"""The results of a survey: the figures that the text, the page and the JSON show.

Only rounds with answers count. A server that failed more than one request in a hundred of a scenario is shown
and not ranked, since answering is what takes the time.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kirsch_bench.results import BUSY
from kirsch_bench.show import plural, show_share_beyond
from kirsch_bench.survey import statistics
from kirsch_bench.survey.records import CEILING, Subject
from kirsch_bench.survey.spec import NULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kirsch_bench.survey.records import Header, Round, Scenario
    from kirsch_bench.survey.statistics import Figure, Rank

ROUNDS_ENOUGH = 5

_FAILED_MAX = 0.01
WARMING_UP = "while warming up"
"""Among a round's errors: those of requests that are not measured."""

_ANSWERED = ("status", "length", "hash")
"""Errors of requests that were answered."""

_STEAL_MAX = 0.02

PERCENTILES = ("50", "75", "90", "95", "99", "99.9", "max")

SERIES_UNITS = {"headers": "header field", "size": "KiB", "bytes": "byte", "connections": "connection"}
"""The unit of ``x`` of each series."""

_SLOPED = ("headers", "size")
"""Series along which the cost is a line."""

Key = tuple[str, str]
"""Server and interpreter."""


@dataclass(frozen=True)
class Cell:
    """The results of one server in one scenario. Times are seconds. ``rate`` None: nothing was measured."""

    key: Key
    label: str
    rounds: tuple[Round, ...]
    failures: dict[str, int]
    """Why rounds have no figures, and how many."""
    rate: Figure | None = None
    processor: Figure | None = None
    """Processor time for each request."""
    front: Figure | None = None
    """Of it, the web server's in front of the application; None: there is none."""
    user: float = 0.0
    """The share of it that is the program's own, and not the system's on its behalf."""
    used: Figure | None = None
    """How much of a processor all processes of the server used together: 1.2 is a processor and a fifth."""
    latency: dict[str, Figure] = field(default_factory=dict)
    requests: int = 0
    """Answered, whatever the answers said."""
    failed: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    bound: str = ""
    """Why the generator may have been the limit."""
    rate_rank: Rank[Key] | None = None
    processor_rank: Rank[Key] | None = None

    @property
    def failed_share(self) -> float:
        """The share of requests that failed during the measurement, without the warm-up."""
        failed = max(0, self.failed - self.errors.get(WARMING_UP, 0))
        answered_wrongly = sum(self.errors.get(kind, 0) for kind in _ANSWERED)
        asked = self.requests + max(0, failed - answered_wrongly)
        return min(1.0, failed / asked) if asked else 0.0


@dataclass(frozen=True)
class Scene:
    """A scenario with its servers: the best first, those without figures last."""

    scenario: Scenario
    cells: tuple[Cell, ...]
    ceiling: Figure | None
    """The null server's rate."""

    @property
    def is_open(self) -> bool:
        """Return whether requests are sent at a fixed rate: then rates show nothing of servers that keep up."""
        return is_open(self.scenario)

    @property
    def measured(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.rate is not None)


@dataclass(frozen=True)
class Sweep:
    """A series: scenarios that differ in one number. There may be several over the same kind of number, as one for each
    page; ``base`` is the name of this one."""

    base: str
    series: str
    title: str
    scenes: tuple[Scene, ...]
    """In the order of x."""

    @property
    def unit(self) -> str:
        """Return the unit of x."""
        return SERIES_UNITS.get(self.series, self.series)

    @property
    def units(self) -> str:
        """The plural of the unit."""
        return self.unit if self.unit == "KiB" else f"{self.unit}s"


@dataclass(frozen=True)
class Cost:
    """The cost of one more of a series' x for a server, in processor seconds."""

    sweep: Sweep
    key: Key
    label: str
    each: Figure
    none: float
    """The cost of a request with an x of 0, by the fitted line."""


@dataclass(frozen=True)
class Needs:
    """The needs of a server besides CPU time. Bytes and seconds; None: not measured."""

    key: Key
    label: str
    memory: float | None
    """Proportional set size of all its processes, at the end of the loads; where unknown, the resident one."""
    memory_most: float | None
    threads: int
    processes: int
    startup: Figure | None
    first_request: Figure | None
    idle: Figure | None
    """Share of a processor."""


@dataclass(frozen=True)
class Answer:
    """A sample of a server's response: a server that sends less has less to do."""

    key: Key
    label: str
    scenario: str
    status: int
    head: int
    body: int
    fields: tuple[str, ...]
    options: str


@dataclass(frozen=True)
class Results:
    """All results of a survey."""

    header: Header
    labels: dict[Key, str]
    styles: dict[Key, int]
    """A number for each server, that keeps its colour through all plots."""
    scenes: tuple[Scene, ...]
    sweeps: tuple[Sweep, ...]
    """The sweeps: scenes that belong to a series."""
    costs: tuple[Cost, ...]
    needs: tuple[Needs, ...]
    answers: tuple[Answer, ...]
    absent: tuple[tuple[str, str], ...]
    """The servers that could not run at all, and why."""
    failures: tuple[tuple[str, str, str, int], ...]
    """Server, scenario, why, and in how many rounds."""
    warnings: tuple[str, ...]
    rounds: int
    """Of a scenario, the most there are."""


def summarize(header: Header, rounds: Sequence[Round]) -> Results:
    """All figures of a survey that may be unfinished. Of a round that was measured twice the last counts."""
    rounds = list({(each.server, each.python, each.scenario, each.round): each for each in rounds}.values())
    subjects = _subjects(header, rounds)
    labels = _labels([each for each in subjects if each.server != NULL])
    by_cell: dict[tuple[Key, str], list[Round]] = {}
    for each in rounds:
        by_cell.setdefault(((each.server, each.python), each.scenario), []).append(each)
    present = [key for key in labels if any(key == owner for owner, _ in by_cell)]
    scenes = tuple(_scene(scenario, present, labels, by_cell) for scenario in header.scenarios)
    sweeps = _sweeps(scenes)
    return Results(
        header=header,
        labels=labels,
        styles={key: place for place, key in enumerate(present)},
        scenes=scenes,
        sweeps=sweeps,
        costs=tuple(each for sweep in sweeps if sweep.series in _SLOPED for each in _costs(sweep, present, labels)),
        needs=tuple(_needs(key, labels[key], _with_figures(rounds, key)) for key in present),
        answers=tuple(_answers(subjects, present, labels, scenes)),
        absent=tuple((_name(each, labels), each.absent) for each in subjects if each.absent),
        failures=tuple(_failures(header, rounds, labels)),
        warnings=tuple(_warnings(header, rounds, scenes)),
        rounds=max((len({each.round for each in cell.rounds}) for scene in scenes for cell in scene.cells), default=0),
    )


def is_open(scenario: Scenario) -> bool:
    """Return whether the scenario's load has a fixed rate."""
    return any(word == "--rate" or word.startswith("--rate=") for word in scenario.load.split())


def by_round(rounds: Iterable[Round], value: Callable[[Round], float]) -> dict[int, float]:
    """Return a figure by round, if it is positive and finite."""
    return {each.round: figure for each in rounds if (figure := value(each)) > 0 and math.isfinite(figure)}


def is_measured(each: Round) -> bool:
    """Return whether a round has figures."""
    return not each.failure and each.rate > 0 and each.requests > 0


def _subjects(header: Header, rounds: Sequence[Round]) -> list[Subject]:
    """Return the subjects of the header, and those that only rounds name."""
    known = {(each.server, each.python): each for each in header.subjects}
    for each in rounds:
        known.setdefault((each.server, each.python), Subject(each.server, each.python, each.server))
    return list(known.values())


def _labels(subjects: Sequence[Subject]) -> dict[Key, str]:
    """Return the server's name, with its interpreter where there are several of the same name."""
    pythons: dict[str, set[str]] = {}
    for each in subjects:
        pythons.setdefault(each.server, set()).add(each.python)
    return {
        (each.server, each.python): each.server + (f", {each.python}" if len(pythons[each.server]) > 1 else "")
        for each in subjects
    }


def _name(subject: Subject, labels: Mapping[Key, str]) -> str:
    return labels.get((subject.server, subject.python), subject.server)


def _with_figures(rounds: Sequence[Round], key: Key) -> list[Round]:
    return [each for each in rounds if (each.server, each.python) == key and is_measured(each)]


def _scene(
    scenario: Scenario,
    keys: Sequence[Key],
    labels: Mapping[Key, str],
    by_cell: Mapping[tuple[Key, str], list[Round]],
) -> Scene:
    ceilings = by_round(
        (
            each
            for (key, name), rounds in by_cell.items()
            if key[0] == NULL and name == scenario.name
            for each in rounds
            if is_measured(each)
        ),
        lambda each: each.rate,
    )
    cells = {
        key: _cell(key, labels[key], by_cell[key, scenario.name], ceilings, is_open(scenario))
        for key in keys
        if (key, scenario.name) in by_cell
    }
    ranked = {key: cell for key, cell in cells.items() if cell.rate is not None and cell.failed_share <= _FAILED_MAX}
    rates = {key: by_round(cell.rounds, lambda each: each.rate) for key, cell in ranked.items()}
    costs = {key: by_round(cell.rounds, lambda each: each.processor_per_request) for key, cell in ranked.items()}
    rate_ranks = {rank.key: rank for rank in statistics.ranks(rates, higher_is_better=True)}
    cost_ranks = {rank.key: rank for rank in statistics.ranks(costs, higher_is_better=False)}
    if is_open(scenario):
        rate_ranks = {}
    done = [
        _replace(cell, rate_rank=rate_ranks.get(key), processor_rank=cost_ranks.get(key)) for key, cell in cells.items()
    ]

    def order(cell: Cell) -> tuple[bool, bool, float]:
        value = cell.processor.value if is_open(scenario) and cell.processor else -(cell.rate.value if cell.rate else 0)
        return cell.rate is None, cell.failed_share > _FAILED_MAX, value

    return Scene(scenario, tuple(sorted(done, key=order)), statistics.figure(ceilings.values()) if ceilings else None)


def _replace(cell: Cell, **changes: Any) -> Cell:
    import dataclasses

    return dataclasses.replace(cell, **changes)


def _cell(key: Key, label: str, rounds: Sequence[Round], ceilings: Mapping[int, float], open_model: bool) -> Cell:
    good = sorted((each for each in rounds if is_measured(each)), key=lambda each: each.round)
    failures: dict[str, int] = {}
    for each in rounds:
        if not is_measured(each):
            failures[_why(each)] = failures.get(_why(each), 0) + 1
    if not good:
        return Cell(key, label, (), failures)
    user = math.fsum(each.user for each in good)
    both = user + math.fsum(each.system for each in good)
    errors: dict[str, int] = {}
    for each in good:
        for name, count in each.errors.items():
            errors[name] = errors.get(name, 0) + count
    return Cell(
        key=key,
        label=label,
        rounds=tuple(good),
        failures=failures,
        rate=_figure(each.rate for each in good),
        processor=_figure(each.processor_per_request for each in good),
        front=_figure(each.front_per_request for each in good),
        user=user / both if both else 0.0,
        used=statistics.mean([each.processor for each in good]) if any(each.processor for each in good) else None,
        latency={
            name: found
            for name in PERCENTILES
            if (found := _figure(each.latency.get(name, 0.0) for each in good)) is not None
        },
        requests=sum(each.requests for each in good),
        failed=sum(each.failed for each in good),
        errors=errors,
        bound=_bound(good, ceilings, open_model),
    )


def _figure(values: Iterable[float]) -> Figure | None:
    """Return the figure of the positive, finite values; None if there are none."""
    kept = [value for value in values if value > 0 and math.isfinite(value)]
    return statistics.figure(kept) if kept else None


def _bound(rounds: Sequence[Round], ceilings: Mapping[int, float], open_model: bool) -> str:
    """Judged by the same means over the rounds that are shown: a mark and the figure beside it cannot disagree."""
    shares = [
        each.rate / ceiling
        for each in rounds
        if (ceiling := each.generator.get("ceiling") or ceilings.get(each.round)) and not open_model
    ]
    share = statistics.figure(shares).value if shares else 0.0
    if share > CEILING:
        return f"{show_share_beyond(share, CEILING)} of the null server"
    used = _mean([each.generator.get("used") or 0.0 for each in rounds])
    if used > BUSY:
        return f"the generator used {show_share_beyond(used, BUSY)} of its processors"
    own = sum(_generator_says_so(each) for each in rounds)
    return f"the generator says so in {own} of {plural(len(rounds), 'round')}" if own * 2 >= len(rounds) else ""


def _generator_says_so(each: Round) -> bool:
    """Return whether a round was marked for another reason than one of the two figures above, which are judged over all
    rounds: the generator came late to arrivals."""
    ceiling, used = each.generator.get("ceiling"), each.generator.get("used") or 0.0
    return bool(each.generator.get("bound")) and used <= BUSY and not (ceiling and each.rate > CEILING * ceiling)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _failures(
    header: Header, rounds: Iterable[Round], labels: Mapping[Key, str]
) -> Iterable[tuple[str, str, str, int]]:
    """The null server's too, by which others are judged. A server's last words have the time in them mostly, so the
    first ones stand for all that failed in the same way."""
    titles = {each.name: each.title for each in header.scenarios}
    counts: dict[tuple[str, str, str], int] = {}
    reasons: dict[tuple[str, str, str], str] = {}
    for each in sorted(rounds, key=lambda each: each.round):
        if not is_measured(each):
            label = labels.get((each.server, each.python), each.server)
            why = _why(each).removeprefix("not tried again: ")
            of = label, titles.get(each.scenario, each.scenario), why.partition("; its last words")[0]
            counts[of] = counts.get(of, 0) + 1
            reasons.setdefault(of, why)
    return ((of[0], of[1], reasons[of], count) for of, count in sorted(counts.items()))


def _why(each: Round) -> str:
    return each.failure or "nothing was answered as expected"


def _sweeps(scenes: Sequence[Scene]) -> tuple[Sweep, ...]:
    groups: dict[tuple[str, str], list[Scene]] = {}
    for scene in scenes:
        if scene.scenario.series:
            # A series of the file is named so: ``name-10``; one that was written out has names of its own.
            base = scene.scenario.name.removesuffix(f"-{scene.scenario.number}")
            base = base if base != scene.scenario.name else scene.scenario.series
            groups.setdefault((scene.scenario.series, base), []).append(scene)
    return tuple(
        Sweep(base, series, _common_title(group), tuple(sorted(group, key=lambda each: each.scenario.x)))
        for (series, base), group in groups.items()
        if any(scene.measured for scene in group)
    )


def _common_title(scenes: Sequence[Scene]) -> str:
    """``hello, 10 more fields`` and ``hello, 20 more fields`` are hello."""
    titles = {scene.scenario.title.rpartition(", ")[0] for scene in scenes}
    return titles.pop() if len(titles) == 1 else ""


def _costs(sweep: Sweep, keys: Sequence[Key], labels: Mapping[Key, str]) -> Iterable[Cost]:
    for key in keys:
        rounds: dict[int, list[tuple[float, float]]] = {}
        for scene in sweep.scenes:
            for each in itertools.chain.from_iterable(cell.rounds for cell in scene.measured if cell.key == key):
                if each.processor_per_request > 0:
                    rounds.setdefault(each.round, []).append((scene.scenario.x, each.processor_per_request))
        # A round that was not finished says less than the others do, and would say it as loudly.
        whole = {number: points for number, points in rounds.items() if len(points) == len(sweep.scenes)} or rounds
        each_more = statistics.slope(whole)
        if each_more is not None:
            points = list(itertools.chain.from_iterable(whole.values()))
            none = _mean([y for _, y in points]) - each_more.value * _mean([x for x, _ in points])
            yield Cost(sweep, key, labels[key], each_more, none)


def _needs(key: Key, label: str, rounds: Sequence[Round]) -> Needs:
    memory = [float(each.pss or each.rss) for each in rounds if each.pss or each.rss]
    idle = [each.idle for each in rounds if each.idle is not None]
    return Needs(
        key=key,
        label=label,
        memory=_median(memory) if memory else None,
        memory_most=max(memory, default=None),
        threads=max((each.threads for each in rounds), default=0),
        processes=max((each.processes for each in rounds), default=0),
        startup=_figure(each.startup for each in rounds),
        first_request=_figure(each.first_request for each in rounds),
        idle=statistics.mean(idle) if idle else None,
    )


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _answers(
    subjects: Sequence[Subject], keys: Sequence[Key], labels: Mapping[Key, str], scenes: Sequence[Scene]
) -> Iterable[Answer]:
    """Each server's to the first scenario that it has one for."""
    options = {(each.server, each.python): each.options for each in subjects}
    for key in keys:
        for title, cell in (
            (each.scenario.title, cell) for each in scenes for cell in each.measured if cell.key == key
        ):
            sample = next((each.response for each in cell.rounds if each.response), None)
            if sample is None:
                continue
            yield Answer(
                key=key,
                label=labels[key],
                scenario=title,
                status=int(sample.get("status") or 0),
                head=int(sample.get("head") or 0),
                body=int(sample.get("body") or 0),
                fields=tuple(str(pair[0]) for pair in sample.get("fields") or ()),
                options=options[key],
            )
            break


def _warnings(header: Header, rounds: Sequence[Round], scenes: Sequence[Scene]) -> Iterable[str]:
    """Return the reasons to doubt the figures, a sentence or two each."""
    fewest = min((len(cell.rounds) for scene in scenes for cell in scene.measured), default=0)
    if fewest < ROUNDS_ENOUGH:
        yield (
            f"Only {plural(fewest, 'round')} of some: intervals are wide, and few differences can be called. "
            f"{ROUNDS_ENOUGH} are the least to go by."
        )
    bound = [
        f"{scene.scenario.name}: {', '.join(cell.label for cell in scene.measured if cell.bound)}"
        for scene in scenes
        if any(cell.bound for cell in scene.measured)
    ]
    if bound:
        yield (
            f"The generator may be the limit (beyond {CEILING:.0%} of the null server, or {BUSY:.0%} of its "
            "own processors), so these rates are lower bounds, and their ranks are not the servers'; processor times "
            "hold. "
            f"{'; '.join(bound)}."
        )
    unknown = [scene.scenario.name for scene in scenes if scene.ceiling is None and _works_hard(scene)]
    if unknown:
        yield f"No null server was measured, so the generator's own limit is unknown: {', '.join(unknown)}."
    failing = [
        f"{scene.scenario.name}: {', '.join(f'{cell.label} {_beyond(cell)}' for cell in failing)}"
        for scene in scenes
        if (failing := [cell for cell in scene.measured if cell.failed_share > _FAILED_MAX])
    ]
    if failing:
        yield f"Where more than 1 % of the requests failed there is no rank. {'; '.join(failing)}."
    different = [f"{scene.scenario.name}: {lengths}" for scene in scenes if (lengths := _bodies(scene))]
    if different:
        yield f"The bodies of the answers differ in length. {'. '.join(different)}."
    yield from _machine(header, rounds)
    yield from _equals(header, scenes)


def _beyond(cell: Cell) -> str:
    return show_share_beyond(cell.failed_share, _FAILED_MAX)


def _works_hard(scene: Scene) -> bool:
    """Return whether the generator does so much that it may be near its limit."""
    used = [each.generator.get("used") or 0.0 for cell in scene.measured for each in cell.rounds]
    return not scene.is_open and max(used, default=0.0) > BUSY / 2


def _bodies(scene: Scene) -> str:
    """Return a sentence about the lengths of the responses, if they differ. A chunked sample includes the chunk
    headers, so it is not compared."""
    bodies: dict[int, list[str]] = {}
    for cell in scene.measured:
        sample = next((each.response for each in cell.rounds if each.response.get("body") is not None), None)
        if sample is not None and not any(
            str(pair[0]).lower() == "transfer-encoding" for pair in sample.get("fields") or ()
        ):
            bodies.setdefault(int(sample["body"]), []).append(cell.label)
    if len(bodies) < 2:
        return ""
    return "; ".join(f"{size:,} bytes from {', '.join(names)}" for size, names in sorted(bodies.items()))


def _machine(header: Header, rounds: Sequence[Round]) -> Iterable[str]:
    stolen = [each.machine.get("steal", 0.0) for each in rounds]
    robbed = [share for share in stolen if share > _STEAL_MAX]
    if robbed:
        yield (
            f"In {plural(len(robbed), 'round')} of {len(stolen):,} the hypervisor took more than {_STEAL_MAX:.0%} of "
            f"the processors' time for other machines: {'' if len(robbed) == 1 else 'up to '}"
            f"{show_share_beyond(max(robbed), _STEAL_MAX)}."
        )
    troubles: dict[str, int] = {}
    for each in rounds:
        for trouble in each.generator.get("troubles") or ():
            # "was kept waiting for a processor for 7% of the time": the kind is enough.
            kind = "was kept waiting for a processor" if "waiting" in trouble else ""
            if kind:
                troubles[kind] = troubles.get(kind, 0) + 1
    for kind, count in troubles.items():
        yield f"In {plural(count, 'round')} of {len(rounds):,} the generator {kind} by others."
    governor = (header.environment.get("cpu") or {}).get("governor")
    if governor and governor != "performance":
        yield f"The processors' governor is {governor!r}: their speed follows the load."


def _equals(header: Header, scenes: Sequence[Scene]) -> Iterable[str]:
    """Of an A/A survey: how often equals were called different."""
    families: dict[str, set[Key]] = {}
    for each in header.subjects:
        if each.same_as:
            families.setdefault(each.same_as, set()).add((each.server, each.python))
    made = called = 0
    for scene in scenes:
        for family in families.values():
            for first, second in itertools.combinations([each for each in scene.measured if each.key in family], 2):
                for ranks in ((first.rate_rank, second.rate_rank), (first.processor_rank, second.processor_rank)):
                    if ranks[0] is not None and ranks[1] is not None:
                        made += 1
                        called += ranks[1].key not in ranks[0].same
    if made:
        yield (
            f"Equals beside each other: in {called} of {plural(made, 'comparison')} a server was called different from "
            f"itself, where {statistics.ERROR:.0%} may be."
        )
