"""The files of certificates that are obtained by ACME: where they are, and how they are written.

::

    DIRECTORY                     --acme-state, readable by its owner alone
      lock                        held by the process that talks with an authority, of whichever host
      acme.example-directory/     for each authority
        account.json              the account, with its private key
        status.json               for each name: when it is renewed, what has failed, and when that is tried again
        example.org.pem           a certificate with its issuers and its key; replaced as a whole
        example.org.challenge.pem the certificate that answers a challenge of TLS-ALPN-01
        example.org.order.json    an order that the authority has not completed, with the key of its certificate

One process obtains, and any number of supervisors read. A file is complete or it is not there: it is written under
another name first.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LETS_ENCRYPT = "https://acme-v02.api.letsencrypt.org/directory"
LETS_ENCRYPT_STAGING = "https://acme-staging-v02.api.letsencrypt.org/directory"


class AcmeFiles:
    """The files for the names of ``--acme``. ``values`` are the settings by name; without such a setting there are no
    names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.names: tuple[str, ...] = values.get("acme", ())
        if not self.names:
            return
        self.directory = os.path.abspath(values["acme_state"] or _default_directory())
        self.url: str = LETS_ENCRYPT_STAGING if values["acme_staging"] else values["acme_directory"]
        place = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.url.removeprefix("https://"))
        self.folder = os.path.join(self.directory, place.strip(".-"))

    def certificate(self, name: str) -> str:
        return os.path.join(self.folder, f"{_file_name(name)}.pem")

    def challenge(self, name: str) -> str:
        return os.path.join(self.folder, f"{_file_name(name)}.challenge.pem")

    def order(self, name: str) -> str:
        return os.path.join(self.folder, f"{_file_name(name)}.order.json")

    @property
    def account(self) -> str:
        return os.path.join(self.folder, "account.json")

    @property
    def status(self) -> str:
        return os.path.join(self.folder, "status.json")

    @property
    def lock(self) -> str:
        return os.path.join(self.directory, "lock")

    def paths(self) -> list[str]:
        """Return every path whose change may matter to those who serve."""
        found = [path for name in self.names for path in (self.certificate(name), self.challenge(name))]
        return [*found, self.account] if self.names else []

    def present(self) -> list[str]:
        """Return the names that have a certificate."""
        return [name for name in self.names if os.path.exists(self.certificate(name))]

    def thumbprint(self) -> str | None:
        """Return the thumbprint of the account's key, with which any host answers a challenge of HTTP-01. None: there
        is no account, or this user may not read it."""
        if not self.names:
            return None
        try:
            found = read_json(self.account).get("thumbprint")
        except OSError:
            return None
        return found if isinstance(found, str) else None

    def create(self) -> None:
        """Create the directories. Raises OSError, one line."""
        for path in (self.directory, self.folder):
            try:
                os.makedirs(path, mode=0o700, exist_ok=True)
            except OSError as error:
                text = f"cannot create {path}: {error.strerror}; give another directory with --acme-state"
                raise OSError(error.errno, text) from None
        # A directory that somebody else has made, such as systemd, with an owner of its own.
        owner = os.stat(self.directory)
        if os.geteuid() == 0 and os.stat(self.folder).st_uid != owner.st_uid:
            os.chown(self.folder, owner.st_uid, owner.st_gid)
        if owner.st_mode & 0o077:
            raise OSError(
                f"{self.directory}: others than its owner may look into it, and private keys are there; "
                f"chmod 700 {self.directory}"
            )


def read_json(path: str) -> dict[str, Any]:
    """Return the object in a file; empty if it is not there or damaged. Raises OSError if this user may not read it."""
    import json

    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: str, content: Mapping[str, Any]) -> None:
    import json

    write(path, json.dumps(content, indent=1).encode())


def write(path: str, content: bytes) -> None:
    """Replace a file as a whole; only its owner may read it. Raises OSError."""
    # The process holds the lock, so nobody else writes a file of this name.
    new = f"{path}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        os.fchmod(fd, 0o600)
        file.write(content)
        file.flush()
        os.fsync(fd)
    os.replace(new, path)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _file_name(name: str) -> str:
    # An IPv6 address; a colon separates hosts from paths in scp and rsync.
    return name.replace(":", "_")


def _default_directory() -> str:
    of_unit = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if of_unit:
        return os.path.join(of_unit, "acme")
    if os.geteuid() == 0:
        return "/var/lib/kirsch/acme"
    of_user = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(of_user, "kirsch", "acme")
