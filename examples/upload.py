"""A form with a file, and what arrived: ``kirsch upload:app``, then open http://127.0.0.1:8000/ or
``curl -T somefile http://127.0.0.1:8000/``.

The body has arrived whole before the application is called, in memory or in an unlinked temporary file, so a slow
client does not delay others, and reading in pieces keeps the application small, however large the file is.
"""

import hashlib

PAGE = b"""<!doctype html>
<title>Upload</title>
<form method="post" enctype="multipart/form-data"><input type="file" name="file"><button>Send</button></form>
"""


def app(environ, start_response):
    method = environ["REQUEST_METHOD"]
    if method in ("GET", "HEAD"):
        start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        return [PAGE]
    if method not in ("POST", "PUT"):
        start_response("405 Method Not Allowed", [("Allow", "GET, HEAD, POST, PUT"), ("Content-Length", "0")])
        return []

    # Sent with a Content-Length or chunked, it is one stream here, and it ends where the body ends.
    size, digest = 0, hashlib.sha256()
    while block := environ["wsgi.input"].read(65536):
        size += len(block)
        digest.update(block)
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [b"%d bytes of request body, sha256 %s\n" % (size, digest.hexdigest().encode())]
