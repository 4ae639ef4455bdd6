"""Three servers behind a load balancer are replaced under load: no GET fails, and no POST runs twice.

The configurations are those of docs/deploy/machines.md. The application notes each request's id before it responds, so
a request that a load balancer has sent twice is found in the notes, whatever the client has got.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
from fronts import DOCS, PACKAGES, block, wrap
from machines import MACHINES, Client, Machine, Network, on
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # starts of three servers, one after the other

SHOPS = ("shop1", "shop2", "shop3")
CLIENTS = 6
SECONDS = 60.0

BALANCERS = pytest.mark.parametrize("program", ["haproxy", "nginx"])
PATHS = {"haproxy": "haproxy.cfg", "nginx": "shop-machines.conf"}

APP = """\
import json, os, pathlib, signal
import kirsch

VERSION = pathlib.Path(__file__).with_name("version").read_text() + kirsch.INSTALLATION
NOTES = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def app(environ, start_response):
    body = environ["wsgi.input"].read()
    method, request = environ["REQUEST_METHOD"], environ["HTTP_X_REQUEST"]
    os.write(NOTES, f"{method} {request}\\n".encode())
    if environ["PATH_INFO"] == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    content = {"machine": os.environ["MACHINE"], "version": VERSION, "method": method, "request": request,
             "size": len(body), "client": environ["REMOTE_ADDR"]}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(content).encode()]
"""


class Site:
    """A load balancer before three machines, and clients that send requests until :meth:`stop`."""

    def __init__(self, folder: Path, network: Network, address: tuple[str, int], machines: list[Machine]) -> None:
        self.folder = folder
        self.network = network
        self.address = address
        self.machines = machines
        self.clients = [Client(network, address, number) for number in range(CLIENTS)]

    def publish(self, version: str) -> None:
        """Put another version of the application on the machines' disc."""
        (self.folder / "new").write_text(version)
        (self.folder / "new").rename(self.folder / "version")

    def count(self, name: str, version: str) -> int:
        """How many responses clients have got from a machine and a version of the application."""
        return sum(client.seen[name, version] for client in self.clients)

    def is_served_by(self, machine: Machine, version: str) -> None:
        """Wait until clients get some responses from this machine and version."""
        before = self.count(machine.name, version)
        wait_until(
            lambda: self.count(machine.name, version) > before + 5,
            f"{machine.name} serves {version}",
            SECONDS,
        )

    def goes_on(self) -> None:
        """Wait until each client has sent some more requests, whatever became of them."""
        for client in self.clients:
            before = len(client.answered) + len(client.failed)
            wait_until(
                lambda: len(client.answered) + len(client.failed) > before + 10,  # noqa: B023
                "clients go on",
                SECONDS,
            )

    def runs(self) -> Counter[tuple[str, ...]]:
        """How often the application has begun each (method, id)."""
        return Counter(tuple(line.split(" ")) for line in (self.folder / "notes").read_text().splitlines())


