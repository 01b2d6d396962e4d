"""Estimates from logs: by hand, by exact laws, on simulated queues with known truth; hostile files."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from fit.stalling_log import stalling_log, write_csv

from hetjax.cli import main
from hetjax.fit import Log, fit_buffer, fit_log, fit_sample


def test_estimates_by_hand():
    found = fit_sample([1.0, 2.0, 3.0])
    assert (found.count, found.mean, found.rate) == (3, 2.0, 0.5)
    assert math.isclose(found.standard_error, 0.5 / math.sqrt(3)) and math.isclose(found.scv, 1 / 6)
    assert math.isclose(found.standard_error_any_law, 0.5 * math.sqrt(1 / 18))
    assert math.isclose(found.lag1, 0.0, abs_tol=1e-15)
    assert np.allclose(found.interval, scipy.stats.gamma.ppf([0.025, 0.975], 3) / 6, rtol=1e-10)
    # Greenwood: E sum p^2 = 2/(n+1), n times that less 1
    assert math.isclose(found.scv_z, (1 / 6 - 0.5) / math.sqrt(4 * 9 * 2 / (16 * 5 * 6)))
    log = fit_log(Log.from_arrays([0, 1, 2, 4], service=[1, 1, 4, 4], server=["a", "a", "b", "b"]), fast_servers=2)
    assert log.interarrival.rate == 0.75 and (log.fast, log.slow) == ("a", "b")
    assert math.isclose(log.r.value, 4) and math.isclose(log.r.standard_error, 4) and math.isclose(log.q.value, 0.375)


def test_exact_null_law_of_the_scv():
    rng = np.random.default_rng(0)
    for n in (5, 40):
        z = np.array([fit_sample(x).scv_z for x in rng.exponential(size=(4000, n))])
        assert abs(z.mean()) < 4 / math.sqrt(4000) and abs(z.std() - 1) < 0.15  # skewed: its spread varies more


def test_standard_errors_and_intervals_cover_the_truth():
    rng = np.random.default_rng(1)
    intervals = [fit_sample(x).interval for x in rng.exponential(0.5, (2000, 12))]
    covered = np.mean([low < 2 < high for low, high in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.05 * 0.95 / 2000)  # exact at any size
    wide = [fit_sample(x) for x in rng.gamma(0.4, 2.5, (1500, 400))]  # SCV 2.5, mean 1
    z = np.array([(f.rate - 1) / f.standard_error_any_law for f in wide])
    assert abs(z.std() - 1) < 0.1 and np.mean([f.exponential for f in wide]) < 0.01
    z = np.array([(f.scv - 2.5) / f.scv_standard_error for f in wide])
    assert 0.8 < z.std() < 1.5  # the SCV of a skewed law converges slowly


def test_tests_of_exponentiality_reject_and_accept_as_they_say():
    rng = np.random.default_rng(2)
    good = [fit_sample(x) for x in rng.exponential(size=(2000, 300))]
    assert np.mean([f.shape > 1.308 for f in good]) < 0.02  # 1 % by Stephens' table
    assert np.mean([not f.independent for f in good]) < 0.01
    uniform = fit_sample(rng.uniform(0, 2, 300))
    assert not uniform.exponential and "vary less" in uniform.remarks("times", "exponential")[0]
    # SCV 1 but no exponential law: half of the times short, half long
    odd = np.where(rng.random(2000) < 0.5, 0.0001, 2.0)
    assert "not exponential, whatever their SCV of" in " ".join(fit_sample(odd).remarks("times", "exponential"))
    bursts = np.repeat([0.1, 1.9], 500)
    assert "correlated" in " ".join(fit_sample(bursts).remarks("times", "Poisson"))
    law = fit_sample(rng.gamma(4.0, 0.25, 500)).law()
    assert math.isclose(float(law.mean()), fit_sample(rng.gamma(4.0, 0.25, 500)).mean, rel_tol=0.1)
    assert abs(float(law.scv()) - 0.25) < 0.06


@pytest.mark.parametrize(("K", "n"), [(0, 2), (4, 1), (7, 3)])
def test_a_simulated_stalling_queue_is_recognised(K, n):
    columns = stalling_log(10 + K, 3.6, 1.0, 0.2, 4, n, K, 4000)
    found = fit_log(Log.from_arrays(**columns), fast_servers=4, slow_servers=n)
    assert (found.fast, found.slow, found.buffer.K) == ("fast", "slow", K) and found.buffer.starts > 20
    for estimate, truth in ((found.r, 5.0), (found.q, 0.9)):
        assert abs(estimate.value - truth) < 4 * estimate.standard_error
        assert estimate.interval[0] < estimate.value < estimate.interval[1]
    assert found.interarrival.exponential and not found.remarks
    assert found.to_dict()["buffer"]["K"] == K and f"K = {K}, identified" in found.text()


def test_a_buffer_that_is_not_identified_is_not_made_up():
    never = stalling_log(3, 1.0, 1.0, 0.2, 4, 2, 30, 1500)
    found = fit_log(Log.from_arrays(**never))
    assert found.slow is None and found.buffer is None  # nobody was ever sent to a slow server
    log = Log.from_arrays([0, 1, 2, 3], start=[0, 1, 4, 5], departure=[4, 5, 5, 6], server=["a", "b", "a", "a"])
    assert fit_buffer(log, "b").K == 0
    waited = Log.from_arrays([0, 1, 2, 6], start=[0, 3, 4, 7], departure=[4, 4, 6, 8], server=["a", "b", "a", "a"])
    bound = fit_buffer(waited, "b")
    assert bound.K is None and bound.at_least == 2 and "not identified" in bound.words
    other = stalling_log(5, 3.6, 1.0, 0.2, 4, 2, 3, 800)
    later = stalling_log(6, 3.6, 1.0, 0.2, 4, 2, 6, 800)
    shift = other["departure"].max() + 1
    mixed = {k: np.concatenate([other[k], later[k] + shift]) for k in ("arrival", "start", "departure")}
    rule = fit_log(Log.from_arrays(**mixed, server=[*other["server"], *later["server"]])).buffer
    assert rule.K is None and "does not follow the rule" in rule.words
    with pytest.raises(ValueError, match="slow_servers = 1: 2 of class 'slow' are busy at once"):
        fit_log(Log.from_arrays(**other), slow_servers=1)


def test_services_that_are_not_exponential_are_said_to_be_so():
    columns = stalling_log(8, 3.6, 1.0, 0.2, 4, 2, 3, 3000, service=lambda rng: rng.gamma(4.0, 0.25))
    found = fit_log(Log.from_arrays(**columns))
    assert any(remark.startswith("service fast: the times vary less") for remark in found.remarks)
    assert abs(float(found.services["fast"].law().scv()) - 0.25) < 0.05


def test_order_line_ends_and_byte_order_marks_do_not_matter(tmp_path):
    columns = stalling_log(9, 3.6, 1.0, 0.2, 4, 2, 3, 300)
    expected = fit_log(Log.from_arrays(**columns))
    shuffle = np.random.default_rng(0).permutation(300)
    mixed = {k: np.asarray(columns[k])[shuffle].tolist() for k in ("server", "departure", "arrival", "start")}
    path = write_csv(tmp_path / "log.csv", mixed, "\r\n")
    path.write_text("﻿" + path.read_text(), newline="")
    assert fit_log(path) == expected == fit_log(path)


@pytest.mark.parametrize(("text", "message"), [
    ("", "is empty; its first line names columns"),
    ("arrival\n1\n2\n", "has 2 customers; at least 3"),
    ("arrivals\n1\n2\n3\n", "line 1: 'arrivals' is no column of a log"),
    ("service\n1\n2\n3\n", "line 1: there is no column arrival"),
    ("arrival,arrival\n1,1\n2,2\n3,3\n", "line 1: column arrival appears twice"),
    ("arrival\n1\nx\n3\n", "line 3, column arrival: 'x' is no finite number"),
    ("arrival\n1\n\nnan\n3\n", "line 4, column arrival: 'nan' is no finite number"),
    ("arrival\n1\n1e999\n3\n", "line 3, column arrival: '1e999' is no finite number"),
    ("arrival,service\n1,1\n2\n3,1\n", "line 3: 1 cells where the header has 2"),
    ("arrival,service\n1,1\n2,-2\n3,1\n", "line 3, column service: -2 is negative"),
    ("arrival,start,departure\n1,1,2\n2,1,3\n3,3,4\n", "line 3, column start: 1 is before its arrival, 2"),
    ("arrival,start,departure\n1,1,2\n2,2,1.5\n3,3,4\n", "line 3, column departure: 1.5 is before its start, 2"),
    ("arrival,start\n1,1\n2,2\n3,3\n", "one of start and departure"),
    ("arrival,start,service\n1,1,1\n2,2,1\n3,3,1\n", "either service, or start and departure"),
    ("arrival,service,server\n1,1,a\n2,1,\n3,1,a\n", "line 3, column server: '' names no class"),
    ("arrival\n2\n2\n2\n", "all customers arrive at 2"),
    ('arrival\n"1\n2\n3\n', "no CSV"),
])
def test_hostile_files_are_refused_in_one_line(tmp_path, capsys, text, message):
    path = tmp_path / "log.csv"
    path.write_text(text)
    assert main(["fit", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and len(error) < 400


def test_more_fast_servers_at_work_than_there_are():
    log = Log.from_arrays([0, 1, 2, 9], start=[0, 1, 2, 9], departure=[4, 4, 4, 10])
    assert fit_log(log, fast_servers=3).q.value > 0
    with pytest.raises(ValueError, match="fast_servers = 2: 3 of class 'all' are busy at once"):
        fit_log(log, fast_servers=2)


def test_a_slow_server_that_takes_another_than_the_newcomer():
    log = Log.from_arrays([0, 1, 2, 9], start=[0, 2, 4, 9], departure=[4, 8, 6, 10], server=["a", "b", "a", "a"])
    assert "another customer" in fit_buffer(log, "b").words


def test_times_beyond_any_clock(tmp_path, capsys):
    path = tmp_path / "huge.csv"
    path.write_text("arrival,service\n1e300,1e300\n2e300,1e300\n3e307,1e308\n1.7e308,1e308\n")
    assert main(["fit", str(path)]) == 2 and main(["fit", str(tmp_path / "none.csv")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "another unit" in lines[0] and "cannot be read" in lines[1]


def test_command_line(tmp_path, capsys):
    path = write_csv(tmp_path / "log.csv", stalling_log(4, 3.6, 1.0, 0.2, 4, 2, 3, 900))
    assert main(["fit", str(path), "--fast-servers", "4", "--slow-servers", "2"]) == 0
    assert "K = 3, identified" in capsys.readouterr().out
    assert main(["fit", str(path), "--json", "--slow", "slow"]) == 0
    assert json.loads(capsys.readouterr().out)["buffer"]["K"] == 3
    assert main(["fit", str(path), "--slow", "nobody"]) == 2
    assert "slow = 'nobody' is no class of the log; choose from fast, slow" in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "none.csv")]) == 2
    (tmp_path / "binary.csv").write_bytes(b"arrival\n\xff\xfe\n1\n")
    assert main(["fit", str(tmp_path / "binary.csv")]) == 2
    assert "no UTF-8 text" in capsys.readouterr().err
