"""The tools ``caching`` and ``expires``. Processes do not share the cache."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

from kirsch_cherrypy import _globals
from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._helper import url as url_of
from kirsch_cherrypy._local import serving
from kirsch_cherrypy.lib import cptools, httputil


class Cache:
    """Base class of caches. get(), put(obj, size) and delete() apply to the current request; clear() to all.

    ``tools.caching.cache_class`` sets the class to use.
    """


class _Variants(dict[tuple[str, ...], Any]):
    """The responses of one URL, by the values of the request fields that Vary names.

    Each value has expiration time, size and response. If a request is computing the response, it is an Event.
    """

    def __init__(self, varying: list[str]) -> None:
        super().__init__()
        self._varying = varying

    def selected(self) -> tuple[str, ...]:
        """Return the key of the current request: the values of its varying fields."""
        return tuple(serving.request.headers.get(name, "") for name in self._varying)


def _uri() -> str:
    return url_of(qs=serving.request.query_string)


class MemoryCache(Cache):
    """A cache in memory, by URL and by the fields that Vary names. Options of the tool set its attributes, the limits.

    If several requests need a missing response of a URL that has other cached or expired responses, the first computes
    it, and the others wait up to ``antistampede_timeout`` seconds.
    """

    delay: float = 600
    maxsize = 10_000_000
    maxobj_size = 100_000
    maxobjects = 1000
    antistampede_timeout: Any = 5

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Remove all responses."""
        self.store: dict[str, _Variants] = {}

    def get(self) -> Any:
        """Return the cached response for the current request, or None if the request has to compute it."""
        with self._lock:
            uri = _uri()
            variants = self.store.get(uri)
            if variants is None:
                return None
            selected = variants.selected()
            found = variants.get(selected)
            if isinstance(found, tuple) and found[0] > time.time():
                return found[2]
            if not isinstance(found, threading.Event):
                variants[selected] = event = threading.Event()
                given = {"uri": uri, "variants": variants, "selected": selected, "event": event}
                serving.request.hooks.attach("on_end_request", self._release, failsafe=True, **given)
                return None
        found.wait(self.antistampede_timeout or 0)
        found = variants.get(selected)
        return found[2] if isinstance(found, tuple) else None

    def _release(self, uri: str, variants: _Variants, selected: tuple[str, ...], event: threading.Event) -> None:
        """Wake the waiting requests at the end of the one that computes the response, whether or not it was cached."""
        with self._lock:
            if variants.get(selected) is event:
                del variants[selected]
            if not variants and self.store.get(uri) is variants:
                del self.store[uri]
        event.set()

    def put(self, variant: Any, size: int) -> None:
        """Cache a response for the current request if the limits allow it. Remove expired responses."""
        response = serving.response
        varying = response.headers.values("Vary")
        now, uri = time.time(), _uri()
        with self._lock:
            variants = self.store.get(uri) or _Variants(varying)
            selected = variants.selected()
            variants.pop(selected, None)
            sizes: list[int] = []
            for each, others in list(self.store.items()):
                for key, (expires, kept_size, _) in [(k, v) for k, v in others.items() if isinstance(v, tuple)]:
                    if expires > now:
                        sizes.append(kept_size)
                        continue
                    del others[key]
                    if not others:
                        del self.store[each]
            fits = size < self.maxobj_size and sum(sizes) + size < self.maxsize and len(sizes) < self.maxobjects
            if fits and "*" not in varying:
                variants[selected] = response.time + self.delay, size, variant
                self.store[uri] = variants
            elif not variants:
                self.store.pop(uri, None)

    def delete(self) -> None:
        """Remove all responses of the current URL."""
        self.store.pop(_uri(), None)


def get(invalid_methods: Any = ("POST", "PUT", "DELETE"), debug: bool = False, **kwargs: Any) -> bool:
    """Respond from the cache if it has the response, and return whether it has. Set ``cached`` and ``cacheable``.

    The first request creates the cache, and sets the other options as its attributes.
    """
    request, response = serving.request, serving.response
    cache = _globals.cache
    if cache is None:
        cache = kwargs.pop("cache_class", MemoryCache)()
        _globals.cache = cache
        for name, value in kwargs.items():
            setattr(cache, name, value)
    request.cached = request.cacheable = False
    if request.method in invalid_methods:
        cache.delete()
    if request.method in invalid_methods or request.method not in ("GET", "HEAD"):
        return False
    request.cacheable = True
    if "no-cache" in request.headers.values("Pragma") or (kept := cache.get()) is None:
        return False
    status, headers, body, created = kept
    max_age: float = getattr(cache, "delay", 600)
    for element in request.headers.values("Cache-Control"):
        directive, _, value = element.partition("=")
        if directive == "no-cache":
            return False
        if directive == "max-age":
            if not (value.isascii() and value.isdigit()):
                raise HTTPError(400, "Invalid Cache-Control header")
            max_age = int(value)
            break
    age = int(response.time - created)
    if age > max_age or max_age == 0:
        return False
    request.cached, request.cacheable = True, False
    response.headers = kept_headers = httputil.HeaderMap()
    dict.update(kept_headers, headers)
    kept_headers["Age"] = str(age)
    cptools.validate_since()  # respond with 304 if the client has the response
    response.status, response.body = status, body
    return True


def tee_output() -> None:
    """Collect the body while it is sent, and put it into the cache."""
    request, response = serving.request, serving.response
    if "no-store" in request.headers.values("Cache-Control") or request.method == "HEAD":
        return
    status = httputil.valid_status(response.status)[0]
    if status >= 400 or status == 206:  # a partial response does not fit other requests
        return

    def tee(body: Any) -> Any:
        headers = response.headers
        keeps = "no-cache" not in headers.values("Pragma") and "no-store" not in headers.values("Cache-Control")
        kept: list[bytes] = []
        for chunk in body:
            if keeps:
                kept.append(chunk)
            yield chunk
        if keeps:
            content = b"".join(kept)
            shared = {name: value for name, value in headers.items() if name != "Set-Cookie"}
            _globals.cache.put((response.status, shared, content, response.time), len(content))

    response.body = tee(response.body)


def expires(secs: Any = 0, force: bool = False, debug: bool = False) -> None:
    """Set the field Expires, and others that tell caches how long to keep the response.

    Args:
        secs: the time from now, in seconds or as a timedelta; 0 tells caches not to keep the response.
        force: whether to set the fields without a validator in the response, and to replace existing ones.
        debug: unused.
    """
    response = serving.response
    headers = response.headers
    if isinstance(secs, datetime.timedelta):
        secs = secs.total_seconds()
    # Without a validator or an age, leave the response as it is.
    if not force and not any(name in headers for name in ("Etag", "Last-Modified", "Age", "Expires")):
        return
    fields = {"Expires": httputil.HTTPDate(response.time + secs)}
    if secs == 0:
        fields = {"Expires": httputil.HTTPDate(1169942400.0), "Pragma": "no-cache"}  # a time in the past
        if serving.request.protocol >= (1, 1):
            fields["Cache-Control"] = "no-cache, must-revalidate"
    headers.update({name: value for name, value in fields.items() if force or name not in headers})
