"""Measure the structure of the crates and packages, and refuse what is worse than it was.

Counted are: the methods of a type, and the files that have them; files and functions that are too long; modules that
import each other in a circle; names that several types have; modules in another layout than CONTRIBUTING.md says. Tests
are left out, except for the length of their files.

A count beyond its limit is refused (status 1) unless CEILINGS allows it. A ceiling is the count on the day when it was
last lowered; if fewer are left, the line to write there is printed.

    scripts/structure.py            check
    scripts/structure.py --table    print the numbers of each crate and package
    scripts/structure.py --list     print the places of every finding, also of those that a ceiling allows
    scripts/structure.py --root DIR measure another copy of the project
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

METHODS_OF_A_TYPE = 60
FILES_OF_A_TYPE = 3
LINES_OF_A_FUNCTION = 80
LINES_OF_A_FILE = 700

# The counts beyond these limits, and those that should be zero, which are allowed until they are lowered.
CEILINGS: dict[str, int] = {
    "engine: names with several types": 2,
    "load: files with methods of Generator": 4,
    "load: names with several types": 5,
    "sim: names with several types": 4,
    "wire: names with several types": 11,
    "kirsch: files of more than 700 lines": 2,
    "kirsch-bench: names with several types": 5,
}

# The first line of a Rust item: its indentation and its keyword.
ITEM = re.compile(
    r"( *)(?:pub(?:\([^)]*\))? )?(?:(?:unsafe|const|async|extern \"\w+\") )*"
    r"(fn|struct|enum|union|type|trait|impl|mod)\b"
)
ONLY_TESTS = re.compile(r"#\[(cfg\(.*\btest\b.*\)|test)\]")


@dataclass
class Module:
    """A file of a crate or package: what it defines and what it imports."""

    path: Path
    code: int = 0
    comments: int = 0
    tests: int = 0
    types: list[str] = field(default_factory=list)
    # Type -> the names of its methods in this file.
    methods: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    # (name, first line, length in lines)
    functions: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass
class Part:
    """A crate or a package: its modules by their paths in it, such as ``a::b`` or ``a.b``, and its tests' files."""

    name: str
    modules: dict[str, Module]
    imports: dict[str, set[str]]
    tests: list[Path]
    # Modules that have both a file and a folder beside it.
    split: list[Path]

    def owners(self) -> dict[tuple[str, str], list[str]]:
        """Return the modules with methods of each type, which is named by the module that defines it and its name."""
        defined = defaultdict(list)
        for name, module in self.modules.items():
            for each in module.types:
                defined[each].append(name)
        found = defaultdict(list)
        for name, module in self.modules.items():
            for each in module.methods:
                # The nearest of several definitions: the one whose module shares the longest beginning.
                where = max(defined[each], key=lambda other: _shared(other, name), default="")
                found[where, each].append(name)
        return found


def _shared(one: str, other: str) -> int:
    """Return how many parts two modules' names have in common from the left, and one more if they are the same."""
    ones, others = one.split("::"), other.split("::")
    same = next((i for i, (a, b) in enumerate(zip(ones, others, strict=False)) if a != b), min(len(ones), len(others)))
    return same + (one == other)


def _not_blank(lines: Iterable[str]) -> int:
    return sum(1 for line in lines if line.strip())


# ------------------------------------------------------------------------------------------------------------- Rust


def _items(lines: list[str], rows: range, indent: str, around: str) -> Iterator[tuple[range, str, str, str]]:
    """Yield the items in some rows of a file, and those in its modules, impls and traits.

    Each is (its rows, its keyword, the text behind that, the header of what is around it). Since rustfmt lays out the
    code, an item ends with the first line that is indented like its first one and ends with a brace or a semicolon.
    """
    row, begin = rows.start, rows.start
    while row < rows.stop:
        match = ITEM.match(lines[row])
        if match is None or match[1] != indent:
            if not lines[row].startswith((f"{indent}#[", f"{indent})]", f"{indent}//", f"{indent}    ")):
                begin = row + 1
            row += 1
            continue
        last = row
        while not (re.match(rf"{indent}\S", lines[last]) and lines[last].split(" //")[0].endswith(("}", ";"))):
            last += 1  # A file that does not end its items is no file of Rust: IndexError.
        only_tests = any(ONLY_TESTS.search(line) for line in lines[begin:row])
        keyword = "test" if only_tests else match[2]
        header = " ".join(line.strip() for line in lines[row : last + 1]).partition("{")[0]
        yield range(begin if only_tests else row, last + 1), keyword, header.partition(match[2])[2], around
        if keyword in ("mod", "impl", "trait"):
            yield from _items(lines, range(row + 1, last), f"{indent}    ", f"{keyword}{header.partition(keyword)[2]}")
        row = begin = last + 1


