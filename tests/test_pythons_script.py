"""``.ci/pythons``: which interpreters it finds on PATH. Those here are stand-ins that say what a real one would."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "pythons"

# Program -> what it prints when it is asked for its version; None: it does not run.
PROGRAMS = {
    "python3.11": "3.11",
    "python3.12": "3.12",
    "python3.14t": "3.14t",
    "python3.9": None,
    "python3-config": "3.12",
    "pypy3": "pypy3.11",
    "pypy3.9": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, version in PROGRAMS.items():
        answer = f'echo "{version} $0"' if version else "exit 1"
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def pythons(folder: Path, *args: str) -> str:
    env = {"PATH": f"{folder}:/usr/bin:/bin", "PYENV_ROOT": str(folder / "none")}
    done = subprocess.run([SCRIPT, *args], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.stdout


def test_each_cpython_that_runs_is_listed_once(folder: Path) -> None:
    found = dict(line.split() for line in pythons(folder).splitlines())
    assert list(found) == sorted(found, key=lambda version: int(version.rstrip("t").split(".")[1]))
    assert {found[version] for version in ("3.11", "3.12", "3.14t")} == {
        str(folder / f"python{version}") for version in ("3.11", "3.12", "3.14t")
    }
    assert not {version for version in found if "pypy" in version or version == "3.9"}


@pytest.mark.parametrize(
    ("name", "path"), [("3.12", "python3.12"), ("python3.11", "python3.11"), ("3.14t", "python3.14t")]
)
def test_a_version_is_found_by_its_name(name: str, path: str, folder: Path) -> None:
    assert Path(pythons(folder, "--find", name).strip()).name == path


def test_pypy_is_found_when_it_is_asked_for(folder: Path) -> None:
    assert pythons(folder, "--pypy") == f"pypy {folder}/pypy3\n"
    # An environment is made with the interpreter that is named, whatever its kind.
    assert pythons(folder, "--find", f"{folder}/pypy3") == f"{folder}/pypy3\n"
