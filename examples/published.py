"""Pages of mod_python's publisher: each function is a page. ``publisher.py`` serves them."""


def index(req):
    return "Hello World!\n"


def greet(req, name="World"):
    """``/greet?name=Ada``, or the same field in a form."""
    return f"<html><body>Hello {_escaped(name)}!</body></html>"


def count(req):
    req.content_type = "text/plain"
    req.headers_out["X-Method"] = req.method
    for number in range(3):
        req.write(f"{number}\n")


def _escaped(text):
    """No page: its name begins with an underscore."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
