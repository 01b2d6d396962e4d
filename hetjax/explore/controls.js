// The state of the view, its controls, and the address that keeps it.

const byId = id => document.getElementById(id);
const long = dims.map((dim, d) => d).filter(d => dims[d].size > 1).sort((a, b) => dims[b].size - dims[a].size);
const firstAxis = d => dims[d].axes.find(axis => new Set(axis.values).size > 1) || dims[d].axes[0];
const state = { at: dims.map(dim => dim.size >> 1), fixed: false, log: { x: false, y: false, v: false }, lines: null };
const shown = {};
let inputs = {}, waiting = false;

function start() {
  state.metric = metrics[0];
  state.x = long.length ? firstAxis(long[0]) : axes[0] || null;
  state.y = otherAxis(long[1]);
  const few = long.slice(2).filter(d => dims[d].size <= LINES);
  state.lines = few.length ? few[few.length - 1] : null;
  state.log = { x: Boolean(state.x && state.x.log), y: Boolean(state.y && state.y.log), v: state.metric.log };
}

// The second axis of the map: of another dimension, else another one of the same scattered points.
function otherAxis(dim) {
  if (dim !== undefined) return firstAxis(dim);
  return axes.find(a => state.x && a !== state.x && a.dim === state.x.dim && !a.grid && new Set(a.values).size > 1) || null;
}

// ---- the address: #metric=NAME&over=AXIS&up=AXIS&lines=DIMENSION&log=xyv&scale=all&at.AXIS=VALUE
function writeAddress() {
  const parts = [["metric", state.metric.name]];
  if (state.x) parts.push(["over", state.x.name]);
  if (state.y) parts.push(["up", state.y.name]);
  parts.push(["lines", state.lines === null ? "" : dims[state.lines].name]);
  parts.push(["log", ["x", "y", "v"].filter(k => state.log[k]).join("")]);
  if (state.fixed) parts.push(["scale", "all"]);
  dims.forEach((dim, d) => {
    if (dim.size > 1) parts.push(["at." + dim.name, dim.own ? String(dim.axes[0].values[state.at[d]]) : String(state.at[d] + 1)]);
  });
  const text = "#" + parts.map(pair => pair.map(encodeURIComponent).join("=")).join("&");
  if (text !== location.hash) try { history.replaceState(null, "", text); } catch { /* a page that may not: no matter */ }
}

function readAddress() {
  const given = new Map();
  for (const part of location.hash.slice(1).split("&")) {
    const [key, ...value] = part.split("=");
    try { given.set(decodeURIComponent(key), decodeURIComponent(value.join("="))); } catch { /* not of ours */ }
  }
  const named = (list, key) => list.find(item => item.name === given.get(key));
  const metric = named(metrics, "metric"), x = named(axes, "over"), y = named(axes, "up");
  if (metric) setMetric(metric);
  if (x) setAxis("x", x);
  if (y) setAxis("y", y);
  if (given.has("lines")) { const d = dims.findIndex(dim => dim.name === given.get("lines")); state.lines = d < 0 ? null : d; }
  if (given.has("log")) for (const k of ["x", "y", "v"]) state.log[k] = given.get("log").includes(k);
  if (given.has("scale")) state.fixed = given.get("scale") === "all";
  dims.forEach((dim, d) => {
    const wanted = given.has("at." + dim.name) ? Number(given.get("at." + dim.name)) : NaN;
    if (Number.isNaN(wanted)) return;
    const values = dim.own ? [...dim.axes[0].values] : values1(dim.size);
    const far = v => v === wanted ? 0 : Math.abs(v - wanted);
    state.at[d] = values.reduce((best, v, i) => far(v) < far(values[best]) ? i : best, 0);
  });
  settle();
}

const values1 = size => Array.from({ length: size }, (_, i) => i + 1);

function setMetric(metric) { state.metric = metric; state.log.v = metric.log; }

function setAxis(which, axis) {
  const old = state[which], other = which === "x" ? "y" : "x";
  if (state[other] === axis) { state[other] = old; [state.log.x, state.log.y] = [state.log.y, state.log.x]; }
  state[which] = axis;
  state.log[which] = axis.log;
}

// What the choices exclude: lines told apart by the axis that they run along.
function settle() {
  if (state.x && state.lines === state.x.dim) state.lines = null;
  if (state.x === state.y) state.y = null;
}

// ---- the controls
function element(tag, attributes, parent, text) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function chooser(parent, id, text, choices, change) {
  element("label", { for: id }, parent, text);
  const select = element("select", { id }, parent);
  choices.forEach((choice, i) => element("option", { value: i }, select, choice));
  select.addEventListener("change", () => { change(Number(select.value)); settle(); render(); });
  inputs[id] = select;
}

