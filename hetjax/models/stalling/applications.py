"""Section 4 of the source paper: the performance of a disk server, and the data of its Tables 2 and 3.

Section 4.1 rates servers by W and takes r = W_fast / W_slow. Its own numbers contradict the formulas printed there:

>>> from hetjax.models.stalling import applications
>>> slow, fast = (applications.performance_coefficient(**server) for server in (applications.SLOW_SERVER,
...                                                                             applications.FAST_SERVER))
>>> round(float(fast / slow), 2), round(1190 / 171, 3)      # the formula's ratio and that of the printed W
(15.68, 6.959)

The number of processors cancels in the ratio, so it does not matter whether U counts one or two of them.
"""

import numpy as np

RAID5 = {"read_parity": 1, "write_parity": 0, "read_percent": 70.0, "write_percent": 30.0, "overhead": 4.0}

SLOW_SERVER = {  # HP ProLiant DL180 G6, section 4.1; the printed W is 171
    "benchmark": 2 * 6358.0, "transfer_rate": 6.0, "transferred_data": 97.0, "iops": 18098.0,
    "memory_speed": 11982.0, "memory_type": 8.0}
FAST_SERVER = {  # HP ProLiant DL380 Gen9, section 4.1; the printed W is 1190
    "benchmark": 2 * 23200.0, "transfer_rate": 12.0, "transferred_data": 195.0, "iops": 62843.0,
    "memory_speed": 19458.5, "memory_type": 16.0}

TABLE_2_PRINTED_INPUTS = {  # they contradict each other: .58 / (5 * .146) = .794 and .146 / .045 = 3.24
    "arrival_rate": 0.58, "mu1": 0.146, "mu2": 0.045, "m": 5, "n": 2, "rho": 0.71, "q": 0.751, "r": 6.959}
TABLE_2_CONSISTENT_INPUTS = {  # these give the printed outputs: the buffer is so long that no slow server is used
    "q": 0.75124, "r": 6.959, "K": 100, "M": 10, "m": 5, "n": 2}
TABLE_2_PRINTED_OUTPUTS = {  # by the names of metrics()
    "p_empty": 0.0185, "p_stuck": 0.0, "mean_stuck": 0.0, "p_slow_only": 0.0, "p_slow": 0.0, "mean_slow": 0.0,
    "p_fast": 0.9814, "mean_fast": 3.7561, "p_stalling": 0.3486, "mean_stalled": 1.4014, "p_wait": 0.0,
    "mean_waiting": 0.0, "p_loss": 0.0, "mean_number": 5.1575}
TABLE_2_MISLABELLED = {  # row as printed: (value, what the number really is)
    "P_0": (0.464, "p_2, the Erlang C probability of M/M/5"), "P_{m,n,K}": (0.981, "P_fast")}

FOREST_COLUMNS = ("tree_volume", "harvester_time", "harvester_rate", "chainsaw_time", "chainsaw_rate")  # m3, h/m3, m3/h
FOREST = np.array([  # Table 3: harvester (mu1) and chainsaw (mu2) by volume of the tree trunk
    (0.1, 0.111, 9.0, 0.872, 1.2), (0.2, 0.047, 21.2, 0.710, 1.4), (0.3, 0.035, 28.4, 0.641, 1.6),
    (0.4, 0.030, 33.4, 0.599, 1.7), (0.5, 0.027, 37.4, 0.571, 1.8), (0.6, 0.025, 40.6, 0.549, 1.8),
    (0.7, 0.023, 43.3, 0.532, 1.9), (0.8, 0.022, 45.6, 0.518, 1.9), (0.9, 0.021, 47.7, 0.507, 2.0),
    (1.0, 0.020, 49.6, 0.497, 2.0)])
FOREST.setflags(write=False)
FOREST_OPTIMA = (  # section 4.2: harvesters, load in m3/h, chainsaws needed; the row .4 m3 reproduces both
    {"m": 1, "arrival_rate": 50.0, "n": 10}, {"m": 2, "arrival_rate": 100.0, "n": 20})


def iops_disk_published(rotations_per_minute: float, seek_ms: float, latency_ms: float) -> float:
    """IOPS_disk = rpm / (seek / 1000 + latency / 1000) as printed in section 4.1; times in milliseconds.

    The factor rpm cannot be right. The paper gives no times, but its 57 for a disk of 7,200 rpm is
    1 / (seek + latency), :func:`iops_disk`, at 17.5 ms for both together; the printed formula gives 7,200 times that.

    >>> from hetjax.models.stalling.applications import iops_disk, iops_disk_published
    >>> round(iops_disk_published(7200, 13.4, 4.16)), round(iops_disk(13.4, 4.16))
    (410023, 57)
    """
    return rotations_per_minute * iops_disk(seek_ms, latency_ms)


def iops_disk(seek_ms: float, latency_ms: float) -> float:
    """Operations per second of one disk, 1 / (seek time + rotational latency); times in milliseconds."""
    if not (seek_ms >= 0 and latency_ms >= 0 and seek_ms + latency_ms > 0):
        raise ValueError(f"seek_ms = {seek_ms!r}, latency_ms = {latency_ms!r}: give times >= 0, not both 0")
    return 1 / (seek_ms / 1000 + latency_ms / 1000)


def iops_raid(iops_disk: float, disks: int, *, read_parity: int = 1, write_parity: int = 0, read_percent: float = 70.0,
              write_percent: float = 30.0, overhead: float = 4.0) -> float:
    """IOPS_raid of a disk array (section 4.1; the defaults are its RAID5).

    The shares enter in percent, as the paper has it, so the value is 100 times operations per second.

    >>> from hetjax.models.stalling.applications import iops_raid
    >>> iops_raid(57, 5), iops_raid(133, 7)                  # printed: 18,098 and 62,843
    (18097.5, 62842.5)
    """
    if disks < 1 or overhead <= 0:
        raise ValueError(f"disks = {disks!r}, overhead = {overhead!r}: give at least one disk and a positive overhead")
    return iops_disk * ((disks - read_parity) * read_percent + (disks - write_parity) * write_percent / overhead)


def performance_coefficient(*, benchmark: float, transfer_rate: float, transferred_data: float, iops: float,
                            memory_speed: float, memory_type: float) -> float:
    """W = U MeX_rate MeX_r/wdata IOPS_raid / (MiN_r/wspeed MiN_type) of section 4.1.

    ``benchmark``: U, CPU benchmarks of all processors; ``transfer_rate``: Gb/s; ``transferred_data``: Mb/s;
    ``memory_speed``: mean of reading and writing, MB/s; ``memory_type``: the paper's coefficient. Arbitrary unit.
    """
    if memory_speed <= 0 or memory_type <= 0:
        raise ValueError(f"memory_speed = {memory_speed!r}, memory_type = {memory_type!r}: give positive numbers")
    return benchmark * transfer_rate * transferred_data * iops / (memory_speed * memory_type)
