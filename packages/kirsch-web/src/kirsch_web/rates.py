"""Rate limits for paths and handlers, kept in the same stores as sessions.

    store = web.RedisStore("redis://localhost")
    app = web.App(Root(), tools=[web.rate_limit("100/m", store=store)])

    @web.post(tools__rate_limit__rate="5/m")
    def login(self, name: str, password: str) -> web.Response: ...

Each client has a token bucket, of which the store holds one number: the time at which the bucket is full again. A
request adds the time in which one token arrives, or is refused if the bucket is empty (generic cell rate algorithm).
The store compares and writes atomically, so the limit applies across all processes and machines that share the store.

Each request reads and writes the store. If limits by address or by a header field suffice, use the server's
``kirsch --rate-limit``, which needs no round trip. Only this tool knows the application's users.
"""

from __future__ import annotations

import math
import re
import time
from typing import Any

from kirsch_web.errors import HTTPError
from kirsch_web.hooks import Hook, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request
    from kirsch_web.sessions import Store

ATTEMPTS = 5
"""How often a request tries to write the store. If concurrent requests win each time, it is refused."""

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_rate(text: str) -> tuple[int, float]:
    """Parse a rate such as ``20/s``. Return the number of requests and of seconds. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})?([smhd])", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write 20/s, 100/m, 1000/h or 30/10s")
    return int(match[1]), int(match[2] or 1) * SECONDS[match[3]]


def client_address(request: Request) -> str:
    """Return the IPv4 address of the client, or its IPv6 /64 network, which usually belongs to one subscriber."""
    import ipaddress

    try:
        address = ipaddress.ip_address(request.remote)
    except ValueError:
        return request.remote
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class RateLimitTool(Tool):
    """The tool ``rate_limit``: a client that exceeds the rate gets 429 with Retry-After.

    Options:
        rate: the number of requests per time, such as `20/s`, `100/m`, `1000/h` or `30/10s`; required.
        burst: how many requests may arrive at once; default: the number in the rate.
        store: the store that holds the counts: a `web.SQLiteStore`, a `web.RedisStore`, a `web.SQLAlchemyStore`, or
            your own; required. It may be the store of the sessions.
        by: a callable that takes the request and returns the client to limit, such as a user name; default: the
            client's IPv4 address or IPv6 /64 network.
        name: limits with the same name share their counts; default: limits with the same rate and burst do.
    """

    types = {"rate": str, "burst": int, "store": None, "by": None, "name": str}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_request_body", None, "rate_limit", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        try:
            parse_rate(options.get("rate", ""))
        except ValueError as error:
            yield str(error)
        if options.get("burst", 1) < 1:
            yield "burst is a number of requests, 1 or more"
        if not all(hasattr(options.get("store"), method) for method in ("get", "put")):
            yield "it needs a store, such as web.SQLiteStore(path) or web.RedisStore(url)"
        if not callable(options.get("by", client_address)):
            yield "by is a callable that takes the request and returns who is counted"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        requests, seconds = parse_rate(options["rate"])
        limit = RateLimit(
            options["store"],
            seconds / requests,
            options.get("burst", requests),
            options.get("name", f"{options['rate']} {options.get('burst', '')}"),
        )
        by: Callable[[Request], Any] = options.get("by", client_address)

        def check(request: Request) -> None:
            wait = limit.take(str(by(request)))
            if wait:
                after = ("Retry-After", str(math.ceil(wait)))
                raise HTTPError(429, "there were too many requests in a short time", headers=[after])

        # After the tools that identify the client, and before the body is read.
        yield Hook(self.point, check, priority=30, name="rate_limit")


class RateLimit:
    """A rate limit. The bucket of each client holds ``burst`` tokens, and gains one every ``interval`` seconds."""

    def __init__(self, store: Store, interval: float, burst: int, name: str) -> None:
        self._store = store
        self._interval = interval
        self._whole = interval * burst
        self._name = name

    def take(self, who: str) -> float:
        """Take a token from the bucket of ``who``. Return 0, or if it is empty, the seconds until the next token."""
        key = f"rate limit\0{self._name}\0{who}"
        for _ in range(ATTEMPTS):
            found = self._store.get(key)
            version, text = found or (0, "0")
            now = time.time()
            full_at = max(float(text), now) + self._interval
            wait = full_at - now - self._whole
            # A float of seconds since 1970 is not exact to the microsecond.
            if wait > 1e-6:
                return wait
            if self._store.put(key, repr(full_at), version, math.ceil(self._whole) + 1):
                return 0
        return self._interval


def rate_limit(rate: str, *, store: Store, **options: Any) -> RateLimitTool:
    """Limit the requests of each client, for all paths.

    Args:
        rate: the number of requests per time, such as ``20/s`` or ``100/m``.
        store: the store that holds the counts; all processes that share it share the limit.
        **options: ``burst``, how many requests may arrive at once (default: the number in the rate); ``by``, a callable
            that returns the client to limit for a request (default: by address); ``name``: limits with the same name
            share their counts (default: limits with the same rate and burst do).
    """
    return RateLimitTool(rate=rate, store=store, **options)
