"""Charsets and compression: the tools ``encode``, ``decode`` and ``gzip``."""

from __future__ import annotations

import io
from itertools import chain
from typing import Any

from kirsch_web.compat.cherrypy._cperror import HTTPError
from kirsch_web.compat.cherrypy._local import current, serving
from kirsch_web.compat.cherrypy.lib import file_generator, is_closable_iterator, set_vary_header


def decode(encoding: Any = None, default_encoding: Any = "utf-8") -> None:
    """Set the charsets that the request's body is decoded with.

    Args:
        encoding: those alone.
        default_encoding: those, after what the body itself says.
    """
    body = serving.request.body
    if encoding is not None:
        body.attempt_charsets = encoding if isinstance(encoding, list) else [encoding]
    elif default_encoding:
        more = default_encoding if isinstance(default_encoding, list) else [default_encoding]
        body.attempt_charsets = body.attempt_charsets + more


class UTF8StreamEncoder:
    """Encodes what an iterator yields."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._iterator)
        return chunk.encode() if isinstance(chunk, str) else chunk

    def close(self) -> None:
        if is_closable_iterator(self._iterator):
            self._iterator.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._iterator, name)


_TOLD = {kind: f"{kind};charset=utf-8" for kind in ("text/html", "text/plain")}


class ResponseEncoder:
    """The tool ``encode``: wraps the handler, and encodes the text that it returns.

    Args:
        encoding: the one charset; default: what the client accepts.
        errors: as of ``str.encode``.
        text_only: only types that begin with ``text/``.
        add_charset: whether the Content-Type tells the charset.
        debug: unused.
    """

    encoding: Any = None
    default_encoding = "utf-8"
    add_charset = text_only = True
    errors = "strict"
    failmsg = "The body has characters that are not in the charset %r."
    debug = False

    def __init__(self, **kwargs: Any) -> None:
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
        if (
            type(body) is str
            and self.encoding is None
            and not response.stream
            and self.add_charset
            and self.default_encoding == "utf-8"
            and self.errors == "strict"
            and (told := _TOLD.get(dict.get(response.headers, "Content-Type", "")))
            and "Accept-Charset" not in frame.request.headers
        ):
            # The usual case, without looking for what is not there.
            dict.pop(response.headers, "Content-Length", None)
            dict.__setitem__(response.headers, "Content-Type", told)
            return body.encode()
        self.body = body = prepare_iter(body)
        kind = response.headers.elements("Content-Type")
        if kind and (self.add_charset or self.text_only):
            kind = kind[0]
            if not self.text_only or kind.value.lower().startswith("text/"):
                kind.params["charset"] = self.find_acceptable_charset()
                if self.add_charset:
                    response.headers["Content-Type"] = str(kind)
        return self.body

    def _is_new(self, encoding: str) -> bool:
        """Whether the charset was not tried before, and note that it is now."""
        count = len(self.attempted_charsets)
        self.attempted_charsets.add(encoding)
        return len(self.attempted_charsets) > count

    def _encoded(self, chunk: Any, encoding: str) -> bytes:
        data: bytes = chunk.encode(encoding, self.errors) if isinstance(chunk, str) else chunk
        return data

    def encode_stream(self, encoding: str) -> bool:
        """Encode each chunk when it is sent."""
        if not self._is_new(encoding):
            return False
        body = self.body

        def chunks() -> Any:
            try:
                yield from (self._encoded(chunk, encoding) for chunk in body)
            finally:
                if is_closable_iterator(body):
                    body.close()

        self.body = chunks()
        return True

    def encode_string(self, encoding: str) -> bool:
        """Encode the whole body; False where the charset does not have all its characters."""
        if not self._is_new(encoding):
            return False
        self.body = list(self.body)
        try:
            self.body = [self._encoded(chunk, encoding) for chunk in self.body]
        except (LookupError, UnicodeError):
            return False
        return True

    def find_acceptable_charset(self) -> str:
        """The charset that the client likes best and that has the body's characters; 406 where there is none."""
        request, response = serving.request, serving.response
        encoder: Any = self.encode_stream if response.stream else self.encode_string
        if not response.stream:
            response.headers.pop("Content-Length", None)
        encodings = request.headers.elements("Accept-Charset")
        charsets = [each.value.lower() for each in encodings]
        if self.encoding is not None:
            chosen = self.encoding.lower()
            if (not charsets or "*" in charsets or chosen in charsets) and encoder(chosen):
                return str(chosen)
        elif not encodings:
            usual = self.default_encoding
            if not encoder(usual):
                raise HTTPError(500, self.failmsg % usual)
            return usual
        else:
            for element in encodings:
                if element.qvalue > 0:
                    chosen = self.default_encoding if element.value == "*" else element.value
                    if encoder(chosen):
                        return chosen
            # RFC 2616 gave ISO-8859-1 a quality of 1 unless it is named.
            if "*" not in charsets and "iso-8859-1" not in charsets and encoder("iso-8859-1"):
                return "iso-8859-1"
        given = request.headers.get("Accept-Charset")
        message = (
            "The request has no Accept-Charset."
            if given is None
            else f"Your client sent this Accept-Charset header: {given}."
        )
        tried = ", ".join(sorted(self.attempted_charsets))
        raise HTTPError(406, f"{message} We tried these charsets: {tried}.")


