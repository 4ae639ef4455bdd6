"""The rules of the house that concern imports: who may import whom, and what is loaded when."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structure

import kirsch
from kirsch.reports import OWN_DIRECTORIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "packages" / "kirsch" / "src" / "kirsch"

# The folders and modules of the package: each may import those below it only. A new one takes its place here.
LAYERS = (
    "__main__",
    "pytest_plugin",
    "flask",
    "django",
    "development",
    "adopt",
    "commands",
    "launching",
    "alone",
    "supervisor",
    "hooks",
    "bootstrap",
    "tracing",
    "serving",
    "server",
    "groups",
    "stopping",
    "monitor",
    "drivers",
    "apps",
    "config",
    "net",
    "process",
    "reports",
    "suggest",
    "installation",
    "_native",
)

# The same inside of folders. ``supervisor`` and ``drivers`` have no order of their own, but no circle either.
MODULES = {
    "commands": (
        "cli",
        "check",
        "check_proxies",
        "certificates",
        "dev_cert",
        "completion",
        "man",
        "quarantine",
        "top",
        "static",
        "help",
        "guides",
        "output",
        "__init__",
    ),
    "monitor": (
        "slow_requests",
        "deadlines",
        "running_requests",
        "status_page",
        "metrics",
        "scoreboard",
        "exemplars",
        "histogram",
        "shared_memory",
        "shared_value",
        "__init__",
    ),
    "groups": ("__init__", "group", "subscription", "link", "relay", "brokers", "frames", "connector", "bounded"),
    "apps": ("loading", "mounted", "signature", "__init__"),
    "config": (
        "sources",
        "log_config",
        "toml",
        "gunicorn_arguments",
        "compat",
        "arguments",
        "native",
        "options",
        "schema",
        "sections",
        "tls_settings",
        "compression_settings",
        "acme_settings",
        "group_settings",
        "rate_limits",
        "merged",
        "setting",
        "kinds",
        "values",
        "mounts",
        "driver_names",
        "__init__",
    ),
    "net": ("sockets", "certificates", "addresses", "inherited", "acme_files", "client_socket", "__init__"),
    "process": ("stacks", "forks", "signal_handlers", "spawn", "real_threads", "__init__"),
}

# Modules that no layer above imports: profiles, middleware, and the interfaces of WebSockets for applications.
LEAVES = frozenset({"profile", "middleware", "websocket"})

# The modules that each of LEAVES may import.
BELOW_LEAVES: dict[str, set[str]] = {
    "middleware": {"middleware", "profile"},
    "profile": {"profile", "process"},
    "websocket": {"_native", "groups"},
}

# Modules that are imported when a setting needs them.
MONITORS = frozenset({"kirsch.monitor.deadlines", "kirsch.monitor.running_requests"})

# Modules that take milliseconds to import, and that serving has no use for; threads have one for threading.
HEAVY = frozenset(
    {"asyncio", "dataclasses", "gevent", "importlib.metadata", "inspect", "logging", "shutil", "traceback", "typing"}
)


def _files(module: str) -> list[Path]:
    """Return the files of a module, or of a package with all that is in it."""
    path = PACKAGE.joinpath(*module.split("."))
    return [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))


@functools.cache
def _imports_of_all() -> dict[Path, set[str]]:
    package = structure.package(PACKAGE.parent.parent)
    return {module.path: package.imports[name] for name, module in package.modules.items()}


def _imports(path: Path) -> set[str]:
    """Modules of kirsch that a file imports: ``reports``, ``config.schema``, ``drivers`` for its ``__init__``."""
    return {name.removeprefix("kirsch").removeprefix(".") for name in _imports_of_all()[path]}


def _layers(path: Path) -> set[str]:
    """The entries of LAYERS that a file imports."""
    return {name.split(".")[0] for name in _imports(path)}


def _loaded(code: str) -> set[str]:
    """Names in sys.modules after ``code`` in a fresh interpreter, without those that every start loads."""
    program = "import json, sys\nbefore = set(sys.modules)\n{}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run(
        [sys.executable, "-c", program.format(code)], capture_output=True, text=True, timeout=30, check=True
    )
    return set(json.loads(done.stdout))


def test_every_folder_and_module_is_in_the_list_of_layers() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert modules | folders == set(LAYERS) - {"_native"} | LEAVES


@pytest.mark.parametrize("folder", MODULES)
def test_every_module_of_a_folder_is_in_its_list(folder: str) -> None:
    inside = {path.stem for path in (PACKAGE / folder).glob("*.py")}
    inside |= {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    assert inside == set(MODULES[folder])


def test_frames_of_every_layer_are_the_servers_own() -> None:
    folders = {PACKAGE / name for name in LAYERS if (PACKAGE / name).is_dir()}
    assert {Path(name).name for name in OWN_DIRECTORIES} == {path.name for path in folders} | {PACKAGE.name}


@pytest.mark.parametrize("module", sorted(LEAVES))
def test_profiles_and_middleware_import_little_of_the_server(module: str) -> None:
    for path in _files(module):
        assert _layers(path) <= BELOW_LEAVES[module], path


def test_the_server_imports_no_other_distribution() -> None:
    for path in PACKAGE.rglob("*.py"):
        others = re.findall(r"^\s*(?:from|import) (kirsch_\w+)", path.read_text(encoding="utf-8"), re.M)
        assert not others, path


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "_native"])
def test_layer_imports_only_lower_layers(layer: str) -> None:
    allowed = set(LAYERS[LAYERS.index(layer) + 1 :])
    if (PACKAGE / layer).is_dir():
        allowed.add(layer)  # what is in a folder may import the folder
    for path in _files(layer):
        assert _layers(path) <= allowed, path


@pytest.mark.parametrize(("folder", "module"), [(folder, name) for folder in MODULES for name in MODULES[folder]])
def test_module_imports_only_lower_modules_of_its_folder(folder: str, module: str) -> None:
    order = MODULES[folder]
    allowed = {folder, *(f"{folder}.{name}" for name in order[order.index(module) + 1 :])}
    for path in _files(f"{folder}.{module}"):
        inside = {".".join(name.split(".")[:2]) for name in _imports(path) if name.split(".")[0] == folder}
        assert inside - {f"{folder}.{module}"} <= allowed, path


def test_import_scanner_finds_known_imports() -> None:
    assert {"config.schema", "config.sources"} <= _imports(PACKAGE / "commands" / "cli.py")
    assert "_native" in _imports(PACKAGE / "server.py")
    assert "process.stacks" in set().union(*map(_imports, _files("drivers")))


def test_importing_kirsch_loads_nothing_else() -> None:
    assert _loaded("import kirsch") <= {"kirsch", "__future__"}


def test_a_public_name_loads_the_server_and_no_leaf() -> None:
    loaded = _loaded("import kirsch; kirsch.Server")
    assert "kirsch.server" in loaded
    assert "kirsch.commands.cli" not in loaded
    # The schema checks the settings of a program; neither command line nor environment nor file is read.
    config = {name for name in loaded if name.startswith("kirsch.config.")}
    assert config == {
        f"kirsch.config.{name}"
        for name in (
            "acme_settings",
            "driver_names",
            "group_settings",
            "rate_limits",
            "kinds",
            "merged",
            "native",
            "schema",
            "sections",
            "setting",
            "tls_settings",
            "compression_settings",
            "values",
        )
    }
    assert not {name for name in loaded if name.startswith("kirsch.") and name.split(".")[1] in LEAVES}


def test_the_exception_of_a_deadline_loads_no_server() -> None:
    loaded = _loaded("import kirsch; kirsch.RequestTimeout")
    assert {name for name in loaded if name.startswith("kirsch.")} == {"kirsch.drivers"}
    assert not loaded & (HEAVY | {"threading"})


def test_public_names_are_those_that_all_names() -> None:
    for name in kirsch.__all__:
        assert getattr(kirsch, name) is not None
    assert set(kirsch.__all__) <= set(dir(kirsch))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        kirsch.nothing  # noqa: B018


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize(
    ("args", "absent"),
    [
        ([], MONITORS | {"kirsch.drivers.gevent"}),
        (["--threads", "1"], MONITORS | {"kirsch.drivers.gevent", "threading"}),
        (["--timeout", "1h"], {"kirsch.drivers.gevent"}),
    ],
)
def test_a_serving_process_has_loaded_no_leaf_and_nothing_heavy(
    args: list[str], absent: set[str], serve: Serve, write_app: Callable[[str], str]
) -> None:
    module = write_app(
        """
        import sys

        def app(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return ["\\n".join(sorted(sys.modules)).encode()]
        """
    )
    with urllib.request.urlopen(serve(f"{module}:app", *args).url, timeout=10) as response:
        loaded = set(response.read().decode().split())
    always = set(
        subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert "kirsch.server" in loaded
    assert loaded & (HEAVY | absent) <= always
    assert not {name for name in loaded if name.startswith("kirsch.") and name.split(".")[1] in LEAVES}


def test_each_type_of_the_package_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = {}
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]:
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.M):
            found.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: places for name, places in found.items() if len(places) > 1}
