"""An installation that does not fit: one line says for what it was made, what this is, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kirsch

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = Path(str(kirsch.__file__)).parent
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
ADVICE = "install it again with this Python: pip install --force-reinstall kirsch\n"
BACKENDS = [PROJECT / "packages" / name / "build_backend.py" for name in ("kirsch", "kirsch-bench")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a copy of the package, without its compiled part."""
    site = tmp_path / "site"
    (tmp_path / "hello.py").write_text("def app(environ, start_response): ...\n")
    shutil.copytree(PACKAGE, site / "kirsch", ignore=shutil.ignore_patterns("_native*.so", "__pycache__"))
    return site


def run(site: Path, *args: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-S", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": str(site)},
    )


def here() -> str:
    """Return what a message calls this interpreter."""
    threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    machine, libc = SUFFIX.removesuffix(".so").split("-")[-3::2]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}{threaded}"
    return f"CPython {version} on {machine} with {'glibc' if libc == 'gnu' else libc}"


CASES = {
    "_native.cpython-313t-x86_64-linux-musl.so": "CPython 3.13t on x86_64 with musl",
    "_native.cpython-39-aarch64-linux-gnu.so": "CPython 3.9 on aarch64 with glibc",
    "_native.pypy399-pp73-x86_64-linux-gnu.so": "PyPy 3.99 on x86_64 with glibc",
}


@pytest.mark.parametrize(("library", "there"), CASES.items())
@pytest.mark.parametrize("args", [("--version",), ("hello:app",)])
def test_wheel_for_another_system_is_named_in_one_line(
    library: str, there: str, args: tuple[str, ...], site: Path
) -> None:
    (site / "kirsch" / library).write_bytes(b"")
    done = run(site, "-m", "kirsch", *args)
    line = f"kirsch: Kirsch is installed for {there}, but this is {here()}; {ADVICE}"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_missing_compiled_part_is_named_in_one_line(site: Path) -> None:
    done = run(site, "-m", "kirsch", "hello:app")
    line = f"kirsch: the compiled part of Kirsch is missing; {ADVICE}"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_compiled_part_that_cannot_be_loaded_is_named_with_the_reason(site: Path) -> None:
    library = site / "kirsch" / f"_native{SUFFIX}"
    library.write_bytes(b"\x7fELF, and no more")
    done = run(site, "-m", "kirsch", "hello:app")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"kirsch: the compiled part of Kirsch cannot be loaded \(.*{library.name}.*\); {re.escape(ADVICE)}",
        done.stderr,
    )


def test_program_gets_the_line_as_an_import_error(site: Path) -> None:
    done = run(site, "-c", "import kirsch; kirsch.serve")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: the compiled part of Kirsch is missing; {ADVICE}".strip()


def test_import_error_of_the_application_is_not_mistaken(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("from kirsch import nothing_of_the_kind\n")
    command = [sys.executable, "-m", "kirsch", "hello:app"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "ImportError: cannot import name 'nothing_of_the_kind' from 'kirsch'" in done.stderr


def older_pythons() -> list[str]:
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    return sorted(str(python) for root in roots for python in root.glob("3.[789].*/bin/python3"))


def test_python_that_is_too_old_is_told_so_in_one_line(site: Path) -> None:
    pythons = older_pythons()
    if not pythons:
        pytest.skip("there is no Python 3.7 to 3.9 here: pyenv install 3.9")
    for python in pythons:
        done = run(site, "-m", "kirsch", "hello:app", python=python)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("kirsch: Kirsch needs Python 3.10 or newer, and this is 3."), line
        done = run(site, "-c", "import kirsch", python=python)
        assert done.stderr.splitlines()[-1] == line.replace("kirsch", "ImportError", 1)


@pytest.mark.parametrize("package", ["kirsch-cherrypy", "kirsch-query", "kirsch-web"])
def test_package_says_that_python_is_too_old(package: str) -> None:
    pythons = older_pythons()
    if not pythons:
        pytest.skip("there is no Python 3.7 to 3.9 here: pyenv install 3.9")
    source = Path(__file__).resolve().parent.parent / "packages" / package / "src"
    for python in pythons:
        command = [python, "-B", "-c", f"import {package.replace('-', '_')}"]
        env = os.environ | {"PYTHONPATH": str(source)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr.splitlines()[-1].startswith(f"ImportError: {package} needs Python 3.10 or newer, and this")


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("rust", ["", "rustc 1.63.0 (4b91a6ea7 2022-08-08)"], ids=["none", "old"])
def test_build_without_a_fitting_rust_ends_with_one_line(backend: Path, rust: str, tmp_path: Path) -> None:
    """The backend runs as pip runs it, with a stand-in for maturin, which is not reached."""
    (tmp_path / "maturin.py").write_text(
        "".join(
            f"def {name}(*args): raise AssertionError\n"
            for name in (
                *("build_editable", "build_sdist", "build_wheel", "get_requires_for_build_sdist"),
                *("prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"),
            )
        )
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    path = f"{programs}:/usr/bin:/bin" if rust else str(programs)
    if rust:
        for name in ("cargo", "rustc"):
            (programs / name).write_text(f"#!/bin/sh\necho '{rust}'\n")
            (programs / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "import build_backend; build_backend.get_requires_for_build_wheel()"],
        cwd=backend.parent,
        env={"PATH": path, "PYTHONPATH": f"{tmp_path}:{backend.parent}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    said = "Rust 1.63 is older than 1.88" if rust else "to compile one needs Rust >= 1.88"
    assert line.startswith("No wheel of this version fits this Python, and ")
    assert said in line
    assert "install it from https://rustup.rs and try again" in line
