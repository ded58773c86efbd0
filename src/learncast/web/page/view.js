// One part of a room on the page: how far it can be trusted, its numbers, its pictures, its words.

/* global Plotly */

import { draw, isMatrix, isNarrow, legend, moment, rounded, save, timed, told, pretty } from "./panels.js";
import { explained, tell } from "./words.js";

/** Milliseconds after which a computation says what it does. */
const PATIENCE = 500;

export class Part {
  /**
   * @param {string} name
   * @param {Element} stage where the room's own picture stands
   * @param {object} hands `touched(element, current)` for a new panel, `cancel()`, `again()`, `doing()` for its words
   */
  constructor(name, stage, hands) {
    this.name = name;
    this.stage = stage;
    this.hands = hands;
    this.panels = new Map();
    this.view = null;
    this.overlays = {};
    this.marks = [];
    this.element = node("section", { className: "part" });
    this.element.dataset.part = name;
    this.waiting = node("p", { className: "waiting", hidden: true });
    this.validity = node("details", { className: "validity" });
    this.notes = node("div");
    this.readings = node("dl", { className: "readings" });
    this.pictures = node("div", { className: "panels" });
    this.words = node("p", { className: "words" });
    this.element.append(this.waiting, this.validity, this.notes, this.readings, this.pictures, this.words);
  }

  /** Say that an answer is on its way; what is computed, and how to stop it, once it takes a while. */
  wait() {
    this.element.setAttribute("aria-busy", "true");
    if (this.timer) return;
    this.timer = setTimeout(async () => {
      const words = await this.hands.doing();
      if (!words || this.element.ariaBusy !== "true") return;
      const stop = node("button", { type: "button", textContent: "Cancel" });
      stop.addEventListener("click", this.hands.cancel);
      this.waiting.replaceChildren(node("span", { className: "turning" }), `${words[0].toUpperCase()}${words.slice(1)} … `, stop);
      this.waiting.hidden = false;
    }, PATIENCE);
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = null;
    this.waiting.hidden = true;
    this.element.setAttribute("aria-busy", "false");
  }

  /** Show an answer; busy until it is that of the last question. */
  show(view, last = true) {
    if (last) this.rest();
    this.view = view;
    this.element.classList.remove("refused");
    this.element.classList.toggle("outside", view.validity?.kind === "outside");
    this.showValidity(view.validity);
    this.notes.replaceChildren(...view.notes.map((note) => {
      const line = node("p", { className: `note ${note.tone}` });
      line.append(explained(note.text));
      return line;
    }));
    this.readings.replaceChildren(...view.readings.map(reading));
    tell(this.words, view.words);
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
    clearTimeout(this.timer);
    for (const [key, frame] of this.panels) this.drop(key, frame);
    this.element.remove();
  }

  /** Say why there is no answer; what an earlier setting showed does not belong to this one. */
  refuse(sentence, { busy = false, again = false } = {}) {
    this.rest();
    this.element.setAttribute("aria-busy", String(busy));
    this.element.classList.add("refused");
    const line = node("p", { className: "note error", textContent: sentence });
    if (again) {
      const button = node("button", { type: "button", textContent: "Compute it after all" });
      button.addEventListener("click", this.hands.again);
      line.append(" ", button);
    }
    this.notes.replaceChildren(line);
    for (const frame of this.panels.values()) frame.figure.classList.add("refused");
  }

  /** Keep the curves of this setting, to be drawn faint behind those of the next. */
  remember() {
    for (const frame of this.panels.values()) frame.ghost = frame.panel;
  }

  redraw() {
    for (const frame of this.panels.values()) this.paint(frame);
  }

  /** What another part, or what was kept, adds to a panel of this one. */
  adorn(key, overlay, marks) {
    if (this.overlays[key] === overlay && JSON.stringify(this.marks) === JSON.stringify(marks)) return;
    this.overlays[key] = overlay;
    this.marks = marks;
    const frame = this.panels.get(key);
    if (frame) this.paint(frame);
  }

