"""Everyone can read the pages and use them: contrast, names for screen readers, and axe, in light, dark and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autonovel.api.run import Run, load
from autonovel.report.server import Site
from tests.report.browser import PHONE, OpenTab, axe, needs_chromium, shoot
from tests.runs.made import make_run

pytestmark = needs_chromium

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", **PHONE},
}
ADDRESSES = ("#/", "#/cluster/0", "#/map", "#/search/digit", "#/unlike")
DIALOGS = {"n": "name", "s": "split", "m": "merge", "k": "mark", "?": "keys", "Enter": "image"}
"""What a key opens; Enter the image that has the focus."""


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_and_dialog_of_browse(open_tab: OpenTab, run: Run, look: str) -> None:
    run.mark(4, "not a class")
    page = open_tab(**LOOKS[look])
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(map(int, ground[4:-1].split(","))) / 3
    assert lightness < 40 if look == "dark" else lightness > 230
    for address in ADDRESSES:
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_selector({"#/": ".card", "#/map": ".legend a"}.get(address, ".tile"))
        if address == "#/":
            page.locator(".hints summary").click()
            page.locator(".hints p").first.wait_for()
        shoot(page, f"{look}-{address[2:].partition('/')[0] or 'clusters'}")
        assert faults(page) == [], address
    page.evaluate("location.hash = '#/cluster/0'")
    page.locator(".tile").first.wait_for()
    page.keyboard.press("ArrowRight")
    for key, name in DIALOGS.items():
        page.keyboard.press(key)
        page.locator("dialog[open] .detail dl" if key == "Enter" else "dialog[open]").wait_for()
        shoot(page, f"{look}-{name}")
        assert faults(page, "dialog[open]") == [], name  # what is behind it was judged before
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")


@pytest.mark.parametrize("look", LOOKS)
def test_the_report(browser: Any, run: Run, look: str) -> None:
    run.name(0, "fives")
    (run.path / "report.html").unlink(missing_ok=True)
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **LOOKS[look]})
    page = context.new_page()
    page.goto(run.report().resolve().as_uri())
    shoot(page, f"{look}-report")
    assert faults(page) == []
    context.close()


LONG = ("Black_throated_Blue_Warbler", "Rose_breasted_Grosbeak")


@pytest.mark.parametrize("look", ["light", "phone"])
def test_long_names_find_room(browser: Any, tmp_path: Path, look: str) -> None:
    run = load(make_run(tmp_path / "birds", [0] * 9 + [1] * 7 + [2] * 5 + [-1] * 6 + [-2] * 4, known=LONG).path)
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **LOOKS[look]})
    page = context.new_page()
    page.goto(run.report().resolve().as_uri())
    shoot(page, f"{look}-long-report")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    heads = page.locator(".sizes thead th")
    assert heads.nth(1).evaluate("e => e.offsetHeight") <= heads.nth(3).evaluate("e => e.offsetHeight")
    with Site(run) as site:
        page.goto(site.url)
        page.wait_for_selector(".card")
        shoot(page, f"{look}-long-page")
        assert (
            page.locator("h1").inner_text()
            == "21 of the 31 images are new, in 3 classes; 10 belong to classes you know"
        )
        cut = "e => e.scrollWidth > e.clientWidth + 1"
        names = page.locator(".card .name")
        whole = [name.inner_text() for name in names.all() if not name.evaluate(cut)]
        assert {"new 0", "new 1", "new 2"} <= set(whole)
        # what is left of a known class is as wide as its card lets it be
        known = page.locator(".card", has_text=LONG[1]).first
        assert known.locator(".name").evaluate("e => e.offsetWidth") > 0.4 * known.evaluate("e => e.offsetWidth")
    context.close()


def test_a_fault_is_found(open_tab: OpenTab) -> None:
    page = open_tab()
    page.evaluate("document.querySelector('h1').style.color = '#ddd'")
    page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button><input>')")
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert {fault.partition(":")[0] for fault in axe(page)} >= {
        "button-name",
        "color-contrast",
        "html-has-lang",
        "label",
    }
    assert len(faults(page)) > len(axe(page))
    page.keyboard.press("?")
    page.locator("dialog[open]").evaluate("dialog => dialog.insertAdjacentHTML('beforeend', '<button></button>')")
    assert [fault.partition(":")[0] for fault in axe(page, "dialog[open]")] == ["button-name"]


def faults(page: Any, within: str = "html") -> list[str]:
    """What makes the page, or a part of it, hard to read or use."""
    return [*axe(page, within), *page.evaluate(NAMELESS), *(text for _, text in page.evaluate(CONTRAST))]


NAMELESS = """() => [...document.querySelectorAll('button, a, input, select, canvas')]
  .filter(e => e.offsetParent !== null && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
  .map(e => e.outerHTML)"""
"""Things to press or fill in without a name for a screen reader."""

CONTRAST = """() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter(e => e.offsetParent !== null && !e.disabled &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
      const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 120)]; }).filter(([ratio]) => ratio < 4.5); }"""
"""Texts whose contrast to what is behind them is under 4.5 to 1."""
