"""Run the Autobahn test suite against the server with an ASGI application, or against ``crates/wire`` alone.

    autobahn.py --server PROGRAM --venv FOLDER [--cases all|quick|PATTERN...] [--seconds N] [--out FOLDER]
    autobahn.py --echo PROGRAM --venv FOLDER ...

The suite is ``autobahntestsuite``, whose client sends what a server may and may not be sent: 517 cases. It needs Python
2.7, which is looked for on PATH and in pyenv, and is installed into an environment of its own. The exit status is 0 if
all cases end as they should (the suite's OK and INFORMATIONAL), 1 if not, and 3 if the suite cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import termination

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "autobahntestsuite==25.10.1"
VIRTUALENV = "virtualenv<20.22"
CASES = 517

# The cases that run in one process. Those of 9, 12 and 13 send many or large messages and take most of the time.
CHUNKS = (
    ["12.1.*"], ["12.2.*"], ["12.3.*"], ["12.4.*"], ["12.5.*"],
    ["13.1.*"], ["13.2.*"], ["13.3.*"], ["13.4.*"], ["13.5.*"], ["13.6.*"], ["13.7.*"],
    ["9.1.*", "9.2.*", "9.3.*"], ["9.4.*", "9.5.*", "9.6.*", "9.7.*", "9.8.*"],
    ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"],
)  # fmt: skip
QUICK = (["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*", "12.1.1", "12.1.3", "13.3.1", "13.7.1"],)

# The suite reports some cases, which the RFC leaves open, as INFORMATIONAL whatever the server does.
GOOD = {"OK", "INFORMATIONAL"}


def report(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def python2() -> str | None:
    """An interpreter of Python 2.7, or ``None``."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = [shutil.which("python2.7"), *map(str, sorted(pyenv.glob("versions/2.7*/bin/python2.7"), reverse=True))]
    for each in found:
        if each is None:
            continue
        has_pip = subprocess.run([each, "-c", "import pip"], capture_output=True, check=False)  # noqa: S603
        if has_pip.returncode == 0:
            return each
    return None


def install(venv: Path) -> str | None:
    """Install the suite into ``venv``, unless it is there. Return why it cannot be had, or ``None``."""
    if (venv / "installed").exists():
        return None
    python = python2()
    if python is None:
        return "no Python 2.7 with pip is on PATH or in pyenv. To get one: pyenv install 2.7.18"
    bootstrap = venv / "bootstrap"
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    for path, command in (
        ("", [python, *pip, "--target", str(bootstrap), VIRTUALENV]),
        (str(bootstrap), [python, "-m", "virtualenv", "--quiet", str(venv / "suite")]),
        ("", [str(venv / "suite" / "bin" / "python"), *pip, SUITE]),
    ):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
        try:
            run = subprocess.run(  # noqa: S603  # our own command line
                command, env=environment, capture_output=True, text=True, timeout=900, check=False
            )
        except subprocess.TimeoutExpired:
            return f"this took more than 900 seconds: {' '.join(command)}"
        if run.returncode:
            return f"this failed: {' '.join(command)}\n{run.stderr[-2000:]}"
    (venv / "installed").touch()
    return None


