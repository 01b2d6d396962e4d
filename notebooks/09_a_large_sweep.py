# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09 A large sweep
#
# **Question: how do I compute millions of points on machines that may be switched off at any moment, and how do I know
# afterwards that nothing is missing, damaged or different from an undisturbed run?**
#
# We plan a sweep, run it, kill it with `kill -9`, look at what is left, go on, check every checksum, and compare the
# result with a run that was never disturbed: bit for bit. Then the same by two shards side by side, as in a job array,
# and by a dask cluster; and the whole sweep as one interactive page. Everything is done with the command line, which
# the cells call as a function.

# %%
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.cli import main
from hetjax.plot import draw
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES

SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()
folder = tempfile.TemporaryDirectory()
here = Path(folder.name)


def command(text, expected=0):
    """Runs ``hetjax text`` in this process; words that end in .toml, .zarr and .html are files in our folder."""
    print(f"$ hetjax {text}")
    words = [str(here / word) if word.endswith((".toml", ".zarr", ".html")) else word for word in text.split()]
    code = main(words)
    assert code == expected, f"exit code {code}"


def child(text):
    """The same as a process of its own."""
    print(f"$ hetjax {text} &")
    words = [str(here / word) if word.endswith((".toml", ".zarr", ".html")) else word for word in text.split()]
    return subprocess.Popen([sys.executable, "-m", "hetjax.cli", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


# %% [markdown]
# ## Plan
#
# A sweep is a TOML file. `hetjax plan` checks it, says what it will cost (it times the compiled kernel on this
# machine), and writes nothing.

# %%
size = {"loads": 20, "ratios": 8, "servers": [2]} if SMALL else {"loads": 240, "ratios": 80, "servers": [1, 2, 4]}
BLOCK = 250 if SMALL else 100_000
(here / "large.toml").write_text(f"""
[sweep]
model = "stalling"
title = "Five fast servers and some slow ones"
metrics = ["mean_number", "p_wait"]

[axes]
q = {{ linspace = [0.05, 0.98, {size["loads"]}] }}
r = {{ geom = [1.0, 100.0, {size["ratios"]}] }}
K = {{ range = [0, 60] }}
n = {{ values = {size["servers"]} }}

[const]
m = 5
M = inf
""")
command(f"plan large.toml --block-points {BLOCK}" + (" --no-calibrate" if SMALL else ""))

# %% [markdown]
# ## Run, and kill
#
# The run is a process of its own. It appends a line to its log for every block it has committed; when a third of them
# are there we send signal 9, which no program can catch. (Should this machine be so fast that the run ends first, we
# try again.)


# %%
def log_lines(store):
    """What the runs of a store wrote down, in order of time."""
    files = (here / f"{store}.run" / "log").glob("*.jsonl") if (here / f"{store}.run").exists() else ()
    text = [line for file in files for line in file.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in text if line.endswith("\n")), key=lambda line: line["time"])


blocks = hetjax.Sweep.from_toml(here / "large.toml").plan(block_points=BLOCK, calibrate=False).blocks
for _ in range(5):
    process = child(f"run large.toml --out killed.zarr --overwrite --quiet --block-points {BLOCK}")
    while process.poll() is None and len(log_lines("killed.zarr")) < blocks / 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    killed_at = time.time()
    process.communicate()
    if process.returncode == -signal.SIGKILL:
        break
print("exit code of the process:", process.returncode)
assert process.returncode == -signal.SIGKILL

# %% [markdown]
# ## What is left
#
# A block is one chunk of every array. Its `status` chunk is written last, after the others are flushed to disk, so a
# block with a status chunk is complete, whenever the process died. `hetjax status` counts them; its exit code 75 means
# "incomplete and resumable".

# %%
command("status killed.zarr", expected=75)
before = [tuple(line["block"]) for line in log_lines("killed.zarr")]

# %% [markdown]
# ## Go on
#
# `hetjax run ... --resume must` continues; from Python, `run(..., resume="must")` does, and calls a function after each
# block. What was committed is looked at (sizes and checksums) and kept; only the rest is computed.

# %%
reports = []
sweep = hetjax.Sweep.from_toml(here / "large.toml")
hetjax.enable_x64()
resumed_at = time.time()
data = sweep.run(here / "killed.zarr", resume="must", progress=reports.append)
print("first:", reports[0])
print("last: ", reports[-1])
after = [tuple(line["block"]) for line in log_lines("killed.zarr") if line["time"] > resumed_at
         and not line.get("recounted")]
print(f"{len(before)} blocks before the kill, {len(after)} after it, {len(set(before) & set(after))} computed twice")
assert reports[-1].blocks_done == blocks and not set(before) & set(after)
assert reports[0].blocks_restored >= len(before) >= blocks / 3

# %% [markdown]
# ## Check, and compare
#
# `verify --full` reads every byte and compares checksums. `diff` compares two stores point by point, without any
# tolerance unless told otherwise; the other store comes from a run that nobody disturbed. Last we compare the files
# of all chunks themselves.

# %%
command("status killed.zarr")
command("verify killed.zarr --full")
command(f"run large.toml --out calm.zarr --quiet --block-points {BLOCK}")
command("diff killed.zarr calm.zarr")


def chunks(store):
    """The bytes of every chunk file."""
    return {file.relative_to(here / store): file.read_bytes() for file in (here / store).glob("*/c/**/*")
            if file.is_file()}


calm = chunks("calm.zarr")
print(f"{len(calm)} chunk files, {sum(map(len, calm.values())):,} bytes; equal: {chunks('killed.zarr') == calm}")
assert len(calm) > blocks and chunks("killed.zarr") == calm

# %% [markdown]
# The log of the interrupted sweep, drawn: points over time, the kill, the time in which nothing ran (with the start of
# the second run and its compilation), and the rest. Marks are committed blocks; where the line is flat, the program for
# the next number of servers was compiled.

# %%
lines = [line for line in log_lines("killed.zarr") if "block" in line and not line.get("recounted")]
points = np.cumsum([sum(line["counts"].values()) for line in lines])
seconds = np.array([line["time"] for line in lines]) - lines[0]["time"]
first = np.array([line["time"] for line in lines]) <= killed_at
total = int(np.prod([data.sizes[d] for d in ("q", "r", "K", "n")]))
unit, word = (1e3, "thousand") if SMALL else (1e6, "million")
figure, axes = plt.subplots(figsize=(8.4, 3.3))
axes.axvspan(killed_at - lines[0]["time"], seconds[~first][0], color="0.9", label="nothing committed")
for chosen, name, colour, mark in ((first, "first run", CATEGORIES[0], "o"), (~first, "resumed", CATEGORIES[1], "s")):
    axes.plot(seconds[chosen], points[chosen] / unit, color=colour, marker=mark, markersize=3, label=name)
axes.axvline(killed_at - lines[0]["time"], color="black", linestyle=(0, (4, 2)), label="kill -9")
axes.axhline(total / unit, color="0.5", linewidth=0.8, linestyle=":", label="all points")
axes.set(xlabel="Time since the first block (s)", ylabel=f"Points committed ({word})", ylim=(0, 1.05 * total / unit))
figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
print(f"{total:,} points, {points[first][-1]:,} of them logged before the kill")
show(figure, "09_progress")

# %% [markdown]
# ## Shards: a job array
#
# `--shard I/N` computes every N-th block, beside the other shards, without any scheduler; each task of a SLURM job
# array is one shard. A last run without a shard completes the store (it finds nothing to compute).

# %%
if SMALL:
    print("skipped: shards and dask take minutes of starting processes, too much for the small version")
else:
    tasks = [child(f"run large.toml --out shards.zarr --resume auto --quiet --shard {i}/2 --block-points {BLOCK}")
             for i in (0, 1)]
    for task in tasks:
        print(task.communicate()[0], end="")
        assert task.returncode == 0
    command("run large.toml --out shards.zarr --resume must --quiet")
    command("diff shards.zarr calm.zarr")
    assert chunks("shards.zarr") == calm

# %% [markdown]
# ## A dask cluster
#
# With a scheduler, `--executor dask:tcp://head:8786` hands the blocks to its workers, `dask:local:2` starts two here,
# and `slurm:profile.toml` has jobs started for you. A worker that dies costs the block that it had.

# %%
if not SMALL and importlib.util.find_spec("distributed") is None:
    print("skipped: the package distributed is not installed (pip install 'hetjax[cluster]')")
elif not SMALL:
    task = child(f"run large.toml --out dask.zarr --quiet --executor dask:local:2 --block-points {BLOCK}")
    print(task.communicate()[0], end="")
    assert task.returncode == 0
    command("diff dask.zarr calm.zarr")
    assert chunks("dask.zarr") == calm

# %% [markdown]
# ## Look
#
# The store is a labelled dataset, opened lazily: only what a figure shows is read. Here is how far $\overline N$ lies
# above its least value over $K$, with the best $K$ as a line; it ends where the least values are equal in rounding
# (notebook 01 shows how to go on).

# %%
near = data.sel(r=20.0, method="nearest")
panels = {} if SMALL else {"facets": "n"}
figure = draw(data, {"x": "q", "y": "K", "z": "mean_number", **panels, "sel": {"r": float(near.r)},
                     "relative": {"over": "K", "to": "min"}, "optimum": True, "limits": {"z": [0, 30]},
                     "title": "Excess of the mean number over that with the best buffer", "size": [9.6, 3.4]})
show(figure, "09_excess")

# %% [markdown]
# And the whole sweep (thinned to fit) as one page with sliders, which needs no network:

# %%
command("explore calm.zarr -o large.html --metric mean_number" + ("" if SMALL else " --thin q=4 --thin r=4"))
page = (here / "large.html").read_text()
print(f"large.html: {len(page) / 1e6:.1f} MB, addresses in it: {page.count('https:')}")
assert "<script" in page and "https:" not in page
folder.cleanup()

# %% [markdown]
# ## What to try next
#
# * Damage the store: overwrite some bytes of a chunk, then `hetjax verify --full` (which names it) and `hetjax retry`
#   (which computes it again, and that alone).
# * More points later: `hetjax extend` lengthens axes, `hetjax refine --over q` puts midpoints between; old points are
#   copied.
# * Press Ctrl-C instead of `kill -9`: the run ends after the block in flight with exit code 75.
# * Run the sweeps in `sweeps/`: `quickstart.toml` has 21 million points.
