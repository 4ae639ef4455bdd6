"""The rules of the house that concern imports: who may import whom, and what is loaded when."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "packages" / "kirsch" / "src" / "kirsch"

# Each module or package may import those below it only. A new one takes its place here. The modules of config stand for
# themselves: the schema lies below the server, and what reads the command line above it.
LAYERS = (
    "__main__",
    "cli",
    "check",
    "proxies",
    "completion",
    "man",
    "quarantine",
    "top",
    "static",
    "supervisor",
    "config.sources",
    "hooks",
    "output",
    "bootstrap",
    "log_config",
    "config.toml",
    "config.gunicorn_arguments",
    "config.compat",
    "config.arguments",
    "loading",
    "serving",
    "server",
    "stopping",
    "slow_requests",
    "deadlines",
    "requests",
    "drivers",
    "config.native",
    "config.options",
    "config.schema",
    "config.setting",
    "config.kinds",
    "config.values",
    "mounts",
    "calling",
    "driver_names",
    "stacks",
    "handlers",
    "forks",
    "scoreboard",
    "reports",
    "sockets",
    "inherited",
    "commands",
    "suggest",
    "_native",
)

# Modules that no layer above imports: profiles, middleware, and the interfaces of WebSockets for applications.
LEAVES = frozenset({"profile", "middleware", "websocket", "client_socket"})

# The modules that each of LEAVES may import.
BELOW_LEAVES: dict[str, set[str]] = {
    "client_socket": {"_native"},
    "middleware": {"middleware", "profile"},
    "profile": {"profile", "drivers"},
    "websocket": {"_native"},
}

# The packages of all distributions, as (folder, name).
PACKAGES = (
    (PACKAGE.parent, "kirsch"),
    (PROJECT / "packages" / "kirsch-bench" / "src", "kirsch_bench"),
    (PROJECT / "packages" / "kirsch-query" / "src", "kirsch_query"),
    (PROJECT / "packages" / "kirsch-web" / "src", "kirsch_web"),
)

# Modules that take milliseconds to import, and that serving has no use for; threads have one for threading.
HEAVY = frozenset(
    {"asyncio", "dataclasses", "gevent", "importlib.metadata", "inspect", "logging", "shutil", "traceback", "typing"}
)


def _files(module: str) -> list[Path]:
    """Those of a module, or of a package with all that is in it."""
    path = PACKAGE.joinpath(*module.split("."))
    return [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))


def _layer(parts: list[str]) -> str:
    """The name in LAYERS of the module whose name below ``kirsch`` has these parts."""
    return ".".join(parts[: 2 if parts[0] == "config" else 1])


@functools.cache
def _import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those of a file: anywhere in it, also inside functions and for type checking."""
    found: list[ast.Import | ast.ImportFrom] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        # Statements stand in these alone; to walk through all expressions takes seconds.
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())
    return found


def _imports(path: Path) -> set[str]:
    """Modules of kirsch that a file imports."""
    found = set()
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            found |= {_layer(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("kirsch.")}
        else:
            module = node.module or ""
            assert node.level == 0, f"{path.name} imports relatively, which this test does not follow"
            if module == "kirsch":
                found |= {alias.name for alias in node.names}
            elif module == "kirsch.config":
                found |= {f"config.{alias.name}" for alias in node.names}
            elif module.startswith("kirsch."):
                found.add(_layer(module.split(".")[1:]))
    return found


def _imported_files(path: Path, folder: Path) -> set[Path]:
    """Files below ``folder`` that a file imports."""
    names = set()
    for node in _import_statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            above = path.relative_to(folder).parts[: -node.level or None] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            submodules = {f"{module}.{alias.name}" for alias in node.names}
            names |= submodules if all(_file(name, folder) for name in submodules) else {module, *submodules}
    return {found for name in names if not name.endswith("._native") and (found := _file(name, folder))}


@functools.cache
def _file(module: str, folder: Path) -> Path | None:
    """The file of a module; None where it is none of this folder's. A native module has its stub."""
    path = folder.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py", path.with_suffix(".pyi"))
    return next((each for each in candidates if each.exists()), None)


def _loaded(code: str) -> set[str]:
    """Names in sys.modules after ``code`` in a fresh interpreter, without those that every start loads."""
    program = "import json, sys\nbefore = set(sys.modules)\n{}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run(
        [sys.executable, "-c", program.format(code)], capture_output=True, text=True, timeout=30, check=True
    )
    return set(json.loads(done.stdout))


def test_every_module_is_in_the_list_of_layers() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"config"}
    config = {f"config.{path.stem}" for path in (PACKAGE / "config").iterdir() if path.name[0] != "_"}
    assert modules | packages | config == set(LAYERS) - {"_native"} | LEAVES


@pytest.mark.parametrize("module", sorted(LEAVES))
def test_profiles_and_middleware_import_little_of_the_server(module: str) -> None:
    for path in _files(module):
        assert _imports(path) <= BELOW_LEAVES[module], path


def test_the_server_imports_no_other_distribution() -> None:
    for path in PACKAGE.rglob("*.py"):
        others = re.findall(r"^\s*(?:from|import) (kirsch_\w+)", path.read_text(encoding="utf-8"), re.M)
        assert not others, path


@pytest.mark.parametrize(("folder", "name"), PACKAGES, ids=lambda value: value if isinstance(value, str) else "")
def test_no_files_import_each_other_in_a_circle(folder: Path, name: str) -> None:
    """Imports inside functions and for type checking count too."""
    imports = {path: _imported_files(path, folder) - {path} for path in (folder / name).rglob("*.py")}
    left = dict(imports)
    while leaves := [path for path, targets in left.items() if not targets & left.keys()]:
        for path in leaves:
            del left[path]
    while roots := [path for path in left if not any(path in targets for targets in left.values())]:
        for path in roots:
            del left[path]
    assert not {path.relative_to(folder).as_posix() for path in left}


@pytest.mark.parametrize("module", [name for name in LAYERS if name != "_native"])
def test_module_imports_only_lower_layers(module: str) -> None:
    allowed = set(LAYERS[LAYERS.index(module) + 1 :])
    if PACKAGE.joinpath(*module.split(".")).is_dir():
        allowed.add(module)  # What is in a package may import the package.
    for path in _files(module):
        assert _imports(path) <= allowed, path


def test_import_scanner_finds_known_imports() -> None:
    assert {"config.schema", "config.sources"} <= _imports(PACKAGE / "cli.py")
    assert "_native" in _imports(PACKAGE / "server.py")
    assert "stacks" in set().union(*map(_imports, _files("drivers")))


def test_importing_kirsch_loads_nothing_else() -> None:
    assert _loaded("import kirsch") <= {"kirsch", "__future__"}


def test_a_public_name_loads_the_server_and_no_leaf() -> None:
    loaded = _loaded("import kirsch; kirsch.Server")
    assert "kirsch.server" in loaded
    assert "kirsch.cli" not in loaded
    # What a program gives is checked by the schema; neither command line nor environment nor file is looked at.
    config = {name for name in loaded if name.startswith("kirsch.config.")}
    assert config == {f"kirsch.config.{name}" for name in ("kinds", "native", "schema", "setting", "values")}
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
        ([], {"kirsch.deadlines", "kirsch.requests", "kirsch.drivers.gevent"}),
        (["--threads", "1"], {"kirsch.deadlines", "kirsch.requests", "kirsch.drivers.gevent", "threading"}),
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
