"""``kirsch check``: the settings with the origin of each, what would be listened on, the application imported, and what
is likely to be a mistake. Nothing is bound, written or started.
"""

from __future__ import annotations

import os
import socket
import sys

from kirsch import assembly, configuration
from kirsch.answers import answer, table
from kirsch.hooks import Hooks
from kirsch.settings import UsageError
from kirsch.sockets import UNIX_PATH_MAX, parse_bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kirsch.settings import Settings
    from kirsch.sockets import Bind

HELP = """\
usage: kirsch check [--all] [--strict] [options] [module:app]

Shows the settings with the origin of each and what would be listened on, imports the application and every mount, and
points out what is likely to be a mistake. Nothing is bound, written or started. It takes every option that kirsch
takes, and:

  --all
        Show the settings that have their defaults too.
  --strict
        Exit with status 1 where there is a warning.

Exit status: 0 when the application is there, 1 where --strict found something or the driver is missing, 2 when the
settings are wrong, 3 when the application cannot be had."""

# What nginx (keepalive_timeout of an upstream) and AWS's load balancers have by default, in seconds.
_IDLE_OF_PROXIES = 60

_CAP_NET_BIND_SERVICE = 1 << 10  # capabilities(7)

_LISTENS_FROM_1024 = 1024  # ip(7), ip_unprivileged_port_start


def main(argv: Sequence[str]) -> int:
    """Run the subcommand with what follows its name, and return its exit status.

    Raises UsageError and AssemblyError, for :func:`kirsch.cli.main` to tell.
    """
    end = list(argv).index("--") if "--" in argv else len(argv)
    own = {"-h", "--help", "--all", "--strict"} & set(argv[:end])
    if own & {"-h", "--help"}:
        answer(HELP)
        return 0
    chosen = configuration.read([*(word for word in argv[:end] if word not in own), *argv[end:]])
    configuration.require_application(chosen)
    answer(f"Settings\n{_settings(chosen, everything='--all' in own)}")
    assembly.change_directory(chosen)
    warnings = [*chosen.warnings, *_labelled(chosen, _mistakes(chosen)), *_trouble_elsewhere(chosen)]
    answer(f"\nSockets\n{table(_sockets(chosen, warnings), '  ')}")
    try:
        name = _import(chosen)
        warnings += _labelled(chosen, _mistakes_of_application(chosen))
    finally:
        if warnings:
            answer("\n  ".join(["\nWarnings", *warnings]))
    number = f", with {len(warnings)} warning{'s' * (len(warnings) > 1)}" if warnings else ""
    answer(f"\n{name} is ok{number}")
    return assembly.EXIT_FAILED if warnings and "--strict" in own else 0


def _settings(chosen: Settings, *, everything: bool) -> str:
    rows = chosen.rows()
    given = [row for row in rows if row[2] != "default"]
    defaults = [row for row in rows if row[2] == "default"]
    shown = table(given + defaults if everything else given, "  ")
    return shown if everything else f"{shown}\n  ({len(defaults)} more have their defaults; --all shows them)"


def _import(chosen: Settings) -> str:
    """Import the application and load its hooks as a worker would, and return its name."""
    os.environ.update(chosen.env)
    name = assembly.load_application(chosen)[1]
    Hooks(chosen)
    return name


def _sockets(chosen: Settings, warnings: list[str]) -> list[tuple[str, str]]:
    """(Address, what for) of everything that would be listened on; what keeps it from that goes to ``warnings``."""
    rows = []
    for text, purpose in [*((bind, "") for bind in chosen.bind), *((bind, "metrics") for bind in chosen.metrics_bind)]:
        bind = parse_bind(text)
        if bind.path:
            path = os.path.abspath(bind.path)
            rows.append((f"unix:{path}", purpose))
            warnings += (f"{text}: {trouble}" for trouble in _unix_trouble(path))
        elif bind.fd is not None or bind.name:
            rows.append((text, purpose or "has to be open already"))
        else:
            rows += ((url, purpose) for url in _resolved(bind, warnings))
    return rows


