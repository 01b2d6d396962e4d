// The two pictures: the metric along one axis, and over two axes. Each returns what it shows, for hover, keys and files.

const LINES = 8;  // told apart at most

// Some of the values of a dimension, always with the one that the slider stands on.
function family(dim, here) {
  const size = dims[dim].size;
  if (size <= LINES) return Array.from({ length: size }, (_, i) => i);
  const chosen = new Set([here]);
  for (let k = 0; k < LINES; k++) chosen.add(Math.round(k * (size - 1) / (LINES - 1)));
  return [...chosen].sort((a, b) => a - b);
}

function range(values, logarithmic) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (Number.isFinite(v) && (!logarithmic || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); }
  return low <= high ? [low, high] : logarithmic ? [1, 10] : [0, 1];
}

function lineView(svg, state) {
  const look = theme(), { metric, x, log } = state;
  clear(svg, look);
  const order = drawn(x, log.x), here = state.at[x.dim];
  const joined = order.every((i, k) => !k || x.values[i] > x.values[order[k - 1]]) ||
                 order.every((i, k) => !k || x.values[i] < x.values[order[k - 1]]);
  const members = state.lines === null ? [null] : family(state.lines, state.at[state.lines]);
  const curves = members.map(member => {
    const start = member === null ? state.at : withIndex(state.at, [state.lines, member]);
    const points = order.map(i => withIndex(start, [x.dim, i]));
    return { member, points, values: points.map(at => valueAt(metric, at)) };
  });
  const shown = curves.flatMap(curve => curve.values);
  const ends = state.fixed ? range(metric.values, log.v) : range(shown, log.v);
  const xs = scale(...range(order.map(i => x.values[i]), log.x), BOX.left, BOX.right, log.x, 0.02);
  const ys = scale(...ends, BOX.bottom, BOX.top, log.v, 0.04);
  frame(svg, look, xs, ys, label(x), label(metric), true, x.whole);
  let gaps = 0;
  curves.forEach((curve, k) => {
    const current = curve.member === null || curve.member === state.at[state.lines];
    const colour = curve.member === null ? look.accent : lineColour(k, curves.length, look.dark);
    let path = "", pen = "M";
    const marks = [];
    curve.points.forEach((at, j) => {
      if (reasonAt(metric, at, log.v)) { pen = "M"; if (current) { gaps++; gapMark(svg, look, xs.to(x.values[order[j]])); } return; }
      const p = [xs.to(x.values[order[j]]), ys.to(curve.values[j])].map(v => v.toFixed(2));
      const alone = pen === "M" && (j + 1 === curve.points.length || reasonAt(metric, curve.points[j + 1], log.v));
      if (!joined || alone || order.length <= 24) marks.push(p);
      path += pen + p.join(",");
      pen = "L";
    });
    if (joined && path) node("path", { d: path, fill: "none", stroke: colour, "stroke-width": current ? 2.6 : 1.5,
                                       "stroke-dasharray": DASHES[k % DASHES.length], class: "curve" }, svg);
    for (const [cx, cy] of marks) node("circle", { cx, cy, r: joined ? 2.6 : 2.2, fill: colour }, svg);
    if (curve.member !== null) legendLine(svg, look, k, colour, current, state, curve.member);
  });
  const at = state.at, place_ = x.values[here], value = valueAt(metric, at);
  if (!reasonAt(metric, at, log.v) && order.includes(here)) {
    node("circle", { cx: xs.to(place_), cy: ys.to(value), r: 5.5, fill: look.paper, stroke: look.ink, "stroke-width": 2,
                     class: "here" }, svg);
  }
  const note = gaps ? `${gaps} of ${order.length} points are gaps (× below; point at them for the reason).` : "";
  svg.setAttribute("aria-label", `${metric.words} over ${x.words}. ${note} Arrow keys move along it.`);
  return { note: leftOut(note, x, order), curves, order, xs, ys, x };
}

function gapMark(svg, look, p) {
  const y = BOX.bottom - 6;
  node("path", { d: `M${p - 2.5},${y - 2.5}l5,5m0,-5l-5,5`, stroke: look.gap, "stroke-width": 1.2, class: "gap" }, svg);
}

