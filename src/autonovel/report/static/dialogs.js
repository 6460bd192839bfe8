// Questions to the person. Each resolves to the answer, or to null when it was dismissed (Escape, Cancel).

import { count, h } from "./dom.js";
import { store, thumb } from "./store.js";

/** A modal dialog; `fill(answer)` gives its content, `answer(value)` closes it. Focus goes back to where it was. */
export function dialog(title, fill, { size = "narrow" } = {}) {
  const before = document.activeElement;
  return new Promise((resolve) => {
    let result = null;
    const heading = h("h2", { id: "dialog-title" }, title);
    const box = h("dialog", { "aria-labelledby": "dialog-title", class: size }, heading);
    const answer = (value) => {
      result = value;
      box.close();
    };
    box.append(...[fill(answer)].flat());
    box.addEventListener("close", () => {
      box.remove();
      if (before?.isConnected) before.focus({ preventScroll: true });
      resolve(result);
    });
    box.addEventListener("click", (event) => event.target === box && box.close());
    document.body.append(box);
    box.showModal();
    box.scrollTop = 0; // the first button has the focus, and in a long text it stands at the end
  });
}

function form(answer, value, fields, action) {
  return h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        answer(value());
      },
    },
    ...fields,
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", onclick: () => answer(null) }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, action),
    ),
  );
}

export function askName(cluster) {
  // what is typed replaces the name that is there
  const field = h("input", { type: "text", maxlength: "200", autocomplete: "off", value: cluster.named ? cluster.name : "", autofocus: true, onfocus: () => field.select() });
  const label = h("label", {}, "What are these images of?", field);
  const offer = ([name, sure]) => h("button", { type: "button", class: "chip", onclick: () => ((field.value = name), field.focus()) }, name, h("small", {}, ` ${sure.toFixed(2)}`));
  const offers = cluster.likely.length
    ? h("p", { class: "offers" }, "To a network that knows 1,000 things these look like: ", cluster.likely.map(offer), " (mean probability). It may be wrong.")
    : null;
  return dialog(`Name “${cluster.name}”`, (answer) => form(answer, () => field.value, [strip(cluster), label, offers].filter(Boolean), "Save name"));
}

export function askSplit(cluster) {
  const most = Math.min(20, cluster.size);
  const field = h("input", { type: "number", min: "2", max: String(most), value: "2", autofocus: true });
  const label = h("label", {}, "Into how many parts?", field);
  const text = h("p", {}, "The images are grouped again by how alike they are. Undo brings the cluster back.");
  return dialog(`Split “${cluster.name}”`, (answer) => form(answer, () => Number(field.value), [strip(cluster), text, label], "Split"));
}

/** What a cluster is: "new", "not a class" or the name of a known class. */
export function askMark(cluster) {
  const chosen = { value: cluster.kind === "known" ? cluster.name : cluster.kind };
  const choice = (value, text, more) =>
    h(
      "label",
      { class: "choice" },
      h("input", {
        type: "radio",
        name: "mark",
        checked: chosen.value === value,
        autofocus: chosen.value === value,
        onchange: () => (chosen.value = value),
      }),
      h("span", {}, text, more ? h("small", {}, more) : null),
    );
  const known = store.run.known.map((name) => choice(name, name, "a class that was known before"));
  return dialog(`What is “${cluster.name}”?`, (answer) =>
    form(
      answer,
      () => chosen.value,
      [
        strip(cluster),
        h(
          "div",
          { class: "choices", role: "radiogroup", "aria-label": "What this cluster is" },
          choice("new", `A ${store.run.kind[0]}`, "as the machine found it"),
          choice("not a class", "Not a class", "rubbish, a mixture: left out of the result"),
          ...known,
        ),
      ],
      "Save",
    ),
  );
}

const strip = (cluster) =>
  h(
    "div",
    { class: "strip", "aria-hidden": "true" },
    store.run.sheets ? cluster.typical.slice(0, 6).map((row) => thumb(row)) : null,
  );

