"""Applications that misbehave in every way of ``tests/matrix`` harm no other client, and leave nothing behind.

Each behaviour is followed by the same questions: another client is answered, both workers run again, the log names the
cause, the server stops with status 0, nothing is left, and no traceback shows the server's own code.
``matrix.expected`` lists the cells that fail, with the reason; one of them that passes fails the test.

`make test` tries a few behaviours under one driver, `make test-slow` all of them under one driver, which changes from
day to day (MATRIX_DRIVER=gevent or all chooses), and `make test-matrix` all under each driver.
"""

from __future__ import annotations

import datetime
import os

import pytest

from interpreter import needs_gevent
from matrix.cells import all_of, behaviours_of, groups_of
from matrix.expected import EXPECTED, VARIES
from matrix.runner import Outcome, Runner
from matrix.servers import SERVERS

DRIVERS = [name.removeprefix("kirsch ") for name, server in SERVERS.items() if server.is_kirsch]

SAMPLE = (
    "exceptions-KeyboardInterrupt_in_call", "exceptions-SystemExit_in_middle", "exceptions-Own_in_close",
    "errors-class_that_raises", "errors-str_of_error_raises", "start_response-write_text", "iterables-none",
    "iterables-fails_after_first", "environ-cleared", "environ-kept_and_used",
)  # fmt: skip
"""The behaviours that `make test` tries: harmless ones, which share a server."""


def todays_drivers() -> list[str]:
    """Return the drivers of this run."""
    chosen = os.environ.get("MATRIX_DRIVER", "")
    if chosen == "all":
        return DRIVERS
    return [chosen or DRIVERS[datetime.datetime.now(datetime.timezone.utc).toordinal() % len(DRIVERS)]]


def judge(driver: str, outcomes: list[Outcome]) -> None:
    """Fail where an outcome is not as expected."""
    complaints = []
    for outcome in outcomes:
        reason = EXPECTED.get((driver, outcome.name))
        if outcome.wrong and reason is None and (driver, outcome.name) not in VARIES:
            complaints.append(f"{outcome.name}: {'; '.join(outcome.wrong)}")
            print(f"---- log of {outcome.name}\n{outcome.log[-10_000:]}")
        elif reason is not None and not outcome.wrong:
            complaints.append(f"{outcome.name} is expected to fail and does not: {reason}")
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_misbehaviour_of_a_few_kinds_harms_no_other_client() -> None:
    server = SERVERS["kirsch threads"]
    judge("threads", Runner(server).run([each for each in all_of(server) if each.name in SAMPLE]))


GROUPS = [
    pytest.param(driver, group, id=f"{driver}-{group}")
    for driver in todays_drivers()
    for group in groups_of(SERVERS[f"kirsch {driver}"])
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("driver", "group"), GROUPS)
def test_misbehaviour_harms_no_other_client(driver: str, group: str) -> None:
    if driver == "gevent":
        needs_gevent()
    print(f"not tried today: {', '.join(each for each in DRIVERS if each not in todays_drivers()) or 'nothing'}")
    server = SERVERS[f"kirsch {driver}"]
    judge(driver, Runner(server).run(behaviours_of(server, group)))


def test_expected_failures_name_behaviours_that_exist() -> None:
    names = {each.name for server in SERVERS.values() for each in all_of(server)}
    assert not {name for _, name in [*EXPECTED, *VARIES]} - names
    assert not set(EXPECTED) & set(VARIES)
