// The picture of the front page: two trainings race to the target. Numbers: race.json, by docs/make_race.py.
(() => {
  const race = JSON.parse(document.getElementById("race-numbers").textContent);
  const [picture, bars, slider, play, percent, answer] =
    ["picture", "saved", "stop", "play", "percent", "answer"].map(id => document.getElementById(`race-${id}`));
  const MOST = 350, TOP = 1.55, EDGE = {left: 46, right: 14, top: 28, bottom: 40};
  const COUNT = 45;  // pixels from one number of steps to the next
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let shown = Infinity, timer = 0;  // gradient steps shown; all unless the animation runs

  const total = stop => stop.first + stop.second;
  const chosen = () => race.stops.find(stop => stop.percent === Number(slider.value));
  // Curves as pairs of step and output; those of the target are stored every few steps, and at their last step.
  const spread = (values, from, length) =>
    values.map((value, k) => [from + Math.min(k * race.every, length), value / 1000]);
  const direct = spread(race.directCurve, 0, race.direct);
  const first = race.firstCurve.map((value, step) => [step, value / 1000]);

  function draw() {
    const width = picture.clientWidth, height = width < 520 ? 260 : 320;
    const x = step => EDGE.left + step / MOST * (width - EDGE.left - EDGE.right);
    const y = share => height - EDGE.bottom - share / TOP * (height - EDGE.top - EDGE.bottom);
    const path = points => points.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    const upTo = points => {
      const before = points.filter(([step]) => step <= shown), next = points[before.length];
      if (next && before.length) {
        const [[a, b], [c, d]] = [before.at(-1), next];
        before.push([shown, b + (d - b) * (shown - a) / (c - a)]);
      }
      return before;
    };
    const stop = chosen(), second = spread(stop.curve, stop.first, stop.second);
    const text = (words, at, up, kind) => `<text x="${at}" y="${up}" class="${kind}">${words}</text>`;
    const runner = (points, kind) => {
      const last = upTo(points).at(-1);
      return last ? `<circle class="${kind}" cx="${x(last[0])}" cy="${y(last[1])}" r="5.5"/>` : "";
    };
    const parts = [`<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" aria-hidden="true">`];
    for (const share of [0, 0.5, 1, 1.5]) {
      parts.push(`<line class="${share === 1 ? "goal" : "grid"}" x1="${x(0)}" x2="${x(MOST)}" y1="${y(share)}" y2="${y(share)}"/>`,
        text(`${100 * share}%`, x(0) - 8, y(share) + 4, "tick left"));
    }
    for (let step = 0; step <= 300; step += 100) parts.push(text(step, x(step), height - 20, "tick"));
    parts.push(text("strength of the output, in % of the target", 0, 13, "name tick"));
    parts.push(text("gradient steps", x(MOST / 2), height - 3, "tick"), text("target", x(0) + 6, y(1) - 7, "name"));
    parts.push(`<rect class="during" x="${x(0)}" y="${EDGE.top}" width="${x(stop.first) - x(0)}" height="${y(0) - EDGE.top}"/>`);
    parts.push(`<path class="rest" d="${path(first.slice(stop.first))}"/>`);
    parts.push(`<path class="direct" d="${path(upTo(direct))}"/><path class="curriculum" d="${path(upTo(first.slice(0, stop.first + 1)))}"/>`);
    if (shown >= stop.first) {
      parts.push(`<path class="curriculum" d="${path(upTo(second))}"/>`);
      const [a, b] = first[stop.first];
      parts.push(`<rect class="first" x="${x(a) - 5}" y="${y(b) - 5}" width="10" height="10" transform="rotate(45 ${x(a)} ${y(b)})"/>`);
    }
    parts.push(runner(direct, "direct"), shown < stop.first ? runner(first, "curriculum") : runner(second, "curriculum"));
    if (shown >= race.direct) parts.push(text(race.direct, x(race.direct), y(1) + 24, "count direct"));
    if (shown >= total(stop)) {
      // Above the curve where the two numbers would stand on each other, by their places in pixels.
      const near = Math.abs(x(total(stop)) + 16 - x(race.direct)) < COUNT, [, end] = second.at(-1);
      parts.push(text(total(stop), x(total(stop)) + (near ? -8 : 16), y(end) + (near ? -14 : 24), "count curriculum"));
    }
    picture.innerHTML = `${parts.join("")}</svg>`;
    drawBars(stop);
    const saved = race.direct - total(stop);
    percent.textContent = `${stop.percent}%`;
    slider.setAttribute("aria-valuetext", `${stop.percent}% learned, ${total(stop)} steps in all`);
    const end = stop.second ? `then ${stop.second} on the target` : "and the target is already learned";
    answer.innerHTML = `<b>${total(stop)} steps</b> instead of ${race.direct}: ${saved} saved. ` +
      `<span>First task ${stop.first} steps (${stop.percent}% learned), ${end}.</span>`;
  }

  function drawBars(stop) {
    const most = Math.max(...race.stops.map(one => race.direct - total(one)));
    const place = (stop.percent - 0.5) / race.stops.length;
    const aside = place < 0.2 ? "left" : place > 0.8 ? "right" : "";
    bars.innerHTML = `<span class="${aside}" style="left: ${100 * place}%">${race.direct - total(stop)} steps saved</span>` +
      `<svg viewBox="0 0 99 34" preserveAspectRatio="none">${race.stops.map(one => {
        const tall = 34 * (race.direct - total(one)) / most;
        return `<rect class="${one === stop ? "here" : ""}" x="${one.percent - 0.95}" y="${34 - tall}" width="0.9" height="${tall}"/>`;
      }).join("")}</svg>`;
  }

  function end() {
    cancelAnimationFrame(timer);
    shown = Infinity;
    timer = 0;
    play.innerHTML = "&#9654; Play";
    draw();
  }

  function start() {
    if (timer) return end();
    if (still.matches) return end();
    const begin = performance.now();
    play.innerHTML = "&#9632; Stop";
    const frame = now => {
      shown = (now - begin) / 4000 * race.direct;
      if (shown > race.direct) return end();
      draw();
      timer = requestAnimationFrame(frame);
    };
    timer = requestAnimationFrame(frame);
  }

  slider.addEventListener("input", end);
  play.addEventListener("click", start);
  new ResizeObserver(() => timer || draw()).observe(picture);
})();
