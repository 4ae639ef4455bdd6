"""Pebble, Let's Encrypt's ACME server for tests, as a process; ``make pebble`` installs it (Go)."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ports import free_port
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authority import Authority

INSTALLED = Path(__file__).resolve().parent.parent / "target" / "pebble" / "bin"


def program(name: str) -> str:
    found = shutil.which(name, path=f"{INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"the program {name} is not installed; make pebble installs it with Go")
    return found


class Pebble:
    """An authority that verifies names at ``http_port`` and ``tls_port`` of 127.0.0.1, whatever the name.

    ``environment`` has its chaos: it refuses nonces and waits before it verifies, unless told otherwise.
    """

    def __init__(
        self,
        folder: Path,
        trust: Authority,
        ports: tuple[int, int],
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.certificates = trust.certificate
        certificate, key = trust.issue("pebble", "localhost")
        own, self._management, dns = free_port(), free_port(), free_port()
        self.directory = f"https://localhost:{own}/dir"
        config = {
            "listenAddress": f"127.0.0.1:{own}", "managementListenAddress": f"127.0.0.1:{self._management}",
            "certificate": certificate, "privateKey": key, "httpPort": ports[0], "tlsPort": ports[1],
            "ocspResponderURL": "", "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
            "domainBlocklist": ["blocked.example.com"],
            "profiles": {
                "default": {"description": "for 90 days", "validityPeriod": 7776000},
                "brief": {"description": "for some seconds", "validityPeriod": 20},
            },
            **settings,
        }  # fmt: skip
        path = folder / "pebble.json"
        path.write_text(json.dumps({"pebble": config}))
        chaos = {"PEBBLE_WFE_NONCEREJECT": "10", "PEBBLE_VA_SLEEPTIME": "1", "PEBBLE_AUTHZREUSE": "0"}
        servers = program("pebble-challtestsrv"), program("pebble")
        self._output = (folder / "pebble.log").open("wb")
        self._processes = [
            self._start([servers[0], "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
                         "-dnsserver", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{free_port()}",
                         "-defaultIPv6", ""], {}),
            self._start([servers[1], "-strict", "-config", str(path), "-dnsserver", f"127.0.0.1:{dns}"],
                        {**chaos, **(environment or {})}),
        ]  # fmt: skip
        self.log = Path(self._output.name)
        wait_until(lambda: b"Listening on" in self.log.read_bytes(), "Pebble listens")
        wait_until(self._answers, "Pebble answers")

    def _start(self, command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )

    def _answers(self) -> bool:
        try:
            self.manage("/roots/0")
        except OSError:
            return False
        return True

    def manage(self, path: str, content: object = None) -> str:
        """Ask the management interface."""
        data = None if content is None else json.dumps(content).encode()
        context = ssl.create_default_context(cafile=self.certificates)
        url = f"https://localhost:{self._management}{path}"
        with urllib.request.urlopen(url, data, timeout=20, context=context) as response:
            answer: bytes = response.read()
        return answer.decode()

    def roots(self, folder: Path) -> str:
        """Return the path of the certificate of the authority that issues."""
        path = folder / "roots.pem"
        path.write_text(self.manage("/roots/0"))
        return str(path)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._output.close()
