"""torch dtypes and their NumPy (= XLA) counterparts, and PyTorch's type promotion.

`to_numpy` and `from_numpy` are inverse on every dtype of the device but one: values of
complex32, which NumPy and XLA lack, are carried as complex64, and every instruction
that yields them rounds their parts to f16. `promote` follows PyTorch's `result_type`:
tensors with dimensions count before 0-d tensors, those before Python numbers, and a
later group counts only by a higher category.
"""

import ml_dtypes
import numpy as np
import torch

_PAIRS: tuple[tuple[torch.dtype, np.dtype, str], ...] = (
    (torch.bool, np.dtype(np.bool_), "pred"),
    (torch.uint8, np.dtype(np.uint8), "u8"),
    (torch.uint16, np.dtype(np.uint16), "u16"),
    (torch.uint32, np.dtype(np.uint32), "u32"),
    (torch.uint64, np.dtype(np.uint64), "u64"),
    (torch.int8, np.dtype(np.int8), "s8"),
    (torch.int16, np.dtype(np.int16), "s16"),
    (torch.int32, np.dtype(np.int32), "s32"),
    (torch.int64, np.dtype(np.int64), "s64"),
    (torch.float16, np.dtype(np.float16), "f16"),
    (torch.bfloat16, np.dtype(ml_dtypes.bfloat16), "bf16"),
    (torch.float32, np.dtype(np.float32), "f32"),
    (torch.float64, np.dtype(np.float64), "f64"),
    (torch.complex32, np.dtype(np.complex64), "c32"),
    (torch.complex64, np.dtype(np.complex64), "c64"),
    (torch.complex128, np.dtype(np.complex128), "c128"),
)
TO_NUMPY = {t: n for t, n, _ in _PAIRS}
FROM_NUMPY = {n: t for t, n, _ in _PAIRS}
SHORT = {t: s for t, _, s in _PAIRS}
SUPPORTED = frozenset(TO_NUMPY)

_HALF = (torch.float16, torch.bfloat16)


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype that holds the same values as `dtype`."""
    return TO_NUMPY[dtype]


def from_numpy(dtype: np.dtype) -> torch.dtype:
    """The torch dtype that holds the same values as `dtype`."""
    return FROM_NUMPY[np.dtype(dtype)]


def part(dtype: torch.dtype) -> np.dtype:
    """The dtype of the real and imaginary parts of a complex `dtype` in memory."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def host_array(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy view of a contiguous CPU tensor; a copy only of complex32."""
    if tensor.dtype is torch.complex32:
        tensor = tensor.to(torch.complex64)
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def host_tensor(array: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A CPU tensor that owns a copy of `array`, in the `dtype` that it stands for."""
    if dtype is torch.complex32:
        return torch.from_numpy(np.array(array, order="C")).to(dtype)
    array = np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def number_dtype(kind: str) -> torch.dtype:
    """The dtype a Python number of kind `b`, `i`, `f` or `c` stands for."""
    if kind == "f":
        return torch.get_default_dtype()
    if kind == "c":
        return torch.complex(
            torch.empty(0, dtype=torch.get_default_dtype()),
            torch.empty(0, dtype=torch.get_default_dtype()),
        ).dtype
    return torch.bool if kind == "b" else torch.int64


def _combine(
    higher: torch.dtype | None, lower: torch.dtype | None
) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def promote(
    tensors: list[tuple[torch.dtype, int]], numbers: list[str]
) -> torch.dtype | None:
    """PyTorch's common dtype of `(dtype, ndim)` tensors and number kinds."""
    groups: list[torch.dtype | None] = [None, None, None]
    entries = [(0 if ndim else 1, dtype) for dtype, ndim in tensors]
    entries += [(2, number_dtype(kind)) for kind in numbers]
    for at, dtype in entries:
        old = groups[at]
        groups[at] = dtype if old is None else torch.promote_types(old, dtype)
    return _combine(_combine(groups[0], groups[1]), groups[2])


def product_precision() -> str:
    """What `torch.set_float32_matmul_precision` asks for: highest, high or medium."""
    return torch.get_float32_matmul_precision()


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype PyTorch computes in for values of `dtype` (f32 for halves)."""
    if dtype is torch.complex32:
        return torch.complex64
    return torch.float32 if dtype in _HALF else dtype
