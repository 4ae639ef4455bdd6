"""The certificates of the service: read and checked by the supervisor, and passed on to its workers. The supervisor
reads the files, because workers may run as a user that cannot. It checks them, so that a wrong file never reaches a
worker, and publishes their contents in memory that its children can read. Workers read it when they start, and after
the message ``certificates``. The secrets for session tickets are generated here and published with the certificates. So
a client can resume its session on every worker, and after reloads and upgrades.

Certificates that are obtained by ACME are files like others: another process writes them (``acme_process.py``).

Files are checked once a second; symbolic links are followed. A certificate and its key may be written one after the
other: while they do not match, nothing changes, and after some seconds that is reported.
"""

from __future__ import annotations

import os
import time

from kirsch import _native
from kirsch.config.setting import UsageError
from kirsch.monitor.shared_value import SharedValue
from kirsch.net.certificates import TICKET_SECONDS, CertificateError, TlsFiles, new_secrets
from kirsch.reports import ERROR, INFO, WARNING, short_path
from kirsch.supervisor.watching import Touches
from kirsch.supervisor.worker_plan import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.config.schema import Settings

_CHECK_SECONDS = 1.0

# A certificate and key that do not match are reported after this many checks: one may still be written.
_PATIENCE_CHECKS = 5

_DAY = 86400
_EXPIRY_DAYS = (21, 7, 1)
_EXPIRY_SECONDS = 600.0

_TERMS_FOR_CLIENTS = ("client_certificates", "authorities", "revocation_lists")


