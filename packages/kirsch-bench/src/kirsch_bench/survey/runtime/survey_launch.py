"""Starts the servers that have no command of their own: ``survey_launch.py SERVER HOST PORT MODULE:APP THREADS``.

It runs in the server's own virtual environment, under any interpreter, and has nothing but the standard library of its
own. Logs of requests are turned off everywhere: what one server writes and another does not is no difference between
servers.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Load = Callable[[], Any]


def bjoern(host: str, port: int, load: Load, threads: int) -> None:
    """Run bjoern: one thread, libev."""
    importlib.import_module("bjoern").run(load(), host, port)


def fastpysgi(host: str, port: int, load: Load, threads: int) -> None:
    """Run FastPySGI: one thread, libuv."""
    importlib.import_module("fastpysgi").run(load(), host, port)


def cheroot(host: str, port: int, load: Load, threads: int) -> None:
    """Run cheroot: a pool of threads."""
    _keep_connections()
    importlib.import_module("cheroot.wsgi").Server((host, port), load(), numthreads=threads).start()


def cherrypy(host: str, port: int, load: Load, threads: int) -> None:
    """The whole framework: its own pages, with dispatcher, hooks and tools, on its own server. MODULE:APP only names
    the page."""
    _keep_connections()
    framework = importlib.import_module("cherrypy")
    apps = importlib.import_module("survey_apps")

    class Root:
        """The pages of CherryPy's own benchmark: hello and sizer, and the survey's others."""

        def index(self) -> Any:
            return page()

        def default(self, *path: str) -> Any:
            return page(*path)

        index.exposed = default.exposed = True  # type: ignore[attr-defined]

    def hello(*path: str) -> Any:
        return apps.HELLO

    def large(*path: str) -> Any:
        return apps.LARGE

    def sizer(*path: str) -> Any:
        return apps.sized("/".join(path))

    def echo(*path: str) -> Any:
        return framework.request.body.fp.read(framework.request.body.length or 0)

    page = {"hello": hello, "large": large, "sizer": sizer, "echo": echo}[sys.argv[4].rpartition(":")[2]]
    framework.config.update(
        {
            "server.socket_host": host,
            "server.socket_port": port,
            "server.thread_pool": threads,
            "environment": "production",
            "log.screen": False,
            "tools.response_headers.on": True,
            "tools.response_headers.headers": [("Content-Type", "text/plain")],
            "request.process_request_body": False,
        }
    )
    framework.log.access_log.propagate = False
    framework.quickstart(Root())


def gevent(host: str, port: int, load: Load, threads: int) -> None:
    """Run gevent.pywsgi: a greenlet for each connection."""
    importlib.import_module("gevent.monkey").patch_all()
    importlib.import_module("gevent.pywsgi").WSGIServer((host, port), load(), log=None).serve_forever()


def eventlet(host: str, port: int, load: Load, threads: int) -> None:
    """Run eventlet: a green thread for each connection."""
    package = importlib.import_module("eventlet")
    package.monkey_patch()
    listener = package.listen((host, port), backlog=2048)
    importlib.import_module("eventlet.wsgi").server(listener, load(), log_output=False)


def twisted(host: str, port: int, load: Load, threads: int) -> None:
    """Run Twisted's WSGI resource: a pool of threads behind a reactor."""
    reactor = importlib.import_module("twisted.internet.reactor")
    web = importlib.import_module("twisted.web.server")
    wsgi = importlib.import_module("twisted.web.wsgi")
    reactor.suggestThreadPoolSize(threads)
    site = web.Site(wsgi.WSGIResource(reactor, reactor.getThreadPool(), load()))
    reactor.listenTCP(port, site, interface=host, backlog=2048)
    reactor.run()


def twisted_resource(host: str, port: int, load: Load, threads: int) -> None:
    """Run a resource of twisted.web in the reactor's thread. MODULE:APP only names the page."""
    reactor = importlib.import_module("twisted.internet.reactor")
    web = importlib.import_module("twisted.web.server")
    resource = importlib.import_module("twisted.web.resource")
    body = _static_body()

    class Page(resource.Resource):  # type: ignore[name-defined,misc,unused-ignore]
        isLeaf = True

        def render_GET(self, request: Any) -> bytes:
            request.setHeader(b"content-type", b"text/plain")
            return body

    reactor.listenTCP(port, web.Site(Page()), interface=host, backlog=2048)
    reactor.run()


def tornado(host: str, port: int, load: Load, threads: int) -> None:
    """Run Tornado's WSGI container: one thread, one call at a time."""
    _tornado(host, port, importlib.import_module("tornado.wsgi").WSGIContainer(load()))


def tornado_handler(host: str, port: int, load: Load, threads: int) -> None:
    """Run a handler of Tornado. MODULE:APP only names the page."""
    web = importlib.import_module("tornado.web")
    body = _static_body()

    class Page(web.RequestHandler):  # type: ignore[name-defined,misc,unused-ignore]
        def get(self) -> None:
            self.set_header("Content-Type", "text/plain")
            self.write(body)

    _tornado(host, port, web.Application([(".*", Page)]))


def wsgiref(host: str, port: int, load: Load, threads: int) -> None:
    """Run wsgiref of the standard library: one connection at a time, HTTP/1.0."""
    simple_server = importlib.import_module("wsgiref.simple_server")

    class Handler(simple_server.WSGIRequestHandler):  # type: ignore[name-defined,misc,unused-ignore]
        def log_message(self, *args: object) -> None:
            pass

    simple_server.WSGIServer.request_queue_size = 2048
    simple_server.make_server(host, port, load(), handler_class=Handler).serve_forever()


def flup(host: str, port: int, load: Load, threads: int) -> None:
    """FastCGI for a web server in front. HOST and PORT are empty: the socket is descriptor 0."""
    server = importlib.import_module("flup.server.fcgi").WSGIServer
    # One connection takes one thread, and beyond maxThreads connections are closed unread: that is not bounded, as is
    # its default.
    server(load(), minSpare=threads, maxSpare=threads).run()


def flup_limited(host: str, port: int, load: Load, threads: int) -> None:
    """Do the same as ``flup`` with the founding document's limits: connections beyond these threads are closed
    unread."""
    server = importlib.import_module("flup.server.fcgi").WSGIServer
    server(load(), minSpare=threads, maxSpare=threads, maxThreads=threads).run()


def _keep_connections() -> None:
    """cheroot keeps ten connections. To all beyond it promises the same, and closes them under their next requests,
    which are lost."""
    importlib.import_module("cheroot.server").HTTPServer.keep_alive_conn_limit = 10_000


def _tornado(host: str, port: int, application: Any) -> None:
    logging.getLogger("tornado.access").disabled = True
    ioloop = importlib.import_module("tornado.ioloop")
    server = importlib.import_module("tornado.httpserver").HTTPServer(application)
    loop = importlib.import_module("asyncio").new_event_loop()
    importlib.import_module("asyncio").set_event_loop(loop)
    server.listen(port, host, backlog=2048)
    ioloop.IOLoop.current().start()


def _static_body() -> bytes:
    apps = importlib.import_module("survey_apps")
    body: bytes = {"hello": apps.HELLO, "large": apps.LARGE}[sys.argv[4].rpartition(":")[2]]
    return body


def main() -> None:
    """Start the server that the arguments name."""
    server, host, port, target, threads = sys.argv[1:6]
    sys.path.insert(0, os.getcwd())

    def load() -> Any:
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name or "application")

    globals()[server](host, int(port or 0), load, int(threads))


if __name__ == "__main__":
    main()
