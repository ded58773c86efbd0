// One part of a room on the page: how far it can be trusted, its numbers, its pictures, its words.

/* global Plotly */

import { draw } from "./panels.js";

export class Part {
  /** @param {string} name @param {(element: Element, current: () => object) => void} touched called for a new panel */
  constructor(name, touched) {
    this.touched = touched;
    this.panels = new Map();
    this.element = node("section", { className: "part" });
    this.element.dataset.part = name;
    this.validity = node("details", { className: "validity" });
    this.notes = node("div");
    this.readings = node("dl", { className: "readings" });
    this.pictures = node("div", { className: "panels" });
    this.words = node("p", { className: "words" });
    this.element.append(this.validity, this.notes, this.readings, this.pictures, this.words);
  }

  /** Show an answer; busy until it is that of the last question. */
  show(view, last = true) {
    this.element.setAttribute("aria-busy", String(!last));
    this.element.classList.remove("refused");
    this.showValidity(view.validity);
    this.notes.replaceChildren(...view.notes.map((note) => node("p", { className: `note ${note.tone}`, textContent: note.text })));
    this.readings.replaceChildren(...view.readings.map(reading));
    this.words.textContent = view.words;
    const keys = new Set(view.panels.map((panel) => panel.key));
    for (const [key, frame] of this.panels) {
      if (!keys.has(key)) this.drop(key, frame);
    }
    // All frames stand before the first is drawn: a picture takes the width that it finds.
    for (const panel of view.panels) this.frame(panel);
    for (const panel of view.panels) this.showPanel(panel);
  }

  drop(key, frame) {
    frame.observer.disconnect();
    Plotly.purge(frame.plot);
    frame.figure.remove();
    this.panels.delete(key);
  }

  close() {
    for (const [key, frame] of this.panels) this.drop(key, frame);
    this.element.remove();
  }

  /** Say why there is no answer; what an earlier setting showed does not belong to this one. */
  refuse(sentence) {
    this.element.setAttribute("aria-busy", "false");
    this.element.classList.add("refused");
    this.notes.replaceChildren(node("p", { className: "note error", textContent: sentence }));
  }

  redraw() {
    for (const frame of this.panels.values()) draw(frame.plot, frame.panel);
  }

  showValidity(validity) {
    if (!validity) {
      this.validity.replaceChildren();
      return;
    }
    const summary = node("summary");
    // A condition that does not bind may fail without touching the promise.
    const holds = validity.kind !== "outside" && (validity.kind !== "measured" || validity.rows.every((row) => row[3]));
    summary.append(
      node("span", { className: holds ? "badge" : "badge doubtful", textContent: validity.kind }),
      ` ${validity.sentence}`,
    );
    const table = node("table");
    const head = table.createTHead().insertRow();
    for (const word of ["condition", "measured", "allowed", "holds", "why"]) head.append(node("th", { textContent: word }));
    const body = table.createTBody();
    for (const [name, measured, allowed, ok, sentence] of validity.rows) {
      const row = body.insertRow();
      row.append(
        node("td", { textContent: name }), node("td", { textContent: number(measured) }), node("td", { textContent: number(allowed) }),
        node("td", { textContent: ok ? "yes" : "no", className: ok ? "" : "fails" }), node("td", { textContent: sentence }),
      );
    }
    this.validity.replaceChildren(summary, ...(validity.rows.length ? [table] : []));
  }

  frame(panel) {
    if (this.panels.has(panel.key)) return;
    const frame = framed(panel);
    this.panels.set(panel.key, frame);
    this.pictures.append(frame.figure);
    frame.observer = new ResizeObserver(() => frame.plot.data && frame.plot.offsetParent && Plotly.Plots.resize(frame.plot));
    frame.observer.observe(frame.plot);
  }

  showPanel(panel) {
    const frame = this.panels.get(panel.key);
    frame.panel = panel;
    frame.title.textContent = panel.title;
    frame.plot.setAttribute("aria-label", panel.title);
    draw(frame.plot, panel);
    if (!frame.touched) {
      frame.touched = true;
      this.touched(frame.plot, () => frame.panel);
    }
  }
}

function framed(panel) {
  const figure = node("figure", { className: panel.picks ? "panel large" : "panel" });
  figure.dataset.panel = panel.key;
  const title = node("h2");
  const plot = node("div", { className: "plot", tabIndex: 0 });
  plot.setAttribute("role", "img");
  const caption = node("figcaption");
  caption.append(title);
  for (const format of ["png", "svg"]) {
    const button = node("button", { type: "button", textContent: format.toUpperCase(), title: `Save this picture as ${format.toUpperCase()}` });
    button.addEventListener("click", () => save(plot, panel.key, format));
    caption.append(button);
  }
  figure.append(caption, plot);
  if (panel.picks) figure.append(node("p", { className: "hint", textContent: "Click the picture to pin a curriculum; with the keyboard, arrow keys move the pin, Escape takes it away." }));
  if (panel.grips) figure.append(node("p", { className: "hint", textContent: "Drag the points; with the keyboard, left and right choose a point, up and down move it." }));
  return { figure, title, plot, panel, touched: false, observer: null };
}

function save(plot, name, format) {
  const { width, height } = plot.getBoundingClientRect();
  return Plotly.downloadImage(plot, { format, filename: `learncast-${name}`, width, height, scale: format === "png" ? 2 : 1 });
}

function reading(one) {
  const box = node("div");
  const value = node("dd", { textContent: one.words });
  // Words such as "never" have no unit.
  if (one.unit !== "1" && /^[-+]?[\d.,]+(e[-+]?\d+)?$/i.test(one.words)) value.append(node("small", { textContent: ` ${one.unit}` }));
  value.dataset.reading = one.label;
  value.dataset.value = String(one.value);
  box.append(node("dt", { textContent: one.label }), value);
  return box;
}

function number(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : value;
}

export function node(kind, properties = {}) {
  return Object.assign(document.createElement(kind), properties);
}
