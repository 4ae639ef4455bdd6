"""The process that obtains certificates for ``--acme``: a child of the supervisor, isolated from the rest. It shares
only a directory of files with the supervisor. Workers answer the authority's challenges from these files. Before it
talks to the authority, the process gives up all other rights: the sockets, the rights of root, and if the kernel has
Landlock, access to other files, listening, and sending signals. If it fails, the server continues with the certificates
that it has.
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

# The process checks the files, which other hosts may have changed, at least this often (seconds).
_SLEEP_MOST = 3600.0
# The seconds to wait while another host holds the lock.
_SLEEP_LOCKED = 30.0

# The files that the standard library reads to look up hosts and to verify the authority's certificate.
_SYSTEM_FILES = (
    "/usr", "/lib", "/lib64", "/bin", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/resolv.conf", "/etc/hosts",
    "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", "/etc/services", "/etc/localtime", "/etc/ld.so.cache",
    "/run/systemd/resolve", "/run/nscd", "/dev/urandom", "/dev/null",
)  # fmt: skip

# Modules that are needed after the rights are given up.
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
    """Raised if the supervisor has exited or stops this process."""


def run(
    files: AcmeFiles, values: Mapping[str, Any], report: Report, challenges: Sequence[str], supervisor_fd: int
) -> int:
    """Obtain and renew certificates until the other end of the pipe ``supervisor_fd`` is closed. Return the exit
    status."""
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
    """Do the work that is due for each name; return the seconds until the next work. Raises OSError."""
    import fcntl

    fd = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _SLEEP_LOCKED  # another host has the lock, or the previous process, which is still exiting
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
    """Check the present certificate of ``name``. Return whether there is one that is valid."""
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
    """Ask the authority when to renew the certificate."""
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
    """Wait for ``seconds``. Raises SupervisorGoneError if the other end of the pipe is closed."""
    import select

    readable, _, _ = select.select([supervisor_fd], [], [], max(seconds, 0.0))
    if readable:
        raise SupervisorGoneError


def _import_all() -> None:
    """Import the modules that are used later, because another user may not be able to read Python's library."""
    for name in _LATER:
        __import__(name)


def _give_up_rights(files: AcmeFiles, values: Mapping[str, Any], report: Any) -> None:
    """Become the owner of the directory; keep only the rights to its files and to open connections."""
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
    # Resolve symbolic links, because the rights apply to their targets.
    readable = [
        os.path.realpath(path) for path in dict.fromkeys([*_SYSTEM_FILES, *own]) if path and os.path.exists(path)
    ]
    # "/" on the module path is a mistake, and would allow reading all files.
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
    """Remove the supervisor's signal handlers, and ignore signals that are only for the supervisor."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGPWR"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
