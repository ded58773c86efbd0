// The time player: play, pause and a slider for the animations of a panel.

import { formatNumber } from "./charts.js";
import { node } from "./part.js";

/** Milliseconds that an animation takes, and between two of its frames. */
const DURATION = 7000;
const INTERVAL = 45;

export class Player {
  /** @param {Element} box @param {(share: number, playing: boolean) => void} moved called with every frame shown */
  constructor(box, moved) {
    this.box = box;
    this.moved = moved;
    this.clock = null;
    this.share = 0;
    this.playing = false;
    this.button = node("button", { type: "button", className: "play" });
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.bar = node("input", { type: "range", min: 0, max: 1, step: 0.005 });
    this.bar.setAttribute("aria-label", "Training time");
    this.bar.addEventListener("input", () => this.seek(Number(this.bar.value)));
    this.output = node("output", { className: "clock" });
    box.replaceChildren(this.button, this.bar, this.output);
    this.label();
  }

  /** Set a view's clock, or none. */
  setClock(clock) {
    this.clock = clock;
    this.box.hidden = !clock;
    if (!clock) this.pause();
    else this.show();
  }

  get frames() {
    return this.clock.times.length;
  }

  get time() {
    return this.clock ? this.clock.times[Math.round(this.share * (this.frames - 1))] : null;
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
      this.share = Math.min(1, this.share + (now - last) / DURATION);
      last = now;
      if (now - shown >= INTERVAL || this.share >= 1) {
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

  /** Stop playing and go to a fraction of the time. */
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
    const text = `${formatNumber(Math.round(this.time), 9)} ${this.clock.unit.replace("gradient ", "")}`;
    this.output.textContent = text;
    this.bar.setAttribute("aria-valuetext", text);
  }

  label() {
    this.button.textContent = this.playing ? "❚❚ Pause" : "▶ Play";
    this.button.setAttribute("aria-pressed", String(this.playing));
  }
}
