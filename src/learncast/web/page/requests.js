// Requests to the server: while one is running only the newest waits, so the last setting always wins.

/** Milliseconds before a request is repeated if the server does not answer. */
const RETRY = 1000;

export class Rejection extends Error {
  /** @param {string} message @param {string | null} field the invalid control */
  constructor(message, field = null) {
    super(message);
    this.field = field;
  }
}

export class ServerLost extends Error {}

export class LatestRequest {
  /**
   * @param {string} path of the request
   * @param {object} listener `answered(answer, state, last)` for every answer, with whether no newer request waits;
   *   `rejected(rejection)`; `lost(message)` while the server does not answer; `cancelled()`
   */
  constructor(path, listener) {
    this.path = path;
    this.listener = listener;
    this.running = null;
    this.waiting = null;
    this.closed = false;
  }

  ask(state) {
    this.waiting = state;
    clearTimeout(this.timer);
    if (!this.running) this.next();
  }

  /** Cancel the running request; the server then stops computing. */
  cancel() {
    this.waiting = null;
    this.running?.abort();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.cancel();
  }

  async next() {
    while (this.waiting !== null) {
      const state = this.waiting;
      this.waiting = null;
      this.running = new AbortController();
      try {
        const answer = await post(this.path, state, this.running.signal);
        const view = await answer.json();
        if (!this.closed) this.listener.answered(view, state, this.waiting === null);
      } catch (error) {
        // The failure of a request does not matter if a newer one waits.
        if (!this.closed && this.waiting === null) this.failed(error, state);
      }
      this.running = null;
    }
  }

  failed(error, state) {
    if (error.name === "AbortError") this.listener.cancelled();
    else if (error instanceof ServerLost) {
      this.listener.lost(error.message);
      this.timer = setTimeout(() => this.ask(state), RETRY);
    } else this.listener.rejected(error);
  }
}

/** Whether this page is a static copy, which has only the answers to its examples. */
export const isStatic = document.documentElement.dataset.static === "true";

/** The descriptions of all panels. */
export async function listPanels() {
  return (await fetch(isStatic ? "api/panels.json" : "api/panels")).json();
}

const ENDINGS = { study: "toml", table: "csv" };

async function storedAnswer(path, { example }, signal) {
  if (example < 0) throw new Rejection("This copy has only the guided examples. Run `learncast explore` to change the settings.");
  const answer = await fetch(`${path}-${example}.${ENDINGS[path.split("/").pop()] || "json"}`, { signal });
  if (!answer.ok) throw new Rejection("This answer is missing from the copy.");
  return answer;
}

/** Post a state; an error status becomes an exception with the server's message. */
export async function post(path, state, signal = undefined) {
  if (isStatic) return storedAnswer(path, state, signal);
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(state),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerLost("The server does not answer. Start `learncast explore` again; the page then continues.");
  }
  if (answer.ok) return answer;
  if (answer.status === 503 || answer.status === 429) {
    // The server is busy: try again in a moment.
    await new Promise((resume) => setTimeout(resume, 150));
    return post(path, state, signal);
  }
  const result = await answer.json().catch(() => ({}));
  throw new Rejection(result.error || `The server rejected the request (${answer.status}).`, result.field || null);
}
