"""Serves an application inside of the small image, as `image.sh` starts it there, and asks as its health check does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

APPLICATION = "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'served']\n"


def main() -> int:
    """Return 0 if everything answered."""
    assert os.getuid() == 10001, "not as the user of the image"
    assert not Path("/bin/sh").exists(), "the image has a shell"
    Path("/tmp/app.py").write_text(APPLICATION)  # noqa: S108 - the only folder that may be written
    command = ["kirsch", "--chdir", "/tmp", "--bind", "127.0.0.1:0", "--health-path", "/healthz", "app:app"]  # noqa: S108
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            assert urlopen(f"{found[0]}/healthz", timeout=20).status == 200
            assert urlopen(f"{found[0]}/", timeout=20).read() == b"served"
            break
        print(line, end="")
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)
    print(f"served as user {os.getuid()}, and ended with status {server.returncode}")
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
