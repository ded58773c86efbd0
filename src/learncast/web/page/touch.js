// What a hand does to a panel: click to pin, drag points, and both by keyboard.

import { unpacked } from "./panels.js";

/** A click on the panel, or arrow keys in it, set two values of the state. */
export function pick(element, current, set) {
  const heat = () => current().traces.find((trace) => trace.kind === "heat");
  element.on("plotly_click", (event) => {
    const point = event.points.find((one) => one.data.type === "heatmap") || event.points[0];
    set({ [current().picks[0]]: point.x, [current().picks[1]]: point.y });
  });
  element.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Enter: [0, 0], Escape: null };
    if (!(event.key in moves) || !current().picks || !heat()) return;
    event.preventDefault();
    const [keyX, keyY] = current().picks;
    if (event.key === "Escape") {
      set({ [keyX]: null, [keyY]: null });
      return;
    }
    const [x, y] = [unpacked(heat().x), unpacked(heat().y)];
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
  let held = -1;
  let chosen = 0;
  let frame = null;
  // Where the axes are when a point is taken; they may grow under the hand, and the hand should not run after them.
  const measured = () => {
    const { xaxis, yaxis } = element._fullLayout;
    const sides = (axis) => ({ offset: axis._offset, length: axis._length, range: axis.range.map(Number) });
    return { x: sides(xaxis), y: sides(yaxis), box: element.getBoundingClientRect() };
  };
  const place = (event) => {
    const across = (event.clientX - frame.box.left - frame.x.offset) / frame.x.length;
    const down = (event.clientY - frame.box.top - frame.y.offset) / frame.y.length;
    const between = ([from, to], share) => from + share * (to - from);
    return { inside: across >= -0.02 && across <= 1.02 && down >= 0 && down <= 1, x: between(frame.x.range, across), y: between(frame.y.range, 1 - down) };
  };
  const points = () => unpacked(current().traces.find((trace) => trace.kind === "points").x);
  const move = (k, value) => {
    const [least, most] = bounds();
    const list = [...values()];
    if (!list.every(Number.isFinite)) return;
    list[k] = Number(Math.min(most, Math.max(least, value)).toPrecision(4));
    set({ [current().grips]: list });
  };
  element.classList.add("gripped");
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    frame = measured();
    const at = place(event);
    const k = nearest(points(), at.x);
    if (!at.inside || k >= values().length) return;
    held = chosen = k;
    element.setPointerCapture(event.pointerId);
    move(k, at.y);
    event.preventDefault();
    element.focus({ preventScroll: true });
  });
  element.addEventListener("pointermove", (event) => {
    if (held >= 0) move(held, place(event).y);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    element.addEventListener(end, () => {
      held = -1;
    });
  }
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
