"""When to start another worker after one has died: at once, unless they die young again and again."""

from __future__ import annotations

YOUNG_SECONDS = 5.0
"""A worker that dies within so many seconds of being ready, or before, has died young."""

_FIRST = 0.5
_MOST = 30.0


def delay(deaths: int) -> float:
    """Seconds to wait after so many early deaths in succession: none after the first, then 0.5, 1, 2 and so on, 30 at
    most."""
    return min(_FIRST * 2.0 ** min(deaths - 2, 16), _MOST) if deaths > 1 else 0.0
