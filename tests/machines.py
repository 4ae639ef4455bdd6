"""Several machines on one network: each is a network namespace with an address of its own on a bridge.

Where the kernel or a container forbids namespaces, the machines are addresses of this machine's loopback interface, and
:class:`Network` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import uuid
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ports import free_port
from running import STARTED, Running, descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)

MACHINES = {
    "balancer": "10.0.0.10",
    "shop1": "10.0.0.11",
    "shop2": "10.0.0.12",
    "shop3": "10.0.0.13",
    "client": "10.0.0.50",
}
"""The addresses that docs/deploy/machines.md has, and one for the clients."""

LOOPBACK = {
    "balancer": "127.0.0.1",
    "shop1": "127.0.0.2",
    "shop2": "127.0.0.3",
    "shop3": "127.0.0.4",
    "client": "127.0.0.1",
}


class Network:
    """The machines of :data:`MACHINES`; ``why_not`` tells why they are no namespaces, and is empty if they are."""

    def __init__(self) -> None:
        self._prefix = f"kirsch-{os.getpid()}-{uuid.uuid4().hex[:4]}-"
        self._made: list[str] = []
        self.why_not = self._make()
        self.ports: dict[str, int] = {}
        if self.why_not:
            self.remove()
            with warnings.catch_warnings():
                # Shown in pytest's summary; the filter of the suite would make an error of it.
                warnings.simplefilter("always")
                warnings.warn(
                    f"no network namespaces ({self.why_not}): the machines are addresses of the loopback interface",
                    stacklevel=2,
                )

    def _make(self) -> str:
        if shutil.which("ip") is None:
            return "ip is not installed: apt-get install iproute2"
        commands: list[str] = []
        for name in MACHINES:
            done = subprocess.run(
                ["ip", "netns", "add", self._prefix + name], capture_output=True, text=True, timeout=30
            )
            if done.returncode != 0:
                return done.stderr.strip()
            self._made.append(self._prefix + name)
        # The bridge is in the load balancer's namespace, so nothing of the machine that runs the tests changes.
        balancer = self._prefix + "balancer"
        commands.append("link add bridge type bridge")
        for number, (name, address) in enumerate(MACHINES.items()):
            if name == "balancer":
                commands.append(f"addr add {address}/24 dev bridge")
            else:
                commands.append(f"link add port{number} type veth peer name eth0 netns {self._prefix}{name}")
                commands.append(f"link set port{number} master bridge up")
        commands += ["link set bridge up", "link set lo up"]
        why_not = _ip(balancer, commands)
        for name, address in MACHINES.items():
            if name != "balancer" and not why_not:
                lines = ["link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"]
                why_not = _ip(self._prefix + name, lines)
        return why_not

    def remove(self) -> None:
        """Remove the namespaces, and with them their interfaces. No process may be in them."""
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30, check=False)
        self._made.clear()

    def address(self, machine: str, port: int) -> tuple[str, int]:
        """Return the address at which ``machine`` listens if its documented port is ``port``."""
        if self.why_not:
            return LOOPBACK[machine], self.ports.setdefault(machine, free_port())
        return MACHINES[machine], port

    def adapted(self, text: str) -> str:
        """``text`` with the documented addresses replaced by those that the machines have."""
        if self.why_not:
            for machine, address in MACHINES.items():
                port = 80 if machine == "balancer" else 8000
                text = text.replace(f"{address}:{port}", "{}:{}".format(*self.address(machine, port)))
                text = text.replace(address, LOOPBACK[machine])
        return text

    def command(self, machine: str, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` on ``machine``; the process has the pid of the one that is started."""
        return list(words) if self.why_not else ["ip", "netns", "exec", self._prefix + machine, *words]

    def unplug(self, machine: str, *, back: bool = False) -> None:
        """Take ``machine`` off the network, as when its power fails: nothing that is sent to it is ever answered."""
        port = f"port{list(MACHINES).index(machine)}"
        assert _ip(self._prefix + "balancer", [f"link set {port} {'up' if back else 'down'}"]) == ""

    def enter(self, machine: str) -> None:
        """Move the calling thread to ``machine``: the sockets that it makes from now on are there."""
        if self.why_not:
            return
        with Path(f"/run/netns/{self._prefix}{machine}").open("rb") as file:
            if _LIBC.setns(file.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")


def _ip(namespace: str, commands: Sequence[str]) -> str:
    """Run commands of ip(8) in a namespace; return what went wrong."""
    text = "".join(f"{command}\n" for command in commands)
    done = subprocess.run(
        ["ip", "-n", namespace, "-batch", "-"], input=text, capture_output=True, text=True, timeout=30
    )
    return done.stderr.strip() if done.returncode else ""


class Machine:
    """A machine on which Kirsch serves, is replaced, and is killed."""

    def __init__(self, network: Network, name: str, words: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """``words`` is the command as the page has it for the first machine."""
        self.name = name
        self._network = network
        ours = network.adapted(" ".join(words).replace(MACHINES["shop1"], MACHINES[name]))
        self._command = network.command(name, ours.split(" "))
        self._env = {**env, "MACHINE": name}
        self._cwd = cwd
        self.ended: list[Running] = []
        self.running = self._start()

    def _start(self) -> Running:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        return Running(self.name, process, STARTED)

    def start(self) -> None:
        """Start a server in place of the one that has ended."""
        self.ended.append(self.running)
        self.running = self._start()

    def kill(self) -> None:
        """SIGKILL for the supervisor and all that it has started, as the kernel kills in a shortage of memory."""
        pids = [self.running.pid, *descendants(self.running.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.running.process.wait(20) == -signal.SIGKILL

    def finish(self) -> list[str]:
        """End it, and return what was wrong with any of its servers."""
        return [f"{self.name}: {each}" for server in [*self.ended, self.running] for each in server.finish()]


class Client(threading.Thread):
    """Sends GET and POST by turns to the load balancer on a connection that it keeps, each with an id, until stopped.

    ``failed`` has (method, id, what was wrong) of each request without a complete and right response, ``answered`` the
    others' (method, id), and ``seen`` counts responses by (machine, version of the application).
    """

    PAUSE = 0.01

    def __init__(self, network: Network, address: tuple[str, int], number: int) -> None:
        super().__init__(daemon=True)
        self._network = network
        self._address = address
        self._number = number
        self._over = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self.failed: list[tuple[str, str, str]] = []
        self.answered: list[tuple[str, str]] = []
        self.seen: Counter[tuple[str, str]] = Counter()
        self.crashed: BaseException | None = None

    def run(self) -> None:
        try:
            self._network.enter("client")
            for number in itertools.count():
                if self._over.wait(self.PAUSE):
                    break
                method = "POST" if number % 2 else "GET"
                self.ask(method, f"{self._number}-{number}", b"x" * (number * 997 % 20_000))
        except BaseException as error:
            self.crashed = error
            raise
        finally:
            self.close()

    def ask(self, method: str, name: str, body: bytes = b"", path: str = "/") -> None:
        """Send one request and take down what becomes of it."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            self._connection.request(method, path, body if method == "POST" else None, {"X-Request": name})
            response = self._connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise http.client.HTTPException(f"{response.status} {text[:100]!r}")
            content: dict[str, Any] = json.loads(text)
            assert (content["method"], content["request"]) == (method, name), content
            assert content["size"] == (len(body) if method == "POST" else 0), content
            assert content["client"] == self._network.address("client", 0)[0], content
        except (OSError, http.client.HTTPException) as error:
            self.failed.append((method, name, repr(error)))
            self.close()
            return
        self.answered.append((method, name))
        self.seen[content["machine"], content["version"]] += 1
        if response.will_close:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop(self) -> None:
        self._over.set()
        self.join(90)
        assert not self.is_alive(), "a request hangs"
        assert self.crashed is None, self.crashed


def on(network: Network, machine: str, run: Callable[[], object]) -> None:
    """Call ``run`` in a thread on ``machine``, and raise what it raises."""
    errors: list[BaseException] = []

    def enter_and_run() -> None:
        try:
            network.enter(machine)
            run()
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=enter_and_run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