function tick(parent, id, text, change) {
  const row = element("label", { class: "check", for: id }, parent);
  const box = element("input", { type: "checkbox", id }, row);
  element("span", {}, row, text);
  box.addEventListener("change", () => { change(box.checked); render(); });
  inputs[id] = box;
}

function group(title) {
  const set = element("fieldset", {}, byId("controls"));
  element("legend", {}, set, title);
  return set;
}

function build() {
  byId("title").textContent = page.title;
  byId("about").textContent = page.model ? `Model: ${page.model}` : "";
  const form = byId("controls");
  form.addEventListener("submit", event => event.preventDefault());
  chooser(form, "metric", "Metric", metrics.map(label), i => setMetric(metrics[i]));
  const sliders = group("Point");
  dims.forEach((dim, d) => {
    const id = "at-" + d, text = dim.axes.length === 1 ? label(dim.axes[0]) : dim.name;
    const title = element("label", { for: id, title: dim.axes.map(a => a.about).filter(Boolean).join("; ") }, sliders);
    const output = element("output", { for: id, id: id + "-value", class: dim.axes.length > 1 ? "long" : "" }, title);
    title.prepend(text);
    const slider = element("input", { type: "range", id, min: 0, max: dim.size - 1, step: 1 }, sliders);
    slider.disabled = dim.size === 1;
    slider.addEventListener("input", () => { state.at[d] = Number(slider.value); render(); });
    inputs[id] = slider;
    inputs[id + "-value"] = output;
  });
  const what = group("Views");
  if (axes.length) chooser(what, "x", "Along the page", axes.map(label), i => setAxis("x", axes[i]));
  if (state.y) chooser(what, "y", "Up the map", axes.map(label), i => setAxis("y", axes[i]));
  if (long.length > 1) chooser(what, "lines", "Several lines for", ["–", ...dims.map(dim => dim.axes.map(sign).join(", "))],
                               i => { state.lines = i ? i - 1 : null; });
  tick(what, "log-v", "logarithmic metric", on => { state.log.v = on; });
  if (state.x) tick(what, "log-x", "logarithmic along the page", on => { state.log.x = on; });
  if (state.y) tick(what, "log-y", "logarithmic up the map", on => { state.log.y = on; });
  tick(what, "fixed", "same scale at every point", on => { state.fixed = on; });
  const dark = element("button", { type: "button", id: "theme" }, group("Paper"), "light / dark");
  dark.addEventListener("click", () => { document.documentElement.dataset.theme = theme().dark ? "light" : "dark"; render(); });
  files("line", linePoints);
  files("map", mapPoints);
  pointing(byId("line"), "line");
  pointing(byId("map"), "map");
  byId("foot").textContent = `hetjax ${page.version}. Numbers are held as ` + (page.precision === "float64"
    ? "float64: exactly those of the sweep." : "float32: equal to those of the sweep up to a relative 6e-8.");
}

function files(name, points) {
  const add = (text, action) => element("button", { type: "button", id: `${name}-${text.toLowerCase()}`,
                                                    "aria-label": `save the ${name} as ${text}` }, byId(name + "-buttons"), text)
    .addEventListener("click", action);
  const file = ending => fileName(state, (name === "line" ? state.x.name : `${state.x.name}-${state.y.name}`) + ending);
  add("PNG", () => savePng(byId(name), file(".png")));
  add("SVG", () => saveSvg(byId(name), file(".svg")));
  add("CSV", () => saveCsv(state, points(shown[name]), file(".csv")));
}

// ---- drawing
function render() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; draw(); });
}

function draw() {
  inputs.metric.value = metrics.indexOf(state.metric);
  dims.forEach((dim, d) => {
    const slider = inputs["at-" + d], text = place(dim, state.at[d]);
    slider.value = state.at[d];
    slider.setAttribute("aria-valuetext", text);
    inputs[`at-${d}-value`].textContent = dim.axes.length === 1 ? brief(dim.axes[0].values[state.at[d]]) : text;
  });
  for (const which of ["x", "y"]) {
    if (inputs[which]) inputs[which].value = axes.indexOf(state[which]);
    if (inputs["log-" + which]) inputs["log-" + which].checked = state.log[which];
  }
  if (inputs.lines) inputs.lines.value = state.lines === null ? 0 : state.lines + 1;
  inputs["log-v"].checked = state.log.v;
  inputs.fixed.checked = state.fixed;
  reading();
  if (state.x) shown.line = lineView(byId("line"), state);
  byId("map-figure").hidden = !state.y;
  if (state.y) shown.map = mapView(byId("map"), state);
  for (const name of ["line", "map"]) byId(name + "-note").textContent = shown[name] ? shown[name].note : "";
  if (shown.line && byId("numbers").open) table(shown.line);
  writeAddress();
}

