// What the page knows: the state of the run, and what the person has selected. Every change goes to the server first.

import { h } from "./dom.js";
import { notice } from "./notices.js";

export const store = new EventTarget();
store.run = null; // the answer of /api/run
store.images = new Set(); // rows of the selected images
store.clusters = new Set(); // numbers of the selected clusters

const changed = (what) => store.dispatchEvent(new Event(what));

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The page cannot reach autonovel any more; start “autonovel browse” again and open the address it prints.");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const error = new Error(said.message ?? `The request was refused (${answer.status}).`);
  error.status = answer.status;
  throw error;
}

export const getJSON = async (path) => (await ask(path)).json();
export const getBytes = async (path) => (await ask(path)).arrayBuffer();

function take(run) {
  const before = store.run;
  store.run = run;
  const alive = new Set(run.clusters.map((cluster) => cluster.number));
  for (const number of store.clusters) if (!alive.has(number)) store.clusters.delete(number);
  if (!before || before.edits !== run.edits) changed("run");
}

/** Ask for the state again. Says whether somebody else changed it. */
export async function refresh() {
  const before = store.run?.edits;
  take(await getJSON("/api/run"));
  return before !== undefined && before !== store.run.edits;
}

let waiting = 0; // changes that are not answered yet
let last = null; // whether the latest of them was made

/**
 * Make one change of a person. Resolves to whether it was made; tells the person either way. A change waits for those
 * before it, which it was made on top of; where one of them is refused, it is dropped.
 */
export function edit(change, said) {
  const made = waiting ? last.then((before) => before && send(change, said)) : send(change, said);
  waiting += 1;
  last = made.finally(() => (waiting -= 1));
  return last;
}

async function send(change, said) {
  const back = change.do === "undo" || change.do === "redo";
  if (back && !store.run[change.do]) {
    notice(`There is nothing to ${change.do}.`);
    return false;
  }
  try {
    const answer = await ask("/api/edit", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ after: store.run.edits, ...change }),
    });
    take(await answer.json());
    if (said) notice(said, { undo: !back });
    return true;
  } catch (error) {
    if (error.status === 409) await refresh();
    notice(error.message, { failed: true });
    return false;
  }
}

export const undo = () => edit({ do: "undo" }, "Undone.");
export const redo = () => edit({ do: "redo" }, "Done again.");

export const cluster = (number) => store.run.clusters.find((one) => one.number === number);
/** The address of an image, at least as large as this many pixels if it is so itself. */
export const picture = (row, side = 2048) => `/pictures/${store.run.version}/${row}.jpg?side=${side > 512 ? 2048 : side > 256 ? 512 : 256}`;

let cells = new Int32Array(0); // for every row, its cell on the contact sheets, counted through; -1 for none

/** Ask for what does not change while the page is open. */
export async function prepare() {
  await refresh();
  if (store.run.sheets) cells = new Int32Array(await getBytes("/api/cells"));
}

/** The small picture of an image: a cell of a contact sheet, its own picture where it has no cell, or its name. */
export function thumb(row, name = "") {
  if (!store.run.sheets) return h("span", { class: "thumb" }, name);
  const box = h("span", { class: "thumb" });
  const { columns, cells: perSheet, count, side } = store.run.sheets;
  if (!(cells[row] >= 0)) {
    box.style.backgroundImage = `url("${picture(row, 256)}")`;
    box.style.backgroundSize = "contain";
    return box;
  }
  const sheet = Math.floor(cells[row] / perSheet);
  const cell = cells[row] % perSheet;
  const lines = Math.ceil(Math.min(perSheet, count - sheet * perSheet) / columns);
  const zoom = side / (side - 1); // half a pixel on each side stays out of sight: there the neighbours would show
  const shift = (at, of) => `${(100 * (at + 0.5 / side) * zoom) / (of * zoom - 1)}%`;
  box.style.backgroundImage = `url("/sheets/${store.run.version}/${sheet}.jpg")`;
  box.style.backgroundSize = `${100 * columns * zoom}% ${100 * lines * zoom}%`;
  box.style.backgroundPosition = `${shift(cell % columns, columns)} ${shift(Math.floor(cell / columns), lines)}`;
  return box;
}

export function selectImages(rows, on = true) {
  for (const row of rows) on ? store.images.add(row) : store.images.delete(row);
  changed("selection");
}

export function selectCluster(number, on = !store.clusters.has(number)) {
  on ? store.clusters.add(number) : store.clusters.delete(number);
  changed("selection");
}

export function clearSelection() {
  store.images.clear();
  store.clusters.clear();
  changed("selection");
}
