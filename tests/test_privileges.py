"""Workers have the configured user before the application is imported; their supervisor keeps its own."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

import kirsch
from kirsch.supervisor import privileges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Serve

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

NOBODY = pwd.getpwnam("nobody")
NOGROUP = NOBODY.pw_gid

WHO = """
    import json, os
    at_import = os.getresuid()
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "application/json")])
        try:
            os.setuid(0)
        except PermissionError:
            back = False
        else:
            back = True
        found = dict(
            uids=os.getresuid(), gids=os.getresgid(), groups=os.getgroups(), at_import=at_import, back=back,
            env={name: os.environ.get(name) for name in ("HOME", "USER", "LOGNAME", "COLOUR")},
        )
        return [json.dumps(found).encode()]
"""


@pytest.fixture(scope="session")
def public() -> Iterator[Path]:
    """A folder that every user can get at, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="kirsch-public-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def public_interpreter(public: Path) -> str:
    """This interpreter, if every user may run it; otherwise hard links to it outside of a home directory."""
    trial = [sys.executable, "-c", "import json, ssl"]
    try:
        subprocess.run(trial, user=NOBODY.pw_uid, group=NOGROUP, capture_output=True, cwd="/", timeout=30, check=True)
    except (PermissionError, subprocess.CalledProcessError):
        pass
    else:
        return sys.executable
    base = Path(os.path.realpath(sys.executable)).parent.parent
    version = f"python{sysconfig.get_python_version()}"
    libraries = [f"lib/{path.name}" for path in (base / "lib").glob("libpython*.so*")]
    for part in (f"bin/{version}", f"lib/{version}", *libraries):
        target = public / "interpreter" / part
        if (base / part).is_dir():
            leave_out = shutil.ignore_patterns("site-packages", "test", "idlelib", "tkinter", "ensurepip", "config-*")
            shutil.copytree(base / part, target, copy_function=_link, ignore=leave_out)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(base / part, target)
    return str(public / "interpreter" / "bin" / version)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture
