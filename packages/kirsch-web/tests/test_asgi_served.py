"""An application of coroutines and WebSockets behind uvicorn. Kirsch's own tests serve it by Kirsch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_the_rooms_example_serves_its_visitors_under_uvicorn() -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("websockets")
    from rooms_visit import visit

    command = [sys.executable, "-u", "-m", "uvicorn", "rooms:asgi", "--port", "0", "--no-access-log", "--no-use-colors"]
    with subprocess.Popen(
        command, cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if found := re.search(r"running on (http://[\d.:]+)", line):
                    visit(found[1])
                    break
            else:
                raise AssertionError("".join(lines))
        finally:
            process.terminate()
            rest = process.communicate(timeout=60)[0]
    assert "Rooms opens" in "".join(lines) + rest
    assert "Rooms closes" in rest
    assert "Traceback" not in rest, rest
