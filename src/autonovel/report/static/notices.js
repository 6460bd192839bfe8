// Short messages at the foot of the page, read aloud by screen readers.

import { h } from "./dom.js";

let place = null;
let undo = () => {};
let keepFocus = (work) => work();

export function placeNotices(element, onUndo, keeper) {
  place = element;
  undo = onUndo;
  keepFocus = keeper;
}

/** Tell the person something; `undo` offers to take the change back, `failed` stays until it is dismissed. */
export function notice(text, { undo: offer = false, failed = false } = {}) {
  const box = h("div", { class: failed ? "notice failed" : "notice" }, h("span", {}, text));
  const close = () => keepFocus(() => box.remove());
  if (offer) box.append(h("button", { type: "button", onclick: () => (close(), undo()) }, "Undo"));
  box.append(h("button", { type: "button", "aria-label": "Dismiss this message", onclick: close }, "×"));
  place.replaceChildren(box);
  if (!failed) setTimeout(close, 6000);
}
