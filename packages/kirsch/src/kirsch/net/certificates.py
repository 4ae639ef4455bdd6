"""The TLS files that the settings name, and reading their contents."""

from __future__ import annotations

import errno
import os

from kirsch.net.acme_files import AcmeFiles
from kirsch.net.addresses import HTTP_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Source = tuple[str, bytes]
    Terms = dict[str, Any]

TICKET_SECRETS = 3
"""The number of secrets whose tickets are accepted: one makes tickets for 6 hours, which are valid for 12."""

TICKET_SECONDS = 6 * 60 * 60.0
"""The time after which a new secret makes the tickets."""

# The limit of a file in bytes. Certificates are kilobytes, revocation lists may be megabytes; a longer file is a
# mistake.
_FILE_MAX = 64 << 20

PLACES_OF_PASSWORDS = "write file:PATH for the first line of a file, or env:NAME for a variable"


class CertificateError(ValueError):
    """Raised for mistakes in the TLS settings or in the files that they name: one line for each mistake."""


class CertificateFiles:
    """The paths of a certificate and its key. ``names`` are server names; if empty, those in the certificate are
    used. ``is_challenge``: the certificate is only for a TLS-ALPN-01 challenge."""

    __slots__ = ("certfile", "is_challenge", "keyfile", "names", "password")

    def __init__(
        self,
        certfile: str,
        keyfile: str = "",
        password: str = "",
        names: Iterable[str] = (),
        *,
        is_challenge: bool = False,
    ) -> None:
        self.certfile = certfile
        self.keyfile = keyfile or certfile
        self.password = password
        self.names = tuple(names)
        self.is_challenge = is_challenge

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CertificateFiles) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"CertificateFiles{self._key()!r}"

    def _key(self) -> tuple[object, ...]:
        return self.certfile, self.keyfile, self.password, self.names


class TlsFiles:
    """The TLS files that the settings name. ``values`` are these settings by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.certificates: list[CertificateFiles] = []
        if values["certfile"]:
            first = CertificateFiles(values["certfile"], values["keyfile"], values["keyfile_password"])
            self.certificates.append(first)
        self.certificates += values["tls"]
        self.acme = AcmeFiles(values)
        self._values = values

    def __bool__(self) -> bool:
        """Return whether connections can be encrypted."""
        return bool(self.certificates or self.acme.names)

    def paths(self) -> list[str]:
        """Return the paths of all files whose change requires a reload."""
        found = [path for each in self.certificates for path in (each.certfile, each.keyfile)]
        found += [each.password[5:] for each in self.certificates if each.password.startswith("file:")]
        found += self._values["ca_certs"]
        found += self._values["crlfile"]
        found += self.acme.paths()
        return list(dict.fromkeys(map(os.path.abspath, found)))

    def read(self, secrets: list[bytes]) -> Terms:
        """Read the files; return the terms for ``_native.Certificates``. Raises CertificateError."""
        # Imported here, so that the command can start without the native module and report that it is missing.
        from kirsch import _native

        mistakes: list[str] = []
        values = self._values
        terms: Terms = {
            "certificates": [_read_files(each, mistakes) for each in self._all()],
            "minimum_version": values["tls_min"],
            "cipher_suites": values["ciphers"],
            "protocols": list(_native.PROTOCOLS[HTTP_VERSIONS[values["http"]]]),
            "client_certificates": values["cert_reqs"],
            "authorities": [_read(path, "--ca-certs", mistakes) for path in values["ca_certs"]],
            "revocation_lists": [_read(path, "--crlfile", mistakes) for path in values["crlfile"]],
            "ticket_secrets": secrets,
            "awaited_names": list(self.acme.names),
            "challenge_thumbprint": self.acme.thumbprint(),
        }
        if mistakes:
            raise CertificateError("\n".join(dict.fromkeys(mistakes)))
        return terms

    def _all(self) -> list[CertificateFiles]:
        """Return the certificates of the settings, those that were obtained by ACME, and those that answer
        challenges."""
        obtained = [CertificateFiles(self.acme.certificate(name)) for name in self.acme.present()]
        challenges = [
            CertificateFiles(path, names=(name,), is_challenge=True)
            for name in self.acme.names
            for path in [self.acme.challenge(name)]
            if os.path.exists(path)
        ]
        return [*self.certificates, *obtained, *challenges]


def new_secrets(old: Iterable[bytes] = ()) -> list[bytes]:
    """Return the ticket secrets with a new one in front, which encrypts new tickets."""
    return [os.urandom(32), *old][:TICKET_SECRETS]


def _read_files(files: CertificateFiles, mistakes: list[str]) -> dict[str, Any]:
    return {
        "chain": _read(files.certfile, "--certfile", mistakes),
        # One file may contain both. Use the same label, so that its mistakes are reported once.
        "key": _read(files.keyfile, "--certfile" if files.keyfile == files.certfile else "--keyfile", mistakes),
        "password": _password(files.password, mistakes),
        "names": list(files.names),
        "is_challenge": files.is_challenge,
    }


def _read(path: str, label: str, mistakes: list[str]) -> Source:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_MAX + 1)
        if len(content) > _FILE_MAX:
            mistakes.append(f"{label}: {path} is no such file: it is longer than {_FILE_MAX >> 20} MiB")
        return path, content
    except OSError as error:
        mistakes.append(f"{label}: {_trouble(path, error)}")
    except ValueError:
        mistakes.append(f"{label}: {path!r} is not a path")
    return path, b""


def _trouble(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"there is no file {path}; `ls -l {os.path.dirname(path) or '.'}` shows those that there are"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not read {path}; start as root with --user, or let the user's group read it (chmod g+r)"
    if error.errno == errno.EISDIR:
        return f"{path} is a directory; name one of its files, which `ls -l {path}` shows"
    return f"cannot read {path}: {error.strerror}"


def read_secret(text: str, label: str) -> bytes:
    """Return the secret to which ``text`` refers. Raises CertificateError."""
    mistakes: list[str] = []
    found = _secret(text, label, mistakes)
    if mistakes:
        raise CertificateError(mistakes[0])
    return found


def _password(text: str, mistakes: list[str]) -> bytes | None:
    """Return the password to which ``text`` refers; None if it is empty."""
    return _secret(text, "--keyfile-password", mistakes) if text else None


def _secret(text: str, label: str, mistakes: list[str]) -> bytes:
    kind, _, place = text.partition(":")
    if kind == "env":
        if place in os.environ:
            return os.fsencode(os.environ[place])
        mistakes.append(f"{label}: there is no variable {place} in the environment; export it first")
        return b""
    _, content = _read(place, label, mistakes)
    return content.split(b"\n")[0].rstrip(b"\r")
