// The form: a control for every field of a room's state.

import { pretty } from "./panels.js";
import { node } from "./view.js";

/** Fill the form; `changed(key, value)` is called whenever a control is moved, `left()` when a field is. */
export function build(form, room, changed, left) {
  form.replaceChildren();
  form.onfocusout = left;
  const groups = new Map();
  for (const control of room.controls) {
    if (control.kind === "hidden") continue;
    if (!groups.has(control.group)) {
      const group = node("details", { className: "group", open: !control.folded });
      if (control.group) group.append(node("summary", { textContent: control.group }));
      groups.set(control.group, group);
      form.append(group);
    }
    groups.get(control.group).append(built(control, changed));
  }
}

/** Show a state in the form, without a word to anybody. */
export function show(form, room, state) {
  for (const control of room.controls) {
    const box = form.querySelector(`[data-key="${control.key}"]`);
    if (!box) continue;
    box.hidden = !applies(control, state);
    const value = state[control.key];
    for (const input of box.querySelectorAll("input, select")) {
      // What somebody is typing is theirs until they leave it.
      if (input === document.activeElement && (input.type === "number" || input.type === "text")) continue;
      if (input.type === "checkbox") input.checked = value === true;
      else if (input.type === "range") input.value = position(control, value);
      else input.value = Array.isArray(value) ? value.map(short).join(", ") : typeof value === "number" ? short(value) : value;
    }
    const slider = box.querySelector("input[type=range]");
    if (slider) slider.setAttribute("aria-valuetext", `${short(value)}${unit(control)}`);
  }
  // A heading without a control says nothing.
  for (const group of form.querySelectorAll(".group")) group.hidden = !group.querySelector(".control:not([hidden])");
}

/** Mark the control that a refusal names, with what it may be; without one, all are fine again. */
export function blame(form, room, field) {
  for (const box of form.querySelectorAll(".control.wrong")) {
    box.classList.remove("wrong");
    box.querySelector(".why").remove();
    for (const input of box.querySelectorAll("input, select")) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-errormessage");
    }
  }
  const control = room.controls.find((one) => one.key === field);
  const box = control && form.querySelector(`[data-key="${field}"]`);
  if (!box) return false;
  box.closest("details").open = true;
  box.classList.add("wrong");
  const why = node("p", { className: "why", id: `why-${field}`, textContent: `${control.label} must be ${allowed(control)}.` });
  box.append(why);
  for (const input of box.querySelectorAll("input, select")) {
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-errormessage", why.id);
  }
  return true;
}

/** What a control may be, in a clause. */
export function allowed(control) {
  const range = `${short(control.least)} to ${short(control.most)}${unit(control)}`;
  if (control.kind === "numbers") return `a list of numbers, each ${range}`;
  if (control.kind === "choice") return `one of ${control.choices.map(([, words]) => words).join(", ")}`;
  return control.kind === "range" ? `a number from ${range}` : "on or off";
}

function applies(control, state) {
  return Object.entries(control.when || {}).every(([key, allowed]) => allowed.includes(String(state[key])));
}

function built(control, changed) {
  const box = node("div", { className: "control" });
  box.dataset.key = control.key;
  const label = node("label", { htmlFor: `control-${control.key}` });
  label.append(control.label);
  if (unit(control)) label.append(node("small", { textContent: ` (${pretty(control.unit)})` }));
  const name = node("span", { className: "name" });
  name.append(label);
  if (control.help) name.append(...helped(control, box));
  box.append(name);
  const make = { range: ranged, choice: chosen, toggle: toggled, numbers: listed }[control.kind];
  box.append(...make(control, changed, box));
  return box;
}

/** A button that opens a control's help: by hand, by touch and by keyboard. */
function helped(control, box) {
  const button = node("button", { type: "button", className: "help", textContent: "?" });
  button.setAttribute("aria-label", `What is ${control.label}?`);
  button.setAttribute("aria-expanded", "false");
  const text = node("p", { className: "helping", id: `help-${control.key}`, hidden: true, textContent: control.help });
  button.setAttribute("aria-controls", text.id);
  button.addEventListener("click", () => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
  });
  setTimeout(() => box.append(text));
  return [button];
}

function ranged(control, changed) {
  const number = document.createElement("input");
  Object.assign(number, { type: "number", id: `control-${control.key}`, step: "any", min: control.least, max: control.most });
  const slider = document.createElement("input");
  const [least, most] = [position(control, control.least), position(control, control.most)];
  // A whole number of steps, so that the last one ends at the bound.
  const steps = Math.max(1, Math.round((most - least) / (control.step || (most - least) / 200)));
  Object.assign(slider, { type: "range", min: least, max: most, step: (most - least) / steps });
  slider.setAttribute("aria-label", control.label);
  slider.addEventListener("input", () => changed(control.key, valued(control, Number(slider.value))));
  number.addEventListener("input", () => {
    if (number.value !== "" && number.validity.valid) changed(control.key, Number(number.value));
  });
  // A number out of bounds goes to the server, whose sentence says what is allowed.
  number.addEventListener("change", () => {
    if (number.value !== "") changed(control.key, Number(number.value));
  });
  return [number, slider];
}

function chosen(control, changed, box) {
  const select = document.createElement("select");
  select.id = `control-${control.key}`;
  for (const [value, words] of control.choices) select.add(new Option(words, value));
  select.addEventListener("change", () => changed(control.key, select.value));
  box.classList.add("wide");
  return [select];
}

function toggled(control, changed) {
  const input = document.createElement("input");
  Object.assign(input, { type: "checkbox", id: `control-${control.key}` });
  input.addEventListener("change", () => changed(control.key, input.checked));
  return [input];
}

function listed(control, changed, box) {
  const input = document.createElement("input");
  Object.assign(input, { type: "text", id: `control-${control.key}`, spellcheck: false });
  input.addEventListener("change", () => {
    const words = input.value.split(/[\s,;]+/).filter((word) => word);
    changed(control.key, words.map((word) => (Number.isNaN(Number(word)) ? word : Number(word))));
  });
  box.classList.add("wide");
  return [input];
}

/** Buttons that set a list to one of several examples; these change with the list. */
export function offerPresets(form, key, presets, changed) {
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

// A slider's position is rounded to what can be told apart, so that addresses stay short.
function valued(control, place) {
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
