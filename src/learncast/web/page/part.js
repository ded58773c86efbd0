// One part of a panel on the page: its validity, notes, numbers, charts and text.

/* global Plotly */

import { draw, formatNumber, formatUnit, hoverText, isMatrix, isNarrow, legend, markTime, saveChart, showFrame } from "./charts.js";
import { setText, withTerms } from "./glossary.js";
import { isStatic } from "./requests.js";

export class Part {
  /**
   * @param {string} name
   * @param {{main: Element, side: Element}} places hold the main chart and the second picture
   * @param {object} actions `connect(element, current)` for a new chart, `again()` computes anyway, `busy()` after a computation
   *   started or ended, `drawn(part)` after a chart was drawn, `settings()` returns the settings as a list of texts
   */
  constructor(name, places, actions) {
    this.name = name;
    this.places = places;
    this.actions = actions;
    this.figures = new Map();
    this.view = null;
    this.overlays = {};
    this.marks = [];
    this.element = node("section", { className: "part" });
    this.element.dataset.part = name;
    this.validity = node("details", { className: "validity" });
    this.notes = node("div");
    this.readings = node("div", { className: "readings" });
    this.charts = node("div", { className: "charts" });
    this.text = node("p", { className: "summary" });
    this.element.append(this.validity, this.notes, this.readings, this.charts, this.text);
  }

  setBusy(busy) {
    this.element.setAttribute("aria-busy", String(busy));
    this.actions.busy();
  }

  /** Show an answer; the part stays busy until the answer to the last request. */
  show(view, last = true) {
    if (last) this.setBusy(false);
    this.view = view;
    this.element.classList.remove("rejected");
    this.element.classList.toggle("outside", view.validity?.kind === "outside");
    this.showValidity(view.validity);
    this.notes.replaceChildren(...view.notes.map((note) => {
      const line = node("p", { className: `note ${note.tone}` });
      line.append(withTerms(note.text));
      return line;
    }));
    this.readings.replaceChildren(...grouped(view.readings));
    setText(this.text, view.text);
    const keys = new Set(view.charts.map((chart) => chart.key));
    for (const [key, slot] of this.figures) {
      if (!keys.has(key)) this.drop(key, slot);
    }
    // All figures are inserted before the first is drawn, so that each has its final width.
    for (const chart of view.charts) this.addFigure(chart);
    for (const chart of view.charts) this.showChart(chart);
  }

  drop(key, slot) {
    slot.observer.disconnect();
    Plotly.purge(slot.plot);
    slot.figure.remove();
    this.figures.delete(key);
  }

  close() {
    for (const [key, slot] of this.figures) this.drop(key, slot);
    this.element.remove();
  }

  /** Show why there is no answer; the charts of the earlier setting fade. */
  reject(message, { busy = false, again = false } = {}) {
    this.setBusy(busy);
    this.element.classList.add("rejected");
    const line = node("p", { className: "note error", textContent: message });
    if (again) {
      const button = node("button", { type: "button", textContent: "Compute anyway" });
      button.addEventListener("click", this.actions.again);
      line.append(" ", button);
    }
    this.notes.replaceChildren(line);
    for (const slot of this.figures.values()) slot.figure.classList.add("rejected");
  }

  /** Keep the curves of this setting, to draw them faintly behind the next ones. */
  remember() {
    for (const slot of this.figures.values()) slot.previous = slot.chart;
  }

  /** Forget the curves that are kept. */
  forget() {
    for (const slot of this.figures.values()) slot.previous = null;
  }

  redraw() {
    for (const slot of this.figures.values()) this.paint(slot);
  }

  /** Add another part's overlay and the marks of kept settings to a chart. */
  addOverlay(key, overlay, marks) {
    if (this.overlays[key] === overlay && JSON.stringify(this.marks) === JSON.stringify(marks)) return;
    this.overlays[key] = overlay;
    this.marks = marks;
    const slot = this.figures.get(key);
    if (slot) this.paint(slot);
  }

  /** Show one frame of every animation. */
  showFrame(k, time) {
    for (const slot of this.figures.values()) {
      if (!slot.plot.data) continue;
      if (slot.at !== k) showFrame(slot.plot, slot.chart, k);
      slot.at = k;
      markTime(slot.plot, slot.chart, time);
    }
    for (const value of this.readings.querySelectorAll("dd[data-frames]")) {
      const one = this.view.readings.find((other) => other.label === value.dataset.reading);
      if (one?.frames) value.firstChild.textContent = one.frames[k];
    }
  }

  showValidity(validity) {
    if (!validity) {
      this.validity.replaceChildren();
      return;
    }
    const summary = node("summary");
    // A condition that is not binding may fail without making the forecast invalid.
    const holds = validity.kind !== "outside" && (validity.kind !== "measured" || validity.rows.every((row) => row[3]));
    summary.append(
      node("span", { className: holds ? "badge" : "badge doubtful", textContent: validity.kind }),
      ` ${validity.sentence}`,
    );
    const table = node("table");
    const head = table.createTHead().insertRow();
    for (const title of ["condition", "measured", "at most", "holds", "explanation"]) head.append(node("th", { textContent: title, scope: "col" }));
    const body = table.createTBody();
    for (const [name, measured, allowed, ok, sentence] of validity.rows) {
      const row = body.insertRow();
      row.append(
        node("td", { textContent: name }), node("td", { textContent: formatNumber(measured) }), node("td", { textContent: formatNumber(allowed) }),
        node("td", { textContent: ok ? "yes" : "no", className: ok ? "" : "fails" }), node("td", { textContent: sentence }),
      );
    }
    const wrap = node("div", { className: "scroll" });
    wrap.append(table);
    this.validity.replaceChildren(summary, ...(validity.rows.length ? [wrap] : []));
  }

