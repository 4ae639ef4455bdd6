"""Compiled plans do what a literal interpreter of the rules does, for random trees, configurations and paths."""

from __future__ import annotations

import io
import json
import os
import random
import sys

import pytest

import kirsch_web as web
import rules

TREES = int(os.environ.get("WEB_TREES", "1000"))
SEED = int(os.environ.get("WEB_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
CHUNKS = 8


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_compiled_plans_equal_the_rules_for_random_trees(chunk: int) -> None:
    print(f"WEB_SEED={SEED}, {TREES} trees")
    outcomes: dict[int, int] = {}
    for number in range(chunk, TREES, CHUNKS):
        rng = random.Random(f"{SEED}/{number}")
        tree = rules.random_tree(rng)
        app = rules.build(tree)
        for _ in range(12):
            path = rules.random_path(rng)
            method = rng.choice(["GET", "GET", "GET", "POST", "PUT", "QUERY", "DELETE", "OPTIONS"])
            status, content = rules.expected(tree, method, path)
            got = call(app, method, path)
            if got[0] != status or (content is not None and got[1] != content):
                pytest.fail(
                    f"{got} instead of {status} {content}: WEB_SEED={SEED} tree {number}: {method} {path}\nof {tree}"
                )
            outcomes[status] = outcomes.get(status, 0) + 1
    if TREES >= 100:
        assert {200, 404, 405, 204} <= set(outcomes), f"the trees are too much alike: {outcomes}"


def call(app: web.App, method: str, path: str) -> tuple[int, object]:
    """Status and content of the response. The application is called directly: other tests validate what it says."""
    started: list[tuple[int, dict[str, str]]] = []
    environ = {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path.encode().decode("latin-1"), "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "localhost",
        "HTTP_ACCEPT": "application/json", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
    }  # fmt: skip
    body = app(environ, lambda status, headers: started.append((int(status[:3]), dict(headers))))
    content = b"".join(body)
    [(status, headers)] = started
    if status in (405, 204):
        return status, set(headers["Allow"].split(", "))
    return status, json.loads(content) if status == 200 else None
