// Questions to the server: while one is on its way only the newest waits, so the last position always wins.

export class Latest {
  /**
   * @param {string} path where the question goes
   * @param {(answer: object, state: object, last: boolean) => void} shown called with every answer, and whether no newer
   *   question waits
   * @param {(sentence: string) => void} refused called with the server's sentence
   */
  constructor(path, shown, refused) {
    this.path = path;
    this.shown = shown;
    this.refused = refused;
    this.running = false;
    this.waiting = null;
    this.closed = false;
  }

  ask(state) {
    this.waiting = state;
    if (!this.running) this.next();
  }

  close() {
    this.closed = true;
    this.waiting = null;
  }

  async next() {
    while (this.waiting !== null) {
      const state = this.waiting;
      this.waiting = null;
      this.running = true;
      try {
        const answer = await post(this.path, state);
        const view = await answer.json();
        if (!this.closed) this.shown(view, state, this.waiting === null);
      } catch (error) {
        // A newer question makes an older one's failure uninteresting.
        if (!this.closed && this.waiting === null) this.refused(error.message);
      }
      this.running = false;
    }
  }
}

/** Post a state; an answer that is not fine becomes an error with the server's sentence. */
export async function post(path, state) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(state),
    });
  } catch {
    throw new Error("The explorer's server does not answer. Start `learncast explore` again, then move any control.");
  }
  if (answer.ok) return answer;
  if (answer.status === 503) {
    // Busy with others: a moment later there is room.
    await new Promise((resume) => setTimeout(resume, 150));
    return post(path, state);
  }
  const told = await answer.json().catch(() => ({}));
  throw new Error(told.error || `The server refused (${answer.status}).`);
}
