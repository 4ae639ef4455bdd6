"""The corpus files keep the form that `tests/corpus/README.md` describes.

What the cases mean is tested where a parser reads them (`crates/wire/tests/corpus.rs`). Here they are only files:
complete, well-named, not touched by an editor or a checkout, and together reaching every fault.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus" / "http1"
FORWARDED = CORPUS.parent / "forwarded"
PROXY = CORPUS.parent / "proxy"
GATEWAYS = ROOT / "tests" / "corpus" / "gateways"
WEBSOCKET = ROOT / "tests" / "corpus" / "websocket"
FAULTS = ROOT / "crates" / "wire" / "src" / "message" / "fault.rs"

LARGEST_FILE = 80 * 1024
LARGEST_CORPUS = 2 * 1024 * 1024
LEAST_CASES = 200
LEAST_CASES_OF_A_FAULT = 2

NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")
RULE = re.compile(r"RFC \d{4} section \d+(\.\d+)*: \S.*")
BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
# A CR at the very end is where the input was cut off.
BARE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n|\Z)")

REQUEST_KEYS = {"method", "target", "version", "fields", "body", "keep_alive"}


def cases(kind: str) -> list[Path]:
    """The `.http` files of a kind, `valid` or `invalid`, by name."""
    return sorted((CORPUS / kind).glob("*.http"))


def said(case: Path) -> dict[str, Any]:
    """Returns the JSON beside a case.

    Raises AssertionError if a key stands twice, of which JSON readers keep only one.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        assert len(keys) == len(set(keys)), f"{case.stem}: a key stands twice: {keys}"
        return dict(items)

    text = case.with_suffix(".json").read_text("ascii")
    loaded: dict[str, Any] = json.loads(text, object_pairs_hook=pairs)
    return loaded


def faults() -> dict[str, int]:
    """The faults that `fault.rs` declares, with their status codes."""
    declared = re.findall(r'^    ([A-Z][A-Za-z0-9]+) (\d{3}) "', FAULTS.read_text("utf-8"), re.MULTILINE)
    return {name: int(status) for name, status in declared}


ALL = [pytest.param(kind, case, id=f"{kind}/{case.stem}") for kind in ("valid", "invalid") for case in cases(kind)]


def check_requests(requests: list[dict[str, Any]], data: bytes) -> None:
    """Checks the form of requests, and that their request lines are found in `data` in their order."""
    at = 0
    for request in requests:
        assert REQUEST_KEYS <= set(request) <= REQUEST_KEYS | {"trailers"}
        assert request["version"] in ("1.0", "1.1")
        assert isinstance(request["keep_alive"], bool)
        assert request.get("trailers", 1) > 0, "no trailers are said by leaving the key out"
        line = f"{request['method']} {request['target']} HTTP/1.".encode("latin-1")
        found = data.find(line, at)
        assert found >= 0, f"{line[:80]!r} is not in the bytes"
        at = found + len(line)
        for name, value in request["fields"]:
            assert value == value.strip(" \t")
            found = data.find(name.encode("latin-1") + b":", at)
            assert found >= 0, f"{name[:80]!r} is not in the bytes"
            at = found + len(name)
            found = data.find(value.encode("latin-1"), at)
            assert found >= 0, f"{value[:80]!r} is not in the bytes"
            at = found + len(value)
        lengths = [value for name, value in request["fields"] if name.lower() == "content-length"]
        if lengths:
            assert int(lengths[0]) == len(request["body"].encode("latin-1"))
    for request in requests[:-1]:
        assert request["keep_alive"], "nothing is read after a request that does not persist"


@pytest.mark.parametrize(("kind", "case"), ALL)
def test_case_has_its_form(kind: str, case: Path) -> None:
    assert NAME.fullmatch(case.stem), "names are lower case with dashes"
    data = case.read_bytes()
    assert data
    assert len(data) <= LARGEST_FILE
    meta = said(case)
    assert RULE.fullmatch(meta["rule"]), meta["rule"]
    limits = meta.get("limits", {})
    assert set(limits) <= {"body"}
    assert all(isinstance(limit, int) for limit in limits.values())
    if kind == "valid":
        assert {"rule", "requests"} <= set(meta) <= {"rule", "requests", "rest", "limits"}
        assert meta["requests"]
        check_requests(meta["requests"], data)
        rest = meta.get("rest", 0)
        assert 0 <= rest < len(data)
        assert not (rest and meta["requests"][-1]["keep_alive"]), "only a connection that closes leaves bytes unread"
    else:
        required = {"rule", "fault", "status", "before"}
        assert required <= set(meta) <= required | {"eof", "limits"}
        assert meta.get("eof", True) is True, "eof is said by true or left out"
        assert meta.get("eof", False) == (meta["fault"] == "Truncated"), "only a truncation is seen at the end alone"
        check_requests(meta["before"], data)
        assert all(request["keep_alive"] for request in meta["before"])
        assert faults().get(meta["fault"]) == meta["status"], f"{meta['fault']} is not declared with this status"


