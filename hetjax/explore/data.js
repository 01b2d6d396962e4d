// The numbers of the page: axes, metrics and statuses, looked up by one index for each dimension.

const page = JSON.parse(document.getElementById("data").textContent);
const OK = 1, GRAD_NONFINITE = 6;

function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

const dims = page.dims.map((dim, at) => {
  const axes = dim.axes.map(axis => ({ ...axis, dim: at, grid: dim.own, values: new Float64Array(bytes(axis.data)) }));
  if (!axes.length) {  // nothing is known of it but its length
    axes.push({ name: dim.name, symbol: "", words: dim.name, about: "", unit: "", dim: at, grid: true, whole: true,
                log: false, values: Float64Array.from({ length: dim.size }, (_, i) => i + 1) });
  }
  return { ...dim, axes };
});
const axes = dims.flatMap(dim => dim.axes);

// What one index along each page dimension adds to the position in an array with these dimensions.
function strides(names) {
  const steps = dims.map(() => 0);
  let step = 1;
  for (const name of [...names].reverse()) {
    const at = dims.findIndex(dim => dim.name === name);
    if (at < 0) continue;
    steps[at] = step;
    step *= dims[at].size;
  }
  return steps;
}

const metrics = page.metrics.map(metric => ({
  ...metric, steps: strides(metric.dims),
  values: new (metric.type === "float32" ? Float32Array : Float64Array)(bytes(metric.data)),
}));
const statuses = page.status && { steps: strides(page.status.dims), values: new Uint8Array(bytes(page.status.data)) };

function position(steps, at) {
  let i = 0;
  for (let d = 0; d < at.length; d++) i += steps[d] * at[d];
  return i;
}

const valueAt = (metric, at) => metric.values[position(metric.steps, at)];
const codeAt = at => statuses ? statuses.values[position(statuses.steps, at)] : OK;
const flagAt = at => page.flags[codeAt(at)] || ["unknown", "a status that this page does not know"];

// Why nothing is drawn at a point; empty where something is.
function reasonAt(metric, at, logarithmic) {
  const value = valueAt(metric, at);
  if (Number.isFinite(value)) return logarithmic && value <= 0 ? "not positive: no place on a logarithmic scale" : "";
  const code = codeAt(at);
  if (code !== OK && (code !== GRAD_NONFINITE || metric.gradient)) return flagAt(at).join(": ");
  if (Number.isNaN(value)) return metric.undefined ? "undefined where " + metric.undefined : "undefined";
  return value > 0 ? "infinite" : "minus infinity";
}

// The indices of an axis that can be drawn, ascending by value on grid axes, in the order of points on others.
function drawn(axis, logarithmic) {
  const list = [];
  axis.values.forEach((v, i) => { if (Number.isFinite(v) && (!logarithmic || v > 0)) list.push(i); });
  return axis.grid ? list.sort((i, j) => axis.values[i] - axis.values[j]) : list;
}

function withIndex(at, ...pairs) {
  const moved = at.slice();
  for (const [dim, index] of pairs) moved[dim] = index;
  return moved;
}
