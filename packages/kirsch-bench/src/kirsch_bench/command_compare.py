"""``kirsch bench compare A.json B.json``: two results side by side, for people and for CI."""

from __future__ import annotations

import argparse
import datetime
import re
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from kirsch import reports
from kirsch_bench import compare as comparing
from kirsch_bench import errors
from kirsch_bench.errors import UsageError
from kirsch_bench.files import Files
from kirsch_bench.show import plural, show_columns, show_seconds
from kirsch_bench.survey import statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench.compare import Compared, Row, Run

HELP = """\
usage: kirsch bench compare [options] A.json B.json

Puts two results of the same plan side by side, with what may be called
different. A.json and B.json are reports of `kirsch bench --json`; several runs
of a side are named with commas between, and paired in their order:

  kirsch bench --json a1.json :8000/ ...
  kirsch bench compare a1.json b1.json
  kirsch bench compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json

  --fail-if-slower [METRIC:]SHARE
                  exit status 1 where B is slower than A by more than this
                  share, beyond chance: 5%, or p99:10%. METRIC is rate, p50,
                  p90, p99, p99.9, max, mean, processor or errors; without one
                  it is the rate, or with
                  --rate p50. Repeat it for several
  --json FILE     the comparison as data; - is standard output
  -h, --help      this

Fewer than three runs on each side are compared by windows of each run: that
tells these runs apart, not the servers.

Exit status: 0 when all went well, 1 where --fail-if-slower found something, 2
when the command line or a file is wrong or the two are of different plans."""

