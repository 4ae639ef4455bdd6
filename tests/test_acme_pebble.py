"""Certificates from Pebble, Let's Encrypt's authority for tests, which refuses nonces and verifies slowly."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import ssl
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from authority import Authority
from kirsch import _native
from kirsch.config import sources
from kirsch.net.acme_files import AcmeFiles, read_json
from kirsch.supervisor.acme_client import AttemptFailed, Client, Http, Pace
from pebble import Pebble
from ports import free_port
from proc import wait_until
from running import children, title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running, Serve

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent


class Site:
    """A name, its ports, and an authority."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.folder = folder
        self.authority = authority
        self.http, self.https = free_port(), free_port()
        self.pebble: Pebble | None = None
        self.lock = -1

    def start(self, environment: dict[str, str] | None = None, **settings: object) -> Pebble:
        self.pebble = Pebble(self.folder, self.authority, (self.http, self.https), environment, **settings)
        return self.pebble

    def arguments(self, name: str = "shop.example.com", state: str = "state") -> list[str]:
        assert self.pebble is not None
        return [
            "--acme-profile", "default", "--acme", name, "--acme-agree-tos", "--acme-state", str(self.folder / state),
            "--acme-directory", self.pebble.directory, "--acme-ca-certs", self.pebble.certificates,
        ]  # fmt: skip

    def files(self, *more: str, **given: str) -> tuple[AcmeFiles, Any]:
        chosen = sources.read(["x:app", *self.arguments(**given), *more], {})
        found = AcmeFiles(chosen.values)
        found.create()
        return found, chosen.values

    def is_served(self, name: str, port: int | None = None) -> bool:
        try:
            return bool(self.verified(name, port))
        except (ssl.SSLError, OSError):
            return False

    def verified(self, name: str, port: int | None = None) -> dict[str, Any]:
        """Return the certificate that a client gets who trusts the authority. Raises ssl.SSLError."""
        assert self.pebble is not None
        context = ssl.create_default_context(cafile=self.pebble.roots(self.folder))
        with (
            socket.create_connection(("127.0.0.1", port or self.https), timeout=20) as raw,
            context.wrap_socket(raw, server_hostname=name) as client,
        ):
            return client.getpeercert()  # type: ignore[return-value]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, Authority(tmp_path))
    yield made
    if made.lock >= 0:
        os.close(made.lock)
    if made.pebble is not None:
        print(made.pebble.log.read_text(errors="replace"))
        made.pebble.stop()


def serving(serve: Serve, site: Site, *args: str, plain: bool = True, name: str = "shop.example.com") -> Running:
    binds = ["--bind", f"https://127.0.0.1:{site.https}"]
    if plain:
        binds += ["--bind", f"http://127.0.0.1:{site.http}", "--redirect-http"]
    return serve("wsgi_app:app", "--chdir", str(TESTS), *binds, *site.arguments(name), *args)


OBTAINED = r"acme: obtained a certificate for {}, valid until"


@pytest.mark.parametrize(
    ("name", "plain"),
    [("shop.example.com", True), ("shop.example.com", False), ("127.0.0.1", True), ("127.0.0.1", False)],
    ids=["http-01", "tls-alpn-01", "address-http-01", "address-tls-alpn-01"],
)
def test_a_certificate_is_obtained_and_served_without_a_restart(
    serve: Serve, site: Site, name: str, plain: bool
) -> None:
    site.start()
    running = serving(serve, site, "--workers", "2", plain=plain, name=name)
    pids = running.worker_pids()
    running.wait_for(OBTAINED.format(re.escape(name)), timeout=120)
    running.wait_for(r"has changed: new certificates are in force, for ", timeout=30)
    wait_until(lambda: site.is_served(name), "the certificate is served")
    assert running.worker_pids() == pids
    files, _ = site.files(name=name)
    for path in (files.account, files.certificate(name), files.status):
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert not os.path.exists(files.challenge(name))
    assert not os.path.exists(files.order(name))
    entry = read_json(files.status)["names"][name]
    assert entry["window"][0] <= entry["renew_at"] <= entry["window"][1]


