"""Fortunes, called directly: one query, a row added, sorted, escaped, in a template, by kirsch_web and by hand.

Run it in an environment that has kirsch-web and Jinja2 (bench/rivals.txt); with `--plain` it needs no Jinja2:

    python bench/fortunes.py [--repeat 60] [--plain]

The page has the shape of the TechEmpower benchmarks' one: 12 rows of a table in SQLite, one more that the handler adds,
sorted by message, and one message that has to be escaped. "By hand" is a WSGI function that calls the same code and
sets the same fields. Both are called in turns in one process; a figure is processor time in microseconds, the best of
the repetitions. The goal is a ratio of 1.15.
"""

from __future__ import annotations

import argparse
import html
import platform
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import kirsch_web as web

MESSAGES = (
    "A test that cannot fail has told you nothing.", "Caches remember what you would rather forget.",
    "The fastest request is the one that was not sent.", "Every queue is empty until it matters.",
    "Write the error message for the person who reads it at night.", "A timeout is a promise about the worst day.",
    "Two clocks never agree; three vote.", "What is measured once is an anecdote.",
    "Delete the code that nothing calls, before it calls you.", "Names are the cheapest documentation & the best.",
    '<script>alert("If you see a dialog, the page is not escaped.");</script>', "良い名前は最良の文書である。",
)  # fmt: skip
ADDED = (0, "This one is added by the handler.")
HEAD = "<!DOCTYPE html><html><head><title>Fortunes</title></head><body><table><tr><th>id</th><th>message</th></tr>"
TAIL = "</table></body></html>"

Rows = list[tuple[int, str]]


def jinja() -> Callable[[Rows], str]:
    import jinja2

    environment = jinja2.Environment(autoescape=True)
    template = environment.from_string(
        HEAD + "{% for id, message in rows %}<tr><td>{{ id }}</td><td>{{ message }}</td></tr>{% endfor %}" + TAIL
    )
    return lambda rows: template.render(rows=rows)


def plain(rows: Rows) -> str:
    return HEAD + "".join(f"<tr><td>{id}</td><td>{html.escape(text)}</td></tr>" for id, text in rows) + TAIL


def page_of(render: Callable[[Rows], str]) -> Callable[[], str]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE fortune (id INTEGER PRIMARY KEY, message TEXT)")
    database.executemany("INSERT INTO fortune (message) VALUES (?)", [(message,) for message in MESSAGES])

    def page() -> str:
        rows = [*database.execute("SELECT id, message FROM fortune"), ADDED]
        rows.sort(key=lambda row: row[1])
        return render(rows)

    return page


def by_hand(page: Callable[[], str]) -> Any:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = page().encode()
        fields = [
            ("Content-Type", "text/html; charset=utf-8"), ("X-Content-Type-Options", "nosniff"),
            ("Content-Length", str(len(body))),
        ]  # fmt: skip
        start_response("200 OK", fields)
        return [body]

    return app


def framework(page: Callable[[], str]) -> web.App:
    class Root:
        def fortunes(self) -> str:
            return page()

    return web.App(Root())


def environ() -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/fortunes", "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "8000", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http",
        "HTTP_HOST": "localhost:8000", "HTTP_ACCEPT": "text/html,*/*;q=0.8",
    }  # fmt: skip


def timed(app: Any, calls: int = 200) -> float:
    requests = [environ() for _ in range(calls)]
    start = time.process_time()
    for request in requests:
        for _ in app(request, lambda _status, _fields: None):
            pass
    return (time.process_time() - start) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--plain", action="store_true", help="f-strings instead of Jinja2")
    given = parser.parse_args()
    page = page_of(plain if given.plain else jinja())
    apps = {"by hand": by_hand(page), "kirsch_web": framework(page)}
    bodies = {name: b"".join(app(environ(), lambda _status, _fields: None)) for name, app in apps.items()}
    assert bodies["by hand"] == bodies["kirsch_web"]
    assert b"&lt;script&gt;" in bodies["by hand"]
    best = dict.fromkeys(apps, float("inf"))
    for _ in range(given.repeat):
        for name, app in apps.items():
            best[name] = min(best[name], timed(app))
    shown = ", ".join(f"{name} {figure:.1f} us" for name, figure in best.items())
    template = "f-strings" if given.plain else "Jinja2"
    ratio = best["kirsch_web"] / best["by hand"]
    print(f"{platform.python_implementation()} {platform.python_version()}, {template}: {shown}, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
