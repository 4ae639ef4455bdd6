"""ASGI frameworks, served as their users serve them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from proc import wait_until

if TYPE_CHECKING:
    import requests

    from running import Serve

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["starlette", "quart", "litestar", "django"])
def test_framework_answers_page_after_page(serve: Serve, browser: requests.Session, name: str) -> None:
    site = serve(f"asgi_frameworks:{name}", cwd=HERE)
    for _ in range(3):
        assert browser.get(f"{site.url}/").text == "hello"
    assert browser.get(f"{site.url}/absent").status_code == 404


@pytest.mark.parametrize("name", ["starlette", "quart", "django"])
@pytest.mark.parametrize("length", [0, 1, 2_000_000])
def test_framework_receives_a_body(serve: Serve, browser: requests.Session, name: str, length: int) -> None:
    site = serve(f"asgi_frameworks:{name}", cwd=HERE)
    for _ in range(2):
        assert browser.post(f"{site.url}/body", data=os.urandom(length)).text == str(length)


def test_starlette_streams_serves_files_and_works_in_the_background(serve: Serve, browser: requests.Session) -> None:
    site = serve("asgi_frameworks:starlette", cwd=HERE)
    assert browser.get(f"{site.url}/stream").text == "0\n1\n2\n3\n4\n"
    assert browser.get(f"{site.url}/sync").text == "in a thread"
    file = browser.get(f"{site.url}/file")
    assert (file.content, file.headers["X-Middleware"]) == ((HERE / "asgi_frameworks.py").read_bytes(), "yes")
    assert browser.get(f"{site.url}/background").text == ""
    # It begins when the client has the response.
    wait_until(lambda: browser.get(f"{site.url}/background").text.startswith("done"), "the background task has run")


def test_fastapi_resolves_dependencies_and_takes_uploads(serve: Serve, browser: requests.Session) -> None:
    site = serve("asgi_frameworks:fastapi", cwd=HERE)
    assert browser.get(f"{site.url}/").json() == {"number": 7}
    assert browser.get(f"{site.url}/sync").json() == "in a thread"
    upload = browser.post(f"{site.url}/upload", files={"file": ("a.bin", b"x" * 300_000)})
    assert upload.json() == {"name": "a.bin", "bytes": 300_000}
