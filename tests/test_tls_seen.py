"""Handshakes of TLS as operators see them: metrics, ``kirsch top``, the access log."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authority import Authority, session_of
from proc import wait_until

if TYPE_CHECKING:
    from running import Running, Serve

HERE = ("--chdir", str(Path(__file__).parent))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def context(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    made.minimum_version = made.maximum_version = version
    return made


def failed_handshakes(running: Running, authority: Authority) -> None:
    """Make three handshakes fail, each for another reason."""
    stranger = ssl.create_default_context()
    with (
        socket.create_connection((running.host, running.port), timeout=20) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        stranger.wrap_socket(raw, server_hostname="localhost")
    for first in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0\0\0\0"):
        with socket.create_connection((running.host, running.port), timeout=20) as raw:
            raw.sendall(first)
            while raw.recv(4096):
                pass


def test_handshakes_are_counted_by_their_results(serve: Serve, authority: Authority) -> None:
    certificate, key = authority.issue("counted")
    running = serve(
        "wsgi_app:app", *HERE, "--workers", "2", "--metrics-bind", "127.0.0.1:0", "--certfile", certificate,
        "--keyfile", key,
    )  # fmt: skip
    address = running.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def metrics() -> dict[str, float]:
        """Return the metrics of TLS that are not 0, without their common beginning."""
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            found = re.findall(r"^kirsch_tls_(\S+) (\S+)$", answer.read().decode(), re.MULTILINE)
        return {name: float(value) for name, value in found if float(value)}

    assert metrics() == {}
    old, new = (context(authority, version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
    session, _ = session_of(running, old, None)
    assert session_of(running, old, session)[1]
    session_of(running, new, None)
    failed_handshakes(running, authority)
    wait_until(lambda: sum(value for name, value in metrics().items() if "failed" in name) == 3, "failures", 20)
    found = metrics()
    ciphers = {name for name in found if name.startswith("ciphers")}
    groups = [(name, found.pop(name)) for name in list(found) if name.startswith("groups")]
    for name in ciphers:
        del found[name]
    assert found == {
        'handshakes_full_total{version="TLSv1.2"}': 1,
        'handshakes_resumed_total{version="TLSv1.2"}': 1,
        'handshakes_full_total{version="TLSv1.3"}': 1,
        'handshakes_failed_total{reason="certificate_refused"}': 1,
        'handshakes_failed_total{reason="plain_http"}': 1,
        'handshakes_failed_total{reason="not_tls"}': 1,
    }
    # The client's library decides which they are.
    assert len(ciphers) == 2
    assert ('groups_total{group="none"}', 1) in groups
    assert sum(count for _, count in groups) == 3

    command = [sys.executable, "-m", "kirsch", "top", "--once", address]
    top = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "TLS        2 full handshakes, 1 resumed, 3 failed (" in top
    assert "plain http 1" in top
    with urllib.request.urlopen(f"http://{address}/status.json", timeout=20) as answer:
        assert json.load(answer)["tls"]["failed"]["not_tls"] == 1


def test_access_log_has_the_encryption(serve: Serve, authority: Authority) -> None:
    certificate, key = authority.issue("logged")
    files = ("--certfile", certificate, "--keyfile", key, "--access-logfile", "-")
    new = context(authority, ssl.TLSVersion.TLSv1_3)
    running = serve("wsgi_app:app", *HERE, *files, "--access-logformat", "json")
    session_of(running, new, None)
    found = json.loads(running.wait_for_output(r'^\{.*"path":"/".*\}$', timeout=20).group())
    assert (found["tls_version"], found["tls_server_name"], found["tls_resumed"]) == ("TLSv1.3", "localhost", False)
    assert re.fullmatch(r"TLS_[A-Z0-9_]+", found["tls_cipher"])
    assert found["tls_group"]
    running = serve("wsgi_app:app", *HERE, *files, "--access-logformat", "%(s)s %({SSL_PROTOCOL}x)s %({SSL_TLS_SNI}x)s")
    session_of(running, new, None)
    running.wait_for_output(r"^\d+ TLSv1.3 localhost$", timeout=20)
    plain = serve("wsgi_app:app", *HERE, "--access-logfile", "-", "--access-logformat", "%(s)s %({SSL_CIPHER}x)s")
    plain.page("/hello")
    plain.wait_for_output(r"^200 -$", timeout=20)
