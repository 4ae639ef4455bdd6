"""``kirsch.middleware.profiler``: files for others to read, requests unharmed, and a page."""

from __future__ import annotations

import errno
import io
import os
import pstats
import re
import subprocess
import sys
import threading
import wsgiref.util
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from wsgiref.validate import validator

import pytest

from kirsch._native import FileWrapper
from kirsch.middleware import profiler
from kirsch.middleware.profiler import make_app
from kirsch.profile import stats
from kirsch.profile.files import AGGREGATE_NAME, NAME
from proc import wait_until
from waiting import PATIENCE, every_concurrent_driver, flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Serve


def helper() -> bytes:
    return b"help"


class Body:
    """An iterable with a ``close()``, as PEP 3333 has it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.blocks = iter([b"one", b"two"])

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks:
            self.log.append(f"made {block.decode()}")
            helper()
            yield block

    def close(self) -> None:
        self.log.append("closed")
        closing()


def closing() -> None:
    pass


def app(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/raise":
        raise ValueError("as the test wants it")
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/stream":
        return Body(environ["test.log"])
    if path == "/breaks":
        return breaks()
    if path == "/file":
        return environ["wsgi.file_wrapper"](io.BytesIO(b"content"))
    return [helper()]


def breaks() -> Iterator[bytes]:
    yield b"one"
    raise KeyError("two")


def environ_of(path: str = "/", method: str = "GET", query: str = "", **more: Any) -> dict[str, Any]:
    asked = {"SCRIPT_NAME": "", "PATH_INFO": path, "REQUEST_METHOD": method, "QUERY_STRING": query}
    environ: dict[str, Any] = {**asked, **more}
    wsgiref.util.setup_testing_defaults(environ)
    environ["wsgi.errors"] = io.StringIO()
    environ.setdefault("test.log", [])
    return environ


def ask(asked: Any, path: str = "/", **options: Any) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body, as a server would get them."""
    environ = options.pop("environ", None) or environ_of(path, **options)
    told: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        told[:] = [status, dict(headers)]
        return lambda _: None

    returned = asked(environ, start_response)
    try:
        body = b"".join(returned)
    finally:
        if hasattr(returned, "close"):
            returned.close()
    return told[0], told[1], body


def files(folder: Path, pattern: re.Pattern[str] = NAME) -> list[str]:
    return sorted(name for name in (os.listdir(folder) if folder.exists() else []) if pattern.fullmatch(name))


def calls(path: Path) -> dict[str, int]:
    """How often each function was called, as pstats reads it."""
    shown = pstats.Stats(str(path))
    return {name: row[1] for (_, _, name), row in shown.stats.items()}  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------------- the files


def test_each_request_has_a_file_named_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "profiles"
    profiled = make_app(app, folder)
    for method, path in (("GET", "/"), ("POST", "/a/b c"), ("GET", "/../..//etc/\x00\n"), ("BREW", "/\u00e4" * 300)):
        assert ask(profiled, path, method=method)[2] == b"help"
    names = files(folder)
    assert len(names) == len(os.listdir(folder)) == 4
    shown = {(run["method"], run["path"]) for name in names if (run := NAME.fullmatch(name))}
    assert {("GET", ""), ("POST", "a_b_c"), ("GET", "etc")} <= shown
    assert all(len(name) < 200 for name in names)
    assert calls(folder / names[0])["helper"] == 1
    assert calls(folder / names[0])["app"] == 1


