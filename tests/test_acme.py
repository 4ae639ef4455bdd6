"""Certificates that are obtained by ACME: settings, schedule, and an authority that fails."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from authority import Authority
from kirsch import _native
from kirsch.config import sources
from kirsch.config.setting import UsageError
from kirsch.net.acme_files import LETS_ENCRYPT_STAGING, AcmeFiles, read_json, write
from kirsch.net.certificates import TlsFiles, new_secrets
from kirsch.supervisor import acme_process
from kirsch.supervisor.acme_client import AttemptFailed, Client, Pace, usable_challenges
from kirsch.supervisor.acme_schedule import RETRY_SECONDS, Schedule, fallback

if TYPE_CHECKING:
    from pathlib import Path

    from kirsch.config.schema import Settings

DAY = 86400.0


def settings(tmp_path: Path, *more: str) -> Settings:
    return sources.read(
        ["x:app", "--acme", "shop.example.org", "--acme-agree-tos", "--acme-state", str(tmp_path / "state"), *more], {}
    )


def files_of(chosen: Settings) -> AcmeFiles:
    found = AcmeFiles(chosen.values)
    found.create()
    return found


def refusal(*args: str) -> str:
    with pytest.raises(UsageError) as caught:
        sources.read(["x:app", *args], {})
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("*.example.org", "DNS-01"),
        ("https://example.org", "host name alone"),
        ("example.org:443", "ports belong to --bind"),
        ("exa_mple.org", "not a host name"),
        ("localhost", "kirsch dev-cert localhost"),
        ("bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_names_that_no_authority_can_verify_are_refused_with_what_to_do(name: str, words: str) -> None:
    assert words in refusal("--acme", name, "--acme-agree-tos")


def test_names_and_addresses_are_taken_in_their_usual_form() -> None:
    chosen = sources.read(
        ["x:app", "--acme", "Shop.Example.org.", "--acme", "192.0.2.7,[2001:DB8::0:1]", "--acme-agree-tos"], {}
    )
    assert chosen.acme == ("shop.example.org", "192.0.2.7", "2001:db8::1")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--acme", "example.org"], "give --acme-agree-tos"),
        (["--acme-agree-tos"], "goes with --acme"),
        (["--acme", "example.org", "--acme-agree-tos", "--workers", "0"], "without a supervisor"),
        (
            ["--acme", "a.org", "--acme-agree-tos", "--acme-directory", "http://a.org/dir"],
            "not the URL of an authority",
        ),
        (["--acme", "a.org", "--acme-agree-tos", "--acme-eab-kid", "k"], "give --acme-eab-key file:PATH"),
        (["--acme", "a.org", "--acme-agree-tos", "--acme-contact", "me"], "not a mail address"),
        (["--acme", "a.org", "--acme-agree-tos", "--acme-staging", "--acme-directory", "https://a/"], "Let's Encrypt"),
        (["--redirect-http"], "it needs a certificate"),
        (["--hsts", "1h"], "it needs a certificate"),
    ],
)
def test_settings_that_contradict_are_refused(args: list[str], words: str) -> None:
    assert words in refusal(*args)


def test_a_settings_file_has_a_table(tmp_path: Path) -> None:
    (tmp_path / "kirsch.toml").write_text(
        'app = "x:app"\n[acme]\nnames = ["example.org", "www.example.org"]\nagree-tos = true\nstaging = true\n'
    )
    chosen = sources.read(["-c", str(tmp_path / "kirsch.toml")], {})
    assert (chosen.acme, chosen.acme_staging) == (("example.org", "www.example.org"), True)
    assert AcmeFiles(chosen.values).url == LETS_ENCRYPT_STAGING
    (tmp_path / "kirsch.toml").write_text('app = "x:app"\n[acme]\nname = "example.org"\n')
    with pytest.raises(UsageError, match=r"kirsch.toml:3: there is no setting acme-name"):
        sources.read(["-c", str(tmp_path / "kirsch.toml")], {})


def test_the_challenge_depends_on_the_addresses() -> None:
    values = {"acme_challenge": "auto"}
    assert usable_challenges(values, has_plain=True, has_encrypted=True) == ["http-01", "tls-alpn-01"]
    assert usable_challenges(values, has_plain=False, has_encrypted=True) == ["tls-alpn-01"]
    values = {"acme_challenge": "http-01"}
    assert usable_challenges(values, has_plain=False, has_encrypted=True) == ["http-01"]


# ---------------------------------------------------------------------------------------------------------- files


def test_files_are_for_their_owner_alone_and_are_replaced_as_a_whole(tmp_path: Path) -> None:
    files = files_of(settings(tmp_path))
    assert stat.S_IMODE(os.stat(files.directory).st_mode) == 0o700
    write(files.account, b"one")
    os.chmod(files.account, 0o644)
    write(files.account, b"two")
    assert stat.S_IMODE(os.stat(files.account).st_mode) == 0o600
    assert not os.path.exists(f"{files.account}.new")
    assert read_json(files.account) == {}


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    os.chmod(tmp_path / "state", 0o755)
    with pytest.raises(OSError, match="chmod 700"):
        files_of(settings(tmp_path))


def test_authorities_do_not_share_accounts(tmp_path: Path) -> None:
    one, other = AcmeFiles(settings(tmp_path).values), AcmeFiles(settings(tmp_path, "--acme-staging").values)
    assert one.account != other.account
    assert one.lock == other.lock


# ------------------------------------------------------------------------------------------------------------- schedule


def described(serial: str = "1", days: float = 90) -> dict[str, Any]:
    now = time.time()
    return {"serial": serial, "not_before": now, "not_after": now + days * DAY}


def test_a_name_without_a_certificate_is_due_at_once(tmp_path: Path) -> None:
    assert Schedule(files_of(settings(tmp_path))).due("shop.example.org") <= time.time()


def test_renewal_is_within_the_window_that_the_authority_says(tmp_path: Path) -> None:
    schedule = Schedule(files_of(settings(tmp_path)))
    schedule.begin("a", described())
    now = time.time()
    assert not schedule.set_window("a", now, (now + 10 * DAY, now + 11 * DAY), 6 * 3600, None)
    first = schedule.due("a")
    assert now + 10 * DAY <= first <= now + 11 * DAY
    # The same window does not change the time; another one does, at once if it is over.
    assert not schedule.set_window("a", now, (now + 10 * DAY, now + 11 * DAY), 6 * 3600, None)
    assert schedule.due("a") == first
    assert schedule.set_window("a", now, (now - 2, now - 1), 6 * 3600, "https://why.example")
    assert schedule.due("a") < now


@pytest.mark.parametrize(("asked", "seconds"), [(0.0, 60.0), (3600.0, 3600.0), (30 * DAY, DAY)])
def test_the_authority_is_asked_as_often_as_it_wants(tmp_path: Path, asked: float, seconds: float) -> None:
    schedule = Schedule(files_of(settings(tmp_path)))
    schedule.begin("a", described())
    schedule.set_window("a", 1000.0, (1.0, 2.0), asked, None)
    assert schedule.asks_at("a") == 1000.0 + seconds


def test_without_a_window_a_part_of_the_lifetime_decides() -> None:
    assert fallback(0, 90 * DAY) == 60 * DAY
    assert fallback(0, 6 * DAY) == 3 * DAY


def test_a_new_certificate_begins_a_schedule_without_failures(tmp_path: Path) -> None:
    schedule = Schedule(files_of(settings(tmp_path)))
    schedule.begin("a", described("1"))
    schedule.failed("a", time.time(), "why", 0.0)
    schedule.begin("a", described("1"))
    assert schedule.attempts("a") == 1
    schedule.begin("a", described("2"))
    assert schedule.attempts("a") == 0


def test_waits_after_failures_grow_are_kept_and_obey_the_authority(tmp_path: Path) -> None:
    files = files_of(settings(tmp_path))
    schedule = Schedule(files)
    now = time.time()
    waits = [schedule.failed("a", now, "why", 0.0) for _ in range(len(RETRY_SECONDS) + 2)]
    for wait, expected in zip(waits, [*RETRY_SECONDS, RETRY_SECONDS[-1], RETRY_SECONDS[-1]], strict=True):
        assert 0.9 * expected <= wait <= 1.1 * expected
    # Let's Encrypt allows five failures of a name an hour.
    assert sum(waits[:4]) > 3600
    assert schedule.failed("a", now, "why", 7 * DAY) == 7 * DAY
    schedule.save()
    assert Schedule(files).due("a") == pytest.approx(now + 7 * DAY)


# ------------------------------------------------------------------------------------------- an authority that fails


class FakeAuthority:
    """Answers as an authority does, up to the order, which it answers with ``refusal``. It verifies no signature."""

    def __init__(self, refusal: tuple[int, list[tuple[str, str]], bytes] | Exception) -> None:
        self.refusal = refusal
        self.retry_after = 0.0
        self.requests: list[str] = []

    def __call__(
        self, method: str, url: str, fields: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        path = url.removeprefix("https://a.example/")
        self.requests.append(f"{method} {path}")
        nonce = [("Replay-Nonce", f"n{len(self.requests)}")]
        if path == "dir":
            urls = {name: f"https://a.example/{name}" for name in ("newNonce", "newAccount", "newOrder")}
            return 200, [], json.dumps(urls).encode()
        if path == "newNonce":
            return 200, nonce, b""
        if path == "newAccount":
            return 201, [*nonce, ("Location", "https://a.example/acct/1")], b"{}"
        if isinstance(self.refusal, Exception):
            raise self.refusal
        status, more, content = self.refusal
        self.retry_after = float(dict(more).get("Retry-After", 0))
        return status, [*nonce, *more], content


def attempt(tmp_path: Path, refusal: Any) -> tuple[list[str], dict[str, Any], FakeAuthority]:
    """Let a process do what is due; return what it reports, the entry of the schedule, and the authority."""
    chosen = settings(tmp_path, "--acme-directory", "https://a.example/dir")
    files, authority = files_of(chosen), FakeAuthority(refusal)
    said: list[str] = []

    def report(_: int, text: str) -> None:
        said.append(text)

    client = Client(files, chosen.values, report, lambda _: None, ["http-01"], Pace(), authority)  # type: ignore[arg-type]
    acme_process.work(files, client, report)
    return said, Schedule(files).entry("shop.example.org"), authority


def problem(kind: str, detail: str) -> bytes:
    return json.dumps({"type": f"urn:ietf:params:acme:error:{kind}", "detail": detail}).encode()


def test_a_rate_limit_is_obeyed(tmp_path: Path) -> None:
    refusal = (429, [("Retry-After", "86400")], problem("rateLimited", "too many certificates"))
    said, entry, authority = attempt(tmp_path, refusal)
    assert said[-1] == (
        "acme: shop.example.org: there is no certificate: too many certificates (rateLimited); try with --acme-staging "
        "until everything works; the next attempt is in 24.0 h"
    )
    assert entry["not_before"] == pytest.approx(time.time() + 86400, abs=60)
    assert authority.requests.count("POST newOrder") == 1
    # The next process does not try before that either, and keeps the account.
    _, _, second = attempt(tmp_path, refusal)
    assert second.requests == []


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((200, [], b"<html>"), "the authority's answer is not readable"),
        ((201, [], b"{}"), "the authority's answer is not readable"),
        ((201, [], b"\xff\xfe"), "not readable"),
        ((400, [], problem("rejectedIdentifier", "no\r\nsuch\x1b[31m name")), "no such [31m name (rejectedIdentifier)"),
        ((403, [], b'{"detail": 7}'), "not readable"),
        ((500, [], b"{}"), "the authority gives no reason"),
        (AttemptFailed("cannot reach https://a.example/: no route to host"), "no route to host"),
    ],
    ids=["html", "empty", "binary", "control-characters", "types", "without-reason", "network"],
)
def test_wrong_answers_are_one_line_and_another_attempt_follows(tmp_path: Path, refusal: Any, words: str) -> None:
    said, entry, _ = attempt(tmp_path, refusal)
    assert words in said[-1]
    assert said[-1].isprintable()
    assert entry["failures"] == 1
    assert entry["not_before"] > time.time() + 100


def test_bad_nonces_are_replaced_a_few_times(tmp_path: Path) -> None:
    said, _, authority = attempt(tmp_path, (400, [], problem("badNonce", "old")))
    assert "old (badNonce)" in said[-1]
    assert authority.requests.count("POST newOrder") == 3


def test_one_host_at_a_time_talks_with_the_authority(tmp_path: Path) -> None:
    import fcntl

    chosen = settings(tmp_path, "--acme-directory", "https://a.example/dir")
    files, authority = files_of(chosen), FakeAuthority(AssertionError())
    client = Client(files, chosen.values, lambda *_: None, lambda _: None, [], Pace(), authority)  # type: ignore[arg-type]
    with open(files.lock, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert acme_process.work(files, client, lambda *_: None) == 30
    assert authority.requests == []


def test_terms_have_what_has_been_obtained_and_what_is_awaited(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    files = files_of(chosen)
    terms = TlsFiles(chosen.values).read(new_secrets())
    assert (terms["certificates"], terms["awaited_names"]) == ([], ["shop.example.org"])
    assert _native.Certificates(terms).certificates() == []
    key, certificate = _native.make_challenge("shop.example.org", "token.thumbprint")
    write(files.challenge("shop.example.org"), f"{key}{certificate}".encode())
    write(files.account, json.dumps({"thumbprint": "T"}).encode())
    terms = TlsFiles(chosen.values).read(new_secrets())
    assert [each["is_challenge"] for each in terms["certificates"]] == [True]
    assert terms["challenge_thumbprint"] == "T"


# ------------------------------------------------------------------------------------------------------- dev-cert


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kirsch", *args],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_dev_cert_makes_an_authority_once_and_certificates_that_openssl_accepts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)  # skips without openssl
    done = run("dev-cert", "shop.test", XDG_DATA_HOME=str(tmp_path))
    folder = tmp_path / "kirsch" / "dev-cert"
    assert done.returncode == 0, done.stderr
    assert f"--certfile {folder}/localhost.pem --keyfile {folder}/localhost-key.pem" in done.stdout
    assert "update-ca-certificates" in done.stdout
    for name in ("authority-key.pem", "localhost-key.pem"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    for name in ("localhost", "shop.test"):
        authority.run("verify", "-CAfile", str(folder / "authority.pem"), "-verify_hostname", name,
                      str(folder / "localhost.pem"))  # fmt: skip
    authority.run("verify", "-CAfile", str(folder / "authority.pem"), "-verify_ip", "127.0.0.1",
                  str(folder / "localhost.pem"))  # fmt: skip
    before = (folder / "authority.pem").read_bytes()
    again = run("dev-cert", XDG_DATA_HOME=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert (folder / "authority.pem").read_bytes() == before
    authority.run("verify", "-CAfile", str(folder / "authority.pem"), str(folder / "localhost.pem"))


def test_dev_cert_refuses_names_of_the_internet(tmp_path: Path) -> None:
    done = run("dev-cert", "example.org", XDG_DATA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kirsch dev-cert: example.org is not a name of development")
    assert not list((tmp_path / "kirsch" / "dev-cert").iterdir())


def test_the_authority_of_development_is_constrained(tmp_path: Path) -> None:
    """A certificate for another name that is signed with its key is not accepted."""
    authority = Authority(tmp_path)
    run("dev-cert", XDG_DATA_HOME=str(tmp_path))
    folder = tmp_path / "kirsch" / "dev-cert"
    stolen = str(tmp_path / "stolen.pem")
    authority.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                  "/CN=x", "-addext", "subjectAltName=DNS:example.org", "-addext", "basicConstraints=critical,CA:FALSE",
                  "-CA", str(folder / "authority.pem"), "-CAkey", str(folder / "authority-key.pem"), "-keyout",
                  str(tmp_path / "stolen.key"), "-out", stolen)  # fmt: skip
    with pytest.raises(AssertionError, match="permitted subtree violation"):
        authority.run("verify", "-CAfile", str(folder / "authority.pem"), stolen)


def test_kirsch_certificates_says_what_is_missing_and_what_has_failed(tmp_path: Path) -> None:
    args = ["certificates", "x:app", "--acme", "shop.example.org", "--acme-agree-tos", "--acme-state", str(tmp_path)]
    os.chmod(tmp_path, 0o700)
    done = run(*args)
    assert (done.returncode, done.stderr) == (1, "")
    assert "MISSING" in done.stdout
    chosen = sources.read(args[1:], {})
    schedule = Schedule(files_of(chosen))
    schedule.failed("shop.example.org", time.time(), "no route to host", 0.0)
    schedule.save()
    assert "FAILED 1 times: no route to host; the next attempt is at 2" in run(*args).stdout
    assert run("certificates", "x:app").returncode == 1


CONFINED = """
import os, socket, sys
from kirsch import _native
own, other = sys.argv[1:]
outside = socket.socket()
print(_native.confine(own, ["/usr", os.path.dirname(os.__file__)]))
def tried(name, attempt):
    try:
        attempt()
        print(name, "done")
    except OSError:
        print(name, "refused")
