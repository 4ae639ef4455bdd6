"""The sources of settings (command line, environment, file), and the check which settings contradict each other. Flags
override the environment, the environment overrides the file, the file overrides gunicorn's flags in
``GUNICORN_CMD_ARGS``, and these override the default. :func:`read_again` repeats the reading: with the same command
line, the environment as it was, and the file as it is now.
"""

from __future__ import annotations

import os

from kirsch.config.arguments import Arguments
from kirsch.config.kinds import ON_OFF
from kirsch.config.schema import BY_NAME, SETTINGS, Settings
from kirsch.config.setting import GUNICORN_VARIABLE, PORT_VARIABLE, UsageError
from kirsch.net.addresses import parse_bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kirsch.config.setting import Setting
    from kirsch.config.toml import File

FILE = "kirsch.toml"
PROJECT_FILE = "pyproject.toml"
TARGET_VARIABLE = "KIRSCH_APP"

COMMAND_LINE = "command line"
"""The origin of what no flag names: the application."""

NO_APPLICATION = "which application? Name it, as in `kirsch hello:app`; kirsch --help tells more"


def read(
    argv: Sequence[str] | Arguments, environ: Mapping[str, str] = os.environ, directory: str | None = None
) -> Settings:
    """Read the settings from the command line (without the program's name), the environment, and the settings file. The
    paths of the file and of ``--chdir`` are relative to ``directory``, by default the current directory. Raises
    UsageError with a line for each mistake in all three sources.
    """
    if directory is None:
        directory = _current_directory(environ)
    arguments = argv if isinstance(argv, Arguments) else Arguments(argv)
    mistakes = [*arguments.mistakes, *_unknown_flags(arguments)]
    targets = arguments.targets
    if len(targets) > 1:
        mistakes.append(_several_targets(targets))
    given = {**_from_environment(environ), **arguments.given}
    file = _read_file(*given.get("config", ("", "")), directory, mistakes)
    target = _first_target(targets, environ, file)
    if file is not None:
        given = {**file.given, **given}
    warnings = [*_unknown_variables(environ), *_variables_of_others(environ)]
    if environ.get(GUNICORN_VARIABLE):
        warnings += _add_gunicorns(environ[GUNICORN_VARIABLE], given, mistakes)
    if "bind" not in given and environ.get(PORT_VARIABLE):
        _bind_to_port(environ[PORT_VARIABLE], given, mistakes)
    if "min_workers" in given and "workers" not in given:
        given["workers"] = given["min_workers"]
    wrong = _take_out_wrong(given, mistakes)
    settings = Settings(
        given,
        target,
        mounts=file.mounts if file is not None else (),
        file=file.path if file is not None else "",
        warnings=warnings,
        source=(tuple(arguments.argv), dict(environ), directory),
    )
    mistakes += [
        f"{settings.label(names[0])}: {mistake}"
        for names, mistake in _contradictions(settings)
        if not wrong.intersection(names)
    ]
    mistakes += _ambiguity(settings)
    if mistakes:
        error = UsageError("\n".join(dict.fromkeys(mistakes)))
        error.settings = settings
        raise error
    return settings


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    given = {}
    for each in SETTINGS:
        variable = next((name for name in each.variables if name in environ), None)
        if variable is not None:
            given[each.name] = (_variable_text(each, environ[variable]), variable)
    return given


def _add_gunicorns(text: str, given: dict[str, tuple[str, str]], mistakes: list[str]) -> list[str]:
    """Add to ``given`` the settings in ``GUNICORN_CMD_ARGS`` that no other source has; return warnings."""
    from kirsch.config.gunicorn_arguments import GunicornArguments

    arguments = GunicornArguments(text)
    mistakes += arguments.mistakes
    for name, value in arguments.given.items():
        # As in gunicorn, WEB_CONCURRENCY is only the default of --workers.
        if name not in given or given[name][1] in BY_NAME[name].variables[1:]:
            given[name] = value
    return arguments.warnings


def _bind_to_port(port: str, given: dict[str, tuple[str, str]], mistakes: list[str]) -> None:
    if port.isascii() and port.isdigit() and 0 < int(port) <= 65535:
        given["bind"] = (f"0.0.0.0:{port}", PORT_VARIABLE)
    else:
        mistakes.append(
            f"{PORT_VARIABLE}: {port!r} is not a port, a number from 1 to 65535; correct it, or give --bind"
        )


