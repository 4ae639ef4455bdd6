"""``kirsch adopt --compare`` with the servers that people come from."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SHOP = """
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["raw_path"])]})
        await send({"type": "http.response.body", "body": f"{scope['client'][0]} {scope['scheme']}".encode()})
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("uvicorn", "uvicorn shop:app --host 0.0.0.0 --port $PORT --workers 1"),
        ("granian", "granian --interface asgi --host 0.0.0.0 --port 8000 shop:app"),
        ("hypercorn", "hypercorn -b 0.0.0.0:$PORT shop:app"),
    ],
)
def test_a_plain_application_is_served_alike(module: str, command: str, tmp_path: Path) -> None:
    pytest.importorskip(module, reason=f"make test-slow-python installs {module}")
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    (tmp_path / "Procfile").write_text(f"web: {command}\n")
    (tmp_path / "requests").write_text("GET /\nGET /caf%C3%A9?a=b\nHEAD /\n")
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", "adopt", str(tmp_path), "--compare", "--requests", str(tmp_path / "requests")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 3 requests are answered differently" in done.stdout
