"""Random histories of a session (add, edit, delete, flush, reload) agree with a list of dicts on each database.

``QUERY_HISTORIES`` says how many there are for each database (100; ``make test-query-all`` plays 10,000), and
``QUERY_SEED`` which (0). Failures are shortened.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import databases
import histories

if TYPE_CHECKING:
    from conftest import Servers

HISTORIES = int(os.environ.get("QUERY_HISTORIES", "100"))
SEED = int(os.environ.get("QUERY_SEED", "0"))
CHUNK = 1000
STEPS = 6


@pytest.mark.timeout(max(900, HISTORIES // 2))
def test_random_histories_agree_with_a_list_of_dicts(servers: Servers, say: Callable[[str], None]) -> None:
    start = time.monotonic()
    chunks = [
        (SEED * 1_000_000 + at, min(CHUNK, HISTORIES - at), name, url, STEPS)
        for at in range(0, HISTORIES, CHUNK)
        for name, url in servers.all().items()
    ]
    played: Counter[str] = Counter()
    failures: list[str] = []
    for name, number, found in databases.shared(histories.run, chunks):
        played[name] += number
        failures += found
    done = ", ".join(f"{number} on {name}" for name, number in played.items())
    say(f"histories: QUERY_SEED={SEED} {done}, of {STEPS} steps, {time.monotonic() - start:.0f} s")
    assert not failures, f"{len(failures)} failed, the first of them:\n" + "\n".join(failures[:5])


def test_a_history_that_goes_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    query, _ = histories.QUERIES["small"]
    monkeypatch.setitem(histories.QUERIES, "small", (query, lambda row: row["j"] <= histories.limit))
    _, _, failures = histories.run(0, 100, "sqlite", "sqlite://", STEPS)
    assert any("recall 'small'" in each for each in failures)
    for engine in databases._engines.values():
        engine.dispose()
    databases._engines.clear()