def _resolved(bind: Bind, warnings: list[str]) -> Iterator[str]:
    try:
        found = socket.getaddrinfo(bind.host or None, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        warnings.append(f"{bind.text}: no address is known for {bind.host!r}; check the spelling, or bind 0.0.0.0")
        return
    missing = []
    for family, host in dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found):
        if _is_ours(family, host):
            yield f"http://[{host}]:{bind.port}" if ":" in host else f"http://{host}:{bind.port}"
        else:
            missing.append(host)
    if len(missing) == len(found):
        warnings.append(f"{bind.text}: this machine has no address {missing[0]}; `ip address` lists those it has")
    elif 0 < bind.port < _first_free_port() and not _may_bind_every_port():
        warnings.append(f"{bind.text}: this user may not bind port {bind.port}; take one from {_first_free_port()} up")


def _is_ours(family: int, host: str) -> bool:
    """Whether this machine has the address: it lends any port of it, for a moment."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _first_free_port() -> int:
    """The lowest port that everybody may bind."""
    return _number_in("/proc/sys/net/ipv4/ip_unprivileged_port_start", _LISTENS_FROM_1024)


def _may_bind_every_port() -> bool:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
        return bool(int(effective, 16) & _CAP_NET_BIND_SERVICE)
    except (OSError, StopIteration):
        return os.geteuid() == 0


def _unix_trouble(path: str) -> Iterator[str]:
    import stat

    length = len(os.fsencode(path))
    if length > UNIX_PATH_MAX:
        yield f"{path} has {length} bytes, and a socket's path at most {UNIX_PATH_MAX}; choose a shorter one"
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            yield f"{path} exists and is not a socket; move it away or choose another path"
    except OSError:
        pass  # there is none yet, or what is wrong is said of the directory
    if trouble := _directory_trouble(path):
        yield trouble


def _labelled(chosen: Settings, mistakes: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{chosen.label(name)}: {mistake}" for name, mistake in mistakes]


def _mistakes(chosen: Settings) -> Iterator[tuple[str, str]]:
    """(Setting, what about it) for each value that can be meant and probably is not."""
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
    for name in ("access_logfile", "error_logfile", "pid_file"):
        path = getattr(chosen, name)
        # As root, logs are given to the user that they are for.
        if path not in ("", "-") and (trouble := _file_trouble(os.path.abspath(path))):
            yield name, trouble


def _trouble_elsewhere(chosen: Settings) -> Iterator[str]:
    """A line for each thing outside of the settings that is not as they want it."""
    yield from _identity_trouble(chosen)
    yield from _unread_file(chosen)


def _identity_trouble(chosen: Settings) -> Iterator[str]:
    if not chosen.user and not chosen.group:
        return
    from kirsch.supervisor import privileges

    try:
        privileges.identity(chosen.user, chosen.group)
    except ValueError as error:
        yield str(error)


def _file_trouble(path: str) -> str:
    """What keeps this process from writing the file, or nothing."""
    if os.path.isdir(path):
        return f"{path} is a directory"
    if os.path.exists(path):
        return "" if os.access(path, os.W_OK) else f"this user may not write {path}"
    return _directory_trouble(path)


def _directory_trouble(path: str) -> str:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"there is no directory {directory}; create it first"
    return "" if os.access(directory, os.W_OK | os.X_OK) else f"this user may not write in {directory}"


def _unread_file(chosen: Settings) -> Iterator[str]:
    """A settings file that lies where one is looked for, behind the one that was found."""
    from kirsch.settings_file import PROJECT_FILE, read_file

    if chosen.file == os.path.abspath(os.path.join(chosen.directory, configuration.FILE)):
        try:
            unread = read_file(PROJECT_FILE, chosen.directory)
        except UsageError:
            unread = None  # not there, or not in use
        if unread is not None:
            yield f"{PROJECT_FILE} has a table [tool.kirsch], which is not read while there is {configuration.FILE}"


def _mistakes_of_application(chosen: Settings) -> Iterator[tuple[str, str]]:
    """What can be told only now that it is imported."""
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
    """Bytes of this process that nobody shares (USS); 0 where the system does not tell."""
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