def public_app(public: Path, public_interpreter: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Like ``write_app``, and what is written there runs in an interpreter that other users can run too."""
    import textwrap

    folder = Path(tempfile.mkdtemp(dir=public))
    folder.chmod(0o755)
    package = str(Path(kirsch.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), package]))
    monkeypatch.setattr(sys, "executable", public_interpreter)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(public_interpreter).parent.parent / "lib"))
    monkeypatch.chdir(folder)

    def write(source: str) -> str:
        (folder / "served.py").write_text(textwrap.dedent(source))
        return "served:app"

    return write


def who(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=10) as response:
        found: dict[str, Any] = json.load(response)
    return found


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# --- Whom the flags mean ---------------------------------------------------------------------------------------------


@as_root
def test_users_and_groups_are_names_or_numbers() -> None:
    for user in ("nobody", str(NOBODY.pw_uid)):
        found = privileges.identity(user, "")
        assert found is not None
        assert (found.owner, found.name, found.home) == ((NOBODY.pw_uid, NOGROUP), "nobody", NOBODY.pw_dir)
        assert found.groups == tuple(os.getgrouplist("nobody", NOGROUP))
    found = privileges.identity("nobody", "daemon")
    assert found is not None
    assert found.owner == (NOBODY.pw_uid, 1)
    found = privileges.identity("54321", "54322")
    assert found is not None
    assert (found.owner, found.groups, found.name) == ((54321, 54322), (54322,), "")
    found = privileges.identity("", "54322")
    assert found is not None
    assert found.owner == (0, 54322)
    assert privileges.identity("", "") is None


@as_root
def test_supplementary_groups_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 4, 24])
    found = privileges.identity("nobody", "")
    assert found is not None
    assert found.groups == (NOGROUP, 4, 24)


@pytest.mark.parametrize(
    ("user", "group", "line"),
    [
        ("nosuchuser", "", "--user: there is no user 'nosuchuser'; `getent passwd` lists those there are"),
        ("", "nosuchgroup", "--group: there is no group 'nosuchgroup'; `getent group` lists those there are"),
        ("54321", "", "--user 54321: no user has this number, so its group is not known; add --group"),
        ("4294967295", "", "--user: 4294967295 is more than a number of a user or a group can be"),
        ("", "9999999999", "--group: 9999999999 is more than a number of a user or a group can be"),
    ],
)
def test_unknown_users_and_groups_are_refused(user: str, group: str, line: str) -> None:
    with pytest.raises(ValueError) as raised:
        privileges.identity(user, group)
    assert str(raised.value) == line


def test_only_root_may_become_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    monkeypatch.setattr(os, "getegid", lambda: NOGROUP)
    with pytest.raises(ValueError) as raised:
        privileges.identity("root", "daemon")
    assert str(raised.value) == (
        "--user root --group daemon: only root may become another user, and this is nobody; start as root, or without"
    )
    assert privileges.identity("nobody", "") is None  # the process has this user already
    assert privileges.root_warning(None) == ""


def test_workers_as_root_are_warned_about_unless_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert privileges.root_warning(None) == (
        "the application runs as root: give --user and --group, or --user root if that is meant"
    )
    assert privileges.root_warning(privileges.identity("root", "")) == ""


# --- Logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_user() -> privileges.Identity:
    return privileges.Identity(54321, 54322, (54322,), "", "")


@as_root
def test_log_is_created_for_the_user_or_changes_its_owner(tmp_path: Path, other_user: privileges.Identity) -> None:
    tmp_path.chmod(0o755)
    old = tmp_path / "old.log"
    old.write_text("line\n")
    for path in (tmp_path / "new.log", old):
        privileges.give(other_user, str(path))
        status = path.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (54321, 54322, 0o644)
    assert old.read_text() == "line\n"
    privileges.give(other_user, "-")
    privileges.give(other_user, "")


@as_root
def test_file_in_a_directory_of_others_keeps_its_owner(tmp_path: Path, other_user: privileges.Identity) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "symbolic.log").symlink_to(secret)
    (theirs / "dangling.log").symlink_to(tmp_path / "unborn")
    (theirs / "hard.log").hardlink_to(secret)
    os.mkfifo(theirs / "pipe.log")
    os.chown(theirs, 54321, 54322)
    for path in theirs.iterdir():
        privileges.give(other_user, str(path))
    assert secret.stat().st_uid == 0
    assert not (tmp_path / "unborn").exists()
    tmp_path.chmod(0o755)
    privileges.give(other_user, str(secret))  # a second name of it: two names are one too many
    assert secret.stat().st_uid == 0


@as_root
def test_a_log_in_no_directory_is_one_line(tmp_path: Path, other_user: privileges.Identity) -> None:
    with pytest.raises(OSError) as raised:
        privileges.give(other_user, str(tmp_path / "none" / "a.log"))
    assert raised.value.strerror == f"cannot write {tmp_path}/none/a.log: No such file or directory"


# --- A server --------------------------------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("flags", [(), ("--preload",)], ids=["plain", "preload"])
def test_workers_cannot_regain_root(serve: Serve, public_app: Callable[[str], str], flags: tuple[str, ...]) -> None:
    server = serve(public_app(WHO), "--user", "nobody", "--env", "COLOUR=red", *flags)
    found = who(server.url)
    uid, gid = NOBODY.pw_uid, NOGROUP
    assert found["uids"] == found["at_import"] == [uid] * 3
    assert found["gids"] == [gid] * 3
    assert found["groups"] == os.getgrouplist("nobody", gid)
    assert found["back"] is False
    assert found["env"] == {"HOME": NOBODY.pw_dir, "USER": "nobody", "LOGNAME": "nobody", "COLOUR": "red"}
    assert status_of(server.pid)["Uid"].split() == ["0"] * 4
    for number, name in ((signal.SIGHUP, "SIGHUP"), (signal.SIGUSR2, "SIGUSR2")):
        before = len(server.stderr)
        os.kill(server.pid, number)
        server.wait_for(f"{name}: done", after=before)
        assert who(server.url)["uids"] == [uid] * 3
    # The memory of titles belongs to root after a change of user; titles are right nevertheless.
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    titles = [Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0").decode() for child in children]
    assert [title for title in titles if title and not title.startswith("kirsch: ")] == []  # one that ends has none
    assert any(title.startswith("kirsch: worker ") for title in titles)


@as_root
def test_logs_can_be_rotated_where_only_root_may_write(
    serve: Serve, public_app: Callable[[str], str], public: Path
) -> None:
    logs = public / "logs"
    logs.mkdir(mode=0o755)
    access, errors = logs / "access.log", logs / "error.log"
    server = serve(
        public_app(WHO), "-u", "nobody", "-w", "2", "--access-logfile", str(access), "--error-logfile", str(errors),
    )  # fmt: skip
    who(f"{server.url}/first")
    access.rename(logs / "access.log.1")
    errors.rename(logs / "error.log.1")
    os.kill(server.pid, signal.SIGUSR1)
    for number in range(500):  # the workers are signalled one after the other
        who(f"{server.url}/after-{number}")
        if access.exists() and access.stat().st_size:
            break
    assert "/after-" in access.read_text()
    assert "/first" in (logs / "access.log.1").read_text()
    for path in (access, errors):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY.pw_uid, NOGROUP)
    os.kill(server.pid, signal.SIGHUP)
    server.stop()
    assert "cannot be opened" not in (logs / "error.log.1").read_text() + errors.read_text() + server.stderr


@as_root
def test_sockets_and_files_have_the_right_owner_and_mode(
    serve: Serve, public_app: Callable[[str], str], public: Path
) -> None:
    run = public / "run"
    run.mkdir()
    server = serve(
        public_app(WHO), "--user", "nobody", "--group", "daemon", "--umask", "007",
        "--bind", f"unix:{run}/app.sock", "--bind", f"unix:{run}/open.sock?mode=666", "--pid", f"{run}/app.pid",
    )  # fmt: skip

    def told(name: str) -> tuple[int, int, int]:
        status = (run / name).stat()
        return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)

    assert told("app.sock") == (NOBODY.pw_uid, 1, 0o770)
    assert told("open.sock") == (NOBODY.pw_uid, 1, 0o666)
    assert told("app.pid")[:2] == (0, 0)
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(run / "app.sock"))
    connection.request("GET", "/")
    assert json.loads(connection.getresponse().read())["gids"] == [1, 1, 1]
    connection.close()
    server.stop()
    assert list(run.iterdir()) == []


@as_root
def test_user_flag_without_root_is_refused_in_one_line(public_app: Callable[[str], str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", public_app(WHO), "--bind", "127.0.0.1:0", "--user", "root"],
        user=NOBODY.pw_uid, group=NOGROUP, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith(
        "--user root: only root may become another user, and this is nobody; start as root, or without\n"
    )
    assert "Traceback" not in done.stderr


def test_the_environment_of_the_application_ends_with_a_reload_that_leaves_it_out(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    module = write_app(WHO)
    settings = tmp_path / "kirsch.toml"
    settings.write_text('env = ["COLOUR=red"]\n')
    server = serve(f"{module}:app", "--config", str(settings))
    assert who(server.url)["env"]["COLOUR"] == "red"
    settings.write_text("")
    os.kill(server.pid, signal.SIGHUP)
    server.wait_for("SIGHUP: done")
    # The old worker goes when its successor is there, and may answer once more until it does.
    assert any(who(server.url)["env"]["COLOUR"] is None for _ in range(1000))


def test_daemons_are_refused_with_what_to_do_instead(write_app: Callable[[str], str]) -> None:
    module = write_app(WHO)
    for flag in ("-D", "--daemon"):
        done = subprocess.run(
            [sys.executable, "-m", "kirsch", f"{module}:app", flag], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 2
        assert "systemd" in done.stderr
        assert done.stderr.count("\n") == 1
