"""What the tests with a real browser share: where Chromium is, how a page is opened, judged and photographed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from autonovel.report.server import Site
from tests.report.client import PATIENCE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENSHOTS = os.environ.get("AUTONOVEL_SCREENSHOTS", "")
"""A folder for pictures of the pages, to look at; no pictures are taken where it is empty."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
READY = ".card, .tile, .legend a"
"""What is there once a page of ``browse`` is drawn."""

OpenTab = Callable[..., Any]


@contextmanager
def tabs(browser: Any, site: Site) -> Iterator[OpenTab]:
    """Opens the page; afterwards there must have been no error in the console and no request to another host."""
    host = urlsplit(site.url).netloc
    wrong: list[str] = []
    expected: list[str] = []
    contexts: list[Any] = []

    def note(kind: str, text: str) -> None:
        if not any(part in text for part in expected):
            wrong.append(f"{kind}: {text}")

    def open_tab(*, beside: Any = None, allow: str = "", address: str = "", **options: Any) -> Any:
        if allow:
            expected.append(allow)
        if beside is None:
            contexts.append(browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options}))
        page = (contexts[-1] if beside is None else beside.context).new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda m: note("console", m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note("error", str(error)))
        page.on("request", lambda r: None if urlsplit(r.url).netloc == host else note("request", r.url))
        page.goto(site.url + address)
        page.wait_for_selector(READY)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert wrong == [], wrong


def shoot(page: Any, name: str) -> None:
    """A picture of what the page shows, where pictures are asked for."""
    if SCREENSHOTS:
        page.wait_for_timeout(300)  # until the contact sheets are decoded
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")


def axe(page: Any, within: str = "html") -> list[str]:
    """What axe, the usual checker of accessibility, finds fault with in a part of the page."""
    from axe_playwright_python.base import AXE_SCRIPT  # the package brings axe.min.js along

    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("part => axe.run(part, {resultTypes: ['violations']})", within)["violations"]
    return [f"{fault['id']}: {node['html']}" for fault in found for node in fault["nodes"]]
