"""Where settings come from: the command line, the environment, a file; and what may be asked for together.

Flags win over the environment, the environment over the file, the file over the default. Reading can be repeated:
:func:`again` reads the same command line, the environment as it was, and the file as it is now.
"""

from __future__ import annotations

import argparse
import os

from kirsch.settings import COMMAND_LINE, SETTINGS, Settings, UsageError
from kirsch.values import did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from kirsch.settings import Setting
    from kirsch.settings_file import File

FILE = "kirsch.toml"
PROJECT_FILE = "pyproject.toml"
TARGET_VARIABLE = "KIRSCH_APP"

_BY_NAME = {each.name: each for each in SETTINGS}


def read(argv: Sequence[str], environ: Mapping[str, str] = os.environ, directory: str | None = None) -> Settings:
    """Settings from the command line (without the program's name), the environment, and the settings file.

    The file and ``--chdir`` are looked for from ``directory``, the current one unless given. Raises UsageError.
    """
    if directory is None:
        directory = _current_directory(environ)
    parsed, rest = _parser().parse_known_args(argv)
    targets = _targets(rest, argv)
    given: dict[str, tuple[str, str]] = {}
    for each in SETTINGS:
        flag_value = getattr(parsed, each.name, None)
        if flag_value is not None:
            given[each.name] = flag_value
        else:
            for variable in each.variables:
                if variable in environ:
                    given[each.name] = (_variable_text(each, environ[variable]), variable)
                    break
    file = _read_file(*given.get("config", ("", "")), directory)
    target = _first_target(targets, environ, file)
    if file is not None:
        given = {**file.given, **given}
    if "min_workers" in given and "workers" not in given:
        given["workers"] = given["min_workers"]
    settings = Settings(
        given,
        target,
        mounts=file.mounts if file is not None else (),
        file=file.path if file is not None else "",
        warnings=list(_unknown_variables(environ)),
        source=(tuple(argv), dict(environ), directory),
    )
    mistakes = [f"{settings.label(name)}: {mistake}" for name, mistake in _contradictions(settings)]
    mistakes += _ambiguity(settings)
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return settings


def require_application(settings: Settings) -> None:
    """Raise UsageError where there is nothing to serve."""
    if settings.target is None and not settings.mounts:
        raise UsageError("which application? Name it, as in `kirsch hello:app`; kirsch --help tells more")


def again(settings: Settings) -> Settings:
    """What the same command comes to now that its file may have changed. Raises UsageError."""
    return read(*settings._source)


