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