@contextlib.contextmanager
def site(folder: Path, program: str, replace: dict[str, str] | None = None) -> Iterator[Site]:
    """The load balancer ``program`` before three machines; ``replace`` changes its documented configuration."""
    for each, debian in [(program, PACKAGES[program]), ("curl", "curl")]:
        if shutil.which(each) is None:
            pytest.skip(f"{each} is not installed: apt-get install {debian}")
    folder.chmod(0o755)
    (folder / "notes").touch()
    (folder / "wsgi.py").write_text(APP)
    (folder / "version").write_text("1")
    # Two installations of Kirsch, for an upgrade to lead from one to the other.
    for name in ("old", "new"):
        package = folder / f"kirsch-{name}" / "kirsch"
        shutil.copytree(Path(kirsch.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        with (package / "__init__.py").open("a") as file:
            file.write(f'INSTALLATION = "{name}"\n')
    (folder / "kirsch-current").symlink_to("kirsch-old")
    env = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    env |= {"PYTHONPATH": f"{folder}/kirsch-current", "NOTES": str(folder / "notes"), "PYTHONDONTWRITEBYTECODE": "1"}
    (line,) = re.findall(r"^kirsch (.*?)\n```", (DOCS / "machines.md").read_text().replace("\\\n", ""), re.M)
    words = [sys.executable, "-m", "kirsch", *shlex.split(line.replace("--workers 4", "--workers 2"))]
    words[words.index("shop.wsgi:app")] = "wsgi:app"
    with contextlib.ExitStack() as stack:
        network = Network()
        stack.callback(network.remove)
        machines: list[Machine] = []
        complaints: list[str] = []

        def finish() -> None:
            for machine in machines:
                complaints.extend(machine.finish())
                for each in [*machine.ended, machine.running]:
                    print(f"---- standard error of {machine.name} (pid {each.pid}) ----\n{each.stderr}")

        stack.callback(finish)
        for name in SHOPS:
            machines.append(Machine(network, name, words, env, folder))  # noqa: PERF401  # the one that fails is known
        text = block("machines.md", program, PATHS[program])
        for old, new in (replace or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        command, whole = wrap(program, network.adapted(text), folder, 0)
        (folder / "front.conf").write_text(whole)
        log = stack.enter_context((folder / "front.out").open("wb"))
        process = subprocess.Popen(
            network.command("balancer", command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )

        def end() -> None:
            process.terminate()
            process.wait(20)
            print(f"---- {program} ----\n{(folder / 'front.out').read_text()}")

        stack.callback(end)
        address = network.address("balancer", 80)

        def is_up() -> bool:
            assert process.poll() is None, (folder / "front.out").read_text()
            with contextlib.suppress(OSError), socket.create_connection(address, 5):
                return True
            return False

        on(network, "client", lambda: wait_until(is_up, f"{program} listens"))
        running = Site(folder, network, address, machines)
        try:
            yield running
        finally:
            for client in running.clients:
                if client.ident is not None:
                    client.stop()
    assert complaints == []


def by_term(site: Site, machine: Machine) -> None:
    """The machine drains and ends, as in a deployment; another server starts, and the page's command waits for it."""
    assert machine.running.stop(timeout=SECONDS) == 0
    site.goes_on()
    machine.start()
    (command,) = re.findall(r"^curl .*$", (DOCS / "machines.md").read_text(), re.M)
    command = site.network.adapted(command.replace(MACHINES["shop1"], MACHINES[machine.name]))
    done = subprocess.run(site.network.command("client", shlex.split(command)), capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def test_drain_is_longer_than_haproxy_takes_to_notice() -> None:
    page = (DOCS / "machines.md").read_text()
    drain, check, inter, fall = (
        int(found)
        for pattern in (r"--drain-delay (\d+)s", r"timeout check (\d+)s", r"inter (\d+)s", r"fall (\d+)")
        for found in re.findall(pattern, page)[:1]
    )
    assert drain > inter * fall + check


def by_reload(site: Site, machine: Machine) -> None:
    seen = len(machine.running.stderr)
    machine.running.send(signal.SIGHUP)
    machine.running.wait_for("SIGHUP: done", SECONDS, seen)


def by_upgrade(site: Site, machine: Machine) -> None:
    """Another installation of Kirsch takes over the sockets."""
    seen = len(machine.running.stderr)
    machine.running.send(signal.SIGUSR2)
    machine.running.wait_for("SIGUSR2: done", SECONDS, seen)


def by_kill(site: Site, machine: Machine) -> None:
    machine.kill()
    site.goes_on()
    machine.start()


@BALANCERS
@pytest.mark.parametrize("replace", [by_term, by_reload, by_upgrade, by_kill])
def test_three_machines_are_replaced_under_load(
    program: str, replace: Callable[[Site, Machine], None], tmp_path: Path
) -> None:
    with site(tmp_path, program) as running:
        for client in running.clients:
            client.start()
        for machine in running.machines:
            running.is_served_by(machine, "1old")
        running.publish("2")
        installation = "old"
        if replace is by_upgrade:
            installation = "new"
            (tmp_path / "link").symlink_to("kirsch-new")
            (tmp_path / "link").rename(tmp_path / "kirsch-current")
        for machine in running.machines:
            replace(running, machine)
            running.is_served_by(machine, f"2{installation}")
        wait_until(lambda: sum(len(client.answered) for client in running.clients) > 300, "there was load", SECONDS)
        for client in running.clients:
            client.stop()
        runs = running.runs()
    answered = [each for client in running.clients for each in client.answered]
    failed = [each for client in running.clients for each in client.failed]
    print(f"{len(answered)} requests answered, {len(failed)} failed: {failed}")
    posts = Counter({each: times for each, times in runs.items() if each[0] == "POST"})
    assert {each: times for each, times in posts.items() if times > 1} == {}
    assert [each for each in answered if each not in runs] == []
    assert [each for each in failed if each[0] == "GET"] == []
    if replace is by_kill:
        # A machine had at most one request of each client under way.
        assert len(failed) <= CLIENTS * len(running.machines)
    else:
        assert failed == []


@BALANCERS
def test_machine_that_vanishes_costs_no_get_and_comes_back(program: str, tmp_path: Path) -> None:
    """Its power fails: no connection to it is closed, and nothing answers."""
    with site(tmp_path, program) as running:
        if running.network.why_not:
            pytest.skip(f"only a namespace can vanish: {running.network.why_not}")
        (line,) = re.findall(r"^sysctl .*$", (DOCS / "machines.md").read_text(), re.M)
        command = running.network.command("balancer", shlex.split(line))
        assert subprocess.run(command, capture_output=True, timeout=SECONDS).returncode == 0
        for client in running.clients:
            client.start()
        for machine in running.machines:
            running.is_served_by(machine, "1old")
        running.network.unplug("shop2")
        running.goes_on()
        running.network.unplug("shop2", back=True)
        running.is_served_by(running.machines[1], "1old")
        for client in running.clients:
            client.stop()
        runs = running.runs()
    failed = [each for client in running.clients for each in client.failed]
    print(f"failed: {failed}")
    assert [each for each, times in runs.items() if each[0] == "POST" and times > 1] == []
    assert [each for each in failed if each[0] == "GET"] == []
    # Each client had one request under way there when it vanished, and may have had another before it was missed.
    assert len(failed) <= 2 * CLIENTS


# Settings with which the load balancer sends a POST again, to show that the test would notice.
CARELESS = {
    "haproxy": {"    http-request disable-l7-retry unless { method GET HEAD OPTIONS PUT DELETE TRACE }\n": ""},
    "nginx": {"proxy_next_upstream error timeout;": "proxy_next_upstream error timeout non_idempotent;"},
}


@BALANCERS
@pytest.mark.parametrize("is_careless", [False, True], ids=["documented", "careless"])
def test_post_that_kills_its_worker_runs_once_and_get_is_repeated(
    program: str, is_careless: bool, tmp_path: Path
) -> None:
    """Deterministic, unlike the load above: the worker dies when the request has been noted."""
    with site(tmp_path, program, CARELESS[program] if is_careless else None) as running:
        client = Client(running.network, running.address, 0)

        def ask() -> None:
            for _ in range(30):  # nothing but GET and its like is sent until the load balancer knows of all machines
                client.ask("GET", "first")
            client.close()
            client.ask("POST", "post", b"", "/die")
            client.ask("GET", "get", path="/die")
            client.close()
            client.ask("POST", "last", b"body")
            client.close()

        on(running.network, "client", ask)
        runs = running.runs()
    print(client.failed)
    assert [each[:2] for each in client.failed] == [("POST", "post"), ("GET", "get")]
    assert runs["GET", "get"] > 1
    assert (runs["POST", "post"] > 1) == is_careless
    assert runs["POST", "last"] == 1
