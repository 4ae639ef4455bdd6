"""The build backend: maturin's, which first says in one line if the compiler of Rust is missing or too old."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

build_editable = maturin.build_editable
build_wheel = maturin.build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel

HERE = Path(__file__).absolute().parent
ADVICE = (
    "install it from https://rustup.rs and try again, or use a Python that has a wheel: CPython 3.10 or newer, on "
    "Linux x86_64 or aarch64, with pip 20.3 or newer"
)


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what a build needs beside maturin: nothing that pip could install."""
    _require_rust()
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def _require_rust() -> None:
    """Exit with one line, which pip shows, if Rust is missing or too old."""
    needed = _rust_version()
    if not shutil.which("cargo") or not shutil.which("rustc"):
        sys.exit(f"No wheel of this version fits this Python, and to compile one needs Rust >= {needed}: {ADVICE}.")
    said = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+", said)
    if found and _numbers(found[0]) < _numbers(needed):
        sys.exit(f"No wheel of this version fits this Python, and Rust {found[0]} is older than {needed}: {ADVICE}.")


def _rust_version() -> str:
    """Return ``rust-version`` of the workspace: at the top of a source distribution, and of the repository."""
    for folder in (HERE, HERE.parent.parent):
        manifest = folder / "Cargo.toml"
        if manifest.is_file() and (found := re.search(r'(?m)^rust-version = "(.+)"', manifest.read_text())):
            return found[1]
    return "1.88"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
