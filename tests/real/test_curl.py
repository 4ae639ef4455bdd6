"""The real curl: uploads after 100 (Continue), chunked uploads, old versions, HEAD, connections used again."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from running import foreign_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

APP = """
    import hashlib
    import json

    def app(environ, start_response):
        if environ["PATH_INFO"] == "/stream":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return (b"piece %d\\n" % number for number in range(100))
        digest, size = hashlib.sha256(), 0
        while block := environ["wsgi.input"].read(65536):
            digest.update(block)
            size += len(block)
        seen = {
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"],
            "protocol": environ["SERVER_PROTOCOL"],
            "size": size,
            "sha256": digest.hexdigest(),
        }
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(seen).encode() + b"\\n"]
"""

UPLOAD_BYTES = 2_000_000


class Transfer(NamedTuple):
    output: str
    log: str
    figures: list[dict[str, str]]
    """curl's own account of each transfer: ``code``, ``connects`` (new ones made for it), ``sent`` (bytes of body)."""


class Curl:
    def __init__(self, program: str) -> None:
        self.program = program

    def __call__(self, *args: str | Path, stdin: bytes = b"") -> Transfer:
        """Run curl, which must succeed: an answer that breaks HTTP is an error to it, a 4xx is not."""
        figures = "code=%{http_code} connects=%{num_connects} sent=%{size_upload}"
        run = subprocess.run(
            # Without --disable it reads the settings of the user who runs the tests.
            [
                *(self.program, "--disable", "--noproxy", "*", "--verbose", "--silent", "--show-error"),
                *("--no-http0.9", "--max-time", "30", "--write-out", "%{stderr}figures: " + figures + "\\n"),
                *args,
            ],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        log = run.stderr.decode(errors="replace")
        assert run.returncode == 0, log
        accounts = [line.removeprefix("figures: ") for line in log.splitlines() if line.startswith("figures: ")]
        return Transfer(
            run.stdout.decode(), log, [dict(item.split("=") for item in account.split()) for account in accounts]
        )


@pytest.fixture
def curl(program: Callable[[str], str]) -> Curl:
    return Curl(program("curl"))


@pytest.fixture
def module(write_app: Callable[[str], str]) -> str:
    return write_app(APP)


@pytest.fixture
def site(serve: Serve, module: str) -> Running:
    return serve(f"{module}:app")


@pytest.fixture
def upload(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_bytes(random.Random(29).randbytes(UPLOAD_BYTES))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_upload_waits_for_100_continue(curl: Curl, site: Running, upload: Path) -> None:
    # Without the 100, curl would give up waiting only when its whole time is over.
    transfer = curl("--expect100-timeout", "300", "--upload-file", upload, f"{site.url}/put")
    assert "> Expect: 100-continue" in transfer.log
    assert "< HTTP/1.1 100 Continue" in transfer.log
    seen = json.loads(transfer.output)
    assert (seen["method"], seen["size"], seen["sha256"]) == ("PUT", UPLOAD_BYTES, digest(upload))


def test_upload_without_expecting(curl: Curl, site: Running, upload: Path) -> None:
    transfer = curl("--header", "Expect:", "--data-binary", f"@{upload}", f"{site.url}/post")
    assert "100 Continue" not in transfer.log
    seen = json.loads(transfer.output)
    assert (seen["method"], seen["size"], seen["sha256"]) == ("POST", UPLOAD_BYTES, digest(upload))


def test_chunked_upload_from_a_pipe(curl: Curl, site: Running, upload: Path) -> None:
    transfer = curl("--upload-file", "-", f"{site.url}/put", stdin=upload.read_bytes())
    assert "> Transfer-Encoding: chunked" in transfer.log
    seen = json.loads(transfer.output)
    assert (seen["size"], seen["sha256"]) == (UPLOAD_BYTES, digest(upload))


@pytest.mark.skipif(foreign_server(), reason="takes Kirsch's own options")
def test_a_body_over_the_limit_is_refused_before_it_is_sent(
    curl: Curl, serve: Serve, module: str, upload: Path
) -> None:
    site = serve(f"{module}:app", "--limit-request-body", "1MiB")
    transfer = curl("--expect100-timeout", "300", "--upload-file", upload, f"{site.url}/put")
    assert transfer.figures[0]["code"] == "413"
    assert transfer.figures[0]["sent"] == "0"
    assert "100 Continue" not in transfer.log


@pytest.mark.skipif(foreign_server(), reason="takes Kirsch's own options")
def test_over_a_unix_socket(curl: Curl, serve: Serve, module: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    serve(f"{module}:app", "--bind", f"unix:{path}")
    transfer = curl("--unix-socket", path, "http://localhost/inside")
    assert json.loads(transfer.output)["path"] == "/inside"


def test_http_1_0(curl: Curl, site: Running) -> None:
    transfer = curl("--http1.0", f"{site.url}/stream")
    assert transfer.output == "".join(f"piece {number}\n" for number in range(100))
    assert "Transfer-Encoding" not in transfer.log
    transfer = curl("--http1.0", f"{site.url}/old")
    assert json.loads(transfer.output)["protocol"] == "HTTP/1.0"


def test_head(curl: Curl, site: Running) -> None:
    transfer = curl("--head", f"{site.url}/head", "--next", "--silent", f"{site.url}/get")
    assert transfer.output.startswith("HTTP/1.1 200 OK\r\n")
    fields, _, rest = transfer.output.partition("\r\n\r\n")
    assert "Content-Type: application/json" in fields
    # The next answer, and nothing else, follows the fields of HEAD.
    assert json.loads(rest)["path"] == "/get"


def test_three_urls_on_one_connection(curl: Curl, site: Running) -> None:
    transfer = curl(f"{site.url}/one", f"{site.url}/stream", f"{site.url}/three")
    assert [figures["connects"] for figures in transfer.figures] == ["1", "0", "0"]
    assert [figures["code"] for figures in transfer.figures] == ["200", "200", "200"]
    first, *pieces, last = transfer.output.splitlines()
    assert (json.loads(first)["path"], json.loads(last)["path"]) == ("/one", "/three")
    assert len(pieces) == 100


def test_a_request_line_that_is_none_gets_a_status(curl: Curl, site: Running) -> None:
    """Without a status line, curl would call the answer HTTP/0.9 and fail."""
    transfer = curl("--request", "NOT A METHOD", f"{site.url}/")
    assert transfer.figures[0]["code"] == "400"
    assert json.loads(curl(f"{site.url}/after").output)["path"] == "/after"
