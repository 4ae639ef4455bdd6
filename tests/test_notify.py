"""A service manager hears what it needs to know, when it is true (sd_notify(3))."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from kirsch.supervisor.notify import Notifier
from service_manager import ServiceManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Serve

HELLO = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]
"""


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceManager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@kirsch-test-{os.getpid()}"
    with ServiceManager(address) as manager:
        yield manager


@pytest.fixture
def path_manager(tmp_path: Path) -> Iterator[ServiceManager]:
    with ServiceManager(str(tmp_path / "notify")) as manager:
        yield manager


def test_every_message_of_the_protocol_is_sent(manager: ServiceManager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "10000000"})
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.status("loading\nshop:app")
    notifier.ready("4 workers")
    notifier.watchdog()
    notifier.reloading("why not")
    notifier.main_pid(4711)
    notifier.stopping("bye", patience=35.5)
    heard = manager.listen()
    assert 0 <= int(heard[3].pop("MONOTONIC_USEC")) - before < 60_000_000
    assert heard == [
        {"STATUS": "loading shop:app"},  # a line of its own would be an assignment of its own
        {"READY": "1", "STATUS": "4 workers"},
        {"WATCHDOG": "1"},
        {"RELOADING": "1", "STATUS": "why not"},
        {"MAINPID": "4711"},
        {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "35500000", "STATUS": "bye"},
    ]


def test_nothing_is_sent_without_notify_socket() -> None:
    for environ in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}):
        notifier = Notifier(environ)
        assert not notifier
        assert notifier.watchdog_interval == 0
        notifier.ready()


def test_closed_notify_socket_is_ignored(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "missing")})
    assert notifier
    notifier.ready("all is well")
    notifier.stopping()


@pytest.mark.parametrize(
    ("variables", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "often"}, 0.0),
        ({}, 0.0),
    ],
    ids=["any process", "ours", "another's", "no number", "none"],
)
def test_watchdog_interval_is_half_the_timeout_and_only_for_this_process(
    path_manager: ServiceManager, variables: dict[str, str], interval: float
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": path_manager.address, **variables})
    assert notifier.watchdog_interval == interval
    notifier.watchdog()
    assert len(path_manager.listen()) == (1 if interval else 0)


def test_nothing_is_imported_without_notify_socket() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "from kirsch.supervisor.notify import Notifier\n"
        "Notifier().ready()\n"
        "print(*sorted(name for name in set(sys.modules) - before - {'__future__'} if name[:6] != 'kirsch'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_ready_is_sent_when_the_last_worker_is_ready(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    module = write_app(f"""
        import os
        try:
            os.mkdir({str(tmp_path / "first")!r})
        except FileExistsError:
            open({str(gate)!r}).read()  # the second worker waits until the test has looked

        def app(environ, start_response):
            start_response("200 OK", [])
            return [str("NOTIFY_SOCKET" in os.environ).encode()]
    """)
    with ThreadPoolExecutor() as executor:
        starting = executor.submit(
            serve, f"{module}:app", "--workers", "2", env={"NOTIFY_SOCKET": path_manager.address}
        )
        with open(gate, "w"):
            assert [message for message in path_manager.listen() if "READY" in message] == []
        assert "STATUS" in path_manager.wait_for("READY=1")
        server = starting.result(20)
    with urlopen(server.url, timeout=10) as response:
        assert response.read() == b"False"  # applications are not the service


def test_ready_is_sent_without_a_supervisor(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager
) -> None:
    serve(f"{write_app(HELLO)}:app", "--workers", "0", env={"NOTIFY_SOCKET": path_manager.address})
    path_manager.wait_for("READY=1", "STATUS")


def test_reloading_ready_and_stopping(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager
) -> None:
    server = serve(f"{write_app(HELLO)}:app", env={"NOTIFY_SOCKET": path_manager.address})
    path_manager.wait_for("READY=1")
    for number in (signal.SIGHUP, signal.SIGUSR2):
        count = len(path_manager.heard)
        os.kill(server.pid, number)
        path_manager.wait_for("RELOADING=1", "MONOTONIC_USEC", after=count)
        path_manager.wait_for("READY=1", after=count)
    server.stop()
    path_manager.wait_for("STOPPING=1")


def test_ready_is_sent_when_a_reload_fails(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager, tmp_path: Path
) -> None:
    module = write_app(HELLO)
    server = serve(f"{module}:app", env={"NOTIFY_SOCKET": path_manager.address})
    path_manager.wait_for("READY=1")
    count = len(path_manager.heard)
    (tmp_path / "apps" / f"{module}.py").write_text("what is this?\n")
    os.kill(server.pid, signal.SIGHUP)
    path_manager.wait_for("RELOADING=1", after=count)
    path_manager.wait_for("READY=1", after=count)


def test_ready_is_sent_when_reloaded_settings_are_wrong(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager, tmp_path: Path
) -> None:
    """With Type=notify-reload, systemd waits for both messages after its signal."""
    server = serve(f"{write_app(HELLO)}:app", env={"NOTIFY_SOCKET": path_manager.address}, cwd=tmp_path)
    path_manager.wait_for("READY=1")
    count = len(path_manager.heard)
    (tmp_path / "kirsch.toml").write_text("wrokers = 2\n")
    os.kill(server.pid, signal.SIGHUP)
    path_manager.wait_for("RELOADING=1", "MONOTONIC_USEC", after=count)
    path_manager.wait_for("READY=1", "STATUS", after=count)


def test_watchdog_messages_are_sent_while_serving(
    serve: Serve, write_app: Callable[[str], str], path_manager: ServiceManager
) -> None:
    serve(
        f"{write_app(HELLO)}:app",
        env={"NOTIFY_SOCKET": path_manager.address, "WATCHDOG_USEC": "400000"},
    )
    for _ in range(3):
        path_manager.wait_for("WATCHDOG=1", after=len(path_manager.listen()))
