"""Responses that the engine encodes (``--compress``), as real clients receive and decode them."""

from __future__ import annotations

import gzip
import http.client
import shutil
import subprocess
import zlib
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import gateway_clients
from compression_app import CASES, LONG, body_of
from waiting import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

every_interface = pytest.mark.parametrize("interface", ["wsgi", "asgi"])


def served(serve: Serve, interface: str, *args: str) -> Running:
    return serve(f"compression_app:{interface}", "--pythonpath", HERE, "--compress=on", *args)


def curl(site: Running, path: str, *args: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, fields and decoded body. Fails if curl does, as at a body that it cannot decode."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("the program curl is not installed (apt install curl)")
    command = [program, "--silent", "--show-error", "--compressed", "--include", "--max-time", "30", *args]
    done = subprocess.run([*command, f"http://127.0.0.1:{site.port}{path}"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), {name.lower(): value for name, value in fields.items()}, body


@every_interface
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_cases_of_the_corpus(serve: Serve, interface: str, version: str) -> None:
    site = served(serve, interface)
    for number, case in enumerate(CASES):
        asked = [argument for name, value in case["ask"].items() for argument in ("--header", f"{name}: {value}")]
        if case["ask"]["accept-encoding"] == "":
            asked = ["--header", "accept-encoding;"]
        method = ["--head"] if case.get("method") == "HEAD" else []
        status, fields, body = curl(site, f"/{number}", version, *method, *asked)
        assert status == case.get("status", 200), case["name"]
        assert fields.get("content-encoding", "") == case["coding"], case["name"]
        assert body == (b"" if method else body_of(case.get("length", 4000))), case["name"]
        wanted = {"vary": "Accept-Encoding"} if case["coding"] else {}
        for name, value in {**wanted, **case.get("with", {})}.items():
            assert fields.get(name) == value, (case["name"], name)
        for name in case.get("without", []):
            assert name not in fields, (case["name"], name)


@every_interface
@pytest.mark.parametrize("coding", ["zstd", "br", "gzip"])
def test_long_block_is_encoded_whole(serve: Serve, interface: str, coding: str) -> None:
    site = served(serve, interface)
    for version in ("--http1.1", "--http2-prior-knowledge"):
        _, fields, body = curl(site, "/long", version, "--header", f"accept-encoding: {coding}")
        assert fields["content-encoding"] == coding
        assert body == body_of(LONG)


@every_interface
def test_event_can_be_decoded_when_it_arrives(serve: Serve, interface: str) -> None:
    site = served(serve, interface, "--threads=3" if interface == "wsgi" else "--threads=1")
    decoder, seen = zlib.decompressobj(31), b""
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)) as stream:
        stream.request("GET", "/events", headers={"Accept-Encoding": "gzip"})
        response = stream.getresponse()
        assert response.headers["Content-Encoding"] == "gzip"
        for number in range(3):
            while not seen.endswith(b"data: %d\n\n" % number):
                part = response.read1()
                assert part, "the stream has ended"
                seen += decoder.decompress(part)
            # The application makes the next event only now.
            site.page("/go")
        while part := response.read1():
            seen += decoder.decompress(part)
    assert decoder.eof
    assert seen == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
def test_responses_are_encoded_over_protocols_of_web_servers(serve: Serve, tmp_path: Path, protocol: str) -> None:
    address = str(tmp_path / "socket")
    served(serve, "wsgi", f"--bind={protocol}:unix:{address}")
    for target, length in (("/0", 4000), ("/long", LONG)):
        response = gateway_clients.ask(protocol, address, target, HTTP_ACCEPT_ENCODING="gzip")
        assert (response.one("Content-Encoding"), response.one("Vary")) == ("gzip", "Accept-Encoding")
        assert gzip.decompress(response.body) == body_of(length)
        plain = gateway_clients.ask(protocol, address, target)
        assert (plain.one("Content-Encoding"), plain.body) == (None, body_of(length))


@pytest.mark.parametrize("path", ["/too-long", "/too-short"])
def test_body_of_another_length_than_declared_is_cut(serve: Serve, path: str) -> None:
    site = served(serve, "wsgi")
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)) as connection:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        with pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()
    site.wait_for(f"the response body is {path[1:].replace('too-', '')}er than its Content-Length")


def test_client_of_http_1_0_keeps_its_connection(serve: Serve) -> None:
    site = served(serve, "wsgi")
    _, fields, body = curl(site, "/0", "--http1.0", "--header", "accept-encoding: gzip")
    assert "content-encoding" not in fields
    assert fields["vary"] == "Accept-Encoding"
    assert body == body_of(4000)


def test_server_has_its_own_order_types_sizes_and_memory(serve: Serve) -> None:
    everything = ("--header", "accept-encoding: gzip, br, zstd")
    limits = ("--compress=gzip,br", "--compress-types=image/*", "--compress-min-size=1")
    site = serve("compression_app:wsgi", "--pythonpath", HERE, *limits)
    image = next(number for number, case in enumerate(CASES) if case.get("type") == "image/png")
    assert curl(site, f"/{image}", *everything)[1]["content-encoding"] == "gzip"
    assert "content-encoding" not in curl(site, "/0", *everything)[1]
    cookie = next(number for number, case in enumerate(CASES) if "cookie" in case["ask"])
    site = served(serve, "wsgi", "--compress-private")
    assert curl(site, f"/{cookie}", *everything, "--header", "cookie: id=5")[1]["content-encoding"] == "zstd"
    site = served(serve, "wsgi", "--compress-memory=100k")
    _, fields, body = curl(site, "/0", *everything)
    assert "content-encoding" not in fields
    assert (fields["vary"], body) == ("Accept-Encoding", body_of(4000))


def test_nothing_is_encoded_by_default(serve: Serve) -> None:
    site = serve("compression_app:wsgi", "--pythonpath", HERE)
    _, fields, _ = curl(site, "/0", "--header", "accept-encoding: gzip")
    assert not {"content-encoding", "vary"} & fields.keys()
