// Panels drawn by plotly: the server says what is shown, this file how it looks.

/* global Plotly */

// Told apart by most colour-blind readers, on white and on black. Each has one meaning in every room: the target, what is
// learned before it, and a third way; then modes, in their order.
const SERIES = {
  light: ["#0072b2", "#d55e00", "#6b7280", "#00795a", "#a8518a", "#8c6d00", "#2f6fc4", "#7a5230"],
  dark: ["#56b4e9", "#f0883e", "#a9b2bd", "#3fcf9f", "#dd8cbf", "#e6c34a", "#9ab8f5", "#d0a780"],
};
// Signed numbers have colours of their own, which stand for no task.
const DIVERGING = {
  light: [[0, "#6b3d00"], [0.25, "#c8965a"], [0.5, "#f7f7f5"], [0.75, "#62b0a5"], [1, "#00564a"]],
  dark: [[0, "#e3b06a"], [0.25, "#7d5a2a"], [0.5, "#1c2024"], [0.75, "#2a7a70"], [1, "#7fdccd"]],
};
const SEQUENTIAL = {
  light: [[0, "#f4f5f7"], [1, "#3d4c66"]],
  dark: [[0, "#22272c"], [1, "#c3d0e6"]],
};
const FONT = "system-ui, Segoe UI, Roboto, Helvetica Neue, sans-serif";

/** Numbers as the server packs them: base64 of float64, with a shape. */
export function unpacked(value) {
  if (value === null || value === undefined || Array.isArray(value)) return value;
  if (value.bdata === undefined) return value;
  if (value.numbers) return value.numbers;
  const bytes = Uint8Array.from(atob(value.bdata), (letter) => letter.charCodeAt(0));
  value.numbers = folded(Array.from(new Float64Array(bytes.buffer)), value.shape.split(",").map(Number));
  return value.numbers;
}

function folded(numbers, shape) {
  if (shape.length < 2) return numbers;
  const size = numbers.length / shape[0];
  return Array.from({ length: shape[0] }, (_, row) => folded(numbers.slice(row * size, (row + 1) * size), shape.slice(1)));
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const dark = document.documentElement.dataset.theme === "dark";
  return {
    kind: dark ? "dark" : "light",
    ink: colour("ink"), faint: colour("faint"), grid: colour("grid"), card: colour("card"), line: colour("line"),
    accent: colour("accent"), error: colour("error"), pin: colour("pin"), series: SERIES[dark ? "dark" : "light"],
  };
}

/** Units as they are read: powers raised, products with their sign. */
export function pretty(unit) {
  return String(unit).replaceAll("^2", "²").replaceAll(" x ", " × ");
}

/** A number for people: four digits, thousands apart, no exponents where none are needed. */
export function rounded(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "unknown" : value > 0 ? "never" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return Number(value.toPrecision(Math.min(digits, 3))).toExponential().replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumSignificantDigits: digits });
}

/**
 * Draw a panel into its element, or redraw it.
 * @param {object} more what is drawn besides: `overlay` traces, the `ghost` of the panel before, `marks` kept for comparison
 */
export function draw(element, panel, more = {}) {
  const look = lookOf(panel);
  const traces = [
    ...ghosts(more.ghost, panel, look),
    ...panel.traces.flatMap((trace) => drawn(trace, panel, look)),
    ...(more.overlay?.traces || []).flatMap((trace) => drawn(trace, panel, look)),
    ...marked(more.marks, look),
  ];
  const config = { displaylogo: false, responsive: false, displayModeBar: false, doubleClick: "reset", scrollZoom: false };
  return Plotly.react(element, traces, layout(panel, look, element, more.overlay?.arrows || []), config);
}

function lookOf(panel) {
  const look = theme();
  // Theory is black over coloured training; alone it has the colours to itself.
  look.theory = panel.traces.some((trace) => trace.role === "descent") ? look.ink : null;
  return look;
}

