from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autonovel.api.run import Run, load
from autonovel.report.server import Site
from tests.report.browser import CHROMIUM, OpenTab, tabs
from tests.report.client import Client
from tests.report.made import digits_run


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return digits_run(folder / "digits", sources=folder / "files").path


@pytest.fixture
def run(made_once: Path, tmp_path: Path) -> Run:
    """A small run on digits that a test may change."""
    return load(shutil.copytree(made_once, tmp_path / "digits"))


@pytest.fixture
def site(run: Run) -> Iterator[Site]:
    with Site(run) as site:
        yield site


@pytest.fixture
def client(site: Site) -> Client:
    client = Client(site.url)
    client.enter()
    return client


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(browser: Any, site: Site) -> Iterator[OpenTab]:
    with tabs(browser, site) as open_tab:
        yield open_tab
