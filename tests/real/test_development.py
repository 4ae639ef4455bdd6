"""The servers for development: ``manage.py runserver``, ``flask kirsch``, and ``kirsch_server`` in tests of both."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest
import requests

from proc import wait_until
from running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., Running]

SETTINGS = """
    import sys
    from pathlib import Path

    BASE_DIR = Path(__file__).parent
    SECRET_KEY = "for tests alone"
    DEBUG = True
    ALLOWED_HOSTS = []
    ROOT_URLCONF = "urls"
    WSGI_APPLICATION = "wsgi.application"
    INSTALLED_APPS = [
        "kirsch.django", "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.staticfiles",
        "debug_toolbar", "notes",
    ]
    MIDDLEWARE = ["debug_toolbar.middleware.DebugToolbarMiddleware"]
    INTERNAL_IPS = ["127.0.0.1"]
    TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
    STATIC_URL = "/static/"
    STATICFILES_DIRS = [BASE_DIR / "assets"]
    DEBUG_TOOLBAR_CONFIG = {"SHOW_TOOLBAR_CALLBACK": "urls.show", "IS_RUNNING_TESTS": False}
    #MORE
"""

SITE = {
    "manage.py": """
        import os, sys
        os.environ["DJANGO_SETTINGS_MODULE"] = "project_settings"
        from django.core.management import execute_from_command_line
        execute_from_command_line(sys.argv)
    """,
    "project_settings.py": SETTINGS,
    "wsgi.py": """
        from django.core.wsgi import get_wsgi_application
        application = get_wsgi_application()
    """,
    "asgi.py": """
        from django.core.asgi import get_asgi_application
        application = get_asgi_application()
    """,
    "urls.py": """
        import os, time
        from django.http import HttpResponse
        from django.urls import include, path
        from notes.models import Note

        def show(request):
            return request.path.startswith(("/html", "/__debug__"))

        def page(request):
            return HttpResponse(f"first {type(request).__name__}", content_type="text/plain")

        def html(request):
            list(Note.objects.all())
            return HttpResponse("<html><body>hello</body></html>")

        def notes(request):
            Note.objects.create(text="by the server")
            return HttpResponse(" ".join(Note.objects.values_list("text", flat=True)))

        def fails(request):
            raise LookupError("a fault of the view")

        urlpatterns = [
            path("", page), path("html", html), path("notes", notes), path("fails", fails),
            path("__debug__/", include("debug_toolbar.urls")),
        ]
    """,
    "notes/__init__.py": "",
    "notes/models.py": """
        from django.db import models

        class Note(models.Model):
            text = models.CharField(max_length=50)
    """,
    "notes/migrations/__init__.py": "",
    "notes/migrations/0001_initial.py": """
        from django.db import migrations, models

        class Migration(migrations.Migration):
            initial = True
            operations = [migrations.CreateModel("Note", [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.CharField(max_length=50)),
            ])]
    """,
    "assets/site.css": "body { color: teal }",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a Django project, with its tables."""
    pytest.importorskip("debug_toolbar", reason="make test-slow-python installs django-debug-toolbar")
    write(tmp_path, SITE)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command in the folder, and wait until it says where it serves."""
    started: list[Running] = []

    def start(*words: str, where: str = r"(?P<addresses>https?://\S+:\d+)") -> Running:
        # Django says it on standard output, which Running reads for other things.
        command = ["sh", "-c", 'exec "$0" -u "$@" 1>&2', sys.executable, *words]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        started.append(Running(" ".join(words), process, re.compile(where)))
        return started[-1]

    yield start
    complaints = [complaint for running in started for complaint in running.finish()]
    # The error of a module that cannot be imported is raised again by the command.
    complaints = [complaint for complaint in complaints if "kirsch/flask.py" not in complaint]
    assert complaints == [], "\n".join(running.stderr for running in started)


def get(url: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=20)


# ---------------------------------------------------------------------------------------------------------- Django


def test_runserver_serves_pages_and_static_files_and_logs_as_djangos(project: Path, start: Start) -> None:
    running = start("manage.py", "runserver", "0")
    assert get(f"{running.url}/").text == "first WSGIRequest"
    assert get(f"{running.url}/static/site.css").text == "body { color: teal }"
    assert get(f"{running.url}/").headers["Server"] == "kirsch"
    assert get(f"{running.url}/absent").status_code == 404
    assert "LookupError" in get(f"{running.url}/fails").text
    running.wait_for(r'^\[\d+/\w+/\d{4} [\d:]+\] "GET / HTTP/1.1" 200 17$')
    running.wait_for(r'"GET /absent HTTP/1.1" 404')
    running.wait_for(r'"GET /fails HTTP/1.1" 500')
    assert "Starting development server at http://127.0.0.1:" in running.stderr


def test_a_changed_file_is_served_and_no_request_is_refused_meanwhile(project: Path, start: Start) -> None:
    running = start("manage.py", "runserver", "0")
    assert get(f"{running.url}/").text.startswith("first")
    failures: list[Exception] = []
    texts: list[str] = []
    done = threading.Event()

    def client() -> None:
        while not done.is_set():
            try:
                texts.append(get(f"{running.url}/").text)
            except requests.ConnectionError as error:
                failures.append(error)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        urls = project / "urls.py"
        urls.write_text(urls.read_text().replace("first ", "second "))

        def has_seen_the_change() -> bool:
            # Django compares times with those of its first look, which may come after the first answer.
            urls.touch()
            return "changed, reloading" in running.stderr

        wait_until(has_seen_the_change, "Django sees the change", timeout=60)
        running.wait_for("Starting development server", after=running.stderr.index("changed, reloading"), timeout=60)
        while not texts or not texts[-1].startswith("second"):
            assert not failures
            time.sleep(0.05)
    finally:
        done.set()
        thread.join()
    # A connection that the old process had accepted may end with it; a new one is never refused.
    assert not [error for error in failures if "refused" in str(error)]


@pytest.mark.parametrize(
    ("words", "host"),
    [
        (("0",), "127.0.0.1"),
        (("localhost:0",), "localhost"),
        (("0:0",), "127.0.0.1"),
        (("-6", "0"), "[::1]"),
        (("[::1]:0",), "[::1]"),
    ],
)
@pytest.mark.parametrize("more", [("--noreload",), ("--noreload", "--nothreading"), ()])
def test_runserver_takes_djangos_addresses(
    project: Path, start: Start, words: tuple[str, ...], host: str, more: tuple[str, ...]
) -> None:
    if more[:1] != ("--noreload",) and words != ("-6", "0"):
        pytest.skip("one address is tried with the reloader")
    running = start("manage.py", "runserver", *words, *more)
    assert get(f"http://{host}:{running.port}/").text == "first WSGIRequest"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("more", [("--noreload",), ()])
def test_runserver_ends_with_a_signal(project: Path, start: Start, number: int, more: tuple[str, ...]) -> None:
    running = start("manage.py", "runserver", "0", *more)
    get(f"{running.url}/")
    if number == signal.SIGINT:
        import os

        os.killpg(running.pid, number)  # as a terminal does
        running._told_to_stop = True
    else:
        running.send(number)
    assert running.process.wait(20) == 0
    with pytest.raises(OSError):
        socket.create_connection((running.host, running.port)).close()


@pytest.mark.parametrize("more", [["--noreload"], []])
def test_runserver_says_that_an_address_is_in_use(project: Path, more: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "manage.py", "runserver", port, *more],
            cwd=project, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"Error: .*(already in use|is taken)", done.stderr)


def test_runserver_serves_asgi_if_the_project_has_such_an_application(project: Path, start: Start) -> None:
    settings = project / "project_settings.py"
    settings.write_text(settings.read_text().replace("#MORE", 'ASGI_APPLICATION = "asgi.application"'))
    running = start("manage.py", "runserver", "0", "--noreload")
    assert get(f"{running.url}/").text == "first ASGIRequest"
    assert get(f"{running.url}/static/site.css").text == "body { color: teal }"
    assert get(f"{start('manage.py', 'runserver', '0', '--noreload', '--wsgi').url}/").text == "first WSGIRequest"


def test_the_debug_toolbar_shows_its_panels(project: Path, start: Start) -> None:
    running = start("manage.py", "runserver", "0", "--noreload")
    page = get(f"{running.url}/html").text
    assert 'id="djDebug"' in page
    identity = re.search(r'data-(?:request|store)-id="(\w+)"', page)
    assert identity is not None
    name = "request_id" if "data-request-id" in page else "store_id"
    panel = get(f"{running.url}/__debug__/render_panel/?{name}={identity[1]}&panel_id=SQLPanel")
    assert "notes_note" in panel.text
    assert get(f"{running.url}/static/debug_toolbar/js/toolbar.js").status_code == 200


def test_an_app_in_the_wrong_place_is_warned_of(project: Path) -> None:
    settings = project / "project_settings.py"
    text = (
        settings.read_text()
        .replace('"kirsch.django", ', "")
        .replace('"debug_toolbar", ', '"debug_toolbar", "kirsch.django", ')
    )
    settings.write_text(text)
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert "kirsch.W001" in done.stderr
    assert "django.contrib.staticfiles comes before kirsch.django in INSTALLED_APPS" in done.stderr


# ----------------------------------------------------------------------------------------------------------- Flask

FLASK = """
    from flask import Flask, request

    app = Flask(__name__)

    @app.get("/")
    def page():
        return f"first {request.environ['wsgi.multithread']}"

    @app.get("/fails")
    def fails():
        raise LookupError("a fault of the view")
