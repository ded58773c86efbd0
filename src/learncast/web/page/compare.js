// Settings kept side by side: what was changed between them, and by how much the answers differ.

import { written } from "./address.js";
import { rounded } from "./panels.js";
import { node } from "./view.js";

const MOST = 4;
const kept = new Map();

/** Settings kept of a room, in the order in which they were. */
export function keptOf(room) {
  return kept.get(room.name) || [];
}

/** Keep a setting with what is read from it. */
export function keep(room, state, readings) {
  const own = keptOf(room);
  if (own.length >= MOST || !readings.length) return false;
  const used = new Set(own.map((one) => one.name));
  const name = ["A", "B", "C", "D"].find((letter) => !used.has(letter));
  kept.set(room.name, [...own, { name, state, readings }].sort((a, b) => a.name.localeCompare(b.name)));
  return true;
}

/** The table: one column for each kept setting, one for the present. */
export function compare(box, room, state, readings, changed) {
  const own = keptOf(room);
  if (!own.length) {
    box.replaceChildren();
    return;
  }
  const columns = [...own, { name: "now", state, readings }];
  const table = node("table");
  const head = table.createTHead().insertRow();
  head.append(node("th", { textContent: "", scope: "col" }));
  for (const one of columns) head.append(header(one, room, changed));
  const body = table.createTBody();
  for (const control of room.controls) {
    const values = columns.map((one) => JSON.stringify(one.state[control.key]));
    if (control.key === "time" || control.key === "topic" || new Set(values).size === 1) continue;
    row(body, control.label, columns.map((one) => worded(one.state[control.key])), "setting");
  }
  const labels = new Set(columns.flatMap((one) => one.readings.filter((reading) => !reading.film).map((reading) => reading.label)));
  for (const label of labels) {
    const found = columns.map((one) => one.readings.find((reading) => reading.label === label));
    if (new Set(found.map((one) => one?.words)).size === 1) continue;
    const last = found[found.length - 1];
    row(body, label, found.map((one, k) => (one ? one.words + (k < own.length ? apart(one, last) : "") : "—")), "reading");
  }
  const wrap = node("div", { className: "scroll", tabIndex: 0 });
  wrap.setAttribute("role", "region");
  wrap.setAttribute("aria-label", "Kept settings");
  wrap.append(table);
  box.replaceChildren(wrap);
}

function header(one, room, changed) {
  const cell = node("th", { scope: "col" });
  if (one.name === "now") {
    cell.textContent = "now";
    return cell;
  }
  cell.append(node("a", { href: written(room, one.state), textContent: one.name }));
  const button = node("button", { type: "button", textContent: "×" });
  button.setAttribute("aria-label", `Forget ${one.name}`);
  button.addEventListener("click", () => {
    kept.set(room.name, keptOf(room).filter((other) => other !== one));
    changed();
  });
  cell.append(button);
  return cell;
}

function row(body, label, cells, kind) {
  const line = body.insertRow();
  line.className = kind;
  line.append(node("th", { textContent: label, scope: "row" }), ...cells.map((text) => node("td", { textContent: text })));
}

/** By how much the present differs from a kept number. */
function apart(one, last) {
  if (!last || typeof one.value !== "number" || typeof last.value !== "number") return "";
  const change = last.value - one.value;
  if (!Number.isFinite(change) || change === 0) return "";
  return ` (now ${change > 0 ? "+" : "−"}${rounded(Math.abs(change), 3)})`;
}

function worded(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return value.map((one) => rounded(one, 2)).join(" ");
  return typeof value === "number" ? rounded(value) : String(value).replaceAll("_", " ");
}
