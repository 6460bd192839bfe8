// Elements made by code. Text from the run (names of files, clusters, classes) becomes text nodes and never markup.

/**
 * An element: h("button", {class: "plain", onclick: act, "aria-label": "Undo"}, "Undo").
 * Properties that start with "on" are listeners, null and false are left out, true is an empty attribute.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export const percent = (share) => `${Math.round(100 * share)} %`;

/** Whether a key event belongs to a field in which a person is typing. */
export const isTyping = (event) =>
  event.target instanceof Element && event.target.matches("input:not([type=checkbox]), textarea, select");

/** The element of a list that an arrow key leads to from the one at `index`; null if the key is no arrow or leads out. */
export function step(key, index, total, columns) {
  const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -index, End: total - 1 - index }[key];
  if (move === undefined) return null;
  const to = index + move;
  return to >= 0 && to < total ? to : null;
}
