"""Rate limits for paths and handlers, counted in the stores that sessions use.

    store = web.RedisStore("redis://localhost")
    app = web.App(Root(), tools=[web.rate_limit("100/m", store=store)])

    @web.post(tools__rate_limit__rate="5/m")
    def login(self, name: str, password: str) -> web.Response: ...

A client has a bucket of tokens, which is one time in the store: the moment at which the bucket is full again. A request
moves it on by the time in which one token comes, and is refused if the bucket is empty then (the generic cell rate
algorithm). The store compares and writes in one step, so all processes and machines with this store count together.

Each request reads and writes the store. Where limits by address or by a header field are enough, let the server count:
``kirsch --rate-limit`` costs no round trip. This tool can count what only the application knows, such as the user.
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
"""Writes for one request before its client has too many requests at once."""

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_rate(text: str) -> tuple[int, float]:
    """Return requests and seconds of a rate such as ``20/s``. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})?([smhd])", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write 20/s, 100/m, 1000/h or 30/10s")
    return int(match[1]), int(match[2] or 1) * SECONDS[match[3]]


def client_address(request: Request) -> str:
    """Return the address of the client; of IPv6 the first 64 bits, which one subscriber has."""
    import ipaddress

    try:
        address = ipaddress.ip_address(request.remote)
    except ValueError:
        return request.remote
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class RateLimitTool(Tool):
    """The tool ``rate_limit``: a client that sends more requests in a time gets 429 with Retry-After.

    Options:
        rate: how many requests in which time, such as `20/s`, `100/m`, `1000/h` or `30/10s`; needed.
        burst: how many requests may come at once; default: as many as the rate has.
        store: where it is counted: a `web.SQLiteStore`, a `web.RedisStore`, a `web.SQLAlchemyStore`, or your own;
            needed. It may be the one of the sessions.
        by: a callable that takes the request and returns who is counted, such as the name of a user; default: the
            client's address, of IPv6 the /64.
        name: limits with one name count together; default: those with the same rate and burst do.
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

        # Behind the tools that say who the client is, and before the body is read.
        yield Hook(self.point, check, priority=30, name="rate_limit")


class RateLimit:
    """A limit for many clients: one token comes in ``interval`` seconds, and ``burst`` tokens are in a full bucket."""

    def __init__(self, store: Store, interval: float, burst: int, name: str) -> None:
        self._store = store
        self._interval = interval
        self._whole = interval * burst
        self._name = name

    def take(self, who: str) -> float:
        """Take a token of ``who``. Return 0, or after how many seconds there is one."""
        key = f"rate limit\0{self._name}\0{who}"
        for _ in range(ATTEMPTS):
            found = self._store.get(key)
            version, text = found or (0, "0")
            now = time.time()
            full_at = max(float(text), now) + self._interval
            wait = full_at - now - self._whole
            # Numbers of seconds since 1970 are not exact to the microsecond.
            if wait > 1e-6:
                return wait
            if self._store.put(key, repr(full_at), version, math.ceil(self._whole) + 1):
                return 0
        return self._interval


def rate_limit(rate: str, *, store: Store, **options: Any) -> RateLimitTool:
    """Limit the requests of each client, for all paths.

    Args:
        rate: how many requests in which time, such as ``20/s`` or ``100/m``.
        store: where it is counted; all processes with this store count together.
        **options: ``burst``, how many requests may come at once (as many as the rate has); ``by``, a callable that
            takes the request and returns who is counted (the client's address); ``name``: limits with one name count
            together (those with the same rate and burst).
    """
    return RateLimitTool(rate=rate, store=store, **options)
