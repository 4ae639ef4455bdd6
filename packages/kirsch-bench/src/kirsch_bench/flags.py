"""The flags of ``kirsch bench``, and parsers of their values."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from kirsch.config.values import parse_duration
from kirsch_bench.errors import UsageError
from kirsch_bench.profiles import PROFILES
from kirsch_bench.requests import parse_statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HELP = """\
usage: kirsch bench [options] URL
       kirsch bench [options] FILE.py:Class.test
       kirsch bench compare [options] A.json B.json

Measures an HTTP server. URL is http://host:port/path, https://host:port/path,
host:port/path or unix:/run/app.sock:/path. The second form runs a load test
in Python, a subclass of kirsch_bench.LoadTest, for virtual users. The third
puts two results of --json side by side; kirsch bench compare --help tells more.

How much
  -c, --connections N     so many clients, each of which waits for its answer
                          and asks again (10)
  -R, --rate N            instead: N requests a second, whether or not the
                          server keeps up; latency counts from when each was to
                          be sent
  --stages LIST           instead: 30s:100,1m:500,30s:0 raises the rate evenly
                          from --rate (0) to 100 a second within 30 seconds,
                          then to 500 within a minute, then down to 0
  --replay FILE           instead: the requests of a HAR file or an access log,
                          each at its recorded time; --speed 2 sends them twice
                          as fast, --replay-host NAME chooses one of several
                          recorded hosts
  --arrivals HOW          constant or poisson (constant)
  --max-connections N     bounds the connections of --rate (1000); what finds
                          none in time is dropped, and counted
  -z, --duration TIME     10s if there is no -n
  -n, --requests N        until N are answered
  --warmup TIME or N      not measured, so long or so many (1s with -z, nothing
                          with -n)
  --think TIME            each client's pause between answer and request;
                          --thinking exponential spreads it
  --pipeline N            requests under way on a connection (1); with --rate,
                          before another one is opened
  -p, --processes N       that make the load (1)
  --on HOSTS              make the load on host1,user@host2, each with
                          --processes, which begin together; they are reached
                          by --ssh COMMAND (ssh) and have the same version of
                          kirsch-bench; --remote-kirsch COMMAND (kirsch) is how
                          it is called there
  --kubernetes N --image IMAGE
                          print a Job with N pods for --on, and how to use it
  --timeout TIME          for one request (30s)
  --seed N                for all that is left to chance (0)
  --slo OBJECTIVES        find the highest rate that holds p99<20ms, or
                          p99<20ms,p99.9<100ms,errors<0.1%; each step takes the
                          --duration (5s), the first one asks at the --rate
                          (100)
  --fail-if CONDITION     fail with exit status 4 if 'p99 > 50ms' or
                          'errors > 0.1%' at the end; 'p99 > 50ms abort after
                          10s' also ends the run early; may be given more than
                          once
  --slo-precision SHARE   how near the rate found and the one that fails are
                          (5%)
  --max-rate N            as far as --slo goes

The request
  --headers PROFILE       ab, curl, chrome, api or cookies (curl)
  -H, --header LINE       'Name: value' in place of the profile's; 'Name:' takes
                          it away
  -X, --method METHOD     GET, or POST with a body
  -d, --data TEXT         a body, or @FILE
  --requests-file FILE    a request on each line: PATH, METHOD PATH, or a JSON
                          object with method, path, headers, body, weight,
                          status; in turn, or with --draw at random by weight
  --keep-alive HOW        on, off, or N requests on a connection (on)
  --http VERSION          1.1, 1.0 or 2 (1.1)
  --http2                 the same as --http 2: by prior knowledge, and with
                          https:// by ALPN
  --streams N             requests under way on a connection of HTTP/2 (1); with
                          --rate, before another one is opened
  --ca-certs FILE         the authorities that https:// trusts, in PEM (the
                          system's)
  --insecure              trust any certificate
  --unix-socket PATH      connect there, whatever the URL says
  --i-own-this-host       load an address that is not loopback, private or
                          link-local

What is expected
  --status LIST           200, 2xx, 400-404 and the like, with commas (2xx,3xx)
  --length N              of the body: a number, first (as the first answer's,
                          the default) or any
  --sha256 HEX            of the body: a digest, first (the default) or any
  --varying               the same as --length any --sha256 any, for pages that
                          are never the same

The report
  --ab                    ApacheBench's report in place of ours
  --json FILE             everything; - is standard output
  --html FILE             a page with plots that needs no other file
  --hdr FILE              HdrHistogram's log
  -q, --quiet             no progress

As others have it
  --host H:P --workers N --max N --warmup N        asynchammer: N processes with
                                                   10 clients each, Chrome's
                                                   headers, no
                          keep-alive, of --max requests the first --warmup not
                          measured
  --thread-report [LIST]  ab -k in one table for so many clients
                          (25,50,100,200,400); -n for each (3000)
  --size-report [LIST]    the same for bodies of so many bytes
                          (10,100,1000,10000,100000,1000000) and -c clients
                          (50); the URL has {size} where the number goes, or
                          gets ?size=N
  --server-threads N      for the heading of both: the server's threads
  --generator WHICH       for both: ab, kirsch, or auto, which is ab where it is
                          installed

