"""Serving in this process without a supervisor: ``--workers 0``, and :func:`kirsch.run`."""

from __future__ import annotations

import os
import sys

from kirsch import bootstrap, reports
from kirsch.config.setting import UsageError
from kirsch.net.certificates import TlsFiles, new_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.config.schema import Settings
    from kirsch.supervisor.resources import Resources


def version() -> str:
    """Return the versions of Kirsch and Python, for the first line of the log. The caller closes the parenthesis."""
    from kirsch import _native

    number = _native.__version__
    implementation = {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, sys.implementation.name)
    return f"kirsch {number} ({implementation} {sys.version.split()[0]}"


def serve_alone(chosen: Settings, app: Callable[..., Any] | None = None, *, owns_process: bool = True) -> int:
    """Serve in this process until a signal stops it; return the exit status. ``app`` replaces the application of the
    settings.

    Without ``owns_process`` the process continues afterwards: its title is unchanged, and the previous signal handlers
    are restored. Raises StartupError and UsageError.
    """
    from kirsch.supervisor.resources import Resources

    resources = Resources(chosen, None)
    try:
        return _serve_with(resources, chosen, app, owns_process)
    finally:
        resources.discard()


def _serve_with(resources: Resources, chosen: Settings, app: Callable[..., Any] | None, owns_process: bool) -> int:
    from kirsch.hooks import Hooks
    from kirsch.serving import Signals
    from kirsch.supervisor import privileges, process_exit, titles
    from kirsch.supervisor.notify import Notifier, leave_environment

    notifier = Notifier()
    leave_environment()
    files = TlsFiles(chosen.values)
    try:
        # Read the keys before the process switches to a user that cannot read them.
        terms = files.read(new_secrets()) if files else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    privileges.become(resources.identity, chosen.env)
    application, name = bootstrap.load_application(chosen) if app is None else (app, bootstrap.prepare_for(app, chosen))
    hooks = Hooks(chosen)
    if owns_process:
        titles.single(chosen.process_name or name)
    server = bootstrap.make_server(application, chosen, resources.errors)
    server.adopt(resources.listeners)
    server.tls_terms = terms
    urls = ", ".join(server.urls)

    def announce() -> None:
        reports.write_stderr(f"{version()}, pid {os.getpid()})\nserving {name}\non {urls}")
        notifier.ready(f"serving {name}")

    hooks.call("worker_start", 0, 0)
    try:
        status = bootstrap.serve(Signals(server, resources.errors.reopen, owns_process), announce)
    finally:
        hooks.stop(0, 0, resources.errors)
    if owns_process:
        process_exit.limit_exit(server, status, chosen.shutdown_timeout)
    return status
