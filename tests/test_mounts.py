"""Several applications in one process: which of them gets a request, and what it sees of its path."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import kirsch
from kirsch.apps.mounted import Mounted, MountedApplication
from kirsch.config.mounts import check_host, check_path
from proc import wait_until
from raw import build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from running import Running, Serve

# Says which application it is, and where it believes to be.
NAMED = """
import json, time

def make(name):
    def app(environ, start_response):
        while environ["PATH_INFO"].endswith("/slow"):
            time.sleep(0.01)  # in pieces, between which an exception can reach it
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps([name, environ["SCRIPT_NAME"], environ["PATH_INFO"]]).encode()]
    return app

front, shop, admin, api, tenants = map(make, ["front", "shop", "admin", "api", "tenants"])
made = []

def create():
    made.append(1)
    return make(f"made {len(made)}")
"""


def answering(name: str) -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [json.dumps([name, environ["SCRIPT_NAME"], environ["PATH_INFO"]]).encode()]

    return app


def places(*where: tuple[str, str]) -> Mounted:
    applications = [
        MountedApplication(answering(host + path), "wsgi", host=host, path=path, name=host + path)
        for host, path in where
    ]
    return Mounted([*applications, MountedApplication(answering("front"), "wsgi", host="", path="", name="front")])


PATHS = ("/shop", "/shop/admin", "/größe", "/a b")
BY_PATH = places(*(("", path) for path in PATHS))


@pytest.fixture(scope="module")
def by_path() -> Iterator[kirsch.Server]:
    """A server of an application at each of PATHS, which tells its name and the two parts of its path."""
    server = kirsch.Server(answering("front"), "127.0.0.1:0", mounts={path: answering(path) for path in PATHS})
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        yield server
        server.stop()
        thread.join(10)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/", ["front", "", "/"]),
        ("/shop", ["/shop", "/shop", ""]),
        ("/shop/", ["/shop", "/shop", "/"]),
        ("/shop/x/y", ["/shop", "/shop", "/x/y"]),
        ("/shop//x", ["/shop", "/shop", "//x"]),
        ("/shopping", ["front", "", "/shopping"]),
        ("/Shop", ["front", "", "/Shop"]),
        ("//shop", ["front", "", "//shop"]),
        ("/x/shop", ["front", "", "/x/shop"]),
        ("/shop/admin", ["/shop/admin", "/shop/admin", ""]),
        ("/shop/admin/x", ["/shop/admin", "/shop/admin", "/x"]),
        ("/shop/administrator", ["/shop", "/shop", "/administrator"]),
        ("/shop/../x", ["/shop", "/shop", "/../x"]),
        # As PEP 3333 has it: the bytes of UTF-8, each as a character of Latin-1.
        ("/größe/ö", ["/größe", *(text.encode().decode("latin-1") for text in ("/größe", "/ö"))]),
        ("/a b/c", ["/a b", "/a b", "/c"]),
        ("*", ["front", "", ""]),
    ],
)
def test_the_longest_prefix_of_whole_segments_wins(path: str, answer: list[str], by_path: kirsch.Server) -> None:
    assert BY_PATH.find("", path).name == answer[0]
    host, port = by_path.urls[0].removeprefix("http://").split(":")
    method = "OPTIONS" if path == "*" else "GET"
    response = exchange(host, int(port), build_request(method, quote(path, safe="/*.")))
    assert (response.status, json.loads(response.body)) == (200, answer)


def test_a_prefix_that_a_proxy_has_removed_comes_before_the_mount(serve: Serve, folder: Path) -> None:
    proxy = ("--trusted-proxies=*", "--forwarded-prefix")
    site = serve("named:front", "--mount=/shop=named:shop", *proxy, cwd=folder)
    headers = {"X-Forwarded-Prefix": "/proxied"}
    for path, answer in [("/shop/x", ["shop", "/proxied/shop", "/x"]), ("/else", ["front", "/proxied", "/else"])]:
        response = exchange(site.host, site.port, build_request("GET", path, headers=headers))
        assert json.loads(response.body) == answer


BY_HOST = places(
    ("example.org", ""),
    ("*.example.org", ""),
    ("*.eu.example.org", ""),
    ("api.example.org", "/v1"),
    ("[::1]", ""),
    ("", "/shared"),
)


@pytest.mark.parametrize(
    ("host", "path", "name"),
    [
        ("example.org", "/", "example.org"),
        ("EXAMPLE.org:8000", "/", "example.org"),
        ("example.org.", "/", "example.org"),
        ("www.example.org", "/", "*.example.org"),
        ("a.b.example.org:80", "/", "*.example.org"),
        ("a.eu.example.org", "/", "*.eu.example.org"),
        ("notexample.org", "/", "front"),
        ("api.example.org", "/v1/x", "api.example.org/v1"),
        # If its own host has no mount for a path, a host with a star may have one, and then any host.
        ("api.example.org", "/v2", "*.example.org"),
        # A host outweighs a path.
        ("example.org", "/shared", "example.org"),
        ("other.net", "/shared", "/shared"),
        ("", "/shared", "/shared"),
        ("[::1]:8000", "/", "[::1]"),
        ("[::1]", "/", "[::1]"),
        ("[::2]", "/", "front"),
    ],
)
def test_a_host_outweighs_a_path(host: str, path: str, name: str) -> None:
    assert BY_HOST.find(host, path).name == name


def test_where_nothing_fits_it_is_not_found() -> None:
    mounted = Mounted(places(("", "/shop")).applications[:1])
    assert mounted.find("", "/shop/x").name == "/shop"
    statuses: list[str] = []
    for path in ("/", "/shopping"):
        body = mounted.find("", path).app({"REQUEST_METHOD": "GET"}, lambda status, _headers: statuses.append(status))
        assert b"".join(body) == b"404 Not Found\nNo application is mounted here.\n"
    assert statuses == ["404 Not Found"] * 2


@pytest.mark.parametrize(("text", "path"), [("/", ""), ("/shop", "/shop"), ("/shop/", "/shop"), ("/a/b//", "/a/b")])
def test_a_path_is_kept_without_its_last_slash(text: str, path: str) -> None:
    assert check_path(text) == path


@pytest.mark.parametrize(
    ("text", "host"),
    [("Example.ORG", "example.org"), ("*.a.b.", "*.a.b"), ("[::1]", "[::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_a_host_is_kept_in_lower_case(text: str, host: str) -> None:
    assert check_host(text) == host


# Through the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "named.py").write_text(NAMED, encoding="utf-8")
    return tmp_path


def configure(folder: Path, text: str) -> None:
    (folder / "kirsch.toml").write_text(textwrap.dedent(text), encoding="utf-8")


def get(running: Running, path: str, host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(running.host, running.port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_mounts_of_the_command_line_are_served(serve: Serve, folder: Path) -> None:
    configure(folder, '[mounts]\n"/never" = "named:shop"\n')
    running = serve(
        "named:front", "--mount", "/shop=named:shop", "--mount=api.example.org/v1=named:create()", cwd=folder
    )
    for path, host, answer in [
        ("/shop/a", "", ["shop", "/shop", "/a"]),
        ("/v1/a", "api.example.org", ["made 1", "/v1", "/a"]),
        ("/never/a", "", ["front", "", "/never/a"]),
    ]:
        status, body = get(running, path, host)
        assert (status, json.loads(body)) == (200, answer), (path, host)


def test_several_applications_are_served_and_told(serve: Serve, folder: Path) -> None:
    configure(
        folder,
        """
        [[mount]]
        path = "/shop"
        app = "named:shop"

        [[mount]]
        path = "/shop/admin/"
        app = "named:admin"

        [[mount]]
        host = ["api.example.org", "*.api.example.org"]
        app = "named:create"
        factory = true

        [[mount]]
        host = "*.tenants.example.org"
        path = "/t"
        app = "named:create()"
        """,
    )
    running = serve("named:front", cwd=folder)
    assert (
        "\nserving named:front, named:shop at /shop, named:admin at /shop/admin, named:create() at api.example.org, "
        "named:create() at *.api.example.org, named:create() at *.tenants.example.org/t\n" in running.stderr
    )
    for path, host, answer in [
        ("/", "", ["front", "", "/"]),
        ("/shop/%61%2F?q=1", "", ["shop", "/shop", "/a/"]),
        ("/%73hop/a", "", ["shop", "/shop", "/a"]),
        ("//shop/a", "", ["front", "", "//shop/a"]),
        ("/shop/admin", "", ["admin", "/shop/admin", ""]),
        # One factory, called once for each table.
        ("/x", "api.example.org:80", ["made 1", "", "/x"]),
        ("/x", "V2.API.example.org", ["made 1", "", "/x"]),
        ("/t/x", "a.tenants.example.org", ["made 2", "/t", "/x"]),
        ("/u", "a.tenants.example.org", ["front", "", "/u"]),
    ]:
        status, body = get(running, path, host)
        assert (status, json.loads(body)) == (200, answer), (path, host)


@pytest.mark.parametrize("args", [[], ["-w", "0"]])
def test_what_no_application_is_for_is_not_found(args: list[str], serve: Serve, folder: Path) -> None:
    configure(folder, '[[mount]]\npath = "/shop"\napp = "named:shop"\n')
    # `serve` always names an application; a project that has only mounts names none.
    running = serve("--no-factory", *args, cwd=folder)
    assert "\nserving named:shop at /shop\n" in running.stderr
    assert get(running, "/shop/x") == (200, '["shop", "/shop", "/x"]')
    assert get(running, "/") == (404, "404 Not Found\nNo application is mounted here.\n")
    assert get(running, "/", method="HEAD") == (404, "")
    assert get(running, "/else", method="POST")[0] == 404


def test_a_mount_may_come_with_a_reload(serve: Serve, folder: Path) -> None:
    configure(folder, '[[mount]]\npath = "/shop"\napp = "named:shop"\n')
    running = serve("named:front", cwd=folder)
    assert get(running, "/api") == (200, '["front", "", "/api"]')
    old = running.wait_for_workers(1)
    configure(folder, '[[mount]]\npath = "/api"\napp = "named:api"\n')
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: get(running, "/api") == (200, '["api", "/api", ""]'), "the mount is served")
    # The old worker may answer too until it has ended.
    running.wait_for_workers(1, without=old)
    assert get(running, "/shop") == (200, '["front", "", "/shop"]')


def test_a_deadline_is_for_the_whole_path(serve: Serve, folder: Path) -> None:
    configure(
        folder,
        """
        [timeout-paths]
        "/shop/slow" = "200ms"

        [[mount]]
        path = "/shop"
        app = "named:shop"
        """,
    )
    assert get(serve("named:front", cwd=folder), "/shop/slow")[0] == 504


def check_config(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    return subprocess.run(
        [sys.executable, "-m", "kirsch", "--check-config", *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("app", "line"),
    [
        ("nmaed:shop", r"there is no module 'nmaed' in \S+ or elsewhere on the Python path; did you mean named:shop\?"),
        ("named:shpo", "named has no 'shpo'; did you mean named:shop?"),
        ("nmaed.py:shop", r"'nmaed\.py:shop': there is no file \S+/nmaed\.py; did you mean named\.py:shop\?"),
    ],
)
def test_a_mount_that_cannot_be_loaded_is_named(app: str, line: str, folder: Path) -> None:
    configure(folder, f'[[mount]]\npath = "/a"\napp = "named:shop"\n\n[[mount]]\npath = "/b"\napp = "{app}"\n')
    done = check_config(folder, "named:front")
    assert (done.returncode, done.stdout) == (3, "")
    pattern = line if "\\S" in line else re.escape(line)
    assert re.fullmatch(rf"kirsch: kirsch\.toml:5: the mount /b: {pattern}\n", done.stderr), done.stderr


def test_a_mount_that_raises_shows_its_own_traceback(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    configure(folder, '[[mount]]\nhost = "a.example.org"\npath = "/b"\napp = "broken"\n')
    done = check_config(folder)
    assert done.returncode == 3
    assert re.findall(r'File "([^"]+)"', done.stderr) == [str(folder / "broken.py")]
    line = "kirsch: kirsch.toml:1: the mount a.example.org/b: broken could not be imported: it raised ZeroDivisionError"
    assert done.stderr.splitlines()[-1] == line


def test_an_application_of_the_command_line_takes_the_place_of_the_files(folder: Path) -> None:
    configure(folder, 'app = "named:front"\n[[mount]]\npath = "/shop"\napp = "named:shop"\n')
    assert check_config(folder).stdout == "named:front, named:shop at /shop is ok\n"
    assert check_config(folder, "named:api").stdout == "named:api, named:shop at /shop is ok\n"


def test_without_mounts_nothing_stands_between(serve: Serve, folder: Path) -> None:
    (folder / "bare.py").write_text(
        "import sys\n\ndef app(environ, start_response):\n"
        '    start_response("200 OK", [])\n'
        '    return [repr("kirsch.config.mounts" in sys.modules).encode()]\n',
        encoding="utf-8",
    )
    assert get(serve("bare:app", cwd=folder), "/") == (200, "False")
