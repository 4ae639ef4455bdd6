"""The load of recorded traffic: each request is sent at its recorded time."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch.adopt import recording
from kirsch.adopt.recording import HAR as HAR
from kirsch_bench.errors import UsageError

if TYPE_CHECKING:
    from kirsch.adopt.recording import Recorded, Recording


def read(path: str, authority: str, host: str | None = None) -> Recording:
    """Read a recording like :func:`kirsch.adopt.recording.read`. Raises UsageError."""
    try:
        return recording.read(path, authority, host)
    except recording.RecordingError as error:
        raise UsageError(f"--replay: {error}") from None


@dataclass(frozen=True)
class Replay:
    """A recording as a load: for each request, the time in seconds from the start and its index among the distinct
    requests."""

    path: str
    kind: str
    speed: float
    schedule: tuple[tuple[float, int], ...]
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def seconds(self) -> float:
        """The time until the last request."""
        return self.schedule[-1][0]

    def requests(self, until: float) -> float:
        """Return how many requests are due before ``until`` seconds."""
        return float(bisect.bisect_left(self.schedule, (until, 0)))

    def mean(self, at: float, seconds: float) -> float:
        """Return the mean rate in the ``seconds`` after ``at``."""
        return (self.requests(at + seconds) - self.requests(at)) / seconds if seconds else 0.0

    def spans(self) -> list[tuple[float, float, float, float]]:
        """Return an empty list: a recording has no stages."""
        return []

    def text(self) -> str:
        """Describe the replay in words."""
        pace = "at its pace" if self.speed == 1 else f"at {self.speed:g} times its pace"
        return f"{len(self.schedule):,} requests of {self.path} ({self.kind}) {pace}"

    def as_json(self) -> dict[str, Any]:
        """Return plain data without the schedule."""
        return {
            "path": self.path,
            "kind": self.kind,
            "speed": self.speed,
            "seconds": self.seconds,
            "requests": len(self.schedule),
            "left_out": dict(self.left_out),
        }


def plan(found: Recording, speed: float, *, seconds: float | None, count: int | None) -> tuple[Replay, list[Recorded]]:
    """Return the load of a recording, and its distinct requests. ``seconds`` and ``count`` limit it."""
    first = found.requests[0].at
    different: dict[tuple[Any, ...], int] = {}
    kept: list[Recorded] = []
    schedule: list[tuple[float, int]] = []
    for request in found.requests:
        at = (request.at - first) / speed
        if (seconds is not None and at >= seconds) or len(schedule) == count:
            found.leave_out("after the part that was asked for", len(found.requests) - len(schedule))
            break
        key = (request.method, request.target, request.fields, request.body, request.status)
        if key not in different:
            different[key] = len(kept)
            kept.append(request)
        schedule.append((at, different[key]))
    left_out = tuple(found.left_out.most_common())
    return Replay(found.path, found.kind, speed, tuple(schedule), left_out), kept
