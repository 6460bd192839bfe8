// A grid of thumbnails that holds only those in sight, so that a cluster of 100,000 images scrolls as well as one of 100.

import { h, isTyping, percent, step } from "./dom.js";
import { hidePreview, preview } from "./preview.js";
import { picture, selectImages, store, thumb } from "./store.js";

const GAP = 8;
const SHARP = 1.25; // enlarged more than this, a cell of a contact sheet looks blurred
let wish = Number(localStorage.getItem("autonovel-side")) || null; // pixels of a thumbnail; null until a person chooses

export class Grid {
  /** `open(position)` is called when a person opens an image. */
  constructor({ open, label }) {
    this.rows = [];
    this.names = null;
    this.sure = null;
    this.active = 0;
    this.anchor = 0;
    this.tiles = new Map();
    this.open = open;
    this.waiting = 0;
    this.list = h("ul", { class: "grid", "aria-label": label });
    this.element = h("div", { class: "scroller" }, this.list);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.watcher = new ResizeObserver(() => this.layOut());
    this.watcher.observe(this.element);
    this.onSelection = () => this.markSelected();
    store.addEventListener("selection", this.onSelection);
  }

  /** What chooses how large the thumbnails are, for this grid and those to come. */
  sizer() {
    const slider = h("input", { type: "range", min: "64", max: "400", step: "8", value: String(this.wish()), "aria-label": "Size of the thumbnails", title: "Size of the thumbnails" });
    slider.addEventListener("input", () => {
      wish = Number(slider.value);
      localStorage.setItem("autonovel-side", slider.value);
      this.layOut();
    });
    return slider;
  }

  wish() {
    return wish ?? (matchMedia("(max-width: 40rem)").matches ? 84 : 112);
  }

  close() {
    clearTimeout(this.waiting);
    this.watcher.disconnect();
    store.removeEventListener("selection", this.onSelection);
    hidePreview();
  }

  /** Show these images: {rows, names?, probabilities?}. */
  show({ rows, names = null, probabilities = null }) {
    this.rows = rows;
    this.names = names;
    this.sure = probabilities;
    this.active = Math.max(0, Math.min(this.active, rows.length - 1));
    const held = this.list.contains(document.activeElement);
    this.list.replaceChildren();
    this.tiles.clear();
    this.layOut();
    if (held) this.focus();
  }

  layOut() {
    const width = this.list.clientWidth;
    if (!width) return;
    this.columns = Math.max(wish === null ? 2 : 1, Math.floor((width + GAP) / (this.wish() + GAP)));
    this.side = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.list.style.height = `${Math.ceil(this.rows.length / this.columns) * (this.side + GAP)}px`;
    for (const [position, tile] of this.tiles) this.put(tile, position);
    this.draw();
  }

  put(tile, position) {
    const x = (position % this.columns) * (this.side + GAP);
    const y = Math.floor(position / this.columns) * (this.side + GAP);
    tile.style.transform = `translate(${x}px, ${y}px)`;
    tile.style.width = tile.style.height = `${this.side}px`;
  }

  draw() {
    if (!this.columns) return;
    const line = this.side + GAP;
    const top = this.element.scrollTop - this.list.offsetTop;
    const first = Math.max(0, Math.floor(top / line) - 2) * this.columns;
    const last = Math.min(this.rows.length, (Math.ceil((top + this.element.clientHeight) / line) + 2) * this.columns);
    for (const [position, tile] of this.tiles)
      if ((position < first || position >= last) && position !== this.active) {
        tile.remove();
        this.tiles.delete(position);
      }
    for (let position = first; position < last; position++) if (!this.tiles.has(position)) this.add(position);
    clearTimeout(this.waiting); // what is only scrolled past is not asked for
    this.waiting = setTimeout(() => this.sharpen(), 150);
  }

