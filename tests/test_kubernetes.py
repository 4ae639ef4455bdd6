"""Kubernetes' own schemas judge the manifest of docs/deploy/kubernetes.md, and the Job of ``kirsch bench``.

What its values mean to Kirsch, and whether they fit each other, is tested in tests/test_deploy_docs.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fronts import DOCS, block

if TYPE_CHECKING:
    from collections.abc import Sequence

# The schemas are 22 MB, which only these need.
pytestmark = pytest.mark.slow


@pytest.fixture
def manifest() -> dict[str, Any]:
    """The documents of the manifest by kind."""
    yaml = pytest.importorskip("yaml", reason="pyproject.toml names PyYAML")
    return {each["kind"]: each for each in yaml.safe_load_all(block("kubernetes.md", "yaml", "shop.yaml"))}


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


KUBERNETES = ("1.30", "1.37")
"""Versions whose schemas judge the manifest; the page names them."""


def judged(documents: Sequence[dict[str, Any]], version: str) -> list[str]:
    """Returns the errors that Kubernetes' schemas of ``version`` find; unknown fields are errors."""
    validator = pytest.importorskip("kubernetes_validate", reason="tests/requirements.txt names kubernetes-validate")
    found = []
    for each in documents:
        try:
            validator.validate(each, version, strict=True)
        except (validator.ValidationError, validator.SchemaNotFoundError) as error:
            found.append(f"{each['kind']}: {error.message}")
    return found


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_manifest(manifest: dict[str, Any], version: str) -> None:
    kinds = {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    assert set(manifest) == kinds
    assert judged(list(manifest.values()), version) == []
    assert f"Kubernetes {' and '.join(KUBERNETES)}" in (DOCS / "kubernetes.md").read_text()


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_hook_of_the_page(manifest: dict[str, Any], version: str) -> None:
    yaml = pytest.importorskip("yaml")
    container(manifest["Deployment"]).update(yaml.safe_load(block("kubernetes.md", "yaml", "container.yaml")))
    assert judged([manifest["Deployment"]], version) == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("minAvailable: 2", "minAvailible: 2", "minAvailible"),
        ("replicas: 3", "replicas: three", "three"),
        ("readinessProbe:", "readynessProbe:", "readynessProbe"),
        ("autoscaling/v2", "autoscaling/v2beta2", "Couldn't find schema"),
        ("            periodSeconds: 1\n", "            periodSeconds: 1s\n", "1s"),
        ("    matchLabels: {app: shop}\n  strategy", "    matchLabel: {app: shop}\n  strategy", "matchLabel"),
        ("  maxReplicas: 12\n", "", "maxReplicas"),
        ("drop: [ALL]", "drop: ALL", "ALL"),
        ("httpGet: {path: /healthz, port: http}", "httpGet: {path: /healthz}", "port"),
    ],
)
def test_kubernetes_refuses_a_wrong_manifest(right: str, wrong: str, complaint: str, version: str) -> None:
    """The schemas find each of these mistakes."""
    yaml = pytest.importorskip("yaml")
    text = block("kubernetes.md", "yaml", "shop.yaml")
    assert right in text
    (found,) = judged(list(yaml.safe_load_all(text.replace(right, wrong, 1))), version)
    assert complaint in found


def test_quantities_are_those_of_kubernetes(manifest: dict[str, Any]) -> None:
    """A schema calls every text a quantity; the API server does not."""
    resources = container(manifest["Deployment"])["resources"]
    volume = manifest["Deployment"]["spec"]["template"]["spec"]["volumes"][0]
    metric = manifest["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]
    quantities = [*resources["requests"].values(), *resources["limits"].values()]
    quantities += [volume["emptyDir"]["sizeLimit"], metric["target"]["averageValue"]]
    for each in quantities:
        assert re.fullmatch(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi)?", str(each)), each


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_job_of_the_load(version: str) -> None:
    yaml = pytest.importorskip("yaml")
    command = [sys.executable, "-m", "kirsch", "bench", "--kubernetes", "4", "--image", "registry.example/shop:1"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert judged([yaml.safe_load(text)], version) == []
    wrong = text.replace("completionMode:", "completionModus:")
    assert "completionModus" in " ".join(judged([yaml.safe_load(wrong)], version))
