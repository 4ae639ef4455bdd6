"""Pages from templates of Jinja2, which is not a dependency: ``pip install kirsch-web[templates]``."""

from __future__ import annotations

import os
from typing import Any

from kirsch_web.app import url
from kirsch_web.errors import ConfigError
from kirsch_web.request import current


class Templates:
    """The templates of a folder: ``pages = web.Templates("pages")``, then ``pages("book.html", title="Emma")``.

    Values are escaped in every template, whatever its name. A name that is not given is an error. Templates also see
    `request`, the current request, `url`, which is :func:`url`, and `csrf_token()`, the token for a form. The
    attribute ``environment`` is Jinja2's, for filters and tests. Needs Jinja2: `pip install kirsch-web[templates]`.

    Args:
        folder: the folder; relative to the working directory.
        reload: whether a template is compiled again after its file was changed. It costs a look at the files of each
            page.
        names: values and functions that every template sees.
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
        """Return the page of a template. Raises jinja2.TemplateNotFound if the folder has no such file."""
        try:
            values.setdefault("request", current())
        except LookupError:  # outside of a request
            pass
        return self.environment.get_template(template).render(values)


def _csrf_token() -> str:
    from kirsch_web.protect import csrf_token

    return csrf_token(current())
