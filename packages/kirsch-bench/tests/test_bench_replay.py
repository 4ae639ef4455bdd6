"""``--replay``: recorded traffic is read, left out where it cannot be sent, and sent at its pace."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from benching import Asked, bench, measured, ok, scripted
from kirsch_bench import recording
from kirsch_bench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Serve

COMBINED = """\
192.0.2.7 - - [10/Oct/2026:13:55:36 +0000] "GET /a?b=1 HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11; \\"quoted\\")"
192.0.2.8 - Jane Doe [10/Oct/2026:13:55:38 +0000] "GET /late HTTP/2.0" 404 0 "http://shop.example/" "curl/8"
192.0.2.7 - - [10/Oct/2026:15:55:37 +0200] "GET /b HTTP/1.1" 200 5
192.0.2.7 - - [10/Oct/2026:13:55:37 +0000] "HEAD /c HTTP/1.1" 304 -
192.0.2.7 - - [10/Oct/2026:13:55:37 +0000] "POST /order HTTP/1.1" 201 5 "-" "-"
192.0.2.7 - - [10/Oct/2026:13:55:37 +0000] "OPTIONS * HTTP/1.1" 200 5 "-" "-"
192.0.2.7 - - [10/Oct/2026:13:55:37 +0000] "\\x16\\x03\\x01" 400 0 "-" "-"
192.0.2.7 - - [10/Oct/2026:13:55:37 +0000] "GET /live HTTP/1.1" 101 9 "-" "-"
192.0.2.7 - - [yesterday] "GET /live HTTP/1.1" 200 9 "-" "-"
and a line that some other program wrote
"""


def entry(at: str, url: str, method: str = "GET", status: int = 200, **request: Any) -> dict[str, Any]:
    headers = [{"name": name, "value": value} for name, value in request.pop("headers", {}).items()]
    more = {name: request.pop(name) for name in list(request) if name.startswith("_")}
    return {
        "startedDateTime": at,
        "request": {"method": method, "url": url, "headers": headers, **request},
        "response": {"status": status},
        **more,
    }


def har(path: Path, *entries: dict[str, Any]) -> str:
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": list(entries)}}), encoding="utf-8")
    return str(path)


def test_combined_log_is_read_and_what_it_lacks_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(COMBINED)
    found = recording.read(str(log), "127.0.0.1:8000")
    assert [(each.method, each.target, each.status) for each in found.requests] == [
        ("GET", "/a?b=1", 200), ("GET", "/b", 200), ("HEAD", "/c", 304), ("GET", "/late", 404),
    ]  # fmt: skip
    # Two requests of one second are half a second apart.
    assert [each.at - found.requests[0].at for each in found.requests] == [0, 1, 1.5, 2]
    assert found.requests[0].fields == (("User-Agent", 'Mozilla/5.0 (X11; "quoted")'),)
    assert found.requests[3].fields == (("Referer", "http://shop.example/"), ("User-Agent", "curl/8"))
    assert found.left_out == {
        "POST, whose body a log does not have": 1,
        "target that is no path": 1,
        "no request line": 1,
        "WebSocket": 1,
        "no time such as 10/Oct/2026:13:55:36 +0000": 1,
        "line not of the common or combined format": 1,
    }


def test_compressed_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "access.log.1.gz"
    log.write_bytes(gzip.compress(COMBINED.encode()))
    assert len(recording.read(str(log), "h").requests) == 4


def test_har_file_is_read_with_bodies_and_its_own_fields(tmp_path: Path) -> None:
    shop = "https://shop.example"
    path = har(
        tmp_path / "shop.har",
        entry("2026-10-10T10:00:00.250Z", f"{shop}/cart?x=1#top", headers={
            ":authority": "shop.example", "Host": "shop.example", "Cookie": "id=7; {curly}", "Connection": "keep-alive",
            "Accept-Encoding": "br", "Referer": f"{shop}/front", "Bad Name": "x",
        }),
        entry("2026-10-10T12:00:00.000+02:00", f"{shop}/", "POST", 302, headers={"Origin": shop},
              postData={"mimeType": "application/json", "text": '{"ä": 1}'}),
        entry("2026-10-10T10:00:01.5000000Z", f"{shop}/form", "POST",
              postData={"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "a b", "value": "ü"}]}),
        entry("2026-10-10T10:00:02Z", f"{shop}/bytes", "PUT", postData={"text": "AAH/", "encoding": "base64"}),
        entry("2026-10-10T10:00:03Z", f"{shop}/empty", "POST", bodySize=0),
        entry("2026-10-10T10:00:04Z", f"{shop}/lost", "POST", bodySize=12),
        entry("2026-10-10T10:00:04Z", "https://cdn.example/x.js"),
        entry("2026-10-10T10:00:04Z", "data:image/png;base64,AAAA"),
        entry("2026-10-10T10:00:04Z", "wss://shop.example/live"),
        entry("2026-10-10T10:00:04Z", f"{shop}/style.css", _fromCache="disk"),
    )  # fmt: skip
    found = recording.read(path, "127.0.0.1:8000")
    first, cart, form, raw, empty = found.requests
    assert (first.method, first.target, first.status, first.body) == ("POST", "/", 302, '{"ä": 1}'.encode())
    assert first.fields == (("Origin", "http://127.0.0.1:8000"),)
    assert cart.at - first.at == pytest.approx(0.25)
    assert (cart.target, cart.body) == ("/cart?x=1", None)
    assert cart.fields == (
        ("Cookie", "id=7; {curly}"), ("Accept-Encoding", "br"), ("Referer", "http://127.0.0.1:8000/front"),
    )  # fmt: skip
    assert form.body == b"a+b=%C3%BC"
    assert (raw.body, empty.body) == (b"\x00\x01\xff", b"")
    assert found.left_out == {
        "body that is not in the record": 1,
        "for another host": 1,
        "URL other than http and https": 1,
        "WebSocket": 1,
        "answered by the browser's cache": 1,
    }


def test_requests_are_sent_at_their_pace_with_their_bodies(tmp_path: Path) -> None:
    path = har(
        tmp_path / "shop.har",
        entry("2026-10-10T10:00:00.0Z", "https://shop.example/", headers={"X-Own": "{host}", "User-Agent": "recorded"}),
        entry("2026-10-10T10:00:01.0Z", "https://shop.example/cart", "POST", 201, postData={"text": "item=7"}),
        entry("2026-10-10T10:00:01.5Z", "https://shop.example/"),
        entry("2026-10-10T10:00:01.5Z", "https://cdn.example/"),
    )
    times: list[float] = []
    lock = threading.Lock()

    def respond(asked: Asked) -> bytes:
        with lock:
            times.append(time.monotonic())
        return ok(f"page {asked.number}".encode(), status="201 Created" if asked.body else "200 OK")

    with scripted(respond) as server:
        document = measured("--replay", path, "-H", "X-Test: yes", server.url)
        fast = bench("--replay", path, "--speed", "5", "-p", "2", server.url)
    assert [(asked.line.split()[0], asked.path, asked.body) for asked in server.asked[:3]] == [
        ("GET", "/", b""), ("POST", "/cart", b"item=7"), ("GET", "/", b""),
    ]  # fmt: skip
    fields = dict(server.asked[0].fields)
    assert fields == {
        "Host": f"127.0.0.1:{server.port}", "X-Own": "{host}", "User-Agent": "recorded", "X-Test": "yes",
    }  # fmt: skip
    found = document["result"]
    assert (found["ok"], found["failed"]) == (3, 0)
    # No request comes before its time, and each is answered within the longest latency after it.
    assert times[1] - times[0] >= 1 - found["latency"]["max"]
    assert times[2] - times[1] >= 0.5 - found["latency"]["max"]
    assert found["window"]["seconds"] >= 1.5
    assert document["load"]["replay"]["left_out"] == {"for another host": 1}
    assert document["load"]["replay"]["requests"] == 3
    assert fast.returncode == 0, fast.stdout
    assert "3 requests of " in fast.stdout
    assert "(HAR file) at 5 times its pace" in fast.stdout
    assert "Left out\n  1 for another host" in fast.stdout


def test_response_must_have_the_recorded_status(tmp_path: Path) -> None:
    path = har(
        tmp_path / "a.har",
        entry("2026-10-10T10:00:00Z", "http://h/gone", status=404),
        entry("2026-10-10T10:00:00Z", "http://h/unchanged", status=304),
        entry("2026-10-10T10:00:00Z", "http://h/moved", status=200),
    )
    statuses = {"/gone": "404 Not Found", "/unchanged": "200 OK", "/moved": "404 Not Found"}
    with scripted(lambda asked: ok(status=statuses[asked.path])) as server:
        found = measured("--replay", path, server.url, status=1)["result"]
        measured("--replay", path, "--status", "2xx,4xx", server.url)
    assert (found["ok"], found["failed"]) == (2, 1)
    assert "/moved" in found["errors"][0]["example"]


@pytest.mark.parametrize("log_format", ["json", "combined"])
def test_access_log_of_kirsch_is_replayed(
    log_format: str, serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    module = write_app(
        """
        def app(environ, start_response):
            start_response("404 Not Found" if environ["PATH_INFO"] == "/missing" else "200 OK", [])
            return [b"Hello"]
        """
    )
    log = tmp_path / "access.log"
    server = serve(f"{module}:app", "--access-logfile", str(log), f"--access-logformat={log_format}")
    client = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2].rstrip("/")), timeout=30)
    for method, path in (("GET", "/a?b=1"), ("GET", "/%C3%A4"), ("GET", "/missing"), ("POST", "/form")):
        client.request(method, path, headers={"User-Agent": "recorded"})
        client.getresponse().read()
    client.close()
    server.process.terminate()
    server.process.wait(30)
    statuses = {"/missing": "404 Not Found"}
    with scripted(lambda asked: ok(status=statuses.get(asked.path, "200 OK"))) as again:
        document = measured("--replay", str(log), "--speed", "100", again.url)
    assert sorted(asked.path for asked in again.asked) == ["/%C3%A4", "/a?b=1", "/missing"]
    assert document["load"]["replay"]["left_out"] == {"POST, whose body a log does not have": 1}
    agents = {value for asked in again.asked for name, value in asked.fields if name == "User-Agent"}
    assert agents == {"recorded"}


def test_part_of_a_recording_is_replayed(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(COMBINED)
    with scripted() as server:
        short = measured("--replay", str(log), "--speed", "10", "-z", "120ms", server.url)
        few = measured("--replay", str(log), "--speed", "10", "-n", "1", server.url)
    assert (short["result"]["requests"], few["result"]["requests"]) == (2, 1)
    assert short["load"]["replay"]["left_out"]["after the part that was asked for"] == 2


def test_host_of_a_recording_is_chosen(tmp_path: Path) -> None:
    path = har(
        tmp_path / "a.har",
        entry("2026-10-10T10:00:00Z", "http://a.example/1"),
        entry("2026-10-10T10:00:00Z", "http://b.example:81/2"),
    )
    assert [each.target for each in recording.read(path, "h").requests] == ["/1"]
    assert [each.target for each in recording.read(path, "h", "b.example:81").requests] == ["/2"]
    with pytest.raises(UsageError, match=r"has no request to send \(2 for another host\)"):
        recording.read(path, "h", "c.example")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no request to send (it is empty)"),
        ("{}", "is no HAR file: KeyError: 'log'"),
        ('{"log": {"entries": [{}]}}', "is no HAR file: KeyError: 'request'"),
        ("words\nwords\n", "has no request to send (2 line not of the common or combined format)"),
    ],
)
def test_file_that_is_no_recording_is_reported(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with scripted() as server:
        done = bench("--replay", str(path), server.url)
        missing = bench("--replay", "/no/such", server.url)
    assert (done.returncode, missing.returncode) == (2, 2)
    assert words in done.stderr
    assert missing.stderr == "kirsch bench: --replay: cannot read /no/such: No such file or directory\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--replay", "x", "--rate", "5"], "--replay and --rate do not go together"),
        (["--replay", "x", "--data", "5"], "--replay and --data do not go together"),
        (["--speed", "2"], "--speed means nothing without --replay"),
        (["--replay", "x", "--speed", "fast"], "is no speed"),
    ],
)
def test_flags_that_contradict_a_replay_are_refused(flags: list[str], words: str) -> None:
    with scripted() as server:
        done = bench(*flags, server.url)
    assert done.returncode == 2
    assert words in done.stderr
