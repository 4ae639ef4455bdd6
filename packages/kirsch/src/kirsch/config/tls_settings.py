"""The settings of TLS: a part of the table in ``schema.py``."""

from __future__ import annotations

from kirsch.config.kinds import (
    CERTIFICATES,
    CIPHERS,
    CLIENT_CERTIFICATES,
    COUNT,
    DURATION,
    FILE,
    PATHS,
    SECRET,
    SWITCH,
    TLS_VERSION,
)
from kirsch.config.setting import ENGINE, PROGRAM, setting


class TlsSettings:
    """The settings for TLS: certificates, versions, client certificates and redirects."""

    __slots__ = ()

    certfile = setting(
        "TLS", "--ssl-certificate --ssl-certfile --certfile", FILE, "",
        "Encrypt connections with this certificate: a PEM file with the certificate and then its issuers, as in "
        "fullchain.pem of certbot. Addresses of TCP without a scheme are https then; http://:80 beside it stays plain, "
        "and so does unix:PATH unless it is written https:unix:PATH. A change of the file takes effect at once, and at "
        "SIGHUP; one that does not fit leaves the old certificate in force. kirsch check judges the files.",
        scope=PROGRAM, summary="encrypt with this certificate (PEM)",
    )  # fmt: skip
    keyfile = setting(
        "TLS", "--ssl-keyfile --keyfile", FILE, "",
        "The private key of --certfile, in PEM. Empty: it is in the same file.",
        scope=PROGRAM, summary="the private key of --certfile (PEM)",
    )  # fmt: skip
    keyfile_password = setting(
        "TLS", "--ssl-keyfile-password --keyfile-password", SECRET, "",
        "Where the password of an encrypted key is: file:PATH is the first line of a file, env:NAME a variable of the "
        "environment. On the command line itself every user of the machine could read it.",
        scope=PROGRAM,
    )  # fmt: skip
    tls = setting(
        "TLS", "--tls", CERTIFICATES, "",
        "Another certificate, as CERTFILE,KEYFILE (or CERTFILE with the key in it). Repeat the flag for several; in "
        "the settings file each is a table [[tls]] with certfile, keyfile, keyfile-password and names. A client gets "
        "the one of the server name that it asks for (SNI), exactly or by *.example.org; of several for one name that "
        "whose kind of key the client prefers, such as ECDSA, RSA and ML-DSA. The first certificate is that of "
        "unknown names. Without names, they are those of the certificate.",
        scope=PROGRAM,
    )  # fmt: skip
    tls_min = setting(
        "TLS", "--ssl-protocol-min --tls-min", TLS_VERSION, "1.2",
        "The lowest version of TLS that is spoken. Versions before 1.2 are broken, and are not there.",
        scope=PROGRAM,
    )  # fmt: skip
    ciphers = setting(
        "TLS", "--ssl-ciphers --ciphers", CIPHERS, "",
        "Use these cipher suites alone: names of OpenSSL or IANA with colons between them, as in "
        "ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256. A list that names none of TLS 1.3 leaves those of TLS "
        "1.3 as they are, and likewise for 1.2. Empty: all, of which none is weak.",
        scope=PROGRAM,
    )  # fmt: skip
    ca_certs = setting(
        "TLS", "--ssl-ca --ssl-ca-certs --ca-certs", PATHS, "",
        "The authorities whose certificates clients may present, in PEM; see --cert-reqs.",
        scope=PROGRAM,
    )  # fmt: skip
    cert_reqs = setting(
        "TLS", "--ssl-cert-reqs --cert-reqs", CLIENT_CERTIFICATES, "none",
        "Whether clients have to present a certificate of --ca-certs: none, optional or required; 0, 1 and 2 are the "
        "same. SSL_CLIENT_S_DN and others tell a WSGI application of it, the extension tls an ASGI application.",
        scope=PROGRAM,
    )  # fmt: skip
    crlfile = setting(
        "TLS", "--ssl-crl --crlfile", PATHS, "",
        "Revocation lists of the authorities of --ca-certs, in PEM or DER. With any, each authority needs one. They "
        "are read again when they change.",
        scope=PROGRAM, needs="ca_certs",
    )  # fmt: skip
    redirect_http = setting(
        "TLS", "--redirect-http", SWITCH, "no",
        "Send clients of http:// addresses to https with 308, to the same path. Hosts without a certificate get 421. "
        "Health checks, and the requests by which an authority verifies a name (--acme), are "
        "answered as before. A trusted proxy that says that its client uses https is served.",
        scope=PROGRAM, summary="send clients of http:// to https",
    )  # fmt: skip
    https_port = setting(
        "TLS", "--https-port", COUNT, "0",
        "The port to which --redirect-http sends clients. 0 is that of the first https address; another one is needed "
        "where something forwards port 443 to it.",
        most=65535, scope=PROGRAM,
    )  # fmt: skip
    hsts = setting(
        "TLS", "--hsts", DURATION, "0",
        "Have browsers use https alone for this long after each response (Strict-Transport-Security), unless the "
        "application sets the field. They keep to it even if https fails: begin with 1h, then write 365d for a year. "
        "0: responses say nothing of it.",
        scope=ENGINE,
    )  # fmt: skip
    hsts_subdomains = setting(
        "TLS", "--hsts-subdomains", SWITCH, "no",
        "With --hsts: for all names below the host, too.",
        scope=ENGINE, needs="hsts",
    )  # fmt: skip
