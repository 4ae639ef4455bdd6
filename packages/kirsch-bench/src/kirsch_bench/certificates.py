"""The certificate authorities that the system trusts."""

from __future__ import annotations

import os
import ssl

from kirsch_bench.errors import UsageError

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)


def system_bundle() -> str:
    """Return the path of the bundle of their certificates; ``SSL_CERT_FILE`` overrides it. Raises UsageError if
    there is none."""
    for path in (ssl.get_default_verify_paths().cafile, *_BUNDLES):
        if path and os.path.isfile(path):
            return path
    raise UsageError("this system has no file of trusted authorities; name one with --ca-certs, or say --insecure")
