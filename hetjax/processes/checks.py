"""What the processes share: real arrays, checked pytrees, one-line errors for concrete values."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp


def as_real(value: Any, like: jax.Array | None = None) -> jax.Array:
    """``value`` as a floating array: its own floating dtype, else that of ``like``, else the default real dtype."""
    if isinstance(value, (list, tuple)) and any(
        isinstance(item, jax.Array) for item in jax.tree_util.tree_leaves(value)
    ):
        value = jnp.asarray(value)
    if like is not None:
        return jnp.asarray(value).astype(like.dtype)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(value)
    return jnp.asarray(value).astype(jnp.result_type(float))


def as_reals(*values: Any) -> list[jax.Array]:
    """The values as arrays of one floating dtype: that of the arrays among them, else the default real dtype."""
    found = [v.dtype for v in values if hasattr(v, "dtype") and jnp.issubdtype(v.dtype, jnp.floating)]
    like = jnp.zeros((), jnp.result_type(*found) if found else jnp.result_type(float))
    return [as_real(value, like=like) for value in values]


def concrete(*values: Any) -> bool:
    """True if none of the values is traced."""
    return not any(isinstance(value, jax.core.Tracer) for value in values)


def require(holds: bool, name: str, value: Any, domain: str) -> None:
    """ValueError ``name = value: must be domain`` unless ``holds``."""
    if not holds:
        raise ValueError(f"{name} = {value}: must be {domain}")


def pytree[T](cls: type[T]) -> type[T]:
    """Registers a dataclass as a pytree whose rebuilding skips the checks of its constructor.

    Transformations rebuild pytrees with traced values and placeholders, which no check could judge.
    """
    names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    def flatten(self: T) -> tuple[tuple[tuple[Any, Any], ...], None]:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in names), None

    def unflatten(_: None, leaves: Any) -> T:
        self = object.__new__(cls)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(self, name, leaf)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls
