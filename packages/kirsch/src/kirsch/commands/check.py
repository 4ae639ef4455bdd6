"""``kirsch check``: show the settings with their origins and the addresses, import the application, and report errors
that serving would report, and likely mistakes. It listens on no socket, writes no file and starts no process. This is
the only check. ``--check-config`` and ``--print-config`` are other spellings of ``kirsch check --only application`` and
``kirsch check --only settings``. Errors are found by the code that serves, up to the point where it would have an
effect, so that each rule is in one place. All mistakes are reported in one run.
"""

from __future__ import annotations

import os
import sys
import time

from kirsch import bootstrap, reports
from kirsch.commands import check_proxies
from kirsch.commands.output import print_output, table
from kirsch.config import sources
from kirsch.config.arguments import Arguments
from kirsch.config.setting import UsageError
from kirsch.hooks import Hooks
from kirsch.net import addresses, sockets
from kirsch.net.certificates import TlsFiles, new_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TypeVar

    from kirsch.config.schema import Settings
    from kirsch.net.certificates import Terms

    T = TypeVar("T")

HELP = """\
usage: kirsch check [--all] [--strict] [options] [module:app]
       kirsch check --only settings|sockets|application [options] [module:app]

Shows the settings with the origin of each and what would be listened on,
imports the application and every mount, tells all that serving would refuse,
and points out what is likely to be a mistake. Nothing listens, is written or
started. An address or a pid file that is in use is no mistake: the server that
is to be replaced may hold it. It takes every option that kirsch takes, and:

  --all
        Show the settings that have their defaults too.
  --strict
        Exit with status 1 where there is a warning.
  --only PART
        Check one part alone, for scripts: settings (all of them, a line for
        each), sockets (and the files that would be written), or application
        (which is imported). Likely mistakes are left out; other warnings go to
        standard error. kirsch --print-config is the same as kirsch check --only
        settings, and kirsch --check-config is the same as kirsch check --only
        application.

Exit status: that of serving, 0 when it would begin, 1 when an address, a file
or a driver cannot be had (or --strict found a likely mistake), 2 when the
settings are wrong, 3 when the application cannot be had."""

SETTINGS, SOCKETS, APPLICATION = "settings", "sockets", "application"
PARTS = (SETTINGS, SOCKETS, APPLICATION)

_OWN_FLAGS = ("--all", "--strict", "--only")

# The seconds for which nginx (keepalive_timeout of an upstream) and AWS's load balancers keep idle connections by
# default.
_IDLE_OF_PROXIES = 60


def main(argv: Sequence[str]) -> int:
    """Run the subcommand with the words after its name; return its exit status. Raises UsageError and StartupError,
    which :func:`kirsch.commands.cli.main` reports.
    """
    own, rest = _own_flags(argv)
    if own & {"-h", "--help"}:
        print_output(HELP)
        return 0
    arguments = Arguments(rest, _OWN_FLAGS)
    error = None
    try:
        chosen = sources.read(arguments)
    except UsageError as mistakes:
        if mistakes.settings is None:
            raise
        error, chosen = mistakes, mistakes.settings
    part = next(iter(own & set(PARTS)), "") or part_of(chosen)
    return check(chosen, arguments, part, error, everything="--all" in own, strict="--strict" in own)


def part_of(chosen: Settings) -> str:
    """Return the part of the check that ``--print-config`` or ``--check-config`` selects; empty if neither is given."""
    return SETTINGS if chosen.print_config else APPLICATION if chosen.check_config else ""


def check(
    chosen: Settings,
    arguments: Arguments,
    part: str = "",
    error: UsageError | None = None,
    *,
    everything: bool = False,
    strict: bool = False,
) -> int:
    """Check ``chosen``, or only a ``part`` of it, and return the exit status.

    ``error`` contains the mistakes in the settings, found while reading them. Raises UsageError and StartupError.
    """
    refused = _Refused()
    if error is not None:
        refused.add(error)
    warnings = list(chosen.warnings)
    if part in ("", SETTINGS):
        print_output(_settings(chosen, everything=everything) if not part else table(chosen.rows()))
    if not part:
        if sample := check_proxies.sample_request(chosen):
            print_output(sample)
        warnings += [
            *_labelled(chosen, [*_mistakes(chosen), *check_proxies.find_mistakes(chosen)]),
            *_unread_file(chosen),
        ]
    if part != SETTINGS:
        refused.trial(bootstrap.change_directory, chosen)
    # Like the supervisor: before switching to the workers' user, who may not be able to read the keys.
    terms = refused.trial(_read_certificates, chosen, warnings, part) if part != SETTINGS else None
    if part in ("", SOCKETS):
        rows = _sockets(chosen, refused)
        print_output(f"\nSockets\n{table(rows, '  ')}" if not part else table(rows))
        for path in (chosen.error_logfile, chosen.access_logfile):
            refused.trial(bootstrap.check_log, path)
        if chosen.pid_file:
            refused.trial(_check_pid_file, chosen.pid_file)
    name = refused.trial(_import, chosen, arguments, terms) if part in ("", APPLICATION) else None
    if name is not None and not part:
        warnings += _labelled(chosen, _mistakes_of_application(chosen))
    _print_warnings(warnings, part)
    if refused.lines:
        refused.tell()
        return refused.status
    if name is not None:
        number = f", with {len(warnings)} warning{'s' * (len(warnings) > 1)}" if warnings else ""
        print_output(f"{name} is ok{number}" if part else f"\n{name} is ok{number}")
    return bootstrap.EXIT_FAILED if warnings and strict else 0


def _own_flags(argv: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the flags of the subcommand, with the part after ``--only``, and the remaining words for the settings."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    own: set[str] = set()
    rest: list[str] = []
    words = iter(argv[:end])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag == "--only":
            part = value if equals else next(words, "")
            if part not in PARTS:
                raise UsageError(f"--only: {part!r} is not one of {', '.join(PARTS)}")
            own.add(part)
        elif word in ("-h", "--help", "--all", "--strict"):
            own.add(word)
        else:
            rest.append(word)
    return own, [*rest, *argv[end:]]


def _print_warnings(warnings: list[str], part: str) -> None:
    if part:
        for line in warnings:
            reports.write_stderr(f"kirsch: {line}")
    elif warnings:
        print_output("\n  ".join(["\nWarnings", *warnings]))


class _Refused:
    """Collects the errors that serving would report, a line for each, and the exit status that it would have."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.status = 0
        self._causes: list[BaseException] = []

    def trial(self, attempt: Callable[..., T], *arguments: Any) -> T | None:
        """Return the result of ``attempt``, or record its exception and return None."""
        try:
            return attempt(*arguments)
        except (UsageError, bootstrap.StartupError, OSError, ValueError, ImportError) as error:
            self.add(error)
            return None

    def add(self, error: Exception) -> None:
        status = bootstrap.EXIT_FAILED
        text = str(error)
        if isinstance(error, bootstrap.StartupError):
            status = error.status
            if error.cause is not None:
                self._causes.append(error.cause)
        elif isinstance(error, (UsageError, ValueError)):
            status = bootstrap.EXIT_USAGE
        elif isinstance(error, OSError):
            text = bootstrap.reason(error)
        # The status of wrong settings has priority, because serving finds them first.
        self.status = status if not self.status or status == bootstrap.EXIT_USAGE else self.status
        self.lines += text.splitlines()

    def tell(self) -> None:
        for cause in self._causes:
            reports.write_traceback(cause)
        for line in dict.fromkeys(self.lines):
            reports.write_stderr(f"kirsch: {line}")


def _settings(chosen: Settings, *, everything: bool) -> str:
    rows = chosen.rows()
    given = [row for row in rows if row[2] != "default"]
    defaults = [row for row in rows if row[2] == "default"]
    shown = f"Settings\n{table(given + defaults if everything else given, '  ')}"
    return shown if everything else f"{shown}\n  ({len(defaults)} more have their defaults; --all shows them)"


def _read_certificates(chosen: Settings, warnings: list[str], part: str) -> Terms | None:
    """Read and check the TLS files, and print their description. Raises ValueError with a line for each mistake."""
    files = TlsFiles(chosen.values)
    if not files:
        return None
    from kirsch import _native

    terms = files.read(new_secrets())
    certificates = _native.Certificates(terms)
    warnings += certificates.warnings()
    if not part:
        rows = [
            (each["path"], f"{each['key']}, until {time.strftime('%Y-%m-%d', time.gmtime(each['not_after']))}", names)
            for each in certificates.certificates()
            for names in [", ".join(each["names"])]
        ]
        missing = set(files.acme.names).difference(files.acme.present())
        rows += [(files.acme.certificate(name), "not obtained yet", name) for name in sorted(missing)]
        print_output(f"\nCertificates\n{table(rows, '  ')}")
    return terms


def _import(chosen: Settings, arguments: Arguments, terms: Terms | None) -> str | None:
    """Import the application and load its hooks like a worker, as the workers' user; return the application's name."""
    from kirsch.supervisor import privileges

    try:
        identity = privileges.identity(chosen.user, chosen.group)
    except ValueError as error:
        # The application must not run as a wrong user; report the problems that are found without running it.
        raise UsageError("\n".join([str(error), *bootstrap.find_import_problems(chosen, arguments)])) from None
    if chosen.target is None and not chosen.mounts:
        if not arguments.words:
            sources.require_application(chosen)
        return None
    privileges.become(identity, chosen.env)
    app, name = bootstrap.load_application(chosen)
    Hooks(chosen)
    server = bootstrap.make_server(app, chosen, reports.report_to_logging)
    server.tls_terms = terms
    server.check()
    return name


def _check_pid_file(path: str) -> None:
    from kirsch.supervisor.pid_file import PidFile

    PidFile(path).check()


def _sockets(chosen: Settings, refused: _Refused) -> list[tuple[str, str]]:
    """Return (address, purpose) for each address to listen on; add errors to ``refused``."""
    rows = []
    taken: dict[Any, str] = {}
    for text, purpose in [*((bind, "") for bind in chosen.bind), *((bind, "metrics") for bind in chosen.metrics_bind)]:
        bind = addresses.parse_bind(text)
        with_certificates = chosen.has_certificates and not purpose
        if bind.fd is not None or bind.name:
            rows.append((text, purpose or "has to be open already"))
        for url, family, address in refused.trial(sockets.probe, text, with_certificates) or ():
            rows.append((url, purpose))
            port = 0 if isinstance(address, str) else address[1]
            if port == 0 and not isinstance(address, str):
                continue  # each gets its own free port
            if (family, address) in taken:
                refused.add(
                    OSError(f"cannot listen on {text}: {taken[family, address]} asks for {url} too; omit one of them")
                )
            taken[family, address] = text
    return rows


def _labelled(chosen: Settings, mistakes: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{chosen.label(name)}: {mistake}" for name, mistake in mistakes]


def _mistakes(chosen: Settings) -> Iterator[tuple[str, str]]:
    """Yield (setting, explanation) for each value that is allowed but probably a mistake."""
    if 0 < chosen.keep_alive <= _IDLE_OF_PROXIES:
        yield (
            "keep_alive",
            (
                f"{chosen.keep_alive:g} s is not more than the {_IDLE_OF_PROXIES} s for which nginx "
                "and many load balancers keep idle connections; one of these in front may send a request just as its "
                "connection is closed; take 75s"
            ),
        )
    longest = max([chosen.timeout, *(limit for _, limit in chosen.timeout_paths)])
    if longest > chosen.graceful_timeout:
        name = "timeout" if chosen.timeout == longest else "timeout_paths"
        yield (
            name,
            (
                f"{longest:g} s is more than --graceful-timeout, {chosen.graceful_timeout:g} s; a request "
                "that takes so long is cut when its worker is stopped or replaced"
            ),
        )
    processors = os.cpu_count() or 1
    if max(chosen.workers, chosen.max_workers) > 8 * processors:
        name = "workers" if chosen.workers > 8 * processors else "max_workers"
        yield (
            name,
            (
                f"{getattr(chosen, name)} processes for {processors} processors cost memory and are no "
                "faster; --threads is for applications that wait"
            ),
        )
    somaxconn = _number_in("/proc/sys/net/core/somaxconn", chosen.backlog)
    if chosen.backlog > somaxconn and chosen.origins["backlog"] != "default":
        yield "backlog", f"the kernel makes {somaxconn} of {chosen.backlog}; raise net.core.somaxconn first"
    if chosen.ready_path and chosen.ready_path == chosen.health_path:
        yield "ready_path", "it is --health-path too, which the server answers; give each a path of its own"
    places = [bind for bind in map(addresses.parse_bind, chosen.bind) if bind.protocol == addresses.HTTP]
    if chosen.acme and all(bind.path or addresses.is_loopback(bind.host) for bind in places):
        where = ", ".join(bind.text for bind in places)
        yield (
            "acme",
            (
                f"the authority cannot reach {where} unless something forwards port 80 or 443 to it; give --bind "
                "https://:443 --bind http://:80 --redirect-http"
            ),
        )


def _unread_file(chosen: Settings) -> Iterator[str]:
    """Yield a message about a settings file that is ignored because another was found first."""
    from kirsch.config.toml import PROJECT_FILE, read_file

    if chosen.file == os.path.abspath(os.path.join(chosen.directory, sources.FILE)):
        try:
            unread = read_file(PROJECT_FILE, chosen.directory)
        except UsageError:
            unread = None  # missing, or without a table for Kirsch
        if unread is not None:
            yield f"{PROJECT_FILE} has a table [tool.kirsch], which is not read while there is {sources.FILE}"


def _mistakes_of_application(chosen: Settings) -> Iterator[tuple[str, str]]:
    """Yield likely mistakes that can only be found after the application was imported."""
    for path in bootstrap.missing_directories(chosen):
        yield "pythonpath", f"there is no {path}; Python ignores such a directory"
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - as the engine takes it
    if chosen.limit_request_body > chosen.body_memory and not os.access(folder, os.W_OK | os.X_OK):
        yield (
            "body_memory",
            f"longer bodies go to files in {folder}, where this user cannot write; TMPDIR names another directory",
        )
    threads = len(sys._current_frames()) - 1
    if chosen.preload and threads:
        yield (
            "preload",
            (
                f"importing the application has started {threads} thread{'s' * (threads > 1)}, which will be "
                "missing in the workers; start threads at the first request, or do without --preload"
            ),
        )
    own = _own_memory()
    if 0 < chosen.max_memory < own * 1.2:
        yield (
            "max_memory",
            (
                f"{chosen.max_memory >> 20} MiB is hardly more than the {own >> 20} MiB that the application "
                "takes before its first request; workers would be replaced all the time"
            ),
        )


def _own_memory() -> int:
    """Return the bytes of memory that only this process uses (USS); 0 if the system does not report them."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii", errors="replace") as lines:
            return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_D")))
    except (OSError, ValueError):
        return 0


def _number_in(path: str, otherwise: int) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return otherwise