  addFigure(chart) {
    const own = this.figures.get(chart.key);
    if (own && own.chart.main === chart.main && own.chart.side === chart.side) return;
    // A chart of the same name may be the main one for other settings.
    if (own) this.drop(chart.key, own);
    const slot = newFigure(chart, this.actions.settings);
    this.figures.set(chart.key, slot);
    (chart.main ? this.places.main : chart.side ? this.places.side : this.charts).append(slot.figure);
    slot.observer = new ResizeObserver(() => this.resize(slot));
    slot.observer.observe(slot.plot);
  }

  resize(slot) {
    if (!slot.plot.data || !slot.plot.offsetParent) return;
    const { width, height } = slot.plot.getBoundingClientRect();
    const same = Math.abs(width - slot.plot._fullLayout.width) < 1 && Math.abs(height - slot.plot._fullLayout.height) < 1;
    if (same && slot.plot.dataset.narrow === String(isNarrow(slot.plot))) return;
    this.paint(slot);
    // Plotly measures the width again only when asked.
    if (!same) Plotly.Plots.resize(slot.plot);
  }

  showChart(chart) {
    const slot = this.figures.get(chart.key);
    slot.chart = chart;
    slot.figure.classList.remove("rejected");
    slot.title.textContent = chart.title;
    slot.plot.setAttribute("aria-label", chart.title);
    this.paint(slot);
    if (slot.connected) return;
    slot.connected = true;
    this.actions.connect(slot.plot, () => slot.chart);
    slot.plot.on("plotly_hover", (event) => {
      slot.readout.textContent = hoverText(slot.chart, event.points);
    });
    slot.plot.on("plotly_unhover", () => {
      slot.readout.textContent = "";
    });
  }

  paint(slot) {
    const more = { overlay: this.overlays[slot.chart.key], previous: slot.previous, marks: slot.chart.picks ? this.marks : [] };
    slot.at = null;
    draw(slot.plot, slot.chart, more);
    slot.legend.replaceChildren(...legend(slot.chart, more));
    slot.hint.textContent = [more.overlay?.caption, hintOf(slot.chart)].filter(Boolean).join(" ");
    this.actions.drawn(this);
  }
}

/** What the pointer and the keyboard do on a chart. */
function hintOf(chart) {
  if (isStatic) return "";
  if (chart.drags) return "Drag the points. Keyboard: left and right select a point, up and down move it.";
  if (!chart.picks) return "";
  if (chart.traces.some((trace) => trace.role === "pinned")) return "Drag the pin. Keyboard: arrow keys move it, Escape removes it.";
  return "Click to pin a curriculum. Keyboard: Enter pins one.";
}

function newFigure(chart, settings) {
  const kinds = ["chart", chart.main ? "main" : "", chart.side ? "side" : "", isMatrix(chart) ? "matrix" : ""];
  const figure = node("figure", { className: kinds.join(" ").trim() });
  figure.dataset.chart = chart.key;
  const title = node("h2");
  const plot = node("div", { className: "plot", tabIndex: 0 });
  plot.setAttribute("role", chart.picks || chart.drags || chart.x.clock ? "application" : "img");
  const caption = node("figcaption");
  caption.append(title);
  const list = node("ul", { className: "legend" });
  const readout = node("p", { className: "readout" });
  const hint = node("p", { className: "hint" });
  const slot = { figure, title, plot, chart, readout, hint, legend: list, connected: false, observer: null, previous: null, at: null };
  const save = node("p", { className: "save" });
  for (const format of ["png", "svg"]) {
    const button = node("button", { type: "button", textContent: format.toUpperCase() });
    button.setAttribute("aria-label", `Save this chart as ${format.toUpperCase()}`);
    button.addEventListener("click", () => saveChart(plot, slot.chart, settings(), format));
    save.append(button);
  }
  figure.append(caption, list, plot, readout, hint, save);
  return slot;
}

/** Readings below the name of their group, if it has one. */
function grouped(readings) {
  return [...new Set(readings.filter((one) => one.shown).map((one) => one.group))].map((name) => {
    const list = node("dl");
    const own = readings.filter((one) => one.shown && one.group === name);
    list.append(...own.map((one) => reading(one, own)));
    const box = node("section");
    box.append(...(name ? [node("h3", { textContent: name })] : []), list);
    return box;
  });
}

function reading(one, all) {
  const box = node("div");
  // The flow's number is in the table of numbers (CSV) if both are given.
  if (all.some((other) => one.label === `${other.label} (flow)`)) box.className = "flow";
  const value = node("dd");
  value.append(one.text);
  // Text such as "never" has no unit.
  if (one.unit !== "1" && /^[-+−]?[\d.,]+(e[-+]?\d+)?( \(.*\))?$/i.test(one.text)) value.append(node("small", { textContent: ` ${formatUnit(one.unit)}` }));
  value.dataset.reading = one.label;
  value.dataset.value = String(one.value);
  if (one.frames) value.dataset.frames = "yes";
  const label = node("dt");
  label.append(withTerms(one.label));
  box.append(label, value);
  return box;
}

export function node(kind, properties = {}) {
  return Object.assign(document.createElement(kind), properties);
}
