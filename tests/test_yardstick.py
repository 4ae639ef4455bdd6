"""The yardstick that the README's figures are measured with: as a program, for a second."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

YARDSTICK = Path(__file__).resolve().parent.parent / "scripts" / "yardstick" / "yardstick.py"


def yardstick(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(YARDSTICK), *args],
        capture_output=True, text=True, timeout=110, check=False, stdin=subprocess.DEVNULL, env=env,
    )  # fmt: skip


@pytest.fixture
def processors() -> list[str]:
    """Arguments that pin to two processors of this machine."""
    for name in ("wrk", "cc", "taskset"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not usable:
        pytest.skip("this system does not pin processes to processors")
    return ["--server-cpu", str(usable[0]), "--client-cpu", str(usable[-1])]


@pytest.mark.slow
def test_servers_are_measured_beside_the_floor(processors: list[str]) -> None:
    kirsch = f"{sys.executable} -m kirsch {{app}} --bind 127.0.0.1:{{port}}"
    done = yardstick(
        *processors, "--rounds", "1", "--seconds", "1", "--connections", "4", "--json", "--scenario", "post8k,large",
        "--server", f"kirsch={kirsch}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["scenario"] for each in results] == ["post8k", "large"]
    for result in results:
        rows = {row["server"]: row for row in result["rows"]}
        assert set(rows) == {"floor", "kirsch"}
        assert rows["floor"]["x_floor"] == 1.0
        for row in rows.values():
            assert row["errors"] == ""
            assert row["rate"] > 0
            assert row["cpu_us"] > 0
            assert row["rss_mib"] > 0


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told_and_the_others_are_measured(processors: list[str]) -> None:
    done = yardstick(*processors, "--rounds", "1", "--seconds", "1", "--server", "broken=/bin/false")
    assert done.returncode == 1
    assert "yardstick: ka: broken did not start" in done.stderr
    assert any(line.startswith("floor ") for line in done.stdout.splitlines())


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--scenario", "kaa"], "--scenario kaa: there are ka, chrome"),
        (["--server", "kirsch"], "--server kirsch: write NAME=COMMAND"),
        (["--no-floor"], "no server: name one with --server NAME=COMMAND"),
        (["--peers", "/nowhere"], "make bench-peers makes one"),
        (["--peers", sys.prefix, "--only", "nginx"], "--only nginx: there are fastpysgi, bjoern"),
        (["--rounds", "0"], "--rounds, --seconds and --connections are 1 at least"),
    ],
)
def test_a_wrong_command_line_is_told_in_a_line(args: list[str], what: str) -> None:
    done = yardstick(*args)
    assert done.returncode == 2
    assert what in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_program_is_told_with_its_package(tmp_path: Path) -> None:
    done = yardstick(env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr == "yardstick: wrk is missing: apt-get install wrk\n"
