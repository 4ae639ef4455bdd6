"""The client with rustls, ``crates/tls/examples/client.rs``, built when a test needs it."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path

import pytest

# It may have to be compiled with the libraries below it.
BUILD_SECONDS = 900


@functools.cache
def rustls_client() -> str:
    """Return the path of the program. Skips the test if it cannot be built here."""
    if shutil.which("cargo") is None:
        pytest.skip("the program cargo builds the client with rustls, and is not installed (https://rustup.rs)")
    command = "cargo build --quiet --locked --profile testing -p tls --example client --message-format json"
    done = subprocess.run(
        command.split(), capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return str(next(path for path in reversed(made) if path))
