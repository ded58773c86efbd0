// Interaction with a chart by pointer or keyboard: pin a point, drag points, drag the time.

import { decode } from "./charts.js";

/** The axes when the pointer goes down; they may change while it drags, but its positions keep their meaning. */
function axesNow(element) {
  const { xaxis, yaxis } = element._fullLayout;
  const sides = (axis) => ({ offset: axis._offset, length: axis._length, range: axis.range.map(Number) });
  return { x: sides(xaxis), y: sides(yaxis), box: element.getBoundingClientRect() };
}

function position(frame, event) {
  const across = (event.clientX - frame.box.left - frame.x.offset) / frame.x.length;
  const down = (event.clientY - frame.box.top - frame.y.offset) / frame.y.length;
  const between = ([from, to], share) => from + share * (to - from);
  return {
    inside: across >= -0.02 && across <= 1.02 && down >= 0 && down <= 1, across,
    x: between(frame.x.range, across), y: between(frame.y.range, 1 - down),
  };
}

/** Follow the pointer while it is down; `started` returns whether to follow it. */
function follow(element, started, moved) {
  let frame = null;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    const here = axesNow(element);
    const at = position(here, event);
    if (!at.inside || !started(at)) return;
    frame = here;
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
    element.focus({ preventScroll: true });
  });
  element.addEventListener("pointermove", (event) => {
    if (frame) moved(position(frame, event));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    element.addEventListener(end, () => {
      frame = null;
    });
  }
}

/** A click, a drag or arrow keys on the chart set two settings. */
export function enablePicking(element, current, set) {
  const heat = () => current().traces.find((trace) => trace.kind === "heat");
  const grid = () => [decode(heat().x), decode(heat().y)];
  const snap = (at) => {
    const [x, y] = grid();
    set({ [current().picks[0]]: x[nearest(x, at.x)], [current().picks[1]]: y[nearest(y, at.y)] });
    return true;
  };
  element.classList.add("pickable");
  follow(element, (at) => Boolean(heat()) && snap(at), snap);
  element.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Enter: [0, 0], Escape: null };
    if (!(event.key in moves) || !current().picks || !heat()) return;
    event.preventDefault();
    const [keyX, keyY] = current().picks;
    if (event.key === "Escape") {
      set({ [keyX]: null, [keyY]: null });
      return;
    }
    const [x, y] = grid();
    const from = markedPoint(current(), "pinned") || markedPoint(current(), "best") || [x[x.length >> 1], y[y.length >> 1]];
    const [right, up] = moves[event.key];
    const next = (values, value, step) => values[Math.min(values.length - 1, Math.max(0, nearest(values, value) + step))];
    set({ [keyX]: next(x, from[0], right), [keyY]: next(y, from[1], up) });
  });
}

function markedPoint(chart, role) {
  const trace = chart.traces.find((one) => one.role === role && one.kind === "points");
  if (!trace) return null;
  const [x, y] = [decode(trace.x), decode(trace.y)];
  return x.length && Number.isFinite(x[0]) && Number.isFinite(y[0]) ? [x[0], y[0]] : null;
}

function nearest(values, value) {
  let best = 0;
  values.forEach((one, k) => {
    if (Math.abs(one - value) < Math.abs(values[best] - value)) best = k;
  });
  return best;
}

/** The pointer drags points up and down; arrow keys select a point and move it. */
export function enableDragging(element, current, values, bounds, set) {
  let selected = 0;
  const points = () => decode(current().traces.find((trace) => trace.kind === "points").x);
  const move = (k, value) => {
    const [least, most] = bounds();
    const list = [...values()];
    if (!list.every(Number.isFinite)) return;
    list[k] = Number(Math.min(most, Math.max(least, value)).toPrecision(4));
    set({ [current().drags]: list });
  };
  element.classList.add("draggable");
  const started = (at) => {
    const k = nearest(points(), at.x);
    if (k >= values().length) return false;
    selected = k;
    move(k, at.y);
    return true;
  };
  follow(element, started, (at) => move(selected, at.y));
  element.addEventListener("keydown", (event) => {
    const [least, most] = bounds();
    const step = ((most - least) / 100) * (event.shiftKey ? 10 : 1);
    if (event.key === "ArrowLeft") selected = Math.max(0, selected - 1);
    else if (event.key === "ArrowRight") selected = Math.min(values().length - 1, selected + 1);
    else if (event.key === "ArrowUp") move(selected, values()[selected] + step);
    else if (event.key === "ArrowDown") move(selected, values()[selected] - step);
    else return;
    event.preventDefault();
    element.setAttribute("aria-description", `point ${selected + 1} of ${values().length}: ${values()[selected]}`);
  });
}

/** The pointer and the left and right keys move the time. */
export function enableScrubbing(element, current, player) {
  const times = () => player.clock.times;
  const seek = (at) => {
    const last = times()[times().length - 1];
    player.seek(last > 0 ? at.x / last : 0);
    return true;
  };
  element.classList.add("scrubbable");
  follow(element, (at) => Boolean(player.clock && current().x.clock) && seek(at), seek);
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
    if (!step || !player.clock) return;
    event.preventDefault();
    player.seek(player.share + step * (event.shiftKey ? 10 : 1));
  });
}

/** Make the links in a box one stop of the Tab key; arrow keys move between them. */
export function oneStop(box) {
  const links = () => [...box.querySelectorAll("a[href]")];
  const settle = (stop) => {
    for (const link of links()) link.tabIndex = link === stop ? 0 : -1;
  };
  const current = () => settle(links().find((link) => link.hasAttribute("aria-current")) || links()[0]);
  new MutationObserver(current).observe(box, { subtree: true, childList: true, attributeFilter: ["aria-current"] });
  box.addEventListener("focusin", (event) => settle(event.target));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = links();
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
  current();
}
