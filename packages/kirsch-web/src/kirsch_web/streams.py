"""Response bodies that are made while they are sent, or that need a call at their end."""

from __future__ import annotations

from kirsch_web.request import reset_current, set_current
from kirsch_web.response import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kirsch_web.request import Request


class Stream:
    """A streamed body. It encodes text, and makes its request the current one while each part is made."""

    __slots__ = ("_iterator", "_request", "at_end", "body")

    def __init__(self, request: Request, body: Iterable[bytes | str]) -> None:
        self._request = request
        self.body = body
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
        """Close the body and call ``at_end``. The server calls it when the response ends or the client has left."""
        try:
            token = set_current(self._request)
            try:
                close(self.body)
            finally:
                reset_current(token)
        finally:
            at_end, self.at_end = self.at_end, None
            if at_end is not None:
                at_end(self._request)
