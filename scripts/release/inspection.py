"""Looks into a wheel: its size, the C library that it needs, and the symbols that it exports."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

NEEDS = re.compile(r'is consistent with\s+the\s+following\s+platform\s+tag:\s+"([^"]+)"')


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


def _audit(wheel: Path, seen: Inspection) -> None:
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = NEEDS.search(done.stdout)
    seen.policy = found[1] if found else "no policy"
    if found is None or found[1] not in wheel.name:
        seen.problems.append(f"auditwheel grants {seen.policy}: {done.stdout.strip() or done.stderr.strip()}")
