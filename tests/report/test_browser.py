"""A person at the page: real flows in a real browser on a real run folder. Skipped only where there is no Chromium."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autonovel.api.run import Run, load
from autonovel.report.clusters import shown_clusters
from tests.report.browser import PHONE, OpenTab, needs_chromium
from tests.report.made import HOSTILE

pytestmark = needs_chromium


def card(page: Any, number: int) -> Any:
    return page.locator(f'.card[data-number="{number}"]')


def said(page: Any, text: str) -> None:
    page.locator("#notices", has_text=text).wait_for()


def test_name_with_the_mouse_and_reload(open_tab: OpenTab, run: Run) -> None:
    page = open_tab()
    assert page.locator("h1").inner_text() == f"5 new classes in {len(run.machine.images)} images"
    assert "open" not in page.url  # the token has left the address
    card(page, 0).get_by_role("button", name="Name").click()
    page.get_by_label("What are these images of?").fill("grey heron")
    page.get_by_role("button", name="Save name").click()
    said(page, "Named “grey heron”.")
    assert load(run.path).names == {0: "grey heron"}
    page.reload()
    assert card(page, 0).locator(".name").text_content() == "grey heron"
    card(page, 0).get_by_role("button", name="Name").click()
    page.keyboard.type("egret")  # replaces the name that is there
    page.keyboard.press("Enter")
    said(page, "Named “egret”.")
    assert load(run.path).names == {0: "egret"}
    card(page, 0).locator(":focus").wait_for()


def test_where_nothing_was_known_the_page_speaks_of_clusters(open_tab: OpenTab, run: Run) -> None:
    run.write_json("summary.json", run.summary | {"n_known": 0, "n_new_estimated": 5, "n_new_interval": [4, 7]})
    page = open_tab()
    assert page.locator("h1").inner_text() == f"5 clusters in {len(run.machine.images)} images"
    page.get_by_role("button", name="Change number of clusters…").click()
    dialog = page.get_by_role("dialog", name="Another number of clusters")
    assert "The run estimated 5, and that it lies between 4 and 7." in dialog.inner_text()
    page.get_by_label("How many clusters?").fill("3")
    page.get_by_role("button", name="Group again").click()
    said(page, "Grouped again into 3 clusters.")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".facts", has_text="sure on average · cluster").wait_for()


def test_names_with_the_keyboard_alone(open_tab: OpenTab, run: Run) -> None:
    page = open_tab()
    assert page.locator(".likely").all_inner_texts() == ["junco? 0.8"]
    assert card(page, 2).locator(".likely").count() == 1
    card(page, 2).get_by_role("button", name="Name").click()
    page.get_by_role("button", name="junco 0.80").click()
    page.keyboard.press("Escape")  # it was offered, not taken
    page.locator("dialog").wait_for(state="detached")
    assert load(run.path).names == {}
    card(page, 0).get_by_role("link").focus()
    keys = page.keyboard
    for name in ("heron", "stork"):
        keys.press("n")
        keys.type(name)
        keys.press("Enter")
        said(page, f"Named “{name}”")
        keys.press("ArrowRight")
    assert load(run.path).names == {0: "heron", 1: "stork"}
    keys.press("u")
    said(page, "Undone.")
    keys.press("Control+z")
    page.locator("#undo[disabled]").wait_for()
    keys.press("r")
    page.locator("#undo:not([disabled])").wait_for()
    assert load(run.path).names == {0: "heron"}
    keys.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    keys.press("Escape")
    keys.press("Enter")
    page.wait_for_selector(".tile")
    assert "#/cluster/" in page.url


def test_a_name_that_is_taken_is_refused_with_a_sentence(open_tab: OpenTab, run: Run) -> None:
    run.name(1, "stork")
    page = open_tab(allow="400")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    page.keyboard.type("stork")
    page.keyboard.press("Enter")
    said(page, "already")
    assert load(run.path).names == {1: "stork"}


@pytest.mark.parametrize("size", [{}, PHONE])
def test_a_message_does_not_hide_what_can_be_done_with_the_selection(open_tab: OpenTab, size: dict[str, Any]) -> None:
    page = open_tab(address="#/cluster/0", allow="400", **size)
    page.get_by_role("button", name="Name").click()
    page.keyboard.press("Enter")  # no name is given
    said(page, "is empty")
    page.locator(".tile-select").first.check()
    message, bar = (page.locator(part).bounding_box() for part in ("#notices", "#selection"))
    assert message["y"] + message["height"] <= bar["y"]


def test_merge_undo_redo(open_tab: OpenTab, run: Run) -> None:
    page = open_tab()
    colour = "card => getComputedStyle(card.querySelector('.dot')).backgroundColor"
    before = {number: card(page, number).evaluate(colour) for number in range(5)}
    for number in (1, 3):
        card(page, number).hover()
        card(page, number).get_by_role("checkbox").click()
    page.get_by_role("region", name="Selection").get_by_role("button", name="Merge").click()
    said(page, "Merged 2 clusters.")
    assert page.locator(".card").count() == 4
    page.locator(".card-open:focus").wait_for()  # the button is gone; keys go on from the clusters
    left = page.locator(".card").evaluate_all("cards => cards.map(card => Number(card.dataset.number))")
    assert {number: card(page, number).evaluate(colour) for number in left} == {n: before[n] for n in left}
    (gone,) = load(run.path).edits[-1]["clusters"]  # the larger one stays
    page.locator("#notices").get_by_role("button", name="Undo").click()
    card(page, gone).wait_for()
    page.get_by_role("button", name="Redo").click()
    card(page, gone).wait_for(state="detached")
    assert len(load(run.path).clusters) == 4
    page.keyboard.press("m")
    first = page.get_by_role("dialog").locator(".choice").first
    asked = int(page.get_by_role("dialog").locator("h2").inner_text().split("“new ")[1].split("”")[0])
    middle = {c.number: np.float32(run.features[c.members]).mean(0) for c in load(run.path).clusters}
    others = [number for number in middle if number != asked]
    nearest = min(others, key=lambda number: float(np.square(middle[number] - middle[asked]).sum()))
    assert first.inner_text().startswith(f"new {nearest}\n")
    assert "the most alike" in first.inner_text()


def test_split_and_mark(open_tab: OpenTab, run: Run) -> None:
    page = open_tab()
    card(page, 2).get_by_role("link").click()
    page.get_by_role("button", name="Split").click()
    page.get_by_label("Into how many parts?").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Split").click()
    said(page, "Split into 3 clusters.")
    page.get_by_role("button", name="Mark as…").click()
    page.get_by_label("Not a class").check()
    page.get_by_role("button", name="Save").click()
    said(page, "Marked as no class.")
    page.get_by_role("link", name="All clusters").click()
    assert card(page, 2).locator(".badge").text_content() == "not a class"
    card(page, 5).get_by_role("link").click()
    page.keyboard.press("k")
    page.get_by_role("radio", name="3 a class that was known before").check()
    page.keyboard.press("Enter")
    said(page, "Marked as the known class “3”.")
    page.evaluate("location.hash = '#/cluster/6'")
    page.get_by_role("button", name="Dissolve").click()
    said(page, "Dissolved “new 6”")
    page.locator(".card-open, h1:focus").first.wait_for()
    page.locator("#notices").get_by_role("button", name="Undo").click()
    said(page, "Undone.")
    kinds = {cluster.number: cluster.kind for cluster in load(run.path).clusters}
    assert (kinds[2], kinds[5], kinds[6]) == ("not a class", "known", "new")


def test_move_selected_images(open_tab: OpenTab, run: Run) -> None:
    page = open_tab(address="#/cluster/0")
    page.get_by_label("Order of the images").select_option("doubtful")
    # of several images that are equally doubtful, the page shows the most typical one first
    first = int(shown_clusters(run)[0].ordered("doubtful")[0])
    assert run.machine.probability[first] == run.machine.probability[run.clusters[0].members].min()
    # in the first place: elsewhere it may have been before the order changed
    page.locator(".tile").nth(0).get_by_role("button", name=run.machine.images[first]).wait_for()
    page.locator(".tile").nth(0).hover()
    page.locator(".tile").nth(0).get_by_role("checkbox").click()
    page.locator(".tile-open").nth(2).click(modifiers=["Shift"])
    said_of_selection = page.get_by_role("region", name="Selection")
    assert "3 images selected" in said_of_selection.inner_text()
    said_of_selection.get_by_role("button", name="Move to…").click()
    squeezed = "buttons => buttons.filter(button => button.scrollHeight > button.clientHeight).length"
    assert page.locator("dialog .choice").evaluate_all(squeezed) == 0
    page.get_by_label("Find by name").fill("new 4")
    page.keyboard.press("Enter")
    said(page, "Moved 3 images to “new 4”.")
    assert said_of_selection.is_hidden()
    moved = load(run.path)
    assert moved.edits[-1]["cluster"] == 4
    assert first in moved.edits[-1]["rows"]
    assert len(moved.edits[-1]["rows"]) == 3


def test_an_image_with_its_neighbours(open_tab: OpenTab, run: Run) -> None:
    page = open_tab(address="#/cluster/1")
    page.locator(".tile-open").first.click()
    dialog = page.get_by_role("dialog", name="Image")
    before = dialog.locator(".file").inner_text()
    assert dialog.locator(".neighbours button").count() == 12
    page.keyboard.press("ArrowRight")
    dialog.locator(".file", has_not_text=before).wait_for()
    dialog.locator(".neighbours button").first.click()
    page.keyboard.press("v")
    page.get_by_role("dialog", name="Move 1 image to which cluster?").wait_for()
    page.keyboard.press("Escape")
    assert run.edits == []


def test_hovering_enlarges(open_tab: OpenTab) -> None:
    page = open_tab(address="#/cluster/1")
    page.locator(".tile-open").nth(1).hover()
    page.locator(".preview img").wait_for()
    assert page.locator(".preview img").evaluate("image => image.naturalWidth") == 160
    page.mouse.move(1, 1)
    page.locator(".preview").wait_for(state="detached")
    page.get_by_label("Size of the thumbnails").fill("320")
    page.locator(".tile img.loaded").first.wait_for()
    tile = page.locator(".tile").first.bounding_box()
    assert 300 < tile["width"] < 400
    assert page.locator(".tile img.loaded").first.evaluate("image => image.naturalWidth") == 160  # as large as the file
    page.locator(".tile-open").first.click()
    shown = page.locator("dialog .large").bounding_box()
    assert shown["width"] > 0.5 * 1200
    assert shown["height"] > 0.7 * 800


def test_lasso_on_the_map(open_tab: OpenTab, run: Run) -> None:
    page = open_tab(address="#/map")
    box = page.locator("canvas").bounding_box()
    left, top, right, bottom = box["x"] + 5, box["y"] + 5, box["x"] + box["width"] - 5, box["y"] + box["height"] - 5
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(x, y, steps=3)
    page.mouse.up()
    assert f"{len(run.machine.images)} images selected" in page.locator("#selection").inner_text()
    page.keyboard.press("Escape")
    page.locator("#selection").wait_for(state="hidden")
    page.keyboard.press("g")
    page.keyboard.press("c")
    card(page, 0).wait_for()


@pytest.mark.parametrize("by", ["button", "key"])
def test_a_cluster_out_of_what_the_lasso_selects(open_tab: OpenTab, run: Run, by: str) -> None:
    page = open_tab(address="#/map")
    box = page.locator("canvas").bounding_box()
    left, top, right, bottom = box["x"] + 5, box["y"] + 5, box["x"] + box["width"] / 2, box["y"] + box["height"] - 5
    page.locator(".legend a").first.wait_for()
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(x, y, steps=3)
    page.mouse.up()
    shown = page.locator("#selection").inner_text()
    count = int(shown.split()[0])
    assert 0 < count < len(run.machine.images)
    if by == "button":
        page.get_by_role("button", name="New cluster").click()
    else:
        page.keyboard.press("c")
    said(page, f"Made a cluster of {count} images.")
    page.locator("#selection").wait_for(state="hidden")
    page.locator(".legend a", has_text="new 5").wait_for()
    made = load(run.path)
    assert [entry["do"] for entry in made.edits] == ["move"]
    assert len(made.state.members[5]) == count
    page.keyboard.press("u")
    said(page, "Undone.")
    assert 5 not in load(run.path).state.marks
    page.keyboard.press("r")
    said(page, "Done again.")
    page.keyboard.press("g")
    page.keyboard.press("c")  # a place, here
    card(page, 5).wait_for()
    assert len(load(run.path).state.members[5]) == count


def test_two_tabs(open_tab: OpenTab, run: Run) -> None:
    one = open_tab(allow="409")
    two = open_tab(beside=one)
    for page, name in ((one, "heron"), (two, "stork")):  # both have begun before either is finished
        card(page, 0).get_by_role("button", name="Name").click()
        page.keyboard.type(name)
    two.keyboard.press("Enter")
    said(two, "Named “stork”.")
    one.keyboard.press("Enter")
    said(one, "nothing was done")
    card(one, 0).get_by_text("stork").wait_for()
    assert load(run.path).names == {0: "stork"}
    card(one, 1).get_by_role("button", name="Name").click()  # it knows the latest now
    one.keyboard.type("egret")
    one.keyboard.press("Enter")
    said(one, "Named “egret”.")
    two.evaluate("window.dispatchEvent(new Event('focus'))")  # the person comes back to the other tab
    card(two, 1).get_by_text("egret").wait_for()
    assert load(run.path).names == {0: "stork", 1: "egret"}


def test_a_change_waits_for_the_one_before(open_tab: OpenTab, run: Run) -> None:
    page, held = open_tab(), []
    page.route("**/api/edit", lambda route: held.append(route), times=1)  # as slow as a split of many images
    card(page, 0).get_by_role("button", name="Name").click()
    page.keyboard.type("heron")
    with page.expect_request("**/api/edit"):
        page.keyboard.press("Enter")
    page.keyboard.press("u")
    held[0].continue_()
    said(page, "Undone.")
    assert [entry["do"] for entry in load(run.path).edits] == ["name", "undo"]


def test_what_waits_for_a_change_that_is_refused_is_not_done(open_tab: OpenTab, run: Run) -> None:
    page, held = open_tab(allow="409"), []
    page.route("**/api/edit", lambda route: held.append(route), times=1)
    card(page, 0).get_by_role("button", name="Name").click()
    page.keyboard.type("heron")
    with page.expect_request("**/api/edit"):
        page.keyboard.press("Enter")
    page.keyboard.press("u")  # meant for the name, not for what somebody else does meanwhile
    run.name(1, "stork")
    held[0].continue_()
    said(page, "nothing was done")
    card(page, 1).get_by_text("stork").wait_for()
    page.wait_for_load_state("networkidle")
    assert load(run.path).names == {1: "stork"}


def test_search_and_hostile_names(open_tab: OpenTab, run: Run) -> None:
    name = "<img src=x onerror=alert(1)>\"'"
    run.name(0, name)
    page = open_tab()
    page.on("dialog", lambda dialog: pytest.fail("a name was run as a script"))
    assert card(page, 0).locator(".name").text_content() == name
    page.keyboard.press("/")
    page.keyboard.type("<script")  # found while it is typed
    page.get_by_role("button", name=HOSTILE).wait_for()
    assert page.locator("#search:focus").count() == 1
    page.keyboard.press("Enter")
    page.get_by_role("button", name=HOSTILE).click()
    assert page.locator(".detail .file").inner_text() == HOSTILE
    page.keyboard.press("Escape")
    page.locator(".detail").wait_for(state="hidden")  # closing it gives the focus back to where it came from
    search = page.get_by_role("searchbox")
    search.fill("onerror")
    search.press("Enter")
    page.locator(".chip").get_by_text(name).click()
    page.locator(".tile").first.wait_for()
    assert page.locator("h1").inner_text() == name
    assert page.locator("img[src=x]").count() == 0


def test_the_table_is_downloaded(open_tab: OpenTab, run: Run, tmp_path: Path) -> None:
    run.name(0, "heron")
    page = open_tab()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    download.value.save_as(tmp_path / "classes.csv")
    assert "heron" in (tmp_path / "classes.csv").read_text(encoding="utf-8")
    page.evaluate("location.hash = '#/cluster/0'")
    page.locator(".tile").first.wait_for()
    with page.expect_download() as download:
        page.locator(".tools").get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == "cluster-0.csv"
    download.value.save_as(tmp_path / "one.csv")
    lines = (tmp_path / "one.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(run.clusters[0].members)
    assert all(",heron," in line for line in lines[1:])


def test_only_what_is_seen_is_in_the_page(open_tab: OpenTab, run: Run) -> None:
    for other in (1, 2, 3, 4):
        run.merge(0, other)
    page = open_tab(address="#/cluster/0", viewport={"width": 700, "height": 420})
    total = len(run.machine.images)
    assert page.locator(".tile").count() < total / 3
    before = page.locator(".tile-open").first.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.locator(".tile:last-child .tile-open:focus").wait_for()
    assert page.locator(".tile").count() < total / 3
    assert page.locator(".tile-open:focus").get_attribute("aria-label") != before


def test_phone(open_tab: OpenTab, run: Run) -> None:
    page = open_tab(**PHONE)
    for address in ("#/", "#/cluster/0", "#/map"):
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_selector(".card, .tile, .legend a")
        wide = page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 391).length"
        )
        assert wide == 0, address
    page.evaluate("location.hash = '#/cluster/0'")
    page.locator(".tile-open").first.tap()
    page.get_by_role("dialog", name="Image").get_by_role("button", name="Close").tap()
    page.locator(".tile-select").first.tap()
    page.get_by_role("button", name="Move to…").tap()
    page.get_by_role("dialog").get_by_role("button", name="new 2").tap()
    said(page, "Moved 1 image")
    assert len(load(run.path).edits) == 1
    page.evaluate("document.getElementById('help').click()")
    help = page.get_by_role("dialog")
    assert help.evaluate("box => [box.scrollTop, box.scrollHeight > box.clientHeight]") == [0, True]


def printed(pdf: bytes) -> list[bytes]:
    """What is drawn on each page."""
    parts = dict(re.findall(rb"\n(\d+) 0 obj\n?(.*?)\nendobj", pdf, re.DOTALL))
    pages = [part for part in parts.values() if re.search(rb"/Type\s*/Page\b", part)]
    drawn = [parts[re.search(rb"/Contents (\d+)", page)[1]] for page in pages]  # type: ignore[index]
    return [zlib.decompress(re.split(rb"stream\r?\n", part, maxsplit=1)[1]) for part in drawn]


def test_the_report_opens_from_disk(browser: Any, run: Run) -> None:
    run.name(0, "</script><script>alert(1)</script>")
    (run.path / "report.html").unlink(missing_ok=True)
    path = run.report()
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append("a name was run as a script"))
    page.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto(path.resolve().as_uri())
    canvas = page.locator("#points")
    canvas.scroll_into_view_if_needed()
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    assert canvas.evaluate(drawn)
    box = canvas.bounding_box()
    for step in range(40):  # somewhere on this line there is an image
        page.mouse.move(box["x"] + box["width"] * (0.3 + step / 100), box["y"] + box["height"] / 2)
        if page.locator("#hover").is_visible():
            break
    assert page.locator("#hover").is_visible()
    assert page.evaluate("[...document.images].every(i => i.src.startsWith('data:'))")
    written = printed(page.pdf())
    assert 2 < len(written) < 8
    assert all(b"TJ" in content or b"Tj" in content for content in written)  # no page without a word
    context.close()
    assert wrong == []


def test_the_report_on_a_phone_breaks_no_word_of_the_table(browser: Any, run: Run) -> None:
    context = browser.new_context(**PHONE)
    page = context.new_page()
    page.goto(run.name(0, "crosses").name(1, "x" * 100).report().as_uri())
    lines = """cells => cells.map(cell => {
        const text = document.createRange();
        text.selectNodeContents(cell);
        return new Set([...text.getClientRects()].map(part => Math.round(part.bottom / 8))).size;
    })"""
    assert page.locator(".sizes thead th", has_text="Images").evaluate_all(lines) == [1]
    assert page.locator(".sizes tbody th", has_text="crosses").evaluate_all(lines) == [1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_suggestions_are_followed_or_declined(open_tab: OpenTab, run: Run) -> None:
    run.write_json("merging.json", run.read_json("merging.json") | {"n_new": None})  # as where the heads say nothing
    run.split(3, 2)
    page = open_tab()
    hints = page.locator(".hints")
    hints.locator("summary").click()
    one = hints.locator("li", has_text="“new 1” and “new 4” look like one class")
    other = hints.locator("li", has_text="“new 3” and “new 5” look like one class")
    one.wait_for()
    assert one.get_by_role("link").evaluate_all("links => links.map(link => link.hash)") == [
        "#/cluster/1",
        "#/cluster/4",
    ]
    one.get_by_role("button", name="Merge").click()
    said(page, "Merged 2 clusters.")
    one.wait_for(state="detached")
    other.get_by_role("button", name="Not the same").click()
    other.wait_for(state="detached")
    (merged,) = [entry for entry in load(run.path).edits if entry["do"] == "merge"]
    assert {merged["into"], *merged["clusters"]} == {1, 4}
