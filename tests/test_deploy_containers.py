"""The pages of docs/deploy about containers and Kubernetes: their commands, image and manifest.

What needs Docker or Kubernetes is checked as far as its files go, and its command for Kirsch is run as that would run
it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from deploy_pages import (
    DOCS,
    KIRSCH,
    PAGES,
    block,
    blocks,
    commands,
    get,
    launcher,
    shop_folder,
    status,
)
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running

shop = pytest.fixture(shop_folder)
launch = pytest.fixture(launcher)


# --- Containers ------------------------------------------------------------------------------------------------------


def container_command() -> list[str]:
    (text,) = re.findall(r"^CMD (\[.*\])$", block("containers.md", "Dockerfile"), re.MULTILINE)
    words: list[str] = json.loads(text)
    assert words[0] == "kirsch"
    return [*shlex.split(KIRSCH), *words[1:]]


def docker_run() -> list[str]:
    (command,) = [command for _, command in commands() if command.startswith("docker run")]
    return shlex.split(command)


def docker_environment() -> dict[str, str]:
    words = docker_run()
    return dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--env")


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    trial = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "true"]
    return subprocess.run(trial, capture_output=True, timeout=20).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="namespaces may not be made here")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_process_1_on_a_read_only_disc_without_shm(
    number: signal.Signals, shop: Path, tmp_path: Path, launch: Callable[..., Running]
) -> None:
    """As in a container: a PID namespace of its own, nothing to write to but a /tmp, and no /dev/shm."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = [word.replace("0.0.0.0:8000", "127.0.0.1:0") for word in container_command()]
    script = (
        f"mount -t tmpfs tmpfs {temporary} && mount -t tmpfs -o ro tmpfs /dev/shm; "
        f"mount -o remount,bind,ro / && exec {shlex.join(words)}"
    )
    server = launch(
        ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
        env={**docker_environment(), "TMPDIR": str(temporary)},
    )
    assert "pid 1)" in server.stderr
    assert "2 workers" in server.stderr
    address = (server.host, server.port)
    get(address)
    with urlopen(Request(f"{server.url}/upload", data=bytes(3 << 20)), timeout=20) as response:
        assert json.load(response)["size"] == 3 << 20
    child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
    workers = len(Path(f"/proc/{child}/task/{child}/children").read_text().split())
    get(address, "/orphan")
    deadline = time.monotonic() + 20
    while True:  # what the application leaves behind comes to process 1, and is waited for
        if len(Path(f"/proc/{child}/task/{child}/children").read_text().split()) == workers:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child, number)
    assert server.process.wait(20) == 0