tried("write-own", lambda: open(f"{own}/new", "w").close())
tried("rename-own", lambda: os.replace(f"{own}/new", f"{own}/newer"))
tried("write-other", lambda: open(f"{other}/new", "w").close())
tried("read-other", lambda: open(f"{other}/secret").close())
tried("read-system", lambda: os.listdir("/usr"))
tried("listen", lambda: socket.create_server(("127.0.0.1", 0)))
tried("signal", lambda: os.kill(os.getppid(), 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has Landlock")
def test_the_process_that_obtains_can_change_its_directory_alone(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    (other / "secret").write_text("s")
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, str(own), str(other)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    how, *tried = done.stdout.splitlines()
    if how != "full":
        pytest.skip(f"Landlock of this kernel: {how}")
    assert tried == [
        "write-own done", "rename-own done", "write-other refused", "read-other refused", "read-system done",
        "listen refused", "signal refused",
    ]  # fmt: skip


def test_a_program_takes_no_acme() -> None:
    with pytest.raises(TypeError, match="no option 'acme'"):
        kirsch.Server(lambda *_: [], acme=["example.org"])  # type: ignore[call-arg]


def test_kirsch_check_warns_of_addresses_that_no_authority_reaches(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def app(environ, start_response): ...\n")
    args = ["check", "--chdir", str(tmp_path), "x:app", "--acme", "shop.example.org", "--acme-agree-tos",
            "--acme-state", str(tmp_path / "state")]  # fmt: skip
    done = run(*args, "--bind", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    assert "the authority cannot reach 127.0.0.1:0 unless something forwards port 80 or 443 to it" in done.stdout
    assert "not obtained yet" in done.stdout
    assert not (tmp_path / "state").exists()
    assert "cannot reach" not in run(*args, "--bind", ":0").stdout
