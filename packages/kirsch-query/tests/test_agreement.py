"""Random queries over random rows: each database gives the rows that Python gives, or the query is refused.

``QUERY_CASES`` says how many queries there are (2,000; ``make test-query-all`` tries 100,000), ``QUERY_SEED`` which
(0). Each query is compared in the columns of a SELECT, fifty at a time, and every twentieth alone in a WHERE too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import agreement
import databases

if TYPE_CHECKING:
    from conftest import Servers

CASES = int(os.environ.get("QUERY_CASES", "2000"))
SEED = int(os.environ.get("QUERY_SEED", "0"))
ALONE = 20


@pytest.mark.timeout(max(900, CASES // 40))
def test_random_queries_give_the_rows_that_python_gives(servers: Servers, say: Callable[[str], None]) -> None:
    start = time.monotonic()
    urls = servers.all()
    chunks = [
        (SEED * 1_000_000 + at, min(agreement.CHUNK, CASES - at), urls, ALONE)
        for at in range(0, CASES, agreement.CHUNK)
    ]
    total = agreement.Outcome(SEED)
    for outcome in databases.shared(agreement.run, chunks):
        total.add(outcome)
    say(
        f"agreement: QUERY_SEED={SEED} QUERY_CASES={CASES}, {total.raised} raised, {time.monotonic() - start:.0f} s, "
        f"Python {sys.version.split()[0]}"
    )
    for name, counts in total.counts.items():
        say(
            f"  {name}: {counts.compared} compared, {counts.alone} alone in WHERE, {counts.ordered} orders, "
            f"{counts.refused} refused, {counts.overflows} overflows"
        )
    assert not total.failures, f"{len(total.failures)} differences, the first of them:\n" + "\n\n".join(
        total.failures[:5]
    )
    for counts in total.counts.values():  # a test that refuses nearly everything would prove nothing
        assert counts.compared > CASES * 0.5
        assert counts.alone >= CASES * 0.5 / ALONE
        assert counts.overflows < CASES * 0.15
