// Time that moves: one clock for every film of a room, with play, pause and a bar to scrub.

import { rounded } from "./panels.js";
import { node } from "./view.js";

/** Milliseconds in which a whole course is played, and between two pictures of it. */
const COURSE = 7000;
const BETWEEN = 45;

export class Player {
  /** @param {Element} box @param {(share: number, playing: boolean) => void} moved called with every moment shown */
  constructor(box, moved) {
    this.box = box;
    this.moved = moved;
    this.clock = null;
    this.share = 0;
    this.playing = false;
    this.button = node("button", { type: "button", className: "play" });
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.bar = node("input", { type: "range", min: 0, max: 1, step: 0.005 });
    this.bar.setAttribute("aria-label", "Moment of the training");
    this.bar.addEventListener("input", () => this.seek(Number(this.bar.value)));
    this.words = node("output", { className: "clock" });
    box.replaceChildren(this.button, this.bar, this.words);
    this.label();
  }

  /** Take a view's clock, or none. */
  wind(clock) {
    this.clock = clock;
    this.box.hidden = !clock;
    if (!clock) this.pause();
    else this.show();
  }

  get moments() {
    return this.clock.times.length;
  }

  get time() {
    return this.clock ? this.clock.times[Math.round(this.share * (this.moments - 1))] : null;
  }

  play() {
    if (!this.clock) return;
    if (this.share >= 1) this.share = 0;
    this.playing = true;
    this.label();
    let last = performance.now();
    let shown = last;
    const frame = (now) => {
      if (!this.playing) return;
      this.share = Math.min(1, this.share + (now - last) / COURSE);
      last = now;
      if (now - shown >= BETWEEN || this.share >= 1) {
        shown = now;
        this.show();
        this.moved(this.share, true);
      }
      if (this.share >= 1) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    const was = this.playing;
    this.playing = false;
    this.label();
    if (was) this.moved(this.share, false);
  }

  /** Go to a moment, by hand; `held` while the hand is still on it. */
  seek(share) {
    this.playing = false;
    this.label();
    this.set(share);
    this.moved(this.share, false);
  }

  set(share) {
    this.share = Math.min(1, Math.max(0, Math.round(share * 200) / 200 || 0));
    if (this.clock) this.show();
  }

  show() {
    this.bar.value = this.share;
    const words = `${rounded(this.time, 4)} ${this.clock.unit.replace("gradient ", "")}`;
    this.words.textContent = words;
    this.bar.setAttribute("aria-valuetext", words);
  }

  label() {
    this.button.textContent = this.playing ? "❚❚ Pause" : "▶ Play";
    this.button.setAttribute("aria-pressed", String(this.playing));
  }
}
