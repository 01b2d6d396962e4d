"""The interactive page: what it holds, what it refuses, and what a real browser shows of it."""

import base64
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import hetjax
from hetjax.cli import main
from hetjax.explore import explore_sweep
from hetjax.explore.data import page_data, plain
from hetjax.explore.page import SCRIPTS

Q, K = np.array([0.25, 0.5, 0.75, 1.5]), np.arange(6)
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> & \"quoted\" @DATA@ @STYLE@"
CHROMIUM = shutil.which("chromium")
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on PATH (Debian: apt-get install chromium)")


def load(dataset, **options):
    """The arrays in the JSON object of a page."""
    held = page_data(dataset, **options)
    found = {m["name"]: np.frombuffer(base64.b64decode(m["data"]), m["type"]) for m in held["metrics"]}
    return held, found


@pytest.fixture
def dataset():
    values = np.exp(3 * Q[:, None]) + np.cos(K) / 3
    status = np.ones(values.shape, np.uint8)
    status[-1] = 3
    return xr.Dataset({"mean_number": (("q", "K"), values), "tail": (("q", "K"), values * 1e-50),
                       "status": (("q", "K"), status)}, {"q": Q, "K": K}, {"title": HOSTILE})


def test_numbers_are_held_exactly_or_to_float32(dataset):
    held, found = load(dataset)
    good = dataset.mean_number.values[:-1]
    np.testing.assert_array_equal(found["mean_number"].reshape(4, 6)[:-1], good)
    assert np.isnan(found["mean_number"].reshape(4, 6)[-1]).all() and held["precision"] == "float64"
    assert held["flags"]["3"][0] == "unstable"
    held, found = load(dataset, precision="float32")
    np.testing.assert_allclose(found["mean_number"].reshape(4, 6)[:-1], good, rtol=2**-24)
    assert found["tail"].dtype == np.float64  # float32 ends at 1e-38
    np.testing.assert_array_equal(found["tail"].reshape(4, 6)[:-1], good * 1e-50)


def test_large_pages_are_refused_with_what_to_leave_out(dataset, tmp_path):
    large = xr.Dataset({name: (("q", "K"), np.broadcast_to(np.float64(1.0), (3000, 4000))) for name in ("a", "b")},
                       {"q": np.arange(3000.0), "K": np.arange(4000)})
    with pytest.raises(ValueError, match=r"hold 128 MB, more than 50 MB; choose metrics \(--metric a\), .*"
                                         r"\(--thin K=2 --thin q=2\), or raise the limit \(--limit 129\)"):
        explore_sweep(large, tmp_path / "a.html")
    assert not list(tmp_path.iterdir())
    page = explore_sweep(large, tmp_path / "a.html", metrics=["b"], thin={"q": 100, "K": 100})
    assert page.stat().st_size < 100_000
    assert explore_sweep(dataset, tmp_path / "b.html", sel={"K": "2:4", "q": 0.5}).exists()


@pytest.mark.parametrize(("options", "words"), [
    ({"metrics": ["mean"]}, "metrics = 'mean' is no metric of the store; choose from mean_number, tail"),
    ({"sel": {"p": 1}}, "sel.p = 1 has an unknown name; choose from q, K"),
    ({"sel": {"K": 9}}, "sel.K = 9 is no value of the axis; the nearest is 5"),
    ({"thin": {"p": 2}}, "thin.p = 2 has an unknown name; choose from q, K"),
    ({"thin": {"q": 0}}, "thin.q = 0 is no whole number from 1 on"),
    ({"precision": "half"}, "precision = 'half' is not known; choose from float32, float64"),
    ({"out": "page.png"}, "out = 'page.png' does not end in .html"),
])
def test_refusals_are_one_line(dataset, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words) as refused:
        explore_sweep(dataset, **options)
    assert str(refused.value).startswith("explore: ") and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_page_loads_nothing_and_texts_are_no_code(dataset, tmp_path):
    text = explore_sweep(dataset, tmp_path / "page.html").read_text()
    assert HOSTILE not in text and "<img" not in text and text.count("<script") == text.count("</script>") == 2
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:)|url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", text)
    assert "default-src 'none'; script-src 'sha256-" in text
    held = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert held["title"] == HOSTILE


def test_symbols_are_plain_text():
    assert plain(r"$\mu_{12}$") == "μ₁₂"
    assert plain(r"$\partial$(p loss) / $\partial \lambda_{1}$") == "∂(p loss) / ∂ λ₁"


def test_scripts_and_style_are_package_data():
    package = Path(hetjax.__file__).parent
    settings = tomllib.loads((package.parent / "pyproject.toml").read_text())
    packaged = settings["tool"]["setuptools"]["package-data"]["hetjax"]
    beside = [f for f in (package / "explore").iterdir() if f.suffix in (".html", ".css", ".js")]
    assert len(beside) == 2 + len(SCRIPTS)
    assert all(any(file.relative_to(package).match(glob) for glob in packaged) for file in beside)


