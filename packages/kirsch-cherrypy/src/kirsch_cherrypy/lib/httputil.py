"""Parsing and formatting of HTTP: header fields and their elements, ranges, dates, paths and queries."""

from __future__ import annotations

import contextlib
import email.header
import functools
import re
import urllib.parse
from email.utils import formatdate
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._status import response_codes as response_codes
from kirsch_cherrypy._status import valid_status as valid_status
from kirsch_web.files import byte_ranges

HTTPDate = functools.partial(formatdate, usegmt=True)
"""Formats a time in seconds since 1970 (default: now) as an HTTP date."""


def urljoin(*atoms: str) -> str:
    """Join parts of a URL path with single slashes. Returns ``/`` instead of an empty path."""
    return re.sub("//+", "/", "/".join(filter(None, atoms))) or "/"


def protocol_from_http(protocol: str) -> tuple[int, int]:
    """Return the version of an HTTP protocol as two numbers: ``(1, 1)`` for ``HTTP/1.1``."""
    return int(protocol[5]), int(protocol[7])


get_ranges = byte_ranges
"""Returns the ``(start, stop)`` pairs of a Range field."""


class HeaderElement:
    """One element of a header field: a value with parameters."""

    def __init__(self, value: str, params: dict[str, str] | None = None) -> None:
        self.value = value
        self.params = {} if params is None else params

    def rank(self) -> Any:
        """Return the sort key of the element."""
        return self.value

    def __lt__(self, other: HeaderElement) -> bool:
        return bool(self.rank() < other.rank())

    def __str__(self) -> str:
        return self.value + "".join(f";{name}={value}" for name, value in self.params.items())

    def __bytes__(self) -> bytes:
        return str(self).encode("latin-1")

    @classmethod
    def from_str(cls, elementstr: str) -> HeaderElement:
        """Parse an element."""
        value, *rest = _split(elementstr, ";")
        params = {}
        for each in filter(str.strip, rest):
            name, _, text = (part.strip() for part in each.partition("="))
            params[name] = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        return cls(value.strip(), params)


class AcceptElement(HeaderElement):
    """An element of an Accept field. Elements are ordered by ``q``, and then by specificity."""

    @property
    def qvalue(self) -> float:
        """The quality (``q``). Raises HTTPError 400 if it is not a number."""
        value = self.params.get("q", "1")
        try:
            return float(str(value))
        except ValueError:
            raise HTTPError(400, f"Malformed HTTP header: `{self!s}`") from None

    def rank(self) -> Any:
        """Return the sort key: quality, then specificity, as in text/html;level=1, text/html, text/*, */*."""
        parts = sum(part != "*" for part in self.value.split("/"))
        return self.qvalue, parts * 10 + len([name for name in self.params if name != "q"]), str(self)


def _split(text: str, separator: str) -> list[str]:
    """Split ``text`` at separators outside of quoted strings."""
    if '"' not in text:
        return text.split(separator)
    # With a leading separator, each piece is one match. re caches the compiled pattern.
    return re.findall(rf'{separator}((?:[^"{separator}]|"(?:[^"\\]|\\.)*(?:"|$))*)', separator + text, re.DOTALL)


def header_elements(fieldname: str, fieldvalue: str | None) -> list[HeaderElement]:
    """Return the elements of a header field, in order of preference."""
    if not fieldvalue:
        return []
    accepts = fieldname.startswith("Accept") or fieldname == "TE"
    kind = AcceptElement if accepts else HeaderElement
    result = [kind.from_str(each) for each in _split(fieldvalue, ",") if each.strip()]
    if len(result) > 1 and fieldname not in ("Cookie", "Set-Cookie"):
        result.sort(key=kind.rank, reverse=True)
    return result


def decode_TEXT(value: str) -> str:
    """Decode RFC 2047 encoded words: ``=?utf-8?q?f=C3=BCr?=`` becomes ``für``."""
    decoded = ""
    for atom, charset in email.header.decode_header(value):
        decoded += atom.decode(charset or "latin-1") if isinstance(atom, bytes) else atom
    return decoded


_ISMAP = re.compile(r"[0-9]+,[0-9]+", re.ASCII).fullmatch


