"""An outside judge: raw requests collected from other projects' suites, with what the RFCs mandate for each.

The corpus and its runner live beside the project (``../shared/corpus``, or ``$SHARED/corpus``) and are not part of it.
The runner prints one line per failing case and exits with 1 if there is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from running import Serve

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("SHARED", ROOT.parent / "shared")) / "corpus"
RUNNER = CORPUS / "run_corpus.py"

pytestmark = pytest.mark.skipif(not RUNNER.is_file(), reason=f"there is no shared corpus at {CORPUS}")


# If silence is the right answer, the runner waits out a timeout of its own; there are many such cases.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("delivery", ["whole", "bytes", "split"])
@pytest.mark.parametrize(("app", "more"), [("echo_app:app", []), ("echo_asgi:app", ["--asgi"])], ids=["wsgi", "asgi"])
@pytest.mark.slow
def test_every_shared_case_is_answered_as_the_rfcs_mandate(
    serve: Serve, app: str, more: list[str], delivery: str
) -> None:
    server = serve(app, cwd=CORPUS)
    command = [sys.executable, str(RUNNER), server.host, str(server.port), "--delivery", delivery, *more]
    run = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    summary = run.stdout.strip().rpartition("\n")[2]
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    # `0 passed, 0 failed` would pass too.
    assert int(summary.split()[0]) > 800, run.stdout
