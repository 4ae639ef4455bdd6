"""The settings for use in a program: the keyword arguments of ``kirsch.Server`` and ``kirsch.serve``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any
    from typing import TypedDict as TypedDict

    from kirsch.reports import Report
else:

    class TypedDict(dict):
        """A stand-in that suffices for ``Options.__annotations__``: importing ``typing`` costs 5 ms at each start."""

        def __init_subclass__(cls, total=True):
            pass


DEFAULT_GRACEFUL_TIMEOUT = 30.0
DEFAULT_DRIVER = "threads"
DEFAULT_THREADS = 16


class Options(TypedDict, total=False):
    """Names and types; docs/reference/settings.md explains each. Seconds (0: no limit), bytes, bytes per second.

    Where a text is allowed too, it is parsed as on the command line: ``"90s"``, ``"1h30m"``, ``"64k"``, ``"1MiB"``.

    An option that is not given has the same default as on the command line.
    """

    driver: str
    threads: int
    timeout: float | str
    slow_request: float | str
    timeout_paths: tuple[tuple[str, float], ...] | Mapping[str, float | str] | Iterable[tuple[str, float | str]]
    queue: int
    queue_timeout: float | str
    request_buffering: bool
    backlog: int
    worker_connections: int
    keep_alive: float | str
    header_timeout: float | str
    body_timeout: float | str
    write_timeout: float | str
    min_rate: int | str
    graceful_timeout: float | str
    limit_request_line: int | str
    limit_request_fields: int
    limit_request_field_size: int | str
    limit_request_head: int | str
    limit_request_body: int | str
    body_memory: int | str
    body_memory_total: int | str
    server_header: str
    health_path: str
    stall_timeout: float | str
    access_logfile: str
    access_logformat: str
    access_logger: bool | Callable[[str, dict[str, str]], None]
    report: Report


OPTION_NAMES = frozenset(Options.__annotations__)


def path_limits(given: Mapping[str, float] | Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return (prefix, seconds) as the engine expects them: no slash at the end except for ``/`` itself, no duplicates.

    Raises ValueError or TypeError for what is no such pair.
    """
    limits: dict[str, float] = {}
    pairs: Any = given.items() if hasattr(given, "items") else given
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"pairs of a prefix and seconds are wanted, and there is {pair!r}")
        prefix, seconds = pair
        if not isinstance(prefix, str) or isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"a prefix and its seconds must be str and float, and are {prefix!r} and {seconds!r}")
        if not prefix.startswith("/"):
            raise ValueError(f"{prefix!r} is not the beginning of a path; did you mean {'/' + prefix!r}?")
        if any(character in prefix for character in "?#"):
            raise ValueError(f"{prefix!r} is more than a path; omit what follows ? and #")
        if not all("!" <= character <= "~" for character in prefix):
            raise ValueError(f"{prefix!r} is not what requests contain; write it percent-encoded")
        if not seconds >= 0:
            raise ValueError(f"{prefix!r} has {seconds!r} seconds, which must not be negative")
        name = prefix.rstrip("/") or "/"
        if name in limits:
            raise ValueError(f"{prefix!r} is there twice; which of the two is meant?")
        limits[name] = float(seconds)
    return tuple(limits.items())
