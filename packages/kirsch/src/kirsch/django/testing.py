"""The Django part of the pytest fixture ``kirsch_server``: the application, the test database, the allowed hosts."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import connections
from django.test.utils import modify_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kirsch.development import LiveServer

_LOCK = threading.Lock()


def application_under_test() -> Callable[..., Any]:
    """Return the project's application (ASGI if only ASGI_APPLICATION is set), wrapped by the handler of static
    files."""
    with_static = "django.contrib.staticfiles" in settings.INSTALLED_APPS
    if getattr(settings, "ASGI_APPLICATION", None) and not settings.WSGI_APPLICATION:
        from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
        from django.utils.module_loading import import_string

        application = import_string(settings.ASGI_APPLICATION)
        return ASGIStaticFilesHandler(application) if with_static else application  # type: ignore[no-any-return]
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import get_internal_wsgi_application

    application = get_internal_wsgi_application()
    return StaticFilesHandler(application) if with_static else application  # type: ignore[no-any-return]


@contextlib.contextmanager
def shared_database(server: LiveServer) -> Iterator[None]:
    """Let the threads of ``server`` use this thread's connections to in-memory databases, which other connections
    cannot see. Meanwhile the server's address is an allowed host. The connections stay shared until the server ends,
    because its threads keep them.
    """
    ours = {alias: connections[alias] for alias in connections}
    shared = []

    def share(**_: Any) -> None:
        for alias, connection in ours.items():
            if connection.vendor == "sqlite" and connection.is_in_memory_db() and connections[alias] is not connection:
                with _LOCK:
                    if connection not in shared:
                        connection.inc_thread_sharing()
                        shared.append(connection)
                connections[alias] = connection

    def close(**_: Any) -> None:
        # A thread of the server continues, and the test database cannot be removed while a connection is open.
        for connection in connections.all(initialized_only=True):
            if connection not in shared:
                connection.close()

    # Django sends these signals in the thread that runs the view, with ASGI too.
    request_started.connect(share, weak=False)
    request_finished.connect(close, weak=False)
    try:
        with modify_settings(ALLOWED_HOSTS={"append": server.host}):
            yield
    finally:
        request_started.disconnect(share)
        request_finished.disconnect(close)
        for connection in shared:
            connection.dec_thread_sharing()
