"""Certificates for tests, made by the program openssl when they are needed; no key is kept in the repository."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from running import Running

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")
ED25519 = ("-newkey", "ed25519")


class Authority:
    """An authority in a folder. ``certificate`` is the path of its certificate."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the program openssl makes the certificates, and is not installed (apt install openssl)")
        self.folder = folder
        self.certificate, self._key = str(folder / "ca.pem"), str(folder / "ca.key")
        self.run("req", "-x509", *EC, "-nodes", "-days", "30", "-subj", "/CN=Test Authority", "-addext",
                 "keyUsage=critical,keyCertSign,cRLSign", "-keyout", self._key, "-out", self.certificate)  # fmt: skip

    def run(self, *words: str) -> str:
        """Run openssl. Raises AssertionError with its output if it fails."""
        done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def issue_for(self, name: str, began: int, ends: int) -> tuple[str, str]:
        """Return the paths of a certificate for localhost and its key, valid between two days, counted from today."""
        files = {end: str(self.folder / f"{name}.{end}") for end in ("pem", "key", "csr", "cnf", "db", "srl")}
        config = (
            "[ca]\ndefault_ca=x\n[x]\ndatabase={db}\nserial={srl}\nnew_certs_dir={folder}\npolicy=p\ndefault_md=sha256\n"
            "x509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=DNS:localhost\n"
        )
        for end, content in {"cnf": config.format(folder=self.folder, **files), "db": "", "srl": "01\n"}.items():
            Path(files[end]).write_text(content)
        self.run("req", "-new", *EC, "-nodes", "-subj", "/CN=localhost", "-keyout", files["key"], "-out", files["csr"])
        day = 86400
        dates = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + days * day)) for days in (began, ends)]
        self.run("ca", "-config", files["cnf"], "-batch", "-notext", "-startdate", dates[0], "-enddate", dates[1],
                 "-cert", self.certificate, "-keyfile", self._key, "-in", files["csr"], "-out",
                 files["pem"])  # fmt: skip
        return files["pem"], files["key"]

    def issue(
        self, name: str, *hosts: str, key: tuple[str, ...] = EC, days: int = 30, subject: str = "localhost"
    ) -> tuple[str, str]:
        """Return the paths of a certificate for ``hosts`` (localhost unless given) and of its key."""
        certificate, own_key = (str(self.folder / f"{name}.{end}") for end in ("pem", "key"))
        names = ",".join(f"DNS:{host}" for host in hosts or ("localhost",))
        self.run("req", "-x509", *key, "-nodes", "-days", str(days), "-subj", f"/CN={subject}", "-addext",
                 f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE", "-CA", self.certificate,
                 "-CAkey", self._key, "-keyout", own_key, "-out", certificate)  # fmt: skip
        return certificate, own_key

    def revocation_list(self, path: str, *revoked: str) -> None:
        """Write a list that revokes these certificates to ``path``, which always has a whole list."""
        files = {end: str(self.folder / f"revocation.{end}") for end in ("cnf", "db", "number", "crl")}
        config = "[ca]\ndefault_ca=x\n[x]\ndatabase={db}\ncrlnumber={number}\ndefault_md=sha256\n"
        for end, content in {"cnf": config.format(**files), "db": "", "number": "01\n"}.items():
            Path(files[end]).write_text(content)
        command = ["ca", "-config", files["cnf"], "-cert", self.certificate, "-keyfile", self._key]
        for each in revoked:
            self.run(*command, "-revoke", each)
        self.run(*command, "-gencrl", "-crldays", "30", "-out", files["crl"])
        Path(files["crl"]).rename(path)


def first_message() -> bytes:
    """Return the first message of a client's handshake."""
    hello = ssl.MemoryBIO()
    half = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    return hello.read()


def session_of(running: Running, client: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession, bool]:
    """Ask for a page with a session of before, if there is one. Return the session, and whether it was resumed."""
    with (
        socket.create_connection((running.host, running.port), timeout=20) as raw,
        client.wrap_socket(raw, server_hostname="localhost", session=session) as end,
    ):
        end.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while end.recv(65536):
            pass
        assert end.session is not None
        return end.session, bool(end.session_reused)
