"""The command ``flask kirsch``: Flask's command ``run``, its options, reloader and debugger, with Kirsch as the server.

Flask finds it by the entry point ``flask.commands``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from flask import cli
from flask.helpers import get_debug_flag

from kirsch import development, reports
from kirsch.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask.cli import ScriptInfo


@click.command("kirsch", short_help="Run a development server with Kirsch.")
@click.option("--host", "-h", default="127.0.0.1", help="The interface to bind to.")
@click.option("--port", "-p", default=5000, help="The port to bind to.")
@click.option("--cert", help="A certificate file for HTTPS, or adhoc for one that is made for this run.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="The key file of the certificate.")
@click.option("--reload/--no-reload", default=None, help="Restart when code changes. The default is that of --debug.")
@click.option("--debugger/--no-debugger", default=None, help="Show tracebacks. The default is that of --debug.")
@click.option("--with-threads/--without-threads", default=True, help="Serve requests at the same time.")
@click.option("--extra-files", type=cli.SeparatedPathType(), help="More files that restart the server.")
@click.option("--exclude-patterns", type=cli.SeparatedPathType(), help="Patterns of files that do not.")
@cli.pass_script_info
def kirsch_command(
    info: ScriptInfo,
    host: str,
    port: int,
    cert: str | None,
    key: str | None,
    reload: bool | None,
    debugger: bool | None,
    with_threads: bool,
    extra_files: Sequence[str] | None,
    exclude_patterns: Sequence[str] | None,
) -> None:
    """Run a local development server with Kirsch.

    The reloader and debugger are enabled by default with the '--debug' option. A production server is `kirsch
    module:app`.
    """
    from werkzeug.debug import DebuggedApplication
    from werkzeug.serving import is_running_from_reloader

    debug = get_debug_flag()
    reload = debug if reload is None else reload
    app = _load(info)
    if debug if debugger is None else debugger:
        app = DebuggedApplication(app, evalex=True)
    options: dict[str, Any] = {"access_logger": _log_access, **({} if with_threads else {"threads": 1})}
    options |= _tls(cert, key)
    bind = development.address(host, port)
    if not is_running_from_reloader():
        cli.show_server_banner(debug, info.app_import_path)
    if reload and not is_running_from_reloader():
        try:
            development.open_sockets(bind)
        except OSError as error:
            raise click.ClickException(error.strerror or str(error)) from None
    if not reload:
        _serve(app, bind, options)
        return
    from werkzeug._reloader import run_with_reloader

    run_with_reloader(lambda: _serve(app, bind, options), extra_files, exclude_patterns)


def _serve(app: Callable[..., Any], bind: str, options: dict[str, Any]) -> None:
    server = Server(app, development.binds(bind), **options)
    try:
        server.listen()
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from None
    click.secho(f" * Running on {', '.join(server.urls)}", err=True)
    click.echo("Press CTRL+C to quit", err=True)
    development.serve(server)


def _load(info: ScriptInfo) -> Callable[..., Any]:
    """Load and return the application. If loading fails while the reloader runs, return an application that raises the
    error."""
    from werkzeug.serving import is_running_from_reloader

    try:
        loaded: Callable[..., Any] = info.load_app()
        return loaded
    except Exception as error:
        if not is_running_from_reloader():
            raise
        click.echo(reports.traceback_text(error), err=True)
        failure = error

        def app(environ: object, start_response: object) -> Any:  # noqa: ARG001 - WSGI
            raise failure from None

        return app


def _tls(cert: str | None, key: str | None) -> dict[str, str]:
    if cert is None:
        return {}
    if cert == "adhoc":
        import tempfile

        from werkzeug.serving import make_ssl_devcert

        try:
            cert, key = make_ssl_devcert(os.path.join(tempfile.mkdtemp(), "adhoc"))
        except ImportError as error:
            raise click.ClickException(f"--cert adhoc needs pip install cryptography: {error}") from None
    return {"certfile": cert, **({"keyfile": key} if key else {})}


def _log_access(line: str, _atoms: dict[str, str]) -> None:
    click.echo(line, err=True)
