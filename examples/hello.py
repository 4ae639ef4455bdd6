"""Serve it with ``kirsch hello:app``, from this folder."""


def app(environ, start_response):
    # A WSGI application is a callable: it reads the request from `environ`, announces the status and the headers,
    # and returns the body as an iterable of bytes (PEP 3333).
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [b"Hello from Kirsch!\n"]
