"""Static files beside an application: ``kirsch --static /static=./files files:app``, from this folder.

The page is the application's, its style sheet the engine's. ``kirsch static compress files`` makes compressed copies,
which browsers get instead.
"""

PAGE = b"""<!doctype html>
<html lang="en"><title>Static files</title><link rel="stylesheet" href="/static/page.css">
<p>The engine has sent the style sheet. No Python has run for it.
"""


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(PAGE)))])
    return [PAGE]
