"""The pages lead somewhere, none is forgotten, and those that are made from the code are current."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import unicodedata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "lab/log.md")), *DOCS]
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def script(name: str) -> ModuleType:
    """A script that lies beside the pages."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.*)$", text, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that headings get in the repository and on the site alike."""
    github = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings(page)}
    plain = (unicodedata.normalize("NFKD", h).encode("ascii", "ignore").decode() for h in headings(page))
    return github & {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [link for link in found if not link.startswith("http")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_the_same_place_on_the_site(page: Path) -> None:
    site_links = script("site_links")
    here = page.relative_to(ROOT).as_posix()
    address = site_links.site_path(here)
    added = set(site_links.linked_from(page.read_text(encoding="utf-8"), address))
    for link in links(page):
        path, _, anchor = link.partition("#")
        bent, _, kept = site_links.bent(link, address).partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(address), bent)) if bent else address
        meant = (page.parent / path).resolve().relative_to(ROOT).as_posix() if path else here
        assert (site_links.repository_path(target), kept) == (meant, anchor), link
        assert meant.startswith("docs/") or meant in added, (
            f"{link}: the site has files, but no folder of the repository"
        )


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS if page.name != "index.md" and f"]({page.name})" not in index] == []


def test_the_site_has_every_page_once() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]

    shown = pages(SITE["nav"])
    assert sorted(page for page in shown if not page.startswith("project/")) == [page.name for page in DOCS]
    assert all((ROOT / page.removeprefix("project/")).exists() for page in shown if page.startswith("project/"))


def test_the_site_needs_no_other_host() -> None:
    assert SITE["theme"]["font"] is False
    assert "://" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "://" not in (ROOT / "docs" / "site.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["api.md", "cli.md", "settings.md"])
def test_reference_pages_are_current(name: str) -> None:
    made = script("reference_pages").PAGES[name]()
    assert made == (ROOT / "docs" / name).read_text(encoding="utf-8"), "run python docs/reference_pages.py"


def test_everything_public_is_in_the_reference() -> None:
    import autonovel

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in autonovel.__all__ if f"### `autonovel.{name}`" not in text] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_pictures_are_small_and_used() -> None:
    used = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    for picture in (ROOT / "docs").rglob("*.png"):
        assert picture.stat().st_size < 150_000, picture.name
        assert picture in used, picture.name


TYPED = [ROOT / "README.md", *(page for page in DOCS if page.name not in ("cli.md", "settings.md", "api.md"))]
"""The pages in which a person reads what to type."""


def commands(page: Path) -> list[str]:
    """What follows ``autonovel`` in the blocks and in the sentences of a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"^ *```(?:bash)?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^(?:\$ |.*-m )?autonovel (\S.*)$", blocks, re.MULTILINE)
    without_remarks = [re.split(r"  +(?!-)|\s#\s", line)[0] for line in lines]
    return [*without_remarks, *re.findall(r"`autonovel ([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))]


def words_of(verb: str) -> set[str]:
    """Every flag that a command takes."""
    from autonovel.cli.common import TrainingVerb
    from autonovel.cli.flags import all_flags, flags_of
    from autonovel.cli.main import _verb
    from autonovel.settings.recipe import Recipe

    kind = _verb(verb)
    flags = [*flags_of(kind), *(all_flags(Recipe) if issubclass(kind, TrainingVerb) else ())]
    return {name for flag in flags for name in (flag.name, flag.negative)} | {"--help", "--help-all"}


@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.name)
def test_commands_and_their_flags_exist(page: Path) -> None:
    from autonovel.cli.main import VERBS

    for command in commands(page):
        verb, *rest = command.split()
        if verb.startswith("-") or verb == "COMMAND":
            continue
        assert verb in VERBS, command
        typed = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert typed <= words_of(verb), command


@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.name)
def test_flags_that_are_named_alone_exist(page: Path) -> None:
    from autonovel.cli.main import VERBS

    every = set().union(*map(words_of, VERBS))
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert set(re.findall(r"`(--[\w.-]+)", text)) - every == set()


def test_every_command_is_shown_in_use() -> None:
    from autonovel.cli.main import VERBS

    shown = {command.split()[0] for page in TYPED for command in commands(page)}
    assert set(VERBS) - shown == set()


def test_the_pages_are_read_in_an_evening() -> None:
    looked_up = ("CHANGELOG.md", "log.md")
    words = [len(page.read_text(encoding="utf-8").split()) for page in PAGES if page.name not in looked_up]
    assert sum(words) <= 35_000


def test_files_that_contributing_names_exist() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    named = [name for name in re.findall(r"`([\w/.]+\.(?:py|md|html))`", text) if "/" in name]
    assert len(named) > 20
    assert [name for name in named if not any((ROOT / where / name).exists() for where in ("", "src/autonovel"))] == []


def test_what_contributing_says_to_look_for_is_there() -> None:
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Where to change what")[2]
        .partition("## ")[0]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")][
        1:
    ]
    for _, file, look in rows:
        path = ROOT / "src" / "autonovel" / file.strip("`")
        assert path.exists(), file
        first = re.match(r"`([\w<>]+)`", look)
        assert first is None or first[1] in path.read_text(encoding="utf-8"), (file, look)


def test_pages_that_the_program_speaks_of_exist() -> None:
    sources = [path for folder in ("src", "lab", "examples") for path in (ROOT / folder).rglob("*.py")]
    named = {
        name for path in sources for name in re.findall(r"\b(?:docs|lab)/[\w-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 2
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
