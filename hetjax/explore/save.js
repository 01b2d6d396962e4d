// Pictures and numbers as files.

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (state, ending) => `${state.metric.name}-over-${ending}`.replace(/[^\w.-]+/g, "_");

function svgText(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", WIDTH);
  copy.setAttribute("height", HEIGHT);
  return new XMLSerializer().serializeToString(copy);
}

const saveSvg = (svg, name) => offer(new Blob([svgText(svg)], { type: "image/svg+xml" }), name);

function savePng(svg, name) {
  const picture = new Image();
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 3 * WIDTH, height: 3 * HEIGHT });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => offer(blob, name), "image/png");
  };
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText(svg));
}

const csvText = value => /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
const csvNumber = (value, type) => Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : exact(value, type);

// A row for each point, as in the export of a store: all axes, the metric, the status.
function csv(state, points) {
  const rows = [[...axes.map(a => a.name), state.metric.name, "status"].map(csvText)];
  for (const at of points) {
    rows.push([...axes.map(a => csvNumber(a.values[at[a.dim]])), csvNumber(valueAt(state.metric, at), state.metric.type),
               flagAt(at)[0].replaceAll(" ", "_")]);
  }
  return rows.map(row => row.join(",") + "\n").join("");
}

const saveCsv = (state, points, name) => offer(new Blob([csv(state, points)], { type: "text/csv" }), name);

const linePoints = view => view.curves.flatMap(curve => curve.points);
const mapPoints = view => view.scattered ? view.points.map(i => view.at(i)) : view.yo.flatMap(j => view.xo.map(i => view.at(i, j)));
