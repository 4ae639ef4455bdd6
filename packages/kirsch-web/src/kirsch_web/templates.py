"""Pages from Jinja2 templates. Jinja2 is an optional dependency: ``pip install kirsch-web[templates]``."""

from __future__ import annotations

import os
from typing import Any

from kirsch_web.app import url
from kirsch_web.errors import ConfigError
from kirsch_web.request import current


class Templates:
    """The templates of a folder: ``pages = web.Templates("pages")``, then ``pages("book.html", title="Emma")``.

    Values are escaped in every template, whatever its file name. An undefined name raises an exception. Templates also
    have `request`, the current request, `url`, which is :func:`url`, and `csrf_token()`, the token for a form. Add
    filters and tests to ``environment``, the Jinja2 environment. Needs Jinja2: `pip install kirsch-web[templates]`.

    Args:
        folder: the folder of the templates, relative to the working directory.
        reload: whether a template is compiled again after its file has changed. This checks the template files of each
            page.
        names: values and functions that every template has.
    """

    def __init__(self, folder: str | os.PathLike[str], *, reload: bool = True, **names: Any) -> None:
        try:
            import jinja2
        except ImportError:
            raise ConfigError("web.Templates needs Jinja2: pip install 'kirsch-web[templates]'") from None
        if not os.path.isdir(folder):
            raise ConfigError(f"web.Templates: there is no folder {os.path.abspath(folder)}")
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            autoescape=True,
            auto_reload=reload,
            undefined=jinja2.StrictUndefined,
        )
        self.environment.globals.update({"url": url, "csrf_token": _csrf_token, **names})

    def __call__(self, template: str, /, **values: Any) -> str:
        """Render a template with ``values``. Raises jinja2.TemplateNotFound if the folder has no such file."""
        try:
            values.setdefault("request", current())
        except LookupError:  # called outside of a request
            pass
        return self.environment.get_template(template).render(values)


def _csrf_token() -> str:
    from kirsch_web.protect import csrf_token

    return csrf_token(current())
