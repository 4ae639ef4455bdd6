"""Encrypted connections under load: many handshakes at once, certificates and secrets that change meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import shutil
import signal
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authority import Authority, session_of
from proc import wait_until

if TYPE_CHECKING:
    from running import Running, Serve

TESTS = Path(__file__).parent
HERE = ("--chdir", str(TESTS))

# Of so many requests none may fail while certificates change; a longer run has TLS_RELOAD_REQUESTS=200000.
REQUESTS = int(os.environ.get("TLS_RELOAD_REQUESTS", "4000"))
CHANGES = 6


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def connected(running: Running, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection("localhost", running.port, timeout=30, context=context)
    connection.connect()
    return connection


def ask(connection: http.client.HTTPSConnection) -> float:
    """Return the seconds until the answer to a GET was there."""
    began = time.monotonic()
    connection.request("GET", "/hello")
    with connection.getresponse() as response:
        assert response.status == 200
        response.read()
    return time.monotonic() - began


def first_message() -> bytes:
    """Return the first message of a client's handshake."""
    hello = ssl.MemoryBIO()
    half = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    return hello.read()


@pytest.mark.slow
def test_thousands_of_handshakes_delay_no_other_client(serve: Serve, authority: Authority) -> None:
    certificate, key = authority.issue("handshakes")
    running = serve("waiting_app:app", *HERE, "--certfile", certificate, "--keyfile", key, "--header-timeout", "60")
    context = ssl.create_default_context(cafile=authority.certificate)
    known = connected(running, context)
    alone = sorted(ask(known) for _ in range(200))
    first = first_message()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2000, hard - 300)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    waiting = []
    seconds = []
    try:
        for index in range(count):
            each = socket.create_connection((running.host, running.port), timeout=30)
            waiting.append(each)
            # All of the first message without the second, a part of it, or its first byte.
            each.sendall((first, first[: len(first) // 2], first[:1])[index % 3])
            if index % 20 == 0:
                seconds.append(ask(known))
        # The oldest have been closed for those behind them. Some of the others go on, one byte at a time.
        for place in range(1, 60):
            for each in waiting[(count - 1000) // 3 * 3 + 2 :: 30]:
                with contextlib.suppress(ConnectionError):
                    each.sendall(first[place : place + 1])
            seconds.append(ask(known))
            # A new client is served at once, too.
            began = time.monotonic()
            with contextlib.closing(connected(running, context)) as new:
                ask(new)
            seconds.append(time.monotonic() - began)
        known.close()
        if count > 1500:
            running.wait_for(r"more than 1024 handshakes of TLS are under way: the oldest are closed for new ones")
            assert waiting[0].recv(65536) == b"" or waiting[0].recv(65536) == b""
    finally:
        for each in waiting:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    # A busy machine delays single requests without handshakes too.
    allowed = 0.1 + alone[-1]
    late = [each for each in seconds if each > allowed]
    assert len(late) <= len(seconds) // 50, (max(seconds), alone[-1], len(late))
    print(
        f"{count} handshakes: the longest answer took {max(seconds) * 1000:.0f} ms, {alone[-1] * 1000:.0f} ms without"
    )


def changing_files(folder: Path, authority: Authority) -> tuple[list[tuple[str, str]], Path, Path]:
    """Return three certificates with their keys, and the paths at which a server finds the first of them."""
    pairs = [authority.issue(f"{folder.name}-{number}") for number in range(3)]
    live = folder / "live"
    live.symlink_to(folder / "0")
    for number, pair in enumerate(pairs):
        (folder / str(number)).mkdir()
        for path, name in zip(pair, ("cert.pem", "key.pem"), strict=True):
            shutil.copy(path, folder / str(number) / name)
    return pairs, live / "cert.pem", live / "key.pem"


def first_of(chain: str) -> str:
    """Return the first certificate of a chain."""
    end = "-----END CERTIFICATE-----\n"
    return chain.partition(end)[0] + end


@pytest.mark.slow
def test_no_request_fails_while_certificates_and_workers_change(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    pairs, certificate, key = changing_files(tmp_path, authority)
    encoded = [ssl.PEM_cert_to_DER_cert(first_of(Path(pair[0]).read_text())) for pair in pairs]
    running = serve(
        "wsgi_app:app", *HERE, "--workers", "2", "--certfile", str(certificate), "--keyfile", str(key),
    )  # fmt: skip
    failures: list[str] = []
    counts = [0] * 4
    served: set[bytes] = set()
    is_over = threading.Event()

    def clients(number: int) -> None:
        context = ssl.create_default_context(cafile=authority.certificate)
        while not (is_over.is_set() or failures):
            try:
                connection = connected(running, context)
                assert isinstance(connection.sock, ssl.SSLSocket)
                served.add(connection.sock.getpeercert(True) or b"")
                for _ in range(25):
                    connection.request("GET", "/hello")
                    with connection.getresponse() as response:
                        response.read()
                        counts[number] += 1
                        if response.status != 200:
                            failures.append(f"status {response.status}")
                        if response.will_close:
                            break
                connection.close()
            except Exception as error:  # noqa: BLE001
                failures.append(f"request {counts[number]} of client {number}: {error!r}")

    threads = [threading.Thread(target=clients, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    turn = 0
    try:
        while (turn < CHANGES or sum(counts) < REQUESTS) and not failures:
            turn += 1
            served.clear()
            following = tmp_path / "following"
            following.symlink_to(tmp_path / str(turn % 3))
            following.rename(tmp_path / "live")
            if turn % 2:
                os.kill(running.pid, signal.SIGHUP)
            expected = encoded[turn % 3]
            wait_until(
                lambda expected=expected: bool(failures) or expected in served,  # type: ignore[misc]
                f"certificate {turn % 3} is served",
                timeout=60,
            )
    finally:
        is_over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert sum(counts) >= REQUESTS
    print(f"{sum(counts)} requests, {turn} changes, 0 failures")


@pytest.mark.slow
def test_secrets_of_tickets_are_replaced_while_the_server_runs(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    # The supervisor would wait for 6 hours.
    (tmp_path / "sitecustomize.py").write_text(
        "import kirsch.supervisor.certificates as certificates\ncertificates.TICKET_SECONDS = 2.0\n"
    )
    certificate, key = authority.issue("tickets")
    running = serve(
        "wsgi_app:app", *HERE, "--workers", "2", "--certfile", certificate, "--keyfile", key,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    client = ssl.create_default_context(cafile=authority.certificate)
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    old, _ = session_of(running, client, None)
    begun = time.monotonic()
    assert session_of(running, client, old)[1]
    # A client that returns is recognized, by a worker that has had the secret for no longer than others.
    young = old
    kinds = []
    while time.monotonic() < begun + 9:
        young, was_resumed = session_of(running, client, young)
        kinds.append(was_resumed)
        time.sleep(0.2)
    assert all(kinds), kinds
    # Of the secrets three are kept, so that the first ticket is too old by now.
    assert not session_of(running, client, old)[1]