def test_a_certificate_is_renewed_in_the_window_of_the_authority(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    running = serving(serve, site, "--acme-profile", "brief")
    running.wait_for(OBTAINED.format("shop.example.com"), timeout=120)
    first = running.stderr.index("obtained a certificate")
    wait_until(lambda: site.is_served("shop.example.com"), "the certificate is served")
    serial = site.verified("shop.example.com")["serialNumber"]
    running.wait_for(OBTAINED.format("shop.example.com"), timeout=120, after=first + 10)
    wait_until(lambda: site.verified("shop.example.com")["serialNumber"] != serial, "the new one is served")
    files, _ = site.files()
    assert "window" in read_json(files.status)["names"]["shop.example.com"]


class Stage:
    """A client without a supervisor, and a server that answers HTTP-01."""

    def __init__(self, site: Site, serve: Serve, *args: str, name: str = "shop.example.com") -> None:
        self.name = name
        self.said: list[str] = []
        self.files, self.values = site.files(*args, name=name)
        pace = Pace()
        pace.publish, pace.poll = 2.5, 0.2
        self.client = Client(
            self.files, self.values, lambda _, text: self.said.append(text), time.sleep, ["http-01"], pace
        )
        # The server's own process finds the lock taken.
        site.lock = os.open(self.files.lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(site.lock, fcntl.LOCK_EX)
        serving(serve, site)

    def serial(self) -> str:
        path = self.files.certificate(self.name)
        from kirsch.supervisor.acme_client import judged

        return str(judged(path, Path(path).read_bytes())["serial"])


def test_the_window_can_be_moved_by_the_authority_and_a_renewal_names_the_certificate_before(
    serve: Serve, site: Site
) -> None:
    pebble = site.start()
    stage = Stage(site, serve)
    stage.client.obtain(stage.name, 0)
    begin, end, ask_after, _ = stage.client.renewal(stage.name)
    assert 50 * 86400 < begin - time.time() < end - time.time() < 70 * 86400
    assert ask_after == pytest.approx(6 * 3600, abs=60)
    content = Path(stage.files.certificate(stage.name)).read_text()
    leaf = content[content.index("-----BEGIN CERT") : content.index("-----END CERT")] + "-----END CERTIFICATE-----\n"
    window = {"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"},
              "explanationURL": "https://why.example/"}  # fmt: skip
    pebble.manage("/set-renewal-info/", {"certificate": leaf, "ariResponse": json.dumps(window)})
    assert stage.client.renewal(stage.name)[3] == "https://why.example/"
    first = stage.serial()
    stage.client.obtain(stage.name, 0)
    assert stage.serial() != first
    # The authority knows that it has been replaced, and what follows is no renewal of it.
    Path(stage.files.certificate(stage.name)).write_text(content)
    account = _native.AcmeAccount.restore(Http(pebble.certificates, ""), read_json(stage.files.account)["credentials"])
    with pytest.raises(_native.AcmeFailure) as caught:
        account.order(stage.name, "default", content.encode())
    assert caught.value.args[1] == "alreadyReplaced"
    stage.client.obtain(stage.name, 0)
    assert stage.serial() != first
    # A malformed answer is a failure of the question, not of the renewal.
    Path(stage.files.certificate(stage.name)).write_text(content)
    pebble.manage("/set-renewal-info/", {"certificate": leaf, "ariResponse": "{"})
    with pytest.raises(AttemptFailed, match="not readable"):
        stage.client.renewal(stage.name)


def test_many_bad_nonces_end_an_attempt_and_not_the_next_one(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_WFE_NONCEREJECT": "60", "PEBBLE_VA_NOSLEEP": "1"})
    stage = Stage(site, serve)
    kinds = set()
    for _ in range(60):
        try:
            stage.client.obtain(stage.name, 0)
            break
        except AttemptFailed as failure:
            kinds.add(failure.kind)
    assert kinds <= {"badNonce"}
    assert stage.serial()


def test_authorizations_that_are_reused_need_no_challenge(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_AUTHZREUSE": "100", "PEBBLE_VA_NOSLEEP": "1"})
    stage = Stage(site, serve)
    stage.client.obtain(stage.name, 0)
    first = stage.serial()
    stage.client.obtain(stage.name, 0)
    assert stage.serial() != first


def test_slow_validation_is_awaited(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_SLEEPTIME": "12"})
    stage = Stage(site, serve)
    stage.client.obtain(stage.name, 0)
    assert stage.serial()


def test_an_order_that_was_interrupted_is_completed_by_the_next_process(
    serve: Serve, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    stage = Stage(site, serve)

    def killed(_order: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stage.client, "_fetch", killed)
        with pytest.raises(KeyboardInterrupt):
            stage.client.obtain(stage.name, 0)
    kept = read_json(stage.files.order(stage.name))
    assert os.stat(stage.files.order(stage.name)).st_mode & 0o777 == 0o600
    ordered: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(stage.client, "_order", lambda *_: ordered.append("another"))
        stage.client.obtain(stage.name, 0)
    assert ordered == []
    assert kept["key"] in Path(stage.files.certificate(stage.name)).read_text()
    assert not os.path.exists(stage.files.order(stage.name))


@pytest.mark.parametrize(
    ("name", "args", "kind", "words"),
    [
        ("blocked.example.com", (), "rejectedIdentifier", "blocked.example.com"),
        ("shop.example.com", ("--acme-profile", "weekly"), "", "has no profile weekly; it has brief, default"),
    ],
    ids=["name", "profile"],
)
def test_what_the_authority_refuses_is_told(
    serve: Serve, site: Site, name: str, args: tuple[str, ...], kind: str, words: str
) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    stage = Stage(site, serve, *args, name=name)
    with pytest.raises(AttemptFailed) as caught:
        stage.client.obtain(name, 0)
    assert caught.value.kind == kind
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_server_that_cannot_be_reached_is_told_with_a_hint_and_serves_on(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    reachable, site.http = site.http, free_port()
    running = serving(serve, site)
    assert reachable != site.http
    said = running.wait_for(r"acme: shop.example.com: there is no certificate: .*", timeout=120)[0]
    assert "the authority cannot verify the name by http-01" in said
    assert "(connection); open the port in the firewall" in said
    assert "the next attempt is in 2 min" in said
    assert "Location: https://shop.example.com" in _plain(site.http)


def _plain(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def test_an_authority_that_demands_a_known_customer_gets_its_key(serve: Serve, site: Site) -> None:
    site.start(
        {"PEBBLE_VA_NOSLEEP": "1"},
        externalAccountBindingRequired=True,
        externalAccountMACKeys={"kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"},
    )
    stage = Stage(site, serve)
    with pytest.raises(AttemptFailed) as caught:
        stage.client.obtain(stage.name, 0)
    assert caught.value.kind == "externalAccountRequired"
    key = site.folder / "eab.key"
    key.write_text("zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n")
    other = Client(
        *site.files("--acme-eab-kid", "kid-1", "--acme-eab-key", f"file:{key}"),
        lambda *_: None,
        time.sleep,
        ["http-01"],
    )
    other.obtain(stage.name, 0)
    assert stage.serial()


def test_an_untrusted_authority_is_told(site: Site) -> None:
    site.start()
    files, values = site.files()
    values = {**values, "acme_ca_certs": ""}
    client = Client(files, values, lambda *_: None, time.sleep, ["http-01"])
    with pytest.raises(AttemptFailed, match=r"its certificate is not trusted .*--acme-ca-certs"):
        client.obtain("shop.example.com", 0)


def has_ended(pid: int) -> bool:
    return not title(pid)


def acme_pid(running: Running) -> int:
    found: list[int] = []

    def is_one() -> bool:
        found[:] = [pid for pid in children(running.pid) if title(pid).startswith("kirsch: acme")]
        return len(found) == 1

    wait_until(is_one, "there is one process that obtains certificates")
    return found[0]


def test_the_process_can_be_killed_at_any_time(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_SLEEPTIME": "2"})
    running = serving(serve, site)
    for delay in (0.0, 1.0, 2.0):
        time.sleep(delay)  # at different steps, whichever they are
        pid = acme_pid(running)
        os.kill(pid, signal.SIGKILL)
        running.wait_for("the process that obtains certificates .*; it is started again in")
        wait_until(partial(has_ended, pid), "it has ended")
        running.send(signal.SIGUSR1)  # starts it again at once
    running.wait_for(OBTAINED.format("shop.example.com"), timeout=120)
    wait_until(lambda: site.is_served("shop.example.com"), "the certificate is served")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_process_of_root_becomes_the_owner_of_its_directory(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    # Not below the folder of the test, which others cannot enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        running = serving(serve, site, "--acme-state", folder)
        status = Path(f"/proc/{acme_pid(running)}/status")
        wait_until(lambda: "\nUid:\t65534\t65534\t65534\t65534\n" in status.read_text(), "it is another user")
        assert "\nGroups:\t65534 \n" in status.read_text()
        running.wait_for(OBTAINED.format("shop.example.com"), timeout=120)
        wait_until(lambda: site.is_served("shop.example.com"), "the certificate is served")
        assert {path.stat().st_uid for path in Path(folder).rglob("*")} == {65534}
        running.stop()


def test_several_hosts_share_a_directory_and_obtain_one_certificate(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_SLEEPTIME": "1"})
    one = serving(serve, site)
    other = serve(
        "wsgi_app:app", "--chdir", str(TESTS), "--bind", "https://127.0.0.1:0", "--bind", "http://127.0.0.1:0",
        *site.arguments(),
    )  # fmt: skip
    for running in (one, other):
        running.wait_for(r"new certificates are in force, for shop.example.com", timeout=120)
    said = one.stderr + other.stderr
    assert len(re.findall("obtained a certificate", said)) == 1
    assert len(re.findall("registered the account", said)) == 1
    wait_until(lambda: site.is_served("shop.example.com", other.port), "both serve it")


def test_requests_go_on_while_certificates_are_obtained_and_reloaded(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    running = serving(serve, site, "--acme-profile", "brief", "--workers", "2")
    running.wait_for(r"new certificates are in force", timeout=120)
    wait_until(lambda: site.is_served("shop.example.com"), "the certificate is served")
    context = ssl._create_unverified_context()
    failures: list[str] = []
    served = 0
    ended = threading.Event()

    def ask() -> None:
        nonlocal served
        while not ended.is_set():
            try:
                with (
                    socket.create_connection(("127.0.0.1", site.https), timeout=20) as raw,
                    context.wrap_socket(raw, server_hostname="shop.example.com") as client,
                ):
                    client.sendall(b"GET /environ HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n")
                    answer = b"".join(iter(lambda: client.recv(65536), b""))
                if not answer.startswith(b"HTTP/1.1 200"):
                    failures.append(repr(answer[:200]))
                served += 1
            except OSError as error:
                failures.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    seen = len(running.stderr)
    running.wait_for("new certificates are in force", timeout=120, after=seen)
    running.send(signal.SIGHUP)
    running.wait_for("SIGHUP: done", timeout=60)
    ended.set()
    thread.join()
    assert failures == []
    assert served > 20


def test_a_reload_takes_another_name(serve: Serve, site: Site) -> None:
    site.start({"PEBBLE_VA_NOSLEEP": "1"})
    config = site.folder / "kirsch.toml"
    text = '[acme]\nnames = [{}]\nagree-tos = true\nstate = "{}"\ndirectory = "{}"\nca-certs = "{}"\n'
    pebble = site.pebble
    assert pebble is not None

    def write(names: str) -> None:
        config.write_text(text.format(names, site.folder / "state", pebble.directory, pebble.certificates))

    write('"one.example.com"')
    running = serve(
        "wsgi_app:app", "--chdir", str(TESTS), "-c", str(config), "--bind", f"https://127.0.0.1:{site.https}", "--bind",
        f"http://127.0.0.1:{site.http}",
    )  # fmt: skip
    running.wait_for(OBTAINED.format("one.example.com"), timeout=120)
    write('"one.example.com", "two.example.com"')
    running.send(signal.SIGHUP)
    running.wait_for(OBTAINED.format("two.example.com"), timeout=120)
    for name in ("one.example.com", "two.example.com"):
        wait_until(partial(site.is_served, name), f"{name} is served")


def test_the_native_client_reports_what_python_raises() -> None:
    def send(*_: object) -> None:
        raise AttemptFailed("no route")

    with pytest.raises(_native.AcmeFailure) as caught:
        _native.AcmeAccount.register(send, "https://a.example/dir", [], None)  # type: ignore[arg-type]
    assert caught.value.args == ("no route", "")
