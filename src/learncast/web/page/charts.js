// Charts drawn with plotly: the server sends the data, this file chooses how they look.

/* global Plotly */

/** Decode an array from the server: base64 of float64 numbers, with a shape. */
export function decode(value) {
  if (value === null || value === undefined || Array.isArray(value)) return value;
  if (value.bdata === undefined) return value;
  if (value.numbers) return value.numbers;
  const bytes = Uint8Array.from(atob(value.bdata), (letter) => letter.charCodeAt(0));
  value.numbers = reshape(Array.from(new Float64Array(bytes.buffer)), value.shape.split(",").map(Number));
  return value.numbers;
}

function reshape(numbers, shape) {
  if (shape.length < 2) return numbers;
  const size = numbers.length / shape[0];
  return Array.from({ length: shape[0] }, (_, row) => reshape(numbers.slice(row * size, (row + 1) * size), shape.slice(1)));
}

/** The colours of the token file on this page, light or dark. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const dark = document.documentElement.dataset.theme === "dark";
  const token = (name) => {
    const value = style.getPropertyValue(`--${name}`).trim();
    return /^light-dark\((.+), *(.+)\)$/.exec(value)?.[dark ? 2 : 1] || value;
  };
  const scale = (...names) => names.map((name, k) => [k / (names.length - 1), token(name)]);
  const names = ["ink", "faint", "grid", "card", "line", "accent", "error", "pin", "font"];
  return {
    ...Object.fromEntries(names.map((name) => [name, token(name)])),
    lineWidth: Number(token("line-width")), theoryWidth: Number(token("theory-width")),
    series: ["target", "first", "direct", "series-3", "series-4", "series-5", "series-6", "series-7"].map(token),
    signed: scale("lost-most", "lost-some", "even", "saved-some", "saved-most"), unsigned: scale("least", "most"),
  };
}

/** Format a unit with superscripts and multiplication signs. */
export function formatUnit(unit) {
  return String(unit).replaceAll("^2", "²").replaceAll(" x ", " × ");
}

/** Format a number with four digits and thousands separators, and an exponent only if it is needed. */
export function formatNumber(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "unknown" : value > 0 ? "never" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return Number(value.toPrecision(Math.min(digits, 3))).toExponential().replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumSignificantDigits: digits });
}

/**
 * Draw or redraw a chart in its element.
 * @param {object} more `overlay` traces, the `previous` chart, and `marks` of kept settings
 */
export function draw(element, chart, more = {}) {
  const look = chartTheme(chart);
  const traces = [
    ...previousTraces(more.previous, chart, look),
    ...chart.traces.flatMap((trace) => plotlyTraces(trace, chart, look)),
    ...(more.overlay?.traces || []).flatMap((trace) => plotlyTraces(trace, chart, look)),
    ...keptMarks(more.marks, look),
  ];
  const config = { displaylogo: false, responsive: false, displayModeBar: false, doubleClick: "reset", scrollZoom: false };
  return Plotly.react(element, traces, layout(chart, look, element, more.overlay?.arrows || []), config);
}

function chartTheme(chart) {
  const look = theme();
  // Theory is black over coloured training, and coloured if there is no training.
  look.theory = chart.traces.some((trace) => trace.role === "descent") ? look.ink : null;
  return look;
}

