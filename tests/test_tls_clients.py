"""Real clients of TLS: each program that is installed gets an answer, and what it must not get is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
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

PYTHON = (
    "import ssl, sys, urllib.request; context = ssl.create_default_context(cafile=sys.argv[1]);"
    "answer = urllib.request.urlopen(sys.argv[2], context=context, timeout=30);"
    "print(answer.status, len(answer.read()))"
)


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


@pytest.mark.slow
def test_every_python_is_served(site: Running, authority: Authority) -> None:
    pythons = dict(line.split() for line in output(str(TESTS.parent / ".ci" / "pythons")).splitlines())
    missing = [f"3.{minor}" for minor in range(10, 16) if not any(name.startswith(f"3.{minor}") for name in pythons)]
    print(f"not tried, because scripts/debian_pythons.sh has not made them: {', '.join(missing) or 'none'}")
    found = {name: output(path, "-c", PYTHON, authority.certificate, url(site))[:3] for name, path in pythons.items()}
    if not found:
        pytest.skip("there is no Python that .ci/pythons finds")
    assert found == dict.fromkeys(pythons, "200")
