"""Rows that hold other rows together: empty memory, casts, and one row over a list."""

from typing import Any

from tarry.lower.table import TABLE, Call, broadcast, convert, row
from tarry.lower.xla import jnp, lax


@row("tarry::empty")
def empty(call: Call) -> Any:
    """Memory nobody has written yet: zeros, so that runs repeat."""
    return lax.full(call.out.shape, 0, call.out.dtype)


@row("tarry::cast")
def cast(call: Call, value: Any) -> Any:
    """`value` in another dtype and, where its shape differs, broadcast."""
    return broadcast(convert(value, call.out.dtype), call.out.shape)


_SKIPPED = {"linalg_vector_norm": (None, False)}  # dim and keepdim


@row("tarry::map")
def map_row(
    call: Call, name: str, layout: str, shared: tuple, elements: tuple
) -> list[Any]:
    """The row `name` applied to each element.

    `layout` names the source of each argument: `e` the element's next, `s` the next
    of `shared`, `_` one that list operators do not have.
    """
    lower, per = TABLE[name].lower, len(call.outs) // max(len(elements), 1)
    results: list[Any] = []
    for i, element in enumerate(elements):
        sources = {
            "e": iter(element),
            "s": iter(shared),
            "_": iter(_SKIPPED.get(name, ())),
        }
        args = [next(sources[c]) for c in layout]
        result = lower(Call(call.outs[i * per : (i + 1) * per]), *args)
        result = result if isinstance(result, tuple | list) else [result]
        results += [value for value in result if value is not None]
    return results


@row("tarry::nonzero")
def nonzero(call: Call, value: Any) -> Any:
    """Indices of the values that are not zero, one row per dimension."""
    if value.ndim == 0:
        return lax.full(call.out.shape, 0, call.out.dtype)
    found = jnp.nonzero(value, size=call.out.shape[1])
    return lax.convert_element_type(jnp.stack(found), call.out.dtype)
