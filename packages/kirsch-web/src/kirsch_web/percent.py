"""Percent-encoding and decoding of paths and query strings. Text that is not UTF-8 is rejected with 400."""

from __future__ import annotations

import re

from kirsch_web.errors import HTTPError

_HEX = {f"{byte:02{case}}".encode(): bytes((byte,)) for byte in range(256) for case in "xX"}
for _byte in range(256):  # mixed case, such as %aF
    _text = f"{_byte:02x}"
    _HEX[(_text[0] + _text[1].upper()).encode()] = _HEX[(_text[0].upper() + _text[1]).encode()] = bytes((_byte,))


def unquote(text: str) -> str:
    """Percent-decode ``text``. A plus stays a plus, and a ``%`` without two hexadecimal digits stays a ``%``.

    Raises HTTPError 400 if the result is not UTF-8, or if ``text`` has a character beyond U+00FF.
    """
    if "%" not in text and text.isascii():
        return text
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        raise HTTPError(400, "the URL has a character that is not percent-encoded") from None
    first, *rest = data.split(b"%")
    parts = [first]
    for part in rest:
        byte = _HEX.get(part[:2])
        if byte is None:
            parts.append(b"%" + part)
        else:
            parts.append(byte + part[2:])
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise HTTPError(400, "the URL is not UTF-8") from None


def pairs(text: str, limit: int) -> list[tuple[str, str]]:
    """Return the names and values of a query string or a URL-encoded form. Empty pairs are left out.

    Raises HTTPError 413 if there are more than ``limit`` pairs, and 400 if a name or value is not UTF-8.
    """
    if text.count("&") >= limit:
        raise HTTPError(413, f"there are more than {limit} fields")
    found = []
    plain = "%" not in text and text.isascii()
    if plain and "+" in text:
        text = text.replace("+", " ")
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            if not plain:
                name = unquote(name.replace("+", " "))
                value = unquote(value.replace("+", " "))
            found.append((name, value))
    return found


def multiple(found: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each name, in the order of ``found``."""
    values: dict[str, list[str]] = {}
    for name, value in found:
        present = values.get(name)
        if present is None:
            values[name] = [value]
        else:
            present.append(value)
    return values


def wsgi_path(text: str) -> str:
    """Decode a path of the WSGI ``environ``. Raises HTTPError 400 if it is not UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        raise HTTPError(400, "the path is not UTF-8") from None


_UNSAFE_IN_PATH = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:@-]")
_UNSAFE_IN_QUERY = re.compile(rb"[^A-Za-z0-9._~-]")


def quote_segment(text: str) -> str:
    """Percent-encode one segment of a path. ``.`` and ``..`` are encoded too, because clients would remove them."""
    if text in (".", ".."):
        return "%2E" * len(text)
    return _UNSAFE_IN_PATH.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")


def quote_field(text: str) -> str:
    """Percent-encode a name or a value of a query string."""
    return _UNSAFE_IN_QUERY.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")
