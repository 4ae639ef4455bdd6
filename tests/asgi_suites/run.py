"""Run the tests of Starlette and FastAPI with a Kirsch server and a socket in the middle.

    python run.py                    # all suites; compare with expected.txt
    python run.py starlette          # one of them
    python run.py starlette -k host  # further arguments are pytest's; nothing is compared then
    python run.py --write            # with and without the server, and write expected.txt; reasons that it has are kept

`make test-asgi-suites` makes the environment that it needs. The suites come from the source distributions of the
releases that are installed; over_wire.py beside this file has the server and says what it changes.

expected.txt has a line for each test that passes when TestClient calls the application in the same process, and does
not pass over the wire: its name, and the reason. The run fails where another test fails over the wire, where a test of
that list passes, and where one has no reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.txt"
# The arguments of pytest: the tests, except those of speed, and of services that are not installed.
SUITES = {
    "starlette": ["tests"],
    "fastapi": [
        "tests",
        "--ignore=tests/benchmarks",
        "--ignore=tests/memory_benchmarks",
        "--ignore=tests/test_telemetry",
        "--ignore=tests/test_fastapi_cli.py",  # of its command, which needs no server
        "--ignore=tests/test_tutorial",  # the pages of its documentation: thousands of tests of validation
    ],
}
# Root may read what this test has made unreadable.
AS_ROOT = {"starlette::tests/test_staticfiles.py::test_staticfiles_with_invalid_dir_permissions_returns_401[asyncio]"}


def sources(suite: str) -> Path:
    """The unpacked source distribution of the installed release, downloaded once."""
    version = importlib.metadata.version(suite)
    folder = Path(sys.prefix) / "suites"
    unpacked = folder / f"{suite}-{version}"
    if not unpacked.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), f"{suite}=={version}"], check=True)
        with tarfile.open(folder / f"{suite}-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def run(suite: str, *arguments: str, in_process: bool = False) -> dict[str, str]:
    """The outcome of each test."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-p", "over_wire", "-p", "no:cacheprovider", "-q", "--tb=short"]
        command += [*SUITES[suite], f"--outcomes={outcomes}", "--timeout=120", "-n", "2", *arguments]
        command += ["--in-process"] if in_process else []
        environ = {"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, cwd=sources(suite), env=environ, check=False)
        found: dict[str, str] = json.loads(outcomes.read_text(encoding="utf-8"))
    return {f"{suite}::{name}": outcome for name, outcome in found.items()}


def read_expected() -> dict[str, str]:
    """The reasons by the names of tests."""
    lines = EXPECTED.read_text(encoding="utf-8").splitlines() if EXPECTED.exists() else []
    pairs = [line.partition("  # ") for line in lines if line and not line.startswith("#")]
    return {name: reason for name, _, reason in pairs}


def write_expected(suite: str) -> None:
    """Write what differs between the two runs of a suite; the lines of other suites stay."""
    here, wire = run(suite, in_process=True), run(suite)
    expected = read_expected()
    different = {name for name, outcome in wire.items() if outcome == "failed" and here.get(name) != "failed"}
    kept = {name for name in expected if not name.startswith(f"{suite}::")}
    lines = [f"{name}  # {expected.get(name, '')}" for name in sorted(different | kept)]
    head = EXPECTED.read_text(encoding="utf-8").partition("\n\n")[0] if EXPECTED.exists() else "#"
    EXPECTED.write_text("\n".join([head, "", *lines]) + "\n", encoding="utf-8")
    failing = sorted(name for name, outcome in here.items() if outcome == "failed")
    print("fail without a server too:", *failing, sep="\n  ")


def compare(suite: str, found: dict[str, str]) -> list[str]:
    """Returns the differences from expected.txt, a line for each test."""
    expected = {name: reason for name, reason in read_expected().items() if name.startswith(f"{suite}::")}
    failing = {name for name, outcome in found.items() if outcome == "failed"} - AS_ROOT
    lines = [f"{name}: fails" for name in sorted(failing - expected.keys())]
    lines += [f"{name}: is expected to fail, and does not" for name in sorted(expected.keys() - failing)]
    return lines + [f"{name}: no reason is given" for name, reason in expected.items() if not reason]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("suite", nargs="?", choices=sorted(SUITES))
    given, rest = parser.parse_known_args()
    complaints = []
    for suite in [given.suite] if given.suite else SUITES:
        if given.write:
            write_expected(suite)
            continue
        found = run(suite, *rest)
        complaints += [] if rest else compare(suite, found)
        print(f"{suite}: {list(found.values()).count('passed')} of {len(found)} tests pass over the wire")
    print("\n".join(complaints) or f"as {EXPECTED.name} has it")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
