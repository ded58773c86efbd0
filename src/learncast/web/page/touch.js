// What a hand does to a panel: pin, drag points, drag the time, and all of them by keyboard.

import { unpacked } from "./panels.js";

/** Where the axes are when a hand comes down; they may grow under it, and the hand should not run after them. */
function measured(element) {
  const { xaxis, yaxis } = element._fullLayout;
  const sides = (axis) => ({ offset: axis._offset, length: axis._length, range: axis.range.map(Number) });
  return { x: sides(xaxis), y: sides(yaxis), box: element.getBoundingClientRect() };
}

function placed(frame, event) {
  const across = (event.clientX - frame.box.left - frame.x.offset) / frame.x.length;
  const down = (event.clientY - frame.box.top - frame.y.offset) / frame.y.length;
  const between = ([from, to], share) => from + share * (to - from);
  return {
    inside: across >= -0.02 && across <= 1.02 && down >= 0 && down <= 1, across,
    x: between(frame.x.range, across), y: between(frame.y.range, 1 - down),
  };
}

/** Follow a hand from where it comes down to where it leaves; `taken` may refuse it. */
function follow(element, taken, moved) {
  let frame = null;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    const here = measured(element);
    const at = placed(here, event);
    if (!at.inside || !taken(at)) return;
    frame = here;
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
    element.focus({ preventScroll: true });
  });
  element.addEventListener("pointermove", (event) => {
    if (frame) moved(placed(frame, event));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    element.addEventListener(end, () => {
      frame = null;
    });
  }
}

/** A hand on the panel, or arrow keys in it, set two values of the state. */
export function pick(element, current, set) {
  const heat = () => current().traces.find((trace) => trace.kind === "heat");
  const grid = () => [unpacked(heat().x), unpacked(heat().y)];
  const snap = (at) => {
    const [x, y] = grid();
    set({ [current().picks[0]]: x[nearest(x, at.x)], [current().picks[1]]: y[nearest(y, at.y)] });
    return true;
  };
  element.classList.add("picked");
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
    const from = marked(current(), "pinned") || marked(current(), "best") || [x[x.length >> 1], y[y.length >> 1]];
    const [right, up] = moves[event.key];
    const next = (values, value, step) => values[Math.min(values.length - 1, Math.max(0, nearest(values, value) + step))];
    set({ [keyX]: next(x, from[0], right), [keyY]: next(y, from[1], up) });
  });
}

function marked(panel, role) {
  const trace = panel.traces.find((one) => one.role === role && one.kind === "points");
  if (!trace) return null;
  const [x, y] = [unpacked(trace.x), unpacked(trace.y)];
  return x.length && Number.isFinite(x[0]) && Number.isFinite(y[0]) ? [x[0], y[0]] : null;
}

function nearest(values, value) {
  let best = 0;
  values.forEach((one, k) => {
    if (Math.abs(one - value) < Math.abs(values[best] - value)) best = k;
  });
  return best;
}

/** Points of the panel follow the hand, up and down; arrow keys choose a point and move it. */
export function grip(element, current, values, bounds, set) {
  let chosen = 0;
  const points = () => unpacked(current().traces.find((trace) => trace.kind === "points").x);
  const move = (k, value) => {
    const [least, most] = bounds();
    const list = [...values()];
    if (!list.every(Number.isFinite)) return;
    list[k] = Number(Math.min(most, Math.max(least, value)).toPrecision(4));
    set({ [current().grips]: list });
  };
  element.classList.add("gripped");
  const taken = (at) => {
    const k = nearest(points(), at.x);
    if (k >= values().length) return false;
    chosen = k;
    move(k, at.y);
    return true;
  };
  follow(element, taken, (at) => move(chosen, at.y));
  element.addEventListener("keydown", (event) => {
    const [least, most] = bounds();
    const step = ((most - least) / 100) * (event.shiftKey ? 10 : 1);
    if (event.key === "ArrowLeft") chosen = Math.max(0, chosen - 1);
    else if (event.key === "ArrowRight") chosen = Math.min(values().length - 1, chosen + 1);
    else if (event.key === "ArrowUp") move(chosen, values()[chosen] + step);
    else if (event.key === "ArrowDown") move(chosen, values()[chosen] - step);
    else return;
    event.preventDefault();
    element.setAttribute("aria-description", `point ${chosen + 1} of ${values().length}: ${values()[chosen]}`);
  });
}

/** The time follows the hand along the panel; left and right move it by keyboard. */
export function drag(element, current, player) {
  const times = () => player.clock.times;
  const seek = (at) => {
    const last = times()[times().length - 1];
    player.seek(last > 0 ? at.x / last : 0);
    return true;
  };
  element.classList.add("dragged");
  follow(element, (at) => Boolean(player.clock && current().x.clock) && seek(at), seek);
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
    if (!step || !player.clock) return;
    event.preventDefault();
    player.seek(player.share + step * (event.shiftKey ? 10 : 1));
  });
}