  /** Show one moment of every film. */
  moment(k, time) {
    for (const frame of this.panels.values()) {
      if (!frame.plot.data) continue;
      if (frame.at !== k) moment(frame.plot, frame.panel, k);
      frame.at = k;
      timed(frame.plot, frame.panel, time);
    }
    for (const value of this.readings.querySelectorAll("dd[data-film]")) {
      const one = this.view.readings.find((other) => other.label === value.dataset.reading);
      if (one?.film) value.firstChild.textContent = one.film[k];
    }
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
    for (const word of ["condition", "measured", "allowed", "holds", "why"]) head.append(node("th", { textContent: word, scope: "col" }));
    const body = table.createTBody();
    for (const [name, measured, allowed, ok, sentence] of validity.rows) {
      const row = body.insertRow();
      row.append(
        node("td", { textContent: name }), node("td", { textContent: rounded(measured) }), node("td", { textContent: rounded(allowed) }),
        node("td", { textContent: ok ? "yes" : "no", className: ok ? "" : "fails" }), node("td", { textContent: sentence }),
      );
    }
    const wrap = node("div", { className: "scroll" });
    wrap.append(table);
    this.validity.replaceChildren(summary, ...(validity.rows.length ? [wrap] : []));
  }

  frame(panel) {
    if (this.panels.has(panel.key)) return;
    const frame = framed(panel);
    this.panels.set(panel.key, frame);
    (panel.main ? this.stage : this.pictures).append(frame.figure);
    frame.observer = new ResizeObserver(() => this.resize(frame));
    frame.observer.observe(frame.plot);
  }

  resize(frame) {
    if (!frame.plot.data || !frame.plot.offsetParent) return;
    const { width, height } = frame.plot.getBoundingClientRect();
    const same = Math.abs(width - frame.plot._fullLayout.width) < 1 && Math.abs(height - frame.plot._fullLayout.height) < 1;
    if (same && frame.plot.dataset.narrow === String(isNarrow(frame.plot))) return;
    this.paint(frame);
  }

  showPanel(panel) {
    const frame = this.panels.get(panel.key);
    frame.panel = panel;
    frame.figure.classList.remove("refused");
    tell(frame.title, panel.title);
    frame.plot.setAttribute("aria-label", panel.title);
    this.paint(frame);
    if (frame.touched) return;
    frame.touched = true;
    this.hands.touched(frame.plot, () => frame.panel);
    frame.plot.on("plotly_hover", (event) => {
      frame.readout.textContent = told(frame.panel, event.points);
    });
    frame.plot.on("plotly_unhover", () => {
      frame.readout.textContent = "";
    });
  }

  paint(frame) {
    const more = { overlay: this.overlays[frame.panel.key], ghost: frame.ghost, marks: frame.panel.picks ? this.marks : [] };
    frame.at = null;
    draw(frame.plot, frame.panel, more);
    frame.legend.replaceChildren(...legend(frame.panel, more));
    this.hands.drawn(this);
  }
}

function framed(panel) {
  const kinds = ["panel", panel.main ? "main" : "", isMatrix(panel) ? "matrix" : ""];
  const figure = node("figure", { className: kinds.join(" ").trim() });
  figure.dataset.panel = panel.key;
  const title = node("h2");
  const plot = node("div", { className: "plot", tabIndex: 0 });
  plot.setAttribute("role", panel.picks || panel.grips || panel.x.clock ? "application" : "img");
  const caption = node("figcaption");
  caption.append(title);
  for (const format of ["png", "svg"]) {
    const button = node("button", { type: "button", textContent: format.toUpperCase() });
    button.setAttribute("aria-label", `Save this picture as ${format.toUpperCase()}`);
    button.addEventListener("click", () => save(plot, panel.key, format));
    caption.append(button);
  }
  const list = node("ul", { className: "legend" });
  const readout = node("p", { className: "readout" });
  figure.append(caption, list, plot, readout);
  const hints = {
    picks: "Drag the pin. By keyboard: arrow keys move it, Escape takes it away.",
    grips: "Drag the points. By keyboard: left and right choose a point, up and down move it.",
  };
  for (const [key, words] of Object.entries(hints)) if (panel[key]) figure.append(node("p", { className: "hint", textContent: words }));
  return { figure, title, plot, panel, readout, legend: list, touched: false, observer: null, ghost: null, at: null };
}

function reading(one) {
  const box = node("div");
  const value = node("dd");
  value.append(one.words);
  // Words such as "never" have no unit.
  if (one.unit !== "1" && /^[-+−]?[\d.,]+(e[-+]?\d+)?( \(.*\))?$/i.test(one.words)) value.append(node("small", { textContent: ` ${pretty(one.unit)}` }));
  value.dataset.reading = one.label;
  value.dataset.value = String(one.value);
  if (one.film) value.dataset.film = "yes";
  const label = node("dt");
  label.append(explained(one.label));
  box.append(label, value);
  return box;
}

export function node(kind, properties = {}) {
  return Object.assign(document.createElement(kind), properties);
}