# ---- in a browser


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    sweep = hetjax.Sweep("threshold_queue", {"arrival_rate": {"linspace": [0.1, 1.5, 15]}, "mu2": [0.05, 0.25],
                                             "threshold": {"range": [1, 13]}},
                         metrics=["mean_number", "p_empty"], title=HOSTILE, run={"check": 0})
    sweep.run(folder / "small.zarr")
    assert main(["explore", str(folder / "small.zarr"), "-o", str(folder / "small.html")]) == 0
    return folder


def shown(page, address="", *options):
    """The document after its scripts have run."""
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000",
         f"--user-data-dir={page.parent / 'profile'}", *(options or ["--dump-dom"]), f"file://{page}{address}"],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@browser
def test_the_address_sets_the_view_and_the_store_s_value_is_shown(store):
    data = hetjax.open_sweep(store / "small.zarr")
    view = ("#metric=p_empty&over=threshold&up=arrival_rate&lines=mu2&log=v"
            "&at.arrival_rate=0.7&at.mu2=0.25&at.threshold=3")
    page = shown(store / "small.html", view)
    value = float(re.search(r'<strong id="value"[^>]*>= (\S+?)(?: |<)', page)[1])
    assert value == float(data.p_empty.sel(arrival_rate=0.7, method="nearest").sel(mu2=0.25, threshold=3))
    assert "<title>&lt;/script&gt;" in page and "<img" not in page  # the texts of the sweep stayed texts
    assert page.count('class="curve"') == 2
    gap = shown(store / "small.html", "#at.arrival_rate=1.5&at.mu2=0.25")
    assert "no value: unstable: infeasible: the system has no steady state here" in gap


@browser
def test_sliders_keys_hover_and_files(store):
    """The page is driven by events, as a hand would do it; only its ban on foreign scripts is lifted."""
    data = hetjax.open_sweep(store / "small.zarr")
    text = (store / "small.html").read_text()
    policy = re.search(r"<meta http-equiv[^>]*>", text)[0]
    driver = Path(__file__).with_name("explore_driver.js").read_text()
    driven = store / "driven.html"
    driven.write_text(text.replace(policy, "").replace("</body>", f"<script>{driver}</script></body>"))
    page = shown(driven)
    out = json.loads(re.search(r'<pre id="out">(.*?)</pre>', page, re.DOTALL)[1].replace("&lt;", "<").replace(
        "&gt;", ">").replace("&amp;", "&"))
    line = data.mean_number.isel(arrival_rate=4).sel(mu2=0.25)
    assert [float(row[0]) for row in out["table"]] == line.threshold.values.tolist()
    assert [float(row[1]) for row in out["table"]] == line.values.tolist()
    assert out["spoken"] == "λ = 0.5" and "at.arrival_rate=0.5" in out["address"] and "at.threshold=8" in out["address"]
    assert out["where"].startswith("λ = 0.5, μ₂ = 0.25, threshold = 8: Mean number")
    flagged = int((data.status.sel(mu2=0.25) != 1).sum())
    assert f"{flagged} of {15 * 13} points are gaps" in out["map"]
    assert out["tip"] == ("λ = 1.5\nμ₂ = 0.25\nthreshold = 1\nMean number in the node, in service included: "
                          "no value: unstable: infeasible: the system has no steady state here")
    assert out["clicked"].startswith("λ = 0.1, μ₂ = 0.25, threshold = 13")
    files = {name.split("-over-")[1]: content for name, content in out["files"]}
    assert files["threshold.png"][1:4] == "PNG" and files["threshold.svg"].startswith("<svg")
    assert "<image" in files["threshold-arrival_rate.svg"]
    rows = [row.split(",") for row in files["threshold-arrival_rate.csv"].splitlines()]
    assert rows[0] == ["arrival_rate", "mu2", "threshold", "mean_number", "status"] and len(rows) == 1 + 15 * 13
    for rate, mu2, threshold, value, flag in rows[1:]:
        point = data.sel(arrival_rate=float(rate), mu2=float(mu2), threshold=int(threshold))
        np.testing.assert_array_equal(float(value), point.mean_number.values)
        assert (flag == "ok") == (int(point.status) == 1)


@browser
def test_the_picture_shows_both_views(store):
    from matplotlib.image import imread

    shown(store / "small.html", "#at.mu2=0.25", "--window-size=1400,900", f"--screenshot={store / 'page.png'}")
    picture = imread(store / "page.png")[..., :3]
    colours = np.unique((picture.reshape(-1, 3) * 255).round().astype(int), axis=0)
    assert picture.shape[:2] == (900, 1400)
    assert len(colours) > 60  # the map's scale, beside greys