def changes(old: Settings, new: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of what differs, ``app`` and ``mounts`` among them: what a reload applies, and what only a restart does."""
    changed = [each.name for each in SETTINGS if getattr(old, each.name) != getattr(new, each.name)]
    applied = tuple(name for name in changed if not _is_fixed(name, old, new))
    if old.target != new.target:
        applied += ("app",)
    if [(str(mount), mount.factory) for mount in old.mounts] != [(str(mount), mount.factory) for mount in new.mounts]:
        applied += ("mounts",)
    return applied, tuple(name for name in changed if _is_fixed(name, old, new))


def reloaded(old: Settings, new: Settings) -> Settings:
    """``new`` as a reload can apply it: what only a restart changes stays as it is in ``old``."""
    fixed = {name for name in _BY_NAME if _is_fixed(name, old, new)}
    given = {
        name: ((old if name in fixed else new)._texts[name], (old if name in fixed else new).origins[name])
        for name in _BY_NAME
    }
    target = None if new.target is None else (new.target, new.origins["app"])
    return Settings(given, target, mounts=new.mounts, file=new.file, warnings=new.warnings, source=new._source)


def _is_fixed(name: str, old: Settings, new: Settings) -> bool:
    # A supervisor is there or it is not.
    return _BY_NAME[name].fixed or (name == "workers" and 0 in (old.workers, new.workers))


def _current_directory(environ: Mapping[str, str]) -> str:
    """The current directory under the name that the shell has for it, so that a link to a release is followed anew
    at each reload; empty where it has been removed."""
    try:
        here = os.getcwd()
        named = environ.get("PWD", "")
        return named if os.path.isabs(named) and os.path.samefile(named, here) else here
    except OSError:
        return ""


def _variable_text(each: Setting, text: str) -> str:
    # What is separated by NUL on its way to the parser stands on lines in a variable, which cannot hold one.
    return text.replace("\n", each.separator) if each.separator == "\0" else text


def _read_file(name: str, origin: str, directory: str) -> File | None:
    """The file that ``--config`` names, or the one that lies in ``directory``."""
    if name:
        from kirsch.settings_file import read_file

        return read_file(name, directory, origin=origin)
    for name in (FILE, PROJECT_FILE):
        path = os.path.join(directory, name)
        if os.path.exists(path) and (name == FILE or _is_mentioned(path)):
            from kirsch.settings_file import read_file

            file = read_file(name, directory)
            if file is not None:
                return file
    return None


def _is_mentioned(path: str) -> bool:
    """Whether a pyproject.toml may have a table for us. Most only depend on us, and need not wait for a parser."""
    try:
        with open(path, "rb") as file:
            text = file.read().translate(None, b" \t\"'")
    except OSError:
        return False
    return b"tool.kirsch" in text or ((b"[tool]" in text or b"tool={" in text) and b"kirsch" in text)


def _first_target(targets: list[str], environ: Mapping[str, str], file: File | None) -> tuple[str, str] | None:
    if targets:
        return targets[0], COMMAND_LINE
    if environ.get(TARGET_VARIABLE):
        return environ[TARGET_VARIABLE], TARGET_VARIABLE
    return file.target if file is not None else None


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that looks like a setting and is none."""
    known = {each.variable for each in SETTINGS} | {TARGET_VARIABLE}
    for name in environ:
        if name.startswith("KIRSCH_") and name not in known and not _is_anothers(name):
            hint = did_you_mean(name, known, "KIRSCH_") or "; kirsch --help lists those there are"
            yield f"{name} in the environment is no setting{hint}"


def _is_anothers(name: str) -> bool:
    """Whether it is for the tests of Kirsch, or set by Kubernetes for a service called kirsch or kirsch-something."""
    import re

    anothers = r"KIRSCH_TEST_\w+|\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
    return re.fullmatch(anothers, name) is not None


def _contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """(Setting, what about it) for each that has no meaning beside the others."""
    for name, limit in (
        ("max_requests_jitter", "max_requests"),
        ("max_lifetime_jitter", "max_lifetime"),
        ("reload_extra_files", "reload"),
        ("min_workers", "max_workers"),
        ("before_fork", "preload"),
        ("after_fork", "preload"),
    ):
        if getattr(settings, name) != _BY_NAME[name].parse(_BY_NAME[name].default) and not getattr(settings, limit):
            yield name, f"it goes with {_BY_NAME[limit].flags[-1]}, which is not set"
    if settings.max_workers:
        if settings.min_workers > settings.max_workers:
            yield ("min_workers", f"{settings.min_workers} is more than --max-workers, {settings.max_workers}")
        elif not settings.min_workers <= settings.workers <= settings.max_workers and settings.workers:
            yield (
                "workers",
                (
                    f"{settings.workers} is not between --min-workers, {settings.min_workers}, "
                    f"and --max-workers, {settings.max_workers}"
                ),
            )
    if settings.workers == 0:
        needy = [
            each for each in SETTINGS if each.supervised and getattr(settings, each.name) != each.parse(each.default)
        ]
        if needy:
            flags = ", ".join(each.flags[-1] for each in needy)
            verb, it = ("needs", "it") if len(needy) == 1 else ("need", "them")
            yield "workers", f"0 serves without a supervisor, which {flags} {verb}; leave {it} away, or write 1"


def _ambiguity(settings: Settings) -> Iterator[str]:
    """A line where two applications are for the same requests."""
    root = [mount for mount in settings.mounts if not mount.path and not mount.host]
    if root and settings.target is not None:
        yield (
            f"{root[0].origin}: this mount is for every request, and so is the application {settings.target} "
            f"({settings.origins['app']}); leave one of them away"
        )


def _targets(rest: list[str], argv: Sequence[str]) -> list[str]:
    """The application among what argparse did not know; whatever else is there is a mistake."""
    flags_end = rest.index("--") if "--" in rest else len(rest)
    for word in rest[:flags_end]:
        if word.startswith("-") and word != "-":
            raise UsageError(_unknown_flag(word.partition("=")[0], argv))
    targets = rest[:flags_end] + rest[flags_end + 1 :]
    if len(targets) > 1:
        raise UsageError(f"one application is served, and there are {len(targets)}: {' '.join(targets)}")
    return targets


def _unknown_flag(flag: str, argv: Sequence[str]) -> str:
    from kirsch import foreign

    known = [known for each in SETTINGS for known in (*each.flags, *each.negations) if known.startswith("--")]
    known += ["--help", "--version"]
    hint = foreign.hint(flag, argv)
    hint = f"; {hint}" if hint else did_you_mean(flag, known, "--") if flag.startswith("--") else ""
    return f"there is no flag {flag}{hint or '; kirsch --help lists those there are'}"


def positionals(argv: Sequence[str]) -> list[int]:
    """Where in ``argv`` words stand that are neither flags nor their values, for a subcommand that takes more than the
    application. Raises UsageError."""
    found = []
    for index, word in enumerate(argv):
        if not word.startswith("-") or word == "-":
            # A word is such a one if the parser, given all up to here, hands it back.
            rest = _parser().parse_known_args(argv[: index + 1])[1]
            if rest and rest[-1] is word:
                found.append(index)
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("expected one argument", "a value is missing")
        raise UsageError(message.replace("ignored explicit argument", "it stands alone, without"))


class _Formatter(argparse.HelpFormatter):
    """argparse makes one for each option; left to find the width itself, it imports shutil and all compressors."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def _set_color(self, *_: object, **__: object) -> None:
        """From CPython 3.14 on to choose colours imports inspect, and nothing is shown by this."""


class _Take(argparse.Action):
    """Keeps (text, flag) for a setting: the text to be parsed as the environment's is, the flag as its origin."""

    def __init__(self, *, each: Setting, switch: str = "", **kwargs: Any) -> None:
        super().__init__(nargs=0 if each.is_switch else None, **kwargs)
        self._each = each
        self._switch = switch

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, flag: str | None = None
    ) -> None:
        text = self._switch or str(values)
        before = getattr(namespace, self.dest)
        if before is not None and self._each.is_repeatable:
            text = before[0] + self._each.separator + text
        setattr(namespace, self.dest, (text, flag))


def _parser() -> argparse.ArgumentParser:
    """The options, without help texts for them and without the application, which argparse would take for missing
    when options come first (nargs="?")."""
    parser = _Parser(prog="kirsch", add_help=False, allow_abbrev=False, formatter_class=_Formatter)
    for each in SETTINGS:
        switch = "yes" if each.is_switch else ""
        parser.add_argument(*each.flags, dest=each.name, action=_Take, each=each, switch=switch)
        if each.is_switch:
            parser.add_argument(*each.negations, dest=each.name, action=_Take, each=each, switch="no")
    return parser
