"""The syntax of rate limits (``--rate-limit``)."""

from __future__ import annotations

from kirsch.config import values
from kirsch.config.kinds import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RateLimit = tuple[str, str, int, float, int, str]
"""The prefix of the path (empty: any), the limit as it is written, requests (0: no limit), seconds, burst, and what
has a bucket of its own: ``client``, ``all`` or the name of a header field."""

_REQUESTS_MAX = 1_000_000_000


def parse_rate_limits(text: str) -> tuple[RateLimit, ...]:
    """Parse ``20/s`` or ``20/s, /login=5/m burst=3, /static=off``. Raises ValueError."""
    limits = []
    for part in filter(None, map(str.strip, text.split(","))):
        prefix, limit = "/", part
        if "=" in part.partition("/")[0] or part.startswith("/"):
            prefix, equals, limit = (each.strip() for each in part.partition("="))
            if not equals or not limit:
                raise ValueError(f"{part!r} lacks a limit; write {part.rstrip('= ')}=20/s")
        limits.append(_limit(prefix, limit))
    return tuple(limits)


def _limit(prefix: str, text: str) -> RateLimit:
    from kirsch.config.mounts import check_path

    try:
        path = check_path(prefix) if prefix != "/" else ""
    except ValueError as error:
        raise ValueError(f"{prefix!r} {error}") from None
    try:
        return (path, text, *_parse_limit(text))
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None


def _parse_limit(text: str) -> tuple[int, float, int, str]:
    rate, *options = text.split()
    if rate == "off" and not options:
        return (0, 0.0, 0, "all")
    count, slash, period = rate.partition("/")
    if not slash or not _is_count(count):
        raise ValueError("is not a rate; write 20/s, 100/m, 1000/h or off")
    seconds = values.parse_duration(f"1{period}" if period[:1].isalpha() else period)
    if not seconds:
        raise ValueError("is a rate in no time; write 20/s, 100/m or 1000/h")
    burst, scope = int(count), "client"
    for option in options:
        name, _, value = option.partition("=")
        if name == "burst" and _is_count(value):
            burst = int(value)
        elif option in ("by=client", "by=all"):
            scope = value
        elif name == "by" and value.startswith("header:"):
            scope = _field_name(value.removeprefix("header:"))
        else:
            raise ValueError(f"has the option {option!r}; write burst=5, by=client, by=all or by=header:X-Api-Key")
    return (int(count), seconds, burst, scope)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) <= _REQUESTS_MAX


def _field_name(text: str) -> str:
    name = text.lower()
    if not name or not all(each.isascii() and (each.isalnum() or each in "!#$%&'*+-.^_`|~") for each in name):
        raise ValueError(f"names {text!r}, which is not a header field")
    if name in ("client", "all"):
        raise ValueError(f"names the header field {text!r}, which has another meaning here")
    return name


def program_rate_limits(given: Any) -> tuple[RateLimit, ...]:
    """Convert a program's value (a text, several texts, or texts by prefix) to limits. Raises ValueError and
    TypeError."""
    if isinstance(given, str):
        return parse_rate_limits(given)
    limits: list[RateLimit] = []
    for each in given.items() if hasattr(given, "items") else given:
        if isinstance(each, str):
            limits += parse_rate_limits(each)
        elif isinstance(each, tuple) and len(each) >= 2 and all(isinstance(text, str) for text in each[:2]):
            limits.append(_limit(each[0] or "/", each[1]))
        else:
            raise TypeError(f"a limit is a text such as '20/s', or a prefix and a text, and not {each!r}")
    return tuple(limits)


_RATE: Kind[str] = Kind(str, "RATE")

RATE_LIMITS: Kind[tuple[RateLimit, ...]] = Kind(
    parse_rate_limits, "[PREFIX=]RATE", annotation="Mapping[str, str] | Iterable[str] | str",
    convert=program_rate_limits, wanted='a table such as { "/" = "20/s", "/login" = "5/m" }', separator=",",
    table=_RATE,
)  # fmt: skip
