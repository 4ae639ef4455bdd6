"""Sockets that outlive the process that opened them: passed by a parent or by systemd, kept over reloads and an
exec."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from kirsch.net import addresses, inherited, sockets
from running import Running
from service_manager import activated

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kirsch.net.sockets import Listener
    from running import Serve

HELLO = """
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]
"""

WHO = """
    import os, subprocess
    def app(environ, start_response):
        names = [name for name in os.environ if name.startswith("LISTEN_")]
        child = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, stdout=subprocess.PIPE, text=True)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{names} {child.stdout.count('socket:')}".encode()]
"""


@pytest.fixture(autouse=True)
def nothing_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited, "_passed", None)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@pytest.fixture
def keep() -> Iterator[Callable[[list[Listener]], list[Listener]]]:
    """What is handed to it is discarded after the test."""
    kept: list[Listener] = []

    def keep(listeners: list[Listener]) -> list[Listener]:
        kept.extend(listeners)
        return listeners

    yield keep
    sockets.discard(kept)


@pytest.fixture
def launch() -> Iterator[Callable[..., Running]]:
    """Start Kirsch with descriptors; end it afterwards, and fail where it misbehaved."""
    import running as module

    started: list[Running] = []

    def launch(
        target: str, *args: str, passed: Sequence[socket.socket] = (), names: Sequence[str] = (), activate: bool = False
    ) -> Running:
        command = [sys.executable, "-m", "kirsch", target, *args]
        if activate:
            command = activated(command, passed, names)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[sock.fileno() for sock in passed],
            start_new_session=True,
        )
        pattern: re.Pattern[str] = module.STARTED
        started.append(Running(target, process, pattern))
        return started[-1]

    yield launch
    assert [complaint for server in started for complaint in server.finish()] == []


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(OSError) as raised:
        call()
    assert raised.value.strerror is not None
    assert "\n" not in raised.value.strerror
    return raised.value.strerror


def answer(address: tuple[str, int] | str, path: str = "/") -> str:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    if isinstance(address, str):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(f"\0{address[1:]}" if address.startswith("@") else address)
    else:
        connection.sock = socket.create_connection(address, 10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


# --- What an address may look like ---------------------------------------------------------------------------------


def test_how_inherited_sockets_are_written() -> None:
    assert addresses.parse_bind("fd://3").fd == 3
    assert addresses.parse_bind("systemd:web").name == "web"
    assert (addresses.parse_bind("systemd:80").host, addresses.parse_bind("systemd:80").port) == ("systemd", 80)
    bind = addresses.parse_bind("unix:/run/a?b.sock?mode=0660")
    assert (bind.path, bind.mode) == ("/run/a?b.sock", 0o660)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fd://", "write fd://3"),
        ("fd://web", "write fd://3"),
        ("fd://-1", "write fd://3"),
        ("systemd:", "write systemd:NAME"),
        ("unix:/run/app.sock?mode=rw", "as in unix:/run/app.sock?mode=660"),
        ("unix:/run/app.sock?mode=0888", "as in unix:/run/app.sock?mode=660"),
        ("unix:/run/app.sock?mode=7777", "as in unix:/run/app.sock?mode=660"),
        ("unix:?mode=660", "write unix:/run/app.sock"),
    ],
)
def test_how_they_are_not(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as raised:
        addresses.parse_bind(text)
    assert hint in str(raised.value)


# --- fd://N ----------------------------------------------------------------------------------------------------------


def test_serves_on_a_descriptor(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket, tmp_path: Path
) -> None:
    path = str(tmp_path / "parent.sock")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        server = launch(
            f"{write_app(HELLO)}:app",
            f"--bind=fd://{listening.fileno()}",
            f"--bind=fd://{unix.fileno()}",
            passed=[listening, unix],
        )
        assert server.addresses == (f"http://127.0.0.1:{listening.getsockname()[1]}", f"unix:{path}")
        assert answer(listening.getsockname()) == answer(path) == "hello"
        server.stop()
    assert os.path.exists(path)  # it is the parent's, who bound it


def test_serves_on_an_abstract_name(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    name = f"@kirsch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name[1:]}")
        unix.listen()
        binds = [f"--bind=fd://{sock.fileno()}" for sock in (listening, unix)]
        server = launch(f"{write_app(HELLO)}:app", *binds, passed=[listening, unix])
        assert server.addresses[1] == f"unix:{name}"
        assert answer(name) == "hello"


def test_a_connection_that_waits_already_is_answered(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    with socket.create_connection(listening.getsockname(), 10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        launch(f"{write_app(HELLO)}:app", f"--bind=fd://{listening.fileno()}", passed=[listening])
        assert client.makefile("rb").read().endswith(b"hello")


def test_what_is_no_listening_socket_is_refused(tmp_path: Path) -> None:
    def adopt(fd: int) -> str:
        return refusal(lambda: sockets.listen([f"fd://{fd}"])).removeprefix(f"cannot listen on fd://{fd}: ")

    assert adopt(60000) == "descriptor 60000 is not open; the program that starts kirsch has to pass it on"
    with (tmp_path / "file").open("w") as file:
        assert adopt(file.fileno()).endswith("is a file and not a socket; check the number")
    with socket.socket() as sock:
        assert adopt(sock.fileno()).endswith(
            "is a socket that does not listen; the program that opens it has to call listen() first"
        )
        assert sock.fileno() > 0
        os.fstat(sock.fileno())  # it is still open, and its owner's
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        assert "is a datagram socket; HTTP needs a stream" in adopt(sock.fileno())
    left, right = socket.socketpair()
    with left, right:
        assert adopt(left.fileno()).endswith(
            "is a connection; pass the socket that listens, which is Accept=no in a socket unit"
        )


def test_a_refusal_is_one_line_and_a_status(write_app: Callable[[str], str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", f"{write_app(HELLO)}:app", "--bind", "fd://77"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    line = (
        "kirsch: cannot listen on fd://77: descriptor 77 is not open; the program that starts kirsch has to pass it on"
    )
    assert line in done.stderr.splitlines()
    assert "Traceback" not in done.stderr


# --- Socket activation -----------------------------------------------------------------------------------------------


def test_sockets_of_systemd_are_served_and_its_variables_end_here(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    server = launch(f"{write_app(WHO)}:app", passed=[listening], names=["web"], activate=True)
    assert server.addresses == (f"http://127.0.0.1:{listening.getsockname()[1]}",)
    assert answer(listening.getsockname()) == "[] 0"


def test_without_a_supervisor_too(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    server = launch(f"{write_app(WHO)}:app", "--workers", "0", passed=[listening], activate=True)
    assert server.addresses == (f"http://127.0.0.1:{listening.getsockname()[1]}",)
    assert answer(listening.getsockname()) == "[] 0"


def test_names_choose_among_them(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = launch(
            f"{write_app(HELLO)}:app", "--bind", "systemd:web", passed=[other, listening], names=["admin", "web"],
            activate=True,
        )  # fmt: skip
        assert server.addresses == (f"http://127.0.0.1:{listening.getsockname()[1]}",)
        server.wait_for(r"systemd passed a socket that --bind leaves out, unserved: .* add --bind systemd:admin$")


def test_an_upgrade_keeps_them(
    launch: Callable[..., Running], write_app: Callable[[str], str], listening: socket.socket
) -> None:
    server = launch(f"{write_app(HELLO)}:app", passed=[listening], activate=True)
    for _ in range(2):
        before = len(server.stderr)
        os.kill(server.pid, signal.SIGUSR2)
        server.wait_for("SIGUSR2: done", after=before)
        assert answer(listening.getsockname()) == "hello"


def passed_to_us(monkeypatch: pytest.MonkeyPatch, **environ: str) -> list[tuple[str, int]]:
    monkeypatch.setattr(inherited, "_passed", None)
    variables = dict(environ)
    found = inherited.passed(variables)
    assert variables == {}
    return found


def test_what_the_variables_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = str(os.getpid())
    monkeypatch.setattr(os, "set_inheritable", lambda *_: None)  # those are this process's own descriptors
    assert passed_to_us(monkeypatch) == []
    assert passed_to_us(monkeypatch, LISTEN_PID=pid, LISTEN_FDS="0") == []
    assert passed_to_us(monkeypatch, LISTEN_PID="1", LISTEN_FDS="2") == []
    assert passed_to_us(monkeypatch, LISTEN_PID=pid, LISTEN_FDS="two") == []
    assert passed_to_us(monkeypatch, LISTEN_PID=pid, LISTEN_PIDFDID="12", LISTEN_FDS="2") == [
        ("unknown", 3),
        ("unknown", 4),
    ]
    assert passed_to_us(monkeypatch, LISTEN_PID=pid, LISTEN_FDS="2", LISTEN_FDNAMES="a:b") == [("a", 3), ("b", 4)]


def test_which_addresses_are_used() -> None:
    choose = inherited.choose_binds
    inherited.restore([])
    assert choose(["127.0.0.1:8000"], explicit=False) == (("127.0.0.1:8000",), "")
    inherited.restore([("web", 3), ("web", 4), ("admin", 5)])
    assert choose(["127.0.0.1:8000"], explicit=False) == (("fd://3", "fd://4", "fd://5"), "")
    assert choose(["fd://3", "fd://4", "systemd:admin"], explicit=True)[1] == ""
    binds, complaint = choose([":80"], explicit=True)
    assert binds == (":80",)
    assert complaint == (
        "systemd passed 3 sockets that --bind leaves out, unserved: "
        "remove --bind, or add --bind systemd:web --bind systemd:admin"
    )


def test_a_name_that_systemd_did_not_pass() -> None:
    inherited.restore([])
    where = "cannot listen on systemd:web: systemd passed no socket of this name; "
    assert refusal(lambda: sockets.listen(["systemd:web"])) == f"{where}it passed none to this process"
    inherited.restore([("app.socket", 3)])
    assert refusal(lambda: sockets.listen(["systemd:web"])) == f"{where}those that it passed are called app.socket"


# --- Kept over an exec -----------------------------------------------------------------------------------------------

EXEC = """
import json, os, sys
from kirsch.net import addresses, sockets
if len(sys.argv) == 2:
    listeners = sockets.listen(json.loads(sys.argv[1]))
    state = json.dumps(sockets.export(listeners))
    try:
        os.execv("/nonexistent", ["nonexistent"])
    except OSError:
        sockets.stay(listeners)
    print(*(listener.socket.get_inheritable() for listener in listeners), flush=True)
    sockets.export(listeners)
    os.execv(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"], sys.argv[1], state])
listeners = sockets.inherit(json.loads(sys.argv[2]))
print(*(listener.url for listener in listeners), flush=True)
print(*(listener.socket.get_inheritable() for listener in listeners), flush=True)
print(*(os.get_blocking(listener.socket.fileno()) for listener in listeners), flush=True)
rebound = sockets.rebind(listeners, json.loads(sys.argv[1]))
print(len(rebound.listeners), len(rebound.opened), len(rebound.gone), flush=True)
if os.fork() == 0:
    sockets.discard(listeners)
    os._exit(0)
os.wait()
print("forked", flush=True)
sys.stdin.read()
sockets.discard(listeners)
"""


def test_listeners_are_the_same_after_an_exec(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    process = subprocess.Popen(
        [sys.executable, "-c", EXEC, json.dumps(["127.0.0.1:0", f"unix:{path}"])],
        env={**os.environ, "PROGRAM": EXEC},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "False False\n"
    tcp, unix = process.stdout.readline().split()
    assert unix == f"unix:{path}"
    assert process.stdout.readline() == "False False\n"
    assert process.stdout.readline() == "False False\n"  # PyPy makes descriptors blocking
    assert process.stdout.readline() == "2 0 0\n"
    assert process.stdout.readline() == "forked\n"
    assert path.exists()  # only who bound it removes it, and that is this process still
    host, port = tcp.removeprefix("http://").split(":")
    socket.create_connection((host, int(port)), 10).close()
    process.communicate(timeout=20)
    assert not path.exists()


def test_upgrades_keep_a_unix_path_and_the_end_removes_it(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    server = serve(f"{write_app(HELLO)}:app", "--bind", f"unix:{path}", "--workers", "2")
    for number, name in ((signal.SIGUSR2, "SIGUSR2"), (signal.SIGHUP, "SIGHUP"), (signal.SIGUSR2, "SIGUSR2")):
        before = len(server.stderr)
        os.kill(server.pid, number)
        server.wait_for(f"{name}: done", after=before)
        assert answer(str(path)) == "hello"
    server.stop()
    assert not path.exists()


# --- Other addresses at a reload -------------------------------------------------------------------------------------


def urls(listeners: list[Listener]) -> list[str]:
    return [listener.url for listener in listeners]


def test_rebind_keeps_what_is_the_same(tmp_path: Path, keep: Callable[[list[Listener]], list[Listener]]) -> None:
    old = keep(sockets.listen(["127.0.0.1:0", f"unix:{tmp_path}/a"]))
    with socket.create_connection(old[0].socket.getsockname(), 10):
        rebound = sockets.rebind(old, [f"unix:{tmp_path}/b", "127.0.0.1:0"], backlog=7)
        keep(rebound.opened)
        assert [listener.url for listener in rebound.listeners] == [f"unix:{tmp_path}/b", old[0].url]
        assert rebound.listeners[1] is old[0]
        assert urls(rebound.opened) == [f"unix:{tmp_path}/b"]
        assert rebound.gone == [old[1]]
        assert (tmp_path / "a").exists()  # until the reload has succeeded
        sockets.discard(rebound.gone)
        assert not (tmp_path / "a").exists()
        old[0].socket.accept()[0].close()  # what waited there waits there still


def test_rebind_changes_all_or_nothing(tmp_path: Path, keep: Callable[[list[Listener]], list[Listener]]) -> None:
    old = keep(sockets.listen(["127.0.0.1:0"]))
    with pytest.raises(OSError):
        sockets.rebind(old, [f"unix:{tmp_path}/new", f"unix:{tmp_path}/none/x"])
    assert list(tmp_path.iterdir()) == []
    socket.create_connection(old[0].socket.getsockname(), 10).close()


def test_rebind_names_the_own_socket_that_is_in_the_way(keep: Callable[[list[Listener]], list[Listener]]) -> None:
    old = keep(sockets.listen(["127.0.0.1:0"]))
    port = old[0].address[1]
    old[0].bind = f"127.0.0.1:{port}"
    assert refusal(lambda: sockets.rebind(old, [f":{port}"])) == (
        f"cannot listen on :{port}: http://127.0.0.1:{port} of this server holds the port; that needs a restart"
    )


def test_rebind_sees_to_a_changed_mode(tmp_path: Path, keep: Callable[[list[Listener]], list[Listener]]) -> None:
    path = tmp_path / "app.sock"
    old = keep(sockets.listen([f"unix:{path}"]))
    rebound = sockets.rebind(old, [f"unix:{path}?mode=600"])
    assert (rebound.listeners, rebound.opened, rebound.gone) == (old, [], [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_upgrade_changes_addresses_and_keeps_them_where_it_cannot(
    launch: Callable[..., Running], write_app: Callable[[str], str], tmp_path: Path, listening: socket.socket
) -> None:
    settings = tmp_path / "kirsch.toml"
    old, new, third = (str(tmp_path / name) for name in ("old", "new", "third"))

    def bind(*addresses: str) -> None:
        settings.write_text(f"bind = {json.dumps(['127.0.0.1:0', *addresses])}\n")

    def upgrade() -> None:
        before = len(server.stderr)
        os.kill(server.pid, signal.SIGUSR2)
        server.wait_for("SIGUSR2: done", after=before)

    bind(f"unix:{old}", f"unix:{new}")
    server = launch(f"{write_app(HELLO)}:app", "--config", str(settings))
    bind(f"unix:{new}", f"unix:{third}")
    upgrade()
    assert answer(new) == answer(third) == answer((server.host, server.port)) == "hello"
    assert not os.path.exists(old)
    bind(f"unix:{third}", f"127.0.0.1:{listening.getsockname()[1]}")
    upgrade()
    server.wait_for(r"SIGUSR2: cannot listen on 127\.0\.0\.1:\d+: port .* is taken; .*; keeping the current addresses")
    assert answer(new) == answer(third) == answer((server.host, server.port)) == "hello"
    server.stop()
    assert not os.path.exists(new)
    assert not os.path.exists(third)


@pytest.mark.parametrize("setting", ["error-logfile", "access-logfile", "pid-file", "metrics-bind", "user"])
def test_a_setting_that_cannot_be_had_does_not_end_the_service_at_an_upgrade(
    launch: Callable[..., Running], write_app: Callable[[str], str], tmp_path: Path, setting: str
) -> None:
    settings = tmp_path / "kirsch.toml"
    settings.write_text(f"bind = ['127.0.0.1:0']\npid-file = '{tmp_path}/app.pid'\n")
    server = launch(f"{write_app(HELLO)}:app", "--config", str(settings))
    prefix = "unix:" if setting == "metrics-bind" else ""
    settings.write_text(f"bind = ['127.0.0.1:0']\n{setting} = '{prefix}{tmp_path}/none/at-all'\n")
    before = len(server.stderr)
    os.kill(server.pid, signal.SIGUSR2)
    server.wait_for(r"SIGUSR2: (?!checking).*(none|start|failed)", after=before)
    for _ in range(20):
        assert answer((server.host, server.port)) == "hello"


# --- Who may connect -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("umask", "suffix", "mode"),
    [(0o077, "", 0o700), (0o027, "", 0o750), (0o077, "?mode=666", 0o666), (0, "?mode=600", 0o600)],
)
def test_the_mode_of_a_unix_socket(
    tmp_path: Path, umask: int, suffix: str, mode: int, keep: Callable[[list[Listener]], list[Listener]]
) -> None:
    before = os.umask(umask)
    try:
        keep(sockets.listen([f"unix:{tmp_path}/s{suffix}"]))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket away")
def test_the_owner_of_a_unix_socket(tmp_path: Path, keep: Callable[[list[Listener]], list[Listener]]) -> None:
    keep(sockets.listen([f"unix:{tmp_path}/s?mode=660", "127.0.0.1:0"], owner=(65534, 65533)))
    status = (tmp_path / "s").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (65534, 65533, 0o660)


# --- --reuse-port ----------------------------------------------------------------------------------------------------


def test_each_worker_has_a_set_and_no_set_is_without_one(
    tmp_path: Path, keep: Callable[[list[Listener]], list[Listener]]
) -> None:
    listeners = keep(sockets.listen(["127.0.0.1:0", f"unix:{tmp_path}/s"], sets=3))
    assert len({listener.url for listener in listeners}) == 2
    assert [listener.set for listener in listeners] == [0, 1, 2, None]

    def sets(count: int) -> list[list[int | None]]:
        return [[each.set for each in sockets.share(listeners, index, count)] for index in range(count)]

    assert sets(3) == [[0, None], [1, None], [2, None]]
    assert sets(2) == [[0, 2, None], [1, None]]
    assert sets(1) == [[0, 1, 2, None]]
    assert sets(4) == [[0, None], [1, None], [2, None], [0, None]]

    rebound = sockets.rebind(listeners, ["127.0.0.1:0", f"unix:{tmp_path}/s"], sets=5)
    keep(rebound.opened)
    assert [listener.set for listener in rebound.opened] == [3, 4]
    assert rebound.gone == []
    assert len(set(urls(rebound.listeners))) == 2


def test_without_sets_all_workers_share_all(keep: Callable[[list[Listener]], list[Listener]]) -> None:
    listeners = keep(sockets.listen(["127.0.0.1:0"]))
    assert sockets.share(listeners, 2, 3) == listeners


def test_another_program_does_not_slip_in_beside(keep: Callable[[list[Listener]], list[Listener]]) -> None:
    (listener,) = keep(sockets.listen(["127.0.0.1:0"]))
    with pytest.raises(OSError) as raised:
        sockets.listen([f"127.0.0.1:{listener.address[1]}"], sets=2)
    assert raised.value.errno == errno.EADDRINUSE


def test_reuse_port_serves_with_each_worker(serve: Serve, write_app: Callable[[str], str]) -> None:
    module = write_app("""
        import os
        def app(environ, start_response):
            start_response("200 OK", [("Connection", "close")])
            return [str(os.getpid()).encode()]
    """)
    server = serve(f"{module}:app", "--workers", "2", "--reuse-port")
    seen: set[bytes] = set()
    for _ in range(200):  # the kernel spreads connections by a hash of both ends
        with urlopen(server.url, timeout=10) as response:
            seen.add(response.read())
        if len(seen) == 2:
            break
    assert len(seen) == 2