def prepare_iter(value: Any) -> Any:
    """A handler's result as an iterable of texts and bytes."""
    if isinstance(value, (str, bytes)):
        return [value] if value else []
    if value is None:
        return []
    return file_generator(value) if hasattr(value, "read") else value


def compress(body: Any, compress_level: int) -> Any:
    """The chunks of ``body`` as those of a gzip file (RFC 1952), whose header is sent before the body is read."""
    from gzip import GzipFile

    written = io.BytesIO()
    try:
        with GzipFile(mode="wb", fileobj=written, compresslevel=compress_level) as file:
            for chunk in chain([b""], body):
                file.write(chunk)
                if written.tell():
                    yield written.getvalue()
                    written.seek(0)
                    written.truncate()
        yield written.getvalue()
    finally:
        if is_closable_iterator(body):
            body.close()


def decompress(body: bytes) -> bytes:
    """The content of a gzip file."""
    import gzip as _gzip

    with _gzip.GzipFile(mode="rb", fileobj=io.BytesIO(body)) as file:
        return file.read()


def _matches(kind: str, patterns: Any) -> bool:
    """Whether a type is one of ``text/html``, ``text/*``, ``*/*``, ``application/*+xml``."""
    for pattern in patterns:
        if "*" not in pattern:
            if kind == pattern:
                return True
            continue
        wanted, _, wanted_sub = pattern.partition("/")
        major, _, sub = kind.partition("/")
        if wanted not in ("*", major):
            continue
        if wanted_sub == "*" or ("+" in wanted_sub and sub.endswith(wanted_sub.lstrip("*"))):
            return True
    return False


def gzip(compress_level: int = 5, mime_types: Any = ("text/html", "text/plain"), debug: bool = False) -> None:
    """Compress the body where the client accepts gzip and the type is one of ``mime_types``."""
    request, response = serving.request, serving.response
    set_vary_header(response, "Accept-Encoding")
    if not response.body:
        return
    if getattr(request, "cached", False):
        return  # the cache keeps the body as it was sent
    accepted = request.headers.elements("Accept-Encoding")
    if not accepted:
        return
    kind = response.headers.get("Content-Type", "").split(";")[0]
    for coding in accepted:
        if coding.value == "identity" and coding.qvalue != 0:
            return
        if coding.value in ("gzip", "x-gzip"):
            if coding.qvalue == 0 or not _matches(kind, mime_types):
                return
            response.headers["Content-Encoding"] = "gzip"
            response.body = compress(response.body, compress_level)
            response.headers.pop("Content-Length", None)
            return
    if any(coding.value == "*" and coding.qvalue == 0 for coding in accepted):
        # Not raised: the hooks of this point would run again, and this one again find nothing.
        HTTPError(406, "identity, gzip").set_response()
