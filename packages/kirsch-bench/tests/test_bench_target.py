"""Tests of targets: the parts of a URL, and that no other machine is loaded by mistake."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from benching import bench, scripted
from kirsch_bench import target
from kirsch_bench.errors import UnreachableError, UsageError
from running import own_frame

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "authority", "path", "addresses"),
    [
        ("http://127.0.0.1:8000/a?b=c", "127.0.0.1:8000", "/a?b=c", ["127.0.0.1:8000"]),
        ("http://127.0.0.1", "127.0.0.1", "/", ["127.0.0.1:80"]),
        ("https://127.0.0.1/x", "127.0.0.1", "/x", ["127.0.0.1:443"]),
        ("https://127.0.0.1:80/", "127.0.0.1:80", "/", ["127.0.0.1:80"]),
        ("127.0.0.1:8000", "127.0.0.1:8000", "/", ["127.0.0.1:8000"]),
        ("127.0.0.1/x", "127.0.0.1", "/x", ["127.0.0.1:80"]),
        (":8000/x", "localhost:8000", "/x", None),
        ("http://[::1]:8000/", "[::1]:8000", "/", ["[::1]:8000"]),
        ("http://10.1.2.3?q", "10.1.2.3", "/?q", ["10.1.2.3:80"]),
    ],
)
def test_a_url_is_read(url: str, authority: str, path: str, addresses: list[str] | None) -> None:
    parsed = target.parse(url)
    assert (parsed.authority, parsed.path) == (authority, path)
    assert parsed.plan()["host"] == authority
    if addresses is not None:
        assert parsed.plan()["addresses"] == addresses


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1/", "no URL to measure"),
        ("http://", "no URL to measure"),
        ("http://127.0.0.1:99999/", "no URL"),
        ("http://127.0.0.1:x/", "no URL"),
        ("http://me:secret@127.0.0.1/", "header"),
        ("http://127.0.0.1/a b", "percent-encode"),
        ("http://127.0.0.1/\r\nEvil: 1", "percent-encode"),
        ("unix:", "names no path"),
    ],
)
def test_what_is_no_url_is_refused_with_advice(url: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        target.parse(url)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "ip", ["127.0.0.1", "127.9.9.9", "10.0.0.1", "172.31.0.1", "192.168.1.1", "169.254.1.1", "::1", "fd00::1",
           "fe80::1%2", "0.0.0.0", "::ffff:10.0.0.1"],
)  # fmt: skip
def test_loopback_private_and_link_local_addresses_are_ours(ip: str) -> None:
    assert target.is_own(ip)


@pytest.mark.parametrize(
    "ip", ["8.8.8.8", "172.32.0.1", "192.0.2.1", "100.64.0.1", "198.18.0.1", "2606:4700::1", "::ffff:8.8.8.8",
           "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
def test_all_others_are_not(ip: str) -> None:
    assert not target.is_own(ip)


def test_a_public_target_is_refused_unless_it_is_said_to_be_ones_own() -> None:
    done = bench("http://8.8.8.8/")
    assert done.returncode == 2
    assert "8.8.8.8 is a public address" in done.stderr
    assert "--i-own-this-host" in done.stderr
    assert target.parse("http://8.8.8.8/", own=True).plan() == {"host": "8.8.8.8", "addresses": ["8.8.8.8:80"]}


def test_a_name_is_refused_if_any_of_its_addresses_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("127.0.0.1", "93.184.216.34")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(UsageError) as caught:
        target.parse("http://rebound.example/")
    assert "93.184.216.34" in str(caught.value)


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = bench(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert done.returncode == 3
    assert "Connection refused" in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1


def test_a_name_that_does_not_exist_is_told() -> None:
    done = bench("http://no-such-host.invalid/")
    assert done.returncode == 3
    assert "cannot find 'no-such-host.invalid'" in done.stderr
    assert own_frame(done.stderr) is None


def test_a_path_that_is_no_socket_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is no socket" in bench(f"unix:{tmp_path}/file").stderr
    missing = bench(f"unix:{tmp_path}/missing")
    assert missing.returncode == 3
    assert "No such file" in missing.stderr


def test_of_a_names_addresses_only_those_are_used_that_somebody_listens_on() -> None:
    with scripted() as server:
        both = target.Target("localhost", server.port, "/", "localhost", ips=("::1", "127.0.0.1"))
        assert target.require_answering(both).ips == ("127.0.0.1",)
    with pytest.raises(UnreachableError):
        target.require_answering(both)
