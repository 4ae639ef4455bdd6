"""Run the matrix of misbehaving applications (tests/matrix) under any server, and write the table of the docs.

scripts/robustness.py --server 'kirsch threads' --only fork          # print what came of each
scripts/robustness.py --peers .venvs/matrix-peers --out target/matrix --table docs/robustness.md
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import termination

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "tests"))

from matrix.cells import behaviours_of, groups_of  # noqa: E402
from matrix.runner import Runner  # noqa: E402
from matrix.servers import SERVERS  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.runner import Outcome


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", choices=SERVERS, help="which (all)")
    parser.add_argument("--only", default="", help="behaviours whose name contains this")
    parser.add_argument("--peers", default=str(PROJECT / ".venvs" / "matrix-peers"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a directory for the results, one file for each server and group")
    parser.add_argument(
        "--logs", action="store_true", help="print the log of each behaviour that something is wrong with"
    )
    parser.add_argument("--table", type=Path, help="write the table from the results in --out, and run nothing")
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    if given.table:
        _write_table(given.table, given.out, given.peers)
        return
    tasks = [(name, group) for name in given.server or SERVERS for group in groups_of(SERVERS[name])]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        futures = [pool.submit(_run, name, group, given) for name, group in tasks]
        for future in concurrent.futures.as_completed(futures):
            name, outcomes = future.result()
            for outcome in outcomes:
                _print(name, outcome, logs=given.logs)


def _run(name: str, group: str, given: argparse.Namespace) -> tuple[str, list[Outcome]]:
    server = SERVERS[name]
    chosen = [each for each in behaviours_of(server, group) if given.only in each.name]
    path = given.out and given.out / f"{name} {group}.json"
    if not chosen or (path and path.exists()):
        return name, []
    outcomes = Runner(server, given.peers).run(chosen)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps([{**dataclasses.asdict(each), "log": each.log[-3000:]} for each in outcomes], indent=1)
        )
    return name, outcomes


def _print(name: str, outcome: Outcome, *, logs: bool) -> None:
    seconds = ["-" if each is None else f"{each:.2f}" for each in (outcome.answered, outcome.afterwards)]
    sys.stdout.write(
        f"{name:18}{outcome.name:45} {outcome.response:8} {seconds[0]:>5} {seconds[1]:>5} "
        f"{outcome.status!s:>4}  {'; '.join(outcome.wrong)}\n"
    )
    if logs and outcome.wrong:
        sys.stdout.write("".join(f"    | {line}\n" for line in outcome.log.splitlines()[:80]))
    sys.stdout.flush()


# A result that counts as good, by column.
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "serves on": lambda each: each["afterwards"] is not None,
    "other client ≤ 0.5 s": lambda each: each["answered"] is not None and each["answered"] <= 0.5,
    "cause in the log": lambda each: each["named"],
    "clean stop": lambda each: not each["left"] and not any("ended with status" in text for text in each["wrong"]),
}


def _write_table(path: Path, results: Path, peers: str) -> None:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, server in SERVERS.items():
        for group in groups_of(server):
            file = results / f"{name} {group}.json"
            if file.exists():
                found.setdefault(name, {})[group] = json.loads(file.read_text())
    lines = ["| server | behaviours | " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) + 1)]
    for name, groups in found.items():
        outcomes = [each for group in groups.values() for each in group]
        counts = []
        for column, is_good in COLUMNS.items():
            asked = [each for each in outcomes if column != "cause in the log" or each["named"] is not None]
            counts.append(f"{sum(bool(is_good(each)) for each in asked)} of {len(asked)}")
        lines.append(f"| {name} | {len(outcomes)} | " + " | ".join(counts) + " |")
    whole = ["| group | " + " | ".join(found) + " |", "|---|" + "--:|" * len(found)]
    for group in dict.fromkeys(group for groups in found.values() for group in groups):
        cells = []
        for groups in found.values():
            outcomes = groups.get(group, [])
            good = sum(all(is_good(each) or (each["named"] is None and column == "cause in the log")
                           for column, is_good in COLUMNS.items()) for each in outcomes)  # fmt: skip
            cells.append(f"{good} / {len(outcomes)}" if outcomes else "")
        whole.append(f"| {group} | " + " | ".join(cells) + " |")
    text = path.read_text()
    for name, table in (("servers", lines), ("groups", whole), ("versions", [_versions(peers)])):
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, behind = rest.partition("<!-- end -->")
        text = before + mark + "\n".join(table) + "\n" + end + behind
    path.write_text(text)


def _versions(peers: str) -> str:
    """Return what was compared, and when."""
    listed = subprocess.run([f"{peers}/bin/pip", "list", "--format", "json"], check=True, capture_output=True).stdout
    versions = {each["name"]: each["version"] for each in json.loads(listed)}
    names = " · ".join(f"{name} {versions[name]}" for name in ("gunicorn", "gevent", "uvicorn", "uvloop", "granian"))
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return f"Measured {today}: Kirsch of this commit · {names} · CPython {platform.python_version()}."


if __name__ == "__main__":
    main()
