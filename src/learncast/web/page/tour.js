// Settings worth seeing: each a link, with what to look at, one after another through every room.

import { stateOf, written } from "./address.js";
import { node } from "./view.js";
import { explained } from "./words.js";

/** The address of an example. */
export function addressOf(room, example) {
  return written(room, { ...stateOf(room, new URLSearchParams()), ...example.changes });
}

/** Show the examples of a room, and the words of the one that the state is. */
export function guide(box, rooms, room, state) {
  const stops = rooms.flatMap((one) => one.examples.map((example) => [one, example]));
  const own = stops.filter(([one]) => one === room);
  const current = own.find(([, example]) => same(room, state, example));
  if (box.dataset.room !== room.name) {
    box.dataset.room = room.name;
    const list = node("ul", { className: "examples" });
    list.append(...own.map(([, example]) => {
      const item = node("li");
      item.append(node("a", { href: addressOf(room, example), textContent: example.name }));
      return item;
    }));
    box.replaceChildren(node("p", { className: "eyebrow", textContent: "Examples" }), list, node("div", { className: "look" }));
  }
  [...box.querySelectorAll(".examples a")].forEach((link, k) => {
    if (current && own[k] === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  const look = box.querySelector(".look");
  const name = current ? current[1].name : "";
  if (look.dataset.name === name && look.dataset.room === room.name) return;
  Object.assign(look.dataset, { name, room: room.name });
  if (!current) {
    look.replaceChildren(node("p", { textContent: "Your own setting. Back in the browser undoes a change." }));
    return;
  }
  const k = stops.indexOf(current);
  const words = node("p");
  words.append(explained(current[1].look));
  const step = (name, to) => {
    const link = node("a", { className: "step", textContent: name });
    if (stops[to]) link.href = addressOf(...stops[to]);
    else link.setAttribute("aria-disabled", "true");
    link.dataset.step = name;
    return link;
  };
  look.replaceChildren(words, step("Back", k - 1), node("span", { className: "count", textContent: `${k + 1} of ${stops.length}` }), step("Next", k + 1));
}

/** Whether a state is that of an example, whatever moment of it is shown. */
export function same(room, state, example) {
  const its = { ...stateOf(room, new URLSearchParams()), ...example.changes };
  return room.controls.every(({ key }) => key === "time" || key === "topic" || JSON.stringify(state[key]) === JSON.stringify(its[key]));
}
