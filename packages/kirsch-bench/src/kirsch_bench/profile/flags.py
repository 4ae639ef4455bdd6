"""The flags of ``kirsch profile``; all other arguments belong to the server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from kirsch.config.setting import UsageError
from kirsch.config.sources import positionals
from kirsch.config.values import parse_duration
from kirsch.profile.tree import ORDERS
from kirsch_bench import errors as bench_errors
from kirsch_bench import flags as bench_flags
from kirsch_bench.target import check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HELP = """\
usage: kirsch profile [options] module:app /path

Serves the application in this process, on a port of its own, as `kirsch
module:app` would with the same options; asks it for /path and tells where the
time goes: the stages of N requests in microseconds (read, parse, environ,
queue, app, write), without any tracer; and the calls of one more request, under
a tracer. It takes every option that
kirsch takes but -n, and:

How much
  -n, --requests N        the stages are of N requests (1000; 0: the calls
                          alone)
  --warmup N              requests before that, which do not count (100)
  --connections N         so many clients at a time (1)
  --threshold TIME        show calls that took so long (1ms); 0 shows all
  --patience TIME         an answer that takes longer is given up (30s)

The request
  -X, --method METHOD     GET, or POST with a body
  -H, --header LINE       'Name: value'
  -d, --data, --body TEXT a body, or @FILE

The report
  --rate N                the server's share of a worker's time at N requests a
                          second (500)
  --sort ORDER            of the calls below a call: order (as they came),
                          total, own or calls (order)
  --json FILE             everything; - is standard output
  --html FILE             a page that needs no other file
  --prof FILE             the calls, for pstats, snakeviz and the like
  -q, --quiet             no progress

Exit status: 0 when it was answered with 2xx or 3xx, 1 when it was answered with
an error, cut, or not at all in time (what was measured is told all the same), 2
when the command line or the settings are wrong, 3 when the application cannot
be had, 130 after Ctrl-C."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; kirsch profile --help tells more")


def parse(argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the flags of the profile, and the other arguments, which are the server's. Raises UsageError."""
    own, rest = list(argv), []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") :]
    parser = _Parser(prog="kirsch profile", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for names, options in _FLAGS:
        parser.add_argument(*names, **options)
    parsed, servers = parser.parse_known_args(own)
    given = vars(parsed)
    if "help" in given:
        return given, []
    paths = [index for index in positionals(servers) if servers[index].startswith("/")]
    if len(paths) != 1:
        said = f", and there are {len(paths)}: {' '.join(servers[index] for index in paths)}" if paths else ""
        words = [servers[index] for index in positionals(servers)]
        if not paths and len(words) == 2:
            raise UsageError(f"a path begins with a slash; did you mean `kirsch profile {words[0]} /{words[1]}`?")
        raise UsageError(f"one path is wanted{said}; name it, as in `kirsch profile hello:app /`")
    given["path"] = servers.pop(paths[0])
    try:
        check_path(given["path"], "the path")
    except bench_errors.UsageError as error:
        raise UsageError(str(error)) from None
    return given, servers + rest


def _order(text: str) -> str:
    if text not in ORDERS:
        raise ValueError(f"is not one of {', '.join(ORDERS)}")
    return text


def _nanoseconds(text: str) -> int:
    if text.endswith("us") and text[:-2].replace(".", "", 1).isdecimal():
        return round(float(text[:-2]) * 1000)
    return round(parse_duration(text) * 1e9)


def _flag(*names: str, parse: Callable[[str], Any] | None = None, **options: Any) -> tuple[tuple[str, ...], Any]:
    return bench_flags.flag(*names, parse=parse, **options)


_SWITCH: dict[str, Any] = {"action": "store_true"}

_FLAGS = (
    _flag("-h", "--help", **_SWITCH),
    _flag("-n", "--requests", parse=bench_flags.count(0)),
    _flag("--warmup", parse=bench_flags.count(0)),
    _flag("--connections", parse=bench_flags.count()),
    _flag("--threshold", parse=_nanoseconds),
    _flag("--patience", parse=bench_flags.time),
    _flag("-X", "--method"),
    _flag("-H", "--header", parse=bench_flags.header, action="append"),
    _flag("-d", "--data", "--body"),
    _flag("--rate", parse=bench_flags.rate),
    _flag("--sort", parse=_order),
    _flag("--json"),
    _flag("--html"),
    _flag("--prof"),
    _flag("-q", "--quiet", **_SWITCH),
)
