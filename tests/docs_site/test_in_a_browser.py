"""The documentation site in a real browser, opened as files. `make test-docs` builds it and runs these tests."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from converted_commands import COMMANDS

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


@pytest.mark.timeout(600)  # it opens a hundred pages, twice each
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
