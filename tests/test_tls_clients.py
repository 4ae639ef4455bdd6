"""Real clients of TLS: each program that is installed gets an answer, and what it must not get is refused."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authority import RSA, Authority
from rustls_client import BUILD_SECONDS, rustls_client

if TYPE_CHECKING:
    from running import Running, Serve

TESTS = Path(__file__).parent

GO = """package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	pem, _ := os.ReadFile(os.Args[1])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	for i := 0; i < 3; i++ {
		answer, err := client.Get(os.Args[2])
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(answer.Body)
		fmt.Println(answer.StatusCode, len(body), tls.VersionName(answer.TLS.Version))
	}
}
"""

NODE = """
const https = require('https'), fs = require('fs');
https.get(process.argv[3], {ca: fs.readFileSync(process.argv[2])}, answer => {
  const version = answer.socket.getProtocol();
  answer.on('data', () => {}).on('end', () => console.log(answer.statusCode, version));
});
"""

JAVA = """
import java.io.*; import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*;
import javax.net.ssl.*;

public class Client {
    public static void main(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = new FileInputStream(words[0])) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        HttpClient client = HttpClient.newBuilder().sslContext(context).build();
        HttpRequest request = HttpRequest.newBuilder(URI.create(words[1])).build();
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.sslSession().get().getProtocol());
    }
}
"""

# Asks twice on one connection, with each version of TLS.
PYTHON = """
import http.client, ssl, sys
for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    context = ssl.create_default_context(cafile=sys.argv[1])
    context.minimum_version = context.maximum_version = version
    connection = http.client.HTTPSConnection("localhost", int(sys.argv[2]), context=context, timeout=60)
    for _ in range(2):
        connection.request("GET", "/hello")
        answer = connection.getresponse()
        print(answer.status, len(answer.read()), connection.sock.version())
    connection.close()
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def site(serve: Serve, authority: Authority) -> Running:
    certificate, key = authority.issue("ec")
    rsa = authority.issue("rsa", key=RSA)
    return serve(
        "waiting_app:app", "--chdir", str(TESTS), "--certfile", certificate, "--keyfile", key, "--tls", ",".join(rsa)
    )


def output(*command: str, given: str = "", seconds: int = 120) -> str:
    """Return what a program prints. Skips the test if it is not installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"the program {command[0]} is not installed")
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds, check=False)
    return done.stdout + done.stderr


def url(site: Running) -> str:
    return f"https://localhost:{site.port}/hello"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_curl_is_served(site: Running, authority: Authority, version: str) -> None:
    options = ["--silent", "--show-error", "--cacert", authority.certificate, "--tls-max", version, f"--tlsv{version}"]
    assert output("curl", *options, "--write-out", " %{http_code}", url(site)).endswith(" 200")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["-tls1_2", "-tls1_3", "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", "-groups P-384"]
)
def test_openssl_is_served(site: Running, authority: Authority, options: str) -> None:
    found = output(
        "openssl", "s_client", "-connect", f"{site.host}:{site.port}", "-servername", "localhost", "-CAfile",
        authority.certificate, "-verify_return_error", "-ign_eof", *options.split(),
        given="GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )  # fmt: skip
    assert "HTTP/1.1 200 OK" in found
    assert "Verify return code: 0 (ok)" in found


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["-tls1_1", "-tls1", "-tls1_2 -cipher AES128-SHA", "-tls1_2 -cipher ECDHE-RSA-AES128-SHA"]
)
def test_openssl_is_refused_with_what_is_broken(site: Running, options: str) -> None:
    weak = [] if "AES" in options else ["-cipher", "ALL:@SECLEVEL=0"]
    found = output(
        "openssl", "s_client", "-connect", f"{site.host}:{site.port}", "-servername", "localhost",
        *options.split(), *weak, given="Q\n",
    )  # fmt: skip
    assert re.search(r"alert (protocol version|handshake failure)|no protocols available", found), found


def test_renegotiation_is_refused(site: Running) -> None:
    found = output(
        "openssl", "s_client", "-connect", f"{site.host}:{site.port}", "-servername", "localhost", "-tls1_2",
        given="R\n",
    )  # fmt: skip
    assert "RENEGOTIATING" in found
    assert re.search(r"no renegotiation|unexpected message", found), found


@pytest.mark.slow
def test_go_is_served(site: Running, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "client.go").write_text(GO)
    found = output("go", "run", str(tmp_path / "client.go"), authority.certificate, url(site), seconds=300)
    assert found.count("200 ") == 3, found
    assert "TLS 1.3" in found


@pytest.mark.slow
def test_node_is_served(site: Running, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "client.js").write_text(NODE)
    assert output("node", str(tmp_path / "client.js"), authority.certificate, url(site)) == "200 TLSv1.3\n"


@pytest.mark.slow
def test_java_is_served(site: Running, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "Client.java").write_text(JAVA)
    found = output("java", str(tmp_path / "Client.java"), authority.certificate, url(site), seconds=300)
    if "ClassNotFoundException" in found or "compil" in found:
        pytest.skip("this Java has no compiler (apt install default-jdk-headless)")
    assert "200 TLSv1.3" in found, found


@pytest.mark.slow
def test_chromium_is_served(site: Running, tmp_path: Path) -> None:
    # It does not know the authority, and would have to be given a profile that does.
    found = output(
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors",
        f"--user-data-dir={tmp_path}", "--dump-dom", url(site),
    )  # fmt: skip
    assert "hello" in found.lower(), found


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 60)
def test_rustls_is_served_and_told_the_end(site: Running, authority: Authority) -> None:
    assert output(rustls_client(), authority.certificate, str(site.port)) == "TLSv1_3 200 200 200\n"


@pytest.fixture(scope="module")
def development(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what ``kirsch dev-cert`` has made."""
    data = tmp_path_factory.mktemp("data")
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", "dev-cert"], env={**os.environ, "XDG_DATA_HOME": str(data)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return data / "kirsch" / "dev-cert"


@functools.cache
def pythons() -> dict[str, str]:
    find = str(TESTS.parent / ".ci" / "pythons")
    return dict(line.split(" ", 1) for line in (output(find) + output(find, "--pypy")).splitlines())


# On a busy machine it takes a minute to ask all shims of pyenv for their versions.
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["3.10", "3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t", "pypy"])
def test_python_is_served(name: str, serve: Serve, development: Path) -> None:
    if name not in pythons():
        pytest.skip(f"no Python {name} is found (scripts/debian_pythons.sh target/pythons, or pyenv)")
    certificate, key = str(development / "localhost.pem"), str(development / "localhost-key.pem")
    site = serve("waiting_app:app", "--chdir", str(TESTS), "--certfile", certificate, "--keyfile", key)
    found = output(pythons()[name], "-c", PYTHON, str(development / "authority.pem"), str(site.port))
    assert found == "200 5 TLSv1.2\n" * 2 + "200 5 TLSv1.3\n" * 2