function drawn(trace, panel, look) {
  const [x, y, z] = [unpacked(trace.x), unpacked(trace.y), unpacked(trace.z)];
  const colour = coloured(trace, look);
  const base = { name: trace.name, x, y, hoverinfo: "none", meta: trace.role };
  switch (trace.kind) {
    case "line":
    case "steps":
      return [{
        ...base, type: "scatter", mode: "lines", connectgaps: false,
        line: { color: colour, width: trace.role === "theory" ? 2.5 : 2, dash: dashed(trace, look), shape: trace.kind === "steps" ? "hv" : "linear" },
      }];
    case "points":
      return [{
        ...base, type: "scatter", mode: "markers", cliponaxis: false, hoverinfo: trace.role === "differs" ? "skip" : "none",
        marker: { color: colour, size: SIZES[trace.role] || 9, symbol: SYMBOLS[trace.role] || "circle", opacity: trace.role === "differs" ? 0.7 : 1, line: { color: look.card, width: trace.role === "differs" ? 0 : 1.5 } },
      }];
    case "bars":
      return [{
        ...base, x: x.map(wrapped), type: "bar", marker: { color: y.map((value) => DIVERGING[look.kind][value < 0 ? 1 : 3][1]) },
        text: y.map((value) => (Number.isFinite(value) ? rounded(value, 3) : "")), textposition: "outside", cliponaxis: false,
      }];
    case "heat":
      return [heat(base, z, panel, look)];
    case "contour":
      return [{
        ...base, ...heated(panel), type: "contour", showscale: false, hoverinfo: "skip",
        contours: { start: 0, end: 0, size: 1, coloring: "none" }, line: { color: look.ink, width: 1.5 },
      }];
    case "band":
      return [
        { ...base, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
        { ...base, y: z, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `${colour}40` },
      ];
    default:
      throw new Error(`a trace of unknown kind: ${trace.kind}`);
  }
}

const DASHES = { theory: "dot", target: "dash", null: "dash", threshold: "dashdot", zero: "solid" };
const SYMBOLS = { best: "star", pinned: "circle-x-open", differs: "circle" };
const SIZES = { best: 15, pinned: 16, differs: 4 };

function dashed(trace, look) {
  if (trace.role === "theory") return look.theory && trace.series ? "dashdot" : "dot";
  return DASHES[trace.role] || "solid";
}

function coloured(trace, look) {
  const own = look.series[trace.series % look.series.length];
  if (trace.role === "pinned") return trace.series ? own : look.pin;
  const fixed = { theory: look.theory || own, target: trace.series ? own : look.ink, zero: look.ink, best: look.ink, null: trace.series ? own : look.faint, threshold: look.error, differs: look.ink };
  return fixed[trace.role] || own;
}

/** The curves of the setting before, faint, behind those of this one. */
function ghosts(before, panel, look) {
  if (!before || before === panel) return [];
  const kept = before.traces.filter((trace) => (trace.kind === "line" || trace.kind === "steps") && ["data", "descent", "best"].includes(trace.role));
  return kept.map((trace) => ({
    x: unpacked(trace.x), y: unpacked(trace.y), name: "before", type: "scatter", mode: "lines", hoverinfo: "skip", meta: "ghost",
    line: { color: look.faint, width: 1.5, shape: trace.kind === "steps" ? "hv" : "linear" }, opacity: 0.45,
  }));
}

/** Settings kept for comparison, where they lie in the picture. */
function marked(marks, look) {
  if (!marks || !marks.length) return [];
  return [{
    x: marks.map((one) => one.x), y: marks.map((one) => one.y), text: marks.map((one) => one.name), type: "scatter", mode: "markers+text",
    textposition: "middle center", textfont: { size: 11, color: look.card }, hoverinfo: "skip", cliponaxis: false, name: "kept",
    marker: { size: 18, color: look.pin, line: { color: look.card, width: 1.5 } },
  }];
}

// A contour is drawn on the heat of its panel.
function heated(panel) {
  const { x, y, z } = panel.traces.find((trace) => trace.kind === "heat");
  return { x: unpacked(x), y: unpacked(y), z: unpacked(z) };
}

/** Whether a panel is a small matrix: rows and columns are words, and every number has room. */
export function isMatrix(panel) {
  return panel.traces.some((trace) => trace.kind === "heat" && isWords(trace.x) && isWords(trace.y));
}

function isWords(values) {
  return Array.isArray(values) && typeof values[0] === "string";
}

function heat(base, z, panel, look) {
  const values = z.flat().filter(Number.isFinite);
  const [least, most] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const span = panel.z && panel.z.span;
  const signed = span ? span[0] < 0 : least < 0 && -least > 1e-9 * most;
  const bound = Math.max(-least, most);
  const small = isMatrix(panel);
  return {
    ...base, z, type: "heatmap", showscale: !small, zsmooth: false, xgap: small ? 2 : 0, ygap: small ? 2 : 0,
    colorscale: (signed ? DIVERGING : SEQUENTIAL)[look.kind],
    ...(span ? { zmin: span[0], zmax: span[1] } : signed ? { zmin: -bound, zmax: bound } : { zmin: Math.min(0, least), zmax: most || 1 }),
    ...(small ? { text: lettered(z), texttemplate: "%{text}", textfont: { size: 12 } } : {}),
    hoverongaps: false,
    colorbar: { title: { text: titled(panel.z), side: "right" }, thickness: 12, outlinewidth: 0, tickcolor: look.faint, tickformat: ",~r", nticks: 6, ...ends(span, least, most) },
  };
}

/** Where values go beyond the colours, the scale's ends say so. */
function ends(span, least, most) {
  if (!span || !(span[1] > 0)) return {};
  const step = nice(span[1] / 3);
  const values = [];
  for (let k = -Math.floor(span[1] / step); k * step <= span[1]; k += 1) values.push(k * step);
  const texts = values.map((value) => rounded(value, 3));
  const last = values.length - 1;
  if (least < span[0] * 1.001) texts[0] = `≤ ${texts[0]}`;
  if (most > span[1] * 1.001) texts[last] = `≥ ${texts[last]}`;
  return { tickvals: values, ticktext: texts };
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((digit) => digit * power >= value) * power;
}

function lettered(z) {
  return z.map((row) => row.map((value) => (Number.isFinite(value) ? brief(value) : "")));
}

// Two decimals are enough beside a colour, and nothing has no sign.
function brief(value) {
  const size = Math.abs(value);
  return size < 0.005 ? "0" : rounded(Number(value.toFixed(size < 10 ? 2 : 0)), 3).replace("-", "−");
}

/** Channels counted under one word: the word is the axis, the numbers its ticks. */
function channels(words) {
  const found = words.map((word) => /^(.*) (\d+)$/.exec(word));
  const name = found[0]?.[1];
  return name && found.every((one) => one && one[1] === name) ? { name, numbers: found.map((one) => one[2]) } : null;
}

// Long words under bars stand on several lines instead of aslant.
function wrapped(words) {
  if (typeof words !== "string" || words.length < 15) return words;
  return words.replace(/(.{8,}?)\s/g, "$1<br>");
}

export function titled(axis) {
  if (!axis) return "";
  return axis.unit && axis.unit !== "1" && axis.unit !== axis.label ? `${axis.label} (${pretty(axis.unit)})` : axis.label;
}

/** The title of an upright axis on two lines, where the picture is not as tall as it is long. */
function fitted(text, letter, element) {
  return letter === "y" && text.length * 7 > element.clientHeight - 60 ? text.replace(/ \((?=[^(]*$)/, "<br>(") : text;
}

/** What lies under the pointer, as one line of words. */
export function told(panel, points) {
  const unit = (axis) => (axis.unit && axis.unit !== "1" && axis.unit !== axis.label ? ` ${pretty(axis.unit)}` : "");
  const value = (axis, number) => (typeof number === "string" ? number : `${axis.label} ${rounded(number)}${unit(axis)}`);
  const area = points.find((point) => point.data.type === "heatmap");
  if (area) return `${value(panel.x, area.x)}, ${value(panel.y, area.y)}: ${rounded(area.z)}${unit(panel.z || { unit: "1" })}`;
  const told = points.filter((point) => point.data.meta !== "ghost").map((point) => `${point.data.name} ${rounded(point.y)}`);
  return told.length ? `${value(panel.x, points[0].x)}: ${told.join("; ")}` : "";
}

/** The legend as elements of the page, which wrap where a picture's own would be cut. */
export function legend(panel, more = {}) {
  const look = lookOf(panel);
  const traces = [...panel.traces, ...(more.overlay?.traces || [])].filter((trace) => trace.legend && trace.kind !== "heat" && trace.kind !== "bars");
  const rows = traces.length + (panel.traces.some((trace) => trace.kind === "heat") ? 1 : 0) > 1 || panel.traces.length > 1 ? traces : [];
  const entries = rows.map((trace) => entry(trace.name, sample(trace, look)));
  if (ghosts(more.ghost, panel, look).length) entries.push(entry("as it was before", `<line x1="1" x2="25" y1="6" y2="6" stroke="${look.faint}" stroke-width="1.5" opacity="0.6"/>`));
  return entries;
}

function entry(name, inside) {
  const item = document.createElement("li");
  item.dataset.trace = name;
  item.innerHTML = `<svg viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">${inside}</svg>`;
  item.append(name);
  return item;
}

const STROKES = { dot: "2 3", dash: "6 4", dashdot: "6 3 1 3", solid: "" };

function sample(trace, look) {
  const colour = coloured(trace, look);
  if (trace.kind === "points") {
    if (trace.role === "best") return `<path d="M13 0l1.8 4 4.2.4-3.2 2.8 1 4.3-3.8-2.3-3.8 2.3 1-4.3L7 4.4l4.2-.4z" fill="${colour}"/>`;
    if (trace.role === "pinned") return `<circle cx="13" cy="6" r="4.5" fill="none" stroke="${colour}" stroke-width="1.5"/><path d="M10 3l6 6m0-6l-6 6" stroke="${colour}" stroke-width="1.5"/>`;
    return `<circle cx="13" cy="6" r="${trace.role === "differs" ? 1.8 : 4}" fill="${colour}"/>`;
  }
  if (trace.kind === "band") return `<rect x="1" y="2" width="24" height="8" fill="${colour}" opacity="0.3"/>`;
  const dash = trace.kind === "contour" ? "solid" : dashed(trace, look);
  return `<line x1="1" x2="25" y1="6" y2="6" stroke="${trace.kind === "contour" ? look.ink : colour}" stroke-width="2.2" stroke-dasharray="${STROKES[dash]}"/>`;
}

/** Ticks of a logarithmic axis: decades where there are some, else 1, 2, 5, else even ones. */
export function decades(low, high) {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  if (!(to > from)) return {};
  const found = [];
  const every = Math.max(1, Math.ceil((to - from) / 6));
  const digits = to - from >= 2.2 ? [1] : to - from >= 0.7 ? [1, 2, 5] : null;
  if (!digits) {
    const step = nice((high - low) / 5);
    for (let value = Math.ceil(low / step) * step; value <= high * 1.0001; value += step) found.push(value);
  } else {
    for (let power = Math.floor(from); power <= Math.ceil(to); power += digits.length > 1 ? 1 : every) {
      for (const digit of digits) found.push(digit * 10 ** power);
    }
  }
  const kept = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return { tickvals: kept, ticktext: kept.map(tick) };
}

function tick(value) {
  const power = Math.round(Math.log10(value));
  if (value >= 1e5 || value < 1e-3) return Math.abs(value / 10 ** power - 1) < 1e-9 ? `10<sup>${power}</sup>` : value.toExponential(0).replace(/e\+?(-?)(\d+)/, "×10<sup>$1$2</sup>");
  return rounded(value, 3);
}

function extent(panel, letter) {
  const values = panel.traces.flatMap((trace) => [trace[letter], letter === "y" && trace.kind === "band" ? trace.z : null])
    .flatMap((one) => unpacked(one) || []).filter((value) => Number.isFinite(value) && value > 0);
  return [Math.min(...values), Math.max(...values)];
}

/** Whether a picture has little room for words. */
export function isNarrow(element) {
  return element.clientWidth < 460;
}

function layout(panel, look, element, arrows) {
  const narrow = isNarrow(element);
  element.dataset.narrow = narrow;
  const small = isMatrix(panel);
  const axis = (one, letter) => {
    const log = one.scale === "log";
    const counted = small ? channels(panel.traces.find((trace) => trace.kind === "heat")[letter]) : null;
    const span = one.span || (log ? extent(panel, letter) : null);
    return {
      title: { text: small ? counted?.name || "" : fitted(titled(one), letter, element), standoff: small ? 2 : 6, font: { size: narrow ? 11 : 12 } },
      ...(counted ? { tickvals: panel.traces[0][letter], ticktext: counted.numbers } : {}),
      type: log ? "log" : undefined,
      range: one.span ? (log ? one.span.map(Math.log10) : one.span) : undefined,
      ...(log ? decades(...span) : {}),
      gridcolor: look.grid, zerolinecolor: look.line, linecolor: look.line, automargin: true, ticks: small ? "" : "outside",
      tickcolor: look.line, exponentformat: "power", fixedrange: true, nticks: narrow ? 5 : undefined, showgrid: !small,
    };
  };
  const rows = panel.traces.some((trace) => trace.kind === "heat" && isWords(trace.y));
  const heats = panel.traces.some((trace) => trace.kind === "heat");
  return {
    // Opaque: a saved picture is read on other grounds than this page's.
    paper_bgcolor: look.card, plot_bgcolor: look.card,
    font: { color: look.ink, size: narrow ? 11 : 12, family: FONT },
    margin: small ? { l: 6, r: 6, t: 6, b: 6 } : { l: 44, r: heats ? 8 : 14, t: panel.shades.length ? 20 : 10, b: 36 },
    xaxis: { ...axis(panel.x, "x"), ...(small ? { side: "bottom" } : {}) },
    yaxis: { ...axis(panel.y, "y"), ...(rows ? { autorange: "reversed" } : {}) },
    showlegend: false,
    barmode: "group", hovermode: heats ? "closest" : "x", hoverdistance: -1, dragmode: false,
    shapes: panel.shades.map(([from, to, , series]) => ({
      type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, line: { width: 0 }, layer: "below",
      fillcolor: look.series[series % look.series.length], opacity: 0.1,
    })),
    annotations: [...shaded(panel, look, narrow), ...arrows.map((one) => arrowed(one, look, narrow))],
    uirevision: panel.key,
  };
}

// Every second one inside: a short stretch has less room than its words.
function shaded(panel, look, narrow) {
  return panel.shades.map(([from, to, words], k) => ({
    xref: "x", yref: "paper", x: (place(panel.x, from) + place(panel.x, to)) / 2, y: 1, yanchor: k % 2 ? "top" : "bottom", text: words,
    showarrow: false, font: { size: narrow ? 10 : 11, color: look.faint }, bgcolor: k % 2 ? look.card : undefined, opacity: 0.9,
  }));
}

const TOWARDS = { left: ["→", "left"], right: ["→", "right"], up: ["↑", "center"], down: ["↓", "center"] };

function arrowed(one, look, narrow) {
  const [, anchor] = TOWARDS[one.towards];
  const words = narrow ? "best: beyond" : one.words;
  const text = { left: `◀ ${words}`, right: `${words} ▶`, up: `▲ ${words}`, down: `▼ ${words}` }[one.towards];
  return {
    x: one.x, y: one.y, text, showarrow: false, xanchor: anchor, yanchor: one.towards === "down" ? "bottom" : "top",
    xshift: { left: 4, right: -4 }[one.towards] || 0, yshift: -10,
    font: { size: 11, color: look.ink }, bgcolor: look.card, opacity: 0.9, borderpad: 2,
  };
}

// Annotations on a log axis are placed by the logarithm, shapes are not.
function place(axis, value) {
  return axis.scale === "log" ? Math.log10(value) : value;
}

/** Show one moment of a panel's films. */
export function moment(element, panel, k) {
  panel.traces.forEach((trace) => {
    if (!trace.film) return;
    const now = unpacked(trace.film)[k];
    const place = element.data.findIndex((one) => one.name === trace.name && one.meta === trace.role);
    if (place < 0) return;
    if (trace.kind === "heat") Plotly.restyle(element, { z: [now], text: [lettered(now)] }, [place]);
    else Plotly.restyle(element, { y: [now] }, [place]);
  });
}

/** A mark at this time: a line through the picture, and a point on every curve. */
export function timed(element, panel, time) {
  let mark = element.querySelector(":scope > .moment");
  const layout = element._fullLayout;
  if (!panel.x.clock || time === null || !layout) {
    mark?.remove();
    return;
  }
  if (!mark) {
    mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    mark.classList.add("moment");
    element.append(mark);
  }
  const { xaxis, yaxis } = layout;
  const x = xaxis._offset + xaxis.d2p(time);
  const dots = element.data.filter((one) => one.type === "scatter" && one.mode === "lines" && !["ghost", "target", "threshold", "null"].includes(one.meta))
    .map((one) => [one, valueAt(one, time)]).filter(([, value]) => Number.isFinite(value))
    .map(([one, value]) => `<circle cx="${x}" cy="${yaxis._offset + yaxis.d2p(value)}" r="4.5" fill="${one.line.color}" class="dot"/>`);
  mark.innerHTML = `<line x1="${x}" x2="${x}" y1="${yaxis._offset}" y2="${yaxis._offset + yaxis._length}"/>${dots.join("")}`;
}

function valueAt({ x, y, line }, time) {
  let [low, high] = [0, x.length - 1];
  if (time < x[0] || time > x[high] + 1e-9) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= time) low = middle;
    else high = middle;
  }
  if (line.shape === "hv" || x[high] === x[low]) return y[time >= x[high] ? high : low];
  return y[low] + ((y[high] - y[low]) * (time - x[low])) / (x[high] - x[low]);
}

/** Save a picture; its legend, which is the page's, becomes its own. */
export function save(element, name, format) {
  const { width, height } = element.getBoundingClientRect();
  const data = element.data.map((one) => ({ ...one, showlegend: one.type === "scatter" && one.meta !== "ghost" }));
  const rows = Math.ceil(data.filter((one) => one.showlegend).length / 3);
  const picture = {
    data,
    layout: { ...element.layout, showlegend: data.length > 1, legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0, font: { size: 11 } } },
  };
  const size = { width: Math.max(640, Math.round(width)), height: Math.round(height) + 24 * rows };
  return Plotly.downloadImage(picture, { format, filename: `learncast-${name}`, ...size, scale: format === "png" ? 2 : 1 });
}
