"""JAX by name, loaded at first use: rows are registered when `tarry` is imported,
which must not import JAX, and they run when a graph is lowered."""

import importlib
from typing import Any


class Deferred:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


jax: Any = Deferred("jax")
jnp: Any = Deferred("jax.numpy")
lax: Any = Deferred("jax.lax")
jsp: Any = Deferred("jax.scipy.special")
