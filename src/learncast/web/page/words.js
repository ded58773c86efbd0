// Words explained where they stand: each lights up the controls and curves that it speaks of.

/* global Plotly */

import { node } from "./view.js";

const box = () => document.getElementById("meaning");
let glossary = [];
let pattern = null;

/** Take a room's words. */
export function learn(words) {
  glossary = new Map(words.flatMap((word) => word.terms.map((term) => [term.toLowerCase(), word])));
  const terms = [...glossary.keys()].sort((a, b) => b.length - a.length).map((term) => term.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  pattern = terms.length ? new RegExp(`(?<![\\w-])(${terms.join("|")})(?![\\w-])`, "gi") : null;
  hide();
}

/** A text with its words made touchable, each once. */
export function explained(text) {
  const fragment = document.createDocumentFragment();
  if (!pattern) {
    fragment.append(text);
    return fragment;
  }
  const said = new Set();
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    const word = glossary.get(found[0].toLowerCase());
    if (said.has(word)) continue;
    said.add(word);
    fragment.append(text.slice(end, found.index), term(found[0], word));
    end = found.index + found[0].length;
  }
  fragment.append(text.slice(end));
  return fragment;
}

/** Fill an element with a text, unless it says so already: a word under the hand stays where it is. */
export function tell(element, text) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(explained(text));
}

function term(text, word) {
  // No button element: it would not break over lines as words do.
  const button = node("span", { className: "term", textContent: text, tabIndex: 0 });
  button.setAttribute("role", "button");
  button.setAttribute("aria-describedby", "meaning");
  for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => show(button, word));
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, hide);
  button.addEventListener("click", (event) => {
    event.preventDefault();
    show(button, word);
  });
  return button;
}

function show(button, word) {
  const tip = box();
  tip.textContent = word.meaning;
  tip.hidden = false;
  const at = button.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left), innerWidth - tip.offsetWidth - 8);
  const below = at.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
  for (const key of word.controls) document.querySelector(`[data-key="${key}"]`)?.classList.add("lit");
  light(word.traces);
}

export function hide() {
  box().hidden = true;
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  light([]);
}

/** Let all but the named curves fade; with no names, all stand again. */
function light(names) {
  const named = (name) => names.some((start) => String(name).startsWith(start));
  for (const plot of document.querySelectorAll(".plot")) {
    const curves = (plot.data || []).map((trace, k) => [trace, k]).filter(([trace]) => trace.type === "scatter" && trace.meta !== "ghost");
    const any = curves.some(([trace]) => named(trace.name));
    if (!any && !plot.dataset.faded) continue;
    const levels = curves.map(([trace]) => (any && !named(trace.name) ? 0.15 : 1));
    if (any) plot.dataset.faded = "yes";
    else delete plot.dataset.faded;
    Plotly.restyle(plot, { opacity: levels }, curves.map(([, k]) => k));
    for (const item of plot.closest("figure").querySelectorAll(".legend li")) item.classList.toggle("lit", any && named(item.dataset.trace));
  }
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
