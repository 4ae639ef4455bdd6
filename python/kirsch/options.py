"""The settings that make sense inside a program: the keyword arguments of ``kirsch.Server`` and ``kirsch.serve``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    from kirsch.reports import Report
else:

    class TypedDict(dict):
        """Enough of the real one for ``Options.__annotations__``: importing ``typing`` costs 5 ms at each start."""

        def __init_subclass__(cls, total=True):
            pass


DEFAULT_GRACEFUL_TIMEOUT = 30.0


class Options(TypedDict, total=False):
    """Names and types; docs/reference/settings.md says what each means. Seconds (0: no limit), bytes, bytes per second.

    What is not given keeps the engine's default, which is that of the command line too.
    """

    backlog: int
    worker_connections: int
    keep_alive: float
    header_timeout: float
    body_timeout: float
    write_timeout: float
    min_rate: int
    graceful_timeout: float
    limit_request_line: int
    limit_request_fields: int
    limit_request_field_size: int
    limit_request_head: int
    limit_request_body: int
    body_memory: int
    server_header: str
    access_logfile: str
    access_logformat: str
    access_logger: bool | Callable[[str, dict[str, str]], None]
    report: Report


OPTION_NAMES = frozenset(Options.__annotations__)