def _implemented(header: str) -> str:
    """Return the name of the type of an ``impl`` without a trait, and else nothing."""
    header, before = header.replace("->", ""), ""
    while header != before:
        header, before = re.sub(r"<[^<>]*>", "", header), header
    match = re.fullmatch(r"impl (?:[\w:]*::)?(\w+)(?: where .*)?", " ".join(header.split()))
    return match[1] if match is not None else ""


def read_rust(path: Path) -> tuple[Module, str]:
    """Return a module and its code, without comments and without what only tests compile."""
    lines = path.read_text(encoding="utf-8").splitlines()
    module = Module(path)
    for rows, keyword, header, around in _items(lines, range(len(lines)), "", ""):
        name = (re.findall(r"\w+", header) or [""])[0]
        if keyword == "test":
            module.tests += _not_blank(lines[row] for row in rows)
            lines[rows.start : rows.stop] = [""] * len(rows)
        elif keyword in ("struct", "enum", "union", "type", "trait") and not around.startswith(("impl", "trait")):
            module.types.append(name)
        elif keyword == "fn":
            module.functions.append((name, rows.start + 1, len(rows)))
            if kind := _implemented(around):
                module.methods[kind].add(name)
    code = [re.sub(r"//.*", "", line) for line in lines]
    module.code = _not_blank(code)
    module.comments = _not_blank(lines) - module.code
    return module, "\n".join(code)


