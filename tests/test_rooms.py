"""The packages of CONTRIBUTING.md, in their order, held against every import in them, those inside functions too."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PACKAGE = HERE / "src" / "autonovel"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts not in (("__init__.py",), ("__main__.py",))
}


@cache
def packages() -> list[str]:
    """The packages of CONTRIBUTING.md, from the bottom to the top: each imports only from those before it."""
    text = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Packages")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def package_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, whole: bool = True) -> Iterator[str]:
    """Modules of the package that a file imports: anywhere in it, or (not whole) when it is itself imported."""
    tree = parsed(path)
    passed_over = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
        or (not whole and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "autonovel":
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                inside = f"{base}.{alias.name}".strip(".")
                yield inside if inside in MODULES else base
        elif isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.startswith("autonovel."))


def test_the_packages_of_the_table_are_those_that_there_are() -> None:
    assert sorted(packages()) == sorted({package_of(module) for module in MODULES})


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_packages_below_its_own(module: str) -> None:
    order = packages()
    allowed = order[: order.index(package_of(module)) + 1]
    strangers = {name for name in imports(MODULES[module]) if name and package_of(name) not in allowed}
    assert not strangers, f"{module} imports {sorted(strangers)} from above it"


def test_there_is_no_circle_of_imports() -> None:
    needs = {module: {name for name in imports(path, whole=False) if name} for module, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done or module not in needs:
            return
        for name in sorted(needs[module]):
            visit(name, (*trail, module))
        done.add(module)

    for module in needs:
        visit(module, ())


@pytest.mark.parametrize("module", [m for m in MODULES if package_of(m) in ("settings", "cli") or m == "base.errors"])
def test_what_help_needs_imports_no_torch(module: str) -> None:
    tree = parsed(MODULES[module])
    found = [
        n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
        for n in tree.body
        if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert not [name for name in found if name and name.split(".")[0] == "torch"]


def test_no_two_classes_share_a_name() -> None:
    """But for commands, whose classes are called as they are."""
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(parsed(path)) if package_of(module) != "cli" else ():
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(module)
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}
