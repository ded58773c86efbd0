// A small diagram of a network and its tasks: lines for weights, bars for the strength of each input.

import { theme, decode } from "./charts.js";

const [WIDTH, HEIGHT] = [300, 128];
const MOST_BARS = 40;
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text for use inside markup: names may come from files. */
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => ENTITIES[sign]);

/** Draw a diagram in an element with the weights of frame `k`. */
export function drawDiagram(box, diagram, k) {
  if (!diagram) {
    box.replaceChildren();
    return;
  }
  const look = theme();
  const [left, right] = diagram.strengths.length ? [118, WIDTH - 26] : [26, WIDTH - 26];
  const places = unitPositions(diagram.layers, left, right);
  const weights = diagram.edges.map((edge) => (edge.frames && k !== null ? decode(edge.frames)[k] : edge.weight));
  const largest = Math.max(1e-9, ...diagram.edges.flatMap((edge, j) => [Math.abs(weights[j]), ...extremes(edge)]).filter(Number.isFinite));
  const lines = diagram.edges.map((edge, j) => line(edge, weights[j], largest, places, look, diagram.edges.length < 8));
  const units = [...places.values()].map(([x, y]) => `<circle cx="${x}" cy="${y}" r="9" fill="${look.card}" stroke="${look.ink}" stroke-width="1.5"/>`);
  const names = diagram.layers.map(([name]) => `<text x="${places.get(`${name} 0`)[0]}" y="${HEIGHT - 3}" text-anchor="middle">${escaped(name)}</text>`);
  const bars = diagram.strengths.map((one, row) => strengthBars(one, row, diagram.strengths.length, look));
  box.innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"><title></title>${bars.join("")}${lines.join("")}${units.join("")}${names.join("")}</svg>`;
  box.querySelector("title").textContent = [diagram.caption, ...diagram.strengths.map(([label]) => label)].join("; ");
  const caption = document.createElement("p");
  caption.textContent = `${diagram.caption}.`;
  box.append(caption);
}

function extremes(edge) {
  if (!edge.frames) return [];
  const frames = decode(edge.frames);
  return [frames[0], frames[frames.length - 1]].map(Math.abs);
}

function unitPositions(layers, left, right) {
  const found = new Map();
  layers.forEach(([name, units], layer) => {
    const x = layers.length > 1 ? left + ((right - left) * layer) / (layers.length - 1) : (left + right) / 2;
    const gap = Math.min(34, 96 / units);
    for (let k = 0; k < units; k += 1) found.set(`${name} ${k}`, [x, 58 + gap * (k - (units - 1) / 2)]);
  });
  return found;
}

function line(edge, weight, largest, places, look, labelled) {
  const [from, to] = [places.get(edge.source), places.get(edge.target)];
  if (!from || !to || !Number.isFinite(weight)) return "";
  const width = 0.6 + 6 * Math.min(1, Math.abs(weight) / largest);
  const style = `stroke="${look.signed[weight < 0 ? 1 : 3][1]}" stroke-width="${width.toFixed(2)}" stroke-opacity="0.85" fill="none"`;
  const number = Number(weight.toPrecision(2));
  if (from === to) {
    const [x, y] = from;
    return `<path d="M${x - 7} ${y - 6}C${x - 22} ${y - 44} ${x + 22} ${y - 44} ${x + 7} ${y - 6}" ${style}/><text x="${x}" y="${y - 40}" text-anchor="middle">${escaped(edge.label)} ${number}</text>`;
  }
  const label = labelled ? `<text x="${(from[0] + to[0]) / 2}" y="${(from[1] + to[1]) / 2 + 22}" text-anchor="middle">${escaped(edge.label.split(" ")[0])} ${number}</text>` : "";
  return `<line x1="${from[0]}" y1="${from[1]}" x2="${to[0]}" y2="${to[1]}" ${style}/>${label}`;
}

/** Bars for the strength of each input in a task, the newest on the right. */
function strengthBars([label, packed, series], row, rows, look) {
  const values = decode(packed);
  const every = Math.ceil(values.length / MOST_BARS);
  const kept = values.filter((_, k) => k % every === 0);
  const largest = Math.max(1e-9, ...kept.map(Math.abs));
  const [height, top] = [rows > 1 ? 34 : 62, row * 60 + 18];
  const middle = kept.some((value) => value < 0) ? top + height / 2 : top + height;
  const scale = kept.some((value) => value < 0) ? height / 2 : height;
  const step = 84 / kept.length;
  const bars = kept.map((value, k) => {
    const size = Math.max(0.5, (Math.abs(value) / largest) * scale);
    return `<rect x="${(6 + 84 - step * (k + 1)).toFixed(2)}" y="${(value < 0 ? middle : middle - size).toFixed(2)}" width="${Math.max(0.8, step - 1).toFixed(2)}" height="${size.toFixed(2)}" fill="${look.series[series % look.series.length]}"/>`;
  });
  const name = label.split(",")[0];
  return `<text x="6" y="${top - 6}">${escaped(name)}</text>${bars.join("")}${row === rows - 1 ? `<text x="6" y="${HEIGHT - 3}" class="faint">oldest … newest</text>` : ""}`;
}