def used_paths(code: str) -> list[tuple[str, bool]]:
    """Return the paths that code names by ``use``, or from the crate's root anywhere; and whether it passes them on."""
    found = []
    for visible, use in re.findall(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", code):
        # `a::{b, c::d}` is `a::b` and `a::c::d`: braces are resolved from the inside.
        paths = use
        while inner := re.search(r"([\w:]+)::\{([^{}]*)\}", paths):
            parts = [f"{inner[1]}::{part.strip()}" for part in inner[2].split(",") if part.strip()]
            paths = paths.replace(inner[0], ", ".join(parts))
        found += [(path.split(" as ")[0].strip(), bool(visible)) for path in paths.split(",") if path.strip()]
    return found + [(path, False) for path in re.findall(r"\bcrate::[\w:]+", code)]


def rust_imports(codes: dict[str, str]) -> dict[str, set[str]]:
    """Return for each module of a crate, given with its code, the modules whose items it names."""

    def absolute(module: str, path: str) -> list[str] | None:
        """Return the path from the crate's root, None for another crate's."""
        own = module.split("::") if module else []
        first, *rest = path.split("::")
        if first == "crate":
            return rest
        if first in ("self", "super"):
            base = own
            for part in [first, *rest]:
                if part == "super":
                    base = base[:-1]
                elif part != "self":
                    break
            return base + [part for part in rest if part not in ("self", "super")]
        return [*own, first, *rest] if "::".join([*own, first]) in codes else None

    # An item that a module passes on belongs to its source: `crate::Name` may be `crate::module::Name`.
    passed: dict[str, list[str]] = {}
    for module, code in codes.items():
        for path, visible in used_paths(code):
            target = absolute(module, path)
            if visible and target:
                passed["::".join([module, target[-1]]) if module else target[-1]] = target

    def owner(path: list[str]) -> str:
        for length in range(len(path), -1, -1):
            if "::".join(path[:length]) in codes:
                name = path[: length + 1]
                source = passed.get("::".join(name)) if len(name) > length else None
                return owner(source) if source and source != name else "::".join(path[:length])
        raise AssertionError(path)

    found = {}
    for module, code in codes.items():
        named = [absolute(module, path) for path, visible in used_paths(code) if not visible]
        found[module] = {owner(path) for path in named if path is not None} - {module}
    return found


def crate(folder: Path) -> Part:
    """Read a crate."""
    src = folder / "src"
    files = [path for path in sorted(src.rglob("*.rs")) if path.name != "tests.rs"]
    modules, codes = {}, {}
    for path in files:
        parts = list(path.relative_to(src).with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        modules["::".join(parts)], codes["::".join(parts)] = read_rust(path)
    tests = [path for path in sorted(folder.rglob("*.rs")) if src not in path.parents or path.name == "tests.rs"]
    split = [path for path in files if path.with_suffix("").is_dir()]
    return Part(folder.name, modules, rust_imports(codes), tests, split)


# ----------------------------------------------------------------------------------------------------------- Python


def _statements(node: ast.AST, around: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield each statement with the function or class around it. Expressions, which have none, are not searched."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child, around
            is_scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from _statements(child, child if is_scope else around)


def read_python(path: Path) -> tuple[Module, list[ast.Import | ast.ImportFrom]]:
    """Return a module and its imports: statements, also those inside functions and for type checking, and calls of
    ``import_module`` and ``__import__`` with a written name."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    module = Module(path)
    imports: list[ast.Import | ast.ImportFrom] = []
    tree = ast.parse(source)
    for node, around in [(tree, None), *_statements(tree)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.ClassDef) and around is None:
            module.types.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            module.functions.append((node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1))
            if isinstance(around, ast.ClassDef):
                module.methods[around.name].add(node.name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                rows = range(first.lineno - 1, first.end_lineno or 0)
                module.comments += _not_blank(lines[row] for row in rows)
                lines[rows.start : rows.stop] = [""] * len(rows)
    imports += [_imported(node) for node in ast.walk(tree) if _names_import(node)]
    remarks = sum(1 for line in lines if line.lstrip().startswith("#"))
    module.comments += remarks
    module.code = _not_blank(lines) - remarks
    return module, imports


def _names_import(node: ast.AST) -> TypeGuard[ast.Call]:
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__") and isinstance(node.args[0].value, str)


def _imported(call: ast.Call) -> ast.Import:
    return ast.Import([ast.alias(ast.literal_eval(call.args[0]))])


def python_imports(statements: list[ast.Import | ast.ImportFrom], known: set[str]) -> set[str]:
    """Return the modules among ``known`` that are imported. Ruff refuses relative imports."""
    names = set()
    for node in statements:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner if inner <= known else {node.module or "", *inner}
    return names & known


def package(folder: Path) -> Part:
    """Read the package of a distribution."""
    src = folder / "src"
    modules, statements = {}, {}
    for path in sorted(src.rglob("*.py")):
        name = ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__")
        modules[name], statements[name] = read_python(path)
    # A native module has its stub, and imports nothing.
    known = {*modules, *(".".join(path.relative_to(src).with_suffix("").parts) for path in src.rglob("*.pyi"))}
    imports = {name: python_imports(statements.get(name, []), known) - {name} for name in known}
    return Part(folder.name, modules, imports, sorted((folder / "tests").rglob("*.py")), [])


# ----------------------------------------------------------------------------------------------------------- checks


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules in which each reaches each other."""
    reached = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (module := waiting.pop()) not in seen:
                seen.add(module)
                waiting.extend(graph[module])
        reached[start] = seen
    return {
        frozenset({module} | {other for other in reached[module] if module in reached[other]})
        for module in graph
        if module in reached[module]
    }


def parts(root: Path) -> list[Part]:
    """Read the crates and the packages of a copy of the project."""
    found = [crate(path.parent) for path in sorted(root.glob("crates/*/Cargo.toml"))]
    found += [package(path.parent) for path in sorted(root.glob("packages/*/pyproject.toml"))]
    for part in found:
        if part.name == "kirsch":  # The tests of the server are those of the whole project.
            part.tests += sorted((root / "tests").rglob("*.py"))
    return found


def findings(part: Part, root: Path) -> dict[str, tuple[int, list[str]]]:
    """Return what exceeds its limit in a crate or package: the count and the places by the key of CEILINGS."""

    def at(path: Path, line: int = 1) -> str:
        return f"{path.relative_to(root).as_posix()}:{line}"

    found: dict[str, tuple[int, list[str]]] = {}
    for (_, kind), names in sorted(part.owners().items()):
        places = [at(part.modules[name].path) for name in names]
        counts = {
            f"{part.name}: methods of {kind}": (
                sum(len(part.modules[name].methods[kind]) for name in names),
                METHODS_OF_A_TYPE,
            ),
            f"{part.name}: files with methods of {kind}": (len(names), FILES_OF_A_TYPE),
        }
        for key, (count, limit) in counts.items():
            if count > max(limit, found.get(key, (0,))[0]):
                found[key] = (count, places)
    defined = Counter(name for module in part.modules.values() for name in module.types)
    lists = {
        f"functions of more than {LINES_OF_A_FUNCTION} lines": [
            f"{at(module.path, line)}: {name}, {length} lines"
            for module in part.modules.values()
            for name, line, length in module.functions
            if length > LINES_OF_A_FUNCTION
        ],
        f"files of more than {LINES_OF_A_FILE} lines": [
            at(path)
            for path in [*(module.path for module in part.modules.values()), *part.tests]
            if len(path.read_text(encoding="utf-8").splitlines()) > LINES_OF_A_FILE
        ],
        "modules in a circle of imports": [name for circle in circles(part.imports) for name in sorted(circle)],
        "modules as x.rs beside x/, instead of x/mod.rs": [at(path) for path in part.split],
    }
    for title, places in lists.items():
        if places:
            found[f"{part.name}: {title}"] = (len(places), places)
    repeated = {name: count for name, count in defined.items() if count > 1}
    if repeated:
        places = [f"{name}: {count} definitions" for name, count in sorted(repeated.items())]
        found[f"{part.name}: names with several types"] = (len(places), places)
    return found


def check(root: Path, ceilings: dict[str, int], *, verbose: bool) -> tuple[bool, list[str]]:
    """Return whether no finding is above its ceiling, and the lines to print."""
    found = {key: value for part in parts(root) for key, value in findings(part, root).items()}
    good, lines = True, []
    for key, (count, places) in found.items():
        ceiling = ceilings.get(key, 0)
        if count > ceiling:
            good = False
            lines.append(f"{key}: {count}, and {ceiling} are allowed")
        if count > ceiling or verbose:
            lines += [f"  {place}" for place in places]
    for key, ceiling in ceilings.items():
        count = found[key][0] if key in found else 0
        if count < ceiling:
            change = f'to "{key}": {count},' if count else f'without "{key}"'
            lines.append(f"lower the ceiling in scripts/structure.py: {change}")
    return good, lines


def table(root: Path) -> list[str]:
    """Return the numbers of each crate and package, and its largest types."""
    lines = [
        "| part | code | comments | tests | modules | largest types: methods in files |",
        "|---|---|---|---|---|---|",
    ]
    for part in parts(root):
        modules = part.modules.values()
        tests = sum(module.tests for module in modules)
        tests += sum(_not_blank(path.read_text(encoding="utf-8").splitlines()) for path in part.tests)
        sizes = sorted(
            ((sum(len(part.modules[name].methods[kind]) for name in names), len(names), kind)
            for (_, kind), names in part.owners().items()),
            reverse=True,
        )  # fmt: skip
        largest = ", ".join(f"{kind} {methods} in {files}" for methods, files, kind in sizes[:4])
        code, comments = sum(each.code for each in modules), sum(each.comments for each in modules)
        lines.append(f"| {part.name} | {code} | {comments} | {tests} | {len(modules)} | {largest} |")
    return lines


def main() -> int:
    """Print the findings; return 1 if one is above its ceiling."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    root = args.root.resolve()
    good, lines = (True, table(root)) if args.table else check(root, CEILINGS, verbose=args.list)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
