"""Conversions between text and bytes under the names that CherryPy programs import."""

from __future__ import annotations

import re
from http.client import HTTPSConnection as HTTPSConnection

text_or_bytes = (str, bytes)


def ntob(text: str, encoding: str = "ISO-8859-1") -> bytes:
    """Encode a text."""
    if not isinstance(text, str):
        raise TypeError(f"ntob() converts a str, not {type(text).__name__}")
    return text.encode(encoding)


def ntou(text: str, encoding: str = "ISO-8859-1") -> str:
    r"""Return the text itself; with the encoding "escape", \uXXXX sequences in it are replaced."""
    if not isinstance(text, str):
        raise TypeError(f"ntou() converts a str, not {type(text).__name__}")
    if encoding == "escape":
        return re.sub(r"\\u([0-9a-zA-Z]{4})", lambda found: chr(int(found[1], 16)), text)
    return text


def tonative(value: str | bytes, encoding: str = "ISO-8859-1") -> str:
    """Return the text of ``value``, decoded if it is bytes."""
    return value.decode(encoding) if isinstance(value, bytes) else value


def base64_decode(text: str | bytes, encoding: str = "utf-8") -> str:
    """Decode Base64, and return the result as text."""
    from base64 import b64decode

    return b64decode(text).decode(encoding)
