"""The command ``kirsch``: read the settings, load the application, listen, print three lines, serve.

Exit status: 0 for success; 1 if an address, a file or a driver is not available; 2 if the command line, the environment
or the settings file is wrong; 3 if the application cannot be loaded; 75 (``kirsch.server.EXIT_STUCK``) if a server
without a supervisor exited because a request was stuck. Each failure is one line on stderr. A traceback is only printed
for an exception of the application.
"""

from __future__ import annotations

import os
import sys

from kirsch import bootstrap, commands, reports
from kirsch.alone import serve_alone, version
from kirsch.apps import loading
from kirsch.bootstrap import EXIT_FAILED, EXIT_USAGE, StartupError
from kirsch.config import sources
from kirsch.config.arguments import HELP_ALL, VERSION, Arguments
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.config.schema import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: the arguments of the process); return its exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    loading.command_names = commands.names
    try:
        command = commands.find(argv[0]) if argv else None
        try:
            if command is not None:
                return command.main(argv[1:])
            return _main(argv)
        except UsageError as error:
            _say_lines(str(error).splitlines() if command is not None else _mistakes(error, argv))
            return EXIT_USAGE
    except commands.CommandError as error:
        reports.write_stderr(f"kirsch: {error}")
        return EXIT_USAGE
    except StartupError as error:
        reports.write_failure(str(error), "" if error.cause is None else reports.traceback_text(error.cause))
        return error.status
    except ImportError as error:
        from kirsch import installation

        problem = installation.problem_of(error)
        if problem is None:
            raise
        reports.write_failure(problem)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130  # during the start: 128 + SIGINT, as in shells


def _say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        reports.write_stderr(f"kirsch: {line}")


def _mistakes(error: UsageError, argv: Sequence[str]) -> list[str]:
    """Return the lines of ``error``, and further mistakes that are found without running the application."""
    lines = str(error).splitlines()
    if error.settings is None:
        return lines
    arguments = Arguments(argv)
    if len(arguments.targets) > 1:
        from kirsch.suggest import nearest

        if near := nearest(argv[0], commands.names()):
            return [f"there is no command {argv[0]}; did you mean `kirsch {near}`?"]
    return [*lines, *bootstrap.find_import_problems(error.settings, arguments)]


def _main(argv: Sequence[str]) -> int:
    arguments = Arguments(argv)
    if arguments.request:
        from kirsch.commands.help import help_all, help_text
        from kirsch.commands.output import print_output

        print_output(
            f"{version()})"
            if arguments.request == VERSION
            else help_all()
            if arguments.request == HELP_ALL
            else help_text()
        )
        return 0
    try:
        chosen = sources.read(arguments)
    except UsageError as error:
        if error.settings is not None and _checks(error.settings):
            return _check(error.settings, arguments, error)
        raise
    if _checks(chosen):
        return _check(chosen, arguments)
    for warning in chosen.warnings:
        reports.write_stderr(f"kirsch: {warning}")
    sources.require_application(chosen)
    bootstrap.change_directory(chosen)
    bootstrap.raise_descriptor_limit()
    status = serve_alone(chosen) if chosen.workers == 0 else _supervise(chosen)
    from kirsch.supervisor import process_exit

    process_exit.end_if_output_is_stuck(status)
    return status


def _checks(chosen: Settings) -> bool:
    """Return whether ``--check-config`` or ``--print-config`` selects ``kirsch check`` instead of serving."""
    return chosen.check_config or chosen.print_config


def _check(chosen: Settings, arguments: Arguments, error: UsageError | None = None) -> int:
    from kirsch.commands import check

    return check.check(chosen, arguments, check.part_of(chosen), error)


def _supervise(chosen: Settings) -> int:
    """Serve with a supervisor and workers. Returns the exit status, in each of these processes."""
    line = f"{version()}, pid {os.getpid()})"
    from kirsch.supervisor import forking
    from kirsch.supervisor.supervisor import supervise

    return forking.run(lambda: supervise(chosen, line))
