"""Exemplars: for each bucket of the service time, the newest request of a sampled trace, in shared memory.

A record has the time in the application (seconds), the time of recording (seconds since 1970), the trace id and the
span id.
"""

from __future__ import annotations

import struct
from time import time_ns

from kirsch.monitor.shared_memory import RECORD_HEAD, WORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kirsch.monitor.shared_memory import SharedMemory

_RECORD = struct.Struct("<dd16s8s")
_DISTANCE = 64
assert RECORD_HEAD + _RECORD.size <= _DISTANCE
assert _DISTANCE % WORD == 0


class Exemplar:
    """A sampled request that represents a bucket of a histogram."""

    __slots__ = ("at", "seconds", "span_id", "trace_id")

    def __init__(self, seconds: float, at: float, trace_id: bytes, span_id: bytes) -> None:
        self.seconds = seconds
        self.at = at
        self.trace_id = trace_id.hex()
        self.span_id = span_id.hex()


def write(memory: SharedMemory, at: int, bucket: int, seconds: float, trace_id: int, span_id: int) -> None:
    """Replace the exemplar of ``bucket``. Only one thread may write at a time."""
    now = time_ns()
    record = _RECORD.pack(seconds, now / 1e9, trace_id.to_bytes(16, "big"), span_id.to_bytes(8, "big"))
    memory.set_record(at + bucket * _DISTANCE, now, record)


def read(memory: SharedMemory, at: int, buckets: int) -> Iterator[Exemplar | None]:
    """Yield the exemplar of each bucket, None for a bucket without one."""
    for bucket in range(buckets):
        number, record = memory.record(at + bucket * _DISTANCE, _RECORD.size)
        yield Exemplar(*_RECORD.unpack(record)) if number else None


def newer(one: Exemplar | None, other: Exemplar | None) -> Exemplar | None:
    """Return the newer of two exemplars; each may be None."""
    return max((each for each in (one, other) if each is not None), key=lambda each: each.at, default=None)