_NAMES = tuple(each.name for each in comparing.METRICS)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"compare: {message}; kirsch bench compare --help tells more")


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit status. Raises Failure."""
    parser = _Parser(prog="kirsch bench compare", add_help=False, allow_abbrev=False)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--fail-if-slower", action="append", default=[], type=_limit)
    parser.add_argument("--json")
    parser.add_argument("-h", "--help", action="store_true")
    given = parser.parse_args(list(argv))
    if given.help:
        Files({}).answer(HELP)
        return errors.OK
    if len(given.files) != 2:
        raise UsageError("compare: name two reports, A.json and B.json; kirsch bench compare --help tells more")
    files = Files({"json": given.json} if given.json else {})
    first, second = ([comparing.read(path) for path in side.split(",") if path] for side in given.files)
    if not first or not second:
        raise UsageError("compare: a side has no report; kirsch bench compare --help tells more")
    compared = comparing.compare(first, second)
    default = "p50" if compared.is_open else "rate"
    slower = [
        verdict
        for name, limit in given.fail_if_slower
        if (verdict := _slower(compared.row(name or default), limit, compared)) is not None
    ]
    files.answer(text(compared))
    files.write_json(document(compared, slower))
    for each in slower:
        reports.write_stderr(f"kirsch bench compare: {each}")
    return errors.ERRORS_SEEN if slower or files.failed else errors.OK


def _limit(text_: str) -> tuple[str, float]:
    match = re.fullmatch(r"(?:([a-z][a-z0-9.]*):)?(\d+(?:\.\d+)?)(%?)", text_)
    if match is None or (match[1] and match[1] not in _NAMES):
        raise argparse.ArgumentTypeError(f"{text_!r} is no limit; write 5% or METRIC:5%, of {', '.join(_NAMES)}")
    return match[1] or "", float(match[2]) / (100 if match[3] else 1)


def _slower(row: Row, limit: float, compared: Compared) -> str | None:
    """Return why a row is slower than its limit allows; None if it is not. Raises UsageError if that is unknown."""
    name = row.metric.name
    if row.p is None and name != "errors":
        if row.first is None or row.second is None:
            raise UsageError(f"--fail-if-slower: the two results do not both have {_title(row)}")
        if not compared.by_runs:
            need = f"name {comparing.RUNS_MIN} runs of each side, or make the run longer"
            raise UsageError(f"--fail-if-slower: {_title(row)} of one run cannot be tested; {need}")
    if name == "errors":
        more = (row.second or 0.0) - (row.first or 0.0)
        return f"errors went up by {more:.3%}, more than {limit:.3%}" if row.different and more > limit else None
    if row.different and row.slower_by > limit:
        return f"{_title(row)} is {row.slower_by:.1%} worse, more than {limit:.1%}"
    return None


# -------------------------------------------------------------------------------------------------------------- telling


def text(compared: Compared) -> str:
    """Return the comparison as text for a terminal."""
    rows = [["", "A", "B", "B to A", "95 % interval", ""]]
    rows += [_cells(row) for row in compared.rows if row.first is not None or row.second is not None]
    blocks = [
        "\n".join([_side("A", compared.first), _side("B", compared.second)]),
        show_columns(rows, left=(0, 5), indent="  "),
        _basis(compared),
    ]
    if compared.warnings:
        blocks.append("\n".join(["Warnings", *(f"  {warning}" for warning in compared.warnings)]))
    return "\n\n".join(blocks)


def _side(name: str, runs: Sequence[Run]) -> str:
    began = datetime.datetime.fromtimestamp(runs[0].result["started"], datetime.timezone.utc)
    paths = ", ".join(run.path for run in runs)
    kirsch = runs[0].document["environment"].get("kirsch", "?")
    return f"{name}  {paths}: {runs[0].document['target']}, {began:%Y-%m-%d %H:%M} UTC, by kirsch bench {kirsch}"


def _title(row: Row) -> str:
    return {"processor": "server's processor time", "errors": "errors"}.get(row.metric.name, row.metric.name)


def _cells(row: Row) -> list[str]:
    def value(number: float | None) -> str:
        if number is None:
            return "-"
        if row.metric.unit == "rate":
            return f"{number:,.1f}/s"
        return f"{number:.3%}" if row.metric.unit == "share" else show_seconds(number)

    change, interval = "-", "-"
    if row.ratio is not None and row.metric.unit != "share":
        change = _percent(row.ratio.value)
        if row.ratio.interval is not None:
            interval = f"{_percent(row.ratio.interval[0])} to {_percent(row.ratio.interval[1])}"
    return [_title(row), value(row.first), value(row.second), change, interval, _verdict(row)]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 11 else f"x {ratio:.3g}"


def _verdict(row: Row) -> str:
    if row.p is None:
        return "none" if row.metric.name == "errors" and not (row.first or row.second) else "not tested"
    if not row.different:
        return "not told apart"
    worse = (row.second or 0.0) > (row.first or 0.0) if row.metric.name == "errors" else row.slower_by > 0
    return "B is worse" if worse else "B is better"


def _basis(compared: Compared) -> str:
    needed = comparing.RUNS_MIN
    if compared.by_runs:
        verdict = (
            f"{plural(compared.pairs, 'pair')} of runs. Of all that is called better or worse, 5 in 100 may be chance."
        )
    elif len(compared.first) > 1:
        verdict = f"{len(compared.first)} runs of each side are too few to tell anything apart: name {needed}."
    elif not compared.pairs:
        verdict = f"Too short to tell anything apart: measure longer, or name {needed} runs of each side."
    else:
        verdict = (
            f"By {plural(compared.pairs, 'window')} of each run: that tells these two runs apart. Two runs of one "
            f"server can differ by more. To compare servers, measure each {needed} times or more, in turns, and name "
            "the runs with commas between."
        )
    return textwrap.fill(f"{verdict} A difference below {statistics.LEAST:.0%} is not called one.", 110)


def document(compared: Compared, slower: Sequence[str]) -> dict[str, Any]:
    """Return the document for ``--json``."""
    return {
        "schema": "kirsch-bench-compare-1",
        "a": [run.path for run in compared.first],
        "b": [run.path for run in compared.second],
        "by": "runs" if compared.by_runs else "windows",
        "pairs": compared.pairs,
        "metrics": [row.as_json() for row in compared.rows],
        "slower": list(slower),
        "warnings": list(compared.warnings),
    }