function leftOut(note, axis, order) {
  const count = axis.values.length - order.length;
  return count ? `${note} ${count} value(s) of ${sign(axis)} have no place on this scale.`.trim() : note;
}

function legendLine(svg, look, k, colour, current, state, member) {
  const y = BOX.top + 30 + 18 * k, left = BOX.right + 12;
  if (k === 0) {
    words(svg, left, y - 18, fitted(dims[state.lines].axes.map(sign).join(", "), 100)[0], look, { "font-weight": "bold" });
  }
  node("line", { x1: left, x2: left + 24, y1: y - 4, y2: y - 4, stroke: colour, "stroke-width": current ? 3 : 1.8,
                 "stroke-dasharray": DASHES[k % DASHES.length] }, svg);
  const text = dims[state.lines].axes.map(a => brief(a.values[member])).join(", ");
  words(svg, left + 29, y, fitted(text, 74)[0], look, { "font-weight": current ? "bold" : "normal", "font-size": 11.5 });
}

// n + 1 borders of cells around ascending values, half-way between them (in logarithm on a logarithmic axis).
function borders(values, logarithmic) {
  const t = logarithmic ? values.map(Math.log) : values, n = t.length;
  if (n === 1) return logarithmic ? [values[0] / 1.5, values[0] * 1.5] : [values[0] - 0.5, values[0] + 0.5];
  const out = [t[0] - (t[1] - t[0]) / 2];
  for (let i = 1; i < n; i++) out.push((t[i] + t[i - 1]) / 2);
  out.push(t[n - 1] + (t[n - 1] - t[n - 2]) / 2);
  return logarithmic ? out.map(Math.exp) : out;
}

// A logarithmic scale ends at ten times what 95 % of the values stay below, and spans six decades at most: one column of
// huge values beside an unstable region would else leave a single colour for all others.
function colourEnds(values, logarithmic) {
  let [low, high] = range(values, logarithmic);
  if (logarithmic) {
    const kept = Float64Array.from(values).filter(v => Number.isFinite(v) && v > 0).sort();
    if (kept.length) high = Math.min(high, 10 * kept[Math.floor(0.95 * (kept.length - 1))]);
    low = Math.max(low, high * 1e-6);
  }
  return [low, high];
}

function mapView(svg, state) {
  const look = theme(), { metric, x, y, log } = state;
  clear(svg, look);
  const scattered = x.dim === y.dim;
  const xo = drawn(x, log.x), yo = scattered ? xo : drawn(y, log.y);
  const points = scattered ? xo.filter(i => Number.isFinite(y.values[i]) && (!log.y || y.values[i] > 0)) : [];
  const at = (i, j) => scattered ? withIndex(state.at, [x.dim, i]) : withIndex(state.at, [x.dim, i], [y.dim, j]);
  const seen = scattered ? points.map(i => valueAt(metric, at(i))) : yo.flatMap(j => xo.map(i => valueAt(metric, at(i, j))));
  const ends = colourEnds(state.fixed ? metric.values : seen, log.v);
  const tone = scale(...ends, 0, 255, log.v);
  const colour = v => COLOURS[Math.max(0, Math.min(255, Math.round(tone.to(v))))];
  const xEdges = scattered || !xo.length ? [] : borders(xo.map(i => x.values[i]), log.x);
  const yEdges = scattered || !yo.length ? [] : borders(yo.map(j => y.values[j]), log.y);
  const xs = scale(...range(scattered ? points.map(i => x.values[i]) : xEdges, log.x), BOX.left, BOX.right, log.x, scattered ? 0.03 : 0);
  const ys = scale(...range(scattered ? points.map(i => y.values[i]) : yEdges, log.y), BOX.bottom, BOX.top, log.y, scattered ? 0.03 : 0);
  let gaps = 0;
  if (scattered) {
    frame(svg, look, xs, ys, label(x), label(y), true, false);
    for (const i of points) {
      const reason = reasonAt(metric, at(i), log.v);
      gaps += Boolean(reason);
      node("circle", { cx: xs.to(x.values[i]).toFixed(2), cy: ys.to(y.values[i]).toFixed(2), r: 4, stroke: reason ? look.gap : look.ink,
                       "stroke-width": 0.5, fill: reason ? "none" : hex(colour(valueAt(metric, at(i)))) }, svg);
    }
  } else {
    node("rect", { x: BOX.left, y: BOX.top, width: BOX.right - BOX.left, height: BOX.bottom - BOX.top, fill: `url(#${svg.id}-hatch)` }, svg);
    gaps = paint(svg, state, xo, yo, xEdges, yEdges, xs, ys, at, colour);
    frame(svg, look, xs, ys, label(x), label(y), false, false);
  }
  colourBar(svg, look, tone, label(metric), seen.some(v => v > ends[1]));
  const here = [xs.to(x.values[state.at[x.dim]]), ys.to(y.values[state.at[y.dim]])];
  if (here.every(Number.isFinite)) {
    for (const [stroke, width] of [["#000000", 4], ["#ffffff", 2]]) {
      node("circle", { cx: here[0], cy: here[1], r: 6, fill: "none", stroke, "stroke-width": width, class: "here" }, svg);
    }
  }
  const note = gaps ? `${gaps} of ${seen.length} points are gaps (${scattered ? "empty circles" : "hatched"}; point at them for the reason).` : "";
  svg.setAttribute("aria-label", `${metric.words} over ${x.words} and ${y.words}. ${note} Arrow keys move in it.`);
  return { note: scattered ? note : leftOut(leftOut(note, x, xo), y, yo), xs, ys, x, y, xo, yo, points, scattered, at };
}

