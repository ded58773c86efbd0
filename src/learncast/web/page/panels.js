// Panels drawn by plotly: the server says what is shown, this file how it looks.

/* global Plotly */

// Told apart by most colour-blind readers, on white and on black.
const SERIES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#a8518a", "#8c6d00", "#2f8fc4", "#5b6570"],
  dark: ["#56b4e9", "#f0883e", "#3fcf9f", "#dd8cbf", "#e6c34a", "#9ad4f5", "#b7c0c8"],
};
const DIVERGING = {
  light: [[0, "#8c3a00"], [0.25, "#e08b3c"], [0.5, "#f7f7f5"], [0.75, "#5aa5d6"], [1, "#0b3c6f"]],
  dark: [[0, "#ff9d4d"], [0.25, "#a45716"], [0.5, "#1c2024"], [0.75, "#1f6da3"], [1, "#7cc8f5"]],
};
const SEQUENTIAL = "Cividis";

/** Numbers as the server packs them: base64 of float64, with a shape. */
export function unpacked(value) {
  if (value === null || value === undefined || Array.isArray(value)) return value;
  if (value.bdata === undefined) return value;
  const bytes = Uint8Array.from(atob(value.bdata), (letter) => letter.charCodeAt(0));
  const numbers = Array.from(new Float64Array(bytes.buffer));
  const shape = value.shape.split(",").map(Number);
  if (shape.length < 2) return numbers;
  return Array.from({ length: shape[0] }, (_, row) => numbers.slice(row * shape[1], (row + 1) * shape[1]));
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const dark = document.documentElement.dataset.theme === "dark";
  return {
    kind: dark ? "dark" : "light",
    ink: colour("ink"), faint: colour("faint"), grid: colour("grid"), card: colour("card"), line: colour("line"),
    accent: colour("accent"), error: colour("error"), series: SERIES[dark ? "dark" : "light"],
  };
}

/** Draw a panel into its element, or redraw it. */
export function draw(element, panel) {
  const look = theme();
  // Theory is black over coloured training; alone it has the colours to itself.
  look.theory = panel.traces.some((trace) => trace.role === "descent") ? look.ink : null;
  const traces = panel.traces.flatMap((trace) => drawn(trace, panel, look));
  const config = { displaylogo: false, responsive: true, displayModeBar: false, doubleClick: "reset", scrollZoom: false };
  return Plotly.react(element, traces, layout(panel, look), config);
}

