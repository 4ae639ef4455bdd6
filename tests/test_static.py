"""Static files: what the engine answers with by itself, seen by clients; and beside nginx."""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import hashlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import gateway_clients
import kirsch
from proc import wait_until
from raw import Peer, Response, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from running import Running, Serve

PATIENCE = 20.0

APP = """
import time

def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        print("slow", file=environ["wsgi.errors"], flush=True)
        time.sleep(30)
    start_response("200 OK", [("Content-Type", "text/plain")])
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    return [b"app " + environ["PATH_INFO"].encode("latin-1") + b" " + body]
"""

CSS = b"body { color: black }\n" * 40
LARGE = bytes(range(256)) * 4096


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the application and ``public``, whose files are so old that their content is kept."""
    public = tmp_path / "public"
    (public / "sub").mkdir(parents=True)
    (public / ".well-known").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "secret").write_text("outside")
    for name, content in {
        "app.css": CSS,
        "app.css.gz": gzip.compress(CSS),
        "large.bin": LARGE,
        "empty.txt": b"",
        "app.55e7cbb9ba48.js": b"hashed",
        "sub/index.html": b"<p>index",
        ".well-known/security.txt": b"well known",
        ".env": b"hidden",
        "näme with space.txt": b"unicode",
        "unknown.xyz": b"?",
    }.items():
        (public / name).write_bytes(content)
    (public / "link.css").symlink_to("app.css")
    (public / "out").symlink_to("../secret")
    os.mkfifo(public / "fifo")
    for path in public.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path


@pytest.fixture
def served(serve: Serve, site: Path) -> Running:
    return serve("app:app", "--static", "/static=./public", cwd=site)


def get(
    server: Running, target: str, fields: Mapping[str, str] | None = None, method: str = "GET", body: bytes = b""
) -> Response:
    return exchange(server.host, server.port, request(method, target, fields, body), timeout=PATIENCE)


def request(method: str, target: str, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    return build_request(method, target, headers=fields or {}, body=body or None)


def test_file_has_its_type_length_and_validators(served: Running) -> None:
    answer = get(served, "/static/app.css")
    assert (answer.status, answer.body) == (200, CSS)
    assert answer.header("Content-Type") == "text/css; charset=utf-8"
    assert answer.header("X-Content-Type-Options") == "nosniff"
    assert answer.header("Last-Modified") == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert answer.header("Accept-Ranges") == "bytes"
    assert answer.header("Cache-Control") == "max-age=60"
    assert answer.header("Vary") == "Accept-Encoding"
    assert re.fullmatch(r'"[^"\s]+"', answer.header("ETag") or "")
    assert get(served, "/static/unknown.xyz").header("Content-Type") == "application/octet-stream"
    assert get(served, "/static/unknown.xyz").header("Vary") is None
    assert get(served, "/static/empty.txt").body == b""
    assert get(served, "/static/large.bin").body == LARGE
    assert get(served, "/static/app.css?v=3").body == CSS
    assert get(served, "/static/n%C3%A4me%20with%20space.txt").body == b"unicode"
    assert get(served, "/%73tatic/app.css").body == CSS
    assert get(served, "/static/.well-known/security.txt").body == b"well known"
    assert get(served, "/static/app.55e7cbb9ba48.js").header("Cache-Control") == "max-age=31536000, immutable"


def test_head_says_what_get_would_and_has_no_body(served: Running) -> None:
    for target in ("/static/app.css", "/static/large.bin", "/static/nothing", "/static/sub"):
        whole, head = get(served, target), get(served, target, method="HEAD")
        assert (head.status, head.body) == (whole.status, b"")
        assert [field for field in head.headers if field[0] != "Date"] == [
            field for field in whole.headers if field[0] != "Date"
        ]


@pytest.mark.parametrize(
    "target",
    [
        "/static/nothing", "/static/.env", "/static/out", "/static/fifo", "/static/../secret", "/static/%2e%2e/secret",
        "/static/sub/../app.css", "/static//app.css", "/static/app.css/", "/static/app.css/x",
        "/static/sub%2Findex.html", "/static/..%5csecret", "/static/app.css%00", "/static/a%zz", "/static/",
        "/static/" + "x" * 300,
    ],
)  # fmt: skip
def test_what_is_no_file_gets_404(served: Running, target: str) -> None:
    answer = get(served, target)
    assert answer.status == 404
    assert answer.body == b"404 Not Found\nThere is no such file.\n"
    assert get(served, target, method="OPTIONS").status == 404


def test_paths_beside_the_prefix_are_the_application_s(served: Running) -> None:
    for target in ("/", "/statics/app.css", "/x/static/app.css", "/Static/app.css", "/stati", "/x/../static/app.css"):
        assert get(served, target).body.startswith(b"app "), target


def test_directory_is_answered_with_its_index_and_never_listed(serve: Serve, site: Path) -> None:
    server = serve("app:app", "--static", "/static=./public", cwd=site)
    assert get(server, "/static/sub/").body == b"<p>index"
    redirect = get(server, "/static/sub?a=b")
    assert (redirect.status, redirect.header("Location")) == (301, "/static/sub/?a=b")
    assert get(server, "/static").status == 404
    other = serve("app:app", "--static", "/static=./public", "--static-index", "", cwd=site)
    assert get(other, "/static/sub/").status == 404
    assert get(other, "/static/sub").status == 404
    assert get(other, "/static/sub/index.html").status == 200


def test_redirect_to_a_directory_has_the_prefix_that_a_proxy_has_removed(serve: Serve, site: Path) -> None:
    settings = ["--static-index", "index.html", "--trusted-proxies", "127.0.0.1"]
    for prefix, expected in (["--forwarded-prefix"], "/shop/static/sub/?a=1"), ([], "/static/sub/?a=1"):
        served = serve("app:app", "--static", "/static=./public", *settings, *prefix, cwd=site)
        answer = get(served, "/static/sub?a=1", {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Prefix": "/shop"})
        assert (answer.status, answer.header("Location")) == (301, expected)


def test_methods_that_would_change_a_file_are_refused(served: Running) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"):
        answer = get(served, "/static/app.css", method=method)
        assert (answer.status, answer.header("Allow")) == (405, "GET, HEAD, OPTIONS"), method
    options = get(served, "/static/app.css", method="OPTIONS")
    assert (options.status, options.header("Allow"), options.body) == (204, "GET, HEAD, OPTIONS", b"")


def test_browser_revalidates_with_what_it_was_given(served: Running) -> None:
    first = get(served, "/static/app.css", {"Accept-Encoding": "gzip, deflate, br, zstd"})
    assert (first.header("Content-Encoding"), gzip.decompress(first.body)) == ("gzip", CSS)
    tag, date = first.header("ETag") or "", first.header("Last-Modified") or ""
    browser = {"Accept-Encoding": "gzip, deflate, br, zstd", "If-None-Match": tag, "If-Modified-Since": date}
    again = get(served, "/static/app.css", browser)
    assert (again.status, again.body, again.header("Content-Length")) == (304, b"", None)
    for name in ("ETag", "Cache-Control", "Vary", "Last-Modified"):
        assert again.header(name) == first.header(name)
    # Another representation has another tag.
    plain = get(served, "/static/app.css", {"If-None-Match": tag})
    assert (plain.status, plain.body, plain.header("Content-Encoding")) == (200, CSS, None)
    assert plain.header("ETag") != tag
    assert get(served, "/static/app.css", {"If-None-Match": f'"x", W/{plain.header("ETag")}'}).status == 304
    assert get(served, "/static/app.css", {"If-Modified-Since": date}).status == 304
    assert get(served, "/static/app.css", {"If-Modified-Since": "Tue, 14 Nov 2023 22:13:19 GMT"}).status == 200
    assert get(served, "/static/app.css", {"If-Match": '"x"'}).status == 412
    assert get(served, "/static/app.css", {"If-Unmodified-Since": "Tue, 14 Nov 2023 22:13:19 GMT"}).status == 412


@pytest.mark.parametrize("name", ["app.css", "large.bin"])
def test_ranges_of_files_in_memory_and_on_disk(served: Running, site: Path, name: str) -> None:
    content = (site / "public" / name).read_bytes()
    size = len(content)
    target = f"/static/{name}"
    for wanted, first, last in (
        ("0-0", 0, 0),
        ("10-", 10, size - 1),
        ("-5", size - 5, size - 1),
        (f"3-{size + 9}", 3, size - 1),
    ):
        part = get(served, target, {"Range": f"bytes={wanted}"})
        assert (part.status, part.body) == (206, content[first : last + 1]), wanted
        assert part.header("Content-Range") == f"bytes {first}-{last}/{size}"
    outside = get(served, target, {"Range": f"bytes={size}-"})
    assert (outside.status, outside.header("Content-Range")) == (416, f"bytes */{size}")
    whole = get(served, target)
    for condition in (whole.header("ETag"), whole.header("Last-Modified")):
        assert get(served, target, {"Range": "bytes=1-2", "If-Range": condition or ""}).status == 206
    assert get(served, target, {"Range": "bytes=1-2", "If-Range": '"other"'}).body == content
    several = get(served, target, {"Range": "bytes=-3, 5-9,600-600"})
    boundary = re.fullmatch("multipart/byteranges; boundary=([0-9a-f]{32})", several.header("Content-Type") or "")
    assert several.status == 206
    assert boundary
    kind = whole.header("Content-Type")
    expected = b"".join(
        f"\r\n--{boundary[1]}\r\nContent-Type: {kind}\r\nContent-Range: bytes {a}-{b}/{size}\r\n\r\n".encode()
        + content[a : b + 1]
        for a, b in ((size - 3, size - 1), (5, 9), (600, 600))
    )
    assert several.body == expected + f"\r\n--{boundary[1]}--\r\n".encode()
    many = ",".join(f"{at}-{at}" for at in range(9))
    assert get(served, target, {"Range": f"bytes={many}"}).body == content
    assert get(served, target, {"Range": "bytes=0-,0-,0-"}).body == content
    assert get(served, target, {"Range": "bytes=0-1"}, method="HEAD").status == 200


def test_encoded_file_that_is_older_is_not_sent(served: Running, site: Path) -> None:
    os.utime(site / "public" / "app.css.gz", (1_600_000_000, 1_600_000_000))
    answer = get(served, "/static/app.css", {"Accept-Encoding": "gzip"})
    assert (answer.header("Content-Encoding"), answer.header("Vary"), answer.body) == (None, None, CSS)


def test_shortest_encoded_file_that_the_client_accepts_is_sent(served: Running, site: Path) -> None:
    (site / "public" / "app.css.br").write_bytes(b"br")
    (site / "public" / "app.css.zst").write_bytes(b"zst")

    def encoding(accepted: str) -> str | None:
        return get(served, "/static/app.css", {"Accept-Encoding": accepted}).header("Content-Encoding")

    assert encoding("gzip, deflate, br, zstd") == "br"
    assert encoding("gzip, zstd") == "zstd"
    assert encoding("br;q=0.5, gzip;q=0.6") == "gzip"
    assert encoding("identity, *;q=0") is None
    assert encoding("") is None
    part = get(served, "/static/app.css", {"Accept-Encoding": "zstd", "Range": "bytes=1-"})
    assert (part.status, part.body, part.header("Content-Encoding")) == (206, b"st", "zstd")


def test_changed_file_is_sent_at_once_or_after_a_second(served: Running, site: Path) -> None:
    path = site / "public" / "app.js"
    path.write_bytes(b"first")
    first = get(served, "/static/app.js")
    path.write_bytes(b"other")
    assert get(served, "/static/app.js").body == b"other"
    wait_until(lambda: get(served, "/static/app.css").body == CSS, "it is kept")
    replacement = site / "public" / "new"
    replacement.write_bytes(b"replaced")
    replacement.replace(site / "public" / "app.css")
    wait_until(lambda: get(served, "/static/app.css").body == b"replaced", "the new file is sent")
    assert get(served, "/static/app.js", {"If-None-Match": first.header("ETag") or ""}).status == 200
    path.unlink()
    wait_until(lambda: get(served, "/static/app.js").status == 404, "the file is gone")


def test_unreadable_file_gets_403_and_a_line_in_the_log(serve: Serve, site: Path) -> None:
    path = site / "public" / "private.txt"
    path.write_text("private")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    server = serve("app:app", "--static", "/static=./public", cwd=site)
    assert get(server, "/static/private.txt").status == 403
    server.wait_for("a static file cannot be read: /static/private.txt: Permission denied")


def test_pipelined_files_and_calls_are_answered_in_their_order(served: Running) -> None:
    targets = [
        "/static/app.css",
        "/a",
        "/static/large.bin",
        "/static/nothing",
        "/static/large.bin",
        "/b",
        "/static/app.css",
    ]
    bodies = [CSS, b"app /a ", LARGE, b"404 Not Found\nThere is no such file.\n", LARGE, b"app /b ", CSS]
    with Peer.connect(served.host, served.port, PATIENCE) as peer:
        peer.send(b"".join(request("GET", target) for target in targets * 5))
        for target, body in list(zip(targets, bodies, strict=True)) * 5:
            assert peer.read_response().body == body, target


def test_http_1_0_connection_closes_unless_it_is_kept(served: Running) -> None:
    with Peer.connect(served.host, served.port, PATIENCE) as peer:
        peer.send(b"GET /static/large.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert peer.read_response().header("Connection") == "keep-alive"
        peer.send(b"GET /static/large.bin HTTP/1.0\r\n\r\n")
        answer = peer.read_response()
        assert (answer.body, answer.header("Connection")) == (LARGE, "close")
        assert peer.read_until_closed() == b""


def test_body_of_a_request_for_a_file_is_not_read_as_another_request(served: Running) -> None:
    smuggled = request("GET", "/smuggled")
    for head in (
        f"GET /static/app.css HTTP/1.1\r\nHost: a\r\nContent-Length: {len(smuggled)}\r\n\r\n",
        f"POST /static/app.css HTTP/1.1\r\nHost: a\r\nContent-Length: {len(smuggled)}\r\n\r\n",
        "PUT /static/nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT /static/app.css HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    ):
        with Peer.connect(served.host, served.port, PATIENCE) as peer:
            peer.send(head.encode() + smuggled)
            answer = peer.read_response()
            assert answer.status in (200, 404, 405)
            assert answer.header("Connection") == "close"
            peer.end_sending()
            assert peer.read_until_closed() == b"", head


@pytest.mark.parametrize("driver", [["--threads", "1"], ["--threads", "4"], ["--driver", "gevent"]], ids=" ".join)
def test_every_driver_serves_files_without_the_application(serve: Serve, site: Path, driver: list[str]) -> None:
    if "gevent" in driver:
        pytest.importorskip("gevent")
    server = serve("app:app", "--static", "/static=./public", "--metrics-bind", "127.0.0.1:0", *driver, cwd=site)
    for _ in range(10):
        assert get(server, "/static/app.css").body == CSS
        assert get(server, "/static/large.bin").body == LARGE
    metrics = server.wait_for(r"metrics on http://(?P<host>[^:]+):(?P<port>\d+)")

    def text() -> str:
        asked = request("GET", "/metrics")
        return exchange(metrics["host"], int(metrics["port"]), asked, timeout=PATIENCE).body.decode()

    wait_until(lambda: "kirsch_static_files_total 20" in text(), "files are counted")
    assert "kirsch_requests_total 0" in text()


def test_program_serves_files(site: Path) -> None:
    server = kirsch.Server(lambda *_: [], "127.0.0.1:0", static={"/static": str(site / "public")}, static_max_age="2m")
    server.listen()
    thread = threading.Thread(target=server.start)
    thread.start()
    try:
        address = server.addresses[0]
        assert not isinstance(address, str)
        host, port = address[0], address[1]
        answer = exchange(host, port, request("GET", "/static/app.css"), timeout=PATIENCE)
        assert (answer.body, answer.header("Cache-Control")) == (CSS, "max-age=120")
        counted = server.statistics()
        assert (counted["static_files"], counted["requests"]) == (1, 0)
    finally:
        server.stop()
        thread.join()


def test_file_is_served_while_all_threads_are_in_calls(serve: Serve, site: Path) -> None:
    server = serve("app:app", "--static", "/static=./public", "--threads", "2", cwd=site)
    slow = [Peer.connect(server.host, server.port, PATIENCE) for _ in range(2)]
    for peer in slow:
        peer.send(request("GET", "/slow"))
    wait_until(lambda: server.stderr.count("slow") == 2, "both threads are busy")
    assert get(server, "/static/app.css").body == CSS
    assert get(server, "/static/large.bin").body == LARGE
    for peer in slow:
        peer.close()
    server.send(signal.SIGQUIT)


def test_client_that_does_not_read_keeps_nobody_waiting_and_is_cut(serve: Serve, site: Path) -> None:
    with (site / "public" / "huge.bin").open("wb") as file:
        file.truncate(1 << 30)
    server = serve("app:app", "--static", "/static=./public", "--write-timeout", "2s", cwd=site)
    with Peer.connect(server.host, server.port, PATIENCE) as peer:
        peer.send(request("GET", "/static/huge.bin"))
        assert peer.read_head().header("Content-Length") == str(1 << 30)
        assert get(server, "/static/app.css").body == CSS
        # It is not read until the server gives it up.
        wait_until(lambda: is_reset(peer), "the connection is cut")


def is_reset(peer: Peer) -> bool:
    poll = select.poll()
    poll.register(peer.sock, 0)  # an error is reported unasked
    return bool(poll.poll(0))


def test_access_log_and_metrics_count_files(serve: Serve, site: Path) -> None:
    log = site / "access.log"
    server = serve(
        "app:app", "--static", "/static=./public", "--access-logfile", str(log), "--access-logformat",
        '%(m)s %(U)s %(q)s %(s)s %(B)s %({etag}o)s "%(a)s"', cwd=site,
    )  # fmt: skip
    answer = get(server, "/static/app.css?x", {"User-Agent": "test"})
    get(server, "/static/app.css", {"If-None-Match": "*"})
    get(server, "/static/app.css", {"Range": "bytes=0-9"})
    get(server, "/static/large.bin", method="HEAD")
    get(server, "/static/nothing")
    server.stop(signal.SIGTERM)
    tag = (answer.header("ETag") or "").replace('"', r"\"")
    lines = log.read_text().splitlines()
    assert lines[0] == f'GET /static/app.css x 200 {len(CSS)} {tag} "test"'
    assert [line.split()[:1] + re.findall(r" (\d{3}) (\d+) ", line) for line in lines[1:]] == [
        ["GET", ("304", "0")], ["GET", ("206", "10")], ["HEAD", ("200", "0")], ["GET", ("404", "37")],
    ]  # fmt: skip


def test_missing_file_is_the_application_s_where_that_is_wanted(serve: Serve, site: Path) -> None:
    server = serve("app:app", "--static", "/=./public", "--static-missing", "app", cwd=site)
    assert get(server, "/app.css").body == CSS
    assert get(server, "/sub/").body == b"<p>index"
    for target in ("/", "/nothing", "/.env", "/out", "/%2e%2e/secret"):
        assert get(server, target).body.startswith(b"app /"), target
    assert get(server, "/nothing", method="POST", body=b"posted").body == b"app /nothing posted"
    assert get(server, "/app.css", method="POST", body=b"posted").status == 405


def test_options_of_static_files(serve: Serve, site: Path) -> None:
    server = serve(
        "app:app", "--static", "/static=./public", "--static-max-age", "1h", "--static-immutable", "sub/*,*.bin",
        "--static-symlinks", "anywhere", cwd=site,
    )  # fmt: skip
    assert get(server, "/static/app.css").header("Cache-Control") == "max-age=3600"
    assert get(server, "/static/sub/").header("Cache-Control") == "max-age=31536000, immutable"
    assert get(server, "/static/large.bin").header("Cache-Control") == "max-age=31536000, immutable"
    assert get(server, "/static/out").body == b"outside"
    fresh = serve("app:app", "--static", "/static=./public", "--static-max-age", "0", cwd=site)
    assert get(fresh, "/static/app.css").header("Cache-Control") == "no-cache"


def test_files_come_before_mounts_and_the_longest_prefix_wins(serve: Serve, site: Path) -> None:
    (site / "kirsch.toml").write_text(
        'static-max-age = "5m"\n'
        '[[static]]\npath = "/shop/static"\ndirectory = "public/sub"\n'
        '[[static]]\npath = "/shop"\ndirectory = "public"\n'
        '[mounts]\n"/shop" = "app:app"\n"/other" = "app:app"\n'
    )
    server = serve("app:app", cwd=site)
    assert get(server, "/shop/static/index.html").body == b"<p>index"
    assert get(server, "/shop/app.css").header("Cache-Control") == "max-age=300"
    assert get(server, "/shop/nothing").status == 404
    assert get(server, "/other/app.css").body == b"app /app.css "
    (site / "kirsch.toml").write_text('app = "app:app"\n[static]\n"/a" = "public"\n"/b/" = "public/sub"\n')
    short = serve("app:app", cwd=site)
    assert get(short, "/a/app.css").status == get(short, "/b/index.html").status == 200


def test_reload_changes_the_directories(serve: Serve, site: Path) -> None:
    (site / "other").mkdir()
    (site / "other" / "app.css").write_text("other")
    config = site / "kirsch.toml"
    config.write_text('[static]\n"/static" = "public"\n')
    server = serve("app:app", cwd=site)
    assert get(server, "/static/app.css").body == CSS
    config.write_text('[static]\n"/static" = "other"\n"/more" = "public"\n')
    server.send(signal.SIGHUP)
    wait_until(
        lambda: get(server, "/more/app.css").status == 200 and get(server, "/more/app.css").body == CSS, "reloaded"
    )
    wait_until(lambda: get(server, "/static/app.css").body == b"other", "the old worker has gone")
    config.write_text('[static]\n"/static" = "nowhere"\n')
    server.send(signal.SIGHUP)
    server.wait_for("nowhere: No such file or directory; --static serves the files of this directory at /static")
    assert get(server, "/static/app.css").body == b"other"


def kirsch_command(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kirsch", *arguments]
    return subprocess.run(command, cwd=site, capture_output=True, text=True, timeout=60, check=False)


def test_directory_that_does_not_exist_is_named_by_check_and_at_the_start(site: Path) -> None:
    for arguments in (("check",), ("--bind", "127.0.0.1:0")):
        ended = kirsch_command(site, *arguments, "--static", "/s=./missing", "app:app")
        assert ended.returncode == 1
        assert "./missing: No such file or directory; --static serves the files of this directory at /s" in ended.stderr
        assert "Traceback" not in ended.stderr
    file = kirsch_command(site, "check", "--static", "/s=app.py", "app:app")
    assert "app.py: Not a directory" in file.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--static", "public"], "--static: 'public' names no path; write /path=public"),
        (["--static", "static=public"], "--static: 'static' is not the beginning of a path; did you mean '/static'"),
        (["--static", "./public=/static"], "has the path last; did you mean /static=./public?"),
        (["--static", "/a=public", "--static", "/a/=app"], "'/a/' has a directory already, 'public'"),
        (["--static", "/a%20b=public"], "is percent-encoded; write the decoded path"),
        (["--static-index", "a/b"], "--static-index: 'a/b' is not the name of a file in each directory"),
        (["--static-missing", "500"], "--static-missing: '500' is not one of not-found, app"),
        (["--static-immutable", "/x/*"], "begins with a slash; names are relative to the directory"),
    ],
)
def test_wrong_settings_say_what_to_write(site: Path, arguments: list[str], message: str) -> None:
    ended = kirsch_command(site, "check", *arguments, "app:app")
    assert ended.returncode == 2
    assert message in ended.stderr


def test_curl_resumes_a_download(served: Running, site: Path, program: Callable[[str], str]) -> None:
    part = site / "part"
    part.write_bytes(LARGE[:1000])
    url = f"{served.url}/static/large.bin"
    subprocess.run([program("curl"), "-sSf", "-C", "-", "-o", part, url], check=True, timeout=60)
    assert part.read_bytes() == LARGE
    etags = site / "etag"
    for expected in ("200", "304"):
        answer = subprocess.run(
            [program("curl"), "-sS", "--compressed", "--etag-save", etags, "--etag-compare", etags, "-o", os.devnull,
             "-w", "%{http_code}", f"{served.url}/static/app.css"],
            check=True, timeout=60, capture_output=True, text=True,
        )  # fmt: skip
        assert answer.stdout == expected


@pytest.mark.slow
def test_digest_of_a_large_file_survives_slow_and_fast_readers(served: Running, site: Path) -> None:
    content = os.urandom(9 << 20)
    (site / "public" / "random.bin").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    for size in (1 << 20, 3000):
        with socket.create_connection((served.host, served.port), PATIENCE) as client:
            client.sendall(request("GET", "/static/random.bin", {"Connection": "close"}))
            received = b""
            while part := client.recv(size):
                received += part
        assert hashlib.sha256(received.partition(b"\r\n\r\n")[2]).hexdigest() == digest


def test_compressed_copies_are_made_once_and_served(served: Running, site: Path) -> None:
    public = site / "public"
    (public / "app.css.gz").unlink()
    (public / "page.html").write_text("<p>text\n" * 1000)
    (public / "short.js").write_text("short")
    (public / "random.txt").write_bytes(os.urandom(4000))
    (public / ".hidden.css").write_bytes(CSS)
    ended = kirsch_command(site, "static", "compress", "public")
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^\.gz +2 written +0 up to date", ended.stdout, re.MULTILINE), ended.stdout
    for suffix, module in ((".br", "brotli"), (".zst", "zstandard")):
        assert re.search(rf"^\{suffix} +2 written|^no \{suffix}: .*{module}", ended.stdout, re.MULTILINE), ended.stdout
    assert not [path for path in public.rglob("*.gz") if path.name not in ("app.css.gz", "page.html.gz")]
    assert not list(public.rglob(".*.gz*"))
    answer = get(served, "/static/page.html", {"Accept-Encoding": "gzip"})
    assert answer.header("Content-Encoding") == "gzip"
    assert gzip.decompress(answer.body) == b"<p>text\n" * 1000
    before = (public / "page.html.gz").read_bytes()
    again = kirsch_command(site, "static", "compress", "public", "--fast")
    assert re.search(r"^\.gz +0 written +2 up to date", again.stdout, re.MULTILINE), again.stdout
    (public / "page.html").write_text("<p>other\n" * 1000)
    assert kirsch_command(site, "static", "compress", "--fast", "public").returncode == 0
    assert (public / "page.html.gz").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["compress"], 2, "which directory? Write kirsch static compress DIRECTORY"),
        (["squeeze"], 2, "kirsch static has no squeeze"),
        (["compress", "nowhere"], 1, "nowhere is not a directory; name the one that --static serves"),
        (["compress", "--level=9", "public"], 2, "kirsch static compress has no --level=9"),
    ],
)
def test_wrong_uses_of_the_command_say_what_to_write(
    site: Path, arguments: list[str], status: int, message: str
) -> None:
    ended = kirsch_command(site, "static", *arguments)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert message in ended.stderr


def test_files_are_served_over_fastcgi_uwsgi_and_scgi(serve: Serve, site: Path) -> None:
    paths = {name: str(site / name) for name in ("fastcgi", "uwsgi", "scgi")}
    binds = [word for name, path in paths.items() for word in ("--bind", f"{name}:unix:{path}")]
    serve("app:app", "--static", "/static=./public", *binds, cwd=site)
    fields = [("Accept-Encoding", "gzip")]
    with gateway_clients.FastCgi(paths["fastcgi"]) as front:
        for name, content in (("app.css", CSS), ("large.bin", LARGE)):
            answer = front.ask(target=f"/static/{name}")
            assert (answer.status, answer.body) == (200, content)
            part = front.ask(target=f"/static/{name}", HTTP_RANGE="bytes=1-5", HTTP_IF_RANGE=answer.one("ETag"))
            assert (part.status, part.body) == (206, content[1:6])
            again = front.ask(target=f"/static/{name}", HTTP_IF_NONE_MATCH=answer.one("ETag"))
            assert (again.status, again.body) == (304, b"")
        assert front.ask(target="/static/%2e%2e/secret").status == 404
        assert front.ask("POST", "/static/app.css", b"body").status == 405
        assert front.ask(target="/other").body == b"app /other "
    for protocol, encode in (("uwsgi", gateway_clients.uwsgi), ("scgi", gateway_clients.scgi)):
        listed = gateway_clients.variables(target="/static/app.css", fields=fields)
        answer = gateway_clients.parse(gateway_clients.exchange(paths[protocol], encode(listed)))
        assert (answer.status, answer.one("Content-Encoding")) == (200, "gzip")
        assert gzip.decompress(answer.body) == CSS


# --- beside nginx ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nginx(site: Path, program: Callable[[str], str]) -> Iterator[tuple[str, int]]:
    """nginx that serves the same directory at the same path."""
    executable = program("nginx")
    folder = site / "nginx"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{ worker_connections 64; }}\nhttp {{\naccess_log off;\n{places}"
        "types { text/css css; text/javascript js; }\n"
        f"server {{ listen 127.0.0.1:{address[1]}; location /static/ {{ alias {site}/public/; gzip_static on; "
        "gzip_vary on; max_ranges 8; } }\n}\n"
    )
    command = [executable, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(address, PATIENCE).close()
            break
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError((folder / "error.log").read_text())
        time.sleep(0.01)
    yield address
    process.send_signal(signal.SIGQUIT)
    process.wait(PATIENCE)


SINCE = "Tue, 14 Nov 2023 22:13:20 GMT"
BEFORE = "Tue, 14 Nov 2023 22:13:19 GMT"

# Requests that both have to answer alike: status, length, range, encoding, and body where it is not a page.
ALIKE: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "app.css", {}),
    ("HEAD", "app.css", {}),
    ("GET", "large.bin", {}),
    ("GET", "empty.txt", {}),
    ("GET", "nothing", {}),
    ("GET", "sub/", {}),
    ("GET", "link.css", {}),
    ("GET", "app.css", {"Accept-Encoding": "gzip"}),
    ("GET", "app.css", {"Accept-Encoding": "gzip;q=0"}),
    ("GET", "app.css", {"Accept-Encoding": "identity"}),
    ("GET", "app.css", {"If-Modified-Since": SINCE}),
    ("GET", "app.css", {"If-Modified-Since": BEFORE}),
    ("GET", "app.css", {"If-Modified-Since": "nonsense"}),
    ("GET", "app.css", {"If-Unmodified-Since": SINCE}),
    ("GET", "app.css", {"If-Unmodified-Since": BEFORE}),
    ("GET", "app.css", {"If-None-Match": "*"}),
    ("GET", "app.css", {"If-None-Match": '"x"'}),
    ("GET", "app.css", {"If-Match": '"x"'}),
    ("GET", "app.css", {"If-Match": "*"}),
    ("GET", "large.bin", {"Range": "bytes=0-0"}),
    ("GET", "large.bin", {"Range": "bytes=100-"}),
    ("GET", "large.bin", {"Range": "bytes=-100"}),
    ("GET", "large.bin", {"Range": "bytes=0-99999999999"}),
    ("GET", "large.bin", {"Range": "bytes=99999999999-"}),
    ("GET", "large.bin", {"Range": "lines=1-2"}),
    ("GET", "large.bin", {"Range": "bytes=0-9,20-29"}),
    ("GET", "large.bin", {"Range": "bytes=0-9", "If-Range": SINCE}),
    ("GET", "large.bin", {"Range": "bytes=0-9", "If-Range": BEFORE}),
    ("GET", "large.bin", {"Range": "bytes=0-9", "If-Range": '"x"'}),
    ("GET", "large.bin", {"Range": ",".join(["bytes=0-"] + ["0-"] * 9)}),
    ("POST", "app.css", {}),
    ("DELETE", "app.css", {}),
    ("GET", "%2e%2e/secret", {}),
    ("GET", "app.css/", {}),
]


@pytest.mark.parametrize(("method", "name", "fields"), ALIKE, ids=lambda value: str(value)[:40])
def test_answers_are_those_of_nginx(
    served: Running, nginx: tuple[str, int], method: str, name: str, fields: dict[str, str]
) -> None:
    asked = request(method, f"/static/{name}", fields)
    ours = exchange(served.host, served.port, asked, timeout=PATIENCE)
    theirs = exchange(*nginx, asked, timeout=PATIENCE)
    if name.startswith("%2e"):
        # nginx removes dot segments and finds no such location; a path that climbs has no file here.
        assert (ours.status, theirs.status) == (404, 404)
        return
    assert ours.status == theirs.status
    names = ["Content-Range", "Content-Encoding", "Last-Modified"]
    if ours.status in (200, 206) and not (ours.header("Content-Type") or "").startswith("multipart"):
        names.append("Content-Length")
        assert ours.body == theirs.body
    if ours.status < 400:
        for field in names:
            assert ours.header(field) == theirs.header(field), field
    for field in ("Last-Modified", "Date"):
        if value := ours.header(field):
            assert email.utils.parsedate_to_datetime(value).year >= 2023