function pointText(at) {
  const reason = reasonAt(state.metric, at, false);
  return reason ? `no value: ${reason}` : `${exact(valueAt(state.metric, at), state.metric.type)}${state.metric.unit ? " " + state.metric.unit : ""}`;
}

function reading() {
  const value = byId("value"), gap = reasonAt(state.metric, state.at, false);
  byId("where").textContent = `${dims.map((dim, d) => place(dim, state.at[d])).join(", ")}: ${state.metric.words}`;
  value.textContent = (gap ? "" : "= ") + pointText(state.at);
  value.classList.toggle("gap", Boolean(gap));
}

function table(view) {
  const head = byId("slice").tHead, body = byId("slice").tBodies[0];
  head.replaceChildren();
  body.replaceChildren();
  const row = element("tr", {}, head);
  element("th", { scope: "col" }, row, label(view.x));
  for (const curve of view.curves) {
    element("th", { scope: "col" }, row, curve.member === null ? label(state.metric) : place(dims[state.lines], curve.member));
  }
  view.order.forEach((i, k) => {
    const line = element("tr", {}, body);
    element("th", { scope: "row" }, line, exact(view.x.values[i]));
    for (const curve of view.curves) element("td", {}, line, reasonAt(state.metric, curve.points[k], false) || exact(curve.values[k], state.metric.type));
  });
}

// ---- pointing, clicking and arrow keys in a view
function pointing(svg, name) {
  const find = event => {
    const box = svg.getBoundingClientRect(), view = shown[name];
    const px = (event.clientX - box.left) * WIDTH / box.width, py = (event.clientY - box.top) * HEIGHT / box.height;
    return view && px > BOX.left - 8 && px < BOX.right + 8 && py > BOX.top - 8 && py < BOX.bottom + 8 ? nearest(view, px, py) : null;
  };
  svg.addEventListener("pointermove", event => tell(event, find(event)));
  svg.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  svg.addEventListener("click", event => { const at = find(event); if (at) { state.at = at; render(); } });
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowDown: ["y", -1], ArrowUp: ["y", 1] }[event.key];
    if (!step || (step[0] === "y" && (name === "line" || shown.map.scattered))) return;
    event.preventDefault();
    const axis = state[step[0]], order = drawn(axis, state.log[step[0]]);
    const next = order[Math.max(0, Math.min(order.length - 1, order.indexOf(state.at[axis.dim]) + step[1]))];
    state.at[axis.dim] = next;
    render();
  });
}

// The point of the grid under the pointer; on lines that of the nearest line at the nearest x.
function nearest(view, px, py) {
  const closest = (list, distance) => list.reduce((best, item) => distance(item) < distance(best) ? item : best, list[0]);
  if (!view.curves) {
    if (view.scattered) {
      const i = closest(view.points, k => Math.hypot(view.xs.to(view.x.values[k]) - px, view.ys.to(view.y.values[k]) - py));
      return i === undefined ? null : view.at(i);
    }
    const i = closest(view.xo, k => Math.abs(view.xs.to(view.x.values[k]) - px));
    const j = closest(view.yo, k => Math.abs(view.ys.to(view.y.values[k]) - py));
    return i === undefined || j === undefined ? null : view.at(i, j);
  }
  const k = closest(view.order.map((_, n) => n), n => Math.abs(view.xs.to(view.x.values[view.order[n]]) - px));
  if (k === undefined) return null;
  const off = curve => reasonAt(state.metric, curve.points[k], state.log.v) ? 1e6 : Math.abs(view.ys.to(curve.values[k]) - py);
  const chosen = view.curves.every(curve => off(curve) === 1e6)
    ? view.curves.find(curve => curve.member === null || curve.member === state.at[state.lines]) || view.curves[0] : closest(view.curves, off);
  return chosen.points[k];
}

function tell(event, at) {
  const tip = byId("tip");
  tip.hidden = !at;
  if (!at) return;
  const barred = reasonAt(state.metric, at, state.log.v), plain = reasonAt(state.metric, at, false);
  tip.textContent = dims.map((dim, d) => place(dim, at[d])).join("\n") + `\n${state.metric.words}: ${pointText(at)}` +
    (barred && !plain ? `\n${barred}` : "");
  tip.style.left = Math.min(event.clientX + 14, innerWidth - 260) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - 120) + "px";
}

start();
build();
readAddress();
draw();
addEventListener("hashchange", () => { readAddress(); render(); });
byId("numbers").addEventListener("toggle", () => { if (shown.line) table(shown.line); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
