"""The settings of compression: a part of the table in ``schema.py``."""

from __future__ import annotations

from kirsch.config.kinds import CODINGS, MEDIA_TYPES, SIZE, SWITCH
from kirsch.config.setting import ENGINE, setting

_TYPES = (
    "text/*, application/json, application/javascript, application/xml, application/x-ndjson, application/wasm, "
    "image/svg+xml, *+json, *+xml"
)


class CompressionSettings:
    """The settings for compressing responses."""

    __slots__ = ()

    compress = setting(
        "Response", "--compress", CODINGS, "off",
        "Compress the responses of the application for clients that accept it (Accept-Encoding): on, or the codings in "
        "order of preference, as in zstd,br,gzip, which is what on means. Each part of a response can be decoded when "
        "it arrives. Left as they are: responses that are encoded already, that are parts (206), or that say "
        "Cache-Control: no-transform or Kirsch-Compress: off; files (wsgi.file_wrapper, pathsend); clients of "
        "HTTP/1.0. Files of --static are compressed ahead of time instead. off: no response is compressed.",
        scope=ENGINE, summary="compress responses: on, or zstd,br,gzip",
    )  # fmt: skip
    compress_types = setting(
        "Response", "--compress-types", MEDIA_TYPES, _TYPES,
        "The media types that --compress compresses. A star stands for any beginning or any end. Images, audio and "
        "video are compressed already.",
        scope=ENGINE,
    )  # fmt: skip
    compress_min_size = setting(
        "Response", "--compress-min-size", SIZE, "512",
        "Compress no body that is shorter, if its length is known when the response begins.",
        scope=ENGINE,
    )  # fmt: skip
    compress_private = setting(
        "Response", "--compress-private", SWITCH, "no",
        "Compress also responses that may hold a secret of the client's: those to requests with Cookie or "
        "Authorization, and those with Set-Cookie. Over https, a page that shows both a secret (such as a CSRF token "
        "that stays the same) and a text of the request's lets an attacker find out the secret from the lengths of "
        "responses (BREACH). Kirsch-Compress: on in a response allows it for that response.",
        scope=ENGINE,
    )  # fmt: skip
    compress_memory = setting(
        "Response", "--compress-memory", SIZE, "64m",
        "The memory of a worker for compression. A response under way takes 400 KiB with gzip, 768 KiB with zstd and "
        "1200 KiB with br; one for which there is no room is not compressed.",
        scope=ENGINE,
    )  # fmt: skip
