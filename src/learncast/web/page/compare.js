// A table that compares kept settings: what differs between them, and how the numbers change.

import { addressOf } from "./address.js";
import { formatNumber } from "./charts.js";
import { fileName } from "./files.js";
import { node } from "./part.js";

const MOST = 4;
const kept = new Map();

/** The kept settings of a panel. */
export function keptOf(panel) {
  return kept.get(panel.name) || [];
}

/** Keep the current settings with their numbers. */
export function keep(panel, state, readings) {
  const own = keptOf(panel);
  if (own.length >= MOST || !readings.length) return false;
  const used = new Set(own.map((one) => one.name));
  const name = ["A", "B", "C", "D"].find((letter) => !used.has(letter));
  kept.set(panel.name, [...own, { name, state, readings }].sort((a, b) => a.name.localeCompare(b.name)));
  return true;
}

/** Show the table: a column for each kept state and one for the current state. */
export function compare(box, panel, state, readings, changed) {
  const own = keptOf(panel);
  if (!own.length) {
    box.replaceChildren();
    return;
  }
  const columns = [...own, { name: "now", state, readings }];
  const table = node("table");
  const head = table.createTHead().insertRow();
  head.append(node("th", { textContent: "", scope: "col" }));
  for (const one of columns) head.append(header(one, panel, changed));
  const body = table.createTBody();
  for (const control of panel.controls) {
    const values = columns.map((one) => JSON.stringify(one.state[control.key]));
    if (control.key === "time" || control.key === "topic" || new Set(values).size === 1) continue;
    row(body, control.label, columns.map((one) => formatSetting(control.key, one.state[control.key])), "setting");
  }
  const labels = new Set(columns.flatMap((one) => one.readings.filter((reading) => !reading.frames).map((reading) => reading.label)));
  for (const label of labels) {
    const found = columns.map((one) => one.readings.find((reading) => reading.label === label));
    if (new Set(found.map((one) => one?.text)).size === 1) continue;
    const last = found[found.length - 1];
    row(body, label, found.map((one, k) => (one ? one.text + (k < own.length && sameProblem(columns[k].state, state) ? difference(one, last) : "") : "—")), "reading");
  }
  const wrap = node("div", { className: "scroll", tabIndex: 0 });
  wrap.setAttribute("role", "region");
  wrap.setAttribute("aria-label", "Kept settings");
  wrap.append(table);
  box.replaceChildren(wrap);
}

function header(one, panel, changed) {
  const cell = node("th", { scope: "col" });
  if (one.name === "now") {
    cell.textContent = "now";
    return cell;
  }
  cell.append(node("a", { href: addressOf(panel, one.state), textContent: one.name }));
  const button = node("button", { type: "button", textContent: "×" });
  button.setAttribute("aria-label", `Forget ${one.name}`);
  button.addEventListener("click", () => {
    kept.set(panel.name, keptOf(panel).filter((other) => other !== one));
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

/** How much the current number differs from a kept one. */
function difference(one, last) {
  if (!last || typeof one.value !== "number" || typeof last.value !== "number") return "";
  const change = last.value - one.value;
  if (!Number.isFinite(change) || change === 0) return "";
  return ` (now ${change > 0 ? "+" : "−"}${formatNumber(Math.abs(change), 3)})`;
}

/** Whether two states ask about the same kind of task, so that their numbers can be subtracted. */
function sameProblem(one, other) {
  return ["data", "family"].every((key) => one[key] === other[key]);
}

function formatSetting(key, value) {
  if (value === null) return "none";
  if (key === "data") return fileName(value);
  if (Array.isArray(value)) return value.map((one) => formatNumber(one, 2)).join(" ");
  return typeof value === "number" ? formatNumber(value) : String(value).replaceAll("_", " ");
}
