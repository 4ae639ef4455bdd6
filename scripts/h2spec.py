"""Runs h2spec against a server of this project, in clear and with TLS. Every case has to pass, strict ones too.

h2spec sends frames that a client should not send, and judges the answers by RFC 9113 and RFC 7541. It is written in Go
(github.com/summerwind/h2spec). Its newest version is not in Go's module proxy: ``--source`` names a copy of it, and
without one the version of the proxy is built, which has one case less.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tlsfuzzer import say, server

VERSION = "v2.2.1+incompatible"
SECONDS = 300


def build(source: Path | None, folder: Path) -> str:
    """Build h2spec, and return the path of the program."""
    go = shutil.which("go") or "go"
    program = folder / "h2spec"
    if source is not None:
        if not (source / "cmd" / "h2spec").is_dir():
            sys.exit(f"{source} is no copy of h2spec (github.com/summerwind/h2spec)")
        subprocess.run([go, "build", "-o", program, "./cmd/h2spec"], cwd=source, check=True)
        return str(program)
    package = "github.com/summerwind/h2spec"
    (folder / "tools.go").write_text(f'package tools\n\nimport _ "{package}"\n')
    commands = [["mod", "init", "tools"], ["get", f"{package}@{VERSION}"], ["get", f"{package}/cmd/h2spec@{VERSION}"]]
    for command in [*commands, ["build", "-o", str(program), f"{package}/cmd/h2spec"]]:
        # Go tells each module that it downloads.
        done = subprocess.run([go, *command], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"go {' '.join(command)}: {done.stderr}")
    return str(program)


def judge(program: str, port: int, *options: str) -> int:
    """Run all cases, print those that fail, and return their number."""
    command = [program, "--strict", "--host", "127.0.0.1", "--port", str(port), "--timeout", "5", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"h2spec takes longer than {SECONDS} s")
    counts = re.search(r"^(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed$", done.stdout, re.MULTILINE)
    if counts is None:
        sys.exit(f"h2spec did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    cases, passed, skipped, failed = map(int, counts.groups())
    say(f"h2spec {' '.join(options) or 'in clear'}: {cases} cases, {passed} passed, {skipped} skipped, {failed} failed")
    if failed or skipped:
        say(done.stdout[done.stdout.find("Failures:") :])
    return failed + skipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="a copy of h2spec, of version 2.6.0")
    parser.add_argument("--server", default="kirsch", help="the program kirsch")
    given = parser.parse_args()
    if shutil.which("go") is None:
        say("Not run: h2spec is a program in Go, and there is no go here (apt install golang).")
        return
    source = given.source.resolve() if given.source else None
    with tempfile.TemporaryDirectory() as folder:
        program = build(source, Path(folder))
        # In clear an address for both versions takes a malformed preface for HTTP/1.1, and answers with 400.
        both = server(os.path.abspath(given.server), Path(folder), "http", "https", options=("--http", "2"))
        with both as (plain, encrypted):
            failed = judge(program, plain) + judge(program, encrypted, "--tls", "--insecure")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
