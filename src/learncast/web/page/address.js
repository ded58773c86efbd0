// The address of the page holds the state: a link reopens exactly this view.

/** The room and the changed values that an address names. */
export function read(hash) {
  const [name, query] = hash.replace(/^#/, "").split("?");
  return { room: decoded(name || ""), values: new URLSearchParams(query || "") };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** The address of a state: its room, and what differs from how the room opens. */
export function written(room, state) {
  const values = new URLSearchParams();
  for (const control of room.controls) {
    const value = state[control.key];
    if (JSON.stringify(value) !== JSON.stringify(control.default)) values.set(control.key, text(value));
  }
  const query = values.toString();
  return `#${encodeURIComponent(room.name)}${query ? `?${query}` : ""}`;
}

/** A state from the values of an address; what an address does not name is as the room opens. */
export function stateOf(room, values) {
  const state = {};
  for (const control of room.controls) {
    state[control.key] = values.has(control.key) ? parsed(control, values.get(control.key)) : control.default;
  }
  return state;
}

function text(value) {
  if (value === null) return "none";
  return Array.isArray(value) ? value.join(",") : String(value);
}

// What cannot be a value is handed to the server as it is, which says what it should have been.
function parsed(control, word) {
  if (control.kind === "choice") return word;
  if (control.kind === "toggle") return word === "true" ? true : word === "false" ? false : word;
  if (word === "none") return null;
  if (control.kind === "numbers") return word.split(",").map((item) => number(item));
  return number(word);
}

function number(word) {
  const value = Number(word);
  return word.trim() === "" || !Number.isFinite(value) ? word : value;
}
