"""Runs the scripts of a copy of tlsfuzzer against a server of this project.

A script sends handshakes and records that a client should not send, and says what it expected for each probe. The file
``tests/tls/tlsfuzzer.json`` lists what differs, with the reason: for each script the answers that its probes may fail
with. Any other failure ends this program with status 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import termination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROJECT = Path(__file__).resolve().parent.parent
EXPECTED = PROJECT / "tests" / "tls" / "tlsfuzzer.json"
CIPHER = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
"""Of TLS 1.2. The scripts would otherwise ask for ciphers that no server should offer any more."""
# For scripts that understand no -C: what they take for a suite in CBC mode is CIPHER.
RUN = f"""
import runpy, sys
from tlslite.constants import CipherSuite
if "-C" not in sys.argv:
    CipherSuite.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA = CipherSuite.{CIPHER}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SECONDS = 300
PARALLEL = 3
# Scripts about the timing of RSA key exchange and of CBC mode, which are not offered, and of P-256, which take hours.
LEFT_OUT = re.compile(r"bleichenbacher|lucky13|marvin|minerva")
# The keys of clients, by a part of the script's name; the others have RSA keys.
KEYS = {"ecdsa": "ec -pkeyopt ec_paramgen_curve:prime256v1", "eddsa": "ed25519", "": "rsa:2048"}


def make_certificate(folder: Path, name: str, key: str) -> tuple[str, str]:
    """Return the paths of a key and of its certificate, which nobody else has signed."""
    paths = str(folder / f"{name}key.pem"), str(folder / f"{name}cert.pem")
    words = f"openssl req -x509 -newkey {key} -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    words += f" -addext basicConstraints=critical,CA:FALSE -keyout {paths[0]} -out {paths[1]}"
    subprocess.run(words.split(), check=True, capture_output=True)
    return paths


@contextlib.contextmanager
def server(program: str, folder: Path, *schemes: str, options: Sequence[str] = ()) -> Iterator[list[int]]:
    """A server with an RSA certificate, which most scripts expect, and its port for each of ``schemes``."""
    key, certificate = make_certificate(folder, "", KEYS[""])
    (folder / "hello.py").write_text(
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'Hello']\n"
    )
    command = [program, "hello:app", "--workers", "0", *options]
    for scheme in schemes:
        command += ["--bind", f"{scheme}://127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--certfile", certificate, "--keyfile", key],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            text = ""
            for line in process.stderr:
                text += line
                ports = re.findall(r"https?://127\.0\.0\.1:([0-9]+)", line)
                if len(ports) == len(schemes):
                    break
            else:
                sys.exit(f"the server has not started:\n{text}")
            # Its further log lines are read, because the pipe must not become full.
            with concurrent.futures.ThreadPoolExecutor(1) as reader:
                reader.submit(process.stderr.read)
                yield list(map(int, ports))
                process.terminate()
        finally:
            process.terminate()


def source(directory: Path, script: str) -> str:
    app = directory / "tlsfuzzer" / "_apps" / f"{script.removesuffix('.py').replace('-', '_')}.py"
    return (app if app.exists() else directory / "scripts" / script).read_text(encoding="utf-8")


def has_client_certificate(directory: Path, script: str) -> bool:
    return '" -k ' in source(directory, script)


def options(directory: Path, script: str, folder: Path) -> list[str]:
    """The arguments of a script, from what it says that it understands. ``folder`` has the certificates."""
    text = source(directory, script)
    arguments = []
    if has_client_certificate(directory, script):
        name = next(name for name in KEYS if name in script)
        arguments += ["-k", str(folder / f"client{name}key.pem"), "-c", str(folder / f"client{name}cert.pem")]
    if "tls13" in script:
        return arguments
    if '" -C ciph' in text:
        return [*arguments, "-C", CIPHER]
    return [*arguments, "-d"] if '" -d ' in text else arguments


