"""The scanners testssl.sh and sslyze find nothing above "low". `make test-tls` installs them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authority import RSA, Authority

if TYPE_CHECKING:
    from running import Running, Serve

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
# Where `make test-tls` installs sslyze, apart from the tools of the project, which would have to fit its dependencies.
SSLYZE = TESTS.parent / ".venvs" / "scanners" / "bin" / "sslyze"

# The beginnings of findings of testssl.sh that say nothing about the server.
EXPECTED = (
    # All suites are strong, so the client's order decides, as Mozilla recommends: a client knows whether its
    # processor has instructions for AES.
    "cipher_order",
    # The authority of this test has no revocation list.
    "cert_revocation",
    # These fields are the application's.
    "security_headers",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def site(serve: Serve, authority: Authority) -> Running:
    certificate, key = authority.issue("ec", days=90)
    rsa = authority.issue("rsa", key=RSA, days=90)
    return serve(
        "wsgi_app:app", "--chdir", str(TESTS), "--certfile", certificate, "--keyfile", key, "--tls", ",".join(rsa),
        "--hsts", "8760h",
    )  # fmt: skip


@pytest.mark.timeout(1300)
def test_testssl_finds_nothing_above_low(site: Running, authority: Authority, tmp_path: Path) -> None:
    program = shutil.which("testssl") or shutil.which("testssl.sh")
    if program is None:
        pytest.skip("testssl.sh is not installed (apt install testssl.sh)")
    report = tmp_path / "report.json"
    subprocess.run(
        [program, "--quiet", "--color", "0", "--warnings", "off", "--add-ca", authority.certificate, "--jsonfile",
         str(report), f"https://localhost:{site.port}/hello"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=1200, check=False,
    )  # fmt: skip
    findings = json.loads(report.read_text())
    # It has looked at all: protocols, ciphers, vulnerabilities.
    assert {"TLS1_3", "heartbleed", "ROBOT", "LUCKY13", "cert_chain_of_trust"} <= {
        finding["id"].partition(" ")[0] for finding in findings
    }
    bad = [
        f"{finding['severity']} {finding['id']}: {finding['finding']}"
        for finding in findings
        if finding["severity"] in {"MEDIUM", "HIGH", "CRITICAL"} and not finding["id"].startswith(EXPECTED)
    ]
    assert not bad, "\n".join(bad)


def test_sslyze_holds_the_server_for_compliant(site: Running, authority: Authority) -> None:
    if not SSLYZE.exists():
        pytest.skip("sslyze is not installed (make test-tls)")
    done = subprocess.run(
        [str(SSLYZE), "--mozilla_config", "intermediate", "--certinfo_ca_file", authority.certificate, "--early_data",
         f"localhost:{site.port}"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ": OK - Compliant." in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    assert "VULNERABLE -" not in done.stdout, done.stdout
