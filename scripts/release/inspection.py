"""Looks into a wheel: its size, the C library that it needs, and the symbols that it exports."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The name that zig links musl by. Alpine's file has another name, but musl's loader takes both for itself.
MUSL = "libc.so"


@dataclass
class Inspection:
    """The facts about a wheel that users ask for."""

    bytes: int
    library_bytes: int = 0
    policy: str = ""  # the platform tag that auditwheel grants
    exported: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def inspect(wheel: Path) -> Inspection:
    """Return what is in ``wheel``, with the problems found."""
    seen = Inspection(wheel.stat().st_size)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as scratch:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        if len(libraries) != 1:
            seen.problems.append(f"{len(libraries)} libraries instead of one")
        for name in libraries:
            path = Path(archive.extract(name, scratch))
            seen.library_bytes += path.stat().st_size
            seen.exported += exported_symbols(path)
    if unexpected := [name for name in seen.exported if not name.startswith("PyInit_")]:
        seen.problems.append(f"exports {', '.join(unexpected[:5])}")
    _audit(wheel, seen)
    return seen


def exported_symbols(library: Path) -> list[str]:
    """Return the names that a shared library offers to others."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return [
            symbol.name
            for symbol in table.iter_symbols()
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
        ]


def granted(report: dict[str, Any]) -> str:
    """Return the platform tag that a report of auditwheel grants if zig's name of musl is a name of musl."""
    for tag, obstacles in report["policy_upgrades"].items():
        alone = obstacles == {"libs_to_eliminate": [MUSL]}
        if alone and tag.startswith("musllinux_") and report["sym_tag"] == tag and not report["unsupported_isa"]:
            return str(tag)
    return str(report["overall_tag"])


def _audit(wheel: Path, seen: Inspection) -> None:
    # The search path is empty: libraries of this machine are not those of the users. auditwheel ends with an error if
    # it finds a linker script under the name of a library.
    command = [sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", "", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seen.policy = "no policy" if done.returncode else granted(json.loads(done.stdout))
    if seen.policy not in wheel.name:
        seen.problems.append(f"auditwheel grants {seen.policy}: {done.stdout.strip() or done.stderr.strip()}")
