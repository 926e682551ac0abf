"""A view of a dense array as slices and transposes, from strides alone.

In: the geometry (shape, strides, offset in elements) of a view of a flat array of
`size` elements laid out as `dims` (row-major, physical order). Out: a `Blocks` plan
(reshape to `radix`, slice, permute, broadcast), or None where only a gather will do.
"""

from dataclasses import dataclass
from itertools import pairwise

from tarry.record.slot import Spec, contiguous_strides


@dataclass(frozen=True, slots=True)
class Blocks:
    """reshape(flat, radix)[starts:limits:steps], then axes in view order."""

    radix: tuple[int, ...]
    starts: tuple[int, ...]
    limits: tuple[int, ...]
    steps: tuple[int, ...]
    axes: tuple[int, ...]  # radix axis of each view dimension that is not broadcast
    kept: tuple[int, ...]  # those view dimensions

    @property
    def sliced(self) -> bool:
        full = (0,) * len(self.radix), self.radix, (1,) * len(self.radix)
        return (self.starts, self.limits, self.steps) != full


def physical(base: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation that puts a dense base in memory order, and its shape then."""
    perm = tuple(
        sorted(range(len(base.shape)), key=lambda d: (-base.strides[d], d))
        if not base.contiguous
        else range(len(base.shape))
    )
    return perm, tuple(base.shape[d] for d in perm)


def is_dense(shape: tuple, strides: tuple) -> bool:
    """True where the elements fill their memory without gap or overlap."""
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def extent(shape: tuple, strides: tuple, offset: int = 0) -> int:
    """Elements of storage that the geometry reaches (0 for an empty tensor)."""
    if 0 in shape:
        return 0
    return offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1


def blocks(
    dims: tuple[int, ...], shape: tuple, strides: tuple, offset: int
) -> Blocks | None:
    size = 1
    for n in dims:
        size *= n
    view = [
        (s, n, d) for d, (s, n) in enumerate(zip(strides, shape)) if n != 1 and s != 0
    ]
    view.sort(key=lambda e: (-e[0], e[2]))
    return _digits(size, view, offset) or _per_dim(dims, view, offset)


def _digits(size: int, view: list, offset: int) -> Blocks | None:
    """View strides as the units of a mixed radix over the flat array."""
    units = [size, *(s for s, _, _ in view)]
    if any(a % b or a == b == 0 for a, b in pairwise(units)):
        return None
    radix = [a // b for a, b in pairwise(units)]
    last = units[-1]
    radix.append(last)
    starts, rest = [], offset
    for unit in [*units[1:], 1]:
        starts.append(rest // unit)
        rest %= unit
    sizes = [n for _, n, _ in view] + [1]
    if any(a + n > r for a, n, r in zip(starts, sizes, radix)):
        return None
    limits = tuple(a + n for a, n in zip(starts, sizes))
    order = sorted(range(len(view)), key=lambda i: view[i][2])
    if last == 1:
        radix, starts, limits = radix[:-1], starts[:-1], limits[:-1]
    return Blocks(
        tuple(radix),
        tuple(starts),
        limits,
        (1,) * len(radix),
        tuple(order),
        tuple(view[i][2] for i in order),
    )


def _per_dim(dims: tuple[int, ...], view: list, offset: int) -> Blocks | None:
    """Each view dimension a (stepped) slice of its own dimension of the array."""
    units = contiguous_strides(dims)
    starts = [offset // u % n if n else 0 for u, n in zip(units, dims)]
    limits, steps = [a + 1 for a in starts], [1] * len(dims)
    owner: dict[int, int] = {}
    for stride, n, d in view:
        at = next(
            (
                j
                for j, (u, m) in enumerate(zip(units, dims))
                if m > 1 and u <= stride < u * m
            ),
            None,
        )
        if at is None or at in owner or stride % units[at]:
            return None
        step = stride // units[at]
        if starts[at] + (n - 1) * step >= dims[at]:
            return None
        limits[at], steps[at] = starts[at] + (n - 1) * step + 1, step
        owner[at] = d
    order = sorted(owner, key=lambda at: owner[at])
    return Blocks(
        tuple(dims),
        tuple(starts),
        tuple(limits),
        tuple(steps),
        tuple(order),
        tuple(owner[at] for at in order),
    )
