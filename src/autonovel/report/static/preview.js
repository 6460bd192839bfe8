// The large picture beside the pointer.

import { h } from "./dom.js";
import { picture, store, thumb } from "./store.js";

let box = null;
let waiting = 0;

/** Show an image large, a moment after the pointer came to rest on it. Fingers have no hovering: they open the image. */
export function preview(event, row, text) {
  hidePreview();
  if (event.pointerType === "touch" || !store.run.sheets) return;
  const { clientX, clientY } = event;
  waiting = setTimeout(() => {
    const small = thumb(row);
    const large = h("img", { alt: "", onload: () => small.replaceWith(large), src: picture(row, 288 * devicePixelRatio) });
    box = h("div", { class: "preview", "aria-hidden": "true" }, small, h("p", {}, text));
    document.body.append(box);
    const { width, height } = box.getBoundingClientRect();
    const x = clientX + 24 + width > innerWidth ? clientX - 24 - width : clientX + 24;
    box.style.left = `${Math.max(8, x)}px`;
    box.style.top = `${Math.max(8, Math.min(clientY - height / 2, innerHeight - height - 8))}px`;
  }, 220);
}

export function hidePreview() {
  clearTimeout(waiting);
  box?.remove();
  box = null;
}
