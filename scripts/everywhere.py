"""Runs the quick tests of all distributions on each Python that Kirsch supports, and prints one table.

    scripts/everywhere.py [VERSION...]      such as 3.10 3.14t pypy3.11; all of them by default

Each Python gets environments of its own: .venvs/VERSION, .venvs/web-VERSION and .venvs/query-VERSION. One that is not
found is unpacked from Debian, if this is a Debian system (``scripts/debian_pythons.sh``); a free-threaded one is not
built here, because that takes long: ``make test-free`` does. Reports are written to target/everywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "target" / "everywhere"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t", "pypy3.11")
UNPACKED = ("3.14", "3.15", "pypy3.11")
SUITES = ("kirsch", "kirsch-bench", "kirsch-web", "kirsch-query")
# A suite that takes longer than this, in seconds, hangs.
LIMIT = 1800


class Outcome(NamedTuple):
    """The tests of one suite with one Python. ``error`` is set if the suite did not run to its end."""

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = Counter()  # noqa: RUF012 - the reasons, with their numbers; never changed
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return self.error
        words = [f"{self.failed} failed"] if self.failed else []
        words.append(f"{self.passed} passed")
        if skipped := self.skipped.total():
            words.append(f"{skipped} skipped")
        return ", ".join(words)

    @property
    def is_good(self) -> bool:
        return not self.error and not self.failed and self.passed > 0


def main(wanted: list[str]) -> int:
    if unknown := [version for version in wanted if version not in VERSIONS]:
        print(f"everywhere.py: {', '.join(unknown)}: choose from {', '.join(VERSIONS)}", file=sys.stderr)
        return 2
    wanted = wanted or list(VERSIONS)
    os.chdir(ROOT)
    REPORTS.mkdir(parents=True, exist_ok=True)
    pythons = find_pythons()
    if any(version in UNPACKED and version not in pythons for version in wanted):
        unpack()
        pythons = find_pythons()
    rows: list[list[str]] = []
    skipped: dict[str, Counter[str]] = {}
    is_good = True
    for version in wanted:
        if version not in pythons:
            rows.append([version, "not found", *["-"] * len(SUITES), "-"])
            continue
        start = time.monotonic()
        print(f"== Python {version} ({pythons[version]})", flush=True)
        outcomes = test(version, pythons[version])
        is_good &= all(outcome.is_good for outcome in outcomes.values())
        skipped[version] = sum((outcome.skipped for outcome in outcomes.values()), Counter())
        minutes = f"{(time.monotonic() - start) / 60:.1f}"
        cells = [str(outcomes.get(suite, "-")) for suite in SUITES]
        rows.append([version, str(outcomes["build"].error or "built"), *cells, minutes])
    print_table(["Python", "native modules", *SUITES, "minutes"], rows)
    for version, reasons in skipped.items():
        for reason, count in sorted(reasons.items()):
            print(f"Skipped on {version}: {count} × {reason}")
    for version in wanted:
        if version not in pythons:
            print(f"Not tested: Python {version} is not on PATH, not in pyenv and not in target/python*/bin.")
    return 0 if is_good else 1


def find_pythons() -> dict[str, str]:
    """Return the paths of the interpreters by their versions, as .ci/pythons finds them."""
    lines = output(".ci/pythons") + output(".ci/pythons", "--pypy")
    found = dict(line.split(" ", 1) for line in lines)
    if pypy := found.pop("pypy", None):
        (version,) = output(pypy, "-c", "import sys; print('pypy%d.%d' % sys.version_info[:2])")
        found[version] = pypy
    return found


def unpack() -> None:
    if not shutil.which("apt-get"):
        return
    done = subprocess.run(["scripts/debian_pythons.sh", "target/pythons"], check=False, timeout=LIMIT)
    if done.returncode:
        print("Debian's newest Pythons cannot be unpacked: see above.", flush=True)


def test(version: str, python: str) -> dict[str, Outcome]:
    """Build for one Python and run the suites. ``build`` has an error, and no suite is there, if nothing was built."""
    environment = f".venvs/{version}"
    variables = [f"VENV={environment}", f"PYTHON={python}", f"PROFILE={os.environ.get('TEST_PROFILE', 'testing')}"]
    if not run("make", "ready-to-test", *variables):
        return {"build": Outcome(error="not built")}
    outcomes = {"build": Outcome(passed=1)}
    workers = ["-n", "4"]
    outcomes["kirsch"] = suite(environment, version, "kirsch", ".", *workers, "--ignore=tests/real", "tests")
    bench = "packages/kirsch-bench/tests"
    outcomes["kirsch-bench"] = suite(environment, version, "kirsch-bench", ".", *workers, bench)
    for name in ("web", "query"):
        own = f".venvs/{name}-{version}"
        if not run("make", f"{own}/.stamps/test", f"{name.upper()}_VENV={own}", *variables):
            outcomes[f"kirsch-{name}"] = Outcome(error="not installed")
            continue
        # The servers of databases do the same with each Python.
        chosen = ["-k", "not postgresql and not mariadb and not sharded"] if name == "query" else []
        outcomes[f"kirsch-{name}"] = suite(own, version, f"kirsch-{name}", f"packages/kirsch-{name}", *chosen)
    return outcomes


def suite(environment: str, version: str, name: str, folder: str, *arguments: str) -> Outcome:
    """Run one suite except its slow tests, and of the server's those that QUICK selects, and read its report."""
    report = REPORTS / f"{version}-{name}.xml"
    report.unlink(missing_ok=True)
    selected = {"kirsch": os.environ.get("QUICK", "not slow"), "kirsch-bench": "not slow"}
    quick = ["-m", selected[name]] if name in selected else []
    python = ROOT / environment / "bin" / "python"
    print(f"-- {name} on {version}", flush=True)
    is_good = run(str(python), "-m", "pytest", "-q", f"--junit-xml={report}", *quick, *arguments, cwd=folder)
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 - our own file
    except (OSError, ElementTree.ParseError):
        return Outcome(error="no report")
    failed = skipped = 0
    reasons: Counter[str] = Counter()
    for case in cases:
        kinds = {child.tag: child for child in case}
        if "failure" in kinds or "error" in kinds:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
            reasons[kinds["skipped"].get("message", "")] += 1
    error = "" if is_good or failed else "did not end well"
    return Outcome(len(cases) - failed - skipped, failed, reasons, error)


def run(*command: str, cwd: str = ".") -> bool:
    """Run a command that shows what it does; return whether it succeeded in time."""
    with subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait(LIMIT) == 0
        except subprocess.TimeoutExpired:
            print(f"{command[0]}: no end within {LIMIT} s", flush=True)
        # pytest tells which tests have failed until now, and writes its report.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    return False


def output(*command: str) -> list[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
