"""Real PostgreSQL and MariaDB servers for the tests: clusters in a temporary folder, on Unix sockets of their own."""

from __future__ import annotations

import concurrent.futures
import glob
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_SECONDS = 120.0
"""A cluster is made and started within seconds; the rest is for a machine that is busy."""


class NotInstalled(Exception):
    """The server's programs are not on this machine."""


def _program(name: str, *patterns: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    candidates = [found] if found else []
    for pattern in patterns:
        candidates += sorted(glob.glob(pattern), reverse=True)
    if not candidates:
        raise NotInstalled(f"{name} is not installed; `make databases` installs it")
    return candidates[0]


def _user(name: str) -> str | None:
    """The account that a server must run as, since neither starts as root; None where this is not root."""
    return name if os.geteuid() == 0 else None


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    # Not pytest's: the path of a socket has 107 bytes at most, and another account must be able to enter.
    folder = tempfile.mkdtemp(prefix="kq-", dir="/tmp")
    try:
        if user is not None:
            shutil.chown(folder, user)
        os.chmod(folder, 0o755)
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], user: str | None, folder: Path) -> None:
    done = subprocess.run(
        command, user=user, cwd=folder, capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    if done.returncode:
        raise AssertionError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def _server(command: list[str], user: str | None, folder: Path, socket: Path) -> Iterator[None]:
    log = folder / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, user=user, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{command[0]} did not start:\n{log.read_text(errors='replace')}")
                time.sleep(0.02)
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server; its text is UTF-8 and its collation that of the C.UTF-8 locale."""
    initdb = _program("initdb", "/usr/lib/postgresql/*/bin/initdb")
    postgres = _program("postgres", "/usr/lib/postgresql/*/bin/postgres")
    user = _user("postgres")
    with _folder(user) as folder:
        data = folder / "data"
        _run(
            [initdb, "-D", str(data), "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"], user, folder
        )
        command = [postgres, "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        with _server(command, user, folder, folder / ".s.PGSQL.5432"):
            _await_connection(f"postgresql+psycopg://test@/postgres?host={quote(str(folder))}")
            yield f"postgresql+psycopg://test@/postgres?host={quote(str(folder))}"


@contextmanager
def mariadb() -> Iterator[str]:
    """The URL of a MariaDB server with the collation that Debian gives it, which ignores case and accents."""
    install = _program("mariadb-install-db")
    server = _program("mariadbd", "/usr/sbin/mariadbd")
    user = _user("mysql")
    with _folder(user) as folder:
        data, socket = folder / "data", folder / "socket"
        rooted = "--auth-root-authentication-method=normal"
        _run([install, "--no-defaults", f"--datadir={data}", rooted, "--skip-test-db"], user, folder)
        command = [
            server, "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking",
            f"--pid-file={folder / 'pid'}", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
        ]  # fmt: skip
        with _server(command, user, folder, socket):
            base = f"mariadb+pymysql://root@localhost/{{}}?unix_socket={quote(str(socket))}&charset=utf8mb4"
            _await_connection(base.format("mysql"), "CREATE DATABASE kq")
            yield base.format("kq")


def _await_connection(url: str, statement: str = "SELECT 1") -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
            break
        except sa.exc.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    engine.dispose()


_engines: dict[tuple[str, int], Any] = {}


VARIANTS = {
    "sqlite": [""],
    "postgresql": ["", "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"],
    "mariadb": ["", "COLLATE utf8mb4_nopad_bin", "COLLATE utf8mb4_unicode_ci"],
}
"""The options of CREATE DATABASE: none, for the database's own collation, and others."""


def own_engine(name: str, url: str, variant: int = 0) -> Any:
    """An engine of a database that is this process's own, with the tables of :mod:`models`."""
    import sqlalchemy as sa

    from models import Base

    variant %= len(VARIANTS[name])
    database = f"own{os.getpid()}_{variant}"
    if (url, variant) not in _engines:
        given = sa.make_url(url)
        if name == "sqlite":
            engine = sa.create_engine(given, poolclass=sa.StaticPool)
        else:
            server = sa.create_engine(given, isolation_level="AUTOCOMMIT")
            with server.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {database} {VARIANTS[name][variant]}")
            server.dispose()
            engine = sa.create_engine(given.set(database=database))
        Base.metadata.create_all(engine)
        _engines[url, variant] = engine
    return _engines[url, variant]


def shared(work: Callable[..., Any], chunks: list[tuple[Any, ...]]) -> Iterator[Any]:
    """The results of some calls, by as many processes as there are processors; by this one where there is one call."""
    if len(chunks) == 1:
        yield work(*chunks[0])
        while _engines:
            _engines.popitem()[1].dispose()
        return
    processes = min(len(chunks), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(work, *zip(*chunks, strict=True))
