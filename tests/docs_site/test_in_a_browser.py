"""The documentation site in a real browser, opened as files. `make test-docs` builds it and runs these tests."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make test-docs installs it"
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

SITE = Path(__file__).resolve().parents[2] / "target" / "docs-site" / "html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


class Watched:
    """A page of the browser that keeps what went wrong on it."""

    def __init__(self, browser: Browser, size: tuple[int, int]) -> None:
        self.page: Page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        self.wrong: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda asked: asked.url.startswith("file:") or self.wrong.append(asked.url))

    def open(self, place: str) -> Page:
        self.page.goto(f"{SITE.as_uri()}/{place}")
        return self.page


def test_every_page_fits_its_window_and_asks_no_other_host(browser: Browser) -> None:
    watched = Watched(browser, WIDTHS["desktop"])
    pages = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    assert len(pages) > 50
    for place in pages:
        page = watched.open(place)
        for width, height in WIDTHS.values():
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000)
        images = "[...document.images].filter(image => !image.complete || !image.naturalWidth).length"
        assert page.evaluate(images) == 0, place
        if place != "404.html":  # its links are for the root of a host
            assert watched.wrong == [], place
        watched.wrong.clear()


@pytest.mark.parametrize("place", ["index.html", "web/api.html"])
def test_the_search_finds_a_setting(browser: Browser, place: str) -> None:
    watched = Watched(browser, WIDTHS["desktop"])
    page = watched.open(place)
    page.keyboard.press("/")
    page.keyboard.type("graceful-timeout")
    page.locator('.md-search-result__link[href*="reference/settings.html"]').first.click()
    page.wait_for_url("**/reference/settings.html*")
    assert page.locator("h1").inner_text().startswith("Settings")
    assert watched.wrong == []


# A command of another server, and Kirsch's; then parts of what is said about options that need a reader's thought.
COMMANDS = {
    "gunicorn -w 4 -k gthread --threads 8 -b 0.0.0.0:8000 -t 30 --access-logfile - shop.wsgi": (
        "kirsch -w 4 -k gthread --threads 8 -b 0.0.0.0:8000 -t 30 --access-logfile - shop.wsgi"
    ),
    "gunicorn -w4 --bind=unix:/run/a.sock --certfile x.pem --preload -k uvicorn.workers.UvicornWorker shop:app": (
        "kirsch -w 4 --bind unix:/run/a.sock --certfile x.pem --preload shop:app",
        "-k uvicorn.workers.UvicornWorker|left out|an ASGI application is always served by asyncio",
    ),
    "gunicorn -k sync \"shop:create_app('x')\" --bogus": (
        "kirsch --threads 1 'shop:create_app('\\''x'\\'')'",
        "--bogus|left out|no option of that server is called so",
    ),
    "gunicorn shop:app": ("kirsch shop:app", "|look|gunicorn runs one request at a time in each worker"),
    "uvicorn main:app --host 0.0.0.0 --port $PORT --workers 4 --proxy-headers --forwarded-allow-ips '*' --reload": (
        "kirsch --bind \"0.0.0.0:$PORT\" --workers 4 --forwarded-allow-ips '*' --reload main:app"
    ),
    "PYTHONPATH='a b' python -m uvicorn --factory main:make --timeout-keep-alive 5 # as before": (
        "PYTHONPATH='a b' python -m kirsch --factory --keep-alive 5 main:make"
    ),
    "granian --interface asgi --host :: --http1-header-read-timeout 30000 --workers-max-rss 9 --access-log main:app": (
        "kirsch --bind '[::]:8000' --interface asgi --header-timeout 30000ms --max-memory 9MiB --access-logfile - "
        "main:app"
    ),
    "hypercorn -b 0.0.0.0:8000 -k uvloop -w 2 --access-logfile - main:app": (
        "kirsch -b 0.0.0.0:8000 --loop uvloop -w 2 --access-logfile - main:app"
    ),
    "uwsgi --http :8000 --master -p 4 --threads 2 --wsgi-file app.py --callable app --harakiri 30 --vacuum \\\n"
    " --static-map /static=/srv/static": (
        "kirsch --bind 0.0.0.0:8000 --workers 4 --threads 2 --timeout 30 app.py:app",
        "--master|left out|there is always a supervisor",
        "--static-map /static=/srv/static|by hand|--static /static=DIRECTORY",
    ),
    "uwsgi --socket /run/x.sock --chmod-socket=660 --module shop.wsgi --max-requests 1000": (
        "kirsch --bind 'uwsgi:unix:/run/x.sock?mode=660' --max-requests 1000 shop.wsgi"
    ),
    "mod_wsgi-express start-server shop.wsgi --port 8080 --processes 4 --threads 5 --user www --log-to-terminal": (
        "kirsch --bind 127.0.0.1:8080 --workers 4 --threads 5 --user www ./shop.py",
        "shop.wsgi|look|Kirsch serves files whose names end in .py",
    ),
    "ExecStart=/srv/venv/bin/waitress-serve --listen=*:8041 --call shop:create_app": (
        "/srv/venv/bin/kirsch --bind 0.0.0.0:8041 --factory shop:create_app"
    ),
    "waitress-serve shop:app": "kirsch --bind 0.0.0.0:8080 shop:app",
    "python manage.py runserver": "The command names none of gunicorn",
    "gunicorn --bind": "--bind has no value.",
    "gunicorn 'shop:app": "A quotation mark ' has no second one.",
}


@pytest.mark.parametrize("theirs", COMMANDS)
def test_the_form_turns_a_command_into_kirschs(browser: Browser, theirs: str) -> None:
    from kirsch.config.sources import read

    wanted = COMMANDS[theirs]
    command, *notes = (wanted,) if isinstance(wanted, str) else wanted
    watched = Watched(browser, WIDTHS["desktop"])
    page = watched.open("convert.html")
    page.locator("#theirs").fill(theirs)
    shown = page.locator("#ours").inner_text()
    joined = " ".join(shown.replace("\\\n", " ").split())
    if "kirsch" not in command:
        assert shown.startswith(command)
        return
    assert joined == command
    rows = ["|".join(row.locator("td").all_inner_texts()) for row in page.locator("#became tr").all()]
    assert [note for note in notes if not any(row.startswith(note) for row in rows)] == [], rows
    # The server takes what the form writes.
    words = shlex.split(command.replace("$PORT", "8000"))
    arguments = words[next(at for at, word in enumerate(words) if word.endswith("kirsch")) + 1 :]
    read(arguments, {})
    assert watched.wrong == []
