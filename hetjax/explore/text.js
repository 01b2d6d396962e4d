// Numbers and labels as text, and the round numbers of scales.

// All digits that the number has in its own type, and no more.
function exact(value, type) {
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  if (type === "float32") {
    for (let digits = 6; digits < 9; digits++) {
      const text = value.toPrecision(digits);
      if (Math.fround(Number(text)) === value) return String(Number(text));
    }
    return String(Number(value.toPrecision(9)));
  }
  return String(value);
}

function brief(value) {
  if (!Number.isFinite(value)) return exact(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e6) ? String(Number(value.toExponential(3))).replace("e+", "e")
                                                    : String(Number(value.toPrecision(5)));
}

const sign = thing => thing.symbol || thing.name;
const withUnit = (text, thing) => thing.unit ? `${text} (${thing.unit})` : text;

function label(thing) {
  const words = thing.symbol && thing.symbol !== thing.words && !thing.symbol.startsWith("∂")
    ? `${thing.words}, ${thing.symbol}` : thing.symbol || thing.words;
  return withUnit(words, thing);
}

// What one index of a dimension stands for: "q = 0.5", or all its axes, or the number of the point.
const place = (dim, index) => dim.axes.map(axis => `${sign(axis)} = ${brief(axis.values[index])}`).join(", ");

function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(m => m * power >= raw * (1 - 1e-12));
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 7)), ticks = [];
  const within = last - first <= 2 ? [1, 2, 5] : last - first <= 3 ? [1, 3] : [1];
  for (let e = first; e <= last; e += every) for (const m of within) ticks.push(Number((m * 10 ** e).toPrecision(12)));
  const inside = ticks.filter(v => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
  return inside.length > 1 ? inside : linearTicks(low, high, 5);
}

function tickText(value) {
  const exponent = Math.log10(Math.abs(value));
  if (value !== 0 && (exponent < -3.5 || exponent >= 5)) {
    const power = Math.floor(exponent + 1e-9), front = Number((value / 10 ** power).toPrecision(4));
    const raised = String(power).replace("-", "⁻").replace(/\d/g, d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
    return (front === 1 ? "" : `${front}·`) + "10" + raised;
  }
  return String(Number(value.toPrecision(6))).replace("-", "−");
}
