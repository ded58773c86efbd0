// The explorer: controls on one side, charts on the other, and the state in the address.

import { addressOf, read, stateOf } from "./address.js";
import { compare, keep, keptOf } from "./compare.js";
import { allowedValues, build, markInvalid, settingsOf, show, showPresets } from "./controls.js";
import { drawDiagram } from "./diagram.js";
import { acceptFiles } from "./files.js";
import { decode } from "./charts.js";
import { Player } from "./player.js";
import { LatestRequest, isStatic, listPanels, post } from "./requests.js";
import { enableDragging, enablePicking, enableScrubbing, oneStop } from "./pointer.js";
import { isExample, showExamples } from "./examples.js";
import { Part, node } from "./part.js";
import { setTerms, setText } from "./glossary.js";

/** Milliseconds after which the page fades what it computes anew, and after which it says what that is. */
const [FADE, EXPLAIN] = [150, 600];
/** Milliseconds within which keyboard changes of one control are one entry of the browser's history. */
const GESTURE = 700;

const find = (id) => document.getElementById(id);
const form = find("form");

let panels = [];
let panel = null;
let state = {};
let parts = [];
let gesture = "";
let lastChange = -Infinity;
let pointerDown = false;
let busyTimers = [];
let showFileInput = () => {};
const player = new Player(find("player"), moved);

