"""scripts/structure.py finds what it is there to refuse, in small projects that have one fault each."""

from __future__ import annotations

from pathlib import Path

import pytest
import structure

PROJECT = Path(__file__).resolve().parent.parent
METHODS = "".join(f"    fn m{number}(&self) {{}}\n" for number in range(structure.METHODS_OF_A_TYPE))
LONG = "".join(f"    let _{number} = {number};\n" for number in range(structure.LINES_OF_A_FUNCTION - 2))

# Finding -> the number that is counted, and the files of a crate or package that have the fault.
FAULTS = {
    "crate: methods of Large": (
        structure.METHODS_OF_A_TYPE + 1,
        {
            "lib.rs": "struct Large<'a, A: Fn() -> B> {\n    a: &'a A,\n}\n",
            "a.rs": f"impl<'a, A: Fn() -> B> crate::Large<'a, A>\nwhere\n    A: Copy,\n{{\n{METHODS}}}\n",
            "b.rs": "impl Large<'_, ()> {\n    pub(crate) const fn one(\n        self,\n    ) {\n    }\n}\n"
            "impl Clone for Large<'_, ()> {\n    fn clone(&self) {}\n}\n"
            "#[cfg(test)]\nmod tests {\n    impl Large {\n        fn two() {}\n    }\n}\n",
        },
    ),
    "crate: files with methods of Spread": (
        structure.FILES_OF_A_TYPE + 1,
        {f"{name}.rs": "impl Spread {\n    fn a() {}\n}\n" for name in "abcd"},
    ),
    f"crate: functions of more than {structure.LINES_OF_A_FUNCTION} lines": (
        1,
        {"lib.rs": f"fn long() {{\n{LONG}    done();\n}}\nfn less() {{\n{LONG}}}\n"},
    ),
    f"crate: files of more than {structure.LINES_OF_A_FILE} lines": (
        1,
        {"lib.rs": "//\n" * (structure.LINES_OF_A_FILE + 1), "a.rs": "//\n" * structure.LINES_OF_A_FILE},
    ),
    "crate: modules in a circle of imports": (
        2,
        {
            "a.rs": "use crate::{b::B, c};\n",
            "b.rs": "fn b(x: crate::a::A) {}\n",
            "c.rs": "#[cfg(all(test, not(loom)))]\nmod tests {\n    use crate::a::A;\n}\n",
        },
    ),
    "crate: modules as x.rs beside x/, instead of x/mod.rs": (1, {"a.rs": "", "a/b.rs": "", "c/mod.rs": ""}),
    "crate: names with several types": (
        1,
        {"a.rs": "pub struct Same;\n", "b.rs": "mod inner {\n    enum Same {\n        A,\n    }\n}\n"},
    ),
    "package: methods of Large": (
        structure.METHODS_OF_A_TYPE + 1,
        {
            "a.py": "class Large:\n"
            + "".join(f"    def m{number}(self): ...\n" for number in range(structure.METHODS_OF_A_TYPE))
            + "    async def last(self): ...\n"
        },
    ),
    f"package: functions of more than {structure.LINES_OF_A_FUNCTION} lines": (
        1,
        {"a.py": "def long():\n" + "    pass\n" * structure.LINES_OF_A_FUNCTION},
    ),
    "package: modules in a circle of imports": (
        4,
        {
            "__init__.py": "",
            "a.py": "from package import b\n",
            "b.py": "if TYPE_CHECKING:\n    from package.c import C\n",
            "c.py": "def c():\n    import package.d\n",
            "d.py": "def d():\n    return importlib.import_module('package.a').A\n",
            "e.py": "import package.a\n",
        },
    ),
    "package: names with several types": (1, {"a.py": "class Same: ...\n", "b.py": "class Same: ...\n"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_unless_a_ceiling_allows_it(fault: str, tmp_path: Path) -> None:
    count, files = FAULTS[fault]
    name = fault.partition(":")[0]
    folder = tmp_path / f"{name}s" / name
    src = folder / "src" / (name if name == "package" else "")
    for file, text in files.items():
        (src / file).parent.mkdir(parents=True, exist_ok=True)
        (src / file).write_text(text, encoding="utf-8")
    (folder / ("pyproject.toml" if name == "package" else "Cargo.toml")).touch()

    good, lines = structure.check(tmp_path, {}, verbose=False)
    assert not good
    assert [line for line in lines if not line.startswith(" ")] == [f"{fault}: {count}, and 0 are allowed"]
    assert structure.check(tmp_path, {fault: count - 1}, verbose=False)[0] is False
    assert structure.check(tmp_path, {fault: count}, verbose=False) == (True, [])
    assert "lower the ceiling" in structure.check(tmp_path, {fault: count + 1}, verbose=False)[1][0]


def test_imports_are_really_read() -> None:
    gateway = structure.crate(PROJECT / "crates" / "gateway").imports
    assert {"interface", "host::job", "host::threads"} <= gateway["host::call"]
    assert {"host", "wsgi", "resources"} <= gateway["server"]
    assert {"host", "access_log", "proxies"} <= gateway["resources"]
    package = structure.package(PROJECT / "packages" / "kirsch").imports
    assert {"kirsch.config.schema", "kirsch._native"} <= package["kirsch.server"]


def test_the_table_counts_lines_of_code_comments_and_tests(tmp_path: Path) -> None:
    src = tmp_path / "crates" / "crate" / "src"
    src.mkdir(parents=True)
    (src / "lib.rs").write_text("//! Comment.\n\nfn code() {} // more\n\n#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n")
    (src.parent / "Cargo.toml").touch()
    src = tmp_path / "packages" / "package" / "src" / "package"
    src.mkdir(parents=True)
    (src / "a.py").write_text('"""Two\n\nlines."""\n\n# One.\nx = 1\n')
    (src.parent.parent / "pyproject.toml").touch()
    assert [line.split(" | ")[:4] for line in structure.table(tmp_path)[2:]] == [
        ["| crate", "1", "1", "4"],
        ["| package", "1", "3", "0"],
    ]
