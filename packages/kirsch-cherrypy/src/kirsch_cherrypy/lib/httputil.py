"""HTTP's grammars and names: header maps with elements, statuses, ranges, dates, paths."""

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
"""The date of a time in seconds since 1970, default now, as HTTP writes it."""


def urljoin(*atoms: str) -> str:
    """Return the URL path of parts joined by slashes, never empty."""
    return re.sub("//+", "/", "/".join(filter(None, atoms))) or "/"


def protocol_from_http(protocol: str) -> tuple[int, int]:
    """``(1, 1)`` of ``HTTP/1.1``."""
    return int(protocol[5]), int(protocol[7])


get_ranges = byte_ranges
"""The ``(start, stop)`` pairs that a Range asks for."""


class HeaderElement:
    """A value with parameters, one of those that a header field lists."""

    def __init__(self, value: str, params: dict[str, str] | None = None) -> None:
        self.value = value
        self.params = {} if params is None else params

    def rank(self) -> Any:
        """Return the key by which elements are sorted."""
        return self.value

    def __lt__(self, other: HeaderElement) -> bool:
        return bool(self.rank() < other.rank())

    def __str__(self) -> str:
        return self.value + "".join(f";{name}={value}" for name, value in self.params.items())

    def __bytes__(self) -> bytes:
        return str(self).encode("latin-1")

    @classmethod
    def from_str(cls, elementstr: str) -> HeaderElement:
        """Return the element of a text."""
        value, *rest = _split(elementstr, ";")
        params = {}
        for each in filter(str.strip, rest):
            name, _, text = (part.strip() for part in each.partition("="))
            params[name] = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        return cls(value.strip(), params)


class AcceptElement(HeaderElement):
    """An element of an Accept field: those with the greater ``q``, and the more specific ones, are the greater."""

    @property
    def qvalue(self) -> float:
        """The quality; HTTPError 400 if it is no number."""
        value = self.params.get("q", "1")
        try:
            return float(str(value))
        except ValueError:
            raise HTTPError(400, f"Malformed HTTP header: `{self!s}`") from None

    def rank(self) -> Any:
        """Return the quality; of equals text/html;level=1 comes before text/html, text/* and */*."""
        parts = sum(part != "*" for part in self.value.split("/"))
        return self.qvalue, parts * 10 + len([name for name in self.params if name != "q"]), str(self)


def _split(text: str, separator: str) -> list[str]:
    """Split outside of quoted strings."""
    if '"' not in text:
        return text.split(separator)
    # With a separator in front, each piece is one match; re keeps the pattern.
    return re.findall(rf'{separator}((?:[^"{separator}]|"(?:[^"\\]|\\.)*(?:"|$))*)', separator + text, re.DOTALL)


def header_elements(fieldname: str, fieldvalue: str | None) -> list[HeaderElement]:
    """Return the elements of a field, the most preferred first."""
    if not fieldvalue:
        return []
    accepts = fieldname.startswith("Accept") or fieldname == "TE"
    kind = AcceptElement if accepts else HeaderElement
    result = [kind.from_str(each) for each in _split(fieldvalue, ",") if each.strip()]
    if len(result) > 1 and fieldname not in ("Cookie", "Set-Cookie"):
        result.sort(key=kind.rank, reverse=True)
    return result


def decode_TEXT(value: str) -> str:
    """Return the text of words encoded as RFC 2047 says: ``=?utf-8?q?f=C3=BCr?=`` is ``für``."""
    decoded = ""
    for atom, charset in email.header.decode_header(value):
        decoded += atom.decode(charset or "latin-1") if isinstance(atom, bytes) else atom
    return decoded


_ISMAP = re.compile(r"[0-9]+,[0-9]+", re.ASCII).fullmatch


def parse_query_string(query_string: str, keep_blank_values: bool = True, encoding: str = "utf-8") -> dict[str, Any]:
    """Return the parameters of a query: a text, or a list if a name occurs several times."""
    if _ISMAP(query_string):  # the coordinates of <img ismap>
        x, y = query_string.split(",")
        return {"x": int(x), "y": int(y)}
    found: dict[str, Any] = {}
    for name, value in urllib.parse.parse_qsl(query_string, keep_blank_values, encoding=encoding, errors="strict"):
        add_param(found, name, value)
    return found


def add_param(params: dict[str, Any], name: str, value: Any) -> None:
    """Add a parameter; a name that occurs again gets a list."""
    if name not in params:
        params[name] = value
    elif isinstance(params[name], list):
        params[name].append(value)
    else:
        params[name] = [params[name], value]


@functools.lru_cache(maxsize=1000)
def titled(name: Any) -> str:
    """Return a name as :class:`CaseInsensitiveDict` has it: Like-This."""
    return str(name).title()


class CaseInsensitiveDict(dict[str, Any]):
    """A dictionary whose keys are written Like-This, whichever way they are given."""

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
    """Header fields, with access to their elements."""

    protocol = (1, 1)
    encodings = ("ISO-8859-1",)
    use_rfc_2047 = True

    def elements(self, key: str) -> list[HeaderElement]:
        """Return the elements of a field, the most preferred first."""
        return header_elements(titled(key), self.get(key))

    def values(self, key: str | None = None) -> Any:
        """Return the values of a field's elements; without a name, the values of all fields."""
        return super().values() if key is None else [element.value for element in self.elements(key)]

    def output(self) -> list[tuple[bytes, bytes]]:
        """Return the fields as bytes, without the control characters that could end one early."""
        item = self.encode_header_item
        return [(_name_bytes(name), item(value)) for name, value in self.items()]

    @classmethod
    def encode_header_item(cls, item: Any) -> bytes:
        """Return the bytes of a name or a value."""
        if not isinstance(item, bytes):
            text = str(item)
            if text.isascii() and text.isprintable():
                return text.encode()
            item = cls.encode(text)
        return bytes(item).translate(None, _CONTROLS)

    @classmethod
    def encode(cls, text: str) -> bytes:
        """Return the bytes of a text: of the first encoding that has all its characters, else as RFC 2047 says."""
        for encoding in cls.encodings:
            with contextlib.suppress(UnicodeEncodeError):
                return text.encode(encoding)
        if cls.use_rfc_2047 and cls.protocol == (1, 1):
            from base64 import b64encode

            return b"=?utf-8?b?" + b64encode(text.encode()) + b"?="
        raise ValueError(f"Could not encode header part {text!r} using any of the encodings {cls.encodings!r}.")


empty_map = functools.partial(dict.__new__, HeaderMap)
"""Makes an empty HeaderMap without calling its ``__init__``."""

_name_bytes = functools.lru_cache(maxsize=1000)(HeaderMap.encode_header_item)
_CONTROLS = bytes([*range(9), *range(10, 32), 127])


class Host:
    """An address of a connection: ip, port and name."""

    def __init__(self, ip: str, port: int, name: str | None = None) -> None:
        self.ip = ip
        self.port = port
        self.name = ip if name is None else name

    def __repr__(self) -> str:
        return f"httputil.Host({self.ip!r}, {self.port!r}, {self.name!r})"
