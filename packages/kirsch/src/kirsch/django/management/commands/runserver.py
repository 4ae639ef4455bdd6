"""``manage.py runserver`` with Kirsch: Django's command with its options, reloader and messages."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV
from django.utils.module_loading import import_string

from kirsch import development
from kirsch.server import Server

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.commands.runserver import Command as DjangoCommand
elif apps.is_installed("django.contrib.staticfiles"):
    from django.contrib.staticfiles.management.commands.runserver import Command as DjangoCommand
else:
    from django.core.management.commands.runserver import Command as DjangoCommand

_LOGGER = logging.getLogger("django.server")


class RunserverCommand(DjangoCommand):
    """The command. It serves ASGI if ASGI_APPLICATION is set and ``--wsgi`` is not given."""

    help = "Starts Kirsch as a web server for development, and also serves static files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add two flags to those of Django."""
        super().add_arguments(parser)
        interface = parser.add_mutually_exclusive_group()
        interface.add_argument(
            "--asgi",
            action="store_true",
            dest="use_asgi",
            default=None,
            help="Serves ASGI_APPLICATION, which is the default if that setting is there.",
        )
        interface.add_argument(
            "--wsgi", action="store_false", dest="use_asgi", default=None, help="Serves WSGI_APPLICATION."
        )

    def run(self, **options: Any) -> None:
        """Open the sockets before the reloader starts the child process that serves on them."""
        if options["use_reloader"] and os.environ.get(DJANGO_AUTORELOAD_ENV) != "true":
            try:
                # If the port is 0, use the port that the system has chosen in all child processes too.
                self.port: str = str(development.open_sockets(development.address(self.addr, int(self.port))))
            except OSError as error:
                self.stderr.write(f"Error: {error.strerror or error}")
                sys.exit(1)
        super().run(**options)

    def inner_run(self, *args: Any, **options: Any) -> None:
        """Serve with Kirsch in place of Django's own server."""
        self.server_cls = _server_class(options["use_threading"])
        super().inner_run(*args, **options)

    def get_handler(self, *args: Any, **options: Any) -> Any:
        """Return the application, wrapped by the handler of static files if these should be served."""
        use_asgi = options.get("use_asgi")
        if use_asgi is None:
            use_asgi = bool(getattr(settings, "ASGI_APPLICATION", None))
        if not use_asgi:
            return super().get_handler(*args, **options)
        path = getattr(settings, "ASGI_APPLICATION", None)
        if path:
            handler = import_string(path)
        else:
            from django.core.asgi import get_asgi_application

            handler = get_asgi_application()
        if options.get("use_static_handler") and (settings.DEBUG or options["insecure_serving"]):
            from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler

            return ASGIStaticFilesHandler(handler)
        return handler


def _server_class(use_threading: bool) -> type[Any]:
    """Return the server class for Django's ``run``."""
    threads = {} if use_threading else {"threads": 1}

    class KirschServer(_DevelopmentServer):
        options = threads

    return KirschServer


class _DevelopmentServer:
    """A class with the parts of WSGIServer's interface that Django's ``basehttp.run`` uses."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, server_address: tuple[str, int], _handler_class: object, ipv6: bool = False) -> None:  # noqa: ARG002
        self.binds = development.binds(development.address(*server_address))
        # Listen before Django prints the address, so that an error comes first.
        self.server = Server(_not_set, self.binds, access_logger=_log_access, **self.options)
        self.server.listen()
        where = self.server.addresses[0]
        self.server_port = where[1] if not isinstance(where, str) else 0

    def set_app(self, app: Any) -> None:
        """Serve ``app`` on the open sockets."""
        listeners = self.server._listeners
        self.server = Server(app, self.binds, access_logger=_log_access, **self.options)
        self.server.adopt(listeners)

    def serve_forever(self) -> None:
        """Serve until a signal or the reloader stops the server."""
        development.serve(self.server)


def _not_set(environ: object, start_response: object) -> Any:
    raise NotImplementedError


def _log_access(_line: str, atoms: dict[str, str]) -> None:
    """Log a request like Django's server, whose formatter colours the line by status."""
    status = int(atoms["s"]) if atoms["s"].isdigit() else 0
    level = logging.ERROR if status >= 500 else logging.WARNING if status >= 400 else logging.INFO
    extra = {"status_code": status, "server_time": time.strftime("%d/%b/%Y %H:%M:%S")}
    _LOGGER.log(level, '"%s" %s %s', atoms["r"], atoms["s"], atoms["B"], extra=extra)


Command = RunserverCommand
"""The name by which Django finds it."""
