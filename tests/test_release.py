"""The scripts of a release: one version in every file, archives that are equal, an index that pip reads."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from release import archives, index, inspection, matrix, version

yaml = pytest.importorskip("yaml")
WORKFLOW = matrix.PROJECT / ".github" / "workflows" / "release.yml"
TODAY = datetime.date(2030, 1, 2)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the files that name the version."""
    for path in {place.path for place in version.PLACES} | {"CHANGELOG.md"}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(matrix.PROJECT / path, tmp_path / path)
    return tmp_path


def test_every_file_names_the_same_version() -> None:
    assert version.check(matrix.PROJECT) == matrix.version()


def test_version_is_set_in_every_file(project: Path) -> None:
    before = version.check(project)
    version.write(project, "7.8.9rc1")
    assert version.check(project) == "7.8.9rc1"
    for manifest in project.glob("packages/*/pyproject.toml"):
        assert before not in manifest.read_text(encoding="utf-8"), manifest
    assert (project / "CHANGELOG.md").read_text(encoding="utf-8").count("(unreleased)") == 1


def test_file_with_another_version_is_named(project: Path) -> None:
    version.write(project, "7.8.9")
    manifest = project / "packages/kirsch-web/pyproject.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("7.8.9", "7.8.8"), encoding="utf-8")
    with pytest.raises(version.VersionError) as caught:
        version.check(project)
    assert str(caught.value) == (
        "packages/kirsch-web/pyproject.toml has 7.8.8, Cargo.toml has 7.8.9: make version VERSION=7.8.9"
    )


@pytest.mark.parametrize("wrong", ["7.8", "v7.8.9", "7.8.9-beta", ""])
def test_what_is_no_version_changes_nothing(wrong: str, project: Path) -> None:
    before = version.check(project)
    with pytest.raises(version.VersionError, match="write three numbers"):
        version.write(project, wrong)
    assert version.check(project) == before