function drawn(trace, panel, look) {
  const [x, y, z] = [unpacked(trace.x), unpacked(trace.y), unpacked(trace.z)];
  const colour = coloured(trace, look);
  const base = { name: trace.name, x, y, hovertemplate: hover(panel, trace), meta: trace.role, showlegend: trace.legend };
  switch (trace.kind) {
    case "line":
    case "steps":
      return [{
        ...base, type: "scatter", mode: "lines", connectgaps: false,
        line: { color: colour, width: trace.role === "theory" ? 2.5 : 2, dash: trace.role === "theory" && look.theory && trace.series ? "dashdot" : DASHES[trace.role] || "solid", shape: trace.kind === "steps" ? "hv" : "linear" },
      }];
    case "points":
      return [{
        ...base, type: "scatter", mode: "markers", cliponaxis: false,
        marker: { color: colour, size: SIZES[trace.role] || 9, symbol: SYMBOLS[trace.role] || "circle", line: { color: look.card, width: 1.5 } },
      }];
    case "bars":
      return [{ ...base, x: x.map(folded), type: "bar", marker: { color: y.map((_, k) => look.series[(trace.series + k) % look.series.length]) } }];
    case "heat":
      return [heat(base, z, panel, look)];
    case "contour":
      return [{
        ...base, ...heated(panel), type: "contour", showscale: false, hoverinfo: "skip", hovertemplate: undefined,
        contours: { start: 0, end: 0, size: 1, coloring: "none" }, line: { color: look.ink, width: 1.5 },
      }];
    case "band":
      return [
        { ...base, type: "scatter", mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip", hovertemplate: undefined },
        { ...base, y: z, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `${colour}40` },
      ];
    default:
      throw new Error(`a trace of unknown kind: ${trace.kind}`);
  }
}

const DASHES = { theory: "dot", target: "dash", null: "dash", threshold: "dashdot", zero: "solid" };
const SYMBOLS = { best: "star", pinned: "circle-x-open" };
const SIZES = { best: 15, pinned: 14 };

function coloured(trace, look) {
  const own = look.series[trace.series % look.series.length];
  if (trace.role === "pinned" && trace.series) return own;
  return { theory: look.theory || own, target: trace.series ? own : look.ink, zero: look.ink, best: look.ink, pinned: look.error, null: look.faint, threshold: look.error }[trace.role] || own;
}

// A contour is drawn on the heat of its panel.
function heated(panel) {
  const { x, y, z } = panel.traces.find((trace) => trace.kind === "heat");
  return { x: unpacked(x), y: unpacked(y), z: unpacked(z) };
}

function heat(base, z, panel, look) {
  const values = z.flat().filter(Number.isFinite);
  const [least, most] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const span = panel.z && panel.z.span;
  const signed = span ? span[0] < 0 : least < 0 && -least > 1e-9 * most;
  const [small, large] = [Math.min(-least, most), Math.max(-least, most)];
  // Of a portrait, what a first task may cost goes far beyond what it may save, and would leave that without colour.
  const bound = panel.picks ? Math.min(large, Math.max(2 * small, 0.1 * large)) : large;
  return {
    ...base, z, type: "heatmap", showlegend: false,
    colorscale: signed ? DIVERGING[look.kind] : SEQUENTIAL,
    ...(span ? { zmin: span[0], zmax: span[1] } : signed ? { zmin: -bound, zmax: bound } : {}),
    hoverongaps: false,
    colorbar: { title: { text: titled(panel.z), side: "right" }, thickness: 14, outlinewidth: 0, tickcolor: look.faint },
  };
}

// Long words under bars stand on several lines instead of aslant.
function folded(words) {
  if (typeof words !== "string") return words;
  return words.replace(/(.{10,}?)\s/g, "$1<br>");
}

function titled(axis) {
  if (!axis) return "";
  return axis.unit && axis.unit !== "1" && axis.unit !== axis.label ? `${axis.label} (${axis.unit})` : axis.label;
}

function hover(panel, trace) {
  const part = (axis, letter) => `${axis.label}: %{${letter}:.5~g}${axis.unit && axis.unit !== "1" ? ` ${axis.unit}` : ""}`;
  const words = Array.isArray(trace.x) && typeof trace.x[0] === "string";
  const lines = [words ? "%{x}" : part(panel.x, "x"), trace.kind === "heat" && Array.isArray(trace.y) && typeof trace.y[0] === "string" ? "%{y}" : part(panel.y, "y")];
  if (trace.kind === "heat") lines.push(part(panel.z || { label: "value", unit: "1" }, "z"));
  return `${lines.join("<br>")}<extra>${trace.name}</extra>`;
}

function layout(panel, look) {
  const axis = (one) => ({
    title: { text: titled(one), standoff: 8 },
    type: one.scale === "log" ? "log" : undefined,
    range: one.span ? (one.scale === "log" ? one.span.map(Math.log10) : one.span) : undefined,
    gridcolor: look.grid, zerolinecolor: look.line, linecolor: look.line, automargin: true,
    exponentformat: "power", fixedrange: panel.grips !== null,
  });
  const heats = panel.traces.some((trace) => trace.kind === "heat");
  const words = panel.traces.every((trace) => trace.kind === "bars" || trace.kind === "heat");
  const named = panel.traces.filter((trace) => trace.legend).length;
  const rows = panel.traces.some((trace) => trace.kind === "heat" && Array.isArray(trace.y) && typeof trace.y[0] === "string");
  return {
    // Opaque: a saved picture is read on other grounds than this page's.
    paper_bgcolor: look.card, plot_bgcolor: look.card,
    font: { color: look.ink, size: 12, family: "system-ui, Segoe UI, Roboto, Helvetica Neue, sans-serif" },
    margin: { l: 60, r: 14, t: 26, b: 46 },
    xaxis: axis(panel.x), yaxis: { ...axis(panel.y), ...(rows ? { autorange: "reversed" } : {}) },
    showlegend: panel.traces.length > 1 && !words,
    legend: { orientation: "h", x: 0, y: panel.shades.length ? 1.08 : 1.01, xanchor: "left", yanchor: "bottom", font: { size: 11 }, traceorder: "normal", ...(named > 3 && !panel.picks ? { entrywidth: 0.5, entrywidthmode: "fraction" } : {}) },
    barmode: "group", hovermode: heats ? "closest" : "x unified", dragmode: panel.grips || panel.picks ? false : "zoom",
    hoverlabel: { bgcolor: look.card, bordercolor: look.line, font: { color: look.ink } },
    shapes: panel.shades.map(([from, to], k) => ({
      type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, line: { width: 0 }, layer: "below",
      fillcolor: look.series[k % look.series.length], opacity: 0.1,
    })),
    // Every second one inside: a short stretch has less room than its words.
    annotations: panel.shades.map(([from, to, words], k) => ({
      xref: "x", yref: "paper", x: (place(panel.x, from) + place(panel.x, to)) / 2, y: 1, yanchor: k % 2 ? "top" : "bottom", text: words,
      showarrow: false, font: { size: 11, color: look.faint }, bgcolor: k % 2 ? look.card : undefined, opacity: 0.9,
    })),
    uirevision: panel.key,
  };
}

// Annotations on a log axis are placed by the logarithm, shapes are not.
function place(axis, value) {
  return axis.scale === "log" ? Math.log10(value) : value;
}
