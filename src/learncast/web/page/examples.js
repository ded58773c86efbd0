// Guided examples: links with a hint what to look at, in one sequence through all panels, counted within each.

import { addressOf, stateOf } from "./address.js";
import { node } from "./part.js";
import { oneStop } from "./pointer.js";

/** The address of an example. */
export function exampleAddress(panel, example) {
  return addressOf(panel, { ...stateOf(panel, new URLSearchParams()), ...example.changes });
}

/** Show the examples of a panel, and the hint of the current one. */
export function showExamples(box, panels, panel, state) {
  const stops = panels.flatMap((one) => one.examples.map((example) => [one, example]));
  const own = stops.filter(([one]) => one === panel);
  const current = own.find(([, example]) => isExample(panel, state, example));
  if (box.dataset.panel !== panel.name) {
    box.dataset.panel = panel.name;
    const list = node("ul", { className: "examples" });
    list.append(...own.map(([, example]) => {
      const item = node("li");
      item.append(node("a", { href: exampleAddress(panel, example), textContent: example.name }));
      return item;
    }));
    oneStop(list);
    box.replaceChildren(node("p", { className: "eyebrow", textContent: "Examples" }), list, node("div", { className: "look" }));
  }
  [...box.querySelectorAll(".examples a")].forEach((link, k) => {
    if (current && own[k] === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  const look = box.querySelector(".look");
  const name = current ? current[1].name : "";
  if (look.dataset.name === name && look.dataset.panel === panel.name) return;
  Object.assign(look.dataset, { name, panel: panel.name });
  if (!current) {
    look.replaceChildren(node("p", { textContent: "Your own settings. The browser's Back button undoes a change." }));
    return;
  }
  const [k, place] = [stops.indexOf(current), own.indexOf(current)];
  const hint = node("p", { textContent: current[1].look });
  const step = (name, to) => {
    const link = node("a", { className: "step", textContent: name });
    if (stops[to]) link.href = exampleAddress(...stops[to]);
    else link.setAttribute("aria-disabled", "true");
    link.dataset.step = name;
    return link;
  };
  look.replaceChildren(hint, step("Back", k - 1), node("span", { className: "count", textContent: `${place + 1} of ${own.length}` }), step("Next", k + 1));
}

/** Whether a state is that of an example, at any time. */
export function isExample(panel, state, example) {
  const its = { ...stateOf(panel, new URLSearchParams()), ...example.changes };
  return panel.controls.every(({ key }) => key === "time" || key === "topic" || JSON.stringify(state[key]) === JSON.stringify(its[key]));
}
