"""Accidents of other frameworks, by name. The rest is tested where the feature is:
static files of a sibling directory, lost and locked sessions, SameSite, sessions with basic authentication, several
values in X-Forwarded-Host (test_services.py); unlimited parts (test_bodies.py)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web import multipart
from kirsch_web.forms import Limits
from kirsch_web.testing import Client


def test_many_ranges_cost_no_more_than_one(tmp_path: Path) -> None:
    """CVE-2025-62727: merging ranges was quadratic."""
    (tmp_path / "a.bin").write_bytes(bytes(1000))

    class Root:
        files = web.StaticFiles(str(tmp_path))

    client = Client(web.App(Root()))
    for ranges in (",".join(f"{n}-{n}" for n in range(20_000)), "0-," * 20_000 + "0-", "5-" + "0" * 60_000):
        before = time.process_time()
        reply = client.get("/files/a.bin", headers={"Range": f"bytes={ranges}"})
        assert time.process_time() - before < 1
        assert reply.status in (200, 416)
        assert reply.status == 416 or len(reply.body) == 1000


def test_a_host_with_an_encoded_line_end_stays_encoded() -> None:
    """CherryPy #1974: RFC 2047 words in Host were decoded, CR and LF too."""

    class Root:
        def index(self) -> Any:
            raise web.HTTPRedirect(web.current().url("/next"))

    host = "=?utf-8?q?a=0D=0ASet-Cookie:_b?="
    reply = Client(web.App(Root())).get("/", headers={"Host": host})
    assert "Set-Cookie" not in reply.headers
    assert "\r" not in reply.headers.get("Location")


def test_an_upload_that_goes_to_a_file_lets_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2025-54121: the roll-over to a file blocked all other requests. Here each chunk is a write of its own."""
    written: list[int] = []
    turns = [0]
    real = multipart._write

    def write(file: Any, data: memoryview) -> None:
        written.append(len(data))
        real(file, data)

    monkeypatch.setattr(multipart, "_write", write)
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0)

    other = threading.Thread(target=count)
    other.start()
    try:
        limits = Limits(spool=100_000)
        content = bytes(8 << 20)
        head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
        body = head + content + b"\r\n--b--\r\n"
        before = turns[0]
        # The system chooses the thread that runs after a write: one upload may end before the other thread runs.
        for _ in range(100):
            form = multipart.parse(iter([body[at : at + 65536] for at in range(0, len(body), 65536)]), "b", limits)
            assert form.files["f"][0].size == len(content)
            form.close()
            if turns[0] > before:
                break
        assert turns[0] > before
        # The memory before the file was made, and each chunk: never the whole at once.
        assert max(written) <= 100_000 + 65536
    finally:
        stop.set()
        other.join()


@pytest.mark.parametrize("depth", [10, 100_000])
def test_json_that_is_nested_deeply_is_refused_or_read(depth: int) -> None:
    class Root:
        @web.post
        def index(self) -> Any:
            return {"type": type(web.current().json()).__name__}

    reply = Client(web.App(Root())).post(
        "/", body=b"[" * depth + b"]" * depth, headers={"Content-Type": "application/json"}
    )
    assert reply.status == (200 if depth == 10 else 400)


def test_colliding_and_repeated_fields_are_limited() -> None:
    class Root:
        @web.post
        def index(self, **fields: str) -> int:
            return len(fields)

    client = Client(web.App(Root()))
    assert client.post("/", form={f"f{n}": "x" for n in range(1000)}).json() == 1000
    assert client.post("/", form={f"f{n}": "x" for n in range(1001)}).status == 413


@pytest.mark.in_process  # Kirsch refuses such a path itself
def test_a_path_of_many_segments_takes_time_by_its_length() -> None:
    """If a mount is looked for from the end of the path on, each step copies the path: 20 seconds for this one."""

    class Root:
        def default(self, *path: str) -> int:
            return len(path)

    app = web.Mounts({"": web.App(Root()), "/other": web.App(Root())})
    client = Client(app)
    before = time.process_time()
    assert client.get("/a" * 200_000).json() == 200_000
    assert time.process_time() - before < 3


@pytest.mark.in_process  # Kirsch refuses such a path itself
def test_a_path_that_no_file_can_have_is_not_looked_for(tmp_path: Path) -> None:
    """Following its links took a second for 200 KB, as each step copies the path."""

    class Root:
        files = web.StaticFiles(str(tmp_path))

    client = Client(web.App(Root()))
    before = time.process_time()
    assert client.get("/files" + "/a" * 300_000).status == 404
    assert time.process_time() - before < 3


class Page:
    """A page that refers to others, as pages do."""

    def index(self) -> str:
        return type(self).__name__


def test_a_path_in_circles_is_compiled_so_far_only() -> None:
    """Each object of a circle is compiled where a request comes to it: 4,000 of them took a minute."""

    class Other(Page):
        pass

    class Root(Page):
        other = Other()

    for number in range(200):
        setattr(Root, f"page_{number}", lambda self: "page")
    root = Root()
    root.other.root = root  # type: ignore[attr-defined]
    client = Client(web.App(root))
    assert client.get("/other/root/other/root").text == "Root"
    assert client.get("/other/root/page_7").text == "page"
    before = time.process_time()
    assert client.get("/other/root" * 2000).status == 404
    assert time.process_time() - before < 5


def test_pages_that_all_refer_to_each_other_are_mounted() -> None:
    """Twelve such pages are in a thousand million places."""
    pages = [Page() for _ in range(12)]
    for page in pages:
        for number, other in enumerate(pages):
            if other is not page:
                setattr(page, f"page{number}", other)
    before = time.process_time()
    client = Client(web.App(pages[0], {"/page3/page4": {"response.headers.X-Section": "here"}}))
    assert time.process_time() - before < 20
    for path in ("/page1", "/page11/page10/page9", "/page1/page0/page1/page2", "/page3/page4/page5"):
        reply = client.get(path)
        assert reply.text == "Page", path
        assert reply.headers.get("X-Section") == ("here" if path.startswith("/page3/page4") else "")
    assert client.get("/page1/page12").status == 404


def test_a_mount_beyond_ascii_is_found() -> None:
    class Root:
        def index(self, *, request: web.Request) -> str:
            return f"{request.mount} {request.path}"

    client = Client(web.Mounts({"/straße": web.App(Root())}))
    assert client.get("/stra%C3%9Fe/").text == "/straße /"
    assert client.get("/strasse/").status == 404


def test_objects_that_send_a_path_to_each_other_end() -> None:
    """Each names the other for every segment, and takes none: the walk never ended."""

    class Root(Page):
        def _cp_dispatch(self, _segments: list[str]) -> Any:
            return other

    class Other(Page):
        def _cp_dispatch(self, _segments: list[str]) -> Any:
            return root

    root, other = Root(), Other()
    assert Client(web.App(root)).get("/x").status == 404