/** One of the clusters, those whose numbers are `near` first, or the answer of one of the `extra` lines ({text, value}). */
export function askCluster(title, { leftOut = new Set(), near = [], extra = [] }) {
  const choices = store.run.clusters.filter((cluster) => !leftOut.has(cluster.number));
  const place = new Map(near.map((number, position) => [number, position]));
  choices.sort((a, b) => (place.get(a.number) ?? choices.length) - (place.get(b.number) ?? choices.length));
  return dialog(title, (answer) => {
    const list = h("div", { class: "choices" });
    const field = h("input", { type: "search", autocomplete: "off", autofocus: true, oninput: () => fill() });
    const fill = () => {
      const wanted = field.value.trim().toLowerCase();
      const found = choices.filter((cluster) => cluster.name.toLowerCase().includes(wanted));
      list.replaceChildren(
        ...found.map((cluster) =>
          h(
            "button",
            { type: "button", class: "choice", onclick: () => answer(cluster.number) },
            store.run.sheets && cluster.typical.length ? thumb(cluster.typical[0]) : null,
            h("span", {}, cluster.name, h("small", {}, count(cluster.size, "image"), cluster.number === near[0] ? " · the most alike" : "")),
          ),
        ),
        ...extra.map(({ text, value }) => h("button", { type: "button", class: "choice", onclick: () => answer(value) }, text)),
      );
    };
    fill();
    const onkeydown = (event) => {
      const buttons = [...list.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement);
      if (event.key === "Enter" && at < 0) buttons[0]?.click();
      else if (event.key === "ArrowDown") (buttons[at + 1] ?? buttons[at])?.focus();
      else if (event.key === "ArrowUp") (buttons[at - 1] ?? field).focus();
      else return;
      event.preventDefault();
    };
    return h(
      "div",
      { onkeydown },
      h("label", {}, "Find by name", field),
      list,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => answer(null) }, "Cancel")),
    );
  });
}

/** How many new classes, or clusters, there should be. */
export function askCount(now, most) {
  const field = h("input", { type: "number", min: "1", max: String(most), value: String(now), autofocus: true });
  const many = store.run.kind[1];
  const label = h("label", {}, `How many ${many}?`, field);
  const { estimated, interval } = store.run;
  const between = interval ? `, and that it lies between ${interval[0]} and ${interval[1]}` : "";
  const said = estimated ? h("p", {}, `The run estimated ${estimated}${between}.`) : null;
  const text = h("p", {}, `The images of all ${many} are grouped again, without training. Clusters that stay the same keep their names.`);
  return dialog(`Another number of ${many}`, (answer) => form(answer, () => Number(field.value), [said, text, label].filter(Boolean), "Group again"));
}

const KEYS = [
  ["Everywhere", [
    ["g then c", "all clusters"],
    ["g then m", "map of all images"],
    ["/", "search"],
    ["u  or  Ctrl+Z", "undo"],
    ["r  or  Ctrl+Shift+Z", "redo"],
    ["Esc", "clear the selection, go back"],
    ["?", "this list"],
  ]],
  ["Clusters", [
    ["← → ↑ ↓", "go to another cluster"],
    ["Enter", "open it"],
    ["n", "name it"],
    ["x", "select it"],
    ["m", "merge the selected clusters"],
    ["s", "split it"],
    ["d", "dissolve it: its images go where they fit best"],
    ["k", "mark it as a known class or as no class"],
  ]],
  ["Images of a cluster", [
    ["← → ↑ ↓", "go to another image"],
    ["Enter", "show it large, with the images most like it"],
    ["Space  or  x", "select it"],
    ["Shift + arrows", "select several"],
    ["a", "select all, or none"],
    ["v", "move the selected images to another cluster"],
    ["c", "make a cluster of the selected images"],
    ["o", "change the order"],
    ["n  m  s  d  k", "name, merge, split, dissolve, mark this cluster"],
    ["[  and  ]", "previous and next cluster"],
  ]],
  ["Map", [
    ["drag", "draw around images to select them"],
    ["v  c", "move them, or make a cluster of them"],
    ["← → ↑ ↓", "move the map"],
    ["+  −  0", "zoom in, out, show all"],
  ]],
];

export const showHelp = () =>
  dialog(
    "Keys",
    (answer) => [
      h(
        "div",
        { class: "keys" },
        KEYS.map(([title, keys]) =>
          h(
            "section",
            {},
            h("h3", {}, title),
            h("dl", {}, keys.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
          ),
        ),
      ),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: () => answer(null), autofocus: true }, "Close")),
    ],
    { size: "wide" },
  );
