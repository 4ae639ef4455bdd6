"""``kirsch dev-cert``: create a development authority, and a certificate by it for this machine. The authority can only
issue certificates for names of this machine and of private networks: a stolen key cannot be used to impersonate a
public site, even for clients that trust the authority.
"""

from __future__ import annotations

import os

from kirsch import _native, reports
from kirsch.commands import top
from kirsch.commands.output import print_output
from kirsch.net.acme_files import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = ("localhost", "127.0.0.1", "::1")

_TRUST = """
Programs trust it when they trust the authority {authority}:

  Debian, Ubuntu    sudo cp {authority} /usr/local/share/ca-certificates/kirsch-development.crt
                    sudo update-ca-certificates
  Fedora            sudo cp {authority} /etc/pki/ca-trust/source/anchors/ && sudo update-ca-trust
  macOS             security add-trusted-cert -k ~/Library/Keychains/login.keychain-db {authority}
  Chromium (Linux)  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n kirsch-development -i {authority}
  Firefox           Settings, Privacy & Security, Certificates, View Certificates, Authorities, Import
  curl, Python      curl --cacert {authority}; SSL_CERT_FILE={authority} python ...

It is an authority for {domains} and private networks alone. Keep {key} to yourself.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 if a file cannot be written or used, or 2 for a wrong command line."""
    parser = top.Parser(
        prog="kirsch dev-cert",
        description="Make a local authority, once, and a certificate of it for localhost and the given names.",
        epilog="Without --dir, the files are in $XDG_DATA_HOME/kirsch/dev-cert, or ~/.local/share/kirsch/dev-cert.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="further names, such as shop.test or 192.168.1.7")
    parser.add_argument("--dir", metavar="DIRECTORY", help="where the files are")
    try:
        chosen = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    folder = os.path.abspath(chosen.dir or _default_directory())
    names = list(dict.fromkeys([*_NAMES, *(name.lower() for name in chosen.names)]))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        is_new = _make(folder, names)
    except OSError as error:
        reports.write_stderr(f"kirsch dev-cert: {error.filename or folder}: {error.strerror}")
        return 1
    except _native.AcmeFailure as failure:
        reports.write_stderr(f"kirsch dev-cert: {failure.args[0]}")
        return 1
    certificate, key = os.path.join(folder, "localhost.pem"), os.path.join(folder, "localhost-key.pem")
    print_output(f"A certificate for {', '.join(names)}, for 397 days. Serve with it:\n")
    print_output(f"  kirsch APP --certfile {certificate} --keyfile {key}")
    authority = os.path.join(folder, "authority.pem")
    if is_new:
        places = {"authority": authority, "key": os.path.join(folder, "authority-key.pem")}
        print_output(_TRUST.format(domains="localhost, test, local, internal, home.arpa", **places).rstrip("\n"))
    else:
        print_output(f"\nThe authority is the one of before, {authority}.")
    return 0


def _make(folder: str, names: list[str]) -> bool:
    """Create the missing files. Return whether the authority is new. Raises OSError and AcmeFailure."""
    authority, authority_key = (os.path.join(folder, name) for name in ("authority.pem", "authority-key.pem"))
    is_new = not os.path.exists(authority_key) or not os.path.exists(authority)
    if is_new:
        key, certificate = _native.make_authority()
        # Issue the certificate first: if a name is refused, no file is written.
        own_key, own = _native.issue_certificate(key, names)
        write(authority_key, key.encode())
        write(authority, certificate.encode())
        os.chmod(authority, 0o644)
    else:
        with open(authority_key, encoding="ascii", errors="replace") as file:
            key = file.read()
        own_key, own = _native.issue_certificate(key, names)
    write(os.path.join(folder, "localhost-key.pem"), own_key.encode())
    write(os.path.join(folder, "localhost.pem"), own.encode())
    return is_new


def _default_directory() -> str:
    of_user = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(of_user, "kirsch", "dev-cert")
