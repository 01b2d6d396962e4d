// Put into a page by test_explore.py: uses its controls as a hand would and leaves what it saw in the document.

addEventListener("load", async () => {
  const out = {}, id = name => document.getElementById(name), pause = () => new Promise(done => setTimeout(done, 60));
  const files = [];
  HTMLAnchorElement.prototype.click = function () { files.push(fetch(this.href).then(async r => [this.download, await r.text()])); };
  const choose = async (name, text) => {
    const select = id(name);
    select.value = [...select.options].find(o => o.textContent.includes(text)).value;
    select.dispatchEvent(new Event("change"));
    await pause();
  };
  const slide = async (label, index) => {
    const slider = [...document.querySelectorAll("input[type=range]")].find(s => s.labels[0].textContent.includes(label));
    slider.value = index;
    slider.dispatchEvent(new Event("input"));
    await pause();
    return slider;
  };
  await choose("x", "newcomer");
  await choose("y", "λ");
  await choose("lines", "–");
  await slide("μ₂", 1);
  out.spoken = (await slide("λ", 4)).getAttribute("aria-valuetext");
  id("numbers").open = true;
  await pause();
  out.table = [...id("slice").tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent));
  out.map = id("map").getAttribute("aria-label");
  id("line").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  await pause();
  out.where = id("where").textContent;
  out.address = location.hash;
  const box = id("map").getBoundingClientRect();
  const at = (x, y) => ({ clientX: box.left + x * box.width / 560, clientY: box.top + y * box.height / 400, bubbles: true });
  id("map").dispatchEvent(new PointerEvent("pointermove", at(70, 18)));
  out.tip = id("tip").textContent;
  id("map").dispatchEvent(new MouseEvent("click", at(450, 340)));
  await pause();
  out.clicked = id("where").textContent;
  for (const name of ["line-csv", "map-csv", "line-svg", "map-svg", "line-png"]) id(name).click();
  for (let k = 0; k < 50 && files.length < 5; k++) await pause();
  out.files = await Promise.all(files);
  document.body.append(Object.assign(document.createElement("pre"), { id: "out", textContent: JSON.stringify(out) }));
});
