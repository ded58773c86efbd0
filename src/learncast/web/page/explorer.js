// The explorer: controls on one side, what the theory says on the other, and the state in the address.

import { read, stateOf, written } from "./address.js";
import { compare, keep, keptOf } from "./compare.js";
import { allowed, blame, build, offerPresets, show } from "./controls.js";
import { sketch } from "./drawing.js";
import { offerDrops } from "./files.js";
import { unpacked } from "./panels.js";
import { Player } from "./player.js";
import { Latest, kept, listed, post } from "./requests.js";
import { drag, grip, pick } from "./touch.js";
import { guide, same } from "./tour.js";
import { Part, node } from "./view.js";
import { learn, tell } from "./words.js";

/** Milliseconds within which changes of one control by keyboard are one change, which Back undoes at once. */
const GESTURE = 700;

const find = (id) => document.getElementById(id);
const form = find("form");

let rooms = [];
let room = null;
let state = {};
let parts = [];
let gesture = "";
let lastChange = -Infinity;
let held = false;
let showDrops = () => {};
const player = new Player(find("player"), moved);

async function begin() {
  chooseTheme(remembered("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  rooms = await listed();
  find("rooms").append(...rooms.map((one) => {
    const link = node("a", { href: `#${encodeURIComponent(one.name)}`, textContent: one.title });
    link.dataset.room = one.name;
    return link;
  }));
  addEventListener("hashchange", open);
  addEventListener("pointerdown", () => hand(true), true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => hand(false)), true);
  find("theme").addEventListener("click", () => chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
  find("reset").addEventListener("click", () => {
    location.hash = `#${encodeURIComponent(room.name)}`;
  });
  showDrops = offerDrops(find("own"), () => room, opened, say);
  find("keep").addEventListener("click", keepThis);
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
  else for (const { part } of parts) part.remember();
  if (address.room && address.room !== room.name) say("The address names no room; this is the first.");
  gesture = "";
  state = stateOf(room, address.values);
  linkOf(room).href = written(room, state);
  player.set(typeof state.time === "number" ? state.time : 0);
  show(form, room, state);
  ask();
}

/** A room as a dropped file opens it takes the place of the one before. */
function opened(description) {
  rooms = rooms.map((one) => (one.name === description.name ? description : one));
  delete find("guide").dataset.room;
  history.pushState(null, "", `#${encodeURIComponent(description.name)}`);
  open();
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
  learn(room.words);
  tell(find("introduction"), room.introduction);
  find("said").textContent = "";
  find("answer").textContent = "";
  delete find("answer").dataset.text;
  find("drawing").replaceChildren();
  player.wind(null);
  build(form, room, (key, value) => change({ [key]: value }), () => setTimeout(() => show(form, room, state)));
  if (kept) for (const input of form.querySelectorAll("input, select")) input.disabled = true;
  buildTopics();
  showDrops();
  parts = room.parts.map((name) => {
    const questions = new Latest(`api/${room.name}/${name}`, {
      shown: (view, _, last) => shown(part, view, last),
      refused: (error) => refused(part, error),
      lost: (sentence) => {
        part.refuse(sentence, { busy: true });
        sayOnce();
      },
      cancelled: () => {
        part.refuse("Cancelled: this setting was not computed.", { again: true });
        sayOnce();
      },
    });
    const part = new Part(name, find("picture"), {
      touched,
      cancel: () => parts.forEach((one) => one.questions.cancel()),
      again: () => ask(),
      doing: () => kept ? "" : post(`api/${room.name}/doing`, state).then((answer) => answer.json()).then((told) => told.doing, () => ""),
      drawn: (one) => one.moment(momentNow(), player.time),
    });
    find("parts").append(part.element);
    return { part, questions };
  });
  const first = parts.find(({ part }) => room.topics.some(([name]) => name === part.name));
  if (first) first.part.element.before(find("topics"));
}

/** Tabs for parts that are shown one at a time. */
function buildTopics() {
  const box = find("topics");
  box.hidden = !room.topics.length;
  box.replaceChildren(...room.topics.map(([name, words]) => {
    const tab = node("button", { type: "button", textContent: words });
    tab.setAttribute("role", "tab");
    tab.dataset.topic = name;
    tab.addEventListener("click", () => change({ topic: name }));
    return tab;
  }));
}

/** Whether a part is looked at; of those with a tab, one is. */
function wanted(part) {
  return !room.topics.some(([name]) => name === part.name) || state.topic === part.name;
}

function momentNow() {
  return player.clock ? Math.round(player.share * (player.moments - 1)) : 0;
}

function shown(part, view, last) {
  blame(form, room, null);
  if (view.clock) view.clock.times = unpacked(view.clock.times);
  part.show(view, last);
  for (const [key, overlay] of Object.entries(view.overlays)) adorned(key, overlay);
  for (const panel of view.panels) adorned(panel.key, overlayOf(panel.key));
  gather();
  const grips = view.panels.find((panel) => panel.grips);
  if (grips && view.extras.presets) offerPresets(form, grips.grips, view.extras.presets, (key, value) => change({ [key]: value }));
}

/** What the other parts draw over a panel. */
function overlayOf(key) {
  return parts.map(({ part }) => part.view?.overlays[key]).find(Boolean);
}

function adorned(key, overlay = overlayOf(key)) {
  const owner = parts.find(({ part }) => part.panels.has(key));
  if (!owner) return;
  const [keyX, keyY] = owner.part.panels.get(key).panel.picks || [];
  const marks = keyX ? keptOf(room).filter((one) => Number.isFinite(one.state[keyX])).map((one) => ({ x: one.state[keyX], y: one.state[keyY], name: one.name })) : [];
  owner.part.adorn(key, overlay, marks);
}

/** What the whole room says, from what its parts do. */
function gather() {
  const views = parts.filter(({ part }) => wanted(part)).map(({ part }) => part.view).filter(Boolean);
  const last = (key) => views.map((view) => view[key]).filter((value) => value && (value.length === undefined || value.length)).pop() || null;
  const doubtful = views.some((view) => view.validity?.kind === "outside");
  find("stage").classList.toggle("outside", doubtful);
  tell(find("answer"), last("answer") || "");
  player.wind(last("clock"));
  sketch(find("drawing"), last("drawing"), player.clock ? momentNow() : null);
  for (const { part } of parts) part.moment(momentNow(), player.time);
  guide(find("guide"), rooms, room, state);
  compared();
  sayOnce();
}

function moved(share, playing) {
  state = { ...state, time: share };
  for (const { part } of parts) part.moment(momentNow(), player.time);
  sketch(find("drawing"), drawingNow(), momentNow());
  if (!playing) history.replaceState(null, "", written(room, state));
}

function drawingNow() {
  return parts.filter(({ part }) => wanted(part)).map(({ part }) => part.view?.drawing).filter(Boolean).pop() || null;
}

function refused(part, error) {
  const control = room.controls.find((one) => one.key === error.field);
  const marked = blame(form, room, error.field);
  find("answer").textContent = "";
  delete find("answer").dataset.text;
  part.refuse(marked ? `${control.label} must be ${allowed(control)}.` : error.message);
  sayOnce();
}

/** What several parts of a room say alike stands with the first of them. */
function sayOnce() {
  const said = new Set();
  for (const element of document.querySelectorAll("#parts .validity, #parts .note, #parts .readings > div")) {
    if (element.closest(".part").hidden) continue;
    // Conditions that hold are measured for each part; that they hold is said once.
    const text = element.matches(".validity") && !element.querySelector(".fails") ? element.firstChild?.textContent : element.textContent;
    element.hidden = said.has(text);
    said.add(text);
  }
}

function touched(element, current) {
  const panel = current();
  if (panel.picks) pick(element, current, change);
  else if (panel.grips) {
    const control = room.controls.find((one) => one.key === panel.grips);
    grip(element, current, () => state[panel.grips], () => [control.least, control.most], change);
  } else if (panel.x.clock) drag(element, current, player);
}

/**
 * Take new values; the address, the form and the pictures follow. The first change of a gesture is an entry of the
 * history, which Back undoes; the others of it are none.
 */
function change(values) {
  if (kept && !("topic" in values)) {
    say("This copy shows the guided examples; `learncast explore` moves everything.");
    return;
  }
  const cleared = room.controls.filter((one) => one.key in values).flatMap((one) => one.clears);
  const keys = Object.keys(values).join();
  const now = performance.now();
  state = { ...state, ...Object.fromEntries(cleared.map((key) => [key, null])), ...values };
  const begins = (gesture !== keys || (!held && now - lastChange > GESTURE)) && written(room, state) !== location.hash;
  if (begins) for (const { part } of parts) part.remember();
  [gesture, lastChange] = [keys, now];
  history[begins ? "pushState" : "replaceState"](null, "", written(room, state));
  // Another room and back again: this one as it was left.
  linkOf(room).href = written(room, state);
  show(form, room, state);
  ask();
}

/** A hand has come down or left: the next change is one of its own. */
function hand(down) {
  held = down;
  gesture = "";
}

function ask() {
  guide(find("guide"), rooms, room, state);
  for (const tab of find("topics").children) tab.setAttribute("aria-selected", String(tab.dataset.topic === state.topic));
  for (const { part, questions } of parts) {
    part.element.hidden = !wanted(part);
    if (!wanted(part)) {
      part.rest();
      continue;
    }
    part.wait();
    questions.ask(question());
  }
}

/** What is asked: the state; of a kept copy, which of its examples that is. */
function question() {
  return kept ? { example: room.examples.findIndex((one) => same(room, state, one)) } : state;
}

function readings() {
  return parts.filter(({ part }) => wanted(part)).flatMap(({ part }) => part.view?.readings || []);
}

function keepThis() {
  say(keep(room, state, readings()) ? "Kept: move on, and compare." : "Four settings are kept already: forget one first.");
  compared();
  if (room.parts.includes("portrait")) adorned("portrait");
}

function compared() {
  compare(find("kept"), room, state, readings(), () => {
    compared();
    if (room.parts.includes("portrait")) adorned("portrait");
  });
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
    const answer = await post(`api/${room.name}/${what}`, question());
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

function chooseTheme(name, keepIt = false) {
  document.documentElement.dataset.theme = name;
  const dark = name === "dark";
  find("theme").textContent = dark ? "☀" : "☾";
  find("theme").setAttribute("aria-pressed", String(dark));
  for (const { part } of parts) part.redraw();
  if (room) sketch(find("drawing"), drawingNow(), player.clock ? momentNow() : null);
  if (!keepIt) return;
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
