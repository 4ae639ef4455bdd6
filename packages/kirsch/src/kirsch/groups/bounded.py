"""A bounded queue for messages and frames that wait for the relay, a worker or a broker."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MESSAGES_MAX = 10_000
"""The messages that may wait in one queue."""

BYTES_MAX = 8 << 20
"""The bytes of these messages."""


class BoundedQueue:
    """A queue of items with their sizes in bytes, limited by ``MESSAGES_MAX`` and ``BYTES_MAX``."""

    def __init__(self) -> None:
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any, size: int) -> bool:
        """Append an item; return False if the limits leave no room for it."""
        if len(self._items) >= MESSAGES_MAX or self._bytes + size > BYTES_MAX:
            return False
        self._items.append((item, size))
        self._bytes += size
        return True

    def put_first(self, frames: Iterable[bytes]) -> None:
        """Insert frames at the front, in their order, without regard to the limits."""
        for frame in reversed(list(frames)):
            self._items.appendleft((frame, len(frame)))
            self._bytes += len(frame)

    def first(self) -> Any:
        return self._items[0][0]

    def take(self) -> Any:
        """Remove the first item and return it."""
        item, size = self._items.popleft()
        self._bytes -= size
        return item