function plotlyTraces(trace, chart, look) {
  const [x, y, z] = [decode(trace.x), decode(trace.y), decode(trace.z)];
  const colour = colourOf(trace, look);
  const base = { name: trace.name, x, y, hoverinfo: "none", meta: trace.role };
  switch (trace.kind) {
    case "line":
    case "steps":
      return [{
        ...base, type: "scatter", mode: "lines", connectgaps: false,
        line: { color: colour, width: trace.role === "theory" ? look.theoryWidth : trace.kind === "line" && chart.main ? 1.5 * look.lineWidth : look.lineWidth, dash: dashOf(trace, look), shape: trace.kind === "steps" ? "hv" : "linear" },
      }];
    case "points":
      return [{
        ...base, type: "scatter", mode: trace.labels.length ? "markers+text" : "markers", text: trace.labels, textposition: "bottom right",
        textfont: { size: 15, color: colour, weight: 700 }, cliponaxis: false, hoverinfo: trace.role === "differs" ? "skip" : "none",
        marker: { color: colour, size: SIZES[trace.role] || 9, symbol: SYMBOLS[trace.role] || "circle", opacity: trace.role === "differs" ? 0.7 : 1, line: { color: look.card, width: trace.role === "differs" ? 0 : 1.5 } },
      }];
    case "bars": {
      const edge = level(chart)?.[0];
      return [{
        ...base, x: x.map(wrapText), type: "bar", marker: { color: y.map((value) => (value < edge ? look.faint : trace.role === "data" ? colour : look.signed[value < 0 ? 1 : 3][1])) },
        text: y.map((value) => (Number.isFinite(value) ? formatNumber(value, Math.abs(value) < 1000 ? 3 : 9) : "")), textposition: "outside", cliponaxis: false,
      }];
    }
    case "heat":
      return [heatTrace(base, z, chart, look)];
    case "contour":
      return [{
        ...base, ...heatData(chart), type: "contour", showscale: false, hoverinfo: "skip",
        contours: { start: 0, end: 0, size: 1, coloring: "none" }, line: { color: look.ink, width: 1.5 },
      }];
    case "band":
      return [
        { ...base, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
        { ...base, y: z, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `${colour}40` },
      ];
    default:
      throw new Error(`unknown kind of trace: ${trace.kind}`);
  }
}

const DASHES = { theory: "dot", dashed: "dash", target: "dash", null: "dash", threshold: "dashdot", zero: "solid" };
const SYMBOLS = { best: "star", pinned: "circle-x-open", differs: "circle" };
const SIZES = { best: 15, pinned: 16, differs: 4, finish: 12 };

function dashOf(trace, look) {
  if (trace.role === "theory") return look.theory && trace.series ? "dashdot" : "dot";
  return DASHES[trace.role] || "solid";
}

function colourOf(trace, look) {
  const own = look.series[trace.series % look.series.length];
  if (trace.role === "pinned") return trace.series ? own : look.pin;
  const fixed = { theory: look.theory || own, target: trace.series ? own : look.ink, zero: look.ink, best: look.ink, null: trace.series ? own : look.faint, threshold: look.error, differs: look.ink };
  return fixed[trace.role] || own;
}

/** The threshold at each bar: bars below it are faint. */
function level(chart) {
  return decode(chart.traces.find((trace) => trace.role === "threshold" && isText(trace.x))?.y);
}

/** The curves of the previous setting, drawn faintly behind the current ones. */
function previousTraces(before, chart, look) {
  if (!before || before === chart) return [];
  const curves = (one) => one.traces.filter((trace) => (trace.kind === "line" || trace.kind === "steps") && !trace.frames && ["data", "descent", "best"].includes(trace.role));
  const numbers = (one) => JSON.stringify(curves(one).map(({ x, y }) => [x.bdata || x, y.bdata || y]));
  if (numbers(before) === numbers(chart)) return [];
  // They do not widen the axes.
  const [[, last], [low, high]] = [limits(chart, "x"), limits(chart, "y")];
  const inside = (x, y) => x <= last && y >= low && y <= high;
  return curves(before).map((trace) => ({ ...trace, x: decode(trace.x), y: decode(trace.y) })).map((trace) => ({
    x: trace.x, y: trace.y.map((value, k) => (inside(trace.x[k], value) ? value : null)), name: "previous setting", type: "scatter", mode: "lines", hoverinfo: "skip", meta: "previous",
    line: { color: look.faint, width: 1.5, shape: trace.kind === "steps" ? "hv" : "linear" }, opacity: 0.45,
  }));
}

/** Marks of the settings that are kept for comparison. */
function keptMarks(marks, look) {
  if (!marks || !marks.length) return [];
  return [{
    x: marks.map((one) => one.x), y: marks.map((one) => one.y), text: marks.map((one) => one.name), type: "scatter", mode: "markers+text",
    textposition: "middle center", textfont: { size: 11, color: look.card }, hoverinfo: "skip", cliponaxis: false, name: "kept",
    marker: { size: 18, color: look.pin, line: { color: look.card, width: 1.5 } },
  }];
}

// A contour uses the data of the chart's heat map.
function heatData(chart) {
  const { x, y, z } = chart.traces.find((trace) => trace.kind === "heat");
  return { x: decode(x), y: decode(y), z: decode(z) };
}

/** Whether a chart is a small matrix, with text as row and column labels. */
export function isMatrix(chart) {
  return chart.traces.some((trace) => trace.kind === "heat" && isText(trace.x) && isText(trace.y));
}

function isText(values) {
  return Array.isArray(values) && typeof values[0] === "string";
}

function heatTrace(base, z, chart, look) {
  const values = z.flat().filter(Number.isFinite);
  const [least, most] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const span = chart.z && chart.z.span;
  const signed = span ? span[0] < 0 : least < 0 && -least > 1e-9 * most;
  const bound = Math.max(-least, most);
  const small = isMatrix(chart);
  return {
    ...base, z, type: "heatmap", showscale: !small, zsmooth: false, xgap: small ? 2 : 0, ygap: small ? 2 : 0,
    colorscale: signed ? look.signed : look.unsigned, reversescale: Boolean(signed && chart.z?.worse_above),
    ...(span ? { zmin: span[0], zmax: span[1] } : signed ? { zmin: -bound, zmax: bound } : { zmin: Math.min(0, least), zmax: most || 1 }),
    ...(small ? { text: cellTexts(z), texttemplate: "%{text}", textfont: { size: 12 } } : {}),
    hoverongaps: false,
    colorbar: { title: { text: axisTitle(chart.z), side: "right" }, thickness: 12, outlinewidth: 0, tickcolor: look.faint, tickformat: ",~r", nticks: 6, ...colourTicks(span, least, most) },
  };
}

/** Ticks of the colour scale; its ends are marked if values lie beyond them. */
function colourTicks(span, least, most) {
  if (!span || !(span[1] > 0)) return {};
  const step = roundStep(span[1] / 3);
  const values = [];
  for (let k = -Math.floor(span[1] / step); k * step <= span[1]; k += 1) values.push(k * step);
  const texts = values.map((value) => formatNumber(value, 3));
  const last = values.length - 1;
  if (least < span[0] * 1.001) texts[0] = `≤ ${texts[0]}`;
  if (most > span[1] * 1.001) texts[last] = `≥ ${texts[last]}`;
  return { tickvals: values, ticktext: texts };
}

function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((digit) => digit * power >= value) * power;
}

