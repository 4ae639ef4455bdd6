"""Run CherryPy's own tests, as its distribution has them, against the layer or against CherryPy itself.

    python cherrypy_suite.py                      # the layer; compare with cherrypy_expected.txt
    python cherrypy_suite.py --on cherrypy        # CherryPy itself; compare with the same file
    python cherrypy_suite.py --write              # run both, and write the file; reasons that it has are kept
    python cherrypy_suite.py core request_obj     # some modules
    python cherrypy_suite.py -v core              # with pytest's output

It needs a Python with CherryPy and what its tests import: `make test-web-cherrypy` makes one. Each module runs in a
process of its own, because the tests share global state; the port is a free one.

cherrypy_expected.txt has a line for each test: the outcome on CherryPy, that on the layer, the name, and a reason
where the layer does not pass. The run fails where a test differs from its line, for the better too, or has none.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "cherrypy_expected.txt"
# These modules do not test HTTP, but CherryPy's own bus, its daemons, its memory.
WHITE_BOX = {"bus", "states", "plugins", "native", "httputil"}
SERVICES = {
    "auth_basic", "auth_digest", "caching", "logging", "mime", "session", "sessionauthenticate", "static", "xmlrpc",
}  # fmt: skip
# The HTTP server decides these: here cheroot's, which CherryPy installs.
SERVER = {"config_server", "conn", "http", "refleaks", "wsgi_unix_socket"}
# Outcomes of tests that depend on time, or that CherryPy itself marks as unreliable; any outcome is accepted.
UNRELIABLE = {
    "caching::CacheTest::test_antistampede",
    "conn::LimitedRequestQueueTests::test_queue_full",
    "static::StaticTest::test_file_stream",
}


def suite_folder() -> pathlib.Path:
    """Return the folder of the tests of the installed CherryPy, which is not imported."""
    import importlib.metadata

    files = importlib.metadata.files("cherrypy") or []
    return pathlib.Path(str(next(f for f in files if f.name == "helper.py").locate())).parent


def child(on: str, module: str) -> int:
    """Run one module in this process."""

    import pytest

    folder = suite_folder()
    if on == "layer":
        from kirsch_cherrypy import install_as_cherrypy

        install_as_cherrypy()
        import cherrypy  # type: ignore[import-not-found, import-untyped, unused-ignore]

        # The suite, the tutorials and the icon that tests read are the distribution's.
        cherrypy.__path__.append(str(folder.parent))
        import cherrypy_gctools

        sys.modules["cherrypy.lib.gctools"] = cherrypy.lib.gctools = cherrypy_gctools
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    from cheroot.test import webtest
    from cherrypy.test import helper  # type: ignore[import-not-found, import-untyped, unused-ignore]

    webtest.WebCase.PORT = port
    given = helper.CPWebCase._setup_server.__func__

    def on_free_port(cls: type, supervisor: object, conf: object) -> object:
        supervisor.port = port  # type: ignore[attr-defined]
        return given(cls, supervisor, conf)

    helper.CPWebCase._setup_server = classmethod(on_free_port)
    options = ["-q", "-rA", "--tb=short", "-p", "no:cacheprovider", "-c", os.devnull, f"--confcutdir={folder}"]
    return int(pytest.main([*options, f"--rootdir={folder}", str(folder / f"test_{module}.py")]))


def run(on: str, module: str, verbose: bool) -> dict[str, str]:
    """The outcome of each test of a module."""
    command = [sys.executable, __file__, "--child", "--on", on, module]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "WEBTEST_INTERACTIVE": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, check=False)
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + "\ntimeout"
    found = {}
    for outcome, name in re.findall(
        r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S*?test_\w+\.py::(\S+)", output, re.MULTILINE
    ):
        found[f"{module}::{name}"] = {"PASSED": "pass", "XPASS": "pass", "XFAIL": "xfail"}.get(outcome, "fail")
    skipped = sum(map(int, re.findall(r"^SKIPPED \[(\d+)\]", output, re.MULTILINE)))
    if skipped:
        found[f"{module}::(skipped)"] = f"{skipped} skipped"
    if not found or verbose:
        print(output)
    return found


def read_expected() -> dict[str, tuple[str, str, str]]:
    """Outcome on CherryPy, outcome on the layer and reason, by the tests' names."""
    expected = {}
    for line in EXPECTED.read_text(encoding="utf-8").splitlines() if EXPECTED.exists() else ():
        if line.strip() and not line.startswith("#"):
            fields, _, reason = line.partition(" # ")
            on_cherrypy, on_layer, name = re.split(r" {2,}", fields.strip())
            expected[name] = on_cherrypy, on_layer, reason.strip()
    return expected


