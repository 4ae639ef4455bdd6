"""Certificates of the command ``kirsch``: which are served, and how they change while it runs."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from authority import EC, ED25519, RSA, Authority, session_of
from kirsch.config import sources
from kirsch.config.setting import UsageError
from kirsch.net.certificates import TlsFiles
from kirsch.supervisor.certificates import CertificateManager
from proc import wait_until

if TYPE_CHECKING:
    from running import Running, Serve

TESTS = Path(__file__).parent
HERE = ("--chdir", str(TESTS))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def context(authority: Authority, **options: object) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    for name, value in options.items():
        setattr(made, name, value)
    return made


def presented(running: Running, authority: Authority, name: str = "localhost") -> int:
    """Return the serial number of the certificate that a client gets for ``name``."""
    with (
        socket.create_connection((running.host, running.port), timeout=20) as raw,
        context(authority, check_hostname=False).wrap_socket(raw, server_hostname=name) as client,
    ):
        return int(str(client.getpeercert()["serialNumber"]), 16)  # type: ignore[index]


def serial(authority: Authority, certificate: str) -> int:
    return int(authority.run("x509", "-in", certificate, "-noout", "-serial").strip().removeprefix("serial="), 16)


def get(running: Running, authority: Authority, path: str, **options: object) -> bytes:
    url = f"https://localhost:{running.port}{path}"
    with urllib.request.urlopen(url, context=context(authority, **options), timeout=20) as response:
        body: bytes = response.read()
        return body


def refusal(*args: str) -> tuple[int, str]:
    """Return the exit status and standard error of a command that does not serve."""
    command = [sys.executable, "-m", "kirsch", "wsgi_app:app", "--bind", "127.0.0.1:0", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=TESTS, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("workers", ["0", "1"])
def test_addresses_are_https_with_a_certificate_unless_they_say_http(
    serve: Serve, authority: Authority, workers: str
) -> None:
    certificate, key = authority.issue("plain")
    running = serve(
        "waiting_app:app", *HERE, "--workers", workers, "--certfile", certificate, "--keyfile", key,
        "--bind", "http://127.0.0.1:0",
    )  # fmt: skip
    encrypted, plain = sorted(running.addresses, reverse=True)
    assert encrypted.startswith("https://")
    assert plain.startswith("http://")
    assert get(running, authority, "/hello")
    with urllib.request.urlopen(f"{plain}/hello", timeout=20) as response:
        assert response.status == 200


def test_curl_verifies_the_certificate(serve: Serve, authority: Authority) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the program curl is not installed (apt install curl)")
    certificate, key = authority.issue("curl")
    running = serve("waiting_app:app", *HERE, "--ssl-certfile", certificate, "--ssl-keyfile", key)
    command = ["curl", "--silent", "--show-error", "--fail", "--cacert", authority.certificate]
    done = subprocess.run(
        [*command, f"https://localhost:{running.port}/hello"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_certificate_is_that_of_the_name_and_of_the_kind_that_the_client_prefers(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("first"), authority.issue("second", "two.example", "*.two.example")
    rsa = authority.issue("rsa", key=RSA)
    password = tmp_path / "password"
    password.write_text("secret word\n")
    encrypted = str(tmp_path / "encrypted.key")
    authority.run("pkcs8", "-topk8", "-in", second[1], "-out", encrypted, "-passout", "pass:secret word")
    (tmp_path / "kirsch.toml").write_text(
        f'certfile = "{first[0]}"\nkeyfile = "{first[1]}"\n'
        f'[[tls]]\ncertfile = "{second[0]}"\nkeyfile = "{encrypted}"\nkeyfile-password = "file:{password}"\n'
        f'[[tls]]\ncertfile = "{rsa[0]}"\nkeyfile = "{rsa[1]}"\nnames = ["localhost"]\n'
    )
    running = serve("wsgi_app:app", *HERE, "--config", str(tmp_path / "kirsch.toml"))
    assert presented(running, authority, "two.example") == serial(authority, second[0])
    assert presented(running, authority, "any.two.example") == serial(authority, second[0])
    for name in ("localhost", "unknown.example"):
        assert presented(running, authority, name) == serial(authority, first[0])
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{running.port}", "-servername", "localhost", "-sigalgs"]
    for algorithms, kind in (("rsa_pss_rsae_sha256:ecdsa_secp256r1_sha256", "RSA"), ("ECDSA+SHA256", "ECDSA")):
        done = subprocess.run([*command, algorithms], input="", capture_output=True, text=True, timeout=60, check=False)
        assert re.search(rf"signature type: {kind}|Peer signature type: (rsa_pss|ecdsa)?.*{kind}", done.stdout, re.I)


def test_password_of_a_key_can_be_in_a_variable(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("variable")
    encrypted = str(tmp_path / "encrypted.key")
    authority.run("pkcs8", "-topk8", "-in", key, "-out", encrypted, "-passout", "pass:secret word")
    running = serve(
        "wsgi_app:app", *HERE, "--certfile", certificate, "--keyfile", encrypted,
        "--keyfile-password", "env:WORD_OF_THE_KEY", env={"WORD_OF_THE_KEY": "secret word"},
    )  # fmt: skip
    assert presented(running, authority) == serial(authority, certificate)


def test_changed_files_take_effect_without_a_restart(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    old, new = authority.issue("old"), authority.issue("new", key=ED25519)
    live = tmp_path / "live"
    live.symlink_to(tmp_path / "one")
    for folder, (certificate, key) in (("one", old), ("two", new)):
        (tmp_path / folder).mkdir()
        shutil.copy(certificate, tmp_path / folder / "cert.pem")
        shutil.copy(key, tmp_path / folder / "key.pem")
    running = serve(
        "wsgi_app:app", *HERE, "--workers", "2", "--certfile", str(live / "cert.pem"),
        "--keyfile", str(live / "key.pem"),
        "--metrics-bind", "127.0.0.1:0",
    )  # fmt: skip
    metrics = running.wait_for(r"metrics on (http://\S+)")[1]
    workers = set(running.worker_pids())
    assert presented(running, authority) == serial(authority, old[0])
    # A symbolic link that is swapped, as certbot and Kubernetes do.
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").rename(live)
    running.wait_for("has changed: new certificates are in force, for localhost")
    wait_until(lambda: presented(running, authority) == serial(authority, new[0]), "the new certificate")
    # A key that is not the certificate's: both stay, until the certificate follows.
    other = authority.issue("other")
    shutil.copy(other[1], live / "key.pem")
    running.wait_for(
        r"keeping the current certificates: \S+key.pem: the key \(EC P-256\) is not that of the certificate"
    )
    assert presented(running, authority) == serial(authority, new[0])
    shutil.copy(other[0], live / "cert.pem")
    after = running.stderr.rindex("keeping the current")
    running.wait_for("has changed: new certificates are in force", after=after)
    wait_until(lambda: presented(running, authority) == serial(authority, other[0]), "the new certificate")
    assert set(running.worker_pids()) == workers
    ends = authority.run("x509", "-in", other[0], "-noout", "-enddate").strip().removeprefix("notAfter=")
    with urllib.request.urlopen(f"{metrics}/metrics", timeout=20) as response:
        text = response.read().decode()
    expected = f'kirsch_certificate_expiry_timestamp_seconds{{path="{live}/cert.pem"}} {ssl.cert_time_to_seconds(ends)}'
    assert expected in text


def test_reload_with_a_bad_file_keeps_the_old_certificate_and_loads_the_application(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = (str(shutil.copy(path, tmp_path)) for path in authority.issue("kept"))
    before = serial(authority, certificate)
    running = serve("wsgi_app:app", *HERE, "--certfile", certificate, "--keyfile", key)
    Path(certificate).write_text("nothing\n")
    os.kill(running.pid, signal.SIGHUP)
    running.wait_for("SIGHUP: keeping the current certificates: .*there is no certificate in it")
    running.wait_for("SIGHUP: done")
    assert presented(running, authority) == before


@pytest.mark.parametrize("moment", ["start", "reload"])
def test_change_behind_the_reading_of_the_files_is_seen(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The files change at the worst moment: when they have been read, and before anything else happens."""
    first, second = authority.issue("first"), authority.issue("second")
    used = [str(tmp_path / name) for name in ("cert.pem", "key.pem")]

    def install(pair: tuple[str, str]) -> None:
        for source, path in zip(pair, used, strict=True):
            shutil.copy(source, f"{path}.new")
            os.replace(f"{path}.new", path)

    def read_late(files: TlsFiles, secrets: list[bytes]) -> Any:
        terms = read(files, secrets)
        monkeypatch.setattr(TlsFiles, "read", read)
        install(second)
        return terms

    read = TlsFiles.read
    install(first)
    settings = sources.read(["app", "--certfile", used[0], "--keyfile", used[1]])
    if moment == "start":
        monkeypatch.setattr(TlsFiles, "read", read_late)
    manager = CertificateManager(settings, lambda *_: None)
    if moment == "reload":
        monkeypatch.setattr(TlsFiles, "read", read_late)
        manager.reload(settings, "SIGHUP")
    before = manager.certificates()[0]["serial"]
    manager.run_due(manager.due())
    assert manager.certificates()[0]["serial"] != before


