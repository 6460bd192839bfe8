// What a person can do to clusters and images: ask what is needed, send the change, say what was done.

import { askCluster, askCount, askMark, askName, askSplit } from "./dialogs.js";
import { count } from "./dom.js";
import { notice } from "./notices.js";
import { clearSelection, cluster, edit, getJSON, store } from "./store.js";

const quoted = (number) => `“${cluster(number).name}”`;

export async function name(number) {
  const given = await askName(cluster(number));
  if (given === null) return;
  await edit({ do: "name", cluster: number, name: given }, `Named “${given.trim()}”.`);
}

/** Give a cluster's images to the clusters that each of them is most like. */
export const dissolve = (number) => edit({ do: "dissolve", cluster: number }, `Dissolved ${quoted(number)}: its images are where they fit best.`);

export async function split(number) {
  const one = cluster(number);
  if (one.size < 2) return notice("A cluster of one image cannot be split.");
  const parts = await askSplit(one);
  if (parts !== null) await edit({ do: "split", cluster: number, into: parts }, `Split into ${parts} clusters.`);
}

export async function mark(number) {
  const one = cluster(number);
  const as = await askMark(one);
  if (as === null || as === (one.kind === "known" ? one.name : one.kind)) return;
  const what = as === "new" ? `a ${store.run.kind[0]}` : as === "not a class" ? "no class" : `the known class “${as}”`;
  await edit({ do: "mark", cluster: number, kind: as }, `Marked as ${what}.`);
}

/** Merge the selected clusters; with fewer than two, ask which one `number` should be merged into. */
export async function merge(number = null) {
  const chosen = [...store.clusters];
  if (chosen.length < 2) {
    const from = number ?? chosen[0];
    if (from === undefined) return notice("Select two clusters to merge them.");
    const leftOut = store.run.clusters.map((one) => one.number).filter((other) => other < 0 || other === from);
    const near = await getJSON(`/api/clusters/${from}/alike`).catch(() => []);
    const to = await askCluster(`Merge ${quoted(from)} with which cluster?`, { leftOut: new Set(leftOut), near });
    if (to !== null && (await edit({ do: "merge", clusters: [to, from] }, "Merged."))) clearSelection();
    return;
  }
  await mergeAll(chosen);
}

/** Make one cluster of several. */
export async function mergeAll(chosen) {
  // a named cluster gives its name to the others; among several the largest does
  chosen.sort((a, b) => cluster(b).named - cluster(a).named || cluster(b).size - cluster(a).size);
  if (await edit({ do: "merge", clusters: chosen }, `Merged ${chosen.length} clusters.`)) clearSelection();
}

/** Move the selected images, or the given ones, to another cluster. */
export async function move(rows = [...store.images]) {
  if (!rows.length) return notice("Select images to move them (x, or the corner of an image).");
  const shown = new Set(store.run.clusters.map((one) => one.name));
  const known = store.run.known.filter((name) => !shown.has(name)).map((name) => ({ text: `${name} (known class)`, value: name }));
  const chosen = await askCluster(`Move ${count(rows.length, "image")} to which cluster?`, { extra: known });
  if (chosen === null) return;
  const to = typeof chosen === "number" && chosen < 0 ? cluster(chosen).name : chosen; // known classes go by name
  const said = `Moved ${count(rows.length, "image")} to ${typeof to === "number" ? quoted(to) : `“${to}”`}.`;
  if (await edit({ do: "move", images: rows, to }, said)) clearSelection();
}

/** Make a cluster of the selected images. */
export async function gather(rows = [...store.images]) {
  if (!rows.length) return notice("Select images to make a cluster of them (on the map, or with x).");
  if (await edit({ do: "move", images: rows, to: null }, `Made a cluster of ${count(rows.length, "image")}.`)) clearSelection();
}

/** Group the images of all new classes again, into another number of them. */
export async function regroup() {
  const found = store.run.clusters.filter((one) => one.kind === "new");
  const most = found.reduce((sum, one) => sum + one.size, 0);
  const k = await askCount(found.length, most);
  if (k !== null && k !== found.length) await edit({ do: "regroup", n_new: k }, `Grouped again into ${count(k, ...store.run.kind)}.`);
}
