"""The tool ``auth_digest`` (RFC 2617, with MD5). New programs should use Basic over TLS, or sessions."""

from __future__ import annotations

import hmac
import time
import urllib.request
from hashlib import md5
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving

DEFAULT_CHARSET, FALLBACK_CHARSET = "UTF-8", "ISO-8859-1"
valid_algorithms = ("MD5", "MD5-sess")
valid_qops = qop_auth, qop_auth_int = ("auth", "auth-int")
_REQUIRED = ("username", "realm", "nonce", "uri", "response")


def md5_hex(text: str | bytes) -> str:
    """Return the MD5 of a text, in hexadecimal."""
    return md5(text.encode() if isinstance(text, str) else text).hexdigest()  # noqa: S324 - required by the protocol


H = md5_hex


def get_ha1_dict_plain(user_password_dict: dict[str, str]) -> Any:
    """Return a ``get_ha1`` function for a dictionary of passwords by user."""

    def get_ha1(realm: str, username: str) -> str | None:
        password = user_password_dict.get(username)
        return md5_hex(f"{username}:{realm}:{password}") if password else None

    return get_ha1


def get_ha1_dict(user_ha1_dict: dict[str, str]) -> Any:
    """Return a ``get_ha1`` function for a dictionary of HA1 hashes by user."""
    return lambda realm, username: user_ha1_dict.get(username)


def get_ha1_file_htdigest(filename: str) -> Any:
    """Return a ``get_ha1`` function for a file written by Apache's htdigest."""

    def get_ha1(realm: str, username: str) -> str | None:
        with open(filename, encoding="utf-8") as file:
            for line in file:
                name, its_realm, ha1 = line.rstrip().split(":")
                if name == username and its_realm == realm:
                    return ha1
        return None

    return get_ha1


def synthesize_nonce(s: Any, key: str, timestamp: Any = None) -> str:
    """Return a nonce with its creation time, signed with ``key``, so that only this server can create it."""
    moment = int(time.time()) if timestamp is None else timestamp
    return f"{moment}:{md5_hex(f'{moment}:{s}:{key}')}"


class HttpDigestAuthorization:
    """A parsed Authorization field. The constructor raises ValueError if its syntax is wrong."""

    scheme = "digest"

    def __init__(
        self, auth_header: str, http_method: str, debug: bool = False, accept_charset: str = DEFAULT_CHARSET
    ) -> None:
        if not self.matches(auth_header):
            raise ValueError("the Authorization is not of the scheme Digest")
        self.http_method = http_method
        params = _decoded(auth_header, accept_charset).partition(" ")[2]
        given = urllib.request.parse_keqv_list(urllib.request.parse_http_list(params)).get
        self.username, self.realm, self.uri, self.response = map(given, ("username", "realm", "uri", "response"))
        self.cnonce, self.opaque, self.qop, self.nc = map(given, ("cnonce", "opaque", "qop", "nc"))
        self.nonce: str = given("nonce", "")
        self.algorithm = given("algorithm", "MD5").upper().replace("SESS", "sess")
        if not all(given(name) for name in _REQUIRED):
            raise ValueError(f"one of the parameters {', '.join(_REQUIRED)} is missing")
        if self.algorithm not in valid_algorithms or self.qop not in (None, "", *valid_qops):
            raise ValueError(f"algorithm {self.algorithm!r} or qop {self.qop!r} is not one that this server knows")
        if (self.cnonce and self.nc) if self.qop else not (self.cnonce or self.nc):
            return
        raise ValueError("qop, cnonce and nc have to be there all or not at all")

    @classmethod
    def matches(cls, header: str) -> bool:
        """Return whether the Authorization field uses the Digest scheme."""
        return header.partition(" ")[0].lower() == cls.scheme

    def validate_nonce(self, s: Any, key: str) -> bool:
        """Return whether this server created the nonce."""
        made = synthesize_nonce(s, key, self.nonce.partition(":")[0])
        return hmac.compare_digest(made.encode(), self.nonce.encode())

    def is_nonce_stale(self, max_age_seconds: float = 600) -> bool:
        """Return whether the nonce is older than ``max_age_seconds``."""
        try:
            return int(self.nonce.partition(":")[0]) + max_age_seconds <= int(time.time())
        except ValueError:
            return True

    def HA2(self, entity_body: Any = "") -> str:
        """Return the hash HA2 of the request: of its method, URI and, with qop=auth-int, body."""
        body = f":{H(entity_body)}" if self.qop == qop_auth_int else ""
        return H(f"{self.http_method}:{self.uri}{body}")

    def request_digest(self, ha1: str, entity_body: Any = "") -> str:
        """Return the digest that the client must send, for the password hash ``ha1``."""
        ha2 = self.HA2(entity_body)
        middle = f"{self.nonce}:{self.nc}:{self.cnonce}:{self.qop}:{ha2}" if self.qop else f"{self.nonce}:{ha2}"
        if self.algorithm == "MD5-sess":
            ha1 = H(f"{ha1}:{self.nonce}:{self.cnonce}")
        return H(f"{ha1}:{middle}")


def _decoded(text: str, charset: str) -> str:
    data = text.encode("latin-1", "replace")
    for each in (charset, FALLBACK_CHARSET):
        try:
            return data.decode(each)
        except (UnicodeDecodeError, LookupError):
            continue
    return text


def www_authenticate(
    realm: str, key: str, algorithm: str = "MD5", nonce: str | None = None, qop: str = qop_auth, stale: bool = False,
    accept_charset: str = DEFAULT_CHARSET,
) -> str:  # fmt: skip
    """Return the WWW-Authenticate field for a 401 response."""
    if nonce is None:
        nonce = synthesize_nonce(realm, key)
    return (
        f'Digest realm="{realm}", nonce="{nonce}", algorithm="{algorithm}", qop="{qop}"'
        + (', stale="true"' if stale else "")
        + (f', charset="{accept_charset}"' if accept_charset else "")
    )


def digest_auth(realm: str, get_ha1: Any, key: str, debug: bool = False, accept_charset: str = "utf-8") -> None:
    """Set ``request.login`` if the digest of the request is correct, or else respond with 401.

    Args:
        realm: the realm, which browsers show to users.
        get_ha1: a function of realm and username that returns the MD5 of ``username:realm:password``, or None.
        key: a secret of the server, which signs nonces.
        debug: unused.
        accept_charset: the charset of usernames.
    """
    request = serving.request
    header = request.headers.get("Authorization")
    stale = False
    if header is not None and HttpDigestAuthorization.matches(header):
        try:
            auth = HttpDigestAuthorization(header, request.method, accept_charset=accept_charset)
        except ValueError as error:
            raise HTTPError(400, f"Bad Request: {error}") from None
        ha1 = get_ha1(realm, auth.username) if auth.validate_nonce(realm, key) else None
        if ha1 is not None:
            digest = auth.request_digest(ha1, request.body.read() if auth.qop == qop_auth_int else "")
            if hmac.compare_digest(digest.encode(), str(auth.response).encode()):
                stale = auth.is_nonce_stale()
                if not stale:
                    request.login = auth.username
                    return
    charset = accept_charset.upper()
    serving.response.headers["WWW-Authenticate"] = www_authenticate(realm, key, stale=stale, accept_charset=charset)
    raise HTTPError(401, "Name and password are needed, or are wrong.")
