"""A hook of mkdocs: pages link to files of the repository, which the site gets too, below project/.

On the pages, links are relative paths within the repository (``../lab/rows/cifar.jsonl``, ``docs/data.md`` in the README), so
that they work wherever the repository is read. The site has the documentation at its root: files from outside of docs/ that a
page links to are added as project/..., and links are bent accordingly.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ELSEWHERE = "project/"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def repository_path(address: str) -> str:
    """The path in the repository of a page of the site."""
    return address.removeprefix(ELSEWHERE) if address.startswith(ELSEWHERE) else f"docs/{address}"


def site_path(path: str) -> str:
    """The path on the site of a file of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{ELSEWHERE}{path}"


def bent(link: str, page: str) -> str:
    """A link of a page, which is named by its path on the site, as it must read there.

    >>> bent("../README.md#benchmarks", "index.md"), bent("docs/data.md", "project/README.md"), bent("data.md", "index.md")
    ('project/README.md#benchmarks', '../data.md', 'data.md')
    """
    path, hash_, anchor = link.partition("#")
    if not path or re.match(r"\w+:", path):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(page)), path))
    return posixpath.relpath(site_path(target), posixpath.dirname(page) or ".") + hash_ + anchor


def linked_from(text: str, page: str) -> Iterator[str]:
    """The files of the repository outside of docs/ that a page links to."""
    for found in LINK.finditer(text):
        address = posixpath.normpath(posixpath.join(posixpath.dirname(page), bent(found[2], page).partition("#")[0]))
        if address.startswith(ELSEWHERE) and (ROOT / repository_path(address)).is_file():
            yield repository_path(address)


def on_files(files: Any, config: Any) -> Any:
    """Add what pages link to, and what those link to in turn."""
    from mkdocs.structure.files import File

    waiting = [(file.src_uri, Path(file.abs_src_path)) for file in files.documentation_pages()]
    while waiting:
        page, source = waiting.pop()
        for path in linked_from(source.read_text(encoding="utf-8"), page):
            if files.get_file_from_path(site_path(path)) is None:
                files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
                if path.endswith(".md"):
                    waiting.append((site_path(path), ROOT / path))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Bend the links of a page."""
    return LINK.sub(lambda found: found[1] + bent(found[2], page.file.src_uri) + found[3], markdown)
