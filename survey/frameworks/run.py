"""Compare whole frameworks: make the databases, then run ``kirsch survey`` on survey.toml.

    python survey/frameworks/run.py [--check] [arguments of kirsch survey]

The SQLite file and a PostgreSQL server of its own, on a private Unix socket, live in a temporary folder until the
survey ends. PostgreSQL's programs are Debian's; as root they run as the account ``postgres``. Where they are missing
the scenarios with PostgreSQL are left out, and a line says so. ``--check`` measures nothing: it asks each framework
that is installed for each page, in process, and reports what differs.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
START_SECONDS = 120.0


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """The connection string of a PostgreSQL server that lives in ``folder``; empty where there is none to start."""
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not programs:
        yield ""
        return
    user = "postgres" if os.geteuid() == 0 else None
    home = folder / "postgresql"
    home.mkdir()
    if user is not None:
        folder.chmod(0o755)
        shutil.chown(home, user)
    initdb = [f"{programs[-1]}/initdb", "-D", f"{home}/data", "-U", "survey", "-A", "trust", "-E", "UTF8"]
    subprocess.run(
        [*initdb, "--locale=C.UTF-8", "-N"], user=user, cwd=home, check=True, stdout=subprocess.DEVNULL,
        timeout=START_SECONDS,
    )  # fmt: skip
    # All data are in memory, as those of SQLite are: what is measured is the framework and not the disk.
    options = [
        "listen_addresses=",
        "fsync=off",
        "synchronous_commit=off",
        "full_page_writes=off",
        "max_connections=200",
    ]
    command = [f"{programs[-1]}/postgres", "-D", f"{home}/data", "-k", str(home)]
    for option in options:
        command += ["-c", option]
    with open(folder / "postgresql.log", "wb") as log:
        server = subprocess.Popen(command, user=user, cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + START_SECONDS
            while not (home / ".s.PGSQL.5432").exists():
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"PostgreSQL did not start:\n{(folder / 'postgresql.log').read_text()}")
                time.sleep(0.02)
            yield f"host={home} user=survey dbname=postgres"
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM would wait for the clients
            server.wait(60)


def create(database: str) -> None:
    """Make the tables; PostgreSQL may need a moment more after its socket is there."""
    import data

    until = time.monotonic() + START_SECONDS
    while True:
        try:
            data.create(database)
            return
        except Exception as error:
            if time.monotonic() > until or "starting up" not in str(error):
                raise
            time.sleep(0.05)


def ask(framework: str, databases: list[str]) -> dict[str, str]:
    """The pages of a framework in a process of its own: what is random is left out."""
    code = (
        "import sys, json, pages, data, os\n"
        "from kirsch_web.testing import Client\n"
        "from urllib.parse import quote\n"
        "client = Client(pages.app)\n"
        "found = {}\n"
        "for page in ('hello', 'user/7', 'json'):\n"
        "    reply = client.get('/' + page)\n"
        "    found[page] = (reply.json() if page == 'json' else reply.text)\n"
        "for database in sys.argv[1:]:\n"
        "    for page in ('row', 'rows', 'updates'):\n"
        "        value = client.get(f'/{page}/{database}').json()\n"
        "        rows = [value] if page == 'row' else value\n"
        "        found[f'{page}/{database}'] = sorted({str(sorted(each)) for each in rows}) + [len(rows)]\n"
        "    found[f'fortunes/{database}'] = client.get(f'/fortunes/{database}').text\n"
        "if os.environ['FRAMEWORK'] != 'bare':\n"
        "    body = open('form.bin', 'rb').read()\n"
        "    fields = {'Content-Type': 'multipart/form-data; boundary=----survey'}\n"
        "    reply = client.post('/form', body=body, headers=fields)\n"
        "    found['form'] = reply.text\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *databases], cwd=HERE, env={**os.environ, "FRAMEWORK": framework},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    import json

    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(databases: list[str]) -> int:
    """Compare the pages of the WSGI frameworks with those of kirsch_web; the exit status."""
    import pages

    wrong = 0
    right = ask("kirsch_web", databases)
    if "error" in right or right.get("form") != "A letter: letter.txt, 15360 bytes":
        print(f"kirsch_web: {right}")
        wrong += 1
    for name in pages.WSGI:
        found = ask(name, databases)
        if "ModuleNotFoundError" in found.get("error", ""):
            print(f"{name}: not installed: {found['error']}")
            continue
        differs = {page for page in found if found[page] != right.get(page)}
        wrong += bool(differs)
        print(
            f"{name}: {len(found) - len(differs)} pages are right"
            + "".join(f"\n  {page}: {found[page]!r:.300}" for page in differs)
        )
    return 1 if wrong else 0


def main() -> int:
    words = sys.argv[1:]
    sys.path.insert(0, str(HERE))
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # without a disk, where there is such a folder
    with tempfile.TemporaryDirectory(prefix="kirsch-frameworks-", dir=memory) as name:
        folder = Path(name)
        os.environ["SURVEY_SQLITE"] = str(folder / "survey.sqlite")
        create("sqlite")
        with postgresql(folder) as postgres:
            os.environ["SURVEY_POSTGRESQL"] = postgres
            databases = ["sqlite"]
            if postgres:
                create("postgresql")
                databases.append("postgresql")
            else:
                print("Not measured: PostgreSQL, which is not installed (apt-get install postgresql).", flush=True)
                if not any(word.startswith("--scenario") for word in words):
                    words += [
                        "--scenario",
                        "hello,user,json,row-sqlite,rows-sqlite,fortunes-sqlite,updates-sqlite,form",
                    ]
            if "--check" in words:
                return check(databases)
            command = [sys.executable, "-m", "kirsch", "survey", str(HERE / "survey.toml"), *words]
            return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
