"""The command ``kirsch``: read the settings, load the application, listen, print three lines, serve.

Exit status: 0 when it served or did what was asked; 1 when an address, a file or a driver is not available; 2 when the
command line, the environment or the settings file is wrong; 3 when the application cannot be loaded; 75
(``kirsch.server.EXIT_STUCK``) when a server without a supervisor exited because a request was stuck. Each failure is
one line on stderr. A traceback is only printed for an exception of the application.
"""

from __future__ import annotations

import os
import sys

from kirsch import bootstrap, commands, reports
from kirsch.apps import loading
from kirsch.bootstrap import EXIT_FAILED, EXIT_USAGE, StartupError
from kirsch.config import sources
from kirsch.config.arguments import HELP_ALL, VERSION, Arguments
from kirsch.config.setting import UsageError
from kirsch.net.certificates import TlsFiles, new_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.config.schema import Settings
    from kirsch.supervisor.resources import Resources


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: that of the process) and return its exit status."""
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
        return 130  # during start-up: 128 + SIGINT, as in shells


def _say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        reports.write_stderr(f"kirsch: {line}")


def _mistakes(error: UsageError, argv: Sequence[str]) -> list[str]:
    """Return the lines of ``error``, and further mistakes that can be found without running the application."""
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
            f"{_version()})"
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
    status = _serve_alone(chosen) if chosen.workers == 0 else _supervise(chosen)
    from kirsch.supervisor import process_exit

    process_exit.end_if_output_is_stuck(status)
    return status


def _version() -> str:
    from kirsch import _native

    version = _native.__version__
    implementation = {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, sys.implementation.name)
    return f"kirsch {version} ({implementation} {sys.version.split()[0]}"


def _checks(chosen: Settings) -> bool:
    """Return whether ``--check-config`` or ``--print-config`` asks for ``kirsch check`` instead of serving."""
    return chosen.check_config or chosen.print_config


def _check(chosen: Settings, arguments: Arguments, error: UsageError | None = None) -> int:
    from kirsch.commands import check

    return check.check(chosen, arguments, check.part_of(chosen), error)


def _serve_alone(chosen: Settings) -> int:
    """Serve in this process, without a supervisor: ``--workers 0``."""
    from kirsch.supervisor.resources import Resources

    resources = Resources(chosen, None)
    try:
        return _serve_with(resources, chosen)
    finally:
        resources.discard()


def _serve_with(resources: Resources, chosen: Settings) -> int:
    from kirsch.hooks import Hooks
    from kirsch.serving import Signals
    from kirsch.supervisor import privileges, process_exit, titles
    from kirsch.supervisor.notify import Notifier, leave_environment

    notifier = Notifier()
    leave_environment()
    files = TlsFiles(chosen.values)
    try:
        # Before the process becomes a user that cannot read the keys.
        terms = files.read(new_secrets()) if files else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    privileges.become(resources.identity, chosen.env)
    app, name = bootstrap.load_application(chosen)
    hooks = Hooks(chosen)
    titles.single(chosen.process_name or name)
    server = bootstrap.make_server(app, chosen, resources.errors)
    server.adopt(resources.listeners)
    server.tls_terms = terms
    urls = ", ".join(server.urls)

    def announce() -> None:
        reports.write_stderr(f"{_version()}, pid {os.getpid()})\nserving {name}\non {urls}")
        notifier.ready(f"serving {name}")

    hooks.call("worker_start", 0, 0)
    try:
        status = bootstrap.serve(Signals(server, resources.errors.reopen, owns_process=True), announce)
    finally:
        hooks.stop(0, 0, resources.errors)
    process_exit.limit_exit(server, status, chosen.shutdown_timeout)
    return status


def _supervise(chosen: Settings) -> int:
    """Serve with a supervisor and its workers. This returns in each of these processes."""
    version = f"{_version()}, pid {os.getpid()})"
    from kirsch.supervisor import forking
    from kirsch.supervisor.supervisor import supervise

    return forking.run(lambda: supervise(chosen, version))
