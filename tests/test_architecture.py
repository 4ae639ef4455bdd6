"""The rules of ARCHITECTURE.md about structure hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structure

PROJECT = Path(__file__).resolve().parent.parent
CRATES = PROJECT / "crates"
DESIGN = sorted(path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs" / "design").glob("*.md"))
MANIFESTS = [*CRATES.glob("*/Cargo.toml"), PROJECT / "fuzz" / "Cargo.toml", *PROJECT.glob("prototypes/*/Cargo.toml")]


def dependencies(crate: str) -> set[str]:
    """Names in [dependencies] of a crate, without those of its tests."""
    section = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", (CRATES / crate / "Cargo.toml").read_text(), re.M | re.S)
    assert section is not None
    return set(re.findall(r"^([\w-]+) *=", section[1], re.M))


def sources(crate: str) -> dict[str, str]:
    """The crate's code by file, without comments and without what only tests compile."""
    src = CRATES / crate / "src"
    return {
        str(path.relative_to(src)): structure.read_rust(path)[1]
        for path in sorted(src.rglob("*.rs"))
        if path.name != "tests.rs"
    }


def test_wire_can_reach_nothing() -> None:
    assert dependencies("wire") == {"base64", "httpdate", "itoa", "memchr", "sha1_smol", "transitions", "zlib-rs"}
    for name, code in sources("wire").items():
        assert not re.search(r"std::(net|fs|io|thread|env|process|os)\b|Instant|SystemTime::now", code), name


def test_wire_is_safe() -> None:
    assert "#![forbid(unsafe_code)]" in (CRATES / "wire" / "src" / "lib.rs").read_text()


def test_the_engine_does_not_know_python() -> None:
    assert dependencies("engine") == {
        "brotli", "flate2", "foldhash", "mio", "rustix", "slab", "tempfile", "transitions", "wire", "zstd-safe",
    }  # fmt: skip


def test_the_engine_is_told_the_time() -> None:
    for crate in ("engine", "scheduler"):
        for name, code in sources(crate).items():
            assert not re.search(r"(Instant|SystemTime)::now|clock_gettime", code), name


def test_the_scheduler_knows_neither_sockets_nor_protocols() -> None:
    assert dependencies("scheduler") == {"foldhash", "transitions"}
    for name, code in sources("scheduler").items():
        assert not re.search(r"std::(net|fs|env|process|os)\b", code), name


def test_tls_moves_no_bytes_itself() -> None:
    assert {"engine", "rustls", "wire"} <= dependencies("tls")
    assert "#![forbid(unsafe_code)]" in (CRATES / "tls" / "src" / "lib.rs").read_text()
    assert not {"rustls", "tls"} & (dependencies("wire") | dependencies("engine"))


def test_acme_sends_nothing_and_reads_no_clock() -> None:
    assert "#![forbid(unsafe_code)]" in (CRATES / "acme" / "src" / "lib.rs").read_text()
    assert not {"engine", "gateway", "tls", "pyo3", "hyper", "tokio"} & dependencies("acme")
    for name, code in sources("acme").items():
        assert not re.search(r"std::(net::Tcp|fs|thread|env|process|os)|(Instant|SystemTime)::now", code), name


def test_the_load_generator_is_told_the_time_and_knows_no_python() -> None:
    assert dependencies("load") == {
        "base64", "engine", "fastrand", "hdrhistogram", "memchr", "rustix", "rustls", "serde", "serde_json", "sha2",
        "slab", "wire",
    }  # fmt: skip
    for name, code in sources("load").items():
        assert name == "run.rs" or not re.search(r"(Instant|SystemTime)::now|clock_gettime", code), name


@pytest.mark.parametrize("crate", ["engine", "gateway", "load", "load-py", "scheduler", "tls"])
def test_only_wire_writes_protocol_bytes(crate: str) -> None:
    for name, code in sources(crate).items():
        # The null server looks for the end of a request and for nothing else; what it answers is its caller's.
        if name == "null.rs":
            continue
        # The access log and the environ name versions; no other file has a reason to write one, or a line end.
        if name not in ("access_log/format.rs", "wsgi/environ.rs"):
            assert "HTTP/1" not in code, name
        assert r"\r\n" not in code, name


def test_the_order_of_the_crates() -> None:
    assert not dependencies("wire") & {"engine", "gateway"}
    assert not dependencies("engine") & {"gateway", "scheduler"}
    assert {"engine", "wire"} <= dependencies("gateway")


def test_the_server_has_no_load_generator() -> None:
    assert not {"load", "load-py"} & (dependencies("wire") | dependencies("engine") | dependencies("gateway"))
    assert not {"gateway", "pyo3"} & (dependencies("load") | dependencies("engine") | dependencies("wire"))
    assert dependencies("load-py") == {"load", "pyo3", "serde_json", "wire"}