def _take_out_wrong(given: dict[str, tuple[str, str]], mistakes: list[str]) -> set[str]:
    """Remove invalid values from ``given``, with a line in ``mistakes`` for each; return the names of these
    settings."""
    wrong = set()
    for name, (text, origin) in list(given.items()):
        try:
            BY_NAME[name].value(text, origin)
        except UsageError as error:
            mistakes.append(str(error))
            wrong.add(name)
            del given[name]
    return wrong


def require_application(settings: Settings) -> None:
    """Raise UsageError if there is no application to serve."""
    if settings.target is None and not settings.mounts:
        raise UsageError(NO_APPLICATION)


def read_again(settings: Settings) -> Settings:
    """Read the settings of the same command again, because its file may have changed. Raises UsageError."""
    return read(*settings._source)


def changes(old: Settings, new: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of changed settings (with ``app`` and ``mounts``): those that a reload applies, and those
    that need a restart."""
    changed = [each.name for each in SETTINGS if getattr(old, each.name) != getattr(new, each.name)]
    applied = tuple(name for name in changed if not _is_fixed(name, old, new))
    if old.target != new.target:
        applied += ("app",)
    if [(str(mount), mount.factory) for mount in old.mounts] != [(str(mount), mount.factory) for mount in new.mounts]:
        applied += ("mounts",)
    return applied, tuple(name for name in changed if _is_fixed(name, old, new))


def reloaded(old: Settings, new: Settings) -> Settings:
    """Return ``new`` as a reload can apply it: settings that need a restart keep their values of ``old``."""
    fixed = {name for name in BY_NAME if _is_fixed(name, old, new)}
    given = {
        name: ((old if name in fixed else new)._texts[name], (old if name in fixed else new).origins[name])
        for name in BY_NAME
    }
    target = None if new.target is None else (new.target, new.origins["app"])
    return Settings(given, target, mounts=new.mounts, file=new.file, warnings=new.warnings, source=new._source)


def _is_fixed(name: str, old: Settings, new: Settings) -> bool:
    # Changing --workers from or to 0 adds or removes the supervisor.
    return BY_NAME[name].fixed or (name == "workers" and 0 in (old.workers, new.workers))


def _current_directory(environ: Mapping[str, str]) -> str:
    """Return the current directory by the shell's name for it, so that each reload follows a symbolic link to a
    release again; empty if the directory has been removed."""
    try:
        here = os.getcwd()
        named = environ.get("PWD", "")
        return named if os.path.isabs(named) and os.path.samefile(named, here) else here
    except OSError:
        return ""


def _variable_text(each: Setting, text: str) -> str:
    # The parser expects NUL between values. A variable cannot contain NUL, so each of its lines is a value.
    return text.replace("\n", "\0") if each.kind.separator == "\0" else text


def _read_file(name: str, origin: str, directory: str, mistakes: list[str]) -> File | None:
    """Read the file of ``--config``, or the one in ``directory``; None if there is none. Its mistakes are added to
    ``mistakes``."""
    if name:
        from kirsch.config.toml import read_file

        return read_file(name, directory, origin=origin, mistakes=mistakes)
    for name in (FILE, PROJECT_FILE):
        path = os.path.join(directory, name)
        if os.path.exists(path) and (name == FILE or _is_mentioned(path)):
            from kirsch.config.toml import read_file

            file = read_file(name, directory, mistakes=mistakes)
            if file is not None:
                return file
    return None


def _is_mentioned(path: str) -> bool:
    """Return whether a pyproject.toml may have a table for Kirsch. Most have none, and are not parsed."""
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
    """Yield a line for each variable that is named like a setting but is none."""
    known = {each.variable for each in SETTINGS} | {TARGET_VARIABLE}
    for name in environ:
        if name.startswith("KIRSCH_") and name not in known and not _is_anothers(name, environ[name]):
            from kirsch.config import compat
            from kirsch.suggest import did_you_mean

            hint = compat.variable_hint(name.removeprefix("KIRSCH_"))
            hint = f"; {hint}" if hint else did_you_mean(name, sorted(known), "KIRSCH_")
            yield f"{name} in the environment is no setting{hint or '; kirsch --help-all lists those there are'}"


def _variables_of_others(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each environment variable that another server would read."""
    for prefix in ("UVICORN_", "GRANIAN_", "UWSGI_", "FORWARDED_ALLOW_IPS"):
        if any(name.startswith(prefix) for name in environ):
            from kirsch.config import compat

            yield from compat.variables(environ)
            return


def _is_anothers(name: str, value: str) -> bool:
    """Return whether a variable belongs to the tests of Kirsch, or to Kubernetes for a service kirsch or kirsch-xyz."""
    import re

    if name == "KIRSCH_PORT":
        return "://" in value  # a bare number is meant for this server

    anothers = r"KIRSCH_TEST_\w+|\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
    return re.fullmatch(anothers, name) is not None


def _contradictions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (settings, message about the first of them) for each setting that has no effect with the others."""
    for each in SETTINGS:
        if each.needs and _is_changed(settings, each) and not getattr(settings, each.needs):
            yield (each.name, each.needs), f"it goes with {BY_NAME[each.needs].flags[-1]}, which is not set"
    least, workers, most = settings.min_workers, settings.workers, settings.max_workers
    if most:
        if least > most:
            yield ("min_workers", "max_workers"), f"{least} is more than --max-workers, {most}"
        elif not least <= workers <= most and workers:
            mistake = f"{workers} is not between --min-workers, {least}, and --max-workers, {most}"
            yield ("workers", "min_workers", "max_workers"), mistake
    yield from _contradictions_of_tls(settings)
    if workers == 0:
        needy = [each for each in SETTINGS if each.supervised and _is_changed(settings, each)]
        if needy:
            flags = ", ".join(each.flags[-1] for each in needy)
            verb, it = ("needs", "it") if len(needy) == 1 else ("need", "them")
            yield ("workers",), f"0 serves without a supervisor, which {flags} {verb}; omit {it}, or write 1"


def _contradictions_of_tls(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    if not settings.has_certificates and any(parse_bind(bind).encrypts for bind in settings.bind):
        yield ("bind",), "https needs a certificate; give --certfile and --keyfile, or write http instead"
    for name in ("redirect_http", "hsts"):
        if getattr(settings, name) and not settings.has_certificates:
            yield (name,), "it needs a certificate; give --certfile and --keyfile, or --acme"
    if settings.acme and not settings.acme_agree_tos:
        terms = "; those of Let's Encrypt are at https://letsencrypt.org/repository/"
        yield ("acme",), f"the authority demands that you agree to its terms of service: give --acme-agree-tos{terms}"
    if settings.acme_eab_kid and not settings.acme_eab_key:
        yield ("acme_eab_kid",), "its key is missing; give --acme-eab-key file:PATH"
    if settings.acme_staging and settings.acme_directory != BY_NAME["acme_directory"].default_value:
        yield ("acme_staging", "acme_directory"), "it is of Let's Encrypt; give --acme-directory alone"


def _is_changed(settings: Settings, each: Setting) -> bool:
    return bool(getattr(settings, each.name) != each.default_value)


def _ambiguity(settings: Settings) -> Iterator[str]:
    """Yield a line for each pair of applications at the same place."""
    root = [mount for mount in settings.mounts if not mount.path and not mount.host]
    if root and settings.target is not None:
        yield (
            f"{root[0].origin}: this mount is for every request, and so is the application {settings.target} "
            f"({settings.origins['app']}); omit one of them"
        )


def _several_targets(targets: list[str]) -> str:
    line = f"one application is served, and there are {len(targets)}: {' '.join(targets)}"
    if targets[0] in ("run", "serve", "start"):
        return f"{line}; write `kirsch {targets[1]}` without {targets[0]!r}"
    return f"{line}; omit the others, or give each a path with --mount /path=module:app"


def _unknown_flags(arguments: Arguments) -> Iterator[str]:
    """Yield a line for each unknown flag."""
    if not arguments.unknown:
        return
    from kirsch.config import compat
    from kirsch.suggest import did_you_mean

    known = [known for each in SETTINGS for known in (*each.flags, *each.negations) if known.startswith("--")]
    known += ["--help", "--help-all", "--version", *arguments.also]
    for flag, value in arguments.unknown:
        switched_off = next((each for each in SETTINGS if f"--no-{each.key}" == flag and each.kind is ON_OFF), None)
        hint = compat.hint(flag, value, arguments.argv) if switched_off is None else f"write --{switched_off.key} off"
        if hint:
            hint = f"; {hint}"
        elif flag.startswith("--"):
            hint = did_you_mean(flag, known, "--")
            if not hint and (text := compat.hint(flag, value, arguments.argv, stars=True)):
                hint = f"; {text}"
            hint = hint or compat.near(flag)
        yield f"there is no flag {flag}{hint or '; kirsch --help-all lists those there are'}"


def positionals(argv: Sequence[str]) -> list[int]:
    """Return the positions in ``argv`` of words that are neither flags nor values, for a subcommand that takes more
    words than the application."""
    return [index for index, _ in Arguments(argv).words]
