// The form: a control for every field of a panel's state.

import { formatUnit } from "./charts.js";
import { node } from "./part.js";

/** Build the form; `changed(key, value)` is called when a control changes, `left()` when a field loses the focus. */
export function build(form, panel, changed, left) {
  form.replaceChildren();
  form.onfocusout = left;
  const groups = new Map();
  const narrow = matchMedia("(max-width: 560px)").matches;
  for (const control of panel.controls) {
    if (control.kind === "hidden") continue;
    if (!groups.has(control.group)) {
      const group = node("details", { className: "group", open: !control.folded && !narrow });
      if (control.group) group.append(node("summary", { textContent: control.group }));
      groups.set(control.group, group);
      form.append(group);
    }
    groups.get(control.group).append(newControl(control, changed));
  }
}

/** Show a state in the form, without calling `changed`. */
export function show(form, panel, state) {
  for (const control of panel.controls) {
    const box = form.querySelector(`[data-key="${control.key}"]`);
    if (!box) continue;
    box.hidden = !isVisible(control, state);
    const value = state[control.key];
    for (const input of box.querySelectorAll("input, select")) {
      // Do not overwrite a field while the user types in it.
      if (input === document.activeElement && (input.type === "number" || input.type === "text")) continue;
      if (input.type === "range") input.value = position(control, value);
      else input.value = Array.isArray(value) ? value.map(short).join(", ") : typeof value === "number" ? short(value) : value;
    }
    const slider = box.querySelector("input[type=range]");
    if (slider) slider.setAttribute("aria-valuetext", `${short(value)}${unit(control)}`);
  }
  // Hide groups without a visible control.
  for (const group of form.querySelectorAll(".group")) group.hidden = !group.querySelector(".control:not([hidden])");
}

/** The settings of a state as texts, such as "trial length 50 steps". */
export function settingsOf(panel, state) {
  const shown = panel.controls.filter((one) => (one.kind === "hidden" ? one.key.startsWith("pin_") && state[one.key] !== null : isVisible(one, state) && !one.folded));
  return shown.map((one) => {
    const value = state[one.key];
    const text = Array.isArray(value) ? value.map(short).join(" ") : typeof value === "number" ? short(value) : one.choices.find(([key]) => key === value)?.[1] || String(value);
    return `${one.label} ${text}${formatUnit(unit(one))}`;
  });
}

/** Mark an invalid control with the reason; without a field, remove all marks. */
export function markInvalid(form, panel, field, reason = "") {
  for (const box of form.querySelectorAll(".control.invalid")) {
    box.classList.remove("invalid");
    box.querySelector(".why").remove();
    for (const input of box.querySelectorAll("input, select")) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-errormessage");
    }
  }
  const control = panel.controls.find((one) => one.key === field);
  const box = control && form.querySelector(`[data-key="${field}"]`);
  if (!box) return;
  box.closest("details").open = true;
  box.classList.add("invalid");
  const why = node("p", { className: "why", id: `why-${field}`, textContent: reason });
  box.append(why);
  for (const input of box.querySelectorAll("input, select")) {
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-errormessage", why.id);
  }
}

/** The allowed values of a control as text. */
export function allowedValues(control) {
  const range = `${short(control.least)} to ${short(control.most)}${unit(control)}`;
  if (control.kind === "numbers") return `a list of numbers, each ${range}`;
  if (control.kind === "choice") return `one of ${control.choices.map(([, label]) => label).join(", ")}`;
  return `a number from ${range}`;
}

function isVisible(control, state) {
  const allowed = (value, given) => (value.startsWith("!") ? value.slice(1) !== given : value === given);
  return Object.entries(control.when || {}).every(([key, values]) => values.some((value) => allowed(value, String(state[key]))));
}