def test_the_iterable_and_its_close_are_followed_and_no_block_is_delayed(tmp_path: Path) -> None:
    environ = environ_of("/stream")
    log = environ["test.log"]
    returned: Any = make_app(app, tmp_path)(environ, lambda *_: None)
    assert log == []
    blocks = iter(returned)
    for number in ("one", "two"):
        assert next(blocks) == number.encode()
        assert log[-1] == f"made {number}"
    assert len(log) == 2
    assert next(blocks, None) is None
    assert files(tmp_path) == [], "it is not over before close()"
    returned.close()
    assert log[-1] == "closed"
    [name] = files(tmp_path)
    found = calls(tmp_path / name)
    assert (found["helper"], found["closing"], found["close"], found["__iter__"]) == (2, 1, 1, 3)
    returned.close()
    assert log.count("closed") == 2
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("path", ["/", "/stream"])
@pytest.mark.parametrize("aggregate", [False, True])
def test_it_keeps_to_the_protocol_on_both_sides(tmp_path: Path, path: str, aggregate: bool) -> None:
    checked = validator(make_app(validator(app), tmp_path, aggregate))
    assert ask(checked, path)[0] == "200 OK"
    assert len(os.listdir(tmp_path)) == 1


def test_what_the_application_raises_is_raised_and_profiled(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path)
    with pytest.raises(ValueError, match="as the test wants it"):
        ask(profiled, "/raise")
    with pytest.raises(KeyError):
        ask(profiled, "/breaks")
    abouts = [stats.read(str(tmp_path / name))[1] for name in files(tmp_path)]
    assert [about["raised"] for about in abouts] == ["ValueError", "KeyError"]
    assert sys.getprofile() is None


def test_what_the_server_knows_how_to_send_is_given_back_as_it_is(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path)
    environ = environ_of("/file")
    environ["wsgi.file_wrapper"] = FileWrapper
    returned = profiled(environ, lambda *_: None)
    assert type(returned) is FileWrapper
    assert type(profiled(environ_of("/"), lambda *_: None)) is list
    assert len(files(tmp_path)) == 2


def test_only_the_last_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.prof").write_bytes(b"of another program")
    profiled = make_app(app, tmp_path, keep=3)
    for number in range(7):
        ask(profiled, f"/{number}")
    assert [run["path"] for name in files(tmp_path) if (run := NAME.fullmatch(name))] == ["4", "5", "6"]
    assert (tmp_path / "mine.prof").exists()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep"):
        make_app(app, tmp_path, keep=0)
    for viewer in ("profiles", "/", "/profiles/"):
        with pytest.raises(ValueError, match="viewer"):
            make_app(app, tmp_path, viewer=viewer)


