"""Which processors serve and which make the load: on the same one, each would measure the other (seed S3.5).

The two never share a core where the machine has cores enough: hyperthreads of one core slow each other down.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GENERATORS_MAX = 2
"""More of them than a load of one process has use for."""


@dataclass(frozen=True)
class Processors:
    """By their numbers; empty if the system does not pin."""

    server: tuple[int, ...] = ()
    generator: tuple[int, ...] = ()
    remark: str = ""
    """A remark on the processors for readers of the results."""

    def as_json(self) -> dict[str, Any]:
        """For the environment of the results."""
        return {"server": list(self.server), "generator": list(self.generator), "remark": self.remark}

    @contextlib.contextmanager
    def for_server(self) -> Iterator[None]:
        """Run the processes that this thread starts meanwhile on the servers' processors."""
        with _pinned(self.server):
            yield

    @contextlib.contextmanager
    def for_generator(self) -> Iterator[None]:
        """This thread, what it starts, and threads it makes meanwhile run on the generator's."""
        with _pinned(self.generator):
            yield


def choose(chosen: Mapping[str, tuple[int, ...]] | None, workers: int) -> Processors:
    """Return the ``chosen`` ones, or so many for the servers as the server with the most ``workers`` has.

    Raises UsageError for one that is not there or not ours.
    """
    if not hasattr(os, "sched_setaffinity"):
        return Processors(remark="this system does not pin processes to processors")
    usable = sorted(os.sched_getaffinity(0))
    if chosen is not None:
        for number in (*chosen["server"], *chosen["generator"]):
            if number not in usable:
                raise UsageError(f"processors: {number} is none of those usable here: {_listed(usable)}")
        shared = set(chosen["server"]) & set(chosen["generator"])
        remark = "servers and generator share processors, and each measures the other too" if shared else ""
        return Processors(chosen["server"], chosen["generator"], remark)
    if len(usable) == 1:
        remark = "there is one processor: servers and generator share it, and each measures the other too"
        return Processors((usable[0],), (usable[0],), remark)
    cores = _cores(usable)
    if len(cores) == 1:
        half = max(1, min(workers, len(usable) - 1))
        server, rest = usable[:half], usable[half:]
        remark = "servers and generator are on hyperthreads of one core"
        return Processors(tuple(server), tuple(rest[:_GENERATORS_MAX]), remark)
    # One thread of each core: a second one adds little and blurs much.
    first = [core[0] for core in cores]
    count = max(1, min(workers, len(first) - 1))
    return Processors(tuple(first[:count]), tuple(first[count : count + _GENERATORS_MAX]))


def _cores(usable: list[int]) -> list[list[int]]:
    """Processors by the core that they are threads of."""
    cores: dict[str, list[int]] = {}
    for number in usable:
        try:
            with open(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", encoding="ascii") as file:
                core = file.read().strip()
        except OSError:
            core = str(number)
        cores.setdefault(core, []).append(number)
    return list(cores.values())


@contextlib.contextmanager
def _pinned(numbers: tuple[int, ...]) -> Iterator[None]:
    if not numbers:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, numbers)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