def parse_query_string(query_string: str, keep_blank_values: bool = True, encoding: str = "utf-8") -> dict[str, Any]:
    """Parse a query string. The value of a name is text, or a list if the name occurs several times."""
    if _ISMAP(query_string):  # the coordinates of <img ismap>
        x, y = query_string.split(",")
        return {"x": int(x), "y": int(y)}
    found: dict[str, Any] = {}
    for name, value in urllib.parse.parse_qsl(query_string, keep_blank_values, encoding=encoding, errors="strict"):
        add_param(found, name, value)
    return found


def add_param(params: dict[str, Any], name: str, value: Any) -> None:
    """Add a parameter. If the name exists already, its value becomes a list."""
    if name not in params:
        params[name] = value
    elif isinstance(params[name], list):
        params[name].append(value)
    else:
        params[name] = [params[name], value]


@functools.lru_cache(maxsize=1000)
def titled(name: Any) -> str:
    """Return a name in the form of :class:`CaseInsensitiveDict`: Like-This."""
    return str(name).title()


class CaseInsensitiveDict(dict[str, Any]):
    """A dictionary with case-insensitive keys, which it stores Like-This."""

    def __init__(self, *values: Any, **more: Any) -> None:
        if values or more:
            self.update(*values, **more)

    _key: Any = staticmethod(titled)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._key(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._key(key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(self._key(key))

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(self._key(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._key(key), default)

    def pop(self, key: Any, *default: Any) -> Any:
        return super().pop(self._key(key), *default)

    def setdefault(self, key: Any, value: Any = None) -> Any:
        return super().setdefault(self._key(key), value)

    def update(self, *values: Any, **more: Any) -> None:
        for key, value in dict(*values, **more).items():
            self[key] = value

    def copy(self) -> Any:
        return type(self)(self)


class HeaderMap(CaseInsensitiveDict):
    """Header fields by name, with methods for the elements of a field."""

    protocol = (1, 1)
    encodings = ("ISO-8859-1",)
    use_rfc_2047 = True

    def elements(self, key: str) -> list[HeaderElement]:
        """Return the elements of the field ``key``, in order of preference."""
        return header_elements(titled(key), self.get(key))

    def values(self, key: str | None = None) -> Any:
        """Return the element values of the field ``key``; without ``key``, the values of all fields."""
        return super().values() if key is None else [element.value for element in self.elements(key)]

    def output(self) -> list[tuple[bytes, bytes]]:
        """Return the fields as bytes, without control characters, which could start a new field."""
        item = self.encode_header_item
        return [(_name_bytes(name), item(value)) for name, value in self.items()]

    @classmethod
    def encode_header_item(cls, item: Any) -> bytes:
        """Encode a name or a value, and remove control characters."""
        if not isinstance(item, bytes):
            text = str(item)
            if text.isascii() and text.isprintable():
                return text.encode()
            item = cls.encode(text)
        return bytes(item).translate(None, _CONTROLS)

    @classmethod
    def encode(cls, text: str) -> bytes:
        """Encode ``text`` with the first of ``encodings`` that has all its characters, or else as RFC 2047 words."""
        for encoding in cls.encodings:
            with contextlib.suppress(UnicodeEncodeError):
                return text.encode(encoding)
        if cls.use_rfc_2047 and cls.protocol == (1, 1):
            from base64 import b64encode

            return b"=?utf-8?b?" + b64encode(text.encode()) + b"?="
        raise ValueError(f"Could not encode header part {text!r} using any of the encodings {cls.encodings!r}.")


empty_map = functools.partial(dict.__new__, HeaderMap)
"""Creates an empty HeaderMap without a call of ``__init__``."""

_name_bytes = functools.lru_cache(maxsize=1000)(HeaderMap.encode_header_item)
_CONTROLS = bytes([*range(9), *range(10, 32), 127])


class Host:
    """One end of a connection: IP address, port and host name."""

    def __init__(self, ip: str, port: int, name: str | None = None) -> None:
        self.ip = ip
        self.port = port
        self.name = ip if name is None else name

    def __repr__(self) -> str:
        return f"httputil.Host({self.ip!r}, {self.port!r}, {self.name!r})"
