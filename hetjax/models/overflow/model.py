"""The overflow system as the registry and the sweep engine see it."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from hetjax.models import registry
from hetjax.models.overflow.closed_form import metrics as all_metrics
from hetjax.models.overflow.golden import GOLDEN
from hetjax.models.overflow.params import COST_AXES, RATE_AXES, Costs, Params, domain_status
from hetjax.models.overflow.second_route import second_route
from hetjax.models.registry import Evaluation, Metric, Model

_STATES = {"0": "idle", "1": "with a type-1 customer", "2": "with a type-2 customer"}
METRICS = (
    *(Metric(f"pi{i}{j}", "1", f"probability of server 1 {_STATES[i]}, server 2 {_STATES[j]}")
      for i in "012" for j in "012"),
    Metric("p_loss", "1", "probability that an arrival is lost, the same for both types"),
    Metric("p_loss_without_overflow_1", "1", "loss probability of type 1 if overflow is forbidden, rho1/(1+rho1)"),
    Metric("p_loss_without_overflow_2", "1", "loss probability of type 2 if overflow is forbidden, rho2/(1+rho2)"),
    Metric("overflow_rate_1", "customers/time", "rate of type-1 customers who start service at server 2"),
    Metric("overflow_rate_2", "customers/time", "rate of type-2 customers who start service at server 1"),
    Metric("overflow_rate_total", "customers/time", "sum of the two overflow rates"),
    Metric("wrong_assignment_ratio_1", "1", "share of served type-1 customers that server 2 serves"),
    Metric("wrong_assignment_ratio_2", "1", "share of served type-2 customers that server 1 serves"),
    Metric("wrong_assignment_ratio_total", "1", "share of all served customers whom the other type's server serves"),
    Metric("malposition_serious", "1", "probability that both servers serve the other's type, pi21"),
    Metric("malposition_light", "1", "probability that one serves the other's type, the other is idle, pi01 + pi20"),
    Metric("malposition_middle", "1", "probability that both serve the same type, pi11 + pi22"),
    Metric("malposition_total", "1", "probability that some server serves the other's type"),
    Metric("loss_reduction_1", "1", "loss probability of type 1 without overflow minus with it"),
    Metric("loss_reduction_2", "1", "loss probability of type 2 without overflow minus with it"),
    Metric("absolute_loss_reduction_margin", "1", "the smaller of the two loss reductions; positive: both types gain"),
    Metric("relative_loss_reduction_margin", "customers/time", "loss rate without overflow minus with it"),
    Metric("absolute_loss_reduction", "1", "1 where overflow lowers the loss of both types, else 0",
           differentiable=False),
    Metric("relative_loss_reduction", "1", "1 where overflow lowers the total loss rate, else 0",
           differentiable=False),
    Metric("throughput_1", "customers/time", "rate of type-1 customers served"),
    Metric("throughput_2", "customers/time", "rate of type-2 customers served"),
    Metric("throughput_total", "customers/time", "rate of customers served"),
    Metric("throughput_without_overflow_1", "customers/time", "rate of type 1 served if overflow is forbidden"),
    Metric("throughput_without_overflow_2", "customers/time", "rate of type 2 served if overflow is forbidden"),
    Metric("mean_number_1", "customers", "mean number of type-1 customers in service"),
    Metric("mean_number_2", "customers", "mean number of type-2 customers in service"),
    Metric("utilization_server_1_type_1", "1", "share of time server 1 serves type 1"),
    Metric("utilization_server_1_type_2", "1", "share of time server 1 serves type 2"),
    Metric("utilization_server_2_type_1", "1", "share of time server 2 serves type 1"),
    Metric("utilization_server_2_type_2", "1", "share of time server 2 serves type 2"),
    Metric("utilization_server_1", "1", "share of time server 1 is busy"),
    Metric("utilization_server_2", "1", "share of time server 2 is busy"),
    Metric("cost_rate", "cost/time", "cost of losses and overflows with overflow"),
    Metric("cost_rate_without_overflow", "cost/time", "cost of losses if overflow is forbidden"),
    Metric("cost_saving", "cost/time", "cost rate without overflow minus with it; positive: overflow pays"),
    Metric("break_even_overflow_cost", "cost/customer", "common overflow cost at which overflow just pays"),
)
AXES = (*RATE_AXES, *COST_AXES)


def _params(values: Mapping[str, Any]) -> Params:
    return Params(**{axis.name: values[axis.name] for axis in RATE_AXES})


def _point(values: Mapping[str, Any], metrics: tuple[str, ...],
           bounds: Mapping[str, int]) -> tuple[dict[str, jax.Array], jax.Array]:
    costs = Costs(*(values[axis.name] for axis in COST_AXES))
    found = all_metrics(_params(values), costs)._asdict()
    return {name: found[name] for name in metrics}, domain_status(AXES, tuple(values[axis.name] for axis in AXES))


MODEL = Model(name="overflow", version=1, title="Two-server overflow loss system", axes=AXES, metrics=METRICS,
              point=_point, second_route=second_route, golden=GOLDEN)


def evaluate(*, metrics: Sequence[str] | None = None, **arrays: Any) -> Evaluation:
    """The system on numpy-like arrays that broadcast: ``lambda1, lambda2, mu1, mu2`` and, optionally, the costs
    ``loss_cost_1, loss_cost_2, overflow_cost_1, overflow_cost_2``. See :func:`hetjax.evaluate`.

    >>> from hetjax.models import overflow
    >>> out = overflow.evaluate(lambda1=[1.0, 1e6], lambda2=[1.0, 1e6], mu1=1.0, mu2=1.0,
    ...                         metrics=["malposition_serious"])
    >>> [round(float(v), 4) for v in out.malposition_serious]
    [0.05, 0.25]
    """
    return registry.evaluate(MODEL, metrics=metrics, **arrays)
