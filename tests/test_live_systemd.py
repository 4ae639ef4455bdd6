"""Under a real systemd: a service that a socket wakes, that says when it is ready, and that is watched."""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

import kirsch
from live_systemd import Systemd, missing
from ports import free_port
from proc import wait_until
from running import children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_WHY = missing()
pytestmark = pytest.mark.skipif(bool(_WHY), reason=_WHY)

# Importing it takes until the gate is open; where there is none, no time.
APP = """
import os, time

while os.path.exists({gate!r}):
    time.sleep(0.01)

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""

SOCKET = """
[Socket]
ListenStream=127.0.0.1:{port}
"""

SERVICE = """
[Unit]
Requires=site.socket
After=site.socket

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=3s
Restart=on-watchdog
RestartSec=0
Environment="PYTHONPATH={path}"
WorkingDirectory={folder}
ExecStart="{python}" -m kirsch site_app:app -w2
ExecReload=/bin/kill -HUP $MAINPID
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    gate = tmp_path / "gate"
    (tmp_path / "site_app.py").write_text(APP.format(gate=str(gate)))
    return gate


@pytest.fixture
def systemd(tmp_path: Path, gate: Path) -> Iterator[Systemd]:
    with Systemd(tmp_path) as systemd:
        yield systemd


@pytest.fixture
def page(tmp_path: Path, systemd: Systemd) -> Callable[[], str]:
    """Ask the service that ``site.socket`` wakes."""
    port = free_port()
    package = os.path.dirname(os.path.dirname(kirsch.__file__))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    systemd.unit("site.socket", SOCKET.format(port=port))
    systemd.unit("site.service", SERVICE.format(path=path, folder=tmp_path, python=sys.executable))
    systemd.ctl("daemon-reload")
    systemd.ctl("start", "site.socket")

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as response:
            body: bytes = response.read()
        return body.decode()

    return page


def state(systemd: Systemd) -> str:
    return systemd.property("site.service", "ActiveState")


def main_pid(systemd: Systemd) -> int:
    return int(systemd.property("site.service", "MainPID"))


def test_a_request_starts_it_and_it_ends_in_order(systemd: Systemd, page: Callable[[], str]) -> None:
    assert state(systemd) == "inactive"
    worker = int(page())
    systemd.wait_for("site.service", "ActiveState", "active")
    supervisor = main_pid(systemd)
    assert worker in children(supervisor)
    assert systemd.property("site.service", "StatusText") == "serving site_app:app, 2 workers"
    systemd.ctl("stop", "site.service")
    assert systemd.property("site.service", "Result") == "success"
    assert int(page()) != worker, "the socket is still there"
    systemd.wait_for("site.service", "ActiveState", "active")
    assert main_pid(systemd) != supervisor


def test_it_is_ready_when_its_workers_are(systemd: Systemd, page: Callable[[], str], gate: Path) -> None:
    gate.touch()
    systemd.ctl("start", "--no-block", "site.service")
    systemd.wait_for("site.service", "ActiveState", "activating")
    wait_until(lambda: len(children(main_pid(systemd))) == 2, "workers import the application")
    assert state(systemd) == "activating"
    gate.unlink()
    systemd.wait_for("site.service", "ActiveState", "active")
    before = int(page())
    gate.touch()
    systemd.ctl("reload", "--no-block", "site.service")
    systemd.wait_for("site.service", "ActiveState", "reloading")
    assert int(page()) in children(main_pid(systemd))
    gate.unlink()
    systemd.wait_for("site.service", "ActiveState", "active")
    wait_until(lambda: int(page()) != before, "others answer")


def test_an_application_that_cannot_be_imported(systemd: Systemd, page: Callable[[], str], tmp_path: Path) -> None:
    (tmp_path / "site_app.py").write_text("import this_does_not_exist\n")
    systemd.ctl("start", "site.service", check=False)
    assert state(systemd) == "failed"
    assert systemd.property("site.service", "ExecMainStatus") == "3"
    (tmp_path / "site_app.py").write_text(APP.format(gate=str(tmp_path / "gate")))
    systemd.ctl("reset-failed")
    systemd.ctl("start", "site.service", "site.socket")
    assert page().isdigit()


@pytest.mark.slow
def test_the_watchdog(systemd: Systemd, page: Callable[[], str]) -> None:
    worker = int(page())
    systemd.wait_for("site.service", "ActiveState", "active")
    supervisor = main_pid(systemd)
    until = time.monotonic() + 6.5
    wait_until(lambda: time.monotonic() > until, "it has been watched for twice as long as it may be silent")
    assert (main_pid(systemd), systemd.property("site.service", "NRestarts")) == (supervisor, "0")
    os.kill(supervisor, signal.SIGSTOP)
    systemd.wait_for("site.service", "NRestarts", "1")
    assert int(page()) != worker
    systemd.wait_for("site.service", "ActiveState", "active")
    assert main_pid(systemd) != supervisor


@pytest.mark.slow
def test_an_upgrade_is_still_the_same_service(systemd: Systemd, page: Callable[[], str]) -> None:
    worker = int(page())
    systemd.wait_for("site.service", "ActiveState", "active")
    supervisor = main_pid(systemd)
    systemd.ctl("kill", "--kill-who=main", "--signal=USR2", "site.service")
    wait_until(lambda: int(page()) != worker, "new workers answer", timeout=20)
    systemd.wait_for("site.service", "ActiveState", "active")
    assert main_pid(systemd) == supervisor
    until = time.monotonic() + 4.5
    wait_until(lambda: time.monotonic() > until, "the new image had to tell the watchdog that it lives")
    assert systemd.property("site.service", "NRestarts") == "0"
    systemd.ctl("stop", "site.service")
    assert systemd.property("site.service", "Result") == "success"