"""


def flask(*words: str) -> list[str]:
    return ["-m", "flask", "--app", "shop", *words]


def test_flask_kirsch_serves_the_application(tmp_path: Path, start: Start) -> None:
    write(tmp_path, {"shop.py": FLASK})
    running = start(*flask("kirsch", "--port", "0"))
    assert get(running.url).text == "first True"
    assert get(running.url).headers["Server"] == "kirsch"
    assert get(f"{running.url}/fails").status_code == 500
    running.wait_for(r'"GET /fails HTTP/1.1" 500')
    assert " * Serving Flask app 'shop'" in running.stderr
    running.send(signal.SIGTERM)
    assert running.process.wait(20) == 0


def test_flask_kirsch_has_one_thread_if_asked(tmp_path: Path, start: Start) -> None:
    write(tmp_path, {"shop.py": FLASK})
    assert get(start(*flask("kirsch", "--port", "0", "--without-threads")).url).text == "first False"


def test_flask_kirsch_shows_the_debugger_and_reloads(tmp_path: Path, start: Start) -> None:
    write(tmp_path, {"shop.py": FLASK})
    running = start(*flask("--debug", "kirsch", "--port", "0", "--extra-files", "notes.txt"))
    page = get(f"{running.url}/fails").text
    assert "Werkzeug" in page
    assert "a fault of the view" in page
    (tmp_path / "shop.py").write_text(textwrap.dedent(FLASK).replace("first", "second"))
    running.wait_for("Detected change", timeout=60)
    # The old process may answer for half a second; then a request waits until the new one accepts it.
    deadline = time.monotonic() + 30
    while (text := get(running.url).text) == "first True":
        assert time.monotonic() < deadline
    assert text == "second True"
    seen = len(running.stderr)
    (tmp_path / "shop.py").write_text("this is no Python\n")
    running.wait_for("SyntaxError", after=seen, timeout=60)
    assert "SyntaxError" in get(running.url).text


def test_flask_kirsch_says_that_an_address_is_in_use(tmp_path: Path) -> None:
    write(tmp_path, {"shop.py": FLASK})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = flask("kirsch", "--port", str(taken.getsockname()[1]))
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.search(r"Error: .* is taken", done.stderr)


# ---------------------------------------------------------------------------------------- pytest-django, pytest-flask


def pytest_of_a_user(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words],
        cwd=folder, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


DJANGO_TESTS = """
    import pytest
    from urllib.request import urlopen
    from notes.models import Note

    def read(url):
        with urlopen(url, timeout=10) as response:
            return response.read().decode()

    @pytest.mark.parametrize("_", [1, 2])
    def test_both_see_one_database_and_it_is_empty_again(kirsch_server, _):
        Note.objects.create(text="by the test")
        assert read(kirsch_server.url + "/notes") == "by the test by the server"
        assert Note.objects.count() == 2

    def test_static_files(kirsch_server):
        assert "teal" in read(f"{kirsch_server}/static/site.css")

    def test_in_place_of_live_server(live_server):
        Note.objects.create(text="by the test")
        assert read(live_server.url + "/notes") == "by the test by the server"
        assert urlopen(live_server.url).headers["Server"] == "kirsch"

    def test_without_a_server(db):
        Note.objects.create(text="one")
        assert Note.objects.count() == 1
