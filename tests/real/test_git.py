"""Git's smart HTTP protocol: the real git against dulwich's WSGI application.

A push larger than ``http.postBuffer`` is sent with Transfer-Encoding: chunked and no Content-Length, after a probe; a
long negotiation is sent with Content-Encoding: gzip, which is the application's to undo.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

APP = """
    import os

    from dulwich.repo import Repo
    from dulwich.server import DictBackend
    from dulwich.web import make_wsgi_chain

    app = make_wsgi_chain(DictBackend({"/": Repo(os.environ["ORIGIN"])}))
"""

PACK_BYTES = 3 * 1024 * 1024


class Git:
    """git as no particular user, with no settings but those given here, and a trace of all its HTTP."""

    def __init__(self, program: str, home: Path) -> None:
        self.program = program
        self.trace = home / "trace"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_TRACE_CURL": str(self.trace),
            "GIT_TRACE_CURL_NO_DATA": "1",
            "NO_PROXY": "*",
            "LC_ALL": "C",
        }
        for person in ("AUTHOR", "COMMITTER"):
            self.environment |= {f"GIT_{person}_NAME": "A", f"GIT_{person}_EMAIL": "a@example.org"}

    def __call__(self, *args: str | Path, cwd: Path) -> str:
        run = subprocess.run(
            [self.program, "-c", "init.defaultBranch=main", "-c", "gc.auto=0", *args],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, f"git {args}: {run.stdout}{run.stderr}"
        return run.stdout

    def sent(self) -> str:
        """The request fields sent since the last call."""
        trace = self.trace.read_text(errors="replace") if self.trace.exists() else ""
        self.trace.write_text("")
        return "\n".join(re.findall(r"=> Send header: (.*)", trace))

    def commit(self, repository: Path, name: str, content: bytes) -> None:
        (repository / name).write_bytes(content)
        self("add", name, cwd=repository)
        self("commit", "--quiet", "--message", f"Add {name}", cwd=repository)


@pytest.fixture
def git(program: Callable[[str], str], tmp_path: Path) -> Git:
    home = tmp_path / "home"
    home.mkdir()
    return Git(program("git"), home)


@pytest.fixture
def origin(git: Git, tmp_path: Path) -> Path:
    git("init", "--quiet", "--bare", "origin.git", cwd=tmp_path)
    return tmp_path / "origin.git"


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str], origin: Path) -> Running:
    return serve(f"{write_app(APP)}:app", env={"ORIGIN": str(origin)})


def head(git: Git, repository: Path) -> str:
    return git("rev-parse", "refs/heads/main", cwd=repository).strip()


def test_push_in_chunks_then_clone(git: Git, origin: Path, site: Running, tmp_path: Path) -> None:
    author = tmp_path / "author"
    git("clone", "--quiet", site.url, "author", cwd=tmp_path)
    git.commit(author, "large.bin", random.Random(17).randbytes(PACK_BYTES))
    git.commit(author, "small.txt", b"small\n")
    git.sent()
    git("-c", "http.postBuffer=65536", "push", "--quiet", "origin", "main", cwd=author)
    assert "Transfer-Encoding: chunked" in git.sent()
    git("fsck", "--strict", "--full", cwd=origin)
    assert head(git, origin) == head(git, author)

    # A second push whose pack fits in git's buffer goes out with its Content-Length.
    git.commit(author, "more.bin", random.Random(19).randbytes(PACK_BYTES // 10))
    git("push", "--quiet", "origin", "main", cwd=author)
    assert "Transfer-Encoding: chunked" not in git.sent()
    git("fsck", "--strict", "--full", cwd=origin)
    assert head(git, origin) == head(git, author)

    reader = tmp_path / "reader"
    git("clone", "--quiet", site.url, "reader", cwd=tmp_path)
    git("fsck", "--strict", "--full", cwd=reader)
    assert head(git, reader) == head(git, origin)
    for name in ("large.bin", "small.txt", "more.bin"):
        assert (reader / name).read_bytes() == (author / name).read_bytes()


def test_fetch_with_a_gzipped_request(git: Git, origin: Path, site: Running, tmp_path: Path) -> None:
    author, reader = tmp_path / "author", tmp_path / "reader"
    git("clone", "--quiet", site.url, "author", cwd=tmp_path)
    git.commit(author, "first.txt", b"first\n")
    git("push", "--quiet", "origin", "main", cwd=author)
    git("clone", "--quiet", site.url, "reader", cwd=tmp_path)

    # Commits that the server has never heard of, newer than all that it has: the reader names them first, a line each.
    stream = "".join(
        f"commit refs/heads/local{number}\ncommitter A <a@example.org> {2_000_000_000 + number} +0000\n"
        f"data 1\n{number % 10}\nfrom refs/heads/main\n\n"
        for number in range(100)
    )
    subprocess.run(
        [git.program, "fast-import", "--quiet"], input=stream, text=True, env=git.environment, cwd=reader, check=True
    )
    git.commit(author, "second.txt", b"second\n")
    git("push", "--quiet", "origin", "main", cwd=author)
    git.sent()
    git("pull", "--quiet", "--ff-only", cwd=reader)
    assert "Content-Encoding: gzip" in git.sent()
    git("fsck", "--strict", "--full", cwd=reader)
    assert head(git, reader) == head(git, author) == head(git, origin)
    assert (reader / "second.txt").read_bytes() == b"second\n"


def test_a_push_behind_the_head_is_refused(git: Git, origin: Path, site: Running, tmp_path: Path) -> None:
    author, late = tmp_path / "author", tmp_path / "late"
    git("clone", "--quiet", site.url, "author", cwd=tmp_path)
    git.commit(author, "first.txt", b"first\n")
    git("push", "--quiet", "origin", "main", cwd=author)
    git("clone", "--quiet", site.url, "late", cwd=tmp_path)
    git.commit(author, "second.txt", b"second\n")
    git("push", "--quiet", "origin", "main", cwd=author)
    git.commit(late, "third.txt", b"third\n")
    before = head(git, origin)
    with pytest.raises(AssertionError, match="rejected"):
        git("push", "origin", "main", cwd=late)
    assert head(git, origin) == before