function newControl(control, changed) {
  const box = node("div", { className: "control" });
  box.dataset.key = control.key;
  const label = node("label", { htmlFor: `control-${control.key}` });
  label.append(control.label);
  // A label such as "trial length" needs its unit, "hidden units" does not.
  if (unit(control) && !control.label.toLowerCase().includes(control.unit)) label.append(node("small", { textContent: ` (${formatUnit(control.unit)})` }));
  const name = node("span", { className: "name" });
  name.append(label);
  if (control.help) name.append(...helpButton(control, box));
  box.append(name);
  const make = { range: rangeInputs, choice: choiceInput, numbers: numbersInput }[control.kind];
  box.append(...make(control, changed, box));
  return box;
}

/** A button that opens a control's help text. */
function helpButton(control, box) {
  const button = node("button", { type: "button", className: "help", textContent: "?" });
  button.setAttribute("aria-label", `What is ${control.label}?`);
  button.setAttribute("aria-expanded", "false");
  const text = node("p", { className: "help-text", id: `help-${control.key}`, hidden: true, textContent: control.help });
  button.setAttribute("aria-controls", text.id);
  button.addEventListener("click", () => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
  });
  setTimeout(() => box.append(text));
  return [button];
}

function rangeInputs(control, changed) {
  const number = document.createElement("input");
  Object.assign(number, { type: "number", id: `control-${control.key}`, step: "any", min: control.least, max: control.most });
  const slider = document.createElement("input");
  const [least, most] = [position(control, control.least), position(control, control.most)];
  // An integer number of steps, so that the last one ends at the bound.
  const steps = Math.max(1, Math.round((most - least) / (control.step || (most - least) / 200)));
  Object.assign(slider, { type: "range", min: least, max: most, step: (most - least) / steps });
  slider.setAttribute("aria-label", control.label);
  slider.addEventListener("input", () => changed(control.key, valueAt(control, Number(slider.value))));
  number.addEventListener("input", () => {
    if (number.value !== "" && number.validity.valid) changed(control.key, Number(number.value));
  });
  // A number out of bounds goes to the server, whose message says what is allowed.
  number.addEventListener("change", () => {
    if (number.value !== "") changed(control.key, Number(number.value));
  });
  return [number, slider];
}

function choiceInput(control, changed, box) {
  const select = document.createElement("select");
  select.id = `control-${control.key}`;
  for (const [value, label] of control.choices) select.add(new Option(label, value));
  select.addEventListener("change", () => changed(control.key, select.value));
  box.classList.add("wide");
  return [select];
}

function numbersInput(control, changed, box) {
  const input = document.createElement("input");
  Object.assign(input, { type: "text", id: `control-${control.key}`, spellcheck: false });
  input.addEventListener("change", () => {
    const items = input.value.split(/[\s,;]+/).filter((word) => word);
    changed(control.key, items.map((word) => (Number.isNaN(Number(word)) ? word : Number(word))));
  });
  box.classList.add("wide");
  return [input];
}

/** Show buttons that set a list of numbers to one of several presets. */
export function showPresets(form, key, presets, changed) {
  const box = form.querySelector(`[data-key="${key}"]`);
  if (!box) return;
  const names = Object.keys(presets).join("\n");
  let row = box.querySelector(".presets");
  if (!row || row.dataset.names !== names) {
    row?.remove();
    row = document.createElement("div");
    row.className = "presets";
    row.dataset.names = names;
    for (const name of Object.keys(presets)) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name });
      button.addEventListener("click", () => changed(key, row.presets[name]));
      row.append(button);
    }
    box.append(row);
  }
  row.presets = presets;
}

function position(control, value) {
  return control.scale === "log" ? Math.log10(value) : value;
}

// The value at a slider position, rounded so that addresses stay short.
function valueAt(control, place) {
  const ends = [position(control, control.least), position(control, control.most)];
  if (place <= ends[0]) return control.least;
  if (place >= ends[1]) return control.most;
  if (control.scale === "log") return Number((10 ** place).toPrecision(4));
  const digits = control.step ? Math.max(0, Math.ceil(-Math.log10(control.step)) + 1) : 6;
  return Number(place.toFixed(digits));
}

function unit(control) {
  return control.unit && control.unit !== "1" ? ` ${control.unit}` : "";
}

function short(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
}
