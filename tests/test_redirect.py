"""Clients without https: where --redirect-http sends them, and Strict-Transport-Security."""

from __future__ import annotations

import json
import re
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authority import Authority
from kirsch import _native
from kirsch.net.acme_files import AcmeFiles, write
from proc import descriptors, listening, wait_until
from running import children, title

if TYPE_CHECKING:
    from running import Running, Serve

TESTS = Path(__file__).parent
HERE = ("--chdir", str(TESTS))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    certificate, key = authority.issue("edge", "example.org", "*.example.net")
    return "--certfile", certificate, "--keyfile", key


def plain_port(running: Running) -> int:
    return next(int(url.rpartition(":")[2]) for url in running.addresses if url.startswith("http://"))


def ask(running: Running, target: str, *fields: str, method: str = "GET", body: str = "") -> tuple[int, str, str]:
    """Return status, head and body of the answer to a request without TLS."""
    lines = [f"{method} {target} HTTP/1.1", *fields, "Connection: close", f"Content-Length: {len(body)}", "", body]
    with socket.create_connection((running.host, plain_port(running)), timeout=20) as client:
        client.sendall("\r\n".join(lines).encode())
        answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    head, _, content = answer.partition("\r\n\r\n")
    return int(head.split()[1]), head, content


def location(head: str) -> str:
    match = re.search(r"^Location: (.*)$", head, re.M | re.I)
    assert match is not None, head
    return match[1].strip()


@pytest.fixture
def running(serve: Serve, files: tuple[str, ...]) -> Running:
    return serve(
        "wsgi_app:app", *HERE, *files, "--bind", "http://127.0.0.1:0", "--redirect-http", "--health-path", "/health"
    )


@pytest.mark.parametrize("host", ["example.org", "EXAMPLE.org:80", "example.org.", "shop.example.net"])
def test_clients_are_sent_to_the_same_path_of_a_host_with_a_certificate(running: Running, host: str) -> None:
    status, head, _ = ask(running, "/a%20b//c?x=1&y=/..", f"Host: {host}")
    name = host.lower().removesuffix(":80").removesuffix(".")
    assert (status, location(head)) == (308, f"https://{name}:{running.port}/a%20b//c?x=1&y=/..")
    assert "Strict-Transport-Security" not in head


def test_a_body_and_an_absolute_target_change_nothing(running: Running) -> None:
    status, head, _ = ask(running, "/form", "Host: example.org", method="POST", body="secret=1")
    assert (status, location(head)) == (308, f"https://example.org:{running.port}/form")
    status, head, _ = ask(running, "http://example.org/x", "Host: evil.example")
    assert (status, location(head)) == (308, f"https://example.org:{running.port}/x")


@pytest.mark.parametrize("host", ["evil.example", "example.org.evil.example", "a.b.example.net", "127.0.0.1"])
def test_hosts_without_a_certificate_are_not_sent_anywhere(running: Running, host: str) -> None:
    status, head, body = ask(running, "/", f"Host: {host}")
    assert (status, "ocation" in head) == (421, False)
    assert host not in body


def test_health_checks_are_answered_and_not_sent_elsewhere(running: Running) -> None:
    assert ask(running, "/health", "Host: 10.0.0.1")[0] == 200


def test_the_application_is_not_called_without_https(running: Running) -> None:
    assert ask(running, "/", "Host: example.org")[2] == "308 Permanent Redirect\nThis server is at https://.\n"


def test_the_port_of_https_can_be_another_one(serve: Serve, files: tuple[str, ...]) -> None:
    running = serve("wsgi_app:app", *HERE, *files, "--bind", "http://127.0.0.1:0", "--redirect-http", "--https-port",
                    "443")  # fmt: skip
    assert location(ask(running, "/", "Host: example.org")[1]) == "https://example.org/"


def test_a_trusted_proxy_that_says_https_is_served(serve: Serve, files: tuple[str, ...]) -> None:
    running = serve(
        "wsgi_app:app",
        *HERE,
        *files,
        "--bind",
        "http://127.0.0.1:0",
        "--redirect-http",
        "--trusted-proxies",
        "127.0.0.1",
    )
    assert ask(running, "/environ", "Host: example.org", "X-Forwarded-Proto: https")[0] == 200
    assert ask(running, "/", "Host: example.org", "X-Forwarded-Proto: http")[0] == 308
    assert ask(running, "/", "Host: example.org")[0] == 308


def test_without_the_setting_the_application_answers(serve: Serve, files: tuple[str, ...]) -> None:
    running = serve("wsgi_app:app", *HERE, *files, "--bind", "http://127.0.0.1:0")
    assert ask(running, "/environ", "Host: evil.example")[0] == 200


def over_tls(running: Running, path: str = "/", name: str = "example.org") -> str:
    context = ssl._create_unverified_context()
    with (
        socket.create_connection((running.host, running.port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname=name) as client,
    ):
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(65536), b"")).decode().partition("\r\n\r\n")[0]