def group_of(name: str) -> str:
    module = name.partition("::")[0]
    return "services" if module in SERVICES else "server" if module in SERVER else "semantics"


def write_expected(on_cherrypy: dict[str, str], on_layer: dict[str, str]) -> None:
    reasons = {name: reason for name, (_, _, reason) in read_expected().items()}
    lines = ["# CherryPy 18.10.0's own tests: outcome on CherryPy, outcome on the layer, test # reason."]
    lines.append("# Written by cherrypy_suite.py --write; the reasons are written by hand.")
    for group in ("semantics", "services", "server"):
        names = sorted(name for name in on_cherrypy.keys() | on_layer.keys() if group_of(name) == group)
        passed = [sum(ran.get(name) == "pass" for name in names) for ran in (on_cherrypy, on_layer)]
        lines.append(f"\n# {group}: {passed[0]} pass on CherryPy, {passed[1]} on the layer")
        for name in names:
            reason = f"  # {reasons[name]}" if reasons.get(name) else ""
            lines.append(f"{on_cherrypy.get(name, 'absent'):9}  {on_layer.get(name, 'absent'):9}  {name}{reason}")
    EXPECTED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def differences(found: dict[str, str], on: str, modules: list[str]) -> list[str]:
    """Return a line for each test whose outcome differs from the file."""
    expected = read_expected()
    wanted = {
        n: (each[0] if on == "cherrypy" else each[1]) for n, each in expected.items() if n.split("::")[0] in modules
    }
    lines = []
    for name in sorted(wanted.keys() | found.keys()):
        is_now, was = found.get(name, "absent"), wanted.get(name, "absent")
        if is_now != was and name not in UNRELIABLE and not name.endswith("(skipped)"):
            lines.append(f"{name}: expected {was}, got {is_now}")
    for name, (on_cherrypy, on_layer, reason) in expected.items():
        if on_cherrypy == "pass" and on_layer != "pass" and not reason:
            lines.append(f"{name}: passes on CherryPy and not on the layer, and the file gives no reason")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=("layer", "cherrypy"), default="layer")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("modules", nargs="*")
    given = parser.parse_args()
    if given.child:
        return child(given.on, given.modules[0])
    names = sorted(path.stem[5:] for path in suite_folder().glob("test_*.py"))
    modules = given.modules or [name for name in names if name not in WHITE_BOX]
    ran = {on: run_all(on, modules, given.verbose) for on in (("cherrypy", "layer") if given.write else (given.on,))}
    if given.write:
        write_expected(ran["cherrypy"], ran["layer"])
        return 0
    found = ran[given.on]
    # Some of these tests compare times or race threads, so what differs is run once more, with all that it prints.
    differing = {line.partition("::")[0] for line in differences(found, given.on, modules)}
    if again := [module for module in modules if module in differing]:
        print("once more:", *again)
        found.update(run_all(given.on, again, verbose=True))
    for group in ("semantics", "services", "server"):
        outcomes = [outcome for name, outcome in found.items() if group_of(name) == group]
        print(f"{group}: {outcomes.count('pass')} of {len(outcomes)} pass")
    lines = differences(found, given.on, modules)
    print("\n".join(lines) or f"as {EXPECTED.name} has it")
    return 1 if lines else 0


def run_all(on: str, modules: list[str], verbose: bool) -> dict[str, str]:
    """The outcomes of all modules, which are printed meanwhile."""
    found: dict[str, str] = {}
    for module in modules:
        result = run(on, module, verbose)
        found.update(result)
        outcomes = list(result.values())
        print(
            on, module, *(f"{kind}={outcomes.count(kind)}" for kind in ("pass", "fail") if kind in outcomes), flush=True
        )
        for name, outcome in result.items():
            if outcome == "fail":
                print("   failed:", name)
    return found


if __name__ == "__main__":
    sys.exit(main())
