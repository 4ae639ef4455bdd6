"""A Django project with its admin, used as a person with a browser would."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import django.contrib.admin
import pytest

from proc import uss
from raw import Peer, build_request
from running import children, title

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from running import Running, Serve

SITE = Path(__file__).parent / "django_site"
STATIC = Path(django.contrib.admin.__file__).parent / "static"
USER, PASSWORD = "librarian", "a pass phrase, & = % ü"
SCAN_BYTES = 3_500_000
"""More than Django keeps in memory (2.5 MB) and more than Kirsch does by default (1 MiB)."""


@pytest.fixture(scope="module")
def fresh_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a site just set up, for each test to copy: an empty library and one superuser."""
    data = tmp_path_factory.mktemp("site")
    environment = {
        **os.environ,
        "DJANGO_SITE_DATA": str(data),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    }
    for command in (["migrate"], ["createsuperuser", "--noinput", "--username", USER, "--email", "l@example.org"]):
        run = subprocess.run(
            [sys.executable, "-m", "django", *command],
            env=environment,
            cwd=SITE,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, run.stderr
    return data


@pytest.fixture
def serve_site(serve: Serve, fresh_site: Path, tmp_path: Path) -> Callable[..., Running]:
    data = tmp_path / "site"
    shutil.copytree(fresh_site, data)

    def serve_site(application: str = "application", *args: str) -> Running:
        return serve(f"project.wsgi:{application}", *args, env={"DJANGO_SITE_DATA": str(data)}, cwd=SITE)

    return serve_site


def csrf_token(page: requests.Response) -> str:
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token, page.text
    return token[1]


def log_in(browser: requests.Session, url: str, password: str = PASSWORD) -> requests.Response:
    """Fetch the log-in form, fill it in, send it, follow where it leads."""
    form = browser.get(f"{url}/admin/", timeout=10)
    assert form.url == f"{url}/admin/login/?next=/admin/"
    fields = {
        "csrfmiddlewaretoken": csrf_token(form),
        "username": USER,
        "password": password,
        "next": "/admin/",
    }
    return browser.post(form.url, data=fields, headers={"Referer": form.url}, timeout=10)


def test_log_in_by_the_form(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site()
    refused = log_in(browser, site.url, "guess")
    assert refused.status_code == 200
    assert "Please enter the correct username and password" in refused.text
    assert "sessionid" not in browser.cookies

    home = log_in(browser, site.url)
    assert [step.status_code for step in home.history] == [302]
    assert home.url == f"{site.url}/admin/"
    assert f"<strong>{USER}</strong>" in home.text
    assert set(browser.cookies.keys()) == {"csrftoken", "sessionid"}

    out = browser.post(f"{site.url}/admin/logout/", data={"csrfmiddlewaretoken": csrf_token(home)}, timeout=10)
    assert out.status_code == 200
    assert "sessionid" not in browser.cookies


def test_a_form_without_its_token_is_forbidden(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site()
    answer = browser.post(f"{site.url}/admin/login/", data={"username": USER, "password": PASSWORD}, timeout=10)
    assert answer.status_code == 403
    assert "CSRF" in answer.text


def test_add_and_change_objects_by_the_forms(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site()
    log_in(browser, site.url)
    add = f"{site.url}/admin/library/book/add/"
    title = 'Čtyři "knihy" & <jedna>'
    listing = browser.post(
        add, data={"csrfmiddlewaretoken": csrf_token(browser.get(add, timeout=10)), "title": title}, timeout=10
    )
    assert listing.url == f"{site.url}/admin/library/book/"
    assert "was added successfully" in listing.text
    assert "Čtyři &quot;knihy&quot; &amp; &lt;jedna&gt;" in listing.text

    change = f"{site.url}/admin/library/book/1/change/"
    token = csrf_token(browser.get(change, timeout=10))
    listing = browser.post(change, data={"csrfmiddlewaretoken": token, "title": "Pět knih"}, timeout=10)
    assert "was changed successfully" in listing.text
    assert "Pět knih" in listing.text

    empty = browser.post(add, data={"csrfmiddlewaretoken": token, "title": ""}, timeout=10)
    assert empty.status_code == 200
    assert "This field is required" in empty.text


def test_upload_a_large_file_and_fetch_it_again(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site()
    log_in(browser, site.url)
    scan = random.Random(3).randbytes(SCAN_BYTES)
    add = f"{site.url}/admin/library/book/add/"
    listing = browser.post(
        add,
        data={"csrfmiddlewaretoken": csrf_token(browser.get(add, timeout=10)), "title": "Scanned"},
        files={"scan": ("scan.bin", scan, "application/octet-stream")},
        timeout=30,
    )
    assert "was added successfully" in listing.text

    # FileResponse hands the open file to wsgi.file_wrapper.
    fetched = browser.get(f"{site.url}/book/1/scan/", timeout=30)
    assert fetched.headers["Content-Length"] == str(SCAN_BYTES)
    assert fetched.headers["Content-Disposition"] == 'attachment; filename="scan.bin"'
    assert fetched.content == scan

    # The same once more on the same connection: the file's end is where the response ends.
    assert browser.get(f"{site.url}/book/1/scan/", timeout=30).content == scan


@pytest.mark.parametrize("name", ["admin/css/base.css", "admin/js/vendor/jquery/jquery.js", "admin/img/icon-yes.svg"])
def test_static_files_by_django(serve_site: Callable[..., Running], browser: requests.Session, name: str) -> None:
    site = serve_site()
    first = browser.get(f"{site.url}/static/{name}", headers={"Accept-Encoding": "identity"}, timeout=10)
    assert first.status_code == 200
    assert first.content == (STATIC / name).read_bytes()
    assert first.headers["Content-Length"] == str(len(first.content))

    again = browser.get(
        f"{site.url}/static/{name}", headers={"If-Modified-Since": first.headers["Last-Modified"]}, timeout=10
    )
    assert (again.status_code, again.content) == (304, b"")


def test_static_files_by_whitenoise(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site("whitened")
    style = (STATIC / "admin/css/base.css").read_bytes()
    url = f"{site.url}/noise/admin/css/base.css"

    whole = browser.get(url, headers={"Accept-Encoding": "identity"}, timeout=10)
    assert (whole.status_code, whole.content) == (200, style)
    part = browser.get(url, headers={"Accept-Encoding": "identity", "Range": "bytes=100-299"}, timeout=10)
    assert (part.status_code, part.content) == (206, style[100:300])
    assert part.headers["Content-Range"] == f"bytes 100-299/{len(style)}"
    beyond = browser.get(url, headers={"Accept-Encoding": "identity", "Range": "bytes=9999999-"}, timeout=10)
    assert beyond.status_code == 416
    same = browser.get(url, headers={"If-Modified-Since": whole.headers["Last-Modified"]}, timeout=10)
    assert (same.status_code, same.content) == (304, b"")
    assert browser.get(f"{site.url}/admin/login/", timeout=10).status_code == 200


def test_a_streamed_response(serve_site: Callable[..., Running]) -> None:
    site = serve_site()
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/export/?lines=2000"))
        streamed = peer.read_response()
        peer.send(build_request("GET", "/export/?lines=0"))
        empty = peer.read_response()
    assert streamed.framing == "chunked"
    assert streamed.complete
    assert streamed.body == b"".join(b"line %d\n" % number for number in range(2000))
    assert (empty.status, empty.body, empty.complete) == (200, b"", True)


def test_head_is_get_without_the_body(serve_site: Callable[..., Running]) -> None:
    site = serve_site()
    with Peer.connect(site.host, site.port) as peer:
        for target in ("/static/admin/css/base.css", "/admin/login/", "/nowhere/"):
            peer.send(build_request("GET", target))
            whole = peer.read_response()
            # A body after the HEAD's fields would be read as the next response, and fail there.
            peer.send(build_request("HEAD", target))
            head = peer.read_response("HEAD")
            assert head.status == whole.status
            assert head.header("Content-Length") == str(len(whole.body))
            assert head.header("Content-Type") == whole.header("Content-Type")


def test_error_pages_and_the_connection_after_them(serve_site: Callable[..., Running]) -> None:
    site = serve_site()
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/nowhere/"))
        missing = peer.read_response()
        peer.send(build_request("GET", "/broken/"))
        broken = peer.read_response()
        peer.send(build_request("GET", "/admin/login/"))
        fine = peer.read_response()
    assert (missing.status, missing.reason) == (404, "Not Found")
    assert b"The requested resource was not found" in missing.body
    assert (broken.status, broken.reason) == (500, "Internal Server Error")
    assert b"Server Error (500)" in broken.body
    assert fine.status == 200
    site.wait_for("LookupError: the shelf is empty")


def test_a_stream_that_breaks_is_seen_to_be_cut(serve_site: Callable[..., Running]) -> None:
    site = serve_site()
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/broken-stream/"))
        cut = peer.read_response()
    assert cut.status == 200
    assert cut.body in (b"", b"before\n")
    assert not cut.complete
    site.wait_for("LookupError: the shelf fell")


def test_request_details_reach_django(serve_site: Callable[..., Running], browser: requests.Session) -> None:
    site = serve_site()
    body = random.Random(5).randbytes(700_000)
    digest = hashlib.sha256(body).hexdigest()
    url = f"{site.url}/echo/?q=%C5%99eka&empty="
    whole = browser.put(url, data=body, headers={"X-Shelf": "top"}, timeout=10).json()
    assert (whole["method"], whole["length"], whole["sha256"]) == ("PUT", len(body), digest)
    assert whole["query"] == {"q": "řeka", "empty": ""}
    assert whole["headers"]["X-Shelf"] == "top"
    assert whole["headers"]["Host"] == f"{site.host}:{site.port}"


def test_workers_that_are_forked_from_a_zygote_share_its_memory(
    serve_site: Callable[..., Running], browser: requests.Session
) -> None:
    """Measures the private memory of four workers, with and without --preload, after some pages."""
    sums = {}
    for args in ((), ("--preload",)):
        site = serve_site("application", "--workers=4", *args)
        pids = site.wait_for_workers(4)
        for _ in range(40):
            with browser.get(f"{site.url}/admin/login/", headers={"Connection": "close"}) as response:
                assert response.status_code == 200
        # The zygote is there for them, so what is its own counts too.
        counted = pids + [pid for pid in children(site.pid) if title(pid).startswith("kirsch: zygote")]
        sums[args] = sum(map(uss, counted))
        assert site.stop() == 0
    shown = ", ".join(f"{' '.join(args) or 'without'} {total >> 20} MiB" for args, total in sums.items())
    print(f"memory of their own (USS) of 4 workers with Django: {shown}")
    assert sums["--preload",] < sums[()]
