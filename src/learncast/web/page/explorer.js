// The explorer: controls on one side, what the theory says on the other, and the state in the address.

import { read, stateOf, written } from "./address.js";
import { build, offerPresets, show } from "./controls.js";
import { Latest, post } from "./requests.js";
import { grip, pick } from "./touch.js";
import { Part, node } from "./view.js";

const find = (id) => document.getElementById(id);
const form = find("form");

let rooms = [];
let room = null;
let state = {};
let parts = [];

async function begin() {
  chooseTheme(remembered("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  rooms = await (await fetch("/api/rooms")).json();
  find("rooms").append(...rooms.map((one) => {
    const link = node("a", { href: `#${encodeURIComponent(one.name)}`, textContent: one.title });
    link.dataset.room = one.name;
    return link;
  }));
  addEventListener("hashchange", open);
  find("theme").addEventListener("click", () => chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
  find("reset").addEventListener("click", () => change(stateOf(room, new URLSearchParams())));
  find("link").addEventListener("click", copyLink);
  find("study").addEventListener("click", () => download("study", `${room.name}.toml`));
  find("table").addEventListener("click", () => download("table", `${room.name}.csv`));
  open();
}

/** Show what the address names. */
function open() {
  const address = read(location.hash);
  const next = rooms.find((one) => one.name === address.room) || rooms[0];
  if (next !== room) enter(next);
  if (address.room && address.room !== room.name) say("The address names no room; this is the first.");
  state = stateOf(room, address.values);
  show(form, room, state);
  ask();
}

function linkOf(one) {
  return find("rooms").querySelector(`[data-room="${one.name}"]`);
}

function enter(next) {
  for (const { part, questions } of parts) {
    questions.close();
    part.close();
  }
  room = next;
  document.title = `${room.title} · learncast explorer`;
  for (const link of find("rooms").children) link.removeAttribute("aria-current");
  linkOf(room).setAttribute("aria-current", "page");
  find("introduction").textContent = room.introduction;
  find("said").textContent = "";
  build(form, room, (key, value) => change({ [key]: value }), () => setTimeout(() => show(form, room, state)));
  parts = room.parts.map((name) => {
    const part = new Part(name, touched);
    const questions = new Latest(`/api/${room.name}/${name}`, (view, _, last) => shown(part, view, last), (sentence) => refused(part, sentence));
    find("parts").append(part.element);
    return { part, questions };
  });
}

function shown(part, view, last) {
  part.show(view, last);
  sayOnce();
  const grips = view.panels.find((panel) => panel.grips);
  if (grips && view.extras.presets) offerPresets(form, grips.grips, view.extras.presets, (key, value) => change({ [key]: value }));
}

function refused(part, sentence) {
  part.refuse(sentence);
  sayOnce();
}

/** What several parts of a room say alike stands with the first of them. */
function sayOnce() {
  const said = new Set();
  for (const element of document.querySelectorAll("#parts .validity, #parts .note, #parts .readings > div")) {
    element.hidden = said.has(element.textContent);
    said.add(element.textContent);
  }
}

function touched(element, current) {
  const panel = current();
  if (panel.picks) pick(element, current, change);
  if (panel.grips) {
    const control = room.controls.find((one) => one.key === panel.grips);
    grip(element, current, () => state[panel.grips], () => [control.least, control.most], change);
  }
}

/** Take new values; the address, the form and the pictures follow. */
function change(values) {
  const cleared = room.controls.filter((one) => one.key in values).flatMap((one) => one.clears);
  state = { ...state, ...Object.fromEntries(cleared.map((key) => [key, null])), ...values };
  history.replaceState(null, "", written(room, state));
  // Another room and back again: this one as it was left.
  linkOf(room).href = written(room, state);
  show(form, room, state);
  ask();
}

function ask() {
  for (const { part, questions } of parts) {
    part.element.setAttribute("aria-busy", "true");
    questions.ask(state);
  }
}

async function copyLink() {
  history.replaceState(null, "", written(room, state));
  try {
    await navigator.clipboard.writeText(location.href);
    say("Copied.");
  } catch {
    say(`Copy it from here: ${location.href}`);
  }
}

async function download(what, name) {
  try {
    const answer = await post(`/api/${room.name}/${what}`, state);
    const link = node("a", { href: URL.createObjectURL(await answer.blob()), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say(`Saved ${name}.`);
  } catch (error) {
    say(error.message);
  }
}

function say(sentence) {
  find("said").textContent = sentence;
}

function chooseTheme(name, keep = false) {
  document.documentElement.dataset.theme = name;
  for (const { part } of parts) part.redraw();
  if (!keep) return;
  try {
    localStorage.setItem("theme", name);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

begin();
