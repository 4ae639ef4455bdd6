"""``kirsch survey``: read the command line and the file, install, measure round by round, report."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kirsch import reports
from kirsch_bench import errors
from kirsch_bench.environment import capture
from kirsch_bench.errors import Failure, UsageError
from kirsch_bench.files import Files
from kirsch_bench.progress import Display
from kirsch_bench.survey import example, historical, records, runner, spec, store, subjects
from kirsch_bench.survey.processors import choose
from kirsch_bench.survey.progress import Progress
from kirsch_bench.survey.rounds import is_hopeless, turns
from kirsch_bench.survey.venvs import Venvs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kirsch_bench.survey.processors import Processors
    from kirsch_bench.survey.spec import Survey
    from kirsch_bench.survey.subjects import Ready

HELP = """\
usage: kirsch survey [options] FILE

Measures HTTP servers side by side: starts each in a virtual environment of its
own, on processors of its own, in turns and rounds, and reports with intervals
and ranks. FILE is TOML: servers, scenarios, rounds; `kirsch survey --example`
prints one with all that it can say.

  kirsch survey --example >survey.toml
  kirsch survey survey.toml

What is measured
  --only NAMES            these servers alone, with commas between
  --scenario NAMES        these scenarios alone
  -p, --python PYTHON     under this interpreter: 3.13, pypy3 or a path; repeat
                          it for several (the file's pythons, or the one that
                          runs this)
  -r, --rounds N          in place of the file's
  -s, --seconds TIME      of load in each round, in place of the file's
  --aa N                  each server N times as if it were N servers: what
                          differs then is an error of measuring

