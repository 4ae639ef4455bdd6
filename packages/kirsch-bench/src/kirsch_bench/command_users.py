"""``kirsch bench FILE.py:Class.test``: a load test in Python, in cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kirsch_bench import errors
from kirsch_bench import target as targets
from kirsch_bench.cycles import APDEX_T, CyclePlan, text
from kirsch_bench.cycles import run as run_cycles
from kirsch_bench.environment import Machine, capture
from kirsch_bench.errors import UsageError
from kirsch_bench.files import Files
from kirsch_bench.loadtest import resolve
from kirsch_bench.progress import Display, users_line
from kirsch_bench.users import load

if TYPE_CHECKING:
    from kirsch_bench.cycles import Cycle


def run(given: dict[str, Any]) -> int:
    """Run the cycles and report them; return the exit status. Raises Failure."""
    if "cycles" in given and "connections" in given:
        raise UsageError("--cycles and --connections are both numbers of users; give one")
    kind, settle = given.get("warmup", ("seconds", 1.0))
    if kind != "seconds":
        raise UsageError("--warmup is a time such as 5s with a load test in Python")
    # Load the test here too, so that a mistake in it is reported once, before processes are started.
    test, name = load(given["target"])
    own = "i_own_this_host" in given
    targets.require_answering(resolve(test, given.get("url", ""), own=own))
    files = Files({flag: given[flag] for flag in ("json", "html") if flag in given})
    display = Display(quiet="quiet" in given)
    plan = CyclePlan(
        test=given["target"],
        url=given.get("url", ""),
        own=own,
        seconds=given.get("duration", 10.0),
        startup_delay=given.get("startup_delay", 0.01),
        settle=settle,
        sleep=given.get("sleep", (0.0, 0.0)),
        processes=given.get("processes", 1),
        apdex=given.get("apdex", APDEX_T),
        seed=given.get("seed", 0),
        timeout=test.timeout,
    )
    users = given.get("cycles") or [given.get("connections", 1)]
    environment, machine = capture(), Machine()
    cycles = run_cycles(plan, users, progress=lambda count, word: display.show(users_line(count, word)))
    display.clear()
    if not cycles:
        return errors.INTERRUPTED
    environment["machine"] = machine.as_json()
    files.answer(text(plan, cycles))
    document = {
        "schema": "kirsch-bench-cycles-1",
        "test": f"{given['target'].partition(':')[0]}:{test.__name__}.{name}",
        "url": given.get("url", "") or test.url,
        "plan": {
            "seconds": plan.seconds,
            "startup_delay": plan.startup_delay,
            "settle": plan.settle,
            "sleep": list(plan.sleep),
            "processes": plan.processes,
            "apdex": plan.apdex,
            "seed": plan.seed,
        },
        "environment": environment,
        "cycles": [cycle.as_json() for cycle in cycles],
    }
    files.write_json(document)
    if "html" in given:
        from kirsch_bench import page_cycles

        files.write("html", lambda: page_cycles.write(plan, cycles, document))
    return _status(cycles, files)


def _status(cycles: list[Cycle], files: Files) -> int:
    if any(cycle.interrupted for cycle in cycles):
        return errors.INTERRUPTED
    return errors.ERRORS_SEEN if files.failed or any(cycle.failed for cycle in cycles) else errors.OK
