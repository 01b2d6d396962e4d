"""How long until hetjax does something? ``python tests/benchmarks/start_up.py [--json FILE] [--repeats N]``.

Protocol. Fresh processes, one at a time, taking turns, after one round that is not counted (it fills the caches of the
disk and of compiled kernels); the least wall time of ``--repeats`` rounds counts, and the least CPU time, which other
work on the machine disturbs less, is printed beside it:

nothing     ``python -c pass``;
jax         ``python -c 'import jax'``;
both        ``python -c 'import jax, hetjax'``;
hetjax      ``python -c 'import hetjax'``, which does not load jax;
help        ``python -m hetjax.cli --help``;
cold        ``hetjax run sweeps/quickstart.toml`` up to the moment at which its first block is computing (calibrated,
            golden points checked, its kernel compiled), with an empty folder for compiled kernels;
warm        the same with the folder that an earlier run filled.

Both sweeps are ended then. What importing hetjax adds is also measured within a process that has imported jax: two
processes differ by more than it. Asked: it adds less than 50 ms, help takes less than 0.3 s, warm less than 3 s.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import over, save

ROOT = Path(__file__).resolve().parents[2]
UNTIL_COMPUTING = """
import os, sys
import hetjax.sweep.run as run

class Kernel(run.Kernel):
    def dispatch(self, block):
        started = super().dispatch(block)
        os._exit(0)

run.Kernel = Kernel  # of the sweep's blocks; calibration and golden points have their own
from hetjax.cli import main
sys.exit(main(sys.argv[1:]) or 1)
"""
WITHIN = "import time, jax; t = time.perf_counter(); import hetjax; print(time.perf_counter() - t)"


def main() -> None:
    """Prints the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"PYTHONPATH": path}

    def process(*arguments: str, cache: str = "") -> tuple[float, float, str]:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True,
                              env=environment | ({"XDG_CACHE_HOME": cache} if cache else {}))
        elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{arguments} failed: {done.stderr[-500:]}")
        return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout

    def sweep(cache: Path) -> tuple[float, float]:
        store = folder / "sweep.zarr"
        found = process("-c", UNTIL_COMPUTING, "run", "sweeps/quickstart.toml", "--out", str(store), "--quiet",
                        "--no-plot", cache=str(cache))
        for left in folder.glob("sweep.zarr*"):
            shutil.rmtree(left)
        return found[:2]

    def cold() -> tuple[float, float]:
        shutil.rmtree(folder / "cold", ignore_errors=True)
        return sweep(folder / "cold")

    measured = {
        "nothing": lambda: process("-c", "pass")[:2], "jax": lambda: process("-c", "import jax")[:2],
        "both": lambda: process("-c", "import jax, hetjax")[:2], "hetjax": lambda: process("-c", "import hetjax")[:2],
        "within": lambda: (float(process("-c", WITHIN)[2]),) * 2,
        "help": lambda: process("-m", "hetjax.cli", "--help")[:2], "cold": cold, "warm": lambda: sweep(folder / "warm")}
    try:
        rounds = [{name: measure() for name, measure in measured.items()} for _ in range(options.repeats + 1)][1:]
    finally:
        shutil.rmtree(folder)
    best, cpu = ({name: min(r[name][i] for r in rounds) for name in measured} for i in (0, 1))
    for name, seconds in best.items():
        print(f"{name:8s} {seconds:7.3f} s by the wall, {cpu[name]:7.3f} s of CPU")
    print(f"import hetjax adds {1e3 * best['within']:.1f} ms to import jax (asked 50), help takes {best['help']:.2f} s"
          f" (asked 0.3), a warm sweep computes after {best['warm']:.2f} s (asked 3), a cold one after"
          f" {best['cold']:.2f} s; load average {os.getloadavg()[0]:.1f}")
    ratios = over({k: best[k] for k in ("nothing", "hetjax", "help", "jax")}, "nothing")
    ratios |= over({k: best[k] for k in ("jax", "both", "warm", "cold")}, "jax")
    save(__doc__, ratios, {"seconds": best, "cpu_seconds": cpu}, options.json)


if __name__ == "__main__":
    main()