@pytest.mark.slow
def test_sessions_are_resumed_by_every_worker_and_after_reload_and_upgrade(serve: Serve, authority: Authority) -> None:
    certificate, key = authority.issue("resumed")
    running = serve("wsgi_app:app", *HERE, "--workers", "4", "--certfile", certificate, "--keyfile", key)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = context(authority, minimum_version=version, maximum_version=version)
        session: ssl.SSLSession | None = None

        def is_resumed(client: ssl.SSLContext = client) -> bool:
            nonlocal session
            session, resumed = session_of(running, client, session)
            return resumed

        assert not is_resumed()
        assert all(is_resumed() for _ in range(20))
        for number, done in ((signal.SIGHUP, "SIGHUP: done"), (signal.SIGUSR2, "SIGUSR2: done")):
            after = len(running.stderr)
            os.kill(running.pid, number)
            running.wait_for(done, after=after)
            assert all(is_resumed() for _ in range(10)), number


def test_clients_with_a_certificate_are_told_to_the_application(serve: Serve, authority: Authority) -> None:
    certificate, key = authority.issue("server")
    own = authority.issue("client", subject="somebody")
    running = serve(
        "waiting_app:app", *HERE, "--certfile", certificate, "--keyfile", key, "--ca-certs", authority.certificate,
        "--cert-reqs", "required",
    )  # fmt: skip
    client = context(authority)
    with pytest.raises((ssl.SSLError, OSError)):
        urllib.request.urlopen(f"https://localhost:{running.port}/encryption", context=client, timeout=20)
    client.load_cert_chain(*own)
    with urllib.request.urlopen(f"https://localhost:{running.port}/encryption", context=client, timeout=20) as response:
        body = response.read()
    assert b'"SSL_CLIENT_S_DN_CN": "somebody"' in body