def test_encrypted_responses_have_strict_transport_security_and_plain_ones_have_not(
    serve: Serve, files: tuple[str, ...]
) -> None:
    running = serve(
        "wsgi_app:app", *HERE, *files, "--bind", "http://127.0.0.1:0", "--hsts", "1h", "--health-path", "/h"
    )
    for path in ("/", "/h"):
        assert "\r\nStrict-Transport-Security: max-age=3600\r\n" in f"{over_tls(running, path)}\r\n"
    assert "Strict-Transport-Security" not in ask(running, "/", "Host: example.org")[1]


def test_strict_transport_security_is_the_applications_if_it_sets_it(
    serve: Serve, files: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "hsts_app.py").write_text(
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [('strict-transport-security', 'max-age=1'), ('Content-Length', '0')])\n"
        "    return []\n"
    )
    running = serve("hsts_app:app", "--chdir", str(tmp_path), *files, "--hsts", "1h", "--hsts-subdomains")
    head = over_tls(running)
    assert head.lower().count("strict-transport-security") == 1
    assert "max-age=1\r\n" in f"{head}\r\n"


def test_subdomains_are_included_when_asked_for(serve: Serve, files: tuple[str, ...]) -> None:
    running = serve("wsgi_app:app", *HERE, *files, "--hsts", "60", "--hsts-subdomains")
    assert "Strict-Transport-Security: max-age=60; includeSubDomains" in over_tls(running)


# ------------------------------------------------------------------------------------- the answers to an ACME authority


@pytest.fixture
def obtaining(serve: Serve, tmp_path: Path) -> Running:
    """A server that waits for its first certificate; its authority is not there."""
    values = {"acme": ("shop.example.org",), "acme_state": str(tmp_path / "state"), "acme_staging": False,
              "acme_directory": "https://127.0.0.1:9/dir"}  # fmt: skip
    state = AcmeFiles(values)
    state.create()
    write(state.account, json.dumps({"thumbprint": "THUMB"}).encode())
    return serve(
        "wsgi_app:app", *HERE, "--bind", "http://127.0.0.1:0", "--redirect-http", "--acme", "shop.example.org",
        "--acme-agree-tos", "--acme-state", str(tmp_path / "state"), "--acme-directory", "https://127.0.0.1:9/dir",
    )  # fmt: skip


def test_without_any_certificate_the_server_starts_says_so_and_refuses_tls(obtaining: Running) -> None:
    assert "shop.example.org: there is no certificate yet; connections for this name are refused" in obtaining.stderr
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        over_tls(obtaining, name="shop.example.org")
    obtaining.wait_for("acme: shop.example.org: there is no certificate: .*the next attempt is in", timeout=60)


def test_a_challenge_is_answered_by_any_host_that_knows_the_account_and_is_not_redirected(obtaining: Running) -> None:
    path = "/.well-known/acme-challenge/AbC-_09"
    status, head, body = ask(obtaining, path, "Host: shop.example.org")
    assert (status, body) == (200, "AbC-_09.THUMB")
    assert "Content-Type: application/octet-stream" in head
    assert ask(obtaining, path, "Host: shop.example.org", method="HEAD")[2] == ""
    for other in ("/.well-known/acme-challenge/<script>", "/.well-known/acme-challenge/a.b", "/.well-known/other"):
        assert ask(obtaining, other.replace("<", "%3C").replace(">", "%3E"), "Host: shop.example.org")[0] == 308


def test_names_that_will_have_a_certificate_are_redirected(obtaining: Running) -> None:
    assert ask(obtaining, "/", "Host: shop.example.org")[0] == 308
    assert ask(obtaining, "/", "Host: other.example.org")[0] == 421


def test_a_challenge_of_tls_is_answered_within_seconds_after_its_file_is_there(
    obtaining: Running, tmp_path: Path
) -> None:
    key, certificate = _native.make_challenge("shop.example.org", "token.THUMB")
    folder = next(path for path in (tmp_path / "state").iterdir() if path.is_dir())
    write(str(folder / "shop.example.org.challenge.pem"), f"{key}{certificate}".encode())
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["acme-tls/1"])

    def presented() -> bytes | None:
        try:
            with (
                socket.create_connection((obtaining.host, obtaining.port), timeout=20) as raw,
                context.wrap_socket(raw, server_hostname="shop.example.org") as client,
            ):
                assert client.selected_alpn_protocol() == "acme-tls/1"
                return client.getpeercert(binary_form=True)
        except (ssl.SSLError, OSError):
            return None

    wait_until(lambda: presented() == ssl.PEM_cert_to_DER_cert(certificate), "the challenge's certificate is presented")
    # It is for the authority alone.
    with pytest.raises(ssl.SSLError):
        over_tls(obtaining, name="shop.example.org")


def test_the_process_that_obtains_has_few_rights_and_ends_with_the_supervisor(obtaining: Running) -> None:
    obtaining.wait_for("acme: shop.example.org: there is no certificate", timeout=60)
    (pid,) = (each for each in children(obtaining.pid) if title(each).startswith("kirsch: acme"))
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(r"^NoNewPrivs:\t1$", status, re.M) or "Landlock" in obtaining.stderr
    assert re.search(r"^CapEff:\t0+$", status, re.M)
    assert listening(pid) == set()
    assert not [each for each in descriptors(pid).values() if "kirsch-value" in each], "the certificates are not its"
    obtaining.process.kill()
    obtaining.process.wait()
    wait_until(lambda: not title(pid), "the process has ended")