@pytest.mark.parametrize(("kind", "case"), ALL)
def test_case_has_only_the_line_ends_of_its_name(kind: str, case: Path) -> None:
    """An editor that drops or adds a CR would silently change the case."""
    data = case.read_bytes()
    assert bool(BARE_LINE_FEED.search(data)) == ("line-feed" in case.stem)
    assert bool(BARE_CARRIAGE_RETURN.search(data)) == ("carriage-return" in case.stem)


@pytest.mark.parametrize("kind", ["valid", "invalid"])
def test_files_come_in_pairs(kind: str) -> None:
    stems = Counter(path.stem for path in (CORPUS / kind).iterdir() if path.suffix in (".http", ".json"))
    assert [stem for stem, count in stems.items() if count != 2] == []
    others = [path.name for path in (CORPUS / kind).iterdir() if path.suffix not in (".http", ".json")]
    assert others == []


def test_cases_are_many_and_small() -> None:
    assert len(cases("valid")) + len(cases("invalid")) >= LEAST_CASES
    assert min(len(cases("valid")), len(cases("invalid"))) >= LEAST_CASES // 2
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) <= LARGEST_CORPUS


def test_no_two_cases_are_the_same() -> None:
    seen: dict[tuple[bytes, str], str] = {}
    for kind in ("valid", "invalid"):
        for case in cases(kind):
            key = (case.read_bytes(), json.dumps(said(case).get("limits")))
            assert key not in seen, f"{kind}/{case.stem} repeats {seen[key]}"
            seen[key] = f"{kind}/{case.stem}"


def test_every_fault_has_cases() -> None:
    declared = faults()
    assert len(declared) > 30, f"only {len(declared)} faults are found in {FAULTS.name}: has its form changed?"
    counts = Counter(said(case)["fault"] for case in cases("invalid"))
    counts += Counter(json.loads(case.read_text("utf-8")).get("fault") for case in FORWARDED.glob("*.json"))
    del counts[None]
    for case in GATEWAYS.glob("*/*.bytes"):
        document = said(case)
        found = [document.get("end"), *(request.get("fault") for request in document["requests"])]
        counts.update(name for name in found if name)
    # The cases of HTTP/2 are a table of frames (crates/wire/tests/http2/table.rs), which has its own test for this.
    found_elsewhere = {"Http2Violated"}
    few = {name: counts[name] for name in declared if counts[name] < LEAST_CASES_OF_A_FAULT}
    assert few.keys() == found_elsewhere
    assert set(counts) - set(declared) == set()


@pytest.mark.parametrize(
    ("folder", "suffix"),
    [
        (FORWARDED, ".http"),
        (PROXY / "valid", ".bin"),
        (PROXY / "invalid", ".bin"),
        (WEBSOCKET / "frames", ".bytes"),
        (WEBSOCKET / "handshakes", ".http"),
    ],
)
def test_cases_of_proxies_and_websocket_come_in_pairs_and_say_their_rule(folder: Path, suffix: str) -> None:
    stems = Counter(path.stem for path in folder.iterdir() if path.suffix in (suffix, ".json"))
    assert len(stems) >= LEAST_CASES // 8
    assert [stem for stem, count in stems.items() if count != 2 or not NAME.fullmatch(stem)] == []
    assert [path.name for path in folder.iterdir() if path.suffix not in (suffix, ".json")] == []
    for path in folder.glob("*.json"):
        assert json.loads(path.read_text("utf-8"))["rule"]


def test_git_leaves_the_bytes_alone() -> None:
    """The last line that speaks of `.http` files switches conversion off, in whichever `.gitattributes` it stands."""
    attributes: list[str] = []
    for folder in (ROOT, ROOT / "tests", CORPUS.parent, CORPUS, CORPUS / "valid", CORPUS / "invalid"):
        path = folder / ".gitattributes"
        attributes += path.read_text("utf-8").splitlines() if path.exists() else []
    about_text: list[str] = []
    for line in attributes:
        pattern, *values = line.split() or [""]
        if pattern in ("*", "*.http") and {"text", "text=auto", "-text", "binary", "eol=lf"} & set(values):
            about_text = values
    assert {"-text", "binary"} & set(about_text), f"*.http would be converted: {about_text}"
