"""A WebDAV server (wsgidav) judged by Debian's ``litmus``, one of its suites at a time."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Serve

APP = """
    import os

    from wsgidav.wsgidav_app import WsgiDAVApp

    app = WsgiDAVApp({
        "provider_mapping": {"/": os.environ["SHARE"]},
        "simple_dc": {"user_mapping": {"*": True}},
        "property_manager": True,
        "lock_storage": True,
        "verbose": 1,
    })
"""


@pytest.mark.parametrize("suite", ["basic", "copymove", "props", "locks", "http"])
def test_litmus(
    serve: Serve, write_app: Callable[[str], str], program: Callable[[str], str], tmp_path: Path, suite: str
) -> None:
    litmus = program("litmus")
    (tmp_path / "share").mkdir()
    site = serve(f"{write_app(APP)}:app", env={"SHARE": str(tmp_path / "share")})
    # It writes its own logs where it runs.
    run = subprocess.run(
        [litmus, f"{site.url}/", "user", "password"],
        env={**os.environ, "TESTS": suite},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = run.stdout.replace("\r", "\n")
    summary = re.search(rf"<- summary for `{suite}': of (\d+) tests run: (\d+) passed, (\d+) failed", report)
    assert summary, f"litmus came to no result:\n{report}\n{run.stderr}"
    ran, passed, failed = map(int, summary.groups())
    assert (passed, failed) == (ran, 0), report
    assert ran >= 4, report
    assert "SKIPPED" not in report
    # It warns, among else, of a server that lets a DELETE of "collection#fragment" pass (RFC 9112 section 3.2 knows no
    # fragment in a request target).
    assert "warning" not in report, report
    assert run.returncode == 0
