"""``kirsch certificates``: show the certificates of the settings, and the state of those from ACME."""

from __future__ import annotations

import time

from kirsch import _native, reports
from kirsch.bootstrap import change_directory
from kirsch.commands.output import print_output
from kirsch.config import sources
from kirsch.net.acme_files import AcmeFiles, read_json
from kirsch.net.certificates import TlsFiles, new_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_USAGE = """usage: kirsch certificates [APP] [settings]

Show the certificates that these settings name or obtain: their names, until when they are valid, when they are renewed,
and what has failed. Run it in the directory and with the settings of the server, as the user who may read the keys.
Exit status 1: a certificate is missing, has expired, or was not renewed."""


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, or 1 if something is missing, expired or not renewed. Raises UsageError."""
    if any(word in ("-h", "--help") for word in argv):
        print_output(_USAGE)
        return 0
    chosen = sources.read(list(argv))
    change_directory(chosen)
    files = TlsFiles(chosen.values)
    if not files:
        reports.write_stderr("kirsch certificates: these settings have none; give --certfile or --acme")
        return 1
    try:
        found = _native.Certificates(files.read(new_secrets())).certificates()
    except ValueError as error:
        for line in str(error).splitlines():
            reports.write_stderr(f"kirsch certificates: {line}")
        return 1
    now = time.time()
    for each in found:
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(each["not_after"]))
        days = (each["not_after"] - now) / 86400
        state = f"valid until {until}, for {days:.0f} more days" if days > 0 else f"EXPIRED at {until}"
        print_output(f"{', '.join(each['names'])}\n  {each['key']}, {state}\n  {each['path']}")
    troubles = list(_troubles(files.acme, now))
    for line in troubles:
        print_output(line)
    return int(bool(troubles) or any(each["not_after"] <= now for each in found))


def _troubles(acme: AcmeFiles, now: float) -> Iterator[str]:
    """Print the renewal time of each certificate; yield a line for each that is missing or was not renewed."""
    entries = read_json(acme.status).get("names", {}) if acme.names else {}
    present = acme.present()
    for name in acme.names:
        entry: dict[str, Any] = entries.get(name, {})
        if name in present and "renew_at" in entry:
            why = "as the authority suggests" if "window" in entry else "after most of its lifetime"
            print_output(f"{name}\n  will be renewed at {_time(entry['renew_at'])}, {why}")
        if "error" in entry:
            again = f"; the next attempt is at {_time(entry['not_before'])}" if entry["not_before"] > now else ""
            yield f"{name}\n  FAILED {entry['failures']} times: {entry['error']}{again}"
        elif name not in present:
            yield f"{name}\n  MISSING: not obtained yet; the server obtains it while it runs"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
