"""Charsets and compression: the tools ``encode``, ``decode`` and ``gzip``."""

from __future__ import annotations

import gzip as _gzip
import time
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import current, serving
from kirsch_cherrypy._status import valid_status
from kirsch_cherrypy.lib import as_iterable, closing, set_vary_header
from kirsch_web.compress import Compressed


def decode(encoding: Any = None, default_encoding: Any = "utf-8") -> None:
    """Set the charsets with which the request body is decoded.

    Args:
        encoding: one or several charsets to use exclusively.
        default_encoding: one or several charsets to try after the one that the body declares.
    """
    body = serving.request.body
    if encoding is not None:
        body.attempt_charsets = encoding if isinstance(encoding, list) else [encoding]
    elif default_encoding:
        more = default_encoding if isinstance(default_encoding, list) else [default_encoding]
        body.attempt_charsets = body.attempt_charsets + more


class ResponseEncoder:
    """The tool ``encode``: wraps the handler, and encodes the text that the handler returns.

    Args:
        encoding: the charset to use; default: one that the client accepts.
        errors: the argument ``errors`` of ``str.encode``.
        text_only: whether to encode only media types that begin with ``text/``.
        add_charset: whether to add the charset to the Content-Type.
        debug: unused.
    """

    encoding: Any = None
    default_encoding = "utf-8"
    add_charset = text_only = True
    errors = "strict"
    failmsg = "The body has characters that are not in the charset %r."
    debug = False

    def __init__(self, **kwargs: Any) -> None:
        self.usual = not kwargs and type(self).default_encoding == "utf-8"
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.attempted_charsets: set[str] = set()
        request = current().request
        if request.handler is not None:
            self.oldhandler, request.handler = request.handler, self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        response = frame.response
        body = self.oldhandler(*args, **kwargs)
        if type(body) is str and self.usual and not response.stream and "Accept-Charset" not in frame.request.headers:
            # A fast path for the usual case.
            told = dict.get(response.headers, "Content-Type")
            if told in ("text/html", "text/plain"):
                dict.pop(response.headers, "Content-Length", None)
                dict.__setitem__(response.headers, "Content-Type", f"{told};charset=utf-8")
                return body.encode()
        self.body = as_iterable(body)
        for kind in response.headers.elements("Content-Type")[:1] if self.add_charset or self.text_only else ():
            if not self.text_only or kind.value.lower().startswith("text/"):
                kind.params["charset"] = self.find_acceptable_charset()
                if self.add_charset:
                    response.headers["Content-Type"] = str(kind)
        return self.body

    def _encode(self, charset: str) -> bool:
        """Encode the body, or arrange that a stream is encoded when it is sent. Return whether that succeeded.

        It fails if the charset does not have all characters of the body, or was tried before.
        """
        if charset in self.attempted_charsets:
            return False
        self.attempted_charsets.add(charset)
        response, body = serving.response, self.body

        def encoded(piece: Any) -> Any:
            return piece.encode(charset, self.errors) if isinstance(piece, str) else piece

        if response.stream:
            self.body = closing(body, map(encoded, body))
            return True
        response.headers.pop("Content-Length", None)
        self.body = list(body)
        try:
            self.body = [encoded(piece) for piece in self.body]
        except (LookupError, UnicodeError):
            return False
        return True

    def find_acceptable_charset(self) -> str:
        """Encode with the client's most preferred charset that can, and return it. Raises HTTPError 406 if none can."""
        ranges = serving.request.headers.elements("Accept-Charset")
        named = [each.value.lower() for each in ranges]
        if self.encoding is not None:
            fixed = self.encoding.lower()
            wanted = [fixed] if not named or "*" in named or fixed in named else []
        elif not ranges:
            if not self._encode(self.default_encoding):
                raise HTTPError(500, self.failmsg % self.default_encoding)
            return self.default_encoding
        else:
            wanted = [self.default_encoding if each.value == "*" else each.value for each in ranges if each.qvalue > 0]
            # In RFC 2616, ISO-8859-1 has quality 1 unless it is named.
            wanted += [] if {"*", "iso-8859-1"}.intersection(named) else ["iso-8859-1"]
        for charset in wanted:
            if self._encode(charset):
                return str(charset)
        given = serving.request.headers.get("Accept-Charset")
        sent = "has no Accept-Charset." if given is None else f"sent this Accept-Charset header: {given}."
        tried = ", ".join(sorted(self.attempted_charsets))
        raise HTTPError(406, f"Your client {sent} We tried these charsets: {tried}.")


def compress(body: Any, compress_level: int) -> Any:
    """Compress a stream to gzip format (RFC 1952). The header precedes the body, and each chunk is flushed."""
    return closing(body, Compressed(chain([b""], body), "gzip", compress_level))


def decompress(body: bytes) -> bytes:
    """Decompress data in gzip format."""
    return _gzip.decompress(body)


def gzip(compress_level: int = 5, mime_types: Any = ("text/html", "text/plain"), debug: bool = False) -> None:
    """Compress the body if the client accepts gzip and the type is one of ``mime_types``."""
    request, response = serving.request, serving.response
    set_vary_header(response, "Accept-Encoding")
    if not response.body or getattr(request, "cached", False):  # the cached body is as it was sent
        return
    if valid_status(response.status)[0] == 206:  # byte ranges refer to the uncompressed file
        return
    kind = response.headers.get("Content-Type", "").split(";")[0]
    for coding in request.headers.elements("Accept-Encoding"):
        if coding.value in ("gzip", "x-gzip"):
            # Patterns are such as text/html, text/*, */* and application/*+xml.
            if coding.qvalue > 0 and any(fnmatchcase(kind, pattern) for pattern in mime_types):
                body = response.body if response.stream else response.collapse_body()
                response.headers["Content-Encoding"] = "gzip"
                if isinstance(body, bytes):
                    response.body = _gzip.compress(body, compress_level, mtime=time.time())
                else:
                    response.body = compress(body, compress_level)
                response.headers.pop("Content-Length", None)
            return
        if coding.value == "identity" and coding.qvalue > 0:
            return
        if coding.value == "*" and coding.qvalue == 0:
            # Do not raise: the error would run the hooks of this point, and so this tool, again.
            HTTPError(406, "identity, gzip").set_response()
            return