class CertificateManager:
    """Reads, publishes and watches the certificates. Calls ``announce`` when the workers must read them again. Raises
    UsageError if the certificates cannot be used, and OSError. At an upgrade such an error is reported instead, and the
    previous certificates remain.
    """

    def __init__(self, chosen: Settings, report: Callable[[int, str], None], adopted_fd: int | None = None) -> None:
        self._report = report
        self._announce: Callable[[], None] | None = None
        self.shared: SharedValue | None = None
        self.ends: SharedValue | None = None  # the path and expiry of each certificate, for metrics
        self._files = TlsFiles(chosen.values)
        self._warned: dict[str, int] = {}
        self._bad_checks = 0
        self._unreported = ""
        if not self._files:
            return
        if self._files.acme.names:
            self._create_directory(is_upgrade=adopted_fd is not None)
        self.shared, self.ends = SharedValue(adopted_fd), SharedValue()
        published = self.shared.read() if adopted_fd is not None else None
        self._secrets: list[bytes] = published["ticket_secrets"] if published else new_secrets()
        # Before the files are read, so that later changes are noticed.
        self._touches = Touches(self._files.paths())
        try:
            self._terms = self._files.read(self._secrets)
            self._certificates = _native.Certificates(self._terms)
        except ValueError as error:
            if not published:
                raise UsageError(str(error)) from None
            report(ERROR, f"SIGUSR2: {error}; keeping the current certificates")
            self._terms = published
            self._certificates = _native.Certificates(published)
        self._checked_at = time.monotonic()
        self._rotate_at = self._checked_at + TICKET_SECONDS
        self._publish()
        self._warn()
        self._warn_of_missing()

    def __bool__(self) -> bool:
        """Return whether connections can be encrypted."""
        return self.shared is not None

    def keep_reading_only(self) -> None:
        """Close the descriptors for publishing, in a child."""
        for value in (self.shared, self.ends):
            if value is not None:
                value.keep_reading_only()

    def begin(self, announce: Callable[[], None]) -> None:
        self._announce = announce

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        if self.shared is None:
            return NEVER
        return min(self._checked_at + _CHECK_SECONDS, self._rotate_at, self._expiry_at)

    def run_due(self, now: float) -> None:
        if now < self.due():
            return
        if now >= self._rotate_at:
            self._rotate_at = now + TICKET_SECONDS
            self._secrets = new_secrets(self._secrets)
            self._terms["ticket_secrets"] = self._secrets
            self._publish()
        if now >= self._checked_at + _CHECK_SECONDS:
            self._checked_at = now
            if changed := self._touches.changed():
                self._bad_checks = _PATIENCE_CHECKS
                self._unreported = f"{short_path(changed[0])} has changed"
            if self._unreported:
                self._bad_checks -= 1
                self._try(self._unreported, is_last=self._bad_checks == 0)
        if now >= self._expiry_at:
            self._warn_of_expiry(now)

    def reload(self, chosen: Settings, why: str) -> None:
        """Read the files that the settings name now. If they cannot be used, keep the current certificates."""
        if self.shared is None:
            if TlsFiles(chosen.values):
                self._report(WARNING, f"{why}: no connection was encrypted so far, and only a restart changes that")
            return
        files = TlsFiles(chosen.values)
        if not files:
            self._report(WARNING, f"{why}: the certificates stay; only a restart serves without them")
            return
        before, self._files = self._files, files
        self._unreported = ""
        # Before the files are read, so that later changes are noticed.
        touches, touches_before = Touches(files.paths()), Touches(before.paths())
        if self._try(why, is_last=True):
            self._touches = touches
            self._warn_of_missing()
        else:
            self._files, self._touches = before, touches_before

    def _try(self, why: str, *, is_last: bool) -> bool:
        """Read the files, and use them if they are valid. ``is_last``: report it if they are not."""
        try:
            terms = self._files.read(self._secrets)
            if terms == self._terms:
                self._unreported = ""
                return True
            found = _native.Certificates(terms)
            expired = _expired(found)
            if expired and not _expired(self._certificates):
                raise CertificateError(f"{expired[0]['path']}: it has expired, and the one in force has not")
        except ValueError as error:
            if is_last:
                self._unreported = ""
                lines = "; ".join(str(error).splitlines())
                self._report(ERROR, f"{why}: keeping the current certificates: {lines}")
            return False
        self._unreported = ""
        before, self._certificates = self._certificates, found
        terms_before, self._terms = self._terms, terms
        self._publish()
        # Do not report changes of a challenge or of the account's thumbprint.
        news = []
        if found.certificates() != before.certificates():
            names = ", ".join(dict.fromkeys(name for each in found.certificates() for name in each["names"]))
            news.append(f"new certificates are in force, for {names}")
        if any(terms[name] != terms_before[name] for name in _TERMS_FOR_CLIENTS):
            news.append("client certificates are verified by the new authorities and revocation lists")
        for each in news:
            self._report(INFO, f"{why}: {each}")
        if news:
            self._warn()
        return True

    def _publish(self) -> None:
        assert self.shared is not None
        assert self.ends is not None
        self.shared.publish(self._terms)
        self.ends.publish([(each["path"], each["not_after"]) for each in self._certificates.certificates()])
        if self._announce is not None:
            self._announce()

    def certificates(self) -> list[dict[str, Any]]:
        """Return the description of each certificate in use."""
        return [] if self.shared is None else self._certificates.certificates()

    def _warn(self) -> None:
        for warning in self._certificates.warnings():
            self._report(WARNING, warning)
        self._warn_of_expiry(time.monotonic())

    def _warn_of_expiry(self, now: float) -> None:
        """Warn of certificates that expire soon: once for each number of days in the list; for a certificate with a
        short lifetime, only after half of it."""
        self._expiry_at = now + _EXPIRY_SECONDS
        for each in self._certificates.certificates():
            seconds = each["not_after"] - time.time()
            lifetime = each["not_after"] - each["not_before"]
            due = [days for days in _EXPIRY_DAYS if seconds <= days * _DAY <= lifetime / 2]
            key = f"{each['path']} {each['serial']}"
            if seconds > 0 and due and min(due) < self._warned.get(key, max(_EXPIRY_DAYS) + 1):
                self._warned[key] = min(due)
                left = f"{seconds / _DAY:.0f} days" if seconds > 2 * _DAY else f"{seconds / 3600:.0f} hours"
                self._report(WARNING, f"{each['path']}: the certificate expires in {left}; renew it")

    def _create_directory(self, *, is_upgrade: bool) -> None:
        """Create the directory of --acme. Raises OSError; at an upgrade, which must not end the service, reports it
        instead."""
        try:
            self._files.acme.create()
        except OSError as error:
            if not is_upgrade:
                raise
            self._report(ERROR, f"SIGUSR2: {error.args[-1]}")

    def _warn_of_missing(self) -> None:
        acme = self._files.acme
        present = acme.present()
        if missing := [name for name in acme.names if name not in present]:
            self._report(
                WARNING,
                f"{', '.join(missing)}: there is no certificate yet; connections for this name are refused with a TLS "
                "alert until the authority has issued one",
            )

    def export(self) -> int | None:
        """Return the descriptor for the next image of this program. It survives an exec from now on."""
        if self.shared is None:
            return None
        os.set_inheritable(self.shared.fd, True)
        return self.shared.fd

    def stay(self) -> None:
        """Undo :meth:`export` after a failed exec."""
        if self.shared is not None:
            os.set_inheritable(self.shared.fd, False)


def _expired(certificates: _native.Certificates) -> list[dict[str, Any]]:
    now = time.time()
    return [each for each in certificates.certificates() if each["not_after"] <= now]
