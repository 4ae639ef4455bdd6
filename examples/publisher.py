"""mod_python's publisher on kirsch_web: the public functions of a module are pages.

    pip install ./packages/kirsch-web
    cd examples
    kirsch 'publisher:publish("published")'     # then open / and /greet?name=Ada

``published.py`` has the pages. The module is imported before the server takes requests, so no request waits for an
import, and SIGHUP puts a new version in its place.
"""

import importlib
import inspect
import types

import kirsch_web as web

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class Req:
    """What mod_python calls ``req``, as far as pages need it."""

    def __init__(self, request):
        self.method = request.method
        self.uri = request.path
        self.args = request.query_string or None
        self.headers_in = request.headers
        self.headers_out = request.response.headers
        self.content_type = None
        self.status = 200
        self.form = {name: list(values) for name, values in request.query.items()}
        if request.headers.get("Content-Type", "").startswith(FORMS):
            for name, values in (*request.form.fields.items(), *request.form.files.items()):
                self.form.setdefault(name, []).extend(values)
        self.written = []

    def write(self, text):
        self.written.append(text)


class Publisher:
    def __init__(self, module):
        self._module = module

    @web.get
    @web.post
    def default(self, *path):
        req = Req(web.current())
        page = self._find(path)
        fields = {name: values[0] if len(values) == 1 else values for name, values in req.form.items()}
        signature = inspect.signature(page)
        if not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
            # As in mod_python, a field that no parameter asks for is left out.
            fields = {name: value for name, value in fields.items() if name in signature.parameters}
        if "req" in signature.parameters:
            fields["req"] = req
        try:
            signature.bind(**fields)
        except TypeError as error:
            raise web.HTTPError(400, str(error)) from None
        result = page(**fields)
        text = "".join(req.written) + ("" if result is None else str(result))
        # mod_python looks at the text too where a page does not say what it is.
        kind = req.content_type or ("text/html" if "<html" in text[:100].lower() else "text/plain")
        response = web.current().response
        response.status = req.status
        response.headers["Content-Type"] = f"{kind}; charset=utf-8"
        return text

    def _find(self, path):
        """The function that a path leads to: of the module, or of an object in it."""
        found = self._module
        for name in path or ("index",):
            if name.startswith("_"):
                raise web.NotFound
            found = getattr(found, name, None)
            if found is None or isinstance(found, (types.ModuleType, type)):
                raise web.NotFound
        # A function that the module imports is no page, nor is a method that another module defines.
        is_function = isinstance(found, (types.FunctionType, types.MethodType))
        if not is_function or found.__module__ != self._module.__name__:
            raise web.NotFound
        return found


def publish(name):
    """An application of the pages of the module ``name``."""
    return web.App(Publisher(importlib.import_module(name)))
