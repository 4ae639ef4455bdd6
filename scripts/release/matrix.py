"""The platforms and interpreters that wheels are built for, and the distributions of this repository."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Platform:
    """A processor and a C library."""

    target: str  # as rustc names it
    tag: str  # as wheels name it: the oldest C library that the wheel runs with


# glibc 2.17 is the oldest for which Rust and zig produce code, and musl 1.2 the oldest that Alpine still supports.
PLATFORMS = {
    "manylinux-x86_64": Platform("x86_64-unknown-linux-gnu", "manylinux_2_17"),
    "manylinux-aarch64": Platform("aarch64-unknown-linux-gnu", "manylinux_2_17"),
    "musllinux-x86_64": Platform("x86_64-unknown-linux-musl", "musllinux_1_2"),
    "musllinux-aarch64": Platform("aarch64-unknown-linux-musl", "musllinux_1_2"),
}
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t")

# kirsch uses what the stable ABI of CPython lacks, so each version has a wheel. kirsch-bench has one wheel for all
# versions with a GIL, and one for each without: the stable ABI has no free-threaded form before 3.15.
NATIVE = ("kirsch", "kirsch-bench")
STABLE_ABI = frozenset({"kirsch-bench"})
PURE = ("kirsch-web", "kirsch-cherrypy", "kirsch-query")


def builds_of(distribution: str, pythons: tuple[str, ...]) -> tuple[str, ...]:
    """Return the interpreters for which ``distribution`` is built, so that each of ``pythons`` has a wheel."""
    if distribution not in STABLE_ABI:
        return pythons
    with_gil = [python for python in pythons if not python.endswith("t")]
    return (*with_gil[:1], *(python for python in pythons if python.endswith("t")))


def version() -> str:
    """Return the version of all distributions: the one in ``Cargo.toml``."""
    found = re.search(r'(?m)^\[workspace\.package\]\nversion = "(.+)"$', (PROJECT / "Cargo.toml").read_text())
    assert found is not None
    return found[1]


def time_of_commit() -> str:
    """Return the time of the commit that is checked out, in seconds: the time that built files have."""
    command = ["git", "-C", str(PROJECT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