@pytest.mark.parametrize("manifest", sorted(path.relative_to(PROJECT).as_posix() for path in MANIFESTS))
def test_every_dependency_is_explained_in_its_manifest(manifest: str) -> None:
    """By a comment above it or behind it. Crates of this repository explain themselves."""
    explained = False
    table = ""
    for line in (PROJECT / manifest).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif line.startswith("#"):
            explained = True
        elif not line:
            explained = False
        else:
            if table.endswith("dependencies") and not re.search(r"\bpath *=", line):
                assert explained or " # " in line, line
            explained = False


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", *DESIGN])
def test_pages_about_the_code_name_files_that_exist(page: str) -> None:
    """Paths in backticks: from the root, or the end of one (`reply.rs`). A path may be a pattern."""
    text = re.sub(r"^```.*?^```", "", (PROJECT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    for path in re.findall(r"`([\w./*-]+)`", text):
        if re.match(r"(crates|docs|examples|fuzz|packages|prototypes|scripts|survey|tests)/", path):
            assert list(PROJECT.glob(path.rstrip("/"))), path
        elif path.endswith((".rs", ".py")):
            parents = ("crates", "packages", "python", "scripts", "tests")
            assert any(list((PROJECT / parent).rglob(path.removeprefix("python/"))) for parent in parents), path


@pytest.mark.parametrize("crate", ["engine", "load", "scheduler"])
def test_the_engine_the_load_generator_and_the_scheduler_are_safe(crate: str) -> None:
    assert "#![forbid(unsafe_code)]" in (CRATES / crate / "src" / "lib.rs").read_text()


def test_interface_and_host_are_apart() -> None:
    """WSGI and ASGI know neither the engine nor the inside of the host nor each other, and the host knows neither."""
    crate = structure.crate(CRATES / "gateway")
    gateway = crate.imports
    of_wsgi = {module for module in gateway if module.split("::")[0] == "wsgi"}
    of_host = {module for module in gateway if module.split("::")[0] == "host"}
    assert len(of_wsgi) >= 5
    assert len(of_host) >= 10
    # The interface passes the exchange on; its inside is the host's alone.
    named = set().union(*(gateway[module] for module in of_wsgi)) - of_wsgi
    shared = {"callable", "compat", "descriptor", "interface", "object", "host::exchange", "reused", "table", "text"}
    assert named == shared | {"watched"}
    of_asgi = {module for module in gateway if module.split("::")[0] == "asgi"}
    assert len(of_asgi) >= 5
    named = set().union(*(gateway[module] for module in of_asgi)) - of_asgi
    shared = {"callable", "compat", "descriptor", "interface", "object", "guarded", "host::exchange", "reused", "table"}
    assert named == shared | {"text", "thread_id"}
    assert not {module for module in of_host if gateway[module] & of_wsgi}
    for module in of_wsgi:
        code = structure.read_rust(crate.modules[module].path)[1]
        assert not re.search(r"\b(engine|host)::|\bTicket\b|std::thread", code), module


def test_messages_of_asgi_know_no_event_loop() -> None:
    """One file chooses the event loop, which knows the trait and nothing else of ASGI."""
    gateway = structure.crate(CRATES / "gateway").imports
    of_loop = {module for module in gateway if module.startswith("asgi::asyncio")}
    of_asgi = {module for module in gateway if module.startswith("asgi::")} - of_loop
    assert len(of_loop) >= 4
    assert {module for module in of_asgi if gateway[module] & of_loop} == {"asgi::shared"}
    named = set().union(*(gateway[module] for module in of_loop))
    assert {module for module in named - of_loop if module.startswith("asgi")} == {"asgi::concurrency"}


def test_every_unsafe_block_is_listed_with_tests_that_run_it() -> None:
    """docs/design/unsafe.md has a row for each file with unsafe code: its notes are counted, and the tests exist."""
    page = (PROJECT / "docs" / "design" / "unsafe.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+\.rs)` \| (\d+) \| [^|]+ \| ([^|]+) \|$", page, re.M)
    code = "".join(path.read_text(encoding="utf-8") for path in CRATES.rglob("*.rs"))
    for _, _, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named
        for test in named:
            assert (PROJECT / test).is_file() if "/" in test else f"fn {test}(" in code, test
    listed = {(name, int(count)) for name, count, _ in rows}
    src = CRATES / "gateway" / "src"
    found = set()
    for path in src.rglob("*.rs"):
        # Tests may have unsafe code of their own.
        notes = re.split(r"#\[cfg\([^\n]*\btest\b[^\n]*\)\]\s*mod \w+ \{", path.read_text(encoding="utf-8"))[0].count(
            "// SAFETY:"
        )
        if notes:
            found.add((str(path.relative_to(src)), notes))
    assert listed == found


def test_every_accident_is_guarded_by_something_real() -> None:
    """SECURITY.md's column "guarded by" names tests, corpus cases (as globs) and files that exist."""
    tests = [*(PROJECT / "tests").rglob("test_*.py"), *(PROJECT / "packages").glob("*/tests/test_*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in tests)
    code += "".join(path.read_text(encoding="utf-8") for path in CRATES.rglob("*.rs"))
    functions = set(re.findall(r"\b(?:def|fn) (\w+)\(", code))
    rows = re.findall(r"^\| [A-Z]\d+ \|.*\| ([^|]*) \|$", (PROJECT / "SECURITY.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 30
    for row in rows:
        guards = re.findall(r"`([^`]+)`", row)
        assert guards, f"nothing guards {row!r}"
        for guard in guards:
            if "/" in guard:
                assert list((PROJECT / "tests" / "corpus" / "http1").glob(guard + ".http")), guard
            elif guard.endswith(".toml"):
                assert (PROJECT / guard).exists()
            elif guard not in ("wire",):
                assert guard in functions, guard
