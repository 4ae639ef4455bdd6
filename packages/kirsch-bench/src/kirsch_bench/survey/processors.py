"""Separate CPUs for servers and the load generator: on a common CPU, each would disturb the other (seed S3.5). If there
are enough cores, they do not share a core either, because hyperthreads of one core slow each other down.
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
    """The numbers of the CPUs; empty if the system cannot pin processes."""

    server: tuple[int, ...] = ()
    generator: tuple[int, ...] = ()
    remark: str = ""
    """A remark on the processors for readers of the results."""

    def as_json(self) -> dict[str, Any]:
        """Return the CPUs for the environment of the results."""
        return {"server": list(self.server), "generator": list(self.generator), "remark": self.remark}

    @contextlib.contextmanager
    def for_server(self) -> Iterator[None]:
        """A context manager: processes that this thread starts run on the servers' CPUs."""
        with _pinned(self.server):
            yield

    @contextlib.contextmanager
    def for_generator(self) -> Iterator[None]:
        """A context manager: this thread, and processes and threads that it starts, run on the generator's CPUs."""
        with _pinned(self.generator):
            yield


def choose(chosen: Mapping[str, tuple[int, ...]] | None, workers: int) -> Processors:
    """Return the ``chosen`` CPUs, or else as many for the servers as the largest number of ``workers``. Raises
    UsageError for a CPU that does not exist or is not usable.
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
    # One hyperthread of each core: a second one adds little performance and much noise.
    first = [core[0] for core in cores]
    count = max(1, min(workers, len(first) - 1))
    return Processors(tuple(first[:count]), tuple(first[count : count + _GENERATORS_MAX]))


def _cores(usable: list[int]) -> list[list[int]]:
    """Return the CPUs by core, as lists of hyperthreads."""
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