def run(directory: Path, script: str, port: int, number: int, given: list[str]) -> tuple[int, dict[str, list[str]]]:
    """The number of probes that passed, and the reasons of the others with their names."""
    arguments = [sys.executable, "-c", RUN, f"scripts/{script}", "-p", str(port), *given]
    if re.search(r'getopt\(argv,\s*"[^"]*n:', source(directory, script)):
        arguments += ["-n", str(number)]
    try:
        process = subprocess.run(
            arguments,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 0, {f"takes longer than {SECONDS} s": ["all"]}
    reasons: dict[str, list[str]] = {}
    # Each probe begins with its name and dots, and a failed one is followed by a traceback.
    for probe in re.split(r"^(?=\S.* \.\.\.$)", process.stdout, flags=re.MULTILINE)[1:]:
        name, _, rest = probe.partition(" ...\n")
        if errors := re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.*)$", rest, flags=re.MULTILINE):
            kind, message = errors[-1]
            message = re.sub(r"len=[0-9]+|\b[0-9]{2,}\b", "N", message)
            message = re.sub(r"\((?:\w+, )+\w+\)", "(...)", message)
            reasons.setdefault(f"{kind}: {message}", []).append(name)
    passed = re.search(r"^PASS: ([0-9]+)", process.stdout, flags=re.MULTILINE)
    if passed is None:
        return 0, {"does not run: " + process.stdout.strip().splitlines()[-1]: ["all"]}
    return int(passed[1]), reasons


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="the copy of tlsfuzzer")
    parser.add_argument("scripts", nargs="*", help="names of scripts; all by default")
    parser.add_argument("--server", default="kirsch", help="the program kirsch; this Python has tlslite-ng")
    parser.add_argument("--number", type=int, default=40, help="random probes of each script at most; 0: all")
    parser.add_argument("--write", action="store_true", help="write what differs to the list, without reasons")
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    directory = given.directory.resolve()
    if not (directory / "tlsfuzzer").is_dir():
        sys.exit(f"{directory} is no copy of tlsfuzzer (github.com/tlsfuzzer/tlsfuzzer)")
    expected: dict[str, dict[str, str]] = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    names = given.scripts or [path.name for path in sorted((directory / "scripts").glob("test-*.py"))]
    left_out = [name for name in names if LEFT_OUT.search(name)]
    names = [name for name in names if name not in left_out]
    total, surprises = 0, 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trusted = folder / "trusted.pem"
        clients = [make_certificate(folder, f"client{name}", key) for name, key in KEYS.items()]
        trusted.write_text("".join(Path(certificate).read_text() for _, certificate in clients))
        (port,) = stack.enter_context(server(given.server, folder, "https"))
        asking = ("--cert-reqs", "optional", "--ca-certs", str(trusted))
        (folder / "asking").mkdir()
        (asking_port,) = stack.enter_context(server(given.server, folder / "asking", "https", options=asking))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(PARALLEL))

        def outcome(name: str) -> tuple[int, dict[str, list[str]]]:
            chosen = asking_port if has_client_certificate(directory, name) else port
            return run(directory, name, chosen, given.number, options(directory, name, folder))

        outcomes = pool.map(outcome, names)
        for name, (passed, reasons) in zip(names, outcomes, strict=True):
            total += passed
            known = expected.setdefault(name, {})
            for reason, probes in reasons.items():
                if given.write:
                    known.setdefault(reason, "")
                elif reason not in known:
                    surprises += 1
                    say(f"{name}: {reason}: {', '.join(probes[:5])}")
            say(f"{name}: {passed} passed, {sum(map(len, reasons.values()))} differ")
    if given.write:
        EXPECTED.parent.mkdir(exist_ok=True)
        kept = {name: reasons for name, reasons in sorted(expected.items()) if reasons}
        EXPECTED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    say(f"Not run, because they measure time: {', '.join(left_out) or 'none'}")
    say(
        f"{total} probes passed in {len(names)} scripts; {surprises} differ in a way that {EXPECTED.name} does not list"
    )
    sys.exit(surprises > 0)


if __name__ == "__main__":
    main()
