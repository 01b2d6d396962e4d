// SVG by hand: nodes, scales, frames, colours. All looks are attributes, so that a saved picture is complete.

const WIDTH = 560, HEIGHT = 400;
const BOX = { left: 66, right: 452, top: 14, bottom: 346 };
const DASHES = ["", "9 3", "2 3", "9 3 2 3", "5 2 2 2 2 2"];
const FONT = "system-ui, 'DejaVu Sans', sans-serif";
const COLOURS = Array.from({ length: 256 }, (_, i) => [0, 2, 4].map(k => parseInt(page.colours.substr(6 * i + k, 2), 16)));

function node(tag, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function theme() {
  const style = getComputedStyle(document.documentElement), look = {};
  for (const name of ["paper", "ink", "soft", "rule", "accent", "gap"]) look[name] = style.getPropertyValue("--" + name).trim();
  return { ...look, dark: parseInt(look.paper.slice(1, 3), 16) < 128 };
}

// From values in [low, high] to the page's [from, to]; a scale with no width gets some.
function scale(low, high, from, to, logarithmic, margin = 0) {
  let [a, b] = logarithmic ? [Math.log(low), Math.log(high)] : [low, high];
  if (!(b > a)) { const wide = logarithmic ? 0.5 : Math.abs(a) * 0.05 || 0.5; a -= wide; b += wide; }
  const extra = margin * (b - a);
  a -= extra; b += extra;
  const back = p => { const t = a + (p - from) / (to - from) * (b - a); return logarithmic ? Math.exp(t) : t; };
  const to_ = v => from + ((logarithmic ? Math.log(v) : v) - a) / (b - a) * (to - from);
  const ends = logarithmic ? [Math.exp(a), Math.exp(b)] : [a, b];
  return { to: to_, back, logarithmic, ends, ticks: logarithmic ? logTicks(...ends) : linearTicks(...ends, 6) };
}

function clear(svg, look) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  node("rect", { width: WIDTH, height: HEIGHT, fill: look.paper }, svg);
  const hatch = node("pattern", { id: svg.id + "-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse",
                                  patternTransform: "rotate(45)" }, node("defs", {}, svg));
  node("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: look.gap, "stroke-width": 1.4 }, hatch);
}

function words(svg, x, y, text, look, more = {}) {
  return node("text", { x, y, fill: look.ink, "font-size": 12, "font-family": FONT, ...more }, svg, text);
}

// A label is shrunk, then cut, to the room it has.
function fitted(text, room) {
  const size = Math.max(9, Math.min(12.5, room / (0.56 * text.length) )), most = Math.floor(room / (0.54 * size));
  return [text.length > most ? text.slice(0, most - 1) + "…" : text, size];
}

function frame(svg, look, x, y, xLabel, yLabel, grid, whole) {
  for (const v of x.ticks) {
    if (whole && v % 1) continue;
    const p = x.to(v);
    if (grid) node("line", { x1: p, x2: p, y1: BOX.top, y2: BOX.bottom, stroke: look.rule }, svg);
    node("line", { x1: p, x2: p, y1: BOX.bottom, y2: BOX.bottom + 4, stroke: look.soft }, svg);
    words(svg, p, BOX.bottom + 17, tickText(v), look, { "text-anchor": "middle" });
  }
  for (const v of y.ticks) {
    const p = y.to(v);
    if (grid) node("line", { x1: BOX.left, x2: BOX.right, y1: p, y2: p, stroke: look.rule }, svg);
    node("line", { x1: BOX.left - 4, x2: BOX.left, y1: p, y2: p, stroke: look.soft }, svg);
    words(svg, BOX.left - 7, p + 4, tickText(v), look, { "text-anchor": "end" });
  }
  node("path", { d: `M${BOX.left},${BOX.top}V${BOX.bottom}H${BOX.right}`, fill: "none", stroke: look.soft }, svg);
  const [below, small] = fitted(xLabel, BOX.right - BOX.left + 60), [beside, tiny] = fitted(yLabel, BOX.bottom - BOX.top + 40);
  words(svg, (BOX.left + BOX.right) / 2, BOX.bottom + 40, below, look, { "text-anchor": "middle", "font-size": small });
  sideways(svg, 15, (BOX.top + BOX.bottom) / 2, beside, look, tiny);
}

function sideways(svg, x, y, text, look, size) {
  words(svg, x, y, text, look, { "text-anchor": "middle", "font-size": size, transform: `rotate(-90 ${x} ${y})` });
}

const hex = rgb => "#" + rgb.map(c => c.toString(16).padStart(2, "0")).join("");

// Colours of rising lightness that stay apart from the paper.
function lineColour(i, count, dark) {
  const t = count > 1 ? i / (count - 1) : 0;
  return hex(COLOURS[Math.round(255 * (dark ? 0.4 + 0.6 * t : 0.85 * t))]);
}
