// Clusters and images whose name holds the words of a search.

import { showImage } from "./detail.js";
import { count, h } from "./dom.js";
import { Grid } from "./grid.js";
import { notice } from "./notices.js";
import { getJSON, store } from "./store.js";

export function searchView(place, go, text) {
  const heading = h("h1", { tabindex: "-1" }, `“${text}”`);
  const facts = h("p", { class: "facts" }, "Searching…");
  const clusters = h("div", { class: "found" });
  const grid = new Grid({ label: "Images found", open: (position) => showImage(grid, position) });
  place.append(h("div", { class: "bar" }, h("div", {}, h("a", { class: "back", href: "#/" }, "← All clusters"), heading, facts)), clusters, grid.element);

  async function load() {
    const wanted = text.toLowerCase();
    const found = store.run.clusters.filter((one) => one.name.toLowerCase().includes(wanted));
    clusters.replaceChildren(...found.map((one) => h("a", { class: "chip", href: `#/cluster/${one.number}` }, one.name, h("small", {}, ` ${one.size}`))));
    try {
      const images = await getJSON(`/api/search?text=${encodeURIComponent(text)}`);
      facts.textContent = `${count(found.length, "cluster")} and ${count(images.total, "image")} found by name${images.total > images.rows.length ? `; the first ${images.rows.length} are shown` : ""}.`;
      grid.show(images);
    } catch (error) {
      notice(error.message, { failed: true });
    }
  }

  function key(event) {
    if (event.key === "Escape") return go("#/"), true;
    return grid.key(event);
  }

  load();
  return { update: load, selection: () => {}, key, heading, close: () => grid.close() };
}
