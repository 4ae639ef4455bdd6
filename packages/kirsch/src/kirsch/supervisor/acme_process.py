"""The process that obtains certificates for ``--acme``: a child of the supervisor, which has no other part in it.

It shares nothing with the supervisor but a directory of files. Workers answer the authority's questions, by what they
find in those files. The process gives up the rights to everything else before it talks with the authority: the
sockets, root's rights, and where the kernel has Landlock, reading and writing other files, listening, and signals.

Whatever happens to it, the server serves the certificates that it has.
"""

from __future__ import annotations

import os
import signal
import time

from kirsch import _native
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.supervisor.acme_client import AttemptFailed, Client, judged
from kirsch.supervisor.acme_schedule import Schedule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kirsch.net.acme_files import AcmeFiles
    from kirsch.reports import Report

# The process looks at the files of other hosts so often at least.
_SLEEP_MOST = 3600.0
# While another host talks with the authority.
_SLEEP_LOCKED = 30.0

# The files that the standard library reads to look up hosts and to verify the authority's certificate.
_SYSTEM_FILES = (
    "/usr", "/lib", "/lib64", "/bin", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/resolv.conf", "/etc/hosts",
    "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", "/etc/services", "/etc/localtime", "/etc/ld.so.cache",
    "/run/systemd/resolve", "/run/nscd", "/dev/urandom", "/dev/null",
)  # fmt: skip

# Modules that are used later.
_LATER = (
    "email.utils",
    "encodings.idna",
    "fcntl",
    "http.client",
    "json",
    "logging",
    "select",
    "traceback",
    "urllib.request",
)

_HINTS = {
    "connection": "open the port in the firewall, and check that the name leads to this host",
    "dns": "check the entries of the name in the domain name system",
    "unauthorized": "another server answers at this name, or its address is another host's",
    "tls": "something ends TLS before this server; --acme-challenge http-01 does without",
    "caa": "a CAA record of the name forbids this authority",
    "rateLimited": "try with --acme-staging until everything works",
    "externalAccountRequired": "this authority knows its customers; give --acme-eab-kid and --acme-eab-key",
    "rejectedIdentifier": "this authority issues no certificate for this name; IP addresses need a profile such as "
    "--acme-profile shortlived",
    "invalidContact": "correct --acme-contact",
    "unsupportedContact": "correct --acme-contact",
    "accountDoesNotExist": "remove account.json from its directory, and a new account is registered",
}


class SupervisorGoneError(Exception):
    """The supervisor has exited, or stops this process."""


def run(
    files: AcmeFiles, values: Mapping[str, Any], report: Report, challenges: Sequence[str], supervisor_fd: int
) -> int:
    """Obtain and renew until ``supervisor_fd``, a pipe, is closed at its other end. Return the exit status."""
    _set_signals()

    def report_line(level: int, text: str) -> None:
        report(level, text, None)

    def wait(seconds: float) -> None:
        _wait(supervisor_fd, seconds)

    try:
        client = Client(files, values, report_line, wait, challenges)
    except (OSError, ValueError) as error:
        report_line(ERROR, f"acme: no certificate can be obtained: {error}")
        return 1
    _import_all()
    _give_up_rights(files, values, report_line)
    try:
        while True:
            wait(work(files, client, report_line))
    except SupervisorGoneError:
        return 0
    except OSError as error:
        report_line(ERROR, f"acme: {error.filename or files.directory}: {error.strerror}")
        return 1


def work(files: AcmeFiles, client: Client, report: Any) -> float:
    """Do what is due for each name; return the seconds until something is due again. Raises OSError."""
    import fcntl

    fd = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _SLEEP_LOCKED  # another host, or the process that this one follows
        schedule = Schedule(files)
        for name in files.names:
            try:
                _work_for(name, files, client, schedule, report)
            finally:
                schedule.save()
        due = min(schedule.next_time(name) for name in files.names)
        return min(max(due - time.time(), 1.0), _SLEEP_MOST)
    finally:
        os.close(fd)


