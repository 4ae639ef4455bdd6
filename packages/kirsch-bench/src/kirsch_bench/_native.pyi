"""The native part: the load generator, its reader of responses, its histograms, and the null server."""

from collections.abc import Callable, Sequence
from typing import final

__all__ = ["Histogram", "ResponseFault", "Responses", "__version__", "load", "serve_null"]

__version__: str

def load(plan: str, progress: Callable[[str], object] | None = None) -> str:
    """Run the load generator (``crates/load``) in this thread, without the GIL.

    ``plan`` is JSON as ``crates/load/src/plan.rs`` describes it, and so is what comes back, as
    ``crates/load/src/result.rs`` does. ``progress`` is called with JSON (``Progress`` there) as often as the plan says,
    and once more at the end; where it returns False, the run ends with what was measured so far. So it does after
    KeyboardInterrupt, which is not raised then: the result says ``"ended": "interrupted"``. Whatever else ``progress``
    or a signal handler raises ends it too, and is raised.

    ValueError: the plan cannot be carried out. OSError: the system gives no poller. A server that cannot be reached is
    a result.
    """

class ResponseFault(ValueError):
    """A server broke a rule of HTTP. ``args`` are the rule's name and a sentence; ``Truncated`` is an early end."""

@final
class Responses:
    """The responses of one connection, read strictly (RFC 9112), by the reader of :func:`load`.

    A response is a tuple: status, reason, fields in their order as they came, body without its chunks, and whether the
    server would go on with the connection. Text has one character for each byte (latin-1). Interim responses are passed
    over, trailers are checked and dropped. A body has at most ``limit_body`` bytes.

    ``feed`` and ``end`` raise ResponseFault, and after that, or after ``end``, ValueError.
    """

    def __new__(cls, limit_body: int) -> Responses: ...
    def expect(self, method: str) -> None:
        """The next response answers this method, which decides where it ends. To be called before ``feed``."""

    def feed(self, data: bytes) -> tuple[int, str, list[tuple[str, str]], bytes, bool] | None:
        """Read on. Returns the response once it is whole, if its end is known without the end of the connection."""

    def end(self) -> tuple[int, str, list[tuple[str, str]], bytes, bool] | None:
        """The connection has ended: the response that ends with it, or None if none has begun."""

    @property
    def unused(self) -> bytes:
        """Input that belongs to no whole response: behind one, bytes of an answer that was not requested."""

def serve_null(listener: int, answer: bytes, last: bytes) -> None:
    """Answer every request at a listening socket with ``answer``, or with ``last`` where its connection then ends.

    It reads as little of a request as can be (``crates/load/src/null.rs``), so that a
    measurement shows the limit of the client. It ends when a signal's handler raises. OSError: the descriptor is none,
    or does not listen.
    """

@final
class Histogram:
    """Times in nanoseconds by how often they came: HdrHistogram with 3 digits, up to an hour.

    ``encoded`` is HdrHistogram's V2 in base64, compressed or not; ValueError if it is something else.
    """

    def __new__(cls, encoded: str | None = None) -> Histogram: ...
    def encode(self) -> str:
        """HdrHistogram's V2, compressed, in base64."""

    def record(self, value: int, count: int = 1) -> None:
        """Count a time so many times. What is beyond the bounds counts as the nearest."""

    def merge(self, other: Histogram) -> None:
        """Count all of the other's too."""

    def __len__(self) -> int: ...
    @property
    def min(self) -> int | None:
        """The shortest, as far as times can be told apart; None: there is none."""

    @property
    def max(self) -> int | None:
        """The longest, likewise."""

    @property
    def mean(self) -> float | None: ...
    @property
    def deviation(self) -> float | None:
        """The standard deviation."""

    def quantile(self, quantile: float) -> int | None:
        """The time that this share of all, from 0 to 1, does not exceed. None: there is none."""

    def count_up_to(self, value: int) -> int:
        """How many are this long at most, as far as times can be told apart."""

    def recorded(self) -> list[tuple[int, int, float]]:
        """Each value that came, in order: the value, how many, and the share of all that are this long at most."""

    def spectrum(self, steps: int = 5) -> list[tuple[int, int, float]]:
        """Points for a plot over a logarithmic axis of quantiles: ``steps`` each time that the distance to 1 is halved.

        Value, how many lie between it and the point before, quantile.
        """

    @staticmethod
    def log_head(start: float, comments: Sequence[str] | None = None) -> str:
        """Return the first lines of a log in HdrHistogram's format 1.3; ``start`` is in seconds since 1970."""

    def log_line(self, at: float, seconds: float, tag: str | None = None) -> str:
        """A line of it: an interval that begins ``at`` seconds from the start."""
