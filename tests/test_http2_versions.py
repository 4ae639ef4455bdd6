"""HTTP/2 and HTTP/1.1 on the same addresses: which version each client gets, and real clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from authority import Authority
from http2_frames import PREFACE
from http2_peer import SETTINGS, Http2Peer, environ, frame
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve


HERE = os.path.dirname(__file__)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[str, str]:
    return authority.issue("localhost")


def trusting(authority: Authority, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def serve_tls(serve: Serve, certificate: tuple[str, str], *args: str, app: str = "wsgi_app:app") -> Running:
    return serve(app, "--certfile", certificate[0], "--keyfile", certificate[1], *args, cwd=HERE)


# Which version a client gets


@pytest.mark.parametrize("app", ["wsgi_app:app", "asgi_app:app"])
def test_client_that_negotiates_http2_gets_it(
    serve: Serve, authority: Authority, certificate: tuple[str, str], app: str
) -> None:
    site = serve_tls(serve, certificate, app=app)
    with Http2Peer.connect_tls(site, trusting(authority)) as peer:
        answer = peer.get("/hello")
    assert (answer.status, answer.body.lower()) == (200, b"hello")


@pytest.mark.parametrize("offered", [[], ["http/1.1"], ["http/1.0", "http/1.1"]])
def test_client_of_tls_that_does_not_negotiate_http2_gets_http1(
    serve: Serve, authority: Authority, certificate: tuple[str, str], offered: list[str]
) -> None:
    site = serve_tls(serve, certificate)
    with Peer.connect(site.host, site.port) as plain:
        plain.sock = trusting(authority, *offered).wrap_socket(plain.sock, server_hostname="localhost")
        plain.send(build_request("GET", "/hello", host="localhost"))
        assert plain.read_response().body == b"Hello"
        # The connection has its version.
        plain.send(PREFACE)
        refused = plain.read_response()
    assert refused.status == 505
    assert b"have to negotiate it (ALPN)" in refused.body


def test_handshake_without_a_common_protocol_fails(
    serve: Serve, authority: Authority, certificate: tuple[str, str]
) -> None:
    site = serve_tls(serve, certificate, "--http", "1")
    with Peer.connect(site.host, site.port) as plain, pytest.raises(ssl.SSLError, match="no application protocol"):
        trusting(authority, "h2").wrap_socket(plain.sock, server_hostname="localhost")


def test_both_versions_are_served_in_clear_on_one_port(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        assert peer.get("/hello").body == b"Hello"
    assert site.page("/hello") == "Hello"


@pytest.mark.parametrize("cut", [1, 2, 3, 14, 23])
def test_preface_is_recognised_however_it_arrives(serve: Serve, cut: int) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Peer.connect(site.host, site.port) as raw:
        raw.send(PREFACE[:cut])
        time.sleep(0.05)
        raw.send(PREFACE[cut:] + frame(SETTINGS))
        assert raw.sock.recv(9)[3:4] == bytes([SETTINGS])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "PRI", "PROPFIND"])
def test_method_that_resembles_the_preface_is_of_http1(serve: Serve, method: str) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Peer.connect(site.host, site.port) as raw:
        for byte in build_request(method, "/hello", body=b""):
            raw.send(bytes([byte]))
        assert raw.read_response().status == 200


def test_request_to_upgrade_is_ignored(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    fields = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    answer = exchange(site.host, site.port, build_request("GET", "/hello", headers=fields))
    assert (answer.status, answer.body) == (200, b"Hello")


def test_http2_can_be_turned_off(serve: Serve) -> None:
    site = serve("wsgi_app:app", "--http", "1", cwd=HERE)
    answer = exchange(site.host, site.port, PREFACE)
    assert answer.status == 505
    assert b"--http 1 turns it off" in answer.body
    site.wait_for(r"refused with 505: client 127\.0\.0\.1:\d+, PRI \*: HTTP/2 was spoken on a connection of HTTP/1\.1")


def test_http1_can_be_turned_off(serve: Serve, authority: Authority, certificate: tuple[str, str]) -> None:
    site = serve_tls(serve, certificate, "--http", "2", "--bind", "http://127.0.0.1:0")
    # The first address is that of --bind in the fixture, which is encrypted.
    with Peer.connect(site.host, site.port) as plain, pytest.raises(ssl.SSLError, match="no application protocol"):
        trusting(authority, "http/1.1").wrap_socket(plain.sock, server_hostname="localhost")
    with Http2Peer.connect_tls(site, trusting(authority)) as peer:
        assert peer.get("/hello").status == 200


def test_header_of_the_proxy_protocol_comes_before_http2(serve: Serve) -> None:
    site = serve("wsgi_app:app", "--bind", "127.0.0.1:0?proxy", cwd=HERE)
    _, port = site.addresses[-1].rsplit(":", 1)
    with Peer.connect(site.host, int(port.rstrip("/"))) as raw:
        raw.send(b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n")
        with Http2Peer(raw.sock) as peer:
            values = json.loads(peer.get("/environ").body)["values"]
    assert (values["REMOTE_ADDR"], values["SERVER_PROTOCOL"]) == ("192.0.2.7", "HTTP/2.0")


def test_http2_reaches_a_unix_socket(serve: Serve, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    serve("wsgi_app:app", "--bind", f"unix:{path}", cwd=HERE)
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    with Http2Peer(client) as peer:
        assert peer.get("/hello").body == b"Hello"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("3", "'3' is not one of auto, 1, 2"),
        ("h11", "'h11' is a parser of uvicorn; write auto, or leave --http out"),
        (":8000", "':8000' is an address, which --http of uWSGI takes; write --bind HOST:PORT"),
    ],
)
def test_wrong_version_is_explained(value: str, message: str) -> None:
    command = [sys.executable, "-m", "kirsch", "--http", value, "wsgi_app:app"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=60, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_scheme_of_an_encrypted_connection_is_https(
    serve: Serve, authority: Authority, certificate: tuple[str, str]
) -> None:
    site = serve_tls(serve, certificate)
    with Http2Peer.connect_tls(site, trusting(authority)) as peer:
        for scheme in ("https", "http"):
            assert environ(peer, scheme=scheme)["wsgi.url_scheme"] == "https"


# Real clients


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def test_curl_is_served(
    serve: Serve, program: Callable[[str], str], authority: Authority, certificate: tuple[str, str], tmp_path: Path
) -> None:
    site = serve_tls(serve, certificate)
    shown = ["-sS", "--write-out", " %{http_version} %{response_code}"]
    trust = ["--cacert", authority.certificate, "--resolve", f"localhost:{site.port}:127.0.0.1"]
    url = f"https://localhost:{site.port}"
    curl = program("curl")
    assert run(curl, *shown, *trust, "--http2", f"{url}/hello") == "Hello 2 200"
    assert run(curl, *shown, *trust, "--http1.1", f"{url}/hello") == "Hello 1.1 200"
    (tmp_path / "body").write_bytes(os.urandom(3_000_000))
    expected = (tmp_path / "body").read_bytes()
    run(curl, *trust, "-sS", "--http2", "-T", str(tmp_path / "body"), "-o", str(tmp_path / "back"), f"{url}/echo")
    assert (tmp_path / "back").read_bytes() == expected
    plain = serve("wsgi_app:app", cwd=HERE)
    assert run(curl, *shown, "--http2-prior-knowledge", f"{plain.url}/hello") == "Hello 2 200"
    assert run(curl, *shown, "--http2", f"{plain.url}/hello") == "Hello 1.1 200"


def test_nghttp_and_h2load_are_served(serve: Serve, program: Callable[[str], str]) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    said = run(program("nghttp"), "-v", f"{site.url}/hello")
    assert ":status: 200" in said
    said = run(program("h2load"), "-n", "20000", "-c", "8", "-m", "32", f"{site.url}/hello")
    assert "20000 succeeded, 0 failed, 0 errored" in said
    said = run(program("h2load"), "-n", "2000", "-c", "8", "-m", "8", "-w", "10", f"{site.url}/environ")
    assert "2000 succeeded, 0 failed, 0 errored" in said


@pytest.mark.slow
def test_httpx_is_served(serve: Serve, authority: Authority, certificate: tuple[str, str]) -> None:
    httpx = pytest.importorskip("httpx")
    site = serve_tls(serve, certificate)
    with httpx.Client(http2=True, verify=trusting(authority)) as client:
        for _ in range(3):
            answer = client.get(f"https://localhost:{site.port}/hello")
            assert (answer.http_version, answer.status_code, answer.text) == ("HTTP/2", 200, "Hello")
        body = bytes(range(256)) * 20_000
        assert client.post(f"https://localhost:{site.port}/echo", content=body).content == body


NODE = """
const http2 = require("http2"), fs = require("fs");
const client = http2.connect(process.argv[2], { ca: process.argv[3] ? fs.readFileSync(process.argv[3]) : undefined });
let left = 50, text = "";
for (let number = 0; number < 50; number++) {
    const head = number % 2 ? { ":path": "/hello" } : { ":path": "/echo", ":method": "POST" };
    const request = client.request(head);
    request.setEncoding("utf8");
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
        text += body.length + " ";
        if (--left === 0) { console.log(text); client.close(); }
    });
    request.end(number % 2 ? undefined : "x".repeat(100000));
}
"""


def test_node_is_served(serve: Serve, program: Callable[[str], str], tmp_path: Path) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    (tmp_path / "client.js").write_text(NODE)
    counts = run(program("node"), str(tmp_path / "client.js"), site.url).split()
    assert sorted(counts) == ["100000"] * 25 + ["5"] * 25


GO = """
package main

