"""The settings of groups and of other state that hosts share: a part of the table in ``schema.py``."""

from __future__ import annotations

from kirsch.config.kinds import Kind
from kirsch.config.rate_limits import RATE_LIMITS
from kirsch.config.setting import ENGINE, setting

BROKERS = {
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "nats": "nats",
}
"""The broker of each scheme: the module in ``kirsch.groups.brokers``, and the extra of the package."""


def parse_broker(text: str) -> str:
    """Parse the URL of a broker; an empty text remains empty. Raises ValueError."""
    if not text:
        return ""
    from urllib.parse import parse_qs, urlsplit  # imported here, because only servers with a broker need it

    parts = urlsplit(text)
    if parts.scheme not in BROKERS or not parts.netloc:
        raise ValueError("is not the URL of a broker; write it as in redis://host, postgresql://host/db or nats://host")
    history = parse_qs(parts.query).get("history", ["0"])[-1]
    if not history.isdigit():
        raise ValueError("has a history that is no number of messages, as in redis://host?history=1000")
    if int(history) and BROKERS[parts.scheme] != "redis":
        raise ValueError(f"has a history, which needs Redis or Valkey: {parts.scheme} keeps no messages")
    return text


def without_password(text: str) -> str:
    """Return the URL of a broker for display, with its password hidden."""
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    if parts.password is None:
        return text
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()


BROKER: Kind[str] = Kind(parse_broker, "URL", shown=without_password)


class GroupSettings:
    """The settings of state that the workers of several hosts share."""

    __slots__ = ()

    groups = setting(
        "WebSocket", "--groups", BROKER, "",
        "Join the groups (kirsch.Group) of this server with those of other hosts by a broker: redis://HOST, "
        "postgresql://HOST/DATABASE or nats://HOST, with user, password and port as usual. redis://HOST?history=1000 "
        "keeps so many messages of each group for readers that come back. It needs pip install 'kirsch[redis]', "
        "'kirsch[postgresql]' or 'kirsch[nats]'. Empty: groups span the workers of this server.",
        fixed=True, supervised=True,
    )  # fmt: skip
    rate_limit = setting(
        "Requests", "--rate-limit", RATE_LIMITS, "",
        "Answer the requests of a client that sends more than so many in a time with 429 and Retry-After, without the "
        "application: 20/s, 100/m, 1000/h or 30/10s for all paths, /login=5/m for a path and what is beneath it. The "
        "longest path that fits decides; /static=off has no limit. Options follow behind a space: burst=3, how many "
        "requests may come at once (otherwise as many as the rate has); by=client (the address, of IPv6 the /64), "
        "by=all (all clients share the limit) or by=header:X-Api-Key (each value of the field; requests without it "
        "count for their address). Commas separate limits. They hold for all workers together, and with --groups for "
        "all hosts. Empty: there is no limit.",
        scope=ENGINE, summary="requests of a client in a time, 20/s or /login=5/m",
    )  # fmt: skip
