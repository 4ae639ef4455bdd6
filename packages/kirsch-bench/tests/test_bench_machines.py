"""``kirsch bench --on``: several hosts make one load. The hosts are servers of OpenSSH on this machine."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from benching import BENCH, Asked, bench, measured, ok, scripted
from kirsch_bench import remote
from kirsch_bench._native import Histogram, __version__
from kirsch_bench.processes import family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KIRSCH = f"{sys.executable} -m kirsch"


@dataclass
class Hosts:
    """Two hosts, ``one`` and ``two``, and ``nowhere``, where nothing listens."""

    flags: list[str]
    servers: dict[str, subprocess.Popen[bytes]]

    def kill(self, name: str) -> None:
        """Kill the server of a host with everything that it has started, as if the host were gone."""
        for pid in reversed(family(frozenset({self.servers[name].pid}))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or shutil.which("ssh-keygen") is None:
        pytest.skip("the program sshd is not installed: apt-get install openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # its privilege separation has it
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=30
        )
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    servers = {}
    config = ""
    for name in ("one", "two", "nowhere"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config += (
            f"Host {name}\nHostName 127.0.0.1\nPort {port}\nUser {getpass.getuser()}\nIdentityFile {folder}/user\n"
            "IdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        )
        if name != "nowhere":
            servers[name] = _start(sshd, folder, name, port)
    (folder / "config").write_text(config)
    try:
        yield Hosts(["--ssh", f"ssh -F {folder}/config", "--remote-kirsch", KIRSCH], servers)
    finally:
        for server in servers.values():
            server.terminate()
            server.communicate(timeout=30)


def _start(sshd: str, folder: Path, name: str, port: int) -> subprocess.Popen[bytes]:
    config = folder / f"sshd-{name}"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)
    assert server.stderr is not None
    line = server.stderr.readline()
    assert b"Server listening" in line, line
    return server


@pytest.mark.slow
def test_two_hosts_make_one_load_whose_times_are_merged_exactly(hosts: Hosts) -> None:
    with scripted() as server:
        document = measured("--on", "one,two", *hosts.flags, "-n", "301", "-c", "4", "-p", "2", server.url)
    found = document["result"]
    assert (found["requests"], found["ok"], found["latency"]["count"]) == (301, 301, 301)
    assert len(server.asked) == 301
    assert [host["name"] for host in found["hosts"]] == ["one", "two"]
    assert [host["processes"] for host in found["hosts"]] == [2, 2]
    assert sorted(host["requests"] for host in found["hosts"]) == [150, 151]
    merged = Histogram()
    for host in found["hosts"]:
        merged.merge(Histogram(host["latency"]["histogram"]))
        assert 0 < host["clock_uncertainty"] < 1
        assert abs(host["clock_ahead"]) <= host["clock_uncertainty"] + 0.01
    assert merged.encode() == Histogram(found["latency"]["histogram"]).encode()


@contextlib.contextmanager
def load_under_way(count: int, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once a server has got so many of its requests."""
    enough = threading.Event()

    def respond(asked: Asked) -> bytes:
        if asked.number == count:
            enough.set()
        return ok()

    with scripted(respond) as server:
        process = subprocess.Popen(
            [*BENCH, *flags, server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert enough.wait(60)
        yield process


@pytest.mark.slow
def test_hosts_begin_together_and_share_the_rate(hosts: Hosts) -> None:
    with scripted() as server:
        flags = ("--on", "one,two", *hosts.flags, "--stages", "1s:200", "--fail-if", "errors > 0")
        done = bench(*flags, server.url)
        found = measured(*flags, server.url)["result"]
    assert done.returncode == 0, done.stderr
    assert "on one, two" in done.stdout
    table = done.stdout.partition("Hosts\n")[2].split("\n")
    assert (table[1].split()[:2], table[2].split()[:2]) == (["one", "1"], ["two", "1"])
    assert found["requests"] == pytest.approx(100, abs=1)
    one, two = (host["started"] for host in found["hosts"])
    assert abs(one - two) < 0.5  # a loaded machine; the clocks are the same


@pytest.mark.slow
def test_host_that_is_lost_is_reported_and_the_results_of_the_others_stay(hosts: Hosts, tmp_path: Path) -> None:
    flags = ("--on", "one,two", *hosts.flags, "-R", "200", "-z", "3s", "--json", f"{tmp_path}/o.json")
    with load_under_way(100, *flags) as process:
        hosts.kill("two")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "two: it ended (exit status 255)" in out
    table = out.partition("Hosts\n")[2].partition("\n\n")[0].split("\n")
    assert [row.split()[0] for row in table[1:]] == ["one"]
    assert int(table[1].split()[3]) == pytest.approx(300, abs=2)
    hosts.servers["two"].wait(30)


def test_host_that_cannot_be_reached_ends_the_command_before_anything_is_sent(hosts: Hosts) -> None:
    with scripted() as server:
        done = bench("--on", "one,nowhere", *hosts.flags, "-n", "10", server.url)
    assert done.returncode == 1
    assert done.stderr.startswith("kirsch bench: nowhere: it ended (exit status 255): ssh: connect to host 127.0.0.1")
    assert "Connection refused" in done.stderr
    assert not server.asked


def test_command_that_is_not_there_is_reported(hosts: Hosts) -> None:
    with scripted() as server:
        done = bench("--on", "one", *hosts.flags[:2], "--remote-kirsch", "/no/kirsch", "-n", "10", server.url)
    assert done.returncode == 1
    assert "one: it ended (exit status 127): " in done.stderr
    assert "/no/kirsch" in done.stderr


def test_server_that_does_not_listen_is_reported_by_the_hosts(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = bench("--on", "one", *hosts.flags, "-n", "10", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"kirsch bench: one: cannot connect to 127.0.0.1:{port}")


@pytest.mark.slow
def test_host_that_is_silent_is_given_up(hosts: Hosts) -> None:
    flags = [*hosts.flags, "--ssh", f"{hosts.flags[1]} -o ServerAliveInterval=1 -o ServerAliveCountMax=1"]
    with load_under_way(20, "--on", "one", *flags, "-R", "100", "-z", "30s", "--warmup", "0s") as process:
        # The servers of the connection stop, and the load process goes on.
        stopped = [pid for pid in family(frozenset({hosts.servers["one"].pid})) if "sshd" in _name(pid)]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            _, err = process.communicate(timeout=60)
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    assert process.returncode == 1
    assert "kirsch bench: one: it ended (exit status 255)" in err


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:
        return file.read()


def test_load_process_ends_if_it_hears_nothing() -> None:
    with scripted() as server:
        plan = {
            "target": {"host": "h", "addresses": [server.url[7:-1]]},
            "model": {"open": {"rate": 10}},
            "duration": 3600,
            "requests": [{"path": "/"}],
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "kirsch_bench._worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        words = ({"kind": "plan", "plan": plan, "silence": 0.3}, {"go": 0}, {"alive": True})
        assert process.stdin is not None
        process.stdin.write(b"".join(json.dumps(word).encode() + b"\n" for word in words))
        process.stdin.flush()
        # Its input stays open.
        assert process.wait(30) == 1
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_ctrl_c_reports_what_the_hosts_have_measured(hosts: Hosts) -> None:
    with load_under_way(50, "--on", "one", *hosts.flags, "-R", "100", "-z", "1h", "--warmup", "0s") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert "Hosts\n" in out


def test_condition_with_abort_ends_the_load_of_all_hosts(hosts: Hosts) -> None:
    with scripted() as server:
        found = measured(
            "--on", "one", *hosts.flags, "-R", "100", "-z", "1h", "--fail-if", "max > 1us abort", server.url, status=4
        )["result"]
    assert found["thresholds"][0]["aborted_at"] < 60
    assert not found["interrupted"]


# ---------------------------------------------------------------------------------------------- other shells than ssh


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the flags for a shell in place of ssh that runs ``body``; ``"$@"`` is the command of the far side."""

    def write(body: str) -> list[str]:
        script = tmp_path / "shell"
        script.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\n{body}\n')
        script.chmod(0o755)
        return ["--ssh", f"{script} exec -i", "--remote-kirsch", KIRSCH]

    return write


def test_shell_gets_the_command_as_words_as_kubectl_does(shell: Callable[[str], list[str]], tmp_path: Path) -> None:
    with scripted() as server:
        page = tmp_path / "page.html"
        done = bench("--on", "pod/a,pod/b", *shell('exec "$@"'), "-n", "20", "-c", "2", "--html", str(page), server.url)
    assert done.returncode == 0, done.stderr
    assert "<h2>Hosts</h2>" in page.read_text(encoding="utf-8")
    assert "on pod/a, pod/b" in done.stdout


def test_ctrl_c_before_the_hosts_are_ready_ends_the_command(shell: Callable[[str], list[str]], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    with scripted() as server:
        process = subprocess.Popen(
            [*BENCH, "--on", "a", *shell(f"echo > {tmp_path}/begun; exec sleep 600"), server.url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        (tmp_path / "begun").read_text()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
    assert not server.asked


def test_output_of_a_login_shell_is_passed_over(shell: Callable[[str], list[str]]) -> None:
    with scripted() as server:
        found = measured("--on", "a", *shell('echo Welcome\nexec "$@"'), "-n", "20", "-c", "2", server.url)
    assert found["result"]["requests"] == 20


def test_other_version_on_a_host_is_refused(shell: Callable[[str], list[str]]) -> None:
    with scripted() as server:
        done = bench("--on", "old", *shell("""echo '{"version": "0.0.7"}'; cat"""), "-n", "20", server.url)
    assert done.returncode == 1
    assert done.stderr == (
        f"kirsch bench: old: it has kirsch-bench 0.0.7, and this is {__version__}; install the same version\n"
    )


def test_clock_of_a_host_that_is_off_does_not_matter(shell: Callable[[str], list[str]]) -> None:
    namespace = ["unshare", "--time", "--monotonic", "500000", "--fork"]
    if subprocess.run([*namespace, "true"], capture_output=True, timeout=30, check=False).returncode:
        pytest.skip("unshare cannot make a namespace with another clock here")
    flags = shell(f'exec {" ".join(namespace)} "$@"')
    with scripted() as server:
        found = measured("--on", "off", *flags, "-R", "100", "-z", "500ms", "--warmup", "0s", server.url)["result"]
    assert found["requests"] == 50


def test_job_of_kubernetes_has_its_pods_and_the_way_to_use_them() -> None:
    done = bench("--kubernetes", "4", "--image", "registry.example/shop:1")
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load(done.stdout)
    assert (job["apiVersion"], job["kind"], job["spec"]["parallelism"]) == ("batch/v1", "Job", 4)
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"] == pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert pod["spec"]["containers"][0]["image"] == "registry.example/shop:1"
    assert "#   kirsch bench --ssh 'kubectl exec -i' --on" in done.stdout
    assert bench("--kubernetes", "4").returncode == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--on", "a,a"], "names a host twice"),
        (["--on", "a,,b"], "is no list of hosts"),
        (["--on=-oProxyCommand=x"], "is no list of hosts"),
        (["--ssh", "ssh"], "--ssh means nothing without --on"),
        (["--remote-kirsch", "kirsch"], "--remote-kirsch means nothing without --on"),
        (["--on", "a", "--unix-socket", "/x"], "--on and a Unix socket do not go together"),
    ],
)
def test_hosts_that_cannot_be_meant_are_refused(flags: list[str], words: str, tmp_path: Path) -> None:
    with scripted(path=str(tmp_path / "s")) as unix, scripted() as server:
        done = bench(*[unix.path if word == "/x" else word for word in flags], server.url)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr


def test_options_of_the_caller_come_before_ours() -> None:
    [host] = remote.hosts("me@there", shell="ssh -o ConnectTimeout=1", kirsch="/opt/kirsch/bin/kirsch")
    words: list[Any] = list(host.command)
    assert words.index("ConnectTimeout=1") < words.index("ConnectTimeout=10")
    assert words[-5:] == ["me@there", "--", "/opt/kirsch/bin/kirsch", "bench", "worker"]