def test_changelog_is_cut_once_and_the_next_version_begins_a_section(project: Path) -> None:
    version.write(project, "7.8.9")
    notes = version.notes(project)
    assert not version.is_cut(project)
    version.cut(project, TODAY)
    assert version.is_cut(project)
    assert version.notes(project) == notes
    with pytest.raises(version.VersionError, match=r"7\.8\.9 is released already"):
        version.cut(project, TODAY)
    version.write(project, "7.9.0")
    assert version.notes(project).strip() == ""
    headings = re.findall(r"(?m)^## (.+)$", (project / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert headings[:2] == ["7.9.0 (unreleased)", "7.8.9 (2030-01-02)"]
    version.cut(project, TODAY)


def test_stable_abi_saves_builds() -> None:
    assert matrix.builds_of("kirsch", ("3.10", "3.13", "3.14t")) == ("3.10", "3.13", "3.14t")
    assert matrix.builds_of("kirsch-bench", ("3.10", "3.13", "3.14t")) == ("3.10", "3.14t")


def wheel_of(path: Path, folder: str, moment: tuple[int, int, int, int, int, int]) -> Path:
    """Write a wheel as a build in ``folder`` at ``moment`` writes it."""
    sbom = {
        "serialNumber": f"urn:uuid:{moment}",
        "metadata": {"timestamp": str(moment), "component": {"bom-ref": f"path+file://{folder}/crates/gateway#1.0.0"}},
    }
    info = "thing-1.0.dist-info"
    files = {
        "thing/__init__.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.4\nName: thing\nVersion: 1.0\nRequires-Python: >=3.10\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/sboms/gateway.cyclonedx.json": json.dumps(sbom),
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files, reverse=moment[0] % 2 == 0):
            archive.writestr(zipfile.ZipInfo(name, moment), files[name])
    return path


def test_wheels_of_two_places_and_times_become_equal(tmp_path: Path) -> None:
    results = []
    for number, year in enumerate((2021, 2022)):
        place, out = tmp_path / f"clone{number}", tmp_path / f"out{number}"
        place.mkdir()
        out.mkdir()
        built = wheel_of(tmp_path / "thing-1.0-py3-none-any.whl", str(place), (year, 1, 2, 3, 4, 6))
        archives.normalise(built, out / built.name, place, 1_700_000_000)
        results.append((out / built.name).read_bytes())
    assert results[0] == results[1]
    with zipfile.ZipFile(tmp_path / "out0" / "thing-1.0-py3-none-any.whl") as archive:
        text = archive.read("thing-1.0.dist-info/sboms/gateway.cyclonedx.json").decode()
        assert str(tmp_path) not in text
        assert json.loads(text)["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def report(tag: str, **found: object) -> dict[str, object]:
    """A report of auditwheel about a wheel that needs the library `libc.so`, which auditwheel does not know."""
    upgrades = {tag: {"libs_to_eliminate": ["libc.so"]}}
    whole = {"overall_tag": "linux_x86_64", "sym_tag": tag, "unsupported_isa": False, "policy_upgrades": upgrades}
    return {**whole, **found}


@pytest.mark.parametrize(
    ("seen", "tag"),
    [
        (report("musllinux_1_2_x86_64"), "musllinux_1_2_x86_64"),
        (report("musllinux_1_2_x86_64", unsupported_isa=True), "linux_x86_64"),
        (report("musllinux_1_2_x86_64", sym_tag="linux_x86_64"), "linux_x86_64"),
        (
            report("", policy_upgrades={"musllinux_1_2_x86_64": {"libs_to_eliminate": ["libc.so", "libz.so"]}}),
            "linux_x86_64",
        ),
        # glibc's library has the name libc.so.6.
        (report("manylinux_2_17_x86_64"), "linux_x86_64"),
        (report("", overall_tag="manylinux_2_17_x86_64", policy_upgrades={}), "manylinux_2_17_x86_64"),
    ],
)
def test_a_wheel_for_musl_may_name_musl_as_zig_does(seen: dict[str, object], tag: str) -> None:
    assert inspection.granted(seen) == tag


def pip(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_pip_installs_from_the_index_and_checks_every_file(tmp_path: Path) -> None:
    built = wheel_of(tmp_path / "thing-1.0-py3-none-any.whl", "/x", (2021, 1, 2, 3, 4, 6))
    dist = tmp_path / "dist"
    dist.mkdir()
    archives.normalise(built, dist / built.name, Path("/x"), 1_700_000_000)
    simple = index.write(dist).as_uri()
    done = pip("install", "--no-deps", "--target", str(tmp_path / "site"), "--index-url", simple, "thing")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "thing" / "__init__.py").is_file()
    old = pip("download", "--no-deps", "--python-version", "3.9", "--index-url", simple, "-d", str(tmp_path), "thing")
    assert "Requires-Python >=3.10" in old.stderr
    with (dist / built.name).open("ab") as file:
        file.write(b"changed")
    changed = pip("download", "--no-deps", "--no-cache-dir", "--index-url", simple, "-d", str(tmp_path / "x"), "thing")
    assert changed.returncode == 1
    assert "DO NOT MATCH THE HASHES" in changed.stderr


def test_workflow_may_do_no_more_than_it_needs() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    rights = {name: job["permissions"] for name, job in jobs.items()}
    publishing = {"id-token": "write", "attestations": "write", "contents": "write"}
    assert rights.pop("publish") == publishing
    assert all(right == {"contents": "read"} for right in rights.values())
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["publish"]["needs"]) == {"build", "test"}
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_workflow_runs_the_commands_of_the_repository() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake (?:--silent )?([a-z-]+)", "\n".join(re.findall(r"run: (.+)", text))))
    assert targets == {"release", "version"}
    makefile = (matrix.PROJECT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in targets)
    for script in re.findall(r"/kirsch/(scripts/\S+\.py)", text):
        assert (matrix.PROJECT / script).is_file()
