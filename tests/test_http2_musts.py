"""The table of the rules of RFC 9113 and RFC 7541 is complete, and each test that it names exists."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parent.parent
TABLE: dict[str, Any] = tomllib.loads((PROJECT / "tests" / "http2" / "musts.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("rfc", ["9113", "7541"])
def test_every_rule_of_each_section_has_a_row(rfc: str) -> None:
    rows: Counter[str] = Counter()
    for row in TABLE["rules"][rfc]:
        rows[row["in"]] += row.get("n", 1)
    assert rows == Counter(TABLE["counts"][rfc])


@pytest.mark.parametrize("rfc", ["9113", "7541"])
def test_every_rule_names_tests_that_exist_or_a_reason(rfc: str) -> None:
    texts = {name: (PROJECT / path).read_text(encoding="utf-8") for name, path in TABLE["files"].items()}
    for row in TABLE["rules"][rfc]:
        assert row.keys() <= {"in", "n", "who", "rule", "by", "why"}, row
        assert row["who"] in ("server", "client", "both", "intermediary"), row
        assert bool(row.get("by")) != bool(row.get("why")), row
        for test in row.get("by", ()):
            file, name = test.split(": ", 1)
            function = re.search(rf"^ *(?:def|fn) {re.escape(name)}\(", texts[file], re.M)
            # A case is the first string of its entry in a table, the first of a pair, or the name of a check.
            case = re.search(rf'[(\[]\s*"{re.escape(name)}",', texts[file])
            assert function or case, f"{TABLE['files'][file]} has no test {name!r}"
