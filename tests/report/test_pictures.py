"""The pictures of the documentation: a person looks through a run, names its clusters and opens the report.

On the small run of digits this is a test like any other. Where pictures are asked for (``make screenshots``), it is done on a
real run of the example folder, as in the tutorial, and each picture is written with few colours, so that it stays small.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from autonovel.api.run import Run, load
from autonovel.report.server import Site
from tests.report.browser import SCREENSHOTS, needs_chromium, tabs

pytestmark = needs_chromium

ROOT = Path(__file__).parent.parent.parent
NAMES = ("waves", "stars", "rings", "crosses")
"""What the clusters of the example show, in their order."""


@pytest.fixture
def shown(run: Run, tmp_path: Path) -> Iterator[Run]:
    """The run to look at."""
    if not SCREENSHOTS:
        yield run
        return
    import autonovel as an

    photos = tmp_path / "photos"
    subprocess.run([sys.executable, ROOT / "examples" / "make_folder.py", photos], check=True)
    piles = photos / "labelled", photos / "unlabelled"
    write(an.discover(*piles, out=tmp_path / "runs" / "both").path / "clusters.png", "clusters", width=1000)
    # one network takes a cross for a star: something to correct, as in the tutorial
    yield an.discover(*piles, backbone="efficientnet-lite0", out=tmp_path / "runs" / "photos")


def keep(page: Any, name: str) -> None:
    """A picture of what the page shows, where pictures are asked for."""
    if SCREENSHOTS:
        page.evaluate("document.querySelector('#notices')?.replaceChildren(); document.activeElement?.blur()")
        page.wait_for_timeout(500)  # until the contact sheets are decoded
        write(io.BytesIO(page.screenshot()), name)


def write(picture: Any, name: str, width: int = 1180) -> None:
    """The picture in 256 colours, no wider than this."""
    with Image.open(picture) as found:
        small = found.convert("RGB")
    if small.width > width:
        small = small.resize((width, round(small.height * width / small.width)), Image.Resampling.LANCZOS)
    few = in_few_colours(np.asarray(small))
    few.save(Path(SCREENSHOTS) / f"{name}.png", optimize=True)


def in_few_colours(pixels: npt.NDArray[np.uint8], flat: int = 96) -> Image.Image:
    """256 colours: those of even areas as they are, which are those of the page itself, and the best few for all others."""
    from scipy.spatial import cKDTree

    here, even = pixels[:-1, :-1], (pixels[:-1, :-1] == pixels[:-1, 1:]) & (pixels[:-1, :-1] == pixels[1:, :-1])
    colours, often = np.unique(here[even.all(2)], axis=0, return_counts=True)
    common = colours[np.argsort(-often)[:flat]]
    rest = Image.fromarray(pixels).quantize(256 - len(common)).getpalette()
    table = np.concatenate([common, np.array(rest, np.uint8).reshape(-1, 3)])[:256]
    few = Image.fromarray(cKDTree(table).query(pixels)[1].astype(np.uint8), "P")
    few.putpalette(table.ravel().tolist())
    return few


def test_looking_through_a_run(browser: Any, shown: Run) -> None:
    with Site(shown) as site, tabs(browser, site) as open_tab:
        page = open_tab(viewport={"width": 1180, "height": 460}, color_scheme="light")
        page.keyboard.press("ArrowRight")
        for name in NAMES:
            page.keyboard.press("n")
            page.keyboard.type(name)
            page.keyboard.press("Enter")
            page.locator("#notices", has_text=f"Named “{name}”").wait_for()
            page.keyboard.press("ArrowRight")
        assert load(shown.path).names == dict(enumerate(NAMES))
        page.locator(".scroller").evaluate("list => (list.scrollTop = 0)")
        keep(page, "browse")
        page.set_viewport_size({"width": 1180, "height": 620})
        page.evaluate("location.hash = '#/cluster/1'")
        page.locator(".tile").first.wait_for()
        page.get_by_label("Order of the images").select_option("doubtful")
        page.locator(".tile").first.hover()
        page.locator(".preview img").wait_for()
        keep(page, "cluster")
        page.evaluate("location.hash = '#/map'")
        page.locator(".legend a").first.wait_for()
        keep(page, "map")
    page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light")
    page.goto(shown.report().resolve().as_uri())
    assert all(name in page.locator("body").inner_text() for name in NAMES)
    page.get_by_role("heading", name="Clusters", exact=True).evaluate("heading => heading.scrollIntoView()")
    keep(page, "report")
    page.close()
    if SCREENSHOTS:
        write(shown.path / "clusters.png", "one-network", width=1000)