  /** Put the pictures themselves over cells of a contact sheet that are smaller than their tiles. */
  sharpen() {
    const side = this.side * devicePixelRatio;
    if (!store.run.sheets || side <= SHARP * store.run.sheets.side) return;
    for (const [position, tile] of this.tiles) {
      const small = tile.querySelector(".thumb");
      const before = small.firstChild;
      const src = picture(this.rows[position], side);
      if (before?.getAttribute("src") === src) continue;
      const large = h("img", { alt: "", src, onload: () => (before?.remove(), large.classList.add("loaded")) });
      small.append(large);
    }
  }

  nameOf(position) {
    return this.names?.[position] ?? `image ${this.rows[position]}`;
  }

  add(position) {
    const row = this.rows[position];
    const name = this.nameOf(position);
    const sure = this.sure ? `, confidence ${percent(this.sure[position])}` : "";
    const button = h(
      "button",
      {
        type: "button",
        class: "tile-open",
        tabindex: position === this.active ? "0" : "-1",
        "aria-label": `${name}${sure}`,
        onclick: (event) => this.click(event, position),
        onfocus: () => this.activate(position),
        onpointerenter: (event) => preview(event, row, `${name}${sure}`),
        onpointerleave: hidePreview,
      },
      thumb(row, name),
    );
    const box = h("input", {
      type: "checkbox",
      class: "tile-select",
      tabindex: "-1",
      "aria-label": `Select ${name}`,
      onclick: (event) => this.select(position, event.shiftKey),
    });
    const tile = h("li", { class: "tile" }, button, box);
    this.mark(tile, row);
    this.put(tile, position);
    this.tiles.set(position, tile);
    // in the order of the images, so that reading aloud follows what is seen
    const next = [...this.tiles.keys()].filter((other) => other > position).sort((a, b) => a - b)[0];
    this.list.insertBefore(tile, next === undefined ? null : this.tiles.get(next));
  }

  mark(tile, row) {
    const on = store.images.has(row);
    tile.classList.toggle("selected", on);
    tile.lastChild.checked = on;
  }

  markSelected() {
    for (const [position, tile] of this.tiles) this.mark(tile, this.rows[position]);
  }

  click(event, position) {
    if (event.shiftKey || event.ctrlKey || event.metaKey) this.select(position, event.shiftKey);
    else this.open(position);
  }

  /** Select or deselect an image; with `range`, all from the last one selected to this one. */
  select(position, range) {
    if (range) {
      const [low, high] = [Math.min(this.anchor, position), Math.max(this.anchor, position)];
      selectImages(this.rows.slice(low, high + 1));
    } else selectImages([this.rows[position]], !store.images.has(this.rows[position]));
    this.anchor = position;
  }

  activate(position) {
    const before = this.tiles.get(this.active);
    this.active = position;
    before?.firstChild.setAttribute("tabindex", "-1");
    this.tiles.get(position)?.firstChild.setAttribute("tabindex", "0");
  }

  focus(position = this.active) {
    if (!this.rows.length) return;
    const line = this.side + GAP;
    const y = this.list.offsetTop + Math.floor(position / this.columns) * line;
    const view = this.element;
    if (y < view.scrollTop) view.scrollTop = y - GAP;
    else if (y + line > view.scrollTop + view.clientHeight) view.scrollTop = y + line - view.clientHeight + GAP;
    this.draw();
    this.tiles.get(position)?.firstChild.focus({ preventScroll: true });
  }

  /** Keys of a person who is in the grid, or anywhere else on a page that has only this list. */
  key(event) {
    if (!this.rows.length || isTyping(event)) return false;
    const inside = this.list.contains(document.activeElement);
    const to = step(event.key, this.active, this.rows.length, this.columns);
    if (to !== null) {
      const from = this.active;
      if (event.shiftKey) selectImages(this.rows.slice(Math.min(from, to), Math.max(from, to) + 1));
      this.focus(inside ? to : from);
    } else if (event.key === " " && inside) this.select(this.active, event.shiftKey);
    else if (event.key === "x") this.select(this.active, false);
    else if (event.key === "a") selectImages(this.rows, !this.rows.every((row) => store.images.has(row)));
    else return false;
    event.preventDefault();
    return true;
  }
}
