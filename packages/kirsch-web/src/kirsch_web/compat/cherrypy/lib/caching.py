"""The tools ``caching`` and ``expires``. The cache is this process's own."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

from kirsch_web.compat.cherrypy import _globals
from kirsch_web.compat.cherrypy._cperror import HTTPError
from kirsch_web.compat.cherrypy._helper import url as url_of
from kirsch_web.compat.cherrypy._local import serving
from kirsch_web.compat.cherrypy.lib import cptools, httputil


class Cache:
    """The base of caches: get(), put(obj, size), delete() and clear() are for the current request's URL.

    A subclass is given as ``tools.caching.cache_class``.
    """


class AntiStampedeCache(dict[Any, Any]):
    """A dictionary in which a missing value is computed by one thread, while the others wait for it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lock = threading.Lock()

    def wait(self, key: Any, timeout: float = 5, debug: bool = False) -> Any:
        """The value; None where the caller has to compute it, because it is the first, or has waited in vain."""
        with self._lock:
            value = self.get(key)
            if value is None:
                self[key] = threading.Event()
        if not isinstance(value, threading.Event):
            return value
        if not timeout:
            return None
        value.wait(timeout)
        with self._lock:
            found = self.get(key)
            if found is value:  # the first one has failed, or needs longer
                self[key] = threading.Event()
        return None if isinstance(found, threading.Event) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        before = self.get(key)
        super().__setitem__(key, value)
        if isinstance(before, threading.Event):
            before.set()

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a key, and let those go on who wait for it."""
        before = super().pop(key, default)
        if isinstance(before, threading.Event):
            before.set()
        return before


class MemoryCache(Cache):
    """Responses in memory, by URL and by the fields that Vary names. The attributes are limits, options of the tool."""

    delay: float = 600
    maxsize = 10_000_000
    maxobj_size = 100_000
    maxobjects = 1000
    antistampede_timeout: Any = 5

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.store: dict[str, AntiStampedeCache] = {}
        self.selecting_headers: dict[str, list[str]] = {}
        self._kept: dict[tuple[str, Any], tuple[float, int]] = {}  # when each expires, and its size

    def _expire(self) -> None:
        """Forget what is too old. The lock is held."""
        for (uri, selected), (moment, _) in list(self._kept.items()):
            if moment > time.time():
                break  # the oldest come first
            del self._kept[uri, selected]
            if uri in self.store:
                self.store[uri].pop(selected)
                if not self.store[uri]:
                    del self.store[uri]

    def _selected(self, uri: str) -> tuple[str, ...]:
        headers = serving.request.headers
        return tuple(headers.get(name, "") for name in sorted(self.selecting_headers.get(uri, ())))

    def get(self) -> Any:
        """What is kept for the current request."""
        uri = url_of(qs=serving.request.query_string)
        with self._lock:
            self._expire()
            variants = self.store.get(uri)
        return None if variants is None else variants.wait(self._selected(uri), self.antistampede_timeout or 0)

    def put(self, variant: Any, size: int) -> None:
        """Keep a response for the current request, if it fits."""
        request, response = serving.request, serving.response
        uri = url_of(qs=request.query_string)
        with self._lock:
            self._expire()
            if uri not in self.store:
                if len(self.store) >= self.maxobjects:
                    return
                self.store[uri] = AntiStampedeCache()
                self.selecting_headers[uri] = [each.value for each in response.headers.elements("Vary")]
            selected = self._selected(uri)
            self._kept.pop((uri, selected), None)
            total = sum(each for _, each in self._kept.values())
            if size >= self.maxobj_size or total + size >= self.maxsize:
                self.store[uri].pop(selected)
            else:
                self._kept[uri, selected] = response.time + self.delay, size
                self.store[uri][selected] = variant

    def delete(self) -> None:
        """Forget all variants of the current URL."""
        self.store.pop(url_of(qs=serving.request.query_string), None)


def get(invalid_methods: Any = ("POST", "PUT", "DELETE"), debug: bool = False, **kwargs: Any) -> bool:
    """Answer from the cache if it has the response; note on the request whether it may be kept.

    Other options are attributes of the cache, set when the first request makes it.
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
    cptools.validate_since()  # a client that has it already needs no body
    response.status, response.body = status, body
    return True


def tee_output() -> None:
    """Keep the body while it is sent, for the next request."""
    request, response = serving.request, serving.response
    if "no-store" in request.headers.values("Cache-Control") or request.method == "HEAD":
        return
    if httputil.valid_status(response.status)[0] >= 400:
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
    """Set Expires.

    Args:
        secs: from now, in seconds or as a timedelta; 0: caches must not keep the response.
        force: also where the response has no validator, and over fields that it has.
        debug: unused.
    """
    response = serving.response
    headers = response.headers
    if isinstance(secs, datetime.timedelta):
        secs = secs.total_seconds()
    # A response without a validator or an age says nothing about caches, and gets nothing.
    if not force and not any(name in headers for name in ("Etag", "Last-Modified", "Age", "Expires")):
        return
    fields = {"Expires": httputil.HTTPDate(response.time + secs)}
    if secs == 0:
        fields = {"Expires": httputil.HTTPDate(1169942400.0), "Pragma": "no-cache"}  # a time that is over
        if serving.request.protocol >= (1, 1):
            fields["Cache-Control"] = "no-cache, must-revalidate"
    headers.update({name: value for name, value in fields.items() if force or name not in headers})
