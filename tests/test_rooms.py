"""The table of rooms in CONTRIBUTING.md, held against every import of the package."""

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
def rooms() -> dict[str, set[str]]:
    """Each room of the table and the rooms that it may import from."""
    text = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    table: dict[str, set[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            names, allowed = (set(re.findall(r"`([\w.]+)`", cell)) for cell in (cells[0], cells[2]))
            table |= {name: allowed | {name} for name in names}
    return table


@cache
def room_of(module: str) -> str:
    """The room with the longest name that the module lies in."""
    return max((room for room in rooms() if module == room or module.startswith(f"{room}.")), key=len, default="")


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


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    room = room_of(module)
    assert room, f"{module} is in no room of CONTRIBUTING.md"
    allowed = rooms()[room]
    strangers = {name for name in imports(MODULES[module]) if name and room_of(name) not in allowed}
    assert not strangers, f"{module}, in room {room}, imports {sorted(strangers)}"


def test_every_room_of_the_table_exists_and_allows_nothing_that_nobody_needs() -> None:
    used: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        used.setdefault(room_of(module), set()).update(room_of(name) for name in imports(path) if name)
    together = [names for names in _rows() if len(names) > 1]
    for room, allowed in rooms().items():
        assert room in used, f"there is no module in room {room}"
        mates = next((row for row in together if room in row), {room})
        needed = set().union(*(used.get(mate, set()) for mate in mates))
        assert allowed - {room} - mates <= needed, f"{room} may import {sorted(allowed - needed - mates)} and does not"


def _rows() -> list[set[str]]:
    text = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    return [set(re.findall(r"`([\w.]+)`", line.split("|")[1])) for line in text.splitlines() if line.startswith("| `")]


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


@pytest.mark.parametrize(
    "module", [m for m in MODULES if room_of(m) in ("settings", "recipes", "settle", "errors", "kinds", "cli")]
)
def test_what_help_needs_imports_no_torch(module: str) -> None:
    tree = parsed(MODULES[module])
    found = [
        n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
        for n in tree.body
        if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert not [name for name in found if name and name.split(".")[0] == "torch"]
