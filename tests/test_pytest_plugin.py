"""The fixture ``kirsch_server``, in runs of pytest as a user would start them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITE = """
    import os

    def wsgi(environ, start_response):
        if environ["PATH_INFO"] == "/fails":
            raise LookupError("no such thing")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"wsgi {os.getpid()}".encode()]

    async def asgi(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"asgi"})

    def make(name):
        return lambda environ, start_response: (start_response("200 OK", []), [name.encode()])[1]
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run pytest in a folder with a file of tests and a configuration."""

    def run(
        tests: str, settings: str = "kirsch_app = site_of_test:wsgi", conftest: str = "", *more: str
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "site_of_test.py").write_text(textwrap.dedent(SITE))
        (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
        (tmp_path / "test_it.py").write_text("from urllib.request import urlopen\n" + textwrap.dedent(tests))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{textwrap.dedent(settings)}\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-p",
            "no:django",
            "-p",
            "no:flask",
            "-W",
            "error",
            *more,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    return run  # fmt: skip


PAGE = """
    def test_page(kirsch_server):
        assert urlopen(kirsch_server.url).read().decode().split()[0] == "@"
"""


@pytest.mark.parametrize(
    ("name", "answer"), [("wsgi", "wsgi"), ("asgi", "asgi"), ("make('made')", "made")]
)  # fmt: skip
def test_the_application_of_the_configuration_is_served(
    run: Callable[..., subprocess.CompletedProcess[str]], name: str, answer: str
) -> None:
    done = run(PAGE.replace("@", answer), f"kirsch_app = site_of_test:{name}")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("scope", "servers"), [("session", 1), ("function", 2)])
def test_the_scope_says_how_many_servers_there_are(
    run: Callable[..., subprocess.CompletedProcess[str]], scope: str, servers: int
) -> None:
    tests = """
        seen = set()

        def test_first(kirsch_server):
            seen.add(id(kirsch_server.server))
            test_first.kept = kirsch_server

        def test_second(kirsch_server):
            seen.add(id(kirsch_server.server))
            assert len(seen) == @
    """
    done = run(tests.replace("@", str(servers)), f"kirsch_app = site_of_test:wsgi\nkirsch_scope = {scope}")
    assert done.returncode == 0, done.stdout


def test_an_unknown_scope_is_refused(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run(PAGE, "kirsch_scope = forever")
    assert done.returncode == 4
    assert "kirsch_scope: 'forever' is none of session, package, module, class, function" in done.stderr


def test_the_log_of_a_failed_test_is_shown_and_no_other(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    tests = """
        import pytest
        from urllib.error import HTTPError

        def test_before(kirsch_server):
            urlopen(kirsch_server.url("/before")).read()

        def test_fails(kirsch_server):
            with pytest.raises(HTTPError) as raised:
                urlopen(kirsch_server + "/fails")
            raised.value.close()
            urlopen(kirsch_server.url + "/after").read()
            assert False
    """
    done = run(tests)
    assert done.returncode == 1
    log = done.stdout.partition("Log of Kirsch at http://127.0.0.1:")[2]
    assert "LookupError: no such thing" in log
    assert '"GET /fails HTTP/1.1" 500' in log
    assert "/before" not in log
    assert "1 failed, 1 passed" in done.stdout


def test_a_fixture_named_app_is_the_application(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    conftest = """
        import pytest, site_of_test

        @pytest.fixture(scope="session")
        def app():
            return site_of_test.wsgi

        @pytest.fixture(scope="session")
        def kirsch_options():
            return {"server_header": "tested"}

        @pytest.fixture(scope="session")
        def base_url(kirsch_server):
            return kirsch_server.url

        @pytest.fixture(scope="session")
        def live_server(kirsch_server):
            return kirsch_server
    """
    tests = """
        def test_header(base_url, live_server):
            with urlopen(base_url) as response:
                assert response.headers["Server"] == "tested"
            assert live_server.url == base_url == str(live_server) == live_server.url()
            assert live_server.url("/x") == live_server + "/x" == f"{live_server}/x"
    """
    done = run(tests, "", conftest)
    assert done.returncode == 0, done.stdout


def test_several_servers_live_as_long_as_a_test(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    tests = """
        import pytest, site_of_test

        kept = []

        def test_two(kirsch_serve):
            one, other = kirsch_serve(site_of_test.wsgi), kirsch_serve(site_of_test.asgi, threads=2)
            assert urlopen(one.url).read().startswith(b"wsgi")
            assert urlopen(other.url).read() == b"asgi"
            kept.append(one.url)

        def test_none():
            with pytest.raises(OSError):
                urlopen(kept[0])
    """
    done = run(tests, "")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("", "kirsch_server has no application: set kirsch_app = module:app"),
        ("kirsch_app = site_of_test:nothing", "kirsch_app: site_of_test has no"),
    ],
)
def test_a_missing_application_is_explained(
    run: Callable[..., subprocess.CompletedProcess[str]], settings: str, sentence: str
) -> None:
    done = run(PAGE, settings)
    assert done.returncode == 1
    assert sentence in done.stdout


def test_a_start_up_that_fails_is_the_error_of_the_fixture(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    conftest = """
        import pytest

        async def failing(scope, receive, send):
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.failed", "message": "no database"})

        @pytest.fixture(scope="session")
        def kirsch_app():
            return failing
    """
    done = run(PAGE, "", conftest)
    assert done.returncode == 1
    assert "no database" in done.stdout


def test_a_request_that_does_not_end_fails_the_test_with_its_stack(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    tests = """
        import threading, socket

        def test_hangs(kirsch_serve):
            entered = threading.Event()

            def hangs_here(environ, start_response):
                entered.set()
                threading.Event().wait(60)

            server = kirsch_serve(hangs_here)
            client = socket.create_connection((server.host, server.port))
            client.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            assert entered.wait(10)
            client.close()
    """
    done = run(tests, "kirsch_app = site_of_test:wsgi", "", "-p", "no:threadexception")
    assert done.returncode == 1, done.stdout
    assert "has not ended" in done.stdout
    assert "hangs_here" in done.stdout


def test_a_run_that_asks_for_no_server_imports_none(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    tests = """
        import sys

        def test_nothing():
            assert not [name for name in sys.modules if name.startswith("kirsch.") and name != "kirsch.pytest_plugin"]
    """
    done = run(tests)
    assert done.returncode == 0, done.stdout
