// Clusters and images whose name holds the words of a search, and images like none of the classes.

import { showImage } from "./detail.js";
import { count, h } from "./dom.js";
import { Grid } from "./grid.js";
import { notice } from "./notices.js";
import { getJSON, store } from "./store.js";

export function searchView(place, go, text) {
  const clusters = h("div", { class: "found" });
  const view = listView(place, go, { before: clusters, load });
  let asked = 0;

  async function load(show) {
    const mine = ++asked;
    view.heading.textContent = `“${text}”`;
    const wanted = text.toLowerCase();
    const found = store.run.clusters.filter((one) => one.name.toLowerCase().includes(wanted));
    clusters.replaceChildren(...found.map((one) => h("a", { class: "chip", href: `#/cluster/${one.number}` }, one.name, h("small", {}, ` ${one.size}`))));
    const images = await getJSON(`/api/search?text=${encodeURIComponent(text)}`);
    if (mine === asked) show(images, `${count(found.length, "cluster")} and ${count(images.total, "image")} found by name`);
  }

  function search(other) {
    text = other;
    view.update();
  }

  view.update();
  return { ...view, search };
}

export function unlikeView(place, go) {
  const load = async (show) => {
    const images = await getJSON("/api/unlike");
    show(images, `${count(images.total, "image")}: nothing of their kind may be among the classes, or they show nothing at all`);
  };
  const view = listView(place, go, { load });
  view.heading.textContent = "Like none of the classes";
  view.update();
  return view;
}

/** A heading and a grid; `load(show)` asks for the images and shows them with a sentence. */
function listView(place, go, { before = null, load }) {
  const heading = h("h1", { tabindex: "-1" });
  const facts = h("p", { class: "facts" }, "Searching…");
  const grid = new Grid({ label: "Images found", open: (position) => showImage(grid, position) });
  place.append(
    h("div", { class: "bar" }, h("div", {}, h("a", { class: "back", href: "#/" }, "← All clusters"), heading, facts), h("div", { class: "tools" }, grid.sizer())),
    ...[before, grid.element].filter(Boolean),
  );

  const show = (images, said) => {
    facts.textContent = `${said}${images.total > images.rows.length ? `; the first ${images.rows.length} are shown` : ""}.`;
    grid.show(images);
  };
  const update = () => load(show).catch((error) => notice(error.message, { failed: true }));

  function key(event) {
    if (event.key === "Escape") return go("#/"), true;
    return grid.key(event);
  }

  return { update, selection: () => {}, key, heading, focus: () => grid.focus(), close: () => grid.close() };
}
