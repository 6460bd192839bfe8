"use strict";
// The map: draws the points and shows the picture of the one that is pointed at.
(() => {
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const canvas = document.getElementById("points");
  const box = document.getElementById("hover");
  const shorts = (text) => new Uint16Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  const [xs, ys, clusters] = [shorts(data.x), shorts(data.y), shorts(data.cluster)];
  let view = { scale: 1, left: 0, top: 0 };
  let under = -1;

  function place() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const scale = Math.min(width, height) - 40;
    view = { scale, left: (width - scale) / 2, top: (height - scale) / 2 };
  }
  const xOf = (i) => (xs[i] / 65535) * view.scale + view.left;
  const yOf = (i) => (ys[i] / 65535) * view.scale + view.top;

  function draw() {
    const ratio = Math.max(2, window.devicePixelRatio || 1); // sharp on paper too
    place();
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const radius = Math.max(1.2, Math.min(4, 110 / Math.sqrt(xs.length + 1)));
    pen.globalAlpha = 0.8;
    for (let i = 0; i < xs.length; i++) {
      pen.fillStyle = data.clusters[clusters[i]].colour;
      pen.beginPath();
      pen.arc(xOf(i), yOf(i), radius, 0, 7);
      pen.fill();
    }
    if (under < 0) return;
    pen.globalAlpha = 1;
    pen.strokeStyle = getComputedStyle(canvas).color;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(xOf(under), yOf(under), radius + 3, 0, 7);
    pen.stroke();
  }

  function nearest(x, y) {
    let [best, found] = [18 * 18, -1];
    data.pictures.forEach((i, order) => {
      const away = (xOf(i) - x) ** 2 + (yOf(i) - y) ** 2;
      if (away < best) [best, found] = [away, order];
    });
    return found;
  }

  function show(order) {
    const i = data.pictures[order];
    const cells = data.columns * data.columns;
    const [sheet, cell] = [Math.floor(order / cells), order % cells];
    const picture = document.getElementById("hover-picture");
    picture.style.backgroundImage = `url(${data.sheets[sheet]})`;
    picture.style.backgroundSize = `${data.columns * 144}px auto`;
    picture.style.backgroundPosition = `${-(cell % data.columns) * 144}px ${-Math.floor(cell / data.columns) * 144}px`;
    document.getElementById("hover-name").textContent = `${data.names[order]}: ${data.clusters[clusters[i]].name}`;
    box.hidden = false;
    const right = xOf(i) + 20 + box.offsetWidth < canvas.clientWidth;
    box.style.left = `${right ? xOf(i) + 16 : xOf(i) - 16 - box.offsetWidth}px`;
    box.style.top = `${Math.max(4, Math.min(yOf(i) - box.offsetHeight / 2, canvas.clientHeight - box.offsetHeight - 4))}px`;
  }

  canvas.addEventListener("pointermove", (event) => {
    const order = nearest(event.offsetX, event.offsetY);
    const point = order < 0 ? -1 : data.pictures[order];
    if (point === under) return;
    under = point;
    draw();
    if (order < 0) box.hidden = true;
    else show(order);
  });
  canvas.addEventListener("pointerleave", () => {
    under = -1;
    box.hidden = true;
    draw();
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