async function begin() {
  chooseTheme(remembered("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  panels = await listPanels();
  find("panels").append(...panels.map((one) => {
    const link = node("a", { href: `#${encodeURIComponent(one.name)}`, textContent: one.title });
    link.dataset.panel = one.name;
    return link;
  }));
  oneStop(find("panels"));
  find("skip").addEventListener("click", (event) => {
    event.preventDefault();
    find("main-chart").querySelector(".plot")?.focus();
  });
  addEventListener("hashchange", open);
  addEventListener("pointerdown", () => setPointer(true), true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => setPointer(false)), true);
  find("theme").addEventListener("click", () => chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
  find("reset").addEventListener("click", () => {
    location.hash = `#${encodeURIComponent(panel.name)}`;
  });
  showFileInput = acceptFiles(find("own-data"), () => panel, fileOpened, fileRejected, showBusy, updateBusy);
  find("keep").addEventListener("click", keepSettings);
  find("link").addEventListener("click", copyLink);
  find("study").addEventListener("click", () => download("study", `${panel.name}.toml`));
  find("table").addEventListener("click", () => download("table", `${panel.name}.csv`));
  open();
}

/** Show the panel and the state in the address. */
function open() {
  const address = read(location.hash);
  const next = panels.find((one) => one.name === address.panel) || panels[0];
  if (next !== panel) enter(next);
  // The earlier curves belong to another problem.
  else for (const { part } of parts) part.forget();
  if (address.panel && address.panel !== panel.name) showStatus("There is no panel with this address; this is the first one.");
  gesture = "";
  state = stateOf(panel, address.values);
  linkOf(panel).href = addressOf(panel, state);
  player.set(typeof state.time === "number" ? state.time : 0);
  show(form, panel, state);
  ask();
  markAddress();
}

/** Name the address whose state the page shows: a link changes the address before the page has read it. */
function markAddress() {
  document.body.dataset.address = location.hash;
}

function setAddress(entry = "replaceState") {
  history[entry](null, "", addressOf(panel, state));
  markAddress();
}

/** Show the state of a dropped study, or replace a panel by the one for a dropped file. */
function fileOpened(description, name) {
  if (description.state) {
    location.hash = addressOf(panels.find((one) => one.name === description.name), description.state);
    return;
  }
  panels = panels.map((one) => (one.name === description.name ? description : one));
  delete find("examples").dataset.panel;
  history.pushState(null, "", `#${encodeURIComponent(description.name)}`);
  open();
  showStatus(`Opened ${name}; it is kept in memory only.`);
}

/** Say in the place of the answer why a file cannot be used; the old answer fades, because it is not the file's. */
function fileRejected(message) {
  showStatus("");
  find("answer").textContent = message;
  for (const { part } of parts) part.reject(message);
  hideRepeated();
}

function linkOf(one) {
  return find("panels").querySelector(`[data-panel="${one.name}"]`);
}

function enter(next) {
  for (const { part, requests } of parts) {
    requests.close();
    part.close();
  }
  panel = next;
  document.title = `${panel.title} · learncast explorer`;
  for (const link of find("panels").children) link.removeAttribute("aria-current");
  linkOf(panel).setAttribute("aria-current", "page");
  setTerms(panel.terms);
  setText(find("introduction"), panel.introduction);
  find("status").textContent = "";
  find("answer").textContent = "";
  find("diagram").replaceChildren();
  player.setClock(null);
  build(form, panel, (key, value) => change({ [key]: value }), () => setTimeout(() => show(form, panel, state)));
  if (isStatic) for (const input of form.querySelectorAll("input, select")) input.disabled = true;
  buildTopics();
  showFileInput();
  parts = panel.parts.map((name) => {
    const requests = new LatestRequest(`api/${panel.name}/${name}`, {
      answered: (view, _, last) => showAnswer(part, view, last),
      rejected: (error) => showRejection(part, error),
      lost: (message) => {
        part.reject(message, { busy: true });
        hideRepeated();
      },
      cancelled: () => {
        part.reject("Cancelled: these settings were not computed.", { again: true });
        hideRepeated();
      },
    });
    const part = new Part(name, { main: find("main-chart"), side: find("side-chart") }, {
      connect,
      again: () => ask(),
      busy: () => updateBusy(),
      settings: () => settingsOf(panel, state),
      drawn: (one) => one.showFrame(currentFrame(), player.time),
    });
    find("parts").append(part.element);
    return { part, requests };
  });
  const first = parts.find(({ part }) => panel.topics.some(([name]) => name === part.name));
  if (first) first.part.element.before(find("topics"));
}

/** Fade the old answer behind one spinner while any part is computed; a long computation can be cancelled. */
function updateBusy() {
  if (parts.some(({ part }) => part.element.ariaBusy === "true")) {
    if (busyTimers.length) return;
    busyTimers = [setTimeout(() => showBusy("Computing …"), FADE), isStatic ? 0 : setTimeout(explainBusy, EXPLAIN)];
    return;
  }
  busyTimers.forEach(clearTimeout);
  busyTimers = [];
  find("busy").hidden = true;
  document.body.classList.remove("busy");
}

function showBusy(...content) {
  find("busy").replaceChildren(node("span", { className: "spinner" }), ...content);
  find("busy").hidden = false;
  document.body.classList.add("busy");
}

async function explainBusy() {
  const doing = await post(`api/${panel.name}/doing`, state).then((answer) => answer.json()).then((answer) => answer.doing, () => "");
  if (!doing || !busyTimers.length) return;
  const stop = node("button", { type: "button", textContent: "Cancel" });
  stop.addEventListener("click", () => parts.forEach((one) => one.requests.cancel()));
  showBusy(`${doing[0].toUpperCase()}${doing.slice(1)} … `, stop);
}

/** Build tabs for the parts that are shown one at a time. */
function buildTopics() {
  const box = find("topics");
  box.hidden = !panel.topics.length;
  box.replaceChildren(...panel.topics.map(([name, title]) => {
    const tab = node("button", { type: "button", textContent: title });
    tab.setAttribute("role", "tab");
    tab.dataset.topic = name;
    tab.addEventListener("click", () => change({ topic: name }));
    return tab;
  }));
}

/** Whether a part is visible: those with a tab are shown one at a time. */
function isVisible(part) {
  return !panel.topics.some(([name]) => name === part.name) || state.topic === part.name;
}

function currentFrame() {
  return player.clock ? Math.round(player.share * (player.frames - 1)) : 0;
}

function showAnswer(part, view, last) {
  markInvalid(form, panel, null);
  if (view.clock) view.clock.times = decode(view.clock.times);
  part.show(view, last);
  for (const [key, overlay] of Object.entries(view.overlays)) updateOverlay(key, overlay);
  for (const chart of view.charts) updateOverlay(chart.key);
  updateSummary();
  const dragged = view.charts.find((chart) => chart.drags);
  if (dragged) showPresets(form, dragged.drags, view.presets, (key, value) => change({ [key]: value }));
}

/** The overlay that a part adds to a chart. */
function overlayOf(key) {
  return parts.map(({ part }) => part.view?.overlays[key]).find(Boolean);
}

function updateOverlay(key, overlay = overlayOf(key)) {
  const owner = parts.find(({ part }) => part.figures.has(key));
  if (!owner) return;
  const [keyX, keyY] = owner.part.figures.get(key).chart.picks || [];
  const marks = keyX ? keptOf(panel).filter((one) => Number.isFinite(one.state[keyX])).map((one) => ({ x: one.state[keyX], y: one.state[keyY], name: one.name })) : [];
  owner.part.addOverlay(key, overlay, marks);
}

/** Update what the panel shows of all its parts together: answer, time, diagram, examples. */
function updateSummary() {
  const views = parts.filter(({ part }) => isVisible(part)).map(({ part }) => part.view).filter(Boolean);
  const given = (value) => value && (value.length === undefined || value.length);
  const last = (key) => views.map((view) => view[key]).filter(given).pop() || null;
  const doubtful = views.some((view) => view.validity?.kind === "outside");
  find("stage").classList.toggle("outside", doubtful);
  // The last part with an answer gives it: before it arrives, the answer of an earlier part would be another one.
  const order = parts.map(({ part }) => part).filter(isVisible).reverse();
  const first = order.find((part) => part.element.ariaBusy === "true" || given(part.view?.answer));
  const answer = first && first.element.ariaBusy !== "true" ? first.view.answer : null;
  if (answer !== null && find("answer").textContent !== answer) find("answer").textContent = answer;
  player.setClock(last("clock"));
  showDiagram();
  for (const { part } of parts) part.showFrame(currentFrame(), player.time);
  showExamples(find("examples"), panels, panel, state);
  updateComparison();
  hideRepeated();
}

function moved(share, playing) {
  state = { ...state, time: share };
  for (const { part } of parts) part.showFrame(currentFrame(), player.time);
  showDiagram();
  if (!playing) setAddress();
}

/** Draw the diagram of the visible parts. */
function showDiagram() {
  const diagram = parts.filter(({ part }) => isVisible(part)).map(({ part }) => part.view?.diagram).filter(Boolean).pop() || null;
  drawDiagram(find("diagram"), diagram, player.clock ? currentFrame() : null);
}

function showRejection(part, error) {
  const control = panel.controls.find((one) => one.key === error.field);
  // A value that is allowed may still have no answer, for another reason.
  const message = control && error.message.includes(" is not valid, got ") ? `${control.label} must be ${allowedValues(control)}.` : error.message;
  markInvalid(form, panel, error.field, message);
  find("answer").textContent = message;
  part.reject(message);
  hideRepeated();
}

/** Hide texts and numbers that another visible part shows already. */
function hideRepeated() {
  const seen = new Set([find("answer").textContent]);
  for (const element of document.querySelectorAll("#parts .validity, #parts .note, #parts .readings dl > div")) {
    if (element.closest(".part").hidden) continue;
    // Each part measures its conditions; if they hold, the class of the forecast is shown once.
    const whole = element.matches(".validity") && !element.querySelector(".fails") ? element.firstChild?.textContent : element.textContent;
    // The same condition that fails in two parts has other numbers there.
    const text = element.matches(".warning") ? whole.replace(/[\d.]+/g, "") : whole;
    element.hidden = seen.has(text);
    seen.add(text);
  }
}

/** Connect the pointer and the keyboard to a chart. */
function connect(element, current) {
  const chart = current();
  if (chart.picks) enablePicking(element, current, change);
  else if (chart.drags) {
    const control = panel.controls.find((one) => one.key === chart.drags);
    enableDragging(element, current, () => state[chart.drags], () => [control.least, control.most], change);
  } else if (chart.x.clock) enableScrubbing(element, current, player);
}

/**
 * Set new values and update the address, the form and the charts. The first change of a gesture makes an entry of the
 * browser's history, which Back undoes; further changes replace it.
 */
function change(values) {
  if (isStatic && !("topic" in values)) {
    showStatus("This copy has only the guided examples. Run `learncast explore` to change the settings.");
    return;
  }
  const cleared = panel.controls.filter((one) => one.key in values).flatMap((one) => one.clears);
  const keys = Object.keys(values).join();
  const now = performance.now();
  state = { ...state, ...Object.fromEntries(cleared.map((key) => [key, null])), ...values };
  const begins = (gesture !== keys || (!pointerDown && now - lastChange > GESTURE)) && addressOf(panel, state) !== location.hash;
  if (begins) for (const { part } of parts) part.remember();
  [gesture, lastChange] = [keys, now];
  setAddress(begins ? "pushState" : "replaceState");
  // The link to this panel reopens it in its current state.
  linkOf(panel).href = addressOf(panel, state);
  show(form, panel, state);
  ask();
}

/** The pointer went down or up: the next change starts a new gesture. */
function setPointer(down) {
  pointerDown = down;
  gesture = "";
}

function ask() {
  showExamples(find("examples"), panels, panel, state);
  for (const tab of find("topics").children) tab.setAttribute("aria-selected", String(tab.dataset.topic === state.topic));
  for (const { part, requests } of parts) {
    part.element.hidden = !isVisible(part);
    part.setBusy(isVisible(part));
    if (isVisible(part)) requests.ask(requestBody());
  }
}

/** The body of a request: the state, or in a static copy the number of the example. */
function requestBody() {
  return isStatic ? { example: panel.examples.findIndex((one) => isExample(panel, state, one)) } : state;
}

function readings() {
  return parts.filter(({ part }) => isVisible(part)).flatMap(({ part }) => part.view?.readings || []);
}

function keepSettings() {
  showStatus(keep(panel, state, readings()) ? "Kept for comparison." : "Four settings are kept already. Remove one first.");
  keptChanged();
}

function keptChanged() {
  updateComparison();
  if (panel.parts.includes("portrait")) updateOverlay("portrait");
}

function updateComparison() {
  compare(find("kept"), panel, state, readings(), keptChanged);
}

async function copyLink() {
  setAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    showStatus("Copied.");
  } catch {
    showStatus(`Copy this address: ${location.href}`);
  }
}

async function download(what, name) {
  try {
    const answer = await post(`api/${panel.name}/${what}`, requestBody());
    const link = node("a", { href: URL.createObjectURL(await answer.blob()), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    showStatus(`Saved ${name}.`);
  } catch (error) {
    showStatus(error.message);
  }
}

function showStatus(message) {
  find("status").textContent = message;
}

function chooseTheme(name, keepIt = false) {
  document.documentElement.dataset.theme = name;
  const dark = name === "dark";
  find("theme").textContent = dark ? "☀" : "☾";
  find("theme").setAttribute("aria-pressed", String(dark));
  for (const { part } of parts) part.redraw();
  if (panel) showDiagram();
  if (!keepIt) return;
  try {
    localStorage.setItem("theme", name);
  } catch {
    // Without storage the choice lasts until the page is closed.
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
