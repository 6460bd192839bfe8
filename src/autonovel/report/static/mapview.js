// The map: every image a point, alike images close together; a line drawn around points selects their images.

import { count, h, isTyping } from "./dom.js";
import { notice } from "./notices.js";
import { hidePreview, preview } from "./preview.js";
import { cluster, getBytes, selectImages, store } from "./store.js";

const CELLS = 64; // the unit square is cut into so many cells a side, to find the point under the pointer

/** The points that /api/map sends: rows, x and y in the unit square, and cluster numbers, n values each. */
function unpack(bytes) {
  const n = new Int32Array(bytes, 0, 1)[0];
  const part = (Kind, number) => new Kind(bytes, 4 + 4 * n * number, n);
  return { n, rows: part(Int32Array, 0), x: part(Float32Array, 1), y: part(Float32Array, 2), clusters: part(Int32Array, 3) };
}

/** Whether a place lies inside a closed line, by counting how often a ray from it crosses the line. */
function inside(x, y, line) {
  let within = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i++) {
    const [ax, ay] = line[i];
    const [bx, by] = line[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) within = !within;
  }
  return within;
}

export function mapView(place, go) {
  const heading = h("h1", { tabindex: "-1" }, "Map");
  const facts = h("p", { class: "facts" }, "Drawing the map; the first time this takes some seconds.");
  const canvas = h("canvas", { class: "map", tabindex: "0", role: "img", "aria-label": "Map of all images; arrow keys move it, plus and minus zoom" });
  const legend = h("ul", { class: "legend", "aria-label": "Clusters on the map" });
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const lasso = h("button", { type: "button", "aria-pressed": "true", onclick: () => mode(true) }, "Select");
  const drag = h("button", { type: "button", "aria-pressed": "false", onclick: () => mode(false) }, "Move");
  const zoomers = [button("+", "Zoom in", () => zoom(1.5)), button("−", "Zoom out", () => zoom(1 / 1.5)), button("Show all", "Show all images", () => fit())];
  const frame = h("div", { class: "map-frame" }, canvas, legend);
  place.append(h("div", { class: "bar" }, h("div", {}, heading, facts), h("div", { class: "tools" }, h("span", { class: "pair", role: "group", "aria-label": "What dragging does" }, lasso, drag), ...zoomers)), frame);

  let points = null;
  let cells = new Map();
  let selecting = true;
  let view = { scale: 1, left: 0, top: 0 }; // place on the screen = place in the unit square * scale + offset
  let line = null;
  let bright = null; // the cluster that the legend points at
  let under = -1;
  let held = null;

  function mode(select) {
    selecting = select;
    lasso.setAttribute("aria-pressed", String(select));
    drag.setAttribute("aria-pressed", String(!select));
    canvas.classList.toggle("moving", !select);
  }

  async function load() {
    try {
      points = unpack(await getBytes("/api/map"));
    } catch (error) {
      return notice(error.message, { failed: true });
    }
    cells = new Map();
    for (let i = 0; i < points.n; i++) {
      const key = cellOf(points.x[i], points.y[i]);
      cells.has(key) ? cells.get(key).push(i) : cells.set(key, [i]);
    }
    const all = store.run.images;
    facts.textContent = `${points.n < all ? `${count(points.n, "image")} of ${all.toLocaleString("en")}` : count(all, "image")}; alike ones are close. Draw around some to select them.`;
    drawLegend();
    draw();
  }

  const cellOf = (x, y) => Math.floor(x * CELLS) + CELLS * 2 * Math.floor(y * CELLS);

  function drawLegend() {
    legend.replaceChildren(
      ...store.run.clusters.map((one) => {
        const dot = h("span", { class: "dot", "aria-hidden": "true" });
        dot.style.background = one.colour;
        const point = (on) => () => ((bright = on ? one.number : null), draw());
        return h("li", {}, h("a", { href: `#/cluster/${one.number}`, onpointerenter: point(true), onpointerleave: point(false), onfocus: point(true), onblur: point(false) }, dot, one.name));
      }),
    );
  }

  function fit() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const margin = 24;
    const scale = Math.max(10, Math.min(width, height) - 2 * margin);
    view = { scale, left: (width - scale) / 2, top: (height - scale) / 2 };
    draw();
  }

  function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    view = { scale: view.scale * by, left: x - (x - view.left) * by, top: y - (y - view.top) * by };
    draw();
  }

  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => ((asked = false), paint()));
  }

  function paint() {
    if (!points) return;
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const size = Math.max(2, Math.min(9, (300 / Math.sqrt(points.n + 1)) * Math.sqrt(view.scale / 600)));
    const colours = new Map(store.run.clusters.map((one) => [one.number, one.colour]));
    const style = getComputedStyle(canvas);
    const chosen = [];
    for (let i = 0; i < points.n; i++) {
      const x = points.x[i] * view.scale + view.left;
      const y = points.y[i] * view.scale + view.top;
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      pen.globalAlpha = bright !== null && points.clusters[i] !== bright ? 0.12 : 0.85;
      pen.fillStyle = colours.get(points.clusters[i]) ?? "#888888";
      dot(pen, x, y, size);
      if (store.images.has(points.rows[i])) chosen.push([x, y]);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = style.color;
    pen.lineWidth = 1.5;
    for (const [x, y] of chosen) pen.strokeRect(x - size / 2 - 1, y - size / 2 - 1, size + 2, size + 2);
    if (under >= 0) pen.strokeRect(points.x[under] * view.scale + view.left - size, points.y[under] * view.scale + view.top - size, 2 * size, 2 * size);
    if (line) {
      pen.beginPath();
      line.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.globalAlpha = 0.15;
      pen.fillStyle = style.color;
      pen.fill();
      pen.globalAlpha = 1;
      pen.stroke();
    }
  }

  function dot(pen, x, y, size) {
    if (points.n > 20000) return pen.fillRect(x - size / 2, y - size / 2, size, size); // several times faster
    pen.beginPath();
    pen.arc(x, y, size / 2, 0, 7);
    pen.fill();
  }

  /** The point nearest to a place on the screen, within a few pixels; -1 where there is none. */
  function at(x, y) {
    const [u, v, reach] = [(x - view.left) / view.scale, (y - view.top) / view.scale, 10 / view.scale];
    let [best, found] = [reach * reach, -1];
    for (let row = Math.floor((v - reach) * CELLS); row <= Math.floor((v + reach) * CELLS); row++)
      for (let column = Math.floor((u - reach) * CELLS); column <= Math.floor((u + reach) * CELLS); column++)
        for (const i of cells.get(column + CELLS * 2 * row) ?? []) {
          const away = (points.x[i] - u) ** 2 + (points.y[i] - v) ** 2;
          if (away < best) [best, found] = [away, i];
        }
    return found;
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (!points || event.button > 1) return;
    canvas.setPointerCapture(event.pointerId);
    hidePreview();
    const here = [event.offsetX, event.offsetY];
    held = { here, moving: !selecting || event.button === 1, from: { ...view } };
    if (!held.moving) line = [here];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!points) return;
    const here = [event.offsetX, event.offsetY];
    if (held?.moving) view = { ...view, left: held.from.left + here[0] - held.here[0], top: held.from.top + here[1] - held.here[1] };
    else if (line) line.push(here);
    else {
      const found = at(...here);
      if (found === under) return;
      under = found;
      if (found < 0) hidePreview();
      else preview(event, points.rows[found], cluster(points.clusters[found])?.name ?? "");
    }
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const drawn = line;
    [line, held] = [null, null];
    if (drawn?.length > 3) {
      const rows = [];
      for (let i = 0; i < points.n; i++)
        if (inside(points.x[i] * view.scale + view.left, points.y[i] * view.scale + view.top, drawn)) rows.push(points.rows[i]);
      if (!event.shiftKey) store.images.clear();
      selectImages(rows);
    } else if (drawn) {
      const found = at(event.offsetX, event.offsetY);
      if (found >= 0) selectImages([points.rows[found]], !store.images.has(points.rows[found]));
    }
    draw();
  });
  canvas.addEventListener("pointerleave", () => ((under = -1), hidePreview(), draw()));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    hidePreview();
    zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });

  function key(event) {
    if (isTyping(event)) return false;
    const by = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (by) {
      view = { ...view, left: view.left + by[0], top: view.top + by[1] };
      draw();
    } else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "Escape") go("#/");
    else return false;
    event.preventDefault();
    return true;
  }

  const watcher = new ResizeObserver(() => fit());
  watcher.observe(canvas);
  load();
  return { update: load, selection: draw, key, heading, focus: () => canvas.focus(), close: () => (watcher.disconnect(), hidePreview()) };
}
