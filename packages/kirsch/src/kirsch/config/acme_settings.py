"""The settings of ACME: a part of the table in ``schema.py``."""

from __future__ import annotations

from kirsch.config.kinds import ACME_NAMES, CONTACTS, DIRECTORY, FILE, NAME, SECRET, SWITCH, URL, one_of
from kirsch.config.setting import setting
from kirsch.net.acme_files import LETS_ENCRYPT


class AcmeSettings:
    """The settings for obtaining certificates: the names, the authority, and the account."""

    __slots__ = ()

    acme = setting(
        "ACME", "--acme", ACME_NAMES, "",
        "Obtain a certificate for this host name or IP address from an authority, by ACME, and renew it when the "
        "authority says so. Repeat the flag for several names; each gets a certificate of its own. The authority "
        "connects to the name: at port 80 to an http:// address, or at port 443 to an https:// one. Until the first "
        "certificate is there, connections for this name are refused. In the settings file, a table [acme] may have "
        "this and the following: names, agree-tos, contact and so on.",
        supervised=True, summary="obtain and renew the certificate of this name",
    )  # fmt: skip
    acme_agree_tos = setting(
        "ACME", "--acme-agree-tos", SWITCH, "no",
        "Agree to the terms of service of the authority, which it demands. Those of Let's Encrypt are at "
        "https://letsencrypt.org/repository/.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_contact = setting(
        "ACME", "--acme-contact", CONTACTS, "",
        "The mail address that the authority may write to. Let's Encrypt needs none.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_directory = setting(
        "ACME", "--acme-directory", URL, LETS_ENCRYPT,
        "The authority: the URL of its ACME directory.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_staging = setting(
        "ACME", "--acme-staging", SWITCH, "no",
        "Ask the staging environment of Let's Encrypt, for trials: its limits are high, and no browser trusts its "
        "certificates.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_profile = setting(
        "ACME", "--acme-profile", NAME, "",
        "Which of the authority's profiles the certificates have, such as shortlived of Let's Encrypt for those of 6 "
        "days, which certificates of IP addresses need. Empty: the authority's default.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_challenge = setting(
        "ACME", "--acme-challenge", one_of("auto", "http-01", "tls-alpn-01"), "auto",
        "How the authority verifies a name: http-01 asks at port 80, tls-alpn-01 at port 443. auto is http-01 if there "
        "is an http:// address, and tries the other one after a failure.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_state = setting(
        "ACME", "--acme-state", DIRECTORY, "",
        "The directory of the account, its key and the certificates. Only its owner may read it. Several hosts may "
        "share it: one of them renews, and all serve the result. Empty: acme in $STATE_DIRECTORY (systemd's "
        "StateDirectory=), else /var/lib/kirsch/acme for root and ~/.local/state/kirsch/acme for others.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_eab_kid = setting(
        "ACME", "--acme-eab-kid", NAME, "",
        "The identifier of the key by which an authority knows its customers (external account binding), for "
        "authorities that demand it.",
        supervised=True, needs="acme",
    )  # fmt: skip
    acme_eab_key = setting(
        "ACME", "--acme-eab-key", SECRET, "",
        "Where that key is, as the authority writes it (base64url): file:PATH is the first line of a file, env:NAME a "
        "variable of the environment.",
        supervised=True, needs="acme_eab_kid",
    )  # fmt: skip
    acme_ca_certs = setting(
        "ACME", "--acme-ca-certs", FILE, "",
        "Trust the authorities in this file (PEM) when connecting to --acme-directory, for an authority of one's own. "
        "Empty: those of the system.",
        supervised=True, needs="acme",
    )  # fmt: skip
