"""Request bodies: reading within limits, and parsing of forms and JSON.

The configuration sets the limits (``body.*``); :class:`kirsch_web.forms.Limits` has the defaults. A body that exceeds
one is refused with 413, and a malformed body with 400.
"""

from __future__ import annotations

from kirsch_web import percent
from kirsch_web.errors import HTTPError
from kirsch_web.fields import content_length, media_type
from kirsch_web.forms import CHUNK, Form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kirsch_web.forms import Limits

MAX_DEPTH = 100
"""The maximum nesting of arrays and objects in JSON. It bounds the recursion of the converters and the encoder."""


def length_of(environ: dict[str, Any]) -> int | None:
    """Return the length of the body; None if it is only known at the end, as for chunked bodies."""
    value = environ.get("CONTENT_LENGTH")
    if value:
        return content_length(value)
    if environ.get("wsgi.input_terminated"):
        return None
    if environ.get("HTTP_TRANSFER_ENCODING"):
        raise HTTPError(411, "this server hands over no body without Content-Length")
    return 0


def chunks(environ: dict[str, Any], limit: int, size: int = CHUNK) -> Iterator[bytes]:
    """Yield the body in pieces of at most ``size`` bytes. Raises 413 if it is larger than ``limit`` bytes, 400 if it is
    shorter than its Content-Length."""
    length = length_of(environ)
    if length is not None and length > limit:
        raise HTTPError(413, f"the body has {length} bytes; {limit} are allowed")
    read: Any = environ["wsgi.input"].read
    taken = 0
    while length is None or taken < length:
        chunk: bytes = read(size if length is None else min(size, length - taken))
        if not chunk:
            if length is not None:
                raise HTTPError(400, "the body ended before its Content-Length")
            return
        taken += len(chunk)
        if taken > limit:
            raise HTTPError(413, f"the body has more than {limit} bytes")
        yield chunk


def read(environ: dict[str, Any], limit: int) -> bytes:
    """Return the whole body. Raises 413 if it is larger than ``limit`` bytes."""
    return b"".join(chunks(environ, limit))


def read_form(environ: dict[str, Any], limits: Limits) -> Form:
    """Return the form in the body. Raises 415 if its media type is not that of a form."""
    name, parameters = media_type(environ.get("CONTENT_TYPE", ""))
    if name == "application/x-www-form-urlencoded":
        data = read(environ, limits.limit)
        return Form(percent.multiple(percent.pairs(data.decode("latin-1"), limits.fields)), {})
    if name == "multipart/form-data":
        from kirsch_web.multipart import parse

        return parse(chunks(environ, limits.upload_limit), parameters.get("boundary", ""), limits)
    if not name and length_of(environ) == 0:
        return Form({}, {})
    raise HTTPError(
        415,
        f"the body is {name or 'of no media type'}; a form is application/x-www-form-urlencoded or multipart/form-data",
        headers=[("Accept", "application/x-www-form-urlencoded, multipart/form-data")],
    )


def is_json(name: str) -> bool:
    """Return whether a media type is JSON: application/json, or one that ends with +json."""
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


def read_json(environ: dict[str, Any], limits: Limits) -> Any:
    """Return the value of a JSON body. Raises 415 for another media type, 400 if the body is not JSON."""
    name, parameters = media_type(environ.get("CONTENT_TYPE", ""))
    if not is_json(name) or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise HTTPError(
            415,
            f"the body is {environ.get('CONTENT_TYPE') or 'of no media type'}; application/json is expected",
            headers=[("Accept", "application/json")],
        )
    return parse_json(read(environ, limits.limit))


def parse_json(data: bytes) -> Any:
    """Return the value of ``data``. Raises 400 if it is not JSON, which NaN and Infinity are not, and for numbers too
    large for a float."""
    import json

    try:
        value = json.loads(data.decode(), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise HTTPError(400, "the body is not UTF-8") from None
    except RecursionError:
        raise HTTPError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise HTTPError(400, f"the body is not JSON: {error}") from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    if b"\\u" in data and _has_surrogate(value):
        raise HTTPError(400, "the body has one half of a surrogate pair, which is no character")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for each in level
            if type(each) in (list, dict)
            for item in (each if type(each) is list else each.values())
        ]
        if not level:
            return
    if any(type(each) in (list, dict) for each in level):
        raise HTTPError(400, f"the body is nested too deeply: {MAX_DEPTH} levels are allowed")


def _has_surrogate(value: Any) -> bool:
    """Return whether a text in ``value`` has a lone surrogate, which UTF-8 cannot encode and few databases accept."""
    from kirsch_web.response import encode_json

    try:
        encode_json(value)
    except UnicodeEncodeError:
        return True
    return False


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