function cellTexts(z) {
  return z.map((row) => row.map((value) => (Number.isFinite(value) ? shortNumber(value) : "")));
}

// Two decimals are enough in a coloured cell; zero has no sign.
function shortNumber(value) {
  const size = Math.abs(value);
  return size < 0.005 ? "0" : formatNumber(Number(value.toFixed(size < 10 ? 2 : 0)), 3).replace("-", "−");
}

/** Axis name and tick numbers of labels such as "input 0", "input 1". */
function channelLabels(text) {
  const found = text.map((word) => /^(.*) (\d+)$/.exec(word));
  const name = found[0]?.[1];
  return name && found.every((one) => one && one[1] === name) ? { name, numbers: found.map((one) => one[2]) } : null;
}

// Break long labels under bars into lines, so that plotly does not rotate them.
function wrapText(text) {
  if (typeof text !== "string" || text.length < 11) return text;
  return text.replace(/(.{5,}?)\s/g, "$1<br>");
}

export function axisTitle(axis) {
  if (!axis) return "";
  return axis.unit && axis.unit !== "1" && axis.unit !== axis.label ? `${axis.label} (${formatUnit(axis.unit)})` : axis.label;
}

/** Break the title of a vertical axis if it is longer than the chart is tall. */
function fitTitle(text, letter, element) {
  return letter === "y" && text.length * 7 > element.clientHeight - 60 ? text.replace(/ \((?=[^(]*$)/, "<br>(") : text;
}

/** One line of text about the data under the pointer. */
export function hoverText(chart, points) {
  const unit = (axis) => (axis.unit && axis.unit !== "1" && axis.unit !== axis.label ? ` ${formatUnit(axis.unit)}` : "");
  const value = (axis, number) => (typeof number === "string" ? number : `${axis.label} ${formatNumber(number)}${unit(axis)}`);
  const area = points.find((point) => point.data.type === "heatmap");
  if (area) return `${value(chart.x, area.x)}, ${value(chart.y, area.y)}: ${formatNumber(area.z)}${unit(chart.z || { unit: "1" })}`;
  const texts = points.filter((point) => point.data.meta !== "previous").map((point) => `${point.data.name} ${formatNumber(point.y)}`);
  return texts.length ? `${value(chart.x, points[0].x)}: ${texts.join("; ")}` : "";
}

/** The legend as HTML elements, which wrap; plotly's own legend would be cut off. */
export function legend(chart, more = {}) {
  const look = chartTheme(chart);
  const traces = [...chart.traces, ...(more.overlay?.traces || [])].filter((trace) => trace.legend && trace.kind !== "heat" && trace.kind !== "bars");
  const rows = traces.length + (chart.traces.some((trace) => trace.kind === "heat") ? 1 : 0) > 1 || chart.traces.length > 1 ? traces : [];
  const entries = rows.map((trace) => legendEntry(trace.name, legendSymbol(trace, look)));
  if (previousTraces(more.previous, chart, look).length) entries.push(legendEntry("previous setting", `<line x1="1" x2="25" y1="6" y2="6" stroke="${look.faint}" stroke-width="1.5" opacity="0.6"/>`));
  return entries;
}

function legendEntry(name, inside) {
  const item = document.createElement("li");
  item.dataset.trace = name;
  item.innerHTML = `<svg viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">${inside}</svg>`;
  item.append(name);
  return item;
}

const STROKES = { dot: "2 3", dash: "6 4", dashdot: "6 3 1 3", solid: "" };

function legendSymbol(trace, look) {
  const colour = colourOf(trace, look);
  if (trace.kind === "points") {
    if (trace.role === "best") return `<path d="M13 0l1.8 4 4.2.4-3.2 2.8 1 4.3-3.8-2.3-3.8 2.3 1-4.3L7 4.4l4.2-.4z" fill="${colour}"/>`;
    if (trace.role === "pinned") return `<circle cx="13" cy="6" r="4.5" fill="none" stroke="${colour}" stroke-width="1.5"/><path d="M10 3l6 6m0-6l-6 6" stroke="${colour}" stroke-width="1.5"/>`;
    return `<circle cx="13" cy="6" r="${trace.role === "differs" ? 1.8 : 4}" fill="${colour}"/>`;
  }
  if (trace.kind === "band") return `<rect x="1" y="2" width="24" height="8" fill="${colour}" opacity="0.3"/>`;
  const dash = trace.kind === "contour" ? "solid" : dashOf(trace, look);
  return `<line x1="1" x2="25" y1="6" y2="6" stroke="${trace.kind === "contour" ? look.ink : colour}" stroke-width="2.2" stroke-dasharray="${STROKES[dash]}"/>`;
}

/** Ticks of a logarithmic axis: powers of ten, or 1, 2 and 5 times those, or evenly spaced for a short range. */
export function logTicks(low, high) {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  if (!(to > from)) return {};
  const found = [];
  const every = Math.max(1, Math.ceil((to - from) / 6));
  const digits = to - from >= 2.2 ? [1] : to - from >= 0.7 ? [1, 2, 5] : null;
  if (!digits) {
    const step = roundStep((high - low) / 5);
    for (let value = Math.ceil(low / step) * step; value <= high * 1.0001; value += step) found.push(value);
  } else {
    for (let power = Math.floor(from); power <= Math.ceil(to); power += digits.length > 1 ? 1 : every) {
      for (const digit of digits) found.push(digit * 10 ** power);
    }
  }
  const kept = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return { tickvals: kept, ticktext: kept.map(tickLabel) };
}

function tickLabel(value) {
  const power = Math.round(Math.log10(value));
  if (value >= 1e5 || value < 1e-3) return Math.abs(value / 10 ** power - 1) < 1e-9 ? `10<sup>${power}</sup>` : value.toExponential(0).replace(/e\+?(-?)(\d+)/, "×10<sup>$1$2</sup>");
  return formatNumber(value, 3);
}

/** Least and largest number of a chart's traces, beyond which other curves are not drawn. */
function limits(chart, letter) {
  const values = chart.traces.flatMap((trace) => [trace[letter], letter === "y" && trace.kind === "band" ? trace.z : null])
    .flatMap((one) => decode(one) || []).filter((value) => Number.isFinite(value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return letter === "y" && chart.y.scale !== "log" ? [low - 0.05 * (high - low), high + 0.05 * (high - low)] : [low, high];
}

function extent(chart, letter) {
  const values = chart.traces.flatMap((trace) => [trace[letter], letter === "y" && trace.kind === "band" ? trace.z : null])
    .flatMap((one) => decode(one) || []).filter((value) => Number.isFinite(value) && value > 0);
  return [Math.min(...values), Math.max(...values)];
}

/** Whether a chart has little space for text. */
export function isNarrow(element) {
  return element.clientWidth < 460;
}

function layout(chart, look, element, arrows) {
  const narrow = isNarrow(element);
  element.dataset.narrow = narrow;
  const small = isMatrix(chart);
  const axis = (one, letter) => {
    const log = one.scale === "log";
    const labels = small ? channelLabels(chart.traces.find((trace) => trace.kind === "heat")[letter]) : null;
    const span = one.span || (log ? extent(chart, letter) : null);
    return {
      title: { text: small ? labels?.name || "" : fitTitle(axisTitle(one), letter, element), standoff: small ? 2 : 6, font: { size: narrow ? 11 : 12 } },
      ...(labels ? { tickvals: chart.traces[0][letter], ticktext: labels.numbers } : {}),
      type: log ? "log" : undefined,
      range: one.span ? (log ? one.span.map(Math.log10) : one.span) : undefined,
      ...(log ? logTicks(...span) : {}),
      gridcolor: look.grid, zerolinecolor: look.line, linecolor: look.line, automargin: true, ticks: small ? "" : "outside",
      tickcolor: look.line, exponentformat: "power", fixedrange: true, nticks: narrow ? 5 : undefined, showgrid: !small,
    };
  };
  const rows = chart.traces.some((trace) => trace.kind === "heat" && isText(trace.y));
  const heats = chart.traces.some((trace) => trace.kind === "heat");
  return {
    // Opaque, because a saved picture is shown on other backgrounds.
    paper_bgcolor: look.card, plot_bgcolor: look.card,
    font: { color: look.ink, size: narrow ? 11 : 12, family: look.font },
    margin: small ? { l: 6, r: 6, t: 6, b: 6 } : { l: 44, r: heats ? 8 : 14, t: chart.shades.length ? 20 : 10, b: 36 },
    xaxis: { ...axis(chart.x, "x"), ...(small ? { side: "bottom" } : {}) },
    yaxis: { ...axis(chart.y, "y"), ...(rows ? { autorange: "reversed" } : {}) },
    showlegend: false,
    barmode: "group", hovermode: heats ? "closest" : "x", hoverdistance: -1, dragmode: false,
    shapes: [...chart.shades.map(([from, to, , series]) => ({
      type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, line: { width: 0 }, layer: "below",
      fillcolor: look.series[series % look.series.length], opacity: 0.1,
    })), ...levelEnds(level(chart), look)],
    annotations: [...shadeLabels(chart, look, element), ...arrows.map((one) => arrowLabel(one, look, narrow))],
    uirevision: chart.key,
  };
}

/** The ends of the threshold's line, from the middle of the first and of the last bar to the edges of the plot. */
function levelEnds(levels, look) {
  const line = { color: look.error, width: look.lineWidth, dash: DASHES.threshold };
  const ends = levels ? [[-0.5, 0], [levels.length - 1, levels.length - 0.5]] : [];
  return ends.map(([x0, x1]) => ({ type: "line", x0, x1, y0: levels[0], y1: levels[0], line }));
}

// If an interval is shorter than its label, every second label is inside the plot.
function shadeLabels(chart, look, element) {
  const room = (element.clientWidth - 60) / extent(chart, "x")[1];
  const fit = chart.shades.every(([from, to, label]) => (to - from) * room > 6.5 * label.length);
  return chart.shades.map(([from, to, label], k) => ({
    xref: "x", yref: "paper", x: (place(chart.x, from) + place(chart.x, to)) / 2, y: 1, yanchor: !fit && k % 2 ? "top" : "bottom", text: label,
    showarrow: false, font: { size: 11, color: look.faint }, bgcolor: !fit && k % 2 ? look.card : undefined, opacity: 0.9,
  }));
}

const TOWARDS = { left: ["→", "left"], right: ["→", "right"], up: ["↑", "center"], down: ["↓", "center"] };

function arrowLabel(one, look, narrow) {
  const [, anchor] = TOWARDS[one.towards];
  const label = narrow ? "best: beyond" : one.text;
  const text = { left: `◀ ${label}`, right: `${label} ▶`, up: `▲ ${label}`, down: `▼ ${label}` }[one.towards];
  return {
    x: one.x, y: one.y, text, showarrow: false, xanchor: anchor, yanchor: one.towards === "down" ? "bottom" : "top",
    xshift: { left: 4, right: -4 }[one.towards] || 0, yshift: -10,
    font: { size: 11, color: look.ink }, bgcolor: look.card, opacity: 0.9, borderpad: 2,
  };
}

// Plotly places annotations on a log axis by the logarithm, but shapes by the value.
function place(axis, value) {
  return axis.scale === "log" ? Math.log10(value) : value;
}

/** Show one frame of a chart's animated traces. */
export function showFrame(element, chart, k) {
  chart.traces.forEach((trace) => {
    if (!trace.frames) return;
    const now = decode(trace.frames)[k];
    const place = element.data.findIndex((one) => one.name === trace.name && one.meta === trace.role);
    if (place < 0) return;
    if (trace.kind === "heat") Plotly.restyle(element, { z: [now], text: [cellTexts(now)] }, [place]);
    else Plotly.restyle(element, { y: [now] }, [place]);
  });
}

/** Mark a time with a vertical line and a point on every curve. */
export function markTime(element, chart, time) {
  let mark = element.querySelector(":scope > .time-mark");
  const layout = element._fullLayout;
  if (!chart.x.clock || time === null || !layout) {
    mark?.remove();
    return;
  }
  if (!mark) {
    mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    mark.classList.add("time-mark");
    element.append(mark);
  }
  const { xaxis, yaxis } = layout;
  const x = xaxis._offset + xaxis.d2p(time);
  const [top, end] = [yaxis._offset, xaxis._offset + xaxis._length];
  // While the time moves, what is still to come is faint.
  const later = time > 0 ? `<rect x="${x}" y="${top}" width="${Math.max(0, end - x)}" height="${yaxis._length}" class="later"/>` : "";
  const dots = element.data.filter((one) => one.type === "scatter" && one.mode === "lines" && !["previous", "target", "threshold", "null"].includes(one.meta))
    .map((one) => [one, valueAt(one, time)]).filter(([, value]) => Number.isFinite(value))
    .map(([one, value]) => `<circle cx="${x}" cy="${yaxis._offset + yaxis.d2p(value)}" r="4.5" fill="${one.line.color}" class="dot"/>`);
  mark.innerHTML = `${later}<line x1="${x}" x2="${x}" y1="${top}" y2="${top + yaxis._length}"/>${dots.join("")}`;
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

/** Save a chart as a picture that explains itself: with its title, its settings and plotly's legend instead of the page's. */
export function saveChart(element, chart, settings, format) {
  const { width, height } = element.getBoundingClientRect();
  const look = theme();
  const size = { width: Math.max(720, Math.round(width)) };
  const listed = new Set(chart.traces.filter((trace) => !trace.legend).map((trace) => trace.name));
  const previous = element.data.find((one) => one.meta === "previous");
  const named = (one) => ["scatter", "contour"].includes(one.type) && (one.meta !== "previous" || one === previous) && !listed.has(one.name);
  const data = element.data.map((one) => ({ ...one, showlegend: named(one) && (one.line?.width !== 0 || Boolean(one.fill)) }));
  const lines = wrapLines(settings, Math.floor(size.width / 6.4));
  const rows = Math.ceil(data.filter((one) => one.showlegend).length / Math.max(1, Math.floor(size.width / 240)));
  const [above, below] = [66 + 15 * lines.length, 52 + 22 * rows];
  size.height = Math.round(height) + above + below - 30;
  const { margin, ...rest } = element.layout;
  const picture = {
    data,
    layout: {
      ...rest, margin: { ...margin, l: 64, t: above, b: below }, showlegend: rows > 0,
      legend: { orientation: "h", yref: "container", y: 0.01, yanchor: "bottom", x: 0, font: { size: 11 } },
      title: {
        text: `<b>${escapeText(chart.title)}</b><br><span style="font-size:11px;color:${look.faint}">${lines.map(escapeText).join("<br>")}</span>`,
        x: 0, xanchor: "left", xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 12 }, font: { size: 16 },
      },
    },
  };
  return Plotly.downloadImage(picture, { format, filename: `learncast-${chart.key}`, ...size, scale: format === "png" ? 2 : 1 });
}

/** Plotly reads tags in its texts, and names may come from files. */
function escapeText(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** Break a list of settings into lines of at most `most` letters. */
function wrapLines(parts, most) {
  const lines = [""];
  for (const part of parts) {
    const joined = lines.at(-1) ? `${lines.at(-1)}, ${part}` : part;
    if (joined.length > most && lines.at(-1)) lines.push(part);
    else lines[lines.length - 1] = joined;
  }
  return lines;
}
