// The address of the page holds the state, so that a link reopens exactly this view.

/** The panel and the changed settings in an address. */
export function read(hash) {
  const [name, query] = hash.replace(/^#/, "").split("?");
  return { panel: decoded(name || ""), values: new URLSearchParams(query || "") };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** The address of a state: its panel, and the settings that differ from the panel's initial state. */
export function addressOf(panel, state) {
  const values = new URLSearchParams();
  for (const control of panel.controls) {
    const value = state[control.key];
    if (JSON.stringify(value) !== JSON.stringify(control.default)) values.set(control.key, format(value));
  }
  const query = values.toString();
  return `#${encodeURIComponent(panel.name)}${query ? `?${query}` : ""}`;
}

/** The state for the settings in an address; the others have their initial values. */
export function stateOf(panel, values) {
  const state = {};
  for (const control of panel.controls) {
    state[control.key] = values.has(control.key) ? parse(control, values.get(control.key)) : control.default;
  }
  return state;
}

function format(value) {
  if (value === null) return "none";
  return Array.isArray(value) ? value.join(",") : String(value);
}

// Text that cannot be a value is sent to the server, whose error message says what is valid.
function parse(control, text) {
  if (control.kind === "choice") return text;
  if (text === "none") return null;
  if (control.kind === "numbers") return text.split(",").map((item) => number(item));
  return number(text);
}

function number(text) {
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) ? text : value;
}
