"""Header fields of requests and responses, and parsers and writers of single fields (RFC 9110, RFC 6265)."""

from __future__ import annotations

import re
from functools import lru_cache

from kirsch_web.errors import HTTPError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def lazily(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return ``fullmatch`` of a pattern. It is compiled at its first use, because compiling took most of the import's
    time."""
    compiled: list[Callable[[str], re.Match[str] | None]] = []

    def match(text: str) -> re.Match[str] | None:
        if not compiled:
            compiled.append(re.compile(pattern).fullmatch)
        return compiled[0](text)

    return match


_NAME = lazily(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = lazily(r"[\t\x20-\x7e\x80-\xff]*")


def check_field(name: str, value: str) -> tuple[str, str]:
    """Return the field unchanged. Raises ValueError for characters that may not be sent, such as CR LF.

    A value outside Latin-1 is refused too, because WSGI cannot carry it.
    """
    if not _NAME(name):
        raise ValueError(f"{name!r} is not a header field name")
    if not _VALUE(value):
        raise ValueError(f"the value of header field {name} has a character that may not be sent: {value!r}")
    return name, value


class Headers:
    """The header fields of a response, in order. Names are case-insensitive; a name may have several values."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields = [check_field(name, value) for name, value in fields]

    @classmethod
    def trusted(cls, fields: list[tuple[str, str]]) -> Headers:
        """Return Headers that own the list ``fields``, whose names and values must already be checked."""
        self = cls.__new__(cls)
        self._fields = fields
        return self

    def add(self, name: str, value: str) -> None:
        """Add a field. Earlier fields of the same name are kept."""
        self._fields.append(check_field(name, value))

    def get(self, name: str, default: str = "") -> str:
        """Return the values of ``name`` joined with a comma, or ``default`` if there is none."""
        values = self.get_all(name)
        return ", ".join(values) if values else default

    def get_all(self, name: str) -> list[str]:
        """Return the values of ``name``, in order."""
        name = name.lower()
        return [value for each, value in self._fields if each.lower() == name]

    def setdefault(self, name: str, value: str) -> None:
        """Set the field unless there is already one of this name."""
        if name not in self:
            self.add(name, value)

    def vary(self, *names: str) -> None:
        """Add the names that ``Vary`` does not have yet."""
        present = [each.strip() for value in self.get_all("Vary") for each in value.split(",")]
        lower = {each.lower() for each in present}
        if missing := [name for name in names if name.lower() not in lower]:
            self["Vary"] = ", ".join([each for each in present if each] + missing)

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __setitem__(self, name: str, value: str) -> None:
        field = check_field(name, value)
        self.remove(name)
        self._fields.append(field)

    def __delitem__(self, name: str) -> None:
        if not self.remove(name):
            raise KeyError(name)

    def remove(self, name: str) -> bool:
        """Remove all fields of ``name``. Return whether there was one."""
        name = name.lower()
        kept = [field for field in self._fields if field[0].lower() != name]
        found = len(kept) != len(self._fields)
        self._fields[:] = kept
        return found

    def __contains__(self, name: str) -> bool:
        name = name.lower()
        return any(each.lower() == name for each, _ in self._fields)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"

    def pairs(self) -> list[tuple[str, str]]:
        """Return a list of the fields, for ``start_response``."""
        return list(self._fields)


class RequestHeaders:
    """The header fields of a request, read from ``environ`` at each access."""

    __slots__ = ("_environ",)

    def __init__(self, environ: dict[str, object]) -> None:
        self._environ = environ

    def get(self, name: str, default: str = "") -> str:
        """Return the value of ``name``. The server joins several fields of a name with commas."""
        value = self._environ.get(environ_key(name))
        return value if isinstance(value, str) else default

    def __getitem__(self, name: str) -> str:
        value = self._environ.get(environ_key(name))
        if not isinstance(value, str):
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return environ_key(name) in self._environ

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for key, value in self._environ.items():
            name = field_name(key)
            # Servers may set CONTENT_TYPE and CONTENT_LENGTH to "" if the request has no such field.
            if name and isinstance(value, str) and (value or key.startswith("HTTP_")):
                yield name, value


@lru_cache(maxsize=1000)  # bounded, because an application may compute names
def environ_key(name: str) -> str:
    """Return the key of ``environ`` for a header field's name."""
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key


@lru_cache(maxsize=1000)
def field_name(key: str) -> str:
    """Return the header field's name for a key of ``environ``; empty for keys that are no header field."""
    if key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        return key.removeprefix("HTTP_").replace("_", "-").title()
    return ""


_PARAMETER = r';[ \t]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^;"\s]*))[ \t]*'


def media_type(value: str) -> tuple[str, dict[str, str]]:
    """Return the media type and the parameters of a Content-Type: ``("text/html", {"charset": "utf-8"})``.

    Names are in lower case. The media type is empty if the value breaks the grammar.
    """
    name, semicolon, rest = value.partition(";")
    found = name.strip().lower()
    parameters: dict[str, str] = {}
    if semicolon:
        parameter = re.compile(_PARAMETER)  # `re` caches it
        position, text = 0, ";" + rest
        while position < len(text):
            match = parameter.match(text, position)
            if match is None:
                return ("", {}) if text[position:].strip(" \t;") else (found, parameters)
            quoted = match[2]
            parameters[match[1].lower()] = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            position = match.end()
    return found, parameters


_QUALITY = lazily(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def qualities(value: str) -> list[tuple[str, float]]:
    """Return the members of a field such as Accept, 100 at most, each with its quality; 0 for a malformed quality."""
    found = []
    for member in value.split(",")[:100]:
        name, *parameters = (part.strip() for part in member.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, number = parameter.partition("=")
            if key.strip().lower() == "q":
                quality = float(number) if _QUALITY(number.strip()) else 0.0
        if name:
            found.append((name.lower(), quality))
    return found


_preferred: dict[tuple[str, tuple[str, ...]], str] = {}


def prefers(accept: str, offers: tuple[str, ...]) -> str:
    """Return the media type in ``offers`` that an Accept field prefers, the first of equals; "" if it accepts none."""
    if not accept:
        return offers[0]
    found = _preferred.get((accept, offers))
    if found is None:
        found = _prefers(accept, offers)
        if len(_preferred) < 1000 and len(accept) < 500:  # browsers send few different values
            _preferred[accept, offers] = found
    return found


def _prefers(accept: str, offers: tuple[str, ...]) -> str:
    wanted = qualities(accept)
    best, best_quality = "", 0.0
    for offer in offers:
        major = offer.partition("/")[0] + "/*"
        quality, precision = 0.0, 0
        for name, q in wanted:
            level = 3 if name == offer else 2 if name == major else 1 if name == "*/*" else 0
            if level > precision:
                quality, precision = q, level
        if quality > best_quality:
            best, best_quality = offer, quality
    return best


MAX_COOKIES = 100
"""The maximum number of cookies read from one request. Browsers keep at most 180 for a site, and send fewer."""


def cookies(value: str) -> dict[str, str]:
    """Return the values of a ``Cookie`` field by name. Of several with one name the first, with the longest path, is
    used.

    Quotes around a value are removed. Values are not decoded, because their encoding is up to the code that set them.
    """
    found: dict[str, str] = {}
    for pair in value.split(";", MAX_COOKIES)[:MAX_COOKIES]:
        name, equals, text = pair.partition("=")
        if equals:
            name = name.strip(" \t")
            text = text.strip(" \t")
            if len(text) > 1 and text[0] == text[-1] == '"':
                text = text[1:-1]
            if name and name not in found:
                found[name] = text
    return found


def cookie(value: str, name: str) -> str | None:
    """Return the value of the cookie ``name`` in a ``Cookie`` field, without parsing the others; None if it is
    missing."""
    if " =" in value or "\t=" in value:  # browsers never put white space before the sign
        return cookies(value).get(name)
    key = name + "="
    at = value.find(key)
    while at >= 0:
        before = value[:at].rstrip(" \t")
        if not before or before[-1] == ";":
            end = value.find(";", at)
            text = value[at + len(key) : end if end >= 0 else len(value)].strip(" \t")
            return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        at = value.find(key, at + 1)
    return None


_COOKIE_VALUE = lazily(r"[!#-+\--:<-\[\]-~]*")
_COOKIE_ATTRIBUTE = lazily(r"[\x20-:<-~]*")


def set_cookie(
    name: str,
    value: str,
    *,
    max_age: int | None = None,
    path: str = "/",
    domain: str = "",
    secure: bool = True,
    http_only: bool = True,
    same_site: str = "Lax",
) -> str:
    """Return the value of a ``Set-Cookie`` field (RFC 6265bis). Raises ValueError for characters that it cannot
    hold."""
    if not _NAME(name):
        raise ValueError(f"{name!r} is not a cookie name")
    if not _COOKIE_VALUE(value):
        raise ValueError(f"the value of cookie {name} has a character that a cookie cannot hold; encode it first")
    if same_site.capitalize() not in ("Lax", "Strict", "None", ""):
        raise ValueError(f"same_site is Lax, Strict, None or empty, not {same_site!r}")
    if same_site.capitalize() == "None" and not secure:
        raise ValueError("a cookie with SameSite=None must be secure, or browsers drop it")
    for attribute in (path, domain):
        if not _COOKIE_ATTRIBUTE(attribute):
            raise ValueError(f"{attribute!r} cannot be the path or domain of a cookie")
    parts = [f"{name}={value}"]
    if max_age is not None:
        parts.append(f"Max-Age={max_age}")
    if domain:
        parts.append(f"Domain={domain}")
    if path:
        parts.append(f"Path={path}")
    if secure:
        parts.append("Secure")
    if http_only:
        parts.append("HttpOnly")
    if same_site:
        parts.append(f"SameSite={same_site.capitalize()}")
    return "; ".join(parts)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = lazily(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (" + "|".join(_MONTHS) + r") ([0-9]{4}) ([0-9]{2}):([0-9]{2}):"
    r"([0-9]{2}) GMT"
)


def http_date(seconds: float) -> str:
    """Return seconds since 1970 as an HTTP date (RFC 9110, 5.6.7). It is in English regardless of the locale."""
    import time

    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(seconds)
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{second:02} GMT"


def parse_http_date(text: str) -> int | None:
    """Return an HTTP date as seconds since 1970; None for anything but an IMF-fixdate (RFC 9110, 5.6.7)."""
    match = _DATE(text.strip())
    if match is None:
        return None
    import calendar

    day, month, year, hour, minute, second = match.groups()
    if not (1 <= int(day) <= 31 and int(hour) < 24 and int(minute) < 60 and int(second) <= 60 and int(year) >= 1):
        return None
    return calendar.timegm((int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second)))


_LENGTH = lazily(r"[0-9]{1,18}")


def content_length(value: str) -> int:
    """Return the number in a Content-Length. Raises 400 for anything but digits."""
    if not _LENGTH(value):
        raise HTTPError(400, "Content-Length is not a number")
    return int(value)
