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
  const place = (event) => {
    const { xaxis, yaxis } = element._fullLayout;
    const box = element.getBoundingClientRect();
    return [xaxis.p2c(event.clientX - box.left - xaxis._offset), yaxis.p2c(event.clientY - box.top - yaxis._offset)];
  };
  const points = () => unpacked(current().traces.find((trace) => trace.kind === "points").x);
  const move = (k, value) => {
    const [least, most] = bounds();
    const list = [...values()];
    list[k] = Number(Math.min(most, Math.max(least, value)).toPrecision(4));
    set({ [current().grips]: list });
  };
  element.classList.add("gripped");
  element.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    const k = nearest(points(), x);
    if (k >= values().length) return;
    held = chosen = k;
    element.setPointerCapture(event.pointerId);
    move(k, y);
    event.preventDefault();
    element.focus({ preventScroll: true });
  });
  element.addEventListener("pointermove", (event) => {
    if (held >= 0) move(held, place(event)[1]);
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