def test_requests_that_overlap_are_each_profiled_by_themselves(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def overlapping(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        together.wait(PATIENCE)
        for _ in range(int(environ["QUERY_STRING"])):
            helper()
        together.wait(PATIENCE)
        return [b""]

    profiled = make_app(overlapping, tmp_path)
    counts = [1, 50, 200, 700]
    threads = [
        threading.Thread(target=ask, args=(profiled, f"/{count}"), kwargs={"query": str(count)}) for count in counts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {run["path"]: calls(tmp_path / name)["helper"] for name in files(tmp_path) if (run := NAME.fullmatch(name))}
    assert found == {str(count): count for count in counts}
    assert profiled.unfollowed == 0


def test_all_requests_together_are_counted_exactly(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path, aggregate=True)

    def visit() -> None:
        for _ in range(25):
            ask(profiled, "/")

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    profiled.flush()
    [name] = os.listdir(tmp_path)
    assert AGGREGATE_NAME.fullmatch(name)
    found = calls(tmp_path / name)
    assert (found["app"], found["helper"]) == (200, 200)
    assert stats.read(str(tmp_path / name))[1]["requests"] == 200


def test_what_was_counted_last_is_there_when_the_process_has_ended(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_profiler_middleware import app, ask, make_app\n"
        "profiled = make_app(app, sys.argv[2], aggregate=True)\n"
        "for _ in range(10): ask(profiled)\n"
    )
    subprocess.run([sys.executable, "-c", program, os.path.dirname(__file__), str(tmp_path)], check=True, timeout=60)
    [name] = os.listdir(tmp_path)
    assert calls(tmp_path / name)["app"] == 10


# ----------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("aggregate", [False, True])
def test_a_folder_that_cannot_be_written_harms_no_request(
    tmp_path: Path, aggregate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "WRITE_SECONDS", 0.0)
    folder = tmp_path / "profiles"
    folder.write_bytes(b"a file is in the way")
    profiled = make_app(app, folder, aggregate)
    said = []
    for path in ("/", "/stream", "/"):
        environ = environ_of(path)
        assert ask(profiled, environ=environ)[0] == "200 OK"
        said.append(environ["wsgi.errors"].getvalue())
    [line] = said[0].splitlines()
    assert "a profile could not be written" in line
    assert str(folder) in line
    assert said[1:] == ["", ""], "it is said once"
    folder.unlink()
    assert ask(profiled)[0] == "200 OK"
    assert len(os.listdir(folder)) == 1


def test_a_full_disc_harms_no_request_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    profiled = make_app(app, tmp_path)
    environ = environ_of("/stream")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert ask(profiled, environ=environ)[2] == b"onetwo"
    assert "No space left on device" in environ["wsgi.errors"].getvalue()
    assert os.listdir(tmp_path) == []
    # Once writing has worked again, the next failure is reported again.
    ask(profiled)
    environ = environ_of("/")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        ask(profiled, environ=environ)
    assert environ["wsgi.errors"].getvalue().count("\n") == 1


def test_a_profiler_within_a_profiler_gives_way(tmp_path: Path) -> None:
    inner = make_app(app, tmp_path / "inner")
    outer = make_app(inner, tmp_path / "outer")
    assert ask(outer)[2] == b"help"
    assert (inner.unfollowed, outer.unfollowed) == (1, 0)
    assert len(files(tmp_path / "outer")) == 1
    assert not (tmp_path / "inner").exists()


# ---------------------------------------------------------------------------------------------------------- served


@every_concurrent_driver
def test_requests_that_wait_for_each_other_are_told_apart_under_every_driver(
    driver: str, serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    module = write_app(
        f"""
        import threading
        from kirsch.middleware.profiler import make_app

        together = threading.Barrier(2)

        def only_left(): together.wait(20)
        def only_right(): together.wait(20)

        def body(act):
            together.wait(20)
            act()
            yield b"done"

        def app(environ, start_response):
            start_response("200 OK", [])
            return body(only_left if environ["PATH_INFO"] == "/left" else only_right)

        app = make_app(app, {str(tmp_path / "profiles")!r})
        """
    )
    site = serve(f"{module}:app", *flags(driver))
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda path=path: answers.append(site.page(path))) for path in ("/left", "/right")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["done", "done"]
    # An answer leaves before close() is called, which may take its time.
    wait_until(lambda: len(files(tmp_path / "profiles")) == 2, "both profiles are there")
    for name in files(tmp_path / "profiles"):
        run = NAME.fullmatch(name)
        assert run is not None
        found = calls(tmp_path / "profiles" / name)
        sides = {"only_left", "only_right"} & set(found)
        assert sides == {f"only_{run['path']}"}


# ---------------------------------------------------------------------------------------------------------- the page


class Page(HTMLParser):
    """Text and links of a page, and its elements."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.text = ""
        self.feed(body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag == "a":
            self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_there_is_no_page_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert ask(make_app(app, tmp_path), "/__profiles__")[2] == b"help"


def test_the_page_lists_runs_and_sorts_them(tmp_path: Path) -> None:
    def paced(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        for _ in range({"/b": 20_000, "/c": 5000}.get(environ["PATH_INFO"], 0)):
            helper()
        start_response("200 OK", [])
        return [b""]

    profiled = make_app(paced, tmp_path, viewer="/__profiles__")
    checked = validator(profiled)
    for path in ("/c", "/b", "/a"):
        ask(profiled, path)

    def shown(query: str) -> list[re.Match[str]]:
        status, headers, body = ask(checked, "/__profiles__", query=query)
        assert status == "200 OK"
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        runs = [NAME.fullmatch(link.rpartition("/")[2]) for link in Page(body).links]
        return [run for run in runs if run]

    def order(query: str) -> list[str]:
        return [run["path"] for run in shown(query)]

    assert order("") == ["a", "b", "c"]
    assert order("sort=path") == ["a", "b", "c"]
    # On a busy machine any of them may take longest.
    times = [int(run["us"]) for run in shown("sort=time")]
    assert (len(times), times) == (3, sorted(times, reverse=True))
    assert order("sort=nonsense") == ["a", "b", "c"]
    assert len(files(tmp_path)) == 3, "the page is no request of the application's"


def test_the_page_shows_a_run_with_its_functions_and_its_calls(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path, viewer="/__profiles__")
    ask(profiled, "/stream")
    [name] = files(tmp_path)
    for sort in ("", "total", "own", "calls", "name"):
        shown = Page(ask(profiled, f"/__profiles__/{name}", query=f"sort={sort}&threshold=0")[2])
        assert "GET /stream" in shown.text
        assert re.search(r"test_profiler_middleware\.py:\d+\(helper\)", shown.text)
        tree = shown.text[shown.text.index("own ms") :]
        assert re.search(r"  \S+\(Body\.__iter__\)|  \S+\(__iter__\)", tree)
        assert "/__profiles__" in shown.links
    assert ask(profiled, "/__profiles__", environ=environ_of("/__profiles__", SCRIPT_NAME="/mounted"))[0] == "200 OK"


def test_the_page_shows_all_requests_together(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path, aggregate=True, viewer="/__profiles__")
    for _ in range(5):
        ask(profiled)
    shown = Page(ask(profiled, "/__profiles__")[2])
    [link] = [link for link in shown.links if link.endswith(".prof")]
    run = Page(ask(profiled, link)[2])
    assert "5 requests" in run.text, "those that were not written yet are"
    assert "(helper)" in run.text


def test_what_was_asked_for_becomes_no_markup(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path, viewer="/__profiles__")
    attack = "/<script>alert(1)</script>\"'&"
    ask(profiled, attack)
    [name] = files(tmp_path)
    for path, shown in (("/__profiles__", "script_alert"), (f"/__profiles__/{name}", attack)):
        _, headers, body = ask(profiled, path)
        assert "script" not in Page(body).elements
        assert shown in Page(body).text
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    _, _, body = ask(profiled, "/__profiles__/<img src=x>", query="sort=<img>&threshold=<img>")
    assert "img" not in Page(body).elements


def test_the_page_shows_nothing_but_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    profiled = make_app(app, folder, viewer="/__profiles__")
    assert b"send a request first" in ask(profiled, "/__profiles__")[2]
    ask(profiled)
    [name] = files(folder)
    (tmp_path / "secret").write_text("a secret")
    os.rename(folder / name, tmp_path / name)
    for path in ("/../secret", f"/../{name}", "/%2e%2e/secret", f"/{name}"):
        status, _, body = ask(profiled, f"/__profiles__{path}")
        assert b"a secret" not in body
        assert b"helper" not in body
        assert status in ("200 OK", "404 Not Found")
    assert ask(profiled, f"/__profiles__/{name}")[0] == "404 Not Found"
    (folder / name).write_bytes(b"no profile")
    status, _, body = ask(profiled, f"/__profiles__/{name}")
    assert status == "404 Not Found"
    assert b"holds no profile" in body


def test_the_page_is_only_read(tmp_path: Path) -> None:
    profiled = make_app(app, tmp_path, viewer="/__profiles__")
    status, headers, _ = ask(profiled, "/__profiles__", method="POST")
    assert status == "405 Method Not Allowed"
    assert headers["Allow"] == "GET, HEAD"
    assert ask(profiled, "/__profiles__", method="HEAD")[0] == "200 OK"