def test_changed_revocation_list_takes_effect_and_a_damaged_one_does_not(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("with-list")
    own, other = authority.issue("leaves", subject="leaves"), authority.issue("stays", subject="stays")
    path = tmp_path / "crl.pem"
    authority.revocation_list(str(path))
    running = serve(
        "waiting_app:app", *HERE, "--certfile", certificate, "--keyfile", key, "--ca-certs", authority.certificate,
        "--cert-reqs", "required", "--crlfile", str(path),
    )  # fmt: skip
    clients = [context(authority) for _ in range(2)]
    for client, files in zip(clients, (own, other), strict=True):
        client.load_cert_chain(*files)
    sessions = [session_of(running, client, None)[0] for client in clients]

    def is_served(number: int, session: ssl.SSLSession | None) -> bool:
        try:
            session_of(running, clients[number], session)
        except OSError:
            return False
        return True

    authority.revocation_list(str(path), own[0])
    running.wait_for(r"crl\.pem has changed: client certificates are verified by the new")
    wait_until(lambda: not is_served(0, None), "the revoked client is refused")
    # Its session does not help it.
    assert not is_served(0, sessions[0])
    assert is_served(1, None)
    assert is_served(1, sessions[1])
    path.write_text("nothing\n")
    running.wait_for(r"keeping the current certificates: \S+crl\.pem: there is no certificate revocation list in it")
    assert not is_served(0, None)
    assert is_served(1, None)


TLS_APP = """
import json

async def app(scope, receive, send):
    found = json.dumps(scope["extensions"]["tls"]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": found})
"""

# Commas and quotes in values, parts with several attributes, letters beyond ASCII, an attribute without a common name.
SUBJECTS = {
    "plain": "somebody",
    "escaped": r'Müller, "x" <y>; #z/O=\#Lead\\\\back/OU=one/OU=two',
    "several": "a+UID=b+serialNumber=7/DC=org/DC=example/emailAddress=a@example.org/GN=Given/SN=Sur/title=T",
    "unknown": "x/1.3.6.1.4.1.99999.7=private/L= edge ",
}


def encryption_seen(running: Running, authority: Authority, own: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the variables of three requests: the second on the connection of the first, the third resumed."""
    client = context(authority)
    client.load_cert_chain(*own)
    seen, session = [], None
    for requests in (2, 1):
        with (
            socket.create_connection((running.host, running.port), timeout=20) as raw,
            client.wrap_socket(raw, server_hostname="localhost", session=session) as end,
        ):
            for _ in range(requests):
                end.sendall(b"GET /encryption HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = http.client.HTTPResponse(end)
                answer.begin()
                seen.append(json.loads(answer.read()))
            assert end.session_reused == (session is not None)
            session = end.session
    return seen


@pytest.mark.parametrize("kind", SUBJECTS)
def test_variables_of_a_client_are_those_of_openssl(serve: Serve, authority: Authority, kind: str) -> None:
    certificate, key = authority.issue(f"server-{kind}")
    own = authority.issue(f"client-{kind}", "a.example", "b.example", key=(*EC, "-utf8"), subject=SUBJECTS[kind])
    running = serve(
        "waiting_app:app", *HERE, "--certfile", certificate, "--keyfile", key, "--ca-certs", authority.certificate,
        "--cert-reqs", "optional",
    )  # fmt: skip

    def of(option: str) -> str:
        found = authority.run("x509", "-in", own[0], "-noout", option, "-nameopt", "RFC2253,-esc_msb")
        # WSGI shows bytes as Latin-1.
        return found.split("=", 1)[1].rstrip("\n").encode().decode("latin-1")

    first, *others = encryption_seen(running, authority, own)
    assert [each | {"SSL_SESSION_RESUMED": "Initial"} for each in others] == [first, first]
    assert first["SSL_CLIENT_VERIFY"] == "SUCCESS"
    assert first["SSL_CLIENT_S_DN"] == of("-subject")
    assert first["SSL_CLIENT_I_DN"] == of("-issuer")
    assert first["SSL_CLIENT_M_SERIAL"] == of("-serial")
    assert first["SSL_CLIENT_V_START"] == of("-startdate")
    assert first["SSL_CLIENT_V_END"] == of("-enddate")
    assert first["SSL_CLIENT_CERT"] in Path(own[0]).read_text()
    assert (first["SSL_CLIENT_SAN_DNS_0"], first["SSL_CLIENT_SAN_DNS_1"]) == ("a.example", "b.example")
    if kind == "several":
        assert (first["SSL_CLIENT_S_DN_UID"], first["SSL_CLIENT_S_DN_DC"]) == ("b", "org")
        assert first["SSL_CLIENT_S_DN_Email"] == "a@example.org"
    assert first["SSL_CLIENT_I_DN_CN"] == "Test Authority"


def test_extension_of_asgi_has_the_certificates_of_the_client(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "tls_app.py").write_text(TLS_APP)
    certificate, key = authority.issue("server-asgi")
    own = authority.issue("client-asgi", key=(*EC, "-utf8"), subject="Müller, Ü/O=Example")
    running = serve(
        "tls_app:app", "--chdir", str(tmp_path), "--certfile", certificate, "--keyfile", key,
        "--ca-certs", authority.certificate, "--cert-reqs", "optional",
    )  # fmt: skip
    plain = json.loads(get(running, authority, "/"))
    assert (plain["client_cert_chain"], plain["client_cert_name"]) == ([], None)
    first, second, resumed = encryption_seen(running, authority, own)
    assert first == second == resumed
    assert first["client_cert_name"] == "O=Example,CN=Müller\\, Ü"
    # Python's client sends the certificate of the authority too.
    assert first["client_cert_chain"] == [
        authority.run("x509", "-in", path) for path in (own[0], authority.certificate)
    ]
    assert first["client_cert_error"] is None
    assert (first["tls_version"], first["cipher_suite"] >> 8) == (0x0304, 0x13)


def test_mistakes_are_told_in_one_line_at_the_start(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("right")
    other = authority.issue("wrong", key=RSA)
    missing = str(tmp_path / "missing.pem")
    for given, expected in (
        ((key, key), "right.key: this is a private key, and a certificate is wanted"),
        ((certificate, other[1]), "wrong.key: the key (RSA 2048) is not that of the certificate"),
        ((missing, key), f"--certfile: there is no file {missing}; `ls -l {tmp_path}` shows those that there are"),
    ):
        status, text = refusal("--certfile", given[0], "--keyfile", given[1])
        assert (status, text.count("\n")) == (2, 1), text
        assert expected in text
    # One file that may hold both is reported once.
    assert refusal("--certfile", missing)[1].count("\n") == 1
    status, text = refusal("--bind", "https://127.0.0.1:0")
    assert (status, "https needs a certificate; give --certfile and --keyfile" in text) == (2, True), text
    status, text = refusal("--certfile", certificate, "--keyfile", key, "--keyfile-password", "hunter2")
    assert status == 2
    assert "hunter2" not in text
    assert "write file:PATH for the first line of a file, or env:NAME for a variable" in text


def test_check_shows_certificates_and_warns_of_their_end(authority: Authority) -> None:
    certificate, key = authority.issue("checked", "a.example", "b.example", days=1)
    binds = ["-b", "127.0.0.1:0", "-b", "http://127.0.0.1:0", "--metrics-bind", "127.0.0.1:0"]
    files = ["--certfile", certificate, "--keyfile", key]
    command = [sys.executable, "-m", "kirsch", "check", "wsgi_app:app", *binds, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=TESTS, check=False)
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.partition("\nSockets\n")[2].splitlines()[:3]
    assert [line.split() for line in addresses] == [
        ["https://127.0.0.1:0"],
        ["http://127.0.0.1:0"],
        ["http://127.0.0.1:0", "metrics"],
    ]
    assert re.search(r"checked\.pem +EC P-256, until \d{4}-\d\d-\d\d +a\.example, b\.example", done.stdout), done.stdout


def test_certificate_that_ends_soon_is_warned_of_if_it_was_made_for_longer(serve: Serve, authority: Authority) -> None:
    for days, lines in ((15, 0), (60, 0)):
        certificate, key = authority.issue(f"for{days}", days=days)
        running = serve("wsgi_app:app", *HERE, "--certfile", certificate, "--keyfile", key)
        assert running.stderr.count("the certificate expires in") == lines
    ending = authority.issue_for("ending", -100, 5)
    running = serve("wsgi_app:app", *HERE, "--certfile", ending[0], "--keyfile", ending[1])
    running.wait_for(r"ending\.pem: the certificate expires in 5 days; renew it")
    expired = authority.issue_for("expired", -100, -5)
    running = serve("wsgi_app:app", *HERE, "--certfile", expired[0], "--keyfile", expired[1])
    running.wait_for(r"expired\.pem: it expired at \S+; renew it")


def test_server_of_a_program_encrypts(authority: Authority) -> None:
    import threading

    def app(environ: dict[str, str], start_response: object) -> list[bytes]:
        start_response("200 OK", [])  # type: ignore[operator]
        return [environ["wsgi.url_scheme"].encode()]

    certificate, key = authority.issue("program")
    server = kirsch.Server(app, bind="127.0.0.1:0", certfile=certificate, keyfile=key)
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        (url,) = server.urls
        assert url.startswith("https://127.0.0.1:")
        with urllib.request.urlopen(
            url.replace("127.0.0.1", "localhost"), context=context(authority), timeout=20
        ) as response:
            assert response.read() == b"https"
    thread.join(20)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--cert-reqs", "2"), ("cert_reqs", "required")),
        (("--ssl-cert-reqs", "optional"), ("cert_reqs", "optional")),
        (("--ssl-protocol-min", "tls1.3"), ("tls_min", "1.3")),
        (("--tls-min", "TLSv1_2"), ("tls_min", "1.2")),
        (("--ssl-ciphers", "ECDHE-RSA-AES128-GCM-SHA256"), ("ciphers", "ECDHE-RSA-AES128-GCM-SHA256")),
    ],
)
def test_names_of_other_servers_are_understood(words: tuple[str, str], expected: tuple[str, str]) -> None:
    settings = sources.read([*words, "hello:app"], {}, "")
    assert getattr(settings, expected[0]) == expected[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--tls-min", "1.0"), "is broken, and is not spoken; write 1.2 or 1.3"),
        (("--cert-reqs", "some"), "is not one of none, optional, required"),
        (("--tls", "a,b,c"), "is not a certificate; write CERTFILE,KEYFILE"),
        (("--bind", "https://0.0.0.0"), "lacks a port; did you mean https://0.0.0.0:443?"),
        (("--bind", "https://0.0.0.0:443/"), "has none; did you mean https://0.0.0.0:443?"),
        (("--metrics-bind", "https://0.0.0.0:9000"), "nothing is encrypted here; did you mean http://0.0.0.0:9000?"),
    ],
)
def test_wrong_settings_are_told_with_the_right_ones(words: tuple[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        sources.read([*words, "hello:app"], {}, "")
