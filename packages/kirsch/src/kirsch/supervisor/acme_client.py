"""A client that obtains a certificate from an authority, by the steps of ACME (RFC 8555). The native module makes the
messages, keys and signatures. Requests are sent here with the standard library, so that proxies and the system's
trusted authorities are found as in every Python program. All calls block, because the process has nothing else to do.
"""

from __future__ import annotations

import base64
import contextlib
import os
import time

from kirsch import _native
from kirsch.net.acme_files import AcmeFiles, read_json, remove, write, write_json
from kirsch.net.certificates import TICKET_SECRETS, read_secret
from kirsch.reports import INFO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Fields = list[tuple[str, str]]

_REQUEST_SECONDS = 30.0
_RESPONSE_MAX = 1 << 20

_HTTP, _ALPN = "http-01", "tls-alpn-01"


class Pace:
    """The waiting times of one attempt, in seconds."""

    publish = 3.0
    """Until all supervisors and workers have read a new file: they look once a second."""

    poll = 1.0
    """Between two questions whether the authority is done; it doubles up to ``poll_most``."""

    poll_most = 15.0

    patience = 300.0
    """The longest time that the authority may take to verify a name, and to issue a certificate."""


class AttemptFailed(Exception):
    """Raised if no certificate could be obtained; the text is one line. ``kind`` is the type of the authority's
    problem (RFC 8555 section 6.7), ``retry_after`` the seconds to wait that the authority has asked for."""

    def __init__(self, text: str, kind: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.kind = kind
        self.retry_after = retry_after


class Http:
    """Sends requests to the authority. ``retry_after`` is the Retry-After of the last response in seconds, or 0."""

    def __init__(self, ca_certs: str, version: str) -> None:
        import ssl
        import urllib.request

        self._agent = f"kirsch/{version}"
        self._errors = (OSError, ssl.SSLError)
        self.retry_after = 0.0
        context = ssl.create_default_context(cafile=ca_certs or None)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def __call__(self, method: str, url: str, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        """Send a request; return status, fields and body of the response. Raises AttemptFailed."""
        import http.client
        import urllib.error
        import urllib.request

        if not url.startswith("https://"):
            raise AttemptFailed(f"the authority names {url}, which is not https")
        own = {name: f"{self._agent} {value}" if name.lower() == "user-agent" else value for name, value in fields}
        request = urllib.request.Request(url, body or None, own, method=method)  # noqa: S310 - it is https
        try:
            try:
                response = self._opener.open(request, timeout=_REQUEST_SECONDS)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                content = b"" if method == "HEAD" else response.read(_RESPONSE_MAX + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AttemptFailed(f"cannot reach {url}: {_reason(error)}") from None
        if len(content) > _RESPONSE_MAX:
            raise AttemptFailed(f"{url}: the answer is longer than {_RESPONSE_MAX >> 20} MiB")
        status: int = response.status
        self.retry_after = _retry_after(response.headers.get("Retry-After"))
        if status >= 400 and "json" not in (response.headers.get("Content-Type") or ""):
            raise AttemptFailed(f"{url} answers with status {status} and no reason", retry_after=self.retry_after)
        return status, list(response.headers.items()), content


class Client:
    """Obtains certificates for the names of ``files``. ``values`` are the settings, ``wait(seconds)`` sleeps.
    ``challenges`` are the kinds of challenges that can be answered. Raises OSError and ValueError if files in the
    settings cannot be read."""

    def __init__(
        self,
        files: AcmeFiles,
        values: Mapping[str, Any],
        report: Callable[[int, str], None],
        wait: Callable[[float], None],
        challenges: Sequence[str],
        pace: Pace | None = None,
        http: Http | None = None,
    ) -> None:
        self._files = files
        self._values = values
        self._report = report
        self._wait = wait
        self._challenges = challenges
        self._pace = pace or Pace()
        self._http = http or Http(values["acme_ca_certs"], _native.__version__)
        # Read the files of these settings now, while the process may still read files of other users.
        self._external = _external_account(values)
        self._account: _native.AcmeAccount | None = None

    def obtain(self, name: str, attempt: int) -> None:
        """Obtain a certificate and write its file. ``attempt`` counts from 0; each attempt may use another
        challenge. Raises AttemptFailed."""
        with self._explained():
            account = self._ready_account()
            if self._complete(account, name):
                return
            order = self._order(account, name)
            challenges = order.challenges()
            try:
                if challenges:
                    self._prove(order, name, challenges, attempt)
                key, request = _native.make_request(name)
                # If this process is killed after this, the next one fetches the certificate of the stored order.
                write_json(self._files.order(name), {"url": order.url, "key": key})
                order.finalize(request)
                self._store(name, key, self._fetch(order))
            finally:
                remove(self._files.challenge(name))

    def renewal(self, name: str) -> tuple[float, float, float, str | None]:
        """Ask when to renew the certificate; return start and end of the window in Unix time, the seconds after
        which to ask again, and the URL of an explanation. Raises AttemptFailed, also if the authority offers no such
        information."""
        with self._explained(), open(self._files.certificate(name), "rb") as file:
            return self._ready_account().renewal(file.read())

    def _ready_account(self) -> _native.AcmeAccount:
        """Return the account; register a new one if none is stored."""
        if self._account is not None:
            return self._account
        known = read_json(self._files.account)
        if text := known.get("credentials"):
            self._account = _native.AcmeAccount.restore(self._http, text)
            return self._account
        contacts = [f"mailto:{address}" for address in self._values["acme_contact"]]
        self._account, text = _native.AcmeAccount.register(self._http, self._files.url, contacts, self._external)
        write_json(self._files.account, {"credentials": text, "thumbprint": self._account.thumbprint})
        self._report(INFO, f"acme: registered the account {self._account.url}")
        self._wait(self._pace.publish)
        return self._account

    def _order(self, account: _native.AcmeAccount, name: str) -> _native.AcmeOrder:
        profile = self._values["acme_profile"] or None
        if profile is not None and profile not in (offered := account.profiles()):
            raise AttemptFailed(
                f"--acme-profile: the authority has no profile {profile}; it has {', '.join(sorted(offered)) or 'none'}"
            )
        try:
            with open(self._files.certificate(name), "rb") as file:
                replaces = file.read()
        except FileNotFoundError:
            replaces = None
        if replaces is not None:
            try:
                # A renewal that names the replaced certificate is exempt from rate limits (RFC 9773 section 5).
                return account.order(name, profile, replaces)
            except _native.AcmeFailure as failure:
                if failure.args[1] in ("rateLimited", "serverInternal"):
                    raise
                # Another host has replaced the certificate already, or the authority does not know it: order without
                # it.
        return account.order(name, profile, None)

    def _prove(self, order: _native.AcmeOrder, name: str, challenges: list[tuple[str, str, str]], attempt: int) -> None:
        """Answer one of the challenges, and wait until the authority has validated it."""
        offered = {kind: key_authorization for kind, _, key_authorization in challenges}
        usable = [kind for kind in self._challenges if kind in offered]
        if not usable:
            raise AttemptFailed(
                f"the authority offers {', '.join(offered)}, and --acme-challenge allows {', '.join(self._challenges)}"
            )
        kind = usable[attempt % len(usable)]
        if kind == _ALPN:
            key, certificate = _native.make_challenge(name, offered[kind])
            write(self._files.challenge(name), f"{key}{certificate}".encode())
            self._wait(self._pace.publish)
        order.answer(kind)
        state = self._poll(order, "pending")
        if state == "invalid":
            text, problem = order.failure()
            raise AttemptFailed(f"the authority cannot verify the name by {kind}: {text}", problem)

    def _poll(self, order: _native.AcmeOrder, while_it_is: str) -> str:
        began, interval = time.monotonic(), self._pace.poll
        while True:
            self._wait(min(max(interval, self._http.retry_after), self._pace.poll_most))
            state = order.refresh()
            if state != while_it_is:
                return state
            if time.monotonic() > began + self._pace.patience:
                raise AttemptFailed(f"the authority has not verified the name within {self._pace.patience:.0f} s")
            interval = min(2 * interval, self._pace.poll_most)

    def _fetch(self, order: _native.AcmeOrder) -> str:
        """Wait for the certificate, and return its chain."""
        began, interval = time.monotonic(), self._pace.poll
        while (chain := order.certificate()) is None:
            if time.monotonic() > began + self._pace.patience:
                raise AttemptFailed(f"the authority has issued no certificate within {self._pace.patience:.0f} s")
            self._wait(min(max(interval, self._http.retry_after), self._pace.poll_most))
            interval = min(2 * interval, self._pace.poll_most)
        return chain

    def _complete(self, account: _native.AcmeAccount, name: str) -> bool:
        """Complete the stored order of an earlier process, if there is one. Return whether that gave a certificate."""
        path = self._files.order(name)
        kept = read_json(path)
        if not kept:
            return False
        try:
            order = account.resume(kept["url"])
            if order.refresh() in ("processing", "valid"):
                self._store(name, kept["key"], self._fetch(order))
                return True
        except (_native.AcmeFailure, AttemptFailed, KeyError):
            pass  # the order has expired or failed
        remove(path)
        return False

    def _store(self, name: str, key: str, chain: str) -> None:
        """Check the certificate that the authority has issued, and write its file."""
        content = f"{key}{chain}".encode()
        path = self._files.certificate(name)
        try:
            found = judged(path, content)
        except ValueError as error:
            raise AttemptFailed(f"the authority has issued what cannot be used: {error}") from None
        if name not in found["names"]:
            raise AttemptFailed(f"the authority has issued a certificate for {', '.join(found['names'])} instead")
        write(path, content)
        remove(self._files.order(name))
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found["not_after"]))
        self._report(INFO, f"acme: obtained a certificate for {name}, valid until {until}")

    @contextlib.contextmanager
    def _explained(self) -> Any:
        """Convert exceptions of the authority and of the system to AttemptFailed."""
        self._http.retry_after = 0.0
        try:
            yield
            return
        except _native.AcmeFailure as failure:
            text, kind = failure.args
            found = AttemptFailed(text, kind, self._http.retry_after)
        except ValueError as error:
            found = AttemptFailed(str(error))
        except OSError as error:
            found = AttemptFailed(f"{error.filename or self._files.folder}: {error.strerror or error}")
        self._account = None  # the next attempt fetches the directory of the authority again
        raise found


def judged(path: str, content: bytes) -> dict[str, Any]:
    """Check that a file contains a certificate and its key, and return the description of the certificate. Raises
    ValueError if it cannot be used."""
    certificate: dict[str, Any] = {
        "chain": (path, content),
        "key": (path, content),
        "password": None,
        "names": [],
        "is_challenge": False,
    }
    terms = {
        "certificates": [certificate], "minimum_version": "1.2", "cipher_suites": "", "protocols": [],
        "client_certificates": "none", "authorities": [], "revocation_lists": [],
        "ticket_secrets": [os.urandom(32)] * TICKET_SECRETS, "awaited_names": [], "challenge_thumbprint": None,
    }  # fmt: skip
    return _native.Certificates(terms).certificates()[0]


def usable_challenges(values: Mapping[str, Any], *, has_plain: bool, has_encrypted: bool) -> list[str]:
    """Return the kinds of challenges that settings and listeners allow, in order of preference."""
    wanted = values["acme_challenge"]
    if wanted != "auto":
        return [wanted]
    # HTTP-01 first: its answer is the same on all hosts that share the account, and needs no certificate.
    return [kind for kind, is_there in ((_HTTP, has_plain), (_ALPN, has_encrypted)) if is_there] or [_HTTP]


def _external_account(values: Mapping[str, Any]) -> tuple[str, bytes] | None:
    if not values["acme_eab_kid"]:
        return None
    text = read_secret(values["acme_eab_key"], "--acme-eab-key").strip()
    try:
        return values["acme_eab_kid"], base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError("--acme-eab-key: the key is not base64url; copy it again from the authority") from None


def _retry_after(value: str | None) -> float:
    """Return the seconds in a Retry-After field: a number or a date (RFC 9110 section 10.2.3)."""
    from email.utils import parsedate_to_datetime

    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text), 10**7))
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0) if text else 0.0
    except ValueError:
        return 0.0


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    text = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or str(cause) or type(cause).__name__
    if getattr(cause, "verify_message", ""):
        return f"its certificate is not trusted ({text}); --acme-ca-certs names its authority"
    return str(text)
