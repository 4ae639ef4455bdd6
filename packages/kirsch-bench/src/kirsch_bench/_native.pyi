"""The native module: the load generator, its parser of responses, its histograms, and the null server."""

from collections.abc import Callable, Sequence
from typing import final

__all__ = ["Histogram", "ResponseFault", "Responses", "__version__", "load", "serve_null"]

__version__: str

def load(plan: str, progress: Callable[[str], object] | None = None) -> str:
    """Run the load generator (``crates/load``) in this thread, without the GIL.

    ``plan`` is JSON, described in ``crates/load/src/plan.rs``; the result is JSON, described in
    ``crates/load/src/result.rs``. ``progress`` is called with JSON (``Progress`` there) at the interval in the plan,
    and once at the end; if it returns False, the run ends with the measurements so far. After KeyboardInterrupt it ends
    too, and returns a result with ``"ended": "interrupted"``. Other exceptions of ``progress`` or a signal handler end
    the run and are raised. Raises ValueError if the plan cannot be run, OSError if the system has no poller. An
    unreachable server is part of the result.
    """

class ResponseFault(ValueError):
    """Raised if a server broke a rule of HTTP. ``args`` are the name of the rule and a sentence; ``Truncated`` means
    an early end."""

@final
class Responses:
    """The responses of one connection, read strictly (RFC 9112), by the reader of :func:`load`.

    A response is a tuple: status, reason, fields in the received order, decoded body, and whether the server keeps the
    connection open. Text has one character for each byte (latin-1). Interim responses are skipped, trailers are checked
    and dropped. A body has at most ``limit_body`` bytes.

    ``feed`` and ``end`` raise ResponseFault, and after that, or after ``end``, ValueError.
    """

    def __new__(cls, limit_body: int) -> Responses: ...
    def expect(self, method: str) -> None:
        """Set the method of the request for the next response, which determines its end. Called before ``feed``."""

    def feed(self, data: bytes) -> tuple[int, str, list[tuple[str, str]], bytes, bool] | None:
        """Parse more input. Return the response when it is complete, if its end is not the end of the connection."""

    def end(self) -> tuple[int, str, list[tuple[str, str]], bytes, bool] | None:
        """Handle the end of the connection: return the response that ends with it, or None if none has begun."""

    @property
    def unused(self) -> bytes:
        """The input after the last complete response: bytes of a response that was not requested."""

def serve_null(listener: int, answer: bytes, last: bytes) -> None:
    """Respond to every request on a listening socket with ``answer``, or with ``last`` if the connection then ends. It
    parses as little of a request as possible (``crates/load/src/null.rs``), so that a measurement shows the limit of
    the client. Returns when a signal handler raises. Raises OSError if the descriptor is no listening socket.
    """

@final
class Histogram:
    """A histogram of times in nanoseconds: HdrHistogram with 3 significant digits, up to an hour. ``encoded`` is
    HdrHistogram's V2 format in base64, compressed or not. Raises ValueError for other input.
    """

    def __new__(cls, encoded: str | None = None) -> Histogram: ...
    def encode(self) -> str:
        """Return HdrHistogram's V2 format, compressed, in base64."""

    def record(self, value: int, count: int = 1) -> None:
        """Count a time ``count`` times. A time outside the range counts as the nearest bound."""

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""

    def __len__(self) -> int: ...
    @property
    def min(self) -> int | None:
        """The shortest time, within the resolution; None if the histogram is empty."""

    @property
    def max(self) -> int | None:
        """The longest time, within the resolution; None if the histogram is empty."""

    @property
    def mean(self) -> float | None: ...
    @property
    def deviation(self) -> float | None:
        """The standard deviation."""

    def quantile(self, quantile: float) -> int | None:
        """Return the time that the share ``quantile`` (0 to 1) of all times does not exceed; None if it is empty."""

    def count_up_to(self, value: int) -> int:
        """Return how many times are at most ``value``, within the resolution."""

    def recorded(self) -> list[tuple[int, int, float]]:
        """Return (value, count, share of times up to it) for each recorded value, in order."""

    def spectrum(self, steps: int = 5) -> list[tuple[int, int, float]]:
        """Return points for a plot with a logarithmic axis of quantiles: ``steps`` for each halving of the distance to
        1.

        A point is (value, count since the point before, quantile).
        """

    @staticmethod
    def log_head(start: float, comments: Sequence[str] | None = None) -> str:
        """Return the first lines of a log in HdrHistogram's format 1.3; ``start`` is in seconds since 1970."""

    def log_line(self, at: float, seconds: float, tag: str | None = None) -> str:
        """Return a line of a log: an interval that begins ``at`` seconds after the start."""
