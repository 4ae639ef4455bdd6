"""``kirsch help``: the texts of ``kirsch --help`` and ``kirsch --help-all``, of a command, a setting or a guide."""

from __future__ import annotations

from kirsch import commands
from kirsch.commands.output import print_output
from kirsch.config.schema import BY_NAME, SETTINGS
from kirsch.config.sections import SECTIONS
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run ``kirsch help`` with the words after its name; return its exit status. Raises UsageError and CommandError."""
    topic = argv[0] if argv else ""
    if topic in ("", "all", "help"):
        print_output(help_all() if topic == "all" else help_text())
        return 0
    from kirsch.commands import guides

    if topic == "topics":
        print_output(_topic_list())
    elif topic in guides.topics():
        _print_guide(topic, list(argv[1:]))
    elif topic not in commands.names() and (setting := _setting(topic)) is not None:
        print_output(setting)
    else:
        return _command(topic).main(["--help"])
    return 0


def _command(topic: str) -> commands.Command:
    """Return the command ``topic``. Raises UsageError, with similar names, if there is none."""
    command = commands.find(topic)
    if command is None:
        from kirsch.commands import guides
        from kirsch.suggest import did_you_mean

        near = did_you_mean(topic, {*commands.names(), *guides.topics(), *BY_NAME})
        near = near or f"; there are {', '.join(commands.installed())}; kirsch help topics lists the guides"
        raise UsageError(f"there is no command, setting or guide {topic}{near}")
    return command


def _topic_list() -> str:
    from kirsch.commands import guides
    from kirsch.commands.output import table

    rows = table(list(guides.topics().items()), "  ")
    return f"Guides (kirsch help TOPIC; kirsch help TOPIC WORD shows the sections about a word):\n\n{rows}"


def _print_guide(topic: str, words: list[str]) -> None:
    """Print a guide, through the pager if on a terminal. Raises UsageError if no section matches ``words``."""
    import shutil
    import sys

    from kirsch.commands import guides

    terminal = sys.stdout.isatty()
    width = max(40, min(shutil.get_terminal_size().columns, 88))
    text = guides.guide(topic, words, width=width, bold=terminal)
    if not text:
        raise UsageError(
            f"the guide {topic} has no section about {' '.join(words)}; kirsch help {topic} shows all of it"
        )
    if terminal:
        import os
        import pydoc

        os.environ.setdefault("LESS", "FR")  # no pager for text that fits the screen; bold headings
        pydoc.pager(f"{text}\n")
    else:
        print_output(text)


def _setting(topic: str) -> str | None:
    """Return the description of a setting, by its name or flag; None if there is none."""
    import textwrap

    for each in SETTINGS:
        if topic == each.name or topic.replace("-", "_") == each.name or topic in (*each.flags, *each.negations):
            flags = ", ".join([*each.flags, *each.negations])
            default = f"default {each.default_and_bounds}; " if each.default_and_bounds else ""
            wrapped = textwrap.fill(each.prose, 80, break_on_hyphens=False, break_long_words=False)
            return f"{flags} {each.metavar}".rstrip() + f"\n[{default}{', '.join(each.variables)}]\n\n{wrapped}"
    return None


HELP = """\
usage: kirsch [options] module:app
{commands}

Serve the WSGI or ASGI application `app` of `module` over HTTP/1.1.

  kirsch hello:app              the object app of hello.py, on 127.0.0.1:8000
  kirsch hello                  the same: app, or application, or create_app()
  kirsch path/to/hello.py       the same, of this file
  kirsch 'hello:make("prod")'   what this function returns

{flags}

  -h, --help        print this; --help-all: all {count} settings; -v: the
                    version
  kirsch help COMMAND           what a command is for, and takes
  kirsch help topics            the guides, such as kirsch help deployment

Each flag has a variable of the environment, --workers is KIRSCH_WORKERS, and a
key in kirsch.toml or [tool.kirsch] of pyproject.toml. A flag wins over the
variable, the variable over the file."""

_COMMON = (
    "bind", "workers", "threads", "driver", "timeout", "reload", "mount", "factory", "config", "access_logfile",
    "log_level", "metrics_bind", "check_config",
)  # fmt: skip
"""The settings in the short help, in its order: those that most people look for."""


def help_text() -> str:
    """Return the text of ``kirsch --help``: a screen of 80 columns with the most important settings."""
    rows = []
    for each in (BY_NAME[name] for name in _COMMON):
        # Show the first short flag and Kirsch's long flag; --help-all has the names of other servers too.
        flags = [*(flag for flag in each.flags[:1] if flag[1] != "-"), each.flags[-1]]
        rows.append((f"{', '.join(flags)} {each.metavar}".strip(), each.summary))
    width = max(len(flags) for flags, _ in rows)
    lines = "\n".join(f"  {flags:{width}}  {prose}" for flags, prose in rows)
    return HELP.format(commands=_command_lines([*commands.installed()]), flags=lines, count=len(SETTINGS))


def _command_lines(names: list[str]) -> str:
    """Return the usage of the commands, in lines of at most 80 columns."""
    lines = ["       kirsch "]
    for name in names:
        word = f"{name} ..." if name == names[-1] else f"{name}|"
        if len(lines[-1]) + len(word) > 80:
            lines.append(" " * 14)
        lines[-1] += word
    return "\n".join(lines)


def help_all() -> str:
    """Return the text of ``kirsch --help-all``: the commands, and all settings by section, with defaults and
    variables."""
    import shutil
    import textwrap

    width = max(60, min(shutil.get_terminal_size().columns, 100))
    wrap = textwrap.TextWrapper(
        width, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )
    lines = [help_text(), "", "Commands (kirsch help COMMAND tells more):", ""]
    present = commands.installed()
    for name, command in present.items():
        lines += [f"  {name}", *wrap.wrap(command.summary)]
    if missing := commands.not_installed(present):
        lines += ["", *textwrap.wrap(missing, width, initial_indent="  ", subsequent_indent="  ")]
    for section, prose in SECTIONS.items():
        lines += ["", f"{section}:", *textwrap.wrap(prose, width, initial_indent="  ", subsequent_indent="  "), ""]
        for each in SETTINGS:
            if each.section == section:
                lines.append("  " + " ".join((", ".join(each.flags), each.metavar)).rstrip())
                default = f"default {each.default_and_bounds}; " if each.default_and_bounds else ""
                lines += wrap.wrap(f"{each.prose} [{default}{', '.join(each.variables)}]")
    return "\n".join(lines)
