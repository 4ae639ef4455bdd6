"""The gateway surveys of survey/gateways, one short round: each row that can run here is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from kirsch_bench.survey import spec

SURVEYS = Path(__file__).parents[3] / "survey" / "gateways"
NAMES = sorted(path.stem for path in SURVEYS.glob("*.toml"))
GONE = {"mod_python", "python-fastcgi", "mod_fastcgi"}


def test_there_are_the_two_reports() -> None:
    assert NAMES == ["gateways-children", "gateways-fronts"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_both_numbers_of_clients_and_the_ways_to_connect(name: str) -> None:
    survey = spec.read(str(SURVEYS / f"{name}.toml"))
    assert [scenario.given["connections"] for scenario in survey.scenarios] == [10, 200]
    adapters = {server.adapter for server in survey.servers}
    assert adapters >= GONE
    ways = ("kirsch-http", "kirsch-http-closed", "kirsch-fastcgi", "kirsch-uwsgi", "kirsch-scgi", "flup-limited")
    assert adapters >= {f"{way}+apache" for way in ways}
    if name == "gateways-children":
        assert {server.children for server in survey.servers if server.adapter.endswith("+apache")} == {5, 30, 100}
        assert {"mod_wsgi", "mod_php", "php-fpm+apache"} <= adapters
    else:
        assert {name.partition("+")[2] for name in adapters} >= {"nginx", "apache", "lighttpd", "caddy", "haproxy"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_each_row_that_can_run_here_is_measured(name: str, tmp_path: Path) -> None:
    path = SURVEYS / f"{name}.toml"
    command = [sys.executable, "-m", "kirsch", "survey", str(path), "--out", str(tmp_path), "--scenario", "c10"]
    # A row whose round failed is measured once more: its port may have been taken between choice and use.
    results: dict[str, Any] = {}
    for count in ("1", "2"):
        subprocess.run([*command, "--seconds", "0.3", "--rounds", count], capture_output=True, timeout=850)
        results = json.loads((tmp_path / "survey.json").read_text())
        if not any(each["failure"] for each in results["rounds"]):
            break
    rounds: dict[str, dict[str, Any]] = {}
    for each in results["rounds"]:
        if each["server"] != "null" and (not each["failure"] or each["server"] not in rounds):
            rounds[each["server"]] = each
    absent = {each["server"]: each["absent"] for each in results["survey"]["subjects"] if each["absent"]}
    if missing := {name: why for name, why in absent.items() if name not in GONE}:
        with warnings.catch_warnings():
            # Shown in pytest's summary; the filter of the suite would make an error of it.
            warnings.simplefilter("always")
            warnings.warn(f"not measured, because they are not installed: {missing}", stacklevel=1)
    survey = spec.read(str(path))
    assert set(rounds) | set(absent) == {each.name for each in survey.servers}
    assert set(absent) >= GONE
    assert {server: each["failure"] for server, each in rounds.items() if each["failure"]} == {}
    for server in survey.servers:
        if server.name in absent:
            continue
        each = rounds[server.name]
        assert each["requests"] > 0, server.name
        # As it came: Apache's modules for FastCGI and SCGI drop the length, and a chunk has 10 bytes around it.
        assert each["response"]["body"] in (len("Hello World!"), len("Hello World!") + 10), (server.name, each)
        if "+" in server.adapter:
            assert 0 < each["front"] < each["user"] + each["system"], (server.name, each)
        if server.adapter.startswith("kirsch"):
            assert each["failed"] == 0, (server.name, each["errors"])