"""


@pytest.mark.parametrize(
    "more", ["", 'DATABASES["default"]["TEST"] = {"NAME": str(BASE_DIR / "test.sqlite3")}', "ASGI"]
)
def test_kirsch_server_works_with_pytest_django(project: Path, more: str) -> None:
    settings = project / "project_settings.py"
    asgi = 'del WSGI_APPLICATION\n    ASGI_APPLICATION = "asgi.application"'
    text = settings.read_text().replace("#MORE", textwrap.dedent(f"    {asgi}") if more == "ASGI" else more)
    if more == "ASGI":
        text = text.replace("WSGI_APPLICATION = ", "WSGI_APPLICATION = None and ").replace("del WSGI_APPLICATION", "")
    settings.write_text(textwrap.dedent(text))
    conftest = """
        import pytest

        @pytest.fixture(scope="session")
        def live_server(kirsch_server):
            return kirsch_server
    """
    write(project, {"test_notes.py": DJANGO_TESTS, "conftest.py": conftest})
    write(project, {"pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = project_settings\npythonpath = .\n"})
    done = pytest_of_a_user(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_kirsch_server_works_with_pytest_flask(tmp_path: Path) -> None:
    pytest.importorskip("pytest_flask", reason="make test-slow-python installs pytest-flask")
    conftest = """
        import pytest
        import shop

        @pytest.fixture(scope="session")
        def app():
            return shop.app

        @pytest.fixture(scope="session")
        def live_server(app, kirsch_server):
            return kirsch_server
    """
    tests = """
        from urllib.request import urlopen
        from flask import url_for

        def test_page(kirsch_server, client):
            assert urlopen(kirsch_server.url()).read() == client.get("/").data.replace(b"False", b"True")

        def test_address(live_server):
            assert url_for("page", _external=True) == live_server.url("/")
            assert urlopen(url_for("page", _external=True)).headers["Server"] == "kirsch"
    """
    write(
        tmp_path,
        {"shop.py": FLASK, "conftest.py": conftest, "test_shop.py": tests, "pytest.ini": "[pytest]\npythonpath = .\n"},
    )
    done = pytest_of_a_user(tmp_path, "-p", "no:django")  # which has fixtures of the same names
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_playwright_opens_the_page_in_a_browser(tmp_path: Path, program: Callable[[str], str]) -> None:
    pytest.importorskip("playwright", reason="playwright is not installed: make test-docs installs it")
    conftest = """
        import pytest
        from playwright.sync_api import sync_playwright

        @pytest.fixture(scope="session")
        def page():
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=@, args=["--no-sandbox"])
                yield browser.new_page()
                browser.close()
    """
    tests = """
        def test_page(kirsch_server, page):
            page.goto(kirsch_server.url("/"))
            assert page.locator("body").inner_text() == "first True"
    """
    write(
        tmp_path,
        {
            "shop.py": FLASK,
            "conftest.py": conftest.replace("@", repr(program("chromium"))),
            "test_shop.py": tests,
            "pytest.ini": "[pytest]\npythonpath = .\nkirsch_app = shop:app\n",
        },
    )
    done = pytest_of_a_user(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
