"""A ``.fcgi`` file beside an ``.htaccess``, as docs/deploy/gateways.md shows them, in the hands of Apache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fronts import APACHE_MODULES, DOCS, TESTS, block, wrap
from ports import free_port
from proc import wait_until
from test_fronts import ask

CONFIGURATION = """
LoadModule mime_module {modules}/mod_mime.so
LoadModule rewrite_module {modules}/mod_rewrite.so
TypesConfig /dev/null
DocumentRoot {folder}/public_html
<Directory {folder}/public_html>
    AllowOverride All
    Require all granted
</Directory>
"""


def script(at: str) -> str:
    """The documented file, with the application of the tests and these paths."""
    text: str
    (text,) = re.findall(
        r"^```python\n(#![^\n]*\n# \S*/shop\.fcgi\n.*?)^```$", (DOCS / "gateways.md").read_text(), re.M | re.S
    )
    for old, new in [
        ("/home/shop/venv/bin/python", sys.executable),
        ("/home/shop/app", str(TESTS)),
        ("from shop.wsgi import app", "from gateway_app import app"),
        ('fastcgi_script_name="/"', f'fastcgi_script_name="{at}"'),
    ]:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("at", ["/", "/shop"])
def test_a_fcgi_file_serves_the_application_where_the_client_sees_it(at: str) -> None:
    if shutil.which("apache2") is None or not (APACHE_MODULES / "mod_fcgid.so").exists():
        pytest.skip("Apache or mod_fcgid is not installed: apt-get install apache2 libapache2-mod-fcgid")
    with tempfile.TemporaryDirectory(prefix="front-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        site = folder / "public_html" / at[1:]
        site.mkdir(parents=True)
        (site / ".htaccess").write_text(block("gateways.md", "apache2", ".htaccess"))
        (site / "shop.fcgi").write_text(script(at))
        (site / "shop.fcgi").chmod(0o755)
        (site / "file.txt").write_text("Apache's own")
        port = free_port()
        text = CONFIGURATION.format(modules=APACHE_MODULES, folder=folder)
        command, whole = wrap("apache2", text, folder, port)
        (folder / "front.conf").write_text(whole)
        with (folder / "front.out").open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env={**os.environ}
            )

        def is_up() -> bool:
            assert process.poll() is None, (folder / "front.out").read_text()
            try:
                return ask(port, target=f"{at.rstrip('/')}/file.txt").body == b"Apache's own"
            except OSError:
                return False

        try:
            wait_until(is_up, "Apache listens")
            prefix = at.rstrip("/")
            for target, path in [(f"{prefix}/", "/"), (f"{prefix}/a%20b/c?q=1", "/a b/c")]:
                found = ask(port, target=target, fields=[("Authorization", "Basic YTpi")])
                assert found.status == 200, (folder / "front.log").read_text()
                content = found.json
                assert (content["SCRIPT_NAME"], content["PATH_INFO"]) == (prefix, path)
                assert content["HTTP_AUTHORIZATION"] == "Basic YTpi"
                assert content["REQUEST_URI"] == target
            assert ask(port, "POST", f"{prefix}/echo", body=b"b" * 10_000).status == 200
        finally:
            process.terminate()
            process.wait(30)
