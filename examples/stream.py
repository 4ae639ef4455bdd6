"""A response that is made while it is sent: ``kirsch stream:app``, then ``curl -N 'http://127.0.0.1:8000/?rows=1000000'``.

There is no Content-Length, so an HTTP/1.1 client gets the chunked coding. Each piece is asked for only when the client
has taken the ones before it: a slow reader costs no memory, and a reader who leaves ends the work.
"""

from urllib.parse import parse_qs


def app(environ, start_response):
    wanted = parse_qs(environ["QUERY_STRING"]).get("rows", ["10"])[0]
    if not wanted.isascii() or not wanted.isdecimal():
        start_response("400 Bad Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"rows is a number, as in ?rows=1000\n"]
    start_response("200 OK", [("Content-Type", "text/csv; charset=utf-8")])
    return rows(int(wanted))


def rows(count):
    try:
        yield b"number,square\n"
        for number in range(count):
            yield b"%d,%d\n" % (number, number * number)
    finally:
        # The server calls close() on what the application returned, whole or cut short; for a generator that ends here.
        print("done")