// The cells as one picture, a pixel for half a unit; cells without a value stay clear. Returns how many those are.
function paint(svg, state, xo, yo, xEdges, yEdges, xs, ys, at, colour) {
  const { metric, log } = state, width = 2 * (BOX.right - BOX.left), height = 2 * (BOX.bottom - BOX.top);
  let gaps = 0;
  const cells = yo.map(j => xo.map(i => {
    const there = at(i, j);
    if (reasonAt(metric, there, log.v)) { gaps++; return null; }
    return colour(valueAt(metric, there));
  }));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const brush = canvas.getContext("2d"), image = brush.createImageData(width, height);
  const columns = Array.from({ length: width }, (_, p) => cellOf(xEdges, xs.back(BOX.left + (p + 0.5) / 2)));
  for (let q = 0; q < height; q++) {
    const row = cells[cellOf(yEdges, ys.back(BOX.top + (q + 0.5) / 2))];
    for (let p = 0; row && p < width; p++) {
      const rgb = row[columns[p]];
      if (rgb) image.data.set([...rgb, 255], 4 * (q * width + p));
    }
  }
  brush.putImageData(image, 0, 0);
  node("image", { x: BOX.left, y: BOX.top, width: width / 2, height: height / 2, href: canvas.toDataURL(), class: "cells" }, svg);
  return gaps;
}

function cellOf(edges, value) {
  let low = 0, high = edges.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (edges[middle] <= value) low = middle; else high = middle; }
  return low;
}

function colourBar(svg, look, tone, text, beyond) {
  const left = BOX.right + 14, height = BOX.bottom - BOX.top, steps = 64;
  for (let k = 0; k < steps; k++) {
    node("rect", { x: left, y: BOX.bottom - (k + 1) * height / steps, width: 13, height: height / steps + 0.6,
                   fill: hex(COLOURS[Math.round(255 * (k + 0.5) / steps)]) }, svg);
  }
  if (beyond) words(svg, left, BOX.top - 3, "▲ more", look, { "font-size": 10 });
  for (const v of tone.ticks) {
    const p = BOX.bottom - tone.to(v) / 255 * height;
    node("line", { x1: left + 13, x2: left + 17, y1: p, y2: p, stroke: look.soft }, svg);
    words(svg, left + 20, p + 4, tickText(v), look);
  }
  const [cut, size] = fitted(text, height + 40);
  sideways(svg, WIDTH - 8, (BOX.top + BOX.bottom) / 2, cut, look, size);
}
