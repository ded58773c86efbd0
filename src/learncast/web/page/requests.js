// Questions to the server: while one is on its way only the newest waits, so the last position always wins.

/** How long the page waits before it asks a server that has gone. */
const AGAIN = 1000;

export class Refusal extends Error {
  /** @param {string} sentence @param {string | null} field the control that is to blame */
  constructor(sentence, field = null) {
    super(sentence);
    this.field = field;
  }
}

export class Gone extends Error {}

export class Latest {
  /**
   * @param {string} path where the question goes
   * @param {object} listener `shown(answer, state, last)` for every answer, and whether no newer question waits;
   *   `refused(refusal)`; `lost(sentence)` while there is no server; `cancelled()`
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

  /** Give up what is on its way; the server hears of it and stops computing. */
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
        if (!this.closed) this.listener.shown(view, state, this.waiting === null);
      } catch (error) {
        // A newer question makes an older one's failure uninteresting.
        if (!this.closed && this.waiting === null) this.failed(error, state);
      }
      this.running = null;
    }
  }

  failed(error, state) {
    if (error.name === "AbortError") this.listener.cancelled();
    else if (error instanceof Gone) {
      this.listener.lost(error.message);
      this.timer = setTimeout(() => this.ask(state), AGAIN);
    } else this.listener.refused(error);
  }
}

/** Whether this page is a copy without a server, which knows the answers to its examples. */
export const kept = document.documentElement.dataset.answers === "kept";

/** The rooms, as they are listed. */
export async function listed() {
  return (await fetch(kept ? "api/rooms.json" : "api/rooms")).json();
}

const ENDINGS = { study: "toml", table: "csv" };

async function found(path, { example }, signal) {
  if (example < 0) throw new Refusal("This copy shows the guided examples; `learncast explore` moves everything.");
  const answer = await fetch(`${path}-${example}.${ENDINGS[path.split("/").pop()] || "json"}`, { signal });
  if (!answer.ok) throw new Refusal("This answer is missing from the copy.");
  return answer;
}

/** Post a state; an answer that is not fine becomes an error with the server's sentence. */
export async function post(path, state, signal = undefined) {
  if (kept) return found(path, state, signal);
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
    throw new Gone("The explorer's server does not answer. Start `learncast explore` again: the page goes on by itself.");
  }
  if (answer.ok) return answer;
  if (answer.status === 503 || answer.status === 429) {
    // Busy with others: a moment later there is room.
    await new Promise((resume) => setTimeout(resume, 150));
    return post(path, state, signal);
  }
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(told.error || `The server refused (${answer.status}).`, told.field || null);
}
