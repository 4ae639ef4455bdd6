"""The files of certificates that are obtained by ACME: their paths and contents.

::

    DIRECTORY                     --acme-state, readable by its owner alone
      lock                        locked by the one process, on any host, that talks to an authority
      acme.example-directory/     for each authority
        account.json              the account, with its private key
        status.json               for each name: when it is renewed, the last failure, and the time of the next try
        example.org.pem           a certificate with its issuers and its key; replaced as a whole
        example.org.challenge.pem the certificate that answers a TLS-ALPN-01 challenge
        example.org.order.json    an incomplete order, with the key of its certificate

One process obtains certificates, and any number of supervisors read the files. A file is always complete: it is written
under another name and then renamed.
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
    """The paths of the files for the names of ``--acme``. ``values`` are the settings by name; without this setting
    there are no names."""

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
        """Return the paths of all files whose change concerns a serving process."""
        found = [path for name in self.names for path in (self.certificate(name), self.challenge(name))]
        return [*found, self.account] if self.names else []

    def present(self) -> list[str]:
        """Return the names that have a certificate."""
        return [name for name in self.names if os.path.exists(self.certificate(name))]

    def thumbprint(self) -> str | None:
        """Return the thumbprint of the account's key, with which any host can answer an HTTP-01 challenge. None if
        there is no account, or this user may not read it."""
        if not self.names:
            return None
        try:
            found = read_json(self.account).get("thumbprint")
        except OSError:
            return None
        return found if isinstance(found, str) else None

    def create(self) -> None:
        """Create the directories. Raises OSError with a message in one line."""
        for path in (self.directory, self.folder):
            try:
                os.makedirs(path, mode=0o700, exist_ok=True)
            except OSError as error:
                text = f"cannot create {path}: {error.strerror}; give another directory with --acme-state"
                raise OSError(error.errno, text) from None
        # Another program, such as systemd, may have created the directory with another owner: use that owner.
        owner = os.stat(self.directory)
        if os.geteuid() == 0 and os.stat(self.folder).st_uid != owner.st_uid:
            os.chown(self.folder, owner.st_uid, owner.st_gid)
        if owner.st_mode & 0o077:
            raise OSError(
                f"{self.directory}: others than its owner may look into it, and private keys are there; "
                f"chmod 700 {self.directory}"
            )


def read_json(path: str) -> dict[str, Any]:
    """Return the JSON object in a file; empty if the file is missing or damaged. Raises OSError if this user may not
    read it."""
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
    """Replace a file atomically; only its owner may read it. Raises OSError."""
    # This process holds the lock, so no other process writes a file with this name.
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
    # For IPv6 addresses: a colon separates hosts from paths in scp and rsync.
    return name.replace(":", "_")


def _default_directory() -> str:
    of_unit = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if of_unit:
        return os.path.join(of_unit, "acme")
    if os.geteuid() == 0:
        return "/var/lib/kirsch/acme"
    of_user = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(of_user, "kirsch", "acme")
