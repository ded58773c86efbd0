// Glossary terms: the page explains them where they appear and highlights their controls and curves.

/* global Plotly */

import { node } from "./part.js";

const box = () => document.getElementById("meaning");
let glossary = [];
let pattern = null;

/** Set the terms of a panel. */
export function setTerms(entries) {
  glossary = new Map(entries.flatMap((entry) => entry.terms.map((term) => [term.toLowerCase(), entry])));
  const terms = [...glossary.keys()].sort((a, b) => b.length - a.length).map((term) => term.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  pattern = terms.length ? new RegExp(`(?<![\\w-])(${terms.join("|")})(?![\\w-])`, "gi") : null;
  hide();
}

/** A text whose terms show their meaning; each term only once. */
export function withTerms(text) {
  const fragment = document.createDocumentFragment();
  if (!pattern) {
    fragment.append(text);
    return fragment;
  }
  const seen = new Set();
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    const entry = glossary.get(found[0].toLowerCase());
    if (seen.has(entry)) continue;
    seen.add(entry);
    fragment.append(text.slice(end, found.index), term(found[0], entry));
    end = found.index + found[0].length;
  }
  fragment.append(text.slice(end));
  return fragment;
}

/** Set the text of an element, unless it is the same already, so that an open explanation stays. */
export function setText(element, text) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(withTerms(text));
}

function term(text, entry) {
  // Not a button element, which would not break over lines.
  const button = node("span", { className: "term", textContent: text, tabIndex: 0 });
  button.setAttribute("role", "button");
  button.setAttribute("aria-describedby", "meaning");
  for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => show(button, entry));
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, hide);
  button.addEventListener("click", (event) => {
    event.preventDefault();
    show(button, entry);
  });
  return button;
}

function show(button, entry) {
  const tip = box();
  tip.textContent = entry.meaning;
  tip.hidden = false;
  const at = button.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left), innerWidth - tip.offsetWidth - 8);
  const below = at.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
  for (const key of entry.controls) document.querySelector(`[data-key="${key}"]`)?.classList.add("highlighted");
  highlight(entry.traces);
}

export function hide() {
  box().hidden = true;
  for (const element of document.querySelectorAll(".highlighted")) element.classList.remove("highlighted");
  highlight([]);
}

/** Fade all curves but those with these names; without names, show all. */
function highlight(names) {
  const named = (name) => names.some((start) => String(name).startsWith(start));
  for (const plot of document.querySelectorAll(".plot")) {
    const curves = (plot.data || []).map((trace, k) => [trace, k]).filter(([trace]) => trace.type === "scatter" && trace.meta !== "previous");
    const any = curves.some(([trace]) => named(trace.name));
    if (!any && !plot.dataset.faded) continue;
    const levels = curves.map(([trace]) => (any && !named(trace.name) ? 0.15 : 1));
    if (any) plot.dataset.faded = "yes";
    else delete plot.dataset.faded;
    Plotly.restyle(plot, { opacity: levels }, curves.map(([, k]) => k));
    for (const item of plot.closest("figure").querySelectorAll(".legend li")) item.classList.toggle("highlighted", any && named(item.dataset.trace));
  }
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
