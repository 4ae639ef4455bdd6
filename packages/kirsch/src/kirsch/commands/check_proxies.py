"""The part of ``kirsch check`` about reverse proxies: the client of a sample request, and likely mistakes."""

from __future__ import annotations

from kirsch.net.addresses import HTTP, is_loopback, parse_bind
from kirsch.net.sockets import exposure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kirsch.config.schema import Settings

# Addresses for documentation (RFC 5737), which belong to no real proxy.
_INVENTED = "198.51.100.99"
_CLIENT = "203.0.113.7"


def sample_request(chosen: Settings) -> str:
    """Return a text with the client of a sample request through the trusted proxies; empty if there are none."""
    trusted = [entry.partition("/")[0] for entry in chosen.trusted_proxies.split(",") if entry]
    if not trusted:
        return ""
    from kirsch import _native

    hops = [entry for entry in trusted if entry not in ("all", "unix")]
    # The peer is the last proxy; the list of forwarders ends with the one before it, if that is trusted.
    peer = "unix" if "unix" in trusted else hops[-1] if hops else "192.0.2.1"
    between = hops[:1] if peer == "unix" else hops[-1:]
    addresses = [_INVENTED, _CLIENT, *between]
    if chosen.forwarded == "rfc7239":
        quoted = (f'"[{address}]"' if ":" in address else address for address in addresses)
        line = f"Forwarded: {', '.join(f'for={address}' for address in quoted)}"
    else:
        line = f"X-Forwarded-For: {', '.join(addresses)}"
    try:
        address, *_ = _native.forwarded_client(chosen.trusted_proxies, chosen.forwarded, peer, [line])
    except ValueError as error:
        outcome = f"it is refused: {error}"
    else:
        outcome = f"the client is {address or 'one on a Unix socket'}"
    what = "a Unix socket" if peer == "unix" else peer
    return (
        f"\nProxies\n  {line}\n  of a request from {what}: {outcome}; {_INVENTED} is what the client itself has written"
    )


def find_mistakes(chosen: Settings) -> Iterator[tuple[str, str]]:
    """Yield (setting, explanation) for each value that is allowed but is probably a mistake."""
    binds = [parse_bind(text) for text in chosen.bind]
    # For an inherited descriptor, the clients are unknown.
    known = [bind for bind in binds if bind.fd is None and not bind.name]
    public = [bind for bind in known if not bind.path and not is_loopback(bind.host)]
    if chosen.trusted_proxies == "all" and public:
        yield (
            "trusted_proxies",
            (
                f"all trusts every peer, and {public[0].text} is open to others than proxies; who reaches it directly "
                "can claim any address; name the proxies' addresses instead (kirsch help proxies)"
            ),
        )
    for bind in binds:
        if warning := exposure(bind, chosen.trusted_proxies, chosen.proxy_from):
            yield "bind", warning
    if not chosen.trusted_proxies:
        for name in ("forwarded_host", "forwarded_prefix"):
            if getattr(chosen, name):
                yield name, "it has no effect without --trusted-proxies"
        # The gateway protocols and the PROXY protocol transmit the client's address.
        local = [bind for bind in known if bind not in public and bind.protocol == HTTP and not bind.proxy]
        if local and any(count and scope == "client" for _, _, count, _, _, scope in chosen.rate_limit):
            yield (
                "rate_limit",
                (
                    f"only programs of this machine reach {local[0].text}; if one of them is a proxy, all of its "
                    "clients share one count; name it in --trusted-proxies (kirsch help proxies)"
                ),
            )
    if chosen.forwarded_prefix and chosen.forwarded == "rfc7239":
        yield "forwarded_prefix", "Forwarded (RFC 7239) has no prefix, so nothing is read; it goes with --forwarded x"
    demanding = [bind for bind in public if bind.proxy]
    if demanding and chosen.proxy_from in ("", "all"):
        yield (
            "proxy_from",
            (
                f"every peer that reaches {demanding[0].text} may send a PROXY protocol header and claim any address; "
                "name the proxies' addresses"
            ),
        )
    if chosen.proxy_from and not any(bind.proxy for bind in binds):
        yield "proxy_from", "it has no effect, because no address has ?proxy"