Load tests in Python
  --cycles 1:10:20:50     one after another with so many users (-c for one)
  --url URL               in place of the class's
  --sleep MIN:MAX         a user's pause after each page, in seconds (0:0)
  --startup-delay TIME    between the users' starts (10ms)
  --apdex TIME            what satisfies (1.5s)
  -z, --warmup TIME, -p, --seed, --json, --html, -q and --i-own-this-host as
  above

Exit status: 0 when all went well, 1 when there were errors, 2 when the command
line is wrong, 3 when there is no server, 4 when a condition of --fail-if became
true, 130 after Ctrl-C, which ends a run and reports what it has."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; kirsch bench --help tells more")


def parse(argv: Sequence[str]) -> dict[str, Any]:
    """Return the given flags by name, with parsed values; other flags are missing. Raises UsageError."""
    parser = _Parser(prog="kirsch bench", add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flags, options in _FLAGS:
        parser.add_argument(*flags, **options)
    parser.add_argument("target", nargs="?")
    given = vars(parser.parse_args(list(argv)))
    for name in ("thread_report", "size_report"):
        if isinstance(given.get(name), str):
            # The list of this flag is optional, so argparse took the URL after it for the list.
            if "target" in given and given["target"] is not None:
                wrong = f"{given[name]!r} is no list of numbers; write 1,10,20"
                raise UsageError(f"argument --{name.replace('_', '-')}: {wrong}; kirsch bench --help tells more")
            given["target"], given[name] = given[name], []
    return given


def _type(parse_text: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser in the form of argparse, whose error message contains the text."""

    def parse_argument(text: str) -> Any:
        try:
            return parse_text(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} {error}") from None

    return parse_argument


def _count(least: int = 1) -> Callable[[str], int]:
    def parse_count(text: str) -> int:
        plain = text.replace("_", "").replace(",", "")
        if not (plain.isascii() and plain.isdigit() and len(plain) <= 12):
            raise ValueError("is not a whole number")
        if int(plain) < least:
            raise ValueError(f"is too little; {least} is the least")
        return int(plain)

    return parse_count


def _rate(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)(/s)?", text.replace(",", ""), re.ASCII | re.IGNORECASE)
    if match is None or not 0 < float(match[1]) <= 1e7:
        raise ValueError("is not a rate; write requests a second, as 500, 0.5 or 20k")
    return float(match[1]) * (1000 if match[2] else 1)


def _speed(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)x?", text, re.ASCII)
    if match is None or not 1e-3 <= float(match[1]) <= 1e6:
        raise ValueError("is no speed; write 2 for twice the recorded pace, or 0.5 for half of it")
    return float(match[1])


def _time(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("is no time; write 90, 90s, 5m, 1h30m or 500ms")
    return seconds


def _warmup(text: str) -> tuple[str, float]:
    if text.isascii() and text.isdigit():
        return "requests", int(text)
    try:
        return "seconds", parse_duration(text)
    except ValueError:
        raise ValueError("is neither a number of requests nor a time such as 5s") from None


def _keep_alive(text: str) -> bool | int:
    if text in ("on", "off"):
        return text == "on"
    try:
        return _count()(text)
    except ValueError:
        raise ValueError("is none of on, off and a number of requests") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    # RFC 9110 sections 5.1 and 5.5.
    if not colon or not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
        raise ValueError("is no header; write 'Name: value'")
    if not re.fullmatch(r"[\t -~\x80-\xff]*", value):
        raise ValueError("has a character that no header has")
    return name, value.strip(" \t")


def _length(text: str) -> str | int | None:
    return _first_or_any(text) if text in ("first", "any") else _count(0)(text)


def _sha256(text: str) -> str | None:
    if text in ("first", "any"):
        return _first_or_any(text)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("is none of first, any and 64 hexadecimal digits")
    return text.lower()


def _first_or_any(text: str) -> str | None:
    return "first" if text == "first" else None


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text, re.ASCII)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.001 <= share <= 1:
        raise ValueError("is no precision; write 5%, or anything from 0.1% to 100%")
    return share


def _numbers(separator: str) -> Callable[[str], list[int]]:
    def parse_numbers(text: str) -> list[int]:
        try:
            return [_count()(part.strip()) for part in text.split(separator)]
        except ValueError:
            raise ValueError(f"is no list of numbers; write {separator.join(('1', '10', '20'))}") from None

    return parse_numbers


def _numbers_or_url(text: str) -> list[int] | str:
    """Parse the value of a flag with an optional list: text that looks like a URL is the next argument."""
    return text if re.search(r"[:/]", text) else _numbers(",")(text)


def _sleep(text: str) -> tuple[float, float]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?::(\d+(?:\.\d+)?))?", text, re.ASCII)
    if match is None or float(match[2] or match[1]) < float(match[1]):
        raise ValueError("is no pause; write seconds, as 0.5 or 0.5:2")
    return float(match[1]), float(match[2] or match[1])


def _word(*words: str) -> Callable[[str], str]:
    def parse_word(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return text

    return parse_word


def _flag(
    *flags: str, parse: Callable[[str], Any] | None = None, **options: Any
) -> tuple[tuple[str, ...], dict[str, Any]]:
    return flags, {**({"type": _type(parse)} if parse is not None else {}), **options}


# Also used by other commands.
count, flag, header, rate, time = _count, _flag, _header, _rate, _time

_SWITCH: dict[str, Any] = {"action": "store_true"}

_FLAGS = (
    _flag("-h", "--help", **_SWITCH),
    _flag("-c", "--connections", parse=_count()),
    _flag("-R", "--rate", parse=_rate),
    _flag("--stages"),
    _flag("--replay"),
    _flag("--speed", parse=_speed),
    _flag("--replay-host"),
    _flag("--arrivals", parse=_word("constant", "poisson")),
    _flag("--max-connections", parse=_count()),
    _flag("-z", "--duration", parse=_time),
    _flag("-n", "--requests", parse=_count()),
    _flag("--warmup", parse=_warmup),
    _flag("--think", parse=parse_duration),
    _flag("--thinking", parse=_word("constant", "exponential")),
    _flag("--pipeline", parse=_count()),
    _flag("-p", "--processes", parse=_count()),
    _flag("--on"),
    _flag("--ssh"),
    _flag("--remote-kirsch"),
    _flag("--kubernetes", parse=_count()),
    _flag("--image"),
    _flag("--timeout", parse=_time),
    _flag("--seed", parse=_count(0)),
    _flag("--slo"),
    _flag("--fail-if", action="append"),
    _flag("--slo-precision", parse=_share),
    _flag("--max-rate", parse=_rate),
    _flag("--headers", parse=_word(*PROFILES)),
    _flag("-H", "--header", parse=_header, action="append"),
    _flag("-X", "--method"),
    _flag("-d", "--data"),
    _flag("--requests-file"),
    _flag("--draw", **_SWITCH),
    _flag("--keep-alive", "--keepalive", parse=_keep_alive),
    _flag("--http", parse=_word("1.1", "1.0", "2")),
    _flag("--http2", dest="http", action="store_const", const="2"),
    _flag("--streams", parse=_count()),
    _flag("--ca-certs"),
    _flag("--insecure", **_SWITCH),
    _flag("--unix-socket"),
    _flag("--i-own-this-host", **_SWITCH),
    _flag("--status", parse=parse_statuses),
    _flag("--length", parse=_length),
    _flag("--sha256", parse=_sha256),
    _flag("--varying", **_SWITCH),
    _flag("--ab", **_SWITCH),
    _flag("--json"),
    _flag("--html"),
    _flag("--hdr"),
    _flag("-q", "--quiet", **_SWITCH),
    _flag("--host"),
    _flag("--workers", parse=_count()),
    _flag("--max", parse=_count()),
    _flag("--thread-report", parse=_numbers_or_url, nargs="?", const=[]),
    _flag("--size-report", parse=_numbers_or_url, nargs="?", const=[]),
    _flag("--server-threads", parse=_count()),
    _flag("--generator", parse=_word("auto", "ab", "kirsch")),
    _flag("--cycles", parse=_numbers(":")),
    _flag("--url"),
    _flag("--sleep", parse=_sleep),
    _flag("--startup-delay", parse=parse_duration),
    _flag("--apdex", parse=_time),
)

COMMON = frozenset({"target", "json", "html", "quiet", "i_own_this_host", "processes", "seed"})

USERS = COMMON | {"connections", "duration", "warmup", "cycles", "url", "sleep", "startup_delay", "apdex"}
"""The flags that a load test in Python accepts."""

THREAD_REPORT = frozenset(
    {"target", "thread_report", "server_threads", "generator", "requests", "quiet", "i_own_this_host", "unix_socket"}
)

KUBERNETES = frozenset({"target", "kubernetes", "image"})

SIZE_REPORT = THREAD_REPORT - {"thread_report"} | {"size_report", "connections"}

LOAD = frozenset(
    name
    for flags, _ in _FLAGS
    for name in [next(flag for flag in flags if flag.startswith("--"))[2:].replace("-", "_")]
    if name not in ("cycles", "url", "sleep", "startup_delay", "apdex")
    and name not in ("thread_report", "size_report", "server_threads", "generator", "kubernetes", "image")
) | {"target"}
"""The flags that a URL accepts."""


def require_flags(given: dict[str, Any], allowed: frozenset[str], what: str) -> None:
    """Check that flags have a meaning together with ``what``. Raises UsageError."""
    for name in given:
        if name not in allowed:
            raise UsageError(f"--{name.replace('_', '-')} means nothing with {what}")
