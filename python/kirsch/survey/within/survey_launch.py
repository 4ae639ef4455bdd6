"""Starts the servers that have no command of their own: ``python survey_launch.py SERVER HOST PORT MODULE:APP THREADS``.

It runs in the server's own virtual environment, under any interpreter, and has nothing but the standard library of its
own. Logs of requests are turned off everywhere: what one server writes and another does not is no difference between
servers.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys


def bjoern(host, port, load, threads):  # type: ignore[no-untyped-def]
    """One thread, libev."""
    importlib.import_module("bjoern").run(load(), host, port)


def fastpysgi(host, port, load, threads):  # type: ignore[no-untyped-def]
    """One thread, libuv."""
    importlib.import_module("fastpysgi").run(load(), host, port)


def cheroot(host, port, load, threads):  # type: ignore[no-untyped-def]
    """A pool of threads."""
    importlib.import_module("cheroot.wsgi").Server((host, port), load(), numthreads=threads).start()


def cherrypy(host, port, load, threads):  # type: ignore[no-untyped-def]
    """The whole framework: its own pages, with dispatcher, hooks and tools, on its own server. MODULE:APP only names
    the page."""
    framework = importlib.import_module("cherrypy")
    apps = importlib.import_module("survey_apps")
    expose = framework.expose

    class Root:
        """The pages of CherryPy's own benchmark: hello and sizer, and the survey's others."""

        @expose
        def index(self):  # type: ignore[no-untyped-def]
            return page()

        @expose
        def default(self, *path):  # type: ignore[no-untyped-def]
            return page(*path)

    def hello(*path):  # type: ignore[no-untyped-def]
        return apps.HELLO

    def large(*path):  # type: ignore[no-untyped-def]
        return apps.LARGE

    def sizer(*path):  # type: ignore[no-untyped-def]
        return b"z" * (1024 * int(path[-1])) if path and path[-1].isdigit() else apps.HELLO

    def echo(*path):  # type: ignore[no-untyped-def]
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


def gevent(host, port, load, threads):  # type: ignore[no-untyped-def]
    """A greenlet for each connection."""
    importlib.import_module("gevent.monkey").patch_all()
    importlib.import_module("gevent.pywsgi").WSGIServer((host, port), load(), log=None).serve_forever()


def eventlet(host, port, load, threads):  # type: ignore[no-untyped-def]
    """A green thread for each connection."""
    package = importlib.import_module("eventlet")
    package.monkey_patch()
    listener = package.listen((host, port), backlog=2048)
    importlib.import_module("eventlet.wsgi").server(listener, load(), log_output=False)


def twisted(host, port, load, threads):  # type: ignore[no-untyped-def]
    """A pool of threads behind a reactor."""
    reactor = importlib.import_module("twisted.internet.reactor")
    web = importlib.import_module("twisted.web.server")
    wsgi = importlib.import_module("twisted.web.wsgi")
    reactor.suggestThreadPoolSize(threads)
    site = web.Site(wsgi.WSGIResource(reactor, reactor.getThreadPool(), load()))
    reactor.listenTCP(port, site, interface=host, backlog=2048)
    reactor.run()


def twisted_resource(host, port, load, threads):  # type: ignore[no-untyped-def]
    """twisted.web's own kind of page, in the reactor's thread. MODULE:APP only names the page."""
    reactor = importlib.import_module("twisted.internet.reactor")
    web = importlib.import_module("twisted.web.server")
    resource = importlib.import_module("twisted.web.resource")
    body = _static_body()

    class Page(resource.Resource):  # type: ignore[name-defined,misc]
        isLeaf = True

        def render_GET(self, request):  # type: ignore[no-untyped-def]
            request.setHeader(b"content-type", b"text/plain")
            return body

    reactor.listenTCP(port, web.Site(Page()), interface=host, backlog=2048)
    reactor.run()


def tornado(host, port, load, threads):  # type: ignore[no-untyped-def]
    """Its bridge to WSGI: one thread, one call after the other."""
    _tornado(host, port, importlib.import_module("tornado.wsgi").WSGIContainer(load()))


def tornado_handler(host, port, load, threads):  # type: ignore[no-untyped-def]
    """Its own kind of page. MODULE:APP only names the page."""
    web = importlib.import_module("tornado.web")
    body = _static_body()

    class Page(web.RequestHandler):  # type: ignore[name-defined,misc]
        def get(self):  # type: ignore[no-untyped-def]
            self.set_header("Content-Type", "text/plain")
            self.write(body)

    _tornado(host, port, web.Application([(".*", Page)]))


def wsgiref(host, port, load, threads):  # type: ignore[no-untyped-def]
    """The standard library's: one connection after the other, HTTP/1.0."""
    simple_server = importlib.import_module("wsgiref.simple_server")

    class Handler(simple_server.WSGIRequestHandler):  # type: ignore[name-defined,misc]
        def log_message(self, *args):  # type: ignore[no-untyped-def]
            pass

    simple_server.WSGIServer.request_queue_size = 2048
    simple_server.make_server(host, port, load(), handler_class=Handler).serve_forever()


def flup(host, port, load, threads):  # type: ignore[no-untyped-def]
    """FastCGI for a web server in front. HOST and PORT are empty: the socket is descriptor 0."""
    server = importlib.import_module("flup.server.fcgi").WSGIServer
    server(load(), bindAddress=port or None, maxThreads=threads, minSpare=threads, maxSpare=threads).run()


def _tornado(host, port, application):  # type: ignore[no-untyped-def]
    logging.getLogger("tornado.access").disabled = True
    ioloop = importlib.import_module("tornado.ioloop")
    server = importlib.import_module("tornado.httpserver").HTTPServer(application)
    loop = importlib.import_module("asyncio").new_event_loop()
    importlib.import_module("asyncio").set_event_loop(loop)
    server.listen(port, host, backlog=2048)
    ioloop.IOLoop.current().start()


def _static_body():  # type: ignore[no-untyped-def]
    apps = importlib.import_module("survey_apps")
    return {"hello": apps.HELLO, "large": apps.LARGE}[sys.argv[4].rpartition(":")[2]]


def main():  # type: ignore[no-untyped-def]
    """Start one."""
    server, host, port, target, threads = sys.argv[1:6]
    sys.path.insert(0, os.getcwd())

    def load():  # type: ignore[no-untyped-def]
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name or "application")

    globals()[server](host, int(port) if port.isdigit() else port, load, int(threads))


if __name__ == "__main__":
    main()