import ("fmt"; "io"; "net/http"; "os"; "strings"; "sync")

func main() {
    protocols := new(http.Protocols)
    protocols.SetUnencryptedHTTP2(true)
    client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
    var group sync.WaitGroup
    for number := range 200 {
        group.Add(1)
        go func() {
            defer group.Done()
            sent := strings.Repeat("x", number*100)
            answer, err := client.Post(os.Args[1]+"/echo", "text/plain", strings.NewReader(sent))
            if err != nil { fmt.Println(err); os.Exit(1) }
            body, err := io.ReadAll(answer.Body)
            if err != nil || string(body) != sent || answer.Proto != "HTTP/2.0" { fmt.Println(err); os.Exit(1) }
        }()
    }
    group.Wait()
    fmt.Println("done")
}
"""


def test_go_is_served(serve: Serve, program: Callable[[str], str], tmp_path: Path) -> None:
    go = program("go")
    version = re.search(r"go1\.(\d+)", run(go, "version"))
    if version is None or int(version[1]) < 24:
        pytest.skip("Go speaks HTTP/2 in clear from 1.24 on")
    site = serve("wsgi_app:app", cwd=HERE)
    (tmp_path / "client.go").write_text(GO)
    assert run(go, "run", str(tmp_path / "client.go"), site.url) == "done\n"


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        // It asks for HTTP/2 by Upgrade, which is ignored, and with TLS by ALPN.
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
        for (int number = 0; number < 20; number++) {
            var request = HttpRequest.newBuilder(URI.create(arguments[0] + "/echo"))
                .POST(HttpRequest.BodyPublishers.ofString("x".repeat(number * 1000))).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.body().length() != number * 1000) throw new Exception("length " + answer.body().length());
            if (number == 19) System.out.println(answer.version() + " " + answer.statusCode());
        }
    }
}
"""


def test_java_is_served(
    serve: Serve, program: Callable[[str], str], authority: Authority, certificate: tuple[str, str], tmp_path: Path
) -> None:
    java, keytool = program("java"), shutil.which("keytool")
    (tmp_path / "Client.java").write_text(JAVA)
    site = serve("wsgi_app:app", cwd=HERE)
    assert run(java, str(tmp_path / "Client.java"), site.url) == "HTTP_1_1 200\n"
    if keytool is None:
        pytest.skip("keytool is missing, which makes the client trust the certificate")
    trust = tmp_path / "trust.p12"
    run(
        keytool,
        "-importcert",
        "-noprompt",
        "-file",
        authority.certificate,
        "-keystore",
        str(trust),
        "-storepass",
        "secret",
    )
    encrypted = serve_tls(serve, certificate)
    trusted = [f"-Djavax.net.ssl.trustStore={trust}", "-Djavax.net.ssl.trustStorePassword=secret"]
    said = run(java, *trusted, str(tmp_path / "Client.java"), f"https://localhost:{encrypted.port}")
    assert said == "HTTP_2 200\n"
