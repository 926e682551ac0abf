"""PyTorch's operator database: its entries, the ways of calling them, their samples."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED, set_rng_seed

# Ways of calling an entry. `transposed`, `sliced` and `expanded`: inputs are such views
# of something else; `extremal`: NaN and ±inf stand among the numbers; `reference`:
# PyTorch's own extended samples, among them extremal integers and empty tensors;
# `gradcheck` and `gradgradcheck`: PyTorch's comparison with finite differences, on
# tarry alone; `errors`: calls that PyTorch refuses.
KINDS = [
    "forward", "grad", "gradgrad", "gradcheck", "gradgradcheck", "inplace", "out",
    "transposed", "sliced", "expanded", "extremal", "reference", "errors",
]  # fmt: skip
GRADS = ("grad", "gradgrad", "gradcheck", "gradgradcheck")
TWICE = ("gradgrad", "gradgradcheck")
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64,
    torch.int32, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip

# At most so many samples of an entry, spread over the first `LISTED` that it yields:
# convolutions, pools and interpolations yield hundreds that differ in one argument.
CAP = 24
LISTED = 400


def spell(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


ENTRIES = {spell(op): op for op in op_db}

# Results are random or uninitialised: shape, dtype and strides are compared.
UNDEFINED = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided",
    "exponential", "geometric", "log_normal", "multinomial", "new_empty",
    "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu", "normal", "normal.in_place", "normal.number_mean",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "resize_",
    "resize_as_", "svd_lowrank", "uniform",
}  # fmt: skip

# Results are unique up to signs, phases or a rotation of a subspace: what is compared
# is what the entry's `output_process_fn_grad` makes of them.
AMBIGUOUS = {
    "geqrf", "linalg.eig", "linalg.eigh", "linalg.qr", "linalg.svd", "pca_lowrank",
    "qr", "svd",
}  # fmt: skip

# Where values are equal, which of their indices comes first is the kernel's choice.
TIED = {"argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"}

# What is singular has no inverse, and what is not finite no factors: what a kernel
# makes of them is its own affair.
REGULAR = {
    "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu", "lu_solve",
    "lu_unpack", "logdet", "matrix_exp", "ormqr", "pca_lowrank", "pinverse", "qr",
    "svd", "svd_lowrank", "triangular_solve",
}  # fmt: skip


def is_regular(op: Any) -> bool:
    """Whether the entry wants regular, finite matrices."""
    return op.name in REGULAR or op.name.startswith("linalg.")


# Arguments after the first that PyTorch wants on the CPU, whatever the device.
ON_HOST = {"tensor_split"}


def dtype_of(kind: str, dtype: torch.dtype) -> torch.dtype:
    """Finite differences want double precision."""
    return torch.float64 if kind in ("gradcheck", "gradgradcheck") else dtype


def takes(op: Any, dtype: torch.dtype, kind: str) -> bool:
    """Whether PyTorch's CPU has this entry in this dtype and way of calling it."""
    if kind == "errors":
        return op.error_inputs_func is not None and dtype is torch.float32
    if not op.supports_dtype(dtype, "cpu"):
        return False
    if kind in ("expanded", "extremal") and is_regular(op):
        return False
    if kind == "extremal" and not dtype.is_floating_point:
        return False
    if kind in GRADS:
        supports = op.supports_gradgrad if kind in TWICE else op.supports_autograd
        undefined = spell(op) in UNDEFINED
        return bool(
            supports and not undefined and dtype in op.supported_backward_dtypes("cpu")
        )
    if kind == "inplace":
        return op.inplace_variant is not None
    if kind == "out":
        return bool(op.supports_out)
    if kind == "reference":
        return op.reference_inputs_func is not None
    return True


def _seeded(samples: Any) -> Iterator[Any]:
    """The samples as `op.sample_inputs` yields them, without its walks of the stack."""
    samples = iter(samples)
    while True:
        set_rng_seed(SEED)
        try:
            yield next(samples)
        except StopIteration:
            return


def samples_of(op: Any, dtype: torch.dtype, kind: str, cap: int = CAP) -> list[Any]:
    """At most `cap` samples of the entry, spread over all; CPU tensors."""
    torch.manual_seed(0)
    if kind in ("gradcheck", "gradgradcheck"):
        cap = min(cap, 2)
    if kind == "errors":
        return list(op.error_inputs("cpu"))
    grad = kind in GRADS
    source = op.reference_inputs_func if kind == "reference" else op.sample_inputs_func
    every = list(islice(_seeded(source(op, "cpu", dtype, grad)), LISTED))
    if len(every) <= cap:
        return every
    if cap == 1:
        return every[:1]
    step = (len(every) - 1) / (cap - 1)
    return [every[round(i * step)] for i in range(cap)]
