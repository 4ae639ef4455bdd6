"""The times at which each certificate is obtained, renewed, and tried again; stored in a file, so that a restart keeps
them. A certificate is renewed at a random time in the window that the authority suggests (RFC 9773); the authority is
asked for the window again at the interval that it sets. Without a window, a certificate is renewed after two thirds of
its lifetime, or after half of a lifetime of few days. The wait after a failure grows with each failure: authorities
allow few failures (Let's Encrypt: five an hour for each name), and a repeated failure needs a person. The wait is at
least the authority's Retry-After.
"""

from __future__ import annotations

import random
import socket

from kirsch.net.acme_files import AcmeFiles, read_json, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

RETRY_SECONDS = (2 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY)
"""The waits after the first, second, ... failure; the last one after all others."""

# RFC 9773 section 4.3.2: shorter and longer intervals are limited to these.
_ASK_LEAST, _ASK_MOST = _MINUTE, _DAY
# The interval if the authority has suggested no window.
_ASK_AGAIN = 6 * _HOUR

# A certificate whose lifetime is shorter than this is renewed after half of it.
_SHORT_LIVED = 10 * _DAY


class Schedule:
    """The state of each name. Times are seconds of Unix time. Call ``save`` after changes."""

    def __init__(self, files: AcmeFiles) -> None:
        self._files = files
        self._names: dict[str, dict[str, Any]] = {}
        self.load()

    def load(self) -> None:
        """Read the state that a process of this or another host has saved."""
        found = read_json(self._files.status).get("names")
        known = found if isinstance(found, dict) else {}
        self._names = {name: entry for name, entry in known.items() if isinstance(entry, dict)}

    def save(self) -> None:
        write_json(self._files.status, {"host": socket.gethostname(), "names": self._names})

    def entry(self, name: str) -> dict[str, Any]:
        return self._names.setdefault(name, {})

    def begin(self, name: str, certificate: dict[str, Any]) -> None:
        """Begin the schedule of a certificate, unless it is known already. A new one has no window and no failures."""
        if self.entry(name).get("serial") == certificate["serial"]:
            return
        self._names[name] = {
            "serial": certificate["serial"],
            "not_after": certificate["not_after"],
            "renew_at": fallback(certificate["not_before"], certificate["not_after"]),
        }

    def asks_at(self, name: str) -> float:
        """Return when to ask the authority for the renewal window."""
        return float(self.entry(name).get("ask_at", 0.0))

    def set_window(
        self, name: str, now: float, window: tuple[float, float], ask_after: float, page: str | None
    ) -> bool:
        """Choose a random time in the renewal window. Return whether the authority has changed an earlier window."""
        entry = self.entry(name)
        entry["ask_at"] = now + min(max(ask_after, _ASK_LEAST), _ASK_MOST)
        if entry.get("window") == list(window):
            return False
        is_moved = "window" in entry
        begin, end = window
        entry["window"] = [begin, end]
        entry["renew_at"] = random.uniform(begin, max(begin, end))  # noqa: S311 - it spreads load
        entry["page"] = page
        return is_moved

    def no_window(self, name: str, now: float) -> None:
        """Record that the authority has suggested no window. An earlier window remains valid."""
        self.entry(name)["ask_at"] = now + _ASK_AGAIN

    def due(self, name: str) -> float:
        """Return when to obtain or renew the certificate; the first one is due at once."""
        entry = self.entry(name)
        return max(float(entry.get("renew_at", 0.0)), float(entry.get("not_before", 0.0)))

    def failed(self, name: str, now: float, text: str, retry_after: float) -> float:
        """Record a failure; return the seconds until the next attempt."""
        entry = self.entry(name)
        failures = int(entry.get("failures", 0))
        wait = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        wait = max(wait * random.uniform(0.9, 1.1), retry_after)  # noqa: S311 - it spreads load
        entry.update(failures=failures + 1, error=text, not_before=now + wait)
        return wait

    def attempts(self, name: str) -> int:
        """Return the number of failures since the last success."""
        return int(self.entry(name).get("failures", 0))

    def next_time(self, name: str) -> float:
        """Return when the next work for ``name`` is due."""
        asks_at = self.asks_at(name) if "serial" in self.entry(name) else float("inf")
        return min(self.due(name), asks_at)


def fallback(not_before: float, not_after: float) -> float:
    """Return when to renew a certificate if the authority suggests no window."""
    lifetime = not_after - not_before
    return not_before + lifetime * (1 / 2 if lifetime < _SHORT_LIVED else 2 / 3)
