"""The tools ``caching`` and ``expires``. The cache is this process's own."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import kirsch_web.compat.cherrypy as cherrypy
from kirsch_web.compat.cherrypy.lib import cptools, httputil


class Cache:
    """What a cache does; a subclass is given as ``tools.caching.cache_class``."""

    def get(self) -> Any:
        """What is kept for the current request, or None."""
        raise NotImplementedError

    def put(self, obj: Any, size: int) -> None:
        """Keep a response of ``size`` bytes for the current request."""
        raise NotImplementedError

    def delete(self) -> None:
        """Forget what is kept for the current request's URL."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget everything."""
        raise NotImplementedError


class AntiStampedeCache(dict[Any, Any]):
    """A dictionary in which a missing value is computed by one thread, while the others wait for it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lock = threading.Lock()

    def wait(self, key: Any, timeout: float = 5, debug: bool = False) -> Any:
        """The value; None where the caller has to compute it, because it is the first, or has waited in vain."""
        with self._lock:
            value = self.get(key)
            if not isinstance(value, threading.Event):
                if value is None:
                    self[key] = threading.Event()
                return value
        if not timeout:
            return None
        waiting: threading.Event = value
        waiting.wait(timeout)
        found = self.get(key)
        if found is waiting:  # the first one has failed, or needs longer
            with self._lock:
                if self.get(key) is waiting:
                    self[key] = threading.Event()
                    waiting.set()
            return None
        return None if isinstance(found, threading.Event) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        before = self.get(key)
        super().__setitem__(key, value)
        if isinstance(before, threading.Event):
            before.set()


class MemoryCache(Cache):
    """Responses in memory, by URL and by the fields that Vary names. The attributes are limits, options of the tool."""

    maxobjects = 1000
    maxobj_size = 100_000
    maxsize = 10_000_000
    delay: float = 600
    antistampede_timeout: Any = 5
    expire_freq = 0.1
    debug = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.store: dict[str, AntiStampedeCache] = {}
        self.selecting_headers: dict[str, list[str]] = {}
        self._expirations: list[tuple[float, int, str, Any, Any]] = []  # in the order of their times
        self.cursize = 0
        self.tot_puts = self.tot_gets = self.tot_hist = self.tot_expires = self.tot_non_modified = 0

    def _expire(self) -> None:
        """Forget what is too old. The lock is held."""
        now, late = time.time(), 0
        for moment, size, uri, selected, obj in self._expirations:
            if moment > now:
                break
            late += 1
            self.cursize -= size
            self.tot_expires += 1
            variants = self.store.get(uri)
            if variants is not None and variants.get(selected) is obj:
                del variants[selected]
                if not variants:
                    self.store.pop(uri, None)
                    self.selecting_headers.pop(uri, None)
        del self._expirations[:late]

    def _selected(self, uri: str) -> tuple[str, ...]:
        headers = cherrypy.serving.request.headers
        return tuple(headers.get(name, "") for name in sorted(self.selecting_headers.get(uri, ())))

    def get(self) -> Any:
        """What is kept for the current request."""
        self.tot_gets += 1
        uri = cherrypy.url(qs=cherrypy.serving.request.query_string)
        with self._lock:
            self._expire()
            variants = self.store.get(uri)
        if variants is None:
            return None
        found = variants.wait(self._selected(uri), timeout=self.antistampede_timeout or 0)
        if found is not None:
            self.tot_hist += 1
        return found

    def put(self, variant: Any, size: int) -> None:
        """Keep a response for the current request, if it fits."""
        request, response = cherrypy.serving.request, cherrypy.serving.response
        uri = cherrypy.url(qs=request.query_string)
        with self._lock:
            self._expire()
            variants = self.store.get(uri)
            if variants is None:
                if len(self.store) >= self.maxobjects:
                    return
                variants = self.store[uri] = AntiStampedeCache()
                self.selecting_headers[uri] = [each.value for each in response.headers.elements("Vary")]
            selected = self._selected(uri)
            if size >= self.maxobj_size or self.cursize + size >= self.maxsize:
                waiting = variants.pop(selected, None)
                if isinstance(waiting, threading.Event):
                    waiting.set()
                return
            self.tot_puts += 1
            self.cursize += size
            self._expirations.append((response.time + self.delay, size, uri, selected, variant))
            self._expirations.sort(key=lambda each: each[0])
            variants[selected] = variant

    def delete(self) -> None:
        """Forget all variants of the current URL."""
        uri = cherrypy.url(qs=cherrypy.serving.request.query_string)
        self.store.pop(uri, None)


def get(invalid_methods: Any = ("POST", "PUT", "DELETE"), debug: bool = False, **kwargs: Any) -> bool:
    """Answer from the cache if it has the response; note on the request whether it may be kept.

    Other options are attributes of the cache, set when the first request makes it.
    """
    request, response = cherrypy.serving.request, cherrypy.serving.response
    cache = getattr(cherrypy, "_cache", None)
    if cache is None:
        cache = kwargs.pop("cache_class", MemoryCache)()
        cherrypy._cache = cache
        for name, value in kwargs.items():
            setattr(cache, name, value)
    request.cached = request.cacheable = False
    if request.method in invalid_methods:
        cache.delete()
        return False
    if request.method not in ("GET", "HEAD"):
        return False
    request.cacheable = True
    if "no-cache" in [each.value for each in request.headers.elements("Pragma")]:
        return False
    kept = cache.get()
    request.cached = kept is not None
    request.cacheable = not request.cached
    if not request.cached:
        return False
    max_age: float = getattr(cache, "delay", 600)
    for element in request.headers.elements("Cache-Control"):
        directive, _, value = str(element.value).partition("=")
        if directive == "max-age":
            if not (value.isascii() and value.isdigit()):
                raise cherrypy.HTTPError(400, "Invalid Cache-Control header")
            max_age = int(value)
            break
        if directive == "no-cache":
            request.cached, request.cacheable = False, True
            return False
    status, headers, body, created = kept
    age = int(response.time - created)
    if age > max_age or max_age == 0:
        request.cached, request.cacheable = False, True
        return False
    response.headers = kept_headers = httputil.HeaderMap()
    dict.update(kept_headers, headers)
    kept_headers["Age"] = str(age)
    try:
        # A client that has it already needs no body.
        cptools.validate_since()
    except cherrypy.HTTPRedirect as stop:
        if stop.status == 304:
            cache.tot_non_modified += 1
        raise
    response.status, response.body = status, body
    return True


def tee_output() -> None:
    """Keep the body while it is sent, for the next request."""
    request, response = cherrypy.serving.request, cherrypy.serving.response
    if "no-store" in request.headers.values("Cache-Control") or request.method == "HEAD":
        return
    if httputil.valid_status(response.status)[0] >= 400:
        return

    def tee(body: Any) -> Any:
        said = response.headers.values("Pragma"), response.headers.values("Cache-Control")
        if "no-cache" in said[0] or "no-store" in said[1]:
            yield from body
            return
        output: list[bytes] = []
        for chunk in body:
            output.append(chunk)
            yield chunk
        content = b"".join(output)
        headers = {name: value for name, value in response.headers.items() if name != "Set-Cookie"}
        cherrypy._cache.put((response.status, headers, content, response.time), len(content))

    response.body = tee(response.body)


def expires(secs: Any = 0, force: bool = False, debug: bool = False) -> None:
    """Set Expires.

    Args:
        secs: from now, in seconds or as a timedelta; 0: caches must not keep the response.
        force: also where the response has no validator, and over fields that it has.
        debug: unused.
    """
    response = cherrypy.serving.response
    headers = response.headers
    if isinstance(secs, datetime.timedelta):
        secs = secs.total_seconds()
    # A response without a validator or an age says nothing about caches, and gets nothing.
    if not force and not any(name in headers for name in ("Etag", "Last-Modified", "Age", "Expires")):
        return
    if secs == 0:
        if force or "Pragma" not in headers:
            headers["Pragma"] = "no-cache"
        if cherrypy.serving.request.protocol >= (1, 1) and (force or "Cache-Control" not in headers):
            headers["Cache-Control"] = "no-cache, must-revalidate"
        moment = httputil.HTTPDate(1169942400.0)  # a time that is over
    else:
        moment = httputil.HTTPDate(response.time + secs)
    if force or "Expires" not in headers:
        headers["Expires"] = moment
