// One cluster: its images in a grid.

import * as actions from "./actions.js";
import { showImage } from "./detail.js";
import { count, h, isTyping, percent } from "./dom.js";
import { Grid } from "./grid.js";
import { notice } from "./notices.js";
import { cluster, getJSON, store } from "./store.js";

const ORDERS = { typical: "most typical first", doubtful: "most doubtful first", odd: "odd ones out first", file: "by file name" };

let order = "typical";

export function clusterView(place, go, number) {
  const heading = h("h1", { tabindex: "-1" });
  const facts = h("p", { class: "facts" });
  const select = h(
    "select",
    { "aria-label": "Order of the images", onchange: () => ((order = select.value), load()) },
    Object.entries(ORDERS).map(([value, text]) => h("option", { value, selected: value === order }, text)),
  );
  const button = (text, act) => h("button", { type: "button", onclick: act }, text);
  const grid = new Grid({ label: "Images of this cluster", open: (position) => showImage(grid, position) });
  const tools = h(
    "div",
    { class: "tools" },
    grid.sizer(),
    h("span", { class: "quiet", "aria-hidden": "true" }, "Sort"),
    select,
    // images in a known class can be looked at and moved, but the class is as it is
    number < 0
      ? null
      : [
          button("Name", () => actions.name(number)),
          button("Split", () => actions.split(number)),
          button("Merge with…", () => actions.merge(number)),
          button("Dissolve", () => actions.dissolve(number)),
          button("Mark as…", () => actions.mark(number)),
        ],
    h("a", { class: "button", href: `/api/export.csv?cluster=${number}`, download: true, title: "The images of this cluster as CSV" }, "Export"),
  );
  place.append(
    h("div", { class: "bar" }, h("div", {}, h("a", { class: "back", href: "#/" }, "← All clusters"), heading, facts), tools),
    grid.element,
  );

  let asked = 0;
  async function load() {
    const mine = ++asked;
    const one = cluster(number);
    if (!one) {
      notice("This cluster is no longer there.");
      return go("#/");
    }
    heading.textContent = one.name;
    heading.classList.toggle("unnamed", !one.named);
    const kind = { new: store.run.kind[0], known: "known class", "not a class": "not a class" }[one.kind];
    facts.textContent = `${count(one.size, "image")} · ${percent(one.confidence)} sure on average · ${kind}`;
    try {
      const images = await getJSON(`/api/clusters/${number}?order=${order}`);
      if (mine !== asked) return;
      grid.show(images);
      if (images.rows.length < one.size) facts.textContent += ` · the first ${images.rows.length.toLocaleString("en")} are shown`;
    } catch (error) {
      notice(error.message, { failed: true });
    }
  }

  function next(by) {
    const numbers = store.run.clusters.map((one) => one.number);
    const to = numbers[(numbers.indexOf(number) + by + numbers.length) % numbers.length];
    go(`#/cluster/${to}`);
  }

  function key(event) {
    if (isTyping(event)) return false;
    if (grid.key(event)) return true;
    const orders = Object.keys(ORDERS);
    if ("nsmkd".includes(event.key) && number < 0) return false;
    if (event.key === "n") actions.name(number);
    else if (event.key === "s") actions.split(number);
    else if (event.key === "m") actions.merge(number);
    else if (event.key === "k") actions.mark(number);
    else if (event.key === "d") actions.dissolve(number);
    else if (event.key === "o") {
      select.value = order = orders[(orders.indexOf(order) + 1) % orders.length];
      load();
    } else if (event.key === "[") next(-1);
    else if (event.key === "]") next(1);
    else if (event.key === "Escape") go("#/");
    else return false;
    event.preventDefault();
    return true;
  }

  load();
  return { update: load, selection: () => {}, key, heading, focus: () => grid.focus(), close: () => grid.close() };
}
