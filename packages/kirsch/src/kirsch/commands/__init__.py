"""The subcommands of ``kirsch``, of this and of other distributions.

A distribution adds a command by an entry point in the group ``kirsch.commands``. Its name is the command, and it refers
to a :class:`Command`::

    [project.entry-points."kirsch.commands"]
    bench = "kirsch_bench.commands:BENCH"

Only the first argument can name a command: ``kirsch check:app`` and ``kirsch -w 2 check`` serve. Entry points are read
only for help, and if the first argument names neither a command nor a module: reading them takes longer than the rest
of a start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

GROUP = "kirsch.commands"


class Command:
    """A subcommand. ``module`` is imported when it runs, and has ``main(argv) -> int``: ``argv`` are the words after
    the command's name, the result is the exit status.

    ``main`` may raise :class:`kirsch.config.setting.UsageError` and :class:`kirsch.bootstrap.StartupError`. Each
    becomes a line on stderr and an exit status.
    """

    __slots__ = ("module", "summary", "takes_settings")

    def __init__(self, summary: str, module: str, *, takes_settings: bool = False) -> None:
        self.summary = summary
        """One sentence for the list of commands."""
        self.module = module
        self.takes_settings = takes_settings
        """True if it takes all settings of the server as flags, beside flags of its own."""

    def main(self, argv: Sequence[str]) -> int:
        """Run the command. Raises the exceptions of its module."""
        status: int = __import__(self.module, fromlist=["main"]).main(argv)
        return status


COMMANDS = {
    "check": Command(
        "Show the settings and where each is from, import the application, and point out likely mistakes.",
        "kirsch.commands.check",
        takes_settings=True,
    ),
    "certificates": Command(
        "Show the certificates, when they are renewed, and what has failed.",
        "kirsch.commands.certificates",
        takes_settings=True,
    ),
    "dev-cert": Command(
        "Make a local authority, and a certificate for localhost: kirsch dev-cert [NAME ...].",
        "kirsch.commands.dev_cert",
    ),
    "top": Command("Watch a running server: rates, latencies, workers, slow requests.", "kirsch.commands.top"),
    "quarantine": Command(
        "List the routes of a running server that have crashed workers and are refused; lift them.",
        "kirsch.commands.quarantine",
    ),
    "adopt": Command(
        "Write kirsch.toml from the configuration of another server: kirsch adopt Procfile; compare both.",
        "kirsch.adopt.command",
    ),
    "static": Command(
        "Make compressed copies of static files: kirsch static compress DIRECTORY.", "kirsch.commands.static"
    ),
    "completion": Command(
        "Print a script that completes commands, flags and values in bash, zsh or fish.", "kirsch.commands.completion"
    ),
    "man": Command("Print the manual page.", "kirsch.commands.man"),
    "help": Command(
        "Print help: kirsch help, kirsch help all, and about a COMMAND, a SETTING or a guide of kirsch help topics.",
        "kirsch.commands.help",
    ),
}
"""The commands of this distribution."""

EXTRAS = {"bench": "bench", "survey": "bench", "profile": "bench"}
"""Commands that an extra of this distribution installs, with the name of the extra. Applications cannot have these
names, whether the extra is installed or not."""


class CommandError(Exception):
    """Raised for a command that is not installed or cannot be loaded. The text is one line with advice."""


def find(word: str) -> Command | None:
    """Return the command ``word``, or None if there is none and the word names an application. Raises CommandError."""
    if word in COMMANDS:
        return COMMANDS[word]
    if word not in EXTRAS and (not _could_be_a_command(word) or _is_module(word)):
        return None
    for entry_point in _entry_points():
        if entry_point.name == word:
            return _load(entry_point)
    if word in EXTRAS:
        raise CommandError(f"kirsch {word} is not installed for this Python: pip install '{_requirement(word)}'")
    return None


def installed() -> dict[str, Command]:
    """Return all commands. One that cannot be loaded is included, and reports the reason when it runs."""
    found = dict(COMMANDS)
    help_command = found.pop("help")
    for entry_point in _entry_points():
        try:
            found.setdefault(entry_point.name, _load(entry_point))
        except CommandError as error:
            found.setdefault(entry_point.name, _Broken(str(error)))
    return {**found, "help": help_command}


def names() -> set[str]:
    """Return the names of all commands that are installed or available as an extra."""
    return {*COMMANDS, *EXTRAS, *(entry_point.name for entry_point in _entry_points())}


def not_installed(present: dict[str, Command]) -> str:
    """Return a sentence about the commands that an extra would add to ``present``; empty if none is missing."""
    missing = [name for name in EXTRAS if name not in present]
    if not missing:
        return ""
    requirements = " ".join(dict.fromkeys(f"'{_requirement(name)}'" for name in missing))
    return f"More commands, {', '.join(missing)}, come with: pip install {requirements}"


class _Broken(Command):
    """A command that cannot be loaded. It reports the reason when it runs."""

    __slots__ = ()

    def __init__(self, problem: str) -> None:
        super().__init__(problem, "")

    def main(self, argv: Sequence[str]) -> int:  # noqa: ARG002
        """Raise CommandError."""
        raise CommandError(self.summary)


def _could_be_a_command(word: str) -> bool:
    return word.replace("-", "_").isidentifier() and not word.startswith("-")


def _is_module(word: str) -> bool:
    """Return whether a module ``word`` exists, so that an installed command never hides an application."""
    import sys
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(word, ["", *sys.path])
    # A folder without __init__.py has no origin, and cannot contain an application.
    return spec is not None and spec.origin is not None


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda each: each.name)


def _load(entry_point: EntryPoint) -> Command:
    try:
        command = entry_point.load()
    except Exception as error:  # noqa: BLE001  # the module is another distribution's
        raise CommandError(_problem(entry_point, f"{type(error).__name__}: {error}")) from None
    if not isinstance(command, Command):
        raise CommandError(_problem(entry_point, f"{entry_point.value} is not a kirsch.commands.Command"))
    return command


def _problem(entry_point: EntryPoint, problem: str) -> str:
    whose = f" of {entry_point.dist.name}" if entry_point.dist is not None else ""
    return f"the command {entry_point.name}{whose} cannot be loaded: {' '.join(problem.split())}"


def _requirement(word: str) -> str:
    return f"kirsch[{EXTRAS[word]}]"
