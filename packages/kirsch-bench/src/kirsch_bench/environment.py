"""The environment of a measurement: the machine, its load, and software versions."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from kirsch_bench._native import __version__


def capture() -> dict[str, Any]:
    """Return data about machine and software; values that the system does not report are missing."""
    cpu: dict[str, Any] = {
        "model": _cpu_model(),
        "count": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
    found: dict[str, Any] = {
        "kirsch": __version__,
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": {key: value for key, value in cpu.items() if value},
        "load_average": [round(each, 2) for each in os.getloadavg()],
    }
    return found


class Machine:
    """The load of the whole machine since the creation of this object, including time taken by a hypervisor."""

    def __init__(self) -> None:
        self._before = _cpu_times()

    def as_json(self) -> dict[str, float]:
        """Return ``busy`` and ``steal`` as shares of the time of all CPUs; empty if the system does not report them."""
        after = _cpu_times()
        if self._before is None or after is None:
            return {}
        spent = [now - then for now, then in zip(after, self._before, strict=True)]
        total = sum(spent)
        if total <= 0:
            return {}
        idle, iowait, steal = spent[3], spent[4], spent[7]
        return {"busy": round((total - idle - iowait - steal) / total, 4), "steal": round(steal / total, 4)}


def _cpu_times() -> list[int] | None:
    """Return the first eight columns of ``/proc/stat`` (proc(5)): user nice system idle iowait irq softirq steal."""
    line = _first_line("/proc/stat")
    fields = line.split()[1:9] if line else []
    return [int(value) for value in fields] if len(fields) == 8 else None


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model", "cpu model"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or None


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return None
