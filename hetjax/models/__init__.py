"""The models; each is imported when it is first asked for."""

from hetjax.models.registry import Axis, Evaluation, Metric, Model, evaluate, get_model, model_names, register

__all__ = ["Axis", "Evaluation", "Metric", "Model", "evaluate", "get_model", "model_names", "register"]
