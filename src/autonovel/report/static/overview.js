// All clusters as cards.

import * as actions from "./actions.js";
import { count, h, isTyping, percent, step } from "./dom.js";
import { cluster, getJSON, selectCluster, store, thumb } from "./store.js";

const ORDERS = {
  number: ["as found", (a, b) => a.place - b.place],
  size: ["largest first", (a, b) => b.size - a.size],
  doubt: ["most doubtful first", (a, b) => a.confidence - b.confidence],
  name: ["by name", (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })],
};

let order = "number";
const SUGGESTIONS = 6; // shown at a time
const declined = new Set(); // suggestions that the person does not want to see again

let active = null; // the number of the cluster that has the focus, kept when a person comes back

export function overview(place, go) {
  const select = h(
    "select",
    { "aria-label": "Order of the clusters", onchange: () => ((order = select.value), draw()) },
    Object.entries(ORDERS).map(([value, [text]]) => h("option", { value, selected: value === order }, text)),
  );
  const heading = h("h1", { tabindex: "-1" });
  const facts = h("p", { class: "facts" });
  const change = h("button", { type: "button", onclick: actions.regroup });
  const list = h("ul", { class: "cards", "aria-label": "Clusters" });
  const hints = h("details", { class: "hints", hidden: true });
  place.append(h("div", { class: "bar" }, h("div", {}, heading, facts), h("div", { class: "tools" }, h("span", { class: "quiet", "aria-hidden": "true" }, "Sort"), select, change)), h("div", { class: "scroller" }, hints, list));

  const cards = () => [...list.querySelectorAll(".card")];
  const numberOf = (card) => Number(card.dataset.number);
  const current = () => store.run.clusters.find((one) => one.number === active);

  function draw() {
    const { clusters, images, kind } = store.run;
    const found = clusters.filter((one) => one.kind === "new");
    const mixed = clusters.some((one) => one.kind === "known");
    heading.textContent = mixed ? store.run.headline : `${count(found.length, ...kind)} in ${count(images, "image")}`;
    change.textContent = `Change number of ${kind[1]}…`;
    const named = found.filter((one) => one.named).length;
    facts.textContent = named === 0 ? "Open a cluster to look at its images, and name it when you know what they show." : `${named} of ${found.length} named.`;
    const held = list.contains(document.activeElement);
    const sorted = clusters.map((one, position) => ({ ...one, place: position })).sort(ORDERS[order][1]);
    if (!current()) active = sorted[0]?.number ?? null;
    list.replaceChildren(...sorted.map(card));
    markSelected();
    if (held) focus(active);
  }

  /** What the run itself would look at: clusters to compare, to merge, to look through. */
  async function suggest() {
    const found = await getJSON("/api/suggestions").catch(() => []);
    const left = found.filter((one) => one.clusters.every((number) => cluster(number)) && !declined.has(one.text));
    const held = hints.contains(document.activeElement);
    hints.hidden = !left.length;
    hints.replaceChildren(h("summary", {}, `${count(left.length, "thing")} to look at`), h("ul", {}, left.slice(0, SUGGESTIONS).map(hint)));
    if (held) (hints.hidden ? list.querySelector(".card-open") : hints.querySelector("summary"))?.focus();
  }

  function hint(one) {
    const decline = () => (declined.add(one.text), suggest());
    const [, second] = one.clusters;
    const side = (number) => h("a", { href: `#/cluster/${number}`, "aria-label": `Open ${cluster(number).name}` }, store.run.sheets ? cluster(number).typical.slice(0, 3).map((row) => thumb(row)) : cluster(number).name);
    return h(
      "li",
      {},
      one.clusters.length ? h("span", { class: "sides" }, one.clusters.slice(0, 4).map(side)) : null,
      h("p", {}, one.text),
      one.kind === "merge" && second !== undefined ? h("button", { type: "button", onclick: () => actions.mergeAll([...one.clusters]) }, "Merge") : null,
      one.kind === "unlike" ? h("a", { class: "button", href: "#/unlike" }, "Show") : null,
      h("button", { type: "button", onclick: decline }, one.kind === "merge" ? "Not the same" : "Dismiss"),
    );
  }

  const offered = (one) => `${one.likely[0][0]}? ${one.likely[0][1].toFixed(1)}`;

  function card(one) {
    const kind = { known: "known class", "not a class": "not a class" }[one.kind];
    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    dot.style.background = one.colour;
    const bar = h("span", { class: "confidence", "aria-hidden": "true" }, h("span", {}));
    bar.firstChild.style.width = percent(one.confidence).replace(" ", "");
    return h(
      "li",
      { class: `card ${one.kind.replaceAll(" ", "-")}`, "data-number": one.number, onfocusin: () => activate(one.number) },
      h(
        "a",
        {
          class: "card-open",
          href: `#/cluster/${one.number}`,
          tabindex: one.number === active ? "0" : "-1",
        },
        h("div", { class: "collage" }, store.run.sheets ? one.typical.map((row) => thumb(row)) : null),
        h("div", { class: "card-title" }, dot, h("span", { class: one.named ? "name" : "name unnamed", title: one.name }, one.name), kind ? h("span", { class: "badge" }, kind) : null, one.named || !one.likely.length ? null : h("span", { class: "likely", title: offered(one) }, offered(one))),
        h("div", { class: "card-facts" }, count(one.size, "image"), bar, `${percent(one.confidence)} sure`),
      ),
      one.number < 0 ? null : h("input", { type: "checkbox", class: "card-select", tabindex: "-1", "aria-label": `Select ${one.name}`, onclick: () => selectCluster(one.number) }),
      one.number < 0 ? null : h("button", { type: "button", class: "card-name", tabindex: "-1", "aria-label": `Name ${one.name}`, onclick: () => actions.name(one.number) }, "Name"),
    );
  }

  function markSelected() {
    for (const one of cards()) {
      const on = store.clusters.has(numberOf(one));
      one.classList.toggle("selected", on);
      const box = one.querySelector("input");
      if (box) box.checked = on;
    }
  }

  function activate(number) {
    active = number;
    for (const one of cards()) one.firstChild.setAttribute("tabindex", numberOf(one) === number ? "0" : "-1");
  }

  function focus(number) {
    list.querySelector(`[data-number="${number}"]`)?.firstChild.focus();
  }

  function key(event) {
    if (isTyping(event)) return false;
    const all = cards();
    const at = all.findIndex((one) => numberOf(one) === active);
    const columns = Math.max(1, all.filter((one) => one.offsetTop === all[0].offsetTop).length);
    const to = step(event.key, at, all.length, columns);
    if (to !== null) focus(list.contains(document.activeElement) ? numberOf(all[to]) : active);
    else if (active === null) return false;
    else if (event.key === "Enter" && document.activeElement === document.body) go(`#/cluster/${active}`);
    else if (active < 0) return false; // images in a known class: they can be looked at and moved
    else if (event.key === "n") actions.name(active);
    else if (event.key === "x") selectCluster(active);
    else if (event.key === "m") actions.merge(active);
    else if (event.key === "s") actions.split(active);
    else if (event.key === "k") actions.mark(active);
    else if (event.key === "d") actions.dissolve(active);
    else return false;
    event.preventDefault();
    return true;
  }

  draw();
  suggest();
  return { update: () => (draw(), suggest()), selection: markSelected, key, heading, focus: () => focus(active), close: () => {} };
}
