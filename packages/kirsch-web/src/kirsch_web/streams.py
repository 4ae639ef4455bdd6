"""Response bodies that are made while they are sent, and what has to be done at their end."""

from __future__ import annotations

from kirsch_web.request import reset_current, set_current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kirsch_web.request import Request


class Stream:
    """A body that is made while it is sent: text is encoded, and the request is current in each step."""

    __slots__ = ("_body", "_iterator", "_request", "at_end")

    def __init__(self, request: Request, body: Iterable[bytes | str]) -> None:
        self._request = request
        self._body = body
        self._iterator = iter(body)
        self.at_end: Callable[[Request], None] | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> bytes:
        token = set_current(self._request)
        try:
            while True:
                part = next(self._iterator)
                if part:
                    return part.encode() if isinstance(part, str) else part
        finally:
            reset_current(token)

    def close(self) -> None:
        """The end of the response, or of its client."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                token = set_current(self._request)
                try:
                    close()
                finally:
                    reset_current(token)
        finally:
            at_end, self.at_end = self.at_end, None
            if at_end is not None:
                at_end(self._request)


class Ending:
    """A body whose end is reported."""

    __slots__ = ("_at_end", "_body", "_iterator", "_request")

    def __init__(self, request: Request, body: Iterable[bytes], at_end: Callable[[Request], None]) -> None:
        self._request = request
        self._body = body
        self._iterator = iter(body)
        self._at_end: Callable[[Request], None] | None = at_end

    def __iter__(self) -> Iterator[bytes]:
        return self._iterator

    def close(self) -> None:
        """The end of the response."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            at_end, self._at_end = self._at_end, None
            if at_end is not None:
                at_end(self._request)
