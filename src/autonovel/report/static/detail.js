// One image, large, with what is known of it and the images most like it.

import * as actions from "./actions.js";
import { dialog } from "./dialogs.js";
import { h, percent } from "./dom.js";
import { hidePreview } from "./preview.js";
import { getJSON, picture, selectImages, store, thumb } from "./store.js";

/** Open the image at a position of a grid; the arrow keys go through the grid. */
export async function showImage(grid, position) {
  hidePreview();
  let row = grid.rows[position];
  let chosen = null;
  const content = h("div", { class: "detail", tabindex: "-1" });

  await dialog(
    "Image",
    (answer) => {
      const act = (what) => () => ((chosen = what), answer(what));
      async function draw() {
        const known = await getJSON(`/api/images/${row}`).catch((error) => ({ error: error.message }));
        if (known.error) return content.replaceChildren(h("p", {}, known.error));
        if (known.row !== row) return; // the person went on meanwhile
        content.replaceChildren(...parts(known));
        // the button that was pressed may be gone; without a focus in the dialog its keys would not work
        if (document.activeElement === document.body) content.focus({ preventScroll: true });
      }
      const show = (to) => {
        row = to;
        draw();
      };
      const parts = (known) => [
        store.run.sheets ? h("img", { class: "large", src: picture(row), alt: known.name }) : null,
        h(
          "div",
          { class: "about" },
          h("p", { class: "file" }, known.name),
          h(
            "dl",
            { class: "list" },
            ...[
              ["Now in", known.cluster],
              ["The machine said", `${known.said} (${percent(known.probability)} sure)`],
              known.id !== known.name ? ["Id", known.id] : null,
              known.unlike ? ["Note", "unlike anything seen in training"] : null,
            ].filter(Boolean).map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text))),
          ),
          known.neighbours.length ? h("h3", {}, "Most alike") : null,
          h(
            "div",
            { class: "neighbours" },
            known.neighbours.map((other) =>
              h(
                "button",
                { type: "button", "aria-label": `${other.name}, in ${other.cluster}`, title: `${other.name}, in ${other.cluster}`, onclick: () => show(other.row) },
                thumb(other.row, other.name),
              ),
            ),
          ),
        ),
      ].filter(Boolean);
      const go = (by) => {
        const to = position + by;
        if (to < 0 || to >= grid.rows.length) return;
        position = to;
        show(grid.rows[to]);
      };
      const onkeydown = (event) => {
        if (event.key === "ArrowLeft") go(-1);
        else if (event.key === "ArrowRight") go(1);
        else if (event.key === "v") act("move")();
        else if (event.key === "x") selectImages([row], !store.images.has(row));
        else return;
        event.preventDefault();
      };
      draw();
      return h(
        "div",
        { onkeydown },
        content,
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", onclick: () => go(-1) }, "← Previous"),
          h("button", { type: "button", onclick: () => go(1) }, "Next →"),
          h("button", { type: "button", onclick: act("move") }, "Move to…"),
          h("button", { type: "button", class: "primary", onclick: () => answer(null), autofocus: true }, "Close"),
        ),
      );
    },
    { size: "full" },
  );
  if (chosen === "move") await actions.move([row]);
  else grid.focus(Math.min(position, grid.rows.length - 1));
}