def run_chunk(cases: list[str], address: str, venv: Path, out: Path, deadline: float) -> dict[str, str]:
    """Run cases in one process of the suite. Return how each ended."""
    folder = out / cases[0].replace("*", "all")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = {"agent": "kirsch", "url": f"ws://{address}"}
    specification = {"outdir": str(folder), "servers": [server], "cases": cases, "exclude-cases": []}
    file = folder / "specification.json"
    file.write_text(json.dumps({**specification, "exclude-agent-cases": {}}), encoding="utf-8")
    started = time.monotonic()
    command = [str(venv / "suite" / "bin" / "wstest"), "-m", "fuzzingclient", "-s", str(file)]
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        try:
            seconds = max(deadline - time.monotonic(), 1)
            subprocess.run(  # noqa: S603  # our own command line
                command, stdout=output, stderr=subprocess.STDOUT, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            report(f"{' '.join(cases)}: stopped, because the time is over")
    index = folder / "index.json"
    if not index.exists():
        report(f"{' '.join(cases)}: no report; {folder / 'output.txt'} may say why")
        return {}
    ended = {}
    for case, result in json.loads(index.read_text(encoding="utf-8"))["kirsch"].items():
        is_good = result["behavior"] in GOOD and result["behaviorClose"] in GOOD
        ended[case] = result["behavior"] if is_good else f"{result['behavior']}, close {result['behaviorClose']}"
    report(f"{' '.join(cases)}: {len(ended)} cases in {time.monotonic() - started:.0f} seconds")
    return ended


@contextmanager
def echoing(command: list[str]) -> Iterator[str]:
    """Run ``websocket_echo``; its address."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:  # noqa: S603  # our own program
        try:
            assert echo.stdout is not None
            yield echo.stdout.readline().strip()
        finally:
            echo.kill()


@contextmanager
def served(kirsch: str, folder: Path) -> Iterator[str]:
    """Run the server with the application of the tests that echoes; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = Path(__file__).resolve().parent.parent / "tests"
    command = [kirsch, "--bind", "127.0.0.1:0", "--chdir", str(tests), "websocket_app:echo_app"]
    log = folder / "server.txt"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as server:  # noqa: S603  # as above
        try:
            found = None
            while found is None:
                if server.poll() is not None:
                    raise SystemExit(f"the server did not start: {log}")
                time.sleep(0.05)
                found = re.search(r"^on http://(\S+)$", log.read_text(encoding="utf-8"), re.M)
            yield found[1]
        finally:
            server.terminate()


def main() -> int:
    """Install, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    judged = parser.add_mutually_exclusive_group(required=True)
    judged.add_argument("--server", help="the program kirsch")
    judged.add_argument("--echo", help="the program websocket_echo")
    parser.add_argument("--venv", type=Path, required=True, help="where the suite is installed")
    parser.add_argument("--out", type=Path, default=Path("target/autobahn"), help="where its reports go")
    parser.add_argument("--cases", nargs="+", default=["all"], help="all, quick, or patterns such as 12.1.*")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the suite at a time")
    parser.add_argument("--client-context", help="bits of the client's compression window that are kept (RFC 7692)")
    options = parser.parse_args()
    termination.end_servers_on_sigterm()
    why = install(options.venv.absolute())
    if why is not None:
        report(f"Not run: the Autobahn test suite: {why}")
        return 3
    chunks = {"all": list(CHUNKS), "quick": list(QUICK)}.get(options.cases[0], [[each] for each in options.cases])
    if options.server:
        judged_server = served(options.server, options.out.absolute())
    else:
        arguments = ["--client-context", options.client_context] if options.client_context else []
        judged_server = echoing([options.echo, *arguments])
    deadline = time.monotonic() + options.seconds
    with judged_server as address, ThreadPoolExecutor(options.jobs) as pool:
        run = [
            pool.submit(run_chunk, chunk, address, options.venv, options.out.absolute(), deadline) for chunk in chunks
        ]
        ended = {case: how for each in run for case, how in each.result().items()}
    bad = {case: how for case, how in ended.items() if how not in GOOD}
    for case, how in sorted(bad.items()):
        report(f"{case}: {how}")
    counts = ", ".join(f"{number} {how}" for how, number in sorted(Counter(ended.values()).items()))
    is_complete = len(ended) == CASES if options.cases == ["all"] else bool(ended)
    report(f"{len(ended)} cases: {counts or 'none ran'}. Reports: {options.out}/*/index.html")
    if not is_complete:
        report(f"Not all ran: {CASES} were expected." if options.cases == ["all"] else "None ran.")
    return 0 if is_complete and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
