"""Compiled plans do what a literal interpreter of the rules does, for random trees, configurations and paths."""

from __future__ import annotations

import os
import random

import pytest

import kirsch_web as web
import rules
from kirsch_web.testing import Client

TREES = int(os.environ.get("WEB_TREES", "400"))
SEED = int(os.environ.get("WEB_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
CHUNKS = 8


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_compiled_plans_equal_the_rules_for_random_trees(chunk: int) -> None:
    outcomes: dict[int, int] = {}
    for number in range(chunk, TREES, CHUNKS):
        seed = f"{SEED}/{number}"
        rng = random.Random(seed)
        tree = rules.random_tree(rng)
        app = rules.build(tree)
        for _ in range(12):
            path = rules.random_path(rng)
            method = rng.choice(["GET", "GET", "GET", "POST", "PUT", "QUERY", "DELETE", "OPTIONS"])
            status, content = rules.expected(tree, method, path)
            got = call(app, method, path)
            where = f"WEB_SEED={SEED} tree {number}: {method} {path}\nof {tree}"
            assert got[0] == status, f"{got} instead of {status} {content}: {where}"
            if content is not None:
                assert got[1] == content, where
            outcomes[status] = outcomes.get(status, 0) + 1
    if TREES >= 100:
        assert {200, 404, 405, 204} <= set(outcomes), f"the trees are too much alike: {outcomes}"


def call(app: web.App, method: str, path: str) -> tuple[int, object]:
    from urllib.parse import quote

    reply = Client(app).request(method, quote(path))
    if reply.status in (405, 204):
        return reply.status, set(reply.headers["Allow"].split(", "))
    if reply.status == 200:
        return 200, reply.json()
    return reply.status, reply.errors or None