Where things are
  -o, --out FOLDER        for the results (the FILE's name with -results, here):
                          rounds.jsonl, to which each round is added, and the
                          reports. What is there already is not measured again.
  --again                 throw away what is there, and begin anew
  --venvs FOLDER          for the virtual environments, which are kept
                          (~/.cache/kirsch/survey)

Instead of measuring
  --list                  which servers can take part, and why others cannot
  --report                write the reports anew from what is there
  --example               print a file to begin with

  -q, --quiet             no progress
  -h, --help              this

Ctrl-C ends it and reports what it has; the same command goes on from there.

Exit status: 0 when all went well, 1 when a round failed or something could not
be written, 2 when the command line or the file is wrong, 130 after Ctrl-C."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; kirsch survey --help tells more")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: the arguments of the process); return its exit status."""
    try:
        with _ended_by_signals():
            return _run(_parse(sys.argv[1:] if argv is None else argv))
    except Failure as failure:
        for line in str(failure).splitlines():
            reports.write_stderr(f"kirsch survey: {line}")
        return failure.status
    except KeyboardInterrupt:
        return errors.INTERRUPTED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="kirsch survey", add_help=False, allow_abbrev=False)
    parser.add_argument("file", nargs="?")
    for flags, options in _FLAGS:
        parser.add_argument(*flags, **options)
    return parser.parse_args(list(argv))


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    from kirsch.config.values import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
    if seconds < 0.1:
        raise argparse.ArgumentTypeError(f"{text!r} is too short; 100ms is the least")
    return seconds


_SWITCH: dict[str, Any] = {"action": "store_true"}

_FLAGS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--only",), {"type": _names, "default": frozenset()}),
    (("--scenario",), {"type": _names, "default": frozenset()}),
    (("-p", "--python"), {"action": "append", "default": []}),
    (("-r", "--rounds"), {"type": _count}),
    (("-s", "--seconds"), {"type": _seconds}),
    (("--aa",), {"type": _count}),
    (("-o", "--out"), {}),
    (("--again",), _SWITCH),
    (("--venvs",), {"default": ""}),
    (("--list",), _SWITCH),
    (("--report",), _SWITCH),
    (("--example",), _SWITCH),
    (("-q", "--quiet"), _SWITCH),
    (("-h", "--help"), _SWITCH),
)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A context manager during which SIGTERM and SIGHUP act like Ctrl-C, so that servers are ended and the report is
    written."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _run(given: argparse.Namespace) -> int:
    if given.help or given.example:
        Files({}).answer(HELP if given.help else example.TEXT.rstrip())
        return errors.OK
    if not given.file:
        raise UsageError("which file? `kirsch survey --example` prints one to begin with; --help tells more")
    survey = _survey(given)
    _historical(survey)  # read now, to report a mistake before anything is installed
    folder = given.out or f"{survey.name}-results"
    if given.report:
        return _report_again(folder)
    venvs = Venvs(given.venvs)
    candidates = subjects.candidates(survey, given.python)
    if given.list:
        return _list(candidates, venvs)
    display = Display(quiet=given.quiet)
    processors = choose(survey.processors, max(each.workers for each in survey.servers))
    kept = store.Store(folder)
    try:
        return _measure(survey, candidates, processors, venvs, kept, display, again=given.again)
    finally:
        kept.close()


def _survey(given: argparse.Namespace) -> Survey:
    survey = spec.read(given.file)
    if given.aa:
        survey = survey.doubled(given.aa)
    survey = survey.limited(given.only, given.scenario)
    changed = {name: getattr(given, name) for name in ("rounds", "seconds") if getattr(given, name) is not None}
    return dataclasses.replace(survey, **changed)


def _list(candidates: Sequence[subjects.Candidate], venvs: Venvs) -> int:
    rows = [("SERVER", "PYTHON", "ADAPTER", "CAN RUN")]
    for each in candidates:
        can = f"no: {each.absent}" if each.absent else "yes"
        if not each.absent and each.in_venv and each.interpreter is not None:
            is_ready = venvs.is_ready(each.interpreter, each.requirements)
            what = (
                f"pip has installed {' '.join(each.requirements)}" if each.requirements else "its environment is made"
            )
            can += "" if is_ready else f", once {what}"
        rows.append((each.server.name, each.python or "-", each.server.adapter, can))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(row[column].ljust(widths[column]) for column in range(3)), row[3]]) for row in rows]
    Files({}).answer("\n".join(lines))
    return errors.OK


def _report_again(folder: str) -> int:
    header, rounds, remark = store.load(folder)
    if remark:
        reports.write_stderr(f"kirsch survey: {remark}")
    return _report(header, rounds, folder)


# ------------------------------------------------------------------------------------------------------------ measuring


def _measure(
    survey: Survey,
    candidates: Sequence[subjects.Candidate],
    processors: Processors,
    venvs: Venvs,
    kept: store.Store,
    display: Display,
    *,
    again: bool,
) -> int:
    ready = _prepared(survey, candidates, venvs, display)
    if all(each.subject.absent or each.candidate is None for each in ready):
        _tell_absent(ready, display)
        raise Failure("none of the servers can run here")
    header, rounds = kept.begin(_header(survey, ready, processors), again=again)
    if kept.remark:
        display.say(f"kirsch survey: {kept.remark}")
    _tell_absent(ready, display)
    if processors.remark:
        display.say(f"note: {processors.remark}")
    before = len(rounds)
    planned = [turn.key for turn in turns(survey, ready)]
    there = len(planned) - len(store.missing(planned, rounds))
    if there:
        display.say(f"{there} of {len(planned)} rounds are there already, in {kept.path}")
    status = errors.OK
    try:
        _take_turns(survey, ready, processors, kept, rounds, display)
    except KeyboardInterrupt:
        status = errors.INTERRUPTED
        display.clear()
        reports.write_stderr(
            f"kirsch survey: interrupted; {len(rounds)} rounds are kept, and the same command goes on from there"
        )
    except Failure:
        if len(rounds) > before:
            _report(header, rounds, kept.folder)
        raise
    if rounds:
        reported = _report(header, rounds, kept.folder)
        status = status or reported
    return status


def _prepared(survey: Survey, candidates: Sequence[subjects.Candidate], venvs: Venvs, display: Display) -> list[Ready]:
    found = [subjects.null()] if survey.null else []
    for number, candidate in enumerate(candidates, 1):
        display.show(f"preparing {candidate.server.name}, {number} of {len(candidates)}")
        found.append(subjects.prepare(candidate, venvs, display.say))
    display.clear()
    return [_with_command(each, survey) for each in found]


def _with_command(ready: Ready, survey: Survey) -> Ready:
    """Return ``ready`` with its start command, for the records."""
    scenario = next((each for each in survey.scenarios if ready.takes_part(each)), None)
    if ready.subject.absent:
        return ready
    if scenario is None:
        absent = "the scenarios ask for nothing that it can serve"
        return dataclasses.replace(ready, subject=dataclasses.replace(ready.subject, absent=absent))
    command = runner.command_of(ready, scenario)
    return dataclasses.replace(ready, subject=dataclasses.replace(ready.subject, command=command))


def _tell_absent(ready: Sequence[Ready], display: Display) -> None:
    for each in ready:
        if each.subject.absent:
            display.say(f"{each.name} takes no part: {each.subject.absent}")


def _header(survey: Survey, ready: Sequence[Ready], processors: Processors) -> records.Header:
    return records.Header(
        title=survey.title or survey.name,
        about=survey.about,
        seed=survey.seed,
        rounds=survey.rounds,
        seconds=survey.seconds,
        warmup=survey.warmup,
        subjects=tuple(each.subject for each in ready),
        scenarios=tuple(each.record for each in survey.scenarios),
        environment={**capture(), "processors": processors.as_json()},
        historical=_historical(survey),
    )


def _historical(survey: Survey) -> dict[str, Any] | None:
    """Return the tables of an earlier measurement, if the file names any. Raises UsageError."""
    return historical.load(survey.historical) if survey.historical else None


def _take_turns(
    survey: Survey,
    ready: Sequence[Ready],
    processors: Processors,
    kept: store.Store,
    rounds: list[records.Round],
    display: Display,
) -> None:
    there = {(each.server, each.python, each.scenario, each.round) for each in rounds}
    left = [turn for turn in turns(survey, ready) if turn.key not in there]
    progress = Progress(display, survey, len(left))
    conditions = runner.Conditions(survey, processors, progress.loading)
    for index, turn in enumerate(left):
        progress.begin(turn)
        is_first = not any(each.server == turn.key[0] and each.python == turn.key[1] for each in rounds)
        why = is_hopeless(turn, rounds)
        if why:
            lost = f"not tried again: {why.removeprefix('not tried again: ')}"
            measured = records.Round(*turn.key, started=time.time(), failure=lost)
        else:
            ceiling = _ceiling(turn.key, rounds)
            measured = runner.measure(
                turn.ready, turn.scenario, turn.number, conditions, idle=is_first, ceiling=ceiling
            )
        kept.add(measured)
        rounds.append(measured)
        progress.end(turn, measured)
        if index + 1 < len(left) and not why:
            runner.cool_down(survey.cooldown)
    display.clear()


def _ceiling(key: tuple[str, str, str, int], rounds: Sequence[records.Round]) -> float | None:
    """Return the rate of the null server in the same round and scenario."""
    if key[0] == spec.NULL:
        return None
    found = [each.rate for each in rounds if (each.server, each.scenario, each.round) == (spec.NULL, *key[2:])]
    return found[0] if found and found[0] else None


def _report(header: records.Header, rounds: Sequence[records.Round], folder: str) -> int:
    """Print the text report, write the others to the folder; return the exit status."""
    from kirsch_bench.survey import report

    Files({}).answer(report.text(header, rounds))
    try:
        written = report.write(header, rounds, Path(folder))
    except OSError as error:
        reports.write_stderr(f"kirsch survey: cannot write {error.filename or folder}: {error.strerror}")
        return errors.ERRORS_SEEN
    Files({}).answer(f"\nwritten: {', '.join(map(str, written))}")
    return errors.ERRORS_SEEN if any(each.failure or each.failed for each in rounds) else errors.OK