def _work_for(name: str, files: AcmeFiles, client: Client, schedule: Schedule, report: Any) -> None:
    is_valid = _begin(name, files, schedule)
    if is_valid and schedule.asks_at(name) <= time.time():
        _ask(name, client, schedule, report)
    if schedule.due(name) > time.time():
        return
    try:
        client.obtain(name, schedule.attempts(name))
    except AttemptFailed as failure:
        hint = f"; {_HINTS[failure.kind]}" if failure.kind in _HINTS else ""
        text = f"{failure} ({failure.kind}){hint}" if failure.kind else str(failure)
        wait = schedule.failed(name, time.time(), text, failure.retry_after)
        what = "the certificate is not renewed" if is_valid else "there is no certificate"
        again = f"{wait / 3600:.1f} h" if wait >= 5400 else f"{wait / 60:.0f} min"
        report(WARNING if is_valid else ERROR, f"acme: {name}: {what}: {text}; the next attempt is in {again}")
        return
    if _begin(name, files, schedule):
        _ask(name, client, schedule, report)


def _begin(name: str, files: AcmeFiles, schedule: Schedule) -> bool:
    """Look at the certificate that there is. Return whether it is one, and is valid."""
    path = files.certificate(name)
    try:
        with open(path, "rb") as file:
            certificate = judged(path, file.read())
    except (FileNotFoundError, ValueError):
        entry = schedule.entry(name)
        for key in ("serial", "not_after", "renew_at", "window", "ask_at"):
            entry.pop(key, None)
        return False
    schedule.begin(name, certificate)
    return bool(certificate["not_after"] > time.time())


def _ask(name: str, client: Client, schedule: Schedule, report: Any) -> None:
    """Ask the authority when to renew."""
    now = time.time()
    try:
        begin, end, ask_after, page = client.renewal(name)
    except AttemptFailed:
        schedule.no_window(name, now)  # many authorities say no window; attempts to renew tell if it cannot be reached
        return
    if schedule.set_window(name, now, (begin, end), ask_after, page):
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(schedule.due(name)))
        why = f"; it explains that at {page}" if page else ""
        report(INFO, f"acme: {name}: the authority wants another time of renewal, {when}{why}")


def _wait(supervisor_fd: int, seconds: float) -> None:
    """Wait. Raises SupervisorGoneError if the other end of the pipe is closed."""
    import select

    readable, _, _ = select.select([supervisor_fd], [], [], max(seconds, 0.0))
    if readable:
        raise SupervisorGoneError


def _import_all() -> None:
    """Import the modules that are used later: another user may not be able to read the library of Python."""
    for name in _LATER:
        __import__(name)


def _give_up_rights(files: AcmeFiles, values: Mapping[str, Any], report: Any) -> None:
    """Become the owner of the directory, and keep no right but to its files and to connections."""
    import ssl
    import sys

    is_root = os.geteuid() == 0
    owner = os.stat(files.directory)
    if is_root and owner.st_uid != 0:
        os.setgroups([owner.st_gid])
        os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
        os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    trusted = ssl.get_default_verify_paths()
    own = [
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(os.__file__),
        os.path.dirname(os.path.dirname(__file__)),
        *sys.path,
    ]
    own += [path for path in (trusted.cafile, trusted.capath, values["acme_ca_certs"]) if path]
    # Paths through symbolic links are those of the links' targets.
    readable = [
        os.path.realpath(path) for path in dict.fromkeys([*_SYSTEM_FILES, *own]) if path and os.path.exists(path)
    ]
    # "/" is on the path of modules of no program that means it.
    readable = [path for path in readable if path != "/"]
    try:
        done = _native.confine(os.path.realpath(files.directory), readable)
    except _native.AcmeFailure as failure:
        report(WARNING, f"acme: {failure.args[0]}")
        return
    if done == "none" and is_root and owner.st_uid == 0:
        report(
            WARNING,
            f"acme: this kernel has no Landlock, so the process that obtains certificates may write files of root; let "
            f"another user own {files.directory} (chown -R)",
        )


def _set_signals() -> None:
    """Remove the supervisor's handlers, and ignore signals that are for the supervisor alone."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGPWR"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
