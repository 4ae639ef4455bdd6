"""The plan of a measurement, and how it is divided among processes.

The plan of one process is JSON, whose keys are described at the beginning of ``crates/load/src/plan.rs``. This module
has the plan of the user, for all processes together: a process gets its share of the connections, of the rate and of
the count, such that the shares add up exactly, and arrivals at equal distances stay that way.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench.stages import Curve, RateStage

if TYPE_CHECKING:
    from kirsch_bench.recording import Replay
    from kirsch_bench.remote import Host
    from kirsch_bench.target import Target

_INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_INTERVALS_MAX = 120  # points of a plot that can still be told apart


@dataclass(frozen=True)
class Load:
    """The plan of one measurement, for all processes together. Times are seconds, rates are requests per second.
    ``rate`` None means the closed model with ``connections``; otherwise these are opened at the start, and
    ``max_connections`` is their limit. ``stages`` change the rate from the start on, including the warm-up. ``replay``
    says when each request is due; ``rate`` is then its mean. Up to ``pipeline`` requests are under way on one
    connection. ``count`` or ``duration`` is set, and so is ``warmup_seconds`` or ``warmup_requests``, or neither.
    """

    target: Target
    requests: tuple[dict[str, Any], ...]
    connections: int = 10
    rate: float | None = None
    stages: tuple[RateStage, ...] = ()
    replay: Replay | None = None
    arrivals: str = "constant"
    max_connections: int = 1000
    pipeline: int = 1
    think: float = 0.0
    thinking: str = "constant"
    duration: float | None = 10.0
    count: int | None = None
    warmup_seconds: float = 0.0
    warmup_requests: int = 0
    version: str = "1.1"
    roots: str | None = dataclasses.field(default=None, repr=False)
    """Certificates of the authorities that TLS trusts, in PEM; None: any certificate will do."""
    keep_alive: bool | int = True
    timeout: float = 30.0
    seed: int = 0
    order: str = "turn"
    checks: dict[str, Any] = dataclasses.field(default_factory=dict)
    processes: int = 1
    hosts: tuple[Host, ...] = ()
    """The hosts that make the load, each with ``processes``; empty: this one."""

    @property
    def curve(self) -> Curve | Replay | None:
        """The rate over time; None in the closed model."""
        if self.replay is not None:
            return self.replay
        return None if self.rate is None else Curve(self.rate, self.stages)

    @property
    def processes_used(self) -> int:
        """The number of processes that have work."""
        least = [self.processes * max(1, len(self.hosts))]
        if self.rate is None:
            least.append(self.connections)
        if self.count is not None:
            least.append(self.count)
        return max(1, min(least))

    @property
    def seconds_max(self) -> float:
        """The seconds after which a run must have ended, including warm-up and last responses. A run by count ends
        when the server has answered."""
        if self.replay is not None:
            return self.replay.seconds + self.timeout + 30.0
        if self.duration is None:
            return float("inf")
        return self.warmup_seconds + self.duration + self.timeout + 30.0

    @property
    def seconds_planned(self) -> float | None:
        """The planned duration in seconds, if known."""
        if self.replay is not None:
            return self.replay.seconds
        if self.duration is not None:
            return self.warmup_seconds + self.duration
        if self.rate and self.count is not None:
            return self.warmup_seconds + (self.count + self.warmup_requests) / self.rate
        return None

    def at_rate(self, rate: float, duration: float | None = None) -> Load:
        """Return the same load in the open model with another rate."""
        return dataclasses.replace(self, rate=rate, duration=duration or self.duration, count=None)

    def plans(self) -> list[dict[str, Any]]:
        """Return the plan of each process."""
        processes = self.processes_used
        counts = shares(self.count or 0, processes)
        warmups = shares(self.warmup_requests, processes)
        return [
            {
                "target": self.target.plan(),
                "model": self._model(index, processes),
                **({"duration": self.duration} if self.count is None else {"count": counts[index]}),
                "warmup": {"requests": warmups[index]} if self.warmup_requests else {"seconds": self.warmup_seconds},
                **({"tls": {"name": self.target.host, "roots": self.roots}} if self.target.tls else {}),
                "version": self.version,
                "keep_alive": self.keep_alive,
                "timeout": self.timeout,
                "seed": self.seed + index,
                "order": self.order,
                "requests": list(self.requests),
                "checks": self.checks,
                "interval": self._interval(),
            }
            for index in range(processes)
        ]

    def _model(self, index: int, processes: int) -> dict[str, Any]:
        connections = shares(self.connections, processes)[index]
        if self.rate is None:
            return {
                "closed": {
                    "connections": connections,
                    "pipeline": self.pipeline,
                    "think": self.think,
                    "thinking": self.thinking,
                }
            }
        if self.replay is not None:
            arrivals: dict[str, Any] = {"schedule": self.replay.schedule[index::processes]}
        else:
            arrivals = {
                "rate": self.rate / processes,
                "stages": [{"seconds": stage.seconds, "rate": stage.rate / processes} for stage in self.stages],
                "arrivals": self.arrivals,
                "phase": index / processes,
            }
        return {
            "open": {
                **arrivals,
                "connections": min(connections, self.max_connections),
                "max_connections": max(1, shares(self.max_connections, processes)[index]),
                "pipeline": self.pipeline,
            }
        }

    def _interval(self) -> float:
        planned = self.seconds_planned
        if planned is None:
            return 0.5
        return next((each for each in _INTERVALS if planned / each <= _INTERVALS_MAX), _INTERVALS[-1])


def shares(whole: int, parts: int) -> list[int]:
    """Split ``whole`` into parts that differ by at most one, the larger ones first."""
    each, more = divmod(whole, parts)
    return [each + (index < more) for index in range(parts)]
