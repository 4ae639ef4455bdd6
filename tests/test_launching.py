"""``kirsch.run`` with the keywords of ``uvicorn.run``: in this process, and with a supervisor as a child process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from kirsch.launching import _words
from running import STARTED, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

APPLICATION = """
    import os

    def wsgi(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"wsgi {os.getpid()} {environ['wsgi.multithread']}".encode()]

    async def asgi(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"asgi {os.getpid()}".encode()})

    def make():
        return wsgi
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a program that calls ``kirsch.run`` with these arguments."""
    started: list[Running] = []
    (tmp_path / "launched.py").write_text(textwrap.dedent(APPLICATION))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(arguments: str, more: str = "") -> Running:
        program = tmp_path / "program.py"
        program.write_text(
            f"import kirsch, launched\nif __name__ == '__main__':\n    kirsch.run({arguments})\n"
            f"    print('over')\n{textwrap.indent(more, '    ')}"
        )
        process = subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=elsewhere
        )
        started.append(Running(arguments, process, STARTED))
        return started[-1]

    yield run
    complaints = [complaint for running in started for complaint in running.finish()]
    assert complaints == [], "\n".join(running.stderr for running in started)


@pytest.mark.parametrize("name", ["launched.wsgi", "'launched:wsgi'", "launched.asgi", "'launched:asgi'"])
def test_one_process_serves_and_goes_on_after_the_end(run: Callable[..., Running], name: str) -> None:
    running = run(f"{name}, host='127.0.0.1', port=0, timeout_keep_alive=5, access_log=True, use_colors=False")
    assert running.page() == f"{name.strip(chr(39)).replace(':', '.')[9:]} {running.pid}" + (
        " True" if "wsgi" in name else ""
    )
    running.wait_for_output(r"\"GET / HTTP/1.1\" 200")
    assert running.stop(signal.SIGINT) == 0
    assert running.stdout.endswith("over\n")


def test_a_factory_of_a_program_is_called(run: Callable[..., Running]) -> None:
    assert run("'launched:make', port=0, factory=True").page().startswith("wsgi")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_are_processes_below_a_supervisor(run: Callable[..., Running], number: int) -> None:
    running = run("'launched:wsgi', port=0, workers=2")
    pids = {int(running.page().split()[1]) for _ in range(40)}
    assert len(running.worker_pids()) == 2
    assert pids <= set(running.worker_pids())
    running.send(number)
    assert running.process.wait(10) == 0
    assert running.stdout.endswith("over\n")


def test_hup_reloads_the_workers_of_a_program(run: Callable[..., Running]) -> None:
    running = run("'launched:wsgi', port=0, workers=1, limit_max_requests=1000")
    before = running.wait_for_workers(1)
    running.send(signal.SIGHUP)
    running.wait_for_workers(1, without=before)


def test_reload_serves_a_changed_file(run: Callable[..., Running], tmp_path: Path) -> None:
    running = run(f"'launched:wsgi', port=0, reload=True, reload_dirs=[{str(tmp_path)!r}]")
    assert running.page().startswith("wsgi")
    seen = len(running.stderr)
    (tmp_path / "launched.py").write_text(textwrap.dedent(APPLICATION).replace("wsgi {os", "changed {os"))
    running.wait_for(r"launched\.py has changed: done, a new worker", after=seen)
    assert running.page().startswith("changed")


def test_an_application_that_cannot_be_imported_ends_the_program_with_status_3() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import kirsch; kirsch.run('absent:app', port=0); print('over')"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == ""
    assert "absent" in done.stderr.splitlines()[0]


def hello(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    raise AssertionError


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"timeout_keepalive": 1}, TypeError, "'timeout_keepalive'; did you mean 'timeout_keep_alive'?"),
        ({"worker": 1}, TypeError, "there is no keyword 'worker'; did you mean 'workers'?"),
        ({"quux": 1}, TypeError, "there is no keyword 'quux'"),
        ({"keep_alive": "soon"}, ValueError, "'soon' is not a duration"),
        ({"workers": 2}, ValueError, "workers needs the name of the application"),
        ({"headers": [("a", "b")]}, TypeError, "headers is uvicorn's; use a middleware"),
        ({"root_path": "/x"}, TypeError, "root_path is uvicorn's"),
        ({"env_file": ".env"}, TypeError, "env_file is uvicorn's"),
        ({"factory": "yes"}, TypeError, "factory must be bool"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_is_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        kirsch.run(hello, port=0, **options)
    assert text in str(raised.value)


# The keywords of uvicorn.run, as of uvicorn 0.49, each with a value that its users write.
UVICORN = {
    "uds": "/run/a.sock", "fd": 3, "loop": "uvloop", "http": "httptools", "ws": "websockets", "ws_max_size": 1000,
    "ws_max_queue": 4, "ws_ping_interval": 2.5, "ws_ping_timeout": 20.0, "ws_per_message_deflate": False,
    "lifespan": "on", "interface": "asgi3", "reload": True, "reload_dirs": ["a"], "reload_includes": "b",
    "reload_excludes": ["c"], "reload_delay": 0.5, "workers": 4, "log_config": {"version": 1}, "log_level": "trace",
    "access_log": True, "proxy_headers": True, "server_header": False, "date_header": False,
    "forwarded_allow_ips": ["10.0.0.1", "10.0.0.2"], "root_path": "", "limit_concurrency": 10, "backlog": 100,
    "limit_max_requests": 9, "limit_max_requests_jitter": 3, "timeout_keep_alive": 0, "timeout_graceful_shutdown": 7,
    "timeout_worker_healthcheck": 8, "ssl_keyfile": "k.pem", "ssl_certfile": "c.pem", "ssl_version": 17,
    "ssl_cert_reqs": 2, "ssl_ca_certs": "ca.pem", "ssl_ciphers": "TLS_AES_128_GCM_SHA256", "headers": [],
    "use_colors": False, "app_dir": "src", "factory": True, "h11_max_incomplete_event_size": 65536,
    "reset_contextvars": True,
}  # fmt: skip


def test_the_keywords_of_uvicorn_become_flags() -> None:
    words = [word for name in UVICORN for word in _words(name, UVICORN)]
    assert words == [
        "--bind=unix:/run/a.sock", "--bind=fd://3", "--loop=uvloop", "--ws-max-size=1000", "--ws-max-queue=4",
        "--ws-ping-interval=2.5", "--ws-ping-timeout=20.0", "--ws-compression=off", "--lifespan=on",
        "--interface=asgi", "--reload", "--reload-extra-file=a", "--reload-extra-file=b", "--workers=4",
        '--log-config={"version": 1}', "--log-level=debug", "--access-logfile=-", "--server-header=",
        "--forwarded-allow-ips=10.0.0.1", "--forwarded-allow-ips=10.0.0.2", "--limit-concurrency=10",
        "--backlog=100", "--max-requests=9", "--max-requests-jitter=3", "--keep-alive=1ms", "--graceful-timeout=7",
        "--deadlock-timeout=8", "--ssl-keyfile=k.pem", "--ssl-certfile=c.pem", "--ssl-cert-reqs=2",
        "--ssl-ca-certs=ca.pem", "--ssl-ciphers=TLS_AES_128_GCM_SHA256",
        "--pythonpath=src", "--factory", "--limit-request-head=65536",
    ]  # fmt: skip


def test_values_of_a_program_become_flags() -> None:
    options = {"env": {"A": "1"}, "static": {"/s": "/x"}, "threads": 4, "request_buffering": False, "preload": False}
    assert [word for name in options for word in _words(name, options)] == [
        "--env=A=1", "--static=/s=/x", "--threads=4", "--request-buffering=off", "--no-preload"
    ]  # fmt: skip
