"""The overflow system in exact rationals, written from the nine balance equations of the paper's appendix A."""

from fractions import Fraction

STATES = ["00", "01", "02", "10", "11", "12", "20", "21", "22"]


def balance_equations(lambda1, lambda2, mu1, mu2):
    """The appendix, line by line: {state: (total outflow rate, {state it is entered from: rate})}."""
    both = lambda1 + lambda2
    return {
        "00": (both, {"10": mu1, "01": mu1, "02": mu2, "20": mu2}),
        "10": (both + mu1, {"00": lambda1, "11": mu1, "12": mu2}),
        "12": (mu1 + mu2, {"02": lambda1, "10": lambda2}),
        "02": (both + mu2, {"00": lambda2, "12": mu1, "22": mu2}),
        "11": (2 * mu1, {"01": lambda1, "10": lambda1}),
        "01": (both + mu1, {"11": mu1, "21": mu2}),
        "20": (both + mu2, {"21": mu1, "22": mu2}),
        "21": (mu1 + mu2, {"20": lambda1, "01": lambda2}),
        "22": (2 * mu2, {"20": lambda2, "02": lambda2}),
    }


def exact_probabilities(*rates):
    """{state: probability} by rational elimination of eight balance equations and the normalisation."""
    equations = balance_equations(*(Fraction(rate) for rate in rates))
    size = len(STATES)
    rows = []
    for state in STATES[:-1]:
        outflow, inflow = equations[state]
        row = [inflow.get(other, Fraction(0)) for other in STATES] + [Fraction(0)]
        row[STATES.index(state)] -= outflow
        rows.append(row)
    rows.append([Fraction(1)] * (size + 1))
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(size):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return dict(zip(STATES, (row[-1] for row in rows), strict=True))


def exact_metrics(lambda1, lambda2, mu1, mu2, cl1=1, cl2=1, co1=0, co2=0):
    """{metric: (exact value, the larger of the sides that a difference compares, or None)}, from the definitions."""
    l1, l2, m1, m2, cl1, cl2, co1, co2 = (Fraction(x) for x in (lambda1, lambda2, mu1, mu2, cl1, cl2, co1, co2))
    p = exact_probabilities(l1, l2, m1, m2)
    loss = p["11"] + p["12"] + p["21"] + p["22"]
    o1, o2 = l1 * (p["10"] + p["20"]), l2 * (p["01"] + p["02"])
    b1, b2 = l1 / (l1 + m1), l2 / (l2 + m2)
    x1, x2 = l1 * (1 - loss), l2 * (1 - loss)
    cost, cost_without = (cl1 * l1 + cl2 * l2) * loss + co1 * o1 + co2 * o2, cl1 * l1 * b1 + cl2 * l2 * b2
    weighted_loss = (cl1 * l1 + cl2 * l2) * loss
    relative = (l1 * b1 + l2 * b2, (l1 + l2) * loss)
    plain = {
        **{f"pi{state}": value for state, value in p.items()}, "p_loss": loss,
        "p_loss_without_overflow_1": b1, "p_loss_without_overflow_2": b2,
        "overflow_rate_1": o1, "overflow_rate_2": o2, "overflow_rate_total": o1 + o2,
        "wrong_assignment_ratio_1": o1 / x1, "wrong_assignment_ratio_2": o2 / x2,
        "wrong_assignment_ratio_total": (o1 + o2) / (x1 + x2),
        "malposition_serious": p["21"], "malposition_light": p["01"] + p["20"],
        "malposition_middle": p["11"] + p["22"],
        "malposition_total": p["21"] + p["01"] + p["20"] + p["11"] + p["22"],
        "throughput_1": m1 * (p["10"] + p["01"] + p["12"] + p["21"] + 2 * p["11"]),
        "throughput_2": m2 * (p["20"] + p["02"] + p["12"] + p["21"] + 2 * p["22"]),
        "throughput_total": x1 + x2,
        "throughput_without_overflow_1": l1 * (1 - b1), "throughput_without_overflow_2": l2 * (1 - b2),
        "mean_number_1": x1 / m1, "mean_number_2": x2 / m2,
        "utilization_server_1_type_1": p["10"] + p["11"] + p["12"],
        "utilization_server_1_type_2": p["20"] + p["21"] + p["22"],
        "utilization_server_2_type_1": p["01"] + p["11"] + p["21"],
        "utilization_server_2_type_2": p["02"] + p["12"] + p["22"],
        "utilization_server_1": 1 - p["00"] - p["01"] - p["02"],
        "utilization_server_2": 1 - p["00"] - p["10"] - p["20"],
        "cost_rate": cost, "cost_rate_without_overflow": cost_without,
    }
    differences = {
        "loss_reduction_1": (b1 - loss, max(b1, loss)), "loss_reduction_2": (b2 - loss, max(b2, loss)),
        # each side of the minimum carries its own error: the larger scale bounds both
        "absolute_loss_reduction_margin": (min(b1, b2) - loss, max(loss, b1 if b1 < b2 else b2)),
        "relative_loss_reduction_margin": (relative[0] - relative[1], max(relative)),
        "cost_saving": (cost_without - cost, max(cost, cost_without)),
        "break_even_overflow_cost": ((cost_without - weighted_loss) / (o1 + o2),
                                     max(cost_without, weighted_loss) / (o1 + o2)),
    }
    return {**{name: (value, None) for name, value in plain.items()}, **differences}
