"""Each mistake that people make with the files of a certificate: what the server says, at its start and while it runs.

``CASES`` is the list. A case is a mistake or something that looks like one. Most messages name a command; if the
command makes a file, the test runs it and serves with that file.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from authority import EC, ED25519, RSA, Authority
from kirsch import _native
from kirsch.config import sources
from kirsch.net.certificates import TlsFiles, new_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

    Content = bytes | str | None
    Pair = tuple[Content, Content]

TESTS = Path(__file__).parent
SECRET = "secret word"
NOBODY = 65534

# In place of the content of a file.
MISSING = None
DIRECTORY = "a directory"
UNREADABLE = "a file that this user may not read"

REFUSED, WARNED, SERVED = "refused", "warned of", "served"


class Case(NamedTuple):
    """A mistake. ``make`` returns the contents of cert.pem and key.pem. ``password`` is the first line of the file for
    ``--keyfile-password``. ``says`` and the command ``mend`` have to be in the message. ``answers`` are the lines that
    the command reads."""

    name: str
    make: Callable[[Authority], Pair]
    outcome: str
    says: str = ""
    mend: str = ""
    password: str = ""
    answers: str = ""


@functools.cache
def issued(authority: Authority, name: str, *key: str) -> tuple[bytes, bytes]:
    certificate, own_key = authority.issue(name, **({"key": key} if key else {}))  # type: ignore[arg-type]
    return Path(certificate).read_bytes(), Path(own_key).read_bytes()


def dated(authority: Authority, began: int, ends: int) -> Pair:
    certificate, key = authority.issue_for(f"dated{began}", began, ends)
    return Path(certificate).read_bytes(), Path(key).read_bytes()


def converted(authority: Authority, content: bytes, *words: str) -> bytes:
    """Return what openssl makes of ``content``."""
    before, after = authority.folder / "before", authority.folder / "after"
    before.write_bytes(content)
    authority.run(words[0], "-in", str(before), "-out", str(after), *words[1:])
    return after.read_bytes()


def encrypted(authority: Authority, *words: str) -> Pair:
    certificate, key = issued(authority, "encrypted")
    return certificate, converted(authority, key, *(words or ("pkcs8", "-topk8")), "-passout", f"pass:{SECRET}")


def pkcs12(authority: Authority) -> Pair:
    certificate, key = issued(authority, "pkcs12")
    path = authority.folder / "pkcs12.key"
    path.write_bytes(key)
    both = converted(authority, certificate, "pkcs12", "-export", "-inkey", str(path), "-passout", f"pass:{SECRET}")
    return both, both


def der(authority: Authority, *, is_key: bool) -> Pair:
    certificate, key = issued(authority, "der")
    if is_key:
        return certificate, converted(authority, key, "pkcs8", "-topk8", "-nocrypt", "-outform", "der")
    return converted(authority, certificate, "x509", "-outform", "der"), key


def chain(authority: Authority, order: str) -> Pair:
    """``order`` has a letter for each certificate: the server's, the authority's, or one that has issued neither."""
    certificate, key = issued(authority, "ordered")
    parts = {"s": certificate, "a": Path(authority.certificate).read_bytes(), "o": issued(authority, "other")[0]}
    return b"".join(parts[letter] for letter in order), key


def hostless(authority: Authority) -> Pair:
    certificate, key = (authority.folder / f"hostless.{end}" for end in ("pem", "key"))
    authority.run(
        "req", "-x509", *EC, "-nodes", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)
    )
    return certificate.read_bytes(), key.read_bytes()


def request(authority: Authority) -> Pair:
    key = right(authority)[1]
    path = authority.folder / "request.key"
    path.write_bytes(key)
    return authority.run("req", "-new", "-key", str(path), "-subj", "/CN=localhost").encode(), key


def right(authority: Authority) -> tuple[bytes, bytes]:
    return issued(authority, "right")


def curve(name: str) -> tuple[str, ...]:
    return "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{name}"


CASES = [
    Case("missing certificate", lambda a: (MISSING, right(a)[1]), REFUSED, "there is no file {cert}", "ls -l {folder}"),
    Case("missing key", lambda a: (right(a)[0], MISSING), REFUSED, "there is no file {key}", "ls -l {folder}"),
    Case(
        "directory", lambda a: (DIRECTORY, right(a)[1]), REFUSED,
        "--certfile: {cert} is a directory; name one of its files", "ls -l {cert}",
    ),
    Case(
        "unreadable key", lambda a: (right(a)[0], UNREADABLE), REFUSED,
        "--keyfile: this user may not read {key}; start as root with --user, or let the user's group read it",
        "chmod g+r",
    ),
    Case(
        "empty certificate", lambda a: (b"", right(a)[1]), REFUSED,
        "{cert}: there is no certificate in it: it is empty",
    ),
    Case("empty key", lambda a: (right(a)[0], b"\n"), REFUSED, "{key}: there is no private key in it: it is empty"),
    Case(
        "text", lambda a: (b"hello\n", right(a)[1]), REFUSED,
        "{cert}: there is no certificate in it; a PEM file begins with -----BEGIN CERTIFICATE-----",
        "openssl x509 -in {cert} -noout -text",
    ),
    Case(
        "UTF-16, as Windows writes it", lambda a: (right(a)[0].decode().encode("utf-16"), right(a)[1]), REFUSED,
        "{cert}: this is UTF-16, and PEM is wanted", "iconv -f UTF-16 -t UTF-8 -o {cert}.pem {cert}",
    ),
    Case("exchanged", lambda a: right(a)[::-1], REFUSED, "{cert}: this is a private key, and a certificate is wanted"),
    Case(
        "certificate as key", lambda a: (right(a)[0],) * 2, REFUSED,
        "{key}: this is a certificate without a private key; name the file with the key (--keyfile)",
    ),
    Case(
        "public key", lambda a: (right(a)[0], converted(a, right(a)[1], "pkey", "-pubout")), REFUSED,
        "{key}: this is a public key, and the private key of the certificate is wanted",
    ),
    Case("request", request, REFUSED, "{cert}: this is a request for a certificate"),
    Case("cut", lambda a: (right(a)[0][:-30], right(a)[1]), REFUSED, "{cert}: it is damaged, copy it again"),
    Case(
        "damaged", lambda a: (right(a)[0].replace(b"\n", b"\n!", 2), right(a)[1]), REFUSED,
        "{cert}: it is damaged, copy it again",
    ),
    Case(
        "another key of the same kind", lambda a: (right(a)[0], issued(a, "second")[1]), REFUSED,
        "{key}: the key (EC P-256) is not that of the certificate {cert} (EC P-256)", "openssl pkey -in {key} -pubout",
    ),
    Case(
        "RSA key of an EC certificate", lambda a: (right(a)[0], issued(a, "rsa", *RSA)[1]), REFUSED,
        "{key}: the key (RSA 2048) is not that of the certificate {cert} (EC P-256)",
        "openssl x509 -in {cert} -noout -pubkey",
    ),
    Case(
        "EC key of an RSA certificate", lambda a: (issued(a, "rsa", *RSA)[0], right(a)[1]), REFUSED,
        "{key}: the key (EC P-256) is not that of the certificate {cert} (RSA 2048)", "openssl pkey -in {key} -pubout",
    ),
    Case(
        "weak key", lambda a: issued(a, "weak", "-newkey", "rsa:1024"), REFUSED,
        "{key}: keys of this kind cannot be used (RSA with 2048 to 8192 bits, EC P-256,",
        "openssl pkey -in {key} -noout -text",
    ),
    Case(
        "unusual curve", lambda a: issued(a, "curve", *curve("secp256k1")), REFUSED,
        "{key}: keys of this kind cannot be used", "openssl pkey -in {key} -noout -text",
    ),
    Case(
        "encrypted without a password", encrypted, REFUSED,
        "{key}: the key is encrypted, and there is no password; give it with --keyfile-password file:PATH",
        "openssl pkey -in {key} -out {key}.plain", answers=SECRET,
    ),
    Case(
        "encrypted with another password", encrypted, REFUSED,
        "{key}: the password does not decrypt the key; try it", "openssl pkey -in {key} -noout", password="other",
    ),
    Case(
        "encrypted in the old way", lambda a: encrypted(a, "ec", "-aes128"), REFUSED,
        "{key}: the key is encrypted in OpenSSL's old way; convert it", "openssl pkcs8 -topk8 -in {key} -out {key}.new",
        password=SECRET, answers=f"{SECRET}\n{SECRET}\n{SECRET}",
    ),
    Case(
        "encrypted by DES", lambda a: encrypted(a, "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES"), REFUSED,
        "{key}: the key is encrypted in a way that is not known",
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -in {key} -out {key}.new",
        password=SECRET, answers=f"{SECRET}\n{SECRET}\n{SECRET}",
    ),
    Case(
        "PKCS #12", pkcs12, REFUSED, "{cert}: this is PKCS #12 (or #7), and PEM is wanted; convert it",
        "openssl pkcs12 -in {cert} -noenc -out {cert}.pem", answers=SECRET,
    ),
    Case(
        "certificate in DER", lambda a: der(a, is_key=False), REFUSED, "{cert}: this is DER, and PEM is wanted",
        "openssl x509 -inform der -in {cert} -out {cert}.pem",
    ),
    Case(
        "key in DER", lambda a: der(a, is_key=True), REFUSED, "{key}: this is DER, and PEM is wanted",
        "openssl pkey -inform der -in {key} -out {key}.pem",
    ),
    Case(
        "authority first", lambda a: chain(a, "as"), REFUSED,
        "{cert}: the order is wrong: the certificate of the key (CN=localhost) is number 2 and has to be the first",
        "cat CERTIFICATE ISSUERS > {cert}",
    ),
    Case(
        "unrelated certificate between", lambda a: chain(a, "soa"), WARNED,
        "{cert}: the order is wrong: certificate 2 (CN=localhost) has not issued certificate 1 (CN=localhost); write",
    ),
    Case("expired", lambda a: dated(a, -100, -5), WARNED, "{cert}: it expired at 2", "certbot renew"),
    Case(
        "not yet valid", lambda a: dated(a, 5, 100), WARNED, "{cert}: it is not valid before 2", "timedatectl",
    ),
    Case(
        "without a host", hostless, WARNED,
        "{cert}: it names no host (subjectAltName), and clients accept none without; have it issued again",
    ),
    Case("RSA", lambda a: issued(a, "rsa", *RSA), SERVED),
    Case("EC P-384", lambda a: issued(a, "p384", *curve("P-384")), SERVED),
    Case("EC P-521", lambda a: issued(a, "p521", *curve("P-521")), SERVED),
    Case("Ed25519", lambda a: issued(a, "ed25519", *ED25519), SERVED),
    Case("with its authority", lambda a: chain(a, "sa"), SERVED),
    Case("encrypted with its password", encrypted, SERVED, password=SECRET),
    Case("Windows' ends of lines", lambda a: tuple(each.replace(b"\n", b"\r\n") for each in right(a)), SERVED),  # type: ignore[arg-type, return-value]
    Case("text around it", lambda a: (b"subject=CN = localhost\n" + right(a)[0], right(a)[1]), SERVED),
]  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def remove(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)


def leaf(chain: bytes) -> bytes:
    """Return the first certificate, in DER."""
    text = chain.decode()
    return ssl.PEM_cert_to_DER_cert(text[text.index(ssl.PEM_HEADER) : text.index(ssl.PEM_FOOTER)] + ssl.PEM_FOOTER)


class Files:
    """The files of a case, in a folder: ``arguments`` name them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cert, self.key, self.password = (folder / name for name in ("cert.pem", "key.pem", "password"))
        self.arguments = ["--certfile", str(self.cert), "--keyfile", str(self.key)]
        self.arguments += ["--keyfile-password", f"file:{self.password}"]

    def write(self, case: Case, authority: Authority) -> None:
        self.put(*case.make(authority), case.password)

    def put(self, certificate: Content, key: Content, password: str = "") -> None:
        self.password.write_text(f"{password}\n")
        for path, content in ((self.cert, certificate), (self.key, key)):
            remove(path)
            if content == DIRECTORY:
                path.mkdir()
            elif content == UNREADABLE:
                path.touch(mode=0)
            elif isinstance(content, bytes):
                path.write_bytes(content)

    def text(self, template: str) -> str:
        return template.format(cert=self.cert, key=self.key, folder=self.folder)

    def arguments_of(self, case: Case) -> list[str]:
        return self.arguments if case.password else self.arguments[:4]

    def mend(self, case: Case) -> None:
        """Run the command of the message, and put the file that it makes in place."""
        done = subprocess.run(
            self.text(case.mend), shell=True, input=f"{case.answers}\n", capture_output=True, text=True, timeout=30,
            start_new_session=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for path in (self.cert, self.key):
            for made in self.folder.glob(f"{path.name}.*"):
                if b"PRIVATE KEY" in made.read_bytes():
                    shutil.copy(made, self.key)
                if b"BEGIN CERTIFICATE" in made.read_bytes():
                    shutil.copy(made, self.cert)


def warnings(arguments: list[str]) -> list[str]:
    """Return the warnings of the certificates. Raises ValueError if they cannot be used."""
    settings = sources.read([*arguments, "hello:app"], {}, "")
    return _native.Certificates(TlsFiles(settings.values).read(new_secrets())).warnings()


def line_of(arguments: list[str]) -> str:
    with pytest.raises(ValueError) as refusal:
        warnings(arguments)
    return str(refusal.value)


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_message_names_the_mistake_and_its_command_mends_it(case: Case, authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(case, authority)
    arguments = files.arguments_of(case)
    if case.outcome == REFUSED:
        is_root = UNREADABLE in case.make(authority) and os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            *others, line = line_of(arguments).splitlines()
        finally:
            if is_root:
                os.seteuid(0)
        # Of pytest's folders nobody can read any.
        assert not others or is_root
    elif case.outcome == WARNED:
        (line,) = warnings(arguments)
    else:
        assert warnings(arguments) == []
        return
    assert files.text(case.says) in line
    assert files.text(case.mend) in line
    if ".pem." in files.text(case.mend):
        files.mend(case)
        # The encrypted key of before has become another one.
        assert warnings(arguments) == []


def test_all_mistakes_are_told_at_once(authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.put(MISSING, DIRECTORY)
    assert [line.split(":")[0] for line in line_of(files.arguments[:4]).splitlines()] == ["--certfile", "--keyfile"]


def start(arguments: list[str]) -> tuple[int, str]:
    """Return the exit status and standard error of a command that does not serve, or is stopped when it does."""
    command = [sys.executable, "-m", "kirsch", "wsgi_app:app", "--bind", "127.0.0.1:0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=TESTS, check=False)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_start_tells_each_mistake_in_one_line(authority: Authority, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.outcome == REFUSED]
    folders = []
    for case in cases:
        folders.append(Files(tmp_path / case.name))
        folders[-1].folder.mkdir()
        folders[-1].write(case, authority)
        if UNREADABLE in case.make(authority) and os.geteuid() == 0:
            folders.pop()
            cases = [other for other in cases if other is not case]
            print("root can read every file: that a file cannot be read is not tried")
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda pair: start(pair[1].arguments_of(pair[0])), zip(cases, folders, strict=True))
        for case, files, (status, text) in zip(cases, folders, found, strict=True):
            assert (status, text.count("\n")) == (2, 1), (case.name, text)
            assert files.text(case.says) in text
            assert files.text(case.mend) in text


@pytest.mark.slow
def test_running_server_keeps_its_certificate(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.put(*right(authority))
    running = serve("wsgi_app:app", "--chdir", str(TESTS), *files.arguments)
    kept = right(authority)[0]
    for case in CASES:
        contents = case.make(authority)
        if UNREADABLE in contents and os.geteuid() == 0:
            continue
        files.put(*contents, case.password)
        after = len(running.stderr)
        os.kill(running.pid, signal.SIGHUP)
        running.wait_for("SIGHUP: done", after=after)
        reports = running.stderr[after:]
        if case.outcome == REFUSED:
            assert "SIGHUP: keeping the current certificates: " in reports, case.name
            # This server always has a password.
            assert files.text(case.mend) in reports or case.name == "encrypted without a password", case.name
        elif case.name == "expired":
            assert "it has expired, and the one in force has not" in reports
        else:
            assert "keeping" not in reports, case.name
            kept = files.cert.read_bytes()
        served = ssl.get_server_certificate((running.host, running.port))
        assert ssl.PEM_cert_to_DER_cert(served) == leaf(kept), case.name
