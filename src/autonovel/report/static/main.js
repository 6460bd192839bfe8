// The frame of the page: where one is, the selection, undo and redo, keys that work everywhere.

import * as actions from "./actions.js";
import { clusterView } from "./clusterview.js";
import { showHelp } from "./dialogs.js";
import { count, h, isTyping } from "./dom.js";
import { mapView } from "./mapview.js";
import { notice, placeNotices } from "./notices.js";
import { overview } from "./overview.js";
import { searchView, unlikeView } from "./search.js";
import { clearSelection, prepare, redo, refresh, store, undo } from "./store.js";

const at = (id) => document.getElementById(id);
const place = at("view");
let view = null;
let first = true;

/** Show what the address names: #/, #/cluster/3, #/map, #/search/TEXT, #/unlike. */
function route() {
  const [, what = "", rest = ""] = location.hash.split("/").map(decodeURIComponent);
  view?.close();
  place.replaceChildren();
  if (what === "cluster" && /^-?\d+$/.test(rest)) view = clusterView(place, go, Number(rest));
  else if (what === "map") view = mapView(place, go);
  else if (what === "search" && rest) view = searchView(place, go, rest);
  else if (what === "unlike") view = unlikeView(place, go);
  else view = overview(place, go);
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === (what === "map" ? "#/map" : "#/");
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (!first && document.activeElement !== at("search")) view.heading.focus({ preventScroll: true }); // so that a screen reader says where it is now
  first = false;
  if (what !== "search" && document.activeElement !== at("search")) at("search").value = "";
  document.title = `${view.heading.textContent} · ${store.run.title}`;
}

function go(address) {
  if (location.hash === address) route();
  else location.hash = address;
}

/** Search while the person is typing; only the first letter makes a new entry of the history. */
function search() {
  const text = at("search").value.trim();
  const address = text ? `#/search/${encodeURIComponent(text)}` : "#/";
  if (!text || !view.search) return go(address);
  history.replaceState(null, "", address);
  view.search(text);
  document.title = `${view.heading.textContent} · ${store.run.title}`;
}

/** Do something that may take away what has the focus; then the view has it, so that keys go on working. */
function keepFocus(work) {
  const held = document.activeElement !== document.body;
  work();
  const now = document.activeElement;
  if (held && (now === document.body || now.disabled) && !document.querySelector("dialog[open]")) view?.focus();
}

function drawBar() {
  at("undo").disabled = !store.run.undo;
  at("redo").disabled = !store.run.redo;
}

function drawSelection() {
  const bar = at("selection");
  const [images, clusters] = [store.images.size, store.clusters.size];
  bar.hidden = !images && !clusters;
  const button = (text, act, kind = "") => h("button", { type: "button", class: kind, onclick: act }, text);
  const parts = [];
  if (clusters) {
    parts.push(h("span", {}, `${count(clusters, "cluster")} selected`));
    parts.push(button(clusters > 1 ? "Merge" : "Merge with…", () => actions.merge(), "primary"));
  }
  if (images) {
    parts.push(h("span", {}, `${count(images, "image")} selected`));
    parts.push(button("Move to…", () => actions.move(), "primary"));
    parts.push(button("New cluster", () => actions.gather()));
  }
  bar.replaceChildren(...parts, button("Clear", clearSelection));
}

let waitsForPlace = 0; // until when a "g" waits for the letter of a place

function onKey(event) {
  if (document.querySelector("dialog[open]") || event.altKey) return;
  const control = event.ctrlKey || event.metaKey;
  if (control && event.key.toLowerCase() === "z" && !isTyping(event)) event.shiftKey ? redo() : undo();
  else if (control && event.key.toLowerCase() === "y" && !isTyping(event)) redo();
  else if (control) return;
  else if (event.key === "Escape" && isTyping(event)) event.target.blur();
  else if (isTyping(event)) return;
  else if (Date.now() < waitsForPlace && "cm".includes(event.key)) go(event.key === "m" ? "#/map" : "#/");
  else if (event.key === "g") waitsForPlace = Date.now() + 1500;
  else if (event.key === "Escape" && (store.images.size || store.clusters.size)) clearSelection();
  else if (event.key === "?") showHelp();
  else if (event.key === "/") at("search").focus();
  else if (event.key === "u") undo();
  else if (event.key === "r") redo();
  else if (event.key === "v") actions.move();
  else if (event.key === "c") actions.gather();
  else return void view?.key(event);
  if (event.key !== "g") waitsForPlace = 0;
  event.preventDefault();
}

async function lookAgain() {
  if (document.visibilityState !== "visible" || document.querySelector("dialog[open]")) return;
  try {
    if (await refresh()) notice("The clusters were changed elsewhere; this page shows the latest.");
  } catch {
    // said when the person next changes something
  }
}

async function start() {
  if (location.pathname !== "/") history.replaceState(null, "", "/" + location.hash); // the token leaves the address
  placeNotices(at("notices"), undo, keepFocus);
  at("undo").addEventListener("click", undo);
  at("redo").addEventListener("click", redo);
  at("help").addEventListener("click", showHelp);
  let typing = 0;
  at("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 200);
  });
  at("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    search();
    at("search").blur(); // the arrow keys go through what was found
  });
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  addEventListener("focus", lookAgain);
  document.addEventListener("visibilitychange", lookAgain);
  try {
    await prepare();
  } catch (error) {
    return notice(error.message, { failed: true });
  }
  drawBar();
  const redraw = () => (drawBar(), drawSelection(), view?.update());
  store.addEventListener("run", () => keepFocus(redraw));
  store.addEventListener("selection", () => keepFocus(() => (drawSelection(), view?.selection())));
  route();
}

start();
