"""The tool ``auth_basic``: Basic authentication (RFC 7617)."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving


def checkpassword_dict(user_password_dict: dict[str, str]) -> Any:
    """Return a ``checkpassword`` function for a dictionary of passwords by user."""

    def checkpassword(realm: str, user: str, password: str) -> bool:
        expected = user_password_dict.get(user)
        # Compare in constant time, so that timing reveals nothing about the password.
        return hmac.compare_digest((expected or "").encode(), password.encode()) and bool(expected)

    return checkpassword


def basic_auth(realm: str, checkpassword: Any, debug: bool = False, accept_charset: str = "utf-8") -> None:
    """Set ``request.login`` if ``checkpassword(realm, user, password)`` is true, or else respond with 401."""
    if '"' in realm:
        raise ValueError(f"a realm cannot contain a quote: {realm!r}")
    request = serving.request
    header = request.headers.get("Authorization")
    if header is not None:
        scheme, _, params = header.partition(" ")
        if scheme.lower() == "basic":
            try:
                data = b64decode(params.strip().encode("ascii"))
            except (binascii.Error, ValueError):
                raise HTTPError(400, "Bad Request") from None
            for charset in (accept_charset, "utf-8", "ISO-8859-1"):
                try:
                    username, colon, password = data.decode(charset).partition(":")
                except (UnicodeDecodeError, LookupError):
                    continue
                if not colon:
                    raise HTTPError(400, "Bad Request")
                if checkpassword(realm, username, password):
                    request.login = username
                    return
                break
    charset = accept_charset.upper()
    told = "" if charset == "ISO-8859-1" else f', charset="{charset}"'
    serving.response.headers["www-authenticate"] = f'Basic realm="{realm}"{told}'
    raise HTTPError(401, "Name and password are needed, or are wrong.")