def test_the_numbers_of_docker_run_fit(shop: Path) -> None:
    words = docker_run()
    limit = int(words[words.index("--memory") + 1].removesuffix("m"))
    environment = docker_environment()
    workers, most = int(environment["KIRSCH_WORKERS"]), int(environment["KIRSCH_MAX_MEMORY"].removesuffix("MiB"))
    assert limit > (workers + 1) * most + 40
    done = subprocess.run(
        [*container_command(), "--print-config"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert re.search(r"^workers +2 +KIRSCH_WORKERS$", done.stdout, re.MULTILINE)
    assert re.search(r"^max_memory +150MiB +KIRSCH_MAX_MEMORY$", done.stdout, re.MULTILINE)
    seconds = {
        name: float(value) for name, value in re.findall(r"^(\w+_timeout|drain_delay) +(\d+)s? ", done.stdout, re.M)
    }
    needed = seconds["graceful_timeout"] + seconds["shutdown_timeout"] + seconds["drain_delay"]
    assert int(words[words.index("--stop-timeout") + 1]) > needed


def test_the_health_check_of_the_image(shop: Path, launch: Callable[..., Running]) -> None:
    (text,) = [each.text for each in blocks("containers.md") if each.text.startswith("HEALTHCHECK")]
    words = json.loads(text[text.index("CMD") + 3 :])
    server = launch([word.replace("0.0.0.0:8000", "127.0.0.1:0") for word in container_command()])

    def check(port: int) -> int:
        command = [sys.executable, *(word.replace("8000", str(port)) for word in words[1:])]
        return subprocess.run(command, capture_output=True, timeout=30).returncode

    assert check(server.port) == 0
    assert check(free_port()) != 0


# --- Kubernetes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def manifest() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return {each["kind"]: each for each in yaml.safe_load_all(block("kubernetes.md", "shop.yaml"))}


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def option(manifest: dict[str, Any], name: str) -> str:
    value: str
    (value,) = [word.partition("=")[2] for word in container(manifest)["args"] if word.startswith(f"--{name}=")]
    return value


def test_the_manifest_agrees_with_itself(manifest: dict[str, Any]) -> None:
    deployment = manifest["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == manifest["Service"]["spec"]["selector"]
    assert manifest["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = manifest["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", manifest["Deployment"]["metadata"]["name"])
    ports = {port["name"]: port["containerPort"] for port in container(manifest)["ports"]}
    assert option(manifest, "bind") == f"0.0.0.0:{ports['http']}"
    assert option(manifest, "metrics-bind") == f"0.0.0.0:{ports['metrics']}"
    annotations = deployment["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])
    for probe in ("startupProbe", "readinessProbe"):
        assert container(manifest)[probe]["httpGet"]["path"] == option(manifest, "health-path")
        assert container(manifest)[probe]["httpGet"]["port"] in ports
    assert "httpGet" not in container(manifest)["livenessProbe"]
    assert "lifecycle" not in container(manifest)
    mounts = {mount["name"] for mount in container(manifest)["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    metric = manifest["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert f"name: {{as: {metric}}}" in (DOCS.parent / "metrics.md").read_text()


def test_the_arithmetic_of_the_end(manifest: dict[str, Any], shop: Path) -> None:
    table = subprocess.run(
        [*shlex.split(KIRSCH), *container(manifest)["args"][1:], "--print-config"],
        capture_output=True, text=True, timeout=30, check=True,
    ).stdout  # fmt: skip
    names = ("drain_delay", "graceful_timeout", "shutdown_timeout")
    parts = [int(re.search(rf"^{name} +(\d+)s ", table, re.MULTILINE)[1]) for name in names]  # type: ignore[index]
    grace = manifest["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > sum(parts)
    (shown,) = [each.text for each in blocks("kubernetes.md") if "terminationGracePeriodSeconds  >" in each.text]
    assert [int(number) for number in re.findall(r"\d+", shown)] == [grace, *parts]


def test_the_container_serves_and_ends_as_the_page_says(
    manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]
) -> None:
    metrics = free_port()
    replaced = {"0.0.0.0:8000": "127.0.0.1:0", "0.0.0.0:9100": f"127.0.0.1:{metrics}", "=10s": "=1s"}
    words = container(manifest)["args"][1:]
    for there, here in replaced.items():
        words = [word.replace(there, here) for word in words]
    server = launch([*shlex.split(KIRSCH), *words])
    address = (server.host, server.port)
    assert get(address)["PATH_INFO"] == "/"
    os.kill(server.pid, signal.SIGTERM)
    assert get(address)["PATH_INFO"] == "/"  # it drains, and serves on
    assert server.process.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 10)


def test_the_probes_are_answered_by_the_server(
    manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]
) -> None:
    server = launch(
        [*shlex.split(KIRSCH), "shop.wsgi:app", "--bind=127.0.0.1:0", "--health-path=/healthz", "--drain-delay=3s"]
    )
    url = server.url + container(manifest)["readinessProbe"]["httpGet"]["path"]
    assert status(url) == 200
    os.kill(server.pid, signal.SIGTERM)
    assert any(status(url) == 503 for _ in range(1000))
    assert get((server.host, server.port))["PATH_INFO"] == "/"  # draining, and serving
    assert server.process.wait(20) == 0


def test_the_metrics_port_answers(manifest: dict[str, Any], shop: Path, launch: Callable[..., Running]) -> None:
    port = free_port()
    words = [*shlex.split(KIRSCH), "shop.wsgi:app", "--bind=127.0.0.1:0", f"--metrics-bind=127.0.0.1:{port}"]
    launch(words)
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            exported = set(re.findall(r"^(kirsch_\w+)", response.read().decode(), re.MULTILINE))
            break
        assert time.monotonic() < deadline
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(
        r"^```yaml\n# prometheus-adapter\n(.*?)^```", (DOCS.parent / "metrics.md").read_text(), re.M | re.S
    )
    (rule,) = yaml.safe_load(text)["rules"]
    read = set(re.findall(r"kirsch_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
    assert len(read) >= 3
    assert read <= exported
    # The autoscaler reads the metric that the rule makes of them; the page names no other metric.
    named = {name for page in PAGES for name in re.findall(r"\bkirsch_[a-z_]+", (DOCS / page).read_text())}
    assert named <= exported | {rule["name"]["as"], "kirsch_web"}
