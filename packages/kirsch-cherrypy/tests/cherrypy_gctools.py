"""A page about the garbage collector, which CherryPy's tests mount."""

from __future__ import annotations

import gc
from typing import Any

from kirsch_cherrypy._helper import expose


class GCRoot:
    """``/stats`` counts requests and responses that are alive."""

    classes: Any = ()

    @expose
    def index(self) -> str:
        """Return a page of this object's own."""
        return "Hello, world!"

    @expose
    def stats(self) -> str:
        """Return the number of requests and responses that are alive."""
        from kirsch_cherrypy._cprequest import Request, Response

        gc.collect()
        counts = {Request: 0, Response: 0}
        for each in gc.get_objects():
            for kind in counts:
                counts[kind] += type(each) is kind
        lines = ["Statistics:", *(f"{kind.__name__}: {count}" for kind, count in counts.items())]
        # A request and a response for this page, one of each for code outside of requests.
        return "\n".join(lines) if any(count > 8 for count in counts.values()) else lines[0]
