"""A function written in JAX as a row: one operation whose static argument is the call.

In: a `JaxCall`, what is called with what besides arrays. Its results are those of the
function, in the dtypes that it has in the user's own JAX: 64-bit types only where an
operand is of one, or where the user turned them on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarry.lower.table import Call, row
from tarry.lower.xla import jax, jnp


class JaxCall:
    """`function(*args, **kwargs)`; `arguments` puts arrays into their places in these.

    Equal where `key` is, which tells the function and everything else apart.
    """

    __slots__ = ("_hash", "arguments", "function", "key", "name", "wide")

    def __init__(
        self, function: Callable[..., Any], arguments: Callable[[Sequence[Any]], Any],
        wide: bool, key: Any, name: str,
    ) -> None:  # fmt: skip
        self.function, self.arguments, self.wide = function, arguments, wide
        self.key, self.name = (key, wide), name
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, JaxCall) and self.key == other.key)

    def __repr__(self) -> str:
        return self.name

    def run(self, arrays: Sequence[Any]) -> Any:
        """The function's result."""
        with jax.enable_x64(self.wide):
            args, kwargs = self.arguments(arrays)
            return self.function(*args, **kwargs)

    def flat(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays of the result."""
        with jax.enable_x64(self.wide):
            return [jnp.asarray(leaf) for leaf in jax.tree.leaves(self.run(arrays))]

    def backward(self, of: Sequence[int], through: Sequence[int]) -> "JaxCall":
        """The call that takes the operands and the gradients of the results `through`,
        and gives those of the operands `of`, in PyTorch's sense."""

        def gradients(*arrays: Any) -> list[Any]:
            operands, given = list(arrays[: -len(through)]), arrays[-len(through) :]

            def forward(*wanted: Any) -> list[Any]:
                for i, value in zip(of, wanted):
                    operands[i] = value
                outs = self.flat(operands)
                return [outs[i] for i in through]

            pull = jax.vjp(forward, *[operands[i] for i in of])[1]
            return [_conj(g) for g in pull([_conj(g) for g in given])]

        key = ("backward", self.key, tuple(of), tuple(through))
        name = f"backward of {self.name}"
        return JaxCall(gradients, lambda a: (tuple(a), {}), self.wide, key, name)


def _conj(value: Any) -> Any:
    """JAX's gradients of complex numbers are the conjugates of PyTorch's."""
    return jnp.conj(value) if np.iscomplexobj(value) else value


@row("tarry::jax")
def jax_row(call: Call, what: JaxCall, operands: tuple) -> list[Any]:
    return what.flat(operands)
