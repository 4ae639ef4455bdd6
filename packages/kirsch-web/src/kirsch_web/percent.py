"""Percent-encoded text: paths and query strings as WSGI and URLs carry them, in UTF-8 or refused."""

from __future__ import annotations

import re

from kirsch_web.errors import HTTPError

_HEX = {f"{byte:02{case}}".encode(): bytes((byte,)) for byte in range(256) for case in "xX"}
for _byte in range(256):  # one digit of each case: %aF
    _text = f"{_byte:02x}"
    _HEX[(_text[0] + _text[1].upper()).encode()] = _HEX[(_text[0].upper() + _text[1]).encode()] = bytes((_byte,))


def unquote(text: str) -> str:
    """``text`` without percent-encoding; a plus is a plus. A ``%`` without two digits stays as it is.

    Raises HTTPError 400 if the result is not UTF-8, or ``text`` is not what WSGI carries.
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
    """Names and values of a query string or an urlencoded form, at most ``limit``; empty pairs are left out.

    Raises HTTPError 413 beyond the limit, and 400 for what is not UTF-8.
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
    """Return the values of each name, in order."""
    values: dict[str, list[str]] = {}
    for name, value in found:
        present = values.get(name)
        if present is None:
            values[name] = [value]
        else:
            present.append(value)
    return values


def wsgi_path(text: str) -> str:
    """Return a path of ``environ`` as text; HTTPError 400 if it is not UTF-8."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        raise HTTPError(400, "the path is not UTF-8") from None


_UNSAFE_IN_PATH = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:@-]")
_UNSAFE_IN_QUERY = re.compile(rb"[^A-Za-z0-9._~-]")


def quote_segment(text: str) -> str:
    """One segment of a path, percent-encoded; the dots of ``.`` and ``..`` too, which clients would remove."""
    if text in (".", ".."):
        return "%2E" * len(text)
    return _UNSAFE_IN_PATH.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")


def quote_field(text: str) -> str:
    """Return a name or a value of a query string, percent-encoded."""
    return _UNSAFE_IN_QUERY.sub(lambda match: b"%%%02X" % match[0][0], text.encode()).decode("ascii")
